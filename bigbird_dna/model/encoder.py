"""The encoder: BERT with LayerNorm after each residual, and block-sparse attention (paper App. D and F).

Shapes: B batch, L tokens, D hidden width, H heads, K head width, V vocabulary, I intermediate width.

By default each part computes the same as HuggingFace's BigBird (dropout before the embeddings' LayerNorm,
tanh GELU, LayerNorm epsilon 1e-12), so weights can be converted by renaming.
"""

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
from bigbird_dna.attention.native import gelu_tanh_
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
    rotation,
    split_heads,
)
from bigbird_dna.model.kernels import (
    ACTIVATIONS,
    Dropout,
    Linear,
    linear,
)
from bigbird_dna.model.mechanism import (
    attention_pattern,
    build_mechanism,
    goes_by_pattern,
    has_keys,
)

_PACKED = Choice("native", "fastest on a cpu")

INNER_ELEMENTS = 3 << 20
"""Elements of the feed-forward's inner states that a CPU computes at once in inference: 12 MiB in float32,
which malloc reuses, whereas it maps larger buffers again at every call (4,096 tokens, width 768: 0.87 of the
time)."""


def _select(x: Tensor, selected: Tensor | None) -> Tensor:
    """Rows (1, M, D) of x (B, L, D) at flat positions (M,); None: x."""
    return x if selected is None else x.flatten(0, 1).index_select(0, selected)[None]


class Layer(nn.Module):
    """Attention and feed-forward, each followed by dropout, residual and LayerNorm."""

    def __init__(self, config: EncoderConfig, index: int) -> None:
        super().__init__()
        hidden = config.hidden
        self.index = index
        self.heads = config.heads
        self.route = config.attention_backend
        self.mechanism = build_mechanism(config, index)
        self.attend = PATTERN_ATTENTIONS.get(config.attention)
        self.pattern = attention_pattern(config)
        self.attention_dropout = config.attention_dropout
        self.query = Linear(hidden, hidden)
        self.key = Linear(hidden, hidden) if has_keys(config) else None
        self.value = Linear(hidden, hidden)
        self.attention_output = Linear(hidden, hidden)
        self.attention_norm = nn.LayerNorm(hidden, eps=config.layer_norm_epsilon)
        self.inner_width = config.intermediate or 4 * hidden
        self.intermediate = Linear(hidden, self.inner_width)
        self.activation = config.activation
        self.output = Linear(self.inner_width, hidden)
        self.output_norm = nn.LayerNorm(hidden, eps=config.layer_norm_epsilon)
        self.dropout = Dropout(config.dropout)
        self.radius = config.relative_max_distance
        self.joined: tuple[Tensor, Tensor] | None = None  # see `prepared`
        self.compiled: tuple[Any, Any] | None = None  # see `compiled_layers`
        self.relative = None
        if self.radius:
            shape = (config.heads, label_count(self.radius), hidden // config.heads)
            table = torch.empty(shape).normal_(std=initial_deviation(hidden))
            self.relative = nn.Parameter(table)

    def forward(
        self,
        x: Tensor,
        lengths: Tensor | None,
        turns: Rotation | None = None,
        owners: Tensor | None = None,
        selected: Tensor | None = None,
    ) -> Tensor:
        """Hidden states (B, L, D) → (B, L, D); `lengths` (B,) are the true lengths of padded rows.

        `turns` are the angles of rotary positions, None for learned positions. `owners` (B, L) is the extra
        global token that owns each token (see `RelativeKeys`). Tokens include the extra global tokens. With
        `selected`, flat positions (M,) of tokens, only their hidden states are returned, (1, M, D).
        """
        project, finish = self.queries_keys_values, self.after_attention
        if self.compiled is not None and self.training and torch.is_grad_enabled():
            project, finish = self.compiled

        q, k, v, dtype = project(x, turns)
        # Inputs wider than autocast's type stay so.
        with (
            torch.autocast("cpu", enabled=False) if q.dtype != dtype else nullcontext()
        ):
            context = self.attention(q, k, v, x, lengths, owners).to(dtype)

        context = context.transpose(1, 2).flatten(2)  # (B, L, D)
        if selected is not None:
            context, x = _select(context, selected), _select(x, selected)

        if torch.is_grad_enabled() or x.device.type != "cpu":
            return finish(x, context)

        tokens = max(1, INNER_ELEMENTS // (len(x) * self.inner_width))
        parts = []
        for start in range(0, max(x.shape[1], 1), tokens):  # once, if none is selected
            part = slice(start, start + tokens)
            parts.append(finish(x[:, part], context[:, part]))

        return torch.cat(parts, 1) if len(parts) > 1 else parts[0]

    def attention(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        x: Tensor,
        lengths: Tensor | None,
        owners: Tensor | None,
    ) -> Tensor:
        """Attention by a block pattern or mechanism, (B, H, L, K) each → (B, H, L, K)."""
        attend: Any = self.attend if self.mechanism is None else self.mechanism
        if torch.compiler.is_dynamo_compiling():  # routes are chosen in Python
            attend = torch.compiler.disable(attend)  # type: ignore[no-untyped-call]

        dropout = self.attention_dropout if self.training else 0.0
        if self.mechanism is not None:
            return attend(q, k, v, lengths=lengths, dropout=dropout, hidden=x)  # type: ignore[no-any-return]

        relative = None
        if self.relative is not None:
            relative = RelativeKeys(self.relative.to(q.dtype), self.radius, owners)

        return attend(  # type: ignore[no-any-return]
            q,
            k,
            v,
            self.pattern,
            lengths=lengths,
            relative=relative,
            layer=self.index,
            dropout=dropout,
            route=self.route,
        )

    def queries_keys_values(
        self, x: Tensor, turns: Rotation | None
    ) -> tuple[Tensor, Tensor, Tensor, torch.dtype]:
        """Attention inputs, (B, H, L, K) each, from (B, L, D), and the type required for the output."""
        if self.joinable():
            # One product is faster than three, even including the concatenation of the weights.
            joined = None if torch.is_grad_enabled() else self.joined
            projected = linear(x, *(joined or self.join()))
        else:
            query = self.query(x)
            key = query if self.key is None else self.key(x)
            projected = torch.cat([query, key, self.value(x)], dim=-1)

        dtype = projected.dtype
        attention_type = dtype
        if (
            x.device.type == "cpu"
            and dtype == torch.bfloat16
            and torch.is_grad_enabled()
        ):
            # The backward pass of torch's fused CPU attention is five times slower in bfloat16.
            attention_type = torch.float32

        return *split_heads(projected, self.heads, turns, attention_type), dtype

    def joinable(self) -> bool:
        """Whether `join` has all that the calls of the three parts compute."""
        return all(
            part is None or is_plain(part, Linear)
            for part in (self.query, self.key, self.value)
        )

    def join(self) -> tuple[Tensor, Tensor]:
        """Concatenated weights (3D, D) and biases (3D,) of queries, keys and values."""
        parts = (self.query, self.key or self.query, self.value)
        weights = torch.cat([part.weight for part in parts])
        return weights, torch.cat([part.bias for part in parts])

    def after_attention(self, x: Tensor, context: Tensor) -> Tensor:
        """The token-wise part of a layer: inputs and attended values (B, L, D) → (B, L, D)."""
        x = self.attention_norm(self.dropout(self.attention_output(context), x))
        return self.output_norm(self.dropout(self.inner(x), x))  # type: ignore[no-any-return]

    def inner(self, x: Tensor) -> Tensor:
        """The feed-forward part alone, (B, L, D) → (B, L, D)."""
        inner = self.intermediate(x)  # (B, L, I)
        if self.activation == "gelu_tanh" and not torch.is_grad_enabled():
            inner = gelu_tanh_(inner)
        else:
            inner = ACTIVATIONS[self.activation](inner)
        return self.output(inner)  # type: ignore[no-any-return]


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
        self.layers = nn.ModuleList(layers)
        self.packed: PackedLayers | None = None  # see `prepared`
        self.gradient_checkpointing = config.gradient_checkpointing
        initialize(self, config.hidden)
        if self.embeddings.position is not None:
            initialize_positions(self.embeddings.position.weight)

        if config.head_init == "local":
            first = layers[0]
            init_local_heads(config, first.query, first.key, self.embeddings.token)

    def forward(
        self,
        ids: Tensor,
        lengths: Tensor | None = None,
        segments: Tensor | None = None,
        added: Tensor | None = None,
        selected: Tensor | None = None,
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
        selected
            Flat positions (M,) of tokens, in B · L: only their hidden states are returned. After its
            attention, the last layer computes no others.

        Returns
        -------
        Hidden states (B, L, D), or (M, D) of the `selected` ones; those of padding are meaningless.
        """
        return self.encode(
            ids, lengths, segments, added=added, selected=selected
        ).tokens

    def encode(
        self,
        ids: Tensor,
        lengths: Tensor | None = None,
        segments: Tensor | None = None,
        extra: Globals | None = None,
        added: Tensor | None = None,
        selected: Tensor | None = None,
    ) -> HiddenStates:
        """Hidden states of extra global tokens and tokens; arguments as in `forward`.

        `extra` assigns tokens to the extra global tokens; None: each owns an equal part of the sequence. With
        `selected`, the extra global tokens are omitted.
        """
        config, num_extra = self.config, self.config.num_global_tokens
        batch, tokens = ids.shape
        if tokens > config.max_length:
            raise ValueError(
                f"{tokens} tokens are more than the encoder's {config.max_length} positions"
            )

        # Attention plans its work by the lengths. They are read once here, so a GPU is not synchronized in
        # every layer, or at all if they are on the CPU.
        lengths = None if lengths is None else lengths.cpu()
        owners = None
        if num_extra and config.relative_max_distance:
            if extra is None:
                owners = token_owners(lengths, batch, tokens, num_extra)
            else:
                owners = F.pad(extra.owners, (num_extra, 0), value=-1)

            owners = copied(owners, ids.device)

        if lengths is not None:
            lengths = lengths + num_extra

        if selected is not None:
            selected = selected + num_extra * (selected // tokens + 1)

        if self.training and not goes_by_pattern(config):
            for part in self.modules():  # mechanisms that change between passes
                change = getattr(part, "begin_pass", None)
                if part.training and callable(change):
                    change()

        content = None if extra is None else extra.content
        x = self.embeddings(ids, segments, content, added)
        turns = self.turns(tokens, x.device)
        if self.packed is not None and self.packed.take(x, lengths):
            report_route(_PACKED)
            x = _select(self.packed.run(x, turns), selected)
        else:
            for layer in self.layers:
                inputs = [x, lengths, turns, owners]
                if selected is not None and layer is self.layers[-1]:
                    inputs.append(selected)

                if self.gradient_checkpointing and self.training:
                    x = checkpoint(layer, *inputs, use_reentrant=False)
                else:
                    x = layer(*inputs)

        if selected is not None:
            return HiddenStates(x[:, :0], x[0])

        return HiddenStates(x[:, :num_extra], x[:, num_extra:])

    def up_to(self, layers: int) -> "Encoder":
        """The encoder that ends after its first `layers` layers, with the same weights."""
        part = copy(self)
        part._modules = {**self._modules, "layers": self.layers[:layers]}
        return part

    def turns(self, tokens: int, device: torch.device) -> Rotation | None:
        """Rotation angles of extra global tokens and `tokens` tokens; None for learned positions."""
        config, extra = self.config, self.config.num_global_tokens
        if config.position_encoding == "learned":
            return None

        width = config.hidden // config.heads
        cos, sin = rotation(tokens, width, config.rotary_base, device)
        if not extra:
            return Rotation(cos, sin)

        # Extra global tokens have no position and are not rotated.
        return Rotation(
            F.pad(cos, (0, 0, extra, 0), value=1), F.pad(sin, (0, 0, extra, 0))
        )
