"""What trainings of the ablation have otherwise than the run, and what is refused before the first."""

from pathlib import Path
from typing import Any

import pytest

from bigbird_dna.config import Config, load_config, parse_config, read_values
from bigbird_dna.errors import ConfigError, DataError
from bigbird_dna.papers.experiments.ablation_arms import (
    check_ablation,
    distance_keys,
    encoder_keys,
    pretraining_keys,
    steps_in_time,
)
from tests.conftest import REPOSITORY
from tests.golden.messages import fails
from tests.papers.experiments.costs import write_cost

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
    check_ablation(config)
    for part in ("steps", "time", *map(str, config.ablation.lengths)):
        keys = pretraining_keys(config, config.ablation.reference, part)
        assert 1 <= keys["pretraining.grad_accumulation"] <= config.pretraining.grad_accumulation
        assert keys["pretraining.grad_accumulation"] <= keys["pretraining.batch_size"]  # as the loop asks


def test_own_keys_of_a_mechanism_go_before_those_of_all() -> None:
    deeper = {"name": "deeper", "attention": "full", "encoder": {"layers": 6, "max_length": 9000}}
    few = {"name": "few", "attention": "full", "encoder": {"max_length": 16}}
    ablation = {
        "mechanisms": ["bigbird", deeper, few],
        "long_range_layers": 3,
        "long_range_tracks": ["ACTIVE"],
    }
    config = simulated({**ablation, "lengths": [8192]}, encoder={"max_length": 4096})
    found = {name: distance_keys(config, name)["encoder.layers"] for name in ("bigbird", "deeper", "few")}
    assert found == {"bigbird": 3, "deeper": 6, "few": 3}
    for name, short, long in (("bigbird", 4096, 8192), ("deeper", 9000, 9000), ("few", 512, 8192)):
        assert pretraining_keys(config, name, "steps")["encoder.max_length"] == short
        assert pretraining_keys(config, name, "8192")["encoder.max_length"] == long
    assert distance_keys(config, "deeper")["encoder.max_length"] == 9000


def test_the_runs_own_mechanism_keeps_the_runs_options() -> None:
    other = {"name": "wider", "attention": "combiner_fixed", "attention_options": {"span": 32}}
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
    assert pretraining_keys(published, "bigbird", "steps")[key] == published.ablation.steps // 3
    demo = load_config(REPOSITORY / "workflow/config/demo.yaml")
    assert key not in pretraining_keys(demo, "bigbird", "steps")
    config = simulated({"long_range_tracks": ["ACTIVE"], "long_range_steps": 30})
    assert distance_keys(config, "bigbird")["chromatin.training.optimizer.warmup_steps"] == 10


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ("bigbrid", "bigbrid: encoder.attention: 'bigbrid' is not one of bigbird"),
        (
            {"name": "combiner_fixed", "attention_options": {"spam": 3}},
            "combiner_fixed: encoder.attention_options: combiner_fixed has no option 'spam'",
        ),
        (
            {"name": "deep", "attention": "full", "encoder": {"layerz": 3}},
            "deep: unknown key 'encoder.layerz'",
        ),
        (
            {"name": "deep", "attention": "full", "encoder": {"max_length": "many"}},
            "deep: encoder.max_length: Input should be a valid integer",
        ),
        ("bigbird_etc", "bigbird_etc: encoder: attention bigbird_etc needs num_global_tokens above 0"),
        (
            {"name": "left", "attention": "full", "encoder": {"causal": True}},
            "left is causal and bigbird is not: they can't be compared",
        ),
    ],
)
def test_mechanisms_that_cannot_be_are_named_before_the_work(own: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_ablation(simulated({"mechanisms": ["bigbird", own]}))
    assert str(caught.value).startswith(f"ablation.mechanisms: {message}")
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 600


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"promoters": {"sequences": {"positives": "a.fa", "negatives": "b.fa"}}},
            "ablation: needs a genome.reference",
        ),
        ({"genome": {"valid": ["demo5"]}}, "genome.test: name at least one contig or region"),
        ({"genome": {"test": ["demo6"]}}, "genome.valid: name at least one contig or region"),
        (
            {"ablation": {"mechanisms": ["bigbird"], "long_range_tracks": ["ACTVE"]}},
            "ablation.long_range_tracks: 'ACTVE' is not one of",
        ),
        (
            {"chromatin": {"data": {"tracks": None}}},
            "ablation.long_range_tracks: chromatin.data.tracks is null",
        ),
    ],
)
def test_runs_without_what_an_ablation_needs(values: dict[str, Any], message: str) -> None:
    whole = {**SIMULATED, "ablation": {"mechanisms": ["bigbird"], "long_range_tracks": ["ACTIVE"]}}
    with pytest.raises(ConfigError) as caught:
        check_ablation(parse_config({**whole, **values}))
    assert str(caught.value).startswith(message) and "\n" not in str(caught.value)
    check_ablation(parse_config(whole))


def test_regions_held_out_for_chromatin_are_enough() -> None:
    regions = {"valid_regions": ["demo5:1-1,000"], "test_regions": ["demo6:1-1,000"]}
    chromatin = {"data": {"tracks": "simulated", **regions}}
    held = {"genome": {"valid": [], "test": []}, "chromatin": chromatin}
    check_ablation(parse_config({**held, "ablation": {"mechanisms": ["bigbird"]}}))


SETTINGS = {"sequence_tokens": 96, "batch_size": 4}


def settings_of(**encoder: Any) -> Config:
    return parse_config({"pretraining": SETTINGS, "encoder": encoder})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"clock": "wall"}, "clock is 'processor', that of .*other.json 'wall'"),
        ({"device": "cuda"}, "device is 'cpu', that of .*other.json 'cuda'"),
        ({"threads": 2}, "its threads is 1, that of .*other.json 2"),
    ],
)
def test_times_that_were_taken_otherwise_are_refused(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    own = write_cost(tmp_path / "own.json", 0.5)
    other = write_cost(tmp_path / "other.json", 0.5, **changes)
    with fails(DataError) as caught:
        steps_in_time(settings_of(), own, reference=other)
    assert str(caught.value).startswith(str(own))


def test_the_measurement_is_of_the_configuration_s_attention(tmp_path: Path) -> None:
    own = write_cost(tmp_path / "own.json", 0.5, attention="full")
    with fails(DataError):
        steps_in_time(settings_of(), own, seconds=9)
    config = settings_of(attention="performer", attention_options={"features": 16})
    options = dict(config.encoder.attention_options)
    assert options["features"] == 16
    other = write_cost(
        tmp_path / "options.json", 0.5, attention="performer", attention_options=options | {"features": 32}
    )
    with fails(DataError):
        steps_in_time(config, other, seconds=9)
    write_cost(other, 0.5, attention="performer", attention_options=options)
    assert steps_in_time(config, other, seconds=9) == 18


def test_more_steps_than_there_can_be_are_refused(tmp_path: Path) -> None:
    own = write_cost(tmp_path / "own.json", 1e-3)
    for seconds in (1e9, 1e308):
        with fails(DataError):
            steps_in_time(settings_of(), own, seconds=seconds)
