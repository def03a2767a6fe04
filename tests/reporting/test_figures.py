"""What figures draw, and how they are saved."""

import xml.etree.ElementTree as ElementTree
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigbird_dna.data.predictions import AlignedPredictions, language_model_table
from bigbird_dna.errors import UsageError
from bigbird_dna.genome.sequence import Locus
from bigbird_dna.reporting import language_model, promoters, score_track, training_log
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


@given(st.lists(st.floats(0, 1), max_size=12).map(sorted), st.floats(0.001, 0.2))
def test_labels_are_apart_and_near(places, gap):
    places = np.array(places)
    found = language_model.apart(places, gap)
    assert found.shape == places.shape
    assert (np.diff(found) >= gap * (1 - 1e-6)).all()
    if len(places) and (np.diff(places) > gap * (1 + 1e-9)).all():
        np.testing.assert_array_equal(found, places)
    if len(places):  # as a whole they are moved nowhere
        assert found.mean() == pytest.approx(places.mean())


def comparison(name: str = "genomic", *, one_class: bool = False) -> AlignedPredictions:
    rng = np.random.default_rng(0)
    labels = np.ones(40, dtype=np.int64) if one_class else np.tile([0, 1], 20)
    scores = {key: rng.random(40) for key in ("model", "k-mer", "control")}
    return AlignedPredictions(name, labels, np.arange(40) // 2, scores)


def curves(name: str) -> TrainingCurves:
    steps = np.arange(10, 300, 10)
    evaluation = LogCurve(np.array([100, 200]), np.array([0.5, 0.6]))
    return TrainingCurves(LogCurve(steps, 1 / steps), {name: evaluation, "loss": evaluation})


def draw_curves(area, path):
    comparisons = [comparison(), comparison("permuted", one_class=True)]
    promoters.curves_figure(comparisons, promoters.promoter_table(comparisons), area, path)


def draw_scores(path):
    x = np.arange(0, 20_000, 100.0)
    track = ScoreTrack("chrIV", 0, 20_000, {"+": (x, x / 20_000)})
    places = [("chrIV", 500, "+"), ("chrIV", 900, "-"), ("chrIV", 30_000, "+"), ("chrV", 700, "+")]
    score_track.score_figure(track, [Locus(*place, "TSS") for place in places], path)


RATES = {"model": 1.88, "uniform": 2.0, "n-gram": 1.95, "Markov": 1.93, "Markov, both sides": 1.929}


def bits_table(blocks=40, rates=RATES):
    rng = np.random.default_rng(0)
    ids = np.repeat(np.arange(blocks), 20)
    bases = rng.integers(1, 7, len(ids))
    ease = rng.normal(0, 0.05, blocks)[ids]
    bits = {
        name: bases * (rate if name == "uniform" else rate + ease + rng.normal(0, 0.2, len(ids)))
        for name, rate in rates.items()
    }
    return language_model_table(bits, bases, ids, {"uniform": "2 bits a base"})


def run(*, timed=True, points=8):
    steps = np.arange(1, points + 1) * 100
    seconds = steps * 1.5 if timed else None
    held_out = LogCurve(steps, 1.88 + 0.15 * np.exp(-steps / 200), seconds)
    return TrainingCurves(LogCurve(steps, 1 / steps), {"bits_per_base": held_out} if points else {})


ALONE = bits_table(9, {"model": 1.9})
DRAWINGS = {
    "roc": partial(draw_curves, "auroc"),
    "precision-recall": partial(draw_curves, "auprc"),
    "histogram": lambda path: promoters.histogram_figure([comparison()], path),
    "loss": lambda path: training_log.loss_figure({"a": curves("bits_per_base"), "b": curves("auroc")}, path),
    "scores": draw_scores,
    "bits": lambda path: language_model.bits_per_base_figure(bits_table(), path),
    "bits, one block": lambda path: language_model.bits_per_base_figure(bits_table(1), path),
    "bits, alone": lambda path: language_model.bits_per_base_figure(ALONE, path),
    "held out": lambda path: language_model.held_out_figure(run(), bits_table(), path),
    "held out, hours": lambda path: language_model.held_out_figure(run(points=80), bits_table(), path),
    "held out, no time": lambda path: language_model.held_out_figure(run(timed=False), bits_table(), path),
    "held out, no curve": lambda path: language_model.held_out_figure(run(points=0), bits_table(), path),
    "held out, alone": lambda path: language_model.held_out_figure(
        run(), bits_table(9, {"model": 1.9}), path
    ),
}


@pytest.mark.parametrize("name", DRAWINGS)
def test_svg_is_well_formed_and_the_same_each_time(tmp_path, name):
    for copy in ("a.svg", "b.svg"):
        DRAWINGS[name](tmp_path / copy)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    root = ElementTree.parse(tmp_path / "a.svg").getroot()
    assert root.tag.endswith("svg") and len(list(root.iter())) > 50
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.svg", "b.svg"]


def test_figures_say_what_they_show(tmp_path):
    DRAWINGS["bits"](tmp_path / "bits.svg")
    text = (tmp_path / "bits.svg").read_text()
    row = bits_table().set_index("predictor").loc["n-gram"]
    assert "the axis does not begin at 0" in text
    assert f"{row['difference']:.3f}".replace("-", "−") in text
    for name, unit in (("held out", "minutes"), ("held out, hours", "hours"), ("held out, no time", None)):
        DRAWINGS[name](tmp_path / "held_out.svg")
        text = (tmp_path / "held_out.svg").read_text()
        assert ("training time" in text) is (unit is not None) and (unit or "") in text
        assert "Markov, both sides" in text


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
