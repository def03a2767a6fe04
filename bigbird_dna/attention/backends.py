"""The public attention functions and the selection among equivalent routes (backends).

The routes are "dense" (the reference implementation, quadratic), "blocked" (any device), "native" (compiled
C++, CPU) and "flex" (FlexAttention, GPU). All compute the same values up to rounding. "auto" selects the
fastest route for each sequence, see `choose_route`. If the requested route cannot serve a call, "blocked" is
used and a `RouteWarning` is issued.

Under `torch.autocast`, float32 inputs are cast to the autocast type, as in torch's own attention.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from bigbird_dna.attention import native
from bigbird_dna.attention.blocked import blocked_attention
from bigbird_dna.attention.call import (
    Call,
    RelativeKeys,
    checked_call,
    dense_attention,
    label_count,
    numbers_on,
    real_positions,
)
from bigbird_dna.attention.pattern import Pattern

# Axes: B batch, H heads, L tokens, K head width.

Route = Literal["auto", "dense", "blocked", "native", "flex"]
ROUTES: tuple[str, ...] = get_args(Route)


class RouteWarning(UserWarning):
    """Warning that the requested route cannot serve a call; the text names the reason and the route used."""


class Choice(NamedTuple):
    """The route selected for a sequence, and the reason."""

    route: Literal["dense", "blocked", "native", "flex", "full"]
    reason: str

    def __str__(self) -> str:
        return f"attention: {self.route} ({self.reason})"


LogChoice = Callable[[Choice], None]
_log: ContextVar[tuple[LogChoice, set[Choice]] | None] = ContextVar(
    "_log", default=None
)


@contextmanager
def routes_logged(log: LogChoice) -> Iterator[None]:
    """Call `log` once per distinct route choice in this context and thread; errors of `log` propagate."""
    token = _log.set((log, set()))
    try:
        yield
    finally:
        _log.reset(token)


def report_route(choice: Choice) -> None:
    """Pass a choice to the function of `routes_logged`, if it is a new one."""
    listener = _log.get()
    if listener is not None:
        log, logged = listener
        if choice not in logged:
            logged.add(choice)
            log(choice)


def choose_route(call: Call, route: Route = "auto") -> Choice:
    """Choose the route of a call whose pattern does not cover all pairs, with the reason.

    "auto" selects native on a CPU or flex on a GPU if available, else blocked. Only the kind of call matters,
    so a score does not depend on the rest of the batch. If the requested route cannot serve the call, blocked
    is used with a `RouteWarning`.
    """
    if route == "dense" or route == "blocked":
        return Choice(route, "requested")

    if route == "native" or (route == "auto" and call.q.is_cpu):
        compiled: Literal["native", "flex"] = "native"
        reason = native.unavailable(call)
    else:
        from bigbird_dna.attention import flex  # not needed on a CPU

        compiled = "flex"
        reason = flex.unavailable(call)

    if reason is None:
        fastest = f"fastest on a {call.q.device.type}"
        return Choice(compiled, fastest if route == "auto" else "requested")

    if route != "auto":  # Python shows a warning once per text and line
        warnings.warn(
            f"route {route}: {reason}; using blocked", RouteWarning, stacklevel=3
        )

    return Choice("blocked", f"{compiled}: {reason}")


def bigbird_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    pattern: Pattern,
    *,
    lengths: Tensor | Sequence[int] | None = None,
    layer: int = 0,
    dropout: float = 0.0,
    route: Route = "auto",
    relative: RelativeKeys | None = None,
) -> Tensor:
    """Compute BigBird's block-sparse attention (paper section 2, App. D): softmax(QKᵀ / √K) V over a sparse
    graph.

    Parameters
    ----------
    q, k, v : (B, H, L, K), with the same shape, floating-point type and device.
    pattern : the attention graph; each sequence uses the graph for its own true number of blocks. ETC's extra
        global tokens, if any, come first. HuggingFace arithmetic uses the graph of the padded length.
    lengths : (B,) true lengths in tokens, 1 to L, including extra global tokens, with padding on the right;
        None means that all are L. Prefer a CPU tensor: a GPU tensor makes the host wait.
    layer : layer number; each layer has its own random blocks.
    dropout : probability of dropping an attention weight, drawn from torch's global random generator.
    route : the backend, see the module docstring.
    relative : learned relative positions (ETC), see `RelativeKeys`.

    Returns
    -------
    (B, H, L, K), zero at padded positions. The values of a sequence, and the route that "auto" selects for
    it, depend neither on padding nor on other sequences of the batch. Padded positions of q, k and v may
    contain any finite values.

    Raises
    ------
    ValueError : if shapes, types, lengths, dropout or route violate the above.
    """
    if route not in ROUTES:
        raise ValueError(f"route must be one of {', '.join(ROUTES)}, not {route!r}")

    call = checked_call(q, k, v, pattern, lengths, layer, dropout)
    batch, heads, tokens, width = q.shape
    if relative is not None:
        expected = (heads, label_count(relative.radius), width)
        if tuple(relative.table.shape) != expected:
            raise ValueError(
                f"relative.table must have the shape {expected} (heads, labels, width), "
                f"got {tuple(relative.table.shape)}"
            )

        if relative.owners is not None and relative.owners.shape != (batch, tokens):
            raise ValueError(
                f"relative.owners must have the shape {(batch, tokens)} (batch, tokens), "
                f"got {tuple(relative.owners.shape)}"
            )

        call = call._replace(relative=relative)

    extra = pattern.num_global_tokens
    shortest = min(call.lengths, default=tokens)
    if extra and shortest <= extra:
        raise ValueError(
            f"lengths must be above the {extra} extra global tokens, got {shortest}"
        )

    if not call.lengths:
        return torch.zeros_like(call.v)

    # Rows that are computed together, each group with its route.
    groups: dict[tuple[str, int], list[int]] = {}
    sparse: Choice | None = None
    for row, length in enumerate(call.lengths):
        blocks = pattern.graph_blocks(length, tokens)
        if route == "auto" and relative is None and pattern.is_full(blocks):
            choice = Choice("full", "every block attends to every block")
        else:
            sparse = sparse or choose_route(call, route)
            choice = sparse

        report_route(choice)
        # The blocked route computes rows with equal numbers of blocks.
        alike = blocks if choice.route == "blocked" else 0
        groups.setdefault((choice.route, alike), []).append(row)

    if ("native", 0) in groups and not pattern.causal:
        # Its kernel computes rows with full attention, too.
        groups = {("native", 0): list(range(batch))}

    outs = []
    for (chosen, _), rows in groups.items():
        part = call if len(groups) == 1 else call.take(rows)
        if chosen == "dense":
            outs.append(dense_attention(part))
        elif chosen == "blocked":
            outs.append(blocked_attention(part))
        elif chosen == "native":
            outs.append(native.native_attention(part))
        elif chosen == "full":
            outs.append(_attend_to_all(part))
        else:
            from bigbird_dna.attention import flex

            outs.append(flex.flex_attention(part))

    if len(outs) == 1:
        return outs[0]

    order = [row for rows in groups.values() for row in rows]
    back = sorted(range(batch), key=order.__getitem__)

    return torch.cat(outs).index_select(0, numbers_on(q.device, back))


def full_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    pattern: Pattern | None = None,
    *,
    lengths: Tensor | Sequence[int] | None = None,
    layer: int = 0,
    dropout: float = 0.0,
    route: Route = "auto",
    relative: RelativeKeys | None = None,
) -> Tensor:
    """Compute full attention within each sequence; arguments and result are as for `bigbird_attention`.

    Only `pattern.causal` has an effect; `layer` and `route` are accepted so that mechanisms are
    interchangeable. Relative positions raise `ValueError`.
    """
    if route not in ROUTES:
        raise ValueError(f"route must be one of {', '.join(ROUTES)}, not {route!r}")

    call = checked_call(q, k, v, pattern or Pattern(), lengths, layer, dropout)
    if relative is not None:
        raise ValueError("full attention does not support relative positions")

    return _attend_to_all(call)


def _attend_to_all(call: Call) -> Tensor:
    # With all tokens in one block, the kernel takes half the time of torch's attention. Few sizes of it, since
    # graphs of patterns are cached.
    size = -(-max(call.lengths, default=1) // 64) * 64
    one_block = call._replace(
        pattern=Pattern(size, 1, 0, 0, causal=call.pattern.causal)
    )
    if native.unavailable(one_block) is None:
        return native.native_attention(one_block)

    cut = call.cut()
    mask = None
    causal = call.pattern.causal
    longest = cut.q.shape[2]
    # True queries of a causal pattern cannot attend to the padding, which comes after them.
    if not causal and any(length < longest for length in call.lengths):
        mask = real_positions(call.lengths, longest, cut.q.device)[:, None, None, :]

    out = scaled_dot_product_attention(
        *cut[:3], attn_mask=mask, dropout_p=call.dropout, is_causal=causal
    )
    return call.uncut(out)
