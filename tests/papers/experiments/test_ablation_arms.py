"""What trainings of the ablation have otherwise than the run, and what is refused before the first."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bigbird_dna.config import (
    AblationConfig,
    Config,
    EncoderConfig,
    PretrainingConfig,
    load_config,
    parse_config,
    read_values,
)
from bigbird_dna.data.predictions import read_bits
from bigbird_dna.errors import ConfigError, DataError, UsageError
from bigbird_dna.papers.experiments.ablation_arms import (
    MOST_STEPS,
    Ablation,
    distance_keys,
    encoder_keys,
    pretraining_keys,
    steps_in_time,
)
from bigbird_dna.papers.experiments.ablation_files import Cost, read_model_bits
from bigbird_dna.papers.experiments.running import (
    RandomTokens,
    measure_training,
    score_masked_tokens,
)
from bigbird_dna.pretraining.evaluation import evaluate_pretraining
from tests.cli.command import invoke
from tests.conftest import REPOSITORY
from tests.golden.messages import fails
from tests.papers.experiments.test_ablation import write_cost

# Those that are laid over others, or are of no genome's run.
CONFIGURATIONS = [
    path
    for path in sorted((REPOSITORY / "workflow/config").glob("*.yaml"))
    if path.stem != "nlp" and {"genome", "simulation"} & {*read_values(path)}
]

SIMULATED: dict[str, Any] = {
    "genome": {"valid": ["demo5"], "test": ["demo6"]},
    "chromatin": {"data": {"tracks": "simulated"}},
}


def simulated(ablation: dict[str, Any], **changes: Any) -> Config:
    return parse_config({**SIMULATED, **changes, "ablation": ablation})


@pytest.mark.parametrize("path", CONFIGURATIONS, ids=lambda path: path.stem)
def test_every_shipped_configuration_can_have_its_ablation(path: Path) -> None:
    config = load_config(path)
    Ablation().check(config)
    for part in ("steps", "time", *map(str, config.ablation.lengths)):
        keys = pretraining_keys(config, config.ablation.reference, part)
        assert (
            1
            <= keys["pretraining.grad_accumulation"]
            <= config.pretraining.grad_accumulation
        )
        assert (
            keys["pretraining.grad_accumulation"] <= keys["pretraining.batch_size"]
        )  # as the loop asks


def test_own_keys_of_a_mechanism_go_before_those_of_all() -> None:
    deeper = {
        "name": "deeper",
        "attention": "full",
        "encoder": {"layers": 6, "max_length": 9000},
    }
    few = {"name": "few", "attention": "full", "encoder": {"max_length": 16}}
    ablation = {
        "mechanisms": ["bigbird", deeper, few],
        "long_range_layers": 3,
        "long_range_tracks": ["ACTIVE"],
    }
    config = simulated({**ablation, "lengths": [8192]}, encoder={"max_length": 4096})
    found = {
        name: distance_keys(config, name)["encoder.layers"]
        for name in ("bigbird", "deeper", "few")
    }
    assert found == {"bigbird": 3, "deeper": 6, "few": 3}
    for name, short, long in (
        ("bigbird", 4096, 8192),
        ("deeper", 9000, 9000),
        ("few", 512, 8192),
    ):
        assert pretraining_keys(config, name, "steps")["encoder.max_length"] == short
        assert pretraining_keys(config, name, "8192")["encoder.max_length"] == long
    assert distance_keys(config, "deeper")["encoder.max_length"] == 9000


def test_the_runs_own_mechanism_keeps_the_runs_options() -> None:
    other = {
        "name": "wider",
        "attention": "combiner_fixed",
        "attention_options": {"span": 32},
    }
    encoder = {"attention": "combiner_fixed", "attention_options": {"span": 8}}
    ablation = {"mechanisms": ["bigbird", "combiner_fixed", other, "axial"]}
    config = simulated(ablation, encoder=encoder)
    found = {
        name: encoder_keys(config, name)["encoder.attention_options"].get("span")
        for name in ("bigbird", "combiner_fixed", "wider", "axial")
    }
    assert found == {"bigbird": None, "combiner_fixed": 8, "wider": 32, "axial": None}


def test_a_learning_rate_does_not_rise_to_the_end() -> None:
    """The published settings' rises for 10,000 steps, of which these trainings have a few hundred."""
    key = "pretraining.optimizer.warmup_steps"
    published = load_config(REPOSITORY / "workflow/config/grch37.yaml")
    assert (
        pretraining_keys(published, "bigbird", "steps")[key]
        == published.ablation.steps // 3
    )
    demo = load_config(REPOSITORY / "workflow/config/demo.yaml")
    assert key not in pretraining_keys(demo, "bigbird", "steps")
    config = simulated({"long_range_tracks": ["ACTIVE"], "long_range_steps": 30})
    assert (
        distance_keys(config, "bigbird")["chromatin.training.optimizer.warmup_steps"]
        == 10
    )


@pytest.mark.parametrize(
    ("own", "named"),
    [
        ("bigbrid", ["'bigbrid'"]),
        ({"name": "combiner_fixed", "attention_options": {"spam": 3}}, ["'spam'"]),
        (
            {"name": "deep", "attention": "full", "encoder": {"layerz": 3}},
            ["encoder.layerz"],
        ),
        (
            {"name": "deep", "attention": "full", "encoder": {"max_length": "many"}},
            ["encoder.max_length"],
        ),
        ("bigbird_etc", ["num_global_tokens"]),
        (
            {"name": "left", "attention": "full", "encoder": {"causal": True}},
            ["left", "bigbird"],
        ),
    ],
)
def test_mechanisms_that_cannot_be_are_named_before_the_work(
    own: Any, named: list[str]
) -> None:
    with fails(ConfigError, "ablation.mechanisms: ", *named) as caught:
        Ablation().check(simulated({"mechanisms": ["bigbird", own]}))
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 600


NEEDED = {
    **SIMULATED,
    "ablation": {"mechanisms": ["bigbird"], "long_range_tracks": ["ACTIVE"]},
}


@pytest.mark.parametrize(
    ("values", "named"),
    [
        (
            {"promoters": {"sequences": {"positives": "a.fa", "negatives": "b.fa"}}},
            "genome.reference",
        ),
        ({"genome": {"valid": ["demo5"]}}, "genome.test"),
        ({"genome": {"test": ["demo6"]}}, "genome.valid"),
        (
            {"ablation": {"mechanisms": ["bigbird"], "long_range_tracks": ["ACTVE"]}},
            "'ACTVE'",
        ),
        ({"chromatin": {"data": {"tracks": None}}}, "chromatin.data.tracks"),
        *(
            ({"ablation": wrong}, "ablation")
            for wrong in (
                *({"mechanisms": ["full"]}, {"mechanisms": ["bigbird", "bigbird"]}),
                *({"mechanisms": ["Big bird"]}, {"lengths": [512]}, {"seeds": [1, 1]}),
                {"mechanisms": [{"name": "bigbird", "encoder": {"attention": "full"}}]},
            )
        ),
    ],
)
def test_ablations_that_cannot_be(values: dict[str, Any], named: str) -> None:
    with fails(ConfigError, named) as caught:
        Ablation().check(parse_config({**NEEDED, **values}))
    assert "\n" not in str(caught.value)
    # Regions that are held out for chromatin are enough.
    regions = {"valid_regions": ["demo5:1-1,000"], "test_regions": ["demo6:1-1,000"]}
    held = {
        "genome": {"valid": [], "test": []},
        "chromatin": {"data": {"tracks": "simulated", **regions}},
    }
    for right in (NEEDED, {**NEEDED, **held}):
        Ablation().check(parse_config(right))


SETTINGS = {"sequence_tokens": 96, "batch_size": 4}


def settings_of(**encoder: Any) -> Config:
    return parse_config({"pretraining": SETTINGS, "encoder": encoder})


@pytest.mark.parametrize(
    ("own", "other", "seconds"),
    [
        *(
            ({}, changes, None)
            for changes in ({"clock": "wall"}, {"device": "cuda"}, {"threads": 2})
        ),
        *(
            (changes, None, 10)
            for changes in ({"tokens": 128}, {"sequences": 8}, {"attention": "full"})
        ),
        *(
            ({}, None, more_steps_than_there_can_be)
            for more_steps_than_there_can_be in (1e10, 1e308)
        ),
    ],
)
def test_measurements_of_other_steps_are_refused(
    own: dict[str, Any],
    other: dict[str, Any] | None,
    seconds: float | None,
    tmp_path: Path,
) -> None:
    files = [write_cost(tmp_path / "own.json", 0.05, **own)]
    files += (
        [] if other is None else [write_cost(tmp_path / "other.json", 0.5, **other)]
    )
    with fails(DataError, *files, *(other or {})):
        steps_in_time(settings_of(), *files, seconds=seconds)


def test_the_measurement_is_of_the_configuration_s_options(tmp_path: Path) -> None:
    config = settings_of(attention="performer", attention_options={"features": 16})
    options = dict(config.encoder.attention_options)
    path, values = tmp_path / "options.json", {"attention": "performer"}
    with fails(DataError, path, "features"):
        write_cost(path, 0.5, **values, attention_options=options | {"features": 32})
        steps_in_time(config, path, seconds=9)
    assert (
        steps_in_time(
            config,
            write_cost(path, 0.5, **values, attention_options=options),
            seconds=9,
        )
        == 18
    )


# Steps of the same time


@settings(max_examples=25, deadline=None)
@given(
    own=st.floats(1e-3, 1e3), other=st.floats(1e-3, 1e3), steps=st.integers(1, 10_000)
)
def test_as_many_steps_as_the_reference_s_time_has(
    own: float, other: float, steps: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    home = tmp_path_factory.mktemp("plan", numbered=True)
    config = parse_config(
        {"pretraining": {"steps": steps, "sequence_tokens": 96, "batch_size": 4}}
    )
    assume(steps * other / own < MOST_STEPS)
    costs = [
        write_cost(home / f"{name}.json", value)
        for name, value in (("own", own), ("other", other))
    ]
    assert steps_in_time(config, costs[0], costs[0]) == steps
    assert steps_in_time(config, costs[0], seconds=10.34 * own) == 10
    found = steps_in_time(config, *costs)
    time = steps * other
    assert found == 1 or found * own <= time * (1 + 1e-6)
    assert (found + 1) * own > time * (1 - 1e-6)
    shutil.rmtree(home)


# The configuration


def test_longer_inputs_come_after_as_many_tokens_as_the_short_training_has() -> None:
    ablation = AblationConfig(
        tokens=100, batch_tokens=400, steps=60, lengths=(200, 1000), long_input_steps=7
    )
    for part, steps in (("steps", 60), ("200", 60 + 7), ("1000", 24 + 7)):
        training = PretrainingConfig.model_validate(
            {
                **ablation.training(part),
                "length_curriculum": tuple(
                    ablation.training(part)["length_curriculum"]
                ),
            }
        )
        tokens = [training.tokens_at(step) for step in range(training.steps)]
        assert training.steps == steps
        made = [training.batch_size * training.sequence_tokens] * training.steps
        assert sum(made[: tokens.count(100)]) == 60 * 400
        assert (
            tokens[tokens.count(100) :] == [int(part)] * 7 if part != "steps" else True
        )
    # Of as many micro-batches as the run has a step has no more than inputs.
    made = [
        ablation.training(part, accumulate=4)["grad_accumulation"]
        for part in ("steps", "200", "1000")
    ]
    assert made == [4, 2, 1]


@pytest.mark.parametrize("length", [700, 1000, 1500])
def test_short_inputs_are_counted_as_steps_have_them(length: int) -> None:
    """Of a length that isn't a multiple of the short one a step has fewer tokens of short inputs."""
    ablation = AblationConfig(
        tokens=512, batch_tokens=8192, steps=300, lengths=(length,)
    )
    training = ablation.training(str(length))
    (shorter,) = training["length_curriculum"]
    step = training["batch_size"] * (length // 512) * 512
    assert abs(shorter["steps"] * step - 300 * 8192) <= step / 2


def test_an_ablation_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    deep = {
        "name": "deep",
        "attention": "combiner_fixed",
        "attention_options": {"pooling": "deepsets_max"},
    }
    globals_ = {
        "name": "bigbird_etc",
        "encoder": {"num_global_tokens": 16, "random_blocks": 0},
    }
    names = ["bigbird", deep, globals_]
    config = parse_config({"ablation": {"mechanisms": names, "head_init": "random"}})
    (tmp_path / "a.yaml").write_text(yaml.safe_dump(config.model_dump(mode="json")))
    assert load_config(tmp_path / "a.yaml") == config
    assert [
        mechanism.changes["attention"] for mechanism in config.ablation.mechanisms
    ] == [*("bigbird", "combiner_fixed", "bigbird_etc")]
    for name, blocks in (("bigbird", 3), ("deep", 3), ("bigbird_etc", 0)):
        changes = config.ablation.changes(name)
        encoder = parse_config(
            {"encoder": {**Config().encoder.model_dump(), **changes}}
        ).encoder
        assert (encoder.attention, encoder.random_blocks) == (
            changes["attention"],
            blocks,
        )
        assert encoder.head_init == "random"


# Mechanisms side by side: what steps take, trainings of the same time, the same hidden tokens for all


@pytest.fixture(scope="module")
def models(
    tiny_config: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    """Three pretrained mechanisms by their names, the last one of them causal."""
    home, found = tmp_path_factory.mktemp("models"), {}
    for name, keys in {
        "window": {"attention": "window"},
        "full": {"attention": "full"},
        "causal": {"attention": "full", "causal": "true"},
    }.items():
        found[name] = home / name
        words = [
            word
            for key, value in keys.items()
            for word in ("--set", f"encoder.{key}={value}")
        ]
        words += [
            "--set",
            "pretraining.steps=8",
            "--checkpoint-dir",
            home / "checkpoints",
        ]
        invoke("pretrain", tiny_config, "-o", home / name, *words)
    return found


# What a step takes


@pytest.mark.parametrize(
    "sets", [(), ("encoder.causal=true", "pretraining.grad_accumulation=3")]
)
def test_a_step_is_measured_at_each_length(
    tiny_config: Path, tmp_path: Path, sets: tuple[str, ...]
) -> None:
    """Longer than the encoder's positions too, which a trained model gets as well; and of fewer inputs than
    the run has micro-batches."""
    config = load_config(tiny_config, sets)
    measure_training(
        config,
        config.paths.tokenizer,
        tmp_path / "a.json",
        tokens=(256, 64),
        batch_tokens=200,
    )
    cost = Cost.read(tmp_path / "a.json")
    assert cost.attention == "bigbird" and cost.clock == "processor"
    assert {row.tokens: row.sequences for row in cost.lengths} == {64: 3, 256: 1}
    for row in cost.lengths:
        assert row.tokens_per_second == pytest.approx(
            row.tokens * row.sequences / row.seconds
        )
        assert row.peak_mib is None or 0 <= row.peak_mib < 500


@pytest.mark.parametrize(("causal", "share"), [(False, 0.15), (True, 1.0)])
def test_what_a_measured_step_predicts(causal: bool, share: float) -> None:
    encoder = EncoderConfig(vocabulary=9, hidden=8, heads=2, causal=causal)
    batch = RandomTokens(encoder, PretrainingConfig(), (20, 100)).batch(0, 0, 20)
    assert (
        len(batch["masked"])
        == len(batch["labels"])
        == pytest.approx(2000 * share, rel=0.2)
    )
    assert (batch["ids"].flatten()[batch["masked"]] == batch["labels"]).all()


@pytest.mark.slow
def test_memory_of_a_step_is_that_of_its_numbers(
    tiny_config: Path, tmp_path: Path
) -> None:
    """Of full attention with dropout of weights, where the whole matrix is kept."""
    config = load_config(
        tiny_config,
        ["encoder.layers=1", "encoder.attention=full", "encoder.attention_dropout=0.1"],
    )
    tokenizer, sizes = (
        config.paths.tokenizer,
        {"tokens": (64, 3072), "batch_tokens": 3072},
    )
    found = measure_training(config, tokenizer, tmp_path / "a.json", **sizes)
    few, many = (row["peak_mib"] for row in found["lengths"])
    if few is None:
        pytest.skip("the system doesn't say how much memory a process had")
    matrix = config.encoder.heads * 3072**2 * 4 / 2**20
    assert few + matrix < many < few + 12 * matrix


# The same hidden tokens


def test_bits_are_those_of_the_evaluation(
    models: dict[str, Path], tiny_config: Path, tmp_path: Path
) -> None:
    """Models of one kind see the same hidden tokens; causal ones are asked for others."""
    tokens, files = load_config(tiny_config).paths.tokens, []
    for name, path in models.items():
        files.append(tmp_path / f"{name}.npz")
        score_masked_tokens(
            f"{name}-1", path, tokens, files[-1], sequence_tokens=64, sequences=20
        )
        found = read_model_bits({(name, 1): files[-1]}, 64)
        assert found.steps.tolist() == [8] and (found.seconds > 0).all()
        evaluate_pretraining(
            path,
            tokens,
            tmp_path / "table.tsv",
            sequences=20,
            sequence_tokens=64,
            token_order=1,
        )
        table = read_bits(tmp_path / "table.tsv").set_index(["split", "predictor"])
        expected = table.loc[("test", "model"), "bits_per_base"]
        assert found.bits[0].sum() / found.bases.sum() == pytest.approx(
            expected, rel=1e-4
        )
    of_model = {(name, 1): path for name, path in zip(models, files, strict=True)}
    bits = read_model_bits(
        {key: path for key, path in of_model.items() if key[0] != "causal"}, 64
    ).bits
    assert not np.allclose(bits[0], bits[1])
    with fails(DataError, *files[::2]):
        read_model_bits(of_model, 64)


def test_inputs_are_no_longer_than_a_model_takes(
    models: dict[str, Path], tiny_config: Path, tmp_path: Path
) -> None:
    with fails(UsageError, models["full"], "500"):
        tokens, output = load_config(tiny_config).paths.tokens, tmp_path / "bits.npz"
        score_masked_tokens(
            "full-1", models["full"], tokens, output, sequence_tokens=500
        )
    assert not (tmp_path / "bits.npz").exists()
