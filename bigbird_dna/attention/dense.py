"""The reference implementation: all scores, a mask and an explicit softmax, one sequence at a time.

Nothing here is fast. Every other route must agree with it in value and in gradient. `effective_matrix` gives
the matrix that any mechanism multiplies values by.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import dropout as drop
from torch.nn.functional import pad

from bigbird_dna.attention.call import Call
from bigbird_dna.attention.relative import label_ids, relative_scores

# Axes: B batch, H heads, L tokens, K head width.


def dense_attention(call: Call) -> Tensor:
    """softmax(QKᵀ / √K + ln counts) V over the pairs that the pattern allows, (B, H, L, K).

    Each row of the batch is cut to its true length first, so that it can't depend on padding or on other
    rows. The softmax is taken in the precision of `q`. Dropout acts on the probabilities and draws from
    torch's global generator.
    """
    q, k, v, pattern, lengths, layer, dropout, relative = call
    heads, tokens, width = q.shape[1:]
    rows = []
    for row, length in enumerate(lengths):
        query, key, value = (x[row, :, :length] for x in (q, k, v))
        # HuggingFace's graph is that of the padded length; its padded keys are hidden all the same.
        graph = tokens if pattern.huggingface else length
        counts = torch.from_numpy(pattern.counts(graph, heads, layer)[:, :length, :length])
        scores = query @ key.transpose(1, 2)  # (H, L, L)
        if relative is not None:
            places = torch.arange(length, device=q.device)
            owners = None if relative.owners is None else relative.owners[row : row + 1]
            labels = label_ids(places, places, relative.radius, pattern.num_global_tokens, owners)
            scores = scores + relative_scores(query[None], relative.table, labels[:, None])[0]
        scores = scores * width**-0.5 + counts.to(q).log()
        weights = drop(torch.softmax(scores, dim=-1), p=dropout)
        rows.append(pad(weights.to(value.dtype) @ value, (0, 0, 0, tokens - length)))
    return torch.stack(rows)


Attend = Callable[[Tensor, Tensor, Tensor], Tensor]


def effective_matrix(attend: Attend, q: Tensor, k: Tensor) -> Tensor:
    """A with out = A v, (B, H, L, K) twice → (B, H, L, L), for an attention that is linear in v.

    `attend(q, k, v)` is called ⌈L / K⌉ times, with as many columns of the identity matrix as v has room for.
    For pictures and tests: it takes the room of all pairs.
    """
    tokens, width = q.shape[2:]
    columns = []
    for start in range(0, tokens, width):
        v = torch.zeros_like(q)
        count = min(width, tokens - start)
        v[:, :, torch.arange(start, start + count), torch.arange(count)] = 1
        columns.append(attend(q, k, v)[..., :count])
    return torch.cat(columns, -1)
