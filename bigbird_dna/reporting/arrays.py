"""The array of rows × tracks that `FILE`, `FILE::NAME` or a value in memory stands for.

Tables are Parquet, read by columns and batches, or text (tab-separated, CSV), read whole. Columns called as
in `REGION_COLUMNS` name the interval of a row, one called `NOTE` comments on it and is passed over; every
other column is a track.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bigbird_dna.console import log
from bigbird_dna.disk.atomic import reading
from bigbird_dna.disk.compression import open_bytes, read_lines
from bigbird_dna.disk.foreign import open_parquet, read_frame
from bigbird_dna.errors import DataError
from bigbird_dna.reporting.track_array import (
    TrackArray,
    Values,
    hdf5_array,
    memory_array,
    numpy_array,
    open_archive,
    row_step,
)

REGION_COLUMNS = ("contig", "start", "end", "name", "strand", "split")
NOTE = "note"
_UNNAMED = ("", "Unnamed: 0")  # above pandas' numbers of the rows; the latter once they were read as a column
_PANDAS_INDEX = "__index_level_0__"  # in Parquet
_MISSING = ("", "NA", "NaN", "nan", "N/A", "null")
_DOT = "."  # a missing value among numbers; a strand may be one


def open_array(source: str | Path | Values, kind: str) -> TrackArray:
    """Look at the size and names of `FILE`, `FILE::NAME` or an array in memory; the values are read later.

    `kind` is "predictions" or "labels": the array that is taken from a file with several, and the name in
    messages of one in memory. `DataError`: the file is missing, damaged, of an unknown kind, or holds no
    numbers of rows × tracks.
    """
    if isinstance(source, np.ndarray):
        return memory_array(kind, source)
    text, _, name = str(source).partition("::")
    path = Path(text)
    if path.is_dir():
        raise DataError(f"{path}: is a directory, not a file")
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    if not path.stat().st_size:
        raise DataError(f"{path}: the file is empty")
    for endings, opener, *options in (
        ((".npy",), numpy_array),
        ((".npz",), open_archive, name, kind),
        ((".h5", ".hdf5"), hdf5_array, name, kind),
        ((".parquet",), _parquet_array),
        ((".tsv", ".tsv.gz", ".txt", ".txt.gz"), _text_array, "\t"),
        ((".csv", ".csv.gz"), _text_array, ","),
    ):
        if path.name.lower().endswith(endings):
            return opener(path, *options)
    raise DataError(f"{path}: its name ends in none of .npy, .npz, .h5, .parquet, .tsv[.gz] and .csv[.gz]")


def open_predictions(path: Path, labels: Path, shape: tuple[int, int]) -> TrackArray:
    """Open the predictions of the bins of `labels`, of this shape; `DataError` where theirs is another."""
    array = open_array(str(path), "predictions")
    if (array.rows, array.tracks) != shape:
        rows, tracks = shape
        raise DataError(
            f"{path}: {array.rows:,} bins × {array.tracks:,} tracks, {labels} has {rows:,} × {tracks:,}"
        )
    return array


def _parquet_array(path: Path) -> TrackArray:
    """A Parquet file with one column a track; missing values are NaN."""
    import pyarrow as pa

    with open_parquet(path) as stored:
        schema, rows = stored.schema_arrow, stored.metadata.num_rows
    doubled = [name for name, count in Counter(schema.names).items() if count > 1]
    if doubled:
        raise DataError(f"{path}: two columns called {min(doubled)!r}")
    located = [name for name in schema.names if name in REGION_COLUMNS]
    intervals = read_frame(path, located) if located else None
    left_out = {*located, NOTE, *_index_columns(path, schema.names)}
    kinds = {field.name: field.type for field in schema if field.name not in left_out}
    for name, kind in kinds.items():
        if not (pa.types.is_floating(kind) or pa.types.is_integer(kind) or kind == pa.bool_()):
            raise DataError(f"{path}: column {name!r} holds {kind}, not numbers")
    single = {pa.float32(), pa.float16()}.issuperset(kinds.values())
    small = {pa.bool_(), pa.int8(), pa.uint8()}.issuperset(kinds.values())
    # Missing whole numbers need NaN, so that these are read as floats.
    dtype: np.dtype[Any] = np.dtype(np.float32 if single or small else np.float64)

    def chunks(first: int, last: int) -> Iterator[Values]:
        names = [*kinds][first:last]
        step = max(row_step(len(names), dtype), 1024)
        with open_parquet(path) as stored:
            for batch in stored.iter_batches(step, columns=names, use_threads=False):
                values = np.empty((batch.num_rows, len(names)), dtype)
                for column, name in enumerate(names):
                    found = batch.column(name)
                    if pa.types.is_boolean(found.type):
                        found = found.cast(pa.int8())
                    values[:, column] = found.to_numpy(zero_copy_only=False)
                yield values

    return TrackArray(str(path), dtype, (rows, len(kinds)), chunks, tuple(kinds), intervals)


def _index_columns(path: Path, names: list[str]) -> list[str]:
    """Columns in which pandas keeps the numbers of rows."""
    found = [name for name in names if name == _PANDAS_INDEX]
    if names and names[0] in _UNNAMED and _is_index(read_frame(path, names[:1])[names[0]]):
        found.append(names[0])
    for name in found:
        log(f"{path}: column {name!r} numbers the rows: passed over")
    return found


def _text_array(path: Path, delimiter: str) -> TrackArray:
    """Text of columns, with or without a header, which may begin with `#`.

    Lines that begin with `##` are comments. Empty cells, NA and a dot are NaN; cells of CSV may be in quotes.
    What pandas writes unasked is passed over, with a line in the log: a first column without a name that
    numbers the rows, and a header that numbers the columns.
    """
    with reading(path, "not readable as a table", Exception):
        cells, skipped = _first_line(path, delimiter)
        named = not all(_is_number(text) for text in cells)
        numbered = not named and _number_columns(cells)
        stored, table = _read_rows(path, delimiter, len(cells), skipped + (named or numbered))
        indexed = (named or numbered) and cells[0].strip() in _UNNAMED and _is_index(table.iloc[:, 0])
        if numbered and not indexed and not cells[0].strip():  # a row whose first value is missing
            numbered = False
            stored, table = _read_rows(path, delimiter, len(cells), skipped)
    if numbered:
        log(f"{path}: line {skipped + 1} numbers the columns: passed over")
    if indexed:
        log(f"{path}: the first column has no name and numbers the rows: passed over")
    first_line = skipped + (named or numbered) + 1
    names = [text.strip() if named else str(number) for number, text in enumerate(cells, start=1)]
    names[0] = names[0].lstrip("#").strip()
    used = names[indexed:]
    _check_header(path, first_line - 1, used)
    table.columns = pd.Index(names)
    table = table.iloc[:, int(indexed) :]
    intervals = table[[name for name in used if name in REGION_COLUMNS]]
    tracks = [name for name in used if name not in (*REGION_COLUMNS, NOTE)]
    for name, column in zip(used, stored.columns[int(indexed) :], strict=True):
        if name in tracks and not _is_numeric(column):
            numbers = _without_dots(column)
            if numbers is None:
                _refuse_text(path, name, table[name], first_line)
            table[name] = numbers
    values = table[tracks].to_numpy(np.float64)
    return memory_array(
        str(path), values, tuple(tracks) if named else None, intervals if intervals.shape[1] else None
    )


def _read_rows(path: Path, delimiter: str, columns: int, skipped: int) -> tuple[Any, pd.DataFrame]:
    """A text's columns as Arrow has them, and as a table, from line `skipped` (from 0) on."""
    from pyarrow import csv as arrow

    with open_bytes(path) as stream:
        stored = arrow.read_csv(
            stream,
            # One thread, whose errors have the number of the row.
            arrow.ReadOptions(
                use_threads=False, skip_rows=skipped, column_names=[str(number) for number in range(columns)]
            ),
            arrow.ParseOptions(delimiter=delimiter, quote_char='"' if delimiter == "," else False),
            arrow.ConvertOptions(null_values=_MISSING, strings_can_be_null=True),
        )
        return stored, stored.to_pandas()


def _number_columns(cells: list[str]) -> bool:
    """Whether a line of numbers is the header that pandas gives columns without names: 0, 1, 2, …

    Two columns might be a row. A cell without text before them stands above pandas' numbers of the rows.
    """
    names = [text.strip() for text in cells]
    above_index = not names[0]
    return names[above_index:] == [str(number) for number in range(len(names) - above_index)] and (
        above_index or len(names) > 2
    )


def _is_index(column: pd.Series[Any]) -> bool:
    """Whether a column holds numbers of rows: whole ones, none of them twice."""
    values = column.to_numpy()
    return values.dtype.kind in "iu" and len(np.unique(values)) == len(values) and not (values < 0).any()


def _check_header(path: Path, line: int, names: list[str]) -> None:
    doubled = sorted(name for name, count in Counter(names).items() if count > 1 and name)
    if doubled:
        raise DataError(f"{path}: line {line}: two columns called {doubled[0]!r}")
    if "" in names:
        raise DataError(
            f"{path}: line {line}: a column without a name, which doesn't number the rows (column "
            f"{names.index('') + 1})"
        )


def _is_numeric(column: Any) -> bool:
    """Whether a column of Arrow holds numbers, or nothing."""
    import pyarrow as pa

    kind = column.type
    numeric = pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind)
    return bool(numeric or column.null_count == len(column))


def _without_dots(column: Any) -> NDArray[np.float64] | None:
    """A column of Arrow, of numbers and dots as texts, as numbers, the dots as NaN; None if it has others."""
    import pyarrow as pa
    from pyarrow import compute

    if not pa.types.is_string(column.type):
        return None
    texts = compute.utf8_trim_whitespace(column)
    texts = compute.if_else(compute.equal(texts, _DOT), pa.scalar(None, pa.string()), texts)
    try:
        numbers: NDArray[np.float64] = texts.cast(pa.float64()).to_numpy()
    except pa.ArrowInvalid:
        return None
    return numbers


def _refuse_text(path: Path, name: str, cells: pd.Series[Any], first_line: int) -> NoReturn:
    """Raise for the first cell that is not a number."""
    bad = cells.notna() & (cells != _DOT) & pd.to_numeric(cells, errors="coerce").isna()
    row = int(bad.to_numpy().argmax())
    raise DataError(
        f"{path}: line {first_line + row}: column {name!r}: {cells.iloc[row]!r:.60} is not a number"
    )


def _first_line(path: Path, delimiter: str) -> tuple[list[str], int]:
    """The cells of the first line that is no comment, and the number of lines before it."""
    for number, line in read_lines(path):
        if not line.startswith("##"):
            cells = line.split(delimiter) if delimiter == "\t" else next(csv.reader([line]), [""])
            return cells, number - 1
    raise ValueError("it has no line but comments")


def _is_number(text: str) -> bool:
    if text.strip() in (*_MISSING, _DOT):
        return True
    try:
        float(text)
    except ValueError:
        return False
    return True
