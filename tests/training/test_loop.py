"""The loop: a training that stops, or is stopped, leaves what it can be gone on from; none that diverged."""

import errno
import json
import math
import os
import signal
import time
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from bigbird_dna.config.training import OptimizerConfig, TrainingConfig
from bigbird_dna.errors import ConfigError, DataError, Stopped
from bigbird_dna.training import distributed, loop
from bigbird_dna.training.distributed import Stopping, World, world
from bigbird_dna.training.log import LOG
from bigbird_dna.training.loop import (
    MAX_SKIPPED,
    STATE,
    Batch,
    learning_rate,
    make_optimizer,
    prefetched,
)
from tests.golden.messages import fails, message
from tests.training.curve import ALONE, CONFIG, Curve, fresh, run, state_of, weights
from tests.training.kinds import KINDS
from tests.training.kinds import train as train_kind


@pytest.fixture
def heard() -> Iterator[list[int]]:
    """The SIGTERMs that come through to whoever minded them before."""
    received: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: received.append(number))
    yield received
    signal.signal(signal.SIGTERM, before)


def test_sigterm_is_a_wish_that_ends_with_the_context(heard: list[int]) -> None:
    with Stopping() as wish:
        assert not wish.is_due()
        for _ in range(3):  # a scheduler, torchrun and Snakemake pass it on
            os.kill(os.getpid(), signal.SIGTERM)
        assert wish.is_due() and wish.reason == "SIGTERM" and not heard
    os.kill(os.getpid(), signal.SIGTERM)
    assert heard == [signal.SIGTERM]


def test_there_is_time_for_a_step_twice_as_long_as_the_longest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 1000.0
    clock = SimpleNamespace(monotonic=lambda: now, time=lambda: now)
    monkeypatch.setattr(distributed, "time", clock)
    assert Stopping().ends == math.inf
    monkeypatch.setenv("SLURM_JOB_END_TIME", "2000")
    wish = Stopping()
    for took in (400.0, 10.0, 100.0, 20.0):  # the first step compiles
        now += took
        assert not wish.is_due()
    now = 1690.0  # 60 s beside two steps of 160
    assert wish.is_due() and "Slurm" in wish.reason


def terminated(
    step: int,
    then: Callable[[int, Tensor], Tensor] = lambda step, loss: loss,
    spoiled: int = 0,
) -> Curve:
    """A training that gets SIGTERM in the middle of a step."""

    def change(now: int, loss: Tensor) -> Tensor:
        if now == step:
            os.kill(os.getpid(), signal.SIGTERM)
        return then(now, loss)

    return Curve(change=change, spoiled=spoiled)


def lines(directory: Path) -> list[dict[str, object]]:
    """The log, without what says how long it took."""
    timed = ("seconds", "tokens_per_second")
    records = map(json.loads, (directory / LOG).read_text().splitlines())
    return [
        {key: value for key, value in record.items() if key not in timed}
        for record in records
    ]


def test_checkpoints_are_written_by_minutes_and_the_first_process_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, saved = 0.0, []
    write = loop.write_checkpoint

    def watched(path: Path, state: dict[str, Any]) -> None:
        saved.append(state["progress"]["step"])
        write(path, state)

    def later(step: int, loss: Tensor) -> Tensor:
        nonlocal now
        now += 30.0
        return loss

    monkeypatch.setattr(loop, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(loop, "write_checkpoint", watched)
    config = CONFIG.model_copy(update={"checkpoint_minutes": 2})
    run(tmp_path / "first", Curve(change=later), config)
    assert saved == [4, 8, 12]  # after the last step in any case
    saved.clear()

    class Second(World):
        is_first = False

        def sum(self, values: dict[str, float]) -> dict[str, float]:
            assert not values.get("save")
            return values

    # Its own clock is not asked, and it writes nothing.
    run(
        tmp_path / "second",
        Curve(change=later),
        config,
        Second(0, 1, torch.device("cpu")),
    )
    assert saved == []


def test_a_checkpoint_that_cannot_be_written_ends_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    with fails(DataError, "state.pt"):
        run(tmp_path)
    assert not (tmp_path / STATE).exists()


@pytest.fixture(scope="module")
def undisturbed(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[list[float], list[dict[str, object]]]:
    directory = tmp_path_factory.mktemp("undisturbed")
    return run(directory), lines(directory)


@pytest.mark.parametrize("step", [0, 4, 5, 9, 11])
def test_it_ends_its_step_and_goes_on_without_a_trace(
    tmp_path: Path, heard: list[int], undisturbed: tuple[list[float], object], step: int
) -> None:
    with pytest.raises(Stopped) as caught:
        run(tmp_path, terminated(step + 1))
    assert f"after step {step + 1} of 12 (SIGTERM)" in str(caught.value)
    assert caught.value.exit_code == 75 and not heard
    assert state_of(tmp_path)["progress"]["step"] == step + 1
    assert (run(tmp_path), lines(tmp_path)) == undisturbed


def test_a_job_that_ends_soon_makes_a_step_at_each_start(
    tmp_path: Path,
    undisturbed: tuple[list[float], object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SLURM_JOB_END_TIME", str(int(time.time()) + 30))
    for step in range(1, 13):
        with fails(Stopped, step):
            run(tmp_path)
    assert (run(tmp_path), lines(tmp_path)) == undisturbed
    # A batch that can't be shared out is refused.
    with fails(ConfigError, "batch_size 4", 5):
        run(tmp_path, config=CONFIG.model_copy(update={"grad_accumulation": 5}))


# Divergence

Change = Callable[[int, Tensor], Tensor]


def falling(first: int, *others: int) -> Change:
    """The loss of these steps is a number, and its gradient is none."""
    return lambda now, loss: (
        loss + (0 * loss).sqrt() if now in (first, *others) else loss
    )


def broken(step: int) -> Change:
    """From this step on the weights of before give no loss that is a number."""
    return lambda now, loss: loss / float(now < step)


def ended(
    task: Curve, directory: Path, step: int, *named: object, **changes: Any
) -> None:
    """Let a training fail by a step."""
    here = changes.pop("here", ALONE)
    with fails(DataError, f"step {step}: ", *named):
        run(directory, task, CONFIG.model_copy(update=changes), here)


def left(directory: Path) -> int:
    """The step that a training of this directory goes on from; its weights and moments are numbers."""
    state = state_of(directory)
    if state is None:
        return 0
    moments = [
        value for one in state["optimizer"]["state"].values() for value in one.values()
    ]
    values = [*state["network"].values(), *moments]
    assert all(value.isfinite().all() for value in values)
    return int(state["progress"]["step"])


@pytest.mark.parametrize("changes", [{}, {"evaluate_every": 3}, {"steps": 6}])
def test_weights_that_are_no_numbers_are_neither_measured_nor_saved(
    tmp_path: Path, changes: dict[str, int]
) -> None:
    for _ in range(2):  # a restart comes to the same
        ended(Curve(spoiled=6), tmp_path, 6, **changes)
        assert left(tmp_path) == 5


@pytest.mark.usefixtures("heard")
def test_nothing_is_saved_of_them_when_the_training_is_stopped(tmp_path: Path) -> None:
    ended(terminated(5, spoiled=5), tmp_path, 5)
    assert left(tmp_path) == 4
    with pytest.raises(Stopped):
        run(tmp_path, terminated(5, spoiled=6))
    assert left(tmp_path) == 5


@pytest.mark.parametrize("name", ["loss", "bits_per_base", "bits_per_character"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_figures_that_are_no_numbers_end_a_training(
    tmp_path: Path, name: str, value: float
) -> None:
    ended(Curve(auroc=0.5, **{name: value}), tmp_path, 4, name, value, evaluate_every=4)
    assert left(tmp_path) == 3
    run(tmp_path, Curve(loss=1.0, auroc=math.nan))  # where validation holds one class


def test_steps_without_a_finite_gradient_are_skipped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The others are as if these had not been: also after a stop between them."""
    network, optimizer = fresh()
    for step in range(CONFIG.steps):
        batch = Curve().batch(step, 0, 4)
        loss = Curve().loss(network, batch, {"rows": 4.0})
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), CONFIG.optimizer.clip_norm)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, CONFIG.steps, CONFIG.optimizer)
        if step + 1 not in (5, 6, 9):
            optimizer.step()
        optimizer.zero_grad()
    expected = weights(network)

    assert run(tmp_path / "a", Curve(change=falling(5, 6, 9))) == expected
    assert state_of(tmp_path / "a")["progress"]["skipped"] == 3
    said = capsys.readouterr().err
    assert [f"step {step} is skipped" in said for step in range(4, 11)] == [
        step in (5, 6, 9) for step in range(4, 11)
    ]
    run(tmp_path / "b", Curve(7, change=falling(5, 6, 9)))
    assert run(tmp_path / "b", Curve(change=falling(5, 6, 9))) == expected


@pytest.mark.parametrize("step", [1, 2, 8])
def test_steps_without_a_finite_loss_end_a_training_and_are_not_saved(
    tmp_path: Path, step: int
) -> None:
    for _ in range(2):
        ended(Curve(change=broken(step)), tmp_path, step + MAX_SKIPPED - 1, steps=20)
        assert left(tmp_path) == step - 1
    # A short training has no steps but such ones.
    ended(Curve(change=broken(1)), tmp_path / "short", 3, steps=3)


@pytest.mark.usefixtures("heard")
def test_a_stop_between_skipped_steps_starts_no_new_count(tmp_path: Path) -> None:
    with pytest.raises(Stopped):
        config = CONFIG.model_copy(update={"steps": 20})
        run(tmp_path, terminated(8, broken(5)), config)
    ended(Curve(change=broken(5)), tmp_path, 14, steps=20)
    assert left(tmp_path) == 8


def test_all_processes_agree(tmp_path: Path) -> None:
    """One whose own weights are numbers stops with those whose weights are not."""

    class Second(World):
        def sum(self, values: dict[str, float]) -> dict[str, float]:
            return {**values, "broken": 1.0} if "broken" in values else values

    ended(Curve(), tmp_path, 1, here=Second(0, 1, torch.device("cpu")))
    assert left(tmp_path) == 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("rate", "steps"), [(1e12, 6), (1e38, 1)])
def test_models_that_diverge_are_said_to_and_not_published(
    kind: str,
    rate: float,
    steps: int,
    tiny_config: Path,
    chromatin: Path,
    tmp_path: Path,
) -> None:
    """Whether it is seen by a loss, by the weights or by held-out figures."""
    more = {"steps": steps, "evaluate_every": 1, "checkpoint_minutes": 0}
    more["optimizer"] = {"learning_rate": rate, "warmup_steps": 0}
    checkpoints = tmp_path / "checkpoints"

    def train(**otherwise: Any) -> str:
        with world("cpu") as here, pytest.raises(DataError) as found:
            train_kind(
                kind,
                tiny_config,
                chromatin,
                tmp_path / "out",
                checkpoints,
                here,
                **more,
                **otherwise,
            )
        return str(found.value)

    first = train()
    message(first)
    assert not (tmp_path / "out" / kind).exists()


# Batches


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("accumulate", [1, 3])
def test_shares_of_a_batch_are_all_of_it_and_as_even_as_they_can_be(
    size: int, accumulate: int
) -> None:
    parts: list[list[int]] = []

    class Numbered(Curve):
        def batch(self, step: int, first: int, count: int) -> Batch:
            return {"lengths": torch.arange(first, first + count)}

    task = Numbered()
    task.config = TrainingConfig(steps=1, batch_size=25, grad_accumulation=accumulate)
    for rank in range(size):
        here = World(rank, size, torch.device("cpu"))
        (batches,) = prefetched(task, here, range(1))
        own = [batch["lengths"].tolist() for batch in batches]
        assert len(own) == accumulate
        parts += own
    assert sorted(chain(*parts)) == list(range(25))
    sizes = {len(part) for part in parts}
    assert max(sizes) - min(sizes) <= 1 and min(sizes) >= 1


# Warm-up, decay, which weights decay, and what the optimizers keep of each


@given(st.integers(1, 400), st.integers(0, 500))
def test_rate_rises_to_its_peak_and_falls_to_almost_zero(
    steps: int, warmup: int
) -> None:
    config = OptimizerConfig(learning_rate=2.0, warmup_steps=warmup)
    rates = [learning_rate(step, steps, config) for step in range(steps)]
    peak = min(warmup, steps)
    assert all(0 < rate <= 2.0 for rate in rates)
    assert max(rates) == 2.0
    assert rates[:peak] == sorted(rates[:peak]) and rates[peak:] == sorted(
        rates[peak:], reverse=True
    )
    if steps > peak:
        assert rates[-1] <= 2.0 / (steps - peak) + 1e-12


def test_only_matrices_decay() -> None:
    network = nn.Sequential(nn.Linear(3, 2), nn.LayerNorm(2))
    decayed, others = make_optimizer(
        network, OptimizerConfig(weight_decay=0.1)
    ).param_groups
    assert (decayed["weight_decay"], others["weight_decay"]) == (0.1, 0.0)
    assert [p.dim() for p in decayed["params"]] == [2]
    assert {p.dim() for p in others["params"]} == {1}
