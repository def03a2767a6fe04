"""The n-grams over tokens that best predict hidden tokens, with chosen orders.

A two-sided n-gram is the normalized product of a forward and a backward n-gram:

    P(w | l, r) ∝ P_f(w | l)^a P_b(w | r)^b P_1(w)^c

with P_1 the frequency of w. If both sides were independent given w, a = b = 1 and c = −1 would be exact; the
exponents are those with the fewest bits on validation tokens. The product's logarithm is linear in a, b, c,
so the optimum has no rivals. Hidden tokens are unknown to each other: those
without a known neighbor on the left, on the right or on both sides have separate exponents.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import log_softmax

from bigbird_dna.baselines.ngram import (
    Floats,
    KneserNey,
    Tokens,
    tokens_between,
)
from bigbird_dna.console import log, progress
from bigbird_dna.tokens.interface import Tokenizer

Ints = NDArray[np.int64]
Ints32 = NDArray[np.int32]

# Axes: M hidden tokens, C candidates (tokens that may be hidden), F = 3 factors, G = 4 kinds of surroundings.

# Number of probabilities held at a time: 16 MB, and about ten times as much with derived arrays.
CELLS = 1 << 21
_FEWEST = 30  # minimum number of tokens of a kind for fitting exponents
MOST_TOKENS = (
    12_000_000  # of training; n-grams up to order 6 of both directions need 4 GB
)
_PATIENCE = 2  # orders without improvement, after which longer n-grams are not tried


class MaskedTokens(NamedTuple):
    """Documents, and which of their tokens are hidden."""

    documents: Sequence[Tokens]  # token ids of complete documents, each (n,)
    hidden: Sequence[Tokens]  # positions of hidden tokens in each, ascending


class Surroundings(NamedTuple):
    """Hidden tokens of documents, and the contexts of the two models on their sides."""

    tokens: Ints  # (M,) the tokens, as indices of candidates
    kinds: NDArray[
        np.int64
    ]  # (M,) 2 if the left neighbor is known, plus 1 if the right one is
    forward: Ints32  # (order, M)
    backward: Ints32  # (order, M)

    def take(self, chosen: Tokens | slice) -> Surroundings:
        """The surroundings of the chosen tokens."""
        forward, backward = self.forward[:, chosen], self.backward[:, chosen]
        return Surroundings(self.tokens[chosen], self.kinds[chosen], forward, backward)


_Factors = tuple[Surroundings, list[Floats]]


class Product(NamedTuple):
    """Three fitted models, the tokens that may be hidden, and a, b, c for each kind of surroundings."""

    forward: KneserNey
    backward: KneserNey  # for documents read backward
    unigram: KneserNey  # of order 1
    candidates: Ints  # (C,) ascending
    exponents: Floats = np.tile([1.0, 1.0, -1.0], (4, 1))  # (G, F)

    @property
    def order(self) -> int:
        """Order of each side."""
        return self.forward.order

    def look_up(self, held_out: MaskedTokens) -> Surroundings:
        """The surroundings of hidden tokens: all other tokens are known, except hidden ones."""
        parts = []
        for document, positions in zip(*held_out, strict=True):
            reverse = len(document) - 1 - positions[::-1]
            forward = self.forward.contexts(document, positions, seen=False)
            backward = self.backward.contexts(document[::-1], reverse, seen=False)
            left = tokens_between(positions) > 0
            right = tokens_between(reverse)[::-1] > 0
            tokens = np.searchsorted(self.candidates, document[positions])
            parts.append((tokens, 2 * left + right, forward, backward[:, ::-1]))
        columns = zip(*parts, strict=True)
        return Surroundings(*(np.concatenate(column, axis=-1) for column in columns))

    def bits(self, around: Surroundings) -> Floats:
        """Bits (M,) of the hidden tokens given both sides."""
        bits = [np.zeros(0)]
        count = -(-len(around.tokens) // self._rows())
        parts = progress(self._factors(around), "two-sided n-gram", count)
        for part, factors in parts:
            logs = _log_probabilities(self.exponents[part.kinds], factors)
            bits.append(-logs[np.arange(len(part.tokens)), part.tokens])
        return np.asarray(np.concatenate(bits) / np.log(2))

    def fitted(self, around: Surroundings) -> Product:
        """The product with the exponents that give these tokens the fewest bits.

        Exponents of kinds of surroundings with too few tokens are unchanged.
        """
        exponents = self.exponents.copy()
        for kind in range(len(exponents)):
            members = np.flatnonzero(around.kinds == kind)
            if len(members) >= _FEWEST:
                exponents[kind] = self._optimum(exponents[kind], around.take(members))
        return self._replace(exponents=exponents)

    def _optimum(self, theta: Floats, around: Surroundings) -> Floats:
        factors = [
            (part.tokens, [factor.astype(np.float32) for factor in logs])
            for part, logs in self._factors(around)
        ]
        size = len(around.tokens)

        def cost(theta: Floats) -> tuple[float, Floats]:
            """Mean nats of the tokens, with its gradient (F,) in the exponents."""
            nats, gradient = 0.0, np.zeros(3)
            for tokens, logs in factors:
                rows = np.arange(len(tokens))
                log_probabilities = _log_probabilities(theta[None], logs)
                nats -= float(log_probabilities[rows, tokens].sum())
                probabilities = np.exp(log_probabilities)
                for i, factor in enumerate(logs):
                    expected = np.vdot(probabilities, factor)
                    gradient[i] += expected - factor[rows, tokens].sum(dtype=np.float64)
            return nats / size, gradient / size

        options = {"ftol": 1e-13, "gtol": 1e-7}
        result = minimize(cost, theta, jac=True, method="L-BFGS-B", options=options)
        return np.asarray(result.x)

    def _factors(self, around: Surroundings) -> Iterator[_Factors]:
        """Parts of the tokens, with the logarithms of the factors, each (m, C)."""
        anywhere = self.unigram.chances(np.zeros((1, 1), np.int32))
        unigram = np.log(anywhere[:, self.candidates])
        for start in range(0, len(around.tokens), self._rows()):
            part = around.take(slice(start, start + self._rows()))
            forward = np.log(self.forward.chances(part.forward)[:, self.candidates])
            backward = np.log(self.backward.chances(part.backward)[:, self.candidates])
            yield part, [forward, backward, np.broadcast_to(unigram, forward.shape)]

    def _rows(self) -> int:
        return max(CELLS // self.forward.vocabulary, 1)


def _log_probabilities(
    theta: Floats, factors: Sequence[NDArray[np.floating]]
) -> Floats:
    """Log of the normalized product (m, C), for exponents (m, F) or (1, F)."""
    logits = np.zeros(factors[0].shape)
    for exponent, factor in zip(theta.T, factors, strict=True):
        logits += exponent[:, None] * factor
    return np.asarray(log_softmax(logits, axis=1))


def left_bits(model: KneserNey, held_out: MaskedTokens, *, seen: bool) -> Floats:
    """Bits (M,) of hidden tokens given the preceding ones; `seen`: other hidden tokens are known."""
    bits = [np.zeros(0)]
    for document, positions in zip(*held_out, strict=True):
        bits.append(-model.log2_probabilities(document, positions, seen=seen))
    return np.concatenate(bits)


class TokenModels(NamedTuple):
    """N-grams over tokens of the best orders, and the token frequencies."""

    left: KneserNey
    both: Product | None  # None for causal models
    unigram: KneserNey


def evenly(count: int, fraction: float) -> list[int]:
    """Evenly spaced indices, this fraction of `count`: all for 1, at least one if any."""
    size = min(max(int(count * fraction), 1), count)
    return [int((index + 0.5) * count / size) for index in range(size)]


def fit_token_models(
    training: Sequence[Tokens],
    validation: MaskedTokens,
    chosen: Tokens,
    tokenizer: Tokenizer,
    longest: int,
    causal: bool = False,
) -> TokenModels:
    """The best models; orders and exponents are chosen on the `chosen` hidden validation tokens.

    Increasing orders are fitted in both directions to all documents, or to evenly spaced ones of at most
    `MOST_TOKENS` in total. For a `causal` model, hidden tokens know all tokens to the left, and nothing else.
    """
    total = sum(map(len, training))
    documents = [
        training[index] for index in evenly(len(training), MOST_TOKENS / max(total, 1))
    ]
    tokens = sum(map(len, documents))
    log(
        f"n-grams over tokens, up to order {longest}: training on {tokens:,} of {total:,} tokens"
    )
    candidates, vocabulary = tokenizer.hidden_ids.astype(np.int64), tokenizer.vocabulary
    least_left = least_both = np.inf
    both: Product | None = None
    forwards = KneserNey(longest, vocabulary).fitted_orders(documents)
    backwards = KneserNey(longest, vocabulary).fitted_orders(
        document[::-1] for document in documents
    )
    for forward in forwards:
        if forward.order == 1:
            unigram = forward
        bits = left_bits(forward, validation, seen=causal)[chosen].sum()
        if bits < least_left:
            least_left, left = bits, forward
        best = left.order
        if not causal:
            model = Product(forward, next(backwards), unigram, candidates)
            if both is not None:
                model = model._replace(exponents=both.exponents)
            around = model.look_up(validation).take(chosen)
            model = model.fitted(around)
            bits = model.bits(around).sum()
            if bits < least_both:
                least_both, both = bits, model
            best = max(best, both.order if both is not None else 0)
        if forward.order >= best + _PATIENCE:
            break
    return TokenModels(left, both, unigram)
