"""Tables of tracks are read, written and searched."""

from pathlib import Path

import pytest

from bigbird_dna.errors import ConfigError, DataError, UsageError
from bigbird_dna.genome.chromatin.tracks import (
    Track,
    read_tracks,
    select_tracks,
    tracks_from_folder,
    write_tracks,
)
from tests.genome.formats import DEEPSEA, SUPPLEMENT
from tests.golden.messages import fails
from tests.toys import written

TABLE = """# a comment
track\tgroup\tcell\ttarget\tfile\tpublished_auroc\tlab
A\tTF\tK562\tCTCF\tpeaks/a.bed\t0.97\tLab 1
B\tDHS\tK562\tDNase\t\t\tLab 2
"""


def test_a_table_is_read_with_all_it_says(tmp_path):
    first, second = read_tracks(written(tmp_path / "tracks.tsv", TABLE))
    assert first == Track(
        "A", "TF", "K562", "CTCF", file=tmp_path / "peaks/a.bed", published_auroc=0.97, extra={"lab": "Lab 1"}
    )
    assert second.file is None
    assert second.published_auroc is None
    moved, _ = read_tracks(tmp_path / "tracks.tsv", files=Path("/elsewhere"))
    assert moved.file == Path("/elsewhere/peaks/a.bed")


def test_what_is_written_is_read_back(tmp_path):
    tracks = read_tracks(written(tmp_path / "tracks.tsv", TABLE))
    (tmp_path / "other").mkdir()
    copy = tmp_path / "other" / "copy.tsv"
    write_tracks(copy, tracks, {"positives_train": [3, 4]})
    assert copy.read_text().splitlines()[0].split("\t") == [
        *("track", "group", "cell", "target", "file", "published_auroc", "lab", "positives_train")
    ]
    back = read_tracks(copy)
    assert [track.extra["positives_train"] for track in back] == ["3", "4"]
    assert back[0].file.resolve() == (tmp_path / "peaks/a.bed").resolve()
    assert [(t.name, t.group, t.published_auroc) for t in back] == [("A", "TF", 0.97), ("B", "DHS", None)]


def test_the_published_layout_of_deepsea(tmp_path):
    tracks = read_tracks(written(tmp_path / "tracks.tsv", DEEPSEA))
    assert [(track.name, track.group) for track in tracks] == [
        ("8988T|DNase|None", "DHS"),
        ("K562|CTCF|None", "TF"),
        ("K562|CTCF|None|2", "TF"),
        ("K562|H3K4me3|None", "HM"),
    ]
    assert [track.published_auroc for track in tracks] == [0.91, 0.98, None, 0.9]
    assert tracks[1].extra == {"url": "http://x/b.gz"}


def test_deepseas_supplementary_table(tmp_path):
    tracks = read_tracks(written(tmp_path / "tracks.tsv", SUPPLEMENT))
    assert [(track.name, track.group) for track in tracks] == [
        ("8988T|DNase|None", "DHS"),
        ("K562|HNF4A|None", "TF"),
        ("K562|BRF1|None", "TF"),
        ("Monocytes-CD14+RO01746|H2AZ|None", "HM"),
        ("K562|H3K4me3|None", "HM"),
        ("K562|H3K4me3|None|2", "HM"),
    ]
    assert [track.published_auroc for track in tracks] == [0.91, 0.98, None, 0.88, 0.9, 0.8]
    assert tracks[1].extra == {"published_auprc": "0.05", "published_prevalence": "8.79E-06"}
    assert tracks[1].file == tmp_path / "b.narrowPeak"


def test_both_layouts_of_deepseas_919_tracks_say_the_same(shared_data, tmp_path):
    indexed = shared_data / "deepsea" / "deepsea_919_features.tsv"
    rows = [line.split("\t") for line in indexed.read_text().splitlines()[1:]]
    lines = SUPPLEMENT.splitlines()[:1] + [
        "\t".join([*row[2:6], row[7] if row[7].startswith("NA") else row[7].replace(".", ","), "0", "0"])
        for row in rows
    ]
    path = written(tmp_path / "tracks.tsv", "\n".join(lines))

    def said(tracks):
        return [(t.name, t.group, t.cell, t.target, t.treatment, t.published_auroc) for t in tracks]

    assert said(read_tracks(path)) == said(read_tracks(indexed))


def test_deepseas_919_tracks(shared_data):
    tracks = read_tracks(shared_data / "deepsea" / "deepsea_919_features.tsv")
    assert len({track.name for track in tracks}) == 919
    groups = [track.group for track in tracks]
    assert groups == ["DHS"] * 125 + ["TF"] * 690 + ["HM"] * 104
    # The one track without a positive in the test set.
    assert [n for n, track in enumerate(tracks) if track.published_auroc is None] == [598]
    assert (tracks[598].cell, tracks[598].target) == ("K562", "BRF1")


def test_the_simulated_tracks_are_read(demo):
    tracks = read_tracks(demo.directory / "tracks.tsv")
    assert {track.group for track in tracks} == {"TF", "DHS", "HM"}
    assert all(track.peak_file().is_file() and track.description for track in tracks)


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
        ("K562|DNase", [1]),
        ("dhs", [1, 2]),
        ("gm12878*,DHS", [0, 1, 2]),
        (" *P300 , GM12878|CTCF ", [0, 3]),
        ("*", [0, 1, 2, 3, 4]),
        ("odd[1]", [4]),  # a name, not the set of characters
        ("K562?DNase", [1]),
        ("oth*", [4]),
    ],
)
def test_tracks_are_chosen_by_name_group_or_pattern(pattern, chosen):
    assert select_tracks(TRACKS, pattern) == tuple(TRACKS[number] for number in chosen)


def test_what_chooses_nothing_is_refused_with_the_nearest():
    with fails(UsageError):
        select_tracks(TRACKS, "DHS,K562|DNAse1")
    with fails(UsageError):
        select_tracks(TRACKS, "CTFC")
    with fails(UsageError):
        select_tracks(TRACKS, "zzzzzz")
    with fails(UsageError):
        select_tracks(TRACKS, " , ")


def test_a_folder_becomes_a_table(tmp_path):
    for name in ("K562.CTCF.narrowPeak.gz", "b.bed", "a.BED.gz", "c.broadPeak", "read.me", ".x.bed"):
        (tmp_path / name).touch()
    (tmp_path / "d.bed").mkdir()
    tracks = tracks_from_folder(tmp_path, "TF")
    assert [track.name for track in tracks] == ["K562.CTCF", "a", "b", "c"]
    assert (tracks[0].cell, tracks[0].target, tracks[1].cell) == ("K562", "CTCF", "")
    assert all(track.group == "TF" and track.peak_file().is_file() for track in tracks)


def test_names_follow_an_expression(tmp_path):
    for name in ("11_Abf1_x.bed", "12_Abf1_y.bed", "13_Reb1_x.bed"):
        (tmp_path / name).touch()
    tracks = tracks_from_folder(tmp_path, "TF", r"\d+_(?P<target>.+)_[xy]")
    assert [(t.name, t.target) for t in tracks] == [("Abf1", "Abf1"), ("Abf1.2", "Abf1"), ("Reb1", "Reb1")]
    with fails(DataError):
        tracks_from_folder(tmp_path, "TF", r"(?P<target>[a-z]+)")
    with fails(ConfigError):
        tracks_from_folder(tmp_path, "TF", "(")
    with fails(ConfigError):
        tracks_from_folder(tmp_path, "TF", ".*")


def test_an_empty_or_missing_folder_is_refused(tmp_path):
    with fails(DataError):
        tracks_from_folder(tmp_path, "TF")
    with fails(DataError):
        tracks_from_folder(tmp_path / "none", "TF")


def test_peaks_are_found_with_or_without_gz(tmp_path):
    track = Track("A", "TF", file=tmp_path / "a.bed")
    with fails(DataError):
        track.peak_file()
    (tmp_path / "a.bed.gz").touch()
    assert track.peak_file() == tmp_path / "a.bed.gz"
    with fails(DataError):
        Track("B", "TF").peak_file()
