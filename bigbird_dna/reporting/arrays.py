"""Arrays of rows × tracks from `FILE`, `FILE::NAME` or memory: NumPy, HDF5, Parquet and text.

N rows, T tracks. Columns of tables named in `REGION_COLUMNS` identify the interval of a row, and a column named
`NOTE` is ignored; every other column is a track. In .npz and HDF5, strings named `tracks`, stored with the
values or as their attribute, are the track names.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bigbird_dna.console import log
from bigbird_dna.disk.arrays import check_cells, read_frame
from bigbird_dna.disk.atomic import reading
from bigbird_dna.disk.compression import open_bytes, read_lines
from bigbird_dna.errors import DataError, error_text, one_of
from bigbird_dna.genome.chromatin.dataset import COLUMNS
from bigbird_dna.genome.chromatin.labels import PackedLabels
from bigbird_dna.metrics.resampling import sequence_blocks

Array = str | Path | NDArray[Any] | pd.DataFrame
"""An array of rows × tracks: a file, or in memory."""

CHUNK = 2 << 20
"""Bytes read per chunk; small enough to stay in the CPU cache while values are transposed."""

REGION_COLUMNS = ("contig", "start", "end", "name", "strand", "split")
NOTE = "note"
NAMES = "tracks"
INDEX_NAMES = ("", "Unnamed: 0", "__index_level_0__")
"""Columns in which pandas stores the row index: in text, in text that was read as a column, and in Parquet."""
MISSING = ("", "NA", "NaN", "nan", "N/A", "null")
DOT = "."  # missing value in a numeric column, or a valid strand


@dataclass(eq=False)
class TrackArray:
    """Values (N, T) of a file or in memory; `path` names them in messages.

    `values` is an array, a memory map or an `h5py.Dataset`. `names` are the track names, and `intervals`
    identifies the genomic interval of each row, if the file has them. `DataError` unless values are numbers of
    rows × tracks; a 1-D array is a single track.
    """

    path: str
    values: Any
    names: tuple[str, ...] | None = None
    intervals: pd.DataFrame | None = None

    def __post_init__(self) -> None:
        self.dtype: np.dtype[Any] = self.values.dtype
        shape = self.values.shape
        if self.dtype.kind not in "fiub":
            raise DataError(f"{self.path}: contains {self.dtype}, expected numbers")
        if len(shape) not in (1, 2):
            raise DataError(
                f"{self.path}: expected rows × tracks, found an array of shape {shape}"
            )
        self.rows, self.tracks = (*shape, 1)[:2]
        if not self.rows or not self.tracks:
            raise DataError(
                f"{self.path}: {self.rows} rows × {self.tracks} tracks: no values to evaluate"
            )

    def chunks(self, first: int, last: int) -> Iterator[NDArray[Any]]:
        """Yield tracks `first` to `last` - 1 of all rows in order, as arrays (rows, last - first)."""
        height = getattr(self.values, "chunks", None) or (1,)
        step = max(CHUNK // (self.tracks * self.dtype.itemsize), 64)
        # Whole chunks of HDF5, so that none is decompressed twice.
        step = -(-step // height[0]) * height[0]
        with reading(self.path, "damaged", Exception):
            for start in range(0, self.rows, step):
                rows = self.values[start : start + step]
                yield rows[:, None] if rows.ndim == 1 else rows[:, first:last]


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


def open_array(source: Array, kind: str) -> TrackArray:
    """Open `FILE`, `FILE::NAME`, or an array or data frame in memory.

    `kind` is "predictions" or "labels": the preferred array in a file with several arrays, and the name in
    messages of an array in memory. Values of .npy and HDF5 files are read while they are evaluated.
    `DataError`: the file is missing, damaged, of an unknown format, or has no numbers of rows × tracks.
    """
    if isinstance(source, pd.DataFrame):
        return _frame_array(kind, source)
    if isinstance(source, np.ndarray):
        return TrackArray(kind, source)
    text, _, name = str(source).partition("::")
    path = Path(text)
    if path.is_dir():
        raise DataError(f"{path}: expected a file, found a directory")
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    if not path.stat().st_size:
        raise DataError(f"{path}: the file is empty")

    lower = path.name.lower()
    if lower.endswith(".npy"):
        with reading(path, "not readable as .npy", Exception):
            return TrackArray(text, np.load(path, mmap_mode="r", allow_pickle=False))
    if lower.endswith(".npz"):
        with reading(path, "not readable as .npz", Exception):
            return _npz_array(path, name, kind)
    if lower.endswith((".h5", ".hdf5")):
        with reading(path, "not readable as HDF5", Exception):
            return _hdf5_array(path, name, kind)
    if lower.endswith(".parquet"):
        return _frame_array(text, _without_index(path, read_frame(path)))
    if lower.endswith((".tsv", ".tsv.gz", ".txt", ".txt.gz")):
        return _text_array(path, "\t")
    if lower.endswith((".csv", ".csv.gz")):
        return _text_array(path, ",")
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


# Files of several arrays


def _npz_array(path: Path, name: str, kind: str) -> TrackArray:
    """Read an array of a .npz file, chosen by `name` or else by `kind`, or a data set's packed labels."""
    with path.open("rb") as stream, np.load(stream, allow_pickle=False) as stored:
        if {"packed", NAMES} <= {*stored.files} and not name:
            return TrackArray(str(path), PackedLabels.load(path).rows())
        arrays = {key: stored[key] for key in stored.files}
    chosen = _choose(path, name, kind, arrays)
    names = arrays.get(NAMES) if chosen != NAMES else None
    values = arrays[chosen]
    array = TrackArray(f"{path}::{chosen}", values)
    array.names = _track_names(array, names)
    return array


def _hdf5_array(path: Path, name: str, kind: str) -> TrackArray:
    """Open a data set of an HDF5 file, chosen by `name` or else by `kind`."""
    import h5py

    stored = h5py.File(path, "r")
    arrays: dict[str, Any] = {}

    def add(key: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            arrays[key] = item

    stored.visititems(add)
    chosen = _choose(path, name.strip("/"), kind, arrays)
    values = arrays[chosen]
    names = values.attrs.get(NAMES)
    if names is None and NAMES in arrays:
        names = arrays[NAMES][()]
    array = TrackArray(f"{path}::{chosen}", values)
    array.names = _track_names(array, names)
    return array


def _choose(path: Path, name: str, kind: str, arrays: Mapping[str, Any]) -> str:
    """Choose the array of a file: the named array, the array named `kind`, or the only candidate."""
    axes = {
        key: len(array.shape)
        for key, array in arrays.items()
        if array.dtype.kind in "fiub"
    }
    if name:
        if name not in axes:
            raise DataError(
                f"{path}: no numeric array {name!r}: {one_of(name, sorted(axes))}"
            )
        return name
    for count in (2, 1):  # one axis: one track
        found = [key for key in axes if axes[key] == count and key != NAMES]
        if kind in found:
            return kind
        if len(found) == 1:
            return found[0]
        if found:
            break
    listed = ", ".join(sorted(axes)) or "none"
    raise DataError(
        f"{path}: {len(found)} arrays of rows × tracks (found: {listed}); choose one with {path}::NAME"
    )


def _track_names(array: TrackArray, values: Any) -> tuple[str, ...] | None:
    """Return track names as strings; None if `values` is not a list of strings."""
    stored = np.asarray(values)
    if values is None or stored.ndim != 1 or stored.dtype.kind not in "SUOT":
        return None
    names = tuple(
        value.decode() if isinstance(value, bytes) else str(value)
        for value in stored.tolist()
    )
    if len(names) != array.tracks:
        raise DataError(
            f"{array.path}: {len(names)} track names, but {array.tracks} columns"
        )
    return names


# Tables


def _frame_array(path: str, frame: pd.DataFrame) -> TrackArray:
    """Return a data frame with a column per track; index and numbered columns give no names."""
    regions = [name for name in frame.columns if name in REGION_COLUMNS]
    tracks = [name for name in frame.columns if name not in (*REGION_COLUMNS, NOTE)]
    if len(set(tracks)) < len(tracks):
        (name, _), *_ = Counter(tracks).most_common(1)
        raise DataError(f"{path}: contains two columns named {name!r}")
    for name in tracks:
        if frame[name].dtype.kind not in "biuf":
            raise DataError(
                f"{path}: column {name!r} contains {frame[name].dtype}, expected numbers"
            )
    single = all(frame[name].dtype in ("float16", "float32") for name in tracks)
    dtype = np.float32 if single else np.float64
    numbered = all(isinstance(name, int | np.integer) for name in tracks)
    return TrackArray(
        path,
        frame[tracks].to_numpy(dtype, na_value=np.nan),
        None if numbered else tuple(map(str, tracks)),
        frame[regions].reset_index(drop=True) if regions else None,
    )


def _without_index(path: Path, frame: pd.DataFrame) -> pd.DataFrame:
    """Return a table without the columns in which pandas stored the row index."""
    if len(set(frame.columns)) < frame.shape[1]:
        (name, _), *_ = Counter(frame.columns).most_common(1)
        raise DataError(f"{path}: contains two columns named {name!r}")
    for number, name in enumerate(frame.columns):
        is_index = name == INDEX_NAMES[-1] or (
            number == 0 and name in INDEX_NAMES and _is_index(frame[name])
        )
        if is_index:
            log(f"{path}: column {name!r} is a row index and is ignored")
            frame = frame.drop(columns=name)
    return frame


def _is_index(column: pd.Series[Any]) -> bool:
    """Return whether a column is a row index: non-negative, distinct integers."""
    return column.dtype.kind in "iu" and column.is_unique and not (column < 0).any()


def _text_array(path: Path, delimiter: str) -> TrackArray:
    """Read a text table, with or without a header, which may start with `#`.

    Lines that start with `##` are comments. Empty cells, NA and a dot are NaN; CSV cells may be quoted. Two
    defaults of pandas are ignored and logged: an unnamed first column that numbers the rows, and a header
    that numbers the columns.
    """
    with reading(path, "not readable as a table", Exception):
        line, cells = _first_line(path, delimiter)
        named = not all(_is_number(cell) for cell in cells)
        header = named or _numbers_columns(cells)
        table = _read_text(path, delimiter, len(cells), line if header else line - 1)
        indexed = header and cells[0].strip() in INDEX_NAMES and _is_index(table[0])
        if header and not named and not indexed and not cells[0].strip():
            header = False  # the first value of the first row is missing
            table = _read_text(path, delimiter, len(cells), line - 1)
    if header and not named:
        log(f"{path}: line {line} numbers the columns and is ignored")
    if indexed:
        log(f"{path}: the unnamed first column numbers the rows and is ignored")
    names = [cell.strip() for cell in cells]
    names[0] = names[0].lstrip("#").strip()
    if named:
        _check_header(f"{path}: line {line}", names[indexed:])
        table.columns = pd.Index(names)
    if indexed:
        table = table.iloc[:, 1:]
    first_row = line + 1 if header else line
    for name in table.columns:
        if name not in (*REGION_COLUMNS, NOTE) and table[name].dtype.kind not in "biuf":
            table[name] = _numeric(table[name], path, name, first_row)
    return _frame_array(str(path), table)


def _first_line(path: Path, delimiter: str) -> tuple[int, list[str]]:
    """Return the number of the first line that is not a comment, from 1, and its cells."""
    for number, line in read_lines(path):
        if not line.startswith("##"):
            if delimiter == "\t":
                return number, line.split(delimiter)
            return number, next(csv.reader([line]), [""])
    raise ValueError("it has only comments")


def _read_text(path: Path, delimiter: str, columns: int, skipped: int) -> pd.DataFrame:
    """Return the lines after the first `skipped` ones as a table of numbered columns."""
    from pyarrow import csv as arrow

    with open_bytes(path) as stream:
        table = arrow.read_csv(
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
            arrow.ConvertOptions(null_values=MISSING, strings_can_be_null=True),
        )
    frame: pd.DataFrame = table.to_pandas()
    frame.columns = pd.RangeIndex(columns)
    return frame


def _numbers_columns(cells: list[str]) -> bool:
    """Return whether a line of numbers is the header 0, 1, 2, … that pandas writes for unnamed columns.

    Two columns 0, 1 may also be data. An empty first cell is the header of pandas' row index.
    """
    names = [cell.strip() for cell in cells]
    if not names[0]:
        return names[1:] == [str(number) for number in range(len(names) - 1)]
    return len(names) > 2 and names == [str(number) for number in range(len(names))]


def _check_header(where: str, names: list[str]) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1 and name]
    if twice:
        raise DataError(f"{where}: contains two columns named {min(twice)!r}")
    if "" in names:
        raise DataError(
            f"{where}: column {names.index('') + 1} has no name and does not number the rows"
        )


def _numeric(
    column: pd.Series[Any], path: Path, name: object, first_line: int
) -> pd.Series[Any]:
    """Return a column of text as numbers, with dots as NaN; `DataError` for the first other text."""
    text = column.astype("string").str.strip()
    numbers = pd.to_numeric(text.mask(text == DOT), errors="coerce").astype("float64")
    bad = (numbers.isna() & text.notna() & (text != DOT)).to_numpy(bool)
    if bad.any():
        row = int(bad.argmax())
        label = name if isinstance(name, str) else str(int(str(name)) + 1)
        raise DataError(
            f"{path}: line {first_line + row}: column {label!r}: {column.iloc[row]!r:.60} is not a number"
        )
    return numbers


def _is_number(cell: str) -> bool:
    if cell.strip() in (*MISSING, DOT):
        return True
    try:
        float(cell)
    except ValueError:
        return False
    return True
