"""Bits per base of a language model and of others: table, figures and files."""

import math
import xml.etree.ElementTree as ElementTree

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigbird_dna.data.bits_per_base import COLUMNS, language_model_table, of_split, read_bits
from bigbird_dna.disk.tables import write_tsv
from bigbird_dna.errors import DataError
from bigbird_dna.reporting import language_model as figures
from bigbird_dna.reporting.training_log import LogCurve, TrainingCurves, read_training_log
from tests.golden.messages import fails

RATES = {"model": 1.88, "uniform": 2.0, "n-gram": 1.95, "Markov": 1.93, "Markov, both sides": 1.929}


def table(blocks=40, rates=RATES):
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


def test_table_has_a_row_for_each_and_compares_with_the_model():
    found = table()
    assert tuple(found.columns) == COLUMNS
    assert found["predictor"].tolist() == [*RATES]
    rows = found.set_index("predictor")
    assert math.isnan(rows.loc["model", "difference"])
    for name in [*RATES][1:]:
        row = rows.loc[name]
        assert row["difference"] == pytest.approx(rows.loc["model", "bits_per_base"] - row["bits_per_base"])
        assert row["difference_low"] < row["difference"] < row["difference_high"] < 0
    assert rows.loc["uniform", ["bits_per_base", "low", "high"]].tolist() == [2, 2, 2]
    assert rows["note"].tolist() == ["", "2 bits a base", "", "", ""]


@given(st.lists(st.floats(0, 1), max_size=12).map(sorted), st.floats(0.001, 0.2))
def test_labels_are_apart_and_near(places, gap):
    places = np.array(places)
    found = figures.apart(places, gap)
    assert found.shape == places.shape
    assert (np.diff(found) >= gap * (1 - 1e-6)).all()
    if len(places) and (np.diff(places) > gap * (1 + 1e-9)).all():
        np.testing.assert_array_equal(found, places)
    if len(places):  # as a whole they are moved nowhere
        assert found.mean() == pytest.approx(places.mean())


DRAWINGS = {
    "bits": lambda path: figures.bits_per_base_figure(table(), path),
    "bits, one block": lambda path: figures.bits_per_base_figure(table(1), path),
    "bits, alone": lambda path: figures.bits_per_base_figure(table(9, {"model": 1.9}), path),
    "held out": lambda path: figures.held_out_figure(run(), table(), path),
    "held out, hours": lambda path: figures.held_out_figure(run(points=80), table(), path),
    "held out, no time": lambda path: figures.held_out_figure(run(timed=False), table(), path),
    "held out, no curve": lambda path: figures.held_out_figure(run(points=0), table(), path),
    "held out, alone": lambda path: figures.held_out_figure(run(), table(9, {"model": 1.9}), path),
}


@pytest.mark.parametrize("name", DRAWINGS)
def test_svg_is_well_formed_and_the_same_each_time(tmp_path, name):
    for copy in ("a.svg", "b.svg"):
        DRAWINGS[name](tmp_path / copy)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    root = ElementTree.parse(tmp_path / "a.svg").getroot()
    assert root.tag.endswith("svg") and len(list(root.iter())) > 50


def test_figures_say_what_they_show(tmp_path):
    DRAWINGS["bits"](tmp_path / "bits.svg")
    text = (tmp_path / "bits.svg").read_text()
    row = table().set_index("predictor").loc["n-gram"]
    assert "the axis does not begin at 0" in text
    assert f"{row['difference']:.3f}".replace("-", "−") in text
    for name, said in (("held out", "minutes"), ("held out, hours", "hours"), ("held out, no time", None)):
        DRAWINGS[name](tmp_path / "held_out.svg")
        text = (tmp_path / "held_out.svg").read_text()
        assert ("training time" in text) is (said is not None) and (said or "") in text
        assert "Markov, both sides" in text


def test_a_table_is_read_as_it_was_written(tmp_path):
    both = pd.concat([table().assign(split=split) for split in ("valid", "test")], ignore_index=True)
    write_tsv(tmp_path / "bits.tsv", both[["split", *COLUMNS]])
    found = read_bits(tmp_path / "bits.tsv")
    pd.testing.assert_frame_equal(found, both[["split", *COLUMNS]], rtol=1e-5)
    assert of_split(found, "test")["split"].tolist() == ["test"] * len(table())
    assert of_split(found, "other")["split"].tolist() == ["valid"] * len(table())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: rows.assign(low="x"), "low 'x' is not a number"),
        (lambda rows: rows.assign(bits_per_base=""), "bits_per_base '' is not a number"),
        (lambda rows: pd.concat([rows, rows[:1]]), "row 6: split test, predictor model: there is such a row"),
        (lambda rows: rows[rows["predictor"] != "model"], "split 'test' has no row 'model'"),
        (lambda rows: rows[:0], "no row in the table"),
        (lambda rows: rows.drop(columns="note"), "no column 'note'"),
    ],
)
def test_a_table_that_is_none_is_refused(tmp_path, change, message):
    rows = table().assign(split="test").astype(object)
    write_tsv(tmp_path / "bits.tsv", change(rows[["split", *COLUMNS]]))
    with fails(DataError):
        read_bits(tmp_path / "bits.tsv")


def test_time_is_read_where_the_log_has_it(tmp_path):
    path = tmp_path / "training.jsonl"
    path.write_text(
        '{"step": 10, "seconds": 4.5, "loss": 2.0}\n'
        '{"step": 10, "seconds": 4.5, "evaluation": {"bits_per_base": 1.9}}\n'
        '{"step": 20, "seconds": 9.0, "loss": 1.5}\n'
    )
    curves = read_training_log(path)
    assert curves.loss.seconds.tolist() == [4.5, 9.0]
    assert curves.evaluation["bits_per_base"].seconds.tolist() == [4.5]
    path.write_text(path.read_text() + '{"step": 30, "loss": 1.4}\n')
    curves = read_training_log(path)
    assert curves.loss.seconds is None
    assert curves.evaluation["bits_per_base"].seconds.tolist() == [4.5]
