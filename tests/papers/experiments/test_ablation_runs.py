"""Mechanisms side by side: what steps take, trainings of the same time, the same hidden tokens for all."""

import math
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from bigbird_dna.config import AblationConfig, Config, PretrainingConfig, load_config, parse_config
from bigbird_dna.data.bits_per_base import read_bits
from bigbird_dna.errors import ConfigError, DataError, UsageError
from bigbird_dna.model.heads import PretrainingNetwork, PretrainingOutput
from bigbird_dna.papers.experiments import training_cost
from bigbird_dna.papers.experiments.ablation_arms import MOST_STEPS, steps_in_time
from bigbird_dna.papers.experiments.ablation_files import read_cost, read_models_bits
from bigbird_dna.papers.experiments.running import score_masked_tokens
from bigbird_dna.papers.experiments.training_cost import measure_training
from bigbird_dna.pretraining.evaluation import evaluate_pretraining
from bigbird_dna.training.distributed import World
from tests.cli.command import invoke
from tests.golden.messages import fails
from tests.papers.experiments.costs import write_cost
from tests.toys import small_tokenizer


def results(config: Path) -> Path:
    return Path(load_config(config).results)


@pytest.fixture(scope="module")
def models(tiny_config: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two pretrained mechanisms by their names."""
    home, found = tmp_path_factory.mktemp("models"), {}
    for name in ("window", "full"):
        found[f"{name}-1"] = home / name
        words = ("--set", f"encoder.attention={name}", "--set", "pretraining.steps=8")
        invoke("pretrain", tiny_config, "-o", home / name, "--checkpoint-dir", home / "checkpoints", *words)
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
    assert [(row.tokens, row.sequences) for row in cost.lengths] == [(64, 3), (256, 1)]
    for row in cost.lengths:
        assert row.tokens_per_second == pytest.approx(row.tokens * row.sequences / row.seconds)
        assert math.isnan(row.peak_mib) or 0 <= row.peak_mib < 500
    assert cost.at(256) == cost.lengths[1] and cost.at(100) is None


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

    monkeypatch.setattr(training_cost, "chosen_kernels", chosen)
    tokenizer = results(tiny_config) / "tokens/tokenizer.model"
    config = load_config(tiny_config, ["pretraining.torch_compile=true"])
    measure_training(config, tokenizer, tmp_path / "a.json", tokens=(64,), batch_tokens=64)
    assert asked and set(asked) == {(True, 1)}


# Steps of the same time


@settings(max_examples=25, deadline=None)
@given(own=st.floats(1e-3, 1e3), other=st.floats(1e-3, 1e3), steps=st.integers(1, 10_000))
def test_as_many_steps_as_the_reference_s_time_has(
    own: float, other: float, steps: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    home = tmp_path_factory.mktemp("plan", numbered=True)
    config = parse_config({"pretraining": {"steps": steps, "sequence_tokens": 96, "batch_size": 4}})
    assume(steps * other / own < MOST_STEPS)
    costs = [write_cost(home / f"{name}.json", value) for name, value in (("own", own), ("other", other))]
    found = steps_in_time(config, costs[0], reference=costs[1])
    time = steps * other
    assert found == 1 or found * own <= time * (1 + 1e-6)
    assert (found + 1) * own > time * (1 - 1e-6)
    shutil.rmtree(home)


def test_the_same_step_has_the_same_steps_and_seconds_are_taken_as_said(tmp_path: Path) -> None:
    config = parse_config({"pretraining": {"steps": 77, "sequence_tokens": 96, "batch_size": 4}})
    cost = write_cost(tmp_path / "a.json", 0.3)
    assert steps_in_time(config, cost, reference=cost) == 77
    assert steps_in_time(config, cost, seconds=3.1) == 10


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokens": 128}, "has no measurement of inputs of 96 tokens"),
        ({"sequences": 8}, "was measured with 8 inputs of 96 tokens a step, not 4"),
        ({"lengths": []}, "is not what experiment profile-training writes"),
        ({"clock": None}, "doesn't say which attention was measured"),
    ],
)
def test_measurements_of_other_steps_are_refused(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    config = parse_config({"pretraining": {"sequence_tokens": 96, "batch_size": 4}})
    cost = write_cost(tmp_path / "a.json", 0.5, **changes)
    with fails(DataError) as caught:
        steps_in_time(config, cost, seconds=10)
    assert str(cost) in str(caught.value)


# The same hidden tokens


def test_bits_are_those_of_the_evaluation(models: dict[str, Path], tiny_config: Path, tmp_path: Path) -> None:
    tokens = results(tiny_config) / "tokens"
    score_masked_tokens(models, tokens, tmp_path / "bits.npz", sequence_tokens=64, sequences=20)
    found = read_models_bits([tmp_path / "bits.npz"])
    assert found.names == ("window-1", "full-1") and found.sequence_tokens == 64
    assert found.steps.tolist() == [8, 8] and (found.seconds > 0).all()
    assert not np.allclose(found.bits[0], found.bits[1])
    for row, path in zip(found.bits, models.values(), strict=True):
        evaluate_pretraining(
            path, tokens, tmp_path / "table.tsv", sequences=20, sequence_tokens=64, token_order=1
        )
        table = read_bits(tmp_path / "table.tsv").set_index(["split", "predictor"])
        expected = table.loc[("test", "model"), "bits_per_base"]
        assert row.sum() / found.bases.sum() == pytest.approx(expected, rel=1e-4)


def test_bits_of_causal_models_are_those_of_the_evaluation(
    models: dict[str, Path], tiny_config: Path, tmp_path: Path
) -> None:
    """They are asked for other tokens than models that see both sides, and so are not compared with them."""
    tokens, words = results(tiny_config) / "tokens", ("--set", "encoder.causal=true")
    words += ("--set", "encoder.attention=full", "--set", "pretraining.steps=8")
    causal = tmp_path / "causal"
    invoke("pretrain", tiny_config, "-o", causal, "--checkpoint-dir", tmp_path / "checkpoints", *words)
    score_masked_tokens({"causal-1": causal}, tokens, tmp_path / "bits.npz", sequence_tokens=64, sequences=20)
    found = read_models_bits([tmp_path / "bits.npz"])
    evaluate_pretraining(
        causal, tokens, tmp_path / "table.tsv", sequences=20, sequence_tokens=64, token_order=1
    )
    table = read_bits(tmp_path / "table.tsv").set_index(["split", "predictor"])
    expected = table.loc[("test", "model"), "bits_per_base"]
    assert found.bits[0].sum() / found.bases.sum() == pytest.approx(expected, rel=1e-4)
    with fails(DataError) as caught:
        score_masked_tokens({**models, "causal-1": causal}, tokens, tmp_path / "no.npz", sequence_tokens=64)
    assert str(causal) in str(caught.value) and not (tmp_path / "no.npz").exists()


def test_models_have_a_mechanism_and_a_seed(tiny_config: Path, tmp_path: Path) -> None:
    with fails(UsageError, "'full'"):
        score_masked_tokens(
            {"full": tmp_path}, results(tiny_config) / "tokens", tmp_path / "bits.npz", sequence_tokens=64
        )


def test_models_that_see_other_tokens_are_refused(
    models: dict[str, Path], tiny_config: Path, tmp_path: Path
) -> None:
    tokens = results(tiny_config) / "tokens"
    with fails(UsageError):
        score_masked_tokens(models, tokens, tmp_path / "bits.npz", sequence_tokens=500)
    from bigbird_dna.config import EncoderConfig
    from bigbird_dna.model.directory import save
    from bigbird_dna.model.settings import PretrainingSettings
    from tests.toys import random_model

    config = EncoderConfig(vocabulary=40, layers=1, hidden=8, heads=2, max_length=128)
    other = random_model(small_tokenizer(), config, PretrainingSettings(next_sentence=False))
    save(tmp_path / "other", other, {}, {"steps": 1}, {})
    both = {**models, "other-1": tmp_path / "other"}
    with fails(DataError):
        score_masked_tokens(both, tokens, tmp_path / "bits.npz", sequence_tokens=64)
    assert not (tmp_path / "bits.npz").exists()


# The configuration


def test_longer_inputs_come_after_as_many_tokens_as_the_short_training_has() -> None:
    ablation = AblationConfig(tokens=100, batch_tokens=400, steps=60, lengths=(200, 1000), long_input_steps=7)
    for part, steps in (("steps", 60), ("200", 60 + 7), ("1000", 24 + 7)):
        training = PretrainingConfig.model_validate(
            {
                **ablation.training(part),
                "length_curriculum": tuple(ablation.training(part)["length_curriculum"]),
            }
        )
        tokens = [training.tokens_at(step) for step in range(training.steps)]
        assert training.steps == steps
        made = [training.batch_size * training.sequence_tokens] * training.steps
        assert sum(made[: tokens.count(100)]) == 60 * 400
        assert tokens[tokens.count(100) :] == [int(part)] * 7 if part != "steps" else True


@pytest.mark.parametrize("length", [700, 1000, 1500])
def test_short_inputs_are_counted_as_steps_have_them(length: int) -> None:
    """Of a length that isn't a multiple of the short one a step has fewer tokens of short inputs."""
    ablation = AblationConfig(tokens=512, batch_tokens=8192, steps=300, lengths=(length,))
    training = ablation.training(str(length))
    (shorter,) = training["length_curriculum"]
    step = training["batch_size"] * (length // 512) * 512
    assert abs(shorter["steps"] * step - 300 * 8192) <= step / 2


def test_a_step_has_no_more_micro_batches_than_inputs() -> None:
    ablation = AblationConfig(tokens=512, batch_tokens=8192, lengths=(2048, 8192))
    made = [ablation.training(part, accumulate=4)["grad_accumulation"] for part in ("steps", "2048", "8192")]
    assert made == [4, 4, 1]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"mechanisms": ["full"]}, "ablation: reference 'bigbird' is not one of the mechanisms"),
        ({"mechanisms": ["bigbird", "bigbird"]}, "ablation: mechanisms names one twice"),
        ({"mechanisms": ["Big bird"]}, r"ablation\.mechanisms\.0\.name: String should match"),
        ({"lengths": [512]}, "ablation: lengths must be above tokens, which is 512"),
        ({"seeds": [1, 1]}, "ablation: seeds names one twice"),
        (
            {"mechanisms": [{"name": "bigbird", "encoder": {"attention": "full"}}]},
            "bigbird: attention stands beside the name, not under encoder",
        ),
    ],
)
def test_ablations_that_cannot_be(values: dict[str, Any], message: str) -> None:
    with fails(ConfigError) as caught:
        parse_config({"ablation": values})
    assert "\n" not in str(caught.value)


def test_an_ablation_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    deep = {"name": "deep", "attention": "combiner_fixed", "attention_options": {"pooling": "deepsets_max"}}
    globals_ = {"name": "bigbird_etc", "encoder": {"num_global_tokens": 16, "random_blocks": 0}}
    names = ["bigbird", deep, globals_]
    config = parse_config({"ablation": {"mechanisms": names, "head_init": "random"}})
    (tmp_path / "a.yaml").write_text(yaml.safe_dump(config.model_dump(mode="json")))
    assert load_config(tmp_path / "a.yaml") == config
    assert [mechanism.changes["attention"] for mechanism in config.ablation.mechanisms] == [
        *("bigbird", "combiner_fixed", "bigbird_etc")
    ]
    for name, blocks in (("bigbird", 3), ("deep", 3), ("bigbird_etc", 0)):
        changes = config.ablation.changes(name)
        encoder = parse_config({"encoder": {**Config().encoder.model_dump(), **changes}}).encoder
        assert (encoder.attention, encoder.random_blocks) == (changes["attention"], blocks)
        assert encoder.head_init == "random"
