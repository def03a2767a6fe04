"""The public attention functions: checks, and the choice between equivalent routes."""

import warnings
from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

from bigbird_dna.attention import flex, native
from bigbird_dna.attention.blocked import blocked_attention
from bigbird_dna.attention.dense import dense_attention
from bigbird_dna.attention.masked import is_short, masked_attention, real_positions
from bigbird_dna.attention.pattern import Pattern
from bigbird_dna.attention.relative import RelativeKeys, label_count

# Axes: B batch, H heads, L tokens, K head width, R labels, N tokens of the longest sequence of a group.

Route = Literal["auto", "dense", "blocked", "native", "flex"]


class RouteWarning(UserWarning):
    """A route that was asked for can't serve a call; the text says why, and which one served it."""


class Choice(NamedTuple):
    """The route that serves a sequence, and why it is that one."""

    route: Literal["dense", "blocked", "native", "flex", "masked", "full"]
    reason: str


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
    lengths : (B,) true lengths in tokens, 1 … L, padding on the right; none: all are L. Extra globals
        count. A tensor on a GPU is copied to the host, which waits for the GPU: give a CPU tensor where one
        is at hand.
    layer : number of the layer; it has its own random blocks.
    dropout : probability of dropping an attention weight, from torch's global random generator.
    route : "dense" (the oracle, quadratic), "blocked" (any device), "native" (compiled C++, CPU), "flex"
        (FlexAttention), or "auto": the fastest for each sequence, see `choose_route`. All give the same
        values up to rounding. One that can't serve the call gives way to "blocked", with a `RouteWarning`.
    relative : learnt relative positions (ETC), see `RelativeKeys`.

    Returns
    -------
    (B, H, L, K), zero at padded positions. The values of a sequence depend on neither the padding nor the
    other sequences of the batch, and neither does the route that "auto" takes for it. What stands at padded
    positions of q, k and v doesn't matter as long as it is finite.

    Raises
    ------
    ValueError
        Shapes, types, lengths, dropout or route are not as above.

    Notes
    -----
    Under `torch.autocast` float32 inputs are cast to the autocast type, as torch's own attention does.
    """
    _check_route(route)
    q, k, v, counts = _checked(q, k, v, lengths, layer, dropout)
    _check_relative(relative, q)
    if pattern.extra_globals and min(counts, default=q.shape[2]) <= pattern.extra_globals:
        raise ValueError(
            f"lengths must be above the {pattern.extra_globals} extra globals, got {min(counts)}"
        )
    if not counts:
        return torch.zeros_like(v)
    gradients = torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad)
    groups: dict[tuple[str, int], list[int]] = {}  # rows of the batch that are computed together
    for row, length in enumerate(counts):
        graph = q.shape[2] if pattern.huggingface else length
        choice = choose_route(
            q,
            pattern,
            graph,
            dropout=dropout,
            gradients=gradients,
            relative=relative is not None,
            route=route,
        )
        by_graph = choice.route in ("blocked", "native", "flex")
        blocks = pattern.blocks(graph) if by_graph else 0
        groups.setdefault((choice.route, blocks), []).append(row)
    parts = []
    for (chosen, _), rows in groups.items():
        part, keys = (q, k, v), relative
        if len(groups) > 1:
            index = torch.tensor(rows, device=q.device)
            part = (q.index_select(0, index), k.index_select(0, index), v.index_select(0, index))
            if relative is not None and relative.owners is not None:
                keys = relative._replace(owners=relative.owners.index_select(0, index))
        some = tuple(counts[row] for row in rows)
        if chosen == "full":
            parts.append(_full(*part, some, dropout, pattern.causal))
        elif chosen == "masked":
            parts.append(masked_attention(*part, pattern, some, layer, dropout))
        elif chosen == "dense":
            parts.append(dense_attention(*part, pattern, some, layer, dropout, keys))
        elif chosen == "native":
            parts.append(native.native_attention(*part, pattern, some, layer))
        elif chosen == "flex":
            parts.append(flex.flex_attention(*part, pattern, some, layer))
        else:
            parts.append(blocked_attention(*part, pattern, some, layer, dropout, keys))
    if len(parts) == 1:
        return parts[0]
    order = torch.tensor([row for rows in groups.values() for row in rows], device=q.device)
    return torch.cat(parts).index_select(0, order.argsort())


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
    if route == "dense":
        return Choice("dense", "asked for")
    if route == "auto" and not relative:
        if pattern.is_full(pattern.blocks(length)):
            return Choice("full", "every block sees every block")
        if is_short(pattern, length):
            return Choice("masked", "the sequence is short")
    if route == "blocked":
        return Choice("blocked", "asked for")
    fastest: Literal["native", "flex"] = "native" if q.device.type == "cpu" else "flex"
    wanted = fastest if route == "auto" else route
    ask = native.unavailable if wanted == "native" else flex.unavailable
    reason = ask(q, pattern, dropout=dropout, gradients=gradients, relative=relative)
    if reason is None:
        return Choice(wanted, "asked for" if route != "auto" else f"fastest on a {q.device.type}")
    if route != "auto":
        # Python shows a warning once for each text and line.
        warnings.warn(f"route {route}: {reason}; using blocked", RouteWarning, stacklevel=3)
    return Choice("blocked", f"{wanted}: {reason}")


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
    q, k, v, counts = _checked(q, k, v, lengths, layer, dropout)
    if relative is not None:
        raise ValueError("full attention takes no relative positions")
    return _full(q, k, v, counts, dropout, pattern is not None and pattern.causal)


def _full(
    q: Tensor, k: Tensor, v: Tensor, lengths: tuple[int, ...], dropout: float, causal: bool = False
) -> Tensor:
    tokens = q.shape[2]
    longest = max(lengths, default=tokens)
    q, k, v = (x[:, :, :longest] for x in (q, k, v))
    if all(length == longest for length in lengths):
        out = scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=causal)
    else:
        real = real_positions(lengths, longest, q.device)
        # A true query of a causal pattern doesn't see the padding, which comes after it.
        mask = None if causal else real[:, None, None, :]
        out = scaled_dot_product_attention(
            q, k, v, attn_mask=mask, dropout_p=dropout, is_causal=causal
        )
        out = out.masked_fill(~real[:, None, :, None], 0)
    return out if longest == tokens else pad(out, (0, 0, 0, tokens - longest))


def _check_route(route: str) -> None:
    if route not in get_args(Route):
        raise ValueError(f"route must be one of {', '.join(get_args(Route))}, not {route!r}")


def _check_relative(relative: RelativeKeys | None, q: Tensor) -> None:
    if relative is None:
        return
    expected = (q.shape[1], label_count(relative.radius), q.shape[3])
    if tuple(relative.table.shape) != expected:
        raise ValueError(
            f"relative.table must have the shape {expected} (heads, labels, width), "
            f"got {tuple(relative.table.shape)}"
        )
    if relative.owners is not None and relative.owners.shape != (q.shape[0], q.shape[2]):
        raise ValueError(
            f"relative.owners must have the shape {(q.shape[0], q.shape[2])} (batch, tokens), "
            f"got {tuple(relative.owners.shape)}"
        )


def _checked(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    lengths: Tensor | Sequence[int] | None,
    layer: int,
    dropout: float,
) -> tuple[Tensor, Tensor, Tensor, tuple[int, ...]]:
    if q.dim() != 4 or not q.shape == k.shape == v.shape or 0 in q.shape[1:]:
        shapes = ", ".join(str(tuple(x.shape)) for x in (q, k, v))
        raise ValueError(f"q, k, v must have one shape (batch, heads, tokens, width), got {shapes}")
    if not q.is_floating_point() or not q.dtype == k.dtype == v.dtype:
        raise ValueError(
            f"q, k, v must have one floating type, got {q.dtype}, {k.dtype} and {v.dtype}"
        )
    if layer < 0:
        raise ValueError(f"layer must not be negative, got {layer}")
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout must be at least 0 and below 1, got {dropout}")
    batch, tokens = q.shape[0], q.shape[2]
    if lengths is None:
        counts = (tokens,) * batch
    else:
        if isinstance(lengths, Tensor):
            if lengths.is_floating_point() or lengths.dim() != 1:
                shape = tuple(lengths.shape)
                raise ValueError(
                    f"lengths must be a vector of integers, got {lengths.dtype} of shape {shape}"
                )
            lengths = lengths.tolist()
        counts = tuple(int(length) for length in lengths)
        if len(counts) != batch or not all(1 <= length <= tokens for length in counts):
            raise ValueError(
                f"lengths must be {batch} integers from 1 to {tokens}, got {list(counts)}"
            )
    device = q.device.type
    if q.dtype == torch.float32 and torch.is_autocast_enabled(device):
        narrow = torch.get_autocast_dtype(device)
        q, k, v = q.to(narrow), k.to(narrow), v.to(narrow)
    return q, k, v, counts
