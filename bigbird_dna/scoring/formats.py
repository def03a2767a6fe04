"""Writers of scores, regions and effects, one per format; light to import, for use in help texts.

All writers except that of bigWig process a stream with bounded memory. The same rows give the same bytes on
any machine and at any time. Coordinates are 0-based and half-open, except those of VCF.
"""

import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

from bigbird_dna.console import log
from bigbird_dna.disk.atomic import atomic_path, is_special, link_target, quiet_htslib
from bigbird_dna.disk.outputs import (
    Destination,
    open_text,
    provenance,
    provenance_lines,
    text_destination,
)
from bigbird_dna.errors import DataError, UsageError, check_choice

if TYPE_CHECKING:  # help texts must not import NumPy
    import numpy as np
    from numpy.typing import NDArray

    from bigbird_dna.genome.sequence import Strand

R = TypeVar("R")

Formats = Mapping[str, tuple[str, ...]]
"""Format → file extensions."""

SCORE_FORMATS: Formats = {
    "tsv": (".tsv", ".txt"),
    "bed": (".bed",),
    "bedgraph": (".bedgraph", ".bdg", ".bg"),
    "bigwig": (".bigwig", ".bw"),
    "parquet": (".parquet",),
}
TRACK_FORMATS: Formats = {
    name: endings for name, endings in SCORE_FORMATS.items() if name != "bedgraph"
}
CALL_FORMATS: Formats = {
    name: SCORE_FORMATS[name] for name in ("bed", "tsv", "parquet")
}
SEQUENCE_FORMATS: Formats = {name: SCORE_FORMATS[name] for name in ("tsv", "parquet")}
EMBEDDING_FORMATS: Formats = {
    "parquet": (".parquet",),
    "npz": (".npz",),
    "h5ad": (".h5ad",),
}
VARIANT_FORMATS: Formats = {"vcf": (".vcf",), "tsv": (".tsv", ".txt")}
BINARY_FORMATS = ("bigwig", "parquet", "npz", "h5ad")

_BROWSERS_FORMATS = ("bed", "bedgraph")
# Header lines of these formats. UCSC accepts the words `track` and `browser`, htsjdk (IGV) also `track_7`.
_HEADERS = ("#", "track", "browser")

STRANDS: Mapping[str, tuple["Strand", ...]] = {
    "both": ("+", "-"),
    "+": ("+",),
    "-": ("-",),
}

TBI_REACH = 2**29  # bp, the largest position in a `.tbi` index

Value = tuple[str, int, int, float]
"""Contig, start and end (0-based, half-open), and the value."""

MOST_BIGWIG_CONTIGS = 65_535
"""Largest number of contigs with values in a bigWig: pybigtools writes them in a node with a 16-bit count."""

_SPARE = 1 << 20  # bytes of reserve: the blocks of each contig are allocated separately


class OutputHeader(NamedTuple):
    """Everything that writers need in addition to the rows.

    `origin` is written at the top of the file; `contigs` are lengths in bp; `columns` are the tracks of the
    rows' values. `extra` contains JSON values specific to the scorer.
    """

    origin: Mapping[str, str]
    contigs: Mapping[str, int] = {}
    columns: Sequence[str] = ()
    extra: Mapping[str, Any] = {}

    def stored(self) -> dict[str, Any]:
        """Return the content stored in a shard, including `command` and `model`."""
        own = {
            "contigs": dict(self.contigs),
            "columns": list(self.columns),
            "extra": dict(self.extra),
        }
        return {"command": self.origin["command"], "model": self.origin["model"], **own}

    @classmethod
    def read(cls, job: Mapping[str, Any]) -> Self:
        """Return the header stored in a shard."""
        origin = provenance(job["model"], job["command"])
        return cls(origin, job["contigs"], job["columns"], job["extra"])


Writer = Callable[[Destination, Iterable[R], OutputHeader], None]
"""Writes rows in a format, as a stream with bounded memory."""


def check_format(format: str, formats: Formats, output: Path | None) -> None:
    """Raise `UsageError` if the format is unknown, or cannot be written to `output`."""
    check_choice("format", format, formats)
    if format in BINARY_FORMATS:
        if output is None:
            raise UsageError(
                f"format {format} cannot be written to standard output; give a file with -o"
            )
        if output.suffix == ".gz":
            raise UsageError(
                f"{output}: {format} cannot be written as .gz; remove .gz from the name"
            )


def check_contig(contig: str, format: str, where: Path | str) -> None:
    """Raise `DataError` if the lines of a contig would be read as headers, e.g. BED lines of `track_1`."""
    if format in _BROWSERS_FORMATS and contig.startswith(_HEADERS):
        raise DataError(
            f"{where}: contig {contig!r} cannot be written as {format}: genome browsers would read its lines "
            "as headers; rename the contig, or write tsv or parquet"
        )


def check_bigwig_contigs(count: int, where: object, instead: str) -> None:
    """Raise `DataError` if more contigs have values than a bigWig can have; `instead` is what to do."""
    if count > MOST_BIGWIG_CONTIGS:
        raise DataError(
            f"{where}: a bigWig can have values on {MOST_BIGWIG_CONTIGS:,} contigs, not on {count:,}: "
            f"{instead}"
        )


def write_lines(
    path: Destination, lines: Iterable[str], errors: str = "strict"
) -> None:
    """Write a text file from lines without line ends; bgzip if the name ends in `.gz`."""
    with open_text(path, errors) as stream:
        for line in lines:
            stream.write(f"{line}\n")


class TableRow(NamedTuple):
    """A row of a table: coordinates, score (for tracks, the largest value), and values of the tracks.

    Score and values are None if the row was not scored. `note` is "" or "." if there is no note. `tss` is the
    position that a score is about; None if it is not in the sequence.
    """

    contig: str
    start: int
    end: int
    name: str
    score: float | None
    strand: str
    note: str
    values: "NDArray[np.float32] | None" = None
    tss: int | None = None


PLACE: Mapping[str, type] = {"contig": str, "start": int, "end": int, "name": str}
"""The first columns of every table."""
SCORED: Mapping[str, type] = {"score": float, "strand": str}
"""The next columns of a table of scores."""
SITE: Mapping[str, type] = {"tss": int}
"""The last column of a table of promoter scores."""


def table_writers(
    fields: Callable[[R], TableRow],
    group: Callable[[int], int],
    *,
    has_score: bool,
    has_tss: bool = False,
) -> dict[str, Writer[R]]:
    """Return writers of tables as TSV, BED and Parquet; `fields` converts a row to the fields of the table.

    Columns are the coordinates, with `has_score` score and strand, then note and tracks, with `has_tss` TSS.
    BED has 1000 × score (0 if not scored) and strand after the coordinates, as UCSC requires, and then the
    other columns. `group` returns the number of rows per Parquet row group, which is held in memory, for a
    number of tracks. The header of a TSV with TSSs begins without #, so that pandas reads it with
    `comment="#"`.
    """
    last = SITE if has_tss else {}

    def lines(rows: Iterable[R], is_bed: bool, header: OutputHeader) -> Iterator[str]:
        more = ["probability"] if is_bed and has_score else []
        scored = [*SCORED, *more] if is_bed or has_score else []
        yield from provenance_lines(header.origin)
        mark = "" if has_tss and not is_bed else "#"
        yield mark + "\t".join([*PLACE, *scored, "note", *header.columns, *last])
        for contig, start, end, name, score, strand, note, values, tss in map(
            fields, rows
        ):
            text = "NA" if score is None else f"{score:.6f}"
            first = str(round(1000 * (score or 0))) if is_bed else text
            cells = [first, strand, text][: len(scored)]
            tracks = (
                ["."] * len(header.columns)
                if values is None
                else map("{:.6f}".format, values.tolist())
            )
            sites = ["NA" if tss is None else str(tss)][: len(last)]
            yield "\t".join(
                [
                    f"{contig}\t{start}\t{end}\t{name}",
                    *cells,
                    note or ".",
                    *tracks,
                    *sites,
                ]
            )

    def write_parquet(
        path: Destination, rows: Iterable[R], header: OutputHeader
    ) -> None:
        first = {**PLACE, **(SCORED if has_score else {})}
        cells = (
            (
                tuple(getattr(row, name) for name in (*first, *last)),
                row.note,
                row.values,
            )
            for row in map(fields, rows)
        )
        write_parquet_table(
            path, cells, first, header, group(len(header.columns)), last=last
        )

    return {
        "tsv": lambda path, rows, header: write_lines(path, lines(rows, False, header)),
        "bed": lambda path, rows, header: write_lines(path, lines(rows, True, header)),
        "parquet": write_parquet,
    }


def write_parquet_table(
    path: Destination,
    rows: Iterable[tuple[Sequence[object], str, "NDArray[np.float32] | None"]],
    first: Mapping[str, type],
    header: OutputHeader,
    group: int,
    width: int | None = None,
    last: Mapping[str, type] = {},
) -> None:
    """Write rows of the cells of the columns `first`, a note, and values of the columns of `header`.

    The cells of the columns `last`, which come after all others, follow those of `first`. `group` is the
    number of rows per row group, which is held in memory. With `width`, a cell of a column is a list of this
    number of values.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    assert isinstance(path, Path), (
        "Parquet needs a regular file: its index is at the end"
    )
    kinds = {str: pa.string(), int: pa.int64(), float: pa.float32()}
    of_values = kinds[float] if width is None else pa.list_(kinds[float], width)
    columns = [(name, kinds[kind]) for name, kind in (*first.items(), ("note", str))]
    columns += [(name, of_values) for name in header.columns]
    columns += [(name, kinds[kind]) for name, kind in last.items()]
    schema = pa.schema(columns, metadata=dict(header.origin))
    unscored = np.full(len(header.columns) * (width or 1), np.nan, np.float32)
    upcoming, count = iter(rows), 0
    with pq.ParquetWriter(path, schema) as writer:
        while some := list(islice(upcoming, group)):
            own = [*zip(*(cells for cells, _, _ in some), strict=True)]
            notes = [None if note in ("", ".") else note for _, note, _ in some]
            leading = zip([*own[: len(first)], notes], schema.types, strict=False)
            found = [pa.array(cells, kind) for cells, kind in leading]
            if header.columns:
                missing = np.array([values is None for _, _, values in some])
                table = np.stack(
                    [unscored if values is None else values for _, _, values in some]
                )
                if width is None:
                    found += [
                        pa.array(column, of_values, mask=missing) for column in table.T
                    ]
                else:
                    lists = (
                        pa.array(part.ravel())
                        for part in np.split(table, len(header.columns), axis=1)
                    )
                    found += [
                        pa.FixedSizeListArray.from_arrays(one, width) for one in lists
                    ]
            trailing = zip(own[len(first) :], last.values(), strict=True)
            found += [pa.array(cells, kinds[kind]) for cells, kind in trailing]
            writer.write_table(pa.Table.from_arrays(found, schema=schema))
            count += len(some)
    if (written := pq.read_metadata(path).num_rows) != count:
        raise OSError(f"Parquet file of {written:,} rows, not {count:,}")


def write_bedgraph(
    path: Destination, values: Iterable[Value], origin: Mapping[str, str]
) -> None:
    """Write values with six digits, after the origin as `##` lines."""
    write_lines(path, chain(provenance_lines(origin), map(_bedgraph_line, values)))


def write_bigwig(
    path: Destination, values: Iterable[Value], contigs: Mapping[str, int], what: str
) -> None:
    """Write values with six digits; they must be in the order of `contigs` and positions, without overlap.

    pybigtools prints errors of its iterator and continues; all values are therefore written to a temporary
    file first. `DataError` if there are no values (`what` names the unit without scores) or too many contigs;
    `OSError` if a disk may have too little space, or if the file cannot be read back.
    """
    import pybigtools

    assert isinstance(path, Path), "bigWig needs a regular file: its writer seeks"
    with tempfile.TemporaryFile("w+", encoding="utf-8") as spool:
        last, count, covered = "", 0, 0
        for value in values:
            contig, start, end, _ = value
            count += contig != last
            covered += end - start
            last = contig
            spool.write(f"{_bedgraph_line(value)}\n")
        check_bigwig_contigs(count, path.name, "write another format")
        if not spool.tell():
            raise DataError(
                f"no {what} has a score (too many N, see max_n, or short records); a bigWig must not be empty"
            )
        # pybigtools does not report failed writes. It writes temporary files first, and zoom levels of
        # single values can be larger than the values as text, hence the factor of 3.
        for place in (path.parent, Path(tempfile.gettempdir())):
            if shutil.disk_usage(place).free < 3 * spool.tell() + _SPARE:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        spool.seek(0)
        named = path.with_name(f"{path.name}.bw")  # pybigtools requires this extension
        try:
            pybigtools.open(str(named), "w").write(dict(contigs), map(_fields, spool))
            # pybigtools may also fail without an error.
            with pybigtools.open(str(named)) as written:
                found = (
                    len(written.chroms()),
                    int(written.info()["summary"]["basesCovered"]),
                )
            if found != (count, covered):
                raise OSError(
                    f"bigWig of {found[0]:,} contigs and {found[1]:,} bp, not {count:,} and {covered:,}"
                )
            named.replace(path)
        except (KeyboardInterrupt, OSError):
            raise
        except BaseException as error:  # e.g. a full disk is a panic in its Rust code
            raise OSError(f"pybigtools: {error}") from None
        finally:
            named.unlink(missing_ok=True)


@contextmanager
def indexed_destination(
    output: Path | None, format: str, furthest: int | None
) -> Iterator[Destination]:
    """Yield the destination for lines of variants; with `.gz`, write an index and remove outdated ones.

    Through a link, file and index are written at the target. `furthest` is the largest 1-based position of
    sorted records, or of their contigs; None: the records are not sorted, or are written as a stream. The
    index is CSI for positions beyond the reach of TBI.
    """
    real = (
        None if output is None or is_special(output) else link_target(output).resolve()
    )
    is_bgzip = output is not None and real is not None and output.suffix == ".gz"
    index = None
    with text_destination(output) as target:
        yield target
        if is_bgzip and furthest is not None and isinstance(target, Path):
            # HTSlib also counts END, SVLEN and LEN; what TBI cannot hold, CSI may.
            endings = (".tbi", ".csi") if furthest < TBI_REACH else (".csi",)
            candidates = (Path(f"{real}{ending}") for ending in endings)
            index = next(
                (path for path in candidates if _is_indexed(target, path, format)), None
            )
            if index is None:
                log(f"warning: {output}: no index: HTSlib cannot index its positions")
    for path in (
        Path(f"{name}{end}")
        for name in (real, output)
        for end in (".tbi", ".csi")
        if is_bgzip
    ):
        if (
            path.resolve() != index
        ):  # an index next to a link may itself be a link to the new one
            path.unlink(missing_ok=True)  # readers would use the outdated index


def _is_indexed(path: Path, index: Path, format: str) -> bool:
    try:
        with atomic_path(index) as temporary:
            write_index(path, temporary, format)
    except OSError:
        return False
    return True


def write_index(path: Path, index: Path, format: str) -> None:
    """Write the tabix index of a bgzip file of sorted records; CSI if `index` ends in `.csi`.

    `path` must end in `.gz`. `OSError`: a position is beyond the reach of the index, or it is not readable.
    """
    import pysam

    columns: dict[str, Any] = (
        {"preset": "vcf"}
        if format == "vcf"
        else {"seq_col": 0, "start_col": 1, "end_col": 1}
    )
    with quiet_htslib():
        pysam.tabix_index(
            str(path),
            index=str(index),
            csi=index.suffix == ".csi",
            force=True,
            **columns,
        )
        with pysam.TabixFile(
            str(path), index=str(index), encoding="latin-1"
        ) as written:
            contigs = {row.split("\t", 1)[0] for row in written.fetch()}
            if contigs != {*written.contigs}:
                raise OSError(
                    f"{index}: {len(written.contigs):,} contigs, the file has {len(contigs):,}"
                )


def _bedgraph_line(value: Value) -> str:
    contig, start, end, score = value
    return f"{contig}\t{start}\t{end}\t{score:.6f}"


def _fields(line: str) -> Value:
    contig, start, end, score = line.rstrip("\n").split("\t")
    return contig, int(start), int(end), float(score)
