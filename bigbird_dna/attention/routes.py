"""The public attention functions: checks, and the choice between equivalent routes."""

from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

from bigbird_dna.attention.blocked import blocked_attention
from bigbird_dna.attention.dense import dense_attention
from bigbird_dna.attention.masked import is_short, masked_attention, real_positions
from bigbird_dna.attention.pattern import Pattern

# Axes: B batch, H heads, L tokens, K head width, N tokens of the longest sequence of a group.

Route = Literal["auto", "dense", "blocked"]


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
) -> Tensor:
    """BigBird's block-sparse attention (paper section 2 and App. D): softmax(QKᵀ / √K) V over a sparse graph.

    Parameters
    ----------
    q, k, v : (B, H, L, K), of one shape, floating type and device.
    pattern : the graph; each sequence gets the one of its own true number of blocks.
    lengths : (B,) true lengths in tokens, 1 … L, padding on the right; none: all are L. A tensor on a GPU is
        copied to the host, which waits for the GPU: give a CPU tensor where one is at hand.
    layer : number of the layer; it has its own random blocks.
    dropout : probability of dropping an attention weight, from torch's global random generator.
    route : "dense" (the oracle, quadratic), "blocked" (linear), or "auto": for each sequence full attention
        if the pattern covers it, masked full attention if it is short (`masked.is_short`), else
        blocked. All give the same values up to rounding.

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
    if not counts:
        return torch.zeros_like(v)
    if route == "dense":
        return dense_attention(q, k, v, pattern, counts, layer, dropout)
    groups: dict[str | int, list[int]] = {}  # rows of the batch that are computed together
    for row, length in enumerate(counts):
        blocks = pattern.blocks(length)
        group: str | int = blocks
        if route == "auto" and pattern.is_full(blocks):
            group = "full"
        elif route == "auto" and is_short(pattern, length):
            group = "short"
        groups.setdefault(group, []).append(row)
    parts = []
    for group, rows in groups.items():
        part = (q, k, v)
        if len(groups) > 1:
            index = torch.tensor(rows, device=q.device)
            part = (q.index_select(0, index), k.index_select(0, index), v.index_select(0, index))
        some = tuple(counts[row] for row in rows)
        if group == "full":
            parts.append(_full(*part, some, dropout))
        elif group == "short":
            parts.append(masked_attention(*part, pattern, some, layer, dropout))
        else:
            parts.append(blocked_attention(*part, pattern, some, layer, dropout))
    if len(parts) == 1:
        return parts[0]
    order = torch.tensor([row for rows in groups.values() for row in rows], device=q.device)
    return torch.cat(parts).index_select(0, order.argsort())


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
) -> Tensor:
    """Attention of every query to every key of its sequence; arguments and result as of `bigbird_attention`.

    `pattern`, `layer` and `route` are accepted, so that mechanisms can be exchanged, and ignored.
    """
    _check_route(route)
    q, k, v, counts = _checked(q, k, v, lengths, layer, dropout)
    return _full(q, k, v, counts, dropout)


def _full(q: Tensor, k: Tensor, v: Tensor, lengths: tuple[int, ...], dropout: float) -> Tensor:
    tokens = q.shape[2]
    longest = max(lengths, default=tokens)
    q, k, v = (x[:, :, :longest] for x in (q, k, v))
    if all(length == longest for length in lengths):
        out = scaled_dot_product_attention(q, k, v, dropout_p=dropout)
    else:
        real = real_positions(lengths, longest, q.device)
        mask = real[:, None, None, :]
        out = scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout)
        out = out.masked_fill(~real[:, None, :, None], 0)
    return out if longest == tokens else pad(out, (0, 0, 0, tokens - longest))


def _check_route(route: str) -> None:
    if route not in get_args(Route):
        raise ValueError(f"route must be one of {', '.join(get_args(Route))}, not {route!r}")


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
