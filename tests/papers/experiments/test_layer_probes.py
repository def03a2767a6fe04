"""Linear probes: vectors of every layer, the regression on them, and the command."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from bigbird_dna.baselines.kmers import PROBE_PENALTIES, fit_probe
from bigbird_dna.config import load_config
from bigbird_dna.data.predictions import AlignedPredictions
from bigbird_dna.metrics.auroc import auroc
from bigbird_dna.model.embedding import layer_means
from bigbird_dna.model.encoder import Encoder
from bigbird_dna.papers.experiments.layer_probes import (
    Probed,
    probe_promoters,
    probe_report,
)
from tests.cli.command import Run
from tests.papers.comparators.test_known_differences import write_language_model
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


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An encoder whose embeddings single out a base: random ones can't do without that either."""
    return write_language_model(tmp_path_factory.mktemp("probe") / "model", seed=3)


def probed(path: Path, model: Path, output: Path, seed: int = 1) -> pd.DataFrame:
    sets = ["promoters.evaluation.baseline_kmer=3", "example_scan.negative_set=genomic"]
    probe_promoters(load_config(path, sets), model, output, random_seed=seed)
    return pd.read_csv(output / "probes.tsv", sep="\t")


def test_layers_of_a_model_and_of_fresh_weights(
    tiny_config: Path, pretrained: Path, tmp_path: Path
) -> None:
    table = probed(tiny_config, pretrained, tmp_path / "one")
    assert table["weights"].tolist() == ["pretrained"] * 3 + ["random"] * 3 + ["k-mers"]
    # The motif of 12 bp is in a mean over tokens, even of random vectors.
    assert table["auroc"].between(0.5, 1).all() and table["auroc"].max() > 0.7
    assert (tmp_path / "one/probes.svg").stat().st_size > 10_000
    assert table["layer"].tolist()[:6] == [0, 1, 2] * 2 and np.isnan(
        table["layer"].iloc[6]
    )
    assert table["delta_auroc"].notna().tolist() == [True] * 3 + [False] * 4
    differences = table["auroc"][:3].to_numpy() - table["auroc"][3:6].to_numpy()
    np.testing.assert_allclose(table["delta_auroc"][:3], differences, atol=1e-5)
    # The same weights as the random ones: nothing is gained, in any layer.
    same = probed(tiny_config, pretrained, tmp_path / "same", seed=3)
    assert (same["delta_auroc"].iloc[:3] == 0).all()
    pd.testing.assert_frame_equal(same.iloc[:3, :5], table.iloc[:3, :5])


def test_probes_of_noncoding_pairs(tmp_path: Path) -> None:
    labels, pairs = np.tile([1, 0], 200), np.arange(400) // 2
    tests = AlignedPredictions(
        "genomic", labels, pairs, pairs, {}, np.where(pairs % 2, 0.1, 0.9)
    )
    rng = np.random.default_rng(1)
    probes = [
        Probed(name, 0, 1.0, labels * lift + rng.normal(size=400))
        for name, lift in {"pretrained": 2.0, "random": 1.0}.items()
    ]
    table = probe_report(tests, probes, tmp_path)
    assert table["stratum"].tolist() == ["all"] * 2 + ["noncoding"] * 2
    for row, probe in zip(table.to_dict("records"), probes * 2, strict=True):
        kept = pairs % 2 > 0 if row["stratum"] == "noncoding" else pairs >= 0
        assert row["auroc"] == auroc(labels[kept], probe.scores[kept]).value
    # Nothing but one stratum without coding fractions.
    assert (
        probe_report(replace(tests, coding=None), probes, tmp_path)["stratum"].tolist()
        == ["all"] * 2
    )


def test_the_experiment_has_no_arms(
    run: Run, tiny_config: Path, pretrained: Path, tmp_path: Path
) -> None:
    config = load_config(tiny_config)
    assert run("experiment plan", tiny_config, "layer_probes").out.count("\n") == 1
    shutil.copytree(pretrained, config.paths.pretrained)
    result = run(
        "experiment compare", tiny_config, "layer_probes", "-o", tmp_path / "report"
    )
    shutil.rmtree(config.paths.pretrained)
    assert result.code == 0 and result.out == "", result.err
    assert (
        "pretrained layer 0: AUROC 0." in result.err
        and "k-mers: AUROC 0." in result.err
    )
    assert len(pd.read_csv(tmp_path / "report/probes.tsv", sep="\t")) == 7
