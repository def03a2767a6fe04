"""A random order-k Markov source of bases, whose entropy and probabilities are known."""

from itertools import product

import numpy as np


class Source:
    """Bases with probabilities (4 ** order, 4) drawn from a Dirichlet distribution."""

    def __init__(self, order: int, seed: int, concentration: float = 0.7) -> None:
        self.order = order
        rng = np.random.default_rng(seed)
        self.table = 0.97 * rng.dirichlet([concentration] * 4, 4**order) + 0.03 / 4
        states = np.full(4**order, 4.0**-order)  # to the stationary distribution, step by step
        for _ in range(2000):
            states = (states[:, None] * self.table).reshape(4, -1).sum(0)
        self.entropy = float(-(states[:, None] * self.table * np.log2(self.table)).sum())  # bits per base

    def sample(self, bases: int, seed: int) -> np.ndarray:
        """(bases,) codes, from a state that 200 bases have forgotten."""
        rng = np.random.default_rng(seed)
        steps = rng.random(bases + 200)
        limits = self.table.cumsum(1)[:, :3].tolist()
        found, state, size = [], 0, 4**self.order
        for step in steps.tolist():
            one, two, three = limits[state]
            base = (step > one) + (step > two) + (step > three)
            found.append(base)
            state = (4 * state + base) % size
        return np.array(found[200:], dtype=np.uint8)

    def one_sided(self, codes, starts, ends):
        """Bits (M,) of stretches given all bases before, which are at least `order`."""
        bits = np.zeros(len(starts))
        for number, (start, end) in enumerate(zip(starts, ends, strict=True)):
            bits[number] = -np.log2(self._chances(codes[start - self.order : end][None])[0])
        return bits

    def two_sided(self, codes, starts, ends):
        """Bits (M,) of stretches of at most six bases given all bases around them."""
        bits = np.zeros(len(starts))
        for number, (start, end) in enumerate(zip(starts, ends, strict=True)):
            every = np.array([*product(range(4), repeat=end - start)])
            texts = np.tile(codes[start - self.order : end + self.order], (len(every), 1))
            texts[:, self.order : self.order + end - start] = every
            chances = self._chances(texts)
            own = (every == codes[start:end]).all(1)
            bits[number] = -np.log2(chances[own][0] / chances.sum())
        return bits

    def _chances(self, texts: np.ndarray) -> np.ndarray:
        """Probability (T,) of texts (T, n) after their first `order` bases."""
        found = np.ones(len(texts))
        for place in range(self.order, texts.shape[1]):
            state = np.zeros(len(texts), np.int64)
            for base in texts[:, place - self.order : place].T:
                state = 4 * state + base
            found *= self.table[state, texts[:, place]]
        return found
