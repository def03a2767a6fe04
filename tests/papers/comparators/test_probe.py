"""Linear probes behind the comparators' interface: what they read, and that nothing else is chosen."""

from pathlib import Path

import numpy as np
import pytest
import torch

from bigbird_dna.baselines.windows import TextWindows
from bigbird_dna.config import EncoderConfig
from bigbird_dna.errors import DataError, ModelError
from bigbird_dna.metrics.auroc import auroc
from bigbird_dna.model.encoder import Encoder
from bigbird_dna.model.model import layer_means
from bigbird_dna.model.settings import ChromatinSettings, NamedTrack
from bigbird_dna.papers.comparators.probe import EncoderProbe
from tests.golden.messages import fails
from tests.papers.comparators.planted import write_language_model

MIDDLE = 40  # bp, as much as the two flanks beside it have together
RICH, POOR = (0.1, 0.4, 0.4, 0.1), (0.4, 0.1, 0.1, 0.4)
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_language_model(tmp_path_factory.mktemp("probe") / "model", attention="full")


def windows(count: int, seed: int, *, tracks: int = 1) -> TextWindows:
    """The middle is rich in G and C where the first label is 1, else what is around it, which is as long."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, (count, tracks))
    texts = []
    for label in labels[:, 0]:
        inside, outside = (RICH, POOR) if label else (POOR, RICH)
        flank, far = (rng.choice(list("ACGT"), (2, MIDDLE // 2), p=p) for p in (outside, None))
        middle = rng.choice(list("ACGT"), MIDDLE, p=inside)
        texts.append("".join([*far[0], *flank[0], *middle, *flank[1], *far[1]]))
    return TextWindows(texts, labels)


@pytest.mark.parametrize("weights", ["pretrained", "random"])
def test_the_middle_is_read_apart_from_the_window(model: Path, weights: str) -> None:
    learnt, held_out, test = (windows(count, seed, tracks=2) for seed, count in enumerate((500, 200, 200)))
    probe = EncoderProbe(model, weights, size=MIDDLE, seed=3, device="cpu").fit(learnt, held_out)
    found = probe.predict(test.sequences(np.arange(200)))
    labels = test.labels(np.arange(200))
    assert found.shape == (200, 2) and auroc(labels[:, 0], found[:, 0]).value > 0.97
    # The second label means nothing.
    assert abs(auroc(labels[:, 1], found[:, 1]).value - 0.5) < 0.15
    told = probe.chosen()
    assert told["weights"] == weights and told["attention"] == "full" and told["layer"] in (0, 1, 2)
    again = EncoderProbe(model, weights, size=MIDDLE, seed=3, device="cpu").fit(learnt, held_out)
    np.testing.assert_array_equal(again.predict(test.sequences(np.arange(200))), found)


def test_windows_of_one_label_are_read_as_a_whole(model: Path) -> None:
    rng = np.random.default_rng(5)
    labels = rng.integers(0, 2, 400)
    texts = ["".join(rng.choice(list("ACGT"), 90, p=RICH if label else POOR)) for label in labels]
    learnt, held_out = TextWindows(texts[:300], labels[:300]), TextWindows(texts[300:], labels[300:])
    probe = EncoderProbe(model, "pretrained", device="cpu").fit(learnt, held_out)
    assert auroc(labels[300:], probe.predict(texts[300:])[:, 0]).value > 0.97
    assert probe.chosen()["inverse_penalty"] > 0


def test_parts_are_means_over_their_tokens() -> None:
    config = EncoderConfig(vocabulary=20, layers=2, hidden=16, heads=2, max_length=64, block_size=8)
    torch.manual_seed(0)
    encoder = Encoder(config).eval()
    rng = np.random.default_rng(0)
    rows = [rng.integers(5, 20, length).astype(np.int32) for length in (40, 9, 33)]
    parts = np.array([[3, 11], [8, 9], [0, 33]])
    found = layer_means(encoder, rows, pad_id=0, batch_size=2, device=CPU, parts=parts)
    plain = layer_means(encoder, rows, pad_id=0, batch_size=2, device=CPU)
    assert found.shape == (3, 3, 32)
    np.testing.assert_array_equal(found[..., :16], plain)
    for row, (first, last), vector in zip(rows, parts.tolist(), found[:, -1, 16:], strict=True):
        with torch.inference_mode():
            hidden = encoder(torch.from_numpy(row.astype(np.int64))[None])[0]
        np.testing.assert_allclose(vector, hidden[first:last].mean(0), atol=1e-5)
    empty = layer_means(encoder, [], pad_id=0, batch_size=2, device=CPU, parts=np.empty((0, 2), np.int64))
    assert empty.shape == (0, 3, 32)


def test_what_is_refused(model: Path, tmp_path: Path) -> None:
    one = TextWindows(["ACGT" * 20] * 4, [1, 1, 1, 1])
    with fails(DataError):
        EncoderProbe(model, "pretrained", device="cpu").fit(one, one)
    with fails(DataError):
        EncoderProbe(model, "pretrained", device="cpu").fit(one, TextWindows([], np.empty((0, 1))))
    tracks = (NamedTrack(track="a", group="TF"),)
    settings = ChromatinSettings(window=60, bin=20, pooling="bin", bin_layers=0, members=2, tracks=tracks)
    with fails(ModelError):
        EncoderProbe(write_language_model(tmp_path / "two", settings), "pretrained", device="cpu")
