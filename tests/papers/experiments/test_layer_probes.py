"""Linear probes: vectors of every layer, the regression on them, and strata of the test windows."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from bigbird_dna.baselines.kmers import PROBE_PENALTIES, fit_probe
from bigbird_dna.data.predictions import AlignedPredictions
from bigbird_dna.metrics.auroc import auroc
from bigbird_dna.model.embedding import layer_means
from bigbird_dna.model.encoder import Encoder
from bigbird_dna.papers.experiments.layer_probes import probe_table
from tests.toys import small_encoder

CPU = torch.device("cpu")


@pytest.mark.parametrize("extra", [0, 2])
def test_vectors_of_every_layer_are_those_of_an_encoder_that_ends_there(
    extra: int,
) -> None:
    torch.manual_seed(0)
    encoder = Encoder(small_encoder(20, layers=3, num_global_tokens=extra)).eval()
    rng = np.random.default_rng(0)
    rows = [rng.integers(5, 20, length).astype(np.int32) for length in (40, 7, 33, 40)]
    found = layer_means(encoder, rows, pad_id=0, batch_size=3, device=CPU)
    assert found.shape == (4, 4, 16)
    layers = encoder.layers
    for depth in range(4):
        encoder.layers = layers[:depth]
        for row, vector in zip(rows, found[:, depth], strict=True):
            with torch.inference_mode():
                alone = encoder(torch.from_numpy(row.astype(np.int64))[None])[0].mean(0)
            np.testing.assert_allclose(vector, alone, atol=1e-5)
    encoder.layers = layers
    again = layer_means(encoder, rows[::-1], pad_id=0, batch_size=1, device=CPU)
    np.testing.assert_array_equal(again[::-1], found)
    assert not any(module._forward_hooks for module in encoder.modules())
    # And besides them means over parts of the tokens.
    parts = np.array([[3, 11], [6, 7], [0, 33], [8, 9]])
    both = layer_means(encoder, rows, pad_id=0, batch_size=2, device=CPU, parts=parts)
    np.testing.assert_array_equal(both[..., :16], found)
    for row, (first, last), vector in zip(
        rows, parts.tolist(), both[:, -1, 16:], strict=True
    ):
        with torch.inference_mode():
            hidden = encoder(torch.from_numpy(row.astype(np.int64))[None])[0]
        np.testing.assert_allclose(vector, hidden[first:last].mean(0), atol=1e-5)
    for given, width in ((None, 16), (np.empty((0, 2), np.int64), 32)):
        empty = layer_means(
            encoder, [], pad_id=0, batch_size=1, device=CPU, parts=given
        )
        assert empty.shape == (0, 4, width)


def test_a_probe_finds_the_direction_whatever_the_scale_of_the_vectors() -> None:
    rng = np.random.default_rng(1)
    vectors = rng.normal(size=(600, 8))
    vectors[:, 0] = 3.0  # a component that says nothing has no deviation to divide by
    labels = (vectors[:, 2] - vectors[:, 5] + 0.5 * rng.normal(size=600) > 0).astype(
        np.uint8
    )
    half = slice(None, 300), slice(300, None)
    probe = fit_probe(
        vectors[half[0]], labels[half[0]], vectors[half[1]], labels[half[1]]
    )
    assert set(np.argsort(-np.abs(probe.weights))[:2]) == {2, 5}
    right = (probe.predict(vectors[half[1]]) > 0.5) == labels[half[1]]
    assert right.mean() > 0.8
    scaled = (vectors * np.geomspace(1e-3, 1e3, 8) + 7).astype(np.float64)
    other = fit_probe(
        scaled[half[0]], labels[half[0]], scaled[half[1]], labels[half[1]]
    )
    np.testing.assert_allclose(
        other.predict(scaled[half[1]]), probe.predict(vectors[half[1]]), atol=1e-3
    )


def test_the_penalty_is_strong_where_there_is_nothing_to_learn() -> None:
    rng = np.random.default_rng(2)
    vectors, labels = rng.normal(size=(120, 40)), np.tile([0, 1], 60)
    noise = fit_probe(vectors[:60], labels[:60], vectors[60:], labels[60:])
    assert noise.penalty == PROBE_PENALTIES[0]
    told = vectors + 3 * labels[:, None]
    assert (
        fit_probe(told[:60], labels[:60], told[60:], labels[60:]).penalty
        > PROBE_PENALTIES[0]
    )


def test_probes_of_noncoding_pairs() -> None:
    labels, pairs = np.tile([1, 0], 200), np.arange(400) // 2
    tests = AlignedPredictions(
        "genomic", labels, pairs, pairs, {}, np.where(pairs % 2, 0.1, 0.9)
    )
    rng = np.random.default_rng(1)
    probes = [
        (name, 0, 1.0, labels * lift + rng.normal(size=400))
        for name, lift in {"pretrained": 2.0, "random": 1.0}.items()
    ]
    table = probe_table(tests, probes)
    assert table["stratum"].tolist() == ["all"] * 2 + ["noncoding"] * 2
    for row, probe in zip(table.to_dict("records"), probes * 2, strict=True):
        kept = pairs % 2 > 0 if row["stratum"] == "noncoding" else pairs >= 0
        assert row["auroc"] == auroc(labels[kept], probe[3][kept]).value
    # Nothing but one stratum without coding fractions.
    assert (
        probe_table(replace(tests, coding=None), probes)["stratum"].tolist()
        == ["all"] * 2
    )
