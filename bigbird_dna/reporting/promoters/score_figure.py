"""Scores along a contig, the forward strand upwards and the reverse strand downwards, with true TSSs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bigbird_dna.genome.sequence import Locus
from bigbird_dna.metrics.curves import Floats
from bigbird_dna.reporting.promoters.score_track import ScoreTrack
from bigbird_dna.reporting.style import BLUE, GREY, INK, VERMILLION, panels, save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# About two for each pixel of the figure's width: more can't be seen, and would swell the file.
LARGEST_TRACK = 1600

COLOURS = {"+": BLUE, "-": VERMILLION}
UNITS = ((1_000_000, 1e6, "Mb"), (5_000, 1e3, "kb"), (0, 1.0, "bp"))


def score_figure(track: ScoreTrack, sites: Sequence[Locus], path: Path) -> None:
    """Draw a track; `sites` (TSSs) outside of it are left out. Gaps are windows that were not scored."""
    length = track.end - track.start
    scale, unit = next((scale, unit) for least, scale, unit in UNITS if length >= least)
    shown = [
        site for site in sites if site.contig == track.contig and track.start <= site.position < track.end
    ]
    with panels(3, 1, 9.6, 1.35, sharex=True, gridspec_kw={"height_ratios": [1, 0.28, 1]}) as (figure, axes):
        forward, lane, reverse = axes
        for axis, strand in ((forward, "+"), (reverse, "-")):
            if strand in track.strands:
                x, y = _condensed(*track.strands[strand])
                axis.plot(x / scale, y, color=COLOURS[strand], linewidth=1)
                axis.fill_between(x / scale, 0, y, color=COLOURS[strand], alpha=0.25, linewidth=0)
            for site in shown:
                if site.strand == strand:
                    axis.axvline(site.position / scale, color=GREY, linewidth=0.7, alpha=0.6, zorder=1)
            axis.set(
                ylim=(0, 1.03),
                yticks=[0, 0.5, 1],
                ylabel=f"{'forward' if strand == '+' else 'reverse'} ({strand.replace('-', '−')})",
            )
        reverse.invert_yaxis()
        forward.tick_params(axis="x", length=0)
        _draw_sites(lane, shown, scale)
        reverse.set_xlabel(f"position on {track.contig} ({unit})")
        reverse.set_xlim(track.start / scale, track.end / scale)
        forward.set_title(f"Promoter probability along {track.contig}")
        forward.text(
            1, 1.04, f"▸ ◂ {len(shown):,} known TSS", transform=forward.transAxes,
            ha="right", va="bottom", fontsize=9, color=GREY,
        )  # fmt: skip
        save_figure(figure, path)


def _draw_sites(axis: Axes, sites: Sequence[Locus], scale: float) -> None:
    """The lane between the strands: an arrow head for each TSS, pointing along its gene."""
    for strand, height, marker in (("+", 0.75, ">"), ("-", 0.25, "<")):
        x = [site.position / scale for site in sites if site.strand == strand]
        axis.plot(x, np.full(len(x), height), marker, color=INK, markersize=5, markeredgewidth=0)
    axis.set(ylim=(0, 1), yticks=[], ylabel="TSS")
    axis.yaxis.label.set(rotation=0, ha="right", va="center")
    axis.grid(visible=False)
    axis.tick_params(axis="x", length=0)
    for spine in axis.spines.values():
        spine.set_visible(False)


def _condensed(positions: Floats, scores: Floats) -> tuple[Floats, Floats]:
    """The largest score of each stretch where there are more points than the figure can show."""
    if len(positions) <= LARGEST_TRACK:
        return positions, scores
    edges = np.linspace(0, len(positions), LARGEST_TRACK + 1).astype(int)[:-1]
    filled = np.where(np.isnan(scores), -np.inf, scores)
    places = np.array(
        [start + int(np.argmax(part)) for start, part in zip(edges, np.split(filled, edges[1:]), strict=True)]
    )
    return positions[places], scores[places]
