"""ListOps: values, sizes, no expression twice, and tables of others."""

import io
import math
import random
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.ndimage import label

from bigbird_dna.config import LongRangeConfig
from bigbird_dna.config.long_range import ExamplesConfig, ListOpsConfig, PathfinderConfig
from bigbird_dna.errors import DataError
from bigbird_dna.metrics.auroc import auroc
from bigbird_dna.papers.experiments.long_range_sequences import (
    OPERATORS,
    TOKENS,
    distance_baseline,
    draw,
    drawings,
    evaluate,
    generate,
    read_listops,
    read_pathfinder,
    rendered,
    root_baseline,
    write_listops,
    write_pathfinder,
)
from tests.golden.messages import fails

SMALL = ListOpsConfig(
    examples=ExamplesConfig(train=300, valid=40, test=60), shortest=8, longest=40, depth=4, arguments=5
)
digits = st.integers(0, 9).map(str)


def value(tree: object) -> int:
    """By Python's own words."""
    if isinstance(tree, str):
        return int(tree)
    name, arguments = tree
    values = sorted(map(value, arguments))
    if name == "[MED":
        half = len(values) // 2
        return values[half] if len(values) % 2 else (values[half - 1] + values[half]) // 2
    return {"[MAX": values[-1], "[MIN": values[0], "[SM": int(str(sum(values))[-1])}[name]


def words(tree: object) -> list[str]:
    if isinstance(tree, str):
        return [tree]
    return [tree[0], *(word for one in tree[1] for word in words(one)), "]"]


trees = st.recursive(
    digits,
    lambda inner: st.tuples(st.sampled_from([*OPERATORS]), st.lists(inner, min_size=1, max_size=5)),
    max_leaves=12,
)


@settings(max_examples=50, deadline=None)
@given(trees)
def test_values(tree: object) -> None:
    assert evaluate(words(tree)) == value(tree)


@pytest.mark.parametrize(
    "text", ["", "[MAX", "]", "[MAX ]", "1 2", "[MAX 1 ] ]", "[MAX 1 [MIN 2 ]", "[ADD 1 ]"]
)
def test_what_is_not_an_expression(text: str) -> None:
    with pytest.raises(ValueError):
        evaluate(text.split())


def test_what_is_generated() -> None:
    found = [*generate(SMALL, seed=1)]
    assert found == [*generate(SMALL, seed=1)] != [*generate(SMALL, seed=2)]
    splits = [split for split, _, _ in found]
    assert {split: splits.count(split) for split in splits} == {"test": 60, "valid": 40, "train": 300}
    texts = [text for _, text, _ in found]
    assert len({*texts}) == len(texts)
    depths, arguments = set(), set()
    for text, told in ((text, told) for _, text, told in found):
        tokens = text.split(" ")
        assert 8 <= len(tokens) <= 40 and {*tokens} <= {*TOKENS} and evaluate(tokens) == told
        assert tokens.count("]") == sum(token in OPERATORS for token in tokens) > 0
        depths.add(int(np.cumsum([(one in OPERATORS) - (one == "]") for one in tokens]).max()))
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
    more = SMALL.model_copy(update={"examples": ExamplesConfig(train=400, valid=40, test=60)})
    one, other = ([*generate(config, seed=1)] for config in (SMALL, more))
    assert other[: len(one)] == one and len(other) == len(one) + 100


def test_duplicates_are_left_out_where_there_are_many() -> None:
    """Of one operator and two digits there are 400 expressions."""
    config = ListOpsConfig(
        examples=ExamplesConfig(train=300, valid=20, test=20), shortest=4, longest=4, depth=2, arguments=2
    )
    texts = [text for _, text, _ in generate(config, seed=1)]
    assert len({*texts}) == 340
    too_many = config.model_copy(update={"examples": ExamplesConfig(train=400, valid=20, test=20)})
    with fails(DataError):
        list(generate(too_many, seed=1))


def test_published_sizes_are_the_defaults() -> None:
    config = LongRangeConfig().listops
    assert (config.shortest, config.longest, config.depth, config.arguments) == (500, 2000, 10, 10)
    few = config.model_copy(update={"examples": ExamplesConfig(train=6, valid=1, test=1)})
    lengths = [len(text.split(" ")) for _, text, _ in generate(few, seed=1)]
    assert min(lengths) >= 500 and max(lengths) <= 2000


def test_files_are_read_as_they_were_written(tmp_path: Path) -> None:
    write_listops(tmp_path, SMALL, seed=1)
    for split in ("train", "valid", "test"):
        found = read_listops(tmp_path / f"{split}.tsv.gz")
        expected = [(text, told) for one, text, told in generate(SMALL, seed=1) if one == split]
        texts = [" ".join(TOKENS[token] for token in found.row(number)) for number in range(len(found))]
        assert texts == [text for text, _ in expected]
        assert found.targets.tolist() == [told for _, told in expected]


def test_a_published_file_is_read_without_its_parentheses(tmp_path: Path) -> None:
    path = tmp_path / "basic_train.tsv"
    path.write_text("Source\tTarget\n( ( ( [MAX 1 ) ( ( ( [SM 9 ) 2 ) ] ) ) ] )\t1\n")
    found = read_listops(path)
    assert [TOKENS[token] for token in found.row(0)] == ["[MAX", "1", "[SM", "9", "2", "]", "]"]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("Source\tTarget\n[MAX 1 2 ]\t3\n", ["line 2", "2", "3"]),
        ("Source\tTarget\n[MAX 1 2\t2\n", ["line 2"]),
        ("Source\tTarget\n[MAX 1 2 ] 2\n", ["line 2"]),
        ("a\tb\n", ["line 1"]),
        ("Source\tTarget\n", []),
    ],
)
def test_wrong_expressions(tmp_path: Path, text: str, named: list[str]) -> None:
    path = tmp_path / "train.tsv"
    path.write_text(text)
    with fails(DataError, path, *named):
        read_listops(path)


def test_what_the_first_operator_tells(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("Source\tTarget\n[MAX 9 2 ]\t9\n[MAX 9 3 ]\t9\n[MIN 0 2 ]\t0\n[MAX 1 2 ]\t2\n")
    found = read_listops(path)
    assert root_baseline(found, found) == 0.75


# Pathfinder's drawings, and that nothing but the paths tells their class


PICTURES = PathfinderConfig(
    examples=ExamplesConfig(train=400, valid=10, test=200), size=20, dashes=3, distractors=1
)


def test_circles_are_joined_where_the_drawing_says_so() -> None:
    """By the image: dashes that are drawn longer, so that gaps close, join what belongs together."""
    right = 0
    for number in range(60):
        one = draw(random.Random(number), PathfinderConfig(size=32, dashes=6))
        image = rendered(one, 32)
        assert image.shape == (32, 32) and image.dtype == np.uint8 and image.max() == 255
        closed = [
            ((a - (c - a) / 2.6, b - (d - b) / 2.6), (c + (c - a) / 2.6, d + (d - b) / 2.6))
            for (a, b), (c, d) in one.dashes
        ]
        areas, _ = label(rendered(one._replace(dashes=closed), 32) > 90, np.ones((3, 3)))
        marks = [areas[round(y), round(x)] for x, y in one.circles]
        right += (marks[0] == marks[1] != 0) == one.joined
    assert right >= 48  # 30 by chance; where paths come near each other, longer dashes touch


def test_drawings_are_functions_of_seed_split_and_number() -> None:
    few = PICTURES.model_copy(update={"examples": ExamplesConfig(train=5, valid=5, test=5)})
    assert [*drawings(few, "train", 1)] == [*drawings(few, "train", 1)]
    assert [*drawings(few, "train", 1)] != [*drawings(few, "train", 2)]
    assert [*drawings(few, "train", 1)] != [*drawings(few, "valid", 1)]
    assert [*drawings(PICTURES, "valid", 1)][:5] == [*drawings(few, "valid", 1)]


def test_neither_distance_nor_what_is_drawn_tells_the_class(tmp_path: Path) -> None:
    write_pathfinder(tmp_path, PICTURES, seed=1)
    train, test = (read_pathfinder(tmp_path / f"{split}.npz") for split in ("train", "test"))
    assert len(train.pixels) == 400 and train.pixels.longest == 400
    assert 0.42 < train.pixels.targets.mean() < 0.58
    brightness = np.array([train.pixels.row(number).mean() for number in range(400)])
    for values in (train.distances, brightness):
        assert abs(auroc(train.pixels.targets, values).value - 0.5) < 0.08
    assert abs(distance_baseline(train, test) - 0.5) < 0.09


def test_a_distance_that_tells_would_be_noticed(tmp_path: Path) -> None:
    few = PICTURES.model_copy(update={"examples": ExamplesConfig(train=20, valid=1, test=1)})
    write_pathfinder(tmp_path, few, seed=1)
    one = read_pathfinder(tmp_path / "train.npz")
    for sign in (1, -1):
        telling = one._replace(distances=(sign * one.pixels.targets + 5).astype(np.float32))
        assert distance_baseline(telling, telling) == 1.0


def test_paths_that_do_not_fit() -> None:
    with fails(DataError):
        draw(random.Random(1), PathfinderConfig(size=20, dashes=30))


def test_one_drawing_without_room_among_many_does_not_end_all() -> None:
    """In 14 pixels the longest dashes leave hardly any: of other lengths two paths fit."""
    config = PathfinderConfig(size=14, dashes=2, distractors=0)
    assert len(draw(random.Random("1 train 19656"), config).dashes) == 4


def test_no_dash_touches_one_that_is_not_its_neighbour() -> None:
    for one in drawings(PICTURES, "valid", 3):
        middles = [((a + c) / 2, (b + d) / 2) for (a, b), (c, d) in one.dashes]
        assert min(math.dist(p, q) for n, p in enumerate(middles) for q in middles[:n]) > 2.5
        assert all(0 < value < 19 for dash in one.dashes for point in dash for value in point)


@pytest.mark.parametrize(
    "changes",
    [
        {"labels": None},
        {"labels": np.full(3, 2, np.uint8)},
        {"distances": np.full(3, np.nan, np.float32)},
        {"labels": np.zeros(2, np.uint8)},
        {"images": np.zeros((3, 4, 5), np.uint8)},
        {"images": np.zeros((3, 4, 4))},
        {"images": np.zeros((0, 4, 4), np.uint8)},
        {},
    ],
)
def test_wrong_images(tmp_path: Path, changes: dict[str, np.ndarray | None]) -> None:
    arrays = {
        "images": np.zeros((3, 4, 4), np.uint8),
        "labels": np.zeros(3, np.uint8),
        "distances": np.ones(3, np.float32),
    }
    path = tmp_path / "train.npz"
    np.savez(path, **{name: one for name, one in (arrays | changes).items() if one is not None})
    if not changes:
        path.write_bytes(b"PK\x03\x04 nothing")
    with fails(DataError, path):
        read_pathfinder(path)


def claiming(path: Path, count: int, side: int) -> Path:
    """A file of so many black images, which are a hole in it that takes no place, and of three labels."""

    def header(shape: tuple[int, ...], dtype: str) -> bytes:
        stream = io.BytesIO()
        values = {"shape": shape, "fortran_order": False, "descr": dtype}
        np.lib.format.write_array_header_1_0(stream, values)
        return stream.getvalue()

    images = header((count, side, side), "|u1")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("labels.npy", header((3,), "|u1") + bytes(3))
        archive.writestr("distances.npy", header((3,), "<f4") + bytes(12))
        archive.writestr("images.npy", images)
        # The directory of the archive then comes behind the hole, and says the size of what is in it.
        stored = archive.getinfo("images.npy")
        stored.file_size = stored.compress_size = len(images) + count * side**2
        assert archive.fp is not None
        archive.start_dir = archive.fp.seek(archive.start_dir + count * side**2)
    return path


def test_the_largest_sets_that_can_be_asked_for_are_not_too_large(tmp_path: Path) -> None:
    published = PathfinderConfig(size=128).examples.train
    for count in (published, 1_000_000):
        path = claiming(tmp_path / "train.npz", count, 128)
        with fails(DataError):
            read_pathfinder(path)
    path = claiming(tmp_path / "train.npz", 1_000_001, 128)
    with fails(DataError, path, "1,000,001", "16,384,000,000"):
        read_pathfinder(path)
