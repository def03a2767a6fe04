"""HTML pages from Jinja templates: one file without network access; user input is escaped."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

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


def image(path: Path) -> str:
    """Return an SVG file as an address inside a page."""
    return data_uri(path.read_bytes())


def render_page(
    template: str, *, style: str, script: str = "", filters: Any = None, **values: Any
) -> str:
    """Render an HTML page from a template; all `values` are escaped, and missing names raise an error.

    `style` is a style sheet, in addition to `page.css`. `script` is the text of the only script that the
    page's content security policy allows, by its digest.
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
    dumps = {"separators": (",", ":"), "allow_nan": False}
    environment.policies["json.dumps_kwargs"] = dumps
    digest = hashlib.sha256(script.encode()).digest()
    return environment.get_template(template).render(
        style=Markup(resource("page.css") + resource(style)),
        script=Markup(script),
        digest=base64.b64encode(digest).decode(),
        **values,
    )


class PageTable(NamedTuple):
    """Headings, whether each column is numeric, and the cells as text."""

    headings: list[str]
    numeric: list[bool]
    rows: list[list[str]]
    left_out: int = 0  # number of rows beyond `MAX_ROWS`

    @property
    def text(self) -> str:
        """The table as TSV."""
        return "".join("\t".join(row) + "\n" for row in (self.headings, *self.rows))


def read_page_table(path: Path) -> PageTable:
    """Read a table (TSV) for a page; `DataError` if it has no columns."""
    table = read_text_table(path)
    if table.columns.empty:
        raise DataError(f"{path}: the table has no columns")
    return page_table(table)


def page_table(table: pd.DataFrame) -> PageTable:
    """Return a table of text for a page; a value and its interval become one column, empty ones are dropped.

    The ends of an interval are `x_low`, `x_high`, or `low`, `high` after the value.
    """
    names = [*map(str, table.columns)]
    cells = {name: table[name].tolist() for name in names}
    intervals = {}
    for number, name in enumerate(names):
        if {f"{name}_low", f"{name}_high"} <= {*names}:
            intervals[name] = (f"{name}_low", f"{name}_high")
        elif names[number + 1 : number + 3] == ["low", "high"]:
            intervals[name] = ("low", "high")
    ends = {end for pair in intervals.values() for end in pair}
    columns = {}
    for name in names:
        if name in ends or not any(cells[name]):
            continue
        column = [_short(cell) for cell in cells[name][:MAX_ROWS]]
        if name in intervals:
            low, high = (map(_short, cells[end]) for end in intervals[name])
            column = [
                f"{cell} [{first}, {last}]" if cell and first and last else cell
                for cell, first, last in zip(column, low, high, strict=False)
            ]
        columns[name] = column
    return PageTable(
        [name.replace("_", " ") for name in columns],
        [all(map(_is_number, filter(None, cells[name]))) for name in columns],
        [list(row) for row in zip(*columns.values(), strict=True)],
        max(0, len(table) - MAX_ROWS),
    )


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
