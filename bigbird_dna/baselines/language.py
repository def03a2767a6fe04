"""Baselines of the language model on hidden tokens, for comparison with masked or causal language models.

All are evaluated on the same hidden tokens, in bits for the bases of each token. Those with a plain name have
the same input as a masked-token model: hidden tokens are unknown to each other, and contexts end at the
nearest one. Those marked as one at a time have all tokens except the one in question, as if a masked-token
model had one hidden token at a time. For a causal model, the baselines have every token, or base, to the left
within the document, which is more than a causal model's input contains. Orders, strengths and exponents are
chosen on hidden validation tokens: if these are also the evaluated ones, this favors the baselines.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.baselines.markov import LARGEST_ORDER, Markov
from bigbird_dna.baselines.ngram import Floats, Tokens
from bigbird_dna.baselines.tokens import (
    LEFT,
    VIEWS,
    MaskedTokens,
    Product,
    TokenModels,
    View,
    evenly,
    fit_token_models,
    token_bits,
)
from bigbird_dna.console import log, progress
from bigbird_dna.data.predictions import ONE_AT_A_TIME, UNIFORM
from bigbird_dna.genome.sequence import UNKNOWN, base_codes
from bigbird_dna.tokens.interface import Tokenizer

Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]

UNIGRAM = "unigram tokens"
TOKENS_LEFT = "token n-gram, from the left"
TOKENS_BOTH = "token n-gram, both sides"
BASES_LEFT = "Markov over bases, from the left"
BASES_BOTH = "Markov over bases, both sides"
PREDICTORS = (
    UNIFORM,
    UNIGRAM,
    *(
        name + rest
        for rest in ("", ONE_AT_A_TIME)
        for name in (TOKENS_LEFT, TOKENS_BOTH, BASES_LEFT, BASES_BOTH)
    ),
)
LEFT_PREDICTORS = (UNIFORM, UNIGRAM, TOKENS_LEFT, BASES_LEFT)

# Evenly spaced hidden validation tokens for choosing orders and exponents, and bases for choosing strengths.
CHOOSING_TOKENS = 4000
CHOOSING_BASES = 5_000_000
BATCH = 1 << 22  # bases of concatenated documents


class MaskedTokenBits(NamedTuple):
    """Bits of hidden tokens, document by document."""

    bits: dict[str, Floats]  # by predictor, (M,)
    bases: Ints  # (M,) bases covered by each token
    notes: dict[str, str]  # by predictor, the chosen parameters


class HiddenSpans(NamedTuple):
    """The bases of documents, separated by N, and the spans covered by hidden tokens."""

    codes: Bytes  # A 0, C 1, G 2, T 3, N 4
    starts: Ints  # (M,) ascending
    ends: Ints  # (M,)

    def apart(self) -> tuple[Ints, Ints]:
        """Bases between each span and the previous one, and the next one, (M,) each."""
        if not len(self.starts):
            return self.starts, self.ends
        gaps = self.starts[1:] - self.ends[:-1]
        size = len(self.codes)
        return np.append(size, gaps), np.append(gaps, size)


class DocumentBases:
    """Conversion of token ids to base codes."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.lengths = tokenizer.piece_lengths.astype(np.int64)  # (V,)
        covering = np.flatnonzero(self.lengths)
        texts = [tokenizer.decode([index]) for index in covering.tolist()]
        self._codes = base_codes("".join(texts))
        self._starts = np.cumsum(self.lengths) - self.lengths

    def codes(self, document: Tokens) -> Bytes:
        """Return the base codes of a document, (bases,)."""
        lengths = self.lengths[document]
        ends = np.cumsum(lengths)
        where = np.repeat(self._starts[document] - ends + lengths, lengths)
        return self._codes[where + np.arange(len(where))]

    def batches(
        self, documents: Sequence[Tokens], hidden: Iterable[Tokens]
    ) -> Iterator[HiddenSpans]:
        """Concatenated documents, a few megabases at a time, with the spans of their hidden tokens."""
        parts: list[HiddenSpans] = []
        size = 0
        for document, positions in zip(documents, hidden, strict=True):
            ends = np.cumsum(self.lengths[document])
            codes = np.append(self.codes(document), np.uint8(UNKNOWN))
            starts = size + (ends - self.lengths[document])[positions]
            parts.append(HiddenSpans(codes, starts, size + ends[positions]))
            size += len(codes)
            if size >= BATCH:
                yield HiddenSpans(*map(np.concatenate, zip(*parts, strict=True)))
                parts, size = [], 0
        if parts:
            yield HiddenSpans(*map(np.concatenate, zip(*parts, strict=True)))


class BaseModel(NamedTuple):
    """A Markov model over bases for the spans of hidden tokens."""

    markov: Markov
    token_bases: DocumentBases

    def bits(
        self,
        held_out: MaskedTokens,
        order: int,
        view: View,
        chosen: NDArray[np.integer] | None = None,
    ) -> Floats:
        """Bits (M,) of all hidden tokens, or of the `chosen` ones, ascending."""
        seen, both = view
        bits, done = [np.zeros(0)], 0
        for spans in self.token_bases.batches(*held_out):
            rows: Tokens = np.arange(len(spans.starts))
            if chosen is not None:
                rows = chosen[(chosen >= done) & (chosen < done + len(rows))] - done
            done += len(spans.starts)
            before, behind = (None, None)
            if not seen:
                before, behind = (gaps[rows] for gaps in spans.apart())
            starts, ends = spans.starts[rows], spans.ends[rows]
            where = spans.codes, starts, ends, order, before
            if both:
                bits.append(self.markov.two_sided(*where, behind))
            else:
                bits.append(self.markov.one_sided(*where))
        return np.concatenate(bits)


@dataclass(frozen=True)
class LanguageBaselines:
    """Fitted predictors, created by `fit_language_baselines`."""

    tokens: TokenModels
    bases: BaseModel
    base_orders: dict[View, int]

    def evaluate(self, held_out: MaskedTokens) -> MaskedTokenBits:
        """Bits of hidden tokens."""
        none = np.zeros(0, np.int64)
        tokens = [text[positions] for text, positions in zip(*held_out, strict=True)]
        lengths = self.bases.token_bases.lengths[np.concatenate([none, *tokens])]
        bits = {
            UNIFORM: 2.0 * lengths,
            UNIGRAM: token_bits(self.tokens.unigram, held_out, seen=True),
        }
        notes = {UNIFORM: "2 bits per base", UNIGRAM: "token frequencies"}
        strands = "both strands" if self.bases.markov.both_strands else "one strand"
        for view, order in self.base_orders.items():
            seen, both = view
            end = ONE_AT_A_TIME if seen and len(self.base_orders) > 1 else ""
            name = (TOKENS_BOTH if both else TOKENS_LEFT) + end
            bits[name] = self.tokens.bits(held_out, view)
            notes[name] = self._token_note(view)
            name = (BASES_BOTH if both else BASES_LEFT) + end
            bits[name] = self.bases.bits(held_out, order, view)
            notes[name] = f"order {order}, {strands}"
        names = PREDICTORS if len(self.base_orders) > 1 else LEFT_PREDICTORS
        return MaskedTokenBits({name: bits[name] for name in names}, lengths, notes)

    def _token_note(self, view: View) -> str:
        model = self.tokens.best[view]
        note = f"Kneser–Ney, order {model.order}"
        if isinstance(model, Product):
            exponents = ", ".join(f"{value:.2f}" for value in model.exponents[-1])
            note += f", exponents {exponents}".replace("-", "−")
        return note


def fit_language_baselines(
    training: Sequence[Tokens],
    validation: MaskedTokens,
    tokenizer: Tokenizer,
    *,
    token_order: int = 6,
    base_order: int = LARGEST_ORDER,
    both_strands: bool = True,
    causal: bool = False,
) -> LanguageBaselines:
    """Fit n-grams over tokens and Markov models over bases to documents, and choose their parameters.

    N-grams are fitted to at most `tokens.MOST_TOKENS`, Markov models, whose tables have a fixed size, to all. `token_order` and `base_order` (0 to 12) are
    the maximum orders; the second one is lower for few documents. With `both_strands`, Markov models also
    count the reverse complement of the documents; n-grams over tokens need documents of both strands instead.
    For a `causal` model, all baselines use only the left context.

    `ValueError` if there is no training token, or no hidden validation token.
    """
    hidden = sum(map(len, validation.hidden))
    if not hidden:
        what = "validation" if causal else "hidden validation"
        raise ValueError(f"baselines need at least one {what} token")
    views = (LEFT,) if causal else VIEWS
    chosen = np.asarray(evenly(hidden, CHOOSING_TOKENS / hidden))
    tokens = fit_token_models(
        training, validation, chosen, tokenizer, token_order, views
    )
    token_bases = DocumentBases(tokenizer)
    # Longer contexts are nearly all different, and their tables large.
    bases = sum(map(len, training)) * int(token_bases.lengths.max())
    base_order = min(base_order, math.ceil(math.log(bases, 4)) + 1)
    log(f"Markov models over bases: counting in {len(training):,} documents")
    markov = Markov(base_order, both_strands=both_strands)
    documents = progress(training, "counting bases", len(training), "documents")
    markov.fit(map(token_bases.codes, documents))
    texts = [text for text, hide in zip(*validation, strict=True) if len(hide)]
    size = sum(int(token_bases.lengths[text].sum()) for text in texts)
    sampled = evenly(len(texts), CHOOSING_BASES / size)
    markov.mix(token_bases.codes(texts[index]) for index in sampled)
    model = BaseModel(markov, token_bases)
    orders = {}
    for view in views:
        tried = progress(range(base_order + 1), "orders of Markov models")
        bits = [model.bits(validation, order, view, chosen).sum() for order in tried]
        orders[view] = int(np.argmin(bits))
    return LanguageBaselines(tokens, model, orders)
