"""Plots of attention: the key blocks each query block attends to, by reason, or the weight of each key.

Also plots of the dependencies between bases.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bigbird_dna.reporting.result import save_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def _save(figure: Figure, path: Path, title: str) -> None:
    import matplotlib

    if title:
        figure.suptitle(title, fontsize=11)
    with matplotlib.rc_context({"svg.hashsalt": "bigbird-dna"}):
        save_figure(figure, path, dpi=200)


LETTERS_UP_TO = 60  # bases, or tokens, that are labeled with their letters


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
