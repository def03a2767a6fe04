"""One place that runs a chromatin model over windows; evaluation, regions and variants share it."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from bigbird_dna.errors import UsageError
from bigbird_dna.genome.sequence import reverse_complement
from bigbird_dna.model.directory import Model
from bigbird_dna.tasks.chromatin.rows import bins_shown, centred_bins, middle_bins, profile_rows
from bigbird_dna.tokens.interface import Tokenizer
from bigbird_dna.training.batches import pad
from bigbird_dna.training.distributed import choose_device

# Axes: N windows, K bins of a window, T tracks.


def bins_together(model: Model, middle: float) -> int:
    """How many bins (K) a window of this model predicts, if they are those of its middle part.

    Raises
    ------
    UsageError
        Several, of a model that predicts one from [CLS].
    """
    if middle and model.settings["pooling"] == "cls":
        raise UsageError(
            f"{model.path}: predicts one bin a window (pooling cls), not all of its middle part"
        )
    return middle_bins(int(model.settings["window"]), int(model.settings["bin"]), middle)


def predict_profiles(
    model: Model,
    sequences: Sequence[str],
    *,
    middle: float = 0.0,
    both_strands: bool = True,
    batch_size: int = 16,
    device: str = "auto",
) -> npt.NDArray[np.float32]:
    """Probability that a bin in the middle of each window is in a peak of each track.

    Parameters
    ----------
    sequences
        Windows of `settings["window"]` bp over A C G T N.
    middle
        The part of a window, around its middle, whose bins are predicted: K neighbouring ones (see
        `bins_together`). 0: the one in the middle, which sees as much to its left as to its right.
    both_strands
        Mean of the window and its reverse complement, which has the same bins in its middle.
    batch_size
        Windows run together; it changes no probability by more than float32's rounding.

    Returns
    -------
    Probabilities (N, K, T), each row a function of its sequence and the model alone.
    """
    count = bins_together(model, middle)
    place = choose_device(device)
    network = model.network.to(place).eval()
    window, size = int(model.settings["window"]), int(model.settings["bin"])
    shown = max(count, bins_shown(window, size, model.settings["bin_layers"]))
    bins = centred_bins(window, size, shown)
    wrong = next((len(sequence) for sequence in sequences if len(sequence) != window), None)
    if wrong is not None:
        raise ValueError(f"a window of {wrong} bp, the model's are {window} bp")

    def run(windows: Sequence[str]) -> npt.NDArray[np.float32]:
        logits = profile_logits(
            network,
            model.tokenizer,
            windows,
            bins,
            count,
            size,
            model.config.positions,
            batch_size,
            place,
        )
        probabilities: npt.NDArray[np.float32] = torch.sigmoid(torch.from_numpy(logits)).numpy()
        return probabilities

    forward = run(sequences)
    if not both_strands:
        return forward
    reverse = run([reverse_complement(sequence) for sequence in sequences])[:, ::-1]
    return np.asarray((forward + reverse) / 2, np.float32)


def profile_logits(
    network: nn.Module,
    tokenizer: Tokenizer,
    sequences: Sequence[str],
    bins: npt.NDArray[np.integer],
    count: int,
    bin_size: int,
    positions: int,
    batch_size: int,
    device: torch.device,
) -> npt.NDArray[np.float32]:
    """Logits (N, K, T) of the `count` (K, odd) bins in the middle of the network's `bins` of each window.

    Windows of like lengths are run together.
    """
    middle = slice(len(bins) // 2 - count // 2, len(bins) // 2 + count // 2 + 1)
    starts = np.broadcast_to(bins, (len(sequences), len(bins)))
    rows = profile_rows(tokenizer, sequences, starts, bin_size, positions)
    order = np.argsort([len(row) for row in rows.ids], kind="stable")
    parts: list[npt.NDArray[np.float32]] = []
    with torch.inference_mode():
        for first in range(0, len(order), batch_size):
            chosen = order[first : first + batch_size]
            ids, lengths = pad([rows.ids[index] for index in chosen], tokenizer.pad_id)
            spans = torch.from_numpy(rows.spans[chosen])
            logits = network(ids.to(device), lengths.to(device), spans.to(device))
            parts.append(logits[:, middle].float().cpu().numpy())
    if not parts:
        return np.empty((0, count, 0), np.float32)
    result = np.empty((len(order), *parts[0].shape[1:]), np.float32)
    result[order] = np.concatenate(parts)
    return result
