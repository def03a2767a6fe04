"""The page of a track report: one file that needs no network, and no script to be read.

Everything that comes from a user is escaped; the page's own policy lets no other script run and no
address be fetched.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigbird_dna.reporting.track_curves import POINTS, decode_curve
from bigbird_dna.reporting.track_svg import (
    COLOURS,
    MAX_STRIPS,
    Curve,
    Dot,
    Strip,
    curve_plot,
    marker,
    scatter_plot,
    strip_plot,
    swatch,
)
from bigbird_dna.reporting.track_tables import ALL, PUBLISHED, ReportTrack, left_out, other_auroc

if TYPE_CHECKING:
    import pandas as pd

# Curves that are told apart by colour.
SLOTS = 8
_LONG_LIST = 60


class Source(NamedTuple):
    """A file behind the report."""

    role: str
    name: str
    size: int
    sha256: str  # "" for an array in memory


@dataclass(frozen=True)
class Page:
    """What the page shows; tables as `tracks_table` and `groups_table` make them."""

    title: str
    tracks: Sequence[ReportTrack]
    table: pd.DataFrame
    groups: pd.DataFrame
    curves: Sequence[str]  # encoded
    rows: int
    compare: Sequence[str]
    sources: Sequence[Source]
    command: str
    version: str
    min_positives: int

    @property
    def group_names(self) -> list[str]:
        return list(dict.fromkeys(track.group for track in self.tracks))

    @property
    def others(self) -> list[str]:
        """What the AUROCs are compared with."""
        return [PUBLISHED] * ("published_auroc" in self.table) + list(self.compare)


def report_page(page: Page) -> str:
    """The page as HTML text."""
    resources = files("bigbird_dna.reporting")
    style = resources.joinpath("track_report.css").read_text(encoding="utf-8")
    script = resources.joinpath("track_report.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; "
        "base-uri 'none'; form-action 'none'"
    )
    chosen = default_tracks(page)
    body = "\n".join(
        part
        for part in (
            _head(page),
            _cards(page),
            _distributions(page),
            _curves(page, chosen),
            _comparisons(page),
            _track_table(page, chosen),
            _left_out(page),
            _made(page),
        )
        if part
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="color-scheme" content="light dark">
<title>{escape(page.title)}</title>
<style>
{style}</style>
</head>
<body>
{body}
<script type="application/json" id="data">{_data(page, chosen)}</script>
<script>{script}</script>
</body>
</html>
"""


def default_tracks(page: Page) -> list[int]:
    """Rows of the tracks whose curves are shown at first: in each group that nearest its median."""
    chosen: list[int] = []
    counted = page.table[page.table["counted"]]
    areas = counted["auroc"].to_numpy()
    rows = counted.index.to_numpy()
    for group in page.group_names[:COLOURS]:
        inside = (counted["group"] == group).to_numpy()
        if inside.any():
            nearest = np.abs(areas[inside] - np.median(areas[inside])).argmin()
            chosen.append(int(rows[inside][nearest]))
    if len(chosen) == 1:  # a single group: also its best and its worst
        chosen = [int(rows[areas.argmax()]), *chosen, int(rows[areas.argmin()])]
    return list(dict.fromkeys(chosen))


def _head(page: Page) -> str:
    counted = int(page.table["counted"].sum())
    out = len(page.table) - counted
    count = f"{counted:,} of {len(page.table):,} tracks" if out else f"{counted:,} tracks"
    more = (
        '; <a href="#left-out">' + (f"{out:,} are" if out > 1 else "1 is") + " left out</a>"
        if out
        else ""
    )
    return (
        f"<header><h1>{escape(page.title)}</h1>"
        f"<p>{page.rows:,} rows, {count} judged{more}. AUROC: how often a positive scores above a "
        "negative (0.5 is chance); intervals are 95 %, by DeLong’s method on the logit scale. AUPRC: "
        "average precision (chance is the share of positives, the prevalence).</p></header>"
    )


def _cards(page: Page) -> str:
    names = page.group_names
    cards = []
    for row in page.groups.to_dict("records"):
        group = str(row["group"])
        total = group not in names
        mark = "" if total else marker(names.index(group))
        lines = [f"<dt>median AUPRC</dt><dd>{_number(row['median_auprc'])}</dd>"]
        lines.append(f"<dt>tracks</dt><dd>{row['tracks']:,}</dd>")
        for name in page.others:
            lines.append(
                f"<dt>AUROC, {escape(_label(name))}</dt>"
                f"<dd>{_number(row[f'median_auroc_{name}'])}</dd>"
            )
        title = "All tracks" if total or group == ALL else group
        cards.append(
            f'<div class="card"><h3>{mark}{escape(title)}</h3>'
            f'<p class="big">{_number(row["median_auroc"])}</p><p class="sub">median AUROC</p>'
            f"<dl>{''.join(lines)}</dl></div>"
        )
    many = " many" if len(cards) > 8 else ""
    return (
        f'<section id="groups"><h2>By group</h2><div class="cards{many}">{"".join(cards)}</div>'
        "</section>"
    )


def _distributions(page: Page) -> str:
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


def _strips(page: Page, column: str) -> list[Strip]:
    counted = page.table[page.table["counted"] & page.table[column].notna()]
    numbers = {name: number for number, name in enumerate(page.group_names)}
    found: dict[str, list[Dot]] = {name: [] for name in numbers}
    for row, group, track, value in zip(
        counted.index, counted["group"], counted["track"], counted[column], strict=True
    ):
        title = f"{track}: {_number(value)}"
        found[group].append(Dot(int(row), numbers[group], title, float(value)))
    kept = sorted(found, key=lambda name: -len(found[name]))[:MAX_STRIPS]
    return [Strip(name, dots) for name, dots in found.items() if name in kept and dots]


def _curves(page: Page, chosen: Sequence[int]) -> str:
    if not chosen:
        return ""
    curves = [Curve(slot, decode_curve(page.curves[row])) for slot, row in enumerate(chosen)]
    legend = "".join(
        f"<li>{swatch(slot)}"
        f"{escape(str(page.table['track'][row]))} "
        f"<small>AUROC {_number(page.table['auroc'][row])}, "
        f"AUPRC {_number(page.table['auprc'][row])}</small></li>"
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
        f'<div class="pair square">{curve_plot("roc", curves)}{curve_plot("pr", curves)}</div>'
        "</section>"
    )


def _comparisons(page: Page) -> str:
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
                f"{track}: {_number(ours)} here, {_number(theirs)} {_label(name)} "
                f"({_signed(ours - theirs)})",
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
            f"median difference {_signed(known[delta].median())}."
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
            f"{scatter_plot(dots, f'AUROC, {_label(name)}', 'AUROC here')}"
            f"{strip_plot(_strips(page, delta), 'difference of AUROC', zero=True)}</div>"
        )
    if not parts:
        return ""
    return f'<section id="comparison"><h2>Comparison</h2>{_group_legend(page)}{"".join(parts)}</section>'


def _group_legend(page: Page) -> str:
    names = page.group_names
    if len(names) < 2:
        return ""
    items = "".join(
        f"<li>{marker(number)}{escape(name)}</li>"
        for number, name in enumerate(names[: 4 * COLOURS])
    )
    return f'<ul class="legend">{items}</ul>'


def _track_table(page: Page, chosen: Sequence[int]) -> str:
    facts = _facts(page)
    several = len(page.group_names) > 1
    notes = any(page.table["note"])
    # Fixed widths (rem): a browser need not measure every cell again for each sort.
    words = {"Track": 13.0} | ({"Group": 5.5} if several else {})
    words |= {fact.capitalize(): 8.0 for fact in facts}
    numbers = {"AUROC (95 % interval)": 10.0, "AUPRC": 5.0, "Positives": 6.5, "Prevalence": 7.4}
    for name in page.others:
        width = 6.5 if name == PUBLISHED else 12.5
        numbers |= {f"AUROC, {_label(name)}": 6.5, f"Difference to {_label(name)}": width}
    cells = "".join(f'<th scope="col">{escape(text)}</th>' for text in words)
    cells += "".join(f'<th scope="col" class="n">{escape(text)}</th>' for text in numbers)
    cells += '<th scope="col">Note</th>' if notes else ""
    widths = [*words.values(), *numbers.values()] + [12.0] * notes
    columns = '<col class="pick">' + "".join(
        f'<col style="width:{width}rem">' if number else "<col>"
        for number, width in enumerate(widths)
    )
    rows = "\n".join(
        _row(page, i, row, facts, several, notes)
        for i, row in enumerate(page.table.to_dict("records"))
    )
    groups = ""
    if several and len(page.group_names) <= MAX_STRIPS:
        groups = "".join(
            f'<label><input type="checkbox" class="group" value="{number}" checked>'
            f"{marker(number)}{escape(name)}</label>"
            for number, name in enumerate(page.group_names)
        )
    return (
        '<section id="tracks"><h2>Tracks</h2>'
        '<div class="script tools"><label class="search">Search <input type="search" id="search" '
        'autocomplete="off" spellcheck="false" placeholder="words of name, cell, target …"></label>'
        f'{groups}<span id="count" role="status"></span></div>'
        '<p class="script hint">A column’s name sorts by it; a click on a row shows its curves.</p>'
        '<div class="scroll" tabindex="0" role="region" aria-label="Table of tracks">'
        f'<table id="table" style="--width:{sum(widths) + 2:.1f}rem">'
        f"<colgroup>{columns}</colgroup>"
        f'<thead><tr><th class="pick"><span class="hidden">Curves</span></th>{cells}'
        f"</tr></thead>\n<tbody>\n{rows}\n</tbody></table></div></section>"
    )


def _facts(page: Page) -> list[str]:
    """Columns of the table of tracks that say more than the names do."""
    found = []
    for fact in ("cell", "target", "treatment", "description"):
        values = [(getattr(track, fact), track.name) for track in page.tracks]
        if any(value and value not in name for value, name in values):
            found.append(fact)
    return found


def _row(
    page: Page,
    number: int,
    row: dict[Any, Any],
    facts: Sequence[str],
    several: bool,
    notes: bool,
) -> str:
    track = page.tracks[number]
    name = escape(track.name, quote=True)
    group = page.group_names.index(track.group)
    pick = (
        f'<input type="checkbox" class="choose" aria-label="Curves of {name}">'
        if page.curves[number]
        else ""
    )
    cells = [f'<td class="pick">{pick}</td><th scope="row">{_breakable(name)}</th>']
    if several:
        cells.append(f"<td>{marker(group)}{escape(track.group)}</td>")
    cells += [f"<td>{escape(getattr(track, fact))}</td>" for fact in facts]
    area = ""
    if row["auroc"] == row["auroc"]:
        area = f'<b data-f="auroc">{_number(row["auroc"])}</b>'
        if row["auroc_low"] == row["auroc_low"]:
            area += f" <small>{_number(row['auroc_low'])}–{_number(row['auroc_high'])}</small>"
    figures = [
        area,
        f'<span data-f="auprc">{_number(row["auprc"])}</span>',
        f"{row['positives']:,}",
        "" if row["prevalence"] != row["prevalence"] else f"{100 * row['prevalence']:.2f} %",
    ]
    for other in page.others:
        delta = row[f"delta_{other}"]
        text = _signed(delta)
        if other != PUBLISHED and row[f"delta_{other}_low"] == row[f"delta_{other}_low"]:
            interval = [_signed(row[f"delta_{other}_{end}"]) for end in ("low", "high")]
            text += f" <small>{interval[0]} to {interval[1]}</small>"
        figures += [_number(row[other_auroc(other)]), text]
    cells += [f'<td class="n">{text}</td>' for text in figures]
    if notes:
        cells.append(f'<td class="note">{escape(str(row["note"]))}</td>')
    return f'<tr data-i="{number}" data-g="{group}">{"".join(cells)}</tr>'


def _left_out(page: Page) -> str:
    found = left_out(page.table)
    if not found:
        return ""
    parts = []
    for reason, names in found.items():
        listed = ", ".join(escape(name) for name in names)
        opened = " open" if len(names) <= _LONG_LIST else ""
        parts.append(
            f"<details{opened}><summary>{escape(reason)}: {len(names):,}</summary>"
            f"<p>{listed}</p></details>"
        )
    return (
        '<section id="left-out"><h2>Left out</h2><p>These take no part in medians and means.</p>'
        f"{''.join(parts)}</section>"
    )


def _made(page: Page) -> str:
    rows = "".join(
        f"<tr><td>{escape(source.role)}</td><td><code>{escape(source.name)}</code></td>"
        f'<td class="n">{source.size:,}</td><td><code class="sum">{source.sha256}</code></td></tr>'
        for source in page.sources
    )
    command = f"<pre><code>{escape(page.command)}</code></pre>" if page.command else ""
    few = (
        f"<p>Tracks with fewer than {page.min_positives:,} positives are left out of the figures of "
        "their group.</p>"
        if page.min_positives > 1
        else ""
    )
    return (
        f'<section id="made"><h2>How it was made</h2><p>bigbird-dna {escape(page.version)}</p>'
        f'{command}{few}<div class="scroll"><table><thead><tr><th>Used as</th><th>File</th>'
        f'<th class="n">Bytes</th><th>SHA-256</th></tr></thead><tbody>{rows}</tbody></table></div>'
        "<p>The same figures with all digits: <code>tracks.tsv</code> and <code>groups.tsv</code>. "
        f"Curves on this page are thinned: on either axis they are off by at most {200 / POINTS:.1f} %, "
        "mostly far less.</p></section>"
    )


def _data(page: Page, chosen: Sequence[int]) -> str:
    """What the script needs; safe inside a script element."""
    data = {"curves": list(page.curves), "chosen": list(chosen), "slots": SLOTS}
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _label(name: str) -> str:
    return "published" if name == PUBLISHED else name


def _breakable(name: str) -> str:
    """An escaped name that lines may break in after its separators."""
    return re.sub(r"(?<=[|._/:])(?=[^|._/:])", "<wbr>", name)


def _number(value: float) -> str:
    return "" if value != value else f"{value:.3f}"


def _signed(value: float) -> str:
    if value != value:
        return ""
    text = f"{value:+.3f}".replace("-", "−")
    return text if text.strip("+−0.") else "0.000"
