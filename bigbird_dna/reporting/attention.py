"""Plots of attention: the key blocks each query block attends to, by reason, or the weight of each key.

Also plots of the dependencies between bases.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bigbird_dna.reporting.result import save_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def _save(figure: Figure, path: Path, title: str) -> None:
    import matplotlib

    if title:
        figure.suptitle(title, fontsize=11)
    with matplotlib.rc_context({"svg.hashsalt": "bigbird-dna"}):
        save_figure(figure, path, dpi=200)


