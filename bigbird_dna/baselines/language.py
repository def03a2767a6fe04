"""Baselines of the language model on hidden tokens, for comparison with masked or causal language models.

All are evaluated on the same hidden tokens, in bits for the bases of each token. They have the same input as
a masked-token model: hidden tokens are unknown to each other, and contexts end at the nearest one. For a
causal model, the baselines have every token, or base, to the left within the document, which is more than a
causal model's input contains. Orders, strengths and exponents are chosen on hidden validation tokens: if
these are also the evaluated ones, this favors the baselines.
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
    MaskedTokens,
    TokenModels,
    evenly,
    fit_token_models,
    left_bits,
)
from bigbird_dna.console import log, progress
from bigbird_dna.data.predictions import UNIFORM
from bigbird_dna.genome.sequence import UNKNOWN, base_codes
from bigbird_dna.tokens.interface import Tokenizer

Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]

UNIGRAM = "unigram tokens"
TOKENS_LEFT = "token n-gram, from the left"
TOKENS_BOTH = "token n-gram, both sides"
BASES_LEFT = "Markov over bases, from the left"
BASES_BOTH = "Markov over bases, both sides"
PREDICTORS = (UNIFORM, UNIGRAM, TOKENS_LEFT, TOKENS_BOTH, BASES_LEFT, BASES_BOTH)

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


def base_bits(
    markov: Markov,
    token_bases: DocumentBases,
    held_out: MaskedTokens,
    order: int,
    *,
    both: bool,
    seen: bool,
    chosen: Ints | None = None,
) -> Floats:
    """Bits (M,) of the bases of hidden tokens, all or the `chosen` ones, ascending, from the left or given both
    sides; `seen`: hidden bases to the left are known."""
    bits, done = [np.zeros(0)], 0
    for spans in token_bases.batches(*held_out):
        rows = np.arange(len(spans.starts))
        if chosen is not None:
            rows = chosen[(chosen >= done) & (chosen < done + len(rows))] - done
        done += len(spans.starts)
        before, behind = None, None
        if not seen:
            before, behind = (gaps[rows] for gaps in spans.apart())
        where = spans.codes, spans.starts[rows], spans.ends[rows], order, before
        if both:
            bits.append(markov.two_sided(*where, behind))
        else:
            bits.append(markov.one_sided(*where))
    return np.concatenate(bits)


@dataclass(frozen=True)
class LanguageBaselines:
    """Fitted predictors, created by `fit_language_baselines`."""

    tokens: TokenModels
    markov: Markov
    token_bases: DocumentBases
    orders: dict[
        bool, int
    ]  # of the Markov models from the left (False), and of both sides
    causal: bool

    def evaluate(self, held_out: MaskedTokens) -> MaskedTokenBits:
        """Bits of hidden tokens."""
        none = np.zeros(0, np.int64)
        tokens = [text[positions] for text, positions in zip(*held_out, strict=True)]
        lengths = self.token_bases.lengths[np.concatenate([none, *tokens])]
        left, both, unigram = self.tokens
        bits = {
            UNIFORM: 2.0 * lengths,
            UNIGRAM: left_bits(unigram, held_out, seen=True),
            TOKENS_LEFT: left_bits(left, held_out, seen=self.causal),
        }
        notes = {
            UNIFORM: "2 bits per base",
            UNIGRAM: "token frequencies",
            TOKENS_LEFT: f"Kneser–Ney, order {left.order}",
        }
        if both is not None:
            bits[TOKENS_BOTH] = both.bits(both.look_up(held_out))
            exponents = ", ".join(f"{value:.2f}" for value in both.exponents[-1])
            notes[TOKENS_BOTH] = (
                f"Kneser–Ney, order {both.order}, exponents {exponents}".replace(
                    "-", "−"
                )
            )
        strands = "both strands" if self.markov.both_strands else "one strand"
        for sides, order in self.orders.items():
            name = BASES_BOTH if sides else BASES_LEFT
            bits[name] = base_bits(
                self.markov,
                self.token_bases,
                held_out,
                order,
                both=sides,
                seen=self.causal,
            )
            notes[name] = f"order {order}, {strands}"
        return MaskedTokenBits(bits, lengths, notes)


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

    N-grams are fitted to at most `tokens.MOST_TOKENS`, Markov models, whose tables have a fixed size, to all.
    `token_order` and `base_order` (0 to 12) are the maximum orders; the second one is lower for few
    documents. With `both_strands`, Markov models also count the reverse complement of the documents; n-grams
    over tokens need documents of both strands instead. For a `causal` model, all baselines use only the left
    context.

    `ValueError` if there is no training token, or no hidden validation token.
    """
    hidden = sum(map(len, validation.hidden))
    if not hidden:
        what = "validation" if causal else "hidden validation"
        raise ValueError(f"baselines need at least one {what} token")
    chosen = np.asarray(evenly(hidden, CHOOSING_TOKENS / hidden))
    tokens = fit_token_models(
        training, validation, chosen, tokenizer, token_order, causal
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
    orders = {}
    for both in (False,) if causal else (False, True):
        bits = []
        for order in progress(range(base_order + 1), "orders of Markov models"):
            some = base_bits(
                markov,
                token_bases,
                validation,
                order,
                both=both,
                seen=causal,
                chosen=chosen,
            )
            bits.append(some.sum())
        orders[both] = int(np.argmin(bits))
    return LanguageBaselines(tokens, markov, token_bases, orders, causal)
