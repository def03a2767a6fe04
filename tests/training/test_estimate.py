"""How long a training will take is said before it begins."""

from pathlib import Path

import pytest
import torch
from torch import nn

from bigbird_dna.config import TrainingConfig
from bigbird_dna.training import loop
from bigbird_dna.training.distributed import World
from bigbird_dna.training.estimate import duration, matrix_rate, training_seconds
from bigbird_dna.training.state import CheckpointStore
from tests.training.test_checkpoints import Curve, fresh


def test_the_count_is_that_of_the_products_with_weights() -> None:
    network = nn.Sequential(nn.Embedding(1000, 8), nn.Linear(8, 32), nn.LayerNorm(32), nn.Linear(32, 1))
    expected = 6 * (8 * 32 + 32) * 50 * 7 / (1e9 * 0.5)
    assert training_seconds(network, 50, 7, 1e9) == pytest.approx(expected)


def test_the_rate_is_one_that_a_machine_can_have() -> None:
    assert 1e8 < matrix_rate() < 1e14


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "0 seconds"),
        (119, "119 seconds"),
        (120, "2 minutes"),
        (7199, "120 minutes"),
        (7200, "2 hours"),
        (3 * 86400, "3 days"),
        (41 * 365.25 * 86400, "41 years"),
        (1e12, "31,688 years"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("rate", "parts"),
    [
        (1e12, []),
        (32.0, ["about 3 minutes on this CPU"]),
        (1e-2, ["warning: 12 steps of 4 tokens with 16 parameters will take about", "days", "minimal.yaml"]),
    ],
)
def test_a_training_says_it_before_its_first_step(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    rate: float,
    parts: list[str],
) -> None:
    class Never(Curve):
        def loss(self, *_: object) -> torch.Tensor:
            raise KeyboardInterrupt

    monkeypatch.setattr(loop, "matrix_rate", lambda: rate)
    network, _ = fresh()
    store = CheckpointStore(tmp_path, {})
    with pytest.raises(KeyboardInterrupt):
        loop.train(
            network, Never(), TrainingConfig(steps=12, batch_size=4), store, World(0, 1, torch.device("cpu"))
        )
    store.lock.release()
    said = capsys.readouterr().err
    assert ("on this CPU" in said) == bool(parts)
    assert all(part in said for part in parts), said
