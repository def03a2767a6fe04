"""Arrays of rows × tracks from `FILE`, `FILE::NAME` or memory: NumPy, HDF5, Parquet and text.

N rows, T tracks. Columns of tables named in `REGION_COLUMNS` identify the interval of a row, and a column named
`NOTE` is ignored; every other column is a track. In .npz and HDF5, strings named `tracks`, stored with the
values or as their attribute, are the track names.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bigbird_dna.console import log
from bigbird_dna.disk.arrays import check_cells, open_npz, read_frame
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


def open_array(source: Any, kind: str) -> TrackArray:
    """Open `FILE`, `FILE::NAME`, or an array, list or data frame in memory.

    `kind` is "predictions" or "labels": the preferred array in a file with several arrays, and the name in
    messages of an array in memory. Values of .npy and HDF5 files are read while they are evaluated.
    `DataError`: the file is missing, damaged, of an unknown format, or has no numbers of rows × tracks.
    """
    if isinstance(source, pd.Series):
        named = isinstance(source.name, str)
        source = source.to_frame() if named else source.to_numpy()
    if isinstance(source, pd.DataFrame):
        return _frame_array(kind, source)
    if isinstance(source, np.ndarray) and source.dtype.kind in "biuf":
        return TrackArray(kind, source)
    if not isinstance(source, str | Path):
        try:
            return TrackArray(kind, np.asarray(source, np.float64))
        except (TypeError, ValueError) as error:
            raise DataError(
                f"{kind}: not an array of numbers (rows × tracks): {error_text(error)}"
            ) from None
    text, _, name = str(source).partition("::")
    path = Path(text)
    if path.is_dir():
        raise DataError(f"{path}: expected a file, found a directory")
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    if not path.stat().st_size:
        raise DataError(f"{path}: the file is empty")
    lower = path.name.lower().removesuffix(".gz")
    with reading(path, "not readable", Exception):
        if lower.endswith(".npy"):
            return TrackArray(text, np.load(path, mmap_mode="r", allow_pickle=False))
        if lower.endswith(".npz"):
            return _npz_array(path, name, kind)
        if lower.endswith((".h5", ".hdf5")):
            import h5py

            stored = h5py.File(path, "r")
            names: list[str] = []
            stored.visit(names.append)
            items = {each: stored[each] for each in names}
            arrays = {k: v for k, v in items.items() if isinstance(v, h5py.Dataset)}
            return _named_array(path, name.strip("/"), kind, arrays)
        if lower.endswith(".parquet"):
            frame = read_frame(path)
            _check_header(str(path), [*frame.columns])
            return _frame_array(text, _without_index(path, frame))
        if lower.endswith((".tsv", ".txt")):
            return _text_array(path, "\t")
        if lower.endswith(".csv"):
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


def _npz_array(path: Path, name: str, kind: str) -> TrackArray:
    """Read an array of a .npz file, chosen by `name` or else by `kind`, or a data set's packed labels."""
    with open_npz(path) as stored:
        if {"packed", NAMES} <= {*stored.files} and not name:
            return TrackArray(str(path), PackedLabels.load(path).rows())
        arrays = {key: stored[key] for key in stored.files}
    return _named_array(path, name, kind, arrays)


def _named_array(
    path: Path, name: str, kind: str, arrays: Mapping[str, Any]
) -> TrackArray:
    """Choose the array of a file: the named array, the array named `kind`, or the only candidate."""
    axes = {
        key: len(array.shape)
        for key, array in arrays.items()
        if array.dtype.kind in "fiub"
    }
    if name and name not in axes:
        raise DataError(
            f"{path}: no numeric array {name!r}: {one_of(name, sorted(axes))}"
        )
    candidates = [name] if name else []
    for count in (2, 1):  # one axis: one track
        if not candidates:
            candidates = [key for key in axes if axes[key] == count and key != NAMES]
    if kind in candidates:
        candidates = [kind]
    if len(candidates) != 1:
        listed = ", ".join(sorted(axes)) or "none"
        raise DataError(
            f"{path}: {len(candidates)} arrays of rows × tracks (found: {listed}); choose one with "
            f"{path}::NAME"
        )
    values = arrays[candidates[0]]
    array = TrackArray(f"{path}::{candidates[0]}", values)
    names = getattr(values, "attrs", {}).get(NAMES)
    if names is None and NAMES in arrays:
        names = arrays[NAMES][()]
    names = np.asarray(names)
    if names.ndim == 1 and names.dtype.kind in "SUOT":
        array.names = tuple(
            each.decode() if isinstance(each, bytes) else str(each)
            for each in names.tolist()
        )
        if len(array.names) != array.tracks:
            raise DataError(
                f"{array.path}: {len(array.names)} track names, but {array.tracks} columns"
            )
    return array


def _frame_array(path: str, frame: pd.DataFrame) -> TrackArray:
    """Return a data frame with a column per track; index and numbered columns give no names."""
    regions = [name for name in frame.columns if name in REGION_COLUMNS]
    tracks = [name for name in frame.columns if name not in (*REGION_COLUMNS, NOTE)]
    _check_header(path, tracks)
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


def _check_header(where: str, names: Sequence[object]) -> None:
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f"{where}: contains two columns named {twice!r}")
    if "" in names[1:]:
        raise DataError(f"{where}: column {names.index('') + 1} has no name")


def _without_index(path: Path, frame: pd.DataFrame) -> pd.DataFrame:
    """Return a table without the column in which pandas stored the row index."""
    for name in (frame.columns[0], frame.columns[-1]):
        column = frame[name]
        if name in INDEX_NAMES and _is_index(column):
            log(f"{path}: column {name!r} is a row index and is ignored")
            return frame.drop(columns=name)
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
    line, text = next(
        (each for each in read_lines(path) if not each[1].startswith("##")), (1, "")
    )
    cells = text.split(delimiter)
    if delimiter == ",":
        cells = next(csv.reader([text]), [""])
    names = [cell.strip() for cell in cells]
    names[0] = names[0].lstrip("#").strip()
    named = not all(name in (*MISSING, DOT) or _is_number(name) for name in names)
    # pandas numbers the columns 0, 1, 2, … after an empty cell above its index; 0, 1 alone may be data.
    inner = names[1:] if not names[0] else names
    numbered = inner == [*map(str, range(len(inner)))]
    header = named or (numbered and len(names) > 2)
    table = _read_text(path, delimiter, len(names), line if header else line - 1)
    if header and not named and not names[0] and not _is_index(table[0]):
        header = False  # the first value of the first row is missing
        table = _read_text(path, delimiter, len(names), line - 1)
    if header and not named:
        log(f"{path}: line {line} numbers the columns and is ignored")
    if named:
        _check_header(f"{path}: line {line}", names)
        table.columns = pd.Index(names)
    elif header and not names[0]:
        table = table.rename(columns={0: ""})
    table = _without_index(path, table)
    if "" in table.columns:
        raise DataError(
            f"{path}: line {line}: column 1 has no name and does not number the rows"
        )
    for name in table.columns:
        column = table[name]
        if name in (*REGION_COLUMNS, NOTE) or column.dtype.kind in "biuf":
            continue
        numbers = pd.to_numeric(column.mask(column == DOT), errors="coerce")
        wrong = (numbers.isna() & column.notna() & (column != DOT)).to_numpy(bool)
        if wrong.any():
            row = int(wrong.argmax())
            label = name if named else str(int(name) + 1)
            raise DataError(
                f"{path}: line {line + header + row}: column {label!r}: {column.iloc[row]!r:.60} is not a "
                "number"
            )
        table[name] = numbers.astype("float64")
    return _frame_array(str(path), table)


def _read_text(path: Path, delimiter: str, columns: int, skipped: int) -> pd.DataFrame:
    """Return the lines after the first `skipped` ones as a table of numbered columns."""
    from pyarrow import csv as arrow

    # Errors have the row number only with a single thread.
    names = [str(number) for number in range(columns)]
    read = arrow.ReadOptions(use_threads=False, skip_rows=skipped, column_names=names)
    quote = '"' if delimiter == "," else False
    parse = arrow.ParseOptions(delimiter=delimiter, quote_char=quote)
    convert = arrow.ConvertOptions(null_values=MISSING, strings_can_be_null=True)
    with open_bytes(path) as stream:
        frame: pd.DataFrame = arrow.read_csv(stream, read, parse, convert).to_pandas()
    frame.columns = pd.RangeIndex(columns)
    return frame


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
