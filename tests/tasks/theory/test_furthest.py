"""The furthest vector, and what a graph reaches."""

from functools import partial
from itertools import accumulate

import numpy as np
import pytest
import torch
from torch import Tensor

from bigbird_dna.attention import Pattern, bigbird_attention, full_attention
from bigbird_dna.config import EncoderConfig, LayerShape, find_mechanism, known_mechanisms
from bigbird_dna.tasks.theory.furthest import accuracy, answers, bound, furthest, random_directions
from bigbird_dna.tasks.theory.reach import layer_graph, reached

N = 192
PATTERNS = {
    "bigbird": Pattern(16, 2, 3, 1, seed=3),
    "window": Pattern(16, 0, 3, 0),
    "random": Pattern(16, 0, 0, 2, seed=1),
    "random_window": Pattern(16, 0, 3, 2),
    "causal": Pattern(16, 2, 3, 1, causal=True),
}


def attend(pattern: Pattern, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return bigbird_attention(q, k, v, pattern, route="blocked")


@pytest.mark.parametrize("width", [4, 32])
def test_one_full_layer_solves_it(width: int) -> None:
    vectors = random_directions(N, width, seed=width)
    distances = np.square(vectors.numpy()[:, None] - vectors.numpy()).sum(-1)
    assert (furthest(vectors) == distances.argmax(1)).all()
    full = partial(full_attention, pattern=Pattern(16, 0, 3, 0))
    assert accuracy(vectors, full) == 1.0


@pytest.mark.parametrize("name", PATTERNS)
def test_a_sparse_layer_attains_its_bound_and_no_more(name: str) -> None:
    pattern = PATTERNS[name]
    vectors = random_directions(N, 16, seed=5)
    graph = pattern.mask(N, 1)[0]
    limit = bound(vectors, graph)
    assert 0.02 < limit < 0.9
    assert accuracy(vectors, partial(attend, pattern)) == limit
    # Of those that it gets wrong it gives the furthest that it sees.
    seen = np.where(graph, (vectors @ vectors.T).numpy(), np.inf).argmin(1)
    assert (answers(vectors, partial(attend, pattern)) == seen).all()


@pytest.mark.parametrize("name", ["sparse_fixed", "axial", "logsparse", "longformer"])
def test_other_weights_do_not_beat_the_bound(name: str) -> None:
    """Any weights of a mechanism whose graph is fixed: here those that it begins with, and random keys."""
    config = EncoderConfig(vocabulary=8, layers=1, hidden=16, heads=1, attention=name)
    graph = layer_graph(config, 0, N)
    module = find_mechanism(name).make(LayerShape(1, 16), config.attention_options).double().eval()

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return module(q, k, v, lengths=None, dropout=0.0, hidden=v[:, 0])

    for seed in range(3):
        vectors = random_directions(N, 16, seed)
        with torch.no_grad():
            found = answers(vectors, attend)
        right = found == furthest(vectors)
        assert right.mean() <= bound(vectors, graph) < 1
        if name != "longformer":  # its global token has projections of its own
            assert right.mean() == bound(vectors, graph)


def test_each_mechanism_of_the_registry_has_a_graph() -> None:
    complete = {}
    for name in ("full", "bigbird", "window", *known_mechanisms()):
        options = {"span": 16} if name == "sparse_fixed" else {}
        config = EncoderConfig(
            **{"vocabulary": 8, "layers": 4, "hidden": 16, "heads": 2, "positions": 128, "block_size": 8},
            **{"attention": name, "attention_options": options},
        )
        found = [*reached(lambda layer, config=config: layer_graph(config, layer, 96), 4)]
        assert (np.diff([one.share for one in found]) >= 0).all(), name
        complete[name] = found[-1].layers if found[-1].complete else None
    assert complete["full"] == 1
    assert complete["bigbird"] == 2  # by way of a global token
    assert complete["window"] is None  # 12 blocks, one further each layer
    assert complete["sparse_fixed"] == 2
    assert complete["axial"] == 2  # along a row, then a column
    for name in complete:
        if name.startswith("combiner_"):
            assert complete[name] == 1, name  # full support


def test_a_window_reaches_one_block_further_each_layer() -> None:
    config = EncoderConfig(vocabulary=8, layers=1, hidden=16, heads=2, attention="window", block_size=16)
    found = [*reached(lambda layer: layer_graph(config, layer, 160), 20)]
    assert found[-1].layers == 9 and found[-1].complete
    first = [int(np.flatnonzero(one.graph[0]).max()) for one in found]
    assert first == [16 * (layer + 2) - 1 for layer in range(9)]


def test_reach_is_what_gradients_find() -> None:
    """Two layers with random blocks of their own: a token's vector depends on what is reached."""
    pattern = Pattern(4, 0, 1, 1, seed=2)
    x = torch.randn(1, 1, 64, 8, dtype=torch.float64, requires_grad=True)
    y = x
    for layer in range(2):
        y = y + bigbird_attention(y, y, y, pattern, layer=layer)
    *_, two = reached(lambda layer: pattern.mask(64, 1, layer)[0], 2)
    assert not two.complete
    for token in range(0, 64, 9):
        (slope,) = torch.autograd.grad(y[0, 0, token].sum(), x, retain_graph=True)
        assert (slope[0, 0].abs().sum(-1).numpy() > 0).tolist() == two.graph[token].tolist()


def test_reach_is_the_product_of_graphs() -> None:
    rng = np.random.default_rng(1)
    graphs = [(rng.random((20, 20)) < 0.08) | np.eye(20, dtype=bool) for _ in range(6)]
    products = accumulate(graphs, lambda known, graph: graph.astype(int) @ known > 0)
    for one, expected in zip(reached(graphs.__getitem__, 6), products, strict=False):
        assert (one.graph == expected).all()
        assert one.share == expected.mean()
