"""Checked arguments of an attention call, relative positions, and the reference implementation.

A route is a function of a `Call`. It computes softmax(QKᵀ / √K) V over the call's pattern, (B, H, L, K):
equal to `dense_attention` up to rounding, and zero at positions from a row's length on. Routes based on the
pattern's blocks ("blocked", "flex") accept only rows with equal numbers of blocks.
"""

from collections.abc import Container, Sequence
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import dropout as drop
from torch.nn.functional import pad

from bigbird_dna.attention.pattern import Pattern

# Relative position labels of the ETC paper: learned key vectors that add relative positions to the scores.
# The score of query i and key j becomes q_i · (k_j + a_label(i, j)) / √K. Two sequence tokens, or two extra
# global tokens, are labeled by their clipped distance. A sequence token and an extra global token are labeled
# by whether the global token owns the sequence token. Each of the four cases has separate labels.
# Axes: B batch, H heads, M queries, N keys, R labels, K head width, L tokens.


class RelativeKeys(NamedTuple):
    """Learned relative positions for `bigbird_attention`.

    `table` (H, R, K) contains one key vector per label, R = `label_count(radius)`; distances beyond `radius`
    tokens use the label of the radius. `owners` (B, L) is the index of the extra global token that owns each
    position; -1 means no owner, as at the extra global tokens themselves. None means no owners at all.
    """

    table: Tensor
    radius: int
    owners: Tensor | None = None


def label_count(radius: int) -> int:
    """Number of labels: distances among tokens and among extra globals, and 2 × (own, other) between."""
    return 2 * (2 * radius + 1) + 4


def label_ids(
    queries: Tensor,
    keys: Tensor,
    radius: int,
    num_global_tokens: int,
    owners: Tensor | None,
) -> Tensor:
    """Labels (B or 1, …, M, N) of positions `queries` (…, M) against `keys` (…, N). Positions below
    `num_global_tokens` are extra global tokens; the leading dimension is that of `owners`."""
    distances = 2 * radius + 1
    query = queries[..., :, None]
    key = keys[..., None, :]
    labels = (key - query).clamp(-radius, radius) + radius
    if not num_global_tokens:
        return labels[None]

    query_extra = query < num_global_tokens
    key_extra = key < num_global_tokens
    labels = torch.where(query_extra & key_extra, labels + distances, labels)[None]
    if owners is None:
        owned_key = owned_query = labels.new_zeros((), dtype=torch.bool)
    else:
        owned_key = (
            owners[:, queries][..., :, None] == key
        )  # the query's global is the key
        owned_query = owners[:, keys][..., None, :] == query

    labels = torch.where(
        ~query_extra & key_extra, 2 * distances + owned_key.long(), labels
    )
    return torch.where(
        query_extra & ~key_extra, 2 * distances + 2 + owned_query.long(), labels
    )


def relative_scores(query: Tensor, table: Tensor, labels: Tensor) -> Tensor:
    """q · a, not yet divided by √K: (B, H, …, M, K), (H, R, K) and labels (B or 1, H or 1, …, M, N) → (B, H,
    …, M, N)."""
    batch, heads = query.shape[:2]
    by_label = torch.matmul(
        query.flatten(2, -2), table.transpose(1, 2)
    )  # (B, H, …·M, R)
    by_label = by_label.view(*query.shape[:-1], table.shape[1])
    labels = labels.expand(batch, heads, *labels.shape[2:])
    return by_label.gather(-1, labels)


def token_owners(lengths: Tensor | None, batch: int, tokens: int, extra: int) -> Tensor:
    """Owners of tokens, (B, extra + L): each sequence is divided evenly and in order among `extra` global
    tokens; -1 for extra global tokens and padding."""
    ends = torch.full((batch,), tokens, device="cpu") if lengths is None else lengths
    positions = torch.arange(tokens, device="cpu").expand(batch, -1)
    owners = (positions * extra // ends[:, None]).masked_fill(
        positions >= ends[:, None], -1
    )
    return pad(owners, (extra, 0), value=-1)


# Axes: B batch, H heads, L input tokens, N tokens of the longest sequence, K head width.


class Call(NamedTuple):
    """Arguments of one attention call; the public functions document and check them."""

    q: Tensor  # (B, H, L, K); k and v have its shape, type and device
    k: Tensor
    v: Tensor
    pattern: Pattern
    lengths: tuple[int, ...]  # (B,) true lengths, tokens
    layer: int = 0
    dropout: float = 0.0
    relative: RelativeKeys | None = None

    @property
    def gradients(self) -> bool:
        """Whether a backward pass may follow."""
        return torch.is_grad_enabled() and (
            self.q.requires_grad or self.k.requires_grad or self.v.requires_grad
        )

    def find_limit(self, route: str, types: Container[torch.dtype]) -> str | None:
        """Reason why a route limited to `types`, without dropout and relative positions, cannot serve it."""
        if self.dropout:
            return f"{route} does not support dropout"
        if self.relative is not None:
            return f"{route} does not support relative positions"
        if self.q.dtype not in types:
            name = str(self.q.dtype).removeprefix("torch.")
            return f"{route} does not support {name}"
        return None

    def take(self, rows: list[int]) -> "Call":
        """The call for selected rows of the batch."""
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
        """The call without padding common to all rows."""
        longest = max(self.lengths, default=self.q.shape[2])
        q, k, v = (x[:, :, :longest] for x in (self.q, self.k, self.v))
        return self._replace(q=q, k=k, v=v)

    def uncut(self, out: Tensor) -> Tensor:
        """Convert the output (B, H, N, K) of the call from `cut` to (B, H, L, K), zero at padding."""
        tokens = self.q.shape[2]
        longest = out.shape[2]
        if any(length < longest for length in self.lengths):
            real = real_positions(self.lengths, longest, out.device)
            out = out.masked_fill(~real[:, None, :, None], 0)
        return pad(out, (0, 0, 0, tokens - longest)) if longest < tokens else out


@lru_cache(maxsize=64)
@torch.inference_mode(
    False
)  # tensors cached during evaluation must also work in training
def real_positions(
    lengths: tuple[int, ...], tokens: int, device: torch.device
) -> Tensor:
    """(B, N), true before the end of each sequence; cached because all encoder layers use it."""
    return torch.arange(tokens, device=device) < numbers_on(device, lengths)[:, None]


def numbers_on(
    device: torch.device, numbers: Sequence[int], dtype: torch.dtype | None = None
) -> Tensor:
    """Integers on a device, copied without making the host wait for the device's pending work."""
    return copied(
        torch.tensor(numbers, dtype=dtype or torch.int64, device="cpu"), device
    )


def copied(x: Tensor, device: torch.device) -> Tensor:
    """A tensor on a device, copied without waiting for a GPU."""
    return x.to(device, non_blocking=device.type != "cpu")


def checked_call(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    pattern: Pattern,
    lengths: Tensor | Sequence[int] | None,
    layer: int,
    dropout: float,
) -> Call:
    """Return the validated call, cast to the autocast type if enabled; `ValueError` for invalid arguments."""
    if q.dim() != 4 or not q.shape == k.shape == v.shape or 0 in q.shape[1:]:
        shapes = ", ".join(str(tuple(x.shape)) for x in (q, k, v))
        raise ValueError(
            f"q, k, v must have one shape (batch, heads, tokens, width), got {shapes}"
        )

    if not q.is_floating_point() or not q.dtype == k.dtype == v.dtype:
        raise ValueError(
            f"q, k, v must have one floating type, got {q.dtype}, {k.dtype} and {v.dtype}"
        )

    if layer < 0:
        raise ValueError(f"layer must not be negative, got {layer}")

    if not 0 <= dropout < 1:
        raise ValueError(f"dropout must be at least 0 and below 1, got {dropout}")

    batch, _, tokens, _ = q.shape
    if lengths is None:
        lengths = [tokens] * batch
    elif isinstance(lengths, Tensor):
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
        q = q.to(narrow)
        k = k.to(narrow)
        v = v.to(narrow)

    return Call(q, k, v, pattern, counts, layer, dropout)


# The reference implementation: all scores, a mask and an explicit softmax, one sequence at a time. It is
# slow; every other route must agree with it in values and gradients.


def dense_attention(call: Call) -> Tensor:
    """Compute softmax(QKᵀ / √K + ln counts) V over the pairs that the pattern allows, (B, H, L, K).

    Each row of the batch is first cut to its true length, so it cannot depend on padding or other rows. The
    softmax is computed in the precision of `q`. Dropout applies to the probabilities and draws from torch's
    global generator.
    """
    q, k, v, pattern, lengths, layer, dropout, relative = call
    heads, tokens, width = q.shape[1:]
    rows = []
    for row, length in enumerate(lengths):
        query, key, value = (x[row, :, :length] for x in (q, k, v))
        # HuggingFace's graph is that of the padded length; padded keys are hidden nevertheless.
        graph = tokens if pattern.huggingface else length
        counts = torch.from_numpy(
            pattern.counts(graph, heads, layer)[:, :length, :length]
        )
        scores = query @ key.transpose(1, 2)  # (H, L, L)
        if relative is not None:
            positions = torch.arange(length, device=q.device)
            owners = None if relative.owners is None else relative.owners[row : row + 1]
            labels = label_ids(
                positions, positions, relative.radius, pattern.num_global_tokens, owners
            )
            scores = (
                scores
                + relative_scores(query[None], relative.table, labels[:, None])[0]
            )

        scores = scores * width**-0.5 + counts.to(q).log()
        weights = drop(torch.softmax(scores, dim=-1), p=dropout)
        rows.append(pad(weights.to(value.dtype) @ value, (0, 0, 0, tokens - length)))

    return torch.stack(rows)
