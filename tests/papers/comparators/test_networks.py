"""The networks among the comparators: their sizes, their training, and what it goes on from."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bigbird_dna.baselines import networks
from bigbird_dna.baselines.kmers import base_codes
from bigbird_dna.baselines.networks import (
    CnnProm,
    NetworkBaseline,
    one_hot,
)
from bigbird_dna.baselines.windows import TextWindows
from bigbird_dna.errors import DataError
from bigbird_dna.genome.sequence import reverse_complement
from bigbird_dna.papers.comparators.architectures import (
    NETWORKS,
    DanQ,
    DeepSea,
    ResidualCnn,
)
from bigbird_dna.training.losses import LabelLoss
from tests.golden.messages import fails
from tests.papers.comparators.test_known_differences import DrawnTexts, training
from tests.toys import random_dna

TEXTS = [random_dna(180, seed) for seed in range(48)]
LABELS = np.array([["GAT" in text, text.count("C") > 27] for text in TEXTS], int)
SMALL = training(12)


def small(length: int, labels: int) -> CnnProm:
    return CnnProm(length, labels, filters=4, dense=4)


small.shortest = CnnProm.shortest  # type: ignore[attr-defined]

Make = Callable[..., NetworkBaseline]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def make(
        settings: dict[str, Any] = SMALL, build=small, **identity: object
    ) -> NetworkBaseline:
        return NetworkBaseline(
            build,
            **settings,
            name="small",
            checkpoints=tmp_path,
            windows=identity,
            device="cpu",
        )

    return make


def drawn(labels: np.ndarray) -> DrawnTexts:
    return DrawnTexts(TEXTS[: len(labels)], labels)


WINDOWS = drawn(LABELS[:32]), TextWindows(TEXTS[32:], LABELS[32:])


# Sequences as numbers


def test_one_hot() -> None:
    hot = one_hot(torch.from_numpy(base_codes(["ACGTN", "NNGGT"])))
    assert hot.shape == (2, 4, 5) and hot.dtype == torch.float32
    assert hot[0].tolist() == [
        [1, 0, 0, 0, 0],
        [0, 1, 0, 0, 0],
        [0, 0, 1, 0, 0],
        [0, 0, 0, 1, 0],
    ]
    assert hot[1].sum(0).tolist() == [0, 0, 1, 1, 1]


# Networks


def weights(network: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


def test_published_networks_have_the_published_numbers_of_weights() -> None:
    with torch.device("meta"):
        assert weights(DeepSea(1000, 919)) == 52_843_119
        # PyTorch's LSTM has two biases a gate, theirs one.
        assert weights(DanQ(1000, 919)) == 46_926_479 + 2 * 4 * 320
        assert weights(CnnProm(251, 1)) == 300 * (4 * 21 + 1) + 128 * (300 + 1) + 129


@pytest.mark.parametrize("length", [1000, 16_000])
def test_the_small_network_is_small(length: int) -> None:
    with torch.device("meta"):
        assert weights(ResidualCnn(length, 919)) <= 2_000_000


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_take_windows_from_the_shortest_on(name: str) -> None:
    build = NETWORKS[name]
    for length in (build.shortest, build.shortest + 1, 301):
        with torch.inference_mode():
            assert build(length, 3).eval()(torch.zeros(2, 4, length)).shape == (2, 3), (
                length
            )
    if build.shortest > 1:
        with pytest.raises((RuntimeError, ValueError, ZeroDivisionError, UserWarning)):
            network = build(build.shortest - 1, 3)
            network(torch.zeros(2, 4, build.shortest - 1))


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_sees_each_window_for_itself(name: str) -> None:
    torch.manual_seed(0)
    network = NETWORKS[name](180, 2).eval()
    hot = one_hot(torch.from_numpy(base_codes(TEXTS[:3])))
    with torch.inference_mode():
        torch.testing.assert_close(
            network(hot)[:1], network(hot[:1]), rtol=1e-4, atol=1e-5
        )


# Training


def test_a_seed_has_one_result(make: Make) -> None:
    first = make().fit(*WINDOWS)
    found = first.predict(TEXTS)
    first.finish()
    assert found.shape == (48, 2) and ((found > 0) & (found < 1)).all()
    assert (make().fit(*WINDOWS).predict(TEXTS) == found).all()
    other = make(training(12, seed=2)).fit(*WINDOWS)
    assert (other.predict(TEXTS) != found).any()
    assert first.predict([]).shape == (0, 2)


def test_a_killed_training_goes_on_as_if_it_had_not_been(
    make: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    whole = make(run=1).fit(*WINDOWS)
    expected = whole.predict(TEXTS)

    calls, original = [], networks.NetworkBaseline.loss

    def loss(self, *given):
        calls.append(1)
        if len(calls) == 8:
            raise KeyboardInterrupt
        return original(self, *given)

    monkeypatch.setattr(networks.NetworkBaseline, "loss", loss)
    with pytest.raises(KeyboardInterrupt):
        make(run=2).fit(*WINDOWS)
    again = make(run=2).fit(*WINDOWS)
    assert len(calls) < 8 + 12  # not from the start
    assert (again.predict(TEXTS) == expected).all()
    assert again.trained is not None and whole.trained is not None
    assert again.trained.effort == whole.trained.effort
    again.finish()
    whole.finish()
    assert not list(tmp_path.rglob("*.pt"))


def test_windows_without_a_direction_are_the_same_on_both_strands(make: Make) -> None:
    model = make(training(4, both_strands=True)).fit(*WINDOWS)
    found = model.predict(TEXTS)
    turned = model.predict([reverse_complement(text) for text in TEXTS])
    np.testing.assert_allclose(found, turned, atol=1e-6)


def test_a_network_begins_with_the_share_of_positives(make: Make) -> None:
    rare = np.array([[row < 3] for row in range(32)], int)
    for weight, expected in ((1.0, 3 / 32), (29 / 3, 0.5)):
        settings = training(1, rate=1e-9, loss=LabelLoss(positive_weight=weight))
        found = (
            make(settings, weight=weight)
            .fit(drawn(rare), TextWindows(TEXTS[32:], rare[:16]))
            .predict(TEXTS)
        )
        assert abs(found.mean() - expected) < 0.1


@pytest.mark.parametrize("positives", [0, 5, 16])
def test_held_out_positives_weigh_as_told(make: Make, positives: int) -> None:
    """Also where all held-out windows are of one class."""
    labels = (np.arange(16) < positives).astype(int)[:, None]
    learned, held_out = drawn(LABELS[:32, :1]), TextWindows(TEXTS[32:], labels)
    model = make(training(12, loss=LabelLoss(positive_weight=3.0)), held=positives).fit(
        learned, held_out
    )
    found = model.predict(TEXTS[32:]).astype(float)
    expected = -(3 * labels * np.log(found) + (1 - labels) * np.log(1 - found)).mean()
    assert model.trained is not None
    # The network may have been computed in bfloat16.
    assert model.trained.progress.best_loss == pytest.approx(expected, rel=1e-3)


def test_what_cannot_be_learnt_from(make: Make) -> None:
    short = TextWindows(["ACGT"] * 4, LABELS[:4])
    with fails(DataError):
        make().fit(short, short)
