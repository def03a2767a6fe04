"""What is written of scores, regions and effects, one writer a format; light to import, for help texts.

Every writer but that of bigWig takes a stream and holds a bounded part of it. The same rows give the same
bytes: nothing depends on time or machine. Coordinates are 0-based and half-open, but for those of a VCF.
"""

import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from bigbird_dna.disk.atomic import atomic_path, quiet_htslib
from bigbird_dna.disk.outputs import (
    Destination,
    destination,
    format_for,
    is_special,
    open_text,
    provenance_lines,
    text_destination,
)
from bigbird_dna.errors import DataError, UsageError, check_choice

if TYPE_CHECKING:  # the help is light
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


def check_merged(format: str, formats: Formats, output: Path | None) -> None:
    """`UsageError` if what shards were made for is not what `output` would be, or can't be written there."""
    check_choice("format", format, formats)
    if (found := format_for(output, formats, format)) != format:
        raise UsageError(
            f"{output}: its ending says {found}, but the pieces were made with --format {format}"
        )
    check_format(format, formats, output)


def open_destination(output: Path | None, format: str) -> AbstractContextManager[Destination]:
    """Where a writer of a format writes; text goes to standard output, pipes and devices as it is made."""
    return destination(output, format) if format in BINARY_FORMATS else text_destination(output)


def write_lines(path: Destination, lines: Iterable[str], errors: str = "strict") -> None:
    """Write a text file from its lines without their ends; bgzip if the name ends in `.gz`."""
    with open_text(path, errors) as stream:
        for line in lines:
            stream.write(f"{line}\n")


def write_table(
    path: Destination, origin: Mapping[str, str], columns: Iterable[str], rows: Iterable[str]
) -> None:
    """Write a table as text: its origin as `##` lines, then `#` and the columns' names, and the rows."""

    def lines() -> Iterator[str]:
        yield from provenance_lines(origin)
        yield "#" + "\t".join(columns)
        yield from rows

    write_lines(path, lines())


def bed_fields(place: str, probability: float | None, strand: str) -> str:
    """BED6 after the fields of a place: 1000 × probability, as UCSC asks for (0 where there is none)."""
    return f"{place}\t{round(1000 * (probability or 0))}\t{strand}"


def write_bedgraph(path: Destination, origin: Mapping[str, str], values: Iterable[Value]) -> None:
    """Write values with six digits, after their origin as `##` lines."""

    def lines() -> Iterator[str]:
        yield from provenance_lines(origin)
        yield from map(_bedgraph_line, values)

    write_lines(path, lines())


def write_parquet(
    path: Destination,
    origin: Mapping[str, str],
    columns: Mapping[str, type],
    rows: Iterable[R],
    height: int,
    arrays: Callable[[list[R]], Iterable[tuple[Any, Any]]],
) -> None:
    """Write a table with types; its origin is metadata.

    `columns` are names with str, int or float (32 bits); `arrays` makes of at most `height` rows each
    column's values, and a mask of those that are missing or None. A row group has `height` rows.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    assert isinstance(path, Path), "a Parquet file ends with its index"
    kinds = {str: pa.string(), int: pa.int64(), float: pa.float32()}
    types = [kinds[kind] for kind in columns.values()]
    schema = pa.schema(list(zip(columns, types, strict=True)), metadata=dict(origin))
    upcoming = iter(rows)
    with pq.ParquetWriter(path, schema) as writer:
        while group := list(islice(upcoming, height)):
            found = [
                pa.array(values, kind, mask=missing)
                for (values, missing), kind in zip(arrays(group), types, strict=True)
            ]
            writer.write_table(pa.Table.from_arrays(found, schema=schema))


def write_bigwig(path: Destination, values: Iterable[Value], contigs: Mapping[str, int], what: str) -> None:
    """Write values, in the order of `contigs` and positions and none upon another, with six digits.

    pybigtools prints what goes wrong inside its iterator and carries on, so the values are complete, in a
    temporary file, before it sees the first of them.

    Raises
    ------
    DataError
        There are no values: no `what` has a score.
    OSError
        A disk has less room than it may take.
    """
    import pybigtools

    assert isinstance(path, Path), "a bigWig is sought in"
    with tempfile.TemporaryFile("w+", encoding="utf-8") as spool:
        spool.writelines(f"{_bedgraph_line(value)}\n" for value in values)
        if not spool.tell():
            raise DataError(f"no {what} has a score (see max_n), and a bigWig can't be empty")
        _check_room(spool.tell(), path.parent)
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


def _check_room(size: int, directory: Path) -> None:
    """Raise the error of a full disk before one is: pybigtools says nothing of parts that it couldn't write.

    They are in temporary files first, among the system's. Zoom levels of single values can be larger than the
    values; `size` is that of their text.
    """
    for place in (directory, Path(tempfile.gettempdir())):
        if shutil.disk_usage(place).free < 3 * size + _SPARE:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _bedgraph_line(value: Value) -> str:
    contig, start, end, score = value
    return f"{contig}\t{start}\t{end}\t{score:.6f}"


def _fields(line: str) -> Value:
    contig, start, end, score = line.rstrip("\n").split("\t")
    return contig, int(start), int(end), float(score)
