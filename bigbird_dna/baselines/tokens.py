"""Token models as predictors of bases and of tokens.

Documents of tokens as bases.

The n-grams over tokens that know most of hidden ones: fitted within a budget of memory, orders chosen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.baselines.markov_counts import UNKNOWN
from bigbird_dna.baselines.ngram import KneserNey, affordable_tokens
from bigbird_dna.baselines.ngram_product import Product
from bigbird_dna.console import log
from bigbird_dna.tokens.interface import BASES, Tokenizer

_BATCH = 1 << 22  # bases of documents that are put together

Ids = NDArray[np.integer]


class Stretches(NamedTuple):
    """The bases of documents, an N between two, and those that hidden tokens cover."""

    codes: NDArray[np.uint8]  # A 0, C 1, G 2, T 3, N 4
    starts: NDArray[np.int64]  # (M,) ascending
    ends: NDArray[np.int64]  # (M,)

    def apart(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Bases between each stretch and the one before it, and the one behind it, (M,) each."""
        gaps = self.starts[1:] - self.ends[:-1]
        size = len(self.codes)
        return np.append(size, gaps)[: len(self.starts)], np.append(gaps, size)[-len(self.starts) :]


class PieceBases:
    """Turns token ids into base codes."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.lengths = tokenizer.piece_lengths.astype(np.int64)  # (V,)
        covering = np.flatnonzero(self.lengths)
        letters = "".join(tokenizer.decode([index]) for index in covering.tolist())
        table = np.full(256, UNKNOWN, np.uint8)
        table[np.frombuffer(BASES.encode(), np.uint8)] = np.arange(4)
        self._codes = table[np.frombuffer(letters.encode(), np.uint8)]
        assert len(self._codes) == self.lengths.sum()
        self._starts = np.cumsum(self.lengths) - self.lengths

    def codes(self, document: Ids) -> NDArray[np.uint8]:
        """Base codes of a document, (bases,)."""
        lengths = self.lengths[document]
        ends = np.cumsum(lengths)
        where = np.repeat(self._starts[document] - ends + lengths, lengths)
        return self._codes[where + np.arange(len(where))]

    def batches(self, documents: Sequence[Ids], hidden: Iterable[Ids]) -> Iterator[Stretches]:
        """Documents put together, some megabases at a time, with the stretches of their hidden tokens."""
        parts: list[Stretches] = []
        size = 0
        for document, places in zip(documents, hidden, strict=True):
            ends = np.cumsum(self.lengths[document])
            parts.append(
                Stretches(
                    np.append(self.codes(document), np.uint8(UNKNOWN)),
                    size + (ends - self.lengths[document])[places],
                    size + ends[places],
                )
            )
            size += len(parts[-1].codes)
            if size >= _BATCH:
                yield Stretches(*map(np.concatenate, zip(*parts, strict=True)))
                parts, size = [], 0
        if parts:
            yield Stretches(*map(np.concatenate, zip(*parts, strict=True)))


_PATIENCE = 2  # orders that are no better, after which longer n-grams aren't tried

Bits = NDArray[np.float64]
T = TypeVar("T")


class MaskedTokens(NamedTuple):
    """Documents, and which of their tokens are hidden."""

    documents: Sequence[Ids]  # token ids of whole documents, each (n,)
    hidden: Sequence[Ids]  # places of hidden tokens in each, ascending


class TokenModels(NamedTuple):
    """N-grams over tokens, each of its best order."""

    left: KneserNey
    both: Product

    @property
    def order(self) -> int:
        """The longer of the two."""
        return max(self.left.order, self.both.forward.order)

    def left_bits(self, held_out: MaskedTokens, *, told: bool) -> Bits:
        """Bits (M,) of hidden tokens given those on the left; `told`: other hidden ones too."""
        return left_bits(self.left, held_out, told=told)

    def both_bits(self, held_out: MaskedTokens, *, told: bool) -> Bits:
        """Bits (M,) of hidden tokens given those on both sides; `told`: other hidden ones too."""
        return self.both.bits(self.both.ask(*held_out, seen=told))


def left_bits(model: KneserNey, held_out: MaskedTokens, *, told: bool) -> Bits:
    """Bits (M,) of hidden tokens given those on the left; `told`: other hidden ones too."""
    bits = [np.zeros(0)]
    for document, places in zip(*held_out, strict=True):
        contexts = model.contexts(document, places, seen=told)
        bits.append(-np.log2(model.interpolate([*contexts.astype(np.int64)], document[places])))
    return np.concatenate(bits)


def fit_token_models(
    training: Sequence[Ids],
    validation: MaskedTokens,
    chosen: NDArray[np.integer],
    tokenizer: Tokenizer,
    longest: int,
    memory: int,
) -> dict[bool, TokenModels]:
    """The best models by whether they are told of other hidden tokens.

    Parameters
    ----------
    training : documents. All of them are used, or as many, evenly spread, as two models in `memory` bytes can
        learn from; where a shorter order than `longest` is best, that is more of them.
    chosen : which of the hidden validation tokens orders and exponents are chosen on.
    """
    total = sum(map(len, training))
    used = _affordable(training, total, longest, memory)
    models = _choose(used, validation, chosen, tokenizer, longest)
    needed = max(found.order for found in models.values())
    if len(used) < len(training) and needed < longest:
        orders = {told: (found.left.order, found.both.forward.order) for told, found in models.items()}
        models.clear()
        used = _affordable(training, total, needed, memory)
        models = _choose(used, validation, chosen, tokenizer, needed, orders)
    return models


def fit_left_model(
    training: Sequence[Ids],
    validation: MaskedTokens,
    chosen: NDArray[np.integer],
    tokenizer: Tokenizer,
    longest: int,
    memory: int,
) -> tuple[KneserNey, KneserNey]:
    """The best n-gram from the left, told all tokens there, and the unigram; arguments as above."""
    used = _affordable(training, sum(map(len, training)), longest, memory)
    best = _BestOffered[KneserNey]()
    unigram: KneserNey | None = None
    for model in KneserNey(longest, tokenizer.vocabulary).fitted_orders(used):
        unigram = unigram or model
        best.offer(model.order, float(left_bits(model, validation, told=True)[chosen].sum()), model)
        if model.order >= _PATIENCE + best.order:
            break
    assert unigram is not None
    log(f"n-grams over tokens: the best order is {best.order} from the left")
    return best.kept(), unigram


def evenly(count: int, share: float) -> list[int]:
    """A share of `count` places, evenly spread: all for a share of 1, at least one if there are any."""
    if share >= 1 or not count:
        return [*range(count)]
    wanted = max(int(count * share), 1)
    return [int((index + 0.5) * count / wanted) for index in range(wanted)]


def _affordable(training: Sequence[Ids], total: int, order: int, memory: int) -> Sequence[Ids]:
    """All documents, or evenly spread ones, that two models of an order can learn from; the log says so."""
    share = affordable_tokens(memory, order, models=2) / max(total, 1)
    used = [training[index] for index in evenly(len(training), share)]
    tokens = sum(map(len, used))
    log(f"n-grams over tokens, up to order {order}: learning from {tokens:,} of {total:,} tokens")
    return used


def _choose(
    training: Sequence[Ids],
    validation: MaskedTokens,
    chosen: NDArray[np.integer],
    tokenizer: Tokenizer,
    longest: int,
    orders: dict[bool, tuple[int, int]] | None = None,
) -> dict[bool, TokenModels]:
    """Fit one order after the other, in both directions; `orders` are those to keep, None: the best."""
    candidates = tokenizer.hidden_ids.astype(np.int64)
    best = {told: (_BestOffered[KneserNey](), _BestOffered[Product]()) for told in (False, True)}
    unigram: KneserNey | None = None
    for forward, backward in zip(*_both_ways(training, tokenizer.vocabulary, longest), strict=True):
        unigram = unigram or forward
        order = forward.order
        for told, (left, both) in best.items():
            if orders is None or order == orders[told][0]:
                bits = left_bits(forward, validation, told=told)[chosen]
                left.offer(order, float(bits.sum()), forward)
            if orders is None or order == orders[told][1]:
                product = Product(forward, backward, unigram, candidates)
                if both.found is not None:
                    product = product._replace(exponents=both.found.exponents)
                asked = product.ask(*validation, seen=told).some(chosen)
                product = product.fitted(asked)
                both.offer(order, float(product.bits(asked).sum()), product)
        if orders is None and order >= _PATIENCE + max(one.order for pair in best.values() for one in pair):
            break
    found = {told: TokenModels(left.kept(), both.kept()) for told, (left, both) in best.items()}
    log(f"n-grams over tokens: the best orders are {', '.join(_orders(models) for models in found.values())}")
    return found


def _both_ways(
    training: Sequence[Ids], vocabulary: int, longest: int
) -> tuple[Iterable[KneserNey], Iterable[KneserNey]]:
    forwards = KneserNey(longest, vocabulary).fitted_orders(training)
    return forwards, KneserNey(longest, vocabulary).fitted_orders(text[::-1] for text in training)


def _orders(models: TokenModels) -> str:
    return f"{models.left.order} from the left and {models.both.forward.order} of both sides"


class _BestOffered(Generic[T]):
    """The best of what has been offered."""

    def __init__(self) -> None:
        self.found: T | None = None
        self.order = 0
        self.bits = np.inf

    def offer(self, order: int, bits: float, what: T) -> None:
        if bits < self.bits:
            self.order, self.bits, self.found = order, bits, what

    def kept(self) -> T:
        assert self.found is not None
        return self.found
