"""A chromatin data set: bins with their split and their labels, as a directory.

`bins.parquet`   contig, start, end (0-based, half-open), split (train, valid, test), one row a bin
`labels.npz`     the labels of the same rows, packed (see `labels`)
`tracks.tsv`     the tracks in the order of the labels, with their positives in each split
`dataset.json`   how it was made, counts, sources with their checksums, tracks left out and why

Sequences are not stored: a window comes from the reference when it is needed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from bigbird_dna.disk.atomic import checksum, read_json, write_json
from bigbird_dna.disk.directories import atomic_directory
from bigbird_dna.disk.foreign import check_cells, read_frame
from bigbird_dna.errors import DataError
from bigbird_dna.genome.chromatin.labels import PackedLabels
from bigbird_dna.genome.chromatin.regions import SPLITS, window_start
from bigbird_dna.genome.chromatin.tracks import Track, read_tracks, write_tracks
from bigbird_dna.genome.sequence import Interval
from bigbird_dna.genome.splits import Split

COLUMNS = ["contig", "start", "end", "split"]
FORMAT = 1
FILES = ("bins.parquet", "labels.npz", "tracks.tsv", "dataset.json")


@dataclass(frozen=True, eq=False)
class ChromatinData:
    """N bins and the labels (N, T) of T tracks."""

    bins: pd.DataFrame  # of `COLUMNS`
    labels: PackedLabels
    tracks: tuple[Track, ...]
    info: dict[str, Any]  # dataset.json

    def __len__(self) -> int:
        return len(self.bins)

    @property
    def bin_size(self) -> int:
        """bp of a bin."""
        return int(self.info["bin_size"])

    def rows(self, split: Split) -> npt.NDArray[np.intp]:
        """Numbers of the rows of a split, ascending."""
        return np.flatnonzero(self.bins["split"] == split)

    def windows(self, length: int, rows: npt.ArrayLike | None = None) -> list[Interval]:
        """The model's windows of `length` bp around the bins of some rows, or all.

        Bin and window have the same centre base. Windows may reach beyond their contig.
        """
        chosen = self.bins if rows is None else self.bins.iloc[np.asarray(rows)]
        starts = window_start(chosen["start"].to_numpy(), self.bin_size, length)
        return [
            Interval(contig, start, start + length)
            for contig, start in zip(chosen["contig"], starts.tolist(), strict=True)
        ]


def make_bins(
    contigs: Sequence[str],
    owners: npt.NDArray[np.intp],
    starts: npt.NDArray[np.int64],
    splits: npt.NDArray[np.integer[Any]],
    size: int,
) -> pd.DataFrame:
    """The table of bins of `size` bp, from their contigs and splits (indices of `SPLITS`), all (N,)."""
    return pd.DataFrame(
        {
            "contig": pd.Categorical.from_codes(owners, categories=pd.Index(contigs)),
            "start": starts,
            "end": starts + size,
            "split": pd.Categorical.from_codes(splits, categories=pd.Index(SPLITS)),
        }
    )


def source_entry(path: Path) -> dict[str, str]:
    """What `dataset.json` says of a file that the data set was made from: its name and checksum."""
    return {"file": path.name, "sha256": checksum(path)}


def split_counts(bins: pd.DataFrame, labels: PackedLabels) -> dict[Split, npt.NDArray[np.int64]]:
    """The positives of each track (T,) in each split."""
    codes = bins["split"].cat.codes.to_numpy()
    return {split: labels.positives(codes == code) for code, split in enumerate(SPLITS)}


def write_dataset(
    directory: Path, bins: pd.DataFrame, labels: PackedLabels, tracks: Sequence[Track], info: dict[str, Any]
) -> ChromatinData:
    """Write a data set, whole or not at all, and read it back."""
    counts = split_counts(bins, labels)
    sizes = bins["split"].value_counts()
    info = {
        "format": FORMAT,
        "bins": {split: int(sizes[split]) for split in SPLITS},
        "tracks": len(tracks),
        **info,
    }
    columns: dict[str, Sequence[object]] = {
        f"positives_{split}": found.tolist() for split, found in counts.items()
    }
    with atomic_directory(directory) as temporary:
        bins.to_parquet(temporary / "bins.parquet", index=False)
        labels.save(temporary / "labels.npz")
        # A path to the peaks would be wrong as soon as the directory moves: their names and
        # checksums are in dataset.json.
        write_tracks(temporary / "tracks.tsv", [replace(track, file=None) for track in tracks], columns)
        write_json(temporary / "dataset.json", info)
    return read_dataset(directory)


def read_dataset(directory: Path) -> ChromatinData:
    """Read a data set; `DataError` if a file is missing or damaged, or the files don't belong together."""
    directory = Path(directory)
    for name in FILES:
        if not (directory / name).is_file():
            raise DataError(f"{directory / name}: no such file; is {directory} a chromatin data set?")
    info = read_json(directory / "dataset.json")
    size = info.get("bin_size") if isinstance(info, dict) and info.get("format") == FORMAT else None
    if type(size) is not int or not 0 < size < 2**31:
        raise DataError(f"{directory / 'dataset.json'}: not the description of a chromatin data set")
    path = directory / "bins.parquet"
    bins = read_frame(path)
    if list(bins.columns) != COLUMNS:
        raise DataError(f"{path}: not a table of bins ({', '.join(COLUMNS)})")
    check_cells(path, bins, ("contig", "split"), ("start", "end"))
    strange = set(bins["split"].unique()) - set(SPLITS)
    if strange:
        raise DataError(f"{path}: split {min(strange)!r:.60} is not one of {', '.join(SPLITS)}")
    if (bins["end"] - bins["start"] != info["bin_size"]).any():
        raise DataError(f"{path}: a bin hasn't the {info['bin_size']} bp of {directory / 'dataset.json'}")
    labels = PackedLabels.load(directory / "labels.npz", len(bins))
    tracks = read_tracks(directory / "tracks.tsv")
    if labels.shape != (len(bins), len(tracks)):
        raise DataError(
            f"{directory}: the files don't belong together: labels of {labels.shape[0]:,} bins and "
            f"{labels.shape[1]:,} tracks, {len(bins):,} bins, {len(tracks):,} tracks"
        )
    return ChromatinData(bins, labels, tracks, info)
