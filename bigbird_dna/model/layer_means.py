"""What every layer of an encoder makes of a sequence: the mean over its tokens, one vector a layer."""

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bigbird_dna.errors import ModelError
from bigbird_dna.model.encoder import Encoder
from bigbird_dna.model.heads import mean_over_tokens
from bigbird_dna.model.rows import Ids, run_rows

# Axes: N rows, B rows of a call, L tokens, D hidden width.


def layer_means(
    encoder: Encoder,
    rows: Sequence[Ids],
    *,
    pad_id: int,
    batch_size: int,
    device: torch.device,
    parts: npt.NDArray[np.integer] | None = None,
) -> npt.NDArray[np.float32]:
    """Means over the tokens of rows after the embeddings and after each layer, (N, 1 + layers, D).

    [CLS] and [SEP] count among the tokens, as in `Model.embed`, whose vectors the last are. Whole hidden
    states are held of one layer and call at a time. With `parts`, (N, 2), the first token of a part of each
    row and the one after its last, the means over these follow: (N, 1 + layers, 2 D). `ModelError`: the
    layers are reversible, whose streams aren't hidden states.
    """
    if encoder.config.reversible:
        raise ModelError(
            "encoder.reversible true: a reversible encoder has no hidden states of single layers"
        )
    here = threading.local()  # on a CPU rows run side by side
    extra, config = encoder.config.extra_globals, encoder.config

    def keep(_module: Any, _inputs: Any, hidden: Tensor) -> None:
        own = hidden[:, extra:]
        means = [mean_over_tokens(own, here.lengths)]
        if here.parts is not None:
            means.append(_mean_of_parts(own, here.parts))
        here.means.append(torch.cat(means, dim=1))

    def run(ids: Tensor, lengths: Tensor, chosen: npt.NDArray[np.intp]) -> Tensor:
        here.lengths, here.means = lengths, []
        here.parts = None if parts is None else parts[chosen].tolist()
        encoder(ids, lengths)
        return torch.stack(here.means, dim=1)

    hooks = [part.register_forward_hook(keep) for part in (encoder.embeddings, *encoder.layers)]
    try:
        return run_rows(
            encoder,
            rows,
            run,
            pad_id=pad_id,
            batch_size=batch_size,
            device=device,
            empty=(1 + config.layers, config.hidden * (1 if parts is None else 2)),
        )
    finally:
        for hook in hooks:
            hook.remove()


def _mean_of_parts(hidden: Tensor, parts: Sequence[Sequence[int]]) -> Tensor:
    """Means over tokens first … last of each row: (B, L, D) → (B, D)."""
    own = [row[first:last].float().mean(dim=0) for row, (first, last) in zip(hidden, parts, strict=True)]
    return torch.stack(own)
