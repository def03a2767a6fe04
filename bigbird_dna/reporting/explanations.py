"""Page of explained sequences: a logo of the contributions of their bases, and a table of all of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bigbird_dna.reporting.pages import image, page_table, render_page
from bigbird_dna.reporting.result import (
    BLUE,
    GRAY,
    GREEN,
    INK,
    ORANGE,
    VERMILION,
    panels,
    save_figure,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLORS = {"A": GREEN, "C": BLUE, "G": ORANGE, "T": VERMILION}
MOST_SHOWN = 24  # logos on a page
_BASES_PER_ROW = 120
_FAINT = 0.35  # opacity of letters that are not certain

Floats = NDArray[np.floating[Any]]


class Explanation(NamedTuple):
    """A target and output on the page; contributions and noise are those of its bases (L,)."""

    name: str
    output: str
    place: str
    bases: str
    contributions: Floats
    noise: Floats
    score: float
    score_noise: float
    seqlets: Sequence[tuple[int, int]]

    @property
    def certain(self) -> NDArray[np.bool_]:
        """Bases (L,) whose contribution is larger than its noise."""
        return np.asarray(np.abs(self.contributions) > self.noise)


class Logo(NamedTuple):
    """A logo on the page."""

    title: str
    caption: str
    link: str


def explanation_page(
    explanations: Iterable[Explanation], command: str, method: str, output: Path
) -> None:
    """Write the page `explanation.html`, and its logos in `logos`, to the directory `output`."""
    explained = list(explanations)
    (output / "logos").mkdir()
    logos, rows = [], []
    for number, one in enumerate(explained, 1):
        score = f"{one.score:.3g} ± {one.score_noise:.2g}"
        rows.append(
            {
                "name": one.name,
                "output": one.output,
                "place": one.place,
                "score ± noise": score,
                "certain bases": f"{one.certain.mean():.0%}",
                "seqlets": ", ".join(one.bases[low:high] for low, high in one.seqlets),
            }
        )
        if number <= MOST_SHOWN:
            path = output / "logos" / f"{number:03}.svg"
            draw_logo(one, path)
            title = one.name
            if one.output not in ("promoter", one.name):
                title = f"{one.name}: {one.output}"
            logos.append(Logo(title, f"{one.place}. Score {score}.", image(path)))
    page = render_page(
        "explanation_page.html",
        style="run_page.css",
        title="Explanation of predictions",
        conclusions=[conclusion(explained)],
        logos=logos,
        left_out=len(explained) - len(logos),
        table=page_table(pd.DataFrame(rows)),
        command=command,
        method=method,
    )
    (output / "explanation.html").write_text(page, encoding="utf-8")


def conclusion(explained: Sequence[Explanation]) -> str:
    """Return what the contributions show, in a sentence."""
    certain = np.concatenate([one.certain for one in explained])
    seqlets = sum(len(one.seqlets) for one in explained)
    text = f"{certain.mean():.0%} of the bases have a contribution larger than its token-shift noise"
    if not seqlets:
        return f"{text}, but they form no seqlets: the scores do not depend on a single short site."
    plural = "s" * (seqlets != 1)
    return (
        f"{text}, and there are {seqlets:,} seqlet{plural} (short runs of such bases)."
    )


def draw_logo(one: Explanation, path: Path) -> None:
    """Draw the contributions of bases as letters, up to 120 per row; faint ones are not certain."""
    bases, values = np.array(list(one.bases)), one.contributions
    ends = 1.1 * min(float(values.min()), 0), 1.1 * max(float(values.max()), 1e-6)
    heights = values[:, None] * (bases[:, None] == list(COLORS))
    opacity = np.where(one.certain, 1.0, _FAINT)
    starts = range(0, len(bases), _BASES_PER_ROW)
    width = min(_BASES_PER_ROW, len(bases))
    with panels(len(starts), 1, 12, 1.5, sharey=True) as (figure, axes):
        for start, axis in zip(starts, axes, strict=True):
            stop = start + _BASES_PER_ROW
            draw_letters(axis, heights[start:stop], start, opacity[start:stop])
            axis.set(xlim=(start - 0.5, start + width - 0.5), ylim=ends)
            axis.grid(visible=False)
            for low, high in one.seqlets:
                if low < stop and high > start:
                    look: Any = {"color": GRAY, "alpha": 0.12, "linewidth": 0}
                    axis.axvspan(low - 0.5, high - 0.5, **look)
        figure.supylabel("contribution", fontsize=9)
        axes[-1].set_xlabel("base of the sequence, from 0")
        save_figure(figure, path)


def draw_letters(axis: Axes, heights: Floats, start: int, opacity: Floats) -> None:
    """Draw a stack of letters at each position from `start`, of heights (L, 4); negative ones hang below.

    Letters of small heights are next to the line. `opacity` (L,) is that of a position.
    """
    from matplotlib.patches import PathPatch
    from matplotlib.textpath import TextPath
    from matplotlib.transforms import Affine2D

    shapes = [TextPath((0, 0), base, size=1) for base in COLORS]
    colors = [*COLORS.values()]
    for x, (row, alpha) in enumerate(zip(heights, opacity, strict=True), start):
        tops = {True: 0.0, False: 0.0}  # of positive and of negative letters
        for base in np.argsort(np.abs(row)):
            value = float(row[base])
            if value == 0:
                continue
            box = shapes[base].get_extents()
            move = Affine2D().translate(-box.x0, -box.y0)
            move.scale(0.9 / box.width, value / box.height)
            move.translate(x - 0.45, tops[value > 0])
            tops[value > 0] += value
            look: Any = {"facecolor": colors[base], "alpha": float(alpha)}
            axis.add_patch(PathPatch(shapes[base].transformed(move), lw=0, **look))
    axis.axhline(0, color=INK, linewidth=0.6)
