"""One place that runs a promoter network over sequences; evaluation and scoring share it."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from bigbird_dna.model.directory import Model
from bigbird_dna.training.batches import pad, window_rows
from bigbird_dna.training.distributed import choose_device


def predict_windows(
    model: Model, sequences: Sequence[str], *, batch_size: int = 32, device: str = "auto"
) -> npt.NDArray[np.float32]:
    """Probability that each window holds a promoter at its TSS position, on its forward strand.

    Parameters
    ----------
    sequences
        Windows of `upstream + downstream` bp in transcription order, over A C G T N.
    batch_size
        Windows run together; it doesn't change any probability by more than float32's rounding.

    Returns
    -------
    Probabilities (N,), each a function of its sequence and the model alone. Computed in float32. A
    model with several `views` gives the mean over as many tokenisations of the window.
    """
    place = choose_device(device)
    network = model.network.to(place).eval()
    upstream, downstream = int(model.settings["upstream"]), int(model.settings["downstream"])
    anchor = upstream / (upstream + downstream)
    total = np.zeros(len(sequences), dtype=np.float64)
    cuts = view_cuts(int(model.settings["views"]), int(model.settings["jitter"]))
    for left, right in cuts:
        views = [sequence[left : len(sequence) - right] for sequence in sequences]
        rows = window_rows(model.tokenizer, views, model.config.positions, anchor)
        total += sigmoid_rows(network, rows, model.tokenizer.pad_id, batch_size, place)
    return (total / len(cuts)).astype(np.float32)


def view_cuts(views: int, jitter: int) -> list[tuple[int, int]]:
    """Bases cut from the left and the right end in each view of a window.

    A single view is the whole window. Several cut `jitter` bases in all, from 0 to all of them on the left:
    the phase of the tokens differs and averages out, as in training, which cuts up to `jitter` at each end.
    """
    if views == 1:
        return [(0, 0)]
    lefts = [round(jitter * view / (views - 1)) for view in range(views)]
    return [(left, jitter - left) for left in lefts]


def sigmoid_rows(
    network: nn.Module,
    rows: Sequence[npt.NDArray[np.int32]],
    pad_id: int,
    batch_size: int,
    device: torch.device,
) -> npt.NDArray[np.float32]:
    """Probabilities (N,) of rows of token ids; rows of like lengths are run together to save padding."""
    result = np.empty(len(rows), dtype=np.float32)
    order = np.argsort([len(row) for row in rows], kind="stable")
    graphs = _graphs(network, [len(rows[index]) for index in order])
    bounds = [0, *(np.flatnonzero(np.diff(graphs)) + 1).tolist(), len(order)]
    with torch.inference_mode():
        for start, stop in _batches(bounds, batch_size):
            chosen = order[start:stop]
            ids, lengths = pad([rows[index] for index in chosen], pad_id)
            logits = network(ids.to(device), lengths.to(device))[:, 0]
            result[chosen] = torch.sigmoid(logits.float()).cpu().numpy()
    return result


def _graphs(network: nn.Module, lengths: Sequence[int]) -> npt.NDArray[np.int64]:
    """Numbers (N,) that differ between rows that can't be run together.

    In HuggingFace's arithmetic what a row sees depends on the number of blocks of the padded input: only rows
    of as many blocks leave each other's results alone.
    """
    config = getattr(getattr(network, "encoder", None), "config", None)
    if config is None or config.compatibility != "huggingface":
        return np.zeros(len(lengths), dtype=np.int64)
    blocks: npt.NDArray[np.int64] = -(-np.array(lengths, dtype=np.int64) // config.block_size)
    return blocks


def _batches(bounds: Sequence[int], size: int) -> Iterator[tuple[int, int]]:
    """Ranges of at most `size` within each of the ranges between neighbouring `bounds`."""
    for begin, end in pairwise(bounds):
        for start in range(begin, end, size):
            yield start, min(start + size, end)
