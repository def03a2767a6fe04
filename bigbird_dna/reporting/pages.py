"""Figures and pages: plotly figures as JSON, and HTML pages from Jinja templates.

A page is one file without network access: the scripts of plotly and DataTables are inside, user input is
escaped, and the page's content security policy blocks all requests.
"""

from __future__ import annotations

import base64
import re
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from bigbird_dna.disk.atomic import atomic_path, reading

if TYPE_CHECKING:
    from markupsafe import Markup
    from plotly.graph_objects import Figure

SUFFIX = ".plotly.json"
"""Suffix of the files of figures."""
PANEL_WIDTH = 300
"""Width in pixels of a panel: three fit on a page of 1,000 pixels."""


def style_figure(figure: Figure, panels: int = 1) -> Figure:
    """Give a figure, with `panels` side by side, the common style; return it."""
    figure.update_layout(
        template="plotly_white",
        margin={"l": 60, "r": 20, "t": 40, "b": 50},
        legend={"orientation": "h", "y": -0.18, "title": None},
        font={"family": "system-ui, sans-serif", "size": 13},
    )
    if panels > 1:
        figure.update_layout(width=panels * PANEL_WIDTH)

    # Facets are labeled "column=value" by default.
    figure.for_each_annotation(
        lambda label: label.update(text=label.text.rpartition("=")[2])
    )
    return figure


def add_diagonal(figure: Figure) -> None:
    """Add the line of equal values to each panel of a figure whose axes are rates."""
    line = {"color": "#bbbbbb"}
    figure.add_shape(
        type="line",
        x0=0,
        y0=0,
        x1=1,
        y1=1,
        line=line,
        layer="below",
        row="all",
        col="all",
    )


def write_figure(figure: Figure, path: Path, panels: int = 1) -> None:
    """Write a figure, with `panels` side by side, as JSON in the common style."""
    style_figure(figure, panels)
    with atomic_path(path) as temporary:
        temporary.write_text(figure.to_json(), encoding="utf-8")


def read_figure(path: Path) -> Markup:
    """Return a figure as HTML; an SVG file is shown as an image, in which scripts don't run."""
    from markupsafe import Markup
    from plotly.io import from_json

    if path.suffix == ".svg":
        content = base64.b64encode(path.read_bytes()).decode()
        return Markup('<img alt="{}" src="data:image/svg+xml;base64,{}">').format(
            path.stem, content
        )

    with reading(path, "not a figure of plotly", ValueError):
        figure = from_json(path.read_text(encoding="utf-8"))

    return figure_html(figure, path.name.removesuffix(SUFFIX))


def figure_html(figure: Figure, name: str) -> Markup:
    """Return a figure as HTML, with a button that saves it as NAME.svg."""
    from markupsafe import Markup

    html = figure.to_html(
        full_html=False,
        include_plotlyjs=False,
        div_id=f"figure-{name}",
        config={
            "displaylogo": False,
            "responsive": True,
            "toImageButtonOptions": {"format": "svg", "filename": name},
        },
    )
    return Markup(html)


def read_page_table(path: Path) -> Markup:
    """Return a table (TSV) as HTML; `DataError` if it is not a table."""
    with reading(path, "not a table", ValueError):
        table = pd.read_csv(path, sep="\t", keep_default_na=False, na_values=[""])
    return page_table(table)


def page_table(table: pd.DataFrame) -> Markup:
    """Return a table that can be sorted and searched; intervals become one column, empty columns are dropped.

    Median distances are in whole bp.
    """
    from markupsafe import Markup

    shown = table.replace("", None).dropna(axis="columns", how="all")
    for name in table.columns:
        form = ".0f" if name == "median_distance" else ".4f"
        if form == ".0f" and name in shown:
            shown[name] = shown[name].map("{:.0f}".format, na_action="ignore")
        low, high = f"{name}_low", f"{name}_high"
        if low in shown and high in shown:
            ends = zip(shown[low], shown[high], strict=True)
            shown[low] = [
                "" if first != first else f"{first:{form}}\u00a0to\u00a0{last:{form}}"
                for first, last in ends
            ]
            shown = shown.drop(columns=high).rename(columns={low: f"{name}, 95 %"})

    shown.columns = shown.columns.str.replace("_", " ")
    html = shown.to_html(
        index=False,
        border=0,
        classes="sortable",
        na_rep="",
        float_format=lambda value: (
            f"{value:.4f}" if abs(value) > 1e-3 else f"{value:.3g}"
        ),
    )
    # Without the indentation, which is half of a large table.
    html = re.sub(r"\n\s*", "", html)
    return Markup(f'<div class="scroll" tabindex="0">{html}</div>')


def render_page(template: str, **values: Any) -> str:
    """Render an HTML page from a template; all `values` are escaped, and missing names raise an error."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from plotly.offline import get_plotlyjs

    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=PackageLoader("bigbird_dna", "reporting"),
    )
    datatables = files("itables").joinpath("html")
    script = datatables.joinpath("dt_bundle.js").read_bytes()
    return environment.get_template(template).render(
        plotly=get_plotlyjs(),
        table_style=datatables.joinpath("dt_bundle.css").read_text(encoding="utf-8"),
        table_script=base64.b64encode(script).decode(),
        version=version("bigbird-dna"),
        **values,
    )
