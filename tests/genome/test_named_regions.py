"""Regions are read as samtools writes them, and those that overlap are found."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigbird_dna.genome.assembly import load_assembly
from bigbird_dna.genome.regions import (
    NamedRegion,
    find_overlap,
    format_named_region,
    name_parts,
    parse_named_region,
    read_named_region,
)
from bigbird_dna.genome.sequence import Interval
from tests.golden.messages import fails

HUMAN = load_assembly("GRCh37")
CONTIGS = {"22": 51_304_566, "21": 48_129_895, "odd:1-5": 100}


@pytest.mark.parametrize(
    ("text", "region"),
    [
        ("22", ("22", 0, 51_304_566)),
        ("chr22:1-1", ("22", 0, 1)),
        ("NC_000022.10:18,000,001-19,000,000", ("22", 18_000_000, 19_000_000)),
        ("22:51304566", ("22", 51_304_565, 51_304_566)),
        ("21:48,000,001-", ("21", 48_000_000, 48_129_895)),
        ("odd:1-5", ("odd:1-5", 0, 100)),
        ("odd:1-5:2-3", ("odd:1-5", 1, 3)),
    ],
)
def test_regions_are_read_as_samtools_does(text, region):
    found = parse_named_region(text, CONTIGS, HUMAN)
    assert found == Interval(*region)
    assert parse_named_region(format_named_region(found), CONTIGS, HUMAN) == found
    assert read_named_region(format_named_region(found)) == found


@pytest.mark.parametrize("text", ["22", "22:5", "22:5-", "22:0-3", "22:5-4", "22:1,000-2,000", ":1-2", ""])
def test_what_was_not_written_is_not_read_back(text):
    with fails(ValueError):
        read_named_region(text)


def test_whole_contigs_have_no_parts():
    stretches = [Interval("22", 0, 51_304_566), Interval("odd:1-5", 0, 40), Interval("odd:1-5", 60, 100)]
    assert name_parts(stretches, CONTIGS) == ["odd:1-5:1-40", "odd:1-5:61-100"]


ENDS = st.tuples(st.integers(0, 60), st.integers(1, 12))
REGIONS = st.lists(st.tuples(st.sampled_from("ab"), ENDS, st.sampled_from(["valid", "test", "exclude"])))


@given(REGIONS)
def test_regions_of_two_kinds_that_overlap_are_found(drawn):
    named = [
        NamedRegion(kind, kind, "", Interval(contig, start, start + size))
        for contig, (start, size), kind in drawn
    ]

    def overlap(one: NamedRegion, other: NamedRegion) -> bool:
        first, second = one.interval, other.interval
        same = one.kind == other.kind or first.contig != second.contig
        return not same and first.start < second.end and second.start < first.end

    found = find_overlap(named)
    assert (found is not None) == any(overlap(*pair) for pair in combinations(named, 2))
    if found is not None:
        assert overlap(*found) and found[0].interval.start <= found[1].interval.start
