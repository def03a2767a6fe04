"""Probabilities of tracks over regions as files: TSV, BED, Parquet, and bigWig of one track.

Every writer but that of bigWig takes a stream and holds a bounded part of it. Coordinates are 0-based and
half-open. The same regions give the same bytes: nothing depends on time or machine.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.disk.outputs import Destination, open_text, provenance_lines
from bigbird_dna.errors import DataError, UsageError
from bigbird_dna.tasks import bigwig
from bigbird_dna.tasks.chromatin.regions import PredictedRegion, Region

# Axes: T tracks of the model.

_GROUP_VALUES = 1 << 22  # of a Parquet row group, the part of the result that its writer holds


_PLACES = ("contig", "start", "end", "name")
_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "tsv": (*_PLACES, "note"),
    "bed": (*_PLACES, "score", "strand", "note"),
    "parquet": (*_PLACES, "note"),
}
"""Columns of a table before those of the tracks."""


class TrackInfo(NamedTuple):
    """What the writers say or need to know beside the predictions.

    `provenance` goes to the head of the file; `names` are the tracks that are written, `columns` their places
    among the T; `contigs` are the reference's, with their lengths in bp.
    """

    provenance: Mapping[str, str]
    names: Sequence[str]
    columns: Sequence[int]
    contigs: Mapping[str, int]


def write_tsv(path: Destination, predicted: Iterable[PredictedRegion], info: TrackInfo) -> None:
    """`#contig start end name note`, then a column a track; `.` where there is no note or figure."""
    rows = ([*_place(region), note, *_figures(values, info)] for region, values, note in predicted)
    _write_rows(path, info, "tsv", rows)


def write_bed(path: Destination, predicted: Iterable[PredictedRegion], info: TrackInfo) -> None:
    """BED6 and more: the score is 1000 × the largest probability of the tracks, 0 where there is none;
    then the columns of the TSV from the note on."""

    def rows() -> Iterator[list[str]]:
        for region, values, note in predicted:
            score = 0 if values is None else round(1000 * float(values[info.columns].max()))
            yield [*_place(region), str(score), ".", note, *_figures(values, info)]

    _write_rows(path, info, "bed", rows())


def write_parquet(path: Destination, predicted: Iterable[PredictedRegion], info: TrackInfo) -> None:
    """The columns of the TSV with types, null where it has `.`; provenance as metadata."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    assert isinstance(path, Path), "a Parquet file ends with its index"
    places = {"contig": pa.string(), "start": pa.int64(), "end": pa.int64(), "name": pa.string()}
    types = [*places.items(), ("note", pa.string()), *((name, pa.float32()) for name in info.names)]
    schema = pa.schema(types, metadata=dict(info.provenance))
    unscored = np.full(len(info.columns), np.nan, np.float32)
    height = max(_GROUP_VALUES // max(len(info.names), 1), 1)
    rows = iter(predicted)
    with pq.ParquetWriter(path, schema) as writer:
        while group := list(islice(rows, height)):
            values = np.stack([unscored if row is None else row[info.columns] for _, row, _ in group])
            missing = np.array([row is None for _, row, _ in group])
            columns = [
                pa.array([region[place] for region, _, _ in group], kind)
                for place, kind in enumerate(places.values())
            ]
            columns.append(pa.array([None if note == "." else note for _, _, note in group], pa.string()))
            columns += [pa.array(column, pa.float32(), mask=missing) for column in values.T]
            writer.write_table(pa.Table.from_arrays(columns, schema=schema))


def write_bigwig(path: Destination, predicted: Iterable[PredictedRegion], info: TrackInfo) -> None:
    """The one track's probabilities where regions are, in the order of the reference.

    Raises
    ------
    DataError
        No region has a probability, or two regions overlap.
    """
    assert isinstance(path, Path), "a bigWig is sought in"
    order = {contig: place for place, contig in enumerate(info.contigs)}
    found = [
        (order[region.contig], region.start, region.end, float(values[info.columns[0]]))
        for region, values, _ in predicted
        if values is not None
    ]
    found.sort()
    contigs = list(info.contigs)
    values = ((contigs[place], start, end, value) for place, start, end, value in found)
    bigwig.write_bigwig(path, values, info.contigs, "region")


def check_disjoint(path: Path, regions: Iterable[Region]) -> None:
    """`DataError` if two regions that can be predicted overlap: a bigWig has one value a base."""
    last: Region | None = None
    for region in sorted(region for region in regions if not region.fault):
        if last is not None and last.contig == region.contig and last.end > region.start:
            raise DataError(
                f"{path}: regions {last.name} and {region.name} overlap, and a bigWig has one value a base: "
                "merge them, or write another format"
            )
        last = region


def check_names(format: str, names: Iterable[str]) -> None:
    """`UsageError` if a track is called as a column of a format's table that says something of the regions.

    `strand` is one wherever tables are read, also of formats that don't write it.
    """
    taken = {*_COLUMNS[format], "strand"} if format in _COLUMNS else set()
    for name in names:
        if name in taken:
            raise UsageError(
                f"track {name!r}: in a table a column of that name says something else: leave the track out "
                "with --tracks, or write it alone as bigwig"
            )


Writer = Callable[[Destination, Iterable[PredictedRegion], TrackInfo], None]

WRITERS: dict[str, Writer] = {
    "tsv": write_tsv,
    "bed": write_bed,
    "bigwig": write_bigwig,
    "parquet": write_parquet,
}


def _write_rows(path: Destination, info: TrackInfo, format: str, rows: Iterable[Sequence[str]]) -> None:
    header = "#" + "\t".join([*_COLUMNS[format], *info.names])
    with open_text(path) as stream:
        for line in (*provenance_lines(info.provenance), header):
            stream.write(f"{line}\n")
        for row in rows:
            stream.write("\t".join(row) + "\n")


def _place(region: Region) -> list[str]:
    return [region.contig, str(region.start), str(region.end), region.name]


def _figures(values: NDArray[np.float32] | None, info: TrackInfo) -> list[str]:
    if values is None:
        return ["."] * len(info.columns)
    return [f"{values[column]:.6f}" for column in info.columns]
