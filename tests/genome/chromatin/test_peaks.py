"""Peak files are read with their quirks and put on a reference."""

import gzip

import numpy as np
import pysam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigbird_dna.errors import DataError
from bigbird_dna.genome.assembly import load_assembly
from bigbird_dna.genome.chromatin.peaks import Peaks, place_peaks, read_peaks
from bigbird_dna.genome.sequence import Intervals
from tests.golden.messages import fails
from tests.toys import written

DEMO = load_assembly("demo")
HUMAN = load_assembly("GRCh37")


def plain(peaks: Peaks) -> dict[str, list[tuple[int, int]]]:
    return {
        contig: list(zip(found.starts.tolist(), found.ends.tolist(), strict=True))
        for contig, found in peaks.contigs.items()
    }


QUIRKY = (
    "browser position chr7:1-1000\r\n"
    'track name=x\tdescription="tabs\tinside"\r\n'
    "track type=narrowPeak\r\n"
    "# comment\r\n"
    "\r\n"
    "chr2\t50\t60\tname\t0\t+\r\n"
    "chr1\t5\t9\r\n"
    "chr1 1 3 spaces\r\n"
    "track1\t1\t2\r\n"
    "   \r\n"
    "chr1\t5\t9"
)
EXPECTED = {"chr2": [(50, 60)], "chr1": [(5, 9), (1, 3), (5, 9)], "track1": [(1, 2)]}


def test_headers_comments_and_line_ends_are_passed_over(tmp_path):
    peaks = read_peaks(written(tmp_path / "a.bed", QUIRKY))
    assert plain(peaks) == EXPECTED
    assert len(peaks) == 5


def test_plain_gzip_and_bgzip_are_the_same(tmp_path):
    with gzip.open(tmp_path / "a.bed.gz", "wb") as stream:
        stream.write(QUIRKY.encode())
    with pysam.BGZFile(str(tmp_path / "b.bed.gz"), "wb") as stream:
        stream.write(QUIRKY.encode())
    assert plain(read_peaks(tmp_path / "a.bed.gz")) == EXPECTED
    assert plain(read_peaks(tmp_path / "b.bed.gz")) == EXPECTED


@pytest.mark.parametrize("content", [b"", b"\n", b"# nothing\n", gzip.compress(b"", mtime=0)])
def test_an_empty_file_has_no_peaks(tmp_path, content):
    peaks = read_peaks(written(tmp_path / "a.bed", content))
    assert len(peaks) == 0
    assert place_peaks(peaks, {"chr1": 10}, DEMO).counts == {
        **{"peaks": 0, "unknown": 0, "absent": 0, "clipped": 0}
    }


def test_contigs_get_the_references_names(tmp_path):
    path = written(tmp_path / "a.bed", "chr22\t10\t20\n22\t15\t30\nchr1\t5\t9\nodd\t1\t2\n")
    placed = place_peaks(read_peaks(path), {"22": 51304566}, HUMAN)
    assert plain(Peaks(path, placed.contigs)) == {"22": [(10, 30)]}
    # chr1 is GRCh37's, though not in this reference; "odd" is nobody's.
    assert placed.counts == {"peaks": 4, "unknown": 1, "absent": 1, "clipped": 0}


def test_peaks_are_widened_clipped_and_joined(tmp_path):
    path = written(tmp_path / "a.bed", "c\t5\t6\nc\t40\t41\nc\t43\t44\nc\t95\t120\n")
    placed = place_peaks(read_peaks(path), {"c": 100}, DEMO, widen=10)
    assert plain(Peaks(path, placed.contigs)) == {"c": [(0, 16), (30, 54), (85, 100)]}
    assert placed.clipped == 1  # by the file, not by the widening


def test_a_peak_beyond_its_contig_is_refused(tmp_path):
    path = written(tmp_path / "a.bed", "# x\nc\t5\t6\nc\t100\t101\n")
    with fails(DataError):
        place_peaks(read_peaks(path), {"c": 100}, DEMO)


def test_a_fragment_of_a_contig_lacks_the_peaks_behind_it(tmp_path):
    path = written(tmp_path / "a.bed", "chr22\t5\t6\nchr22\t999\t2000\nchr22\t30000000\t30000001\n")
    placed = place_peaks(read_peaks(path), {"22": 1000}, HUMAN)
    assert plain(Peaks(path, placed.contigs)) == {"22": [(5, 6), (999, 1000)]}
    assert placed.counts == {"peaks": 3, "unknown": 0, "absent": 1, "clipped": 1}
    path = written(tmp_path / "b.bed", "chr22\t60000000\t60000001\n")
    with fails(DataError):
        place_peaks(read_peaks(path), {"22": 1000}, HUMAN)


def test_a_file_of_unknown_contigs_is_refused(tmp_path):
    path = written(tmp_path / "a.bed", "chrIV\t5\t6\nchrII\t7\t8\n")
    with fails(DataError):
        place_peaks(read_peaks(path), {"22": 1000}, HUMAN)


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 12)), max_size=15))
def test_merge_is_the_union(pairs):
    starts = np.array([start for start, _ in pairs], np.int64)
    ends = np.array([start + length for start, length in pairs], np.int64)
    union = np.zeros(80, bool)
    for start, end in zip(starts, ends, strict=True):
        union[start:end] = True
    merged = Intervals.union(starts, ends)
    found = np.zeros(80, bool)
    for start, end in zip(*merged, strict=True):
        assert not found[start:end].any()
        found[start:end] = True
    assert np.array_equal(found, union)
    assert (merged.starts[1:] > merged.ends[:-1]).all()
