"""The promoters' report: prediction files lined up, and baselines."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

from bigbird_dna.calibration.fitting import fit_map
from bigbird_dna.calibration.maps import FILE, Calibration, write_calibration
from bigbird_dna.data.predictions import (
    PROMOTER_BASELINES,
    blocks_of,
    compare,
    negative_set_of,
    read_predictions,
)
from bigbird_dna.disk.atomic import checksum
from bigbird_dna.errors import DataError, ModelError
from bigbird_dna.metrics.auroc import auroc_difference
from bigbird_dna.metrics.labels import binary_metrics
from bigbird_dna.metrics.reliability import calibration_metrics
from bigbird_dna.metrics.resampling import joined
from bigbird_dna.reporting.predictors import predictor_label
from bigbird_dna.reporting.promoters import DIFFERENCES, promoter_report
from tests.calibration.sources import mixture
from tests.cli.command import Run, refused
from tests.golden.messages import fails
from tests.toys import predictions

LIFTS = {
    "model": 2.0,
    "k-mer": 0.5,
    "position": 1.5,
    "composition": 0.3,
    "control": 0.0,
}
PAIRS = 60


def written(path: Path, frame: pd.DataFrame) -> Path:
    frame.to_parquet(path, index=False)
    return path


def test_reads_one_split(tmp_path: Path) -> None:
    path = written(tmp_path / "p.parquet", predictions())
    assert len(read_predictions(path)) == 12
    assert read_predictions(path, "valid")["contig"].tolist() == ["chr1"]
    assert negative_set_of(path) == "genomic"


def test_row_order_and_integer_width_do_not_matter(tmp_path: Path) -> None:
    groups, starts = np.arange(13) // 4, 6_000 * np.arange(13)
    ours, theirs = (
        predictions(seed=seed).assign(start=starts, end=starts + 400) for seed in (1, 2)
    )
    ours = ours.assign(homology=groups)
    shuffled = theirs.sample(frac=1, random_state=0).astype(
        {"start": "int32", "label": "uint8"}
    )
    files = {
        "model": (tmp_path / "a.parquet", ours),
        "k-mer": (tmp_path / "b.parquet", shuffled),
    }
    found = compare("genomic", {name: written(*file) for name, file in files.items()})
    expected = ours.assign(kmer=theirs["probability"]).set_index("probability")
    scores = (found.scores["model"], found.scores["k-mer"])
    for label, model, kmer in zip(found.labels, *scores, strict=True):
        assert expected.loc[model, ["label", "kmer"]].tolist() == [label, kmer]
    # Blocks are joined where windows of one number are, in every file's order.
    known = expected.loc[found.scores["model"]]
    alone = blocks_of(known.drop(columns="homology"))
    assert len({*alone}) > len({*found.blocks}) > 1
    assert found.blocks.tolist() == joined(alone, known["homology"].to_numpy()).tolist()


def changed(column: str, row: int, value: object) -> pd.DataFrame:
    frame = predictions().assign(network=0.0)
    frame[column] = frame[column].astype(object)
    frame.loc[row, column] = value
    return frame.infer_objects()


@pytest.mark.parametrize(
    ("frame", "named"),
    [
        (predictions().drop(columns="pair"), "'pair'"),
        (changed("probability", 3, np.nan), "row 4: a missing value"),
        (changed("contig", 2, None), "row 3: a missing value"),
        (changed("label", 1, 2), "row 2: label"),
        (changed("probability", 0, 1.5), "row 1: probability"),
        (changed("network", 2, 1.5), "row 3: network"),
        (changed("network", 2, -0.1), "row 3: network"),
        (changed("label", 0, 0), "row 1: negative_set"),
        (changed("negative_set", 1, "permuted"), "genomic, permuted"),
        (changed("start", 2, 0).assign(end=400, pair=0), "row 3: a duplicate window"),
        (predictions().assign(split="valid"), "'test'"),
        (predictions().head(0), "'test'"),
        (predictions().assign(start="a"), "'start'"),
        (predictions().assign(network="a"), "'network'"),
        (predictions().assign(homology="a"), "'homology'"),
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
    frames = {
        name: predictions("genomic", PAIRS, lift, seed)
        for seed, (name, lift) in enumerate(LIFTS.items())
    }
    return {
        name: written(tmp_path / f"{name}.parquet", frame)
        for name, frame in frames.items()
    }


def report(files: dict[str, Path], output: Path) -> pd.DataFrame:
    baselines = {"genomic": {name: files[name] for name in PROMOTER_BASELINES}}
    return promoter_report(
        {"genomic": files["model"]},
        output,
        baselines=baselines,
        control=files["control"],
    )


def test_rows_are_those_of_all_predictors(
    files: dict[str, Path], tmp_path: Path
) -> None:
    table = report(files, tmp_path / "report")
    assert table["model"].tolist() == [*LIFTS]
    assert set(table["negative_set"]) == {"genomic"}
    table = table.set_index("model")
    kept = {
        name: pd.read_parquet(path).query("split == 'test'")
        for name, path in files.items()
    }
    for name, rows in kept.items():
        line = table.loc[name]
        assert (line["n"], line["positives"]) == (len(rows), len(rows) // 2)
        assert line["auroc"] == pytest.approx(
            roc_auc_score(rows["label"], rows["probability"])
        )
        expected = binary_metrics(
            rows["label"], rows["probability"], blocks=blocks_of(rows)
        )
        for metric in (
            "auroc",
            "auroc_low",
            "auroc_high",
            "auprc",
            "f1",
            "mcc",
        ):
            assert line[metric] == pytest.approx(getattr(expected, metric))
        for baseline, column in DIFFERENCES.items():
            both = rows["probability"], kept[baseline]["probability"]
            lead = auroc_difference(rows["label"], *both, blocks_of(rows)).estimate
            found = (
                line[[column, f"{column}_low", f"{column}_high"]]
                .astype(float)
                .to_numpy()
            )
            assert (
                np.isnan(found).all()
                if name == baseline
                else found == pytest.approx(np.array(lead))
            )


def test_the_curves_have_all_predictors(files: dict[str, Path], tmp_path: Path) -> None:
    report(files, tmp_path / "report")
    for name in ("roc", "precision_recall"):
        text = (tmp_path / "report" / f"{name}.plotly.json").read_text()
        names = {trace["name"] for trace in json.loads(text)["data"]}
        assert names == {predictor_label(name) for name in LIFTS}


def test_the_command(run: Run, files: dict[str, Path], tmp_path: Path) -> None:
    words = [
        "evaluate promoters",
        f"--predictions=genomic={files['model']}",
        "-o",
        tmp_path / "report",
    ]
    given = f"--promoter-baseline=genomic/position={files['position']}"
    outcome = run(*words, given)
    assert outcome.code == 0 and "genomic: position AUROC" in outcome.err
    assert "k-mer, composition" in outcome.err
    table = pd.read_csv(tmp_path / "report/promoters.tsv", sep="\t")
    assert (
        table["model"].tolist() == ["model", "position"]
        and table["auroc_minus_kmer"].isna().all()
    )
    assert table["auroc_minus_position"].isna().tolist() == [False, True]
    for wrong, named in (
        ("x/position", "'x'"),
        ("genomic/gc", "'gc'"),
        ("genomic/", "'genomic'"),
    ):
        twice = (
            [f"--promoter-baseline=genomic={files['k-mer']}"]
            if wrong == "genomic/"
            else []
        )
        refused(
            run(*words, *twice, f"--promoter-baseline={wrong}={files['position']}"),
            2,
            named,
        )


# Calibration in the reports of promoters and of tracks


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A directory with predictions, some weights, and a calibration of these."""
    directory = tmp_path / "model"
    directory.mkdir()
    predictions(pairs=300, lift=2.0).to_parquet(
        directory / "predictions.parquet", index=False
    )
    (directory / "model.safetensors").write_bytes(b"weights")
    rows = mixture(500, 0.5, seed=1)
    fitted = fit_map(rows.labels, rows.raw)
    assert fitted is not None
    write_calibration(
        directory / FILE,
        Calibration.of({None: fitted}, {}),
        checksum(directory / "model.safetensors"),
    )
    return directory


def calibration_of(report: Path) -> pd.DataFrame:
    return pd.read_csv(report / "calibration.tsv", sep="\t").set_index("probabilities")


def same(one: Path, other: Path) -> None:
    """All of two reports but the calibration."""
    for name in (
        "promoters.tsv",
        "roc.plotly.json",
        "precision_recall.plotly.json",
    ):
        assert (one / name).read_bytes() == (other / name).read_bytes()


def test_promoters_are_evaluated_before_and_after(model: Path, tmp_path: Path) -> None:
    promoter_report({"genomic": model / "predictions.parquet"}, tmp_path / "report")
    table = calibration_of(tmp_path / "report")
    assert list(table.index) == ["raw", "calibrated"]
    frame = pd.read_parquet(model / "predictions.parquet").query("split == 'test'")
    expected = calibration_metrics(
        frame["label"], frame["probability"], blocks=blocks_of(frame)
    )
    for name, value in expected._asdict().items():
        assert table.loc["raw", name] == pytest.approx(value, rel=1e-4), name
    assert table.loc["raw", "n"] == 600
    figure = json.loads((tmp_path / "report/calibration.plotly.json").read_text())
    assert [trace["name"] for trace in figure["data"]] == ["raw", "calibrated"]
    # Others of the report are the same as without a calibration, of which one is not asked for.
    (model / FILE).unlink()
    promoter_report({"genomic": model / "predictions.parquet"}, tmp_path / "before")
    same(tmp_path / "before", tmp_path / "report")
    assert calibration_of(tmp_path / "before").index.tolist() == ["raw"]


def test_a_calibration_of_other_weights_is_no_model_s(
    model: Path, tmp_path: Path
) -> None:
    (model / "model.safetensors").write_bytes(b"others")
    with fails(ModelError):
        promoter_report({"genomic": model / "predictions.parquet"}, tmp_path / "report")
    assert not (tmp_path / "report").exists() or not list(
        (tmp_path / "report").glob("*.tsv")
    )
