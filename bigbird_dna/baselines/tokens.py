"""The n-grams over tokens that best predict hidden tokens: fitted within a memory budget, orders chosen.

A two-sided n-gram is the normalized product of a forward and a backward n-gram:

    P(w | l, r) ∝ P_f(w | l)^a P_b(w | r)^b P_1(w)^c

with P_1 the frequency of w. If both sides were independent given w, a = b = 1 and c = −1 would be exact; the
exponents are those with the fewest bits on validation tokens. The product's logarithm is linear in a, b, c,
so there is a single optimum, found by Newton's method. If hidden tokens are unknown to each other, those
without a known neighbor on the left, on the right or on both sides have separate exponents.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.baselines.ngram import (
    Floats,
    KneserNey,
    Tokens,
    affordable_tokens,
    tokens_between,
)
from bigbird_dna.console import log, progress
from bigbird_dna.tokens.interface import Tokenizer

# Axes: M hidden tokens, C candidates (tokens that may be hidden), F = 3 factors, G = 4 kinds of surroundings.

# Number of probabilities held at a time: 16 MB, and about ten times as much with derived arrays.
CELLS = 1 << 21
# Maximum number of probabilities of a side that are kept while exponents are fitted: 0.5 GB for both sides.
KEPT_CELLS = 1 << 25
_NEWTON_STEPS = 20
_ENOUGH = 1e-9  # nats per token that a further step would save
_FEWEST = 30  # minimum number of tokens of a kind for fitting exponents
_RIDGE = 1e-9  # keeps the exponent of an uninformative factor (all tokens equally frequent) unchanged
_PATIENCE = 2  # orders without improvement, after which longer n-grams are not tried

View = tuple[bool, bool]
"""Context of a predictor: whether it includes other hidden tokens, and whether both sides."""
VIEWS: tuple[View, ...] = ((False, False), (False, True), (True, False), (True, True))
LEFT: View = (True, False)

_NONE = np.zeros(0, np.int64)


class MaskedTokens(NamedTuple):
    """Documents, and which of their tokens are hidden."""

    documents: Sequence[Tokens]  # token ids of complete documents, each (n,)
    hidden: Sequence[Tokens]  # positions of hidden tokens in each, ascending


class Surroundings(NamedTuple):
    """Hidden tokens of documents, and the contexts of the two models on their sides."""

    tokens: NDArray[np.int64]  # (M,) the tokens, as indices of candidates
    kinds: NDArray[
        np.int64
    ]  # (M,) 2 if the left neighbor is known, plus 1 if the right one is
    forward: NDArray[np.int32]  # (order, M)
    backward: NDArray[np.int32]  # (order, M)

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
    candidates: NDArray[np.int64]  # (C,) ascending
    exponents: Floats = np.tile([1.0, 1.0, -1.0], (4, 1))  # (G, F)

    @property
    def order(self) -> int:
        """Order of each side."""
        return self.forward.order

    def look_up(self, held_out: MaskedTokens, *, seen: bool = True) -> Surroundings:
        """The surroundings of hidden tokens: all other tokens are known, including hidden ones if `seen`.

        `ValueError` for a hidden token that is not among the candidates.
        """
        own = np.concatenate(
            [_NONE, *(text[places] for text, places in zip(*held_out, strict=True))]
        )
        found = np.minimum(
            np.searchsorted(self.candidates, own), len(self.candidates) - 1
        )
        wrong = np.flatnonzero(self.candidates[found] != own)
        if wrong.size:
            raise ValueError(
                f"token {own[wrong[0]]} is hidden, but not among the candidates"
            )
        nothing = np.zeros((self.order, 0), np.int32)
        forward, backward, kinds = [nothing], [nothing], [_NONE]
        for document, places in zip(*held_out, strict=True):
            turned = len(document) - 1 - places[::-1]
            forward.append(self.forward.contexts(document, places, seen=seen))
            backward.append(
                self.backward.contexts(document[::-1], turned, seen=seen)[:, ::-1]
            )
            left, right = tokens_between(places) > 0, tokens_between(turned)[::-1] > 0
            kinds.append(2 * (left | seen) + (right | seen))
        sides = (np.concatenate(side, axis=1) for side in (forward, backward))
        return Surroundings(found, np.concatenate(kinds), *sides)

    def bits(self, around: Surroundings) -> Floats:
        """Bits (M,) of the hidden tokens given both sides."""
        bits = [np.zeros(0)]
        parts = -(-len(around.tokens) // self._rows())
        for part, factors in progress(self._factors(around), "two-sided n-gram", parts):
            logs = _log_shares(self.exponents[part.kinds], factors)
            bits.append(-logs[np.arange(len(part.tokens)), part.tokens])
        found: Floats = np.concatenate(bits) / np.log(2)
        return found

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
        few = len(around.tokens) * self.forward.vocabulary <= KEPT_CELLS
        kept = [*self._factors(around)] if few else None
        cost, gradient, hessian = self.cost(theta, around, kept)
        for _ in range(_NEWTON_STEPS):
            step = np.linalg.solve(hessian + _RIDGE * np.eye(3), -gradient)
            saved = -float(gradient @ step)
            while saved >= _ENOUGH:
                found = self.cost(theta + step, around, kept)
                if found[0] <= cost:
                    theta, (cost, gradient, hessian) = theta + step, found
                    break
                step, saved = step / 2, saved / 2
            else:
                break
        return theta

    def cost(
        self,
        theta: Floats,
        around: Surroundings,
        kept: Sequence[_Factors] | None = None,
    ) -> tuple[float, Floats, Floats]:
        """Mean nats of the tokens, with its gradient (F,) and Hessian (F, F) in the exponents.

        `kept`: the factors, if they have been computed.
        """
        cost, gradient, hessian = 0.0, np.zeros(3), np.zeros((3, 3))
        for part, factors in self._factors(around) if kept is None else kept:
            logs = _log_shares(theta[None], factors)
            rows = np.arange(len(part.tokens))
            cost -= float(logs[rows, part.tokens].sum())
            shares = np.exp(logs, out=logs)
            means = np.stack(
                [np.vecdot(shares, factor) for factor in factors]
            )  # (F, m)
            gradient += (
                means - np.stack([factor[rows, part.tokens] for factor in factors])
            ).sum(1)
            for i, one in enumerate(factors):
                weighted = shares * one
                for j in range(i + 1):
                    hessian[i, j] += np.vdot(weighted, factors[j]) - means[i] @ means[j]
        hessian = np.tril(hessian) + np.tril(hessian, -1).T
        size = max(len(around.tokens), 1)
        return cost / size, gradient / size, hessian / size

    def _factors(self, around: Surroundings) -> Iterator[_Factors]:
        """Parts of the tokens, with the logarithms of the factors, each (m, C)."""
        unigram = np.log(
            self.unigram.chances(np.zeros((1, 1), np.int32))[:, self.candidates]
        )
        for start in range(0, len(around.tokens), self._rows()):
            part = around.take(slice(start, start + self._rows()))
            forward = self.forward.chances(part.forward)[:, self.candidates]
            backward = self.backward.chances(part.backward)[:, self.candidates]
            np.log(forward, out=forward)
            np.log(backward, out=backward)
            yield part, [forward, backward, np.broadcast_to(unigram, forward.shape)]

    def _rows(self) -> int:
        return max(CELLS // self.forward.vocabulary, 1)


def _log_shares(theta: Floats, factors: Sequence[Floats]) -> Floats:
    """Log of the normalized product (m, C), for exponents (m, F) or (1, F)."""
    logits = np.zeros_like(factors[0])
    for exponent, factor in zip(theta.T, factors, strict=True):
        logits += exponent[:, None] * factor
    logits -= logits.max(1, keepdims=True)
    logits -= np.log(np.exp(logits).sum(1, keepdims=True))
    return logits


def token_bits(
    model: KneserNey | Product, held_out: MaskedTokens, *, seen: bool
) -> Floats:
    """Bits (M,) of hidden tokens, for a product given both sides; `seen`: other hidden tokens are known."""
    if isinstance(model, Product):
        return model.bits(model.look_up(held_out, seen=seen))
    pairs = zip(*held_out, strict=True)
    bits = (
        -model.log2_probabilities(document, places, seen=seen)
        for document, places in pairs
    )
    return np.concatenate([np.zeros(0), *bits])


class TokenModels(NamedTuple):
    """N-grams over tokens with the best order for each view, and the token frequencies."""

    best: dict[View, KneserNey | Product]
    unigram: KneserNey

    def bits(self, held_out: MaskedTokens, view: View) -> Floats:
        """Bits (M,) of hidden tokens by the model of a view."""
        return token_bits(self.best[view], held_out, seen=view[0])


def fit_token_models(
    training: Sequence[Tokens],
    validation: MaskedTokens,
    chosen: Tokens,
    tokenizer: Tokenizer,
    longest: int,
    memory: int,
    views: Sequence[View] = VIEWS,
) -> TokenModels:
    """The best model of each view; orders and exponents are chosen on the `chosen` hidden validation tokens.

    All documents are used, or as many evenly spaced ones as two models can use in `memory` bytes. With all
    views, if an order below `longest` is best, this number is larger.
    """
    used = _affordable(training, longest, memory)
    models = _choose(used, validation, chosen, tokenizer, longest, views)
    orders = {view: model.order for view, model in models.best.items()}
    needed = max(orders.values())
    if views == VIEWS and len(used) < len(training) and needed < longest:
        del models
        used = _affordable(training, needed, memory)
        models = _choose(used, validation, chosen, tokenizer, needed, views, orders)
    return models


def evenly(count: int, share: float) -> list[int]:
    """Evenly spaced indices, a fraction `share` of `count`: all for 1, at least one if any."""
    if share >= 1 or not count:
        return [*range(count)]
    wanted = max(int(count * share), 1)
    return [int((index + 0.5) * count / wanted) for index in range(wanted)]


def _affordable(
    training: Sequence[Tokens], order: int, memory: int
) -> Sequence[Tokens]:
    """All documents, or as many evenly spaced ones as two models of an order can use; logged."""
    total = sum(map(len, training))
    share = affordable_tokens(memory, order, models=2) / max(total, 1)
    used = [training[index] for index in evenly(len(training), share)]
    tokens = sum(map(len, used))
    log(
        f"n-grams over tokens, up to order {order}: training on {tokens:,} of {total:,} tokens"
    )
    return used


def _choose(
    training: Sequence[Tokens],
    validation: MaskedTokens,
    chosen: Tokens,
    tokenizer: Tokenizer,
    longest: int,
    views: Sequence[View],
    orders: dict[View, int] | None = None,
) -> TokenModels:
    """Fit increasing orders in both directions; `orders` are those to keep, None: the best."""
    candidates, vocabulary = tokenizer.hidden_ids.astype(np.int64), tokenizer.vocabulary
    best: dict[View, KneserNey | Product] = {}
    least = dict.fromkeys(views, np.inf)
    unigram: KneserNey | None = None
    two_sided = any(both for _, both in views)
    backwards = KneserNey(longest, vocabulary).fitted_orders(
        text[::-1] for text in training
    )
    for forward in KneserNey(longest, vocabulary).fitted_orders(training):
        unigram = unigram or forward
        backward = next(backwards) if two_sided else forward
        for view in views:
            if orders is not None and forward.order != orders[view]:
                continue
            seen, both = view
            model: KneserNey | Product = forward
            if both:
                product, before = (
                    Product(forward, backward, unigram, candidates),
                    best.get(view),
                )
                if isinstance(before, Product):
                    product = product._replace(exponents=before.exponents)
                around = product.look_up(validation, seen=seen).take(chosen)
                model = product = product.fitted(around)
                bits = product.bits(around)
            else:
                bits = token_bits(forward, validation, seen=seen)[chosen]
            if (total := float(bits.sum())) < least[view]:
                least[view], best[view] = total, model
        if orders is None and forward.order >= _PATIENCE + max(
            one.order for one in best.values()
        ):
            break
    assert unigram is not None
    parts = [
        f"{best[view].order} {'on both sides' if view[1] else 'from the left'}"
        for view in views
    ]
    pairs = ", ".join(
        " and ".join(parts[first : first + 2]) for first in range(0, len(parts), 2)
    )
    log(f"n-grams over tokens: best order{'s' if two_sided else ''} {pairs}")
    return TokenModels(best, unigram)
