"""The chromatin-profile network: one logit for each track, of one bin or of several neighbouring ones.

Shapes: B batch, L tokens, D hidden width, K bins, T tracks, M members of an ensemble.
"""

from typing import Literal

import torch
from torch import Tensor, nn

from bigbird_dna.config import EncoderConfig
from bigbird_dna.model.activation import ACTIVATIONS
from bigbird_dna.model.encoder import Encoder, initialise

ProfilePooling = Literal["cls", "bin"]


class ProfileNetwork(nn.Module):
    """Encoder, a pooled vector for each bin, and a head of one hidden layer.

    With pooling "cls" (the paper's, App. F.3) the vector is that of [CLS] and stands for the one bin in
    the middle of the window. With "bin" it is the mean over the tokens of a bin, so that a window says
    something about each of its bins and a training step learns from several.
    """

    def __init__(self, config: EncoderConfig, tracks: int, pooling: ProfilePooling) -> None:
        super().__init__()
        self.encoder = Encoder(config)
        self.pooling = pooling
        self.dense = nn.Linear(config.hidden, config.hidden)
        self.activation = ACTIVATIONS[config.activation]
        self.output = nn.Linear(config.hidden, tracks)
        self.dropout = nn.Dropout(config.dropout)
        for part in (self.dense, self.output):
            initialise(part, config.hidden)

    def forward(self, ids: Tensor, lengths: Tensor, spans: Tensor) -> Tensor:
        """Token ids (B, L), true lengths (B,), tokens of each bin (B, K, 2) → logits (B, K, T).

        `spans[b, k]` are the first token of a bin and the one after its last. With pooling "cls" K is 1 and
        the span doesn't matter.
        """
        hidden = self.encoder(ids, lengths)
        pooled = hidden[:, :1] if self.pooling == "cls" else _bin_means(hidden, spans)  # (B, K, D)
        inner = self.activation(self.dense(self.dropout(pooled)))
        return self.output(self.dropout(inner))  # type: ignore[no-any-return]


class ProfileEnsemble(nn.Module):
    """Independently trained networks; the logit of their mean probability."""

    def __init__(
        self, config: EncoderConfig, tracks: int, pooling: ProfilePooling, members: int
    ) -> None:
        super().__init__()
        self.members = nn.ModuleList(
            ProfileNetwork(config, tracks, pooling) for _ in range(members)
        )

    def forward(self, ids: Tensor, lengths: Tensor, spans: Tensor) -> Tensor:
        """As of `ProfileNetwork`."""
        logits = torch.stack([member(ids, lengths, spans).float() for member in self.members])
        log_on = nn.functional.logsigmoid(logits).logsumexp(0)  # + ln M, as the other
        log_off = nn.functional.logsigmoid(-logits).logsumexp(0)
        return log_on - log_off


def _bin_means(hidden: Tensor, spans: Tensor) -> Tensor:
    """Means over ranges of tokens: (B, L, D) and (B, K, 2) → (B, K, D)."""
    length = hidden.shape[1]
    places = torch.arange(length, device=hidden.device)
    within = (places >= spans[..., :1]) & (places < spans[..., 1:])  # (B, K, L)
    weights = within / (spans[..., 1:] - spans[..., :1])
    return weights.to(hidden.dtype) @ hidden
