"""What rules tell the command line is what it knows: commands, their options, and keys of configurations."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from bigbird_dna.cli.app import app
from bigbird_dna.config import Config
from bigbird_dna.config.section import Section
from tests.conftest import REPOSITORY
from tests.workflow.dry_runs import dry_run, overlay, own_genome, own_sequences
from tests.workflow.test_slurm_profile import DENSITY, LANGUAGE_MODELS, STUDIED, TARGETS

CHANGED: dict[str, Any] = {
    **{
        "splits": {"max_train_test_similarity": 0.5, "similarity_strata": [0.3]},
        "example_scan": {"shards": 2},
    },
    "chromatin": {"models": 2, "shards": {"data": 2, "predictions": 2, "variants": 2}},
}


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The commands of runs that have all rules between them, after the program's name."""
    homes = [tmp_path_factory.mktemp("words") for _ in range(5)]
    runs: list[list[str | Path]] = [
        [*overlay(homes[0], CHANGED | STUDIED | LANGUAGE_MODELS | DENSITY), *TARGETS],
        ["--configfile", REPOSITORY / "workflow/config/grch37.yaml", "--config", f"data_dir={homes[1]}"],
        own_sequences(homes[2]),
        own_genome(homes[3]),
        ["nlp_demo"],
    ]
    text = "".join(dry_run(home, *words) for home, words in zip(homes, runs, strict=True))
    written = r"^Shell command: (?:print(?:f|env) .*?; )?"
    program = written + r"(?:bigbird-dna|python -m bigbird_dna\.cli\.launch .*? --) (.*?) 2?> "
    return set(re.findall(program, text, re.MULTILINE))


def test_the_command_line_knows_every_command_and_option(commands: set[str]) -> None:
    for command in commands:
        found: Any = get_command(app)
        words = shlex.split(command)
        try:
            while hasattr(found, "commands"):
                found = found.commands[words.pop(0)]
            found.make_context(found.name, words)
        except Exception as error:
            pytest.fail(f"{command}: {error!r}")


def test_every_key_that_a_command_sets_is_one_of_the_configuration(commands: set[str]) -> None:
    keys = {key for command in commands for key in re.findall(r"--set '?([a-z_.]+)=", command)}
    for key in keys:
        section: Any = Config()
        for name in key.split("."):
            if section is not None:  # a section that the defaults don't have
                assert isinstance(section, Section) and name in type(section).model_fields, key
                section = getattr(section, name)
