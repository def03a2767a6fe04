"""Mechanisms compared: bits per base, AUROC of tracks, and what a step takes; means over seeds.

Intervals of 95 % are over test data (blocks of sequence, or bins) and seeds; see `metrics.resampling`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bigbird_dna.errors import DataError
from bigbird_dna.genome.chromatin.tracks import read_tracks
from bigbird_dna.reporting.ablation.reading import Bits, by_mechanism
from bigbird_dna.reporting.metrics.auroc import UNDEFINED, Estimate, auroc
from bigbird_dna.reporting.metrics.blocks import resampled_rates
from bigbird_dna.reporting.metrics.resampling import gain, resampled_aurocs
from bigbird_dna.reporting.metrics.steps import Floats
from bigbird_dna.reporting.tracks.arrays.opening import open_array, open_predictions
from bigbird_dna.reporting.tracks.slices import UNMEASURED, read_slice

# Axes: M models, S seeds, R resamples.

_ANY = (-np.inf, np.inf)


class Reached(NamedTuple):
    """What a mechanism's models of one kind of training reach."""

    value: Estimate  # bits per base; or an AUROC
    difference: Estimate  # minus the reference's, on the seeds that both have
    seeds: int
    steps: int  # of each training; 0 where they differ or it isn't said
    seconds: float  # of its steps by the log, mean over seeds; NaN where it isn't said


def compare_bits(bits: Bits, reference: str) -> dict[str, Reached]:
    """Bits per base of each mechanism of a file, in its order."""
    rates, drawn = resampled_rates(list(bits.bits), bits.bases, bits.blocks)
    places = by_mechanism(bits.names, bits.path)
    found = _compared(places, reference, rates, drawn.T, (0.0, np.inf))
    for name, one in found.items():
        own = list(places[name].values())
        steps = set(bits.steps[own].tolist())
        seconds = float(bits.seconds[own].mean())
        found[name] = one._replace(steps=steps.pop() if len(steps) == 1 else 0, seconds=seconds)
    return found


def compare_tracks(
    predictions: Mapping[str, Path], labels: Path, tracks: Path, names: Sequence[str], reference: str
) -> dict[str, dict[str, Reached]]:
    """AUROC of each mechanism on test bins, by track.

    Parameters
    ----------
    predictions
        By NAME-SEED of a model, its predictions of all bins and tracks.
    labels, tracks
        Of the test bins, and the table of all tracks.
    names
        The tracks that are wanted.

    Raises
    ------
    DataError
        There is no such track, it has one class only, or predictions are of other bins.
    """
    known = [track.name for track in read_tracks(tracks)]
    truth = open_array(str(labels), "labels")
    shape = (truth.rows, truth.tracks)
    if truth.tracks != len(known):
        raise DataError(f"{labels}: {truth.tracks} tracks, {tracks} has {len(known)}")
    arrays = [open_predictions(path, labels, shape) for path in predictions.values()]
    places = by_mechanism(list(predictions), "--predictions")
    found: dict[str, dict[str, Reached]] = {}
    for name in names:
        if name not in known:
            raise DataError(f"{tracks}: has no track {name!r}; it has: {', '.join(known)}")
        column = known.index(name)
        part = read_slice(arrays, truth, column, column + 1, tuple(known))
        there = part.labels[0] != UNMEASURED
        target = part.labels[0][there]
        scores = np.stack([row[0][there] for row in part.scores]).astype(np.float64)
        values = np.array([auroc(target, row).value for row in scores])
        if np.isnan(values).any():
            raise DataError(f"{labels}: track {name} has test bins of one class only")
        drawn = resampled_aurocs(target, scores, np.arange(len(target)))
        found[name] = _compared(places, reference, values, drawn, (0.0, 1.0))
    return found


def _compared(
    places: Mapping[str, Mapping[int, int]],
    reference: str,
    values: Floats,
    drawn: Floats,
    bounds: tuple[float, float],
) -> dict[str, Reached]:
    """Means over seeds of `values` (M,), with intervals from those of resampled data (M, R)."""
    theirs = places.get(reference, {})
    found = {}
    for name, own in places.items():
        both = [(own[seed], theirs[seed]) for seed in own if seed in theirs] if name != reference else []
        difference = UNDEFINED
        if both:
            one, other = ([pair[side] for pair in both] for side in (0, 1))
            difference = gain(values[one], values[other], drawn[one], drawn[other], _ANY)
        rows = list(own.values())
        nothing = np.zeros((len(rows), 1))
        value = gain(values[rows], nothing[:, 0], drawn[rows], nothing, bounds)
        found[name] = Reached(value, difference, len(rows), 0, float("nan"))
    return found
