"""One place that runs a promoter network over sequences; evaluation and scoring share it."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from bigbird_dna.model.checkpoint import Model
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
    Probabilities (N,), each a function of its sequence and the model alone. Computed in float32.
    """
    place = choose_device(device)
    network = model.network.to(place).eval()
    upstream, downstream = int(model.settings["upstream"]), int(model.settings["downstream"])
    rows = window_rows(
        model.tokenizer, sequences, model.config.positions, upstream / (upstream + downstream)
    )
    return sigmoid_rows(network, rows, model.tokenizer.pad_id, batch_size, place)


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
    with torch.inference_mode():
        for start in range(0, len(order), batch_size):
            chosen = order[start : start + batch_size]
            ids, lengths = pad([rows[index] for index in chosen], pad_id)
            logits = network(ids.to(device), lengths.to(device))[:, 0]
            result[chosen] = torch.sigmoid(logits.float()).cpu().numpy()
    return result
