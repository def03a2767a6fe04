"""Tokens of bins, found for all windows at once, are those found window by window."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.plain_batches import plain_bin_rows, sentencepiece_of
from bigbird_dna.model.batching import bin_rows
from bigbird_dna.tokens.dna import DnaTokenizer
from tests.toys import random_dna


@st.composite
def windows(draw: st.DrawFn) -> tuple[list[str], np.ndarray, int, int]:
    """Texts of any lengths with runs of N, bins that may stick out of them, their size, and the positions."""
    count, bins = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    texts = []
    for _ in range(count):
        parts = [random_dna(draw(st.integers(1, 80)), draw(st.integers(0, 99)))]
        parts.append("N" * draw(st.sampled_from([0, 0, 3, 50])))
        parts.append(random_dna(draw(st.integers(0, 80)), draw(st.integers(0, 99))))
        texts.append("".join(parts))
    row = st.lists(st.integers(-60, 220), min_size=bins, max_size=bins)
    starts = draw(st.lists(row, min_size=count, max_size=count))
    return texts, np.array(starts), draw(st.integers(1, 60)), draw(st.sampled_from([5, 12, 40, 500]))


@settings(deadline=None, max_examples=300)
@given(windows(), st.integers(1, 2))
def test_all_at_once_is_one_by_one(
    tokenizer: DnaTokenizer, made: tuple[list[str], np.ndarray, int, int], threads: int
) -> None:
    texts, bins, size, positions = made
    found = bin_rows(tokenizer, texts, bins, size, positions, threads)
    expected = plain_bin_rows(tokenizer, sentencepiece_of(tokenizer), texts, bins, size, positions)
    assert [row.tolist() for row in found.ids] == [row.tolist() for row in expected.ids]
    assert all(row.dtype == np.int32 for row in found.ids)
    np.testing.assert_array_equal(found.spans, expected.spans)
    assert found.spans.dtype == expected.spans.dtype == np.int64


@pytest.mark.parametrize("count", [1, 3])
def test_no_windows(tokenizer: DnaTokenizer, count: int) -> None:
    found = bin_rows(tokenizer, [], np.zeros((0, count), np.int64), 10, 100)
    assert found.ids == [] and found.spans.shape == (0, count, 2)
