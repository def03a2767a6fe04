"""What is known of tokens before any training: how frequent they are, and what stands beside them.

A masked-token model spends its first hundreds of steps on finding both out. They can be counted: the output's
biases begin as log frequencies, and token embeddings as vectors whose products tell how much more often two
tokens are neighbours than by chance, the singular vectors of their pointwise mutual information (Levy &
Goldberg 2014, "Neural word embedding as implicit matrix factorization"). All of them are learnt like the
rest afterwards.
"""

import numpy as np
import torch
from numpy.typing import NDArray

from bigbird_dna.console import log
from bigbird_dna.model.heads import PretrainingNetwork
from bigbird_dna.model.input_embeddings import initial_deviation
from bigbird_dna.pretraining.sampling import Tokens, document_bounds

LARGEST_VOCABULARY = 4096  # of which all pairs are counted: a matrix of 256 MB, and a minute
COUNTED = 20_000_000  # tokens, from the store's start
SIZE = 2.0  # of embeddings, in deviations of other weights; chosen as the rest, see docs/results.md
_UNSEEN = 0.5  # added to every count

Floats = NDArray[np.float64]


def begin_with_counts(network: PretrainingNetwork, store: Tokens) -> None:
    """Set the token embeddings and the output's biases from a store's tokens; changes the network in place.

    Components that are zero in all tokens, where heads look for positions, stay so; so do embeddings of
    tokens that the store hasn't got. With a vocabulary above `LARGEST_VOCABULARY` the biases alone are set,
    and the log says so.
    """
    ids = np.asarray(store.tokens[:COUNTED]).astype(np.int64)
    weight, bias = network.encoder.embeddings.token.weight, network.masked_tokens.bias
    vocabulary = len(bias)
    counts = np.bincount(ids, minlength=vocabulary)
    with torch.no_grad():
        bias.copy_(torch.from_numpy(_log_shares(counts)).float())
    if vocabulary > LARGEST_VOCABULARY:
        log(f"{vocabulary:,} pieces are too many to count their pairs: embeddings begin at random")
        return
    seen = np.flatnonzero(counts)
    free = torch.nonzero((weight != 0).any(0))[:, 0]
    vectors = neighbour_vectors(ids, document_bounds(store), seen, len(free))
    vectors *= SIZE * initial_deviation(weight.shape[1]) / max(float(vectors.std()), 1e-12)
    places = torch.from_numpy(seen)[:, None], free[None, : vectors.shape[1]]
    with torch.no_grad():
        weight[places] = torch.from_numpy(vectors).to(weight.dtype)


def neighbour_vectors(
    ids: NDArray[np.int64], bounds: NDArray[np.int64], tokens: NDArray[np.int64], width: int
) -> Floats:
    """Vectors (T, min(width, T)) of `tokens` (T,): what stands to their right and to their left, in short.

    Parameters
    ----------
    ids
        Token ids (N,), in reading order.
    bounds
        Where documents begin in `ids`: tokens on both sides of one aren't neighbours.
    tokens
        The ids, ascending, that vectors are of; all that is in `ids`.
    """
    size = len(tokens)
    number = np.zeros(int(tokens.max(initial=0)) + 1, np.int64)
    number[tokens] = np.arange(size)
    own = number[ids]
    beside = np.ones(max(len(own) - 1, 0), bool)
    inner = bounds[(bounds > 0) & (bounds < len(own))]
    beside[inner - 1] = False
    pairs = own[:-1][beside] * size + own[1:][beside]
    counts = np.bincount(pairs, minlength=size * size).reshape(size, size)
    information = _log_shares(counts) - _log_shares(counts.sum(1))[:, None] - _log_shares(counts.sum(0))
    # Of T × 2T numbers the left singular vectors, by the eigenvectors of their products.
    products = information @ information.T + information.T @ information
    values, vectors = np.linalg.eigh(products)
    chosen = np.argsort(-values)[:width]
    vectors = vectors[:, chosen] * np.sqrt(np.sqrt(np.maximum(values[chosen], 0)))
    # Of a vector and its opposite, which are both right, the one whose largest component is positive.
    largest = np.abs(vectors).argmax(0)
    return np.asarray(vectors * np.sign(vectors[largest, np.arange(vectors.shape[1])]))


def _log_shares(counts: NDArray[np.integer]) -> Floats:
    return np.asarray(np.log((counts + _UNSEEN) / (counts + _UNSEEN).sum()))
