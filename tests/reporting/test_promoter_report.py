"""The promoters' report: prediction files lined up, baselines, and the stratum of noncoding windows."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

from bigbird_dna.data.predictions import (
    EXTRA_NEGATIVES,
    AlignedPredictions,
    CalibrationRows,
    compare,
    negative_set_of,
    read_predictions,
)
from bigbird_dna.errors import DataError, UsageError
from bigbird_dna.metrics.auroc import auroc_difference
from bigbird_dna.metrics.resampling import binary_metrics
from bigbird_dna.reporting.promoters import DIFFERENCES, promoter_report
from bigbird_dna.reporting.run_page import shown_table
from bigbird_dna.reporting.summary import promoter_rows
from tests.cli.command import Run
from tests.golden.messages import fails, message
from tests.toys import predictions

LIFTS = {"model": 2.0, "k-mer": 0.5, "position": 1.5, "control": 0.0}
PAIRS = 60


def written(path: Path, frame: pd.DataFrame) -> Path:
    frame.to_parquet(path, index=False)
    return path


def test_reads_one_split(tmp_path: Path) -> None:
    path = written(tmp_path / "p.parquet", predictions())
    assert len(read_predictions(path)) == 12
    assert read_predictions(path, "valid")["contig"].tolist() == ["chr1"]
    assert negative_set_of(path) == "genomic"


def test_extra_negatives_are_read_where_they_are_asked_for(tmp_path: Path) -> None:
    frame = predictions()
    own = frame[(frame["split"] == "test") & (frame["label"] == 0)].assign(split=EXTRA_NEGATIVES["test"])
    more = pd.concat([frame, own, own], ignore_index=True)
    plain, path = written(tmp_path / "plain.parquet", frame), written(tmp_path / "p.parquet", more)
    pd.testing.assert_frame_equal(read_predictions(path), read_predictions(plain))
    assert len(compare("genomic", {"a": path, "b": plain}).labels) == 12
    rows = read_predictions(path, further=True)
    found = CalibrationRows.of(rows, "test")
    assert len(rows) == len(found.labels) == 24 and found.further == 12
    # All negatives together weigh as much as those of other metrics.
    assert found.negative_weight * (found.labels == 0).sum() == pytest.approx(6)
    assert CalibrationRows.of(read_predictions(plain, further=True), "test").negative_weight == 1
    more.loc[len(more) - 1, ["label", "negative_set"]] = [1, "positive"]
    with fails(DataError, len(more)):
        read_predictions(written(path, more))


def test_row_order_and_integer_width_do_not_matter(tmp_path: Path) -> None:
    """Fractions of coding bases stay with their rows too."""
    coding = np.arange(13) / 20
    ours, theirs = predictions(seed=1).assign(coding=coding), predictions(seed=2)
    shuffled = theirs.sample(frac=1, random_state=0).astype({"start": "int32", "label": "uint8"})
    files = {"model": (tmp_path / "a.parquet", ours), "k-mer": (tmp_path / "b.parquet", shuffled)}
    found = compare("genomic", {name: written(*file) for name, file in files.items()})
    expected = ours.assign(kmer=theirs["probability"]).set_index("probability")
    assert found.coding is not None
    scores = (found.scores["model"], found.scores["k-mer"])
    for label, pair, fraction, model, kmer in zip(
        found.labels, found.pairs, found.coding, *scores, strict=True
    ):
        row = expected.loc[model]
        assert row[["label", "pair", "coding", "kmer"]].tolist() == [label, pair, fraction, kmer]


def changed(column: str, row: int, value: object) -> pd.DataFrame:
    frame = predictions().assign(coding=0.0)
    frame[column] = frame[column].astype(object)
    frame.loc[row, column] = value
    return frame.infer_objects()


@pytest.mark.parametrize(
    ("frame", "named"),
    [
        (predictions().drop(columns="pair"), "'pair'"),
        (changed("probability", 3, np.nan), "row 4: probability nan"),
        (changed("contig", 2, None), "row 3: contig"),
        (changed("label", 1, 2), "row 2: label 2"),
        (changed("probability", 0, 1.5), "row 1: probability 1.5"),
        (changed("coding", 2, 1.5), "row 3: coding 1.5"),
        (changed("coding", 2, -0.1), "row 3: coding -0.1"),
        (changed("label", 0, 0), "row 1: negative_set 'positive'"),
        (changed("negative_set", 1, "permuted"), "genomic, permuted"),
        (changed("start", 2, 0).assign(end=400, pair=0), "row 3: start 0"),
        (predictions().assign(split="valid"), "'test'"),
        (predictions().head(0), "'test'"),
        (predictions().assign(start="a"), "'start'"),
        (predictions().assign(coding="a"), "'coding'"),
    ],
)
def test_bad_files(tmp_path: Path, frame: pd.DataFrame, named: str) -> None:
    path = written(tmp_path / "p.parquet", frame)
    with fails(DataError, path, named):
        read_predictions(path)


def test_missing_and_foreign_files(tmp_path: Path) -> None:
    (tmp_path / "text.parquet").write_text("contig\tstart\n")
    for path in (tmp_path / "none.parquet", tmp_path / "text.parquet", tmp_path):
        with fails(DataError, path):
            read_predictions(path)
    frame = predictions()
    with fails(DataError):  # positives alone
        negative_set_of(written(tmp_path / "p.parquet", frame[frame["label"] == 1]))


def test_other_windows_are_named(tmp_path: Path) -> None:
    ours = written(tmp_path / "a.parquet", predictions(pairs=6))
    fewer = written(tmp_path / "b.parquet", predictions(pairs=5))
    for negative_set, files in (
        ("genomic", {"model": ours, "k-mer": fewer}),
        ("genomic", {"model": fewer, "k-mer": ours}),
        ("permuted", {"model": ours}),
    ):
        with fails(DataError):
            compare(negative_set, files)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """Predictions with fractions of coding bases, some of them exactly one half."""
    coding = np.random.default_rng(3).integers(0, 11, 2 * PAIRS + 1) / 10
    frames = {
        name: predictions("genomic", PAIRS, lift, seed) for seed, (name, lift) in enumerate(LIFTS.items())
    }
    return {
        name: written(tmp_path / f"{name}.parquet", frame.assign(coding=coding))
        for name, frame in frames.items()
    }


def report(files: dict[str, Path], output: Path) -> pd.DataFrame:
    others = {"baselines": {"genomic": files["k-mer"]}, "positions": {"genomic": files["position"]}}
    return promoter_report({"genomic": files["model"]}, output, control=files["control"], **others)


def brute_force(path: Path) -> pd.DataFrame:
    """The test rows of pairs whose promoter and negative are both less than half coding."""
    frame = pd.read_parquet(path).query("split == 'test'")
    kept = [rows for _, rows in frame.groupby("pair") if len(rows) == 2 and (rows["coding"] < 0.5).all()]
    return pd.concat(kept)


def test_rows_are_those_of_both_strata_and_all_predictors(files: dict[str, Path], tmp_path: Path) -> None:
    table = report(files, tmp_path / "report")
    names = [("genomic", stratum, name) for stratum in ("all", "noncoding") for name in LIFTS]
    assert list(table[["negative_set", "stratum", "model"]].itertuples(index=False, name=None)) == names
    assert set(table["n"]) == {2 * PAIRS, len(brute_force(files["model"]))}
    table = table.set_index(["stratum", "model"])
    kept = {name: brute_force(path) for name, path in files.items()}
    for name, rows in kept.items():
        line = table.loc[("noncoding", name)]
        assert (line["n"], line["positives"]) == (len(rows), len(rows) // 2)
        assert line["auroc"] == pytest.approx(roc_auc_score(rows["label"], rows["probability"]))
        expected = binary_metrics(rows["label"], rows["probability"], groups=rows["pair"])
        # The bootstrap draws pairs in another order of rows: the values themselves are the same.
        for metric in ("auroc", "auroc_low", "auroc_high", "auprc", "f1", "mcc"):
            assert line[metric] == pytest.approx(getattr(expected, metric))
        for baseline, column in DIFFERENCES.items():
            lead = auroc_difference(rows["label"], rows["probability"], kept[baseline]["probability"])
            found = line[[column, f"{column}_low", f"{column}_high"]].astype(float).to_numpy()
            assert np.isnan(found).all() if name == baseline else found == pytest.approx(np.array(lead))


def test_where_coding_is_not_known_or_nowhere_small(files: dict[str, Path], tmp_path: Path) -> None:
    path = tmp_path / "p.parquet"
    for coding in (None, np.nan, 0.5):
        frame = predictions() if coding is None else predictions().assign(coding=coding)
        table = promoter_report({"genomic": written(path, frame)}, tmp_path / "report")
        assert table["auroc_minus_position"].isna().all()
        assert table["stratum"].tolist() == (["all", "noncoding"] if coding == 0.5 else ["all"])
    line = table.iloc[1]
    assert line["n"] == 0 and np.isnan(line["auroc"]) and line["note"]
    for name in ("model", "position", "control"):  # one file with the column is enough
        written(files[name], pd.read_parquet(files[name]).drop(columns="coding"))
    assert (report(files, tmp_path / "report")["stratum"] == "noncoding").sum() == 4


def test_of_several_negatives_each_counts_by_itself() -> None:
    """Pair 0 loses a negative, pair 1 its promoter and so all; pair 2 has no negative, pair 3 none left."""
    pairs = np.array([0, 0, 0, 1, 1, 2, 3, 3, 4, 4])
    labels = np.array([1, 0, 0, 1, 0, 1, 1, 0, 1, 0])
    coding = np.array([0.1, 0.2, 0.9, 0.6, 0, 0, 0, np.nan, 0.499, 0])
    kept = [0, 1, 8, 9]
    part = AlignedPredictions("genomic", labels, pairs, {"model": np.arange(10.0)}, coding).noncoding()
    assert part is not None and part.scores["model"].tolist() == kept
    assert part.pairs.tolist() == pairs[kept].tolist() and part.labels.tolist() == labels[kept].tolist()
    assert AlignedPredictions("genomic", labels, pairs, {}).noncoding() is None


def test_the_summary_the_curves_and_the_page_have_all_predictors(
    files: dict[str, Path], tmp_path: Path
) -> None:
    table = report(files, tmp_path / "report").set_index(["stratum", "model"])
    rows = promoter_rows(tmp_path / "report/promoters.tsv")
    others = ["AUROC, k-mer regression", "AUROC, position regression", "AUROC, shuffled labels"]
    others += ["AUROC, model minus k-mer", "AUROC, model minus position"]
    sections = {row.section: [other.figure for other in rows if other.section == row.section] for row in rows}
    whole, part = "promoters, genomic", "promoters, genomic, less than half coding"
    own = ["AUROC, model", "AUPRC, model", "F1, model", "MCC, model"]
    assert sections == {whole: [*own, *others], part: [*own[:1], *others]}
    found = {(row.section, row.figure): row for row in rows}
    area, line = found[part, "AUROC, model"], table.loc[("noncoding", "model")]
    assert area.value == pytest.approx(line["auroc"], rel=1e-5) and f"{line['n']:,}" in area.note
    lead, area = found[whole, "AUROC, model minus position"], table["auroc"]["all"]
    assert lead.value == pytest.approx(area["model"] - area["position"], abs=1e-5)
    assert lead.low < lead.value < lead.high
    for name, column in (("roc", "auroc"), ("precision_recall", "auprc")):
        text = (tmp_path / "report" / f"{name}.svg").read_text()
        assert text.count("<!-- position regression -->") == 1
        assert f"<!-- {table.loc[('all', 'position'), column]:.3f} [" in text  # of all windows
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
    assert "genomic: position AUROC" in outcome.err
    assert "(--position)" in run(*words, f"--baseline=genomic={files['k-mer']}").err
    outcome = run(*words, f"--position=x={files['position']}")
    assert outcome.code == 2 and message(outcome.err, "'x'")
    with fails(UsageError, "'x'"):
        promoter_report({"genomic": files["model"]}, tmp_path / "report", positions={"x": files["position"]})
