"""The position baseline and the stratum of noncoding windows in `promoters.tsv`, its summary and figures."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

from bigbird_dna.data.predictions import AlignedPredictions, compare, read_predictions
from bigbird_dna.errors import DataError, UsageError
from bigbird_dna.metrics.auroc import auroc_difference
from bigbird_dna.metrics.binary import binary_metrics
from bigbird_dna.reporting.promoters import DIFFERENCES, promoter_report
from bigbird_dna.reporting.run_page import shown_table
from bigbird_dna.reporting.summary import promoter_rows
from tests.cli.command import Run
from tests.golden.messages import fails
from tests.toys import predictions

PREDICTORS = ("model", "k-mer", "position", "control")
LIFTS = {"model": 2.0, "k-mer": 0.5, "position": 1.5, "control": 0.0}
PAIRS = 60


@pytest.fixture
def coding() -> np.ndarray:
    """Fractions of the rows of `predictions`, some of them exactly one half."""
    return np.random.default_rng(3).integers(0, 11, 2 * PAIRS + 1) / 10


@pytest.fixture
def files(tmp_path: Path, coding: np.ndarray) -> dict[str, Path]:
    paths = {}
    for seed, name in enumerate(PREDICTORS):
        frame = predictions("genomic", PAIRS, LIFTS[name], seed).assign(coding=coding)
        paths[name] = tmp_path / f"{name}.parquet"
        frame.to_parquet(paths[name], index=False)
    return paths


def report(files: dict[str, Path], output: Path) -> pd.DataFrame:
    return promoter_report(
        {"genomic": files["model"]},
        output,
        baselines={"genomic": files["k-mer"]},
        positions={"genomic": files["position"]},
        control=files["control"],
    )


def brute_force(frame: pd.DataFrame) -> pd.DataFrame:
    """The test rows of pairs whose promoter and negative are both less than half coding."""
    test = frame[frame["split"] == "test"]
    kept = [rows for _, rows in test.groupby("pair") if len(rows) == 2 and (rows["coding"] < 0.5).all()]
    return pd.concat(kept)


def test_rows_are_those_of_both_strata_and_all_predictors(files: dict[str, Path], tmp_path: Path) -> None:
    table = report(files, tmp_path / "report")
    assert list(table.columns[:5]) == ["negative_set", "stratum", "model", "n", "positives"]
    assert list(table.columns[-7:]) == [
        *("auroc_minus_kmer", "auroc_minus_kmer_low", "auroc_minus_kmer_high"),
        *("auroc_minus_position", "auroc_minus_position_low", "auroc_minus_position_high", "note"),
    ]
    expected = [("genomic", stratum, name) for stratum in ("all", "noncoding") for name in PREDICTORS]
    assert list(table[["negative_set", "stratum", "model"]].itertuples(index=False, name=None)) == expected
    assert set(table["n"]) == {2 * PAIRS, len(brute_force(pd.read_parquet(files["model"])))}


def test_figures_of_the_stratum_are_those_of_its_rows_alone(files: dict[str, Path], tmp_path: Path) -> None:
    table = report(files, tmp_path / "report").set_index(["stratum", "model"])
    kept = {name: brute_force(pd.read_parquet(path)) for name, path in files.items()}
    for name, rows in kept.items():
        line = table.loc[("noncoding", name)]
        assert (line["n"], line["positives"]) == (len(rows), len(rows) // 2)
        assert line["auroc"] == pytest.approx(roc_auc_score(rows["label"], rows["probability"]))
        figures = binary_metrics(rows["label"], rows["probability"], groups=rows["pair"])
        # The bootstrap draws pairs in another order of rows: the figures themselves are the same.
        for metric in ("auroc", "auroc_low", "auroc_high", "auprc", "f1", "mcc"):
            assert line[metric] == pytest.approx(getattr(figures, metric))
        for baseline, column in DIFFERENCES.items():
            lead = auroc_difference(rows["label"], rows["probability"], kept[baseline]["probability"])
            found = line[[column, f"{column}_low", f"{column}_high"]].astype(float).to_numpy()
            assert np.isnan(found).all() if name == baseline else found == pytest.approx(np.array(lead))


def test_without_the_column_there_are_only_rows_of_all_windows(tmp_path: Path) -> None:
    path = tmp_path / "p.parquet"
    for frame in (predictions(), predictions().assign(coding=np.nan)):
        frame.to_parquet(path, index=False)
        table = promoter_report({"genomic": path}, tmp_path / "report")
        assert table["stratum"].tolist() == ["all"]
        assert table["auroc_minus_position"].isna().all()


def test_one_file_with_the_column_is_enough(files: dict[str, Path], tmp_path: Path) -> None:
    for name in ("model", "position", "control"):
        pd.read_parquet(files[name]).drop(columns="coding").to_parquet(files[name])
    table = report(files, tmp_path / "report")
    assert (table["stratum"] == "noncoding").sum() == 4


def test_an_empty_stratum_has_rows_without_figures(tmp_path: Path) -> None:
    path = tmp_path / "p.parquet"
    predictions().assign(coding=0.5).to_parquet(path, index=False)
    line = promoter_report({"genomic": path}, tmp_path / "report").set_index("stratum").loc["noncoding"]
    assert line["n"] == 0 and np.isnan(line["auroc"]) and line["note"]


def test_of_several_negatives_each_counts_by_itself() -> None:
    """Pair 0 loses a negative, pair 1 its promoter and so all; pair 2 has no negative, pair 3 none left."""
    rows = [
        (0, 1, 0.1, True),
        (0, 0, 0.2, True),
        (0, 0, 0.9, False),
        (1, 1, 0.6, False),
        (1, 0, 0.0, False),
        (2, 1, 0.0, False),
        (3, 1, 0.0, False),
        (3, 0, np.nan, False),
        (4, 1, 0.499, True),
        (4, 0, 0.0, True),
    ]
    pairs, labels, coding, kept = (np.array(column) for column in zip(*rows, strict=True))
    whole = AlignedPredictions("genomic", labels, pairs, {"model": np.arange(10.0)}, coding)
    part = whole.noncoding()
    assert part is not None and part.scores["model"].tolist() == np.flatnonzero(kept).tolist()
    assert part.pairs.tolist() == pairs[kept].tolist() and part.labels.tolist() == labels[kept].tolist()
    assert AlignedPredictions("genomic", labels, pairs, {}).noncoding() is None


@pytest.mark.parametrize(
    ("value", "message"),
    [(1.5, "row 3: coding 1.5 is outside"), (-0.1, "row 3: coding -0.1 is outside"), ("a", "not numeric")],
)
def test_impossible_fractions_are_refused(tmp_path: Path, value: object, message: str) -> None:
    frame = predictions().assign(coding=0.0 if not isinstance(value, str) else "0")
    frame.loc[2, "coding"] = value
    frame.to_parquet(tmp_path / "p.parquet")
    with fails(DataError):
        read_predictions(tmp_path / "p.parquet")


def test_rows_stay_in_line_with_the_column(files: dict[str, Path], coding: np.ndarray) -> None:
    shuffled = pd.read_parquet(files["k-mer"]).sample(frac=1, random_state=0)
    shuffled.to_parquet(files["k-mer"], index=False)
    found = compare("genomic", {name: files[name] for name in ("k-mer", "model")})
    frame = pd.read_parquet(files["model"])
    expected = dict(zip(frame["probability"], coding, strict=True))
    assert found.coding is not None
    assert found.coding.tolist() == [expected[score] for score in found.scores["model"]]


def test_the_summary_has_a_section_of_the_stratum(files: dict[str, Path], tmp_path: Path) -> None:
    table = report(files, tmp_path / "report").set_index(["stratum", "model"])
    rows = promoter_rows(tmp_path / "report/promoters.tsv")
    others = ["AUROC, k-mer regression", "AUROC, position regression", "AUROC, shuffled labels"]
    others += ["AUROC, model minus k-mer", "AUROC, model minus position"]
    sections = {row.section: [other.figure for other in rows if other.section == row.section] for row in rows}
    assert sections == {
        "promoters, genomic": ["AUROC, model", "AUPRC, model", "F1, model", "MCC, model", *others],
        "promoters, genomic, less than half coding": ["AUROC, model", *others],
    }
    found = {(row.section, row.figure): row for row in rows}
    part = found["promoters, genomic, less than half coding", "AUROC, model"]
    assert part.value == pytest.approx(table.loc[("noncoding", "model"), "auroc"], rel=1e-5)
    assert part.note == f"{table.loc[('noncoding', 'model'), 'n']:,} test windows"
    lead = found["promoters, genomic", "AUROC, model minus position"]
    whole = table.loc[("all", "model")]
    assert lead.value == pytest.approx(whole["auroc"] - table.loc[("all", "position"), "auroc"], abs=1e-5)
    assert lead.low < lead.value < lead.high and lead.note == "paired DeLong"


def test_curves_and_the_page_show_the_position_regression(files: dict[str, Path], tmp_path: Path) -> None:
    table = report(files, tmp_path / "report").set_index(["stratum", "model"])
    for name, area in (("roc", "auroc"), ("precision_recall", "auprc")):
        text = (tmp_path / "report" / f"{name}.svg").read_text()
        assert text.count("<!-- position regression -->") == 1
        # Of all windows: figures of the stratum are in the table.
        assert f"<!-- {table.loc[('all', 'position'), area]:.3f} [" in text
    shown = shown_table(tmp_path / "report/promoters.tsv")
    assert {"stratum", "auroc minus position"} <= set(shown.headings) and len(shown.rows) == 8


def test_the_command(run: Run, files: dict[str, Path], tmp_path: Path) -> None:
    words = ["evaluate promoters", f"--predictions=genomic={files['model']}", "-o", tmp_path / "report"]
    outcome = run(*words, f"--position=genomic={files['position']}")
    assert outcome.code == 0
    table = pd.read_csv(tmp_path / "report/promoters.tsv", sep="\t")
    assert table["model"].tolist() == ["model", "position"] * 2
    assert table["auroc_minus_kmer"].isna().all()
    assert table["auroc_minus_position"].isna().tolist() == [False, True] * 2
    assert "genomic: position AUROC" in outcome.err and "test windows that are noncoding" in outcome.err
    outcome = run(*words, f"--baseline=genomic={files['k-mer']}")
    assert "genomic: compared without the baseline position (--position)" in outcome.err
    outcome = run(*words, f"--position=x={files['position']}")
    assert outcome.code == 2 and "position 'x': there is no set 'x'" in outcome.err


def test_a_position_baseline_of_no_set_is_refused(files: dict[str, Path], tmp_path: Path) -> None:
    with fails(UsageError):
        promoter_report({"genomic": files["model"]}, tmp_path / "report", positions={"x": files["position"]})
