"""Bins are labeled as counting base by base does it; held-out regions leave a gap as wide as the window."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigbird_dna.errors import ConfigError
from bigbird_dna.genome.assembly import load_assembly
from bigbird_dna.genome.chromatin.regions import GAP, Grid, least_bases, positive_bins, window_start
from bigbird_dna.genome.sequence import Intervals
from tests.golden.messages import fails
from tests.toys import region_splits

LENGTH = 97
PEAKS = st.lists(st.tuples(st.integers(0, LENGTH - 1), st.integers(1, 40)), max_size=10)


def intervals(pairs: list[tuple[int, int]]) -> Intervals:
    starts = np.array([start for start, _ in pairs], np.int64)
    ends = np.array([min(start + size, LENGTH) for start, size in pairs], np.int64)
    return Intervals.union(starts, ends)


@given(PEAKS, st.integers(1, 20), st.integers(0, 25), st.sampled_from(["half", "any", "centre", 3]))
def test_bins_agree_with_counting_bases(pairs, size, stride, rule):
    if isinstance(rule, int):
        rule = min(rule, size)
    covered = np.zeros(LENGTH, bool)
    for start, length in pairs:
        covered[start : start + length] = True
    expected = []
    for number, start in enumerate(range(0, LENGTH - size + 1, stride or size)):
        part = covered[start : start + size]
        positive = {"half": 2 * part.sum() > size, "any": part.any(), "centre": part[size // 2]}.get(
            rule, part.sum() >= rule if isinstance(rule, int) else None
        )
        if positive:
            expected.append(number)
    found = positive_bins(intervals(pairs), Grid(size, stride), LENGTH, rule)
    assert found.tolist() == expected


@given(PEAKS, st.lists(st.tuples(st.integers(-5, LENGTH + 5), st.integers(0, 50)), max_size=8))
def test_covered_bases_agree_with_counting(pairs, places):
    covered = np.zeros(LENGTH + 100, bool)
    for start, length in pairs:
        covered[5 + start : 5 + min(start + length, LENGTH)] = True
    starts = np.array([start for start, _ in places], np.int64)
    ends = np.array([start + size for start, size in places], np.int64)
    expected = [covered[5 + start : 5 + end].sum() for start, end in zip(starts, ends, strict=True)]
    assert intervals(pairs).covered(starts, ends).tolist() == expected


@pytest.mark.parametrize("rule", [0, 201])
def test_a_rule_that_no_bin_can_meet_is_refused(rule):
    with fails(ConfigError):
        least_bases(rule, 200)
    with fails(ConfigError):
        Grid(0)


HUMAN = load_assembly("GRCh37")
DEMO = load_assembly("demo")
CONTIGS = {"22": 51_304_566, "21": 48_129_895, "odd:1-5": 100}


def test_regions_of_one_kind_are_joined():
    splits = region_splits(CONTIGS, HUMAN, valid=["22:1-100", "22:50-150"])
    assert splits.describe()["valid"] == ["22:1-150"]


REGIONS = st.lists(st.integers(0, 300), min_size=6, max_size=6, unique=True).map(sorted)


@given(REGIONS, st.permutations(["valid", "test", "exclude"]), st.integers(1, 9), st.integers(1, 80))
def test_no_window_reaches_another_splits(edges, kinds, size, window):
    regions = dict(zip(kinds, zip(edges[::2], edges[1::2], strict=True), strict=True))
    names = {kind: [f"c:{start + 1}-{end}"] for kind, (start, end) in regions.items()}
    splits = region_splits({"c": 320}, DEMO, **names)
    starts = np.arange(0, 320 - size + 1, 3)
    found = splits.assign("c", starts, size, window)
    opens = window_start(starts, size, window)

    used = [np.minimum(opens, starts), np.maximum(opens + window, starts + size)]
    for number, kind in ((1, "valid"), (2, "test")):
        start, end = regions[kind]
        inside = (starts >= start) & (starts + size <= end)
        assert inside[found == number].all()
        # What a held-out bin at any place of its region would see.
        low = start + min(0, size // 2 - window // 2)
        high = end + max(0, window - size - window // 2 + size // 2)
        for other in range(number):
            apart = (used[1] <= low) | (used[0] >= high)
            assert apart[found == other].all()
            # And nothing further away is lost.
            if kind == "test" and other == 0:
                v_start, v_end = regions["valid"]
                v_low = v_start + min(0, size // 2 - window // 2)
                v_high = v_end + max(0, window - size - window // 2 + size // 2)
                far = apart & ((used[1] <= v_low) | (used[0] >= v_high))
                assert not (found[far] == GAP).any()
    start, end = regions["exclude"]
    hit = (starts < end) & (starts + size > start)
    assert np.array_equal(found == -1, hit)


def test_whole_contigs_need_no_gap():
    splits = region_splits({"a": 1000, "b": 1000}, DEMO, test=["b"])
    starts = np.arange(0, 1000, 200)
    assert splits.assign("a", starts, 200, 8000).tolist() == [0] * 5
    assert splits.assign("b", starts, 200, 8000).tolist() == [2] * 5
