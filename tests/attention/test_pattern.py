"""The pattern's docstrings, read literally and compared with the vectorized tables."""

import time
from math import ceil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigbird_dna.attention.pattern import Pattern
from tests.attention.reference_implementations import patterns
from tests.golden.messages import fails

PATTERNS = patterns(st.sampled_from([1, 2, 3, 8]), ("plain",))


def literal_sets(pattern: Pattern, blocks: int) -> tuple[set[int], list[set[int]]]:
    """Global blocks and, for every block, its window, straight from the definition."""
    g, w = pattern.global_blocks, pattern.window_blocks
    first = set(range(min(ceil(g / 2), blocks)))
    last = {blocks - 1 - i for i in range(g // 2) if blocks - 1 - i >= 0}
    window = [
        {j + o for o in range(-(w // 2), w // 2 + 1) if 0 <= j + o < blocks}
        if w
        else set()
        for j in range(blocks)
    ]
    return first | last, window


@given(PATTERNS, st.integers(1, 40), st.integers(1, 3), st.integers(0, 5))
@settings(max_examples=40, deadline=None)
def test_rows_hold_what_the_definition_says(
    pattern: Pattern, blocks: int, heads: int, layer: int
) -> None:
    globals_, window = literal_sets(pattern, blocks)
    keys = pattern.key_blocks(blocks, heads, layer)
    random = pattern.random_ids(blocks, heads, layer)
    assert set(pattern.global_ids(blocks)) == globals_
    for head in range(heads):
        for j in range(blocks):
            row = [int(x) for x in keys[head, j] if x >= 0]
            drawn = {int(x) for x in random[head, j] if x >= 0}
            assert (keys[head, j, : len(row)] >= 0).all(), "padding stands at the end"
            if j in globals_:
                assert row == [] and drawn == set()
                continue
            fixed = globals_ | window[j]
            assert len(row) == len(set(row)) and row, "distinct and never empty"
            assert set(row) == fixed | drawn
            assert not drawn & fixed
            assert drawn <= set(range(blocks))
            assert len(drawn) == min(pattern.random_blocks, blocks - len(fixed))


@given(PATTERNS, st.integers(1, 60), st.integers(1, 2))
@settings(max_examples=40, deadline=None)
def test_token_mask_is_the_block_table_cut_to_length(
    pattern: Pattern, tokens: int, heads: int
) -> None:
    mask = pattern.mask(tokens, heads, layer=1)
    blocks = pattern.blocks(tokens)
    keys = pattern.key_blocks(blocks, heads, layer=1)
    globals_ = set(pattern.global_ids(blocks).tolist())
    for head in range(heads):
        for i in range(tokens):
            j = i // pattern.block_size
            seen = (
                set(range(blocks))
                if j in globals_
                else set(keys[head, j].tolist()) - {-1}
            )
            expected = [t // pattern.block_size in seen for t in range(tokens)]
            assert mask[head, i].tolist() == expected
    assert pattern.is_full(blocks) == mask.all()


def test_random_alone_may_draw_the_own_block_and_is_never_empty() -> None:
    assert Pattern(1, 0, 0, 1).mask(1, 1).all()
    own = np.mean(
        [Pattern(1, 0, 0, 1, s).mask(4, 1)[0].diagonal().mean() for s in range(400)]
    )
    assert own == pytest.approx(1 / 4, abs=0.06)


def test_draw_is_fixed_for_ever() -> None:
    """Checkpoints store the seed alone: another draw from it would change every score."""
    drawn = Pattern(seed=7).random_ids(64, heads=2, layer=3)
    assert drawn[:, 1].tolist() == [[48, 60, 31], [30, 33, 59]]
    assert drawn[:, 40].tolist() == [[54, 12, 61], [38, 60, 55]]


def test_draw_depends_on_seed_layer_and_head_but_not_on_the_number_of_heads() -> None:
    pattern = Pattern(seed=5)
    table = pattern.random_ids(64, heads=4, layer=1)
    np.testing.assert_array_equal(
        table, Pattern(seed=5).random_ids(64, heads=4, layer=1)
    )
    np.testing.assert_array_equal(table[:2], pattern.random_ids(64, heads=2, layer=1))
    different = [
        pattern.random_ids(64, heads=4, layer=2),
        Pattern(seed=6).random_ids(64, heads=4, layer=1),
        np.roll(table, 1, axis=0),
    ]
    for other in different:
        assert (np.sort(other, axis=2) == np.sort(table, axis=2)).mean() < 0.3


def test_random_blocks_cover_the_whole_length_uniformly() -> None:
    """Expected uses of a key block: sum over rows of 3 / (blocks that remain); normal within 5 sigma."""
    blocks, heads = 64, 400
    drawn = Pattern().random_ids(blocks, heads)
    uses = np.bincount(drawn[drawn >= 0], minlength=blocks)
    assert uses[0] == uses[-1] == 0
    expected = np.zeros(blocks)
    for j in range(1, blocks - 1):
        free = [x for x in range(1, blocks - 1) if abs(x - j) > 1]
        expected[free] += heads * 3 / len(free)
    inner = slice(1, blocks - 1)
    assert (np.abs(uses[inner] - expected[inner]) < 5 * np.sqrt(expected[inner])).all()
    chi2 = ((uses[inner] - expected[inner]) ** 2 / expected[inner]).sum()
    assert chi2 < 62 + 5 * np.sqrt(2 * 62)


def test_every_pair_of_random_blocks_is_equally_likely() -> None:
    """Floyd's algorithm is uniform over sets, not over single members alone."""
    drawn = np.sort(Pattern(1, 0, 0, 2).random_ids(5, heads=2000)[:, 0], axis=1)
    counts = np.unique(drawn[:, 0] * 5 + drawn[:, 1], return_counts=True)[1]
    assert len(counts) == 10
    assert (
        (counts - 200) ** 2 / 200
    ).sum() < 35  # chi-squared, 9 degrees of freedom, p about 6e-5


def test_long_sequences_are_quick() -> None:
    """131,072 tokens: 2,048 blocks, 12 heads. Takes 0.03 s; a quadratic way takes seconds."""
    start = time.process_time()
    assert Pattern(seed=99).key_blocks(2048, heads=12).shape == (12, 2048, 8)
    assert time.process_time() - start < 1


@pytest.mark.parametrize(
    "values",
    [
        {"block_size": 0},
        {"global_blocks": -1},
        {"random_blocks": -2},
        {"seed": -3},
        {"seed": 1 << 63},
        {"window_blocks": 4},
        {"global_blocks": 0, "window_blocks": 0, "random_blocks": 0},
    ],
)
def test_contradictory_sizes_are_refused(values: dict[str, int]) -> None:
    (key, value), *more = values.items()
    with fails(ValueError, *([] if more else [key, value])):
        Pattern(**values)


@given(
    st.integers(1, 70),
    st.integers(0, 3),
    st.sampled_from([0, 1, 3, 5]),
    st.integers(0, 3),
)
@settings(max_examples=40, deadline=None)
def test_causal_rows_depend_on_nothing_that_follows(
    tokens: int, g: int, w: int, r: int
) -> None:
    if not g + w + r:
        return
    pattern = Pattern(4, g, w, r, seed=3, causal=True)
    mask = pattern.mask(80, heads=2, layer=1)
    assert not np.triu(mask, 1).any()
    assert mask.diagonal(axis1=1, axis2=2).all()
    np.testing.assert_array_equal(
        pattern.mask(tokens, heads=2, layer=1), mask[:, :tokens, :tokens]
    )
    blocks = np.arange(20)
    window = (blocks[:, None] - blocks >= 0) & (blocks[:, None] - blocks <= w // 2)
    globals_ = (blocks[:, None] >= blocks) & (blocks < g)
    fixed = window | globals_
    seen = pattern.block_mask(20, heads=2, layer=1)
    for head in seen:
        assert head[fixed].all()
        random = (head & ~fixed).sum(axis=1)
        np.testing.assert_array_equal(
            random, np.minimum(r, blocks + 1 - fixed.sum(axis=1))
        )


def test_extra_globals_stand_before_the_blocks() -> None:
    pattern = Pattern(4, 0, 3, 1, seed=2, num_global_tokens=5)
    plain = Pattern(4, 0, 3, 1, seed=2)
    mask = pattern.mask(35, heads=2)
    assert mask[:, :5].all() and mask[:, :, :5].all()
    np.testing.assert_array_equal(mask[:, 5:, 5:], plain.mask(30, heads=2))
    assert pattern.blocks(35) == plain.blocks(30)


def test_huggingface_counts_the_first_block_once_more_for_each_random_one() -> None:
    """Its plan of random blocks is all zeros in evaluation, and up to (5 + 2 r) blocks it doesn't use one."""
    pattern = Pattern(2, 2, 3, 3, huggingface=True)
    assert pattern.is_full(11) and not pattern.is_full(12)
    assert (pattern.counts(22, heads=1) == 1).all()
    counts = pattern.counts(24, heads=1)[0, ::2, ::2]
    expected = np.zeros((12, 12), int)
    expected[[0, 11]] = 1
    for row in range(1, 11):
        for column in {0, 11, row - 1, row, row + 1}:
            expected[row, column] = 1
        expected[row, 0] = 4
    np.testing.assert_array_equal(counts, expected)


# Weights
