"""Variants with known effects: which rows the table has, what they rest on, and what is drawn."""

import math
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from bigbird_dna.metrics.auroc import auroc
from bigbird_dna.reporting.variants import MOST_POINTS, VARIANTS, KnownEffect, variant_figure, variant_table

EFFECTS = {"disrupts_site": ["loss"], "creates_site": ["gain"], "tolerated": ["none"], "flanking": ["none"]}
EFFECTS["mixed"] = ["none", "loss"]


@pytest.fixture
def variants() -> list[KnownEffect]:
    rng = np.random.default_rng(3)
    found = []
    for number in range(300):
        place = list(EFFECTS)[number % 5]
        effect = str(rng.choice(EFFECTS[place]))
        delta = rng.normal(0, 0.1) + {"loss": -0.1, "gain": 0.15, "none": 0}[effect]
        contig, track = f"c{number % 3}", f"T{number % 2}"
        log_odds = delta * rng.uniform(1, 9)
        found.append(KnownEffect(contig, track, place, effect, delta, log_odds))
    return found


def test_areas_are_those_of_scikit_learn(variants: list[KnownEffect]) -> None:
    table = variant_table(variants, ["c2"])
    assert list(table.columns) == VARIANTS.names
    parts = [*(f"category={name}" for name in sorted(EFFECTS)), "track=T0", "track=T1"]
    assert table["subset"].tolist() == ["all", *parts, "held-out", *(f"held-out {part}" for part in parts)]
    against = {"disrupts_site": True, "creates_site": True, "tolerated": False, "flanking": False}
    for row in table.to_dict("records"):
        name, value = row["subset"], row["subset"].partition("=")[2]
        whole = [v for v in variants if "held-out" not in name or v.contig == "c2"]
        own = rows = [v for v in whole if not value or value in (v.track, v.category)]
        if value in against:
            rows = own + [v for v in whole if (v.effect == "none") == against[value]]
        labels = [v.effect != "none" for v in rows]
        assert (row["variants"], row["with_effect"]) == (len(rows), sum(labels))
        sizes = [abs(v.delta) for v in rows]
        assert row["auroc"] == pytest.approx(roc_auc_score(labels, sizes))
        assert row["auroc_log_odds"] == pytest.approx(roc_auc_score(labels, [abs(v.log_odds) for v in rows]))
        assert (row["auroc_low"], row["auroc_high"]) == pytest.approx(auroc(labels, sizes)[1:], rel=1e-12)
        signs = [(v.delta > 0) == (v.effect == "gain") for v in own if v.effect in ("gain", "loss")]
        expected = np.mean(signs) if signs else math.nan
        assert row["sign_accuracy"] == pytest.approx(expected, nan_ok=True)


def test_what_is_not_defined_is_empty() -> None:
    one = KnownEffect("c", "T", "", "loss", -0.5, -2.0)
    table = variant_table([one, one._replace(delta=0.1)], ["elsewhere"])
    assert table["subset"].tolist() == ["all", "held-out"]
    assert table["variants"].tolist() == [2, 0]
    assert table["sign_accuracy"].tolist()[0] == 0.5 and math.isnan(table["sign_accuracy"][1])
    assert table[["auroc", "auroc_low", "auroc_high", "auroc_log_odds"]].isna().all(axis=None)
    # No row for a place without variants on the held-out contigs.
    there = [
        one._replace(category="disrupts_site"),
        one._replace(category="tolerated", contig="d", effect="none"),
    ]
    names = variant_table(there, ["d"])["subset"].tolist()
    assert names == [
        "all",
        "category=disrupts_site",
        "category=tolerated",
        "held-out",
        "held-out category=tolerated",
    ]


def test_other_words_for_effects() -> None:
    sizes = (("functional", 0.4), ("functional", 0.1), ("silent", 0.2), ("silent", 0.0))
    rows = [KnownEffect("c", "T", "", effect, size, size) for effect, size in sizes]
    (row,) = variant_table(rows, no_effect="silent").to_dict("records")
    assert (row["with_effect"], row["auroc"]) == (2, 0.75)
    assert math.isnan(row["sign_accuracy"])


@pytest.mark.parametrize("places", [True, False])
def test_figure(variants: list[KnownEffect], places: bool, tmp_path) -> None:
    shown = [v if places else v._replace(category="") for v in variants]
    for name in ("a", "b"):
        variant_figure(shown, tmp_path / f"{name}.svg")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    text = (tmp_path / "a.svg").read_text()
    ElementTree.fromstring(text)
    for label in ("strong (60)", "weak (60)") if places else ("gain (60)",):
        assert f"<!-- {label} -->" in text
    # As many variants as there may be, the file stays small.
    many = [v._replace(delta=v.delta + n / 1e4) for n in range(30) for v in shown]
    assert len(many) > 10 * MOST_POINTS
    variant_figure(many, tmp_path / "many.svg")
    assert (tmp_path / "many.svg").stat().st_size < 600_000
