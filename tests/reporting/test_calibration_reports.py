"""Calibration in the reports of promoters and of tracks."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bigbird_dna.calibration.maps import FILE, Calibration, fit_map, fit_tracks, write_calibration
from bigbird_dna.data.predictions import EXTRA_NEGATIVES
from bigbird_dna.disk.atomic import checksum
from bigbird_dna.errors import ModelError
from bigbird_dna.metrics.reliability import calibration_metrics
from bigbird_dna.reporting.promoters import promoter_report
from bigbird_dna.reporting.tracks import auc_report
from tests.calibration.sources import mixture
from tests.cli.command import Run, refused
from tests.golden.messages import fails
from tests.toys import predictions


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A directory with predictions, some weights, and a calibration of these."""
    directory = tmp_path / "model"
    directory.mkdir()
    predictions(pairs=300, lift=2.0).to_parquet(directory / "predictions.parquet", index=False)
    (directory / "model.safetensors").write_bytes(b"weights")
    rows = mixture(500, 0.5, seed=1)
    fitted = fit_map(rows.labels, rows.raw)
    assert fitted is not None
    write_calibration(
        directory / FILE, Calibration.of({None: fitted}, {}), checksum(directory / "model.safetensors")
    )
    return directory


def calibration_of(report: Path) -> pd.DataFrame:
    return pd.read_csv(report / "calibration.tsv", sep="\t").set_index("probabilities")


def same(one: Path, other: Path) -> None:
    """All of two reports but the calibration."""
    for name in ("promoters.tsv", "roc.svg", "precision_recall.svg", "score_histograms.svg"):
        assert (one / name).read_bytes() == (other / name).read_bytes()


def test_promoters_are_evaluated_before_and_after(model: Path, tmp_path: Path) -> None:
    promoter_report({"genomic": model / "predictions.parquet"}, tmp_path / "report")
    table = calibration_of(tmp_path / "report")
    assert list(table.index) == ["raw", "calibrated"]
    frame = pd.read_parquet(model / "predictions.parquet").query("split == 'test'")
    expected = calibration_metrics(frame["label"], frame["probability"], groups=frame["pair"])
    for name, value in expected._asdict().items():
        assert table.loc["raw", name] == pytest.approx(value, rel=1e-4), name
    assert table.loc["raw", "n"] == 600 and table["discrimination"].nunique() == 1  # the map only rises
    figure = (tmp_path / "report/calibration.svg").read_text()
    assert figure.startswith("<?xml") and "calibrated" in figure
    # Others of the report are the same as without a calibration, of which one is not asked for.
    (model / FILE).unlink()
    promoter_report({"genomic": model / "predictions.parquet"}, tmp_path / "before")
    same(tmp_path / "before", tmp_path / "report")
    assert calibration_of(tmp_path / "before").index.tolist() == ["raw"]


def test_extra_negatives_are_evaluated_and_change_no_other_metric(model: Path, tmp_path: Path) -> None:
    path = model / "predictions.parquet"
    promoter_report({"genomic": path}, tmp_path / "before")
    frame = pd.read_parquet(path)
    own = frame[(frame["split"] == "test") & (frame["label"] == 0)].assign(split=EXTRA_NEGATIVES["test"])
    more = own.assign(probability=np.roll(own["probability"], 1))
    pd.concat([frame, more]).to_parquet(path, index=False)
    promoter_report({"genomic": path}, tmp_path / "report")
    before, after = calibration_of(tmp_path / "before"), calibration_of(tmp_path / "report")
    same(tmp_path / "before", tmp_path / "report")
    assert (after["n"] == 900).all() and (after["share_positive"] == 0.5).all()
    assert (after["ece_perfect"] < 0.9 * before["ece_perfect"]).all()


def test_a_calibration_of_other_weights_is_no_model_s(model: Path, tmp_path: Path) -> None:
    (model / "model.safetensors").write_bytes(b"others")
    with fails(ModelError):
        promoter_report({"genomic": model / "predictions.parquet"}, tmp_path / "report")
    assert not (tmp_path / "report").exists() or not list((tmp_path / "report").glob("*.tsv"))


def test_the_summary_has_the_errors_beside_the_other_figures(run: Run, model: Path, tmp_path: Path) -> None:
    promoter_report({"genomic": model / "predictions.parquet"}, tmp_path / "report")
    files = {name: tmp_path / f"report/{name}.tsv" for name in ("promoters", "calibration")}
    words = [f"--{name}={path}" for name, path in files.items()]
    assert run("report summary", *words, "-o", tmp_path / "summary.tsv").code == 0
    found = pd.read_csv(tmp_path / "summary.tsv", sep="\t")
    assert (found["section"] == "promoters, genomic").all()
    table = calibration_of(tmp_path / "report")
    for name in ("raw", "calibrated"):
        row = found[found["figure"] == f"calibration error, {name}"].iloc[0]
        expected = [table.loc[name, f"ece_debiased{end}"] for end in ("", "_low", "_high")]
        assert row[["value", "low", "high"]].tolist() == pytest.approx(expected, rel=1e-4)
    files["calibration"].write_text("negative_set\n")
    refused(run("report summary", *words), 1, files["calibration"], "no column 'probabilities'")


@pytest.fixture
def tracks(tmp_path: Path) -> Path:
    """`raw.npy` and `labels.npy` of test rows of two tracks, and the calibration of validation rows."""

    def made(seed: int) -> tuple[np.ndarray, np.ndarray]:
        parts = [mixture(4000, prior, seed + place) for place, prior in enumerate((0.3, 0.02))]
        labels = np.stack([rows.labels for rows in parts], 1).astype(np.uint8)
        return labels, np.stack([rows.raw for rows in parts], 1)

    labels, raw = made(1)
    fitted = fit_tracks(labels, raw)
    assert fitted is not None
    named = dict(zip(("track 1", "track 2"), fitted, strict=True))
    write_calibration(tmp_path / FILE, Calibration.of(named, {}), "0" * 64)
    labels, raw = made(11)
    np.save(tmp_path / "labels.npy", labels), np.save(tmp_path / "raw.npy", raw)
    return tmp_path


def test_tracks_are_evaluated_before_and_after(tracks: Path) -> None:
    files = (tracks / "raw.npy", tracks / "labels.npy")
    auc_report(*files, tracks / "report", calibration=tracks / FILE)
    table = pd.read_csv(tracks / "report/track_calibration.tsv", sep="\t").set_index("track")
    assert table["method"].tolist() == ["isotonic", "platt"]
    labels, raw = np.load(tracks / "labels.npy"), np.load(tracks / "raw.npy")
    for place, name in enumerate(table.index):
        before = calibration_metrics(labels[:, place], raw[:, place])
        assert table.loc[name, "ece_raw"] == pytest.approx(before.ece)
        assert table.loc[name, "positives"] == labels[:, place].sum()
        # What is known of the source: its probabilities are too far from one half, and shifted.
        assert table.loc[name, "ece_calibrated"] < 0.6 * before.ece
        assert table.loc[name, "brier_calibrated"] < before.brier
        assert table.loc[name, "mean_calibrated"] == pytest.approx(before.share_positive, rel=0.2)
    page = (tracks / "report/report.html").read_text()
    shown = ("smaller for 2 of 2 tracks", "img-src data:", "data:image/svg+xml;base64,")
    assert all(text in page for text in shown)
    auc_report(*files, tracks / "plain")
    plain = (tracks / "plain/report.html").read_text()
    assert "img-src" not in plain and 'id="calibration"' not in plain
    names = [{path.name for path in (tracks / name).iterdir()} for name in ("report", "plain")]
    assert names[0] - names[1] == {"track_calibration.tsv", "track_calibration.svg"}
    for name in ("tracks.tsv", "groups.tsv"):
        assert (tracks / "plain" / name).read_bytes() == (tracks / "report" / name).read_bytes()


def test_rows_that_were_not_measured_take_no_part(tracks: Path) -> None:
    labels = np.load(tracks / "labels.npy").astype(np.int8)
    labels[:2000, 0] = -1
    labels[:, 1] = -1
    np.save(tracks / "labels.npy", labels)
    auc_report(tracks / "raw.npy", tracks / "labels.npy", tracks / "report", calibration=tracks / FILE)
    table = pd.read_csv(tracks / "report/track_calibration.tsv", sep="\t")
    expected = calibration_metrics(labels[2000:, 0], np.load(tracks / "raw.npy")[2000:, 0])
    assert table["ece_raw"][0] == pytest.approx(expected.ece) and table["ece_raw"].isna()[1]


def test_a_calibration_that_does_not_fit_is_refused(run: Run, tracks: Path) -> None:
    words = ("auc-report", tracks / "raw.npy", tracks / "labels.npy", "-o", tracks / "report")
    given = ("--calibration", tracks / FILE)
    (tracks / "names.tsv").write_text("track\tgroup\ntrack 1\tTF\nother\tTF\n")
    refused(run(*words, *given, "--tracks", tracks / "names.tsv"), 1, "'other'", "'track 2'", after_log=True)
    np.save(tracks / "one.npy", np.load(tracks / "raw.npy")[:, :1])
    np.save(tracks / "one_label.npy", np.load(tracks / "labels.npy")[:, :1])
    fewer = ("auc-report", tracks / "one.npy", tracks / "one_label.npy", "-o", tracks / "report", *given)
    refused(run(*fewer), 1, "1 tracks", after_log=True)
    np.save(tracks / "raw.npy", np.load(tracks / "raw.npy") * 3)
    refused(run(*words, *given), 1, "track 1", after_log=True)
    refused(run(*words, "--calibration", tracks / "none.json"), 1, "none.json", after_log=True)
    assert not (tracks / "report").exists()
