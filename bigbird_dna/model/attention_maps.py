"""Attention weights of a trained model for a sequence, and their product over layers.

The weights are the effective matrix of each layer's attention, of any mechanism and pattern, as the model
computes it. Memory is quadratic in the number of tokens.

Axes: K layers, H heads, L tokens, including the extra global tokens in front.
"""

from contextlib import ExitStack
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bigbird_dna.attention.call import effective_matrix
from bigbird_dna.errors import ModelError, UsageError
from bigbird_dna.model.batching import View
from bigbird_dna.model.chromatin import LoadedChromatinModel
from bigbird_dna.model.encoder import Encoder, Layer
from bigbird_dna.model.mechanism import matrix_of
from bigbird_dna.model.model import LoadedModel
from bigbird_dna.model.promoter import LoadedClassifier
from bigbird_dna.tokens.interface import Tokenizer

LONGEST = 512
"""Maximum number of tokens: of more, a plot shows nothing."""

Floats = NDArray[np.float32]


class AttentionMaps(NamedTuple):
    """Weights (K, H, L, L) of each key (last axis) per query, whose rows sum to 1.

    `labels` (L,) are the bases of each token, or its name; `starts` (L,) its first base, counted from 0.
    """

    labels: list[str]
    starts: list[int]
    weights: Floats


def attention_maps(model: LoadedModel, sequence: str, member: int = 0) -> AttentionMaps:
    """Return the attention weights of all layers when a model reads a window, or a sequence of any length.

    Promoter, chromatin and sequence models read it as for a prediction, on its forward strand, and other
    models as for `embed`. `member` is the number of an encoder in an ensemble. `ModelError`: reversible
    layers, or a model of text. `UsageError`: no such member; more tokens than `LONGEST`.
    """
    encoders = [
        part for part in model.network.to("cpu").modules() if isinstance(part, Encoder)
    ]
    if not 0 <= member < len(encoders):
        raise UsageError(
            f"member {member}: the model has the members 0 to {len(encoders) - 1}"
        )
    encoder = encoders[member]
    if model.config.reversible:
        raise ModelError(
            "encoder.reversible true: a reversible encoder has no attention weights per layer"
        )
    read: list[Tensor] = []
    found: dict[int, Floats] = {}

    def check(_: Any, arguments: tuple[Any, ...]) -> None:
        ids = arguments[0]
        if ids.shape[1] > LONGEST:
            raise UsageError(
                f"a sequence of {len(sequence):,} bp has {ids.shape[1]:,} tokens; attention weights are "
                f"plotted for at most {LONGEST:,}"
            )
        read.append(ids)

    def keep(layer: Layer, arguments: tuple[Any, ...]) -> None:
        found[layer.index] = layer_weights(layer, *arguments)[0].float().numpy()

    with ExitStack() as hooks:
        hooks.callback(encoder.embeddings.register_forward_pre_hook(check).remove)
        for layer in encoder.layers:
            hooks.callback(layer.register_forward_pre_hook(keep).remove)
        if isinstance(model, LoadedClassifier | LoadedChromatinModel):
            model.view_scores([sequence], [View()], device="cpu")
        else:
            model.embed([sequence], device="cpu")
    labels, starts = _tokens(
        model.tokenizer, read[0][0].tolist(), model.config.num_global_tokens
    )
    return AttentionMaps(
        labels, starts, np.stack([found[number] for number in sorted(found)])
    )


def layer_weights(
    layer: Layer,
    x: Tensor,
    lengths: Tensor | None,
    turns: Any = None,
    owners: Tensor | None = None,
) -> Tensor:
    """Return the attention weights (B, H, L, L) of a layer for its arguments, without padding."""
    with torch.no_grad():
        x = layer.attention_norm(x) if layer.pre_norm else x
        q, k, *_ = layer.queries_keys_values(x, turns)
        if layer.mechanism is not None:
            return matrix_of(layer.mechanism, q, k, x)
        return effective_matrix(
            lambda q, k, v: layer.attend_by_pattern(q, k, v, lengths, owners=owners),
            q,
            k,
        )


def rollout(weights: Floats) -> Floats:
    """Return attention rollout (L, L) of layers (K, H, L, L), after Abnar & Zuidema 2020: how much each query
    after the last layer gets from each token before the first, if half of a layer's output is its input.

    The product of I / 2 + A / 2 over layers, A the mean over heads. Rows sum to 1.
    """
    size = weights.shape[-1]
    product = np.eye(size)
    for heads in weights:
        mixed = 0.5 * np.eye(size) + 0.5 * heads.mean(0)
        product = mixed / mixed.sum(-1, keepdims=True) @ product
    return np.asarray(product, np.float32)


def _tokens(
    tokenizer: Tokenizer, ids: list[int], extra: int
) -> tuple[list[str], list[int]]:
    """Return the label and first base of each token, after `extra` global tokens."""
    names = {tokenizer.cls_id: "[CLS]", tokenizer.sep_id: "[SEP]"}
    labels = [names.get(one) or tokenizer.letters[one] for one in ids]
    ends = np.cumsum(tokenizer.piece_lengths[ids])
    starts = (ends - tokenizer.piece_lengths[ids]).tolist()
    return [*(f"global {number}" for number in range(extra)), *labels], [
        0
    ] * extra + starts
