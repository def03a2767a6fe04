"""Splits by region leave a gap as wide as the window."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigbird_dna.errors import ConfigError
from bigbird_dna.genome.assembly import load_assembly
from bigbird_dna.genome.chromatin.regions import GAP, window_start
from tests.golden.messages import fails
from tests.toys import region_splits

HUMAN = load_assembly("GRCh37")
DEMO = load_assembly("demo")
CONTIGS = {"22": 51_304_566, "21": 48_129_895, "odd:1-5": 100}


@pytest.mark.parametrize(
    "text", ["23", "chr1:5-9", "22:0-5", "22:9-5", "22:5-51304567", "22:a-b", "22:", "22:,-5", ""]
)
def test_other_texts_are_refused(text):
    with fails(ConfigError):
        region_splits(CONTIGS, HUMAN, valid=[text])


def test_overlapping_regions_of_two_kinds_are_refused():
    with fails(ConfigError):
        region_splits(CONTIGS, HUMAN, valid=["22"], test=["chr22:100-200"])
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
