"""The sections of the page with figures: distributions, curves, comparisons."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from bigbird_dna.reporting.tracks.curves import decode_curve
from bigbird_dna.reporting.tracks.page.content import Page
from bigbird_dna.reporting.tracks.page.svg import (
    COLOURS,
    MAX_STRIPS,
    SLOTS,
    Curve,
    Dot,
    Strip,
    curve_plot,
    marker,
    scatter_plot,
    strip_plot,
    swatch,
)
from bigbird_dna.reporting.tracks.page.text import decimal, predictor_label, signed
from bigbird_dna.reporting.tracks.tables import PUBLISHED, other_auroc


def distributions(page: Page) -> str:
    """AUROC and AUPRC of the counted tracks by group; nothing where no track counts."""
    if not page.table["counted"].any():
        return ""
    note = ""
    if len(page.group_names) > MAX_STRIPS:
        note = f" The {MAX_STRIPS} largest groups are shown."
    return (
        '<section id="distributions"><h2>Distributions</h2>'
        "<p>One dot a track; the box holds the middle half, the line is the median."
        f'{note}<span class="script"> Click a dot for its curves.</span></p><div class="pair">'
        f"{strip_plot(_strips(page, 'auroc'), 'AUROC')}"
        f"{strip_plot(_strips(page, 'auprc'), 'AUPRC')}</div></section>"
    )


def curves(page: Page, chosen: Sequence[int]) -> str:
    """ROC and precision–recall curves of the tracks in rows `chosen`; nothing where there are none."""
    if not chosen:
        return ""
    drawn = [Curve(slot, decode_curve(page.curves[row])) for slot, row in enumerate(chosen)]
    legend = "".join(
        f"<li>{swatch(slot)}"
        f"{escape(str(page.table['track'][row]))} "
        f"<small>AUROC {decimal(page.table['auroc'][row])}, "
        f"AUPRC {decimal(page.table['auprc'][row])}</small></li>"
        for slot, row in enumerate(chosen)
    )
    which = (
        "the track nearest its group’s median"
        if len(page.group_names) > 1
        else "the best, the middle and the worst track"
    )
    return (
        '<section id="curves"><h2>Curves</h2>'
        f'<p>At first: {which}. <span class="script">Choose others (up to {SLOTS}) in the table or '
        "by clicking a dot.</span></p>"
        f'<ul class="legend" id="legend" aria-live="polite">{legend}</ul>'
        '<p class="script tools"><button type="button" id="default">First choice</button> '
        '<button type="button" id="clear">None</button></p>'
        f'<div class="pair square">{curve_plot("roc", drawn)}{curve_plot("pr", drawn)}</div>'
        "</section>"
    )


def comparisons(page: Page) -> str:
    """AUROCs against each predictor's and the published ones; nothing where there are none."""
    table = page.table[page.table["counted"]]
    numbers = {name: number for number, name in enumerate(page.group_names)}
    parts = []
    for name in page.others:
        column, delta = other_auroc(name), f"delta_{name}"
        known = table[table[column].notna()]
        if known.empty:
            continue
        dots = [
            Dot(
                int(row),
                numbers[group],
                f"{track}: {decimal(ours)} here, {decimal(theirs)} {predictor_label(name)} "
                f"({signed(ours - theirs)})",
                float(theirs),
                float(ours),
            )
            for row, group, track, ours, theirs in zip(
                known.index,
                known["group"],
                known["track"],
                known["auroc"],
                known[column],
                strict=True,
            )
        ]
        what = "what was published" if name == PUBLISHED else name
        better = int((known[delta] > 0).sum())
        text = (
            f"{better:,} of {len(known):,} tracks are above {what}; "
            f"median difference {signed(known[delta].median())}."
        )
        if name != PUBLISHED:
            clear = known[f"delta_{name}_low"] > 0, known[f"delta_{name}_high"] < 0
            text += (
                f" The 95 % interval of the difference lies above zero for {int(clear[0].sum()):,}, "
                f"below it for {int(clear[1].sum()):,}."
            )
        parts.append(
            f"<h3>Compared with {escape(what)}</h3><p>{escape(text)}</p>"
            '<div class="pair versus">'
            f"{scatter_plot(dots, f'AUROC, {predictor_label(name)}', 'AUROC here')}"
            f"{strip_plot(_strips(page, delta), 'difference of AUROC', zero=True)}</div>"
        )
    if not parts:
        return ""
    return f'<section id="comparison"><h2>Comparison</h2>{_group_legend(page)}{"".join(parts)}</section>'


def _strips(page: Page, column: str) -> list[Strip]:
    counted = page.table[page.table["counted"] & page.table[column].notna()]
    numbers = {name: number for number, name in enumerate(page.group_names)}
    found: dict[str, list[Dot]] = {name: [] for name in numbers}
    for row, group, track, value in zip(
        counted.index, counted["group"], counted["track"], counted[column], strict=True
    ):
        title = f"{track}: {decimal(value)}"
        found[group].append(Dot(int(row), numbers[group], title, float(value)))
    kept = sorted(found, key=lambda name: -len(found[name]))[:MAX_STRIPS]
    return [Strip(name, dots) for name, dots in found.items() if name in kept and dots]


def _group_legend(page: Page) -> str:
    names = page.group_names
    if len(names) < 2:
        return ""
    items = "".join(
        f"<li>{marker(number)}{escape(name)}</li>"
        for number, name in enumerate(names[: 4 * COLOURS])
    )
    return f'<ul class="legend">{items}</ul>'
