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
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

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
    unknown_runs,
    window_start,
)
from bigbird_dna.genome.splits import EXCLUDED, GAP, SPLITS, Split, Splits

COLUMNS = ["contig", "start", "end", "split"]
FORMAT = 1
DROPPED = ("excluded", "gap", "blacklist", "too many N")
"""Reasons for dropping a bin that has a positive track or was sampled."""
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


_SHOWN = 5  # excluded tracks that are named in the log

_MEANING = {
    "absent": "are on contigs, or ends of contigs, that the reference does not contain: not used",
    "clipped": "extend beyond their contig's end: clipped",
}


def build_dataset(
    out: Path,
    reference: Reference,
    assembly: Assembly,
    tracks: Sequence[Track],
    splits: Splits,
    *,
    window: int,
    max_n: float,
    min_positives: int,
    min_held_out: int = 0,
    bin_size: int = 200,
    rule: Literal["half", "any"] = "half",
    widen: int = 0,
    negative_fraction: float = 0.0,
    seed: int = 0,
    blacklist: Path | None = None,
) -> ChromatinData:
    """Label the bins of a reference with the peaks of tracks, and write the data set `out`.

    A bin of `bin_size` bp is positive by `rule` (`positive_bins`); peaks are widened by `widen` bp on each
    side. Of bins without any positive track, `negative_fraction` is kept. `window` is the widest window that
    a model will see around a bin, including shifts: it determines the gap between training and held-out bins,
    and bins are dropped if more than `max_n` of it is N or beyond the contig. Bins on the intervals of the
    `blacklist` (BED) are dropped, too. Tracks have at least `min_positives` positive training bins, and
    `min_held_out` in each held-out split that has bins; others are listed in `dataset.json`.

    Rows are in the reference's order of contigs, then by start. The bytes depend only on the contents of the
    files and the arguments. `DataError` if no track, or no bin for training, is left.
    """
    check_directory(out, [path for path in (reference.path, blacklist) if path])
    if not tracks:
        raise DataError("no tracks to label bins with")
    contigs = reference.contigs
    sources: dict[str, Any] = {"reference": source_entry(reference.path)}
    peaks, sources["tracks"] = _place_tracks(tracks, contigs, assembly, widen)
    if not any(peaks):
        raise DataError(
            f"{reference.path}: no track has peaks on the reference's contigs ({shown(contigs)})"
        )
    excluded_regions: Mapping[str, Intervals] = {}
    if blacklist is not None:
        regions = place_peaks(blacklist, contigs, assembly)
        excluded_regions = regions.contigs
        sources["blacklist"] = {**source_entry(blacklist), **regions.counts}

    # Candidate bins of all contigs: positive in any track, or sampled.
    owners, starts, split_codes, sampled, packed = [], [], [], [], []
    dropped = np.zeros(len(DROPPED), int)
    for number, (contig, length) in enumerate(
        progress(contigs.items(), "labeling bins", len(contigs))
    ):
        count = length // bin_size
        draws = np.random.default_rng((seed, number)).random(count)
        drawn = draws < negative_fraction
        found = PackedLabels.empty(count, len(peaks))
        for track, intervals in enumerate(peaks):
            if contig in intervals:
                found.mark(
                    track, positive_bins(intervals[contig], length, bin_size, rule)
                )
        candidates = np.flatnonzero(found.any() | drawn)
        begins = candidates * bin_size
        assigned = splits.assign(contig, begins, bin_size, window)
        free = np.flatnonzero(assigned >= 0)
        banned = excluded_regions.get(contig, NO_INTERVALS)
        allowed = free[~banned.overlap(begins[free], begins[free] + bin_size)]
        used = allowed
        if max_n < 1 and len(allowed):
            opens = window_start(begins[allowed], bin_size, window)
            first = np.clip(opens, 0, length)
            last = np.clip(opens + window, 0, length)
            begin, end = int(first.min()), int(last.max())
            runs = unknown_runs(reference.fetch(Interval(contig, begin, end)))
            unknown = Intervals(runs.starts + begin, runs.ends + begin)
            known = last - first - unknown.covered(first, last)
            used = allowed[window - known <= max_n * window]
        dropped += [
            np.count_nonzero(assigned == EXCLUDED),
            np.count_nonzero(assigned == GAP),
            len(free) - len(allowed),
            len(allowed) - len(used),
        ]
        used_bins = candidates[used]
        owners.append(np.full(len(used_bins), number))
        starts.append(begins[used])
        split_codes.append(assigned[used])
        sampled.append(drawn[used_bins])
        packed.append(found.take(used_bins).packed)
    bins = make_bins(
        list(contigs),
        np.concatenate(owners),
        np.concatenate(starts),
        np.concatenate(split_codes),
        bin_size,
    )
    labels = PackedLabels(np.concatenate(packed), len(tracks))
    least = dict.fromkeys(SPLITS, min_held_out) | {"train": min_positives}
    chosen, excluded = _choose_tracks(
        tracks, sources["tracks"], least, split_counts(bins, labels)
    )
    labels = labels.select(chosen)
    # Bins that are sampled, or positive in a track that is used.
    rows = labels.any() | np.concatenate(sampled)
    bins = bins[rows].reset_index(drop=True)
    if not (bins["split"] == "train").any():
        raise DataError(
            "no bin is left for training: held-out regions and gaps cover all bins"
        )
    info = {
        "bin_size": bin_size,
        "rule": rule,
        "widen": widen,
        "window": window,
        "max_n": max_n,
        "negative_fraction": negative_fraction,
        "min_positives": min_positives,
        "min_held_out": min_held_out,
        "seed": seed,
        "assembly": assembly.name,
        "regions": splits.describe(),
        "dropped_bins": dict(zip(DROPPED, dropped.tolist(), strict=True)),
        "left_out": excluded,
        "sources": sources,
    }
    data = write_dataset(
        out, bins, labels.take(rows), [tracks[number] for number in chosen], info
    )
    _report(data)
    return data


def _place_tracks(
    tracks: Sequence[Track], contigs: Mapping[str, int], assembly: Assembly, widen: int
) -> tuple[list[dict[str, Intervals]], dict[str, Any]]:
    """Return the peaks of each track by contig, and the entries of their files in `dataset.json`."""
    placed = []
    sources: dict[str, Any] = {}
    unknown: Counter[str] = Counter()
    for track in progress(tracks, "reading peaks", len(tracks)):
        path = track.peak_file()
        found = place_peaks(path, contigs, assembly, widen=widen)
        sources[track.name] = {**source_entry(path), **found.counts}
        placed.append(found.contigs)
        unknown.update(found.unknown_contigs)
    if unknown:
        total = sum(source["peaks"] for source in sources.values())
        log(
            f"warning: {unknown.total():,} of {total:,} peaks ({unknown.total() / total:.1%}) are on contigs "
            f"that are in neither the reference nor the assembly: {shown_counts(unknown)}; {ALIAS_HINT}"
        )
    for name in ("absent", "clipped"):
        if count := sum(source[name] for source in sources.values()):
            log(f"{count:,} peaks {_MEANING[name]}")
    return placed, sources


def _choose_tracks(
    tracks: Sequence[Track],
    sources: Mapping[str, Any],
    least: Mapping[Split, int],
    counts: Mapping[Split, npt.NDArray[np.int64]],
) -> tuple[npt.NDArray[np.intp], list[dict[str, Any]]]:
    """Return the indices of the tracks with enough positives, and the other tracks with the reason."""
    splits = [split for split in SPLITS if split == "train" or counts[split].any()]
    too_few = {
        track.name: [split for split in splits if counts[split][number] < least[split]]
        for number, track in enumerate(tracks)
    }
    used, excluded = [], []
    for number, track in enumerate(tracks):
        short = too_few[track.name]
        if not short and not too_few.get(track.opposite):
            used.append(number)
            continue
        reason = f"its opposite, track {track.opposite}, is excluded"
        if not sources[track.name]["peaks"]:
            reason = "its file contains no peaks"
        elif short:
            reason = "; ".join(
                f"{counts[split][number]} positive bins in {split}, {least[split]} needed"
                for split in short
            )
        positives = {
            f"positives_{split}": int(counts[split][number]) for split in SPLITS
        }
        excluded.append(
            {"track": track.name, "group": track.group, **positives, "reason": reason}
        )
    if not used:
        raise DataError(
            f"no track has {least['train']} positive bins for training, and {least['test']} in each held-out split "
            "with bins"
        )
    return np.array(used, np.intp), excluded


def _report(data: ChromatinData) -> None:
    info = data.info
    sizes = ", ".join(f"{info['bins'][split]:,} {split}" for split in SPLITS)
    log(f"{len(data):,} bins of {len(data.tracks):,} tracks ({sizes})")
    for split in ("valid", "test"):
        if info["regions"][split] and not info["bins"][split]:
            log(f"warning: no bin is left in the regions of split {split}")
    for reason, count in info["dropped_bins"].items():
        if count:
            log(f"{count:,} bins dropped: {reason}")
    for track in info["left_out"][:_SHOWN]:
        log(f"track {track['track']} is excluded: {track['reason']}")
    if len(info["left_out"]) > _SHOWN:
        log(
            f"{len(info['left_out']):,} tracks are excluded in total; dataset.json lists them"
        )
