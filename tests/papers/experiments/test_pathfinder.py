"""Pathfinder's drawings, and that nothing but the paths tells their class."""

import io
import math
import random
import zipfile
from pathlib import Path

import numpy as np
import pytest
from scipy.ndimage import label

from bigbird_dna.config.long_range import ExamplesConfig, PathfinderConfig
from bigbird_dna.errors import DataError
from bigbird_dna.metrics.auroc import auroc
from bigbird_dna.papers.experiments.pathfinder import (
    distance_baseline,
    draw,
    drawings,
    read_pathfinder,
    rendered,
    write_pathfinder,
)
from tests.golden.messages import fails

SMALL = PathfinderConfig(
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
    few = SMALL.model_copy(update={"examples": ExamplesConfig(train=5, valid=5, test=5)})
    assert [*drawings(few, "train", 1)] == [*drawings(few, "train", 1)]
    assert [*drawings(few, "train", 1)] != [*drawings(few, "train", 2)]
    assert [*drawings(few, "train", 1)] != [*drawings(few, "valid", 1)]
    assert [*drawings(SMALL, "valid", 1)][:5] == [*drawings(few, "valid", 1)]


def test_neither_distance_nor_what_is_drawn_tells_the_class(tmp_path: Path) -> None:
    write_pathfinder(tmp_path, SMALL, seed=1)
    train, test = (read_pathfinder(tmp_path / f"{split}.npz") for split in ("train", "test"))
    assert len(train.pixels) == 400 and train.pixels.longest == 400
    assert 0.42 < train.pixels.targets.mean() < 0.58
    brightness = np.array([train.pixels.row(number).mean() for number in range(400)])
    for values in (train.distances, brightness):
        assert abs(auroc(train.pixels.targets, values).value - 0.5) < 0.08
    assert abs(distance_baseline(train, test) - 0.5) < 0.09


def test_a_distance_that_tells_would_be_noticed(tmp_path: Path) -> None:
    few = SMALL.model_copy(update={"examples": ExamplesConfig(train=20, valid=1, test=1)})
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
    for one in drawings(SMALL, "valid", 3):
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
def test_wrong_files(tmp_path: Path, changes: dict[str, np.ndarray | None]) -> None:
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
