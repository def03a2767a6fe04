"""Figures of classifications by hand-made cases: ties, constants, classes that never come."""

import math

import pytest

from bigbird_dna.papers.nlp.classification import class_metrics, score_metrics


def test_figures_of_two_classes_by_hand() -> None:
    true, predicted = list("1110000000"), list("1101000000")
    # 2 true positives, 1 false positive, 1 false negative, 6 true negatives.
    figures = class_metrics(true, predicted, None)
    assert figures["accuracy"] == figures["micro_f1"] == pytest.approx(0.8)
    assert figures["f1"] == pytest.approx(2 / 3)
    assert figures["matthews"] == pytest.approx((2 * 6 - 1 * 1) / math.sqrt(3 * 3 * 7 * 7))
    assert class_metrics(true, predicted, "0")["f1"] == pytest.approx(2 * 6 / (2 * 6 + 1 + 1))


def test_of_several_classes_there_is_no_f1_unless_one_is_named() -> None:
    figures = class_metrics(list("abcab"), list("abbac"), None)
    assert figures["accuracy"] == pytest.approx(3 / 5) and "f1" not in figures
    # b: one true positive, one false positive, one false negative.
    assert class_metrics(list("abcab"), list("abbac"), "b")["f1"] == pytest.approx(0.5)


def test_constant_predictions_have_figures_and_no_warning() -> None:
    figures = class_metrics(list("0101"), list("0000"), None)
    assert figures == {"accuracy": 0.5, "micro_f1": 0.5, "matthews": 0.0, "f1": 0.0}
    assert class_metrics(list("00"), list("00"), "1") == {
        **{"accuracy": 1.0, "micro_f1": 1.0, "matthews": 0.0, "f1": 0.0}
    }


def test_correlations_by_hand_with_ties() -> None:
    figures = score_metrics([1.0, 2.0, 2.0, 4.0], [1.0, 3.0, 2.0, 10.0])
    # Deviations (-1.25, -0.25, -0.25, 1.75) and (-3, -1, -2, 6).
    assert figures["pearson"] == pytest.approx(15 / math.sqrt(4.75 * 50))
    # Ranks (1, 2.5, 2.5, 4) and (1, 3, 2, 4).
    assert figures["spearman"] == pytest.approx(4.5 / math.sqrt(4.5 * 5))


@pytest.mark.parametrize(("true", "predicted"), [([1.0, 2.0], [3.0, 3.0]), ([1.0], [2.0]), ([], [])])
def test_correlations_that_are_not_defined_are_none(true: list[float], predicted: list[float]) -> None:
    assert score_metrics(true, predicted) == {"pearson": None, "spearman": None}
