"""Linear probes of frozen encoders, as a table and a figure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from numpy.typing import NDArray

from bigbird_dna.disk.directories import into_directory
from bigbird_dna.metrics.auroc import UNDEFINED, Estimate, auroc, auroc_difference
from bigbird_dna.reporting.study.models import PRETRAINED, RANDOM
from bigbird_dna.reporting.style import BLUE, GREY, PALE, VERMILLION, interval, panels, save_figure
from bigbird_dna.reporting.tables import write_tsv

if TYPE_CHECKING:
    import pandas as pd

KMERS = "k-mers"
_LOOKS = {PRETRAINED: ("pretrained weights", BLUE, "o"), RANDOM: ("random weights", VERMILLION, "s")}


class Probed(NamedTuple):
    """What a probe says of the test windows."""

    weights: str  # pretrained, random, or `KMERS`
    layer: int | None  # 0: the embeddings; none: the k-mers'
    penalty: float  # inverse strength
    scores: NDArray[Any]  # (N,)


def probe_report(labels: NDArray[Any], probes: Sequence[Probed], output: Path) -> pd.DataFrame:
    """Write `probes.tsv` and `probes.svg` to the directory `output`; labels (N,) of the test windows.

    `gain` is the AUROC of a layer of the pretrained encoder minus that of the same layer of random weights.
    AUROCs and differences have DeLong's intervals.
    """
    table = _table(labels, probes)
    with into_directory(output) as files:
        write_tsv(files / "probes.tsv", table)
        _figure(table, files / "probes.svg")
    return table


def _table(labels: NDArray[Any], probes: Sequence[Probed]) -> pd.DataFrame:
    import pandas as pd

    random = {probe.layer: probe.scores for probe in probes if probe.weights == RANDOM}
    rows = []
    for weights, layer, penalty, scores in probes:
        gain = UNDEFINED
        if weights == PRETRAINED and layer in random:
            gain = auroc_difference(labels, scores, random[layer])
        area = auroc(labels, scores).columns("auroc")
        rows.append(
            {"weights": weights, "layer": layer, **area, **gain.columns("gain"), "inverse_penalty": penalty}
        )
    # Whole numbers, and nothing for the k-mers.
    return pd.DataFrame(rows).astype({"layer": "Int64"})


def _figure(table: pd.DataFrame, path: Path) -> None:
    with panels(1, 1, 6.4, 4.2) as (figure, axes):
        axis = axes[0]
        for row in table[table["weights"] == KMERS].to_dict("records"):
            area = Estimate(row["auroc"], row["auroc_low"], row["auroc_high"])
            axis.axhspan(area.low, area.high, color=PALE, alpha=0.5, linewidth=0)
            axis.axhline(area.value, color=GREY, linestyle=(0, (5, 2)), label=f"{KMERS} {interval(*area)}")
        for number, (weights, (label, colour, marker)) in enumerate(_LOOKS.items()):
            own = table[table["weights"] == weights]
            if own.empty:
                continue
            places = own["layer"].to_numpy(dtype=float) + 0.06 * (2 * number - 1)
            middle = own["auroc"].to_numpy(dtype=float)
            low, high = (own[f"auroc_{end}"].to_numpy(dtype=float) for end in ("low", "high"))
            axis.errorbar(
                places,
                middle,
                yerr=[middle - low, high - middle],
                color=colour,
                marker=marker,
                markersize=5,
                capsize=2,
                elinewidth=1,
                label=label,
            )
        layers = sorted({int(layer) for layer in table["layer"].dropna()})
        if len(layers) <= 16:
            axis.set_xticks(layers, ["0\nembeddings" if layer == 0 else str(layer) for layer in layers])
        axis.set(xlabel="layer", ylabel="AUROC, test", title="Linear probes of frozen encoders")
        axis.legend(loc="best")
        save_figure(figure, path)
