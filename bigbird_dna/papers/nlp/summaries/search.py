"""Search for the best summary, greedy or with beams, with a cache of computed keys and values.

Results equal those of HuggingFace's `generate` for the same logits and settings. A document's summary does
not depend on the other documents of a call, up to rounding of the logits.

Shapes: B documents, N beams, R = B · N rows of summaries (rows of a document are adjacent), L tokens of a
document, T tokens of a summary so far (including the start), V vocabulary, D hidden width, H heads, K head
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
    """Projections of full attention: of a decoder layer to the document, or to its preceding tokens."""

    def __init__(self, hidden: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.attention_dropout = heads, dropout
        self.query = nn.Linear(hidden, hidden)
        self.key = nn.Linear(hidden, hidden)
        self.value = nn.Linear(hidden, hidden)
        self.output = nn.Linear(hidden, hidden)

    def keys_values(self, states: Tensor) -> KeysValues:
        """Return keys and values of states, (…, D) → (B, H, L, K) each."""
        return split(self.key(states), self.heads), split(
            self.value(states), self.heads
        )

    def to_document(
        self, x: Tensor, memory: KeysValues, present: Tensor | None
    ) -> Tensor:
        """Attend from rows x (R, T, D) to their documents; `present` (B, 1, 1, L) is true except for padding.

        Rows of one document use the same keys and values: they are handled as additional queries.
        """
        documents, each = len(memory[0]), len(x) // len(memory[0])
        q = split(self.query(x), self.heads)  # (R, H, T, K)
        q = (
            q.view(documents, each, *q.shape[1:]).transpose(1, 2).flatten(2, 3)
        )  # (B, H, R / B · T, K)
        dropout = self.attention_dropout if self.training else 0.0
        out = scaled_dot_product_attention(
            q, *memory, attn_mask=present, dropout_p=dropout
        )
        out = out.view(documents, self.heads, each, x.shape[1], -1).permute(
            0, 2, 3, 1, 4
        )  # (B, R / B, T, H, K)
        return self.output(out.reshape(x.shape))  # type: ignore[no-any-return]


@dataclass
class Cache:
    """Computed keys and values of documents, and of the summaries so far.

    `memory` has each layer's keys and values of documents (B, H, L, K), `past` those of the `tokens` tokens
    so far (R, H, T, K). `present` (B, 1, 1, L) is true except for padding, or None without padding.
    """

    memory: list[KeysValues]
    present: Tensor | None
    past: dict[int, KeysValues] = field(default_factory=dict)
    tokens: int = 0

    def attend(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, dropout: float
    ) -> Tensor:
        """Attend causally from new tokens (R, H, T, K) to themselves and the past; update it → (R, T, D)."""
        before = 0
        if layer in self.past:
            past_k, past_v = self.past[layer]
            before = past_k.shape[2]
            k, v = torch.cat([past_k, k], 2), torch.cat([past_v, v], 2)
        self.past[layer] = k, v
        new, mask = q.shape[2], None
        if new > 1 and before:
            mask = torch.ones(
                new, before + new, dtype=torch.bool, device=q.device
            ).tril(before)
        out = scaled_dot_product_attention(
            q, k, v, attn_mask=mask, dropout_p=dropout, is_causal=new > 1 and not before
        )
        return out.transpose(1, 2).flatten(2)  # (R, T, D)

    def reorder(self, rows: Tensor) -> None:
        """Continue from these rows (R,), each a row of the same document."""
        self.past = {layer: (k[rows], v[rows]) for layer, (k, v) in self.past.items()}


def split(x: Tensor, heads: int) -> Tensor:
    """(B, L, D) → (B, H, L, K)."""
    return x.view(*x.shape[:-1], heads, -1).transpose(1, 2)


FORBIDDEN = -torch.inf


def constrained(
    scores: Tensor, rows: Tensor, search: SearchConfig, special: SpecialIds
) -> Tensor:
    """Return scores (R, V) of the allowed continuations of the rows (R, T); others are minus infinity.

    Constraints in this order, as in HuggingFace: repetitions, the end before `min_length`, and a forced first
    or last token, whose score becomes 0.
    """
    tokens = rows.shape[1]
    if search.no_repeat:
        scores = _without_repetitions(scores, rows, search.no_repeat)
    if tokens < search.min_length:
        scores = scores.clone()
        scores[:, special.end] = FORBIDDEN
    for length, token in (
        (1, special.forced_first),
        (search.max_length - 1, special.forced_last),
    ):
        if tokens == length and token is not None:
            scores = torch.full_like(scores, FORBIDDEN)
            scores[:, token] = 0
    return scores


def _without_repetitions(scores: Tensor, rows: Tensor, size: int) -> Tensor:
    """Forbid tokens for which the last `size` tokens of a row would repeat earlier ones."""
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
"""Score of a missing summary: below that of any summary."""


class BeamDecoder(nn.Module):
    """An encoder of documents, and a decoder with logits of the next token; see `network`."""

    def encode(self, ids: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Encode documents (B, L), padded on the right, with lengths (B,) → (B, L, D)."""
        raise NotImplementedError

    def to_document(self) -> list[DecoderAttention]:
        """Return the decoder layers' attention to the document, from the first layer on."""
        raise NotImplementedError

    def begin(self, hidden: Tensor, lengths: Tensor | None = None) -> Cache:
        """Return the initial cache for decoding, from the output of `encode` (B, L, D)."""
        tokens, present = hidden.shape[1], None
        if lengths is not None and not bool((lengths == tokens).all()):
            places = torch.arange(tokens, device=hidden.device)
            present = (places < lengths.to(hidden.device)[:, None])[:, None, None]
        return Cache([part.keys_values(hidden) for part in self.to_document()], present)

    def decode(self, ids: Tensor, cache: Cache) -> Tensor:
        """Return logits (R, T, V) of the token after each of ids (R, T), which follow those in `cache`."""
        raise NotImplementedError

    def forward(self, ids: Tensor, lengths: Tensor | None, targets: Tensor) -> Tensor:
        """Return logits (B, T, V) of the token after each of the summaries' `targets` (B, T) in training."""
        return self.decode(targets, self.begin(self.encode(ids, lengths), lengths))


@torch.inference_mode()
def search_summaries(
    network: BeamDecoder,
    hidden: Tensor,
    lengths: Tensor | None,
    search: SearchConfig,
    special: SpecialIds,
) -> list[list[int]]:
    """Return the summary of each document, as token ids without the start; finished summaries end with `end`.

    `hidden` is the output of the network's encoder (B, L, D), `lengths` are the documents' true lengths (B,);
    None: no padding.
    """
    if search.max_length < 2 or not len(hidden):
        return [[] for _ in hidden]
    find = _greedy if search.beams == 1 else _beam_search
    begun = torch.full((len(hidden), 1), special.start, device=hidden.device)
    rows = find(network, network.begin(hidden, lengths), begun, search, special)
    found = (row[1:].tolist() for row in rows)
    return [
        ids[: ids.index(special.end) + 1] if special.end in ids else ids
        for ids in found
    ]


def _greedy(
    network: BeamDecoder,
    cache: Cache,
    rows: Tensor,
    search: SearchConfig,
    special: SpecialIds,
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
    """The best finished summaries of each document with their scores; empty places score `NOTHING`."""

    rows: Tensor  # (B, N, max_length)
    scores: Tensor  # (B, N), with the length penalty
    filled: Tensor  # (B, N)

    def add(self, rows: Tensor, scores: Tensor, ended: Tensor) -> None:
        """Add those of the rows (B, N, T + 1) that `ended` (B, N), and keep the best."""
        wide = self.rows.new_full((*rows.shape[:2], self.rows.shape[2]), 0)
        wide[:, :, : rows.shape[2]] = rows
        scores = torch.cat([self.scores, scores.masked_fill(~ended, NOTHING)], 1)
        self.scores, best = scores.topk(self.scores.shape[1])
        self.rows = torch.cat([self.rows, wide], 1).take_along_dim(best[..., None], 1)
        self.filled = torch.cat([self.filled, ended], 1).gather(1, best)


def _beam_search(
    network: BeamDecoder,
    cache: Cache,
    begun: Tensor,
    search: SearchConfig,
    special: SpecialIds,
) -> Tensor:
    """Return the best summary of each document, (B, max_length); tokens after its end are meaningless.

    Each step takes the 2 N best continuations of a document's beams. Those among the first N that end are
    finished summaries; the N best that do not end are the next beams. There are always enough, because a beam
    ends with a single token.
    """
    documents, beams, device = len(begun), search.beams, begun.device
    rows = begun[:, None].repeat(1, beams, 1)
    scores = torch.full((documents, beams), NOTHING, device=device)
    scores[:, 0] = 0  # otherwise all beams would be equal
    whole = _FinishedSummaries(
        rows.new_full((documents, beams, search.max_length), special.end),
        torch.full_like(scores, NOTHING),
        torch.zeros_like(scores, dtype=torch.bool),
    )
    closed = torch.zeros(
        documents, dtype=torch.bool, device=device
    )  # no improvement is possible
    while True:
        flat = rows.flatten(0, 1)  # (R, T)
        logits = network.decode(flat[:, -1:], cache)[:, -1].float()
        following = constrained(logits.log_softmax(-1), flat, search, special)
        totals = following.view(documents, beams, -1) + scores[..., None]  # (B, N, V)
        best, places = totals.flatten(1).topk(2 * beams)
        beam, token = places // following.shape[1], places % following.shape[1]
        candidates = torch.cat(
            [rows.take_along_dim(beam[..., None], 1), token[..., None]], 2
        )

        tokens = candidates.shape[2]
        ended = (token == special.end) | (tokens == search.max_length)
        # Add nothing to a document that cannot improve, or has enough summaries.
        full = closed | (whole.filled.all(1) & (search.early_stopping is True))
        penalized = best[:, :beams] / (tokens - 1) ** search.length_penalty
        whole.add(candidates[:, :beams], penalized, ended[:, :beams] & ~full[:, None])
        if tokens == search.max_length:
            break

        scores, going = best.masked_fill(ended, -torch.inf).topk(beams)
        rows = candidates.take_along_dim(going[..., None], 1)
        closed |= ~_can_improve(scores, whole, tokens, search)
        if bool(
            (closed | (whole.filled.all(1) & (search.early_stopping is True))).all()
        ):
            break
        origin = (
            beam.gather(1, going)
            + beams * torch.arange(documents, device=device)[:, None]
        )
        cache.reorder(origin.flatten())
    return whole.rows[:, 0]


def _can_improve(
    scores: Tensor, whole: _FinishedSummaries, tokens: int, search: SearchConfig
) -> Tensor:
    """Return whether the best open beam of a document may beat the worst of its finished summaries, (B,).

    A heuristic, as in the original libraries: the score at the current length; with `never`, and if length is
    rewarded, at the maximum length.
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
    """Yield the token ids of each document's summary, in order.

    Every document is encoded separately. On a CPU, its summary is also searched separately, so that no bit
    depends on other documents; on other devices, `batch_size` documents are searched together.
    """
    together = 1 if device.type == "cpu" else batch_size

    @torch.inference_mode()
    def one(ids: Ids) -> Tensor:
        return network.encode(torch.from_numpy(ids).long()[None].to(device))[0]

    with prepared(network, LONG):
        for start in range(0, len(documents), together):
            rows = [one(ids) for ids in documents[start : start + together]]
            lengths = (
                torch.tensor([len(row) for row in rows]) if len(rows) > 1 else None
            )
            hidden = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
            yield from search_summaries(network, hidden, lengths, search, special)
