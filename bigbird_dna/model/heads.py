"""Heads on the encoder, and the networks made of both.

Shapes: B batch, L tokens, M masked tokens, D hidden width, V vocabulary, T outputs.
"""

from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bigbird_dna.config import EncoderConfig
from bigbird_dna.model.encoder import LAYER_NORM_EPSILON, Encoder, initialise

Pooling = Literal["cls", "mean"]


class MaskedTokenHead(nn.Module):
    """Scores over the vocabulary; the projection shares the token embeddings' weights."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden, config.hidden)
        self.norm = nn.LayerNorm(config.hidden, eps=LAYER_NORM_EPSILON)
        self.bias = nn.Parameter(torch.zeros(config.vocabulary))

    def forward(self, hidden: Tensor, token_embeddings: Tensor) -> Tensor:
        """Hidden states (M, D) and embeddings (V, D) → logits (M, V)."""
        hidden = self.norm(F.gelu(self.dense(hidden), approximate="tanh"))
        return F.linear(hidden, token_embeddings, self.bias)


class NextSentenceHead(nn.Module):
    """Whether sentence B follows sentence A, from [CLS]."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.pooler = nn.Linear(config.hidden, config.hidden)
        self.output = nn.Linear(config.hidden, 2)

    def forward(self, hidden: Tensor) -> Tensor:
        """Hidden states (B, L, D) → logits (B, 2); class 0 says that B follows A, as in BERT."""
        return self.output(torch.tanh(self.pooler(hidden[:, 0])))  # type: ignore[no-any-return]


class PretrainingOutput(NamedTuple):
    """Logits of both pretraining objectives."""

    tokens: Tensor  # (M, V)
    next_sentence: Tensor  # (B, 2)


class PretrainingNetwork(nn.Module):
    """Encoder with the masked-token and the next-sentence head."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.encoder = Encoder(config)
        self.masked_tokens = MaskedTokenHead(config)
        self.next_sentence = NextSentenceHead(config)
        for head in (self.masked_tokens, self.next_sentence):
            initialise(head, config.hidden)

    def forward(
        self, ids: Tensor, lengths: Tensor, segments: Tensor, masked: Tensor
    ) -> PretrainingOutput:
        """Logits at the flat positions `masked` (M,) of ids (B, L) only: elsewhere nobody asks for them."""
        hidden = self.encoder(ids, lengths, segments)
        chosen = hidden.flatten(0, 1).index_select(0, masked)  # (M, D)
        return PretrainingOutput(
            self.masked_tokens(chosen, self.encoder.embeddings.token.weight),
            self.next_sentence(hidden),
        )


class Classifier(nn.Module):
    """Encoder with `outputs` logits on [CLS] or on the mean over tokens."""

    def __init__(self, config: EncoderConfig, outputs: int, pooling: Pooling = "cls") -> None:
        super().__init__()
        self.encoder = Encoder(config)
        self.pooling = pooling
        self.dense = nn.Linear(config.hidden, config.hidden)
        self.output = nn.Linear(config.hidden, outputs)
        self.dropout = nn.Dropout(config.dropout)
        for part in (self.dense, self.output):
            initialise(part, config.hidden)

    def forward(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """Token ids (B, L) with true lengths (B,) → logits (B, T)."""
        hidden = self.encoder(ids, lengths)
        if self.pooling == "cls":
            pooled = hidden[:, 0]  # (B, D)
        else:
            present = torch.arange(ids.shape[1], device=ids.device) < lengths[:, None]  # (B, L)
            pooled = (hidden * present[..., None]).sum(1) / lengths[:, None]
        inner = F.gelu(self.dense(self.dropout(pooled)), approximate="tanh")
        return self.output(self.dropout(inner))  # type: ignore[no-any-return]
