"""Training of few weights: what is fixed, what is updated, what is stored, and the rates of layers."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from torch import nn

from bigbird_dna.config.training import FinetuningConfig, LoraConfig, OptimizerConfig
from bigbird_dna.finetuning.task import ClassifierTask
from bigbird_dna.model.directory import save
from bigbird_dna.model.heads import Classifier
from bigbird_dna.model.settings import PretrainingSettings
from bigbird_dna.training.adapters import adapt
from bigbird_dna.training.loop import make_optimizer
from tests.cli.command import invoke
from tests.toys import (
    random_dna,
    random_model,
    small_encoder,
    small_tokenizer,
)

MATRICES = ("query", "key", "value", "attention_output", "intermediate", "output")
SIZES: dict[str, Any] = {"layers": 3, "position_encoding": "rotary"}


def network(seed: int = 0) -> Classifier:
    torch.manual_seed(seed)
    made = Classifier(small_encoder(40, **SIZES), outputs=1, pooling="mean")
    for parameter in made.parameters():
        nn.init.normal_(parameter, std=0.3)
    return made


def config(adapt: str, **lora: Any) -> FinetuningConfig:
    return FinetuningConfig.model_validate(
        {"adapt": adapt, "lora": {"rank": 2, **lora}}
    )


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(1)
    return torch.from_numpy(rng.integers(5, 40, (6, 30))), torch.tensor(
        [30, 28, 9, 30, 17, 22]
    )


def step(of: nn.Module, rate: float = 0.05) -> torch.optim.Optimizer:
    optimizer = make_optimizer(of.train(), OptimizerConfig(learning_rate=rate))
    for _ in range(3):
        of(*batch()).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    of.eval()
    return optimizer


@pytest.mark.parametrize("matrices", [("query",), ("query", "value"), MATRICES])
def test_low_rank_updates_begin_at_nothing_and_are_merged(
    matrices: tuple[str, ...],
) -> None:
    before, ours = network(), network()
    found = adapt(ours, config("lora", matrices=matrices))
    assert found is not None and len(found.updates) == 3 * len(matrices)
    with torch.inference_mode():
        expected = before.eval()(*batch())
        assert torch.equal(ours.eval()(*batch()), expected)
    step(ours)
    with torch.inference_mode():
        adapted = ours(*batch())
        found.merge()
        merged = ours(*batch())
    assert (adapted - expected).abs().max() > 0.01
    assert (merged - adapted).abs().max() < 1e-6
    first, last = before.state_dict(), ours.state_dict()
    assert first.keys() == last.keys()
    changed = {name for name in first if not torch.equal(first[name], last[name])}
    updated = {
        f"encoder.layers.{number}.{matrix}.weight"
        for number in range(3)
        for matrix in matrices
    }
    assert changed == updated | {
        name for name in first if not name.startswith("encoder.")
    }
    for name in updated:
        change = (last[name] - first[name]).double()
        assert torch.linalg.matrix_rank(change, rtol=1e-4) <= 2
    assert all(parameter.requires_grad for parameter in ours.parameters())


def test_updates_are_as_large_as_configured() -> None:
    ours = network()
    found = adapt(ours, config("lora", rank=4, alpha=6.0, matrices=("output",)))
    assert found is not None
    matrix, update = (
        ours.encoder.layers[1].output.weight.detach(),
        found.updates["encoder.layers.1.output.weight"],
    )
    with torch.no_grad():
        update.b.normal_()
    expected = matrix + 1.5 * update.b @ update.a
    assert torch.allclose(ours.encoder.layers[1].output.weight, expected)


def test_memory_of_what_is_trained() -> None:
    """Gradients and moments are only of trained parameters; a frozen encoder keeps nothing of its layers."""
    kept: dict[str, int] = {}
    for kind in ("full", "lora", "frozen"):
        ours, sizes = network(), list[int]()
        found = adapt(ours, config(kind))
        trained = sum(one.numel() for one in ours.parameters() if one.requires_grad)
        optimizer = step(ours)
        moments = [
            t for one in optimizer.state.values() for t in one.values() if t.dim()
        ]
        assert sum(t.numel() for t in moments) == 2 * trained
        assert found is None or found.trained == trained
        with torch.autograd.graph.saved_tensors_hooks(
            lambda t, s=sizes: s.append(t.numel()) or t, lambda t: t
        ):
            ours.train()(*batch())
        kept[kind] = sum(sizes)
    assert kept["frozen"] < kept["full"] / 10
    head = sum(
        p.numel()
        for name, p in network().named_parameters()
        if not name.startswith("encoder.")
    )
    ours = network()
    adapted = adapt(ours, config("lora", rank=3))
    assert adapted is not None and adapted.trained == head + 3 * 2 * 3 * (16 + 16)


def test_a_frozen_encoder_stays_as_it_is() -> None:
    before, ours = network().state_dict(), network()
    found = adapt(ours, config("frozen"))
    assert found is not None and not found.updates
    step(ours)
    found.merge()
    for name, value in ours.state_dict().items():
        assert torch.equal(value, before[name]) == name.startswith("encoder.")


# By the commands


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An initial model, and a table with a motif."""
    path, tokenizer = tmp_path_factory.mktemp("adapters"), small_tokenizer()
    encoder = small_encoder(tokenizer.vocabulary, **SIZES)
    model = random_model(
        tokenizer, encoder, PretrainingSettings(next_sentence=False), scale=3
    )
    save(path / "base", model, {}, {}, {})
    rows = [
        ("TATA" * (number % 2) + random_dna(60 - 4 * (number % 2), number), number % 2)
        for number in range(80)
    ]
    (path / "x.csv").write_text(
        "sequence,label\n" + "".join(f"{text},{label}\n" for text, label in rows)
    )
    training = {
        "steps": 6,
        "batch_size": 8,
        "evaluate_every": 3,
        "checkpoint_minutes": 0,
    }
    training |= {
        "precision": "float32",
        "adapt": "lora",
        "lora": {"rank": 3, "alpha": 3.0},
    }
    training["optimizer"] = {"learning_rate": 1e-2}
    section = {
        "training": training,
        "baselines": {"cnn": False, "shuffled_labels": False},
        "model": {"pooling": "mean"},
    }
    (path / "mine.yaml").write_text(yaml.safe_dump({"sequences": section}))
    trained(path, path / "model")
    return path


def trained(home: Path, output: Path, *words: object) -> Path:
    fixed = ("--config", home / "mine.yaml", "--pretrained", home / "base")
    invoke("finetune-sequences", home / "x.csv", *fixed, "-o", output, *words)
    return output


def test_a_stopped_training_of_updates_resumes(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = ClassifierTask.batch

    def stops(objective: ClassifierTask, step: int, *more: int) -> Any:
        if step == 5:
            raise KeyboardInterrupt
        return original(objective, step, *more)

    monkeypatch.setattr(ClassifierTask, "batch", stops)
    with pytest.raises((KeyboardInterrupt, SystemExit, AssertionError)):
        trained(home, tmp_path / "again")
    assert [*(tmp_path / "again.checkpoints").rglob("state.pt")]
    monkeypatch.undo()
    again = trained(home, tmp_path / "again")
    for name in ("model.safetensors", "predictions.parquet"):
        assert (again / name).read_bytes() == (home / "model" / name).read_bytes()


def test_the_configuration_names_matrices_of_a_layer() -> None:
    assert LoraConfig().matrices == ("query", "value") and set(MATRICES) >= {
        *LoraConfig().matrices
    }
    for wrong in (
        {"matrices": ["queries"]},
        {"matrices": []},
        {"matrices": ["key", "key"]},
        {"rank": 0},
    ):
        with pytest.raises(ValueError):
            LoraConfig.model_validate(wrong)
