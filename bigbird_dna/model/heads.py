"""Task heads, and the networks that combine them with the encoder.

Shapes: B batch, L tokens, M masked tokens, D hidden width, I intermediate width, V vocabulary, T outputs.

Every head computes the same as in HuggingFace's BigBird, so weights can be converted by renaming.
"""

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from bigbird_dna.attention.call import copied
from bigbird_dna.attention.native_kernel import PackedLayers
from bigbird_dna.config.network import EncoderConfig
from bigbird_dna.model.bases import BasePositions
from bigbird_dna.model.encoder import Encoder, Layer
from bigbird_dna.model.ensemble import (
    DyadMember,
    EnsembleSum,
    KmerMember,
    PositionMember,
)
from bigbird_dna.model.input_embeddings import initialize, rotation
from bigbird_dna.model.kernels import (
    ACTIVATIONS,
    Linear,
    linear,
    row_linear,
)
from bigbird_dna.model.settings import ChromatinSettings, Head, Pooling


class BareEncoder(nn.Module):
    """An encoder without a head."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.encoder = Encoder(config)

    def forward(
        self, ids: Tensor, lengths: Tensor, segments: Tensor | None = None
    ) -> Tensor:
        """Token ids (B, L) with true lengths (B,) → hidden states (B, L, D)."""
        return self.encoder(ids, lengths, segments)  # type: ignore[no-any-return]


class MaskedTokenHead(nn.Module):
    """Scores over the vocabulary; the projection uses the weights of the token embeddings."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.dense = Linear(config.hidden, config.hidden)
        self.activation = ACTIVATIONS[config.activation]
        self.norm = nn.LayerNorm(config.hidden, eps=config.layer_norm_epsilon)
        self.bias = nn.Parameter(torch.zeros(config.vocabulary))

    def forward(self, hidden: Tensor, token_embeddings: Tensor) -> Tensor:
        """Hidden states (M, D) and embeddings (V, D) → logits (M, V)."""
        hidden = self.norm(self.activation(self.dense(hidden)))
        return linear(hidden, token_embeddings, self.bias)


class NextSentenceHead(nn.Module):
    """Whether sentence B follows sentence A, from [CLS]."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.pooler = Linear(config.hidden, config.hidden)
        self.output = Linear(config.hidden, 2)

    def forward(self, hidden: Tensor) -> Tensor:
        """Hidden states (B, L, D) → logits (B, 2); class 0 means that B follows A, as in BERT."""
        return self.output(torch.tanh(self.pooler(hidden[:, 0])))  # type: ignore[no-any-return]


class PretrainingOutput(NamedTuple):
    """Logits of the pretraining objectives."""

    tokens: Tensor  # (M, V)
    next_sentence: Tensor | None  # (B, 2); None: the network has no such head


class PretrainingNetwork(nn.Module):
    """Encoder with the masked-token head and, if `next_sentence`, the next-sentence head."""

    def __init__(self, config: EncoderConfig, next_sentence: bool = True) -> None:
        super().__init__()
        self.encoder = Encoder(config)
        self.masked_tokens = MaskedTokenHead(config)
        self.next_sentence = NextSentenceHead(config) if next_sentence else None
        for head in (self.masked_tokens, self.next_sentence):
            if head is not None:
                initialize(head, config.hidden)

    def forward(
        self, ids: Tensor, lengths: Tensor, segments: Tensor | None, masked: Tensor
    ) -> PretrainingOutput:
        """Logits only at the flat positions `masked` (M,) of ids (B, L), the only ones needed."""
        selected = masked
        if self.next_sentence is not None:
            firsts = torch.arange(len(ids), device=ids.device) * ids.shape[1]
            selected = torch.cat([masked, firsts])

        hidden = self.encoder(ids, lengths, segments, selected=selected)
        chosen = hidden[: len(masked)]  # (M, D)
        return PretrainingOutput(
            self.masked_tokens(chosen, self.encoder.embeddings.token.weight),
            None
            if self.next_sentence is None
            else self.next_sentence(hidden[len(masked) :, None]),
        )


class Classifier(nn.Module):
    """Encoder with `outputs` logits on [CLS] or the mean over tokens, by one layer (App. F.2) or two.

    In aligned windows of `position_window` bp, tokens have `BasePositions`; 0: they have not. Regressions that
    an ensemble adds to the logits are in `ensemble`, and not part of `forward`: a `PositionMember` of aligned
    windows of `member_window` bp, and a `KmerMember` of k-mers of `kmers` bases; 0 for none. With
    `both_strands` it counts a k-mer and its reverse complement as one.
    """

    def __init__(
        self,
        config: EncoderConfig,
        outputs: int,
        pooling: Pooling = "cls",
        head: Head = "dense",
        *,
        position_window: int = 0,
        member_window: int = 0,
        kmers: int = 0,
        both_strands: bool = False,
    ) -> None:
        super().__init__()
        self.encoder = Encoder(config)
        self.base_positions = self.ensemble = None
        if position_window:
            self.base_positions = BasePositions(position_window, config.hidden)

        if member_window or kmers:
            position = PositionMember(member_window) if member_window else None
            words = KmerMember(kmers, outputs, both_strands) if kmers else None
            self.ensemble = EnsembleSum(outputs, position, words)

        self.pooling, self.outputs = pooling, outputs
        self.dense = Linear(config.hidden, config.hidden) if head == "dense" else None
        self.activation = ACTIVATIONS[config.activation]
        self.output = Linear(config.hidden, outputs)
        self.dropout = nn.Dropout(config.dropout)
        for part in (self.dense, self.output):
            if part is not None:
                initialize(part, config.hidden)

    def forward(
        self,
        ids: Tensor,
        lengths: Tensor,
        segments: Tensor | None = None,
        firsts: Tensor | None = None,
    ) -> Tensor:
        """Token ids (B, L) with true lengths (B,) → logits (B, T) of the network alone.

        `firsts` (B,) are the bp of an aligned window before its row's first base; None: not aligned.
        """
        added = None
        if self.base_positions is not None and firsts is not None:
            added = self.base_positions(ids, firsts)

        hidden = self.encoder(ids, lengths, segments, added)
        if self.pooling == "cls":
            pooled = hidden[:, 0]
        else:
            pooled = mean_over_tokens(hidden, lengths)

        return self.head_logits(pooled)

    def head_logits(self, pooled: Tensor) -> Tensor:
        """Vectors (B, D) → logits (B, T)."""
        inner = pooled
        if self.dense is not None:
            inner = row_linear(self.dense, self.dropout(pooled))
            # Rounding depends on the position in a vector register.
            size = 1 if inner.is_cpu and not torch.is_grad_enabled() else len(inner)
            inner = torch.cat(
                [self.activation(row) for row in torch.split(inner, size)]
            )
        return row_linear(self.output, self.dropout(inner))


def mean_over_tokens(hidden: Tensor, lengths: Tensor) -> Tensor:
    """Mean of hidden states (B, L, D) over the true tokens of each row → (B, D)."""
    lengths = copied(lengths, hidden.device)[:, None]
    present = torch.arange(hidden.shape[1], device=hidden.device) < lengths  # (B, L)
    return (hidden * present[..., None]).sum(1) / lengths


class QuestionAnswerer(nn.Module):
    """Encoder that marks the answer to a question in a context.

    The input is [CLS] question [SEP] context [SEP]. The head is an additional feed-forward layer and a
    projection to two scores per token.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        inner = config.intermediate or 4 * config.hidden
        self.encoder = Encoder(config)
        self.intermediate = Linear(config.hidden, inner)
        self.activation = ACTIVATIONS[config.activation]
        self.output = Linear(inner, config.hidden)
        self.norm = nn.LayerNorm(config.hidden, eps=config.layer_norm_epsilon)
        self.spans = Linear(config.hidden, 2)
        self.dropout = nn.Dropout(config.dropout)
        for part in (self.intermediate, self.output, self.spans):
            initialize(part, config.hidden)

    def scores(self, hidden: Tensor) -> Tensor:
        """Scores (B, L, 2) of a span's first and last token, of hidden states (B, L, D)."""
        inner = self.activation(self.intermediate(self.dropout(hidden)))  # (B, L, I)
        return self.spans(self.norm(self.dropout(self.output(inner)) + hidden))  # type: ignore[no-any-return]


# The chromatin network: one logit per track, for one bin or several adjacent ones.


BIN_ROTARY_BASE = 100.0  # a window has tens of bins: wavelengths of 6 to 600 bins


class ChromatinNetwork(nn.Module):
    """Encoder, a pooled vector per bin, and a head with one hidden layer.

    With `pooling` "cls" (as in the paper, App. F.3), the vector is that of [CLS] and represents the central
    bin of the window. With "bin" it is the mean and maximum over the tokens of a bin, so a training step uses
    several bins; a mean alone hides a site of three tokens among fifty. `bin_layers`, for "bin" only, are
    layers of full attention across the bins, between pooling and head: they connect a site with every bin in
    one step. `head` "linear" (as in the paper) is one layer on the pooled vector; "dense", required by bin
    layers, adds a hidden layer. With `ensemble_kmers`, the network is in an ensemble with a `KmerMember` that
    reads the k-mers in the tokens of a bin, and those up to `kmer_margin` bp around them, and, with
    `ensemble_dyads` per track, a `DyadMember`.
    """

    def __init__(self, config: EncoderConfig, settings: ChromatinSettings) -> None:
        super().__init__()
        hidden, tracks = config.hidden, len(settings.tracks)
        self.encoder = Encoder(config)
        self.ensemble = None
        if settings.ensemble_kmers:
            margins = (0, settings.kmer_margin)
            words = KmerMember(settings.ensemble_kmers, tracks, True, margins)
            dyads = None
            if settings.ensemble_dyads:
                dyads = DyadMember(tracks, settings.ensemble_dyads)

            self.ensemble = EnsembleSum(tracks, None, words, dyads)

        self.pooling = settings.pooling
        width = hidden * (1 if self.pooling == "cls" else 2)
        is_dense = settings.head == "dense"
        self.dense = Linear(width, hidden) if is_dense else None
        self.activation = ACTIVATIONS[config.activation]
        self.bins = None
        if settings.bin_layers:
            self.bins = BinLayers(config, settings.bin_layers)

        self.output = Linear(hidden if is_dense else width, tracks)
        self.dropout = nn.Dropout(config.dropout)
        for part in (self.dense, self.output):
            if part is not None:
                initialize(part, hidden)

    def forward(
        self, ids: Tensor, lengths: Tensor, spans: Tensor, selected: slice = slice(None)
    ) -> Tensor:
        """Token ids (B, L), true lengths (B,), tokens of each bin (B, K, 2) → logits (B, K, T).

        `spans[b, k]` are a bin's first token and the one after its last. With pooling "cls", K is 1 and the
        span is ignored. With bin layers, bins must be adjacent and in the window's order. Only the logits of
        `selected` bins are returned; the others provide context. In training, regressions are left out.
        """
        hidden = self.encoder(ids, lengths)
        pooled = hidden[:, :1] if self.pooling == "cls" else pool_bins(hidden, spans)
        logits = self.head_logits(pooled)[:, selected]
        if self.ensemble is not None and not self.training:
            logits = self.ensemble(logits, self.ensemble.added(ids, spans[:, selected]))

        return logits

    def head_logits(self, pooled: Tensor) -> Tensor:
        """Vectors (B, K, D) or (B, K, 2 D) of bins → logits (B, K, T)."""
        inner = pooled
        if self.dense is not None:
            inner = self.activation(self.dense(self.dropout(pooled)))
        if self.bins is not None:
            inner = self.bins(inner)
        return self.output(self.dropout(inner))  # type: ignore[no-any-return]


class BinLayers(nn.Module):
    """Encoder layers across the bins of a window, with rotary bin positions: (B, K, D) → (B, K, D)."""

    def __init__(self, config: EncoderConfig, layers: int) -> None:
        super().__init__()
        plain = {
            "attention": "full",
            "causal": False,
            "attention_options": {},
            "relative_max_distance": 0,
            "num_global_tokens": 0,
            "attention_backend": "auto",
        }
        config = config.model_copy(update=plain)
        self.config = config
        self.packed: PackedLayers | None = None  # see `inference.prepared`
        self.norm = nn.LayerNorm(config.hidden, eps=config.layer_norm_epsilon)
        self.layers = nn.ModuleList(Layer(config, index) for index in range(layers))
        initialize(self.layers, config.hidden)

    def forward(self, bins: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Bin vectors updated with the vectors of all bins, of the first `lengths` (B,) if given."""
        head_width = self.config.hidden // self.config.heads
        turns = rotation(bins.shape[1], head_width, BIN_ROTARY_BASE, bins.device)
        bins = self.norm(bins)
        if self.packed is not None and self.packed.take(bins, lengths):
            return self.packed.run(bins, turns)
        for layer in self.layers:
            bins = layer(bins, lengths, turns)
        return bins


class ChromatinEnsemble(nn.Module):
    """Independently trained `ChromatinNetwork`s; returns the logit of their mean probability."""

    def __init__(self, members: Iterable[nn.Module]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)

    def forward(
        self, ids: Tensor, lengths: Tensor, spans: Tensor, selected: slice = slice(None)
    ) -> Tensor:
        """As for `ChromatinNetwork`."""
        of_members = []
        for member in self.members:
            of_members.append(member(ids, lengths, spans, selected).float())
        logits = torch.stack(of_members)
        log_on = nn.functional.logsigmoid(logits).logsumexp(0)  # + ln M, as in log_off
        log_off = nn.functional.logsigmoid(-logits).logsumexp(0)
        return log_on - log_off


def pool_bins(hidden: Tensor, spans: Tensor) -> Tensor:
    """Concatenated mean and maximum over ranges of tokens: (B, L, D) and (B, K, 2) → (B, K, 2 D).

    A GPU is not synchronized if the ranges are on the CPU.
    """
    batch, bins, _ = spans.shape
    widest = int((spans[..., 1] - spans[..., 0]).max())
    spans = copied(spans, hidden.device)
    places = spans[..., :1] + torch.arange(widest, device=hidden.device)  # (B, K, S)
    outside = (places >= spans[..., 1:])[..., None]
    rows = torch.arange(batch, device=hidden.device)[:, None, None] * hidden.shape[1]
    places = (places.clamp(max=hidden.shape[1] - 1) + rows).flatten()
    tokens = hidden.flatten(0, 1).index_select(0, places).view(batch, bins, widest, -1)
    highest = tokens.masked_fill(outside, -torch.inf).amax(2)
    mean = tokens.masked_fill(outside, 0).sum(2) / (spans[..., 1:] - spans[..., :1])
    return torch.cat([mean, highest], dim=-1)
