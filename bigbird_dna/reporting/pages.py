"""HTML pages from Jinja templates: one file without network access; user input is escaped."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from bigbird_dna.disk.tables import read_text_table
from bigbird_dna.errors import DataError

MAX_ROWS = 5_000
"""Rows of a table on a page, which would otherwise be slow."""


def resource(name: str) -> str:
    """Return the text of a template, style sheet or script."""
    return files("bigbird_dna.reporting").joinpath(name).read_text(encoding="utf-8")


def data_uri(content: bytes | str, kind: str = "image/svg+xml") -> str:
    """Return the content of a file, by default an SVG image, as an address inside a page."""
    stored = content.encode() if isinstance(content, str) else content
    return f"data:{kind};base64,{base64.b64encode(stored).decode()}"


def render_page(
    template: str,
    *,
    style: str,
    filters: Mapping[str, Any] | None = None,
    **values: Any,
) -> str:
    """Render an HTML page from a template; all `values` are escaped, and missing names raise an error.

    `style` is a style sheet, in addition to `page.css`.
    """
    from jinja2 import Environment, FunctionLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=FunctionLoader(resource),
    )
    environment.filters |= filters or {}
    environment.policies["json.dumps_kwargs"] = {
        "separators": (",", ":"),
        "allow_nan": False,
    }
    sheets = Markup(resource("page.css") + resource(style))
    return environment.get_template(template).render(style=sheets, **values)


def page_script(*names: str) -> dict[str, Any]:
    """Return the value `script` of a template, and `digest`, by which the page's policy allows it."""
    from markupsafe import Markup

    script = "".join(map(resource, names))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return {"script": Markup(script), "digest": digest}


class ShownTable(NamedTuple):
    """Headings, whether each column is numeric, and the cells as text."""

    headings: list[str]
    numeric: list[bool]
    rows: list[list[str]]
    left_out: int = 0  # number of rows beyond `MAX_ROWS`

    @property
    def text(self) -> str:
        """The table as TSV."""
        return "".join("\t".join(row) + "\n" for row in (self.headings, *self.rows))


def shown_table(path: Path) -> ShownTable:
    """Read a table for display; a value and its interval become one column, and empty columns are dropped.

    The ends of an interval are `x_low`, `x_high`, or `low`, `high` after the value.
    """
    table = read_text_table(path)
    names = [str(name) for name in table.columns]
    if not names:
        raise DataError(f"{path}: the table has no columns")
    intervals = {}
    for number, name in enumerate(names):
        if {f"{name}_low", f"{name}_high"} <= {*names}:
            intervals[name] = (f"{name}_low", f"{name}_high")
        elif names[number + 1 : number + 3] == ["low", "high"]:
            intervals[name] = ("low", "high")
    ends = {end for pair in intervals.values() for end in pair}

    shown = ShownTable([], [], [], max(0, len(table) - MAX_ROWS))
    columns = []
    for name in names:
        cells = table[name].tolist()
        if name in ends or not any(cells):
            continue
        column = [_short(cell) for cell in cells[:MAX_ROWS]]
        if name in intervals:
            low, high = (map(_short, table[end]) for end in intervals[name])
            column = [
                f"{cell} [{first}, {last}]" if cell and first and last else cell
                for cell, first, last in zip(column, low, high, strict=False)
            ]
        shown.headings.append(name.replace("_", " "))
        shown.numeric.append(all(_is_number(cell) for cell in cells if cell))
        columns.append(column)
    shown.rows.extend(map(list, zip(*columns, strict=True)))
    return shown


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _short(cell: str) -> str:
    """Format fractions with four digits and integers with commas; other text is unchanged."""
    if not _is_number(cell):
        return cell
    value = float(cell)
    if value.is_integer() and "." not in cell and "e" not in cell.lower():
        return f"{int(value):,}"
    digits = f"{value:.4f}" if 1e-3 <= abs(value) < 1e6 else f"{value:.3g}"
    return digits.replace("-", "−")
