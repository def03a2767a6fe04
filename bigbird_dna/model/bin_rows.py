"""Windows as rows of tokens, with the tokens that each bin of interest covers."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bigbird_dna.tokens.interface import Tokenizer, require_dna

# Axes: N windows, K bins of a window.


def centred_bins(window: int, size: int, count: int) -> npt.NDArray[np.int64]:
    """Where `count` (odd) neighbouring bins of `size` bp start in a window, the middle one in its middle."""
    return (window - size) // 2 + size * (np.arange(count) - count // 2)


def whole_bins(window: int, size: int) -> int:
    """How many bins fit a window whole, one of them in its middle: an odd number."""
    return 2 * ((window - size) // 2 // size) + 1


def middle_bins(window: int, size: int, part: float) -> int:
    """How many bins fit the middle `part` (0 to 1) of a window whole: an odd number, at least one."""
    count = int(part * window / size + 1e-9)  # 0.3 * 2000 / 200 is meant to be 3
    return max(1, count - 1 + count % 2)


def bins_shown(window: int, size: int, bin_layers: int) -> int:
    """How many bins a network is shown at once: all whole ones if it has bin layers, else one."""
    return whole_bins(window, size) if bin_layers else 1


class BinRows(NamedTuple):
    """Tokens of each window between [CLS] and [SEP], and the tokens of its bins."""

    ids: list[npt.NDArray[np.int32]]
    spans: npt.NDArray[np.int64]  # (N, K, 2): first token of a bin, and the one after its last


def bin_rows(
    tokenizer: Tokenizer,
    sequences: Sequence[str],
    bins: npt.NDArray[np.integer],
    bin_size: int,
    positions: int,
    threads: int = 1,
) -> BinRows:
    """Encode windows; a token belongs to the bin that holds its middle.

    Parameters
    ----------
    bins : (N, K), where each bin starts in its window, bp.
    positions : most tokens that the encoder takes. A window with more keeps those around its middle.
    threads : that encode; they change nothing.

    Notes
    -----
    A bin that holds the middle of no token (inside a run of Ns) gets the token next to it.
    """
    require_dna(tokenizer)
    if not len(sequences):
        return BinRows([], np.empty((*bins.shape, 2), np.int64))
    encoded = tokenizer.encode_batch(list(sequences), threads)
    tokens = np.concatenate(encoded)
    counts = np.array([len(ids) for ids in encoded])
    ends = np.cumsum(counts)  # (N,) tokens of all windows up to one
    starts = ends - counts
    # In half bases, all windows laid end to end: the middles of the tokens ascend, and are whole numbers.
    offsets = tokenizer.offsets(tokens)
    middles, begins = offsets[:-1] + offsets[1:], 2 * offsets[starts]
    room = positions - 2
    halves = np.array([len(sequence) for sequence in sequences])
    spare = np.maximum(counts - room, 0)
    central = np.searchsorted(middles, begins + halves).clip(starts, ends) - starts
    starts += np.minimum(np.maximum(central - room // 2, 0), spare)
    ends = starts + np.minimum(counts, room)
    edges = begins[:, None, None] + 2 * (bins[..., None] + np.array([0, bin_size]))  # (N, K, 2)
    spans = np.searchsorted(middles, edges).clip(starts[:, None, None], ends[:, None, None])
    spans += 1 - starts[:, None, None]  # [CLS] comes before
    spans[..., 0] = np.minimum(spans[..., 0], (ends - starts)[:, None])
    spans[..., 1] = np.maximum(spans[..., 1], spans[..., 0] + 1)
    first, last = np.array([[tokenizer.cls_id], [tokenizer.sep_id]], np.int32)
    rows = [
        np.concatenate((first, tokens[start:end], last))
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
    ]
    return BinRows(rows, spans)
