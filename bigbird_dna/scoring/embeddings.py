"""Embeddings of sequences in files: `bigbird_dna.embed` and command `embed`."""

import json
import shutil
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.console import progress
from bigbird_dna.disk.outputs import Destination
from bigbird_dna.errors import DataError, UsageError
from bigbird_dna.genome.records import LONGEST
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import Interval, Strand
from bigbird_dna.genome.sequence_tables import COLUMNS, TableColumns, stream_sequences
from bigbird_dna.model.batching import placed_rows
from bigbird_dna.model.directory import load
from bigbird_dna.model.embedding import EmbeddingLayer, Pool, find_layer, vector_shape
from bigbird_dna.model.model import LoadedModel, Predictor
from bigbird_dna.scoring.formats import (
    EMBEDDING_FORMATS,
    PLACE,
    OutputHeader,
    Writer,
    write_parquet_table,
)
from bigbird_dna.scoring.regions import Region, placed_regions
from bigbird_dna.scoring.scan import growing_batches
from bigbird_dna.scoring.scorer import Job, Scorer, Target, open_source, write_scores
from bigbird_dna.tokens.interface import require_dna

_FIRST_BATCH, _BATCH_BASES = 6_400, 256_000  # bp per batch; the first ones are small
_BATCH_VALUES = 1 << 24  # of the embeddings of a batch, which are in memory
_GROUP_VALUES = 1 << 20  # per row group of Parquet
TRUNCATED = "truncated"

SEQUENCE: Mapping[str, type] = {"name": str}
REGION: Mapping[str, type] = {**PLACE, "strand": str}
ROWS: Mapping[str, Mapping[str, type]] = {
    "token": {"token_start": int, "token_end": int},
    "base": {"position": int},
}
"""Further columns of results with several rows per sequence."""

# Axes: R rows of a sequence (1, or its tokens or bases), K layers, D hidden width.


class EmbeddingCounts(NamedTuple):
    """Number of sequences, of rows of the result, and of sequences of which only the center was embedded."""

    sequences: int
    rows: int
    truncated: int


class EmbeddedSequence(NamedTuple):
    """The embeddings (R, D or K · D) of a sequence, or of some of its rows.

    `place` is its region, without a contig for a sequence of a file. `spans` (R, 2) are the first base of
    each row and its last base + 1, in the direction of the sequence.
    """

    place: Region
    spans: NDArray[np.int64]
    vectors: NDArray[np.float32]
    note: str = ""


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
    shard: str | None = None,
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
    shard, precision, batch_size, device, threads
        As for `score_promoters`; all shards have the same number of sequences.

    Raises
    ------
    UsageError
        An argument is out of range; the output cannot be written; the format h5ad needs `anndata`.
    DataError, ModelError
        As for `score_sequences`; a region is not on the reference; a sequence is too long for pool "base";
        the model is an ensemble.
    """
    names = None if aliases is None else Path(aliases)
    own = (reference, names, sequence_column, layer, cast(Pool, pool))
    scorer = EmbeddingScorer(model, sequences, 1.0, False, *own)
    counts = write_scores(
        scorer, output, format, shard, precision, batch_size, device, threads
    )
    return EmbeddingCounts(counts["sequences"], counts["rows"], counts[TRUNCATED])


def _first(header: OutputHeader) -> dict[str, type]:
    """Columns before the note."""
    return {
        **(REGION if header.extra["regions"] else SEQUENCE),
        **ROWS.get(header.extra["pool"], {}),
    }


def _cells(row: EmbeddedSequence, header: OutputHeader) -> Iterator[tuple[object, ...]]:
    """Yield the cells of these columns for each row; coordinates on the contig are those of the row."""
    pool, (_, start, end, name, strand, _) = header.extra["pool"], row.place
    for first, last in row.spans.tolist():
        place = (
            (end - last, end - first)
            if strand == "-"
            else (start + first, start + last)
        )
        region = (
            (row.place.contig, *place, name, strand or ".")
            if header.extra["regions"]
            else (name,)
        )
        own = (first, last) if pool == "token" else (first,) if pool == "base" else ()
        yield (*region, *own)


def _write_parquet(
    path: Destination, rows: Iterable[EmbeddedSequence], header: OutputHeader
) -> None:
    shape = header.extra["shape"]
    cells = (
        (own, row.note, values)
        for row in rows
        for own, values in zip(_cells(row, header), row.vectors, strict=True)
    )
    group = max(_GROUP_VALUES // int(np.prod(shape)), 1)
    write_parquet_table(path, cells, _first(header), header, group, shape[-1])


def _write_vectors(
    path: Path, rows: Iterable[EmbeddedSequence], header: OutputHeader
) -> dict[str, list[Any]]:
    """Write the vectors as `.npy`, and return the columns that describe them, which stay in memory."""
    columns = {name: list[Any]() for name in (*_first(header), "note")}
    with path.open("wb") as stream:

        def write_header() -> None:
            about = {
                "descr": "<f4",
                "fortran_order": False,
                "shape": (len(columns["note"]), *shape),
            }
            np.lib.format.write_array_header_1_0(stream, about)

        shape = header.extra["shape"]
        write_header()
        for row in rows:
            stream.write(np.ascontiguousarray(row.vectors, "<f4").tobytes())
            for cells in _cells(row, header):
                for column, cell in zip(
                    columns.values(), (*cells, row.note), strict=True
                ):
                    column.append(cell)
        stream.seek(0)
        write_header()  # which has room for the number of rows
    return columns


def _write_npz(
    path: Destination, rows: Iterable[EmbeddedSequence], header: OutputHeader
) -> None:
    """Write one uncompressed archive of arrays, so that vectors and their names can't be separated."""
    assert isinstance(path, Path), "an archive needs a regular file"
    vectors = path.with_name(f"{path.name}.npy")
    columns = _write_vectors(vectors, rows, header)
    arrays = {
        name: np.array(columns[name], np.int64 if kind is int else np.str_)
        for name, kind in {**_first(header), "note": str}.items()
    }
    arrays["origin"] = np.array(json.dumps(dict(header.origin), ensure_ascii=False))
    with zipfile.ZipFile(path, "w") as archive:
        # Unlike `write`, `open` stores no time: the same rows give the same bytes.
        with (
            archive.open("embeddings.npy", "w", force_zip64=True) as member,
            vectors.open("rb") as stream,
        ):
            shutil.copyfileobj(stream, member)
        for name, values in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, values, allow_pickle=False)
    vectors.unlink()


def _write_h5ad(
    path: Destination, rows: Iterable[EmbeddedSequence], header: OutputHeader
) -> None:
    """Write an array first, so that only names and coordinates are in memory."""
    import pandas as pd

    assert isinstance(path, Path), "HDF5 needs a regular file"
    array = path.with_name(f"{path.name}.npy")
    columns = _write_vectors(array, rows, header)
    values = np.asarray(np.load(array, mmap_mode="r"))
    obs = pd.DataFrame(columns, [str(number) for number in range(len(values))])
    layers = [f"{name}_" for name in header.columns] if values.ndim > 2 else [""]
    names = [
        f"{layer}{number}" for layer in layers for number in range(values.shape[-1])
    ]
    origin = {"origin": dict(header.origin)}
    found = _anndata().AnnData(
        values.reshape(len(values), -1), obs, pd.DataFrame(index=names), origin
    )
    found.write_h5ad(path)


def _anndata() -> Any:
    try:
        import anndata
    except ImportError:
        raise UsageError(
            "format h5ad needs the library anndata: run pip install 'bigbird-dna[embeddings]'"
        ) from None
    return anndata


WRITERS: Mapping[str, Writer[EmbeddedSequence]] = {
    "parquet": _write_parquet,
    "npz": _write_npz,
    "h5ad": _write_h5ad,
}


@dataclass(frozen=True)
class EmbeddingScorer(Scorer[LoadedModel, EmbeddedSequence]):
    """Sequences of a FASTA file or table, or regions of a BED file; see `embed`."""

    kind = "embedded sequences"
    narrow = False
    command = "embed"
    formats = EMBEDDING_FORMATS
    default_format = "parquet"
    writers = WRITERS
    files = ("reference", "aliases")

    reference: Path | str | None
    aliases: Path | None
    sequence_column: str
    layer: EmbeddingLayer | None
    pool: Pool

    def check(self, target: Target) -> None:
        if self.reference is None:
            if self.aliases is not None:
                raise UsageError("--aliases needs --reference")
            if str(self.source).endswith((".bed", ".bed.gz")):
                raise UsageError(
                    f"{self.source}: regions need --reference, the FASTA with their sequences"
                )
        if target.format == "h5ad":
            _anndata()

    def load(self, **computing: Any) -> tuple[LoadedModel, Predictor]:
        model = self.model if isinstance(self.model, LoadedModel) else load(self.model)
        model.one_encoder("embedding")
        require_dna(model.tokenizer)
        layer = find_layer(model.config, self.layer, self.pool)

        def predict(sequences: Sequence[str]) -> NDArray[np.float32]:
            found: Any = model.embed(
                list(sequences), pool=self.pool, layer=layer, **computing
            )
            return np.concatenate(list(found)) if self.pool in ROWS else found

        return model, predict

    @contextmanager
    def open(
        self, model: LoadedModel, target: Target
    ) -> Iterator[Job[EmbeddedSequence]]:
        columns = TableColumns(self.sequence_column)
        shape = vector_shape(
            model.config, find_layer(model.config, self.layer, self.pool)
        )
        with ExitStack() as files:
            path, _ = files.enter_context(open_source(self.source, target))
            genome = None
            if self.reference is not None:
                genome = files.enter_context(
                    Reference(Path(self.reference), self.aliases)
                )

            def places() -> Iterator[tuple[Region, str]]:
                if genome is not None:
                    yield from (
                        (region, "") for region in placed_regions(path, genome, LONGEST)
                    )
                else:
                    found = stream_sequences(path, columns)
                    yield from (
                        (Region("", 0, len(text), name), text) for name, text in found
                    )

            count = sum(
                1 for _ in places()
            )  # checks the whole file before any computation

            def rows(
                predict: Predictor, numbers: range | None
            ) -> Iterator[EmbeddedSequence]:
                chosen = range(count) if numbers is None else numbers
                given = islice(places(), chosen.start, chosen.stop)
                found = self._embedded(given, genome, predict, model)
                return progress(found, "embedding", len(chosen), "sequences")

            options: dict[str, object | None] = {
                "--reference": self.reference,
                "--aliases": self.aliases,
                "--sequence-column": None
                if columns == COLUMNS
                else self.sequence_column,
                "--layer": self.layer,
                "--pool": self.pool,
                "--format": target.format,
            }
            names = (
                [f"layer_{number}" for number in range(shape[0])]
                if len(shape) > 1
                else ["embedding"]
            )
            extra = {
                "pool": self.pool,
                "regions": genome is not None,
                "shape": list(shape),
            }
            header = OutputHeader(self.origin(model, target, options), {}, names, extra)
            content = partial(self.content, model, path, self.reference, self.aliases)
            yield Job(header, content, lambda: count, rows)

    def _embedded(
        self,
        given: Iterator[tuple[Region, str]],
        genome: Reference | None,
        predict: Predictor,
        model: LoadedModel,
    ) -> Iterator[EmbeddedSequence]:
        """Yield the embeddings of places and their sequences ("": those of the genome), in batches."""
        layer = find_layer(model.config, self.layer, self.pool)
        limit = max(_BATCH_VALUES // int(np.prod(vector_shape(model.config, layer))), 1)
        most = min(_BATCH_BASES, limit) if self.pool in ROWS else _BATCH_BASES
        for batch in growing_batches(
            given, lambda one: one[0].end - one[0].start, _FIRST_BATCH, most, limit
        ):
            places = [place for place, _ in batch]
            texts = [
                text or _fetch(place, cast(Reference, genome)) for place, text in batch
            ]
            found = [
                self._spans(*one, model) for one in zip(places, texts, strict=True)
            ]
            ends = np.cumsum([len(spans) for spans, _ in found])
            vectors = predict(texts).reshape(ends[-1], -1)
            for place, (spans, note), own in zip(
                places, found, np.split(vectors, ends[:-1]), strict=True
            ):
                yield EmbeddedSequence(place, spans, own, note)

    def _spans(
        self, place: Region, text: str, model: LoadedModel
    ) -> tuple[NDArray[np.int64], str]:
        """Return the first base, and last base + 1, of the rows of a sequence, and its note."""
        whole, positions = np.array([[0, len(text)]], np.int64), model.config.max_length
        if (
            self.pool not in ROWS and len(text) + 2 <= positions
        ):  # a token has a base or more
            return whole, ""
        row, skipped = placed_rows(model.tokenizer, [text], positions, 0.5)[0]
        lengths = model.tokenizer.piece_lengths[row[1:-1]]
        note = "" if lengths.sum() == len(text) else TRUNCATED
        if self.pool not in ROWS:
            return whole, note
        if self.pool == "base":
            if note:
                raise DataError(
                    f"{self.source_name}: {place.name!r} ({len(text):,} bp) has more tokens than the model's "
                    f"{positions:,}; --pool base needs shorter sequences"
                )
            lengths = np.ones(len(text), np.int32)
        ends = skipped + np.cumsum(lengths, dtype=np.int64)
        return np.stack([ends - lengths, ends], axis=1), note

    def count(self, row: EmbeddedSequence, counts: Counter[str]) -> None:
        counts["sequences"] += 1
        counts["rows"] += len(row.vectors)
        counts[TRUNCATED] += row.note == TRUNCATED

    @staticmethod
    def lines(row: EmbeddedSequence) -> Iterable[str]:
        contig, start, end, name, strand, _ = row.place
        about = (contig, start, end, name, strand or ".", row.note)
        for span, values in zip(row.spans.tolist(), row.vectors.tolist(), strict=True):
            yield "\t".join(map(str, (*about, *span, *values)))  # exact

    @staticmethod
    def parse(line: str, header: OutputHeader) -> EmbeddedSequence:
        contig, start, end, name, strand, note, first, last, *values = line.split("\t")
        known: Strand | None = "+" if strand == "+" else "-" if strand == "-" else None
        place = Region(contig, int(start), int(end), name, known)
        if len(values) != np.prod(header.extra["shape"]):
            raise ValueError(
                f"expected {header.extra['shape']} values, found {len(values)}"
            )
        return EmbeddedSequence(
            place,
            np.array([[int(first), int(last)]]),
            np.array([values], np.float32),
            note,
        )


def _fetch(region: Region, genome: Reference) -> str:
    return genome.fetch(
        Interval(region.contig, region.start, region.end, region.strand or "+")
    )
