"""From peak files to a chromatin data set."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pandas as pd

from bigbird_dna.console import log, progress
from bigbird_dna.disk.directories import check_directory
from bigbird_dna.errors import DataError
from bigbird_dna.genome.assembly import ALIAS_HINT, Assembly, shown, shown_counts
from bigbird_dna.genome.chromatin.dataset import (
    ChromatinData,
    make_bins,
    source_entry,
    split_counts,
    write_dataset,
)
from bigbird_dna.genome.chromatin.labels import DROPPED, BinCandidates, Labelling, PackedLabels, label_contigs
from bigbird_dna.genome.chromatin.peaks import Intervals, place_peaks, read_peaks
from bigbird_dna.genome.chromatin.regions import SPLITS, RegionSplits
from bigbird_dna.genome.chromatin.tracks import Track
from bigbird_dna.genome.reference import Reference

_SHOWN = 5  # tracks left out that the log names

_MEANING = {
    "absent": "are on contigs, or ends of contigs, that the reference leaves out: not used",
    "clipped": "reach beyond their contig's end: cut there",
}


class Labelled(NamedTuple):
    """Bins of the reference that may be kept, N rows in its order."""

    owners: npt.NDArray[np.int64]  # numbers of their contigs
    starts: npt.NDArray[np.int64]
    splits: npt.NDArray[np.int8]
    sampled: npt.NDArray[np.bool_]  # kept even without a positive track
    labels: PackedLabels
    dropped: npt.NDArray[np.int64]  # for each reason of `DROPPED`

    @classmethod
    def join(cls, candidates: Iterable[BinCandidates], tracks: int) -> Self:
        """The candidates of several contigs, one contig after the other."""
        none = np.zeros(0, np.int64)
        unlabelled = PackedLabels(np.zeros((0, -(-tracks // 8)), np.uint8), tracks)
        parts = [
            cls(none, none, np.zeros(0, np.int8), none > 0, unlabelled, np.zeros(len(DROPPED), np.int64))
        ]
        for contig, starts, splits, sampled, labels, dropped in candidates:
            owners = np.full(len(starts), contig, np.int64)
            parts.append(cls(owners, starts, splits, sampled, labels, np.array(dropped, np.int64)))
        return cls.concatenate(parts)

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self:
        """Several, one after the other."""
        labels = PackedLabels(np.concatenate([part.labels.packed for part in parts]), parts[0].labels.tracks)
        return cls(
            np.concatenate([part.owners for part in parts]),
            np.concatenate([part.starts for part in parts]),
            np.concatenate([part.splits for part in parts]),
            np.concatenate([part.sampled for part in parts]),
            labels,
            np.sum([part.dropped for part in parts], axis=0),
        )


class _Rows(NamedTuple):
    """N rows as the data set has them, or what is chosen of them."""

    bins: pd.DataFrame
    labels: PackedLabels
    sampled: npt.NDArray[np.bool_]


class LabelJob(NamedTuple):
    """What a data set is made of, beside its bins: what `dataset.json` says, and the reference's contigs."""

    contigs: Sequence[str]
    tracks: Sequence[Track]
    labelling: Labelling
    assembly: str
    regions: dict[str, list[str]]
    sources: dict[str, Any]


class TracksOnContigs(NamedTuple):
    """The peaks of each track by contig, and the intervals whose bins are dropped."""

    peaks: list[dict[str, Intervals]]
    banned: Mapping[str, Intervals]


def build_dataset(
    out: Path,
    reference: Reference,
    assembly: Assembly,
    tracks: Sequence[Track],
    splits: RegionSplits,
    labelling: Labelling,
    blacklist: Path | None = None,
) -> ChromatinData:
    """Label the bins of a reference with the peaks of tracks, and write the data set `out`.

    Rows are in the reference's order of contigs, then by start. The bytes depend on the contents of the files
    and the arguments alone. Bins that overlap the blacklist (BED) are dropped. `DataError`: no track, or no
    bin for training, is left.
    """
    check_directory(out, [reference.path] if blacklist is None else [reference.path, blacklist])
    job, placed = read_job(reference, assembly, tracks, splits, labelling, blacklist)
    candidates = label_contigs(reference, placed.peaks, splits, labelling, placed.banned)
    labelled = Labelled.join(candidates, len(tracks))
    del placed, candidates
    return write_labelled(out, job, labelled)


def read_job(
    reference: Reference,
    assembly: Assembly,
    tracks: Sequence[Track],
    splits: RegionSplits,
    labelling: Labelling,
    blacklist: Path | None,
) -> tuple[LabelJob, TracksOnContigs]:
    """Read the peaks of all tracks; arguments and errors as of `build_dataset`."""
    if not tracks:
        raise DataError("no tracks to label bins with")
    contigs = reference.contigs
    peaks, sources = _place_tracks(tracks, contigs, assembly, labelling.widen)
    if not any(peaks):
        raise DataError(f"{reference.path}: no peak of any track lies on it ({shown(contigs)})")
    banned: Mapping[str, Intervals] = {}
    if blacklist is not None:
        found = place_peaks(read_peaks(blacklist), contigs, assembly)
        banned = found.contigs
        sources["blacklist"] = {**source_entry(blacklist), **found.counts}
    sources = {"reference": source_entry(reference.path), **sources}
    job = LabelJob(list(contigs), tracks, labelling, assembly.name, splits.describe(), sources)
    return job, TracksOnContigs(peaks, banned)


def write_labelled(out: Path, job: LabelJob, labelled: Labelled) -> ChromatinData:
    """Write the data set of all bins that may be kept; errors as of `build_dataset`."""
    bins = make_bins(job.contigs, labelled.owners, labelled.starts, labelled.splits, job.labelling.bin_size)
    rows = _Rows(bins, labelled.labels, labelled.sampled)
    kept, left_out = _choose_tracks(job.tracks, rows, job.sources["tracks"], job.labelling)
    rows = _choose_rows(rows, kept)
    info = {
        **asdict(job.labelling),
        "assembly": job.assembly,
        "regions": job.regions,
        "dropped_bins": dict(zip(DROPPED, labelled.dropped.tolist(), strict=True)),
        "left_out": left_out,
        "sources": job.sources,
    }
    data = write_dataset(out, rows.bins, rows.labels, [job.tracks[number] for number in kept], info)
    _report(data)
    return data


def _place_tracks(
    tracks: Sequence[Track], contigs: Mapping[str, int], assembly: Assembly, widen: int
) -> tuple[list[dict[str, Intervals]], dict[str, Any]]:
    """The peaks of each track by contig, and where they come from."""
    placed = []
    sources: dict[str, Any] = {}
    unknown: Counter[str] = Counter()
    for track in progress(tracks, "reading peaks", len(tracks)):
        path = track.peak_file()
        found = place_peaks(read_peaks(path), contigs, assembly, widen=widen)
        sources[track.name] = {**source_entry(path), **found.counts}
        placed.append(found.contigs)
        unknown.update(found.unknown_contigs)
    if unknown:
        total = sum(source["peaks"] for source in sources.values())
        log(
            f"warning: {unknown.total():,} of {total:,} peaks ({unknown.total() / total:.1%}) are on contigs "
            f"that neither reference nor assembly knows: {shown_counts(unknown)}; {ALIAS_HINT}"
        )
    for what, meaning in _MEANING.items():
        count = sum(source[what] for source in sources.values())
        if count:
            log(f"{count:,} peaks {meaning}")
    twins: dict[str, str] = {}
    for name, source in sources.items():
        other = twins.setdefault(source["sha256"], name)
        if other != name and source["peaks"]:
            log(f"warning: tracks {other} and {name} have the same file of peaks")
    return placed, {"tracks": sources}


def _choose_tracks(
    tracks: Sequence[Track], rows: _Rows, sources: Mapping[str, Mapping[str, Any]], labelling: Labelling
) -> tuple[npt.NDArray[np.intp], list[dict[str, Any]]]:
    """Numbers of the tracks that have positives enough, and the others with the reason."""
    counts = split_counts(rows.bins, rows.labels)
    least = dict.fromkeys(SPLITS, labelling.min_held_out) | {"train": labelling.min_positives}
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
                f"{counts[split][number]} positive bins in {split}, {least[split]} needed" for split in short
            )
        left_out.append({"track": track.name, "group": track.group, **found, "reason": reason})
    if not kept:
        raise DataError(
            f"no track has {least['train']} positive bins for training"
            + (f" and {least['test']} in each held-out split" if least["test"] else "")
        )
    return np.array(kept, np.intp), left_out


def _choose_rows(rows: _Rows, tracks: npt.NDArray[np.intp]) -> _Rows:
    """Some tracks of the rows that are positive in one of them or sampled."""
    labels = rows.labels.select(tracks)
    wanted = labels.any() | rows.sampled
    bins = rows.bins[wanted].reset_index(drop=True)
    if not (bins["split"] == "train").any():
        raise DataError("no bin is left for training: held-out regions and gaps take all of them")
    return _Rows(bins, labels.take(wanted), rows.sampled[wanted])


def _report(data: ChromatinData) -> None:
    info = data.info
    sizes = ", ".join(f"{info['bins'][split]:,} {split}" for split in SPLITS)
    log(f"{len(data):,} bins of {len(data.tracks):,} tracks ({sizes})")
    for split in ("valid", "test"):
        if info["regions"][split] and not info["bins"][split]:
            log(f"warning: no bin for {split} is left in its regions")
    for reason, count in info["dropped_bins"].items():
        if count:
            log(f"{count:,} bins dropped: {reason}")
    for track in info["left_out"][:_SHOWN]:
        log(f"track {track['track']} is left out: {track['reason']}")
    if len(info["left_out"]) > _SHOWN:
        log(f"{len(info['left_out']):,} tracks are left out in all; dataset.json lists them")
