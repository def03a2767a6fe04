"""AUROC of mechanisms on tracks of test bins, with intervals over stretches of sequence and seeds.

A peak covers many bins, and neighbours are easy or hard together: bins are no independent draws. What is
drawn are stretches of 10 kb, as for bits per base, each with all of its bins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.console import log
from bigbird_dna.disk.foreign import check_cells, read_frame
from bigbird_dna.errors import DataError
from bigbird_dna.genome.chromatin.dataset import COLUMNS
from bigbird_dna.genome.chromatin.tracks import read_tracks
from bigbird_dna.metrics.auroc import Estimate, auroc_note
from bigbird_dna.metrics.curves import Floats
from bigbird_dna.metrics.resampling import BLOCK_BASES, FEWEST_BLOCKS
from bigbird_dna.papers.experiments.ablation_files import by_mechanism, compare_to
from bigbird_dna.papers.experiments.comparing import (
    TRACK_AUROC,
    Arms,
    ModelComparison,
    evaluate_rows,
    open_test_bins,
)
from bigbird_dna.reporting.track_evaluation import UNMEASURED, read_slice

# Axes: M models, N bins.


class AblationTracks(NamedTuple):
    """What tracks are judged by: predictions of the same bins by each model NAME-SEED."""

    predictions: Mapping[str, Path]
    labels: Path
    bins: Path  # where they lie
    table: Path  # of all tracks
    names: Sequence[str]  # the tracks that are wanted
    min_positives: int = 1  # a track with fewer is left out

    @property
    def files(self) -> list[Path]:
        """All that are read."""
        return [*self.predictions.values(), self.labels, self.bins, self.table]


class ComparedTracks(NamedTuple):
    """By track what each mechanism reaches, nothing of one that can't be judged; and what is to be said."""

    reached: dict[str, dict[str, ModelComparison]]
    notes: dict[str, str]


def compare_tracks(tracks: AblationTracks, reference: str) -> ComparedTracks:
    """AUROC of each mechanism on test bins, by track.

    A track without positives or negatives, or with too few positives, is left out; the log says so.
    `DataError`: there is no such track, or files are of other bins.
    """
    known = [track.name for track in read_tracks(tracks.table)]
    for name in tracks.names:
        if name not in known:
            raise DataError(f"{tracks.table}: has no track {name!r}; it has: {', '.join(known)}")
    truth, arrays = open_test_bins(tracks.labels, list(tracks.predictions.values()))
    if truth.tracks != len(known):
        raise DataError(f"{tracks.labels}: {truth.tracks} tracks, {tracks.table} has {len(known)}")
    blocks = _blocks(tracks.bins, truth.rows, tracks.labels)
    arms = by_mechanism(list(tracks.predictions), "--predictions")
    found = ComparedTracks({}, {})
    for name in tracks.names:
        column = known.index(name)
        part = read_slice(arrays, truth, column, column + 1, tuple(known))
        there = part.labels[0] != UNMEASURED
        target = part.labels[0][there]
        note = _left_out(target, tracks.min_positives)
        found.reached[name] = {}
        if note:
            log(f"{tracks.labels}: track {name} is left out: {note}")
        else:
            scores = np.stack([row[0][there] for row in part.scores]).astype(np.float64)
            found.reached[name], note = _compared(target, scores, blocks[there], arms, reference)
        found.notes.update({name: note} if note else {})
    return found


def _left_out(target: NDArray[np.int8], min_positives: int) -> str:
    """Why a track can't be judged; "" where it can."""
    positives = int(target.sum())
    negatives = len(target) - positives
    if not positives or not negatives:
        return auroc_note(positives, negatives, Estimate())
    return f"{positives:,} positives, below {min_positives:,}" if positives < min_positives else ""


def _blocks(path: Path, rows: int, labels: Path) -> NDArray[np.int64]:
    """The number (N,) of the block of `BLOCK_BASES` bp that each bin begins in."""
    bins = read_frame(path)
    if list(bins.columns) != COLUMNS:
        raise DataError(f"{path}: not a table of bins ({', '.join(COLUMNS)})")
    check_cells(path, bins, ("contig",), ("start",))
    if len(bins) != rows:
        raise DataError(f"{path}: {len(bins):,} bins, {labels} has {rows:,}")
    contigs = np.unique(bins["contig"].astype(str).to_numpy(), return_inverse=True)[1]
    numbers = bins["start"].to_numpy().astype(np.int64) // BLOCK_BASES
    found: NDArray[np.int64] = contigs * (numbers.max(initial=0) + 1) + numbers
    return found


def _compared(
    target: NDArray[np.int8], scores: Floats, blocks: NDArray[np.int64], arms: Arms[str], reference: str
) -> tuple[dict[str, ModelComparison], str]:
    """What each mechanism reaches on a track of both classes, (N,), by scores (M, N); and a note or ""."""
    evaluated = evaluate_rows(target, scores, blocks, TRACK_AUROC, FEWEST_BLOCKS)
    note = ""
    if min(evaluated.class_groups) < FEWEST_BLOCKS:
        # Resamples without that block lack a class, and all others have it alike.
        note = auroc_note(int(target.sum()), int((1 - target).sum()), Estimate(0.5, 0.0, 1.0))
        kind = "positives" if evaluated.class_groups[0] < FEWEST_BLOCKS else "negatives"
        note = note or f"all {kind} are within one stretch of {BLOCK_BASES:,} bp: no interval of AUROC"
    return compare_to(reference, evaluated, arms), note
