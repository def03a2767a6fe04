"""A training that has diverged ends in one sentence, and what it goes on from is from before that."""

import math
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bigbird_dna.errors import DataError, Stopped
from bigbird_dna.training.batches import Batch
from bigbird_dna.training.checkpoints import CheckpointStore, read_checkpoint, write_checkpoint
from bigbird_dna.training.distributed import World, world
from bigbird_dna.training.loop import train_network
from tests.golden.messages import fails
from tests.training.kinds import KINDS, make_chromatin
from tests.training.kinds import train as train_kind
from tests.training.test_checkpoints import ALONE, CONFIG, Curve, fresh, opened

SENTENCE = ": training has diverged; a lower learning_rate or a longer warm-up may help"


class Falling(Curve):
    """Step number `step`'s loss is a number, and its gradient is none: so are the weights after it."""

    def __init__(self, step: int, **figures: float) -> None:
        super().__init__()
        self.step, self.figures = step, figures

    def loss(self, network: nn.Module, batch: Batch, totals: dict[str, float]) -> Tensor:
        loss = super().loss(network, batch, totals)
        return loss + (0 * loss).sqrt() if batch["step"] + 1 == self.step else loss

    def evaluate(self, network: nn.Module) -> dict[str, float]:
        return self.figures


def ended(objective: Curve, directory: Path, here: World = ALONE, **changes: object) -> str:
    """What is said of a training that fails."""
    network, _ = fresh()
    with pytest.raises(DataError) as caught:
        train_network(network, objective, CONFIG.model_copy(update=changes), opened(directory), here)
    assert str(caught.value).endswith(SENTENCE)
    return str(caught.value).removesuffix(SENTENCE)


def left(directory: Path) -> int:
    """The step that a training of this directory goes on from; its weights and moments are numbers."""
    network, optimizer = fresh()
    step = opened(directory).restore(network, optimizer).step
    moments = [value for one in optimizer.state.values() for value in one.values()]
    assert all(value.isfinite().all() for value in [*network.parameters(), *moments])
    return step


@pytest.mark.parametrize("changes", [{}, {"evaluate_every": 3}, {"steps": 6, "checkpoint_every": 4}])
def test_weights_that_are_no_numbers_are_neither_measured_nor_saved(
    tmp_path: Path, changes: dict[str, int]
) -> None:
    for _ in range(2):  # a restart comes to the same
        assert ended(Falling(6), tmp_path, **changes) == "step 6: the weights are not finite numbers"
        assert left(tmp_path) == 4


def test_nothing_is_saved_of_them_when_the_training_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Told(Falling):
        def loss(self, network: nn.Module, batch: Batch, totals: dict[str, float]) -> Tensor:
            if batch["step"] + 1 == stopped:
                os.kill(os.getpid(), signal.SIGTERM)
            return super().loss(network, batch, totals)

    stopped = 5
    assert ended(Told(5), tmp_path) == "step 5: the weights are not finite numbers"
    assert left(tmp_path) == 4
    network, _ = fresh()
    with pytest.raises(Stopped):
        train_network(network, Told(6), CONFIG, opened(tmp_path), ALONE)
    assert left(tmp_path) == 5


@pytest.mark.parametrize("name", ["loss", "bits_per_base", "bits_per_character"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_figures_that_are_no_numbers_end_a_training(tmp_path: Path, name: str, value: float) -> None:
    objective = Falling(99, auroc=0.5, **{name: value})
    assert ended(objective, tmp_path, evaluate_every=4) == f"step 4: the held-out {name} is {value}"
    assert left(tmp_path) == 2


def test_a_figure_may_not_be_defined(tmp_path: Path) -> None:
    """As an AUROC where validation holds one class."""
    network, _ = fresh()
    train_network(network, Falling(99, loss=1.0, auroc=math.nan), CONFIG, opened(tmp_path), ALONE)


class Broken(Curve):
    """From step number `step` on the weights of before give no loss that is a number."""

    def __init__(self, step: int) -> None:
        super().__init__()
        self.step = step

    def loss(self, network: nn.Module, batch: Batch, totals: dict[str, float]) -> Tensor:
        return super().loss(network, batch, totals) / float(batch["step"] + 1 < self.step)


@pytest.mark.parametrize(("step", "expected"), [(1, 0), (3, 0), (4, 2), (7, 4), (8, 6)])
def test_weights_whose_next_loss_is_no_number_are_not_gone_on_from(
    tmp_path: Path, step: int, expected: int
) -> None:
    """Large ones are numbers and yet of no use: a checkpoint right before such a loss doesn't stay."""
    for _ in range(2):
        assert ended(Broken(step), tmp_path) in (
            f"step {step}: the loss is {value}" for value in ("inf", "nan")
        )
        assert left(tmp_path) == expected


def test_a_checkpoint_that_was_gone_on_from_in_vain_does_not_stay(tmp_path: Path) -> None:
    """Whoever wrote it was killed right after that."""
    network, _ = fresh()
    with pytest.raises(KeyboardInterrupt):
        train_network(network, Curve(6), CONFIG, opened(tmp_path), ALONE)
    assert left(tmp_path) == 6
    ended(Broken(7), tmp_path)
    assert left(tmp_path) == 4


def test_all_processes_agree(tmp_path: Path) -> None:
    """One whose own weights are numbers stops with those whose weights are not."""

    class Second(World):
        def sum(self, values: dict[str, float]) -> dict[str, float]:
            return {**values, "broken": 1.0} if "broken" in values else values

    here = Second(0, 1, torch.device("cpu"))
    assert ended(Curve(), tmp_path, here) == "step 2: the weights are not finite numbers"
    assert left(tmp_path) == 0


@pytest.mark.parametrize("place", ["path", "previous"])
def test_an_earlier_versions_checkpoint_of_such_weights_is_not_taken(
    tmp_path: Path, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    network, _ = fresh()
    with pytest.raises(KeyboardInterrupt):
        train_network(network, Curve(6), CONFIG, opened(tmp_path), ALONE)
    path: Path = getattr(opened(tmp_path), place)
    state: dict[str, Any] = read_checkpoint(path)
    state["network"]["2.bias"][:] = float("nan")
    write_checkpoint(path, state)
    capsys.readouterr()
    assert left(tmp_path) == (4 if place == "path" else 6)
    said = "not finite numbers: that training had diverged; the checkpoint before it is taken"
    assert (said in capsys.readouterr().err) == (place == "path")


@pytest.fixture(scope="module")
def chromatin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_chromatin(tmp_path_factory.mktemp("chromatin") / "made")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rate", [1e12, 1e38])
@pytest.mark.parametrize("steps", [1, 6])
def test_models_that_diverge_are_said_to_and_not_published(
    kind: str, rate: float, steps: int, tiny_config: Path, chromatin: Path, tmp_path: Path
) -> None:
    """Whether it is seen by a loss, by the weights or by held-out figures."""
    more = {"steps": steps, "evaluate_every": 1, "checkpoint_every": 1}
    more["optimizer"] = {"learning_rate": rate, "warmup_steps": 0}
    with world("cpu") as here, fails(DataError):
        train_kind(kind, tiny_config, chromatin, tmp_path / "out", tmp_path / "checkpoints", here, **more)
    assert not (tmp_path / "out" / kind).exists()
    assert not [*(tmp_path / "checkpoints").glob("*/*.pt")]


def test_a_checkpoint_store_without_checkpoints_has_nothing_to_withdraw(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, {"a": 1})
    store.withdraw()
    assert not store.exists
