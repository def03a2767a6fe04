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
) -> BinRows:
    """Encode windows; a token belongs to the bin that holds its middle.

    Parameters
    ----------
    bins : (N, K), where each bin starts in its window, bp.
    positions : most tokens that the encoder takes. A window with more keeps those around its middle.

    Notes
    -----
    A bin that holds the middle of no token (inside a run of Ns) gets the token next to it.
    """
    require_dna(tokenizer)
    room = positions - 2
    rows = []
    spans = np.empty((*bins.shape, 2), dtype=np.int64)
    for number, ids in enumerate(tokenizer.encode_batch(list(sequences))):
        offsets = tokenizer.offsets(ids)
        middles = (offsets[:-1] + offsets[1:]) / 2
        start = 0
        if len(ids) > room:
            middle = int(np.searchsorted(middles, len(sequences[number]) / 2))
            start = min(max(middle - room // 2, 0), len(ids) - room)
            ids, middles = ids[start : start + room], middles[start : start + room]
        first = np.minimum(np.searchsorted(middles, bins[number]), len(ids) - 1)
        last = np.searchsorted(middles, bins[number] + bin_size)
        spans[number, :, 0] = 1 + first  # [CLS] comes before
        spans[number, :, 1] = 1 + np.maximum(last, first + 1)
        row = np.empty(len(ids) + 2, dtype=np.int32)
        row[0], row[1:-1], row[-1] = tokenizer.cls_id, ids, tokenizer.sep_id
        rows.append(row)
    return BinRows(rows, spans)
