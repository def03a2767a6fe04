"""`snakemake --config`: what Snakemake hands on as texts is read as it would be in a file."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from snakemake.cli import parse_config as of_snakemake

from bigbird_dna.config import Config, as_in_a_file, load_config, parse_config
from bigbird_dna.errors import ConfigError
from bigbird_dna.papers.nlp.config import NlpConfig, read_config
from bigbird_dna.papers.nlp.config import parse_config as parse_nlp
from tests.conftest import REPOSITORY
from tests.golden.messages import fails

SHIPPED = sorted((REPOSITORY / "workflow/config").glob("*.yaml"))


def given(*words: str) -> dict[str, Any]:
    """The values that Snakemake makes of the words after `--config`."""
    found: dict[str, Any] = of_snakemake(words)
    return found


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_whole_configuration_on_the_command_line_is_the_file(path: Path) -> None:
    """Numbers, truth values and null, and texts that look like them: the genome's contigs are 1 to 22."""
    values = yaml.load(path.read_text(), yaml.loader.BaseLoader)
    if "tasks" in values:
        assert parse_nlp(as_in_a_file(values, values, NlpConfig)) == read_config(path)
    else:
        assert parse_config(as_in_a_file(values, values, Config)) == load_config(path)


def test_only_what_is_given_there_is_read() -> None:
    words = given("ablation={seeds: [1, 2], steps: 30}", "results=2024x", "processes=2")
    whole = {**words, "genome": {"test": ["1"]}, "ablation": {**words["ablation"], "tokens": "64"}}
    found = as_in_a_file(whole, words, Config)
    assert found["ablation"] == {"seeds": [1, 2], "steps": 30, "tokens": "64"}
    assert (found["results"], found["processes"], found["genome"]) == ("2024x", 2, {"test": ["1"]})
    assert whole["ablation"]["seeds"] == ["1", "2"]
    with fails(ConfigError):
        parse_config(found)


def test_a_value_that_another_took_the_place_of_stays() -> None:
    """As in a workflow that takes this one for a module, with values of its own."""
    own = {"ablation": {"steps": "20"}, "results": "here"}
    assert as_in_a_file(own, given("ablation={steps: 30, tokens: 64}", "results={a: 1}"), Config) == own


@pytest.mark.parametrize(
    "words",
    [
        "ablation={seeds: [one]}",
        "ablation={seeds: [1.5]}",
        "ablation={steps: 010}",
        "ablation={steps: '{a: 1}'}",
    ],
)
def test_wrong_values_are_refused_as_in_a_file(words: str) -> None:
    values = given(words)
    with fails(ConfigError):
        parse_config(as_in_a_file(values, values, Config))


def test_texts_that_look_like_numbers_stay_where_only_text_will_do() -> None:
    values = given("genome={test: [21, 22], valid: [1], aliases: null}", "ablation={steps: 7}")
    config = parse_config(as_in_a_file(values, values, Config))
    assert (config.genome.test, config.genome.valid, config.genome.aliases) == (("21", "22"), ("1",), None)
    assert config.ablation.steps == 7
