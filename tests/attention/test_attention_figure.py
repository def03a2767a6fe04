"""The picture of a pattern."""

from pathlib import Path

import numpy as np
import pytest

from bigbird_dna.attention.pattern import Pattern
from bigbird_dna.config import EncoderConfig, known_mechanisms
from bigbird_dna.model.mechanism import attention_graph
from bigbird_dna.reporting.attention import COLORS, save_attention_figure, save_weights_figure
from tests.attention.reference_implementations import quick
from tests.cli.command import Run, invoke, refused
from tests.golden.messages import fails


def test_svg_shows_each_kind_in_its_colour_and_is_reproducible(tmp_path: Path) -> None:
    kinds = Pattern().kinds(16, heads=2)
    paths = [tmp_path / "a.svg", tmp_path / "b.svg"]
    for path in paths:
        save_attention_figure(kinds, path, block_size=64, title="BigBird")
    text = paths[0].read_text()
    assert all(colour in text for colour in COLORS)
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
    wanted = [[int(c[i : i + 2], 16) for i in (1, 3, 5)] for c in COLORS]
    areas = [(pixels == colour).all(axis=2).sum() for colour in wanted]
    assert areas[1] / areas[2] == pytest.approx(2, rel=0.05)
    assert areas[2] / areas[3] == pytest.approx(1, rel=0.05)


def test_other_arrays_are_refused(tmp_path: Path) -> None:
    for kinds, named in (
        (np.zeros((2, 3), int), "(2, 3)"),
        (np.full((2, 2), 4), 4),
        (np.full((2, 2), -1), -1),
    ):
        with fails(ValueError, named):
            save_attention_figure(kinds, tmp_path / "p.svg", block_size=64)
    with fails(ValueError, "(1, 2, 3)"):
        save_weights_figure(np.ones((1, 2, 3)), tmp_path / "p.svg")
    assert not list(tmp_path.iterdir())


def test_blocks_of_a_causal_encoder_see_no_later_ones() -> None:
    for attention in ("full", "bigbird"):
        encoder = EncoderConfig(vocabulary=8, attention=attention, causal=True, block_size=16)
        kinds = attention_graph(encoder, tokens=150).kinds
        assert kinds.shape == (12, 10, 10) and kinds.dtype == np.int8
        assert not np.triu(kinds, 1).any() and kinds[:, range(10), range(10)].all()
        if attention == "full":
            assert (np.tril(kinds) == np.tril(np.ones((10, 10)))).all()


# Weights


def test_weights_of_a_mechanism_are_drawn_and_written(tmp_path: Path, run: Run) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(
        "encoder: {layers: 2, hidden: 8, heads: 2, max_length: 512, attention: combiner_fixed, "
        "attention_options: {span: 16}}\npretraining: {sequence_tokens: 512}\n"
    )
    for name, layer in (("a", 0), ("b", 0), ("c", 1)):
        files = ("-o", tmp_path / f"{name}.svg", "--matrix", tmp_path / f"{name}.npy")
        invoke("report plot-attention", config, "--layer", layer, *files)
    a, b, c = ((tmp_path / f"{name}.svg").read_bytes() for name in "abc")
    assert a == b != c
    weights = np.load(tmp_path / "a.npy")
    assert weights.shape == (2, 256, 256)
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)
    block = weights[0, 32:48, 64:80]  # seen through a summary
    assert np.linalg.svd(block, compute_uv=False)[1] < 1e-6 < np.linalg.svd(weights[0, :16, :16])[1][1]
    result = run("report plot-attention", config, "--layer", 2, "-o", tmp_path / "d.svg")
    refused(result, 2, "layer 2: the encoder has layers 0 to 1")


@pytest.mark.parametrize("name", quick(sorted(known_mechanisms()), "longformer", "reformer"))
def test_every_mechanism_has_a_picture(tmp_path: Path, name: str) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(
        f"encoder: {{layers: 1, hidden: 8, heads: 2, max_length: 64, attention: {name}}}\n"
        "pretraining: {sequence_tokens: 64}\n"
    )
    files = ("-o", tmp_path / "a.svg", "--matrix", tmp_path / "a.npy")
    invoke("report plot-attention", config, "--tokens", 40, "--heads", 1, *files)
    weights = np.load(tmp_path / "a.npy")
    assert weights.shape == (2, 40, 40) and (weights >= 0).all()
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)


def test_weights_of_zero_and_of_one_are_drawn(tmp_path: Path) -> None:
    save_weights_figure(np.tril(np.ones((1, 3, 3))) / np.arange(1, 4)[:, None], tmp_path / "a.png")
    save_weights_figure(np.ones((2, 1, 1)), tmp_path / "b.png", title="one")
    assert all((tmp_path / f"{name}.png").stat().st_size > 1000 for name in "ab")
