"""Relative position labels of the ETC paper: what stands where, learned, as a part of the scores.

The score of query i and key j becomes q_i · (k_j + a_label(i, j)) / √K. Two tokens of the sequence, and two
extra globals, have their clipped distance as label; a token and an extra global have one for whether
the token is among those that the global stands for. Each of the four cases has labels of its own.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

# Axes: B batch, H heads, M queries, N keys, R labels, K head width, L tokens.


class RelativeKeys(NamedTuple):
    """What `bigbird_attention` needs to know about relative positions.

    `table` (H, R, K) holds a key vector for each label, R = `label_count(radius)`; distances beyond `radius`
    tokens share the label of the radius. `owners` (B, L) has for each position which extra global stands for
    it (-1: none, and at the extra globals themselves); none: no token has one.
    """

    table: Tensor
    radius: int
    owners: Tensor | None = None


def label_count(radius: int) -> int:
    """Number of labels: distances among tokens, among extra globals, and twice (own, other) between."""
    return 2 * (2 * radius + 1) + 4


def label_ids(
    queries: Tensor, keys: Tensor, radius: int, num_global_tokens: int, owners: Tensor | None
) -> Tensor:
    """Labels (B or 1, …, M, N) of positions `queries` (…, M) against positions `keys` (…, N).

    Positions below `num_global_tokens` are extra globals. The leading dimension is that of `owners`.
    """
    distances = 2 * radius + 1
    query, key = queries[..., :, None], keys[..., None, :]
    labels = (key - query).clamp(-radius, radius) + radius
    if not num_global_tokens:
        return labels[None]
    query_extra, key_extra = query < num_global_tokens, key < num_global_tokens
    labels = torch.where(query_extra & key_extra, labels + distances, labels)[None]
    if owners is None:
        owned_key = owned_query = labels.new_zeros((), dtype=torch.bool)
    else:
        owned_key = owners[:, queries][..., :, None] == key  # the query's global is the key
        owned_query = owners[:, keys][..., None, :] == query
    labels = torch.where(~query_extra & key_extra, 2 * distances + owned_key.long(), labels)
    return torch.where(query_extra & ~key_extra, 2 * distances + 2 + owned_query.long(), labels)


def relative_scores(query: Tensor, table: Tensor, labels: Tensor) -> Tensor:
    """q · a, not yet divided by √K: (B, H, …, M, K) and (H, R, K) → (B, H, …, M, N).

    `labels` are (B or 1, H or 1, …, M, N).
    """
    batch, heads = query.shape[:2]
    by_label = torch.matmul(query.flatten(2, -2), table.transpose(1, 2))  # (B, H, …·M, R)
    by_label = by_label.view(*query.shape[:-1], table.shape[1])
    labels = labels.expand(batch, heads, *labels.shape[2:])
    return by_label.gather(-1, labels)


def token_owners(lengths: Tensor | None, batch: int, tokens: int, extra: int) -> Tensor:
    """Which of `extra` globals stands for each token: (B, extra + L), -1 for extra globals and padding.

    As ETC has one for each sentence, a sequence is divided evenly among them, in order.
    """
    ends = torch.full((batch,), tokens) if lengths is None else lengths
    places = torch.arange(tokens).expand(batch, -1)
    owners = (places * extra // ends[:, None]).masked_fill(places >= ends[:, None], -1)
    return pad(owners, (extra, 0), value=-1)
