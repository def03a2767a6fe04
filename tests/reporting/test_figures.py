"""What figures draw, and how they are saved."""

import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigbird_dna.data.predictions import AlignedPredictions
from bigbird_dna.errors import UsageError
from bigbird_dna.genome.sequence import Locus
from bigbird_dna.reporting import promoters, score_track, training_log
from bigbird_dna.reporting.score_track import ScoreTrack
from bigbird_dna.reporting.style import interval
from bigbird_dna.reporting.training_log import LogCurve, TrainingCurves
from tests.golden.messages import fails


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=30), st.integers(1, 9))
def test_running_mean_agrees_with_slices(values, width):
    found = training_log.running_mean(np.array(values), width)
    for i, value in enumerate(found):
        around = values[max(i - width // 2, 0) : i + (width + 1) // 2]
        assert value == pytest.approx(np.mean(around), abs=1e-9)


def test_condensing_keeps_peaks_and_gaps():
    scores = np.zeros(40_000)
    scores[12_345] = 0.9
    scores[20_000:30_000] = np.nan
    x, y = score_track.condensed(np.arange(40_000.0), scores)
    assert len(x) == score_track.LARGEST_TRACK
    assert 12_345 in x and np.nanmax(y) == 0.9
    assert np.isnan(y[(x > 20_100) & (x < 29_900)]).all() and np.isnan(y).mean() < 0.26


def comparison(name: str = "genomic", *, one_class: bool = False) -> AlignedPredictions:
    rng = np.random.default_rng(0)
    labels = np.ones(40, dtype=np.int64) if one_class else np.tile([0, 1], 20)
    scores = {key: rng.random(40) for key in ("model", "k-mer", "control")}
    return AlignedPredictions(name, labels, np.arange(40) // 2, scores)


def curves(name: str) -> TrainingCurves:
    steps = np.arange(10, 300, 10)
    evaluation = LogCurve(np.array([100, 200]), np.array([0.5, 0.6]))
    return TrainingCurves(LogCurve(steps, 1 / steps), {name: evaluation, "loss": evaluation})


def draw_roc(path):
    comparisons = [comparison(), comparison("permuted", one_class=True)]
    promoters.roc_figure(comparisons, promoters.promoter_table(comparisons), path)


def draw_precision_recall(path):
    comparisons = [comparison(), comparison("permuted", one_class=True)]
    promoters.precision_recall_figure(comparisons, promoters.promoter_table(comparisons), path)


def draw_scores(path):
    x = np.arange(0, 20_000, 100.0)
    track = ScoreTrack("chrIV", 0, 20_000, {"+": (x, x / 20_000)})
    places = [("chrIV", 500, "+"), ("chrIV", 900, "-"), ("chrIV", 30_000, "+"), ("chrV", 700, "+")]
    score_track.score_figure(track, [Locus(*place, "TSS") for place in places], path)


DRAWINGS = {
    "roc": draw_roc,
    "precision-recall": draw_precision_recall,
    "histogram": lambda path: promoters.histogram_figure([comparison()], path),
    "loss": lambda path: training_log.loss_figure({"a": curves("bits_per_base"), "b": curves("auroc")}, path),
    "scores": draw_scores,
}


@pytest.mark.parametrize("name", DRAWINGS)
def test_svg_is_well_formed_and_the_same_each_time(tmp_path, name):
    for copy in ("a.svg", "b.svg"):
        DRAWINGS[name](tmp_path / copy)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    root = ElementTree.parse(tmp_path / "a.svg").getroot()
    assert root.tag.endswith("svg") and len(list(root.iter())) > 50
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.svg", "b.svg"]


def test_sites_elsewhere_are_left_out(tmp_path):
    draw_scores(tmp_path / "scores.svg")
    assert "2 known TSS" in (tmp_path / "scores.svg").read_text()


def test_png_by_suffix_and_others_refused(tmp_path):
    draw_scores(tmp_path / "new" / "bits.png")
    assert (tmp_path / "new" / "bits.png").read_bytes().startswith(b"\x89PNG")
    with fails(UsageError):
        draw_scores(tmp_path / "bits.txt")
    assert not (tmp_path / "bits.txt").exists()


def test_style_leaves_no_trace(tmp_path):
    import matplotlib

    before = dict(matplotlib.rcParams)
    draw_scores(tmp_path / "bits.svg")
    assert dict(matplotlib.rcParams) == before


def test_interval_text():
    assert interval(0.89444, 0.871, 0.917) == "0.894 [0.871, 0.917]"
    assert interval(0.5, float("nan"), float("nan")) == "0.500"
    assert interval(*[float("nan")] * 3) == "not defined"
