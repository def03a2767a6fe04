"""Markov chains that write sequence: what a spectrum is worth is seen beside theirs."""

from collections.abc import Sequence

import numpy as np

from bigbird_dna.reporting.samples.spectra import Codes, Counts

ORDERS = range(6)
LENGTH = 1000
"""bp of a chain; more sequence is several, the last of them shorter."""
_UNSEEN = 0.5  # added to every count


def chain_samples(counts: Counts, order: int, bases: int, rng: np.random.Generator) -> list[Codes]:
    """`bases` bp of a chain of an order, by counts (4 ** (order + 1),) of runs of one base more."""
    chances = counts.reshape(-1, 4) + _UNSEEN
    states = chances.sum(1) / chances.sum()
    limits = (chances / chances.sum(1, keepdims=True)).cumsum(1)[:, :3]
    number = -(-bases // LENGTH)
    state = rng.choice(len(states), number, p=states)
    codes = np.empty((number, LENGTH), np.uint8)
    for place in range(LENGTH):
        found = (rng.random(number)[:, None] > limits[state]).sum(1)
        codes[:, place] = found
        state = (4 * state + found) % len(states)
    return [row[: bases - start] for start, row in zip(range(0, bases, LENGTH), codes, strict=True)]


def shortened_counts(counts: Counts, longest: int) -> Sequence[Counts]:
    """Counts of runs of 1 to `longest` bases, from those of the longest: of each the first bases."""
    found = [counts]
    for _ in range(longest - 1):
        found.append(found[-1].reshape(-1, 4).sum(1))
    return found[::-1]
