"""Receptive field: the tokens on which a token's vector can depend after some layers (docs/theory.md).

A layer propagates information along the edges of its attention graph (all heads together), and a token keeps
its own. Before the first layer, a convolution propagates embeddings to neighboring tokens.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bigbird_dna.config.mechanisms import OF_PATTERNS
from bigbird_dna.config.network import EncoderConfig
from bigbird_dna.model.mechanism import attention_pattern, attention_weights

# Axes: L tokens, N vectors, K width.

MOST_TOKENS = 1024
"""Default limit of the input length; a graph has the square of it."""

Graph = npt.NDArray[np.bool_]


class ReceptiveField(NamedTuple):
    """Receptive field of several layers: row i of `graph` (L, L) marks the tokens that token i depends on."""

    layers: int
    graph: Graph

    @property
    def fraction(self) -> float:
        return float(self.graph.mean())

    @property
    def complete(self) -> bool:
        return bool(self.graph.all())


def receptive_field(
    encoder: EncoderConfig, tokens: int, most_layers: int | None = None
) -> Iterator[ReceptiveField]:
    """Yield the receptive field of 1, 2, … layers of an encoder for an input of `tokens` tokens.

    `most_layers` may exceed the number of the encoder's layers; further layers are of the same kind.
    """
    layers = most_layers or encoder.layers
    deeper = encoder.model_copy(update={"layers": layers})

    def graph(layer: int) -> Graph:
        edges = layer_graph(deeper, layer, tokens)
        if layer == 0 and encoder.convolution:
            # The first layer attends to vectors that already contain the convolution's neighborhood.
            return _product(edges, _convolution_graph(deeper, tokens))
        return edges

    return reached(graph, layers)


def layer_graph(encoder: EncoderConfig, layer: int, tokens: int) -> Graph:
    """Return the attention graph of a layer, over all heads, (L, L); ETC's globals are the first tokens.

    For a mechanism without a block pattern, edges are weights above 0 for the random queries and keys of
    `model.mechanism.attention_weights`. If a token's vector determines its neighbors, this is one example.
    """
    length = tokens + encoder.num_global_tokens
    if encoder.attention == "full":
        heads = np.ones((1, length, length), dtype=bool)
        if encoder.causal:
            heads = np.tril(heads)
    elif encoder.attention in OF_PATTERNS:
        heads = attention_pattern(encoder).mask(length, encoder.heads, layer)
    else:
        heads = attention_weights(encoder, layer, tokens)[0] > 0
    return np.asarray(heads.any(axis=0) | np.eye(length, dtype=bool))


def _convolution_graph(encoder: EncoderConfig, tokens: int) -> Graph:
    """Return the tokens whose embeddings the convolution sums, (L, L); extra globals are not convolved."""
    extra = encoder.num_global_tokens
    graph = np.eye(tokens + extra, dtype=bool)
    positions = np.arange(tokens)
    distances = np.abs(positions[:, None] - positions)
    graph[extra:, extra:] = distances <= encoder.convolution // 2
    return graph


def _product(last: Graph, first: Graph) -> Graph:
    return np.asarray(last.astype(np.float32) @ first.astype(np.float32) > 0)


def reached(
    graphs: Callable[[int], Graph], most_layers: int
) -> Iterator[ReceptiveField]:
    """Yield the receptive field of 1, 2, … layers with the given graphs (L, L), until it is complete.

    Row i after l layers: the receptive fields, after l − 1 layers, of all tokens in row i of the last graph.
    """
    graph = graphs(0)
    for layer in range(most_layers):
        if layer:
            graph = _product(graphs(layer), graph)
        field = ReceptiveField(layer + 1, graph)
        yield field
        if field.complete:
            return
