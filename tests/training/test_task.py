"""One training from its task to its directory: in which order, by whom, and what is left when it fails."""

import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from bigbird_dna.errors import DataError, ModelError, UsageError
from bigbird_dna.training.distributed import World, world
from bigbird_dna.training.initialization import Initialization
from bigbird_dna.training.loop import STATE, Batch
from bigbird_dna.training.task import TrainingResult, train
from tests.golden.messages import fails, message
from tests.training.curve import CONFIG, Curve, run, state_of

SIX_STEPS = CONFIG.model_copy(update={"steps": 6, "evaluate_every": 1})


class LineTask(Curve):
    """Fits a line, and notes what it is asked for; held-out losses are made up, and a step may fail."""

    config = SIX_STEPS

    def __init__(
        self,
        losses: list[float] | None = None,
        fails: int | None = None,
        start: float = 0.0,
    ) -> None:
        super().__init__()
        self.losses, self.fails, self.start = losses or [1.0] * 6, fails, start
        self.calls: list[str] = []
        self.seen: list[float] = []

    def batch(self, step: int, first: int, count: int) -> Batch:
        if step == self.fails:
            raise DataError("step that fails")
        return super().batch(step, first, count)

    def evaluate(self, network: nn.Module, world: World) -> dict[str, float]:
        assert isinstance(network, nn.Linear)
        self.seen.append(network.bias.item())
        return {"loss": self.losses[len(self.seen) - 1]}

    def identity(self) -> dict[str, Any]:
        return {"start": self.start}

    def check(self) -> None:
        self.calls.append("check")

    def build(self) -> nn.Linear:
        self.calls.append("build")
        assert torch.initial_seed() == SIX_STEPS.seed
        return nn.Linear(1, 1)

    def initialize(self, network: nn.Linear) -> None:
        self.calls.append("initialize")
        with torch.no_grad():
            network.bias.fill_(self.start)

    def measure(self, trained: TrainingResult[nn.Linear]) -> float:
        self.calls.append("measure")
        assert torch.is_inference_mode_enabled() and not trained.network.training
        return trained.network.bias.item()

    def write(
        self, directory: Path, trained: TrainingResult[nn.Linear], measured: float
    ) -> dict[str, Any]:
        self.calls.append("write")
        assert trained.log.is_file() and not [*directory.iterdir()]
        (directory / "bias").write_text(str(measured))
        return {
            "bias": measured,
            "steps": trained.progress.step,
            "parameters": trained.effort["parameters"],
        }


class BestTask(LineTask):
    keeps_best = True


def trained(task: LineTask, home: Path, output: str = "output") -> dict[str, Any]:
    with world("cpu") as here:
        return train(task, home / output, home / "checkpoints", here)


def left(home: Path) -> list[str]:
    return sorted(
        path.name for path in (home / "checkpoints").rglob("*") if path.is_file()
    )


def test_a_task_is_asked_in_its_order_and_nothing_but_the_output_is_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = LineTask()
    found = trained(task, tmp_path)
    assert task.calls == [
        "check",
        "build",
        "initialize",
        "measure",
        "write",
    ]
    assert found["steps"] == 6 and found["parameters"] == 2
    assert (tmp_path / "output/bias").read_text() == str(found["bias"])
    assert left(tmp_path) == []
    assert "training 2 parameters, cpu" in capsys.readouterr().err


def test_an_interrupted_training_goes_on_from_its_checkpoint_without_initial_weights(
    tmp_path: Path,
) -> None:
    with fails(DataError):
        trained(LineTask(fails=4, start=3.0), tmp_path)
    assert not (tmp_path / "output").exists() and {"state.pt", "training.jsonl"} <= {
        *left(tmp_path)
    }
    task = LineTask(start=3.0)
    again = trained(task, tmp_path)
    assert "initialize" not in task.calls
    assert again == trained(LineTask(start=3.0), tmp_path, "undisturbed")
    assert again != trained(LineTask(start=2.0), tmp_path, "other")


def test_what_fails_at_the_end_leaves_checkpoints_and_the_older_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = trained(LineTask(), tmp_path)

    def full(*_: object) -> dict[str, Any]:
        raise DataError("no space")

    with monkeypatch.context() as patch, fails(DataError):
        patch.setattr(LineTask, "write", full)
        trained(LineTask(start=1.0), tmp_path)
    assert (tmp_path / "output/bias").read_text() == str(before["bias"])
    assert "state.pt" in left(tmp_path)
    task = LineTask(start=1.0, fails=0)  # no step is made again
    assert trained(task, tmp_path)["steps"] == 6 and left(tmp_path) == []


def test_a_foreign_output_and_damage_are_found_before_the_directory_of_checkpoints_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged(self: LineTask) -> None:
        raise DataError("damaged")

    (tmp_path / "output").mkdir()
    (tmp_path / "output/mine").write_text("")
    task = LineTask()
    with fails(UsageError):
        trained(task, tmp_path)
    assert task.calls == []
    monkeypatch.setattr(LineTask, "check", damaged)
    with fails(DataError):
        trained(LineTask(), tmp_path, "another")
    assert not (tmp_path / "checkpoints").exists()


def test_weights_of_the_least_held_out_loss_stay_if_a_task_asks_for_them(
    tmp_path: Path,
) -> None:
    losses = [0.9, 0.5, 0.7, 0.5, 0.8, 0.6]
    task, last = BestTask(losses), LineTask(losses)
    assert trained(task, tmp_path)["bias"] == task.seen[1]
    assert trained(last, tmp_path)["bias"] == last.seen[-1] == task.seen[-1]
    with pytest.raises(DataError):
        trained(BestTask(losses, fails=4, start=1.0), tmp_path)
    assert "best.pt" in left(tmp_path)
    resumed = BestTask([0.7, 0.6, 0.8, 0.6], start=1.0)  # the least was before it
    undisturbed = BestTask(losses, start=1.0)
    assert trained(resumed, tmp_path) == trained(undisturbed, tmp_path, "undisturbed")
    assert left(tmp_path) == []


class PatientTask(BestTask):
    patience = 2


RISING = [0.5, 0.4, 0.43, 0.45, 0.41, 0.46]  # only 0.45 and 0.46 exceed 0.4 by a tenth


def test_training_ends_early_only_if_the_held_out_loss_stays_a_tenth_above_the_lowest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert trained(PatientTask(RISING), tmp_path)["steps"] == 6
    assert "training ends" not in capsys.readouterr().err
    task = PatientTask([*RISING[:2], 0.45, 0.46])
    found = trained(task, tmp_path, "early")
    assert found["steps"] == 4 and found["bias"] == task.seen[1]
    assert "training ends at step 4 of 6" in capsys.readouterr().err


@pytest.mark.parametrize("fails", [2, 3])
def test_an_early_end_is_the_same_after_an_interruption(
    tmp_path: Path, fails: int
) -> None:
    losses = [*RISING[:2], 0.45, 0.46]
    undisturbed = trained(PatientTask(losses), tmp_path, "undisturbed")
    with pytest.raises(DataError):
        trained(PatientTask(losses, fails=fails), tmp_path)
    assert trained(PatientTask(losses[fails:]), tmp_path) == undisturbed
    assert left(tmp_path) == []


def test_a_training_that_has_ended_early_makes_no_further_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> dict[str, Any]:
        raise DataError("no space")

    losses = [*RISING[:2], 0.45, 0.46]
    undisturbed = trained(PatientTask(losses), tmp_path, "undisturbed")
    with monkeypatch.context() as patch, fails(DataError):
        patch.setattr(LineTask, "write", full)
        trained(PatientTask(losses), tmp_path)
    assert trained(PatientTask([], fails=0), tmp_path) == undisturbed


# What fine-tuning is told of a pretrained model that has seen what is held out now


def seen(
    directory: Path, provenance: dict[str, Any], held_out: pd.DataFrame
) -> list[str] | None:
    (directory / "provenance.json").write_text(json.dumps(provenance))
    none: Any = None
    return Initialization(none, none, none, directory).seen(held_out)


PLACES = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 90), st.integers(1, 30)),
    max_size=8,
)


@given(PLACES, PLACES, st.booleans())
def test_what_was_trained_on_and_is_held_out_is_named(
    tmp_path_factory: pytest.TempPathFactory,
    trained: list[tuple[str, int, int]],
    held_out: list[tuple[str, int, int]],
    categories: bool,
) -> None:
    """Base by base: `a` was trained on whole, `b` and `c` in stretches, and `d` is not known."""
    stretches = [
        (contig, start, start + size)
        for contig, start, size in trained
        if contig != "a"
    ]
    rows = pd.DataFrame(
        [(contig, start, start + size) for contig, start, size in held_out]
        + [("d", 0, 5)],
        columns=["contig", "start", "end"],
    )
    bases = {
        (row.contig, base)
        for row in rows.itertuples()
        for base in range(row.start, row.end)
    }
    expected = ["a"] * any(contig == "a" for contig, _ in bases)
    expected += [
        f"{contig}:{start + 1}-{end}"
        for contig, start, end in stretches
        if any((contig, base) in bases for base in range(start, end))
    ]
    if categories:  # as in a table of bins, which knows contigs that have none
        rows["contig"] = pd.Categorical(rows["contig"], categories=["z", *"dcba"])
    provenance = {
        "contigs": ["a", *dict.fromkeys(contig for contig, _, _ in stretches)],
        "stretches": [
            f"{contig}:{start + 1}-{end}" for contig, start, end in stretches
        ],
    }
    found = seen(tmp_path_factory.mktemp("model"), provenance, rows)
    assert sorted(found) == sorted(expected)


def test_a_model_of_whole_contigs_names_them_and_wrong_regions_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = pd.DataFrame(
        {"contig": ["22", "1"], "start": np.array([5, 6]), "end": np.array([9, 9])}
    )
    assert seen(tmp_path, {"contigs": ["22", "X"]}, rows) == ["22"]
    message(capsys.readouterr().err.partition("  ")[2], tmp_path, "22")
    assert seen(tmp_path, {}, rows) is None
    message(capsys.readouterr().err.partition("  ")[2], tmp_path)
    assert (
        seen(tmp_path, {"contigs": ["X"]}, rows) == [] and capsys.readouterr().err == ""
    )


# Checkpoints: what a training resumes from, or one sentence that says what to do


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    """A training that was ended after step 6."""
    directory = tmp_path / "checkpoint"
    run(directory, Curve(6))
    assert {path.name for path in directory.iterdir()} == {STATE, "training.jsonl"}
    return directory


def saved(state: object) -> bytes:
    stream = io.BytesIO()
    torch.save(state, stream)
    return stream.getvalue()


class Code:
    """What runs code where it is unpickled without care."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[[str], object], tuple[str]]:
        return os.mkdir, (str(self.path),)


CHANGES: list[tuple[tuple[str, ...], object]] = [
    (("progress",), ...),
    (("network", "0.weight"), ...),
    (("network", "more"), torch.zeros(1)),
    (("network", "0.weight"), torch.zeros(1, 5)),
    (("network",), []),
    (("optimizer",), None),
    (("progress", "more"), 1),
]


@pytest.mark.parametrize(("keys", "value"), CHANGES, ids=range(len(CHANGES)))
def test_a_checkpoint_that_does_not_fit_is_named(
    begun: Path, keys: tuple[str, ...], value: object
) -> None:
    state = place = state_of(begun)
    for key in keys[:-1]:
        place = place[key]
    if value is ...:
        del place[keys[-1]]
    else:
        place[keys[-1]] = value
    torch.save(state, begun / STATE)
    with fails(ModelError, begun / STATE):
        run(begun)


def test_no_code_of_a_damaged_checkpoint_is_run(begun: Path, tmp_path: Path) -> None:
    content = (begun / STATE).read_bytes()
    hostile = saved(Code(tmp_path / "made"))
    for damaged in (hostile, content[:-200], b"", b"noise" * 100, b"PK\x03\x04"):
        (begun / STATE).write_bytes(damaged)
        with fails(ModelError, begun / STATE, begun) as caught:
            run(begun)
        assert str(caught.value).isprintable() and len(str(caught.value)) < 800
    assert not (tmp_path / "made").exists()
