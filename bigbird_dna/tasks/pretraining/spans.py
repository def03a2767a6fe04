"""Bits of stretches of bases under masked-token models, comparable between tokenizers.

Bits of hidden *tokens* depend on the tokenizer: pieces that stay visible tell where the hidden ones begin
and end, and small pieces have nearer neighbours. Here the same bases, a span, are hidden from every model,
and what is measured is the length of a code from which they can be told, given the known bases on both
sides. It is never less than −log2 of the probability that the model, used in this way, gives the span.

1. Left and right context are tokenised each by itself. The `margin` tokens of each that are next to the span
   are taken away. Their bases stay known: they and the span are tokenised together, as a text that goes on
   would be, since a piece seldom ends just where the span does. With a margin of 0 the span stands alone.
2. The number n of these tokens is coded by how often it was seen in other sequence, given their bases m.
3. n [MASK] stand between the contexts. Tokens are told one after the other, and put in: first those that
   begin in the known bases on the left, then those that end in the known bases on the right, then the others
   from left to right. Each is coded by the model's probabilities, as shares of what can still come: pieces of
   bases that agree with the known ones and leave a number of bases that the missing tokens can have.

A tokenizer of single bases pays nothing for 2 and for margins: there all follows from m and the known bases.

Shapes: N spans, n tokens and m bases of one's hidden stretch, P pieces made of bases, V vocabulary.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bigbird_dna.baselines.markov_counts import UNKNOWN
from bigbird_dna.console import progress
from bigbird_dna.errors import ModelError
from bigbird_dna.model.model import Model
from bigbird_dna.model.rows import run_rows
from bigbird_dna.tokens.interface import BASES, Tokenizer, require_dna

_TOGETHER = 256  # spans whose tokens are told in step
_UNSEEN = 0.5  # that each possible number of tokens is counted beyond how often it was seen

Ids = NDArray[np.int32]
Codes = NDArray[np.uint8]


class HiddenSpan(NamedTuple):
    """A span as a model is asked for it."""

    left: Ids  # visible tokens before
    ids: Ids  # (n,) hidden tokens
    right: Ids  # visible tokens behind
    known: Codes  # (m,) base codes of what is known of the hidden bases: `UNKNOWN` in the span
    start: int  # of the span among the m bases
    end: int

    @property
    def tokens(self) -> int:
        """Tokens of the input, [CLS] and [SEP] included."""
        return len(self.left) + len(self.ids) + len(self.right) + 2

    def tokens_of_span(self, tokenizer: Tokenizer) -> int:
        """Hidden tokens that hold a base of the span."""
        offsets = tokenizer.offsets(self.ids)
        return int(((offsets[:-1] < self.end) & (offsets[1:] > self.start)).sum())


class Step(NamedTuple):
    """The next token to be told: its number, the tokens that are missing with it, and the bases they have."""

    number: int
    missing: int
    start: int
    end: int
    from_left: bool  # the token begins at `start`; else it ends at `end`


class Pieces:
    """The pieces of a vocabulary that are made of bases, and what can be made of them."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.ids = np.asarray(tokenizer.base_ids)  # (P,) ascending
        self.lengths = tokenizer.piece_lengths[self.ids].astype(np.int64)  # (P,)
        self.longest = int(self.lengths.max(initial=0))
        # (P, longest) base codes, at the beginning and at the end of their row.
        self._first = np.full((len(self.ids), self.longest), UNKNOWN, np.uint8)
        self._last = self._first.copy()
        for row, index in enumerate(self.ids.tolist()):
            letters = tokenizer.decode([index])
            codes = [BASES.index(letter) for letter in letters]
            self._first[row, : len(codes)] = codes
            self._last[row, self.longest - len(codes) :] = codes
        self._reached: NDArray[np.bool_] = np.zeros((0, 0), np.bool_)

    def reached(self, bases: int) -> NDArray[np.bool_]:
        """Whether so many pieces (rows) can have so many bases (columns), up to `bases` each or more."""
        if len(self._reached) <= bases:
            size = bases + 1
            found = np.zeros((size, size), np.bool_)
            found[0, 0] = True
            lengths = np.unique(self.lengths[self.lengths < size]).tolist()
            for count in range(1, size):
                for length in lengths:
                    found[count, length:] |= found[count - 1, : size - length]
            self._reached = found
        return self._reached

    def allowed(self, step: Step, known: Codes) -> NDArray[np.bool_]:
        """(P,) whether a piece can be the next token, given codes (m,) of the known bases."""
        room = step.end - step.start
        fits = self.lengths <= room
        rest = np.where(fits, room - self.lengths, 0)
        fits &= self.reached(len(known))[step.missing - 1, rest]
        around = np.full(self.longest, UNKNOWN, np.uint8)
        if step.from_left:
            told = known[step.start : min(step.start + self.longest, step.end)]
            around[: len(told)] = told
            pieces = self._first
        else:
            told = known[max(step.end - self.longest, step.start) : step.end]
            around[self.longest - len(told) :] = told
            pieces = self._last
        if (told != UNKNOWN).any():
            fits &= ((around == UNKNOWN) | (pieces == UNKNOWN) | (pieces == around)).all(1)
        return fits


def hide_spans(tokenizer: Tokenizer, windows: Sequence[str], context: int, margin: int) -> list[HiddenSpan]:
    """Spans of known bases with `context` bp on both sides, as inputs; see this module's text.

    Parameters
    ----------
    windows : bases A C G T of contexts and span, each longer than 2 · `context`.
    margin : tokens of each context that are tokenised anew with the span.

    Raises
    ------
    ModelError
        The tokenizer is one of ordinary text, or has no piece for a base.
    """
    require_dna(tokenizer)
    lefts = tokenizer.encode_batch([window[:context] for window in windows])
    rights = tokenizer.encode_batch([window[len(window) - context :] for window in windows])
    kept = [left[: max(len(left) - margin, 0)] for left in lefts]
    firsts = [int(tokenizer.offsets(left)[-1]) for left in kept]
    lasts = [
        len(window) - context + int(tokenizer.offsets(right[:margin])[-1])
        for window, right in zip(windows, rights, strict=True)
    ]
    middles = [window[first:last] for window, first, last in zip(windows, firsts, lasts, strict=True)]
    spans = []
    for number, ids in enumerate(tokenizer.encode_batch(middles)):
        if not np.isin(ids, tokenizer.base_ids).all():
            raise ModelError(f"{tokenizer.source}: has no piece for a base of {middles[number]}")
        start = context - firsts[number]
        end = start + len(windows[number]) - 2 * context
        known = np.array([BASES.index(letter) for letter in middles[number]], np.uint8)
        known[start:end] = UNKNOWN
        spans.append(HiddenSpan(kept[number], ids, rights[number][margin:], known, start, end))
    return spans


class TokenCounts:
    """Bits of the number of hidden tokens given their bases, from how often it was seen elsewhere."""

    def __init__(self, pieces: Pieces, seen: Sequence[HiddenSpan]) -> None:
        self._pieces = pieces
        self._pairs = Counter((len(span.known), len(span.ids)) for span in seen)
        self._bases = Counter(len(span.known) for span in seen)

    def bits(self, tokens: int, bases: int) -> float:
        """−log2 of the probability that so many bases are so many tokens."""
        possible = int(self._pieces.reached(bases)[:, bases].sum())
        share = self._pairs[bases, tokens] + _UNSEEN
        return float(np.log2((self._bases[bases] + _UNSEEN * possible) / share))


@dataclass
class _Filling:
    """The tokens of a span as far as they are told."""

    span: HiddenSpan
    offsets: NDArray[np.int64]  # (n + 1,) bases before each hidden token
    low: int  # hidden tokens told from the left
    high: int  # those from this number on are told from the right

    def next(self) -> Step | None:
        """What is told next; None: nothing is missing. It follows from known bases and told tokens alone."""
        if self.low == self.high:
            return None
        start, end = int(self.offsets[self.low]), int(self.offsets[self.high])
        from_left = start < self.span.start or end <= self.span.end
        number = self.low if from_left else self.high - 1
        return Step(number, self.high - self.low, start, end, from_left)

    def tell(self, step: Step) -> None:
        """Put the token in."""
        if step.from_left:
            self.low += 1
        else:
            self.high -= 1

    def row(self, tokenizer: Tokenizer) -> Ids:
        """[CLS] left, told tokens and [MASK], right [SEP]."""
        hidden = self.span.ids.copy()
        hidden[self.low : self.high] = tokenizer.mask_id
        ends = [tokenizer.cls_id], [tokenizer.sep_id]
        return np.concatenate([ends[0], self.span.left, hidden, self.span.right, ends[1]]).astype(np.int32)


def span_bits(
    model: Model, spans: Sequence[HiddenSpan], counts: TokenCounts, pieces: Pieces, device: torch.device
) -> NDArray[np.float64]:
    """Code lengths (N,) of spans under a pretrained model; see this module's text.

    What a span's is depends on no other span. On a CPU the network runs one input at a time, else calls of
    like lengths. Inputs must be no longer than the model takes.
    """
    bits = np.array([counts.bits(len(span.ids), len(span.known)) for span in spans])
    order = sorted(range(len(spans)), key=lambda number: (len(spans[number].ids), spans[number].tokens))
    network = model.network.to(device).eval()

    def told() -> Iterator[int]:
        for first in range(0, len(order), _TOGETHER):
            chosen = order[first : first + _TOGETHER]
            bits[chosen] += _told_together(model, network, [spans[n] for n in chosen], pieces, device)
            yield from chosen

    for _ in progress(told(), model.name, len(spans), "spans"):
        pass
    return bits


def _told_together(
    model: Model, network: torch.nn.Module, spans: Sequence[HiddenSpan], pieces: Pieces, device: torch.device
) -> NDArray[np.float64]:
    """Bits (N,) of the tokens of spans, told in step."""
    tokenizer = model.tokenizer
    bits = np.zeros(len(spans))
    fillings = [
        _Filling(span, tokenizer.offsets(span.ids).astype(np.int64), 0, len(span.ids)) for span in spans
    ]
    while True:
        asked: list[tuple[int, Step, NDArray[np.bool_]]] = []
        for number, filling in enumerate(fillings):
            while (step := filling.next()) is not None:
                allowed = pieces.allowed(step, filling.span.known)
                if allowed.sum() > 1:
                    asked.append((number, step, allowed))
                    break
                filling.tell(step)  # nothing else can stand there
        if not asked:
            return bits
        rows = [fillings[number].row(tokenizer) for number, _, _ in asked]
        places = torch.tensor([1 + len(spans[number].left) + step.number for number, step, _ in asked])

        def run(ids: Tensor, lengths: Tensor, chosen: NDArray[np.intp], places: Tensor = places) -> Tensor:
            flat = torch.arange(len(ids)) * ids.shape[1] + places[torch.from_numpy(chosen)]
            logits: Tensor = network(ids, lengths, None, flat.to(ids.device)).tokens
            return logits

        scores = run_rows(
            network, rows, run, pad_id=tokenizer.pad_id, batch_size=_TOGETHER, device=device
        )  # (rows, V)
        for (number, step, allowed), logits in zip(asked, scores, strict=True):
            own = logits[spans[number].ids[step.number]]
            among = logits[pieces.ids[allowed]].astype(np.float64)
            bits[number] += np.logaddexp.reduce(among - own) / np.log(2)
            fillings[number].tell(step)
