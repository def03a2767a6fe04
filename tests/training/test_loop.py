"""The loop: a training that stops, or is stopped, leaves what it can be gone on from; none that diverged."""

import errno
import json
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import chain, pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from bigbird_dna.config.training import OptimizerConfig, TrainingConfig
from bigbird_dna.errors import ConfigError, DataError, Stopped, UsageError
from bigbird_dna.training import checkpoints, distributed, loop
from bigbird_dna.training.checkpoints import CheckpointStore, fresh_moments
from bigbird_dna.training.distributed import Stopping, World, time_of_end, world
from bigbird_dna.training.loop import (
    MAX_SKIPPED,
    Batch,
    by_length,
    learning_rate,
    make_optimizer,
    prefetched,
    take_rows,
    train_network,
)
from tests.cli.command import Run, refused
from tests.golden.messages import fails, message
from tests.training.curve import (
    ALONE,
    CONFIG,
    Curve,
    fresh,
    opened,
    run,
    state_of,
    weights,
)
from tests.training.kinds import KINDS
from tests.training.kinds import train as train_kind


@pytest.fixture
def heard() -> Iterator[list[int]]:
    """The SIGTERMs that come through to whoever minded them before."""
    received: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: received.append(number))
    yield received
    signal.signal(signal.SIGTERM, before)


def test_time_limits_and_the_end_of_a_slurm_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits = {
        "00:00:30": 30,
        "23:30:00": 84_600,
        "2-12:00:00": 216_000,
        "100:00:01": 360_001,
    }
    for limit, seconds in limits.items():
        assert time_of_end(limit) - time.time() == pytest.approx(seconds, abs=1)
    for limit in (
        "",
        "30",
        "1:2:3",
        "00:60:00",
        "00:00:75",
        "-1:00:00",
        "1 day",
        "٣:00:00",
    ):
        with fails(UsageError):
            time_of_end(limit)
    end = int(time.time()) + 3600
    for text, expected in (
        (str(end), end),
        ("0", float("inf")),
        ("Unknown", float("inf")),
    ):
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
        monkeypatch.setattr(distributed, "TOGETHER", 0.0)
        os.kill(os.getpid(), signal.SIGTERM)
        assert heard == [signal.SIGTERM]
    os.kill(os.getpid(), signal.SIGTERM)
    assert len(heard) == 2
    # One that the caller has ignored stays ignored.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with Stopping() as wish:
        os.kill(os.getpid(), signal.SIGTERM)
        assert not wish.terminated
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN


def test_there_is_time_for_a_step_as_long_as_the_longest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 1000.0
    monkeypatch.setattr(
        distributed, "time", SimpleNamespace(monotonic=lambda: now, time=lambda: now)
    )
    wish = Stopping(2000.0)
    for took in (0.0, 400.0, 10.0, 100.0, 20.0):  # the first step compiles
        now += took
        wish.step()
    assert now == 1530.0 and not wish.late
    now = 1739.0  # 60 s beside two steps of 100
    assert not wish.late
    now = 1740.0
    assert wish.late


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


def lines(store: CheckpointStore) -> list[dict[str, object]]:
    """The log, without what says how long it took."""
    timed = ("seconds", "tokens_per_second")
    found = [json.loads(line) for line in store.log_path.read_text().splitlines()]
    return [
        {key: value for key, value in line.items() if key not in timed}
        for line in found
    ]


def test_checkpoints_are_written_by_minutes_and_the_first_process_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, saved = 0.0, []

    class Watched(CheckpointStore):
        def save(self, *state: Any) -> None:
            saved.append(state[-1].step)
            super().save(*state)

    def later(step: int, loss: Tensor) -> Tensor:
        nonlocal now
        now += 30.0
        return loss

    monkeypatch.setattr(loop, "time", SimpleNamespace(monotonic=lambda: now))
    config = CONFIG.model_copy(update={"checkpoint_minutes": 2})
    run(Watched(tmp_path, {"a": 1}), Curve(change=later), config)
    assert saved == [4, 8, 12]  # after the last step in any case
    saved.clear()

    class Second(World):
        is_first = False

        def sum(self, values: dict[str, float]) -> dict[str, float]:
            assert not values.get("due")
            return values

    second = Second(
        0, 1, torch.device("cpu")
    )  # its own clock is not asked, and it writes nothing
    run(Watched(tmp_path / "second", {"a": 1}), Curve(change=later), config, second)
    assert saved == []


def test_steps_go_on_while_a_checkpoint_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file has what the training had when it was saved."""
    begun, waited = threading.Event(), []

    write = checkpoints._save

    def slowly(state: dict[str, Any], path: Path) -> None:
        waited.append(begun.wait(20))
        write(state, path)

    def change(step: int, loss: Tensor) -> Tensor:
        if step == 2:
            begun.set()
        return loss

    monkeypatch.setattr(checkpoints, "_save", slowly)
    for steps in (2, 3):
        store = opened(tmp_path / f"{steps}")
        run(store, Curve(steps, change))
        expected, _ = fresh()
        assert (
            store.restore(expected, make_optimizer(expected, CONFIG.optimizer)).step
            == steps
        )
        assert all(waited) and waited
    network, optimizer = fresh()
    assert opened(tmp_path / "3").restore(network, optimizer).step == 3


def test_a_checkpoint_that_cannot_be_written_ends_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(state: dict[str, Any], path: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(checkpoints, "_save", full)
    with fails(DataError, "state.pt"):
        run(opened(tmp_path))
    assert not opened(tmp_path).exists


@pytest.fixture(scope="module")
def undisturbed(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[list[float], list[dict[str, object]]]:
    store = opened(tmp_path_factory.mktemp("undisturbed"))
    return run(store), lines(store)


@pytest.mark.parametrize("step", [0, 4, 5, 9, 11])
def test_it_ends_its_step_and_goes_on_without_a_trace(
    tmp_path: Path, heard: list[int], undisturbed: tuple[list[float], object], step: int
) -> None:
    network, _ = fresh()
    with pytest.raises(Stopped) as caught:
        train_network(network, terminated(step + 1), CONFIG, opened(tmp_path), ALONE)
    assert f"after step {step + 1} of 12 (SIGTERM)" in str(caught.value)
    assert caught.value.exit_code == 75 and not heard
    store = opened(tmp_path)
    assert state_of(store)["progress"]["step"] == step + 1
    assert (run(store), lines(store)) == undisturbed


def test_a_limit_that_is_too_short_lets_each_start_make_a_step(
    tmp_path: Path, undisturbed: tuple[list[float], object]
) -> None:
    short = World(0, 1, torch.device("cpu"), ends=time.time() + 30)
    for step in range(1, 13):
        with fails(Stopped, step):
            run(opened(tmp_path), world=short)
    network, _ = fresh()
    store = opened(tmp_path)
    assert train_network(network, Curve(), CONFIG, store, short).step == 12
    assert (weights(network), lines(store)) == undisturbed
    # A batch that can't be shared out is refused.
    with fails(ConfigError, "batch_size 4", 5):
        run(opened(tmp_path), config=CONFIG.model_copy(update={"grad_accumulation": 5}))


def test_a_step_has_one_reduction_beside_the_gradients(tmp_path: Path) -> None:
    sums = []

    class Counting(World):
        def sum(self, values: dict[str, float]) -> dict[str, float]:
            sums.append(values)
            return values

    run(opened(tmp_path), world=Counting(0, 1, torch.device("cpu")))
    checks = [value for value in sums if "broken" in value]  # of weights that are saved
    assert checks == [{"broken": 0.0}] * CONFIG.steps
    sums = [value for value in sums if "broken" not in value]
    assert len(sums) == CONFIG.steps + 1
    # Of the last step what it has lost, of the next one what it is divided by.
    assert [value["of rows"] for value in sums[:-1]] == [4.0] * CONFIG.steps
    assert sums[0]["loss"] == 0 and all(value["loss"] > 0 for value in sums[1:])


def test_the_command_stops_in_time(
    tiny_config: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    command: Run = request.getfixturevalue("run")
    words = [
        "pretrain",
        tiny_config,
        "--checkpoint-dir",
        tmp_path / "checkpoints",
        "--threads",
        1,
    ]
    words += ["--set", "encoder.dropout=0.0"]
    refused(
        command(*words, "-o", tmp_path / "m", "--time-limit", "soon"),
        2,
        "--time-limit 'soon': expected",
    )
    result = command(*words, "-o", tmp_path / "m", "--time-limit", "00:00:30")
    assert (result.code, result.out) == (75, "")
    *log, sentence = result.err.splitlines()
    assert sentence.startswith("bigbird-dna: stopped after step 1 of 24 (")
    assert (
        not any("bigbird-dna: " in line for line in log)
        and not (tmp_path / "m").exists()
    )


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
    objective: Curve, directory: Path, step: int, *named: object, **changes: Any
) -> None:
    """Let a training fail by a step."""
    here = changes.pop("here", ALONE)
    with fails(DataError, f"step {step}: ", *named):
        run(opened(directory), objective, CONFIG.model_copy(update=changes), here)


def left(directory: Path) -> int:
    """The step that a training of this directory goes on from; its weights and moments are numbers."""
    network, optimizer = fresh()
    step = opened(directory).restore(network, optimizer).step
    moments = [value for one in optimizer.state.values() for value in one.values()]
    assert all(value.isfinite().all() for value in [*network.parameters(), *moments])
    return step


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
        run(opened(tmp_path), terminated(5, spoiled=6))
    assert left(tmp_path) == 5


@pytest.mark.parametrize("name", ["loss", "bits_per_base", "bits_per_character"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_figures_that_are_no_numbers_end_a_training(
    tmp_path: Path, name: str, value: float
) -> None:
    ended(Curve(auroc=0.5, **{name: value}), tmp_path, 4, name, value, evaluate_every=4)
    assert left(tmp_path) == 3
    run(
        opened(tmp_path), Curve(loss=1.0, auroc=math.nan)
    )  # where validation holds one class


@pytest.mark.parametrize("method", ["adamw", "adafactor"])
def test_steps_without_a_finite_gradient_are_skipped(
    method: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The others are as if these had not been: also after a stop between them."""
    config = CONFIG.model_copy(
        update={"optimizer": CONFIG.optimizer.model_copy(update={"method": method})}
    )
    network, optimizer = fresh(config)
    for step in range(config.steps):
        batch = Curve().batch(step, 0, 4)
        loss = Curve().loss(network, batch, {"rows": 4.0})
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), config.optimizer.clip_norm)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, config.steps, config.optimizer)
        if step + 1 not in (5, 6, 9):
            optimizer.step()
        optimizer.zero_grad()
    expected = weights(network)

    def trained(directory: Path, objective: Curve) -> list[float]:
        made, _ = fresh(config)
        with suppress(KeyboardInterrupt):
            progress = train_network(made, objective, config, opened(directory), ALONE)
            assert (progress.step, progress.skipped) == (12, 3)
        return weights(made)

    assert trained(tmp_path / "a", Curve(change=falling(5, 6, 9))) == expected
    said = capsys.readouterr().err
    assert [f"step {step} is skipped" in said for step in range(4, 11)] == [
        step in (5, 6, 9) for step in range(4, 11)
    ]
    trained(tmp_path / "b", Curve(7, change=falling(5, 6, 9)))
    assert trained(tmp_path / "b", Curve(change=falling(5, 6, 9))) == expected


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
        run(
            opened(tmp_path),
            terminated(8, broken(5)),
            CONFIG.model_copy(update={"steps": 20}),
        )
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


@given(st.lists(st.integers(1, 60), min_size=1, max_size=30), st.integers(1, 6))
@settings(max_examples=100, deadline=None)
def test_rows_are_cut_by_length_and_none_is_lost(
    lengths: list[int], parts: int
) -> None:
    parts = min(parts, len(lengths))
    bounds = [len(lengths) * part // parts for part in range(parts + 1)]
    sizes = [end - first for first, end in pairwise(bounds)]
    ids = torch.randint(
        1, 100, (len(lengths), max(lengths)), generator=torch.Generator().manual_seed(0)
    )
    ids *= torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    whole = {
        "ids": ids,
        "lengths": torch.tensor(lengths),
        "labels": torch.arange(len(lengths)),
    }
    made = [take_rows(whole, rows) for rows in by_length(whole["lengths"], sizes)]
    assert [len(part["ids"]) for part in made] == sizes
    assert sorted(torch.cat([part["labels"] for part in made]).tolist()) == [
        *range(len(lengths))
    ]
    for part in made:
        assert (
            part["ids"].shape[1] == part["lengths"].max()
            and part["ids"].is_contiguous()
        )
        for ids, length, label in zip(
            part["ids"], part["lengths"], part["labels"], strict=True
        ):
            assert torch.equal(ids[:length], whole["ids"][label, : lengths[label]])
            assert not ids[length:].any()
    padded = sum(part["ids"].numel() for part in made)
    in_order = [lengths[first:end] for first, end in pairwise(bounds)]
    if len({*sizes}) == 1:
        assert padded <= sum(len(part) * max(part) for part in in_order)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("accumulate", [1, 3])
def test_shares_of_a_batch_are_all_of_it_and_as_even_as_they_can_be(
    size: int, accumulate: int
) -> None:
    parts: list[list[int]] = []

    class Numbered(Curve):
        def batch(self, step: int, first: int, count: int) -> Batch:
            return {"lengths": torch.arange(first, first + count)}

    config = TrainingConfig(steps=1, batch_size=25, grad_accumulation=accumulate)
    for rank in range(size):
        here = World(rank, size, torch.device("cpu"))
        ((_, batches),) = prefetched(Numbered(), config, here, 0)
        own = [batch["lengths"].tolist() for batch in batches]
        assert len(own) == accumulate
        assert accumulate == 1 or [*chain(*own)] == sorted(chain(*own), reverse=True)
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


def test_only_matrices_decay_and_moments_are_what_the_optimizer_makes() -> None:
    network = nn.Sequential(nn.Linear(3, 2), nn.LayerNorm(2))
    decayed, others = make_optimizer(
        network, OptimizerConfig(weight_decay=0.1)
    ).param_groups
    assert (decayed["weight_decay"], others["weight_decay"]) == (0.1, 0.0)
    assert [p.dim() for p in decayed["params"]] == [2] and {
        p.dim() for p in others["params"]
    } == {1}
    for method in ("adamw", "adafactor"):
        network = nn.Sequential(nn.Embedding(4, 3), nn.Conv1d(3, 2, 5), nn.Linear(7, 2))
        optimizer = make_optimizer(
            network, OptimizerConfig.model_validate({"method": method})
        )
        for parameter in network.parameters():
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()
        for parameter in network.parameters():
            made, expected = (
                optimizer.state[parameter],
                fresh_moments(optimizer, parameter),
            )
            assert [*made] == [*expected]
            assert all(
                made[name].shape == value.shape for name, value in expected.items()
            )


def test_adafactor_takes_steps_as_its_paper_says() -> None:
    """Shazeer and Stern 2018, algorithm 4: relative steps, no first moment, updates clipped at 1."""
    torch.manual_seed(1)
    weights = nn.Parameter(torch.randn(4, 3, dtype=torch.float64))
    expected = weights.detach().clone()
    network = nn.ParameterList([weights])
    config = OptimizerConfig(method="adafactor", learning_rate=0.05, weight_decay=0.0)
    optimizer = make_optimizer(network, config)
    rows, columns = (
        torch.zeros(4, dtype=torch.float64),
        torch.zeros(3, dtype=torch.float64),
    )
    for step in range(1, 6):
        gradient = torch.randn(4, 3, dtype=torch.float64)
        weights.grad = gradient.clone()
        optimizer.step()
        kept = 1 - step**-0.8
        squares = gradient.square()
        rows = kept * rows + (1 - kept) * squares.mean(1)
        columns = kept * columns + (1 - kept) * squares.mean(0)
        update = gradient / (rows[:, None] * columns / rows.mean()).sqrt()
        update /= max(1.0, float(update.square().mean().sqrt()))
        expected -= 0.05 * max(1e-3, float(expected.square().mean().sqrt())) * update
    torch.testing.assert_close(weights.detach(), expected, rtol=1e-6, atol=1e-9)
