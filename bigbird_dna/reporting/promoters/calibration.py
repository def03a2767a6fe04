"""Whether promoter probabilities hold on the test windows: as the models give them, and calibrated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.calibration.stored import FILE, read_calibration
from bigbird_dna.disk.atomic import checksum
from bigbird_dna.metrics.auroc import Z95
from bigbird_dna.metrics.curves import Floats
from bigbird_dna.metrics.reliability import calibration_metrics, reliability, rising_curve
from bigbird_dna.reporting.promoters.figures import square_panel
from bigbird_dna.reporting.promoters.predictions import Judged, read_predictions
from bigbird_dna.reporting.style import BLUE, ORANGE, PALE, interval, panels, save_figure

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

RAW, CALIBRATED = "raw", "calibrated"
LOOKS = {RAW: ("as the model gives them", ORANGE), CALIBRATED: ("calibrated", BLUE)}
_WEIGHTS = "model.safetensors"


class Held(NamedTuple):
    """Test windows of a negative set, with their probabilities (N,) by `RAW` and, if known, `CALIBRATED`.

    Among them are further negatives, if the predictions have any.
    """

    negative_set: str
    labels: NDArray[np.int64]  # (N,)
    pairs: NDArray[np.int64]  # (N,)
    negative_weight: float
    probabilities: Mapping[str, Floats]


def calibrated(negative_set: str, predictions: Path) -> Held:
    """The model's probabilities, and calibrated ones if `calibration.json` lies beside its predictions.

    Raises
    ------
    DataError
        The predictions can't be used, see `read_predictions`.
    ModelError
        That file is damaged, or of other weights than those beside it.
    """
    rows, beside = Judged.of(read_predictions(predictions, further=True), "test"), predictions.parent
    raw = rows.probabilities
    versions: dict[str, Floats] = {RAW: raw}
    if (beside / FILE).is_file():
        weights = checksum(beside / _WEIGHTS) if (beside / _WEIGHTS).is_file() else None
        versions[CALIBRATED] = read_calibration(beside / FILE, weights)(raw).astype(np.float64)
    return Held(negative_set, rows.labels, rows.pairs, rows.negative_weight, versions)


def calibration_table(held: Sequence[Held]) -> pd.DataFrame:
    """A row for each negative set and kind of probabilities, with `calibration_metrics`."""
    import pandas as pd

    rows = []
    for one in held:
        for name, values in one.probabilities.items():
            figures = calibration_metrics(
                one.labels, values, groups=one.pairs, negative_weight=one.negative_weight
            )._asdict()
            rows.append(
                {
                    "negative_set": one.negative_set,
                    "probabilities": name,
                    "n": len(values),
                    "positives": int(one.labels.sum()),
                    **figures,
                }
            )
    return pd.DataFrame(rows)


def calibration_figure(held: Sequence[Held], table: pd.DataFrame, path: Path) -> None:
    """Reliability curves; the legends give the expected calibration error of `calibration_table`'s `table`.

    The line is the rising curve of the least squares, points are bins with the 95 % interval of their share.
    """
    with panels(1, len(held), 4.1, 4.4) as (figure, axes):
        for axis, one in zip(axes, held, strict=True):
            axis.plot([0, 1], [0, 1], color=PALE, linewidth=1.2, zorder=1)
            rows = table[table["negative_set"] == one.negative_set].set_index("probabilities")
            for name in one.probabilities:
                columns = ["ece_debiased", "ece_debiased_low", "ece_debiased_high"]
                error = interval(*map(float, rows.loc[name, columns]))
                _draw(axis, one, name, error)
            axis.set(xlabel="probability", ylabel="share of promoters")
            square_panel(axis, one.negative_set, f"n = {len(one.labels):,}")
            axis.legend(loc="upper left", title="calibration error [95 % CI]", alignment="left")
        save_figure(figure, path)


def _draw(axis: Axes, one: Held, name: str, error: str) -> None:
    words, colour = LOOKS[name]
    values = one.probabilities[name]
    curve = reliability(one.labels, values, negative_weight=one.negative_weight)
    order, best = np.argsort(values, kind="stable"), rising_curve(one.labels, values, one.negative_weight)
    axis.plot(values[order], best[order], color=colour, linewidth=1.1, alpha=0.6)
    spread = Z95 * curve.spread
    low, high = np.minimum(spread, curve.share), np.minimum(spread, 1 - curve.share)
    axis.errorbar(
        curve.probability,
        curve.share,
        yerr=np.stack([low, high]),
        fmt="o",
        markersize=4,
        elinewidth=1,
        color=colour,
        label=f"{words}\n{error}",
    )
