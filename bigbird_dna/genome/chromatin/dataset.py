"""Build, read and write a chromatin data set: a directory of bins with their splits and labels.

`bins.parquet`   contig, start, end (0-based, half-open), split (train, valid, test), one row per bin
`labels.npz`     the labels of the same rows, packed (see `labels`)
`tracks.tsv`     the tracks in the order of the labels, with their positives per split
`dataset.json`   parameters, counts, sources with their checksums, excluded tracks and the reasons

Sequences are not stored: a window is read from the reference when it is needed. A data set is built from peak
files.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from bigbird_dna.config.chromatin import ChromatinDataConfig
from bigbird_dna.console import log, progress
from bigbird_dna.disk.arrays import read_frame
from bigbird_dna.disk.atomic import checksum, read_json, write_json
from bigbird_dna.disk.directories import atomic_directory, check_directory
from bigbird_dna.errors import DataError
from bigbird_dna.genome.assembly import ALIAS_HINT, Assembly, shown, shown_counts
from bigbird_dna.genome.chromatin.labels import PackedLabels, positive_bins
from bigbird_dna.genome.chromatin.track import Track
from bigbird_dna.genome.chromatin.tracks import read_tracks, write_tracks
from bigbird_dna.genome.intervals import place_peaks
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import (
    NO_INTERVALS,
    Interval,
    Intervals,
    window_start,
)
from bigbird_dna.genome.splits import EXCLUDED, GAP, SPLITS, Split, Splits

COLUMNS = ["contig", "start", "end", "split"]
FORMAT = 1
FILES = ("bins.parquet", "labels.npz", "tracks.tsv", "dataset.json")


@dataclass(frozen=True, eq=False)
class ChromatinData:
    """N bins and the labels (N, T) of T tracks."""

    bins: pd.DataFrame  # columns: `COLUMNS`
    labels: PackedLabels
    tracks: tuple[Track, ...]
    info: dict[str, Any]  # content of dataset.json

    def __len__(self) -> int:
        return len(self.bins)

    @property
    def bin_size(self) -> int:
        """Size of a bin in bp."""
        return int(self.info["bin_size"])

    def rows(self, split: Split) -> npt.NDArray[np.intp]:
        """Return the row indices of a split, ascending."""
        return np.flatnonzero(self.bins["split"] == split)

    def windows(self, length: int, rows: npt.ArrayLike | None = None) -> list[Interval]:
        """Return the model's windows of `length` bp around the bins of `rows`; None selects all rows.

        Bin and window have the same center base. Windows may extend beyond their contig.
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
    """Return the table of bins of `size` bp from their contigs and splits (indices of `SPLITS`), all (N,)."""
    return pd.DataFrame(
        {
            "contig": pd.Categorical.from_codes(owners, categories=pd.Index(contigs)),
            "start": starts,
            "end": starts + size,
            "split": pd.Categorical.from_codes(splits, categories=pd.Index(SPLITS)),
        }
    )


def source_entry(path: Path) -> dict[str, str]:
    """Return the entry of a source file in `dataset.json`: its name and checksum."""
    return {"file": path.name, "sha256": checksum(path)}


def split_counts(
    bins: pd.DataFrame, labels: PackedLabels
) -> dict[Split, npt.NDArray[np.int64]]:
    """Return the positives of each track (T,) per split."""
    codes = bins["split"].cat.codes.to_numpy()
    return {split: labels.positives(codes == code) for code, split in enumerate(SPLITS)}


def write_dataset(
    directory: Path,
    bins: pd.DataFrame,
    labels: PackedLabels,
    tracks: Sequence[Track],
    info: dict[str, Any],
) -> ChromatinData:
    """Write a data set atomically, and read it back."""
    counts = split_counts(bins, labels)
    sizes = bins["split"].value_counts()
    info = {
        "format": FORMAT,
        "bins": {split: int(sizes[split]) for split in SPLITS},
        "tracks": len(tracks),
        **info,
    }
    positives = {
        f"positives_{split}": found.tolist() for split, found in counts.items()
    }
    with atomic_directory(directory) as temporary:
        bins.to_parquet(temporary / "bins.parquet", index=False)
        labels.save(temporary / "labels.npz")
        # A path to the peak files would become wrong when the directory is moved: dataset.json has their
        # names and checksums.
        write_tracks(
            temporary / "tracks.tsv",
            [replace(track, file=None) for track in tracks],
            positives,
        )
        write_json(temporary / "dataset.json", info)

    return read_dataset(directory)


def read_dataset(directory: Path) -> ChromatinData:
    """Read a data set; `DataError` if a file is missing or damaged, or the files do not belong together."""
    directory = Path(directory)
    for name in FILES:
        if not (directory / name).is_file():
            raise DataError(
                f"{directory / name}: no such file; {directory} must be a chromatin data set"
            )

    info = read_json(directory / "dataset.json")
    if not isinstance(info, dict) or info.get("format") != FORMAT:
        raise DataError(
            f"{directory / 'dataset.json'}: not the description of a chromatin data set"
        )

    path = directory / "bins.parquet"
    bins = read_frame(path)
    if list(bins.columns) != COLUMNS:
        raise DataError(f"{path}: not a table of bins (columns {', '.join(COLUMNS)})")

    if (bins["end"] - bins["start"] != info["bin_size"]).any():
        raise DataError(
            f"{path}: a bin does not have {info['bin_size']} bp, the bin size in dataset.json"
        )

    labels = PackedLabels.load(directory / "labels.npz", len(bins))
    tracks = read_tracks(directory / "tracks.tsv")
    if labels.tracks != len(tracks):
        raise DataError(
            f"{directory}: the files do not belong together: labels of {labels.tracks:,} tracks, "
            f"{len(tracks):,} tracks"
        )

    return ChromatinData(bins, labels, tracks, info)


def build_dataset(
    out: Path,
    reference: Reference,
    assembly: Assembly,
    tracks: Sequence[Track],
    splits: Splits,
    settings: ChromatinDataConfig,
    *,
    seed: int = 0,
    blacklist: Path | None = None,
) -> ChromatinData:
    """Label the bins of a reference with the peaks of tracks, and write the data set `out`.

    Bins and windows are those of `settings`. Training bins whose window could overlap that of a held-out bin
    are dropped, and so are bins on the intervals of the `blacklist` (BED). Tracks with too few positive bins
    in a split that has bins are excluded and listed in `dataset.json`.

    Rows are in the reference's order of contigs, then by start. The bytes depend only on the contents of the
    files and the arguments. `DataError` if no track, or no bin for training, is left.
    """
    check_directory(out, [path for path in (reference.path, blacklist) if path])
    if not tracks:
        raise DataError("no tracks to label bins with")

    contigs = reference.contigs
    size, window = settings.bin, settings.widest
    peaks, track_sources = _place_tracks(tracks, contigs, assembly, settings.widen)
    sources: dict[str, Any] = {"reference": source_entry(reference.path)}
    sources["tracks"] = track_sources
    excluded_regions: Mapping[str, Intervals] = {}
    if blacklist is not None:
        regions = place_peaks(blacklist, contigs, assembly)
        excluded_regions = regions.contigs
        sources["blacklist"] = {**source_entry(blacklist), **regions.counts}

    # Candidate bins of all contigs: positive in any track, or sampled.
    owners, starts, split_codes, sampled, packed = [], [], [], [], []
    dropped = dict.fromkeys(("excluded", "gap", "blacklist", "too many N"), 0)
    for number, (contig, length) in enumerate(
        progress(contigs.items(), "labeling bins", len(contigs))
    ):
        count = length // size
        draws = np.random.default_rng((seed, number)).random(count)
        is_sampled = draws < settings.negative_fraction
        labels = PackedLabels.empty(count, len(peaks))
        for column, intervals in enumerate(peaks):
            if contig in intervals:
                positive = positive_bins(
                    intervals[contig], length, size, settings.label
                )
                labels.mark(column, positive)

        candidates = np.flatnonzero(labels.any() | is_sampled)
        begins = candidates * size
        assigned = splits.assign(contig, begins, size, window)
        dropped["excluded"] += int(np.count_nonzero(assigned == EXCLUDED))
        dropped["gap"] += int(np.count_nonzero(assigned == GAP))
        used = np.flatnonzero(assigned >= 0)
        banned = excluded_regions.get(contig, NO_INTERVALS)
        is_banned = banned.overlap(begins[used], begins[used] + size)
        dropped["blacklist"] += int(is_banned.sum())
        used = used[~is_banned]
        if settings.max_n < 1 and len(used):
            opens = window_start(begins[used], size, window)
            first = np.clip(opens, 0, length)
            last = np.clip(opens + window, 0, length)
            sequence = reference.fetch(Interval(contig, 0, length))
            is_n = np.frombuffer(f"A{sequence}A".encode(), np.uint8) == ord("N")
            edges = np.flatnonzero(is_n[1:] != is_n[:-1])  # of runs of N
            known = last - first
            if len(edges):
                unknown = Intervals(edges[::2], edges[1::2])
                known = known - unknown.covered(first, last)

            is_poor = window - known > settings.max_n * window
            dropped["too many N"] += int(is_poor.sum())
            used = used[~is_poor]

        owners.append(np.full(len(used), number))
        starts.append(begins[used])
        split_codes.append(assigned[used])
        sampled.append(is_sampled[candidates[used]])
        packed.append(labels.take(candidates[used]).packed)

    bins = make_bins(
        list(contigs),
        np.concatenate(owners),
        np.concatenate(starts),
        np.concatenate(split_codes),
        size,
    )
    labels = PackedLabels(np.concatenate(packed), len(tracks))

    # Tracks with enough positives in each split that has bins; both or none of two opposite ones.
    counts = split_counts(bins, labels)
    too_few: dict[str, str] = {}
    for number, track in enumerate(tracks):
        reasons = []
        for split in SPLITS:
            least = settings.min_positives_heldout
            if split == "train":
                least = settings.min_positives_train

            positives = int(counts[split][number])
            if positives < least and (split == "train" or counts[split].any()):
                reasons.append(f"{positives} positive bins in {split}, {least} needed")

        if reasons:
            too_few[track.name] = "; ".join(reasons)
            if not track_sources[track.name]["peaks"]:
                too_few[track.name] = "its file contains no peaks"

    chosen, excluded = [], []
    for number, track in enumerate(tracks):
        if track.name not in too_few and track.opposite not in too_few:
            chosen.append(number)
            continue

        reason = f"its opposite, track {track.opposite}, is excluded"
        entry: dict[str, Any] = {"track": track.name, "group": track.group}
        for split in SPLITS:
            entry[f"positives_{split}"] = int(counts[split][number])

        entry["reason"] = too_few.get(track.name, reason)
        excluded.append(entry)

    if not chosen:
        raise DataError(
            f"no track has {settings.min_positives_train} positive bins for training, and "
            f"{settings.min_positives_heldout} in each held-out split with bins"
        )

    labels = labels.select(np.array(chosen, np.intp))
    # Bins that are sampled, or positive in a track that is used.
    rows = labels.any() | np.concatenate(sampled)
    bins = bins[rows].reset_index(drop=True)
    if not (bins["split"] == "train").any():
        raise DataError(
            "no bin is left for training: held-out regions and gaps cover all bins"
        )

    info = {
        "bin_size": size,
        "rule": settings.label,
        "widen": settings.widen,
        "window": window,
        "max_n": settings.max_n,
        "negative_fraction": settings.negative_fraction,
        "min_positives": settings.min_positives_train,
        "min_held_out": settings.min_positives_heldout,
        "seed": seed,
        "assembly": assembly.name,
        "regions": splits.describe(),
        "dropped_bins": dropped,
        "left_out": excluded,
        "sources": sources,
    }
    used_tracks = [tracks[number] for number in chosen]
    data = write_dataset(out, bins, labels.take(rows), used_tracks, info)

    sizes = ", ".join(f"{data.info['bins'][split]:,} {split}" for split in SPLITS)
    log(f"{len(data):,} bins of {len(data.tracks):,} tracks ({sizes})")
    for split in ("valid", "test"):
        if data.info["regions"][split] and not data.info["bins"][split]:
            log(f"warning: no bin is left in the regions of split {split}")

    for reason, count in dropped.items():
        if count:
            log(f"{count:,} bins dropped: {reason}")

    for entry in excluded[:5]:
        log(f"track {entry['track']} is excluded: {entry['reason']}")

    if len(excluded) > 5:
        log(f"{len(excluded):,} tracks are excluded in total; dataset.json lists them")

    return data


def _place_tracks(
    tracks: Sequence[Track], contigs: Mapping[str, int], assembly: Assembly, widen: int
) -> tuple[list[dict[str, Intervals]], dict[str, Any]]:
    """Return the peaks of each track by contig, and the entries of their files in `dataset.json`."""
    peaks = []
    sources: dict[str, Any] = {}
    totals: Counter[str] = Counter()
    unknown: Counter[str] = Counter()
    for track in progress(tracks, "reading peaks", len(tracks)):
        if track.file is None:
            raise DataError(f"track {track.name!r}: the table specifies no peak file")

        placed = place_peaks(track.file, contigs, assembly, widen=widen)
        sources[track.name] = {**source_entry(track.file), **placed.counts}
        peaks.append(placed.contigs)
        totals.update(placed.counts)
        unknown.update(placed.unknown_contigs)

    if unknown:
        log(
            f"warning: {totals['unknown']:,} of {totals['peaks']:,} peaks are on contigs that are in neither the "
            f"reference nor the assembly: {shown_counts(unknown)}; {ALIAS_HINT}"
        )

    for name, what in (
        ("absent", "are on contigs, or ends of contigs, that the reference lacks"),
        ("clipped", "extend beyond their contig's end: clipped"),
    ):
        if totals[name]:
            log(f"{totals[name]:,} peaks {what}")

    if not any(peaks):
        raise DataError(
            f"no track has peaks on the reference's contigs ({shown(contigs)})"
        )

    return peaks, sources
