"""A call of an attention function, checked: what every route is given.

A route is a function of a `Call`. It gives softmax(QKᵀ / √K) V over the call's pattern, (B, H, L, K): equal
to `dense_attention` up to rounding, and zero at positions from a row's length on. Those that go by the
pattern's blocks ("blocked", "native", "flex") take rows of equally many blocks only.
"""

from collections.abc import Container, Sequence
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from bigbird_dna.attention.pattern import Pattern
from bigbird_dna.attention.relative import RelativeKeys

# Axes: B batch, H heads, L tokens as given, N tokens of the longest sequence, K head width.


class RouteRequest(NamedTuple):
    """What decides, apart from lengths, whether a route can serve a call."""

    q: Tensor  # (B, H, L, K), which stands for the call's device, type and shape
    pattern: Pattern
    dropout: float = 0.0
    gradients: bool = False  # whether a backward pass may follow
    relative: bool = False  # whether relative positions take part

    def beyond(self, route: str, types: Container[torch.dtype]) -> str | None:
        """What a route can't do that computes in `types` alone, without dropout and relative positions."""
        if self.dropout:
            return f"{route} has no dropout"
        if self.relative:
            return f"{route} has no relative positions"
        if self.q.dtype not in types:
            return f"{route} does not compute in {str(self.q.dtype).removeprefix('torch.')}"
        return None


class Call(NamedTuple):
    """Arguments of one attention; the public functions check them and say what they mean."""

    q: Tensor  # (B, H, L, K); k and v have its shape, type and device
    k: Tensor
    v: Tensor
    pattern: Pattern
    lengths: tuple[int, ...]  # (B,) true lengths, tokens
    layer: int = 0
    dropout: float = 0.0
    relative: RelativeKeys | None = None

    @property
    def request(self) -> RouteRequest:
        """What the routes are asked about."""
        return RouteRequest(self.q, self.pattern, self.dropout, self.gradients, self.relative is not None)

    @property
    def gradients(self) -> bool:
        """Whether a backward pass may follow."""
        return torch.is_grad_enabled() and any(x.requires_grad for x in (self.q, self.k, self.v))

    @property
    def blocks(self) -> int:
        """Number of blocks of the graph of all rows; `ValueError` if they have different ones."""
        tokens = self.q.shape[2]
        lengths = self.lengths or (tokens,)
        counts = {self.pattern.graph_blocks(length, tokens) for length in lengths}
        if len(counts) != 1:
            raise ValueError(f"sequences have different numbers of blocks: {sorted(counts)}")
        return counts.pop()

    def take(self, rows: list[int]) -> "Call":
        """The call for some rows of the batch."""
        index = numbers_on(self.q.device, rows)
        relative = self.relative
        if relative is not None and relative.owners is not None:
            relative = relative._replace(owners=relative.owners.index_select(0, index))
        return self._replace(
            q=self.q.index_select(0, index),
            k=self.k.index_select(0, index),
            v=self.v.index_select(0, index),
            lengths=tuple(self.lengths[row] for row in rows),
            relative=relative,
        )

    def cut(self) -> "Call":
        """The call without the padding that all rows have."""
        longest = max(self.lengths, default=self.q.shape[2])
        q, k, v = (x[:, :, :longest] for x in (self.q, self.k, self.v))
        return self._replace(q=q, k=k, v=v)

    def uncut(self, out: Tensor) -> Tensor:
        """The output of `cut`'s call, (B, H, N, K), as this call's, (B, H, L, K), zero where it is padded."""
        tokens, longest = self.q.shape[2], out.shape[2]
        if any(length < longest for length in self.lengths):
            real = real_positions(self.lengths, longest, out.device)
            out = out.masked_fill(~real[:, None, :, None], 0)
        return pad(out, (0, 0, 0, tokens - longest)) if longest < tokens else out


@lru_cache(maxsize=64)
@torch.inference_mode(False)  # what evaluation makes first must serve training as well
def real_positions(lengths: tuple[int, ...], tokens: int, device: torch.device) -> Tensor:
    """(B, N), true before the end of each sequence; the same in every layer of an encoder."""
    return torch.arange(tokens, device=device) < numbers_on(device, lengths)[:, None]


def numbers_on(device: torch.device, numbers: Sequence[int], dtype: torch.dtype | None = None) -> Tensor:
    """Whole numbers on a device; the host doesn't wait until what the device has to do before is done."""
    return torch.tensor(numbers, dtype=dtype or torch.int64).to(device, non_blocking=True)


def empty_output(q: Tensor) -> Tensor:
    """(B, H, L, K) in the memory order (B, L, H, K), from which heads are joined without a copy."""
    batch, heads, tokens, width = q.shape
    return q.new_empty(batch, tokens, heads, width).transpose(1, 2)


def checked_call(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    pattern: Pattern,
    lengths: Tensor | Sequence[int] | None,
    layer: int,
    dropout: float,
) -> Call:
    """The call that a user asks for, cast as autocast wants it; `ValueError` if it contradicts itself."""
    if q.dim() != 4 or not q.shape == k.shape == v.shape or 0 in q.shape[1:]:
        shapes = ", ".join(str(tuple(x.shape)) for x in (q, k, v))
        raise ValueError(f"q, k, v must have one shape (batch, heads, tokens, width), got {shapes}")
    if not q.is_floating_point() or not q.dtype == k.dtype == v.dtype:
        raise ValueError(f"q, k, v must have one floating type, got {q.dtype}, {k.dtype} and {v.dtype}")
    if layer < 0:
        raise ValueError(f"layer must not be negative, got {layer}")
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout must be at least 0 and below 1, got {dropout}")
    counts = _counts(lengths, q.shape[0], q.shape[2])
    device = q.device.type
    if q.dtype == torch.float32 and torch.is_autocast_enabled(device):
        narrow = torch.get_autocast_dtype(device)
        q, k, v = q.to(narrow), k.to(narrow), v.to(narrow)
    return Call(q, k, v, pattern, counts, layer, dropout)


def _counts(lengths: Tensor | Sequence[int] | None, batch: int, tokens: int) -> tuple[int, ...]:
    if lengths is None:
        return (tokens,) * batch
    if isinstance(lengths, Tensor):
        if lengths.is_floating_point() or lengths.dim() != 1:
            shape = tuple(lengths.shape)
            raise ValueError(f"lengths must be a vector of integers, got {lengths.dtype} of shape {shape}")
        lengths = lengths.tolist()
    counts = tuple(int(length) for length in lengths)
    if len(counts) != batch or not all(1 <= length <= tokens for length in counts):
        raise ValueError(f"lengths must be {batch} integers from 1 to {tokens}, got {list(counts)}")
    return counts
