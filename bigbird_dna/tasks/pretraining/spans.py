"""The probability of a few bases given those on both sides under a masked-token model of any tokenizer.

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

from bigbird_dna.console import progress
from bigbird_dna.errors import ModelError
from bigbird_dna.model.model import Model
from bigbird_dna.model.rows import run_rows
from bigbird_dna.tokens.interface import BASES, Tokenizer, require_dna

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


class _Question(NamedTuple):
    """What a model is asked: the token behind told ones, when so many in all are hidden."""

    hidden: int
    told: tuple[int, ...]


class _Sheet:
    """The inputs of a span: one for each different beginning of its windows' hidden tokens."""

    def __init__(self, span: HiddenSpan) -> None:
        self.span = span
        self.numbers: dict[_Question, int] = {}
        self._asked = []  # by window and token, (input, token)
        for ids in span.hidden:
            tokens = tuple(ids.tolist())
            for index, token in enumerate(tokens):
                number = self.numbers.setdefault(_Question(len(tokens), tokens[:index]), len(self.numbers))
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


def span_bits(model: Model, spans: Sequence[HiddenSpan], device: torch.device) -> NDArray[np.float64]:
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
