"""Figures of classifications and scores, by scikit-learn's and SciPy's definitions, which are GLUE's."""

import warnings
from collections.abc import Sequence
from typing import Any

Figures = dict[str, float | None]


def class_figures(true: Sequence[str], predicted: Sequence[str], positive: str | None) -> Figures:
    """Accuracy, micro-averaged F1 and Matthews' correlation; F1 of one class where there are two.

    Parameters
    ----------
    positive
        The class whose F1 it is; none: the last by name, as of GLUE's "0" and "1".

    With one class only, Matthews' correlation is 0 by definition; F1 of a class that is neither there nor
    predicted is 0.
    """
    from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

    classes = sorted({*true, *predicted})
    figures: Figures = {
        "accuracy": float(accuracy_score(true, predicted)),
        "micro_f1": float(f1_score(true, predicted, average="micro", zero_division=0)),
        "matthews": float(matthews_corrcoef(true, predicted)) if len(classes) > 1 else 0.0,
    }
    if positive is None and len(classes) == 2:
        positive = classes[-1]
    if positive is not None:
        mine = [[name == positive for name in names] for names in (true, predicted)]
        figures["f1"] = float(f1_score(*mine, zero_division=0))
    return figures


def score_figures(true: Sequence[float], predicted: Sequence[float]) -> Figures:
    """Pearson's and Spearman's correlations, ties having mean ranks; None where one side is all the same."""
    from scipy.stats import pearsonr, spearmanr

    if len(true) < 2 or min(len({*true}), len({*predicted})) < 2:
        return {"pearson": None, "spearman": None}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of values that are nearly the same: told by the figure
        found: list[Any] = [pearsonr(true, predicted), spearmanr(true, predicted)]
    values = [float(one.statistic) for one in found]
    return {
        name: value if value == value else None
        for name, value in zip(("pearson", "spearman"), values, strict=True)
    }
