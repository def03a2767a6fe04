"""The time that the training log tells, and how long a training will take, which is said before it begins."""

import json
from pathlib import Path

import pytest
from torch import nn

from bigbird_dna.config import TrainingConfig
from bigbird_dna.training import log, loop
from bigbird_dna.training.checkpoints import CheckpointStore
from bigbird_dna.training.log import Progress, TrainingLog, duration, matrix_rate, training_seconds
from tests.training.curve import ALONE, Curve, fresh


class Clock:
    now = 100.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    found = Clock()
    monkeypatch.setattr(log, "time", found)
    return found


def seconds(path):
    return [json.loads(line).get("seconds") for line in path.read_text().splitlines()]


def train(writer, clock, step, took):
    clock.now += took
    writer.training(Progress(step=step), loss=1.0, learning_rate=0.1)


def test_seconds_are_those_of_training_and_go_on_after_a_break(tmp_path, clock):
    path = tmp_path / "training.jsonl"
    writer = TrainingLog(path, Progress(), 100)
    train(writer, clock, 10, 5.0)
    clock.now += 70.0  # held-out figures of step 10
    writer.evaluation(Progress(step=10), {"bits_per_base": 1.9})
    train(writer, clock, 20, 5.0)
    clock.now += 70.0  # five more steps, at the pace of those before, and held-out figures
    writer.evaluation(Progress(step=25), {"bits_per_base": 1.9})
    assert seconds(path) == [5.0, 5.0, 10.0, 12.5]
    clock.now += 1000.0
    writer = TrainingLog(path, Progress(step=20), 100)
    train(writer, clock, 30, 6.0)
    assert seconds(path) == [5.0, 5.0, 10.0, 16.0]


def test_a_log_without_times_begins_at_nothing(tmp_path, clock):
    path = tmp_path / "training.jsonl"
    path.write_text('{"step": 10, "loss": 1.0}\n')
    train(TrainingLog(path, Progress(step=10), 100), clock, 20, 3.0)
    assert seconds(path) == [None, 3.0]


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
    monkeypatch.setattr(log, "matrix_rate", lambda: rate)
    network, _ = fresh()
    store = CheckpointStore(tmp_path, {})
    with pytest.raises(KeyboardInterrupt):
        loop.train_network(network, Curve(0), TrainingConfig(steps=12, batch_size=4), store, ALONE)
    store.lock.release()
    said = capsys.readouterr().err
    assert ("on this CPU" in said) == bool(parts)
    assert all(part in said for part in parts), said


def test_a_damaged_line_of_the_log_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "training.jsonl"
    good = ['{"step": 1, "loss": NaN}\n', '{"step": 2}\n', '{"step": 3}\n']
    bad = ["{\n", "[]\n", '{"stop": 1}\n', '{"step": true}\n', "[" * 99_999 + "\n", "\x85{}\n", "\n"]
    # A return within a line would end it for those who read the log later.
    bad += ['{"step": 2,\r"a": 1}\n', '{"step": 2']
    path.write_bytes("".join([*good[:1], *bad[:-1], *good[1:], bad[-1]]).encode("latin-1"))
    TrainingLog(path, Progress(step=2), 10)
    assert path.read_text() == "".join(good[:2])
    assert f"warning: {path}: 8 damaged lines are left out" in capsys.readouterr().err
