"""Arrays of rows × tracks from `FILE`, `FILE::NAME` or memory: NumPy, HDF5, Parquet and text.

N rows, T tracks. Columns of tables named in `REGION_COLUMNS` identify the interval of a row, and a column
named "note" is ignored; every other column is a track. In .npz and HDF5, an array of strings named `tracks`
has the track names.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bigbird_dna.disk.arrays import open_npz, read_frame
from bigbird_dna.disk.atomic import reading
from bigbird_dna.disk.compression import read_lines
from bigbird_dna.errors import DataError
from bigbird_dna.genome.chromatin.dataset import COLUMNS
from bigbird_dna.genome.chromatin.labels import PackedLabels
from bigbird_dna.metrics.resampling import sequence_blocks

Array = str | Path | NDArray[Any] | pd.DataFrame
"""An array of rows × tracks: a file, or in memory."""

TEXT_COLUMNS = ("contig", "name", "strand", "split")
REGION_COLUMNS = ("contig", "start", "end", "name", "strand", "split")


@dataclass(eq=False)
class TrackArray:
    """Values (N, T) of a file or in memory; `path` names them in messages.

    `values` is an array, a memory map or an `h5py.Dataset`. `names` are the track names, and `intervals`
    identifies the genomic interval of each row, if the file has them. `DataError` unless values are numbers
    of rows × tracks; a 1-D array is a single track.
    """

    path: str
    values: Any
    names: tuple[str, ...] | None = None
    intervals: pd.DataFrame | None = None

    def __post_init__(self) -> None:
        self.dtype: np.dtype[Any] = self.values.dtype
        shape = self.values.shape
        if self.dtype.kind not in "fiub" or len(shape) not in (1, 2) or 0 in shape:
            raise DataError(
                f"{self.path}: expected numbers of rows × tracks, found {self.dtype} of shape {shape}"
            )
        self.rows, self.tracks = (*shape, 1)[:2]
        if self.names is not None and len(self.names) != self.tracks:
            raise DataError(
                f"{self.path}: {len(self.names)} track names, but {self.tracks} columns"
            )

    def read(self, first: int, last: int) -> NDArray[Any]:
        """Return tracks `first` to `last` - 1 as an array (tracks, rows)."""
        with reading(self.path, "damaged", Exception):
            if len(self.values.shape) == 1:
                return np.asarray(self.values)[None]
            return np.ascontiguousarray(self.values[:, first:last].T)


def open_array(source: Any, kind: str) -> TrackArray:
    """Open `FILE`, `FILE::NAME`, or an array, list or data frame in memory.

    `kind` is "predictions" or "labels": the preferred array in a file with several arrays, and the name in
    messages of an array in memory. Values of .npy and HDF5 files are read while they are evaluated. Text has
    a header of track names, possibly after lines that start with `##`. `DataError`: the file is missing,
    damaged, of an unknown format, or has no numbers of rows × tracks.
    """
    if isinstance(source, pd.DataFrame):
        return _frame_array(kind, source)

    if not isinstance(source, str | Path):
        if isinstance(source, np.ndarray) and source.dtype.kind in "biuf":
            return TrackArray(kind, source)

        with reading(kind, "not an array of numbers", TypeError, ValueError):
            return TrackArray(kind, np.asarray(source, np.float64))

    text, _, name = str(source).partition("::")
    path = Path(text)
    if not path.is_file():
        raise DataError(f"{path}: no such file")

    suffix = Path(path.name.lower().removesuffix(".gz")).suffix
    with reading(path, "not readable", Exception):
        if suffix == ".npy":
            return TrackArray(text, np.load(path, mmap_mode="r", allow_pickle=False))

        if suffix == ".npz":
            with open_npz(path) as archive:
                arrays = dict(archive)

            if {"packed", "tracks"} <= arrays.keys() and not name:
                return TrackArray(text, PackedLabels.load(path).rows())

            return _named_array(path, name, kind, arrays)

        if suffix in (".h5", ".hdf5"):
            import h5py

            file = h5py.File(path, "r")
            names: list[str] = []
            file.visit(names.append)
            arrays = {key: file[key] for key in names if hasattr(file[key], "dtype")}
            return _named_array(path, name.strip("/"), kind, arrays)

        if suffix == ".parquet":
            return _frame_array(text, read_frame(path))

        if suffix in (".tsv", ".txt", ".csv"):
            separator = "," if suffix == ".csv" else "\t"
            return _frame_array(text, _read_text(path, separator))

    raise DataError(
        f"{path}: name must end in .npy, .npz, .h5, .parquet, .tsv[.gz] or .csv[.gz]"
    )


def read_blocks(bins: Path | None, labels: TrackArray) -> NDArray[np.int64] | None:
    """Return the ids (N,) of the blocks of the genome (`sequence_blocks`) in which the rows of labels are.

    `bins` is the table of the rows, such as `bins.parquet` of a data set. None: the columns `contig` and
    `start` of `labels`, and no blocks without these. `DataError`: `bins` is not such a table, or has another
    number of rows; a contig or start is missing or not a whole number.
    """
    table, path = labels.intervals, Path(labels.path)
    if bins is not None:
        table, path = read_frame(bins), bins
        if list(table.columns) != COLUMNS or len(table) != labels.rows:
            raise DataError(
                f"{bins}: not a table of {labels.rows:,} bins (rows of {labels.path}) with the columns "
                f"{', '.join(COLUMNS)}, but of {len(table):,} rows"
            )

    if table is None or not {"contig", "start"} <= {*table.columns}:
        return None

    with reading(path, "column start", ValueError, TypeError):
        starts = table["start"].to_numpy(np.int64)

    return sequence_blocks(table["contig"].to_numpy(), starts)


def _named_array(
    path: Path, name: str, kind: str, arrays: dict[str, Any]
) -> TrackArray:
    """Choose the array of a file: the named array, the array named `kind`, or the only 2-D or 1-D array."""
    axes = {
        key: array.ndim for key, array in arrays.items() if array.dtype.kind in "fiub"
    }
    if name or kind in axes:
        candidates = [key for key in axes if key == (name or kind)]
    else:
        candidates = [key for key in axes if axes[key] == min(2, max(axes.values()))]

    if len(candidates) != 1:
        listed = ", ".join(sorted(axes)) or "none"
        raise DataError(
            f"{path}: {len(candidates)} arrays of rows × tracks (found: {listed}); choose one with "
            f"{path}::NAME"
        )

    names = None
    if "tracks" in arrays and arrays["tracks"].dtype.kind in "SUO":
        names = tuple(
            text.decode() if isinstance(text, bytes) else str(text)
            for text in arrays["tracks"][()].tolist()
        )

    return TrackArray(f"{path}::{candidates[0]}", arrays[candidates[0]], names)


def _frame_array(path: str, frame: pd.DataFrame) -> TrackArray:
    """Return a data frame with a column per track; numbered columns give no names."""
    duplicated = frame.columns[frame.columns.duplicated()]
    if len(duplicated):
        raise DataError(f"{path}: contains two columns named {duplicated[0]!r}")

    regions = frame.columns.intersection([*REGION_COLUMNS])
    # pandas writes the row index as a column without a name.
    others = [*REGION_COLUMNS, "note", "Unnamed: 0", "__index_level_0__"]
    tracks = frame.drop(columns=others, errors="ignore")
    for name in tracks:
        if tracks[name].dtype.kind not in "biuf":
            raise DataError(
                f"{path}: column {name!r} contains {tracks[name].dtype}, expected numbers"
            )

    single = tracks.dtypes.isin([np.dtype("float16"), np.dtype("float32")]).all()
    numbered = pd.api.types.is_integer_dtype(tracks.columns)
    return TrackArray(
        path,
        tracks.to_numpy(np.float32 if single else np.float64, na_value=np.nan),
        None if numbered else tuple(map(str, tracks)),
        frame[regions].reset_index(drop=True) if len(regions) else None,
    )


def _read_text(path: Path, separator: str) -> pd.DataFrame:
    """Read TSV or CSV; empty cells, NA and a dot are NaN. `DataError` names the line of a wrong number."""
    comments = takewhile(lambda line: line[1].startswith("##"), read_lines(path))
    skipped = sum(1 for _ in comments)
    frame = pd.read_csv(
        path,
        sep=separator,
        skiprows=skipped,
        engine="pyarrow",
        na_values=["."],
        dtype=dict.fromkeys(["#contig", *TEXT_COLUMNS], str),
    )
    frame.columns = frame.columns.str.removeprefix("#")
    for name in frame.columns.difference([*TEXT_COLUMNS, "note"]):
        if frame[name].dtype.kind in "biuf":
            continue

        numbers = pd.to_numeric(frame[name], errors="coerce")
        wrong = (numbers.isna() & frame[name].notna()).to_numpy()
        if wrong.any():
            row = int(wrong.argmax())
            raise DataError(
                f"{path}: line {skipped + row + 2}: column {name!r}: {frame[name].iloc[row]!r:.60} is not "
                "a number"
            )

        frame[name] = numbers.astype(np.float64)

    return frame
