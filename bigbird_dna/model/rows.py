"""Rows of token ids: made from sequences, padded, and run through a network a batch at a time.

Axes: N rows, B rows of a batch, L tokens.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from bigbird_dna.errors import UsageError
from bigbird_dna.model.encoder import Encoder
from bigbird_dna.tokens.interface import Tokenizer, require_dna

Ids = npt.NDArray[np.int32]
Run = Callable[[Tensor, Tensor, npt.NDArray[np.intp]], Tensor]
"""From padded ids (B, L), true lengths (B,) and the numbers of the rows (B,) to results (B, …)."""


def pad(rows: Sequence[npt.NDArray[np.integer]], value: int) -> tuple[Tensor, Tensor]:
    """Rows of different lengths → (ids (B, L) padded on the right with `value`, lengths (B,))."""
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    ids = np.full((len(rows), int(lengths.max())), value, dtype=np.int64)
    for index, row in enumerate(rows):
        ids[index, : len(row)] = row
    return torch.from_numpy(ids), torch.from_numpy(lengths)


def window_rows(tokenizer: Tokenizer, sequences: Sequence[str], positions: int, anchor: float) -> list[Ids]:
    """Tokens of each sequence between [CLS] and [SEP], at most `positions` of them.

    A sequence with more tokens keeps those around its anchor, the fraction `anchor` of its tokens from the
    left, so that the TSS stays where the network saw it in training. `ModelError` for a tokenizer of
    ordinary text.
    """
    require_dna(tokenizer)
    room = positions - 2
    rows = []
    for ids in tokenizer.encode_batch(list(sequences)):
        if len(ids) > room:
            start = round((len(ids) - room) * anchor)
            ids = ids[start : start + room]
        row = np.empty(len(ids) + 2, dtype=np.int32)
        row[0], row[1:-1], row[-1] = tokenizer.cls_id, ids, tokenizer.sep_id
        rows.append(row)
    return rows


def run_rows(
    network: nn.Module,
    rows: Sequence[npt.NDArray[np.integer]],
    run: Run,
    *,
    pad_id: int,
    batch_size: int,
    device: torch.device,
    empty: tuple[int, ...] = (),
) -> npt.NDArray[np.float32]:
    """Results (N, …) of rows of token ids, in their order; rows of like lengths are run together.

    Parameters
    ----------
    network
        What `run` calls.
    batch_size
        Rows run together; it changes no result by more than float32's rounding.
    empty
        Shape of a result, for no rows.

    Raises
    ------
    UsageError
        The device's memory is too small for a batch.
    """
    order = np.argsort([len(row) for row in rows], kind="stable")
    graphs = _graphs(network, [len(rows[index]) for index in order])
    bounds = [0, *(np.flatnonzero(np.diff(graphs)) + 1).tolist(), len(order)]
    result = np.empty((0, *empty), np.float32)
    with torch.inference_mode():
        for start, stop in _batches(bounds, batch_size):
            chosen = order[start:stop]
            ids, lengths = pad([rows[index] for index in chosen], pad_id)
            try:
                values = run(ids.to(device), lengths.to(device), chosen).float().cpu().numpy()
            except torch.OutOfMemoryError:
                raise UsageError(
                    f"batch_size {batch_size}: the device's memory is too small for it"
                ) from None
            if not len(result):
                result = np.empty((len(rows), *values.shape[1:]), np.float32)
            result[chosen] = values
    return result


def _graphs(network: nn.Module, lengths: Sequence[int]) -> npt.NDArray[np.int64]:
    """Numbers (N,) that differ between rows that can't be run together.

    In HuggingFace's arithmetic what a row sees depends on the number of blocks of the padded input: only rows
    of as many blocks leave each other's results alone.
    """
    config = next((part.config for part in network.modules() if isinstance(part, Encoder)), None)
    if config is None or config.compatibility != "huggingface":
        return np.zeros(len(lengths), dtype=np.int64)
    blocks: npt.NDArray[np.int64] = -(-np.array(lengths, dtype=np.int64) // config.block_size)
    return blocks


def _batches(bounds: Sequence[int], size: int) -> Iterator[tuple[int, int]]:
    """Ranges of at most `size` within each of the ranges between neighbouring `bounds`."""
    for begin, end in pairwise(bounds):
        for start in range(begin, end, size):
            yield start, min(start + size, end)
