"""Page of explained sequences: a logo of the contributions of their bases, and a table of all of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.reporting.pages import ShownTable, data_uri, render_page
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
_MOST_ROWS = 1000  # of the table

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
    found: Iterable[Explanation], command: str, method: str, output: Path
) -> None:
    """Write the page `explanation.html`, and its logos in `logos`, to the directory `output`."""
    explained = list(found)
    (output / "logos").mkdir()
    logos = []
    for number, one in enumerate(islice(explained, MOST_SHOWN), 1):
        path = output / "logos" / f"{number:03}.svg"
        draw_logo(one, path)
        title = (
            one.name
            if one.output in ("promoter", one.name)
            else f"{one.name}: {one.output}"
        )
        logos.append(
            Logo(
                title,
                f"{one.place}. Score {one.score:.3g} ± {one.score_noise:.2g}.",
                data_uri(path.read_bytes()),
            )
        )
    rows = [
        [
            one.name,
            one.output,
            one.place,
            f"{one.score:.3g} ± {one.score_noise:.2g}",
            f"{one.certain.mean():.0%}",
            ", ".join(one.bases[start:end] for start, end in one.seqlets),
        ]
        for one in explained
    ]
    headings = ["name", "output", "place", "score ± noise", "certain bases", "seqlets"]
    numeric = [False, False, False, True, True, False]
    table = ShownTable(
        headings, numeric, rows[:_MOST_ROWS], max(0, len(rows) - _MOST_ROWS)
    )
    page = render_page(
        "explanation_page.html",
        style="run_page.css",
        title="Explanation of predictions",
        conclusions=conclusions(explained),
        logos=logos,
        left_out=len(explained) - len(logos),
        table=table,
        command=command,
        method=method,
    )
    (output / "explanation.html").write_text(page, encoding="utf-8")


def conclusions(explained: Sequence[Explanation]) -> list[str]:
    """Return what the contributions show, in sentences."""
    certain = np.concatenate([one.certain for one in explained])
    seqlets = sum(len(one.seqlets) for one in explained)
    share = f"{certain.mean():.0%} of the bases have a contribution larger than its token-shift noise"
    found = f"{seqlets:,} seqlet{'s' * (seqlets != 1)} (short runs of such bases)"
    if seqlets:
        return [f"{share}, and there are {found}."]
    return [
        f"{share}, but they form no seqlets: the scores do not depend on a single short site."
    ]


def draw_logo(one: Explanation, path: Path) -> None:
    """Draw the contributions of bases as letters, up to 120 per row; faint ones are not certain."""
    rows = -(-len(one.bases) // _BASES_PER_ROW)
    ends = (
        1.1 * min(float(one.contributions.min()), 0),
        1.1 * max(float(one.contributions.max()), 1e-6),
    )
    heights = one.contributions[:, None] * (
        np.array(list(one.bases))[:, None] == list(COLORS)
    )
    opacity = np.where(one.certain, 1.0, _FAINT)
    with panels(rows, 1, 12, 1.5, sharey=True) as (figure, axes):
        for row, axis in enumerate(axes):
            part = slice(
                row * _BASES_PER_ROW, min((row + 1) * _BASES_PER_ROW, len(one.bases))
            )
            draw_letters(
                axis, heights[part], range(part.start, part.stop), opacity[part]
            )
            axis.set_xlim(
                part.start - 0.5, part.start + min(_BASES_PER_ROW, len(one.bases)) - 0.5
            )
            axis.set_ylim(*ends)
            axis.grid(visible=False)
            for start, end in one.seqlets:
                if start < part.stop and end > part.start:
                    axis.axvspan(
                        start - 0.5, end - 0.5, color=GRAY, alpha=0.12, linewidth=0
                    )
        figure.supylabel("contribution", fontsize=9)
        axes[-1].set_xlabel("base of the sequence, from 0")
        save_figure(figure, path)


def draw_letters(
    axis: Axes, heights: Floats, places: Sequence[int], opacity: Floats
) -> None:
    """Draw a stack of letters at each place, of heights (L, 4); negative ones hang below the line.

    Letters of small heights are next to the line. `opacity` (L,) is that of a place.
    """
    from matplotlib.patches import PathPatch
    from matplotlib.textpath import TextPath
    from matplotlib.transforms import Affine2D

    shapes = [TextPath((0, 0), base, size=1) for base in COLORS]
    outlines = [
        (one, one.get_extents(), color)
        for one, color in zip(shapes, COLORS.values(), strict=True)
    ]
    for place, row, alpha in zip(places, heights, opacity, strict=True):
        tops = {True: 0.0, False: 0.0}  # of positive and of negative letters
        for number in np.argsort(np.abs(row)):
            (outline, box, color), value = outlines[number], float(row[number])
            if value == 0:
                continue
            sign = value > 0
            turn = (
                Affine2D()
                .translate(-box.x0, -box.y0)
                .scale(0.9 / box.width, value / box.height)
            )
            shape = outline.transformed(turn.translate(place - 0.45, tops[sign]))
            tops[sign] += value
            axis.add_patch(
                PathPatch(shape, facecolor=color, alpha=float(alpha), linewidth=0)
            )
    axis.axhline(0, color=INK, linewidth=0.6)
