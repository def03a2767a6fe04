"""Tokens that may not follow, by the lengths that are asked for and by what a summary already says.

Shapes: R rows, T tokens so far (the start included), V vocabulary.
"""

import torch
from torch import Tensor

from bigbird_dna.nlp.summaries.settings import SearchConfig, SpecialIds

FORBIDDEN = -torch.inf


def constrained(scores: Tensor, rows: Tensor, search: SearchConfig, special: SpecialIds) -> Tensor:
    """Scores (R, V) of what may follow each of the rows (R, T); the others' are minus infinity.

    In this order, as HuggingFace's: repetitions, the end before `min_length`, then the first or last token
    where one is forced, whose score becomes 0.
    """
    tokens = rows.shape[1]
    if search.no_repeat:
        scores = _without_repetitions(scores, rows, search.no_repeat)
    if tokens < search.min_length:
        scores = scores.index_fill(1, torch.tensor([special.end], device=scores.device), FORBIDDEN)
    if tokens == 1 and special.forced_first is not None:
        scores = _only(scores, special.forced_first)
    if tokens == search.max_length - 1 and special.forced_last is not None:
        scores = _only(scores, special.forced_last)
    return scores


def _only(scores: Tensor, token: int) -> Tensor:
    forced = torch.full_like(scores, FORBIDDEN)
    forced[:, token] = 0
    return forced


def _without_repetitions(scores: Tensor, rows: Tensor, size: int) -> Tensor:
    """Forbid what would make the last `size` tokens of a row the same as some earlier ones."""
    tokens = rows.shape[1]
    if tokens < size:
        return scores
    last = rows[:, tokens - size + 1 :]  # (R, size - 1)
    earlier = rows.unfold(1, size, 1)  # (R, T - size + 1, size)
    row, place = (earlier[..., :-1] == last[:, None]).all(-1).nonzero(as_tuple=True)
    scores = scores.clone()
    scores[row, earlier[row, place, -1]] = FORBIDDEN
    return scores
