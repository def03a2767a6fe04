"""Which device is taken, what becomes of a training that diverges, and of processes whose first one fails."""

import multiprocessing
import os
import socket
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from bigbird_dna.config import OptimizerConfig, TrainingConfig
from bigbird_dna.errors import DataError, UsageError
from bigbird_dna.model.inference import choose_device
from bigbird_dna.training.batches import Batch
from bigbird_dna.training.checkpoints import CheckpointStore, fingerprint, read_checkpoint
from bigbird_dna.training.distributed import World, world
from bigbird_dna.training.loop import train_network
from tests.golden.messages import fails

ALONE = World(0, 1, torch.device("cpu"))


@pytest.mark.parametrize(
    ("cards", "processes", "asked", "taken"),
    [
        (0, 1, "auto", "cpu"),
        (1, 1, "auto", "cuda"),
        (1, 2, "auto", "cpu"),
        (2, 2, "cuda", "cuda"),
        (2, 1, "cpu", "cpu"),
    ],
)
def test_a_card_is_taken_only_where_each_process_has_one(
    monkeypatch: pytest.MonkeyPatch, cards: int, processes: int, asked: str, taken: str
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: cards)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(processes))
    assert choose_device(asked).type == taken


def test_a_missing_card_and_an_unknown_device_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with fails(UsageError):
        choose_device("cuda")
    with fails(UsageError):
        choose_device("tpu")


class Line:
    """Fits a line; from step 6 on its data are not finite."""

    def batch(self, step: int, first: int, count: int) -> Batch:
        x = torch.arange(count, dtype=torch.float32)[:, None]
        return {"ids": x / (0.0 if step >= 6 else 1.0), "lengths": torch.ones(count)}

    def counts(self, batch: Batch) -> dict[str, float]:
        return {"rows": float(len(batch["ids"]))}

    def loss(self, network: nn.Module, batch: Batch, totals: dict[str, float]) -> torch.Tensor:
        return (network(batch["ids"]) - 1).square().sum() / totals["rows"]

    def evaluate(self, network: nn.Module) -> dict[str, float]:
        return {}


def test_divergence_stops_the_training_and_keeps_the_last_good_checkpoint(tmp_path: Path) -> None:
    config = TrainingConfig(
        steps=10,
        batch_size=4,
        checkpoint_every=2,
        precision="float32",
        optimizer=OptimizerConfig(learning_rate=0.01, warmup_steps=1),
    )
    torch.manual_seed(0)
    network = nn.Linear(1, 1)
    store = CheckpointStore(tmp_path, {"a": 1})
    with fails(DataError):
        train_network(network, Line(), config, store, ALONE)
    # The weights after step 6 gave that loss.
    assert not store.path.exists()
    state = read_checkpoint(store.previous)
    assert state["progress"]["step"] == 4
    assert all(torch.isfinite(value).all() for value in state["network"].values())


def test_a_fingerprint_tells_configurations_apart_whatever_their_order() -> None:
    assert fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1}) != fingerprint({"a": 2, "b": 1})


def _failing(rank: int, port: int, errors: Any, heard: Any) -> None:
    """One of two processes; the first one fails, and waits till both have said why they end."""
    own = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in own.items()}, MASTER_ADDR="127.0.0.1")
    with world("cpu") as here:
        for error in (IndexError("defect\nof two lines"), DataError("a.txt: damaged")):

            def call(error: Exception = error) -> None:
                raise error

            try:
                here.first(call)
            except Exception as found:
                errors.put((type(error).__name__, rank, type(found).__name__, str(found)))
        heard.wait(60)


def test_whatever_fails_on_the_first_process_no_other_waits_for_it() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    errors, heard = context.Queue(), context.Event()
    pair = [context.Process(target=_failing, args=(rank, port, errors, heard)) for rank in range(2)]
    for process in pair:
        process.start()
    try:
        found = sorted(errors.get(timeout=60) for _ in range(4))
    finally:
        heard.set()
        for process in pair:
            process.join(60)
    assert found == [
        ("DataError", 0, "DataError", "a.txt: damaged"),
        ("DataError", 1, "DataError", "a.txt: damaged"),
        ("IndexError", 0, "IndexError", "defect\nof two lines"),
        ("IndexError", 1, "RuntimeError", "the first process failed: defect of two lines"),
    ]
    assert [process.exitcode for process in pair] == [0, 0]
