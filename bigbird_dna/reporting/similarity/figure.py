"""AUROC by stratum of similarity, a panel for each negative set."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bigbird_dna.reporting.similarity.strata import Strata
from bigbird_dna.reporting.style import GREY, PALE, SERIES, panels, save_figure

if TYPE_CHECKING:
    import pandas as pd

_APART = 0.13  # between two predictors, of the distance between two strata


def similarity_figure(table: pd.DataFrame, strata: Strata, path: Path) -> None:
    """Draw the AUROC of each predictor with its interval; under a stratum stand its windows of each class."""
    sets = list(dict.fromkeys(table["negative_set"]))
    models = list(dict.fromkeys(table["model"]))
    with panels(1, len(sets), 4.4, 3.8, sharey=True) as (figure, axes):
        for axis, negative_set in zip(axes, sets, strict=True):
            of_set = table[table["negative_set"] == negative_set]
            counts = of_set.drop_duplicates("similarity").set_index("similarity")
            axis.axhline(0.5, color=PALE, linewidth=1.2, zorder=1)
            for number, model in enumerate(models):
                own = of_set[of_set["model"] == model].set_index("similarity")
                if own.empty:
                    continue
                rows = own.reindex(strata.names)
                area, low, high = (rows[f"auroc{end}"].to_numpy(float) for end in ("", "_low", "_high"))
                x = np.arange(len(area)) + _APART * (number - (len(models) - 1) / 2)
                colour = SERIES[number % len(SERIES)]
                has = ~np.isnan(low)
                axis.vlines(x[has], low[has], high[has], color=colour, linewidth=1.4, alpha=0.7)
                axis.plot(x, area, "o", color=colour, markersize=5, label=model)
            labels = []
            for name in strata.names:
                n, positives = int(counts.loc[name, "n"]), int(counts.loc[name, "positives"])
                labels.append(f"{name}\n{positives:,} + {n - positives:,}")
            axis.set_xticks(np.arange(len(labels)), labels, fontsize=8)
            axis.set(xlim=(-0.6, len(labels) - 0.4), ylim=(-0.02, 1.02))
            axis.set_title(f"{negative_set} negatives")
            axis.set_xlabel("similarity of the nearest training window; promoters + negatives")
            axis.xaxis.label.set(color=GREY, fontsize=8.5)
        axes[0].set_ylabel("AUROC")
        axes[0].legend(loc="lower left")
        save_figure(figure, path)
