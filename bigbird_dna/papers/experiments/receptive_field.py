"""How far information goes: which tokens a token's vector can depend on after some layers (docs/theory.md).

A layer carries information along the edges of its graph, all heads' together, and a token keeps what it has.
Before the first layer a convolution carries what embeddings say to the tokens around. The farthest of n unit
vectors u is found by query −β u, key u and value u: for a large β softmax takes the least product alone. The
share of tokens that see theirs bounds what is right in one layer, and these weights attain it.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bigbird_dna.config import EncoderConfig
from bigbird_dna.config.mechanisms import OF_PATTERNS
from bigbird_dna.model.mechanism import attention_pattern, attention_weights

# Axes: L tokens, N vectors, K width.

MOST_TOKENS = 1024
"""Of an input, unless more are asked for: a graph has the square of them."""

Graph = npt.NDArray[np.bool_]
Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
Indices = npt.NDArray[np.intp]

SHARPNESS = 1e8  # β: softmax is the largest one alone where products differ by 1e-6


class ReceptiveField(NamedTuple):
    """What so many layers reach together: `graph` (L, L) says of which tokens a token's vector knows."""

    layers: int
    graph: Graph

    @property
    def share(self) -> float:
        return float(self.graph.mean())

    @property
    def complete(self) -> bool:
        return bool(self.graph.all())


def receptive_field(
    encoder: EncoderConfig, tokens: int, most_layers: int | None = None
) -> Iterator[ReceptiveField]:
    """What 1, 2, … layers of an encoder reach in an input of `tokens` tokens; at most its own layers.

    With `most_layers` there may be more of them than the encoder has, of the same kind.
    """
    layers = most_layers or encoder.layers
    deeper = encoder.model_copy(update={"layers": layers})

    def graph(layer: int) -> Graph:
        seen = layer_graph(deeper, layer, tokens)
        # A token that the first layer sees brings what the convolution gave it.
        return _product(seen, _convolved(deeper, tokens)) if layer == 0 and encoder.convolution else seen

    return reached(graph, layers)


def layer_graph(encoder: EncoderConfig, layer: int, tokens: int) -> Graph:
    """Who sees whom in a layer, by any of its heads, (L, L); ETC's extra globals are the first positions.

    Of a mechanism that goes by no block pattern: which weights are above 0, for the random queries and keys
    of `model.mechanism.attention_weights`. Where a token's vector decides what it sees, that is one example.
    """
    length = tokens + encoder.num_global_tokens
    if encoder.attention == "full":
        heads = np.ones((1, length, length), dtype=bool)
        heads = np.tril(heads) if encoder.causal else heads
    elif encoder.attention in OF_PATTERNS:
        heads = attention_pattern(encoder).mask(length, encoder.heads, layer)
    else:
        heads = attention_weights(encoder, layer, tokens)[0] > 0
    seen: Graph = np.logical_or.reduce(heads) | np.eye(length, dtype=bool)
    return seen


def _convolved(encoder: EncoderConfig, tokens: int) -> Graph:
    """Whose embeddings the convolution adds up for each token, (L, L); it leaves extra globals alone."""
    graph = np.eye(tokens + encoder.num_global_tokens, dtype=bool)
    places = np.arange(tokens)
    near: Graph = np.abs(places[:, None] - places) <= encoder.convolution // 2
    graph[encoder.num_global_tokens :, encoder.num_global_tokens :] = near
    return graph


def _product(one: Graph, other: Graph) -> Graph:
    found: Graph = one.astype(np.float32) @ other.astype(np.float32) > 0
    return found


def reached(graphs: Callable[[int], Graph], most_layers: int) -> Iterator[ReceptiveField]:
    """What 1, 2, … layers reach, given each layer's graph (L, L) by its number; ends where that is all.

    Row i after l layers: the tokens that the last layer's row i sees, and all that they knew before it.
    """
    known: Graph | None = None
    for layer in range(most_layers):
        graph = graphs(layer)
        known = graph if known is None else _product(graph, known)
        found = ReceptiveField(layer + 1, known)
        yield found
        if found.complete:
            return


def random_directions(count: int, width: int, seed: int) -> Tensor:
    """Unit vectors (N, K), float64, drawn uniformly."""
    drawn = np.random.default_rng(seed).standard_normal((count, width))
    return torch.from_numpy(drawn / np.linalg.norm(drawn, axis=1, keepdims=True))


def farthest(vectors: Tensor) -> Indices:
    """The number of the vector that is farthest from each, (N,); of equal ones the first."""
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
    return float(graph[np.arange(len(vectors)), farthest(vectors)].mean())


def accuracy(vectors: Tensor, attend: Attend) -> float:
    return float((answers(vectors, attend) == farthest(vectors)).mean())
