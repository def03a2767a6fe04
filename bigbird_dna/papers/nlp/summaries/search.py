"""Search for the best summary: the likeliest token each time, or beams, with a cache of what is computed.

What is found equals what HuggingFace's `generate` finds for the same logits and settings. A document's
summary doesn't depend on the other documents of a call, up to the rounding of the logits.

Shapes: B documents, N beams, R = B · N rows of summaries (one document's side by side), L tokens of a
document, T tokens of a summary so far (the start included), V vocabulary, D hidden width, H heads, K head
width.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from bigbird_dna.model.batching import LONG
from bigbird_dna.model.inference import prepared
from bigbird_dna.papers.nlp.config import SearchConfig, SpecialIds

Ids = NDArray[np.int32]
KeysValues = tuple[Tensor, Tensor]


class DecoderAttention(nn.Module):
    """The projections of full attention: of a decoder's layer to the document, or to its own past."""

    def __init__(self, hidden: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.attention_dropout = heads, dropout
        self.query = nn.Linear(hidden, hidden)
        self.key = nn.Linear(hidden, hidden)
        self.value = nn.Linear(hidden, hidden)
        self.output = nn.Linear(hidden, hidden)

    def keys_values(self, states: Tensor) -> KeysValues:
        """What is attended to, (…, D) → (B, H, L, K) each."""
        return split(self.key(states), self.heads), split(self.value(states), self.heads)

    def to_document(self, x: Tensor, memory: KeysValues, present: Tensor | None) -> Tensor:
        """Attend from rows x (R, T, D) to their documents; `present` (B, 1, 1, L) says what isn't padding.

        Rows of one document share its keys and values: they are taken as that many more queries.
        """
        documents, each = len(memory[0]), len(x) // len(memory[0])
        q = split(self.query(x), self.heads)  # (R, H, T, K)
        q = q.view(documents, each, *q.shape[1:]).transpose(1, 2).flatten(2, 3)  # (B, H, R / B · T, K)
        dropout = self.attention_dropout if self.training else 0.0
        out = scaled_dot_product_attention(q, *memory, attn_mask=present, dropout_p=dropout)
        out = out.view(documents, self.heads, each, x.shape[1], -1).permute(
            0, 2, 3, 1, 4
        )  # (B, R / B, T, H, K)
        return self.output(out.reshape(x.shape))  # type: ignore[no-any-return]


@dataclass
class Cache:
    """What has been computed of documents, and of the summaries so far.

    `memory` holds each layer's keys and values of the documents (B, H, L, K), `present` what of them isn't
    padding (B, 1, 1, L), None for all; `past` each layer's of the `tokens` tokens before (R, H, T, K).
    """

    memory: list[KeysValues]
    present: Tensor | None
    past: dict[int, KeysValues] = field(default_factory=dict)
    tokens: int = 0

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, dropout: float) -> Tensor:
        """Causal attention of new tokens (R, H, T, K) to themselves and the past → (R, T, D); keeps them."""
        before = 0
        if layer in self.past:
            past_k, past_v = self.past[layer]
            before = past_k.shape[2]
            k, v = torch.cat([past_k, k], 2), torch.cat([past_v, v], 2)
        self.past[layer] = k, v
        new, mask = q.shape[2], None
        if new > 1 and before:
            mask = torch.ones(new, before + new, dtype=torch.bool, device=q.device).tril(before)
        out = scaled_dot_product_attention(
            q, k, v, attn_mask=mask, dropout_p=dropout, is_causal=new > 1 and not before
        )
        return out.transpose(1, 2).flatten(2)  # (R, T, D)

    def reorder(self, rows: Tensor) -> None:
        """Go on from these rows (R,), each one of the same document's."""
        self.past = {layer: (k[rows], v[rows]) for layer, (k, v) in self.past.items()}


def split(x: Tensor, heads: int) -> Tensor:
    """(B, L, D) → (B, H, L, K)."""
    return x.view(*x.shape[:-1], heads, -1).transpose(1, 2)


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
        scores = scores.clone()
        scores[:, special.end] = FORBIDDEN
    for length, token in ((1, special.forced_first), (search.max_length - 1, special.forced_last)):
        if tokens == length and token is not None:
            scores = torch.full_like(scores, FORBIDDEN)
            scores[:, token] = 0
    return scores


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


NOTHING = -1e9
"""The score of a summary that isn't there: below that of any summary."""


class BeamDecoder(nn.Module):
    """An encoder of documents, and a decoder that makes logits of the next token; see `network`."""

    def encode(self, ids: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Documents' ids (B, L), padded on the right, of these lengths (B,) → (B, L, D)."""
        raise NotImplementedError

    def to_document(self) -> list[DecoderAttention]:
        """The decoder layers' attention to the document, the first one's first."""
        raise NotImplementedError

    def begin(self, hidden: Tensor, lengths: Tensor | None = None) -> Cache:
        """Get ready to decode, from what `encode` gave (B, L, D)."""
        tokens, present = hidden.shape[1], None
        if lengths is not None and not bool((lengths == tokens).all()):
            places = torch.arange(tokens, device=hidden.device)
            present = (places < lengths.to(hidden.device)[:, None])[:, None, None]
        return Cache([part.keys_values(hidden) for part in self.to_document()], present)

    def decode(self, ids: Tensor, cache: Cache) -> Tensor:
        """Logits (R, T, V) of what follows each of the tokens ids (R, T), which follow those in `cache`."""
        raise NotImplementedError

    def forward(self, ids: Tensor, lengths: Tensor | None, targets: Tensor) -> Tensor:
        """Logits (B, T, V) of what follows each token of the summaries' `targets` (B, T); for training."""
        return self.decode(targets, self.begin(self.encode(ids, lengths), lengths))


@torch.inference_mode()
def search_summaries(
    network: BeamDecoder, hidden: Tensor, lengths: Tensor | None, search: SearchConfig, special: SpecialIds
) -> list[list[int]]:
    """The summary of each document, as token ids without the start; one that came to its end has `end` last.

    `hidden` is what the network's encoder gave (B, L, D), `lengths` the documents' true ones (B,); None: no
    padding.
    """
    if search.max_length < 2 or not len(hidden):
        return [[] for _ in hidden]
    find = _greedy if search.beams == 1 else _beam_search
    begun = torch.full((len(hidden), 1), special.start, device=hidden.device)
    rows = find(network, network.begin(hidden, lengths), begun, search, special)
    found = (row[1:].tolist() for row in rows)
    return [ids[: ids.index(special.end) + 1] if special.end in ids else ids for ids in found]


def _greedy(
    network: BeamDecoder, cache: Cache, rows: Tensor, search: SearchConfig, special: SpecialIds
) -> Tensor:
    done = torch.zeros(len(rows), dtype=torch.bool, device=rows.device)
    while rows.shape[1] < search.max_length and not done.all():
        logits = network.decode(rows[:, -1:], cache)[:, -1].float()
        token = constrained(logits, rows, search, special).argmax(-1)
        token = token.masked_fill(done, special.pad)
        rows = torch.cat([rows, token[:, None]], 1)
        done |= token == special.end
    return rows


@dataclass
class _FinishedSummaries:
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
    network: BeamDecoder, cache: Cache, begun: Tensor, search: SearchConfig, special: SpecialIds
) -> Tensor:
    """(B, max_length): the best summary of each document, what stands behind its end meaning nothing.

    Each step takes the 2 N best continuations of a document's beams. Those of the first N that end are whole
    summaries; the N best that don't end are the next beams. There are always so many, as no beam ends in more
    than one way.
    """
    documents, beams, device = len(begun), search.beams, begun.device
    rows = begun[:, None].repeat(1, beams, 1)
    scores = torch.full((documents, beams), NOTHING, device=device)
    scores[:, 0] = 0  # else all beams would be the same
    whole = _FinishedSummaries(
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


def _can_improve(scores: Tensor, whole: _FinishedSummaries, tokens: int, search: SearchConfig) -> Tensor:
    """Whether the best open beam of a document may beat the worst of its whole summaries, (B,).

    A guess, as published with the libraries that beams were first used in: the score that it would have at
    its present length; with `never`, where length is rewarded, at the greatest.
    """
    rewarded = search.early_stopping == "never" and search.length_penalty > 0
    length = (search.max_length if rewarded else tokens) - 1
    hoped = scores[:, 0] / length**search.length_penalty
    worst = whole.scores.min(1).values.masked_fill(~whole.filled.all(1), NOTHING)
    return torch.gt(hoped, worst)


def summarize(
    network: BeamDecoder,
    documents: Sequence[Ids],
    search: SearchConfig,
    special: SpecialIds,
    device: torch.device,
    batch_size: int,
) -> Iterator[list[int]]:
    """Token ids of each document's summary, in their order.

    Every document is encoded by itself. On a CPU its summary is searched for by itself too, so that no bit
    depends on other documents; elsewhere those of `batch_size` documents are, side by side.
    """
    together = 1 if device.type == "cpu" else batch_size

    @torch.inference_mode()
    def one(ids: Ids) -> Tensor:
        return network.encode(torch.from_numpy(ids).long()[None].to(device))[0]

    with prepared(network, LONG):
        for start in range(0, len(documents), together):
            rows = [one(ids) for ids in documents[start : start + together]]
            lengths = torch.tensor([len(row) for row in rows]) if len(rows) > 1 else None
            hidden = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
            yield from search_summaries(network, hidden, lengths, search, special)
