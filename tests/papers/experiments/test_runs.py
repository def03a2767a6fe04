"""Every experiment, run to its tables on a run in miniature, and computed again from what its models wrote."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import f1_score, roc_auc_score

from bigbird_dna.config.reading import load_config
from bigbird_dna.errors import DataError
from bigbird_dna.genome.chromatin.labels import PackedLabels
from bigbird_dna.papers.experiments.shared import Trainings
from tests.cli.command import Run, invoke, refused

ONCE = ("--threads", 1, "--device", "cpu")


def run_experiment(name: str, config: Path, *words: object) -> Path:
    """Run an experiment; returns the directory of its report."""
    report = config.parent / f"report-{name}"
    invoke("experiment run", name, config, "-o", report, *ONCE, *words)
    return report


def read(path: Path) -> pd.DataFrame:
    table = pd.read_csv(path, sep="\t")
    texts = table.select_dtypes(exclude="number").columns
    return table.fillna(dict.fromkeys(texts, ""))


def finite(column: Any) -> np.ndarray:
    return pd.to_numeric(column).to_numpy(float)


def model(name: str, config: Path, training: str) -> Path:
    """The directory of a trained model."""
    return load_config(config).paths.experiment(name) / training / "model"


def windows_auroc(path: Path) -> tuple[float, float]:
    """AUROC and F1 on the test windows."""
    frame = pd.read_parquet(path)
    frame = frame[frame["split"] == "test"]
    labels, scores = frame["label"], frame["probability"]
    return roc_auc_score(labels, scores), f1_score(labels, scores >= 0.5)


def track_aurocs(model: Path, labels: Path) -> np.ndarray:
    truth = PackedLabels.load(labels).rows()
    scores = np.load(model / "predictions.npy")
    return np.array(
        [roc_auc_score(truth[:, t], scores[:, t]) for t in range(truth.shape[1])]
    )


def test_table_5(whole_run: Path) -> None:
    table = read(run_experiment("table5", whole_run) / "table5.tsv")
    assert table["predictor"].tolist()[:2] == ["model", "model bert-64"]
    bert = model("table5", whole_run, "bert-64")
    bits = read(bert / "predictions.tsv").set_index(["split", "predictor"])
    expected = finite(bits.loc[("test", "model"), ["bits_per_base", "low", "high"]])
    ends = ["bits_per_base", "bits_per_base_low", "bits_per_base_high"]
    rows = finite(table.loc[1, ends])
    np.testing.assert_allclose(rows, expected, rtol=1e-5)
    assert table["published"][0] == 1.12 and np.isnan(table["published"][1])
    finished = json.loads((bert.parent / "finished.json").read_text())
    assert finished["settings"]["configuration"]["encoder"]["attention"] == "full"
    assert finished["metrics"]["steps"] == 24


def test_table_6(whole_run: Path) -> None:
    run_experiment("table5", whole_run)
    report = run_experiment("table6", whole_run)
    table = read(report / "table6.tsv")
    predictors = [["bigbird", "pretrained"], ["bigbird", "random"]]
    predictors += [["gc", ""], ["cnnprom", ""]]
    assert table[["predictor", "weights"]].values.tolist() == predictors
    assert (table["window"] == 100).all()
    assert table["seeds"].tolist() == [2, 2, 1, 2]
    name = f"100-permuted-own-pretrained-rate-{table['learning_rate'][0]:g}"
    assert np.isnan(table["learning_rate"][2]) and (table["seconds"][:2] > 0).all()
    directories = [f"{name}-seed1", f"{name}-seed2", "100-permuted-gc-seed1"]
    *tuned, gc = [
        windows_auroc(model("table6", whole_run, one) / "predictions.parquet")
        for one in directories
    ]
    tuned = np.array(tuned)
    np.testing.assert_allclose(
        finite(table.loc[0, ["auroc", "f1"]]), tuned.mean(axis=0), atol=1e-5
    )
    np.testing.assert_allclose(finite(table.loc[2, ["auroc", "f1"]]), gc, atol=1e-5)
    # Fitted once, GC content is compared with the model of each seed.
    difference = finite(table["difference"])
    assert difference[2] == pytest.approx((tuned[:, 0] - gc[0]).mean(), abs=1e-5)
    assert np.isnan(difference[0])


def test_table_7(whole_run: Path) -> None:
    rate = ("--set", "tables.learning_rates=[0.001]")
    report = run_experiment("table7", whole_run, *rate)
    table = read(report / "table7.tsv")
    assert table[["predictor", "weights"]].values.tolist() == [
        ["bigbird", "pretrained"],
        ["bigbird", "random"],
        ["gc", ""],
        ["residual-cnn", ""],
    ]
    assert table["window"].tolist() == [200, 200, 1000, 1000]
    paths = load_config(whole_run).paths
    gc = track_aurocs(
        model("table7", whole_run, "gc-seed1"), paths.held_out_bins / "labels.npz"
    )
    assert table["median_auroc"][2] == pytest.approx(np.median(gc), abs=1e-5)


def test_ablation(whole_run: Path) -> None:
    report = run_experiment("ablation", whole_run)
    table = read(report / "ablation.tsv")
    assert table["mechanism"].tolist() == ["full", "bigbird"]
    expected = []
    for name in ("full", "bigbird"):
        bits = []
        for seed in (1, 2):
            with np.load(
                model("ablation", whole_run, f"{name}-seed{seed}") / "predictions.npz"
            ) as npz:
                bits.append(float(npz["bits"].sum() / npz["bases"].sum()))
        expected.append(np.mean(bits))
    np.testing.assert_allclose(finite(table["bits_per_base"]), expected, rtol=1e-5)
    assert table["difference"][0] == pytest.approx(expected[0] - expected[1], abs=1e-5)
    assert table["seeds"].tolist() == [2, 2] and table["steps"].tolist() == [4, 4]
    assert (finite(table["tokens_per_second"]) > 0).all()
    content = json.loads((report / "ablation.json").read_text())
    assert [row["mechanism"] for row in content["rows"]] == ["full", "bigbird"]


# What is run again, and what is refused


def test_finished_trainings_are_not_run_again(whole_run: Path) -> None:
    name, words = "ablation", ("--set", "ablation.seeds=[1]")
    report = run_experiment(name, whole_run, *words)
    table = (report / "ablation.tsv").read_bytes()
    home = load_config(whole_run).paths.experiment(name)
    times = {path: path.stat().st_mtime_ns for path in home.glob("*/finished.json")}
    shutil.rmtree(report)
    run_experiment(name, whole_run, *words)
    assert (report / "ablation.tsv").read_bytes() == table
    # Other settings: only their trainings run again.
    shutil.rmtree(report)
    more = ("--set", "ablation.seeds=[1, 3]", "--only", "full-seed3")
    run_experiment(name, whole_run, *more)
    assert (home / "full-seed3/finished.json").exists() and not report.exists()
    assert not (home / "bigbird-seed3").exists()
    assert times == {path: path.stat().st_mtime_ns for path in times}


def test_a_training_that_fails_is_not_finished(whole_run: Path) -> None:
    """Its directory may have files of the new settings by then."""
    config = load_config(whole_run)

    def work(*_: object) -> dict[str, Any]:
        calls.append(1)
        if len(calls) == 2:
            raise DataError("stopped")
        return {"calls": len(calls)}

    calls: list[int] = []
    trainings = Trainings(config.paths, "any", "cpu")
    for _ in range(2):  # the second one is finished before
        found = trainings.run("one", config, "encoder", work, seed=1)
        assert found == {"calls": 1}
    with pytest.raises(DataError):
        trainings.run("one", config, "encoder", work, seed=2)
    assert trainings.run("one", config, "encoder", work, seed=1) == {"calls": 3}


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("table8",), "'table8'"),
        (("json",), "'json'"),
        (("table7", "--only", "gc-seed9"), "'gc-seed9'"),
        (("byte_lm",), "byte_lm"),
    ],
)
def test_wrong_words(
    whole_run: Path, run: Run, words: tuple[str, ...], named: str
) -> None:
    name, *options = words
    refused(run("experiment run", name, whole_run, *options), 2, named)


def test_a_module_of_the_user(
    whole_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lab_lengths.py").write_text(
        "def run(config, trainings, output):\n"
        "    squares = []\n"
        "    for n in (3, 5):\n"
        "        work = lambda *_, n=n: {'square': n ** 2}\n"
        "        metrics = trainings.run(f'{n}-seed1', config, 'encoder', work, n=n)\n"
        "        squares.append(metrics['square'])\n"
        "    output.mkdir()\n"
        "    (output / 'lengths.tsv').write_text(repr(squares))\n"
        "    return []\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    report = run_experiment("lab_lengths", whole_run)
    assert (report / "lengths.tsv").read_text() == "[9, 25]"
