"""ListOps: values, sizes, no expression twice, and tables of others."""

import gzip
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
from bigbird_dna.papers.experiments.long_range_arena import accuracy_table
from bigbird_dna.papers.experiments.long_range_sequences import (
    FIRST,
    OFFSET,
    OPERATORS,
    PAD,
    TOKENS,
    Sequences,
    draw_image,
    draw_paths,
    generate,
    read_listops,
    read_pathfinder,
    write_listops,
    write_pathfinder,
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
        if token in OPERATORS:
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


def test_what_is_generated() -> None:
    found = [*generate(SMALL, seed=1)]
    assert found == [*generate(SMALL, seed=1)] != [*generate(SMALL, seed=2)]
    splits = [split for split, _, _ in found]
    assert {split: splits.count(split) for split in splits} == {
        "test": 60,
        "valid": 40,
        "train": 300,
    }
    texts = [text for _, text, _ in found]
    assert len({*texts}) == len(texts)
    depths, arguments = set(), set()
    for text, told in ((text, told) for _, text, told in found):
        tokens = text.split(" ")
        assert (
            8 <= len(tokens) <= 40
            and {*tokens} <= {*TOKENS}
            and evaluate(tokens) == told
        )
        assert tokens.count("]") == sum(token in OPERATORS for token in tokens) > 0
        depths.add(
            int(np.cumsum([(one in OPERATORS) - (one == "]") for one in tokens]).max())
        )
        counts: list[int] = []
        for token in tokens:
            if token in OPERATORS:
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
    one, other = ([*generate(config, seed=1)] for config in (SMALL, more))
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
    texts = [text for _, text, _ in generate(config, seed=1)]
    assert len({*texts}) == 340
    too_many = config.model_copy(
        update={"examples": ExamplesConfig(train=400, valid=20, test=20)}
    )
    with fails(DataError):
        list(generate(too_many, seed=1))


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
    lengths = [len(text.split(" ")) for _, text, _ in generate(few, seed=1)]
    assert min(lengths) >= 500 and max(lengths) <= 2000


def test_files_are_read_as_they_were_written(tmp_path: Path) -> None:
    write_listops(tmp_path, SMALL, seed=1)
    for split in ("train", "valid", "test"):
        found = read_listops(tmp_path / f"{split}.tsv.gz")
        expected = [
            (text, told) for one, text, told in generate(SMALL, seed=1) if one == split
        ]
        texts = [" ".join(TOKENS[token] for token in row) for row in found.rows]
        assert texts == [text for text, _ in expected]
        assert found.targets.tolist() == [told for _, told in expected]


def write_gzip(path: Path, text: str) -> Path:
    path.write_bytes(gzip.compress(text.encode()))
    return path


def test_published_files_have_parentheses(tmp_path: Path) -> None:
    text = "Source\tTarget\n( ( ( [MAX 1 ) ( ( ( [SM 9 ) 2 ) ] ) ) ] )\t1\n"
    plain = tmp_path / "basic_train.tsv"
    plain.write_text(text)
    for path in (plain, write_gzip(tmp_path / "train.tsv.gz", text)):
        found = read_listops(path)
        tokens = [TOKENS[token] for token in found.rows[0]]
        assert tokens == ["[MAX", "1", "[SM", "9", "2", "]", "]"]
        assert found.targets.tolist() == [1]


@pytest.mark.parametrize(
    "text",
    [
        "Source\tTarget\n[MAX 1 2 ]\t13\n",
        "Source\tTarget\n[ADD 1 2 ]\t2\n",
        "Source\tTarget\n[MAX 1 2 ] 2\n",
        "a\tb\n",
        "Source\tTarget\n",
    ],
)
def test_wrong_expressions(tmp_path: Path, text: str) -> None:
    path = write_gzip(tmp_path / "train.tsv.gz", text)
    with fails(DataError, path):
        read_listops(path)


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


def test_images_are_functions_of_seed_split_and_number(tmp_path: Path) -> None:
    few = ExamplesConfig(train=5, valid=5, test=5)
    images = {}
    for name, seed, examples in (
        ("one", 1, few),
        ("same", 1, few.model_copy(update={"train": 7})),
        ("other", 2, few),
    ):
        config = PICTURES.model_copy(update={"examples": examples})
        (tmp_path / name).mkdir()
        write_pathfinder(tmp_path / name, config, seed)
        for split in ("train", "valid"):
            rows = read_pathfinder(tmp_path / name / f"{split}.npz").rows
            images[name, split] = np.stack(rows[:5])
    assert (images["one", "train"] == images["same", "train"]).all()
    assert (images["one", "valid"] == images["same", "valid"]).all()
    assert (images["one", "train"] != images["one", "valid"]).any()
    assert (images["one", "train"] != images["other", "train"]).any()


def test_neither_distance_nor_what_is_drawn_tells_the_class(tmp_path: Path) -> None:
    write_pathfinder(tmp_path, PICTURES, seed=1)
    train = read_pathfinder(tmp_path / "train.npz")
    assert len(train.rows) == len(train.rows[0]) == 400
    assert 0.42 < train.targets.mean() < 0.58
    brightness = np.array([row.mean() for row in train.rows])
    for values in (train.giveaway, brightness):
        assert abs(auroc(train.targets, values).value - 0.5) < 0.08


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


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("labels", None),
        ("labels", np.full(3, 2, np.uint8)),
        ("labels", np.zeros(2, np.uint8)),
        ("images", np.zeros((3, 4, 4))),
    ],
)
def test_wrong_images(tmp_path: Path, name: str, values: np.ndarray | None) -> None:
    arrays = {"images": np.zeros((3, 4, 4), np.uint8), "labels": np.zeros(3, np.uint8)}
    arrays |= {"distances": np.ones(3, np.float32), name: values}
    path = tmp_path / "train.npz"
    np.savez(path, **{key: one for key, one in arrays.items() if one is not None})
    with fails(DataError, path):
        read_pathfinder(path)
    path.write_bytes(b"PK\x03\x04 nothing")
    with fails(DataError, path):
        read_pathfinder(path)


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


def test_data_come_before_classifiers(run: Run, config: Path) -> None:
    words = ("experiment run", "long_range_arena", config)
    missing = run(*words, "--only", "listops-full-seed1")
    refused(missing, 1, "listops-data/model/train.tsv.gz")


@pytest.mark.parametrize(
    "changes",
    [
        {"encoders": {"mine": {"attention": "sparse"}}},
        {"encoders": {"mine": {"heads": 5}}},
        {"encoders": {"../up": {}}},
        {"encoders": {}},
        {"seeds": [1, 1]},
        {"listops": {"shortest": 9, "longest": 8}},
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
    first = {
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
    assert found == pytest.approx([0.6, 0.5, 0.7, 0.2])


def test_batches() -> None:
    rows = [np.array(row, np.uint8) for row in ([5, 0], [7])]
    found = Sequences(rows, np.array([1, 0]), np.zeros(2))
    batch = found.batch([1, 0])
    expected = [[FIRST, 7 + OFFSET, PAD], [FIRST, 5 + OFFSET, OFFSET]]
    assert batch["ids"].tolist() == expected
    assert batch["lengths"].tolist() == [2, 3] and batch["targets"].tolist() == [0, 1]


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
    for name in ("listops-data", "listops-full-seed1"):
        assert run(*words, "--device", "cpu", "--only", name).code == 0
    made = tmp_path / "results/experiments/long_range_arena/listops-full-seed1/model"
    result = json.loads((made / "result.json").read_text())
    assert result["accuracy_low"] > result["baseline"] + 0.12
