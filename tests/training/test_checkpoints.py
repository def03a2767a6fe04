"""Checkpoints: the last two are kept, damage is always found, and the one before is taken."""

import hashlib
import io
import json
import os
import random
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bigbird_dna.config import OptimizerConfig, TrainingConfig
from bigbird_dna.errors import ModelError
from bigbird_dna.training.batches import Batch
from bigbird_dna.training.checkpoints import CheckpointStore, UnusableCheckpoint, read_checkpoint
from bigbird_dna.training.distributed import World
from bigbird_dna.training.log import Progress, TrainingLog
from bigbird_dna.training.loop import train_network
from bigbird_dna.training.optimizers import make_optimizer
from tests.golden.messages import fails

ALONE = World(0, 1, torch.device("cpu"))
CONFIG = TrainingConfig(
    steps=12,
    batch_size=4,
    checkpoint_every=2,
    precision="float32",
    optimizer=OptimizerConfig(learning_rate=0.1, warmup_steps=1),
)
Everything = tuple[nn.Module, torch.optim.Optimizer]


class Curve:
    """Fits a curve; a training of it may be ended before its time."""

    def __init__(self, end: int = 10**9) -> None:
        self.end = end

    def batch(self, step: int, first: int, count: int) -> Batch:
        x = torch.arange(first, first + count, dtype=torch.float32)[:, None] / 4 + step
        return {"ids": x, "lengths": torch.ones(count), "step": torch.tensor(step)}

    def counts(self, batch: Batch) -> dict[str, float]:
        return {"rows": float(len(batch["ids"]))}

    def loss(self, network: nn.Module, batch: Batch, totals: dict[str, float]) -> Tensor:
        if batch["step"] >= self.end:
            raise KeyboardInterrupt
        return (network(batch["ids"]) - batch["ids"].sin()).square().sum() / totals["rows"]

    def evaluate(self, network: nn.Module) -> dict[str, float]:
        return {}


def fresh(config: TrainingConfig = CONFIG) -> Everything:
    torch.manual_seed(3)
    network = nn.Sequential(nn.Linear(1, 5), nn.Tanh(), nn.Linear(5, 1))
    return network, make_optimizer(network, config.optimizer)


def run(store: CheckpointStore, end: int = 10**9, config: TrainingConfig = CONFIG) -> list[float]:
    """Train, or go on, up to step `end`; all weights."""
    network, _ = fresh()
    with suppress(KeyboardInterrupt):
        train_network(network, Curve(end), config, store, ALONE)
    return [x for value in network.state_dict().values() for x in value.flatten().tolist()]


def opened(directory: Path) -> CheckpointStore:
    return CheckpointStore(directory, {"a": 1})


@pytest.fixture
def begun(tmp_path: Path) -> CheckpointStore:
    """A training that was ended after step 6, with the checkpoints of steps 4 and 6."""
    run(opened(tmp_path), 6)
    store = opened(tmp_path)
    assert sorted(path.name for path in store.directory.iterdir()) == [
        "previous.pt",
        "state.pt",
        "training.jsonl",
    ]
    return store


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    return run(opened(tmp_path_factory.mktemp("undisturbed")))


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place // 8] ^= 1 << place % 8
    path.write_bytes(content)


def sign(path: Path, content: bytes) -> None:
    """Write a checkpoint that has its checksum, whatever is in it."""
    digest = hashlib.sha256(content).hexdigest().encode()
    path.write_bytes(b"bigbird-dna checkpoint, SHA-256 " + digest + b"\n" + content)


def saved(state: object) -> bytes:
    stream = io.BytesIO()
    torch.save(state, stream)
    return stream.getvalue()


def state_of(store: CheckpointStore) -> dict[str, Any]:
    content = store.path.read_bytes()
    found: dict[str, Any] = torch.load(io.BytesIO(content[content.index(b"PK") :]), weights_only=True)
    return found


def test_a_changed_bit_is_always_found_and_the_checkpoint_before_is_taken(
    begun: CheckpointStore, capsys: pytest.CaptureFixture[str]
) -> None:
    content = begun.path.read_bytes()
    network, optimizer = fresh()
    draw = random.Random(8)
    capsys.readouterr()
    for number in range(1000):
        begun.path.write_bytes(content)
        flip(begun.path, draw.randrange(8 * len(content)))
        if number % 20:
            with fails(UnusableCheckpoint):
                read_checkpoint(begun.path)
            continue
        assert begun.restore(network, optimizer).step == 4
        warning, resumed = capsys.readouterr().err.splitlines()
        assert f"warning: {begun.path}: damaged: it doesn't" in warning
        assert warning.endswith("; the checkpoint before it is taken")
        assert f"resuming at step 4 from {begun.previous}" in resumed
    begun.path.write_bytes(content)
    assert begun.restore(network, optimizer).step == 6


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "missing"])
def test_a_training_that_goes_on_from_the_checkpoint_before_ends_in_the_same_weights(
    begun: CheckpointStore, tmp_path: Path, undisturbed: list[float], damage: str
) -> None:
    content = begun.path.read_bytes()
    if damage == "missing":
        begun.path.unlink()
    else:
        changed = {"flip": content[:-900] + b"x" + content[-899:], "cut": content[:-9], "empty": b""}[damage]
        assert changed != content
        begun.path.write_bytes(changed)
    assert run(opened(tmp_path)) == undisturbed
    steps = [json.loads(line)["step"] for line in begun.log_path.read_text().splitlines()]
    assert steps == sorted(set(steps)) or steps == [10, 12, 12]


def test_a_damaged_checkpoint_does_not_take_the_place_of_a_good_one(begun: CheckpointStore) -> None:
    """Ended again at any moment, there is still one to go on from."""
    good = begun.previous.read_bytes()
    flip(begun.path, 8000)
    network, optimizer = fresh()
    progress = begun.restore(network, optimizer)
    begun.save(network, optimizer, progress)
    assert begun.previous.read_bytes() == good
    begun.save(network, optimizer, Progress(step=6))
    assert [opened_step(begun, path) for path in (begun.path, begun.previous)] == [6, 4]


def opened_step(store: CheckpointStore, path: Path) -> int:
    other = CheckpointStore(store.directory.parent, {"a": 1})
    other.path = path
    return other.restore(*fresh()).step


def test_without_a_good_checkpoint_one_line_says_what_to_do(begun: CheckpointStore) -> None:
    flip(begun.path, 9000)
    begun.previous.write_bytes(b"noise" * 100)
    with pytest.raises(ModelError) as caught:
        begun.restore(*fresh())
    assert str(caught.value) == (
        f"{begun.path}: damaged: it doesn't have its own sha256; {begun.previous}: damaged: it doesn't begin "
        f"as a checkpoint does; delete {begun.directory} to train from the start"
    )


def test_a_checkpoint_without_a_checksum_is_not_taken(
    begun: CheckpointStore, undisturbed: list[float]
) -> None:
    begun.path.write_bytes(saved(state_of(begun)))
    assert run(opened(begun.directory.parent)) == undisturbed
    begun.path.write_bytes(saved(fresh()[0].state_dict()))
    begun.previous.unlink(missing_ok=True)
    with fails(ModelError):
        begun.restore(*fresh())


class Code:
    """What runs code where it is unpickled without care."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[[str], object], tuple[str]]:
        return os.mkdir, (str(self.path),)


ADAFACTOR = CONFIG.model_copy(update={"optimizer": OptimizerConfig(method="adafactor", learning_rate=0.1)})


def test_adafactor_goes_on_from_its_checkpoint_and_from_no_other_optimiser_s(tmp_path: Path) -> None:
    whole = run(opened(tmp_path / "whole"), config=ADAFACTOR)
    run(opened(tmp_path), 6, ADAFACTOR)
    store = opened(tmp_path)
    network, adamw = fresh()
    with fails(ModelError):
        store.restore(network, adamw)
    assert store.restore(*fresh(ADAFACTOR)).step == 6
    assert run(store, config=ADAFACTOR) == whole != run(opened(tmp_path / "adamw"))


Change = Callable[[dict[str, Any]], object]


@pytest.mark.parametrize(
    "change",
    [
        lambda state: state.pop("progress"),
        lambda state: state.update(more=1),
        lambda state: state.update(computed=[2]),
        lambda state: state.update(computed={"processes": None}),
        lambda state: state["network"].pop("0.weight"),
        lambda state: state["network"].update(more=torch.zeros(1)),
        lambda state: state["network"].update({"0.weight": torch.zeros(1, 5)}),
        lambda state: state["network"].update({"0.weight": torch.zeros(5, 1, dtype=torch.long)}),
        lambda state: state["network"].update({"0.weight": torch.zeros(5, 1).to_sparse()}),
        lambda state: state["network"].update({"0.weight": torch.zeros(1).expand(10**6, 10**6)}),
        lambda state: state["network"].update({"0.weight": [1.0]}),
        lambda state: state.update(network=[]),
        lambda state: state.update(optimizer=None),
        lambda state: state["optimizer"].update(state=[]),
        lambda state: state["optimizer"]["state"].update({9: {}}),
        lambda state: state["optimizer"]["state"][0].update(exp_avg=torch.zeros(3)),
        lambda state: state["optimizer"]["state"][0].update(step=torch.zeros(5, 1)),
        lambda state: state["optimizer"]["state"][0].pop("exp_avg_sq"),
        lambda state: state["optimizer"]["state"].update({0: None}),
        lambda state: state["optimizer"]["param_groups"].pop(),
        lambda state: state["optimizer"]["param_groups"][0].update(params=[0, 0]),
        lambda state: state["optimizer"]["state"][0].update(step=torch.tensor(-4e6)),
        lambda state: state["optimizer"]["state"][0].update(step=torch.tensor(float("nan"))),
        lambda state: state["optimizer"]["state"][0].update(step=torch.tensor(1e30)),
        lambda state: state.update(progress=4),
        lambda state: state["progress"].pop("tokens"),
        lambda state: state["progress"].update(more=1),
        lambda state: state["progress"].update(step=-1),
        lambda state: state["progress"].update(step=True),
        lambda state: state["progress"].update(step="6"),
        lambda state: state["progress"].update(loss_sum=float("nan")),
        lambda state: state["progress"].update(tokens=torch.tensor(1)),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_left_for_the_one_before(
    begun: CheckpointStore, undisturbed: list[float], change: Change
) -> None:
    """Though it has its checksum: nothing of it is loaded."""
    state = state_of(begun)
    change(state)
    sign(begun.path, saved(state))
    network, optimizer = fresh()
    before = [value.clone() for value in network.state_dict().values()]
    begun.previous.rename(begun.directory / "away")
    with fails(ModelError) as caught:
        begun.restore(network, optimizer)
    assert str(caught.value).isprintable() and len(str(caught.value)) < 600
    assert all(map(torch.equal, before, network.state_dict().values())) and not optimizer.state
    (begun.directory / "away").rename(begun.previous)
    assert run(opened(begun.directory.parent)) == undisturbed


def test_settings_of_the_optimizer_are_those_of_the_configuration(begun: CheckpointStore) -> None:
    state = state_of(begun)
    state["optimizer"]["param_groups"][0].update(weight_decay="much", betas=None)
    sign(begun.path, saved(state))
    network, optimizer = fresh()
    expected = [dict(group, params=[]) for group in optimizer.param_groups]
    assert begun.restore(network, optimizer).step == 6
    assert [dict(group, params=[]) for group in optimizer.param_groups] == expected


def test_no_code_of_a_checkpoint_is_run(begun: CheckpointStore, tmp_path: Path) -> None:
    begun.previous.unlink()
    deep: list[Any] = []
    for _ in range(90):
        deep = [deep]
    script = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.save(torch.jit.script(nn.Linear(1, 1)), script)
    plain = saved({"a": 1})
    contents = [
        saved(Code(tmp_path / "made")),
        saved(deep),
        script.getvalue(),
        plain[:-200],
        b"",
        b"PK\x03\x04",
    ]
    for content in contents:
        sign(begun.path, content)
        with fails(ModelError) as caught:
            begun.restore(*fresh())
        assert str(caught.value).isprintable() and len(str(caught.value)) < 800
    assert not (tmp_path / "made").exists()


def test_what_is_computed_otherwise_is_said(
    begun: CheckpointStore, undisturbed: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    now = {"processes": 1, "precision": "float32"}
    for before, said in (
        ({"processes": 2, "precision": "float32", "colour": "red"}, "processes 2 → 1"),
        ({"precision": "x" * 999}, f"precision {'x' * 80}… → float32"),
        (now, None),
        ({}, None),
    ):
        store = CheckpointStore(begun.directory.parent, {"a": 1}, computed=before)
        network, optimizer = fresh()
        store.save(network, optimizer, store.restore(network, optimizer))
        capsys.readouterr()
        assert CheckpointStore(begun.directory.parent, {"a": 1}, computed=now).restore(*fresh()).step == 6
        log = [line.split("  ", 1)[1] for line in capsys.readouterr().err.splitlines()]
        assert log[0].startswith("resuming at step 6 from")
        assert log[1:] == [
            f"from here on computed otherwise: {said}; data and their order stay the same"
            for _ in [0]
            if said
        ]
    state = state_of(begun)
    del state["computed"]
    sign(begun.path, saved(state))
    assert run(opened(begun.directory.parent)) == undisturbed  # from the one before it


def test_what_is_not_of_the_training_stays_when_its_checkpoints_go(begun: CheckpointStore) -> None:
    (begun.directory / "notes").write_text("")
    begun.remove()
    assert [path.name for path in begun.directory.iterdir()] == ["notes"]
    (begun.directory / "notes").unlink()
    begun.remove()
    assert not begun.directory.exists()


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
