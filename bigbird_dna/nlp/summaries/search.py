"""Search for the best summary: the likeliest token each time, or beams, with a cache.

What is found equals what HuggingFace's `generate` finds for the same logits and settings. A document's
summary doesn't depend on the other documents of a call, up to the rounding of the logits.

Shapes: B documents, N beams, R = B · N rows, T tokens so far (the start included), V vocabulary.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from bigbird_dna.nlp.summaries.constraints import constrained
from bigbird_dna.nlp.summaries.decoding import Cache
from bigbird_dna.nlp.summaries.settings import SearchConfig, SpecialIds

NOTHING = -1e9
"""The score of a summary that isn't there: below that of any summary."""


class Decoder(Protocol):
    """What makes logits of the next token; both forms of a summariser do."""

    def begin(self, hidden: Tensor, lengths: Tensor | None) -> Cache:
        """Get ready to decode documents (B, L, D) of these lengths (B,)."""

    def decode(self, ids: Tensor, cache: Cache) -> Tensor:
        """Logits (R, T, V) of what follows each of the tokens (R, T) that follow those in the cache."""


@torch.inference_mode()
def search_summaries(
    network: Decoder, hidden: Tensor, lengths: Tensor | None, search: SearchConfig, special: SpecialIds
) -> list[list[int]]:
    """The summary of each document, as token ids without the start; one that came to its end has `end` last.

    Parameters
    ----------
    hidden
        What the network's encoder gave, (B, L, D).
    lengths
        True lengths of the documents (B,); None: no padding.
    """
    if search.max_length < 2 or not len(hidden):
        return [[] for _ in hidden]
    find = _greedy if search.beams == 1 else _beam_search
    rows = find(network, network.begin(hidden, lengths), len(hidden), search, special)
    return [_cut(row[1:].tolist(), special.end) for row in rows]


def _cut(ids: list[int], end: int) -> list[int]:
    return ids[: ids.index(end) + 1] if end in ids else ids


def _greedy(
    network: Decoder, cache: Cache, documents: int, search: SearchConfig, special: SpecialIds
) -> Tensor:
    rows = torch.full((documents, 1), special.start, device=_device(cache))
    done = torch.zeros(documents, dtype=torch.bool, device=rows.device)
    while rows.shape[1] < search.max_length and not done.all():
        logits = network.decode(rows[:, -1:], cache)[:, -1].float()
        token = constrained(logits, rows, search, special).argmax(-1)
        token = token.masked_fill(done, special.pad)
        rows = torch.cat([rows, token[:, None]], 1)
        done |= token == special.end
    return rows


@dataclass
class _Whole:
    """The best whole summaries of each document, by their scores; places without one score `NOTHING`."""

    rows: Tensor  # (B, N, max_length)
    scores: Tensor  # (B, N), with the length penalty
    filled: Tensor  # (B, N)

    def add(self, rows: Tensor, scores: Tensor, ended: Tensor) -> None:
        """Keep the best of these (B, N, T + 1) too, where they `ended` (B, N)."""
        wide = self.rows.new_full((*rows.shape[:2], self.rows.shape[2]), 0)
        wide[:, :, : rows.shape[2]] = rows
        scores = torch.cat([self.scores, scores.masked_fill(~ended, NOTHING)], 1)
        self.scores, best = scores.topk(self.scores.shape[1])
        self.rows = torch.cat([self.rows, wide], 1).take_along_dim(best[..., None], 1)
        self.filled = torch.cat([self.filled, ended], 1).gather(1, best)


def _beam_search(
    network: Decoder, cache: Cache, documents: int, search: SearchConfig, special: SpecialIds
) -> Tensor:
    """(B, max_length): the best summary of each document, what stands behind its end meaning nothing.

    Each step takes the 2 N best continuations of a document's beams. Those of the first N that end are whole
    summaries; the N best that don't end are the next beams. There are always so many, as no beam ends in more
    than one way.
    """
    beams, device = search.beams, _device(cache)
    rows = torch.full((documents, beams, 1), special.start, device=device)
    scores = torch.full((documents, beams), NOTHING, device=device)
    scores[:, 0] = 0  # else all beams would be the same
    whole = _Whole(
        rows.new_full((documents, beams, search.max_length), special.end),
        torch.full_like(scores, NOTHING),
        torch.zeros_like(scores, dtype=torch.bool),
    )
    closed = torch.zeros(documents, dtype=torch.bool, device=device)  # nothing better can come
    while True:
        flat = rows.flatten(0, 1)  # (R, T)
        logits = network.decode(flat[:, -1:], cache)[:, -1].float()
        following = constrained(logits.log_softmax(-1), flat, search, special)
        totals = following.view(documents, beams, -1) + scores[..., None]  # (B, N, V)
        best, places = totals.flatten(1).topk(2 * beams)
        beam, token = places // following.shape[1], places % following.shape[1]
        candidates = torch.cat([rows.take_along_dim(beam[..., None], 1), token[..., None]], 2)

        tokens = candidates.shape[2]
        ended = (token == special.end) | (tokens == search.max_length)
        # Of a document that nothing better can come of, or that has enough, none is added.
        full = closed | (whole.filled.all(1) & (search.early_stopping is True))
        penalised = best[:, :beams] / (tokens - 1) ** search.length_penalty
        whole.add(candidates[:, :beams], penalised, ended[:, :beams] & ~full[:, None])
        if tokens == search.max_length:
            break

        scores, going = best.masked_fill(ended, -torch.inf).topk(beams)
        rows = candidates.take_along_dim(going[..., None], 1)
        closed |= ~_can_improve(scores, whole, tokens, search)
        if bool((closed | (whole.filled.all(1) & (search.early_stopping is True))).all()):
            break
        origin = beam.gather(1, going) + beams * torch.arange(documents, device=device)[:, None]
        cache.reorder(origin.flatten())
    return whole.rows[:, 0]


def _can_improve(scores: Tensor, whole: _Whole, tokens: int, search: SearchConfig) -> Tensor:
    """Whether the best open beam of a document may beat the worst of its whole summaries, (B,).

    A guess, as published with the libraries that beams were first used in: the score that it would have at
    its present length; with `never`, where length is rewarded, at the greatest.
    """
    rewarded = search.early_stopping == "never" and search.length_penalty > 0
    length = (search.max_length if rewarded else tokens) - 1
    hoped = scores[:, 0] / length**search.length_penalty
    worst = whole.scores.min(1).values.masked_fill(~whole.filled.all(1), NOTHING)
    return torch.gt(hoped, worst)


def _device(cache: Cache) -> torch.device:
    return cache.memory[0][0].device
