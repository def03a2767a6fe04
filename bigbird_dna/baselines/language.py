"""What simple predictors know of hidden tokens: the rivals that a masked-token model has to beat.

All are judged on the same hidden tokens, in bits for the bases of each. What favours them is said where they
are made: they see all other tokens, hidden ones too, and their orders, strengths and exponents are chosen on
hidden validation tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.baselines.markov import LARGEST_ORDER, Markov
from bigbird_dna.baselines.ngram import KneserNey, affordable_tokens
from bigbird_dna.baselines.ngram_product import Product
from bigbird_dna.baselines.pieces import PieceBases
from bigbird_dna.console import log, progress
from bigbird_dna.tokens.interface import Tokenizer

UNIFORM = "uniform"
UNIGRAM = "unigram tokens"
TOKENS_LEFT = "token n-gram, from the left"
TOKENS_BOTH = "token n-gram, both sides"
BASES_LEFT = "Markov over bases, from the left"
BASES_BOTH = "Markov over bases, both sides"
PREDICTORS = (UNIFORM, UNIGRAM, TOKENS_LEFT, TOKENS_BOTH, BASES_LEFT, BASES_BOTH)

MEMORY = 4 << 30  # bytes for n-grams over tokens
# Hidden validation tokens, evenly spread, that orders and exponents are chosen on, and bases for strengths.
CHOOSING_TOKENS = 4000
CHOOSING_BASES = 5_000_000
_PATIENCE = 2  # orders that are no better, after which longer n-grams aren't tried

Ids = NDArray[np.integer]
Bits = NDArray[np.float64]
T = TypeVar("T")


class HeldOut(NamedTuple):
    """Documents, and which of their tokens are hidden."""

    documents: Sequence[Ids]  # token ids of whole documents, each (n,)
    hidden: Sequence[Ids]  # places of hidden tokens in each, ascending


class Judged(NamedTuple):
    """Bits of hidden tokens, document after document."""

    bits: dict[str, Bits]  # by predictor, (M,)
    bases: NDArray[np.int64]  # (M,) that each token covers
    notes: dict[str, str]  # by predictor, what was chosen


@dataclass(frozen=True)
class LanguageBaselines:
    """Fitted predictors; `fit_language_baselines` makes them."""

    pieces: PieceBases
    left: KneserNey
    both: Product
    markov: Markov
    markov_left: int  # orders
    markov_both: int
    notes: dict[str, str]

    def judge(self, held_out: HeldOut) -> Judged:
        """Bits of hidden tokens.

        Raises
        ------
        ValueError : a hidden token is not made of A, C, G and T alone.
        """
        tokens = [document[places] for document, places in zip(*held_out, strict=True)]
        bases = self.pieces.lengths[np.concatenate([np.zeros(0, np.int64), *tokens])]
        bits = {
            UNIFORM: 2.0 * bases,
            UNIGRAM: _left_bits(self.both.unigram, held_out),
            TOKENS_LEFT: _left_bits(self.left, held_out),
            TOKENS_BOTH: self.both.bits(self.both.ask(*held_out)),
            BASES_LEFT: _markov_bits(self.markov, self.pieces, held_out, self.markov_left, both=False),
            BASES_BOTH: _markov_bits(self.markov, self.pieces, held_out, self.markov_both, both=True),
        }
        return Judged(bits, bases, self.notes)


def language_baselines(
    training: Sequence[Ids],
    validation: HeldOut,
    judged: HeldOut,
    tokenizer: Tokenizer,
    *,
    token_order: int = 6,
    base_order: int = LARGEST_ORDER,
    both_strands: bool = True,
    memory: int = MEMORY,
) -> Judged:
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
    validation: HeldOut,
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
    pieces = PieceBases(tokenizer)
    choosing = _spread(validation, CHOOSING_TOKENS)
    if not any(map(len, choosing.hidden)):
        raise ValueError("baselines are chosen on hidden validation tokens, and there are none")
    left, both = _fit_tokens(training, choosing, tokenizer, token_order, memory)
    log(f"Markov models over bases: counting in {len(training):,} documents")
    markov = Markov(base_order, both_strands=both_strands)
    markov.fit(map(pieces.codes, progress(training, "counting bases", len(training), "documents")))
    bases = np.cumsum([int(pieces.lengths[document].sum()) for document in validation.documents])
    chosen = _evenly(len(bases), CHOOSING_BASES / max(int(bases[-1]), 1))
    markov.mix(pieces.codes(validation.documents[index]) for index in chosen)
    orders = {
        both_sides: _best_markov(markov, pieces, choosing, both=both_sides) for both_sides in (False, True)
    }
    strands = "both strands" if both_strands else "one strand"
    a, b, c = both.exponents
    notes = {
        UNIFORM: "2 bits a base",
        UNIGRAM: "frequencies of tokens",
        TOKENS_LEFT: f"Kneser–Ney, order {left.order}",
        TOKENS_BOTH: f"Kneser–Ney, order {both.forward.order}; exponents {a:.2f}, {b:.2f}, {c:.2f}",
        BASES_LEFT: f"order {orders[False]}, {strands}",
        BASES_BOTH: f"order {orders[True]}, {strands}",
    }
    return LanguageBaselines(pieces, left, both, markov, orders[False], orders[True], notes)


def _fit_tokens(
    training: Sequence[Ids], choosing: HeldOut, tokenizer: Tokenizer, longest: int, memory: int
) -> tuple[KneserNey, Product]:
    """The n-gram from the left and the product of both sides, each of its best order."""
    total = sum(map(len, training))
    used = _affordable(training, total, longest, memory)
    left, both = _choose_tokens(used, choosing, tokenizer, longest)
    needed = max(left.order, both.forward.order)
    if len(used) < len(training) and needed < longest:
        # Shorter n-grams take less: the order is known, so more of the documents can be learned from.
        orders, exponents = (left.order, both.forward.order), both.exponents
        del left, both
        used = _affordable(training, total, needed, memory)
        left, both = _choose_tokens(used, choosing, tokenizer, needed, orders)
        log(f"exponents of both sides: {exponents} on fewer documents, {both.exponents} on more")
    return left, both


def _affordable(training: Sequence[Ids], total: int, order: int, memory: int) -> Sequence[Ids]:
    """All documents, or evenly spread ones, that two models of an order can learn from; the log says so."""
    share = affordable_tokens(memory, order, models=2) / max(total, 1)
    used = [training[index] for index in _evenly(len(training), share)]
    tokens = sum(map(len, used))
    log(f"n-grams over tokens up to {order}: learning from {tokens:,} of {total:,} tokens")
    return used


def _choose_tokens(
    training: Sequence[Ids],
    choosing: HeldOut,
    tokenizer: Tokenizer,
    longest: int,
    orders: tuple[int, int] | None = None,
) -> tuple[KneserNey, Product]:
    """Fit one order after the other, in both directions; `orders` are those to keep, None: the best."""
    candidates = tokenizer.base_ids.astype(np.int64)
    forwards = KneserNey(longest, tokenizer.vocabulary).fitted_orders(training)
    backwards = KneserNey(longest, tokenizer.vocabulary).fitted_orders(text[::-1] for text in training)
    left, both = _Best[KneserNey](), _Best[Product]()
    unigram: KneserNey | None = None
    for forward, backward in zip(forwards, backwards, strict=True):
        unigram = unigram or forward
        order = forward.order
        if orders is None or order == orders[0]:
            left.offer(order, float(_left_bits(forward, choosing).sum()), forward)
        if orders is None or order == orders[1]:
            product = Product(forward, backward, unigram, candidates)
            if both.found is not None:
                product = product._replace(exponents=both.found.exponents)
            asked = product.ask(*choosing)
            product = product.fitted(asked)
            both.offer(order, float(product.bits(asked).sum()), product)
        if orders is None and order >= max(left.order, both.order) + _PATIENCE:
            break
    log(f"n-grams over tokens: the best order from the left is {left.order}, of both sides {both.order}")
    assert left.found is not None and both.found is not None
    return left.found, both.found


class _Best(Generic[T]):
    """The best of what has been offered."""

    def __init__(self) -> None:
        self.found: T | None = None
        self.order = 0
        self.bits = np.inf

    def offer(self, order: int, bits: float, what: T) -> None:
        if bits < self.bits:
            self.order, self.bits, self.found = order, bits, what


def _best_markov(markov: Markov, pieces: PieceBases, choosing: HeldOut, *, both: bool) -> int:
    side = "both sides" if both else "from the left"
    orders = progress(range(markov.order + 1), f"orders of Markov models, {side}", markov.order + 1)
    bits = [_markov_bits(markov, pieces, choosing, order, both=both).sum() for order in orders]
    log(f"Markov models over bases, {side}: the best order is {int(np.argmin(bits))}")
    return int(np.argmin(bits))


def _markov_bits(markov: Markov, pieces: PieceBases, held_out: HeldOut, order: int, *, both: bool) -> Bits:
    judge = markov.two_sided if both else markov.one_sided
    found = [judge(*stretches, order) for stretches in pieces.batches(*held_out)]
    return np.concatenate([np.zeros(0), *found])


def _left_bits(model: KneserNey, held_out: HeldOut) -> Bits:
    found = [-model.log2_probabilities(document)[places] for document, places in zip(*held_out, strict=True)]
    return np.concatenate([np.zeros(0), *found])


def _spread(held_out: HeldOut, limit: int) -> HeldOut:
    """At most `limit` of the hidden tokens, evenly spread over them; documents without any are left out."""
    sizes = np.array([len(places) for places in held_out.hidden], dtype=np.int64)
    ends = np.cumsum(sizes)
    chosen = np.asarray(_evenly(int(sizes.sum()), limit / max(int(sizes.sum()), 1)), dtype=np.int64)
    found = []
    for document, places, end in zip(*held_out, ends, strict=True):
        own = chosen[(chosen >= end - len(places)) & (chosen < end)] - (end - len(places))
        if len(own):
            found.append((document, np.asarray(places)[own]))
    return HeldOut([document for document, _ in found], [places for _, places in found])


def _evenly(count: int, share: float) -> list[int]:
    """A share of `count` places, evenly spread: all for a share of 1, at least one if there are any."""
    if share >= 1 or not count:
        return [*range(count)]
    wanted = max(int(count * share), 1)
    return [int((index + 0.5) * count / wanted) for index in range(wanted)]
