"""The public attention functions, and the choice between equivalent routes.

A route is a name of a backend: "dense" (the reference implementation, quadratic), "blocked" (any device),
"native" (compiled C++, CPU) or "flex" (FlexAttention). All give the same values up to rounding; "auto" takes
the fastest for each sequence, see `choose_route`. One that can't serve a call gives way to "blocked", with a
`RouteWarning`.

Under `torch.autocast` float32 inputs are cast to the autocast type, as torch's own attention does.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from bigbird_dna.attention import flex, native
from bigbird_dna.attention.blocked import is_short, masked_attention
from bigbird_dna.attention.call import (
    Call,
    RelativeKeys,
    RouteRequest,
    checked_call,
    dense_attention,
    label_count,
    numbers_on,
    real_positions,
)
from bigbird_dna.attention.chunked import blocked_attention
from bigbird_dna.attention.pattern import Pattern

# Axes: B batch, H heads, L tokens, K head width.

Route = Literal["auto", "dense", "blocked", "native", "flex"]


class RouteWarning(UserWarning):
    """A route that was asked for can't serve a call; the text has the reason, and which one served it."""


class Choice(NamedTuple):
    """The route that serves a sequence, and why it is that one."""

    route: Literal["dense", "blocked", "native", "flex", "masked", "full"]
    reason: str

    @property
    def gave_way(self) -> bool:
        """Whether a faster route can't serve the call, see `reason`."""
        return self.route == "blocked" and self.reason != ASKED

    def __str__(self) -> str:
        return f"attention: {self.route} ({self.reason})"


ASKED = "asked for"
LogChoice = Callable[[Choice], None]
_log: ContextVar[LogChoice | None] = ContextVar("_log", default=None)


@contextmanager
def routes_logged(log: LogChoice) -> Iterator[None]:
    """Call `log` with each choice of a route in the block (and thread) once; an error of it ends the call."""
    logged: set[Choice] = set()

    def log_once(choice: Choice) -> None:
        if choice not in logged:
            logged.add(choice)
            log(choice)

    token = _log.set(log_once)
    try:
        yield
    finally:
        _log.reset(token)


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
    """BigBird's block-sparse attention (paper section 2 and App. D): softmax(QKᵀ / √K) V over a sparse graph.

    Parameters
    ----------
    q, k, v : (B, H, L, K), of one shape, floating type and device.
    pattern : the graph; each sequence gets the one of its own true number of blocks. ETC's extra globals, if
        any, are the first positions; HuggingFace's arithmetic has the graph of the padded length.
    lengths : (B,) true lengths in tokens, 1 … L, extra globals included, padding on the right; none: all are
        L. Give a CPU tensor where one is at hand: for one on a GPU the host waits.
    layer : number of the layer; it has its own random blocks.
    dropout : probability of dropping an attention weight, from torch's global random generator.
    route : how it is computed, see the module's beginning.
    relative : learned relative positions (ETC), see `RelativeKeys`.

    Returns
    -------
    (B, H, L, K), zero at padded positions. The values of a sequence depend on neither the padding nor the
    other sequences of the batch, and neither does the route that "auto" takes for it. What stands at padded
    positions of q, k and v doesn't matter as long as it is finite.

    Raises
    ------
    ValueError : shapes, types, lengths, dropout or route are not as above.
    """
    _check_route(route)
    call = _with_relative(checked_call(q, k, v, pattern, lengths, layer, dropout), relative)
    if not call.lengths:
        return torch.zeros_like(call.v)
    groups = _grouped(call, route)
    if len(groups) == 1:
        return ROUTES[groups[0][0]](call)
    parts = [ROUTES[chosen](call.take(rows)) for chosen, rows in groups]
    order = [row for _, rows in groups for row in rows]
    back = sorted(range(len(order)), key=order.__getitem__)
    return torch.cat(parts).index_select(0, numbers_on(q.device, back))


def _grouped(call: Call, route: Route) -> list[tuple[str, list[int]]]:
    """Rows of the batch that are computed together, and by which route."""
    pattern, tokens = call.pattern, call.q.shape[2]
    request = call.request
    choose = _chooser(request, route)
    graphs = [tokens if pattern.huggingface else length for length in call.lengths]
    choices = {graph: choose(graph) for graph in dict.fromkeys(graphs)}
    log = None if torch.compiler.is_compiling() else _log.get()
    if log is not None:
        for choice in dict.fromkeys(choices.values()):
            log(choice)
    groups: dict[tuple[str, int], list[int]] = {}
    for row, graph in enumerate(graphs):
        chosen = choices[graph].route
        groups.setdefault((chosen, pattern.blocks(graph) if chosen in _BY_BLOCKS else 0), []).append(row)
    together = [key for key in groups if key[0] == "flex"]
    if len(together) > 1 and flex.serves_by_row(request):
        groups[together[0]] = sorted(row for key in together for row in groups[key])
        for key in together[1:]:
            del groups[key]
    return [(chosen, rows) for (chosen, _), rows in groups.items()]


def choose_route(
    q: Tensor,
    pattern: Pattern,
    length: int,
    *,
    dropout: float = 0.0,
    gradients: bool = False,
    relative: bool = False,
    route: Route = "auto",
) -> Choice:
    """The route that `bigbird_attention` takes for a sequence of `length` tokens, with the reason.

    `q` (B, H, L, K) stands for the call's device, type and shape; `gradients` says whether a backward pass
    will follow, `relative` whether relative positions take part. "auto" takes full attention where the
    pattern covers everything, masked full attention where the sequence is short (`masked.is_short`), else
    flex on a GPU and native on a CPU where they can be had, else blocked. Only the sequence's own length
    and the kind of call matter, so a score doesn't depend on what is scored beside it.

    A route that was asked for but can't serve the call gives way to blocked with a `RouteWarning`.
    """
    return _chooser(RouteRequest(q, pattern, dropout, gradients, relative), route)(length)


def _chooser(request: RouteRequest, route: Route) -> Callable[[int], Choice]:
    """Chooses routes for sequences of one call, of which `route` was asked for, by their lengths."""
    on, pattern = request.q.device.type, request.pattern
    fastest: Literal["native", "flex"] = "native" if on == "cpu" else "flex"
    if route in ("native", "flex"):
        fastest = route
    backend = native if fastest == "native" else flex
    refusals: list[str | None] = []  # asked for once, as that takes as long as a small kernel

    def choose(length: int) -> Choice:
        if route in ("dense", "blocked"):
            return Choice(route, ASKED)
        if route == "auto" and not request.relative:
            if pattern.is_full(pattern.blocks(length)):
                return Choice("full", "every block sees every block")
            if is_short(pattern, length):
                return Choice("masked", "the sequence is short")
        if not refusals:
            refusals.append(backend.unavailable(request))
        if (why := refusals[0]) is None:
            return Choice(fastest, ASKED if route != "auto" else f"fastest on a {on}")
        if route != "auto":
            # Python shows a warning once for each text and line.
            warnings.warn(f"route {route}: {why}; using blocked", RouteWarning, stacklevel=3)
        return Choice("blocked", f"{fastest}: {why}")

    return choose


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
    """Attention of every query to every key of its sequence; arguments and result as of `bigbird_attention`.

    Of `pattern` only `causal` matters here; it, `layer` and `route` are accepted so that mechanisms can be
    exchanged. Relative positions are refused with `ValueError`.
    """
    _check_route(route)
    call = checked_call(q, k, v, pattern or Pattern(), lengths, layer, dropout)
    if relative is not None:
        raise ValueError("full attention takes no relative positions")
    return _full(call)


def _full(call: Call) -> Tensor:
    cut = call.cut()
    mask, causal = None, call.pattern.causal
    longest = cut.q.shape[2]
    # A true query of a causal pattern doesn't see the padding, which comes after it.
    if not causal and any(length < longest for length in call.lengths):
        mask = real_positions(call.lengths, longest, cut.q.device)[:, None, None, :]
    out = scaled_dot_product_attention(*cut[:3], attn_mask=mask, dropout_p=call.dropout, is_causal=causal)
    return call.uncut(out)


ROUTES: dict[str, Callable[[Call], Tensor]] = {
    "dense": dense_attention,
    "blocked": blocked_attention,
    "native": native.native_attention,
    "flex": flex.flex_attention,
    "masked": masked_attention,
    "full": _full,
}
_BY_BLOCKS = ("blocked", "native", "flex")  # serve rows of equally many blocks


def _check_route(route: str) -> None:
    if route not in get_args(Route):
        raise ValueError(f"route must be one of {', '.join(get_args(Route))}, not {route!r}")


def _with_relative(call: Call, relative: RelativeKeys | None) -> Call:
    """The call with relative positions, checked, as is that no row consists of extra globals alone."""
    batch, heads, tokens, width = call.q.shape
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
    extra, shortest = call.pattern.num_global_tokens, min(call.lengths, default=tokens)
    if extra and shortest <= extra:
        raise ValueError(f"lengths must be above the {extra} extra globals, got {shortest}")
    return call._replace(relative=relative)
