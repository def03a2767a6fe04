"""The tables as figures: predictors with their intervals, and tracks of two predictors against each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bigbird_dna.reporting.comparison.entries import FINE_TUNED, PROBED
from bigbird_dna.reporting.language_model.table import SPLIT
from bigbird_dna.reporting.study.models import PRETRAINED, RANDOM
from bigbird_dna.reporting.style import (
    BLUE,
    GREEN,
    GREY,
    SERIES,
    VERMILLION,
    add_legend,
    panels,
    save_figure,
    say_instead,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

_COLUMNS = 3  # of panels
_LINE = 0.26  # inches of a predictor
_SCATTERS = 6  # panels of tracks, at most
_KEY = ["predictor", "weights", "training", "window"]
_SPLITS = {"valid": "validation"}


def bits_figure(table: pd.DataFrame, path: Path) -> None:
    """Table 5: bits per base of each predictor."""
    with panels(1, 1, 7.2, 1.2 + _LINE * len(table)) as (figure, axes):
        colours = [BLUE if str(name).startswith("model") else GREY for name in table["predictor"]]
        _intervals(axes[0], table["predictor"].tolist(), table[["bits_per_base", "low", "high"]], colours)
        split = str(table[SPLIT].iloc[0])
        axes[0].set(xlabel=f"bits per base, {_SPLITS.get(split, split)}")
        axes[0].set_title("Bits per base of held-out sequence")
        save_figure(figure, path)


def promoters_figure(table: pd.DataFrame, path: Path) -> None:
    """Table 6: AUROC of each predictor, a panel a window size and negative set."""
    groups = list(table.groupby(["window", "negative_set"], sort=False))
    columns = min(_COLUMNS, len(groups))
    rows, most = -(-len(groups) // columns), max(len(group) for _, group in groups)
    with panels(rows, columns, 4.8, 1.1 + _LINE * most) as (figure, axes):
        for axis in axes[len(groups) :]:
            axis.set_visible(False)
        for axis, ((window, negative_set), group) in zip(axes, groups, strict=False):
            figures = group[["auroc", "auroc_low", "auroc_high"]]
            _intervals(axis, [_label(row) for row in group.to_dict("records")], figures, _colours(group))
            axis.set(xlabel="AUROC, test", title=f"{negative_set}, {window:,} bp".replace("_", " "))
        save_figure(figure, path)


def tracks_figure(table: pd.DataFrame, path: Path) -> None:
    """Table 7 track by track: the fine-tuned model of pretrained weights against each other predictor.

    Tracks have the colours of their groups; those of one group, of whether a known motif tells of them.
    """
    table = table.fillna({"window": 0})  # what isn't known is no other row
    rows = [*dict.fromkeys(table[_KEY].itertuples(index=False, name=None))]
    own = next((row for row in rows if row[1:3] == (PRETRAINED, FINE_TUNED)), rows[0])
    others = sorted((row for row in rows if row != own), key=lambda row: _order(row, own))[:_SCATTERS]
    kinds = _kinds(table)
    areas = {row: _of(table, row) for row in (own, *others)}
    columns = min(_COLUMNS, max(1, len(others)))
    with panels(-(-max(1, len(others)) // columns), columns, 3.6, 3.6) as (figure, axes):
        for axis in axes[max(1, len(others)) :]:
            axis.set_visible(False)
        for axis, other in zip(axes, others, strict=False):
            both = areas[own].to_frame("own").join(areas[other].rename("other"), how="inner")
            for colour, (kind, tracks) in zip(SERIES, kinds.items(), strict=False):
                some = both[both.index.isin(tracks)]
                (dots,) = axis.plot(some["other"], some["own"], "o", color=colour, label=kind)
                dots.set(markersize=3, alpha=0.6)
            low = float(min(0.5, both.min().min())) if len(both) else 0.5
            axis.plot([low, 1], [low, 1], "-", color=GREY, linewidth=0.8)
            won = int((both["own"] > both["other"]).sum())
            axis.set(xlabel=_label(_named(other)), title=f"above on {won:,} of {len(both):,} tracks")
        axes[0].set_ylabel(_label(_named(own)))
        if not others:
            say_instead(axes[0], "no other predictor to compare with")
        add_legend(axes[0])
        save_figure(figure, path)


def _order(row: tuple[Any, ...], own: tuple[Any, ...]) -> int:
    """What stands first: random weights of `own`, what isn't a language model, other models, probes."""
    if row[2] == FINE_TUNED:
        return 0 if (row[0], row[3]) == (own[0], own[3]) else 2
    return 3 if row[2] == PROBED else 1


def _kinds(table: pd.DataFrame) -> dict[str, set[str]]:
    """Names of tracks by what colours tell apart."""
    groups = {str(name): set(part["track"]) for name, part in table.groupby("group", sort=False)}
    words = {"yes": "with a known motif", "no": "without"}
    motifs = {
        word: set(table["track"][table["known_motif"] == told])
        for told, word in words.items()
        if (table["known_motif"] == told).any()
    }
    return motifs if len(groups) == 1 and motifs else groups


def _of(table: pd.DataFrame, row: tuple[object, ...]) -> pd.Series[float]:
    """AUROC of a row by track."""
    inside = np.logical_and.reduce(
        [(table[key] == value).to_numpy() for key, value in zip(_KEY, row, strict=True)]
    )
    return table[inside].set_index("track")["auroc"]


def _named(row: Sequence[object]) -> dict[str, object]:
    return dict(zip(_KEY, row, strict=True))


def _label(row: Mapping[Any, object]) -> str:
    """What a predictor is called in figures: bigbird, pretrained, probed."""
    words = [str(row["predictor"])]
    if row["weights"]:
        words.append(str(row["weights"]))
        words += [PROBED] if row["training"] == PROBED else []
    return ", ".join(words)


def _colours(rows: pd.DataFrame) -> list[str]:
    known: dict[str, str] = {PRETRAINED: BLUE, RANDOM: VERMILLION}
    return [known.get(str(weights), GREEN) for weights in rows["weights"]]


def _intervals(axis: Axes, names: Sequence[str], figures: pd.DataFrame, colours: Sequence[str]) -> None:
    """A line a predictor from the top, with its interval."""
    values = figures.to_numpy(dtype=float)  # (N, 3): value, low, high
    for place, ((value, low, high), colour) in enumerate(zip(values, colours, strict=True)):
        if low == low:
            axis.plot([low, high], [place, place], "-", color=colour, linewidth=1.2)
        axis.plot([value], [place], "o", color=colour, markersize=5)
    axis.set_yticks(range(len(names)), names)
    axis.set_ylim(len(names) - 0.4, -0.6)
