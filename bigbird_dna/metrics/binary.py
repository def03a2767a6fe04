"""Figures of a binary classifier with 95 % intervals: AUROC, AUPRC, F1 and MCC.

AUROC's interval is DeLong's; the others are percentiles of a bootstrap in which the rows of a group
(a promoter and the negative derived from it) are drawn together.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bigbird_dna.metrics.auroc import UNDEFINED, Estimate, auroc_note, auroc_of
from bigbird_dna.metrics.curves import Floats, Steps, average_precision

THRESHOLD = 0.5
RESAMPLES = 1000
# Weights of this many rows × resamples are held at a time (float64: 32 MB).
CHUNK = 4_000_000


class BinaryMetrics(NamedTuple):
    """Figures with 95 % intervals; NaN, and the reason in `note`, where they are not defined."""

    n: int
    positives: int
    auroc: float
    auroc_low: float
    auroc_high: float
    auprc: float
    auprc_low: float
    auprc_high: float
    f1: float
    f1_low: float
    f1_high: float
    mcc: float
    mcc_low: float
    mcc_high: float
    note: str


def binary_metrics(
    labels: ArrayLike,
    probabilities: ArrayLike,
    seed: int = 0,
    *,
    groups: ArrayLike | None = None,
    resamples: int = RESAMPLES,
) -> BinaryMetrics:
    """Judge `probabilities` (N,) against `labels` (N,) of 0 and 1.

    Parameters
    ----------
    seed
        Of the bootstrap.
    groups
        Ids (N,) of rows that are resampled together, such as pair ids; None: every row on its own.
    resamples
        Bootstrap samples behind the intervals of AUPRC, F1 and MCC.

    Notes
    -----
    AUPRC is average precision (a step function, tied scores taken together). F1 and MCC call a row
    positive from 0.5 on. Both are 0 where nothing is called positive.

    Raises
    ------
    ValueError
        The shapes differ, a label is neither 0 nor 1, or a probability is NaN.
    """
    y, p = np.asarray(labels), np.asarray(probabilities, dtype=np.float64)
    if not np.isin(y, (0, 1)).all():
        raise ValueError("labels must be 0 or 1")
    steps = Steps.of_rows(y, p)
    n, positives = len(y), int(y.sum())
    if steps is None:
        note = auroc_note(positives, n - positives, UNDEFINED)
        return BinaryMetrics(n, positives, *UNDEFINED, *UNDEFINED, *UNDEFINED, *UNDEFINED, note)
    area = auroc_of(steps)
    rows = CountedRows.of(y.astype(bool), p, steps)
    precision, f1, mcc = _bootstrap(rows, _group_ids(groups, n), seed, resamples)
    note = auroc_note(positives, n - positives, area)
    return BinaryMetrics(n, positives, *area, *precision, *f1, *mcc, note)


class CountedRows(NamedTuple):
    """N rows, prepared to be counted under many weights: m positives, n negatives, D distinct scores."""

    steps: Steps
    positives: NDArray[np.intp]  # (m,) rows by falling score
    negatives: NDArray[np.intp]  # (n,) likewise
    cells: Floats  # (N, 4) whether a row is a true or false positive, a false or true negative

    @classmethod
    def of(cls, y: NDArray[np.bool_], p: Floats, steps: Steps) -> CountedRows:
        order = np.argsort(-p, kind="stable")
        called = p >= THRESHOLD
        cells = np.stack([y & called, ~y & called, y & ~called, ~y & ~called], axis=1)
        return cls(steps, order[y[order]], order[~y[order]], cells.astype(np.float64))

    def figures(self, weights: Floats) -> Floats:
        """Average precision, F1 and MCC, (3, R), of rows that count as `weights` (R, N) say.

        NaN where the weights leave no positive; F1 and MCC also where they leave no negative.
        """
        true = np.cumsum(weights[:, self.positives], axis=1)[:, self.steps.true - 1]
        passed = np.cumsum(weights[:, self.negatives], axis=1)
        false = np.pad(passed, ((0, 0), (1, 0)))[:, self.steps.false]
        tp, fp, fn, tn = (weights @ self.cells).T
        f1 = _ratio(2 * tp, 2 * tp + fp + fn)
        mcc = _ratio(tp * tn - fp * fn, np.sqrt((tp + fp) * (fn + tn) * (tp + fn) * (fp + tn)))
        both = (tp + fn > 0) & (fp + tn > 0)
        return np.stack([average_precision(true, false), *(np.where(both, v, np.nan) for v in (f1, mcc))])


def _bootstrap(rows: CountedRows, groups: NDArray[np.int64], seed: int, resamples: int) -> list[Estimate]:
    """Average precision, F1 and MCC, with percentile intervals over resampled groups."""
    size = int(groups.max()) + 1
    generator = np.random.default_rng(seed)
    drawn = [np.zeros((3, 0))]
    chunk = max(CHUNK // len(groups), 1)
    for start in range(0, resamples, chunk):
        counts = [
            np.bincount(generator.integers(size, size=size), minlength=size).astype(np.float64)
            for _ in range(min(chunk, resamples - start))
        ]
        drawn.append(rows.figures(np.stack(counts)[:, groups]))
    whole = rows.figures(np.ones((1, len(groups))))[:, 0]
    return [*map(_percentiles, whole.tolist(), np.concatenate(drawn, axis=1))]


def _group_ids(groups: ArrayLike | None, n: int) -> NDArray[np.int64]:
    if groups is None:
        return np.arange(n)
    names = np.asarray(groups)
    if names.shape != (n,):
        raise ValueError(f"groups {names.shape} must be one a row ({n})")
    return np.unique(names, return_inverse=True)[1].astype(np.int64)


def _ratio(above: Floats, below: Floats) -> Floats:
    return np.divide(above, below, out=np.zeros_like(above), where=below > 0)


def _percentiles(value: float, samples: Floats) -> Estimate:
    defined = samples[~np.isnan(samples)]
    if not defined.size:
        return Estimate(value)
    return Estimate(value, *np.percentile(defined, [2.5, 97.5]).tolist())
