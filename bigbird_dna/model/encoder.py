"""The encoder: BERT with LayerNorm after each residual, and block-sparse attention (paper App. D and F).

Shapes: B batch, L tokens, D hidden width, H heads, K head width, V vocabulary, I intermediate width.

By default each part computes the same as HuggingFace's BigBird (dropout before the embeddings' LayerNorm,
tanh GELU, LayerNorm epsilon 1e-12), so weights can be converted by renaming.
"""

from collections.abc import Callable
from contextlib import nullcontext
from copy import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from bigbird_dna.attention import (
    PATTERN_ATTENTIONS,
    Choice,
    RelativeKeys,
    label_count,
    report_route,
)
from bigbird_dna.attention.call import copied, token_owners
from bigbird_dna.attention.fast_paths import is_plain
from bigbird_dna.attention.native_kernel import PackedLayers
from bigbird_dna.config.network import EncoderConfig
from bigbird_dna.model.input_embeddings import (
    Embeddings,
    Globals,
    HiddenStates,
    Rotation,
    init_local_heads,
    initial_deviation,
    initialize,
    initialize_positions,
    rotate,
    rotation,
    split_heads,
)
from bigbird_dna.model.kernels import (
    ACTIVATIONS,
    Dropout,
    Linear,
    infer_activation,
    inner_bound,
    inner_tiles,
    linear,
)
from bigbird_dna.model.mechanism import (
    attention_pattern,
    build_mechanism,
    goes_by_pattern,
    has_keys,
)

_PACKED = Choice("native", "fastest on a cpu")
# Computations of a layer before and after attention: see `Layer`.
Projected = tuple[Tensor, Tensor, Tensor, torch.dtype]
Compiled = tuple[
    Callable[[Tensor, Rotation | None], Projected], Callable[[Tensor, Tensor], Tensor]
]


def _chosen(x: Tensor, wanted: Tensor | None) -> Tensor:
    """Rows (1, M, D) of x (B, L, D) at flat positions (M,); None: x."""
    return x if wanted is None else x.flatten(0, 1).index_select(0, wanted)[None]


class Layer(nn.Module):
    """Attention and feed-forward, each followed by dropout, residual and LayerNorm."""

    def __init__(self, config: EncoderConfig, index: int) -> None:
        super().__init__()
        hidden = config.hidden
        self.index = index
        self.heads = config.heads
        self.route = config.attention_backend
        self.mechanism = build_mechanism(config, index)
        self.attend = PATTERN_ATTENTIONS[
            config.attention if goes_by_pattern(config) else "full"
        ]
        self.attends_to_all = config.attention == "full"
        self.pattern = attention_pattern(config)
        self.attention_dropout = config.attention_dropout
        self.query = Linear(hidden, hidden)
        self.key = Linear(hidden, hidden) if has_keys(config) else None
        self.value = Linear(hidden, hidden)
        self.attention_output = Linear(hidden, hidden)
        self.pre_norm, self.gated = config.norm == "pre", config.feed_forward == "gated"
        self.attention_norm: nn.Module = nn.LayerNorm(
            hidden, eps=config.layer_norm_epsilon
        )
        width = config.intermediate or 4 * hidden
        self.inner_width = 2 * width if self.gated else width
        self.intermediate = Linear(hidden, self.inner_width)
        self.activation = config.activation
        self.output = Linear(width, hidden)
        self.output_norm = nn.LayerNorm(hidden, eps=config.layer_norm_epsilon)
        self.dropout = Dropout(config.dropout)
        self.radius = config.relative_max_distance
        self.joined: tuple[Tensor, Tensor] | None = None  # see `prepared`
        self.compiled: Compiled | None = None  # see `compiled_layers`
        self.relative = None
        if self.radius:
            shape = (config.heads, label_count(self.radius), hidden // config.heads)
            self.relative = nn.Parameter(
                torch.empty(shape).normal_(std=initial_deviation(hidden))
            )

    def _split(self, x: Tensor) -> Tensor:
        width = x.shape[-1] // self.heads
        return x.view(*x.shape[:2], self.heads, width).transpose(
            1, 2
        )  # (B, L, D) → (B, H, L, K)

    def forward(
        self,
        x: Tensor,
        lengths: Tensor | None,
        turns: Rotation | None = None,
        owners: Tensor | None = None,
        wanted: Tensor | None = None,
    ) -> Tensor:
        """Hidden states (B, L, D) → (B, L, D); `lengths` (B,) are the true lengths of padded rows.

        `turns` are the angles of rotary positions, None for learned positions. `owners` (B, L) is the extra
        global token that owns each token (see `RelativeKeys`). Tokens include the extra global tokens. With
        `wanted`, flat positions (M,) of tokens, only their hidden states are returned, (1, M, D).
        """
        context = self.attended(
            self.attention_norm(x) if self.pre_norm else x, lengths, turns, owners
        )
        if wanted is not None:
            context = self._split(_chosen(context.transpose(1, 2).flatten(2), wanted))
            x = _chosen(x, wanted)
        if torch.is_grad_enabled() or torch.compiler.is_compiling():
            return self._around_attention()[1](x, context)
        if x.shape[0] * x.shape[1] * self.inner_width <= inner_bound(x):
            return self.after_attention(x, context)
        out = torch.empty_like(x)
        for rows, tokens in inner_tiles(x, self.inner_width):
            part = self.after_attention(x[rows, tokens], context[rows, :, tokens])
            out[rows, tokens] = part
        return out

    def _around_attention(self) -> Compiled:
        """The computations before and after attention; in training the compiled ones, if any."""
        own = (self.queries_keys_values, self.after_attention)
        return (self.training and torch.is_grad_enabled() and self.compiled) or own

    def attended(
        self,
        x: Tensor,
        lengths: Tensor | None,
        turns: Rotation | None = None,
        owners: Tensor | None = None,
    ) -> Tensor:
        """Output of attention, (B, H, L, K); arguments as in `forward`."""
        q, k, v, dtype = self._around_attention()[0](x, turns)
        widened = q.dtype != dtype
        with torch.autocast("cpu", enabled=False) if widened else nullcontext():
            dropout = self.attention_dropout if self.training else 0.0
            if self.mechanism is None:
                return self.attend_by_pattern(q, k, v, lengths, dropout, owners).to(
                    dtype
                )
            mechanism = self.mechanism
            if (
                torch.compiler.is_dynamo_compiling()
            ):  # never part of a torch.compile graph
                mechanism = torch.compiler.disable(mechanism)  # type: ignore[no-untyped-call]
            context: Tensor = mechanism(
                q, k, v, lengths=lengths, dropout=dropout, hidden=x
            )
            return context.to(dtype)

    def attend_by_pattern(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        lengths: Tensor | None,
        dropout: float = 0.0,
        owners: Tensor | None = None,
    ) -> Tensor:
        """Attention with a block pattern, (B, H, L, K) each → (B, H, L, K)."""
        relative = None
        if self.relative is not None:
            relative = RelativeKeys(self.relative.to(q.dtype), self.radius, owners)
        options: dict[str, Any] = {
            "layer": self.index,
            "dropout": dropout,
            "route": self.route,
        }
        attend = self.attend
        if torch.compiler.is_dynamo_compiling():  # routes are chosen in Python
            attend = torch.compiler.disable(attend)  # type: ignore[no-untyped-call]
        return attend(
            q, k, v, self.pattern, lengths=lengths, relative=relative, **options
        )

    def queries_keys_values(self, x: Tensor, turns: Rotation | None) -> Projected:
        """Attention inputs, (B, H, L, K) each, from (B, L, D), and the type required for the output."""
        on_cpu, compiling = x.device.type == "cpu", torch.compiler.is_compiling()
        projected: tuple[Tensor, ...]
        if not self.joinable() or (compiling and not torch.is_grad_enabled()):
            query = self.query(x)
            projected = (
                query,
                query if self.key is None else self.key(x),
                self.value(x),
            )
        else:
            # One product is faster than three, even including the concatenation of the weights.
            kept = None if torch.is_grad_enabled() else self.joined
            joined = linear(x, *(kept or self.join()))
            if on_cpu and not compiling:
                wide = self._attention_type(joined)
                return *split_heads(joined, self.heads, turns, wide), joined.dtype
            projected = joined.chunk(3, dim=-1)
        q, k, v = map(self._split, projected)
        if turns is not None:
            q, k = rotate(q, turns), rotate(k, turns)
        wide = self._attention_type(q)
        return q.to(wide), k.to(wide), v.to(wide), q.dtype

    def joinable(self) -> bool:
        """Whether `join` has all that the calls of the three parts compute."""
        return all(
            part is None or is_plain(part, Linear)
            for part in (self.query, self.key, self.value)
        )

    def join(self) -> tuple[Tensor, Tensor]:
        """Concatenated weights (3D, D) and biases (3D,) of queries, keys and values."""
        parts = (self.query, self.key or self.query, self.value)
        return torch.cat([part.weight for part in parts]), torch.cat(
            [part.bias for part in parts]
        )

    def _attention_type(self, x: Tensor) -> torch.dtype:
        # The backward pass of torch's fused CPU attention is five times slower in bfloat16.
        narrow = x.device.type == "cpu" and x.dtype == torch.bfloat16
        return torch.float32 if narrow and torch.is_grad_enabled() else x.dtype

    def after_attention(self, x: Tensor, context: Tensor) -> Tensor:
        """The token-wise part of a layer: (B, L, D) and (B, H, L, K) → (B, L, D)."""
        context = context.transpose(1, 2).flatten(2)  # (B, L, D)
        if self.pre_norm:
            x = self.dropout(self.attention_output(context), x)
            return self.dropout(self.inner(self.output_norm(x)), x)  # type: ignore[no-any-return]
        x = self.attention_norm(self.dropout(self.attention_output(context), x))
        return self.output_norm(self.dropout(self.inner(x), x))  # type: ignore[no-any-return]

    def inner(self, x: Tensor) -> Tensor:
        """The feed-forward part alone, (B, L, D) → (B, L, D)."""
        both = self.intermediate(
            x
        )  # a single chunk would cost a copy in the backward pass
        inner, *gates = (
            both.chunk(2, dim=-1) if self.gated else (both,)
        )  # (B, L, I) each
        if torch.is_grad_enabled():
            inner = ACTIVATIONS[self.activation](inner)
        else:
            inner = infer_activation(self.activation, inner)
        return self.output(inner * gates[0] if gates else inner)  # type: ignore[no-any-return]


class Encoder(nn.Module):
    """Encoder from token ids to hidden states, of a configuration whose `vocabulary` is set.

    Examples
    --------
        >>> encoder = Encoder(EncoderConfig(vocabulary=32, layers=1, hidden=8, heads=2, max_length=64))
        >>> encoder(torch.zeros(1, 10, dtype=torch.long)).shape
        torch.Size([1, 10, 8])
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        if config.vocabulary < 1:
            raise ValueError("EncoderConfig.vocabulary must be set to build an encoder")
        self.config = config
        self.embeddings = Embeddings(config)
        layers = [Layer(config, index) for index in range(config.layers)]
        if config.norm == "pre":
            layers[0].attention_norm = nn.Identity()  # the embeddings are normalized
        self.layers = nn.ModuleList(layers)
        self.norm = (
            nn.LayerNorm(config.hidden, eps=config.layer_norm_epsilon)
            if config.norm == "pre"
            else None
        )
        self.packed: PackedLayers | None = None  # see `prepared`
        self.gradient_checkpointing = config.gradient_checkpointing
        initialize(self, config.hidden)
        if self.embeddings.position is not None:
            initialize_positions(self.embeddings.position.weight)
        if config.head_init == "local":
            init_local_heads(
                config, layers[0].query, layers[0].key, self.embeddings.token
            )

    def forward(
        self,
        ids: Tensor,
        lengths: Tensor | None = None,
        segments: Tensor | None = None,
        added: Tensor | None = None,
        wanted: Tensor | None = None,
        visit: Callable[[Tensor], None] | None = None,
    ) -> Tensor:
        """Encode a batch.

        Parameters
        ----------
        ids
            Token ids (B, L), padded on the right.
        lengths
            True lengths (B,), preferably on the CPU; None: no padding. A row's result does not depend on its
            padding.
        segments
            0 for sentence A, 1 for sentence B, (B, L); None: all A.
        added
            Vectors (B, L, D) added to the token embeddings.
        wanted
            Flat positions (M,) of tokens, in B · L: only their hidden states are returned. After its
            attention, the last layer computes no others.
        visit
            As for `encode`.

        Returns
        -------
        Hidden states (B, L, D), or (M, D) of the `wanted` ones; those of padding are meaningless.
        """
        return self.encode(
            ids, lengths, segments, added=added, wanted=wanted, visit=visit
        ).tokens

    def encode(
        self,
        ids: Tensor,
        lengths: Tensor | None = None,
        segments: Tensor | None = None,
        given: Globals | None = None,
        added: Tensor | None = None,
        visit: Callable[[Tensor], None] | None = None,
        wanted: Tensor | None = None,
    ) -> HiddenStates:
        """Hidden states of extra global tokens and tokens; arguments as in `forward`.

        `given` assigns tokens to the extra global tokens; None: each owns an equal part of the sequence.
        `visit` receives the tokens' hidden states (B, L, D) after the embeddings and after each layer, but
        not with `wanted`, which also omits the extra global tokens.
        """
        if ids.shape[1] > self.config.max_length:
            raise ValueError(
                f"{ids.shape[1]} tokens are more than the encoder's {self.config.max_length} positions"
            )
        # Attention plans its work by the lengths. They are read once here, so a GPU is not synchronized in
        # every layer, or at all if they are on the CPU.
        lengths = None if lengths is None else lengths.cpu()
        extra, owners = self.config.num_global_tokens, None
        if extra:
            if self.config.relative_max_distance:
                if given is None:
                    owners = token_owners(lengths, len(ids), ids.shape[1], extra)
                else:
                    owners = F.pad(given.owners, (extra, 0), value=-1)
                owners = copied(owners, ids.device)
            lengths = None if lengths is None else lengths + extra
        if self.training and not goes_by_pattern(self.config):
            for part in self.modules():  # mechanisms that change between passes
                change = getattr(part, "begin_pass", None)
                if part.training and callable(change):
                    change()
        content = None if given is None else given.content
        x = self.embeddings(ids, segments, content, added=added)
        turns = self.turns(ids.shape[1], x.device)
        packed = self.packed
        places = (
            None if wanted is None else wanted + extra * (wanted // ids.shape[1] + 1)
        )
        if visit is not None:
            visit(self.finished(x)[:, extra:])
        if visit is None and packed is not None and packed.take(x, lengths):
            report_route(_PACKED)
            x = _chosen(packed.run(x, turns), places)
        else:
            x = self._through_layers(x, visit, (lengths, turns, owners, places))
        return (
            HiddenStates(x[:, :extra], x[:, extra:])
            if places is None
            else HiddenStates(x[:, :0], x[0])
        )

    def _through_layers(
        self,
        x: Tensor,
        visit: Callable[[Tensor], None] | None,
        arguments: tuple[Any, ...],
    ) -> Tensor:
        """Hidden states after all layers; `arguments` are those of the last one, if it attends to all."""
        (lengths, turns, owners, wanted), config = arguments, self.config
        nearby = (
            self.turns(
                x.shape[1] - config.num_global_tokens,
                x.device,
                config.local_rotary_base,
            )
            if config.local_window
            else None
        )
        for number, layer in enumerate(self.layers):
            own = nearby if config.is_local(number) else turns
            last = wanted is not None and number == len(self.layers) - 1
            given = x, lengths, own, owners, *([wanted] if last else [])
            if self.gradient_checkpointing and self.training:
                x = checkpoint(layer, *given, use_reentrant=False)
            else:
                x = layer(*given)
            if visit is not None:
                visit(self.finished(x)[:, config.num_global_tokens :])
        return self.finished(x)

    def finished(self, x: Tensor) -> Tensor:
        """Hidden states after a layer, normalized if those of the last layer are."""
        return x if self.norm is None else self.norm(x)

    def up_to(self, layers: int) -> "Encoder":
        """The encoder that ends after its first `layers` layers, with the same weights."""
        part = copy(self)
        part._modules = {**self._modules, "layers": self.layers[:layers]}
        return part

    def turns(
        self, tokens: int, device: torch.device, base: float | None = None
    ) -> Rotation | None:
        """Rotation angles of extra global tokens and `tokens` tokens; None for learned positions.

        `base` is that of local layers; None: `rotary_base`.
        """
        config, extra = self.config, self.config.num_global_tokens
        if config.position_encoding == "learned":
            return None
        width, base = config.hidden // config.heads, base or config.rotary_base
        turns = rotation(tokens, width, base, device)
        if not extra:
            return turns
        # Extra global tokens have no position and are not rotated.
        return Rotation(
            F.pad(turns.cos, (0, 0, extra, 0), value=1),
            F.pad(turns.sin, (0, 0, extra, 0)),
        )
