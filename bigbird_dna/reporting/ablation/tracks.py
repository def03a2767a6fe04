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
from bigbird_dna.metrics.auroc import Estimate, auroc, auroc_note
from bigbird_dna.metrics.curves import Floats
from bigbird_dna.metrics.resampling import BLOCK_BASES, FEWEST_BLOCKS, resampled_aurocs, uncertain
from bigbird_dna.reporting.ablation.comparing import Reached, compared
from bigbird_dna.reporting.ablation.reading import by_mechanism
from bigbird_dna.reporting.tracks.arrays.opening import open_array, open_predictions
from bigbird_dna.reporting.tracks.slices import UNMEASURED, read_slice

# Axes: M models, N bins.

Places = Mapping[str, Mapping[int, int]]


class Tracks(NamedTuple):
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


class JudgedTracks(NamedTuple):
    """By track what each mechanism reaches, nothing of one that can't be judged; and what is to be said."""

    reached: dict[str, dict[str, Reached]]
    notes: dict[str, str]


def compare_tracks(tracks: Tracks, reference: str) -> JudgedTracks:
    """AUROC of each mechanism on test bins, by track.

    A track without positives or negatives, or with too few positives, is left out; the log says so.

    Raises
    ------
    DataError
        There is no such track, or files are of other bins.
    """
    known = [track.name for track in read_tracks(tracks.table)]
    for name in tracks.names:
        if name not in known:
            raise DataError(f"{tracks.table}: has no track {name!r}; it has: {', '.join(known)}")
    truth = open_array(str(tracks.labels), "labels")
    if truth.tracks != len(known):
        raise DataError(f"{tracks.labels}: {truth.tracks} tracks, {tracks.table} has {len(known)}")
    shape = (truth.rows, truth.tracks)
    arrays = [open_predictions(path, tracks.labels, shape) for path in tracks.predictions.values()]
    stretches = _stretches(tracks.bins, truth.rows, tracks.labels)
    places = by_mechanism(list(tracks.predictions), "--predictions")
    found = JudgedTracks({}, {})
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
            judged = _judged(target, scores, stretches[there], places, reference)
            found.reached[name], note = judged
        found.notes.update({name: note} if note else {})
    return found


def _left_out(target: NDArray[np.int8], min_positives: int) -> str:
    """Why a track can't be judged; "" where it can."""
    positives = int(target.sum())
    negatives = len(target) - positives
    if not positives or not negatives:
        return auroc_note(positives, negatives, Estimate())
    return f"{positives:,} positives, below {min_positives:,}" if positives < min_positives else ""


def _stretches(path: Path, rows: int, labels: Path) -> NDArray[np.int64]:
    """The number (N,) of the stretch of `BLOCK_BASES` bp that each bin begins in."""
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


def _judged(
    target: NDArray[np.int8], scores: Floats, stretches: NDArray[np.int64], places: Places, reference: str
) -> tuple[dict[str, Reached], str]:
    """What each mechanism reaches on a track of both classes, (N,), by scores (M, N); and a note or ""."""
    values = np.array([auroc(target, row).value for row in scores])
    apart = [len(np.unique(stretches[target == label])) for label in (1, 0)]
    note, drawn = "", np.zeros((len(scores), 0))
    if min(apart) >= FEWEST_BLOCKS:
        drawn = resampled_aurocs(target, scores, stretches)
    else:
        # Resamples without that stretch lack a class, and all others have it alike.
        note = auroc_note(int(target.sum()), int((1 - target).sum()), Estimate(0.5, 0.0, 1.0))
        kind = "positives" if apart[0] < FEWEST_BLOCKS else "negatives"
        note = note or f"all {kind} are within one stretch of {BLOCK_BASES:,} bp: no interval of AUROC"
    found = compared(places, reference, values, drawn, (0.0, 1.0))
    if not note:
        for name, one in found.items():
            theirs = found.get(reference, one).value.value
            found[name] = one._replace(
                value=uncertain(one.value, apart),
                difference=_of_both(one.difference, one.value.value, theirs),
            )
    return found, note


def _of_both(difference: Estimate, own: float, theirs: float) -> Estimate:
    """A difference; without its interval where both separate the classes, in whichever order."""
    certain = {own, theirs} <= {0.0, 1.0}
    return Estimate(difference.value) if certain else difference
