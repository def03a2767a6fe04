"""The section of the page with the table of tracks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from bigbird_dna.reporting.tracks.page.content import Page
from bigbird_dna.reporting.tracks.page.svg import MAX_STRIPS, marker
from bigbird_dna.reporting.tracks.page.text import breakable, decimal, predictor_label, signed
from bigbird_dna.reporting.tracks.tables import PUBLISHED, other_auroc


def track_table(page: Page) -> str:
    """A row a track, in the order of its table, which a script can sort, search and choose from."""
    facts = _facts(page)
    several = len(page.group_names) > 1
    notes = any(page.table["note"])
    # Fixed widths (rem): a browser need not measure every cell again for each sort.
    words = {"Track": 13.0} | ({"Group": 5.5} if several else {})
    words |= {fact.capitalize(): 8.0 for fact in facts}
    numbers = {"AUROC (95 % interval)": 10.0, "AUPRC": 5.0, "Positives": 6.5, "Prevalence": 7.4}
    for name in page.others:
        width = 6.5 if name == PUBLISHED else 12.5
        numbers |= {
            f"AUROC, {predictor_label(name)}": 6.5,
            f"Difference to {predictor_label(name)}": width,
        }
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
    row: Mapping[Any, Any],
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
    cells = [f'<td class="pick">{pick}</td><th scope="row">{breakable(name)}</th>']
    if several:
        cells.append(f"<td>{marker(group)}{escape(track.group)}</td>")
    cells += [f"<td>{escape(getattr(track, fact))}</td>" for fact in facts]
    area = ""
    if row["auroc"] == row["auroc"]:
        area = f'<b data-f="auroc">{decimal(row["auroc"])}</b>'
        if row["auroc_low"] == row["auroc_low"]:
            area += f" <small>{decimal(row['auroc_low'])}–{decimal(row['auroc_high'])}</small>"
    figures = [
        area,
        f'<span data-f="auprc">{decimal(row["auprc"])}</span>',
        f"{row['positives']:,}",
        "" if row["prevalence"] != row["prevalence"] else f"{100 * row['prevalence']:.2f} %",
    ]
    for other in page.others:
        delta = row[f"delta_{other}"]
        text = signed(delta)
        if other != PUBLISHED and row[f"delta_{other}_low"] == row[f"delta_{other}_low"]:
            interval = [signed(row[f"delta_{other}_{end}"]) for end in ("low", "high")]
            text += f" <small>{interval[0]} to {interval[1]}</small>"
        figures += [decimal(row[other_auroc(other)]), text]
    cells += [f'<td class="n">{text}</td>' for text in figures]
    if notes:
        cells.append(f'<td class="note">{escape(str(row["note"]))}</td>')
    return f'<tr data-i="{number}" data-g="{group}">{"".join(cells)}</tr>'
