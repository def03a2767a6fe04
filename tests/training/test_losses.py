"""Losses by the kind of labels, against their formulas, and what follows from them."""

from typing import Any, get_args

import numpy as np
import pytest
import torch
from scipy.special import expit, log_softmax
from scipy.stats import pearsonr
from sklearn.metrics import roc_auc_score

from bigbird_dna.config.section import LabelKind
from bigbird_dna.training.draws import WindowDraws, balanced_epochs
from bigbird_dna.training.losses import LabelLoss, label_metric

KINDS = get_args(LabelKind)


def labels_of(kind: LabelKind, count: int = 60, outputs: int = 3) -> np.ndarray:
    rng = np.random.default_rng(7)
    if kind == "regression":
        return rng.normal(5, 3, (count, outputs)).astype(np.float32)
    if kind == "multiclass":
        return np.eye(outputs, dtype=np.float32)[
            rng.choice(outputs, count, p=[0.6, 0.3, 0.1])
        ]
    return (rng.random((count, 1 if kind == "binary" else outputs)) < 0.2).astype(
        np.float32
    )


def outputs_for(labels: np.ndarray) -> np.ndarray:
    return np.random.default_rng(3).normal(size=labels.shape).astype(np.float32)


def rows(loss: LabelLoss, logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return loss.rows(torch.from_numpy(logits), torch.from_numpy(labels)).numpy()


@pytest.mark.parametrize("kind", KINDS)
def test_losses_are_their_formulas(kind: LabelKind) -> None:
    labels = labels_of(kind)
    logits, loss = outputs_for(labels), LabelLoss.of(kind, labels, False)
    p = expit(logits.astype(float))
    expected = {
        "multiclass": -(labels * log_softmax(logits.astype(float), axis=1)).sum(1),
        "regression": ((logits - (labels - labels.mean(0)) / labels.std(0)) ** 2).mean(
            1
        ),
    }.get(kind, -(labels * np.log(p) + (1 - labels) * np.log(1 - p)).mean(1))
    np.testing.assert_allclose(
        rows(loss, logits, labels), expected, rtol=1e-4, atol=1e-6
    )


@pytest.mark.parametrize("kind", ["binary", "multiclass"])
def test_balanced_classes_have_the_same_total_weight(kind: Any) -> None:
    labels = labels_of(kind)
    plain, balanced = (LabelLoss.of(kind, labels, one) for one in (False, True))
    logits = outputs_for(labels)
    weights = rows(balanced, logits, labels) / rows(plain, logits, labels)
    classes = labels.argmax(1) if kind == "multiclass" else labels[:, 0].astype(int)
    totals = np.bincount(classes, weights)
    np.testing.assert_allclose(totals, len(labels) / len(totals), rtol=1e-4)
    assert not balanced.constant(labels.mean(0)).any()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("positive_weight", [1.0, 4.0])
def test_the_constant_is_the_best_one(kind: Any, positive_weight: float) -> None:
    labels = labels_of(kind)
    loss = LabelLoss.of(kind, labels, kind == "multiclass")
    if kind == "multilabel":
        loss = LabelLoss(kind, positive_weight=positive_weight)
    best = loss.constant(labels.mean(0)).numpy()

    def mean(constant: np.ndarray) -> float:
        return float(
            rows(
                loss, np.tile(constant, (len(labels), 1)).astype(np.float32), labels
            ).mean()
        )

    for step in np.random.default_rng(1).normal(0, 0.3, (20, labels.shape[1])):
        assert mean(best) <= mean(best + step) + 1e-6


@pytest.mark.parametrize("kind", KINDS)
def test_predictions_have_logits_and_metrics(kind: LabelKind) -> None:
    labels = labels_of(kind)
    loss, logits = LabelLoss.of(kind, labels, True), outputs_for(labels).astype(float)
    predictions = loss.predictions(logits)
    again = loss.logits(predictions)
    if kind == "multiclass":  # up to a constant of each row
        assert np.allclose(predictions.sum(1), 1)
        again, logits = (one - one.mean(1, keepdims=True) for one in (again, logits))
    np.testing.assert_allclose(again, logits, atol=1e-5)
    found = loss.metrics(loss.logits(predictions), labels)
    assert found["loss"] == pytest.approx(
        float(rows(loss, logits.astype(np.float32), labels).mean()), rel=1e-4
    )
    perfect = loss.standardized(torch.from_numpy(labels)).numpy()
    assert label_metric(kind, perfect, labels) == pytest.approx(1)
    if kind == "regression":
        pairs = zip(logits.T, labels.T, strict=True)
        assert found["pearson"] == pytest.approx(
            np.mean([pearsonr(a, b)[0] for a, b in pairs])
        )
        assert np.isnan(label_metric(kind, np.ones_like(labels), labels))
    broken = loss.metrics(np.full_like(logits, np.nan), labels)
    assert all(np.isnan(value) for value in broken.values())


@pytest.mark.parametrize("kind", ["multilabel", "regression"])
def test_missing_labels_count_in_neither_loss_nor_metric(kind: LabelKind) -> None:
    rng = np.random.default_rng(1)
    labels = labels_of(kind)
    missing = rng.random(labels.shape) < 0.3
    given = np.where(missing, np.nan, labels).astype(np.float32)
    loss, logits = (
        LabelLoss.of(kind, given, False),
        outputs_for(labels).astype(np.float32),
    )
    columns = [labels[~rows, t].astype(float) for t, rows in enumerate(missing.T)]
    outputs = [logits[~rows, t].astype(float) for t, rows in enumerate(missing.T)]
    if kind == "regression":
        columns = [(y - y.mean()) / y.std() for y in columns]
        terms = [(x - y) ** 2 for x, y in zip(outputs, columns, strict=True)]
        metric = np.mean(
            [pearsonr(x, y)[0] for x, y in zip(outputs, columns, strict=True)]
        )
    else:
        terms = [
            np.logaddexp(0, x) - x * y for x, y in zip(outputs, columns, strict=True)
        ]
        metric = np.median(
            [roc_auc_score(y, x) for x, y in zip(outputs, columns, strict=True)]
        )
    found = loss.metrics(logits, given)
    assert found["loss"] == pytest.approx(np.concatenate(terms).mean(), rel=1e-5)
    assert [*found.values()][1] == pytest.approx(metric, rel=1e-9)
    # The gradients of missing labels are 0, and a batch in parts has that of the whole.
    tensors = torch.from_numpy(logits).requires_grad_(), torch.from_numpy(given)
    total = loss.count(tensors[1])
    for rows in (slice(0, 7), slice(7, None)):
        (loss.rows(tensors[0][rows], tensors[1][rows]).sum() / total).backward()
    gradient = tensors[0].grad
    assert gradient is not None and np.array_equal(gradient.numpy() == 0, missing)
    again = torch.from_numpy(logits).requires_grad_()
    known = torch.from_numpy(~missing)
    loss.terms(again, tensors[1])[known].mean().backward()
    torch.testing.assert_close(again.grad, gradient)


@pytest.mark.parametrize(
    ("kind", "labels"),
    [
        ("binary", [[1], [1], [1]]),
        ("binary", [[0], [0], [0]]),
        ("multilabel", [[1, 0]] * 3),
        ("regression", [[2.5], [2.5], [2.5]]),
    ],
)
def test_a_metric_of_a_single_class_is_undefined(
    kind: LabelKind, labels: list[list[float]]
) -> None:
    outputs = np.random.default_rng(1).normal(size=np.shape(labels))
    assert np.isnan(label_metric(kind, outputs, np.array(labels)))


def test_few_of_a_class_have_an_auroc() -> None:
    """Of a single label any number counts, of several those with at least five of both classes."""
    labels, outputs = (
        np.array([1, 0, 0, 1, 0, 0]),
        np.array([0.9, 0.1, 0.4, 0.3, 0.2, 0.8]),
    )
    expected = roc_auc_score(labels, outputs)
    assert label_metric("binary", outputs[:, None], labels[:, None]) == pytest.approx(
        expected
    )
    many = np.tile(np.arange(20) % 2, (2, 1)).T
    many[4:, 1] = 0
    scores = np.random.default_rng(2).normal(size=(20, 2))
    assert label_metric("multilabel", scores, many) == pytest.approx(
        roc_auc_score(many[:, 0], scores[:, 0])
    )


@pytest.mark.parametrize("ones", [3, 20, 45, 57])
def test_epochs_of_two_classes_are_balanced(ones: int) -> None:
    """The rarer class in every epoch, and every example of the other in some epoch."""
    labels = (np.arange(60) < ones).astype(np.float32)
    config: Any = type("Config", (), {"seed": 1, "batch_size": 4, "crop_jitter_bp": 0})
    draws = WindowDraws(balanced_epochs(labels, 1), config)
    rare = min(ones, 60 - ones)
    drawn = [
        draws.epochs.indices(number * draws.epochs.size, draws.epochs.size)
        for number in range(40)
    ]
    for epoch in drawn:
        counts = np.bincount(labels[epoch].astype(int), minlength=2)
        assert counts.min() == rare and counts.max() < 2 * rare
    assert len({row for epoch in drawn for row in epoch}) == 60
