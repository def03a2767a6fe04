"""Writers of results, one class per format; `open_writer` opens the one of a format.

The loop that computes rows gives them to `write`, in batches. A file gets its name when it is complete, and an
error leaves the previous file as it was. Standard output, pipes and devices receive each batch at once.

The same rows give the same bytes on any machine. Coordinates are 0-based and half-open. The module is light to
import, so that help texts can list the formats.
"""

import errno
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

from bigbird_dna.disk.atomic import atomic_path
from bigbird_dna.disk.outputs import (
    TextOutput,
    check_output,
    format_for,
    named_output,
    naming_errors,
    open_text,
    provenance_lines,
)
from bigbird_dna.errors import DataError, UsageError, check_choice

if TYPE_CHECKING:  # help texts must not import NumPy
    from bigbird_dna.genome.sequence import Strand

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
    name: SCORE_FORMATS[name] for name in ("tsv", "bed", "bigwig", "parquet")
}
CALL_FORMATS: Formats = {
    name: SCORE_FORMATS[name] for name in ("bed", "tsv", "parquet")
}
SEQUENCE_FORMATS: Formats = {name: SCORE_FORMATS[name] for name in ("tsv", "parquet")}
STRANDS: Mapping[str, tuple["Strand", ...]] = {
    "both": ("+", "-"),
    "+": ("+",),
    "-": ("-",),
}
"""Values of the option `strand`."""

BINARY_FORMATS = ("bigwig", "parquet", "npz", "h5ad")

MOST_BIGWIG_CONTIGS = 65_535
"""Largest number of contigs with values in a bigWig: pybigtools writes them in a node with a 16-bit count."""

# Lines that readers of these formats take for headers. UCSC accepts the words `track` and `browser`, htsjdk
# (IGV) also `track_7`.
_BROWSER_FORMATS = ("bed", "bedgraph")
_HEADERS = ("#", "track", "browser")

_ROWS_AT_ONCE = (
    65_536  # per row group of Parquet, which is in memory, if there are few columns
)
_VALUES_AT_ONCE = 1 << 22
_SPARE = 1 << 20  # bytes of reserve: the blocks of each contig are allocated separately


class Writer(Protocol):
    """Writes rows, which are sequences of cells in the order of the columns."""

    def write(self, rows: Iterable[Sequence[Any]]) -> None:
        """Write more rows."""


def choose_output(
    output: Path | str | None,
    format: str | None,
    formats: Formats,
    inputs: Iterable[object],
    default: str = "tsv",
) -> tuple[Path | None, str]:
    """Return the file of a result (None: standard output) and its format; None: by the file's extension.

    `UsageError` if the format is unknown or cannot be written there, or if the output is one of the `inputs`
    or not writable.
    """
    path = named_output(output)
    check_output(path, inputs)
    format = format or format_for(path, formats, default)
    check_choice("format", format, formats)
    if format in BINARY_FORMATS:
        if path is None:
            raise UsageError(
                f"format {format} cannot be written to standard output; give a file with -o"
            )
        if path.suffix == ".gz":
            raise UsageError(
                f"{path}: {format} cannot be written as .gz; remove .gz from the name"
            )
    return path, format


def check_contig(contig: str, format: str, where: Path | str) -> None:
    """Raise `DataError` if the lines of a contig would be read as headers, e.g. BED lines of `track_1`."""
    if format in _BROWSER_FORMATS and contig.startswith(_HEADERS):
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


@contextmanager
def open_writer(
    output: Path | None,
    format: str,
    origin: Mapping[str, str],
    columns: Mapping[str, str] = {},
    *,
    missing: str = "NA",
    mark: str = "#",
    contigs: Mapping[str, int] = {},
    unit: str = "window",
) -> Iterator[Writer]:
    """Open a result for writing, atomically; None is standard output.

    Parameters
    ----------
    format
        tsv, bed, bedgraph, bigwig or parquet.
    origin
        Provenance, written at the top as lines `## key value`, or as metadata of Parquet.
    columns
        Name → format of the cells of tsv, bed and parquet: "s" for text, "d" for integers, ".6f" or ".6g" for
        numbers, which Parquet stores as float32. A cell of None is missing. Text of "" is written as "." (in
        Parquet, it is missing). BED starts with contig, start, end, name, score and strand; a score of ".6f"
        is multiplied by 1,000, and follows unchanged as `probability`. Rows of bedgraph and bigwig are
        contig, start, end and value, without overlap and in the order of `contigs` and positions.
    missing
        Text of a missing cell in tsv and bed.
    mark
        Start of the header line of tsv.
    contigs
        Lengths in bp, which a bigWig needs.
    unit
        What has a score, in the error for a bigWig without any.

    Raises
    ------
    DataError
        The output cannot be written, or a bigWig would be empty or have too many contigs.
    """
    if format == "parquet":
        with _binary_file(output) as path:
            table = ParquetWriter(path, origin, columns)
            yield table
            table.close()
    elif format == "bigwig":
        with (
            _binary_file(output) as path,
            tempfile.TemporaryFile("w+", encoding="utf-8") as spool,
        ):
            track = BigWigWriter(path, contigs, unit, spool)
            yield track
            track.close()
    else:
        with open_text(output) as stream:
            writer: TsvWriter | BedGraphWriter
            if format == "bedgraph":
                writer = BedGraphWriter(stream, origin)
            elif format == "bed":
                writer = BedWriter(stream, origin, columns, missing)
            else:
                writer = TsvWriter(stream, origin, columns, missing, mark)
            yield writer
            writer.write(())  # the header, if there are no rows


@contextmanager
def _binary_file(output: Path | None) -> Iterator[Path]:
    assert output is not None, "a binary format needs a file: its index is at the end"
    with naming_errors(output), atomic_path(output) as path:
        yield path


class TsvWriter:
    """Tab-separated table with a header line, after the origin as `##` lines."""

    def __init__(
        self,
        stream: TextOutput,
        origin: Mapping[str, str],
        columns: Mapping[str, str],
        missing: str,
        mark: str,
    ) -> None:
        self._stream = stream
        header = mark + "\t".join(columns)
        self._head = [*provenance_lines(origin), header]
        self._missing = missing
        self._formats = ["" if spec == "s" else spec for spec in columns.values()]

    def write(self, rows: Iterable[Sequence[Any]]) -> None:
        """Write rows; the header comes with the first ones, so that a command that fails before writes nothing."""
        lines = [self._line(row) for row in rows]
        lines[:0], self._head = self._head, []
        if lines:
            self._stream.write("\n".join(lines) + "\n")

    def _line(self, row: Sequence[Any]) -> str:
        missing = self._missing
        cells = [
            missing if cell is None else format(cell, spec)
            for cell, spec in zip(row, self._formats, strict=True)
        ]
        return "\t".join([cell or "." for cell in cells])


class BedWriter(TsvWriter):
    """BED: a table whose score is an integer of 0 to 1,000, as genome browsers require."""

    def __init__(
        self,
        stream: TextOutput,
        origin: Mapping[str, str],
        columns: Mapping[str, str],
        missing: str,
    ) -> None:
        self._repeats_score = columns["score"] == ".6f"
        if self._repeats_score:
            cells = list(columns.items())
            cells[4] = ("score", "d")
            cells.insert(6, ("probability", ".6f"))
            columns = dict(cells)
        super().__init__(stream, origin, columns, missing, "#")

    def _line(self, row: Sequence[Any]) -> str:
        if self._repeats_score:
            score = row[4]
            thousandths = round(1000 * (score or 0))
            row = (*row[:4], thousandths, row[5], score, *row[6:])
        return super()._line(row)


class BedGraphWriter:
    """bedGraph of contig, start, end and value, with six digits."""

    def __init__(self, stream: TextOutput, origin: Mapping[str, str]) -> None:
        self._stream = stream
        self._head = provenance_lines(origin)

    def write(self, rows: Iterable[Sequence[Any]]) -> None:
        """Write rows, the first ones after the origin as `##` lines."""
        lines = [_signal_line(row) for row in rows]
        lines[:0], self._head = self._head, []
        if lines:
            self._stream.write("\n".join(lines) + "\n")


def _signal_line(row: Sequence[Any]) -> str:
    contig, start, end, value = row
    return f"{contig}\t{start}\t{end}\t{value:.6f}"


class BigWigWriter:
    """bigWig of contig, start, end and value, with six digits.

    pybigtools prints errors of its iterator and continues, so all values are written to `spool` first.
    """

    def __init__(
        self, path: Path, contigs: Mapping[str, int], unit: str, spool: IO[str]
    ) -> None:
        self._path = path
        self._contigs = contigs
        self._unit = unit
        self._spool = spool
        self._last_contig = ""
        self._num_contigs = 0
        self._covered = 0  # bp

    def write(self, rows: Iterable[Sequence[Any]]) -> None:
        """Add rows."""
        for row in rows:
            contig, start, end, _ = row
            self._num_contigs += contig != self._last_contig
            self._last_contig = contig
            self._covered += end - start
            self._spool.write(_signal_line(row) + "\n")

    def close(self) -> None:
        """Write the file; `OSError` if a disk may have too little space, or if it cannot be read back."""
        import pybigtools

        check_bigwig_contigs(self._num_contigs, self._path.name, "write another format")
        size = self._spool.tell()
        if not size:
            raise DataError(
                f"no {self._unit} has a score (too many N, see max_n, or short records); a bigWig must not "
                "be empty"
            )
        # pybigtools does not report failed writes. It writes temporary files first, and zoom levels of single
        # values can be larger than the values as text, hence the factor of 3.
        for directory in (self._path.parent, Path(tempfile.gettempdir())):
            if shutil.disk_usage(directory).free < 3 * size + _SPARE:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._spool.seek(0)
        named = self._path.with_name(f"{self._path.name}.bw")  # the extension is needed
        try:
            values = map(_signal_values, self._spool)
            pybigtools.open(str(named), "w").write(dict(self._contigs), values)
            with pybigtools.open(str(named)) as written:
                num_contigs = len(written.chroms())
                covered = int(written.info()["summary"]["basesCovered"])
            if (num_contigs, covered) != (self._num_contigs, self._covered):
                raise OSError(
                    f"bigWig of {num_contigs:,} contigs and {covered:,} bp, not "
                    f"{self._num_contigs:,} and {self._covered:,}"
                )
            named.replace(self._path)
        except (KeyboardInterrupt, OSError):
            raise
        except BaseException as error:  # e.g. a full disk is a panic in its Rust code
            raise OSError(f"pybigtools: {error}") from None
        finally:
            named.unlink(missing_ok=True)


def _signal_values(line: str) -> tuple[str, int, int, float]:
    contig, start, end, value = line.rstrip("\n").split("\t")
    return contig, int(start), int(end), float(value)


class ParquetWriter:
    """Parquet table; its metadata has the origin."""

    def __init__(
        self, path: Path, origin: Mapping[str, str], columns: Mapping[str, str]
    ) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        types = {
            "s": pa.string(),
            "d": pa.int64(),
            "f": pa.float32(),
            "g": pa.float32(),
        }
        fields = [(name, types[spec[-1]]) for name, spec in columns.items()]
        self._schema = pa.schema(fields, metadata=dict(origin))
        self._is_text = [spec == "s" for spec in columns.values()]
        self._path = path
        self._file = pq.ParquetWriter(path, self._schema)
        self._rows: list[Sequence[Any]] = []
        self._group = max(1, min(_ROWS_AT_ONCE, _VALUES_AT_ONCE // len(columns)))
        self._count = 0

    def write(self, rows: Iterable[Sequence[Any]]) -> None:
        """Add rows, which are written in groups."""
        for row in rows:
            self._rows.append(row)
            if len(self._rows) == self._group:
                self._write_group()

    def _write_group(self) -> None:
        import pyarrow as pa

        arrays = []
        cells = zip(*self._rows, strict=True)
        for column, kind, is_text in zip(
            cells, self._schema.types, self._is_text, strict=True
        ):
            values = [cell or None for cell in column] if is_text else column
            arrays.append(pa.array(values, kind))
        self._file.write_table(pa.Table.from_arrays(arrays, schema=self._schema))
        self._count += len(self._rows)
        self._rows = []

    def close(self) -> None:
        """Write the last rows and the index; `OSError` if not all rows can be read back."""
        import pyarrow.parquet as pq

        if self._rows:
            self._write_group()
        self._file.close()
        written = pq.read_metadata(self._path).num_rows
        if written != self._count:
            raise OSError(f"Parquet file of {written:,} rows, not {self._count:,}")
