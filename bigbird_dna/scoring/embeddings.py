"""Embeddings of sequences in files: `bigbird_dna.embed` and command `embed`."""

import json
import shutil
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.console import ProgressBar
from bigbird_dna.disk.atomic import atomic_path
from bigbird_dna.disk.outputs import command_line, provenance
from bigbird_dna.errors import DataError, UsageError, check_at_least_one
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
from bigbird_dna.model.catalog import stored_name
from bigbird_dna.model.directory import load
from bigbird_dna.model.embedding import EmbeddingLayer, Pool, find_layer, vector_shape
from bigbird_dna.model.inference import (
    choose_device,
    choose_precision,
    cpu_threads,
    inference,
)
from bigbird_dna.model.model import LoadedModel
from bigbird_dna.scoring.regions import Region, placed_regions
from bigbird_dna.scoring.writers import Formats, choose_output
from bigbird_dna.tokens.interface import require_dna

EMBEDDING_FORMATS: Formats = {
    "parquet": (".parquet",),
    "npz": (".npz",),
    "h5ad": (".h5ad",),
}
TRUNCATED = "truncated"

BATCH_BASES = 256_000
BATCH_VALUES = 1 << 24  # of the embeddings of a batch, which are in memory
GROUP_VALUES = 1 << 20  # per row group of Parquet

REGION_COLUMNS = ("contig", "start", "end", "name", "strand")
TEXT_COLUMNS = ("contig", "name", "strand", "note")
ROW_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "token": ("token_start", "token_end"),
    "base": ("position",),
}
"""Further columns of results with several rows per sequence."""

# Axes: N rows of a batch, R rows of a sequence (1, or its tokens or bases), K layers, D hidden width.


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
    pool: str = "mean",
    layer: EmbeddingLayer | None = None,
    format: str | None = None,
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
        File to write atomically, in the format of its extension: Parquet, .npz or .h5ad.
    sequence_column
        As for `score_sequences`.
    reference, aliases
        The indexed FASTA of the regions, and a file of alternative contig names.
    pool, layer
        As for `Model.embed`.
    format
        parquet, npz or h5ad, for an output of another extension.
    precision, batch_size, device, threads
        As for `score_promoters`.

    Raises
    ------
    UsageError
        An argument is out of range; the output cannot be written; the format h5ad needs `anndata`.
    DataError, ModelError
        As for `score_sequences`; a region is not on the reference; a sequence is too long for pool "base";
        the model is an ensemble.
    """
    inputs = [model, sequences, reference, aliases]
    path, format = choose_output(output, format, EMBEDDING_FORMATS, inputs, "parquet")
    assert path is not None  # no format is text
    check_at_least_one({"batch_size": batch_size, "threads": threads})
    if reference is None and aliases is not None:
        raise UsageError("--aliases needs --reference")
    if reference is None and str(sequences).endswith((".bed", ".bed.gz")):
        raise UsageError(
            f"{sequences}: regions need --reference, the FASTA with their sequences"
        )
    torch_device = choose_device(device)
    precision, stated_precision = choose_precision(precision, torch_device, False)
    loaded = model if isinstance(model, LoadedModel) else load(model)
    loaded.one_encoder("embedding")
    require_dna(loaded.tokenizer)
    layer_used = find_layer(loaded.config, layer, cast(Pool, pool))
    shape = vector_shape(loaded.config, layer_used)  # (D,) or (K, D)
    size = int(np.prod(shape))

    source = "standard input" if str(sequences) == "-" else str(sequences)
    table = TableColumns(sequence_column)
    options: dict[str, object | None] = {
        "--reference": reference,
        "--aliases": aliases,
        "--sequence-column": None if table == COLUMNS else sequence_column,
        "--layer": layer,
        "--pool": pool,
        "--format": format,
        "--precision": stated_precision,
    }
    command = command_line("embed", [stored_name(loaded.path), sequences], options)
    origin = provenance(loaded.sha256, command)
    columns = ["name"] if reference is None else [*REGION_COLUMNS]
    columns = [*columns, *ROW_COLUMNS.get(pool, ()), "note"]
    counts = {"sequences": 0, "rows": 0, TRUNCATED: 0}
    with ExitStack() as stack:
        stack.enter_context(cpu_threads(threads))
        stack.enter_context(inference(precision, torch_device))
        file = stack.enter_context(readable(sequences))
        genome = None
        if reference is not None:
            names = None if aliases is None else Path(aliases)
            genome = stack.enter_context(Reference(Path(reference), names))
        # The whole file is checked before anything is computed.
        total = sum(1 for _ in read_inputs(file, genome, table))
        writer = stack.enter_context(
            open_embeddings(path, format, origin, columns, shape)
        )
        bar = stack.enter_context(ProgressBar("embedding", total, "sequences"))
        for batch in input_batches(read_inputs(file, genome, table), pool, size):
            regions = [region for region, _ in batch]
            texts = [
                text or _fetch(region, cast(Reference, genome))
                for region, text in batch
            ]
            rows = []
            for region, text in zip(regions, texts, strict=True):
                spans, note = row_spans(region, text, loaded, pool, source)
                for start, end in spans.tolist():
                    cells = _coordinates(region, start, end, genome is not None)
                    cells += [start, end][: len(ROW_COLUMNS.get(pool, ()))]
                    rows.append([*cells, note])
                counts["sequences"] += 1
                counts["rows"] += len(spans)
                counts[TRUNCATED] += note == TRUNCATED
            vectors = loaded.embed(
                texts,
                pool=cast(Pool, pool),
                layer=layer_used,
                batch_size=batch_size,
                device=device,
            )
            if pool in ROW_COLUMNS:
                vectors = np.concatenate(list(vectors))
            writer.write(
                rows, np.asarray(vectors, np.float32).reshape(len(rows), *shape)
            )
            bar.advance(len(batch))
    return EmbeddingCounts(counts["sequences"], counts["rows"], counts[TRUNCATED])


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


def _fetch(region: Region, genome: Reference) -> str:
    strand = region.strand or "+"
    return genome.fetch(Interval(region.contig, region.start, region.end, strand))


def row_spans(
    region: Region, text: str, model: LoadedModel, pool: str, source: str
) -> tuple[NDArray[np.int64], str]:
    """Return the first base, and last base + 1, of each row (R, 2) of a sequence, and the sequence's note."""
    whole = np.array([[0, len(text)]], np.int64)
    positions = model.config.max_length
    if pool not in ROW_COLUMNS and len(text) + 2 <= positions:
        return whole, ""  # a token has a base or more
    row, skipped = placed_rows(model.tokenizer, [text], positions, 0.5)[0]
    lengths = model.tokenizer.piece_lengths[row[1:-1]]
    note = "" if lengths.sum() == len(text) else TRUNCATED
    if pool not in ROW_COLUMNS:
        return whole, note
    if pool == "base":
        if note:
            raise DataError(
                f"{source}: {region.name!r} ({len(text):,} bp) has more tokens than the model's "
                f"{positions:,}; --pool base needs shorter sequences"
            )
        lengths = np.ones(len(text), np.int32)
    ends = skipped + np.cumsum(lengths, dtype=np.int64)
    return np.stack([ends - lengths, ends], axis=1), note


def _coordinates(region: Region, first: int, last: int, on_genome: bool) -> list[Any]:
    """Return the name of a sequence, or the columns `REGION_COLUMNS` of bases of a region."""
    if not on_genome:
        return [region.name]
    start, end = region.start + first, region.start + last
    if region.strand == "-":
        start, end = region.end - last, region.end - first
    return [region.contig, start, end, region.name, region.strand or "."]


# Files.


@contextmanager
def open_embeddings(
    path: Path,
    format: str,
    origin: Mapping[str, str],
    columns: Sequence[str],
    shape: tuple[int, ...],
) -> Iterator["ParquetVectors | ArrayVectors"]:
    """Open a file for rows of `columns` and vectors of a shape, (D,) or (K, D); it is written atomically."""
    with atomic_path(path) as temporary:
        if format == "parquet":
            parquet = ParquetVectors(temporary, origin, columns, shape)
            yield parquet
            parquet.close()
            return
        if format == "h5ad":
            _anndata()
        with ArrayVectors(temporary.with_name("vectors.npy"), shape) as arrays:
            yield arrays
        if format == "npz":
            _write_npz(temporary, arrays, origin, columns)
        else:
            _write_h5ad(temporary, arrays, origin, columns)
        arrays.path.unlink()


def _layer_names(shape: tuple[int, ...]) -> list[str]:
    if len(shape) == 1:
        return ["embedding"]
    return [f"layer_{number}" for number in range(shape[0])]


class ParquetVectors:
    """Parquet with a column of lists per layer; its metadata has the origin."""

    def __init__(
        self,
        path: Path,
        origin: Mapping[str, str],
        columns: Sequence[str],
        shape: tuple[int, ...],
    ) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        fields = [
            (name, pa.string() if name in TEXT_COLUMNS else pa.int64())
            for name in columns
        ]
        vectors = pa.list_(pa.float32(), shape[-1])
        fields += [(name, vectors) for name in _layer_names(shape)]
        self._schema = pa.schema(fields, metadata=dict(origin))
        self._file = pq.ParquetWriter(path, self._schema)
        self._group = max(GROUP_VALUES // int(np.prod(shape)), 1)

    def write(
        self, rows: Sequence[Sequence[Any]], vectors: NDArray[np.float32]
    ) -> None:
        """Write rows and their vectors (N, D) or (N, K, D)."""
        import pyarrow as pa

        layers = vectors if vectors.ndim > 2 else vectors[:, None]
        for first in range(0, len(rows), self._group):
            some = slice(first, first + self._group)
            cells = zip(*rows[some], strict=True)
            arrays = [
                pa.array([cell if cell != "" else None for cell in column], kind)
                for column, kind in zip(cells, self._schema.types, strict=False)
            ]
            for layer in range(layers.shape[1]):
                values = pa.array(np.ascontiguousarray(layers[some, layer]).ravel())
                arrays.append(
                    pa.FixedSizeListArray.from_arrays(values, vectors.shape[-1])
                )
            self._file.write_table(pa.Table.from_arrays(arrays, schema=self._schema))

    def close(self) -> None:
        """Write the index."""
        self._file.close()


class ArrayVectors:
    """Vectors that are written to `.npy` as they come, and the rows that describe them, which stay in memory."""

    def __init__(self, path: Path, shape: tuple[int, ...]) -> None:
        self.path = path
        self.shape = shape
        self.rows: list[Sequence[Any]] = []

    def __enter__(self) -> "ArrayVectors":
        self._stream = self.path.open("wb")
        self._write_header()
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.seek(0)
        self._write_header()  # which has room for the number of rows
        self._stream.close()

    def write(
        self, rows: Sequence[Sequence[Any]], vectors: NDArray[np.float32]
    ) -> None:
        """Add rows and their vectors."""
        self._stream.write(np.ascontiguousarray(vectors, "<f4").tobytes())
        self.rows.extend(rows)

    def _write_header(self) -> None:
        shape = (len(self.rows), *self.shape)
        header = {"descr": "<f4", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(self._stream, header)

    def columns(self, names: Sequence[str]) -> dict[str, list[Any]]:
        """Return the cells of the rows by column."""
        cells = zip(*self.rows, strict=True) if self.rows else ([] for _ in names)
        return {name: list(own) for name, own in zip(names, cells, strict=True)}


def _write_npz(
    path: Path, vectors: ArrayVectors, origin: Mapping[str, str], columns: Sequence[str]
) -> None:
    """Write one uncompressed archive of arrays, so that vectors and their names can't be separated."""
    arrays = {
        name: np.array(cells, np.str_ if name in TEXT_COLUMNS else np.int64)
        for name, cells in vectors.columns(columns).items()
    }
    arrays["origin"] = np.array(json.dumps(dict(origin), ensure_ascii=False))
    with zipfile.ZipFile(path, "w") as archive:
        # Unlike `write`, `open` stores no time: the same rows give the same bytes.
        with (
            archive.open("embeddings.npy", "w", force_zip64=True) as member,
            vectors.path.open("rb") as stream,
        ):
            shutil.copyfileobj(stream, member)
        for name, values in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, values, allow_pickle=False)


def _write_h5ad(
    path: Path, vectors: ArrayVectors, origin: Mapping[str, str], columns: Sequence[str]
) -> None:
    import pandas as pd

    values = np.asarray(np.load(vectors.path, mmap_mode="r"))
    obs = pd.DataFrame(
        vectors.columns(columns), [str(number) for number in range(len(values))]
    )
    names = []
    for layer in _layer_names(vectors.shape):
        prefix = "" if layer == "embedding" else f"{layer}_"
        names += [f"{prefix}{number}" for number in range(values.shape[-1])]
    table = _anndata().AnnData(
        values.reshape(len(values), -1),
        obs,
        pd.DataFrame(index=names),
        {"origin": dict(origin)},
    )
    table.write_h5ad(path)


def _anndata() -> Any:
    try:
        import anndata
    except ImportError:
        raise UsageError(
            "format h5ad needs the library anndata: run pip install 'bigbird-dna[embeddings]'"
        ) from None
    return anndata
