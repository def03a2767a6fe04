"""The papers' tables: what their intervals are over, and what doesn't stand side by side."""

import json
from pathlib import Path

import numpy as np
import pytest

from bigbird_dna.errors import DataError
from bigbird_dna.genome.chromatin.labels import PackedLabels
from bigbird_dna.genome.chromatin.tracks import Track, write_tracks
from bigbird_dna.metrics.auroc import auroc
from bigbird_dna.metrics.resampling import gain, resampled_medians
from bigbird_dna.reporting.comparison.report import table_report
from tests.reporting.studies import toy_labels, write_predictions
from tests.reporting.test_comparison import TRACKS, promoter_comparator, track_comparator


def test_separated_classes_and_equal_scores_are_not_certain(tmp_path: Path) -> None:
    """As in all other tables: the exact interval of 30 pairs, and none."""
    labels = np.tile([1, 0], 30)
    for name, scores in (("cnnprom", labels), ("deepromoter", 1 - labels), ("gc", np.full(60, 0.5))):
        promoter_comparator(tmp_path / name, name, 1, 1.0)
        write_predictions(tmp_path / name / "predictions.parquet", labels, scores)
    names = ("cnnprom", "deepromoter", "gc")
    table = table_report("table6", [tmp_path / name for name in names], tmp_path / "report")
    least = 0.025 ** (1 / 30)
    figures = table[["auroc", "auroc_low", "auroc_high"]].to_numpy(float)
    expected = [(1, least, 1), (0, 0, 1 - least), (0.5, np.nan, np.nan)]
    np.testing.assert_allclose(figures, expected)
    page = (tmp_path / "report/table6.md").read_text()
    assert "| 0.500 |" in page and f"| 1.000 [{least:.3f}, 1.000] |" in page
    assert "Intervals are of 95 %, over promoters with their negatives, and seeds." in page


def test_medians_have_intervals_over_tracks_where_there_are_some(tmp_path: Path) -> None:
    tracks = [Track(f"t{number}", "TF" if number < 6 else "DHS") for number in range(8)]
    found = [
        track_comparator(tmp_path / f"cnn-{seed}", "deepsea", seed, [*range(8)], tracks=tracks)
        for seed in (1, 2)
    ]
    PackedLabels.from_dense(toy_labels(8)).save(tmp_path / "labels.npz")
    write_tracks(tmp_path / "tracks.tsv", tracks)
    options = {"labels": tmp_path / "labels.npz", "tracks": tmp_path / "tracks.tsv"}
    many, few = table_report("table7", found, tmp_path / "report", **options).to_dict("records")
    labels = toy_labels(8)
    scores = [np.load(path / "predictions.npy").astype(float) for path in found]
    areas = np.array([[auroc(labels[:, t], one[:, t]).value for t in range(6)] for one in scores])
    medians, nothing = np.median(areas, axis=1), np.zeros(2)
    expected = gain(medians, nothing, resampled_medians(areas), np.zeros((2, 1)))
    figures = [f"median_auroc{end}" for end in ("", "_low", "_high")]
    assert [many[name] for name in figures] == pytest.approx(list(expected))
    assert few["number"] == 2 and np.isnan([few[name] for name in figures[1:]]).all()
    page = (tmp_path / "report/table7.md").read_text()
    assert f"| {few['median_auroc']:.3f} |" in page
    assert "over tracks and seeds; of fewer than 5 tracks there is none." in page
    told = json.loads((tmp_path / "report/table7.json").read_text())["note"]
    assert told.startswith("Published figures") and "over tracks and seeds" in told


def test_medians_over_some_tracks_dont_stand_beside_those_over_all(tmp_path: Path) -> None:
    tracks = [Track(f"t{number}", "TF") for number in range(6)]
    covered = {"k-mers": [*range(6)], "gkm-svm": [*range(5)], "motifs": [0, 1]}
    found = [track_comparator(tmp_path / name, name, 1, own, tracks=tracks) for name, own in covered.items()]
    PackedLabels.from_dense(toy_labels(6)).save(tmp_path / "labels.npz")
    write_tracks(tmp_path / "tracks.tsv", tracks)
    options = {"labels": tmp_path / "labels.npz", "tracks": tmp_path / "tracks.tsv"}
    table = table_report("table7", found, tmp_path / "report", **options)
    rows = table[["predictor", "tracks", "number", "counting"]].to_numpy().tolist()
    assert rows[:3] == [["k-mers", "all", 6, 6], ["gkm-svm", "all", 5, 6], ["motifs", "all", 2, 6]]
    lines = (tmp_path / "report/table7.md").read_text().splitlines()
    place = lines.index("median AUROC, side by side:") + 4
    cells = {line.split(" | ")[0][2:]: line.split(" | ")[4:] for line in lines[place : place + 3]}
    shown = {name: [bool(cell.strip(" |")) for cell in own] for name, own in cells.items()}
    assert shown == {
        "k-mers": [True, True, True],
        "gkm-svm": [False, True, False],
        "motifs": [False, True, False],
    }


def test_a_table_of_one_predictor_has_a_figure_in_words(tmp_path: Path) -> None:
    """And no legend, of which matplotlib would warn."""
    found = track_comparator(tmp_path / "cnn", "deepsea", 1, [0, 1, 2, 3])
    PackedLabels.from_dense(toy_labels()).save(tmp_path / "labels.npz")
    write_tracks(tmp_path / "tracks.tsv", TRACKS)
    options = {"labels": tmp_path / "labels.npz", "tracks": tmp_path / "tracks.tsv"}
    table_report("table7", [found], tmp_path / "report", **options)
    assert "no other predictor to compare with" in (tmp_path / "report/table7.svg").read_text()


def test_bits_per_base_are_of_one_split_which_is_said(tmp_path: Path) -> None:
    head = "split\tpredictor\tbits_per_base\tlow\thigh\tdifference\tdifference_low\tdifference_high\tnote\n"
    for split in ("valid", "test"):
        (tmp_path / f"{split}.tsv").write_text(f"{head}{split}\tmodel\t1.8\t1.7\t1.9\t\t\t\t\n")
    out = tmp_path / "report"
    table = table_report("table5", [tmp_path / "valid.tsv"], out, bits={"b": tmp_path / "valid.tsv"})
    assert table["split"].tolist() == ["valid"] * 2
    assert "| valid | model b | 1.800 [1.700, 1.900] |" in (out / "table5.md").read_text()
    drawn = (out / "table5.svg").read_text()
    assert "bits per base, validation" in drawn and "test" not in drawn
    for own, other in (("test", "valid"), ("valid", "test")):
        with pytest.raises(DataError, match=rf"{other}.tsv: is of split '{other}', .*{own}.tsv of '{own}'"):
            table_report("table5", [tmp_path / f"{own}.tsv"], out, bits={"b": tmp_path / f"{other}.tsv"})
