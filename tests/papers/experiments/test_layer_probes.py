"""Linear probes: vectors of every layer, the regression on them, and the command."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from bigbird_dna.baselines.kmers import PROBE_PENALTIES, fit_probe
from bigbird_dna.config import EncoderConfig
from bigbird_dna.model.directory import save
from bigbird_dna.model.embeddings import layer_means
from bigbird_dna.model.encoder import Encoder
from bigbird_dna.model.settings import ChromatinSettings, NamedTrack, PretrainingSettings
from tests.cli.command import Run, refused
from tests.toys import random_model, small_tokenizer

CPU = torch.device("cpu")


@pytest.mark.parametrize("extra", [0, 2])
def test_vectors_of_every_layer_are_those_of_an_encoder_that_ends_there(extra: int) -> None:
    config = EncoderConfig(
        vocabulary=20, layers=3, hidden=16, heads=2, positions=64, block_size=8, num_global_tokens=extra
    )
    torch.manual_seed(0)
    encoder = Encoder(config).eval()
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
    assert layer_means(encoder, [], pad_id=0, batch_size=1, device=CPU).shape == (0, 4, 16)


def test_a_probe_finds_the_direction_whatever_the_scale_of_the_vectors() -> None:
    rng = np.random.default_rng(1)
    vectors = rng.normal(size=(600, 8))
    vectors[:, 0] = 3.0  # a component that says nothing has no deviation to divide by
    labels = (vectors[:, 2] - vectors[:, 5] + 0.5 * rng.normal(size=600) > 0).astype(np.uint8)
    half = slice(None, 300), slice(300, None)
    probe = fit_probe(vectors[half[0]], labels[half[0]], vectors[half[1]], labels[half[1]])
    assert set(np.argsort(-np.abs(probe.weights))[:2]) == {2, 5}
    right = (probe.predict(vectors[half[1]]) > 0.5) == labels[half[1]]
    assert right.mean() > 0.8
    scaled = (vectors * np.geomspace(1e-3, 1e3, 8) + 7).astype(np.float64)
    other = fit_probe(scaled[half[0]], labels[half[0]], scaled[half[1]], labels[half[1]])
    np.testing.assert_allclose(other.predict(scaled[half[1]]), probe.predict(vectors[half[1]]), atol=1e-3)


def test_the_penalty_is_strong_where_there_is_nothing_to_learn() -> None:
    rng = np.random.default_rng(2)
    vectors, labels = rng.normal(size=(120, 40)), np.tile([0, 1], 60)
    noise = fit_probe(vectors[:60], labels[:60], vectors[60:], labels[60:])
    assert noise.penalty == PROBE_PENALTIES[0]
    told = vectors + 3 * labels[:, None]
    assert fit_probe(told[:60], labels[:60], told[60:], labels[60:]).penalty > PROBE_PENALTIES[0]


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An encoder whose embeddings single out a base: random ones can't do without that either."""
    path = tmp_path_factory.mktemp("probe") / "model"
    config = EncoderConfig(
        vocabulary=small_tokenizer().vocabulary, layers=2, hidden=16, heads=2, positions=128, block_size=8
    )
    save(path, random_model(small_tokenizer(), config, PretrainingSettings(), seed=3), {}, {}, {})
    return path


def test_the_command(tiny_config: Path, pretrained: Path, tmp_path: Path, run: Run) -> None:
    words = ("evaluate probe", tiny_config, "--negative-set", "genomic", "--pretrained", pretrained)
    words += ("--set", "promoters.evaluation.baseline_kmer=3")
    result = run(*words, "-o", tmp_path / "one", "--batch-size", 5)
    assert result.code == 0 and result.out == "", result.err
    table = pd.read_csv(tmp_path / "one/probes.tsv", sep="\t")
    assert table["weights"].tolist() == ["pretrained"] * 3 + ["random"] * 3 + ["k-mers"]
    # The motif of 12 bp is in a mean over tokens, even of random vectors.
    assert table["auroc"].between(0.5, 1).all() and table["auroc"].max() > 0.7
    assert "pretrained layer 0: AUROC 0." in result.err and "k-mers: AUROC 0." in result.err
    assert (tmp_path / "one/probes.svg").stat().st_size > 10_000
    # The same weights as the random ones: nothing is gained, in any layer.
    same = run(*words, "-o", tmp_path / "same", "--random-seed", 3)
    assert same.code == 0
    table = pd.read_csv(tmp_path / "same/probes.tsv", sep="\t")
    other = pd.read_csv(tmp_path / "one/probes.tsv", sep="\t")
    assert (table["gain"].iloc[:3] == 0).all()
    pd.testing.assert_frame_equal(table.iloc[:3, :5], other.iloc[:3, :5])


def test_what_cannot_be_probed(tiny_config: Path, tmp_path: Path, run: Run) -> None:
    tracks = (NamedTrack(track="x", group="TF"),)
    settings = ChromatinSettings(window=400, bin=200, pooling="bin", bin_layers=0, members=2, tracks=tracks)
    config = EncoderConfig(
        vocabulary=small_tokenizer().vocabulary, layers=1, hidden=16, heads=2, positions=64, block_size=8
    )
    save(tmp_path / "two", random_model(small_tokenizer(), config, settings), {}, {}, {})
    words = ("evaluate probe", tiny_config, "-o", tmp_path / "report", "--negative-set")
    refused(
        run(*words, "genomic", "--pretrained", tmp_path / "two"),
        1,
        "an ensemble of 2 models has no one encoder",
    )
    refused(run(*words, "user", "--pretrained", tmp_path / "gone"), 1, "no such model directory")
    assert not (tmp_path / "report").exists()
