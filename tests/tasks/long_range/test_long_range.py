"""Classifiers of long sequences: commands, results, their table, and what they learn."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from scipy.stats import binomtest

from bigbird_dna.config import LongRangeConfig, parse_config
from bigbird_dna.errors import ConfigError
from bigbird_dna.papers.experiments.long_range_sequences import FIRST, OFFSET, PAD, Sequences
from bigbird_dna.papers.experiments.long_range_training import wilson_interval
from tests.cli.command import Run, refused
from tests.conftest import REPOSITORY
from tests.golden.messages import fails
from tests.workflow.dry_runs import dry_run, jobs, stage_configs

TINY: dict[str, Any] = {
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
    made = []
    for task in ("listops", "pathfinder"):
        assert run("experiment lra-data", config, task).code == 0
        more = (("full", 2), ("combiner", 1)) if task == "listops" else ()
        for attention, seed in (("full", 1), *more):
            words = ("experiment lra-train", config, task, attention, "--seed", seed, "--threads", 1)
            result = run(*words, "--device", "cpu")
            assert (result.code, result.out) == (0, "")
            made.append(tmp_path / f"results/long_range/{task}/{attention}-{seed}")
    assert {one.name for one in made[0].iterdir() if one.name[0] != "."} == {
        *("result.json", "encoder.json", "training.jsonl", "weights.safetensors")
    }
    assert not [*(tmp_path / "results/checkpoints/long_range").glob("*")]
    assert run("experiment lra-report", *made, "-o", tmp_path / "report").code == 0
    header, *rows = (tmp_path / "report/long_range.tsv").read_text().splitlines()
    names = header.split("\t")
    table = [dict(zip(names, row.split("\t"), strict=True)) for row in rows]
    here = [row for row in table if row["source"] == "here"]
    found = {(row["task"], row["attention"], row["seeds"]) for row in here}
    of_listops = {("listops", "full", "2"), ("listops", "combiner", "1")}
    assert found == of_listops | {("pathfinder", "full", "1")}
    figures = [json.loads((one / "result.json").read_text()) for one in made[:2]]
    both = next(row for row in here if (row["task"], row["attention"]) == ("listops", "full"))
    assert float(both["accuracy"]) == pytest.approx(np.mean([one["accuracy"] for one in figures]), abs=1e-4)
    assert [row["attention"] for row in table[3:]] == ["Transformer", "BigBird", "Combiner-Fixed"]
    assert all("not comparable" in row["source"] for row in table[3:])
    assert "(p)" in (tmp_path / "report/long_range.md").read_text()


def test_a_seed_has_one_result(run: Run, config: Path, tmp_path: Path) -> None:
    run("experiment lra-data", config, "listops")
    for name in ("one", "two"):
        words = ("experiment lra-train", config, "listops", "full", "-o", tmp_path / name)
        assert run(*words, "--threads", 1, "--device", "cpu").code == 0
    for file in ("result.json", "weights.safetensors"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


def test_what_is_refused(run: Run, config: Path, tmp_path: Path) -> None:
    refused(
        run("experiment lra-data", config, "images"), 2, "task 'images': choose one of listops, pathfinder"
    )
    words = ("experiment lra-train", config, "listops")
    refused(run(*words, "bigbird"), 2, "attention 'bigbird': choose one of combiner, full")
    refused(run(*words, "full"), 1, "results/long_range/data/listops/train.tsv.gz: no such file")
    for seed in (2**32, 2**64):
        refused(run(*words, "full", "--seed", seed), 2, f"seed {seed}: must be from 0 to 4294967295")
    refused(run("experiment lra-report", tmp_path, "-o", tmp_path / "x"), 1, "result.json: no such file")
    (tmp_path / "result.json").write_text('{"task": "listops"}')
    refused(
        run("experiment lra-report", tmp_path, "-o", tmp_path / "x"), 1, "result.json: has no 'attention'"
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"attentions": {"mine": {"attention": "sparse"}}}, "attentions.mine: .*'sparse' is not one of"),
        ({"attentions": {"mine": {"heads": 3}}}, "attentions.mine: .*not a multiple of heads"),
        ({"attentions": {"../up": {}}}, "attentions"),
        ({"attentions": {}}, "attentions"),
        ({"seeds": [1, 1]}, "seeds names one twice"),
        ({"listops": {"shortest": 9, "longest": 8}}, "shortest 9 is above longest 8"),
        (
            {"pooling": "cls", "encoder": {"causal": True}},
            "long_range_arena.pooling: 'cls' is the first token, wh",
        ),
        (
            {"pooling": "cls", "attentions": {"one": {}, "two": {"causal": True}}},
            "attentions.two: long_range_arena.pooling: 'cls' is the first token, which sees no other",
        ),
    ],
)
def test_wrong_sections(changes: dict[str, Any], message: str) -> None:
    with fails(ConfigError, message):
        parse_config({"long_range": changes})


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


def test_results_of_other_data_are_not_averaged(run: Run, tmp_path: Path) -> None:
    values = {
        **{"task": "listops", "attention": "full", "baseline_name": "x", "accuracy": 0.5, "steps": 3},
        **{"accuracy_low": 0.4, "accuracy_high": 0.6, "baseline": 0.1, "most_frequent": 0.1},
        **{"test_sequences": 10, "parameters": 7},
    }
    for seed, sums, name in ((1, "a", "one"), (2, "a", "two"), (3, "b", "three"), (1, "a", "four")):
        (tmp_path / name).mkdir()
        text = json.dumps(values | {"seed": seed, "data": {"test": sums}})
        (tmp_path / name / "result.json").write_text(text)
    words = ("-o", tmp_path / "report")
    assert run("experiment lra-report", tmp_path / "one", tmp_path / "two", *words).code == 0
    wrong = run("experiment lra-report", tmp_path / "one", tmp_path / "three", *words)
    refused(wrong, 1, "three/result.json: was trained with data ")
    wrong = run("experiment lra-report", tmp_path / "one", tmp_path / "four", *words)
    refused(wrong, 1, "four/result.json: is the same predictor with the same seed as")


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
    text = dry_run(tmp_path, "--configfile", *files, "--", "long_range")
    expected = {"long_range": 1, "long_range_data": 2, "long_range_model": 6, "stage_config": 1}
    assert jobs(text) == expected
    assert "experiment lra-train results/long_range/config/long-range.yaml listops bigbird --seed 1" in text
    section = yaml.safe_load(files[1].read_text())["long_range"]
    config = parse_config({"long_range": section}).long_range
    assert isinstance(config, LongRangeConfig)
    assert stage_configs(text) == {"long-range": {"long_range": config.model_dump(mode="json")}}
    assert {*section} == {*LongRangeConfig.model_fields}
    for task in ("listops", "pathfinder"):
        assert {*section[task]} == {*type(getattr(config, task)).model_fields}


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_short_listops_are_learnt(run: Run, tmp_path: Path) -> None:
    """A minute of a core: well above what the first operator tells."""
    path = tmp_path / "run.yaml"
    section = yaml.safe_load((REPOSITORY / "workflow/config/long_range.yaml").read_text())["long_range"]
    path.write_text(yaml.safe_dump({"results": str(tmp_path / "results"), "long_range_arena": section}))
    assert run("experiment lra-data", path, "listops").code == 0
    assert run("experiment lra-train", path, "listops", "full", "--threads", 1, "--device", "cpu").code == 0
    result = json.loads((tmp_path / "results/long_range/listops/full-1/result.json").read_text())
    assert result["accuracy_low"] > result["baseline"] + 0.12
