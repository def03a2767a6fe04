"""One look for all figures: the palette, the panels, and saving with the same bytes each time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bigbird_dna.disk.atomic import atomic_path
from bigbird_dna.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe & Ito's palette (2008), told apart under the common forms of color blindness.
BLUE, VERMILLION, GREEN = "#0072B2", "#D55E00", "#009E73"
PURPLE, SKY, ORANGE = "#CC79A7", "#56B4E9", "#E69F00"
SERIES = (BLUE, VERMILLION, GREEN, PURPLE, SKY, ORANGE)
GREY, PALE, INK = "#7A7A7A", "#D9D9D9", "#222222"

FORMATS = (".svg", ".png", ".pdf")

_PARAMETERS: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 8,
    "axes.labelsize": 10,
    "axes.labelcolor": INK,
    "axes.edgecolor": GREY,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E8E8E8",
    "grid.linewidth": 0.8,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "text.color": INK,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "lines.solid_capstyle": "round",
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    # Ids inside an SVG are hashes of this, so that the same figure is the same file.
    "svg.hashsalt": "bigbird_dna",
    "path.simplify_threshold": 0.2,
}


@contextmanager
def panels(
    rows: int, columns: int, width: float, height: float, **grid: Any
) -> Iterator[tuple[Figure, list[Axes]]]:
    """A figure of `rows` × `columns` panels of `width` × `height` inches, in reading order.

    Draw and save inside the block: the style holds there only, and nothing global is touched.
    """
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_PARAMETERS):  # type: ignore[arg-type]
        figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False, **grid)
        yield figure, list(axes.flat)


def add_legend(axis: Axes) -> None:
    """A legend where it is in nobody's way; none where there is nothing to tell apart."""
    if axis.get_legend_handles_labels()[0]:
        axis.legend(loc="best")


def square_panel(axis: Axes, negative_set: str, rows: str) -> None:
    """Let a panel go from 0 to 1 both ways, and name its negative set and how many rows are in it."""
    axis.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.01))
    axis.set_box_aspect(1)
    axis.set_title(f"{negative_set} negatives")
    axis.text(
        1, 1.02, rows, transform=axis.transAxes, ha="right", va="bottom", fontsize=9, color=GREY
    )  # fmt: skip


def show_text(axis: Axes, text: str) -> None:
    """Text instead of a panel that has nothing to show."""
    axis.text(0.5, 0.5, text, ha="center", va="center", transform=axis.transAxes, color=GREY)
    axis.set(xticks=[], yticks=[])


def save_figure(figure: Figure, path: Path, dpi: int = 150) -> None:
    """Write SVG, PNG or PDF by the suffix of `path`, whole or not at all; no date goes in."""
    check_format(path)
    metadata = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(path.suffix.lower())
    with atomic_path(path) as temporary:
        figure.savefig(temporary, metadata=metadata, dpi=dpi)


def check_format(path: Path) -> None:
    """Refuse a figure's name whose suffix is not one of `FORMATS`."""
    if path.suffix.lower() not in FORMATS:
        raise UsageError(f"{path}: a figure ends in {', '.join(FORMATS)}")


def interval(value: float, low: float, high: float) -> str:
    """A figure and its interval as legends show them: `0.894 [0.871, 0.917]`."""
    if value != value:
        return "not defined"
    return f"{value:.3f}" if low != low else f"{value:.3f} [{low:.3f}, {high:.3f}]"
