"""Mechanisms side by side: what steps take, trainings of the same time, the same hidden tokens for all."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from torch import Tensor

from bigbird_dna.config import PretrainingConfig, load_config
from bigbird_dna.data.predictions import read_bits
from bigbird_dna.errors import DataError, UsageError
from bigbird_dna.model.heads import PretrainingNetwork, PretrainingOutput
from bigbird_dna.papers.experiments import running
from bigbird_dna.papers.experiments.ablation_files import read_cost, read_models_bits
from bigbird_dna.papers.experiments.running import measure_training, score_masked_tokens
from bigbird_dna.pretraining.evaluation import evaluate_pretraining
from bigbird_dna.training.distributed import World
from tests.cli.command import invoke
from tests.golden.messages import fails


def results(config: Path) -> Path:
    return Path(load_config(config).results)


@pytest.fixture(scope="module")
def models(tiny_config: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Three pretrained mechanisms by their names, the last one of them causal."""
    home, found = tmp_path_factory.mktemp("models"), {}
    for name, keys in {
        "window": {"attention": "window"},
        "full": {"attention": "full"},
        "causal": {"attention": "full", "causal": "true"},
    }.items():
        found[name] = home / name
        words = [word for key, value in keys.items() for word in ("--set", f"encoder.{key}={value}")]
        words += ["--set", "pretraining.steps=8", "--checkpoint-dir", home / "checkpoints"]
        invoke("pretrain", tiny_config, "-o", home / name, *words)
    return found


# What a step takes


def test_a_step_is_measured_at_each_length(tiny_config: Path, tmp_path: Path) -> None:
    """Longer than the encoder's positions too, which a trained model gets as well."""
    tokenizer = results(tiny_config) / "tokens/tokenizer.model"
    measure_training(
        load_config(tiny_config), tokenizer, tmp_path / "a.json", tokens=(256, 64), batch_tokens=200
    )
    cost = read_cost(tmp_path / "a.json")
    assert cost.attention == "bigbird" and cost.clock == "processor"
    assert {tokens: row.sequences for tokens, row in cost.lengths.items()} == {64: 3, 256: 1}
    for row in cost.lengths.values():
        assert row.tokens_per_second == pytest.approx(row.tokens * row.sequences / row.seconds)
        assert math.isnan(row.peak_mib) or 0 <= row.peak_mib < 500


@pytest.mark.slow
def test_memory_of_a_step_is_that_of_its_numbers(tiny_config: Path, tmp_path: Path) -> None:
    """Of full attention with dropout of weights, where the whole matrix is kept."""
    config = load_config(
        tiny_config, ["encoder.layers=1", "encoder.attention=full", "encoder.attention_dropout=0.1"]
    )
    tokenizer = results(tiny_config) / "tokens/tokenizer.model"
    found = measure_training(config, tokenizer, tmp_path / "a.json", tokens=(64, 3072), batch_tokens=3072)
    few, many = (row["peak_mib"] for row in found["lengths"])
    if few is None:
        pytest.skip("the system doesn't say how much memory a process had")
    matrix = config.encoder.heads * 3072**2 * 4 / 2**20
    assert few + matrix < many < few + 12 * matrix


def test_a_step_is_divided_as_training_divides_it(
    tiny_config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Into micro-batches, at most one for each input; of a causal model every token is predicted."""
    passes: list[tuple[int, int, int]] = []

    def seen(network: PretrainingNetwork, *inputs: Tensor) -> PretrainingOutput:
        passes.append((*inputs[0].shape, len(inputs[3])))
        return forward(network, *inputs)

    forward = PretrainingNetwork.forward
    monkeypatch.setattr(PretrainingNetwork, "forward", seen)
    tokenizer = results(tiny_config) / "tokens/tokenizer.model"
    config = load_config(tiny_config, ["pretraining.grad_accumulation=3", "encoder.causal=true"])
    measure_training(config, tokenizer, tmp_path / "a.json", tokens=(64, 128), batch_tokens=256)
    short, long = ([one for one in passes if one[1] == length][:8] for length in (64, 128))
    assert sorted(one[0] for one in short[2:5]) == [1, 1, 2]  # after the steps beforehand
    assert [one[0] for one in long] == [1] * 8
    assert all(count == rows * tokens for rows, tokens, count in short + long)


def test_a_step_goes_by_the_kernels_of_training(
    tiny_config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    @contextmanager
    def chosen(network: PretrainingNetwork, settings: PretrainingConfig, world: World) -> Iterator[None]:
        asked.append((settings.torch_compile, world.size))
        yield

    monkeypatch.setattr(running, "chosen_kernels", chosen)
    tokenizer = results(tiny_config) / "tokens/tokenizer.model"
    config = load_config(tiny_config, ["pretraining.torch_compile=true"])
    measure_training(config, tokenizer, tmp_path / "a.json", tokens=(64,), batch_tokens=64)
    assert asked and set(asked) == {(True, 1)}


# The same hidden tokens


def test_bits_are_those_of_the_evaluation(models: dict[str, Path], tiny_config: Path, tmp_path: Path) -> None:
    """Models of one kind see the same hidden tokens; causal ones are asked for others."""
    tokens = results(tiny_config) / "tokens"
    files = []
    for name, path in models.items():
        files.append(tmp_path / f"{name}.npz")
        score_masked_tokens(f"{name}-1", path, tokens, files[-1], sequence_tokens=64, sequences=20)
        found = read_models_bits(files[-1:])
        assert (found.names, found.sequence_tokens) == ((f"{name}-1",), 64)
        assert found.steps.tolist() == [8] and (found.seconds > 0).all()
        evaluate_pretraining(
            path, tokens, tmp_path / "table.tsv", sequences=20, sequence_tokens=64, token_order=1
        )
        table = read_bits(tmp_path / "table.tsv").set_index(["split", "predictor"])
        expected = table.loc[("test", "model"), "bits_per_base"]
        assert found.bits[0].sum() / found.bases.sum() == pytest.approx(expected, rel=1e-4)
    bits = read_models_bits(files[:2]).bits
    assert not np.allclose(bits[0], bits[1])
    with fails(DataError, *files[::2]):
        read_models_bits(files)


def test_inputs_are_no_longer_than_a_model_takes(
    models: dict[str, Path], tiny_config: Path, tmp_path: Path
) -> None:
    with fails(UsageError, models["full"], "500"):
        score_masked_tokens(
            *("full-1", models["full"], results(tiny_config) / "tokens", tmp_path / "bits.npz"),
            sequence_tokens=500,
        )
    assert not (tmp_path / "bits.npz").exists()
