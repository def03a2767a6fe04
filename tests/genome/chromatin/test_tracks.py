"""Tables of tracks are read, written and searched."""

import gzip

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigbird_dna.errors import ConfigError, DataError, UsageError
from bigbird_dna.genome.assembly import load_assembly
from bigbird_dna.genome.chromatin.labels import positive_bins
from bigbird_dna.genome.chromatin.track import Track, exchanged, select_tracks
from bigbird_dna.genome.chromatin.tracks import (
    read_tracks,
    tracks_from_folder,
    write_tracks,
)
from bigbird_dna.genome.intervals import place_peaks, read_peaks
from bigbird_dna.genome.sequence import Intervals, window_start
from bigbird_dna.genome.splits import GAP
from tests.genome.formats import PACKINGS, SUPPLEMENT
from tests.golden.messages import fails
from tests.toys import region_splits, written

TABLE = """# a comment
track\tgroup\tcell\ttarget\tfile\tpublished_auroc\tlab
A\tTF\tK562\tCTCF\tpeaks/a.bed\t0.97\tLab 1
B\tDHS\tK562\tDNase\t\t\tLab 2
"""


def test_a_table_is_read_with_all_it_says(tmp_path):
    first, second = read_tracks(written(tmp_path / "tracks.tsv", TABLE))
    assert first == Track(
        "A",
        "TF",
        "K562",
        "CTCF",
        file=tmp_path / "peaks/a.bed",
        published_auroc=0.97,
    )
    assert second.file is None
    assert second.published_auroc is None


def test_what_is_written_is_read_back(tmp_path):
    tracks = read_tracks(written(tmp_path / "tracks.tsv", TABLE))
    (tmp_path / "other").mkdir()
    copy = tmp_path / "other" / "copy.tsv"
    write_tracks(copy, tracks, {"positives_train": [3, 4]})
    assert copy.read_text().splitlines()[0].split("\t") == [
        *(
            "track",
            "group",
            "cell",
            "target",
            "file",
            "published_auroc",
            "positives_train",
        )
    ]
    back = read_tracks(copy)
    assert back[0].file.resolve() == (tmp_path / "peaks/a.bed").resolve()
    assert [(t.name, t.group, t.published_auroc) for t in back] == [
        ("A", "TF", 0.97),
        ("B", "DHS", None),
    ]


@given(st.permutations(range(6)), st.integers(0, 3))
def test_opposites_are_pairs(order, pairs):
    names = [f"t{number}" for number in range(6)]
    opposite = {names[a]: names[b] for a, b in [(0, 1), (2, 3), (4, 5)][:pairs]}
    opposite |= {b: a for a, b in opposite.items()}
    tracks = [Track(names[n], "x", opposite=opposite.get(names[n], "")) for n in order]
    places = exchanged(tracks)
    assert (places is None) == (not pairs)
    if places is not None:
        assert [tracks[n].name for n in places] == [
            one.opposite or one.name for one in tracks
        ]
        assert [places[n] for n in places] == [*range(6)]


@pytest.mark.parametrize("opposites", ["A-", "-B", "BB", "AA"])
def test_opposites_that_are_no_pairs_are_refused(tmp_path, opposites):
    rows = "".join(
        f"{n}\tTF\t{o.strip('-')}\n" for n, o in zip("BA", opposites, strict=True)
    )
    with fails(DataError):
        read_tracks(written(tmp_path / "tracks.tsv", f"track\tgroup\topposite\n{rows}"))


def test_deepseas_supplementary_table(tmp_path):
    tracks = read_tracks(written(tmp_path / "tracks.tsv", SUPPLEMENT))
    assert [(track.name, track.group) for track in tracks] == [
        *(
            ("8988T|DNase|None", "DHS"),
            ("K562|HNF4A|None", "TF"),
            ("K562|BRF1|None", "TF"),
        ),
        *(("Monocytes-CD14+RO01746|H2AZ|None", "HM"), ("K562|H3K4me3|None", "HM")),
        ("K562|H3K4me3|None|2", "HM"),
    ]
    assert [track.published_auroc for track in tracks] == [
        0.91,
        0.98,
        None,
        0.88,
        0.9,
        0.8,
    ]
    assert tracks[1].file == tmp_path / "b.narrowPeak"


TRACKS = (
    Track("GM12878|CTCF", "TF", "GM12878", "CTCF"),
    Track("K562|DNase", "DHS", "K562", "DNase"),
    Track("GM12878|DNase", "DHS", "GM12878", "DNase"),
    Track("K562|p300", "TF", "K562", "p300"),
    Track("odd[1]", "other", "x", "y"),
)


@pytest.mark.parametrize(
    ("pattern", "chosen"),
    [
        *(
            ("K562|DNase", [1]),
            ("dhs", [1, 2]),
            ("gm12878*,DHS", [0, 1, 2]),
            ("*", [0, 1, 2, 3, 4]),
        ),
        *((" *P300 , GM12878|CTCF ", [0, 3]), ("K562?DNase", [1]), ("oth*", [4])),
        ("odd[1]", [4]),  # a name, not the set of characters
    ],
)
def test_tracks_are_chosen_by_name_group_or_pattern(pattern, chosen):
    assert select_tracks(TRACKS, pattern) == tuple(TRACKS[number] for number in chosen)


@pytest.mark.parametrize("pattern", ["DHS,K562|DNAse1", "CTFC", "zzzzzz", " , "])
def test_what_chooses_nothing_is_refused_with_the_nearest(pattern):
    with fails(UsageError):
        select_tracks(TRACKS, pattern)


def test_a_folder_becomes_a_table(tmp_path):
    for folder in (tmp_path, tmp_path / "none"):
        with fails(DataError):
            tracks_from_folder(folder, "TF")
    for name in (
        "K562.CTCF.narrowPeak.gz",
        "b.bed",
        "a.BED.gz",
        "c.broadPeak",
        "read.me",
        ".x.bed",
    ):
        (tmp_path / name).touch()
    (tmp_path / "d.bed").mkdir()
    tracks = tracks_from_folder(tmp_path, "TF")
    assert [track.name for track in tracks] == ["K562.CTCF", "a", "b", "c"]
    assert (tracks[0].cell, tracks[0].target, tracks[1].cell) == ("K562", "CTCF", "")
    assert all(track.group == "TF" and track.file.is_file() for track in tracks)


def test_names_follow_an_expression(tmp_path):
    for name in ("11_Abf1_x.bed", "12_Abf1_y.bed", "13_Reb1_x.bed"):
        (tmp_path / name).touch()
    tracks = tracks_from_folder(tmp_path, "TF", r"\d+_(?P<target>.+)_[xy]")
    assert [(t.name, t.target) for t in tracks] == [
        ("Abf1", "Abf1"),
        ("Abf1.2", "Abf1"),
        ("Reb1", "Reb1"),
    ]
    for wrong, error in (
        (r"(?P<target>[a-z]+)", DataError),
        ("(", ConfigError),
        (".*", ConfigError),
    ):
        with fails(error):
            tracks_from_folder(tmp_path, "TF", wrong)


# Peak files are read with their quirks and put on a reference


DEMO = load_assembly("demo")
HUMAN = load_assembly("GRCh37")


def plain(peaks: dict[str, Intervals]) -> dict[str, list[tuple[int, int]]]:
    return {
        contig: list(zip(found.starts.tolist(), found.ends.tolist(), strict=True))
        for contig, found in peaks.items()
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


@pytest.mark.parametrize("packing", PACKINGS)
def test_headers_comments_and_line_ends_are_passed_over(tmp_path, packing):
    peaks = read_peaks(written(tmp_path / "a.bed", PACKINGS[packing](QUIRKY.encode())))
    assert plain(peaks) == EXPECTED
    assert sum(len(starts) for starts, _ in peaks.values()) == 5


@pytest.mark.parametrize(
    "content", [b"", b"\n", b"# nothing\n", gzip.compress(b"", mtime=0)]
)
def test_an_empty_file_has_no_peaks(tmp_path, content):
    path = written(tmp_path / "a.bed", content)
    assert read_peaks(path) == {}
    assert not any(place_peaks(path, {"chr1": 10}, DEMO).counts.values())


def test_contigs_get_the_references_names(tmp_path):
    path = written(
        tmp_path / "a.bed", "chr22\t10\t20\n22\t15\t30\nchr1\t5\t9\nodd\t1\t2\n"
    )
    placed = place_peaks(path, {"22": 51304566}, HUMAN)
    assert plain(placed.contigs) == {"22": [(10, 30)]}
    # chr1 is GRCh37's, though not in this reference; "odd" is nobody's.
    assert placed.counts == {"peaks": 4, "unknown": 1, "absent": 1, "clipped": 0}


def test_peaks_are_widened_clipped_and_joined(tmp_path):
    path = written(tmp_path / "a.bed", "c\t5\t6\nc\t40\t41\nc\t43\t44\nc\t95\t120\n")
    placed = place_peaks(path, {"c": 100}, DEMO, widen=10)
    assert plain(placed.contigs) == {"c": [(0, 16), (30, 54), (85, 100)]}
    assert placed.counts["clipped"] == 1  # by the file, not by the widening


def test_a_fragment_of_a_contig_lacks_the_peaks_behind_it(tmp_path):
    path = written(
        tmp_path / "a.bed", "chr22\t5\t6\nchr22\t999\t2000\nchr22\t30000000\t30000001\n"
    )
    placed = place_peaks(path, {"22": 1000}, HUMAN)
    assert plain(placed.contigs) == {"22": [(5, 6), (999, 1000)]}
    assert placed.counts == {"peaks": 3, "unknown": 0, "absent": 1, "clipped": 1}


@pytest.mark.parametrize(
    ("text", "contigs"),
    [
        ("# x\nc\t5\t6\nc\t100\t101\n", {"c": 100}),
        ("chr22\t60000000\t60000001\n", {"22": 1000}),
        ("chrIV\t5\t6\nchrII\t7\t8\n", {"22": 1000}),
    ],
)
def test_peaks_of_another_assembly_are_refused(tmp_path, text, contigs):
    with fails(DataError, tmp_path / "a.bed"):
        place_peaks(written(tmp_path / "a.bed", text), contigs, HUMAN)


# Bins are labeled as counting base by base does it; held-out regions leave a gap as wide as the window.

LENGTH = 97
PEAKS = st.lists(st.tuples(st.integers(0, LENGTH - 1), st.integers(1, 40)), max_size=10)


def intervals(pairs: list[tuple[int, int]]) -> Intervals:
    starts = np.array([start for start, _ in pairs], np.int64)
    ends = np.array([min(start + size, LENGTH) for start, size in pairs], np.int64)
    return Intervals.union(starts, ends)


@given(
    PEAKS,
    st.integers(1, 20),
    st.sampled_from(["half", "any"]),
)
def test_bins_agree_with_counting_bases(pairs, size, rule):
    covered = np.zeros(LENGTH, bool)
    for start, length in pairs:
        covered[start : start + length] = True
    expected = []
    for number, start in enumerate(range(0, LENGTH - size + 1, size)):
        part = covered[start : start + size]
        if 2 * part.sum() > size if rule == "half" else part.any():
            expected.append(number)
    found = positive_bins(intervals(pairs), LENGTH, size, rule)
    assert found.tolist() == expected


@given(
    PEAKS,
    st.lists(st.tuples(st.integers(-5, LENGTH + 5), st.integers(0, 50)), max_size=8),
)
def test_the_union_and_the_bases_it_covers_agree_with_counting(pairs, places):
    covered = np.zeros(LENGTH + 100, bool)
    for start, length in pairs:
        covered[5 + start : 5 + min(start + length, LENGTH)] = True
    merged = intervals(pairs)
    edges = np.flatnonzero(np.diff(covered, prepend=False)) - 5
    assert (merged.starts.tolist(), merged.ends.tolist()) == (
        edges[::2].tolist(),
        edges[1::2].tolist(),
    )
    starts = np.array([start for start, _ in places], np.int64)
    ends = np.array([start + size for start, size in places], np.int64)
    expected = [
        covered[5 + start : 5 + end].sum()
        for start, end in zip(starts, ends, strict=True)
    ]
    assert intervals(pairs).covered(starts, ends).tolist() == expected


REGIONS = st.lists(st.integers(0, 300), min_size=6, max_size=6, unique=True).map(sorted)


@given(
    REGIONS,
    st.permutations(["valid", "test", "exclude"]),
    st.integers(1, 9),
    st.integers(1, 80),
)
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


def test_whole_contigs_need_no_gap_and_regions_of_one_kind_are_joined():
    splits = region_splits({"22": 51_304_566}, HUMAN, valid=["22:1-100", "22:50-150"])
    assert splits.describe()["valid"] == ["22:1-150"]
    splits = region_splits({"a": 1000, "b": 1000}, DEMO, test=["b"])
    starts = np.arange(0, 1000, 200)
    assert splits.assign("a", starts, 200, 8000).tolist() == [0] * 5
    assert splits.assign("b", starts, 200, 8000).tolist() == [2] * 5
