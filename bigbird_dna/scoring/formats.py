"""What is written of scores, regions and effects, one writer a format; light to import, for help texts.

Every writer but that of bigWig takes a stream and holds a bounded part of it. The same rows give the same
bytes: nothing depends on time or machine. Coordinates are 0-based and half-open, but for those of a VCF.
"""

import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

from bigbird_dna.disk.atomic import atomic_path, quiet_htslib
from bigbird_dna.disk.outputs import (
    Destination,
    is_special,
    open_text,
    provenance,
    provenance_lines,
    text_destination,
)
from bigbird_dna.errors import DataError, UsageError, check_choice

if TYPE_CHECKING:  # the help is light
    import numpy as np
    from numpy.typing import NDArray

    from bigbird_dna.genome.sequence import Strand

R = TypeVar("R")

Formats = Mapping[str, tuple[str, ...]]
"""Format → the endings of files that stand for it."""

SCORE_FORMATS: Formats = {
    "tsv": (".tsv", ".txt"),
    "bed": (".bed",),
    "bedgraph": (".bedgraph", ".bdg", ".bg"),
    "bigwig": (".bigwig", ".bw"),
    "parquet": (".parquet",),
}
TRACK_FORMATS: Formats = {name: endings for name, endings in SCORE_FORMATS.items() if name != "bedgraph"}
VARIANT_FORMATS: Formats = {"vcf": (".vcf",), "tsv": (".tsv", ".txt")}
BINARY_FORMATS = ("bigwig", "parquet")

_BROWSERS_FORMATS = ("bed", "bedgraph")
# Of lines there. UCSC reads the words `track` and `browser`, htsjdk (and so IGV) also `track_7`.
_HEADERS = ("#", "track", "browser")

STRANDS: Mapping[str, tuple["Strand", ...]] = {"both": ("+", "-"), "+": ("+",), "-": ("-",)}

TBI_REACH = 2**29  # bp, the furthest position a `.tbi` index can hold

Value = tuple[str, int, int, float]
"""Contig, start and end (0-based, half-open), and the value there."""

_SPARE = 1 << 20  # bytes: every contig's parts have blocks of their own on a disk


class OutputHeader(NamedTuple):
    """All that writers need beside the rows.

    `origin` goes to the head of the file; `contigs` are lengths in bp; `columns` are the tracks that rows
    have values of. `extra` is the scorer's own, of values that JSON has.
    """

    origin: Mapping[str, str]
    contigs: Mapping[str, int] = {}
    columns: Sequence[str] = ()
    extra: Mapping[str, Any] = {}

    def stored(self) -> dict[str, Any]:
        """What a shard keeps of it, beside `command` and `model`."""
        own = {"contigs": dict(self.contigs), "columns": list(self.columns), "extra": dict(self.extra)}
        return {"command": self.origin["command"], "model": self.origin["model"], **own}

    @classmethod
    def read(cls, job: Mapping[str, Any]) -> Self:
        """The header that a shard keeps."""
        origin = provenance(job["model"], job["command"])
        return cls(origin, job["contigs"], job["columns"], job["extra"])


Writer = Callable[[Destination, Iterable[R], OutputHeader], None]
"""Writes rows as a format; it takes a stream and holds a bounded part of it."""


def check_format(format: str, formats: Formats, output: Path | None) -> None:
    """`UsageError` if there is no such format, or it can't be written there."""
    check_choice("format", format, formats)
    if format in BINARY_FORMATS:
        if output is None:
            raise UsageError(f"format {format} can't go to standard output: name a file with -o")
        if output.suffix == ".gz":
            raise UsageError(f"{output}: {format} is compressed: leave out .gz")


def check_contig(contig: str, format: str, where: Path | str) -> None:
    """`DataError` if the rows of a contig would be taken for headers, as of BED `track …`."""
    if format in _BROWSERS_FORMATS and contig.startswith(_HEADERS):
        raise DataError(
            f"{where}: contig {contig!r} can't be written as {format}: genome browsers would take its lines "
            "for headers; rename it, or write tsv or parquet"
        )


def write_lines(path: Destination, lines: Iterable[str], errors: str = "strict") -> None:
    """Write a text file from its lines without their ends; bgzip if the name ends in `.gz`."""
    with open_text(path, errors) as stream:
        for line in lines:
            stream.write(f"{line}\n")


class TableRow(NamedTuple):
    """A row of a table: its place, the score there (of tracks: the largest), and values of tracks.

    Of a row that was not scored both are None. `note` is "" or ".", or says what was special.
    """

    contig: str
    start: int
    end: int
    name: str
    score: float | None
    strand: str
    note: str
    values: "NDArray[np.float32] | None" = None


PLACE: Mapping[str, type] = {"contig": str, "start": int, "end": int, "name": str}
"""The columns that every table begins with."""


def table_writers(
    fields: Callable[[R], TableRow], group: Callable[[int], int], *, has_score: bool
) -> dict[str, Writer[R]]:
    """Writers of tables as text, as BED and as Parquet, of rows that `fields` makes fields of.

    Columns are the place, with `has_score` score and strand, then the note and the tracks. BED has 1000 ×
    score and the strand, as UCSC asks for, after the place (0 where there is none), and then the rest.
    `group` gives the rows of a Parquet row group, which its writer holds, by the number of tracks.
    """

    def lines(rows: Iterable[R], is_bed: bool, header: OutputHeader) -> Iterator[str]:
        more = ["probability"] if is_bed and has_score else []
        scored = ["score", "strand", *more] if is_bed or has_score else []
        yield from provenance_lines(header.origin)
        yield "#" + "\t".join([*PLACE, *scored, "note", *header.columns])
        for contig, start, end, name, score, strand, note, values in map(fields, rows):
            text = "NA" if score is None else f"{score:.6f}"
            first = str(round(1000 * (score or 0))) if is_bed else text
            cells = [first, strand, text][: len(scored)]
            tracks = ["."] * len(header.columns) if values is None else map("{:.6f}".format, values.tolist())
            yield "\t".join([f"{contig}\t{start}\t{end}\t{name}", *cells, note or ".", *tracks])

    def write_parquet(path: Destination, rows: Iterable[R], header: OutputHeader) -> None:
        import numpy as np
        import pyarrow as pa
        import pyarrow.parquet as pq

        assert isinstance(path, Path), "a Parquet file ends with its index"
        kinds = {str: pa.string(), int: pa.int64(), float: pa.float32()}
        scored = {"score": float, "strand": str} if has_score else {}
        columns = {**PLACE, **scored, "note": str, **dict.fromkeys(header.columns, float)}
        schema = pa.schema(
            [(name, kinds[kind]) for name, kind in columns.items()], metadata=dict(header.origin)
        )
        unscored = np.full(len(header.columns), np.nan, np.float32)
        upcoming = map(fields, rows)
        with pq.ParquetWriter(path, schema) as writer:
            while some := list(islice(upcoming, group(len(header.columns)))):
                own = [[getattr(row, name) for row in some] for name in (*PLACE, *scored)]
                notes = [None if row.note in ("", ".") else row.note for row in some]
                found = [
                    pa.array(values, kind) for values, kind in zip([*own, notes], schema.types, strict=False)
                ]
                if header.columns:
                    missing = np.array([row.values is None for row in some])
                    tracks = np.stack([unscored if row.values is None else row.values for row in some])
                    found += [pa.array(column, kinds[float], mask=missing) for column in tracks.T]
                writer.write_table(pa.Table.from_arrays(found, schema=schema))

    return {
        "tsv": lambda path, rows, header: write_lines(path, lines(rows, False, header)),
        "bed": lambda path, rows, header: write_lines(path, lines(rows, True, header)),
        "parquet": write_parquet,
    }


def write_bedgraph(path: Destination, values: Iterable[Value], origin: Mapping[str, str]) -> None:
    """Write values with six digits, after their origin as `##` lines."""
    write_lines(path, chain(provenance_lines(origin), map(_bedgraph_line, values)))


def write_bigwig(path: Destination, values: Iterable[Value], contigs: Mapping[str, int], what: str) -> None:
    """Write values, in the order of `contigs` and positions and none upon another, with six digits.

    pybigtools prints what goes wrong inside its iterator and carries on, so the values are complete, in a
    temporary file, before it sees the first of them. `DataError` if there are none: no `what` has a score;
    `OSError` if a disk has less room than it may take.
    """
    import pybigtools

    assert isinstance(path, Path), "a bigWig is sought in"
    with tempfile.TemporaryFile("w+", encoding="utf-8") as spool:
        spool.writelines(f"{_bedgraph_line(value)}\n" for value in values)
        if not spool.tell():
            raise DataError(f"no {what} has a score (see max_n), and a bigWig can't be empty")
        # pybigtools says nothing of parts that it couldn't write; they are in temporary files first, and zoom
        # levels of single values can be larger than the values' text.
        for place in (path.parent, Path(tempfile.gettempdir())):
            if shutil.disk_usage(place).free < 3 * spool.tell() + _SPARE:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        spool.seek(0)
        named = path.with_name(f"{path.name}.bw")  # the only ending that pybigtools writes to
        try:
            pybigtools.open(str(named), "w").write(dict(contigs), map(_fields, spool))
            # It may also fail in silence; what is not complete then has no valid header.
            with pybigtools.open(str(named)):
                named.replace(path)
        except (KeyboardInterrupt, OSError):
            raise
        except BaseException as error:  # a full disk, for example, is a panic of its Rust code
            raise OSError(f"pybigtools: {error}") from None
        finally:
            named.unlink(missing_ok=True)


@contextmanager
def indexed_destination(output: Path | None, format: str, furthest: int | None) -> Iterator[Destination]:
    """Where to write lines of variants; a file in `.gz` appears with its index, and without a former one's.

    Through a link both are where it leads to. `furthest` is the furthest position, from 1 on, of sorted
    records; None: they aren't sorted, or go out as they come in.
    """
    real = None if output is None or is_special(output) else output.resolve()
    is_bgzip = real is not None and real.suffix == ".gz"
    index = None
    if is_bgzip and furthest is not None:
        index = Path(f"{real}.tbi" if furthest < TBI_REACH else f"{real}.csi")
    with ExitStack() as outputs:
        target = outputs.enter_context(text_destination(output))
        temporary_index = outputs.enter_context(atomic_path(index)) if index else None
        yield target
        if temporary_index is not None and isinstance(target, Path):
            write_index(target, temporary_index, format)
    for path in (Path(f"{name}{end}") for name in (real, output) for end in (".tbi", ".csi") if is_bgzip):
        if path.resolve() != index:  # one beside a link may itself lead to the new one
            path.unlink(missing_ok=True)  # readers would trust it


def write_index(path: Path, index: Path, format: str) -> None:
    """Write the tabix index of a bgzip file of sorted records; CSI if `index` ends in `.csi`.

    `path` must end in `.gz`.
    """
    import pysam

    columns: dict[str, Any] = (
        {"preset": "vcf"} if format == "vcf" else {"seq_col": 0, "start_col": 1, "end_col": 1}
    )
    with quiet_htslib():
        pysam.tabix_index(str(path), index=str(index), csi=index.suffix == ".csi", force=True, **columns)


def _bedgraph_line(value: Value) -> str:
    contig, start, end, score = value
    return f"{contig}\t{start}\t{end}\t{score:.6f}"


def _fields(line: str) -> Value:
    contig, start, end, score = line.rstrip("\n").split("\t")
    return contig, int(start), int(end), float(score)
