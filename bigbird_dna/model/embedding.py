"""Embeddings of sequences: hidden states of one or several layers, per sequence, token or base.

Axes: N sequences, T tokens of one, S bp of one, B batch, L tokens of a batch, K layers, D hidden width.
"""

from collections.abc import Callable, Mapping
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bigbird_dna.attention.call import copied
from bigbird_dna.config.network import EncoderConfig
from bigbird_dna.errors import UsageError, check_choice
from bigbird_dna.genome.fields import whole_number
from bigbird_dna.genome.given_sequences import GivenSequences
from bigbird_dna.model.batching import Ids, Run, run_rows, window_rows
from bigbird_dna.model.encoder import Encoder
from bigbird_dna.model.heads import mean_over_tokens
from bigbird_dna.tokens.interface import Tokenizer

Vectors = npt.NDArray[np.float32]
SequencePool = Literal["mean", "cls", "max"]
Pool = Literal["mean", "cls", "max", "token", "base"]
POOLS: tuple[Pool, ...] = get_args(Pool)

ALL = "all"
EmbeddingLayer = int | str
"""Number of a layer (0: the embeddings), or "all"."""


def find_layer(
    config: EncoderConfig, given: EmbeddingLayer | None, pool: str
) -> EmbeddingLayer:
    """The layer to embed with, by default the last; numbers may be text.

    `UsageError` for a layer or `pool` that the encoder does not have.
    """
    check_choice("pool", pool, POOLS)
    count = f"the model has {config.layers} layer{'s' * (config.layers > 1)}"
    number = (
        whole_number(given)
        if isinstance(given, str)
        else config.layers
        if given is None
        else given
    )
    layer = ALL if given == ALL else number
    if layer is None or (isinstance(layer, int) and not 0 <= layer <= config.layers):
        raise UsageError(
            f"layer {given}: {count}; must be 0 (embeddings) to {config.layers}, or {ALL}"
        )
    return layer


def vector_shape(config: EncoderConfig, layer: EmbeddingLayer) -> tuple[int, ...]:
    """Shape of one embedding: (D,), or (K, D) for all layers."""
    return (1 + config.layers, config.hidden) if layer == ALL else (config.hidden,)


def sequence_vectors(
    encoder: Encoder,
    given: GivenSequences,
    tokenizer: Tokenizer,
    layer: EmbeddingLayer,
    pool: SequencePool,
    batch_size: int,
) -> Vectors:
    """One embedding per sequence, (N, D) or (N, K, D); long sequences keep their central tokens."""
    reduce = _REDUCTIONS[pool]
    part = _up_to(encoder, layer)

    def run(ids: Tensor, lengths: Tensor, _: npt.NDArray[np.intp]) -> Tensor:
        return layer_values(
            part, ids, lengths, layer, lambda hidden: reduce(hidden, lengths)
        )

    rows = window_rows(tokenizer, given.texts, encoder.config.max_length, 0.5)
    return _run(
        part, rows, run, tokenizer, batch_size, vector_shape(encoder.config, layer)
    )


def token_vectors(
    encoder: Encoder,
    given: GivenSequences,
    tokenizer: Tokenizer,
    layer: EmbeddingLayer,
    pool: Literal["token", "base"],
    batch_size: int,
) -> list[Vectors]:
    """Embeddings of the tokens of each sequence, (T, D) or (T, K, D), or of its bases, (S, …).

    Each base has the vector of its token; `UsageError`: a sequence has more tokens than the encoder accepts.
    Otherwise, it keeps the central tokens.
    """
    rows = window_rows(tokenizer, given.texts, encoder.config.max_length, 0.5)
    covered = [tokenizer.piece_lengths[row[1:-1]] for row in rows]
    for text, name, lengths in zip(given.texts, given.names, covered, strict=True):
        if pool == "base" and lengths.sum() != len(text):
            raise UsageError(
                f"{name}: {len(text):,} bp exceed the encoder's maximum of {encoder.config.max_length:,} "
                "tokens; per-base vectors need shorter sequences"
            )
    part = _up_to(encoder, layer)
    vectors: dict[int, Vectors] = {}

    def run(ids: Tensor, lengths: Tensor, chosen: npt.NDArray[np.intp]) -> Tensor:
        values = (
            layer_values(part, ids, lengths, layer, lambda hidden: hidden)
            .float()
            .cpu()
            .numpy()
        )
        for number, row in zip(chosen.tolist(), values, strict=True):
            own = row[..., 1 : 1 + len(covered[number]), :]  # (T, D), or (K, T, D)
            own = own if own.ndim == 2 else own.swapaxes(0, 1)
            repeats = covered[number] if pool == "base" else 1
            vectors[number] = np.repeat(own, repeats, axis=0)
        return ids[:, :0]  # rows differ in length and do not fit in one array

    _run(part, rows, run, tokenizer, batch_size, (0,))
    return [vectors[number] for number in range(len(rows))]


def _run(
    encoder: Encoder,
    rows: list[Ids],
    run: Run,
    tokenizer: Tokenizer,
    batch_size: int,
    empty: tuple[int, ...],
) -> Vectors:
    device = encoder.embeddings.token.weight.device
    return run_rows(
        encoder,
        rows,
        run,
        pad_id=tokenizer.pad_id,
        batch_size=batch_size,
        device=device,
        empty=empty,
    )


def _up_to(encoder: Encoder, layer: EmbeddingLayer) -> Encoder:
    """The encoder without the layers that are not needed."""
    needed = isinstance(layer, int) and layer < encoder.config.layers
    return encoder.up_to(int(layer)) if needed else encoder


def layer_values(
    encoder: Encoder,
    ids: Tensor,
    lengths: Tensor,
    layer: EmbeddingLayer,
    reduce: Callable[[Tensor], Tensor],
) -> Tensor:
    """Apply `reduce` to the hidden states (B, L, D) of an encoder that ends at the layer: (B, …).

    With all layers it is applied to one after the other: (B, K, …).
    """
    if layer == ALL:
        values: list[Tensor] = []
        encoder(ids, lengths, visit=lambda hidden: values.append(reduce(hidden)))
        return torch.stack(values, dim=1)
    return reduce(encoder(ids, lengths))


def _max_over_tokens(hidden: Tensor, lengths: Tensor) -> Tensor:
    """Largest hidden states (B, L, D) of the true tokens of each row → (B, D)."""
    lengths = copied(lengths, hidden.device)
    beyond = (
        torch.arange(hidden.shape[1], device=hidden.device) >= lengths[:, None]
    )  # (B, L)
    return hidden.masked_fill(beyond[..., None], -torch.inf).amax(1)


_REDUCTIONS: Mapping[SequencePool, Callable[[Tensor, Tensor], Tensor]] = {
    "mean": mean_over_tokens,
    "cls": lambda hidden, _: hidden[:, 0],
    "max": _max_over_tokens,
}
"""One vector per sequence: over its tokens, including [CLS] and [SEP], without padding; or that of [CLS]."""
