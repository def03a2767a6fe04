"""Embeddings and biases that begin with counts."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bigbird_dna.config import EncoderConfig
from bigbird_dna.model.heads import PretrainingNetwork
from bigbird_dna.model.input_embeddings import initial_deviation
from bigbird_dna.pretraining import task
from bigbird_dna.pretraining.task import SIZE, init_from_counts, neighbor_vectors
from bigbird_dna.tokens.store import TokenStore


def store(documents: list[list[int]]) -> TokenStore:
    """A store of documents of one sentence each, in memory."""
    ends = np.cumsum([0, *map(len, documents)])
    ids = np.array([token for document in documents for token in document], np.uint16)
    return TokenStore(None, ids, ends, np.arange(len(documents) + 1), {})  # type: ignore[arg-type, typeddict-item]


def network(vocabulary: int, position: str = "rotary", hidden: int = 128) -> PretrainingNetwork:
    torch.manual_seed(0)
    config = EncoderConfig(
        vocabulary=vocabulary, layers=2, hidden=hidden, heads=4, max_length=64, position_encoding=position
    )
    return PretrainingNetwork(config, next_sentence=False)


def information(documents: list[list[int]], size: int) -> np.ndarray:
    """Oracle: log of how much more often a token stands before another than by chance."""
    counts = np.full((size, size), 0.5)
    for document in documents:
        for left, right in itertools.pairwise(document):
            counts[left, right] += 1
    first, second = counts.sum(1) - 0.5 * size + 0.5, counts.sum(0) - 0.5 * size + 0.5
    return (
        np.log(counts / counts.sum())
        - np.log(first / first.sum())[:, None]
        - np.log(second / second.sum())[None]
    )


@settings(deadline=None, max_examples=30)
@given(st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=30), min_size=1, max_size=6))
def test_vectors_of_full_width_hold_all_that_was_counted(documents: list[list[int]]) -> None:
    """Their products are those of the matrix of pairs, to the power of a half: none of it is lost."""
    documents = [[*range(6)], *documents]
    ids = np.concatenate([np.array(document) for document in documents])
    bounds = np.cumsum([0, *map(len, documents)])
    vectors = neighbor_vectors(ids, bounds, np.arange(6), 100)
    assert vectors.shape == (6, 6)
    matrix = np.hstack([one := information(documents, 6), one.T])
    products = matrix @ matrix.T
    gram = vectors @ vectors.T
    np.testing.assert_allclose(gram @ gram, products, atol=1e-6 * max(1, np.abs(products).max()))
    again = neighbor_vectors(ids, bounds, np.arange(6), 2)
    np.testing.assert_allclose(again, vectors[:, :2], atol=1e-9)


def test_tokens_with_the_same_neighbors_begin_alike() -> None:
    rng = np.random.default_rng(0)
    jumps = rng.choice([1, 2, 3], 4000, p=[0.7, 0.2, 0.1])
    pattern = 10 + np.cumsum(jumps) % 10  # what follows depends on what there is
    ids = np.where((pattern == 12) & (rng.random(4000) < 0.5), 25, pattern).tolist()  # 25 stands in for 12
    made = network(30)
    before = made.encoder.embeddings.token.weight.detach().clone()
    init_from_counts(made, store([ids]))
    weight = made.encoder.embeddings.token.weight.detach()
    alike = torch.nn.functional.cosine_similarity(weight[12, :11], weight[10:26, :11])
    assert alike.topk(2).indices.tolist() == [2, 15]
    unseen = [token for token in range(30) if token not in ids]
    assert torch.equal(weight[unseen], before[unseen])
    rows = weight[sorted(set(ids))][:, :11]
    assert rows.std().item() == pytest.approx(SIZE * initial_deviation(128), rel=0.01)
    assert torch.equal(weight[:, 11:], before[:, 11:])  # eleven tokens fill eleven components


def test_biases_are_log_frequencies() -> None:
    made = network(8)
    init_from_counts(made, store([[5] * 600, [6] * 300 + [7] * 100]))
    shares = made.masked_tokens.bias.detach().exp()
    assert shares.sum().item() == pytest.approx(1, abs=1e-5)
    assert shares[5:].tolist() == pytest.approx([0.6, 0.3, 0.1], abs=0.002)


def test_components_of_positions_stay_clear() -> None:
    made = network(40, "learned")
    token = made.encoder.embeddings.token.weight
    clear = (token == 0).all(0)
    init_from_counts(made, store([np.random.default_rng(0).integers(5, 40, 3000).tolist()]))
    assert clear.sum() == 32 and torch.equal((token == 0).all(0), clear)


def test_pairs_of_too_many_tokens_are_not_counted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(task, "LARGEST_VOCABULARY", 20)
    made = network(21)
    before = made.encoder.embeddings.token.weight.detach().clone()
    init_from_counts(made, store([[5, 6, 7]]))
    assert torch.equal(made.encoder.embeddings.token.weight, before)
    assert made.masked_tokens.bias[5] > made.masked_tokens.bias[8]
    assert "a vocabulary of 21 is" in capsys.readouterr().err
