"""From peak files to a chromatin data set."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bigbird_dna.console import log, progress
from bigbird_dna.errors import ConfigError, DataError
from bigbird_dna.files import check_writable, checksum
from bigbird_dna.genome.assembly import Assembly, shown
from bigbird_dna.genome.chromatin.bins import (
    Grid,
    Rule,
    least_bases,
    positive_bins,
    window_start,
)
from bigbird_dna.genome.chromatin.dataset import (
    ChromatinData,
    make_bins,
    split_counts,
    write_dataset,
)
from bigbird_dna.genome.chromatin.labels import LabelBuilder, PackedLabels
from bigbird_dna.genome.chromatin.peaks import (
    Intervals,
    PlacedPeaks,
    Positions,
    place_peaks,
    read_peaks,
)
from bigbird_dna.genome.chromatin.region_splits import SPLITS, RegionSplits, overlaps
from bigbird_dna.genome.chromatin.tracks import Track
from bigbird_dna.genome.chromatin.unknown import known_bases, unknown_bases
from bigbird_dna.genome.reference import Reference

_SHOWN = 5  # tracks left out that the log names

_MEANING = {
    "unknown": "are on contigs that neither reference nor assembly knows: not used",
    "absent": "are on contigs, or ends of contigs, that the reference leaves out: not used",
    "clipped": "reach beyond their contig's end: cut there",
}


class Candidates(NamedTuple):
    """Bins of a contig that may be kept."""

    starts: Positions
    splits: npt.NDArray[np.int8]
    sampled: npt.NDArray[np.bool_]  # kept even without a positive track
    labels: PackedLabels


def build_dataset(
    out: Path,
    reference: Reference,
    assembly: Assembly,
    tracks: Sequence[Track],
    splits: RegionSplits,
    *,
    window: int = 8000,
    bin_size: int = 200,
    stride: int = 0,
    rule: Rule = "half",
    widen: int = 0,
    blacklist: Path | None = None,
    max_n: float = 0.1,
    negative_fraction: float = 0.0,
    min_positives: int = 1,
    min_held_out: int = 0,
    seed: int = 0,
) -> ChromatinData:
    """Label the bins of a reference with the peaks of tracks, and write the data set `out`.

    Rows are in the reference's order of contigs, then by start. The bytes depend on the contents of
    the files and the arguments alone.

    Parameters
    ----------
    window
        bp of the widest window that a model will see around a bin, shifts included: it is what the
        gap between training and held-out bins and `max_n` go by.
    stride
        bp from one bin to the next; 0: `bin_size`.
    widen
        bp added to each side of a peak.
    blacklist
        Intervals in BED; bins that overlap one are dropped.
    max_n
        Bins are dropped whose window has a larger fraction of N; bases beyond the contig count as N.
    negative_fraction
        The part of the bins without any positive track that is kept: 0 as in DeepSEA, 1 all.
    min_positives, min_held_out
        Positives that a track needs in training, and in each held-out split that has bins; tracks
        with fewer are left out and listed in `dataset.json`.
    seed
        Of the sampling of bins without a positive track.

    Raises
    ------
    DataError
        A file can't be used, no track is left, or no bin for training.
    ConfigError
        A fraction or rule that makes no sense.
    """
    grid = Grid(bin_size, stride)
    least_bases(rule, bin_size)
    for name, value in (("max_n", max_n), ("negative_fraction", negative_fraction)):
        if not 0 <= value <= 1:
            raise ConfigError(f"{name} is a fraction from 0 to 1, not {value}")
    if window < 1:
        raise ConfigError(f"window must be at least 1 bp, not {window}")
    if not tracks:
        raise DataError("no tracks to label bins with")
    check_writable(out, directory=True)
    contigs = reference.contigs
    placed, sources = _place_tracks(tracks, contigs, assembly, widen)
    if not any(found.contigs for found in placed):
        raise DataError(f"{reference.path}: no peak of any track lies on it ({shown(contigs)})")
    banned: Mapping[str, Intervals] = {}
    if blacklist is not None:
        found = place_peaks(read_peaks(blacklist), contigs, assembly)
        banned = found.contigs
        sources["blacklist"] = {**_source(blacklist), **found.counts}

    dropped = dict.fromkeys(("excluded", "gap", "blacklist", "too many N"), 0)
    parts: dict[str, Candidates] = {}
    for number, contig in enumerate(progress(contigs, "labelling bins", len(contigs))):
        sampled = np.random.default_rng((seed, number)).random(grid.bins(contigs[contig]))
        parts[contig] = _label_contig(
            reference,
            contig,
            [peaks.contigs.get(contig) for peaks in placed],
            splits,
            grid=grid,
            rule=rule,
            window=window,
            banned=banned.get(contig),
            max_n=max_n,
            sampled=sampled < negative_fraction,
            dropped=dropped,
        )
    del placed
    bins = make_bins(list(parts), [(part.starts, part.splits) for part in parts.values()], bin_size)
    sampled_rows = np.concatenate([part.sampled for part in parts.values()])
    labels = PackedLabels(
        np.concatenate([part.labels.packed for part in parts.values()]), len(tracks)
    )
    parts.clear()
    kept, left_out = _choose_tracks(
        tracks, split_counts(bins, labels), sources["tracks"], min_positives, min_held_out
    )
    if not len(kept):
        raise DataError(
            f"no track has {min_positives} positive bins for training"
            + (f" and {min_held_out} in each held-out split" if min_held_out else "")
        )
    labels = labels.select(kept)
    wanted = labels.any() | sampled_rows
    bins, labels = bins[wanted].reset_index(drop=True), labels.take(wanted)
    if not (bins["split"] == "train").any():
        raise DataError("no bin is left for training: held-out regions and gaps take all of them")
    info = {
        "bin_size": bin_size,
        "stride": grid.stride,
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
        "dropped_bins": dropped,
        "left_out": left_out,
        "sources": {"reference": _source(reference.path), **sources},
    }
    data = write_dataset(out, bins, labels, [tracks[number] for number in kept], info)
    _report(data, dropped, left_out)
    return data


def _place_tracks(
    tracks: Sequence[Track], contigs: Mapping[str, int], assembly: Assembly, widen: int
) -> tuple[list[PlacedPeaks], dict[str, Any]]:
    placed = []
    sources: dict[str, Any] = {}
    for track in progress(tracks, "reading peaks", len(tracks)):
        path = track.peak_file()
        found = place_peaks(read_peaks(path), contigs, assembly, widen=widen)
        sources[track.name] = {**_source(path), **found.counts}
        placed.append(found)
    for what in ("unknown", "absent", "clipped"):
        count = sum(getattr(found, what) for found in placed)
        if count:
            log(f"{count:,} peaks {_MEANING[what]}")
    twins: dict[str, str] = {}
    for name, source in sources.items():
        other = twins.setdefault(source["sha256"], name)
        if other != name and source["peaks"]:
            log(f"warning: tracks {other} and {name} have the same file of peaks")
    return placed, {"tracks": sources}


def _label_contig(
    reference: Reference,
    contig: str,
    peaks: Sequence[Intervals | None],
    splits: RegionSplits,
    *,
    grid: Grid,
    rule: Rule,
    window: int,
    banned: Intervals | None,
    max_n: float,
    sampled: npt.NDArray[np.bool_],
    dropped: dict[str, int],
) -> Candidates:
    """Label a contig's bins; adds to `dropped` how many were dropped for each reason."""
    length = reference.contigs[contig]
    starts = grid.starts(length)
    builder = LabelBuilder(len(starts), len(peaks))
    for track, intervals in enumerate(peaks):
        if intervals is not None:
            builder.mark(track, positive_bins(intervals, grid, length, rule))
    wanted = np.flatnonzero(builder.any() | sampled)
    starts, sampled = starts[wanted], sampled[wanted]
    assigned = splits.assign(contig, starts, grid.size, window)
    dropped["excluded"] += assigned.excluded
    dropped["gap"] += assigned.gap
    keep = assigned.splits >= 0
    if banned is not None:
        hit = keep & overlaps(banned, starts, starts + grid.size)
        dropped["blacklist"] += int(np.count_nonzero(hit))
        keep &= ~hit
    if max_n < 1 and keep.any():
        opens = window_start(starts, grid.size, window)
        known = known_bases(unknown_bases(reference, contig), opens, window, length)
        poor = keep & (window - known > max_n * window)
        dropped["too many N"] += int(np.count_nonzero(poor))
        keep &= ~poor
    return Candidates(
        starts[keep], assigned.splits[keep], sampled[keep], builder.build(wanted[keep])
    )


def _choose_tracks(
    tracks: Sequence[Track],
    counts: Mapping[Any, npt.NDArray[np.int64]],
    sources: Mapping[str, Mapping[str, Any]],
    min_positives: int,
    min_held_out: int,
) -> tuple[npt.NDArray[np.intp], list[dict[str, Any]]]:
    """Numbers of the tracks that have positives enough, and the others with the reason."""
    least = {split: min_positives if split == "train" else min_held_out for split in SPLITS}
    used = [split for split in SPLITS if split == "train" or counts[split].any()]
    kept, left_out = [], []
    for number, track in enumerate(tracks):
        short = [split for split in used if counts[split][number] < least[split]]
        if not short:
            kept.append(number)
            continue
        found = {f"positives_{split}": int(counts[split][number]) for split in SPLITS}
        if not sources[track.name]["peaks"]:
            reason = "no peaks in its file"
        else:
            reason = "; ".join(
                f"{counts[split][number]} positive bins in {split}, {least[split]} needed"
                for split in short
            )
        left_out.append({"track": track.name, "group": track.group, **found, "reason": reason})
    return np.array(kept, np.intp), left_out


def _source(path: Path) -> dict[str, str]:
    return {"file": path.name, "sha256": checksum(path)}


def _report(
    data: ChromatinData, dropped: Mapping[str, int], left_out: Sequence[Mapping[str, Any]]
) -> None:
    sizes = ", ".join(f"{data.info['bins'][split]:,} {split}" for split in SPLITS)
    log(f"{len(data):,} bins of {len(data.tracks):,} tracks ({sizes})")
    for split in ("valid", "test"):
        if data.info["regions"][split] and not data.info["bins"][split]:
            log(f"warning: no bin for {split} is left in its regions")
    for reason, count in dropped.items():
        if count:
            log(f"{count:,} bins dropped: {reason}")
    for track in left_out[:_SHOWN]:
        log(f"track {track['track']} is left out: {track['reason']}")
    if len(left_out) > _SHOWN:
        log(f"{len(left_out):,} tracks are left out in all; dataset.json lists them")
