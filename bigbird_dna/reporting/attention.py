"""Plots of attention: the key blocks each query block attends to, by reason, or the weight of each key.

Also plots of the dependencies between bases.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bigbird_dna.reporting.result import save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# Kinds of blocks by number: not attended, global, window, random. Colors by Okabe and Ito, distinguishable
# under color-vision deficiencies and, by lightness, in print.
KINDS = ("not attended", "global", "window", "random")
COLORS = ("#f4f4f4", "#0072b2", "#e69f00", "#009e73")

FAINTEST = 1e-2  # ratio to the mean weight; smaller weights have the same color


def save_attention_figure(
    kinds: npt.NDArray[np.integer[Any]], path: Path, *, block_size: int, title: str = ""
) -> None:
    """Draw one panel per head: query blocks downwards, key blocks to the right, colored by kind.

    `kinds` (Q, Q) or (H, Q, Q) are 0 not attended, 1 global, 2 window, 3 random; `ValueError` for other
    shapes or values. `block_size` is in tokens, for the labels.
    """
    kinds = np.asarray(kinds)
    heads = kinds[None] if kinds.ndim == 2 else kinds
    if heads.ndim != 3 or heads.shape[1] != heads.shape[2] or heads.size == 0:
        raise ValueError(
            f"kinds must be (blocks, blocks) or (heads, blocks, blocks), found {kinds.shape}"
        )
    outside = heads[(heads < 0) | (heads >= len(KINDS))]
    if outside.size:
        raise ValueError(
            f"kinds must be from 0 to {len(KINDS) - 1}, found {outside[0]}"
        )

    from matplotlib.patches import Patch

    figure, axes = _head_panels(len(heads), 0.6, 4.5)
    for axis, head in zip(axes, heads, strict=True):
        _draw_blocks(axis, head)
    axes[0].set_ylabel(f"query block ({block_size} tokens each)")
    present = [kind for kind in range(len(KINDS)) if (heads == kind).any()]
    # Line ends keep legend and title away from the panels.
    figure.legend(
        handles=[
            Patch(fc=COLORS[kind], ec="#bbbbbb", label=KINDS[kind]) for kind in present
        ],
        loc="outside lower center",
        ncols=len(present),
        frameon=False,
        fontsize=8,
        title=f"\n{(heads > 0).mean():.0%} of all block pairs are attended",
        title_fontsize=8,
    )
    _save(figure, path, title and f"{title}\n")


def _head_panels(heads: int, width: float, height: float) -> tuple[Figure, list[Axes]]:
    """Return a `Figure` with one panel per head.

    `width` and `height` are in inches; `width` is the space in addition to the panels.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width + 3.4 * heads, height), layout="constrained")
    axes = list(figure.subplots(1, heads, squeeze=False)[0])
    for number, axis in enumerate(axes if heads > 1 else ()):
        axis.set_title(f"head {number}", fontsize=9)
    return figure, axes


def _save(figure: Figure, path: Path, title: str) -> None:
    import matplotlib

    if title:
        figure.suptitle(title, fontsize=11)
    with matplotlib.rc_context({"svg.hashsalt": "bigbird-dna"}):
        save_figure(figure, path, dpi=200)


def _draw_blocks(axis: Axes, head: npt.NDArray[np.integer[Any]]) -> None:
    """Draw an image with one pixel per block, which stays sharp in all formats, with white grid lines."""
    from matplotlib.colors import ListedColormap

    blocks = len(head)
    axis.imshow(
        head,
        cmap=ListedColormap(COLORS),
        vmin=-0.5,
        vmax=len(KINDS) - 0.5,
        interpolation="none",
        extent=(0, blocks, blocks, 0),
    )
    # Draw the grid as one path, because one line per edge would make the file large.
    edges = np.repeat(np.arange(blocks + 1), 2)
    ends = np.resize([0, blocks, blocks, 0], len(edges))
    width = min(0.8, 24 / blocks)
    axis.plot(edges, ends, color="white", linewidth=width)
    axis.plot(ends, edges, color="white", linewidth=width)
    axis.set(xlim=(0, blocks), ylim=(blocks, 0), xlabel="key block")
    axis.spines[:].set_visible(False)
    axis.tick_params(length=0, labelsize=8)
    ticks = np.arange(0, blocks, max(1, round(blocks / 40) * 10))
    for set_ticks in (axis.set_xticks, axis.set_yticks):
        set_ticks(ticks + 0.5, [str(tick) for tick in ticks])


LETTERS_UP_TO = 60  # bases, or tokens, that are labeled with their letters


def save_weights_figure(
    weights: npt.NDArray[np.floating[Any]],
    path: Path,
    *,
    title: str = "",
    names: Sequence[str] = (),
    labels: Sequence[str] = (),
    starts: Sequence[int] = (),
    note: str = "",
) -> None:
    """Draw one panel per head: queries downwards, keys to the right, each weight as a ratio to 1 / L.

    Rows of `weights` (H, L, L) sum to 1, and zero weights are white; `ValueError` if matrices are not
    square. `names` (H,) are the panels' titles. Few tokens have their `labels` (L,), many their first base in
    `starts` (L,). `note` is written below.
    """
    if weights.ndim != 3 or weights.shape[1] != weights.shape[2] or weights.size == 0:
        raise ValueError(
            f"weights must be (heads, tokens, tokens), found {weights.shape}"
        )

    from matplotlib.colors import LogNorm

    tokens = weights.shape[1]
    ratios = np.ma.masked_less_equal(weights * tokens, 0)
    largest = max(float(ratios.max()), 10 * FAINTEST)
    figure, axes = _head_panels(len(weights), 1.6, 4.2)
    few = tokens <= LETTERS_UP_TO
    unit = "token" if few or not labels else "first base of the token"
    for axis, head in zip(axes, ratios, strict=True):
        shown = axis.imshow(
            head,
            norm=LogNorm(FAINTEST, largest, clip=True),
            cmap="cividis_r",
            interpolation="none",
            extent=(0, tokens, tokens, 0),
        )
        axis.set(xlabel=f"key ({unit})")
        if labels:
            ticks = np.arange(0, tokens, 1 if few else -(-tokens // 16))
            texts = [
                labels[tick] if few else f"{starts[tick]:,}" for tick in ticks.tolist()
            ]
            axis.set_xticks(ticks + 0.5, texts, rotation=90, fontsize=4 if few else 7)
            axis.set_yticks(ticks + 0.5, texts, fontsize=4 if few else 7)
    for axis, name in zip(axes, names, strict=False):
        axis.set_title(name, fontsize=9)
    axes[0].set_ylabel(f"query ({unit})")
    figure.colorbar(
        shown, ax=axes, label="attention weight × sequence length", shrink=0.8
    )
    if note:
        figure.supxlabel(note, fontsize=8)
    _save(figure, path, title)


def save_dependency_figure(
    matrix: npt.NDArray[np.floating[Any]],
    sequence: str,
    start: int,
    path: Path,
    *,
    title: str = "",
) -> None:
    """Draw dependencies (L, L): substituted bases downwards, predicted bases to the right.

    Ticks are 1-based positions, for a region that begins at the 0-based `start`, or the letters of few bases.
    """
    size = len(sequence)
    if matrix.shape != (size, size):
        raise ValueError(f"the matrix must be ({size}, {size}), found {matrix.shape}")

    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 5.2), layout="constrained")
    axis = figure.subplots()
    shown = axis.imshow(matrix, cmap="cividis", vmin=0, interpolation="none")
    step = 1 if size <= LETTERS_UP_TO else -(-size // 80) * 10
    ticks = np.arange(-(start + 1) % step, size, step)
    labels = (
        [*sequence]
        if step == 1
        else [f"{start + 1 + tick:,}" for tick in ticks.tolist()]
    )
    axis.set_xticks(ticks, labels, fontsize=7, rotation=0 if step == 1 else 45)
    axis.set_yticks(ticks, labels, fontsize=7)
    axis.set(xlabel="predicted base", ylabel="substituted base")
    figure.colorbar(shown, ax=axis, label="largest change of log-odds", shrink=0.9)
    _save(figure, path, title)
