"""The furthest vector: a task of one layer of full attention, and of many sparse ones (BigBird, section 3.4).

Task 1: of n unit vectors, find for each the one that is furthest from it. In one layer each token asks for
the least product with its own vector: query −β u, key u, value u, and for a large β softmax takes that one
alone. A token of a sparse layer takes the furthest one that it sees. Where the furthest of all is not among
these, the layer's output for that token doesn't depend on it, so no weights can give it: the share of tokens
that see theirs bounds what is right, and these weights attain it.

That holds of one layer. Two layers can reach all (`theory.reach`) and still be unable to compare all: that
graphs of Õ(n) edges need Ω̃(n) layers is proven under the orthogonal vectors conjecture, and not shown here.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

# Axes: N vectors, K width.

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
Indices = npt.NDArray[np.intp]

SHARPNESS = 1e8  # β: softmax is the largest one alone where products differ by 1e-6


def random_directions(count: int, width: int, seed: int) -> Tensor:
    """Unit vectors (N, K), float64, drawn uniformly."""
    drawn = np.random.default_rng(seed).standard_normal((count, width))
    return torch.from_numpy(drawn / np.linalg.norm(drawn, axis=1, keepdims=True))


def furthest(vectors: Tensor) -> Indices:
    """The number of the vector that is furthest from each, (N,); of equal ones the first."""
    found: Indices = (vectors @ vectors.T).argmin(1).numpy()
    return found


def answers(vectors: Tensor, attend: Attend) -> Indices:
    """What one layer of an attention answers for each of the vectors (N, K): numbers of vectors (N,).

    `attend(q, k, v)` takes and gives (1, 1, N, K) and scales scores by 1 / √K. An answer is the vector that
    is nearest to the layer's output.
    """
    keys = vectors[None, None]
    queries = keys * (-SHARPNESS * vectors.shape[1] ** 0.5)
    output = attend(queries, keys, keys)[0, 0]
    found: Indices = (output @ vectors.T).argmax(1).numpy()
    return found


def bound(vectors: Tensor, graph: npt.NDArray[np.bool_]) -> float:
    """The largest share of right answers, if the answer for i can depend on j only where `graph[i, j]`."""
    return float(graph[np.arange(len(vectors)), furthest(vectors)].mean())


def accuracy(vectors: Tensor, attend: Attend) -> float:
    """The share of right answers of one layer."""
    return float((answers(vectors, attend) == furthest(vectors)).mean())
