"""Where spans are hidden: stretches of known bases with known bases around, drawn the same for all models."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.baselines.markov_counts import UNKNOWN
from bigbird_dna.genome.intervals import Interval
from bigbird_dna.genome.reference import Reference
from bigbird_dna.reporting.metrics.blocks import BLOCK_BASES

_LETTERS = np.frombuffer(b"ACGTN", np.uint8)
_CODES = np.full(256, UNKNOWN, np.uint8)
_CODES[_LETTERS] = range(5)

Codes = NDArray[np.uint8]  # A 0, C 1, G 2, T 3, N 4


class Drawn(NamedTuple):
    """Places of spans of one length, N of them, with `context` known bases on both sides."""

    windows: Codes  # (N, context + span + context)
    blocks: NDArray[np.int64]  # (N,) number of the block of `BLOCK_BASES` bp that a span begins in
    context: int
    possible: int  # how many could be drawn at most

    def texts(self) -> list[str]:
        """The windows as letters."""
        return [_LETTERS[window].tobytes().decode() for window in self.windows]

    @property
    def span(self) -> int:
        """Bases of a span."""
        return int(self.windows.shape[1]) - 2 * self.context


def read_contig(reference: Reference, contig: str) -> Codes:
    """Base codes of a contig."""
    text = reference.fetch(Interval(contig, 0, reference.contigs[contig]))
    return _CODES[np.frombuffer(text.encode(), np.uint8)]


def draw_spans(
    contigs: Sequence[Codes], *, span: int, context: int, count: int, seed: tuple[int, ...]
) -> Drawn:
    """At most `count` spans, no two of which share a base; every such choice is as likely.

    What is drawn follows from the arguments alone; spans are in the contigs' order.
    """
    rng = np.random.default_rng(seed)
    width = 2 * context + span
    starts = [_window_starts(codes, width) for codes in contigs]  # of windows without an N
    ends = np.cumsum([len(one) for one in starts])
    total = int(ends[-1]) if len(ends) else 0
    # As many places as are free when each drawn one takes `span`; drawn ones are spread by what others take.
    possible = (total + span - 1) // span
    drawn = min(count, possible)
    free = total - (drawn - 1) * (span - 1) if drawn else 0
    chosen = np.sort(rng.choice(free, drawn, replace=False)) if drawn else np.zeros(0, np.int64)
    chosen = chosen + np.arange(drawn) * (span - 1)
    windows = np.zeros((drawn, width), np.uint8)
    blocks = np.zeros(drawn, np.int64)
    done, first_block = 0, 0
    for codes, own, end in zip(contigs, starts, ends.tolist(), strict=True):
        here = own[chosen[done : np.searchsorted(chosen, end)] - (end - len(own))]
        part = slice(done, done + len(here))
        windows[part] = codes[here[:, None] + np.arange(width)]
        blocks[part] = first_block + (here + context) // BLOCK_BASES
        done += len(here)
        first_block += len(codes) // BLOCK_BASES + 1
    return Drawn(windows, blocks, context, possible)


def _window_starts(codes: Codes, width: int) -> NDArray[np.int64]:
    """Starts of the stretches of `width` known bases, ascending."""
    if len(codes) < width:
        return np.zeros(0, np.int64)
    unknown = np.append(0, np.cumsum(codes == UNKNOWN))
    return np.flatnonzero(unknown[width:] == unknown[:-width])
