"""The picture of a pattern."""

from pathlib import Path

import numpy as np
import pytest

from bigbird_dna.attention.pattern import Pattern
from bigbird_dna.reporting.attention_figure import COLOURS, save_attention_figure


def test_svg_shows_each_kind_in_its_colour_and_is_reproducible(tmp_path: Path) -> None:
    kinds = Pattern().kinds(16, heads=2)
    paths = [tmp_path / "a.svg", tmp_path / "b.svg"]
    for path in paths:
        save_attention_figure(kinds, path, block_size=64, title="BigBird")
    text = paths[0].read_text()
    assert all(colour in text for colour in COLOURS)
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_files_stay_small_however_many_blocks_there_are(tmp_path: Path) -> None:
    for blocks in (80, 256):
        path = tmp_path / f"{blocks}.svg"
        save_attention_figure(Pattern().kinds(blocks, heads=3), path, block_size=32, title="BigBird")
        assert path.stat().st_size < 200_000
        assert path.read_text().count("<image ") == 3


def test_cells_of_a_picture_have_the_colours_of_their_kinds(tmp_path: Path) -> None:
    """Areas of the colours in the bitmap stand in the proportion of the numbers of blocks."""
    from matplotlib.image import imread

    kinds = np.repeat(np.array([1, 1, 2, 3]), 16).reshape(8, 8)
    save_attention_figure(kinds, tmp_path / "p.png", block_size=64)
    pixels = (imread(tmp_path / "p.png")[:, :, :3] * 255).round().astype(int)
    wanted = [[int(c[i : i + 2], 16) for i in (1, 3, 5)] for c in COLOURS]
    areas = [(pixels == colour).all(axis=2).sum() for colour in wanted]
    assert areas[1] / areas[2] == pytest.approx(2, rel=0.05)
    assert areas[2] / areas[3] == pytest.approx(1, rel=0.05)


@pytest.mark.parametrize(
    ("kinds", "message"),
    [
        (np.zeros((2, 3), dtype=int), r"kinds must be .* not \(2, 3\)"),
        (np.full((2, 2), 4), "numbers from 0 to 3, got 4"),
        (np.full((2, 2), -1), "numbers from 0 to 3, got -1"),
    ],
)
def test_other_arrays_are_refused(tmp_path: Path, kinds: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        save_attention_figure(kinds, tmp_path / "p.svg", block_size=64)
    assert not list(tmp_path.iterdir())
