"""Mechanisms compared by what their models reach: means over seeds, with intervals; bits per base.

Intervals of 95 % are over test data (blocks of sequence) and seeds; see `metrics.resampling`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from bigbird_dna.metrics.auroc import UNDEFINED, Estimate
from bigbird_dna.metrics.curves import Floats
from bigbird_dna.metrics.resampling import gain, mean_over_seeds, resampled_rates
from bigbird_dna.reporting.ablation.reading import Bits, by_mechanism

# Axes: M models, S seeds, R resamples.

_ANY = (-np.inf, np.inf)


class Reached(NamedTuple):
    """What a mechanism's models of one kind of training reach."""

    value: Estimate  # bits per base; or an AUROC
    difference: Estimate  # minus the reference's, on the seeds that both have
    by_seed: Mapping[int, float]  # of which `value` is the mean
    steps: int  # of each training; 0 where they differ or it isn't said
    seconds: float  # of its steps by the log, mean over seeds; NaN where it isn't said


def compare_bits(bits: Bits, reference: str) -> dict[str, Reached]:
    """Bits per base of each mechanism of a file, in its order."""
    rates, drawn = resampled_rates(list(bits.bits), bits.bases, bits.blocks)
    places = by_mechanism(bits.names, bits.path)
    found = compared(places, reference, rates, drawn.T, (0.0, np.inf))
    for name, one in found.items():
        own = list(places[name].values())
        steps = set(bits.steps[own].tolist())
        seconds = float(bits.seconds[own].mean())
        found[name] = one._replace(steps=steps.pop() if len(steps) == 1 else 0, seconds=seconds)
    return found


def compared(
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
        value = mean_over_seeds(values[rows], drawn[rows], bounds)
        by_seed = {seed: float(values[row]) for seed, row in own.items()}
        found[name] = Reached(value, difference, by_seed, 0, float("nan"))
    return found
