"""A random order-k Markov source of bases, whose entropy and probabilities are known."""

import numpy as np


class Source:
    """Bases with probabilities (4 ** order, 4) drawn from a Dirichlet distribution."""

    def __init__(self, order: int, seed: int, concentration: float = 0.7) -> None:
        self.order = order
        rng = np.random.default_rng(seed)
        self.table = 0.97 * rng.dirichlet([concentration] * 4, 4**order) + 0.03 / 4
        states = np.full(
            4**order, 4.0**-order
        )  # to the stationary distribution, step by step
        for _ in range(2000):
            states = (states[:, None] * self.table).reshape(4, -1).sum(0)
        self.states = states  # (4 ** order,) how frequent they are
        self.entropy = float(
            -(states[:, None] * self.table * np.log2(self.table)).sum()
        )  # bits per base

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

    def given_all_others(self, seen):
        """Chances (N, L, 4) of the bases at each place of texts (N, L), given all other bases that are seen.

        4 stands for a base that isn't seen. Nothing is known of what lies around a text. Exact, by going
        through the texts forward and backward.
        """
        texts, length = seen.shape
        may_be = (seen[:, :, None] == 4) | (
            seen[:, :, None] == np.arange(4)
        )  # (N, L, 4)
        size = len(self.states)
        following = (
            4 * np.arange(size)[:, None] + np.arange(4)
        ) % size  # state and base → state
        before = np.empty(
            (length, texts, size)
        )  # chances of the state before each place, by what is before
        state = np.tile(self.states, (texts, 1))
        for place in range(length):
            before[place] = state
            ways = state[:, :, None] * self.table * may_be[:, place, None, :]
            state = ways.reshape(texts, 4, size).sum(1)  # the oldest base is forgotten
            state /= state.sum(1, keepdims=True)
        behind = np.ones((texts, size))  # chances of what is behind, by the state there
        found = np.empty((texts, length, 4))
        for place in range(length - 1, -1, -1):
            ways = self.table * behind[:, following]
            found[:, place] = (before[place][:, :, None] * ways).sum(1)
            behind = (ways * may_be[:, place, None, :]).sum(2)
            behind /= behind.sum(1, keepdims=True)
        return found / found.sum(2, keepdims=True)

    def chances_of(self, texts: np.ndarray) -> np.ndarray:
        """Probability (T,) of texts (T, n) after their first `order` bases."""
        found = np.ones(len(texts))
        for place in range(self.order, texts.shape[1]):
            state = np.zeros(len(texts), np.int64)
            for base in texts[:, place - self.order : place].T:
                state = 4 * state + base
            found *= self.table[state, texts[:, place]]
        return found
