"""Open the array of rows × tracks given as `FILE`, `FILE::NAME` or an array in memory.

Tables are Parquet, read by column and batch, or text (tab-separated, CSV), read at once. Columns named in
`REGION_COLUMNS` identify the interval of a row, and a column named `NOTE` is ignored; every other column is
a track.
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
from bigbird_dna.disk.arrays import check_cells, open_parquet, read_frame
from bigbird_dna.disk.atomic import reading
from bigbird_dna.disk.compression import open_bytes, read_lines
from bigbird_dna.errors import DataError, error_text
from bigbird_dna.genome.chromatin.dataset import COLUMNS
from bigbird_dna.metrics.resampling import sequence_blocks
from bigbird_dna.reporting.track_array import (
    TrackArray,
    Values,
    hdf5_array,
    memory_array,
    numpy_array,
    open_archive,
    row_step,
)

Array = str | Path | Values | pd.DataFrame
"""An array of rows × tracks: a file, or in memory."""

REGION_COLUMNS = ("contig", "start", "end", "name", "strand", "split")
NOTE = "note"
_UNNAMED = (
    "",
    "Unnamed: 0",
)  # header of pandas' row index; the latter after it was read as a column
_PANDAS_INDEX = "__index_level_0__"  # column name of the index in Parquet
_MISSING = ("", "NA", "NaN", "nan", "N/A", "null")
_DOT = "."  # missing value in a numeric column, or a valid strand


def given_array(source: Any, kind: str) -> Array:
    """Return a file, array or data frame for `open_array`; lists and others are converted to arrays.

    `DataError`: the values are not numbers in rows of the same length.
    """
    if isinstance(source, pd.Series):
        source = (
            source.to_frame() if isinstance(source.name, str) else source.to_numpy()
        )
    if isinstance(source, str | Path | pd.DataFrame):
        return source
    if isinstance(source, np.ndarray) and source.dtype.kind in "biuf":
        return source
    try:
        return np.asarray(source, np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"{kind}: not an array of numbers (rows × tracks): {error_text(error)}"
        ) from None


def _frame_array(kind: str, frame: pd.DataFrame) -> TrackArray:
    """Return a data frame with a column per track; index and numbered columns give no names."""
    located = [name for name in frame.columns if name in REGION_COLUMNS]
    tracks = [name for name in frame.columns if name not in (*REGION_COLUMNS, NOTE)]
    if len(set(tracks)) < len(tracks):
        (name, _), *_ = Counter(tracks).most_common(1)
        raise DataError(f"{kind}: contains two columns named {name!r}")
    for name in tracks:
        if frame[name].dtype.kind not in "biuf":
            raise DataError(
                f"{kind}: column {name!r} contains {frame[name].dtype}, expected numbers"
            )
    names = (
        None
        if all(isinstance(name, int | np.integer) for name in tracks)
        else tuple(map(str, tracks))
    )
    values = frame[tracks].to_numpy(np.float64, na_value=np.nan)
    return memory_array(
        kind, values, names, frame[located].reset_index(drop=True) if located else None
    )


def open_array(source: Array, kind: str) -> TrackArray:
    """Open `FILE`, `FILE::NAME`, or an array or data frame in memory, reading only its shape and names.

    `kind` is "predictions" or "labels": the preferred array in a file with several arrays, and the name in
    messages of an array in memory. `DataError`: the file is missing, damaged, of an unknown format, or has no
    numbers of rows × tracks.
    """
    if isinstance(source, pd.DataFrame):
        return _frame_array(kind, source)
    if isinstance(source, np.ndarray):
        return memory_array(kind, source)
    text, _, name = str(source).partition("::")
    path = Path(text)
    if path.is_dir():
        raise DataError(f"{path}: expected a file, found a directory")
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
    raise DataError(
        f"{path}: name must end in .npy, .npz, .h5, .parquet, .tsv[.gz] or .csv[.gz]"
    )


def open_predictions(path: Path, labels: Path, shape: tuple[int, int]) -> TrackArray:
    """Open the predictions for the bins of `labels`; `DataError` if their shape differs from `shape`."""
    array = open_array(str(path), "predictions")
    if (array.rows, array.tracks) != shape:
        rows, tracks = shape
        raise DataError(
            f"{path}: {array.rows:,} bins × {array.tracks:,} tracks, but {labels} has {rows:,} × {tracks:,}"
        )
    return array


def read_blocks(bins: Path | None, labels: TrackArray) -> NDArray[np.int64] | None:
    """Return the ids (N,) of the blocks of the genome (`sequence_blocks`) in which the rows of labels are.

    `bins` is the table of the rows, such as `bins.parquet` of a data set. None: the columns `contig` and
    `start` of `labels`, and no blocks without these. `DataError`: `bins` is not such a table, or has another
    number of rows; a contig or start is missing or not a whole number.
    """
    table, path = labels.intervals, Path(labels.path)
    if bins is not None:
        table, path = read_frame(bins), bins
        if list(table.columns) != COLUMNS:
            raise DataError(
                f"{bins}: not a table of bins with the columns {', '.join(COLUMNS)}"
            )
        if len(table) != labels.rows:
            raise DataError(
                f"{bins}: {len(table):,} bins, but {labels.path} has {labels.rows:,}"
            )
    if table is None or not {"contig", "start"} <= {*table.columns}:
        return None
    check_cells(path, table, ("contig",), ("start",))
    return sequence_blocks(table["contig"].to_numpy(), table["start"].to_numpy())


def _parquet_array(path: Path) -> TrackArray:
    """Open a Parquet file with one column per track; missing values are NaN."""
    import pyarrow as pa

    with open_parquet(path) as stored:
        schema, rows = stored.schema_arrow, stored.metadata.num_rows
    doubled = [name for name, count in Counter(schema.names).items() if count > 1]
    if doubled:
        raise DataError(f"{path}: contains two columns named {min(doubled)!r}")
    located = [name for name in schema.names if name in REGION_COLUMNS]
    intervals = read_frame(path, located) if located else None
    left_out = {*located, NOTE, *_index_columns(path, schema.names)}
    kinds = {field.name: field.type for field in schema if field.name not in left_out}
    for name, kind in kinds.items():
        if not (
            pa.types.is_floating(kind)
            or pa.types.is_integer(kind)
            or kind == pa.bool_()
        ):
            raise DataError(
                f"{path}: column {name!r} contains {kind}, expected numbers"
            )
    single = {pa.float32(), pa.float16()}.issuperset(kinds.values())
    small = {pa.bool_(), pa.int8(), pa.uint8()}.issuperset(kinds.values())
    # Missing integers need NaN, so integers are read as floats.
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

    return TrackArray(
        str(path), dtype, (rows, len(kinds)), chunks, tuple(kinds), intervals
    )


def _index_columns(path: Path, names: list[str]) -> list[str]:
    """Return the columns in which pandas stored the row index."""
    found = [name for name in names if name == _PANDAS_INDEX]
    if (
        names
        and names[0] in _UNNAMED
        and _is_index(read_frame(path, names[:1])[names[0]])
    ):
        found.append(names[0])
    for name in found:
        log(f"{path}: column {name!r} is a row index and is ignored")
    return found


def _text_array(path: Path, delimiter: str) -> TrackArray:
    """Open a text table, with or without a header, which may start with `#`.

    Lines that start with `##` are comments. Empty cells, NA and a dot are NaN; CSV cells may be quoted. Two
    defaults of pandas are ignored and logged: an unnamed first column that numbers the rows, and a header
    that numbers the columns.
    """
    with reading(path, "not readable as a table", Exception):
        cells, skipped = _first_line(path, delimiter)
        named = not all(_is_number(text) for text in cells)
        numbered = not named and _number_columns(cells)
        stored, table = _read_rows(
            path, delimiter, len(cells), skipped + (named or numbered)
        )
        indexed = (
            (named or numbered)
            and cells[0].strip() in _UNNAMED
            and _is_index(table.iloc[:, 0])
        )
        if (
            numbered and not indexed and not cells[0].strip()
        ):  # data: the first value is missing
            numbered = False
            stored, table = _read_rows(path, delimiter, len(cells), skipped)
    if numbered:
        log(f"{path}: line {skipped + 1} numbers the columns and is ignored")
    if indexed:
        log(f"{path}: the unnamed first column numbers the rows and is ignored")
    first_line = skipped + (named or numbered) + 1
    names = [
        text.strip() if named else str(number)
        for number, text in enumerate(cells, start=1)
    ]
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
        str(path),
        values,
        tuple(tracks) if named else None,
        intervals if intervals.shape[1] else None,
    )


def _read_rows(
    path: Path, delimiter: str, columns: int, skipped: int
) -> tuple[Any, pd.DataFrame]:
    """Return the columns of a text file as Arrow table and data frame, from line `skipped` (0-based) on."""
    from pyarrow import csv as arrow

    with open_bytes(path) as stream:
        stored = arrow.read_csv(
            stream,
            # Errors have the row number only with a single thread.
            arrow.ReadOptions(
                use_threads=False,
                skip_rows=skipped,
                column_names=[str(number) for number in range(columns)],
            ),
            arrow.ParseOptions(
                delimiter=delimiter, quote_char='"' if delimiter == "," else False
            ),
            arrow.ConvertOptions(null_values=_MISSING, strings_can_be_null=True),
        )
        return stored, stored.to_pandas()


def _number_columns(cells: list[str]) -> bool:
    """Return whether a line of numbers is the header 0, 1, 2, … that pandas writes for unnamed columns.

    Two columns 0, 1 may also be data. An empty first cell is the header of pandas' row index.
    """
    names = [text.strip() for text in cells]
    above_index = not names[0]
    return names[above_index:] == [
        str(number) for number in range(len(names) - above_index)
    ] and (above_index or len(names) > 2)


def _is_index(column: pd.Series[Any]) -> bool:
    """Return whether a column is a row index: non-negative, distinct integers."""
    values = column.to_numpy()
    return (
        values.dtype.kind in "iu"
        and len(np.unique(values)) == len(values)
        and not (values < 0).any()
    )


def _check_header(path: Path, line: int, names: list[str]) -> None:
    doubled = sorted(
        name for name, count in Counter(names).items() if count > 1 and name
    )
    if doubled:
        raise DataError(
            f"{path}: line {line}: contains two columns named {doubled[0]!r}"
        )
    if "" in names:
        raise DataError(
            f"{path}: line {line}: column {names.index('') + 1} has no name and does not number the rows"
        )


def _is_numeric(column: Any) -> bool:
    """Return whether an Arrow column is numeric or entirely missing."""
    import pyarrow as pa

    kind = column.type
    numeric = (
        pa.types.is_floating(kind)
        or pa.types.is_integer(kind)
        or pa.types.is_boolean(kind)
    )
    return bool(numeric or column.null_count == len(column))


def _without_dots(column: Any) -> NDArray[np.float64] | None:
    """Return a string column of numbers and dots as numbers, with dots as NaN; None for other text."""
    import pyarrow as pa
    from pyarrow import compute

    if not pa.types.is_string(column.type):
        return None
    texts = compute.utf8_trim_whitespace(column)
    texts = compute.if_else(
        compute.equal(texts, _DOT), pa.scalar(None, pa.string()), texts
    )
    try:
        numbers: NDArray[np.float64] = texts.cast(pa.float64()).to_numpy()
    except pa.ArrowInvalid:
        return None
    return numbers


def _refuse_text(
    path: Path, name: str, cells: pd.Series[Any], first_line: int
) -> NoReturn:
    """Raise `DataError` for the first cell that is not a number."""
    bad = cells.notna() & (cells != _DOT) & pd.to_numeric(cells, errors="coerce").isna()
    row = int(bad.to_numpy().argmax())
    raise DataError(
        f"{path}: line {first_line + row}: column {name!r}: {cells.iloc[row]!r:.60} is not a number"
    )


def _first_line(path: Path, delimiter: str) -> tuple[list[str], int]:
    """Return the cells of the first line that is not a comment, and the number of lines before it."""
    for number, line in read_lines(path):
        if not line.startswith("##"):
            cells = (
                line.split(delimiter)
                if delimiter == "\t"
                else next(csv.reader([line]), [""])
            )
            return cells, number - 1
    raise ValueError("it has only comments")


def _is_number(text: str) -> bool:
    if text.strip() in (*_MISSING, _DOT):
        return True
    try:
        float(text)
    except ValueError:
        return False
    return True
