"""Slices of tracks: every track in one of them, scores that keep their order, labels that are checked."""

import numpy as np
import pytest

from bigbird_dna.errors import DataError
from bigbird_dna.reporting import track_evaluation
from bigbird_dna.reporting.arrays import open_array
from bigbird_dna.reporting.track_evaluation import read_slice, score_type, slice_bounds
from tests.golden.messages import fails


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_slices_cover_every_track_once(monkeypatch, threads):
    array = open_array(np.zeros((203, 5), np.float32), "predictions")
    for memory in (1, 4000, 1 << 30):
        monkeypatch.setattr(track_evaluation, "MEMORY", memory)
        bounds = slice_bounds([array], array, threads)
        assert [t for first, last in bounds for t in range(first, last)] == list(range(5))


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [("f2", "f4"), (">f4", "f4"), ("f8", "f8"), ("u1", "f4"), ("i2", "f4"), ("i4", "f8"), ("?", "f4")],
)
def test_scores_keep_their_order(dtype, expected):
    assert score_type(np.dtype(dtype)) == np.dtype(expected)


@pytest.mark.parametrize(
    ("labels", "coded"),
    [
        (np.array([[True, False]]), [[1], [0]]),
        (np.array([[1, -1]], np.int8), [[1], [-1]]),
        (np.array([[1.0, np.nan]]), [[1], [-1]]),
        (np.array([[0, 1]], np.uint8), [[0], [1]]),
    ],
)
def test_labels_that_were_not_measured(labels, coded):
    scores = open_array(np.zeros((1, 2)), "predictions")
    read = read_slice([scores], open_array(labels, "labels"), 0, 2, ("a", "b"))
    assert read.labels.tolist() == coded


@pytest.mark.parametrize(
    ("value", "dtype"), [(2, "u1"), (255, "u1"), (-2, "i1"), (0.5, "f4"), (np.inf, "f8"), (300, "i4")]
)
def test_other_labels_are_refused(value, dtype):
    labels = np.zeros((9, 3), dtype)
    labels[6, 2] = value
    scores = open_array(np.zeros((9, 3)), "predictions")
    with fails(DataError):
        read_slice([scores], open_array(labels, "labels"), 1, 3, ("a", "b", "c"))


def test_a_missing_prediction_matters_where_the_label_was_measured():
    labels = np.array([[1, 0], [-1, 1], [0, -1], [1, 1]], np.int8)
    values = np.array([[0.5, 0.1], [np.nan, 0.2], [0.3, np.nan], [0.4, np.inf]])
    scores, truth = open_array(values, "predictions"), open_array(labels, "labels")
    read = read_slice([scores, scores], truth, 0, 2, ("a", "b"))
    measured = read.labels >= 0
    np.testing.assert_array_equal(read.scores[1][measured], values.T[measured])
    assert [counts.tolist() for counts in read.infinite] == [[0, 1]] * 2
    for row, track in ((0, 0), (3, 1)):
        bad = values.copy()
        bad[row, track] = np.nan
        name = "ab"[track]
        said = rf"predictions: row {row + 1}, track '{name}': the prediction is NaN or missing"
        with fails(DataError):
            read_slice([scores, open_array(bad, "predictions")], truth, 0, 2, ("a", "b"))
    bad = open_array(np.full((4, 2), np.nan), "predictions")
    with fails(DataError):
        read_slice([bad], truth, 0, 2, ("a", "b"))
    with fails(DataError):
        read_slice([bad], truth, 1, 2, ("a", "b"))
