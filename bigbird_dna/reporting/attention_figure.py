"""A picture of an attention pattern: which key blocks each query block sees, and why."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bigbird_dna.files import atomic_path

# Kinds of blocks, by their number: nothing, global, window, random (Okabe and Ito's colours, told apart by
# readers with colour-vision deficiencies and, by lightness, in print).
KINDS = ("not seen", "global", "window", "random")
COLOURS = ("#f4f4f4", "#0072b2", "#e69f00", "#009e73")


def save_attention_figure(
    kinds: npt.NDArray[np.integer[Any]], path: Path, *, block_size: int, title: str = ""
) -> None:
    """Draw one panel a head: query blocks downwards, key blocks to the right, coloured by kind.

    Parameters
    ----------
    kinds : (Q, Q) or (H, Q, Q) integers: 0 not seen, 1 global, 2 window, 3 random.
    path : the suffix (.svg, .png, .pdf) says the format; appears whole or not at all.
    block_size : tokens in a block, for the labels.
    title : above the panels.

    Raises
    ------
    ValueError
        `kinds` isn't square or holds other numbers.
    """
    kinds = np.asarray(kinds)
    panels = kinds[None] if kinds.ndim == 2 else kinds
    if panels.ndim != 3 or panels.shape[1] != panels.shape[2] or panels.size == 0:
        raise ValueError(
            f"kinds must be (blocks, blocks) or (heads, blocks, blocks), not {kinds.shape}"
        )
    outside = panels[(panels < 0) | (panels >= len(KINDS))]
    if outside.size:
        raise ValueError(f"kinds must be numbers from 0 to {len(KINDS) - 1}, got {outside[0]}")

    import matplotlib
    from matplotlib.colors import ListedColormap
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    blocks = panels.shape[1]
    figure = Figure(figsize=(0.6 + 3.4 * len(panels), 4.5), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for head, (axis, panel) in enumerate(zip(axes, panels, strict=True)):
        axis.pcolormesh(
            np.arange(blocks + 1),
            np.arange(blocks + 1),
            panel,
            cmap=ListedColormap(COLOURS),
            vmin=-0.5,
            vmax=len(KINDS) - 0.5,
            edgecolors="white",
            linewidth=min(0.8, 24 / blocks),
            rasterized=blocks > 128,  # a vector cell each would make the file huge
        )
        axis.set(aspect="equal", xlim=(0, blocks), ylim=(blocks, 0), xlabel="key block")
        axis.spines[:].set_visible(False)
        axis.tick_params(length=0, labelsize=8)
        ticks = np.unique(np.linspace(0, blocks - 1, min(blocks, 5)).round().astype(int))
        axis.set_xticks(ticks + 0.5, [str(tick) for tick in ticks])
        axis.set_yticks(ticks + 0.5, [str(tick) for tick in ticks])
        if len(panels) > 1:
            axis.set_title(f"head {head}", fontsize=9)
    axes[0].set_ylabel(f"query block ({block_size} tokens each)")
    seen = (panels > 0).mean()
    present = [kind for kind in range(len(KINDS)) if (panels == kind).any()]
    figure.legend(
        handles=[
            Patch(facecolor=COLOURS[kind], edgecolor="#bbbbbb", label=KINDS[kind])
            for kind in present
        ],
        loc="outside lower center",
        ncols=len(present),
        frameon=False,
        fontsize=8,
        title=f"{seen:.0%} of all pairs of blocks are seen",
        title_fontsize=8,
    )
    if title:
        figure.suptitle(f"{title}\n", fontsize=11)  # the line end keeps it off the panels' titles
    # Neither a date nor random identifiers: the same pattern gives the same file.
    with matplotlib.rc_context({"svg.hashsalt": "bigbird-dna"}), atomic_path(path) as temporary:
        metadata = {"Date": None} if path.suffix == ".svg" else None
        figure.savefig(temporary, dpi=200, metadata=metadata)
