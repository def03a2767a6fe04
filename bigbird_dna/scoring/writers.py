"""Writers of results, one function per format; `open_writer` calls that of a format.

The loop that computes rows gives them to `write` in batches. A file gets its name when it is complete, and an
error leaves the previous file as it was. Standard output, pipes and devices receive each batch at once.

The same rows give the same bytes on any machine. Coordinates are 0-based and half-open. The module is light
to import, so that help texts can list the formats.
"""

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from bigbird_dna.disk.atomic import atomic_path, is_special
from bigbird_dna.disk.outputs import (
    check_output,
    naming_errors,
    open_text,
    provenance_lines,
)
from bigbird_dna.errors import DataError, UsageError, check_choice

Write = Callable[[Iterable[Sequence[Any]]], None]

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
# Per row group of Parquet, which is in memory.
_ROWS_AT_ONCE = 65_536
_VALUES_AT_ONCE = 1 << 22


def choose_output(
    output: Path | str | None,
    format: str | None,
    formats: Formats,
    inputs: Iterable[object],
    default: str = "tsv",
) -> tuple[Path | None, str]:
    """Return the file of a result (None: standard output) and its format; None: by the file's extension.

    `UsageError` if the format is unknown or cannot be written there, or if the output is one of the `inputs`,
    in a directory that does not exist, or not writable.
    """
    path = None if output is None or str(output) == "-" else Path(output)
    if path is not None and not path.parent.is_dir():
        raise UsageError(f"{path}: directory {path.parent} does not exist")

    check_output(path, inputs)
    if format is None:
        format = default
        ending = ""
        if path is not None and not is_special(path):
            ending = Path(path.name.removesuffix(".gz")).suffix.lower()

        known = {suffix: name for name in formats for suffix in formats[name]}
        if ending:
            if ending not in known:
                raise UsageError(
                    f"{output}: {ending} is not the suffix of a known format; use one of {', '.join(known)}, "
                    "or specify the format with --format"
                )

            format = known[ending]

    check_choice("format", format, formats)
    if format in ("bigwig", "parquet"):
        if path is None:
            raise UsageError(
                f"format {format} cannot be written to standard output; give a file with -o"
            )

        if path.suffix == ".gz":
            raise UsageError(
                f"{path}: {format} cannot be written as .gz; remove .gz from the name"
            )

    return path, format


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
) -> AbstractContextManager[Write]:
    """Open a result for writing, atomically; None is standard output.

    The context is a function that writes more rows, which are sequences of cells in the order of the columns.

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
        return open_parquet(output, origin, columns)

    if format == "bigwig":
        return open_bigwig(output, contigs, unit)

    return open_lines(output, format, origin, columns, missing, mark)


@contextmanager
def open_lines(
    output: Path | None,
    format: str,
    origin: Mapping[str, str],
    columns: Mapping[str, str],
    missing: str,
    mark: str,
) -> Iterator[Write]:
    """Open tsv, bed or bedgraph. The header comes with the first rows: a failed command writes nothing."""
    head = provenance_lines(origin)
    repeats_score = format == "bed" and columns["score"] == ".6f"
    if format == "bedgraph":
        columns = {"contig": "s", "start": "d", "end": "d", "value": ".6f"}
    elif repeats_score:
        cells = list(columns.items())
        cells[4:6] = [("score", "d"), cells[5], ("probability", ".6f")]
        columns = dict(cells)

    if format != "bedgraph":
        head.append((mark if format == "tsv" else "#") + "\t".join(columns))

    formats = ["" if spec == "s" else spec for spec in columns.values()]

    with open_text(output) as stream:

        def write(rows: Iterable[Sequence[Any]]) -> None:
            lines = []
            for row in rows:
                if repeats_score:
                    thousandths = round(1000 * (row[4] or 0))
                    row = (*row[:4], thousandths, row[5], row[4], *row[6:])

                texts = []
                for cell, spec in zip(row, formats, strict=True):
                    text = missing if cell is None else f"{cell:{spec}}"
                    texts.append(text or ".")

                lines.append("\t".join(texts))

            lines[:0] = head
            head.clear()
            if lines:
                stream.write("\n".join(lines) + "\n")

        yield write
        write(())  # the header, if there are no rows


@contextmanager
def open_bigwig(
    output: Path | None, contigs: Mapping[str, int], unit: str
) -> Iterator[Write]:
    """Open a bigWig. Values are spooled: pybigtools prints errors of its iterator and continues."""
    import pybigtools

    assert output is not None
    with (
        naming_errors(output),
        atomic_path(output) as path,
        tempfile.TemporaryFile("w+", encoding="utf-8") as spool,
    ):
        names: dict[str, None] = {}  # contigs with values

        def write(rows: Iterable[Sequence[Any]]) -> None:
            for contig, start, end, value in rows:
                names[contig] = None
                spool.write(f"{contig}\t{start}\t{end}\t{value:.6f}\n")

        def values() -> Iterator[tuple[str, int, int, float]]:
            for line in spool:
                contig, start, end, value = line.rstrip("\n").split("\t")
                yield contig, int(start), int(end), float(value)

        yield write
        if not names:
            raise DataError(
                f"no {unit} has a score (too many N, see max_n, or short records); a bigWig must not be empty"
            )

        if len(names) > 65_535:  # pybigtools writes them in a node with a 16-bit count
            raise DataError(
                f"{output.name}: a bigWig can have values on 65,535 contigs, not on {len(names):,}: write "
                "another format"
            )

        spool.seek(0)
        named = path.with_name(f"{path.name}.bw")  # the extension is needed
        try:
            pybigtools.open(str(named), "w").write(dict(contigs), values())
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a full disk is a panic in its Rust code
            raise OSError(f"pybigtools: {error}") from None

        named.replace(path)


@contextmanager
def open_parquet(
    output: Path | None, origin: Mapping[str, str], columns: Mapping[str, str]
) -> Iterator[Write]:
    """Open a Parquet table; its metadata has the origin. Rows are written in groups, which are in memory."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    assert output is not None
    types = {"s": pa.string(), "d": pa.int64(), "f": pa.float32(), "g": pa.float32()}
    fields = [(name, types[spec[-1]]) for name, spec in columns.items()]
    schema = pa.schema(fields, metadata=dict(origin))
    group = max(1, min(_ROWS_AT_ONCE, _VALUES_AT_ONCE // len(columns)))
    pending: list[Sequence[Any]] = []

    with (
        naming_errors(output),
        atomic_path(output) as path,
        pq.ParquetWriter(path, schema) as table,
    ):

        def flush() -> None:
            arrays = []
            for cells, spec, field in zip(
                zip(*pending, strict=True), columns.values(), schema, strict=True
            ):
                if spec == "s":
                    cells = tuple(cell or None for cell in cells)
                arrays.append(pa.array(cells, field.type))
            table.write_table(pa.Table.from_arrays(arrays, schema=schema))
            pending.clear()

        def write(rows: Iterable[Sequence[Any]]) -> None:
            for row in rows:
                pending.append(row)
                if len(pending) == group:
                    flush()

        yield write
        if pending:
            flush()
