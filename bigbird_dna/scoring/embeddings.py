"""Embeddings of sequences in files: `bigbird_dna.embed` and command `embed`."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bigbird_dna.console import ProgressBar
from bigbird_dna.disk.atomic import atomic_path
from bigbird_dna.errors import DataError, UsageError
from bigbird_dna.genome.fasta import readable
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import Interval
from bigbird_dna.genome.sequence_tables import (
    COLUMNS,
    LONGEST,
    TableColumns,
    stream_sequences,
)
from bigbird_dna.model.batching import placed_rows
from bigbird_dna.model.catalog import result_origin
from bigbird_dna.model.directory import load
from bigbird_dna.model.inference import computation
from bigbird_dna.model.model import LoadedModel, Pool, find_layer
from bigbird_dna.scoring.regions import Region, opened, placed_regions
from bigbird_dna.scoring.writers import choose_output
from bigbird_dna.tokens.interface import require_dna

TRUNCATED = "truncated"
BATCH_BASES = 256_000
BATCH_VALUES = 1 << 24  # of the embeddings of a batch, which are in memory
GROUP_VALUES = 1 << 20  # per row group of Parquet

TEXT_COLUMNS = ("contig", "name", "strand", "note")
ROW_COLUMNS = {"token": ["token_start", "token_end"], "base": ["position"]}
"""Further columns of results with several rows per sequence."""

# Axes: N rows of a batch, R rows of a sequence (1, or its tokens or bases), D hidden width.


class EmbeddingCounts(NamedTuple):
    """Number of sequences, of rows of the result, and of sequences of which only the center was embedded."""

    sequences: int
    rows: int
    truncated: int


def embed(
    model: LoadedModel | Path | str,
    sequences: Path | str,
    output: Path | str,
    *,
    reference: Path | str | None = None,
    aliases: Path | str | None = None,
    sequence_column: str = COLUMNS.sequence,
    pool: Pool = "mean",
    layer: int | None = None,
    precision: str = "auto",
    batch_size: int = 32,
    device: str = "auto",
    threads: int | None = None,
) -> EmbeddingCounts:
    """Write the embeddings of sequences or regions, in the order of the file; see `Model.embed`.

    Parameters
    ----------
    model
        A model of any task with one encoder, or its directory.
    sequences
        As for `score_sequences`, or with `reference` a BED file of regions; the sequence of a region on
        strand "-" is the reverse complement.
    output
        Parquet file to write atomically.
    sequence_column
        As for `score_sequences`.
    reference, aliases
        The indexed FASTA of the regions, and a file of alternative contig names.
    pool, layer
        As for `Model.embed`.
    precision, batch_size, device, threads
        As for `score_promoters`.

    Raises
    ------
    UsageError
        An argument is out of range; the output cannot be written.
    DataError, ModelError
        As for `score_sequences`; a region is not on the reference; a sequence is too long for pool "base";
        the model is an ensemble.
    """
    inputs = [model, sequences, reference, aliases]
    path, _ = choose_output(output, None, {"parquet": (".parquet",)}, inputs, "parquet")
    assert path is not None
    if reference is None and str(sequences).endswith((".bed", ".bed.gz")):
        raise UsageError(
            f"{sequences}: regions need --reference, the FASTA with their sequences"
        )

    loaded = model if isinstance(model, LoadedModel) else load(model)
    loaded.one_encoder("embedding")
    require_dna(loaded.tokenizer)
    find_layer(loaded.config, layer, pool)
    hidden = loaded.config.hidden
    table = TableColumns(sequence_column)

    columns = ["name"]
    if reference is not None:
        columns = ["contig", "start", "end", "name", "strand"]

    positions = ROW_COLUMNS.get(pool, [])
    columns += [*positions, "note"]
    kinds = [pa.string() if name in TEXT_COLUMNS else pa.int64() for name in columns]
    kinds.append(pa.list_(pa.float32(), hidden))
    fields = zip([*columns, "embedding"], kinds, strict=True)

    counts = EmbeddingCounts(0, 0, 0)
    with ExitStack() as stack:
        stated_precision = stack.enter_context(
            computation(precision, device, threads, narrow=False)
        )
        options = {
            "--reference": reference,
            "--aliases": aliases,
            "--sequence-column": None if table == COLUMNS else sequence_column,
            "--layer": layer,
            "--pool": pool,
            "--precision": stated_precision,
        }
        origin = result_origin(loaded, "embed", sequences, options)
        schema = pa.schema(fields, metadata=origin)
        file = stack.enter_context(readable(sequences))
        genome = None
        if reference is not None:
            genome = stack.enter_context(opened(reference, aliases))

        # The whole file is checked before anything is computed.
        total = sum(1 for _ in read_inputs(file, genome, table))
        temporary = stack.enter_context(atomic_path(path))
        writer = stack.enter_context(pq.ParquetWriter(temporary, schema))
        bar = stack.enter_context(ProgressBar("embedding", total, "sequences"))
        inputs_of_file = read_inputs(file, genome, table)
        for batch in input_batches(inputs_of_file, pool, hidden):
            texts = []
            for region, text in batch:
                if genome is not None:
                    strand = region.strand or "+"
                    interval = Interval(region.contig, region.start, region.end, strand)
                    text = genome.fetch(interval)

                texts.append(text)

            rows: list[list[Any]] = []
            truncated = 0
            for (region, _), text in zip(batch, texts, strict=True):
                spans, note = row_spans(region.name, text, loaded, pool)
                truncated += note == TRUNCATED
                for start, end in spans.tolist():
                    cells: list[Any] = [region.name]
                    if genome is not None:
                        first, last = region.start + start, region.start + end
                        if region.strand == "-":
                            first, last = region.end - end, region.end - start

                        cells = [region.contig, first, last, region.name]
                        cells.append(region.strand or ".")

                    cells += [start, end][: len(positions)]
                    rows.append([*cells, note or None])

            vectors = loaded.embed(
                texts, pool=pool, layer=layer, batch_size=batch_size, device=device
            )
            if pool in ROW_COLUMNS:
                vectors = np.concatenate(list(vectors))

            arrays: list[Any] = [*map(pa.array, zip(*rows, strict=True), kinds)]
            values = pa.array(np.asarray(vectors, np.float32).ravel())
            arrays.append(pa.FixedSizeListArray.from_arrays(values, hidden))
            # Row groups are small enough for memory, whatever the size of vectors.
            group = max(GROUP_VALUES // hidden, 1)
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema), group)
            counts = EmbeddingCounts(
                counts.sequences + len(batch),
                counts.rows + len(rows),
                counts.truncated + truncated,
            )
            bar.advance(len(batch))

    return counts


def read_inputs(
    path: Path, genome: Reference | None, columns: TableColumns
) -> Iterator[tuple[Region, str]]:
    """Yield the regions of a BED file on a genome, with "" as sequence; or names and sequences of a file."""
    if genome is not None:
        for region in placed_regions(path, genome, LONGEST):
            yield region, ""
        return
    for name, text in stream_sequences(path, columns):
        yield Region("", 0, len(text), name), text


def input_batches(
    inputs: Iterator[tuple[Region, str]], pool: str, size: int
) -> Iterator[list[tuple[Region, str]]]:
    """Yield batches of inputs whose embeddings, of `size` values per row, fit into memory."""
    most_rows = max(BATCH_VALUES // size, 1)
    most_bases = min(BATCH_BASES, most_rows) if pool in ROW_COLUMNS else BATCH_BASES
    batch: list[tuple[Region, str]] = []
    bases = 0
    for region, text in inputs:
        batch.append((region, text))
        bases += region.end - region.start
        if bases >= most_bases or len(batch) == most_rows:
            yield batch
            batch, bases = [], 0

    if batch:
        yield batch


def row_spans(
    name: str, text: str, model: LoadedModel, pool: str
) -> tuple[NDArray[np.int64], str]:
    """Return the first base, and last base + 1, of each row (R, 2) of a sequence, and the sequence's note."""
    complete = np.array([[0, len(text)]])
    positions = model.config.max_length
    if pool not in ROW_COLUMNS and len(text) + 2 <= positions:
        return complete, ""  # a token has a base or more

    row, skipped = placed_rows(model.tokenizer, [text], positions, 0.5)[0]
    lengths = model.tokenizer.piece_lengths[row[1:-1]]
    note = "" if lengths.sum() == len(text) else TRUNCATED
    if pool not in ROW_COLUMNS:
        return complete, note

    if pool == "base":
        if note:
            raise DataError(
                f"{name!r} ({len(text):,} bp) has more tokens than the model's {positions:,}; --pool base "
                "needs shorter sequences"
            )

        lengths = np.ones(len(text), np.int32)

    ends = skipped + np.cumsum(lengths, dtype=np.int64)
    return np.stack([ends - lengths, ends], axis=1), note
