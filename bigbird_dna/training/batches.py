"""Rows of token ids as padded tensors."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bigbird_dna.tokens.interface import Tokenizer, require_dna

Ids = npt.NDArray[np.int32]


def pad(rows: Sequence[npt.NDArray[np.integer]], value: int) -> tuple[Tensor, Tensor]:
    """Rows of different lengths → (ids (B, L) padded on the right with `value`, lengths (B,))."""
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    ids = np.full((len(rows), int(lengths.max())), value, dtype=np.int64)
    for index, row in enumerate(rows):
        ids[index, : len(row)] = row
    return torch.from_numpy(ids), torch.from_numpy(lengths)


def window_rows(
    tokenizer: Tokenizer,
    sequences: Sequence[str],
    positions: int,
    anchor: float,
    threads: int = 1,
) -> list[Ids]:
    """Tokens of each sequence between [CLS] and [SEP], at most `positions` of them.

    A sequence with more tokens keeps those around its anchor, the fraction `anchor` of its tokens from the
    left, so that the TSS stays where the network saw it in training. `ModelError` for a tokenizer of
    ordinary text.
    """
    require_dna(tokenizer)
    room = positions - 2
    rows = []
    for ids in tokenizer.encode_batch(list(sequences), threads):
        if len(ids) > room:
            start = round((len(ids) - room) * anchor)
            ids = ids[start : start + room]
        row = np.empty(len(ids) + 2, dtype=np.int32)
        row[0], row[1:-1], row[-1] = tokenizer.cls_id, ids, tokenizer.sep_id
        rows.append(row)
    return rows
