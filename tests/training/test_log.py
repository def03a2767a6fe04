"""The time that the training log tells."""

import json

import pytest

from bigbird_dna.training import log
from bigbird_dna.training.log import TrainingLog
from bigbird_dna.training.state import Progress


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
