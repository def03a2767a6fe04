"""The chromatin network: one logit for each track, of one bin or of several neighbouring ones.

Shapes: B batch, L tokens, D hidden width, K bins, T tracks, M members of an ensemble.
"""

import torch
from torch import Tensor, nn

from bigbird_dna.config import EncoderConfig
from bigbird_dna.model.encoder import Encoder, Layer
from bigbird_dna.model.input_embeddings import initialise
from bigbird_dna.model.kernels import ACTIVATIONS
from bigbird_dna.model.rotary import rotation
from bigbird_dna.model.settings import BinPooling, Head

BIN_ROTARY_BASE = 100.0  # a window has tens of bins: wavelengths from 6 to 600 of them


class ChromatinNetwork(nn.Module):
    """Encoder, a pooled vector for each bin, and a head of one hidden layer.

    Parameters
    ----------
    pooling
        "cls" (the paper's, App. F.3): the vector is that of [CLS] and stands for the one bin in the middle of
        the window. "bin": mean and maximum over the tokens of a bin, so that a window says something
        about each of its bins, and a training step learns from several. A mean alone hides a site of three
        tokens among fifty.
    bin_layers
        Only with "bin": layers of full attention across the bins of the window, between pooling and
        head. A site that the encoder found, however far away in the window, is one step from every bin.
    head
        "linear" (the paper's): one layer on the pooled vector. "dense": another before it, which bin layers
        need.
    """

    def __init__(
        self,
        config: EncoderConfig,
        tracks: int,
        pooling: BinPooling,
        bin_layers: int = 0,
        head: Head = "dense",
    ) -> None:
        super().__init__()
        hidden = config.hidden
        self.encoder = Encoder(config)
        self.pooling = pooling
        width = hidden * (1 if pooling == "cls" else 2)
        self.dense = nn.Linear(width, hidden) if head == "dense" else None
        self.activation = ACTIVATIONS[config.activation]
        self.bins = BinLayers(config, bin_layers) if bin_layers else None
        self.output = nn.Linear(hidden if head == "dense" else width, tracks)
        self.dropout = nn.Dropout(config.dropout)
        for part in (self.dense, self.output):
            if part is not None:
                initialise(part, hidden)

    def forward(self, ids: Tensor, lengths: Tensor, spans: Tensor) -> Tensor:
        """Token ids (B, L), true lengths (B,), tokens of each bin (B, K, 2) → logits (B, K, T).

        `spans[b, k]` are the first token of a bin and the one after its last. With pooling "cls" K is 1 and
        the span doesn't matter. With bin layers the bins are neighbours, in the window's order.
        """
        hidden = self.encoder(ids, lengths)
        pooled = hidden[:, :1] if self.pooling == "cls" else _pool_bins(hidden, spans)
        inner = (
            pooled if self.dense is None else self.activation(self.dense(self.dropout(pooled)))
        )  # (B, K, D)
        if self.bins is not None:
            inner = self.bins(inner)
        return self.output(self.dropout(inner))  # type: ignore[no-any-return]


class BinLayers(nn.Module):
    """Encoder layers across the bins of a window, which know each other's distance: (B, K, D) → (B, K, D)."""

    def __init__(self, config: EncoderConfig, layers: int) -> None:
        super().__init__()
        plain = {
            "attention": "full",
            "causal": False,
            "attention_options": {},
            "reversible": False,
            "relative_max_distance": 0,
            "num_global_tokens": 0,
            "attention_backend": "auto",
            "convolution": 0,
        }
        config = config.model_copy(update=plain)
        self.head_width = config.hidden // config.heads
        self.norm = nn.LayerNorm(config.hidden, eps=config.layer_norm_epsilon)
        self.layers = nn.ModuleList(Layer(config, index) for index in range(layers))
        initialise(self.layers, config.hidden)

    def forward(self, bins: Tensor) -> Tensor:
        """Each bin's vector, of all bins' vectors."""
        turns = rotation(bins.shape[1], self.head_width, BIN_ROTARY_BASE, 1.0, bins.device)
        bins = self.norm(bins)
        for layer in self.layers:
            bins = layer(bins, None, turns)
        return bins


class ChromatinEnsemble(nn.Module):
    """Independently trained networks; the logit of their mean probability."""

    def __init__(
        self,
        config: EncoderConfig,
        tracks: int,
        pooling: BinPooling,
        members: int,
        bin_layers: int = 0,
        head: Head = "dense",
    ) -> None:
        super().__init__()
        self.members = nn.ModuleList(
            ChromatinNetwork(config, tracks, pooling, bin_layers, head) for _ in range(members)
        )

    def forward(self, ids: Tensor, lengths: Tensor, spans: Tensor) -> Tensor:
        """As of `ChromatinNetwork`."""
        logits = torch.stack([member(ids, lengths, spans).float() for member in self.members])
        log_on = nn.functional.logsigmoid(logits).logsumexp(0)  # + ln M, as the other
        log_off = nn.functional.logsigmoid(-logits).logsumexp(0)
        return log_on - log_off


def _pool_bins(hidden: Tensor, spans: Tensor) -> Tensor:
    """Mean and maximum over ranges of tokens, side by side: (B, L, D) and (B, K, 2) → (B, K, 2 D).

    A GPU isn't waited for if the ranges are on the CPU.
    """
    batch, bins, _ = spans.shape
    widest = int((spans[..., 1] - spans[..., 0]).max())
    spans = spans.to(hidden.device, non_blocking=True)
    places = spans[..., :1] + torch.arange(widest, device=hidden.device)  # (B, K, S)
    outside = (places >= spans[..., 1:])[..., None]
    places = places.clamp(max=hidden.shape[1] - 1).reshape(batch, -1, 1)
    tokens = hidden.gather(1, places.expand(-1, -1, hidden.shape[2])).view(batch, bins, widest, -1)
    highest = tokens.masked_fill(outside, -torch.inf).amax(2)
    mean = tokens.masked_fill(outside, 0).sum(2) / (spans[..., 1:] - spans[..., :1])
    return torch.cat([mean, highest], dim=-1)
