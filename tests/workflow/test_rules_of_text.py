"""The rules of the tasks on text: every published setting has a plan, and genomes' runs don't know them."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from bigbird_dna.papers.nlp.config import NlpConfig, read_config
from tests.conftest import REPOSITORY
from tests.golden.messages import message
from tests.workflow.dry_runs import dry_run, jobs, refused, snakemake, stage_configs

SHIPPED = REPOSITORY / "workflow/config/nlp.yaml"


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The dry run of all tasks of the shipped configuration."""
    targets = [
        f"results/nlp/{name}/evaluation.json" for name in read_config(SHIPPED).tasks
    ]
    return dry_run(
        tmp_path_factory.mktemp("text"), "--configfile", SHIPPED, "--", *targets
    )


def test_every_setting_has_a_plan_and_a_file_of_its_own(plan: str) -> None:
    config = read_config(SHIPPED)
    count = len(config.tasks)
    evaluated = sum(task.kind != "pretraining" for task in config.tasks.values())
    assert jobs(plan) == {
        **dict.fromkeys(
            ("nlp_config", "nlp_prepare", "nlp_train", "nlp_evaluate"), count
        ),
        "nlp_predict": evaluated,
    }
    found = stage_configs(plan)
    assert set(found) == set(config.tasks)
    for name, values in found.items():
        # What is written is read as the same task.
        assert NlpConfig.model_validate_json(json.dumps(values)).tasks == {
            name: config.tasks[name]
        }


def test_what_is_published_is_named_and_the_demo_is_not() -> None:
    config = read_config(SHIPPED)
    assert config.demo and config.results == "results/nlp"
    for name, task in config.tasks.items():
        small = task.encoder.hidden < 512
        assert small == (task.start.model is None), name
        assert not (small and task.published), name
        # The demo runs anywhere: it fetches nothing.
        assert name not in config.demo or (
            task.data.hub is None and task.data.files is None
        )


def test_the_demo_is_the_default_of_its_configuration_and_a_target(
    tmp_path: Path,
) -> None:
    by_target = dry_run(tmp_path, "nlp_demo")
    by_file = dry_run(tmp_path, "--configfile", SHIPPED)
    assert jobs(by_target) == jobs(by_file)
    assert jobs(by_target)["nlp_evaluate"] == len(read_config(SHIPPED).demo)
    assert jobs(by_target)["nlp_train"] == len(read_config(SHIPPED).demo)


def test_a_run_of_a_genome_has_none_of_them(tmp_path: Path) -> None:
    assert not [name for name in jobs(dry_run(tmp_path)) if name.startswith("nlp")]


@pytest.mark.parametrize(
    ("changed", "named"),
    [({"lenght": 3}, ("'tasks.a.lenght'",)), ({}, ("tasks.a.data: ",))],
    ids=["key", "value"],
)
def test_a_faulty_configuration_is_one_sentence(
    tmp_path: Path, changed: dict[str, Any], named: tuple[str, ...]
) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        yaml.safe_dump(
            {"tasks": {"a": {"kind": "classification", "data": {}, **changed}}}
        )
    )
    message(
        refused(snakemake(tmp_path, "--dry-run", "--configfile", path)), path, *named
    )


@pytest.mark.slow
def test_small_tasks_run_to_their_page(tmp_path: Path) -> None:
    tiny = {"layers": 1, "hidden": 16, "heads": 2, "max_length": 96, "block_size": 16}
    steps = {"per_device_train_batch_size": 4, "max_steps": 4}
    far = {"generated": {"train": 12, "valid": 4, "test": 8, "words": 40}}
    start = {"start": {"vocabulary": 400}, "encoder": tiny}
    tasks = {
        "far": {
            "kind": "classification",
            "data": far,
            "length": 96,
            "training": steps,
            **start,
        },
        "text": {
            "kind": "pretraining",
            "data": {"installed": True},
            "length": 64,
            "training": steps,
            **start,
        },
    }
    path = tmp_path / "mine.yaml"
    path.write_text(
        yaml.safe_dump(
            {"results": "results/mine", "demo": ["far", "text"], "tasks": tasks}
        )
    )
    outcome = snakemake(tmp_path, "--configfile", path)
    assert outcome.code == 0, outcome.err
    for task, metric in (("far", "accuracy"), ("text", "bits_per_character")):
        evaluation = tmp_path / f"results/mine/{task}/evaluation.json"
        assert metric in evaluation.read_text()
