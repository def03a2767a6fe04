"""Two processes train as one does, whatever is trained; and one goes on where two have stopped."""

import os
import subprocess
import sys
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from bigbird_dna.config import EncoderConfig, PretrainingConfig
from bigbird_dna.model.settings import PretrainingSettings
from bigbird_dna.tokens.dna import DnaTokenizer
from bigbird_dna.training import loop
from bigbird_dna.training.checkpoints import CheckpointStore
from bigbird_dna.training.distributed import World, world
from bigbird_dna.training.task import ModelTask, checkpoint_store
from tests.conftest import REPOSITORY
from tests.training.kinds import KINDS, STEPS, logged, make_chromatin, train
from tests.training.pair import LAST

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def chromatin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_chromatin(tmp_path_factory.mktemp("chromatin") / "made")


@pytest.fixture(scope="module")
def pair(tiny_config: Path, chromatin: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two processes have trained, and have left where they were stopped."""
    home = tmp_path_factory.mktemp("pair")
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    words = [*launcher, "-m", "tests.training.pair", tiny_config, chromatin, home]
    ended = subprocess.run(
        words, cwd=REPOSITORY, env=ENVIRONMENT, capture_output=True, text=True, check=False, timeout=240
    )
    assert ended.returncode == 0, ended.stderr
    assert not (home / "elsewhere").exists()  # only the first process looks for checkpoints, and writes
    return home


@pytest.mark.parametrize("kind", KINDS)
def test_two_processes_have_the_losses_of_one_and_one_goes_on_where_they_stop(
    kind: str,
    pair: Path,
    tiny_config: Path,
    chromatin: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(loop, "LOG_STEPS", 1)
    for home, checkpoints, more in (
        (tmp_path, tmp_path / "checkpoints", {}),
        (pair / "stopped", pair / "stopped/checkpoints", {"accumulate": 2}),
    ):
        capsys.readouterr()
        with world("cpu") as here:
            train(kind, tiny_config, chromatin, home, checkpoints, here, **more)
    said = capsys.readouterr().err
    assert f"resuming at step {LAST} from" in said
    assert "computed otherwise: processes 2 → 1, accumulate 1 → 2" in said

    losses, figures = logged(tmp_path / kind)
    weights = load_file(tmp_path / kind / "model.safetensors")
    assert [*losses] == [*range(1, STEPS + 1)] and [*figures] == [10, 20]
    assert max(losses.values()) - min(losses.values()) > 1e-3  # something was learnt
    for name in ("undisturbed", "stopped", "resumed"):
        other, others = logged(pair / name / kind)
        assert [*other] == [*losses]
        assert max(abs(other[step] - losses[step]) for step in losses) < 1e-5, name
        for step, values in figures.items():
            assert others[step] == pytest.approx(values, abs=1e-4), name
        for key, value in load_file(pair / name / kind / "model.safetensors").items():
            # Attention is the same whatever is added to all keys: that gradient is rounding.
            bound = 1e-2 if key.endswith("key.bias") else 1e-4
            assert (value - weights[key]).abs().max() < bound, (name, key)


class Several(World):
    """One of a number of processes, with no others beside it."""

    def sum(self, values: dict[str, float]) -> dict[str, float]:
        return values


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("accumulate", [1, 3])
def test_shares_of_a_batch_are_all_of_it_and_as_even_as_they_can_be(size: int, accumulate: int) -> None:
    parts: list[list[int]] = []

    class Numbered:
        def batch(self, step: int, first: int, count: int) -> dict[str, torch.Tensor]:
            return {"lengths": torch.arange(first, first + count)}

        def part(self, batch: dict[str, torch.Tensor], rows: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"lengths": batch["lengths"][rows]}

    config = loop.TrainingConfig(steps=1, batch_size=25, accumulate=accumulate)
    for rank in range(size):
        here = Several(rank, size, torch.device("cpu"))
        ((_, batches),) = loop._prefetched(Numbered(), config, here, 0)  # type: ignore[arg-type]
        own = [batch["lengths"].tolist() for batch in batches]
        assert len(own) == accumulate
        assert accumulate == 1 or [*chain(*own)] == sorted(chain(*own), reverse=True)
        parts += own
    assert sorted(chain(*parts)) == list(range(25))
    sizes = {len(part) for part in parts}
    assert max(sizes) - min(sizes) <= 1 and min(sizes) >= 1


class Named(ModelTask[None]):
    """A pretraining, as far as its checkpoints' name goes."""

    inputs = ()
    settings = PretrainingSettings(next_sentence=False)
    tokenizer: Any = None
    encoder: Any = None
    config: Any = None

    def identity(self) -> dict[str, Any]:
        return super().identity() | {"data": [1, 2]}

    def objective(self, network: nn.Module, world: World) -> Any: ...
    def describe(self, network: nn.Module) -> str: ...
    def measure(self, trained: Any) -> None: ...
    def write(self, directory: Path, trained: Any, measured: None) -> dict[str, Any]: ...


def begun(
    tokenizer: DnaTokenizer, home: Path, size: int, encoder: EncoderConfig, **training: Any
) -> CheckpointStore:
    """The checkpoints of a pretraining, as the first of so many processes has them."""
    task = Named()
    task.tokenizer, task.encoder = tokenizer, encoder
    task.config = PretrainingConfig(steps=10, **training)
    return checkpoint_store(task, home, World(0, size, torch.device("cpu")))


def test_checkpoints_are_named_by_what_decides_the_weights(tokenizer: DnaTokenizer, tmp_path: Path) -> None:
    small = {"layers": 1, "hidden": 8, "heads": 2, "positions": 64, "block_size": 8}
    encoder = EncoderConfig(**small, vocabulary=tokenizer.vocabulary)
    place = begun(tokenizer, tmp_path, 1, encoder).directory
    otherwise = encoder.model_copy(update={"route": "dense", "gradient_checkpointing": True})
    computing: dict[str, Any] = {"accumulate": 4, "precision": "bfloat16", "evaluate_every": 3}
    assert begun(tokenizer, tmp_path, 1, encoder, torch_compile=True).directory == place
    assert begun(tokenizer, tmp_path, 1, encoder, allow_slow_attention=True).directory == place
    store = begun(tokenizer, tmp_path, 3, otherwise, **computing)
    assert store.directory == place
    assert store.computed == {
        **{"processes": 3, "accumulate": 4, "precision": "bfloat16", "route": "dense"},
        "torch_compile": "false",
        **{"gradient_checkpointing": "true", "device": "cpu", "threads": torch.get_num_threads()},
    }
    for key, value in (("seed", 2), ("batch_size", 16), ("mask_fraction", 0.2)):
        assert begun(tokenizer, tmp_path, 1, encoder, **{key: value}).directory != place
    other = encoder.model_copy(update={"dropout": 0.2})
    assert begun(tokenizer, tmp_path, 1, other).directory != place
