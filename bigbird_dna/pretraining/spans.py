"""Models with any tokenizers on the same bases.

What Markov models over bases make of spans, from the sequence of contigs: no tokenizer has a say.

Where spans are hidden: stretches of known bases with known bases around, drawn the same for all models.

The probability of a few bases given those on both sides under a masked-token model of any tokenizer.

Bits of hidden *tokens* can't be compared between tokenizers: pieces that stay visible tell where the hidden
ones begin and end, and small pieces have nearer neighbours. Bits of the same hidden bases, a span, can:

    P(span | both sides) = s(span) / Σ_y s(y), over all 4 ** L spans y of as many bases

s(y) is what the model gives the window, context + y + context, tokenised as a whole, as in training. Visible
are the tokens at both ends that the windows of all y have in common. They hold no base of the span; mostly
some bases beside it are hidden with it, the same for all y, so that what they cost cancels. The n tokens
between are [MASK] first, and are told from left to right:

    s(y) = Π_i p(token i | visible tokens, hidden tokens before i, n − i + 1 times [MASK])

p is the model's softmax over the pieces that are made of bases. n may differ between windows; no factor is
needed for it, as far as text n tokens apart is independent. So a model that knows all about the source of
bases and about its tokenizer gives the true bits, whatever the tokenizer is.

Shapes: N spans, 4 ** L windows of each, n hidden tokens of a window, R inputs, P pieces, V vocabulary.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bigbird_dna.baselines.language import BASES_BOTH, BASES_LEFT, CHOOSING_BASES
from bigbird_dna.baselines.markov import LARGEST_ORDER, Markov
from bigbird_dna.baselines.tokens import evenly
from bigbird_dna.console import log, progress
from bigbird_dna.errors import ModelError
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import UNKNOWN, Interval
from bigbird_dna.metrics.resampling import BLOCK_BASES
from bigbird_dna.model.batching import run_rows
from bigbird_dna.model.model import LoadedModel
from bigbird_dna.tokens.interface import BASES, Tokenizer, require_dna

STRETCH = 10_000  # bp; each tenth one chooses
CHOOSING_SHARE = 10

Codes = NDArray[np.uint8]  # A 0, C 1, G 2, T 3, N 4
Windows = Codes  # (N, context + span + context)
Bits = NDArray[np.float64]


def parts(contigs: Sequence[Codes], *, choosing: bool) -> list[Codes]:
    """Stretches of contigs: each tenth one, from the first on, or all others."""
    stretches = [
        contig[start : start + STRETCH] for contig in contigs for start in range(0, len(contig), STRETCH)
    ]
    return [part for number, part in enumerate(stretches) if (number % CHOOSING_SHARE == 0) == choosing]


class SpanBaselines(NamedTuple):
    """Markov models of orders that are chosen."""

    markov: Markov
    orders: dict[str, int]  # by predictor

    def bits(self, windows: Windows, context: int) -> dict[str, Bits]:
        """Bits (N,) of the spans in the middle of windows, by predictor: given the left context, or both."""
        return {
            name: _bits(self.markov, windows, context, order, both=name == BASES_BOTH)
            for name, order in self.orders.items()
        }


def fit_span_baselines(contigs: Sequence[Codes], choosing: Windows, context: int) -> SpanBaselines:
    """Learn from contigs, both strands; strengths and orders are chosen on a tenth of them.

    The tenth is left out of the counts while strengths and orders are chosen, and counted in the end. No
    order is tried whose contexts would outnumber the bases many times.

    Parameters
    ----------
    contigs : base codes; at least one stretch of `parts` that chooses, and one that doesn't.
    choosing : windows of `parts(contigs, choosing=True)` whose spans orders are chosen on.

    Raises
    ------
    ValueError : there is nothing to learn from, or to choose on.
    """
    if not len(choosing):
        raise ValueError("orders are chosen on at least one span")
    kept, chosen = parts(contigs, choosing=False), parts(contigs, choosing=True)
    size = sum(map(len, contigs))
    order = min(LARGEST_ORDER, (size.bit_length() - 1) // 2 + 2)  # 4 ** order is at most 16 times the size
    log(f"Markov models over bases: counting in {size:,} bases")
    markov = Markov(order).fit(kept)
    markov.mix(chosen[index] for index in evenly(len(chosen), CHOOSING_BASES / sum(map(len, chosen))))
    orders = {}
    for name, both in ((BASES_LEFT, False), (BASES_BOTH, True)):
        tried = progress(range(order + 1), "orders of Markov models", order + 1)
        orders[name] = int(np.argmin([_bits(markov, choosing, context, k, both=both).sum() for k in tried]))
    log("Markov models: " + ", ".join(f"{name}: order {k}" for name, k in orders.items()))
    whole = Markov(order).fit(contigs).smooth(markov.strengths)
    return SpanBaselines(whole, orders)


def _bits(markov: Markov, windows: Windows, context: int, order: int, *, both: bool) -> Bits:
    """Bits (N,) of the middle of windows; an N behind each ends what is known."""
    if not len(windows):
        return np.zeros(0)
    apart = np.pad(windows, ((0, 0), (0, 1)), constant_values=UNKNOWN)
    starts = np.arange(len(windows)) * apart.shape[1] + context
    ends = starts + windows.shape[1] - 2 * context
    judge = markov.two_sided if both else markov.one_sided
    return judge(apart.ravel(), starts, ends, order)


_LETTERS = np.frombuffer(b"ACGTN", np.uint8)
_CODES = np.full(256, UNKNOWN, np.uint8)
_CODES[_LETTERS] = range(5)


class Drawn(NamedTuple):
    """Places of spans of one length, N of them, with `context` known bases on both sides."""

    windows: Codes  # (N, context + span + context)
    blocks: NDArray[np.int64]  # (N,) number of the block of `BLOCK_BASES` bp that a span begins in
    context: int
    possible: int  # how many could be drawn at most

    def texts(self) -> list[str]:
        """The windows as letters."""
        return [_LETTERS[window].tobytes().decode() for window in self.windows]

    @property
    def span(self) -> int:
        """Bases of a span."""
        return int(self.windows.shape[1]) - 2 * self.context


def read_contig(reference: Reference, contig: str) -> Codes:
    """Base codes of a contig."""
    text = reference.fetch(Interval(contig, 0, reference.contigs[contig]))
    return _CODES[np.frombuffer(text.encode(), np.uint8)]


def draw_spans(
    contigs: Sequence[Codes], *, span: int, context: int, count: int, seed: tuple[int, ...]
) -> Drawn:
    """At most `count` spans, no two of which share a base; every such choice is as likely.

    What is drawn follows from the arguments alone; spans are in the contigs' order.
    """
    rng = np.random.default_rng(seed)
    width = 2 * context + span
    starts = [_window_starts(codes, width) for codes in contigs]  # of windows without an N
    ends = np.cumsum([len(one) for one in starts])
    total = int(ends[-1]) if len(ends) else 0
    # As many places as are free when each drawn one takes `span`; drawn ones are spread by what others take.
    possible = (total + span - 1) // span
    drawn = min(count, possible)
    free = total - (drawn - 1) * (span - 1) if drawn else 0
    chosen = np.sort(rng.choice(free, drawn, replace=False)) if drawn else np.zeros(0, np.int64)
    chosen = chosen + np.arange(drawn) * (span - 1)
    windows = np.zeros((drawn, width), np.uint8)
    blocks = np.zeros(drawn, np.int64)
    done, first_block = 0, 0
    for codes, own, end in zip(contigs, starts, ends.tolist(), strict=True):
        here = own[chosen[done : np.searchsorted(chosen, end)] - (end - len(own))]
        part = slice(done, done + len(here))
        windows[part] = codes[here[:, None] + np.arange(width)]
        blocks[part] = first_block + (here + context) // BLOCK_BASES
        done += len(here)
        first_block += len(codes) // BLOCK_BASES + 1
    return Drawn(windows, blocks, context, possible)


def _window_starts(codes: Codes, width: int) -> NDArray[np.int64]:
    """Starts of the stretches of `width` known bases, ascending."""
    if len(codes) < width:
        return np.zeros(0, np.int64)
    unknown = np.append(0, np.cumsum(codes == UNKNOWN))
    return np.flatnonzero(unknown[width:] == unknown[:-width])


LONGEST_SPAN = 5  # bp: each base more takes four times as long, and as much memory
_INPUTS = 512  # run together, about: their scores are held at once

Ids = NDArray[np.int32]


class HiddenSpan(NamedTuple):
    """A span as a model is asked for it."""

    left: Ids  # visible tokens before
    right: Ids  # visible tokens behind
    hidden: list[Ids]  # the tokens between, for each of the 4 ** L spans
    own: int  # which of them is the true one

    @property
    def tokens(self) -> int:
        """Tokens of the longest input, [CLS] and [SEP] included."""
        return len(self.left) + max(map(len, self.hidden)) + len(self.right) + 2


def hide_spans(tokenizer: Tokenizer, windows: Iterable[str], context: int) -> Iterator[HiddenSpan]:
    """Spans of known bases with `context` bp on both sides, as a model is asked for them.

    Parameters
    ----------
    windows : bases A C G T of context, span and context.

    Raises
    ------
    ModelError
        The tokenizer is one of ordinary text, or has no piece for a base.
    """
    require_dna(tokenizer)
    for window in windows:
        before, span, behind = window[:context], window[context:-context], window[len(window) - context :]
        every = ["".join(letters) for letters in product(BASES, repeat=len(span))]
        rows = tokenizer.encode_batch([before + letters + behind for letters in every])
        low = min(_alike(rows[0], row) for row in rows)
        high = min(_alike(rows[0][::-1], row[::-1]) for row in rows)
        hidden = [row[low : len(row) - high] for row in rows]
        if not np.isin(np.concatenate(hidden), tokenizer.base_ids).all():
            raise ModelError(f"{tokenizer.source}: has no piece for a base of {window}")
        yield HiddenSpan(rows[0][:low], rows[0][len(rows[0]) - high :], hidden, every.index(span))


def _alike(one: Ids, other: Ids) -> int:
    """How many tokens two rows have in common at their beginning."""
    size = min(len(one), len(other))
    differ = np.flatnonzero(one[:size] != other[:size])
    return int(differ[0]) if len(differ) else size


class _SpanQuestion(NamedTuple):
    """What a model is asked: the token behind told ones, when so many in all are hidden."""

    hidden: int
    told: tuple[int, ...]


class _Sheet:
    """The inputs of a span: one for each different beginning of its windows' hidden tokens."""

    def __init__(self, span: HiddenSpan) -> None:
        self.span = span
        self.numbers: dict[_SpanQuestion, int] = {}
        self._asked = []  # by window and token, (input, token)
        for ids in span.hidden:
            tokens = tuple(ids.tolist())
            for index, token in enumerate(tokens):
                number = self.numbers.setdefault(
                    _SpanQuestion(len(tokens), tokens[:index]), len(self.numbers)
                )
                self._asked.append((number, token))
        self._first = np.cumsum([0, *map(len, span.hidden[:-1])])

    def rows(self, tokenizer: Tokenizer) -> list[Ids]:
        """[CLS] left, told tokens and [MASK], right [SEP]."""
        left = np.concatenate([[tokenizer.cls_id], self.span.left])
        right = np.concatenate([self.span.right, [tokenizer.sep_id]])
        return [
            np.concatenate([left, told, [tokenizer.mask_id] * (hidden - len(told)), right]).astype(np.int32)
            for hidden, told in self.numbers
        ]

    def places(self) -> list[int]:
        """Where each input has the token that is asked for."""
        return [1 + len(self.span.left) + len(question.told) for question in self.numbers]

    def bits(self, scores: NDArray[np.float32]) -> float:
        """Bits of the true span, from log-probabilities (R, V) of its inputs' tokens."""
        inputs, tokens = np.array(self._asked).T
        windows = np.add.reduceat(scores[inputs, tokens].astype(np.float64), self._first)
        return float((np.logaddexp.reduce(windows) - windows[self.span.own]) / np.log(2))


def span_bits(model: LoadedModel, spans: Sequence[HiddenSpan], device: torch.device) -> NDArray[np.float64]:
    """Bits (N,) of spans under a pretrained model; see this module's text.

    What a span's are depends on no other span. On a CPU the network runs one input at a time, else calls of
    like lengths. Inputs must be no longer than the model takes.

    Raises
    ------
    ModelError
        The model's predictions are not finite.
    """
    network = model.network.to(device).eval()
    tokenizer = model.tokenizer
    pieces = torch.from_numpy(np.array(tokenizer.base_ids, np.int64)).to(device)

    def judged() -> Iterator[float]:
        for sheets in _together(spans):
            places = torch.tensor([place for sheet in sheets for place in sheet.places()])

            def run(
                ids: Tensor, lengths: Tensor, chosen: NDArray[np.intp], places: Tensor = places
            ) -> Tensor:
                flat = torch.arange(len(ids)) * ids.shape[1] + places[torch.from_numpy(chosen)]
                logits: Tensor = network(ids, lengths, None, flat.to(ids.device)).tokens.float()  # (B, V)
                return logits - logits[:, pieces].logsumexp(1, keepdim=True)

            rows = [row for sheet in sheets for row in sheet.rows(tokenizer)]
            scores = run_rows(network, rows, run, pad_id=tokenizer.pad_id, batch_size=_INPUTS, device=device)
            if np.isnan(scores).any():
                raise ModelError(f"{model.name}: its predictions are not finite")
            ends = np.cumsum([len(sheet.numbers) for sheet in sheets])
            for sheet, part in zip(sheets, np.split(scores, ends[:-1]), strict=True):
                yield sheet.bits(part)

    return np.fromiter(progress(judged(), model.name, len(spans), "spans"), np.float64, len(spans))


def _together(spans: Sequence[HiddenSpan]) -> Iterator[list[_Sheet]]:
    """Spans with some hundred inputs in all."""
    sheets: list[_Sheet] = []
    size = 0
    for span in spans:
        sheets.append(_Sheet(span))
        size += len(sheets[-1].numbers)
        if size >= _INPUTS:
            yield sheets
            sheets, size = [], 0
    if sheets:
        yield sheets
