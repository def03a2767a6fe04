"""A token n-gram that sees both sides: the normalised product of one read forwards and one read backwards.

    P(w | l, r) ∝ P_f(w | l)^a P_b(w | r)^b P_1(w)^c

with P_1 the frequency of w. Were both sides independent given w, a = b = 1 and c = −1 would be exact;
the exponents are those with the fewest bits on validation tokens. Their logarithm is linear in a, b, c, so
that there is one optimum (Newton's method finds it).

Shapes: M hidden tokens, C candidates (tokens that may be hidden), F = 3 factors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.baselines.ngram import KneserNey
from bigbird_dna.console import progress

# Probabilities that are held at a time: 16 MB, and some ten times that with what is made of them.
CELLS = 1 << 21
_NEWTON_STEPS = 20
_ENOUGH = 1e-9  # nats a token that a step would still save
_RIDGE = 1e-9  # where a factor says nothing (all tokens as frequent), its exponent stays as it is

Floats = NDArray[np.float64]
Ids = NDArray[np.integer]


class Asked(NamedTuple):
    """Hidden tokens of documents, and what the two models know of their surroundings."""

    tokens: NDArray[np.int64]  # (M,) what they are, as places among the candidates
    forward: NDArray[np.int32]  # (order, M) contexts
    backward: NDArray[np.int32]  # (order, M)


class Product(NamedTuple):
    """Three fitted models and the tokens that may be hidden; `exponents` are a, b, c."""

    forward: KneserNey
    backward: KneserNey  # of documents read backwards
    unigram: KneserNey  # of order 1
    candidates: NDArray[np.int64]  # (C,) ascending
    exponents: tuple[float, float, float] = (1.0, 1.0, -1.0)

    def ask(self, documents: Sequence[Ids], hidden: Sequence[Ids]) -> Asked:
        """Look up the surroundings of the tokens `hidden`, places in each of `documents`.

        All tokens around a hidden one are seen, other hidden ones too.

        Raises
        ------
        ValueError : a hidden token is not among the candidates.
        """
        tokens = [document[places] for document, places in zip(documents, hidden, strict=True)]
        own = np.concatenate([np.zeros(0, np.int64), *tokens])
        found = np.minimum(np.searchsorted(self.candidates, own), len(self.candidates) - 1)
        wrong = np.flatnonzero(self.candidates[found] != own)
        if wrong.size:
            raise ValueError(f"token {own[wrong[0]]} is hidden, but not among the candidates")
        forward = _side_by_side(self.forward, documents, hidden)
        turned = [len(document) - 1 - places for document, places in zip(documents, hidden, strict=True)]
        backward = _side_by_side(self.backward, [document[::-1] for document in documents], turned)
        return Asked(found, forward, backward)

    def bits(self, asked: Asked) -> Floats:
        """Bits (M,) of the hidden tokens given both sides."""
        theta, bits = np.array(self.exponents), [np.zeros(0)]
        for part, factors in progress(self._factors(asked), "n-gram of both sides", self._parts(asked)):
            bits.append(-_log_shares(theta, factors)[np.arange(len(part.tokens)), part.tokens])
        return np.concatenate(bits) / np.log(2)

    def fitted(self, asked: Asked) -> Product:
        """The product with the exponents that give the tokens asked for the fewest bits."""
        theta = np.array(self.exponents)
        cost, gradient, hessian = self._cost(theta, asked)
        for _ in range(_NEWTON_STEPS):
            step = np.linalg.solve(hessian + _RIDGE * np.eye(3), -gradient)
            saved = -float(gradient @ step)
            if saved < _ENOUGH:
                break
            while saved >= _ENOUGH:
                found = self._cost(theta + step, asked)
                if found[0] <= cost:
                    theta, (cost, gradient, hessian) = theta + step, found
                    break
                step, saved = step / 2, saved / 2
            else:
                break
        a, b, c = theta.tolist()
        return self._replace(exponents=(a, b, c))

    def _cost(self, theta: Floats, asked: Asked) -> tuple[float, Floats, Floats]:
        """Mean nats of the tokens, with its gradient (F,) and Hessian (F, F) in the exponents."""
        cost, gradient, hessian = 0.0, np.zeros(3), np.zeros((3, 3))
        for part, factors in self._factors(asked):
            logs = _log_shares(theta, factors)
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
            part = Asked(*(values[..., start : start + rows] for values in asked))
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


def _side_by_side(model: KneserNey, documents: Sequence[Ids], places: Sequence[Ids]) -> NDArray[np.int32]:
    none = np.zeros((model.order, 0), np.int32)
    return np.concatenate([none, *map(model.contexts, documents, places)], axis=1)


def _log_shares(theta: Floats, factors: Sequence[Floats]) -> Floats:
    """Log of the normalised product (m, C)."""
    logits = sum(exponent * factor for exponent, factor in zip(theta, factors, strict=True))
    assert isinstance(logits, np.ndarray)
    logits -= logits.max(1, keepdims=True)
    logits -= np.log(np.exp(logits).sum(1, keepdims=True))
    return logits
