"""Chromatin networks: pooling of tokens of a bin, layers across bins, and the tokens of bins."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bigbird_dna.model.batching import bin_rows
from bigbird_dna.model.heads import BinLayers, ChromatinNetwork, Classifier, pool_bins
from bigbird_dna.model.settings import ChromatinSettings, NamedTrack
from bigbird_dna.tokens.dna import DnaTokenizer
from tests.plain_batches import plain_bin_rows, sentencepiece_of
from tests.toys import random_dna, small_encoder

ENCODER = small_encoder(20, max_length=400, dropout=0.0, block_size=4)
LENGTH, BINS = 240, 12


def chromatin(**changes: Any) -> ChromatinSettings:
    values = {"window": 480, "bin": 40, "pooling": "bin", "bin_layers": 0, "members": 1}
    tracks = [NamedTrack(track=name, group="TF") for name in "abc"]
    return ChromatinSettings(**{**values, "tracks": tracks, **changes})


def spans() -> torch.Tensor:
    """Twelve bins of twenty tokens: (1, K, 2)."""
    starts = torch.arange(BINS) * 20
    return torch.stack([starts, starts + 20], dim=-1)[None]


def test_pooling_is_the_mean_and_the_maximum_of_each_range() -> None:
    torch.manual_seed(0)
    hidden = torch.randn(2, 30, 5, dtype=torch.float64)
    ranges = torch.tensor([[[0, 7], [7, 8], [3, 30]], [[1, 2], [2, 3], [0, 1]]])
    found = pool_bins(hidden, ranges)
    for b in range(2):
        for k, (first, end) in enumerate(ranges[b].tolist()):
            part = hidden[b, first:end]
            torch.testing.assert_close(
                found[b, k], torch.cat([part.mean(0), part.amax(0)])
            )


def test_pooling_has_the_gradient_of_its_parts() -> None:
    torch.manual_seed(0)
    hidden = torch.randn(1, 12, 3, dtype=torch.float64, requires_grad=True)
    ranges = torch.tensor([[[0, 4], [2, 12]]])
    assert torch.autograd.gradcheck(lambda h: pool_bins(h, ranges), (hidden,))


@pytest.mark.parametrize("bin_layers", [0, 1])
def test_far_tokens_reach_a_bin_through_bin_layers_alone(bin_layers: int) -> None:
    """Without random and global blocks and with one layer the encoder sees a few tokens around each."""
    torch.manual_seed(0)
    narrow = ENCODER.model_copy(update={"random_blocks": 0, "global_blocks": 0})
    network = ChromatinNetwork(narrow, chromatin(bin_layers=bin_layers)).eval()
    ids = torch.randint(5, 20, (1, LENGTH))
    changed = ids.clone()
    changed[0, 25:35] = torch.randint(5, 20, (10,))  # in the second bin
    lengths = torch.tensor([LENGTH])
    with torch.inference_mode():
        one, other = (network(x, lengths, spans())[0] for x in (ids, changed))
    differs = (one - other).abs().amax(1) > 1e-6
    assert differs[1]
    assert differs[5:].all() if bin_layers else not differs[5:].any()


@pytest.mark.parametrize(("pooling", "width"), [("first", 1), ("cls", 1), ("bin", 2)])
def test_a_linear_head_is_one_layer_on_the_pooled_vector(
    pooling: Any, width: int
) -> None:
    """Of a classifier, whose [CLS] is first, and of chromatin networks."""
    torch.manual_seed(0)
    classifies = pooling == "first"
    if classifies:
        network: Any = Classifier(ENCODER, 3, "cls", "linear").eval()
    else:
        settings = chromatin(pooling=pooling, head="linear")
        network = ChromatinNetwork(ENCODER, settings).eval()
    head = {
        name: value
        for name, value in network.state_dict().items()
        if not name.startswith("encoder.")
    }
    shapes = {"output.weight": (3, width * ENCODER.hidden), "output.bias": (3,)}
    assert {name: tuple(value.shape) for name, value in head.items()} == shapes
    ids, lengths = torch.randint(5, 20, (1, LENGTH)), torch.tensor([LENGTH])
    with torch.inference_mode():
        hidden = network.encoder(ids, lengths)
        pooled = pool_bins(hidden, spans()) if pooling == "bin" else hidden[:, :1]
        expected = pooled @ head["output.weight"].T + head["output.bias"]
        found = (
            network(ids, lengths)[:, None]
            if classifies
            else network(ids, lengths, spans())
        )
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("head", ["dense", "linear"])
@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_classifier_ignores_padding(pooling: str, head: str) -> None:
    torch.manual_seed(0)
    network = Classifier(ENCODER, outputs=3, pooling=pooling, head=head).eval()  # type: ignore[arg-type]
    ids, lengths = torch.randint(5, 20, (2, 40)), torch.tensor([40, 21])
    with torch.inference_mode():
        together = network(ids, lengths)
        alone = network(ids[1:, :21], lengths[1:])
    assert together.shape == (2, 3)
    torch.testing.assert_close(together[1:], alone, atol=1e-6, rtol=0)


def test_bin_layers_know_distances() -> None:
    """One bin is unlike the others, which are alike: what they make of it tells how far away it is."""
    torch.manual_seed(0)
    layers = BinLayers(ENCODER, 1).eval()
    bins = torch.randn(16).repeat(1, 9, 1)
    bins[0, 2] = torch.randn(16)
    with torch.inference_mode():
        found = layers(bins)[0]
    assert (found[3] - found[8]).abs().max() > 1e-4


def test_bin_layers_take_nothing_of_the_encoder_s_sparse_attention() -> None:
    etc = ENCODER.model_copy(
        update={"num_global_tokens": 4, "relative_max_distance": 3}
    )
    names = set(BinLayers(etc, 2).state_dict())
    assert names == set(BinLayers(ENCODER, 2).state_dict())
    assert not any("relative" in name for name in names)


@st.composite
def windows(draw: st.DrawFn) -> tuple[list[str], np.ndarray, int, int]:
    """Texts of any lengths with runs of N, bins that may stick out of them, their size, and the positions."""
    count, bins = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    texts = []
    for _ in range(count):
        parts = [random_dna(draw(st.integers(1, 80)), draw(st.integers(0, 99)))]
        parts.append("N" * draw(st.sampled_from([0, 0, 3, 50])))
        parts.append(random_dna(draw(st.integers(0, 80)), draw(st.integers(0, 99))))
        texts.append("".join(parts))
    row = st.lists(st.integers(-60, 220), min_size=bins, max_size=bins)
    starts = draw(st.lists(row, min_size=count, max_size=count))
    return (
        texts,
        np.array(starts),
        draw(st.integers(1, 60)),
        draw(st.sampled_from([5, 12, 40, 500])),
    )


@settings(deadline=None, max_examples=100)
@given(windows(), st.integers(1, 2))
def test_all_at_once_is_one_by_one(
    tokenizer: DnaTokenizer, made: tuple[list[str], np.ndarray, int, int], threads: int
) -> None:
    texts, bins, size, positions = made
    found = bin_rows(tokenizer, texts, bins, size, positions, threads)
    expected = plain_bin_rows(
        tokenizer, sentencepiece_of(tokenizer), texts, bins, size, positions
    )
    assert [row.tolist() for row in found.ids] == [row.tolist() for row in expected.ids]
    assert all(row.dtype == np.int32 for row in found.ids)
    np.testing.assert_array_equal(found.spans, expected.spans)
    assert found.spans.dtype == expected.spans.dtype == np.int64


@pytest.mark.parametrize("count", [1, 3])
def test_no_windows(tokenizer: DnaTokenizer, count: int) -> None:
    found = bin_rows(tokenizer, [], np.zeros((0, count), np.int64), 10, 100)
    assert found.ids == [] and found.spans.shape == (0, count, 2)
