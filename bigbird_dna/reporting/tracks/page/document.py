"""The page of a track report: one file that needs no network, and no script to be read.

Everything that comes from a user is escaped; the page's own policy lets no other script run and no
address be fetched.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from html import escape
from importlib.resources import files

from bigbird_dna.reporting.tracks.curves import POINTS
from bigbird_dna.reporting.tracks.page.content import Page, default_tracks
from bigbird_dna.reporting.tracks.page.figures import comparisons, curves, distributions
from bigbird_dna.reporting.tracks.page.svg import SLOTS, marker
from bigbird_dna.reporting.tracks.page.text import decimal, predictor_label
from bigbird_dna.reporting.tracks.page.track_table import track_table
from bigbird_dna.reporting.tracks.tables import ALL, left_out

# A list of tracks longer than this is folded.
_LONG_LIST = 60


def report_page(page: Page) -> str:
    """The page as HTML text."""
    resources = files("bigbird_dna.reporting.tracks.page")
    style = resources.joinpath("report.css").read_text(encoding="utf-8")
    script = resources.joinpath("report.js").read_text(encoding="utf-8")
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
            distributions(page),
            curves(page, chosen),
            comparisons(page),
            track_table(page),
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
        lines = [f"<dt>median AUPRC</dt><dd>{decimal(row['median_auprc'])}</dd>"]
        lines.append(f"<dt>tracks</dt><dd>{row['tracks']:,}</dd>")
        for name in page.others:
            lines.append(
                f"<dt>AUROC, {escape(predictor_label(name))}</dt>"
                f"<dd>{decimal(row[f'median_auroc_{name}'])}</dd>"
            )
        title = "All tracks" if total or group == ALL else group
        cards.append(
            f'<div class="card"><h3>{mark}{escape(title)}</h3>'
            f'<p class="big">{decimal(row["median_auroc"])}</p><p class="sub">median AUROC</p>'
            f"<dl>{''.join(lines)}</dl></div>"
        )
    many = " many" if len(cards) > 8 else ""
    return (
        f'<section id="groups"><h2>By group</h2><div class="cards{many}">{"".join(cards)}</div>'
        "</section>"
    )


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
