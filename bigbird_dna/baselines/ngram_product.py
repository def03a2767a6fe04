"""A token n-gram that sees both sides: the normalised product of one read forwards and one read backwards.

    P(w | l, r) ∝ P_f(w | l)^a P_b(w | r)^b P_1(w)^c

with P_1 the frequency of w. Were both sides independent given w, a = b = 1 and c = −1 would be exact;
the exponents are those with the fewest bits on validation tokens. The product's logarithm is linear in
a, b, c, so that there is one optimum (Newton's method finds it). Where the hidden tokens are hidden from each
other, those that have no neighbour on the left, on the right or at all have exponents of their own.

Shapes: M hidden tokens, C candidates (tokens that may be hidden), F = 3 factors, G = 4 kinds of surroundings.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.baselines.ngram import KneserNey, tokens_between
from bigbird_dna.console import progress

# Probabilities that are held at a time: 16 MB, and some ten times that with what is made of them.
CELLS = 1 << 21
_NEWTON_STEPS = 20
_ENOUGH = 1e-9  # nats a token that a step would still save
_FEWEST = 30  # tokens of a kind that exponents are fitted to
_RIDGE = 1e-9  # where a factor says nothing (all tokens as frequent), its exponent stays as it is

Floats = NDArray[np.float64]
Ids = NDArray[np.integer]
_NONE = np.zeros(0, np.int64)


class Asked(NamedTuple):
    """Hidden tokens of documents, and what the two models know of their surroundings."""

    tokens: NDArray[np.int64]  # (M,) what they are, as places among the candidates
    kinds: NDArray[np.int64]  # (M,) 2 if the left neighbour is seen, plus 1 if the right one is
    forward: NDArray[np.int32]  # (order, M) contexts
    backward: NDArray[np.int32]  # (order, M)

    def some(self, chosen: NDArray[np.integer] | slice) -> Asked:
        """Those of the tokens that are chosen."""
        forward, backward = self.forward[:, chosen], self.backward[:, chosen]
        return Asked(self.tokens[chosen], self.kinds[chosen], forward, backward)


class Product(NamedTuple):
    """Three fitted models, the tokens that may be hidden, and a, b, c of each kind of surroundings."""

    forward: KneserNey
    backward: KneserNey  # of documents read backwards
    unigram: KneserNey  # of order 1
    candidates: NDArray[np.int64]  # (C,) ascending
    exponents: Floats = np.tile([1.0, 1.0, -1.0], (4, 1))  # (G, F)

    def ask(self, documents: Sequence[Ids], hidden: Sequence[Ids], *, seen: bool = True) -> Asked:
        """Look up the surroundings of the tokens `hidden`, ascending places in each of `documents`.

        All tokens around a hidden one are seen, other hidden ones too unless `seen` is false.

        Raises
        ------
        ValueError : a hidden token is not among the candidates.
        """
        own = np.concatenate([_NONE, *(text[places] for text, places in zip(documents, hidden, strict=True))])
        found = np.minimum(np.searchsorted(self.candidates, own), len(self.candidates) - 1)
        wrong = np.flatnonzero(self.candidates[found] != own)
        if wrong.size:
            raise ValueError(f"token {own[wrong[0]]} is hidden, but not among the candidates")
        forward = [
            self.forward.contexts(document, places, seen=seen)
            for document, places in zip(documents, hidden, strict=True)
        ]
        backward, kinds = [], [_NONE]
        for document, places in zip(documents, hidden, strict=True):
            turned = len(document) - 1 - places[::-1]
            backward.append(self.backward.contexts(document[::-1], turned, seen=seen)[:, ::-1])
            left, right = tokens_between(places) > 0, tokens_between(turned)[::-1] > 0
            kinds.append(2 * (left | seen) + (right | seen))
        nothing = np.zeros((self.forward.order, 0), np.int32)
        sides = (np.concatenate([nothing, *side], axis=1) for side in (forward, backward))
        return Asked(found, np.concatenate(kinds), *sides)

    def bits(self, asked: Asked) -> Floats:
        """Bits (M,) of the hidden tokens given both sides."""
        bits = [np.zeros(0)]
        for part, factors in progress(self._factors(asked), "n-gram of both sides", self._parts(asked)):
            logs = _log_shares(self.exponents[part.kinds], factors)
            bits.append(-logs[np.arange(len(part.tokens)), part.tokens])
        found: Floats = np.concatenate(bits) / np.log(2)
        return found

    def fitted(self, asked: Asked) -> Product:
        """The product with the exponents that give the tokens asked for the fewest bits.

        Those of a kind of surroundings that hardly a token has stay as they are.
        """
        exponents = self.exponents.copy()
        for kind in range(len(exponents)):
            members = np.flatnonzero(asked.kinds == kind)
            if len(members) >= _FEWEST:
                exponents[kind] = self._optimum(exponents[kind], asked.some(members))
        return self._replace(exponents=exponents)

    def _optimum(self, theta: Floats, asked: Asked) -> Floats:
        cost, gradient, hessian = self._cost(theta, asked)
        for _ in range(_NEWTON_STEPS):
            step = np.linalg.solve(hessian + _RIDGE * np.eye(3), -gradient)
            saved = -float(gradient @ step)
            while saved >= _ENOUGH:
                found = self._cost(theta + step, asked)
                if found[0] <= cost:
                    theta, (cost, gradient, hessian) = theta + step, found
                    break
                step, saved = step / 2, saved / 2
            else:
                break
        return theta

    def _cost(self, theta: Floats, asked: Asked) -> tuple[float, Floats, Floats]:
        """Mean nats of the tokens, with its gradient (F,) and Hessian (F, F) in the exponents."""
        cost, gradient, hessian = 0.0, np.zeros(3), np.zeros((3, 3))
        for part, factors in self._factors(asked):
            logs = _log_shares(theta[None], factors)
            rows = np.arange(len(part.tokens))
            cost -= float(logs[rows, part.tokens].sum())
            shares = np.exp(logs, out=logs)
            means = np.stack([np.vecdot(shares, factor) for factor in factors])  # (F, m)
            gradient += (means - np.stack([factor[rows, part.tokens] for factor in factors])).sum(1)
            for i, one in enumerate(factors):
                weighted = shares * one
                for j in range(i + 1):
                    hessian[i, j] += np.vdot(weighted, factors[j]) - means[i] @ means[j]
        hessian = np.tril(hessian) + np.tril(hessian, -1).T
        size = max(len(asked.tokens), 1)
        return cost / size, gradient / size, hessian / size

    def _factors(self, asked: Asked) -> Iterator[tuple[Asked, list[Floats]]]:
        """Parts of the tokens asked for, with the logarithms of the factors, each (m, C)."""
        rows = self._rows()
        unigram = np.log(self.unigram.chances(np.zeros((1, 1), np.int32))[:, self.candidates])
        for start in range(0, len(asked.tokens), rows):
            part = asked.some(slice(start, start + rows))
            forward = self.forward.chances(part.forward)[:, self.candidates]
            backward = self.backward.chances(part.backward)[:, self.candidates]
            np.log(forward, out=forward)
            np.log(backward, out=backward)
            yield part, [forward, backward, np.broadcast_to(unigram, forward.shape)]

    def _rows(self) -> int:
        return max(CELLS // self.forward.vocabulary, 1)

    def _parts(self, asked: Asked) -> int:
        return -(-len(asked.tokens) // self._rows())


def fit_backward(model: KneserNey, documents: Iterable[Ids]) -> KneserNey:
    """Fit a model to documents read backwards."""
    return model.fit(document[::-1] for document in documents)


def _log_shares(theta: Floats, factors: Sequence[Floats]) -> Floats:
    """Log of the normalised product (m, C), for exponents (m, F) or (1, F)."""
    logits = np.zeros_like(factors[0])
    for exponent, factor in zip(theta.T, factors, strict=True):
        logits += exponent[:, None] * factor
    logits -= logits.max(1, keepdims=True)
    logits -= np.log(np.exp(logits).sum(1, keepdims=True))
    return logits
