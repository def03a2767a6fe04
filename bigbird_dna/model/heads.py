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
from bigbird_dna.model.base_positions import (
    BaseBatch,
    BaseOffsets,
    BasePositions,
    BaseTerms,
)
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
    elementwise,
    linear,
    row_linear,
)
from bigbird_dna.model.settings import BinPooling, Head, Pooling

QUESTION_PENALTY = 1e6  # subtracted from the scores of question tokens


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
        wanted = masked
        if self.next_sentence is not None:
            firsts = torch.arange(len(ids), device=ids.device) * ids.shape[1]
            wanted = torch.cat([masked, firsts])
        hidden = self.encoder(ids, lengths, segments, wanted=wanted)
        chosen = hidden[: len(masked)]  # (M, D)
        return PretrainingOutput(
            self.masked_tokens(chosen, self.encoder.embeddings.token.weight),
            None
            if self.next_sentence is None
            else self.next_sentence(hidden[len(masked) :, None]),
        )


class Classifier(nn.Module):
    """Encoder with `outputs` logits on [CLS] or the mean over tokens, by one layer (App. F.2) or two.

    With `offsets` the inputs are aligned windows and tokens have `BasePositions`. With `member`, an ensemble
    with a `PositionMember` has one output; `kmers` is the k of an ensemble's `KmerMember`, 0 for none; with
    `both_strands` it counts a k-mer and its reverse complement as one.
    """

    def __init__(
        self,
        config: EncoderConfig,
        outputs: int,
        pooling: Pooling = "cls",
        head: Head = "dense",
        offsets: BaseOffsets | None = None,
        *,
        base_positions: bool = True,
        member: bool = False,
        kmers: int = 0,
        both_strands: bool = False,
    ) -> None:
        super().__init__()
        self.encoder = Encoder(config)
        self.base_positions = self.ensemble = position = None
        if offsets is not None and base_positions:
            self.base_positions = BasePositions(offsets, config.hidden)
        if offsets is not None and member:
            position = PositionMember(offsets)
        if position is not None or kmers:
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
        bases: BaseBatch | BaseTerms | None = None,
    ) -> Tensor:
        """Token ids (B, L) with true lengths (B,) → logits (B, T).

        `bases` are the bases of tokens in aligned windows, or the result of `base_terms`; None: not aligned.
        """
        terms = bases if isinstance(bases, BaseTerms) else self.base_terms(ids, bases)
        hidden = self.encoder(ids, lengths, segments, terms.embeddings)
        pooled = (
            hidden[:, 0] if self.pooling == "cls" else mean_over_tokens(hidden, lengths)
        )
        logits = self.head_logits(pooled)
        return logits if self.ensemble is None else self.ensemble(logits, terms.logits)

    def base_terms(self, ids: Tensor, bases: BaseBatch | None = None) -> BaseTerms:
        """The terms added for the bases of the tokens."""
        embeddings = logits = None
        if self.base_positions is not None and bases is not None:
            embeddings = self.base_positions(bases)
        if self.ensemble is not None:
            logits = self.ensemble.added(ids, bases=bases)
        return BaseTerms(embeddings, logits)

    def head_logits(self, pooled: Tensor) -> Tensor:
        """Vectors (B, D) → logits (B, T)."""
        inner = pooled
        if self.dense is not None:
            inner = row_linear(self.dense, self.dropout(pooled))
            inner = (
                self.activation(inner)
                if torch.is_grad_enabled()
                else elementwise(self.activation, inner)
            )
        return row_linear(self.output, self.dropout(inner))


def mean_over_tokens(hidden: Tensor, lengths: Tensor) -> Tensor:
    """Mean of hidden states (B, L, D) over the true tokens of each row → (B, D)."""
    on_cpu = (
        hidden.device.type == lengths.device.type == "cpu"
        and not torch.compiler.is_compiling()
    )
    if on_cpu and bool((lengths == hidden.shape[1]).all()):
        return (
            hidden.sum(1) / hidden.shape[1]
        )  # the same bits, with half the operations
    lengths = copied(lengths, hidden.device)
    present = (
        torch.arange(hidden.shape[1], device=hidden.device) < lengths[:, None]
    )  # (B, L)
    return (hidden * present[..., None]).sum(1) / lengths[:, None]


class SpanOutput(NamedTuple):
    """Scores of a span's first and last token."""

    start: Tensor  # (B, L)
    end: Tensor  # (B, L)


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

    def forward(
        self,
        ids: Tensor,
        lengths: Tensor,
        question_lengths: Tensor,
        segments: Tensor | None = None,
    ) -> SpanOutput:
        """Scores of every token of ids (B, L) with true lengths (B,).

        `question_lengths` (B,) are the lengths of [CLS] question [SEP], as computed by the function of this
        name. These tokens cannot be answers, except [CLS], whose score is for contexts without an answer.
        `segments` (B, L); None: 0 for the question, 1 for the rest.
        """
        asked = (
            torch.arange(ids.shape[1], device=ids.device) < question_lengths[:, None]
        )  # (B, L)
        hidden = self.encoder(
            ids, lengths, (~asked).long() if segments is None else segments
        )
        start, end = self.scores(hidden, asked).unbind(-1)
        return SpanOutput(start, end)

    def scores(self, hidden: Tensor, asked: Tensor) -> Tensor:
        """Scores (B, L, 2) of hidden states (B, L, D); `asked` (B, L) is true for question tokens."""
        inner = self.activation(self.intermediate(self.dropout(hidden)))  # (B, L, I)
        scores = self.spans(
            self.norm(self.dropout(self.output(inner)) + hidden)
        )  # (B, L, 2)
        first = torch.zeros_like(asked)
        first[:, 0] = True
        return scores - (asked & ~first)[..., None] * QUESTION_PENALTY  # type: ignore[no-any-return]


def question_lengths(ids: Tensor, sep_id: int) -> Tensor:
    """Tokens up to and including the first [SEP] of ids (B, L) → (B,); 1 for a row without [SEP]."""
    return (ids == sep_id).int().argmax(-1) + 1


# The chromatin network: one logit per track, for one bin or several adjacent ones.


BIN_ROTARY_BASE = 100.0  # a window has tens of bins: wavelengths of 6 to 600 bins


class ChromatinNetwork(nn.Module):
    """Encoder, a pooled vector per bin, and a head with one hidden layer.

    With `pooling` "cls" (as in the paper, App. F.3), the vector is that of [CLS] and represents the central
    bin of the window. With "bin" it is the mean and maximum over the tokens of a bin, so a training step uses
    several bins; a mean alone hides a site of three tokens among fifty. `bin_layers`, for "bin" only, are
    layers of full attention across the bins, between pooling and head: they connect a site with every bin in
    one step. `head` "linear" (as in the paper) is one layer on the pooled vector; "dense", required by bin
    layers, adds a hidden layer. With `kmers`, their k, the network is in an ensemble with a `KmerMember` that
    reads the k-mers in the tokens of a bin, and those up to `kmer_margin` bp around them, and, with `dyads`
    per track, a `DyadMember`.
    """

    def __init__(
        self,
        config: EncoderConfig,
        tracks: int,
        pooling: BinPooling,
        bin_layers: int = 0,
        head: Head = "dense",
        kmers: int = 0,
        kmer_margin: int = 0,
        dyads: int = 0,
    ) -> None:
        super().__init__()
        hidden = config.hidden
        self.encoder = Encoder(config)
        self.ensemble = None
        if kmers:
            words = KmerMember(
                kmers, tracks, both_strands=True, margins=(0, kmer_margin)
            )
            self.ensemble = EnsembleSum(
                tracks, None, words, DyadMember(tracks, dyads) if dyads else None
            )
        self.pooling = pooling
        width = hidden * (1 if pooling == "cls" else 2)
        self.dense = Linear(width, hidden) if head == "dense" else None
        self.activation = ACTIVATIONS[config.activation]
        self.bins = BinLayers(config, bin_layers) if bin_layers else None
        self.output = Linear(hidden if head == "dense" else width, tracks)
        self.dropout = nn.Dropout(config.dropout)
        for part in (self.dense, self.output):
            if part is not None:
                initialize(part, hidden)

    def forward(
        self, ids: Tensor, lengths: Tensor, spans: Tensor, wanted: slice = slice(None)
    ) -> Tensor:
        """Token ids (B, L), true lengths (B,), tokens of each bin (B, K, 2) → logits (B, K, T).

        `spans[b, k]` are a bin's first token and the one after its last. With pooling "cls", K is 1 and the
        span is ignored. With bin layers, bins must be adjacent and in the window's order. Only the logits of
        `wanted` bins are returned; the others provide context.
        """
        hidden = self.encoder(ids, lengths)
        pooled = hidden[:, :1] if self.pooling == "cls" else pool_bins(hidden, spans)
        logits = self.head_logits(pooled)[:, wanted]
        if self.ensemble is not None:
            logits = self.ensemble(logits, self.ensemble.added(ids, spans[:, wanted]))
        return logits

    def head_logits(self, pooled: Tensor) -> Tensor:
        """Vectors (B, K, D) or (B, K, 2 D) of bins → logits (B, K, T)."""
        inner = (
            pooled
            if self.dense is None
            else self.activation(self.dense(self.dropout(pooled)))
        )
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

    def forward(self, bins: Tensor) -> Tensor:
        """Bin vectors updated with the vectors of all bins."""
        head_width = self.config.hidden // self.config.heads
        turns = rotation(bins.shape[1], head_width, BIN_ROTARY_BASE, bins.device)
        bins = self.norm(bins)
        if self.packed is not None and self.packed.take(bins, None):
            return self.packed.run(bins, turns)
        for layer in self.layers:
            bins = layer(bins, None, turns)
        return bins


class ChromatinEnsemble(nn.Module):
    """Independently trained `ChromatinNetwork`s; returns the logit of their mean probability."""

    def __init__(self, members: Iterable[nn.Module]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)

    def forward(
        self, ids: Tensor, lengths: Tensor, spans: Tensor, wanted: slice = slice(None)
    ) -> Tensor:
        """As for `ChromatinNetwork`."""
        of_members = []
        for member in self.members:
            of_members.append(member(ids, lengths, spans, wanted).float())
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
