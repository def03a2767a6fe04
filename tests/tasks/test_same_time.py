"""What a plan of the same time is refused for: times that can't be compared, and files of something else."""

from pathlib import Path
from typing import Any

import pytest

from bigbird_dna.config import Config, parse_config
from bigbird_dna.errors import DataError
from bigbird_dna.tasks.ablation.same_time import plan_same_time
from tests.tasks.costs import write_cost

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
    with pytest.raises(DataError, match=message) as caught:
        plan_same_time(settings_of(), own, tmp_path / "plan.yaml", reference=other)
    assert str(caught.value).startswith(str(own)) and not (tmp_path / "plan.yaml").exists()


def test_the_measurement_is_of_the_configuration_s_attention(tmp_path: Path) -> None:
    own = write_cost(tmp_path / "own.json", 0.5, attention="full")
    with pytest.raises(
        DataError, match=r"own\.json: is of attention 'full', the configuration has 'bigbird'"
    ):
        plan_same_time(settings_of(), own, tmp_path / "plan.yaml", seconds=9)
    config = settings_of(attention="performer", attention_options={"features": 16})
    options = dict(config.encoder.attention_options)
    assert options["features"] == 16
    other = write_cost(
        tmp_path / "options.json", 0.5, attention="performer", attention_options=options | {"features": 32}
    )
    with pytest.raises(DataError, match=r"options\.json: is of other options of performer: 'features' is 32"):
        plan_same_time(config, other, tmp_path / "plan.yaml", seconds=9)
    write_cost(other, 0.5, attention="performer", attention_options=options)
    assert plan_same_time(config, other, tmp_path / "plan.yaml", seconds=9) == 18


def test_more_steps_than_there_can_be_are_refused(tmp_path: Path) -> None:
    own = write_cost(tmp_path / "own.json", 1e-3)
    for seconds in (1e9, 1e308):
        with pytest.raises(DataError, match=r"own\.json: a step of 0.001 s fits .* times into"):
            plan_same_time(settings_of(), own, tmp_path / "plan.yaml", seconds=seconds)
