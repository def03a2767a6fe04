"""Classifiers of long sequences: commands, results, their table, and what they learn."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from scipy.stats import binomtest

from bigbird_dna.config import LongRangeConfig, parse_config
from bigbird_dna.errors import ConfigError, DataError, UsageError
from bigbird_dna.papers.experiments.long_range_arena import write_report
from bigbird_dna.papers.experiments.long_range_sequences import FIRST, OFFSET, PAD, Sequences
from bigbird_dna.papers.experiments.long_range_training import SequenceTask, wilson_interval
from tests.cli.command import Run, refused
from tests.conftest import REPOSITORY
from tests.golden.messages import fails, message
from tests.workflow.dry_runs import dry_run, jobs

TINY: dict[str, Any] = {
    "seeds": [1, 2],
    "attentions": {"full": {"attention": "full"}, "combiner": {"attention": "combiner_fixed"}},
    "encoder": {"layers": 1, "hidden": 8, "heads": 1, "block_size": 16, "random_blocks": 1},
    "listops": {
        "examples": {"train": 40, "valid": 5, "test": 10},
        **{"shortest": 4, "longest": 12, "depth": 3},
        "training": {"steps": 4, "batch_size": 4, "evaluate_every": 2, "precision": "float32"},
    },
    "pathfinder": {
        "examples": {"train": 6, "valid": 2, "test": 4},
        **{"size": 20, "dashes": 3},
        "training": {"steps": 2, "batch_size": 2, "precision": "float32"},
    },
}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump({"results": str(tmp_path / "results"), "long_range_arena": TINY}))
    return path


def test_from_data_to_table(run: Run, config: Path, tmp_path: Path) -> None:
    """As the workflow has it: data, arms, comparison; a seed has one result."""
    home = tmp_path / "results/experiments/long_range_arena"
    plan = run("experiment plan", config, "long_range_arena").out.splitlines()[1:]
    cells = [line.split("\t") for line in plan]
    assert sorted((arm, seed) for arm, seed, *_ in cells) == [
        (f"{task}-{attention}", seed)
        for task in ("listops", "pathfinder")
        for attention in ("combiner", "full")
        for seed in ("1", "2")
    ]
    words = ("experiment run", config, "long_range_arena")
    quiet = ("--threads", 1, "--device", "cpu")
    for task in ("listops", "pathfinder"):
        assert run(*words, f"{task}-full", "--part", "data").code == 0
        assert (home / "data" / task).is_dir()
    for arm, seed, _, _, directory, _ in cells:
        result = run(*words, arm, "--seed", seed, *quiet)
        assert (result.code, result.out) == (0, "")
        assert json.loads((Path(directory) / "arm.json").read_text())["seed"] == int(seed)
    made = home / "listops-full/1/model"
    assert {one.name for one in made.iterdir() if one.name[0] != "."} == {
        *("result.json", "encoder.json", "training.jsonl", "weights.safetensors")
    }
    assert not [*(tmp_path / "results/checkpoints").rglob("*.pt")]
    assert run(*words, "listops-full", *quiet, "-o", tmp_path / "again/model").code == 0
    for file in ("result.json", "weights.safetensors"):
        assert (made / file).read_bytes() == (tmp_path / "again/model" / file).read_bytes()
    assert run("experiment compare", config, "long_range_arena", "-o", tmp_path / "report").code == 0
    header, *rows = (tmp_path / "report/long_range.tsv").read_text().splitlines()
    names = header.split("\t")
    table = [dict(zip(names, row.split("\t"), strict=True)) for row in rows]
    here = [row for row in table if row["source"] == "here"]
    assert {(row["task"], row["attention"], row["seeds"]) for row in here} == {
        (task, attention, "2") for task in ("listops", "pathfinder") for attention in ("full", "combiner")
    }
    figures = [json.loads((home / f"listops-full/{seed}/model/result.json").read_text()) for seed in (1, 2)]
    both = next(row for row in here if (row["task"], row["attention"]) == ("listops", "full"))
    assert float(both["accuracy"]) == pytest.approx(np.mean([one["accuracy"] for one in figures]), abs=1e-4)
    assert [row["attention"] for row in table[4:]] == ["Transformer", "BigBird", "Combiner-Fixed"]
    assert all("not comparable" in row["source"] for row in table[4:])
    assert "(p)" in (tmp_path / "report/long_range.md").read_text()


def test_what_is_refused(run: Run, config: Path, tmp_path: Path) -> None:
    words = ("experiment run", config, "long_range_arena", "listops-full")
    message(refused(run(*words), 1), "results/experiments/long_range_arena/data/listops/train.tsv.gz")
    message(refused(run("experiment compare", config, "long_range_arena"), 1), "result.json")
    (tmp_path / "result.json").write_text('{"task": "listops"}')
    with fails(DataError, tmp_path / "result.json", "'attention'"):
        write_report([tmp_path], tmp_path / "report")
    with fails(UsageError, str(2**32)):
        _ = SequenceTask(LongRangeConfig(), "listops", "full", 2**32, tmp_path).config


@pytest.mark.parametrize(
    "changes",
    [
        {"attentions": {"mine": {"attention": "sparse"}}},
        {"attentions": {"mine": {"heads": 3}}},
        {"attentions": {"../up": {}}},
        {"attentions": {}},
        {"seeds": [1, 1]},
        {"listops": {"shortest": 9, "longest": 8}},
        {"pooling": "cls", "encoder": {"causal": True}},
        {"pooling": "cls", "attentions": {"one": {}, "two": {"causal": True}}},
    ],
)
def test_wrong_sections(changes: dict[str, Any]) -> None:
    with fails(ConfigError, "long_range_arena"):
        parse_config({"long_range_arena": changes})


def test_an_attention_keeps_the_options_of_the_encoder_unless_it_is_another() -> None:
    config = LongRangeConfig.model_validate(
        {
            "encoder": {"attention": "combiner_fixed", "attention_options": {"span": 8}},
            "attentions": {
                **{"same": {}, "named": {"attention": "combiner_fixed"}, "wide": {"hidden": 384}},
                **{"own": {"attention_options": {"span": 4}}, "full": {"attention": "full"}},
                "axial": {"attention": "axial", "attention_options": {"columns": 5}},
            },
        }
    )
    found = {name: config.encoder_of(name, 5, 40).attention_options for name in config.attentions}
    assert [found[name]["span"] for name in ("same", "named", "wide", "own")] == [8, 8, 8, 4]
    assert found["full"] == {} and found["axial"]["columns"] == 5 and "span" not in found["axial"]


def test_results_of_other_data_are_not_averaged(tmp_path: Path) -> None:
    values = {
        **{"task": "listops", "attention": "full", "baseline_name": "x", "accuracy": 0.5, "steps": 3},
        **{"accuracy_low": 0.4, "accuracy_high": 0.6, "baseline": 0.1, "most_frequent": 0.1},
        **{"test_sequences": 10, "parameters": 7},
    }
    for seed, sums, name in ((1, "a", "one"), (2, "a", "two"), (3, "b", "three"), (1, "a", "four")):
        (tmp_path / name).mkdir()
        text = json.dumps(values | {"seed": seed, "data": {"test": sums}})
        (tmp_path / name / "result.json").write_text(text)
    write_report([tmp_path / "one", tmp_path / "two"], tmp_path / "report")
    for other in ("three", "four"):
        with fails(DataError, tmp_path / other):
            write_report([tmp_path / "one", tmp_path / other], tmp_path / "report")


def test_batches() -> None:
    found = Sequences.joined([b"\x05\x00", b"\x07"], np.array([1, 0]))
    batch = found.batch([1, 0])
    expected = [[FIRST, 7 + OFFSET, PAD], [FIRST, 5 + OFFSET, OFFSET]]
    assert batch["ids"].tolist() == expected
    assert batch["lengths"].tolist() == [2, 3] and batch["targets"].tolist() == [0, 1]
    assert (found.longest, found.firsts().tolist()) == (2, [5, 7])


@pytest.mark.parametrize(("right", "count"), [(0, 5), (3, 10), (700, 1000), (9, 9)])
def test_intervals_are_wilson_s(right: int, count: int) -> None:
    expected = binomtest(right, count).proportion_ci(method="wilson")
    assert wilson_interval(right, count) == pytest.approx((expected.low, expected.high), abs=1e-6)


def test_the_shipped_configuration_asks_for_a_model_a_task_and_attention(tmp_path: Path) -> None:
    files = [REPOSITORY / f"workflow/config/{name}.yaml" for name in ("demo", "long_range")]
    text = dry_run(tmp_path, "--configfile", *files, "--", "long_range_arena")
    assert jobs(text) == {"long_range_arena": 1, "arm_data": 2, "arm": 6}
    assert ".log.yaml long_range_arena listops-bigbird --seed 1 -o results/long_range/experiments/" in text
    section = yaml.safe_load(files[1].read_text())["long_range_arena"]
    config = parse_config({"long_range_arena": section}).long_range_arena
    assert isinstance(config, LongRangeConfig)
    assert {*section} == {*LongRangeConfig.model_fields}
    for task in ("listops", "pathfinder"):
        assert {*section[task]} == {*type(getattr(config, task)).model_fields}


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_short_listops_are_learnt(run: Run, tmp_path: Path) -> None:
    """A minute of a core: well above what the first operator tells."""
    path = tmp_path / "run.yaml"
    section = yaml.safe_load((REPOSITORY / "workflow/config/long_range.yaml").read_text())["long_range_arena"]
    path.write_text(yaml.safe_dump({"results": str(tmp_path / "results"), "long_range_arena": section}))
    words = ("experiment run", path, "long_range_arena", "listops-full")
    assert run(*words, "--part", "data").code == 0
    assert run(*words, "--threads", 1, "--device", "cpu").code == 0
    made = tmp_path / "results/experiments/long_range_arena/listops-full/1/model"
    result = json.loads((made / "result.json").read_text())
    assert result["accuracy_low"] > result["baseline"] + 0.12
