"""Logos: the contributions of the bases of a sequence as letters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.reporting.result import (
    BLUE,
    GREEN,
    INK,
    ORANGE,
    VERMILION,
    panels,
    save_figure,
)

COLORS = {"A": GREEN, "C": BLUE, "G": ORANGE, "T": VERMILION}
_BASES_PER_ROW = 120
_FAINT = 0.35  # opacity of letters that are not certain


def draw_logo(
    bases: str,
    contributions: NDArray[np.floating[Any]],
    certain: NDArray[np.bool_],
    title: str,
    path: Path,
) -> None:
    """Draw the contributions (L,) of bases as letters, up to 120 per row; negative ones hang below.

    Letters that are not `certain` (L,) are faint.
    """
    from matplotlib.patches import PathPatch
    from matplotlib.textpath import TextPath
    from matplotlib.transforms import Affine2D

    shapes = {base: TextPath((0, 0), base, size=1) for base in COLORS}
    starts = range(0, len(bases), _BASES_PER_ROW)
    width = min(_BASES_PER_ROW, len(bases))
    low = 1.1 * min(float(contributions.min()), 0)
    high = 1.1 * max(float(contributions.max()), 1e-6)
    with panels(len(starts), 1, 12, 1.5, sharey=True) as (figure, axes):
        for start, axis in zip(starts, axes, strict=True):
            end = start + _BASES_PER_ROW
            for x, base in enumerate(bases[start:end], start):
                if base not in COLORS or contributions[x] == 0:
                    continue

                box = shapes[base].get_extents()
                letter = Affine2D().translate(-box.x0, -box.y0)
                letter.scale(0.9 / box.width, float(contributions[x]) / box.height)
                letter.translate(x - 0.45, 0)
                patch = PathPatch(
                    shapes[base].transformed(letter),
                    facecolor=COLORS[base],
                    alpha=1.0 if certain[x] else _FAINT,
                    linewidth=0,
                )
                axis.add_patch(patch)

            axis.axhline(0, color=INK, linewidth=0.6)
            axis.set(xlim=(start - 0.5, start + width - 0.5), ylim=(low, high))
            axis.grid(visible=False)

        axes[0].set_title(title)
        figure.supylabel("contribution", fontsize=9)
        axes[-1].set_xlabel("base of the sequence, from 0")
        save_figure(figure, path)
