"""What Markov models over bases make of spans, from the sequence of contigs: no tokenizer has a say."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.baselines.language import BASES_BOTH, BASES_LEFT, CHOOSING_BASES
from bigbird_dna.baselines.language_tokens import evenly
from bigbird_dna.baselines.markov import LARGEST_ORDER, Markov
from bigbird_dna.baselines.markov_counts import UNKNOWN
from bigbird_dna.console import log, progress

STRETCH = 10_000  # bp; each tenth one chooses
CHOOSING_SHARE = 10

Codes = NDArray[np.uint8]  # A 0, C 1, G 2, T 3, N 4
Windows = Codes  # (N, context + span + context)
Bits = NDArray[np.float64]


def parts(contigs: Sequence[Codes], *, choosing: bool) -> list[Codes]:
    """Stretches of contigs: each tenth one, from the first on, or all others."""
    stretches = [
        contig[start : start + STRETCH] for contig in contigs for start in range(0, len(contig), STRETCH)
    ]
    return [part for number, part in enumerate(stretches) if (number % CHOOSING_SHARE == 0) == choosing]


class SpanBaselines(NamedTuple):
    """Markov models of orders that are chosen."""

    markov: Markov
    orders: dict[str, int]  # by predictor

    def bits(self, windows: Windows, context: int) -> dict[str, Bits]:
        """Bits (N,) of the spans in the middle of windows, by predictor: given the left context, or both."""
        return {
            name: _bits(self.markov, windows, context, order, both=name == BASES_BOTH)
            for name, order in self.orders.items()
        }


def fit_span_baselines(contigs: Sequence[Codes], choosing: Windows, context: int) -> SpanBaselines:
    """Learn from contigs, both strands; strengths and orders are chosen on a tenth of them.

    The tenth is left out of the counts while strengths and orders are chosen, and counted in the end. No
    order is tried whose contexts would outnumber the bases many times.

    Parameters
    ----------
    contigs : base codes; at least one stretch of `parts` that chooses, and one that doesn't.
    choosing : windows of `parts(contigs, choosing=True)` whose spans orders are chosen on.

    Raises
    ------
    ValueError : there is nothing to learn from, or to choose on.
    """
    if not len(choosing):
        raise ValueError("orders are chosen on at least one span")
    kept, chosen = parts(contigs, choosing=False), parts(contigs, choosing=True)
    size = sum(map(len, contigs))
    order = min(LARGEST_ORDER, (size.bit_length() - 1) // 2 + 2)  # 4 ** order is at most 16 times the size
    log(f"Markov models over bases: counting in {size:,} bases")
    markov = Markov(order).fit(kept)
    markov.mix(chosen[index] for index in evenly(len(chosen), CHOOSING_BASES / sum(map(len, chosen))))
    orders = {}
    for name, both in ((BASES_LEFT, False), (BASES_BOTH, True)):
        tried = progress(range(order + 1), "orders of Markov models", order + 1)
        orders[name] = int(np.argmin([_bits(markov, choosing, context, k, both=both).sum() for k in tried]))
    log("Markov models: " + ", ".join(f"{name}: order {k}" for name, k in orders.items()))
    whole = Markov(order).fit(contigs).smooth(markov.strengths)
    return SpanBaselines(whole, orders)


def _bits(markov: Markov, windows: Windows, context: int, order: int, *, both: bool) -> Bits:
    """Bits (N,) of the middle of windows; an N behind each ends what is known."""
    if not len(windows):
        return np.zeros(0)
    apart = np.pad(windows, ((0, 0), (0, 1)), constant_values=UNKNOWN)
    starts = np.arange(len(windows)) * apart.shape[1] + context
    ends = starts + windows.shape[1] - 2 * context
    judge = markov.two_sided if both else markov.one_sided
    return judge(apart.ravel(), starts, ends, order)
