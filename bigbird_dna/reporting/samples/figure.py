"""How far samples are from the genome, k by k, and their GC beside the genome's."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bigbird_dna.reporting.language_model.figures import apart
from bigbird_dna.reporting.samples.comparing import CHAIN, REAL, SAMPLES, Compared
from bigbird_dna.reporting.samples.spectra import GC_WINDOW
from bigbird_dna.reporting.style import BLUE, GREEN, GREY, panels, save_figure

_LEAST = 1e-7  # bits; what is less is drawn there


def samples_figure(compared: Compared, path: Path) -> None:
    """Draw divergences against k on a logarithmic axis, and histograms of GC."""
    with panels(1, 2, 5.4, 4.0) as (figure, (left, right)):
        left.set_yscale("log")
        ends: dict[str, float] = {}  # of chains, by order
        for name, by_k in compared.divergences.items():
            sizes = [*by_k]
            means, low, high = (np.maximum(values, _LEAST) for values in np.array([*by_k.values()]).T)
            if name.startswith(CHAIN):
                left.plot(sizes, means, color=GREY, linewidth=0.9, linestyle="--", zorder=1)
                ends[name.removeprefix(f"{CHAIN} ")] = float(np.log10(means[-1]))
                continue
            colour = BLUE if name == SAMPLES else GREEN
            left.fill_between(sizes, low, high, color=colour, alpha=0.2, linewidth=0)
            left.plot(sizes, means, color=colour, marker="o", markersize=5, label=name, zorder=3)
        bottom, top = np.log10(left.get_ylim())
        ranked = sorted(ends, key=ends.__getitem__)
        places = apart(np.array([ends[order] for order in ranked]), (top - bottom) * 0.035)
        for order, place in zip(ranked, places.tolist(), strict=True):
            left.annotate(
                order, (sizes[-1], 10**place), xytext=(6, 0), fontsize=8,
                textcoords="offset points", color=GREY, va="center",
            )  # fmt: skip
        left.plot([], [], color=GREY, linewidth=0.9, linestyle="--", label="Markov chains, by order")
        left.set(xlabel="k", ylabel="divergence from the held-out genome, bits")
        left.set_title("k-mers")
        left.legend(loc="lower right")
        for name, colour in ((REAL, GREEN), (SAMPLES, BLUE)):
            content = compared.contents[name]
            right.hist(
                content.windows, bins=np.linspace(0, 1, 51).tolist(), density=True, color=colour, alpha=0.45,
                label=f"{name}, {content.gc:.1%}",
            )  # fmt: skip
        right.set(xlabel=f"GC of {GC_WINDOW} bp", ylabel="density", xlim=(0, 1))
        right.set_title("GC")
        right.legend(loc="upper right")
        save_figure(figure, path)
