"""Windows that several bins share, so that one run of the model predicts them all."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import Interval, fraction_n, inside
from bigbird_dna.genome.splits import window_start

# Axes: n bins, W windows, K bins in the middle of a window, T tracks.

Predictor = Callable[[Sequence[str]], npt.NDArray[np.float32]]
"""From N windows over A C G T N to probabilities, each a function of its sequence alone: (N,) of a promoter
model; (N, K, T) of a chromatin model, for K bins in the middle of a window and T tracks."""

WINDOWS_AT_ONCE = 512


class SharedWindows(NamedTuple):
    """Windows (W), and for each bin (n,) the number of its window and its place among the K there."""

    windows: list[Interval]
    owner: npt.NDArray[np.int64]
    place: npt.NDArray[np.int64]

    def reach_beyond(self, reference: Reference) -> npt.NDArray[np.bool_]:
        """Whether each window (W,) reaches beyond its contig."""
        return np.array([not inside(window, reference.contigs) for window in self.windows], np.bool_)

    def predicted(
        self, reference: Reference, predict: Predictor, max_n: float = 1.0
    ) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]]:
        """Batches of bins: their numbers (m,) and their probabilities (m, T).

        Bins whose window has a larger share of N than `max_n` don't appear.
        """
        order = np.argsort(self.owner, kind="stable")
        owner = self.owner[order]
        for first in range(0, len(self.windows), WINDOWS_AT_ONCE):
            some = self.windows[first : first + WINDOWS_AT_ONCE]
            texts = [reference.fetch(window) for window in some]
            kept = np.array([fraction_n(text) <= max_n for text in texts])
            if not kept.any():
                continue
            values = predict([text for text, good in zip(texts, kept, strict=True) if good])
            row = np.cumsum(kept) - 1  # of each window among the kept
            begin, end = np.searchsorted(owner, [first, first + len(some)])
            bins = order[begin:end]
            bins = bins[kept[self.owner[bins] - first]]
            yield bins, values[row[self.owner[bins] - first], self.place[bins]]


def share_windows(
    contigs: Sequence[str], starts: npt.NDArray[np.int64], size: int, window: int, count: int
) -> SharedWindows:
    """Put bins (n) into windows of `window` bp, in whose middle `count` (K, odd) bins of `size` bp have room.

    Bins are taken `count` by `count` from the contig's start on, those of each phase apart, so that a bin's
    window doesn't depend on which others are asked for.
    """
    number, phase = np.divmod(np.asarray(starts, np.int64), size)
    group, place = np.divmod(number, count)
    codes, names = pd.factorize(np.asarray(contigs, object))
    keys = np.column_stack([codes, group, phase])
    found, owner = np.unique(keys, axis=0, return_inverse=True)
    middles = (found[:, 1] * count + count // 2) * size + found[:, 2]
    opens = window_start(middles, size, window).tolist()
    windows = [
        Interval(names[code], start, start + window)
        for code, start in zip(found[:, 0].tolist(), opens, strict=True)
    ]
    return SharedWindows(windows, owner.reshape(-1), place)
