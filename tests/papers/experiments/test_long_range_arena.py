"""ListOps: values, sizes, no expression twice, and tables of others."""

import json
import shutil
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from scipy.ndimage import label, minimum_filter

from bigbird_dna.config.long_range import (
    ExamplesConfig,
    ListOpsConfig,
    LongRangeConfig,
    PathfinderConfig,
)
from bigbird_dna.config.reading import parse_config
from bigbird_dna.errors import ConfigError, DataError
from bigbird_dna.metrics.auroc import auroc
from bigbird_dna.papers.experiments.long_range_arena import (
    FIRST,
    OFFSET,
    OPERATORS,
    PAD,
    SequenceTask,
    accuracy_table,
    draw_image,
    draw_paths,
    generate_listops,
    generate_pathfinder,
)
from tests.cli.command import Run, refused
from tests.conftest import REPOSITORY
from tests.golden.messages import fails
from tests.workflow.dry_runs import dry_run, jobs

SMALL = ListOpsConfig(
    examples=ExamplesConfig(train=300, valid=40, test=60),
    shortest=8,
    longest=40,
    depth=4,
    arguments=5,
)


def evaluate(tokens: list[str]) -> int:
    """The value of an expression, by lists within lists."""
    lists: list[list[Any]] = [[]]
    for token in tokens:
        if token in NAMES:
            lists.append([token])
        elif token == "]":
            name, *values = lists.pop()
            ordered, half = sorted(values), len(values) // 2
            middle = (ordered[half] + ordered[half - 1 + len(values) % 2]) // 2
            lists[-1].append(
                {
                    "[MAX": ordered[-1],
                    "[MIN": ordered[0],
                    "[MED": middle,
                    "[SM": sum(values) % 10,
                }[name]
            )
        else:
            lists[-1].append(int(token))
    ((value,),) = lists
    return int(value)


NAMES = [name for name, _ in OPERATORS]
TEXTS = [*NAMES, "]", *map(str, range(10))]


def expressions(config: ListOpsConfig, seed: int) -> list[tuple[str, str, int]]:
    """Split, text and value of each expression."""
    found = []
    for split, tokens, value, operator in generate_listops(config, seed):
        assert tokens[0] == FIRST and tokens[1] == operator
        text = " ".join(TEXTS[token - OFFSET] for token in tokens[1:])
        found.append((split, text, value))
    return found


def test_what_is_generated() -> None:
    found = expressions(SMALL, 1)
    assert found == expressions(SMALL, 1) != expressions(SMALL, 2)
    splits = [split for split, _, _ in found]
    assert {split: splits.count(split) for split in splits} == {
        "test": 60,
        "valid": 40,
        "train": 300,
    }
    texts = [text for _, text, _ in found]
    assert len({*texts}) == len(texts)
    depths, arguments = set(), set()
    for _, text, value in found:
        tokens = text.split(" ")
        assert 8 <= len(tokens) <= 40 and evaluate(tokens) == value
        assert tokens.count("]") == sum(token in NAMES for token in tokens) > 0
        depths.add(
            int(np.cumsum([(one in NAMES) - (one == "]") for one in tokens]).max())
        )
        counts: list[int] = []
        for token in tokens:
            if token in NAMES:
                counts.append(0)
                continue
            if token == "]":
                arguments.add(counts.pop())
            if counts:
                counts[-1] += 1
    assert max(depths) == 3  # digits are the fourth
    assert arguments == {2, 3, 4, 5}


def test_more_to_learn_from_leaves_what_is_judged_on() -> None:
    more = SMALL.model_copy(
        update={"examples": ExamplesConfig(train=400, valid=40, test=60)}
    )
    one, other = (expressions(config, 1) for config in (SMALL, more))
    assert other[: len(one)] == one and len(other) == len(one) + 100


def test_duplicates_are_left_out_where_there_are_many() -> None:
    """Of one operator and two digits there are 400 expressions."""
    config = ListOpsConfig(
        examples=ExamplesConfig(train=300, valid=20, test=20),
        shortest=4,
        longest=4,
        depth=2,
        arguments=2,
    )
    texts = [text for _, text, _ in expressions(config, 1)]
    assert len({*texts}) == 340
    too_many = config.model_copy(
        update={"examples": ExamplesConfig(train=400, valid=20, test=20)}
    )
    with fails(DataError):
        expressions(too_many, 1)


def test_published_sizes_are_the_defaults() -> None:
    config = LongRangeConfig().listops
    assert (config.shortest, config.longest, config.depth, config.arguments) == (
        500,
        2000,
        10,
        10,
    )
    few = config.model_copy(
        update={"examples": ExamplesConfig(train=6, valid=1, test=1)}
    )
    lengths = [len(text.split(" ")) for _, text, _ in expressions(few, 1)]
    assert min(lengths) >= 500 and max(lengths) <= 2000


# Pathfinder's drawings, and that nothing but the paths tells their class


PICTURES = PathfinderConfig(
    examples=ExamplesConfig(train=400, valid=10, test=200),
    size=20,
    dashes=3,
    distractors=1,
)


def test_circles_are_connected_where_the_label_says_so() -> None:
    """By the image: where gaps are closed, a path is one area."""
    right = 0
    for number in range(60):
        rng = np.random.default_rng(number)
        config = PathfinderConfig(size=32, dashes=6, distractors=0)
        image, connected, distance = draw_image(rng, config)
        assert image.shape == (32, 32) and image.dtype == np.uint8
        assert image.max() == 255 and distance > 5
        circles, count = label(minimum_filter(image, 2) > 150)
        assert count >= 2
        sizes = np.bincount(circles.ravel())[1:]
        first, second = np.argsort(sizes)[-2:] + 1
        areas, _ = label(image > 60, np.ones((3, 3)))
        marks = [areas[circles == circle].max() for circle in (first, second)]
        right += (marks[0] == marks[1]) == connected
    assert right >= 50  # 30 by chance; paths that come near each other touch


def images(config: PathfinderConfig, seed: int, split: str) -> np.ndarray:
    examples = generate_pathfinder(config, seed)
    return np.stack([tokens for name, tokens, _, _ in examples if name == split])


def test_images_are_functions_of_seed_split_and_number() -> None:
    few = PICTURES.model_copy(
        update={"examples": ExamplesConfig(train=5, valid=5, test=5)}
    )
    more = few.model_copy(update={"examples": ExamplesConfig(train=7, valid=5, test=5)})
    first = images(few, 1, "train")
    assert (images(more, 1, "train")[:5] == first).all()
    assert (images(more, 1, "valid") == images(few, 1, "valid")).all()
    assert (first != images(few, 1, "valid")).any()
    assert (first != images(few, 2, "train")).any()


def test_neither_distance_nor_what_is_drawn_tells_the_class() -> None:
    _, pixels, targets, distances = zip(*generate_pathfinder(PICTURES, 1), strict=True)
    assert len(pixels) == 610 and {len(row) for row in pixels} == {401}
    assert 0.42 < np.mean(targets) < 0.58
    for values in (distances, np.mean(pixels, axis=1)):
        assert abs(auroc(targets, values).value - 0.5) < 0.08


def test_paths_that_hardly_fit() -> None:
    config = PathfinderConfig(size=14, dashes=2, distractors=0)
    for number in range(20):
        draw_image(np.random.default_rng(number), config)
    with fails(DataError):
        draw_image(np.random.default_rng(1), PathfinderConfig(size=20, dashes=30))


def test_paths_stay_apart_from_the_border_and_themselves() -> None:
    paths = draw_paths(np.random.default_rng(3), 500, 8, 1.0, 32)
    assert len(paths) > 5
    assert paths.min() > 2 and paths.max() < 29
    for path in paths:
        dashes = path.reshape(8, -1, 2)
        lengths = np.linalg.norm(dashes[:, -1] - dashes[:, 0], axis=1)
        assert lengths == pytest.approx([2.2] * 8)
        gaps = np.linalg.norm(dashes[1:, 0] - dashes[:-1, -1], axis=1)
        assert gaps == pytest.approx([1.6] * 7)
        for first, second in combinations(range(8), 2):
            if second - first > 1:
                apart = dashes[first][:, None] - dashes[second]
                assert np.linalg.norm(apart, axis=2).min() >= 2.6


# Classifiers of long sequences: commands, results, their table, and what they learn


ENCODER = {
    "layers": 1,
    "hidden": 8,
    "heads": 1,
    "block_size": 16,
    "random_blocks": 1,
}
TINY: dict[str, Any] = {
    "seeds": [1, 2],
    "encoders": {
        "full": ENCODER | {"attention": "full"},
        "combiner": ENCODER | {"attention": "combiner_fixed"},
    },
    "listops": {
        "examples": {"train": 40, "valid": 5, "test": 10},
        **{"shortest": 4, "longest": 12, "depth": 3},
        "training": {
            "steps": 4,
            "batch_size": 4,
            "evaluate_every": 2,
            "precision": "float32",
        },
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
    path.write_text(
        yaml.safe_dump({"results": str(tmp_path / "results"), "long_range_arena": TINY})
    )
    return path


def test_from_data_to_table(run: Run, config: Path, tmp_path: Path) -> None:
    """Data, classifiers, comparison; a seed has one result."""
    home = tmp_path / "results/experiments/long_range_arena"
    words = ("experiment run", "long_range_arena", config, "--threads", 1)
    result = run(*words, "--device", "cpu", "-o", tmp_path / "report")
    assert (result.code, result.out) == (0, "")
    model = home / "listops-full-seed1/model"
    assert {one.name for one in model.iterdir() if one.name[0] != "."} == {
        *("result.json", "encoder.json", "training.jsonl", "weights.safetensors")
    }
    assert not [*(tmp_path / "results/checkpoints").rglob("*.pt")]
    table = pd.read_csv(tmp_path / "report/long_range.tsv", sep="\t")
    assert len(table) == 4 and (table["seeds"] == 2).all()
    results = [
        json.loads((home / f"listops-full-seed{seed}/model/result.json").read_text())
        for seed in (1, 2)
    ]
    (own,) = table.query("task == 'listops' and attention == 'full'").to_dict("records")
    accuracies = [one["accuracy"] for one in results]
    assert own["accuracy"] == pytest.approx(np.mean(accuracies), abs=1e-4)
    assert own["seed_spread"] == pytest.approx(np.ptp(accuracies), abs=1e-4)
    weights = (model / "weights.safetensors").read_bytes()
    shutil.rmtree(model.parent)
    again = run(*words, "--device", "cpu", "--only", "listops-full-seed1")
    assert again.code == 0
    assert (model / "weights.safetensors").read_bytes() == weights


@pytest.mark.parametrize(
    "changes",
    [
        {"encoders": {"mine": {"attention": "sparse"}}},
        {"encoders": {"mine": {"heads": 5}}},
        {"encoders": {}},
        {"seeds": [1, 1]},
    ],
)
def test_wrong_sections(changes: dict[str, Any]) -> None:
    with fails(ConfigError, "long_range_arena"):
        parse_config({"long_range_arena": changes})


def test_encoders_that_cannot_be_used(run: Run, config: Path) -> None:
    words = ("experiment run", "long_range_arena", config, "--set")
    causal = ("long_range_arena.encoders.full.causal=true", "--set")
    refused(run(*words, *causal, "long_range_arena.pooling=cls"), 2, "pooling")
    refused(run(*words, "long_range_arena.encoders.full.kmers=3"), 2, "kmers")


def test_means_over_seeds() -> None:
    numbers = dict.fromkeys(["baseline", "test_sequences", "parameters", "steps"], 1)
    first = {
        **numbers,
        "task": "listops",
        "attention": "full",
        "seed": 1,
        "accuracy": 0.5,
        "accuracy_low": 0.4,
        "accuracy_high": 0.6,
    }
    second = first | {"seed": 2, "accuracy": 0.7}
    row = accuracy_table(pd.DataFrame([first, second])).iloc[0]
    found = row[["accuracy", "accuracy_low", "accuracy_high", "seed_spread"]].tolist()
    assert found == pytest.approx([0.6, 0.4, 0.6, 0.2]) and row["seeds"] == 2


def test_batches() -> None:
    columns = ["tokens", "target", "giveaway"]
    rows = [(np.array([1, 7, 2], np.uint16), 1, 0), (np.array([1, 9], np.uint16), 0, 0)]
    data = {"train": pd.DataFrame(rows, columns=columns)}
    task = SequenceTask(LongRangeConfig(), "listops", "full", 1, data)
    batch = task.examples("train", [1, 0])
    assert batch["ids"].tolist() == [[FIRST, 9, PAD], [FIRST, 7, 2]]
    assert batch["lengths"].tolist() == [2, 3] and batch["targets"].tolist() == [0, 1]
    assert (task.encoder.max_length, task.encoder.vocabulary) == (16, 17)


def test_the_shipped_configuration_has_all_keys(
    tmp_path: Path,
) -> None:
    files = [
        REPOSITORY / f"workflow/config/{name}.yaml" for name in ("demo", "long_range")
    ]
    text = dry_run(tmp_path, "--configfile", *files, "--", "long_range_arena")
    assert jobs(text) == {"long_range_arena": 1}
    assert "experiment run long_range_arena results/long_range/logs/" in text
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
    section = yaml.safe_load(
        (REPOSITORY / "workflow/config/long_range.yaml").read_text()
    )["long_range_arena"]
    path.write_text(
        yaml.safe_dump(
            {"results": str(tmp_path / "results"), "long_range_arena": section}
        )
    )
    words = ("experiment run", "long_range_arena", path, "--threads", 1)
    name = "listops-full-seed1"
    assert run(*words, "--device", "cpu", "--only", name).code == 0
    made = tmp_path / "results/experiments/long_range_arena/listops-full-seed1/model"
    result = json.loads((made / "result.json").read_text())
    assert result["accuracy_low"] > result["baseline"] + 0.12
