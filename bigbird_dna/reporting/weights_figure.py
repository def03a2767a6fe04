"""A picture of attention weights: how much of each key's value a query takes."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bigbird_dna.reporting.style import save_figure

FAINTEST = 1e-2
"""Of the mean weight of a key: what is below has the same colour."""


def save_weights_figure(weights: npt.NDArray[np.floating[Any]], path: Path, *, title: str = "") -> None:
    """Draw one panel a head: queries downwards, keys to the right, each weight by its ratio to 1 / L.

    Parameters
    ----------
    weights : (H, L, L), rows that sum to 1; a weight of 0 is left white.
    path : the suffix (.svg, .png, .pdf) says the format; appears whole or not at all.
    title : above the panels.

    Raises
    ------
    ValueError
        `weights` isn't square.
    """
    if weights.ndim != 3 or weights.shape[1] != weights.shape[2] or weights.size == 0:
        raise ValueError(f"weights must be (heads, tokens, tokens), not {weights.shape}")

    import matplotlib
    from matplotlib.colors import LogNorm
    from matplotlib.figure import Figure

    tokens = weights.shape[1]
    ratios = np.ma.masked_less_equal(weights * tokens, 0)
    largest = max(float(ratios.max()), 10 * FAINTEST)
    figure = Figure(figsize=(1.6 + 3.4 * len(weights), 4.2), layout="constrained")
    axes = figure.subplots(1, len(weights), squeeze=False)[0]
    for number, (axis, head) in enumerate(zip(axes, ratios, strict=True)):
        shown = axis.imshow(
            head,
            norm=LogNorm(FAINTEST, largest, clip=True),
            cmap="cividis_r",
            interpolation="none",
            extent=(0, tokens, tokens, 0),
        )
        axis.set(xlabel="key, tokens")
        if len(weights) > 1:
            axis.set_title(f"head {number}", fontsize=9)
    axes[0].set_ylabel("query, tokens")
    figure.colorbar(shown, ax=list(axes), label="weight, times 1 / tokens", shrink=0.8)
    if title:
        figure.suptitle(title, fontsize=11)
    with matplotlib.rc_context({"svg.hashsalt": "bigbird-dna"}):
        save_figure(figure, path, dpi=200)
