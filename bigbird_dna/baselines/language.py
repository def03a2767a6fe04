"""Baselines of the language model on masked tokens.

What simple predictors know of hidden tokens: the rivals that a masked-token model has to beat.

All are judged on the same hidden tokens, in bits for the bases of each. Those of a plain name see what a
masked-token model sees: no hidden token tells of another, and contexts end at the nearest one. Those that are
"told the rest" see every token but the one in question, as a masked-token model does if one token is hidden
at a time. Orders, strengths and exponents are chosen on hidden validation tokens: where those are the ones
that are judged, it favours the baselines.

What simple predictors know of the next token: the rivals of a causal model.

They see every token, or base, to the left of the one in question, from its document's beginning on, which is
more than a causal model sees of an input. Orders and strengths are chosen on validation tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.baselines.markov import LARGEST_ORDER, Markov
from bigbird_dna.baselines.ngram import KneserNey
from bigbird_dna.baselines.tokens import (
    MaskedTokens,
    PieceBases,
    TokenModels,
    evenly,
    fit_left_model,
    fit_token_models,
    left_bits,
)
from bigbird_dna.console import log, progress
from bigbird_dna.data.bits_per_base import ONE_AT_A_TIME, UNIFORM
from bigbird_dna.tokens.interface import Tokenizer

UNIGRAM = "unigram tokens"
TOKENS_LEFT = "token n-gram, from the left"
TOKENS_BOTH = "token n-gram, both sides"
BASES_LEFT = "Markov over bases, from the left"
BASES_BOTH = "Markov over bases, both sides"
PREDICTORS = (
    UNIFORM,
    UNIGRAM,
    *(
        name + told
        for told in ("", ONE_AT_A_TIME)
        for name in (TOKENS_LEFT, TOKENS_BOTH, BASES_LEFT, BASES_BOTH)
    ),
)

MEMORY = 4 << 30  # bytes for n-grams over tokens
# Hidden validation tokens, evenly spread, that orders and exponents are chosen on, and bases for strengths.
CHOOSING_TOKENS = 4000
CHOOSING_BASES = 5_000_000

Ids = NDArray[np.integer]
Bits = NDArray[np.float64]


class MaskedTokenBits(NamedTuple):
    """Bits of hidden tokens, document after document."""

    bits: dict[str, Bits]  # by predictor, (M,)
    bases: NDArray[np.int64]  # (M,) that each token covers
    notes: dict[str, str]  # by predictor, what was chosen


class BaseModel(NamedTuple):
    """A Markov model over bases for the stretches of hidden tokens."""

    markov: Markov
    pieces: PieceBases

    def bits(
        self,
        held_out: MaskedTokens,
        order: int,
        *,
        both: bool,
        told: bool,
        chosen: NDArray[np.integer] | None = None,
    ) -> Bits:
        """Bits (M,) of hidden tokens, of all or of those that are `chosen`, ascending."""
        found, done = [np.zeros(0)], 0
        for stretches in self.pieces.batches(*held_out):
            size = len(stretches.starts)
            of = (
                np.arange(size)
                if chosen is None
                else chosen[(chosen >= done) & (chosen < done + size)] - done
            )
            done += size
            before, behind = (None, None) if told else (seen[of] for seen in stretches.apart())
            where = stretches.codes, stretches.starts[of], stretches.ends[of], order, before
            found.append(self.markov.two_sided(*where, behind) if both else self.markov.one_sided(*where))
        return np.concatenate(found)


@dataclass(frozen=True)
class LanguageBaselines:
    """Fitted predictors; `fit_language_baselines` makes them."""

    tokens: dict[bool, TokenModels]  # by whether they are told the rest
    bases: BaseModel
    base_orders: dict[tuple[bool, bool], int]  # by whether they are told the rest, and see both sides
    both_strands: bool

    def judge(self, held_out: MaskedTokens) -> MaskedTokenBits:
        """Bits of hidden tokens.

        Raises
        ------
        ValueError : a hidden token is not made of A, C, G and T alone.
        """
        ids = [document[places] for document, places in zip(*held_out, strict=True)]
        bases = self.bases.pieces.lengths[np.concatenate([np.zeros(0, np.int64), *ids])]
        bits = {UNIFORM: 2.0 * bases, UNIGRAM: left_bits(self.tokens[True].both.unigram, held_out, told=True)}
        for told, models in self.tokens.items():
            rest = ONE_AT_A_TIME if told else ""
            bits[TOKENS_LEFT + rest] = models.left_bits(held_out, told=told)
            bits[TOKENS_BOTH + rest] = models.both_bits(held_out, told=told)
            for both, name in ((False, BASES_LEFT), (True, BASES_BOTH)):
                order = self.base_orders[told, both]
                bits[name + rest] = self.bases.bits(held_out, order, both=both, told=told)
        return MaskedTokenBits(bits, bases, self.notes())

    def notes(self) -> dict[str, str]:
        """What was chosen, by predictor."""
        strands = "both strands" if self.both_strands else "one strand"
        notes = {UNIFORM: "2 bits a base", UNIGRAM: "frequencies of tokens"}
        for told, models in self.tokens.items():
            rest = ONE_AT_A_TIME if told else ""
            exponents = ", ".join(f"{value:.2f}" for value in models.both.exponents[-1])
            notes[TOKENS_LEFT + rest] = f"Kneser–Ney, order {models.left.order}"
            notes[TOKENS_BOTH + rest] = (
                f"Kneser–Ney, order {models.both.forward.order}, exponents {exponents}".replace("-", "−")
            )
            for both, name in ((False, BASES_LEFT), (True, BASES_BOTH)):
                notes[name + rest] = f"order {self.base_orders[told, both]}, {strands}"
        return notes


def language_baselines(
    training: Sequence[Ids],
    validation: MaskedTokens,
    judged: MaskedTokens,
    tokenizer: Tokenizer,
    *,
    token_order: int = 6,
    base_order: int = LARGEST_ORDER,
    both_strands: bool = True,
    memory: int = MEMORY,
) -> MaskedTokenBits:
    """Fit the baselines, choose on validation tokens, and judge others (or the same: it favours them)."""
    fitted = fit_language_baselines(
        training,
        validation,
        tokenizer,
        token_order=token_order,
        base_order=base_order,
        both_strands=both_strands,
        memory=memory,
    )
    return fitted.judge(judged)


def fit_language_baselines(
    training: Sequence[Ids],
    validation: MaskedTokens,
    tokenizer: Tokenizer,
    *,
    token_order: int = 6,
    base_order: int = LARGEST_ORDER,
    both_strands: bool = True,
    memory: int = MEMORY,
) -> LanguageBaselines:
    """Fit n-grams over tokens and Markov models over bases, and choose what is to be chosen.

    Parameters
    ----------
    training : token ids of documents. N-grams learn from all of them, or from evenly spread ones that
        `memory` suffices for; Markov models, whose tables don't grow, from all.
    validation : hidden tokens that orders, strengths and exponents are chosen on.
    token_order : the longest n-gram over tokens that is tried.
    base_order : of the longest Markov model over bases, 0 to 12.
    both_strands : Markov models count the reverse complement of the documents as well. N-grams over tokens
        can't: give them documents of both strands.
    memory : bytes for n-grams over tokens.

    Raises
    ------
    ValueError : there is nothing to learn from, or no hidden validation token.
    """
    hidden = sum(map(len, validation.hidden))
    if not hidden:
        raise ValueError("baselines are chosen on hidden validation tokens, and there are none")
    chosen = np.asarray(evenly(hidden, CHOOSING_TOKENS / hidden))
    tokens = fit_token_models(training, validation, chosen, tokenizer, token_order, memory)
    bases = fit_bases(training, validation, PieceBases(tokenizer), base_order, both_strands)
    orders = {}
    for told in (False, True):
        for both in (False, True):
            orders[told, both] = best_base_order(bases, validation, chosen, base_order, both=both, told=told)
    return LanguageBaselines(tokens, bases, orders, both_strands)


def best_base_order(
    bases: BaseModel,
    validation: MaskedTokens,
    chosen: NDArray[np.integer],
    largest: int,
    *,
    both: bool,
    told: bool,
) -> int:
    """The order, 0 to `largest`, with the fewest bits on the `chosen` validation tokens."""
    bits = [
        bases.bits(validation, order, both=both, told=told, chosen=chosen).sum()
        for order in progress(range(largest + 1), "orders of Markov models", largest + 1)
    ]
    return int(np.argmin(bits))


def fit_bases(
    training: Sequence[Ids], validation: MaskedTokens, pieces: PieceBases, order: int, both_strands: bool
) -> BaseModel:
    """Markov models over bases, counted in training documents and mixed on validation ones."""
    log(f"Markov models over bases: counting in {len(training):,} documents")
    markov = Markov(order, both_strands=both_strands)
    markov.fit(map(pieces.codes, progress(training, "counting bases", len(training), "documents")))
    documents = [text for text, places in zip(*validation, strict=True) if len(places)]
    size = sum(int(pieces.lengths[document].sum()) for document in documents)
    markov.mix(pieces.codes(documents[index]) for index in evenly(len(documents), CHOOSING_BASES / size))
    return BaseModel(markov, pieces)


LEFT_PREDICTORS = (UNIFORM, UNIGRAM, TOKENS_LEFT, BASES_LEFT)


@dataclass(frozen=True)
class LeftBaselines:
    """Fitted predictors; `fit_left_baselines` makes them."""

    tokens: KneserNey
    unigram: KneserNey
    bases: BaseModel
    base_order: int
    both_strands: bool

    def judge(self, held_out: MaskedTokens) -> MaskedTokenBits:
        """Bits of tokens; `ValueError` for one that is not made of A, C, G and T alone."""
        ids = [document[places] for document, places in zip(*held_out, strict=True)]
        bases = self.bases.pieces.lengths[np.concatenate([np.zeros(0, np.int64), *ids])]
        bits = {
            UNIFORM: 2.0 * bases,
            UNIGRAM: left_bits(self.unigram, held_out, told=True),
            TOKENS_LEFT: left_bits(self.tokens, held_out, told=True),
            BASES_LEFT: self.bases.bits(held_out, self.base_order, both=False, told=True),
        }
        return MaskedTokenBits(bits, bases, self.notes())

    def notes(self) -> dict[str, str]:
        """What was chosen, by predictor."""
        strands = "both strands" if self.both_strands else "one strand"
        return {
            UNIFORM: "2 bits a base",
            UNIGRAM: "frequencies of tokens",
            TOKENS_LEFT: f"Kneser–Ney, order {self.tokens.order}",
            BASES_LEFT: f"order {self.base_order}, {strands}",
        }


def fit_left_baselines(
    training: Sequence[Ids],
    validation: MaskedTokens,
    tokenizer: Tokenizer,
    *,
    token_order: int = 6,
    base_order: int = LARGEST_ORDER,
    both_strands: bool = True,
    memory: int = MEMORY,
) -> LeftBaselines:
    """Fit an n-gram over tokens and a Markov model over bases; arguments and errors as of
    `fit_language_baselines`."""
    hidden = sum(map(len, validation.hidden))
    if not hidden:
        raise ValueError("baselines are chosen on validation tokens, and there are none")
    chosen = np.asarray(evenly(hidden, CHOOSING_TOKENS / hidden))
    tokens, unigram = fit_left_model(training, validation, chosen, tokenizer, token_order, memory)
    bases = fit_bases(training, validation, PieceBases(tokenizer), base_order, both_strands)
    order = best_base_order(bases, validation, chosen, base_order, both=False, told=True)
    return LeftBaselines(tokens, unigram, bases, order, both_strands)
