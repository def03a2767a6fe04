"""Bases in memory are those of the file."""

import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigbird_dna.errors import DataError
from bigbird_dna.genome import packed
from bigbird_dna.genome.packed import PackedReference, texts, turn
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import Interval
from tests.golden.messages import fails
from tests.toys import random_dna


@pytest.fixture(params=[4, 1000, 1 << 18])
def block(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "BLOCK", request.param)


places = st.tuples(
    st.sampled_from(["a", "b", "c", "d"]),
    st.integers(-300, 9300),
    st.integers(0, 2500),
    st.sampled_from("+-"),
)


@settings(deadline=None, max_examples=300)
@given(place=places)
def test_any_interval_reads_as_from_the_file(reference: Reference, place: tuple) -> None:
    contig, start, length, strand = place
    interval = Interval(contig, start, start + length, strand)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packed, "BLOCK", 1024)
        assert PackedReference(reference).fetch(interval) == reference.fetch(interval)


@pytest.mark.usefixtures("block")
def test_windows_of_both_strands(reference: Reference) -> None:
    bases = PackedReference(reference)
    contigs, starts = ["a", "b", "d", "c", "b", "a"], [-40, 1990, 990, -30, 5950, 8999]
    for _ in range(2):  # read from the file, and from memory
        letters = bases.windows(contigs, starts, 100)
        assert letters.shape == (6, 100) and letters.dtype == np.uint8
        for strand, found in (("+", letters), ("-", turn(letters))):
            pairs = zip(contigs, starts, strict=True)
            windows = [Interval(contig, start, start + 100, strand) for contig, start in pairs]
            assert texts(found) == [reference.fetch(window) for window in windows]
    assert texts(bases.windows([], [], 100)) == []


def test_the_file_is_read_once(reference: Reference, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[Interval] = []

    def fetch(self: Reference, interval: Interval) -> str:
        reads.append(interval)
        return original(self, interval)

    original = Reference.fetch
    monkeypatch.setattr(Reference, "fetch", fetch)
    bases = PackedReference(reference)
    first = bases.windows(["a", "b"], [10, 1000], 3000)
    assert sorted(reads) == [Interval("a", 0, 9000), Interval("b", 0, 6000)]
    assert np.array_equal(bases.windows(["a", "b"], [10, 1000], 3000), first)
    assert len(bases.fetch(Interval("b", 0, 6000))) == 6000
    assert len(reads) == 2


def test_threads_share_it(reference: Reference, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "BLOCK", 256)
    bases = PackedReference(reference)
    windows = [Interval("a", start, start + 700) for start in range(0, 8000, 10)]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(bases.fetch, windows)) == [reference.fetch(window) for window in windows]


def test_another_contig_is_refused(reference: Reference) -> None:
    bases = PackedReference(reference)
    for read in (lambda: bases.fetch(Interval("e", 0, 10)), lambda: bases.windows(["a", "e"], [0, 0], 10)):
        with fails(DataError):
            read()


def test_a_human_chromosome_takes_two_bits_a_base(make_reference: Callable[..., Reference]) -> None:
    reference = make_reference(a=random_dna(1000, 1) * 600)
    bases = PackedReference(reference)
    bases.windows(["a"], [599_000], 10)
    reference.fetch(Interval("a", 0, 600_000))  # its reader keeps what it has unpacked
    tracemalloc.start()
    bases.windows(["a", "a"], [0, 300_000], 10)
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert 131_072 <= held < 262_144  # of two blocks, of 262,144 bases each
