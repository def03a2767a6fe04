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
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from bigbird_dna.attention import native
from bigbird_dna.attention.blocked import (
    blocked_attention,
    is_short,
    masked_attention,
)
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
from bigbird_dna.console import log as log_line
from bigbird_dna.errors import UsageError, check_choice

# Axes: B batch, H heads, L tokens, K head width.

Route = Literal["auto", "dense", "blocked", "native", "flex"]
ROUTES: tuple[str, ...] = get_args(Route)
ASKED = "requested"


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


# ---- reports of the routes in use ------------------------------------------------------------------------

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


REMEDIES = {
    "flex": "use an NVIDIA GPU, with Triton installed",
    "native": "use --device cpu, and a C++ compiler if no compiled kernel is installed",
    "blocked": "set encoder.attention_backend: blocked in a training, or leave the option out",
    "dense": "set encoder.attention_backend: dense in a training, or leave the option out",
}
BACKENDS = tuple(REMEDIES)
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
            log_line(
                f"warning: --require-backend {route}: no attention with a block pattern was computed, "
                "so no backend was used"
            )
    finally:
        _required.route, _required.reported = before


def report_route(choice: Choice) -> None:
    """Pass a choice to `routes_logged`; `UsageError` if `required_backend` excludes it."""
    required, _required.reported = _required.route, True
    if required is not None and choice.route not in (required, "full", "masked"):
        reason = choice.reason
        if not choice.gave_way:
            reason = f"{choice.route} is {reason}"
        raise UsageError(
            f"--require-backend {required}: attention would use {choice.route}, because {reason}; "
            f"{REMEDIES[required]}"
        )
    listener = _log.get()
    if listener is not None:
        log, logged = listener
        if choice not in logged:
            logged.add(choice)
            log(choice)


# ---- the choice of a route -------------------------------------------------------------------------------


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
    keys = RelativeKeys(q, 0) if relative else None
    call = Call(q, q, q, pattern, (length,), dropout=dropout, relative=keys)
    return _chooser(call, route, gradients)(length)


def _chooser(call: Call, route: Route, gradients: bool) -> Callable[[int], Choice]:
    """Return the function that chooses a route by sequence length; `route` is the requested one."""
    pattern, device = call.pattern, call.q.device.type
    compiled: Literal["native", "flex"] = "native" if device == "cpu" else "flex"
    if route == "native" or route == "flex":
        compiled = route

    checks: list[str | None] = []  # one: it takes as long as a small kernel

    def refusal() -> str | None:
        if not checks and compiled == "native":
            checks.append(native.unavailable(call))
        elif not checks:
            from bigbird_dna.attention import flex  # not needed on a CPU

            checks.append(flex.unavailable(call, gradients))
        return checks[0]

    def choose(length: int) -> Choice:
        if route == "dense" or route == "blocked":
            return Choice(route, ASKED)
        free = route == "auto" and call.relative is None
        if free and pattern.is_full(pattern.blocks(length)):
            return Choice("full", "every block attends to every block")
        # The compiled kernel is also the fastest for short sequences, FlexAttention is not.
        if free and is_short(pattern, length) and (compiled == "flex" or refusal()):
            return Choice("masked", "the sequence is short")
        reason = refusal()
        if reason is None:
            return Choice(
                compiled, ASKED if route != "auto" else f"fastest on a {device}"
            )
        if route != "auto":  # Python shows a warning once per text and line
            warnings.warn(
                f"route {route}: {reason}; using blocked", RouteWarning, stacklevel=3
            )
        return Choice("blocked", f"{compiled}: {reason}")

    return choose


# ---- attention -------------------------------------------------------------------------------------------


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
    extra, shortest = pattern.num_global_tokens, min(call.lengths, default=tokens)
    if extra and shortest <= extra:
        raise ValueError(
            f"lengths must be above the {extra} extra global tokens, got {shortest}"
        )
    if not call.lengths:
        return torch.zeros_like(call.v)
    groups = _group_rows(call, route)
    with _all_derivatives(call):
        if len(groups) == 1:
            return _attend(groups[0][0], call)
        outs = [_attend(chosen, call.take(rows)) for chosen, rows in groups]
    order = [row for _, rows in groups for row in rows]
    back = sorted(range(len(order)), key=order.__getitem__)
    return torch.cat(outs).index_select(0, numbers_on(q.device, back))


def _all_derivatives(call: Call) -> AbstractContextManager[None]:
    """Let torch compute attention by operations of which it has all derivatives, if these are needed."""
    return sdpa_kernel(SDPBackend.MATH) if call.transformed else nullcontext()


def _group_rows(call: Call, route: Route) -> list[tuple[str, list[int]]]:
    """Rows of the batch that are computed together, each group with its route."""
    pattern, tokens = call.pattern, call.q.shape[2]
    choose = _chooser(call, route, call.gradients)
    graphs = [tokens if pattern.huggingface else length for length in call.lengths]
    choices = {graph: choose(graph) for graph in dict.fromkeys(graphs)}
    if not torch.compiler.is_compiling():
        for choice in dict.fromkeys(choices.values()):
            report_route(choice)
    groups: dict[tuple[str, int], list[int]] = {}
    for row, graph in enumerate(graphs):
        chosen = choices[graph].route
        # These two compute rows with equal numbers of blocks.
        blocks = pattern.blocks(graph) if chosen in ("blocked", "flex") else 0
        groups.setdefault((chosen, blocks), []).append(row)
    if ("native", 0) in groups and not pattern.causal:
        # Its kernel computes rows with full attention, too.
        groups["native", 0] = sorted(groups.pop(("full", 0), []) + groups["native", 0])
    on_flex = [key for key in groups if key[0] == "flex"]
    if len(on_flex) > 1:
        from bigbird_dna.attention import flex

        if flex.serves_by_row(call):
            rows = [row for key in on_flex for row in groups.pop(key)]
            groups["flex", 0] = sorted(rows)
    return [(chosen, rows) for (chosen, _), rows in groups.items()]


def _attend(route: str, call: Call) -> Tensor:
    if route == "dense":
        return dense_attention(call)
    if route == "blocked":
        return blocked_attention(call)
    if route == "native":
        return native.native_attention(call)
    if route == "masked":
        return masked_attention(call)
    if route == "full":
        return _attend_to_all(call)
    from bigbird_dna.attention import flex

    return flex.flex_attention(call)


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
    with _all_derivatives(call):
        return _attend_to_all(call)


def _attend_to_all(call: Call) -> Tensor:
    one_block = call._replace(pattern=native.one_block(call))
    if not torch.compiler.is_compiling() and native.unavailable(one_block) is None:
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


def _check_route(route: str) -> None:
    if route not in ROUTES:
        raise ValueError(f"route must be one of {', '.join(ROUTES)}, not {route!r}")
