"""The public attention functions and the selection among equivalent routes (backends).

The routes are "dense" (the reference implementation, quadratic), "blocked" (any device), "native" (compiled
C++, CPU) and "flex" (FlexAttention). All compute the same values up to rounding. "auto" selects the fastest
route for each sequence, see `choose_route`. If the requested route cannot serve a call, "blocked" is used and
a `RouteWarning` is issued.

With forward-mode derivatives and transforms of `torch.func`, only torch's own operations are used, which are
slower: "native" and "flex" do not serve these calls. Gradients can be differentiated again, by the "dense"
route or by parts of "blocked".

Under `torch.autocast`, float32 inputs are cast to the autocast type, as in torch's own attention.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from bigbird_dna.attention import flex, native
from bigbird_dna.attention.blocked import composed_attention, is_short, masked_attention
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
from bigbird_dna.console import log as log_line
from bigbird_dna.errors import UsageError, check_choice

# Axes: B batch, H heads, L tokens, K head width.

Route = Literal["auto", "dense", "blocked", "native", "flex"]


class RouteWarning(UserWarning):
    """Warning that the requested route cannot serve a call; the text names the reason and the route used."""


class Choice(NamedTuple):
    """The route selected for a sequence, and the reason."""

    route: Literal["dense", "blocked", "native", "flex", "masked", "full"]
    reason: str

    @property
    def gave_way(self) -> bool:
        """Whether a faster route cannot serve the call; `reason` explains why."""
        return self.route == "blocked" and self.reason != ASKED

    def __str__(self) -> str:
        return f"attention: {self.route} ({self.reason})"


ASKED = "requested"
LogChoice = Callable[[Choice], None]
_log: ContextVar[LogChoice | None] = ContextVar("_log", default=None)


@contextmanager
def routes_logged(log: LogChoice) -> Iterator[None]:
    """Call `log` once per distinct route choice in this context and thread; errors of `log` propagate."""
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


_REMEDIES = {
    "flex": "use an NVIDIA GPU, with Triton installed",
    "native": "use --device cpu, and a C++ compiler if no compiled kernel is installed",
    "blocked": "set encoder.attention_backend: blocked in a training, or leave the option out",
    "dense": "set encoder.attention_backend: dense in a training, or leave the option out",
}
BACKENDS = tuple(_REMEDIES)
"""Routes that can be required: those that serve any block pattern."""


@dataclass
class _Required:
    """The route that this process requires, if any, and whether a route was reported since."""

    route: str | None = None
    reported: bool = False


_required = _Required()


@contextmanager
def required_backend(route: str | None) -> Iterator[None]:
    """Let attention with another route fail in the context, in all threads: `UsageError`, before its work.

    "full" and "masked" fulfill every requirement: where they are selected, no route is faster. None: every
    route is allowed.
    """
    if route is None:
        yield
        return
    check_choice("--require-backend", route, BACKENDS)
    before = _required.route, _required.reported
    _required.route, _required.reported = route, False
    try:
        yield
        if not _required.reported:
            text = (
                "no attention with a block pattern was computed, so no backend was used"
            )
            log_line(f"warning: --require-backend {route}: {text}")
    finally:
        _required.route, _required.reported = before


def report_route(choice: Choice) -> None:
    """Pass a choice to `routes_logged`; `UsageError` if `required_backend` excludes it."""
    wanted, _required.reported = _required.route, True
    if wanted is not None and choice.route not in (wanted, "full", "masked"):
        reason = (
            choice.reason if choice.gave_way else f"{choice.route} is {choice.reason}"
        )
        text = (
            f"attention would use {choice.route}, because {reason}; {_REMEDIES[wanted]}"
        )
        raise UsageError(f"--require-backend {wanted}: {text}")
    if (log := _log.get()) is not None:
        log(choice)


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
    _check_route(route)
    call = _with_relative(
        checked_call(q, k, v, pattern, lengths, layer, dropout), relative
    )
    if not call.lengths:
        return torch.zeros_like(call.v)
    groups = _grouped(call, route)
    with composed_attention() if call.transformed else nullcontext():
        if len(groups) == 1:
            return ROUTES[groups[0][0]](call)
        parts = [ROUTES[chosen](call.take(rows)) for chosen, rows in groups]
    order = [row for _, rows in groups for row in rows]
    back = sorted(range(len(order)), key=order.__getitem__)
    return torch.cat(parts).index_select(0, numbers_on(q.device, back))


def _grouped(call: Call, route: Route) -> list[tuple[str, list[int]]]:
    """Rows of the batch that are computed together, each group with its route."""
    pattern, tokens = call.pattern, call.q.shape[2]
    request = call.request
    choose = _chooser(request, route)
    graphs = [tokens if pattern.huggingface else length for length in call.lengths]
    choices = {graph: choose(graph) for graph in dict.fromkeys(graphs)}
    if not torch.compiler.is_compiling():
        for choice in dict.fromkeys(choices.values()):
            report_route(choice)
    groups: dict[tuple[str, int], list[int]] = {}
    for row, graph in enumerate(graphs):
        chosen = choices[graph].route
        groups.setdefault(
            (chosen, pattern.blocks(graph) if chosen in _BY_BLOCKS else 0), []
        ).append(row)
    if (
        ("native", 0) in groups and not pattern.causal
    ):  # its kernel computes rows with full attention, too
        groups["native", 0] = sorted(groups.pop(("full", 0), []) + groups["native", 0])
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
    """Choose the route of `bigbird_attention` for a sequence of `length` tokens, with the reason.

    `q` (B, H, L, K) supplies the device, type and shape. `gradients` states whether a backward pass follows,
    and `relative` whether relative positions are used. "auto" selects full attention where the pattern covers
    all pairs. Otherwise it selects native on a CPU if available; or masked full attention for short sequences
    (`is_short`), flex on a GPU if available, else blocked. Only the sequence's own length and the kind of
    call matter, so a score does not depend on the rest of the batch. If the requested route cannot serve the
    call, blocked is used with a `RouteWarning`.
    """
    return _chooser(RouteRequest(q, pattern, dropout, gradients, relative), route)(
        length
    )


def _chooser(request: RouteRequest, route: Route) -> Callable[[int], Choice]:
    """Return the function that chooses a route by sequence length; `route` is the requested one."""
    on, pattern = request.q.device.type, request.pattern
    fastest: Literal["native", "flex"] = "native" if on == "cpu" else "flex"
    if route in ("native", "flex"):
        fastest = route
    backend = native if fastest == "native" else flex
    refusals: list[
        str | None
    ] = []  # computed at most once: a check takes as long as a small kernel

    def choose(length: int) -> Choice:
        if route in ("dense", "blocked"):
            return Choice(route, ASKED)
        free = route == "auto" and not request.relative
        if free and pattern.is_full(pattern.blocks(length)):
            return Choice("full", "every block attends to every block")
        if not refusals:
            refusals.append(backend.unavailable(request))
        # The compiled kernel is also the fastest for short sequences.
        if (
            free
            and is_short(pattern, length)
            and (fastest != "native" or refusals[0] is not None)
        ):
            return Choice("masked", "the sequence is short")
        if (why := refusals[0]) is None:
            return Choice(fastest, ASKED if route != "auto" else f"fastest on a {on}")
        if route != "auto":
            # Python shows a warning once per text and line.
            warnings.warn(
                f"route {route}: {why}; using blocked", RouteWarning, stacklevel=3
            )
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
    """Compute full attention within each sequence; arguments and result are as for `bigbird_attention`.

    Only `pattern.causal` has an effect; `layer` and `route` are accepted so that mechanisms are
    interchangeable. Relative positions raise `ValueError`.
    """
    _check_route(route)
    call = checked_call(q, k, v, pattern or Pattern(), lengths, layer, dropout)
    if relative is not None:
        raise ValueError("full attention does not support relative positions")
    with composed_attention() if call.transformed else nullcontext():
        return _full(call)


def _full(call: Call) -> Tensor:
    one_block = call._replace(pattern=native.one_block(call))
    if (
        not torch.compiler.is_compiling()
        and native.unavailable(one_block.request) is None
    ):
        return native.native_attention(one_block)
    cut = call.cut()
    mask, causal = None, call.pattern.causal
    longest = cut.q.shape[2]
    # True queries of a causal pattern cannot attend to the padding, which comes after them.
    if not causal and any(length < longest for length in call.lengths):
        mask = real_positions(call.lengths, longest, cut.q.device)[:, None, None, :]
    out = scaled_dot_product_attention(
        *cut[:3], attn_mask=mask, dropout_p=call.dropout, is_causal=causal
    )
    return call.uncut(out)


ROUTES: dict[str, Callable[[Call], Tensor]] = {
    "dense": dense_attention,
    "blocked": blocked_attention,
    "native": native.native_attention,
    "flex": flex.flex_attention,
    "masked": masked_attention,
    "full": _full,
}
_BY_BLOCKS = ("blocked", "flex")  # require rows with equal numbers of blocks


def _check_route(route: str) -> None:
    if route not in get_args(Route):
        raise ValueError(
            f"route must be one of {', '.join(get_args(Route))}, not {route!r}"
        )


def _with_relative(call: Call, relative: RelativeKeys | None) -> Call:
    """The call with checked relative positions; every row must contain more than the extra global tokens."""
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
        raise ValueError(
            f"lengths must be above the {extra} extra global tokens, got {shortest}"
        )
    return call._replace(relative=relative)
