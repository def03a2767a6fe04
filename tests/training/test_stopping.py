"""A training that is told to stop, or runs out of time, saves a checkpoint, says so, and is gone on with."""

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

from bigbird_dna.errors import DataError, Stopped, UsageError
from bigbird_dna.training import stopping
from bigbird_dna.training.batches import Batch
from bigbird_dna.training.checkpoints import CheckpointStore
from bigbird_dna.training.distributed import World
from bigbird_dna.training.loop import train_network
from bigbird_dna.training.stopping import Stopping, time_of_end
from tests.cli.command import Run, refused
from tests.golden.messages import fails
from tests.training.test_checkpoints import ALONE, CONFIG, Curve, fresh, opened, state_of


@pytest.fixture
def heard() -> Iterator[list[int]]:
    """The SIGTERMs that come through to whoever minded them before."""
    received: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: received.append(number))
    yield received
    signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize(
    ("limit", "seconds"),
    [("00:00:30", 30), ("23:30:00", 84_600), ("2-12:00:00", 216_000), ("100:00:01", 360_001)],
)
def test_time_limits(limit: str, seconds: int) -> None:
    assert time_of_end(limit) - time.time() == pytest.approx(seconds, abs=1)


@pytest.mark.parametrize("limit", ["", "30", "1:2:3", "00:60:00", "00:00:75", "-1:00:00", "1 day", "٣:00:00"])
def test_what_is_no_time_limit_is_refused(limit: str) -> None:
    with fails(UsageError):
        time_of_end(limit)


def test_a_slurm_job_says_itself_when_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    end = int(time.time()) + 3600
    for text, expected in ((str(end), end), ("0", float("inf")), ("Unknown", float("inf"))):
        monkeypatch.setenv("SLURM_JOB_END_TIME", text)
        assert time_of_end(None) == expected
    assert time_of_end("00:10:00") < end
    monkeypatch.delenv("SLURM_JOB_END_TIME")
    assert time_of_end(None) == float("inf")


def test_sigterm_is_a_wish_and_one_that_comes_later_ends_at_once(
    heard: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Stopping() as wish:
        assert not wish.terminated
        for _ in range(3):  # a scheduler, torchrun and Snakemake pass it on
            os.kill(os.getpid(), signal.SIGTERM)
            assert wish.terminated and not heard
        monkeypatch.setattr(stopping, "_TOGETHER", 0.0)
        os.kill(os.getpid(), signal.SIGTERM)
        assert heard == [signal.SIGTERM]
    os.kill(os.getpid(), signal.SIGTERM)
    assert len(heard) == 2


def test_a_signal_that_the_caller_has_ignored_stays_ignored(heard: list[int]) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with Stopping() as wish:
        os.kill(os.getpid(), signal.SIGTERM)
        assert not wish.terminated
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN


def test_there_is_time_for_a_step_as_long_as_the_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(stopping, "time", SimpleNamespace(monotonic=lambda: now, time=lambda: now))
    wish = Stopping(2000.0)
    for took in (0.0, 400.0, 10.0, 100.0, 20.0):  # the first step compiles
        now += took
        wish.step()
    assert now == 1530.0 and not wish.late
    now = 1739.0  # 60 s beside two steps of 100
    assert not wish.late
    now = 1740.0
    assert wish.late


class Told(Curve):
    """A training that gets SIGTERM in the middle of a step."""

    def __init__(self, step: int) -> None:
        super().__init__()
        self.step = step

    def loss(self, network: nn.Module, batch: Batch, totals: dict[str, float]) -> Tensor:
        if batch["step"] == self.step:
            os.kill(os.getpid(), signal.SIGTERM)
        return super().loss(network, batch, totals)


def weights(network: nn.Module) -> list[float]:
    return [x for value in network.state_dict().values() for x in value.flatten().tolist()]


def lines(store: CheckpointStore) -> list[dict[str, object]]:
    """The log, without what says how long it took."""
    timed = ("seconds", "tokens_per_second")
    found = [json.loads(line) for line in store.log_path.read_text().splitlines()]
    return [{key: value for key, value in line.items() if key not in timed} for line in found]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[float], list[dict[str, object]]]:
    network, _ = fresh()
    store = opened(tmp_path_factory.mktemp("undisturbed"))
    train_network(network, Curve(), CONFIG, store, ALONE)
    return weights(network), lines(store)


@pytest.mark.parametrize("step", [0, 4, 5, 9, 11])
def test_it_ends_its_step_and_goes_on_without_a_trace(
    tmp_path: Path, heard: list[int], undisturbed: tuple[list[float], object], step: int
) -> None:
    network, _ = fresh()
    with pytest.raises(Stopped) as caught:
        train_network(network, Told(step), CONFIG, opened(tmp_path), ALONE)
    assert str(caught.value) == (
        f"stopped after step {step + 1} of 12 (SIGTERM): a checkpoint is saved, and the same command goes on "
        "from it"
    )
    assert caught.value.exit_code == 75 and not heard
    store = opened(tmp_path)
    assert state_of(store)["progress"]["step"] == step + 1
    network, _ = fresh()
    train_network(network, Curve(), CONFIG, store, ALONE)
    assert (weights(network), lines(store)) == undisturbed


def test_a_limit_that_is_too_short_lets_each_start_make_a_step(
    tmp_path: Path, undisturbed: tuple[list[float], object]
) -> None:
    short = World(0, 1, torch.device("cpu"), ends=time.time() + 30)
    for step in range(1, 13):
        network, _ = fresh()
        with fails(Stopped, step):
            train_network(network, Curve(), CONFIG, opened(tmp_path), short)
    network, _ = fresh()
    store = opened(tmp_path)
    assert train_network(network, Curve(), CONFIG, store, short).step == 12
    assert (weights(network), lines(store)) == undisturbed


def test_nothing_is_saved_of_a_training_that_has_diverged(tmp_path: Path, heard: list[int]) -> None:
    class Diverging(Told):
        def loss(self, network: nn.Module, batch: Batch, totals: dict[str, float]) -> Tensor:
            return super().loss(network, batch, totals) / (0.0 if batch["step"] == 7 else 1.0)

    network, _ = fresh()
    with fails(DataError):
        train_network(network, Diverging(7), CONFIG, opened(tmp_path), ALONE)
    assert state_of(opened(tmp_path))["progress"]["step"] == 6


def test_a_step_has_one_reduction_beside_the_gradients(tmp_path: Path) -> None:
    sums = []

    class Counting(World):
        def sum(self, values: dict[str, float]) -> dict[str, float]:
            sums.append(values)
            return values

    network, _ = fresh()
    train_network(network, Curve(), CONFIG, opened(tmp_path), Counting(0, 1, torch.device("cpu")))
    checks = [value for value in sums if "broken" in value]  # of weights that are saved
    assert checks == [{"broken": 0.0}] * (CONFIG.steps // CONFIG.checkpoint_every)
    sums = [value for value in sums if "broken" not in value]
    assert len(sums) == CONFIG.steps + 1
    # Of the last step what it has lost, of the next one what it is divided by.
    assert [value["of rows"] for value in sums[:-1]] == [4.0] * CONFIG.steps
    assert sums[0]["loss"] == 0 and all(value["loss"] > 0 for value in sums[1:])


def test_the_command_stops_in_time_and_goes_on_computed_otherwise(
    tiny_config: Path, tmp_path: Path, run: Run
) -> None:
    words = ["pretrain", tiny_config, "--checkpoint-dir", tmp_path / "checkpoints", "--threads", 1]
    words += ["--set", "encoder.dropout=0.0"]
    refused(run(*words, "-o", tmp_path / "m", "--time-limit", "soon"), 2, "--time-limit 'soon': expected")
    result = run(*words, "-o", tmp_path / "m", "--time-limit", "00:00:30")
    assert (result.code, result.out) == (75, "")
    *log, sentence = result.err.splitlines()
    assert sentence == (
        "bigbird-dna: stopped after step 1 of 24 (the time limit is near): a checkpoint is saved, and the "
        "same command goes on from it"
    )
    assert not any("bigbird-dna: " in line for line in log) and not (tmp_path / "m").exists()
    otherwise = (
        "pretraining.grad_accumulation=2",
        "encoder.gradient_checkpointing=true",
        "encoder.attention_backend=dense",
    )
    words += [word for setting in otherwise for word in ("--set", setting)]
    result = run(*words, "-o", tmp_path / "m")
    assert result.code == 0, result.err
    assert "resuming at step 1 from" in result.err
    assert (
        "from here on computed otherwise: accumulate 1 → 2, gradient_checkpointing false → true, route "
        "auto → dense; data and their order stay the same"
    ) in result.err
    assert not (tmp_path / "checkpoints").exists() or not list((tmp_path / "checkpoints").iterdir())
