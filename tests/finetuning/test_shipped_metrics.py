"""The metrics that a training stores are those of the predictions that the shipped commands write."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from scipy.stats import pearsonr
from sklearn.metrics import (
    average_precision_score,
    f1_score,
    log_loss,
    matthews_corrcoef,
    roc_auc_score,
)

from bigbird_dna.config.reading import load_config
from bigbird_dna.data.promoter_windows import read_windows, window_sequences
from bigbird_dna.genome.chromatin.dataset import read_dataset
from bigbird_dna.genome.reference import Reference
from bigbird_dna.pretraining.evaluation import evaluate_pretraining
from tests.cli.command import Run, invoke
from tests.reporting.test_sequence_report import few_resamples
from tests.tiny_run import SETTINGS
from tests.training.kinds import make_chromatin

EXACT = {"rel": 0, "abs": 1e-9}
CPU = ("--device", "cpu")


def metrics_of(model: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((model / "metrics.json").read_text())
    return found


def median_auroc(labels: np.ndarray, scores: np.ndarray) -> float:
    """Over the outputs with at least five rows of each class."""
    counts = labels.sum(axis=0)
    usable = np.flatnonzero((counts >= 5) & (counts <= len(labels) - 5))
    assert len(usable)
    return float(np.median([roc_auc_score(labels[:, t], scores[:, t]) for t in usable]))


SMALL: dict[str, Any] = {
    "tokens": {"vocabulary": 32, "max_piece_length": 4},
    "encoder": {**SETTINGS["encoder"], "max_length": 48},
    "sequences": {
        "model": {"initial": "random", "pooling": "mean"},
        "training": {"steps": 6, "batch_size": 8, "precision": "float32"},
        "baselines": {"cnn": False, "shuffled_labels": False},
    },
}


def long_sequences(home: Path, kind: str) -> Path:
    """Sequences of 360 bp whose composition depends on the label only in the first and the last 120 bp."""
    rng, rows = np.random.default_rng(1), []
    for number in range(240):
        klass = number % (3 if kind == "multiclass" else 2)
        gc = 0.4 + 0.1 * klass
        ends = [(1 - gc) / 2, gc / 2, gc / 2, (1 - gc) / 2]
        parts = [rng.choice(list("ACGT"), 120, p=p) for p in (ends, [0.25] * 4, ends)]
        split = (
            "valid"
            if number % 10 in (2, 5, 9)
            else "test"
            if number % 10 in (1, 4, 8)
            else "train"
        )
        row: dict[str, Any] = {
            "name": f"s{number}",
            "sequence": "".join(np.concatenate(parts)),
            "split": split,
        }
        match kind:
            case "binary":
                row["label"] = klass
            case "multiclass":
                row["label"] = "abc"[klass]
            case "multilabel":
                row |= {"label_0": klass, "label_1": int(number % 3 == 0)}
            case "regression":
                row["label"] = gc + rng.normal(scale=0.02)
        rows.append(row)
    pd.DataFrame(rows).to_csv(home / "data.csv", index=False)
    return home / "data.csv"


@pytest.mark.parametrize("kind", ["multiclass", "regression"])
def test_sequences_longer_than_the_network_reads(
    tmp_path: Path, run: Run, kind: str
) -> None:
    """What is logged, stored and reported is what score-sequences writes; truncation is counted."""
    data, model = long_sequences(tmp_path, kind), tmp_path / "model"
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(SMALL))
    words = (data, "--config", tmp_path / "small.yaml", "-o", model, *CPU)
    with few_resamples():
        trained = run("finetune-sequences", *words)
    scored = run(
        "score-sequences", model, data, "-o", tmp_path / "scores.parquet", *CPU
    )
    assert trained.code == scored.code == 0
    logged = trained.err
    table, scores = pd.read_csv(data), pd.read_parquet(tmp_path / "scores.parquet")
    settings = json.loads((model / "config.json").read_text())["settings"]
    outputs = [*settings["outputs"]]
    columns = ["score"] if kind == "binary" else outputs
    if kind == "multiclass":
        labels = np.stack([table["label"] == one for one in outputs], 1).astype(float)
    else:
        labels = table[outputs].to_numpy(np.float32).astype(float)  # as stored
    values = scores[columns].to_numpy(float)
    metrics = metrics_of(model)
    train = (table["split"] == "train").to_numpy()
    for split in ("valid", "test"):
        rows = (table["split"] == split).to_numpy()
        y, p, stored = labels[rows], values[rows], metrics[split]["model"]
        assert metrics[split]["sequences"] == rows.sum()
        if kind == "regression":
            assert stored["pearson"] == pytest.approx(
                pearsonr(y[:, 0], p[:, 0]).statistic, **EXACT
            )
            expected = (((p - y) / labels[train].std()) ** 2).mean()
        elif kind == "multilabel":
            expected = np.mean([log_loss(y[:, t], p[:, t]) for t in range(2)])
        else:
            ones = labels[train].sum(axis=0)
            counts = np.append(train.sum() - ones, ones) if kind == "binary" else ones
            classes = (y[:, 0] if kind == "binary" else y.argmax(1)).astype(int)
            weights = train.sum() / (len(counts) * counts[classes])
            # Probabilities of single precision add up to 1 within 1e-7.
            chances = (
                np.append(1 - p, p, axis=1)
                if kind == "binary"
                else p / p.sum(axis=1, keepdims=True)
            )
            expected = -(weights * np.log(chances[np.arange(len(y)), classes])).mean()
        assert stored["loss"] == pytest.approx(expected, **EXACT)
        if kind != "regression":
            assert stored["auroc"] == pytest.approx(median_auroc(y, p), **EXACT)
    name = "pearson" if kind == "regression" else "auroc"
    ensemble = metrics["ensemble"][f"valid_{name}"]
    assert ensemble["ensemble"] == metrics["valid"]["model"][name]
    assert ensemble["network"] == metrics["valid"]["network"][name]
    assert ensemble["kmers"] == metrics["valid"]["k-mer"][name]
    # Regressions read whole sequences, in the finished model too.
    assert min(ensemble["kmers"], metrics["test"]["model"][name]) > 0.55
    report = pd.read_csv(model / "metrics.tsv", sep="\t").set_index("model")
    if kind in ("binary", "regression"):
        assert report.loc["model", name] == pytest.approx(
            metrics["test"]["model"][name], rel=1e-5
        )
    assert (
        "warning: 240 of 240 sequences have more tokens than encoder.max_length 48 allows"
        in logged
    )
    assert {*scores["note"]} == {"truncated"}
    assert "240 scored by their central tokens" in scored.err


def test_promoters(tiny_config: Path, tmp_path: Path) -> None:
    """Windows of 100 bp, of which the network reads about half."""
    model = tmp_path / "model"
    keys = ("promoters.classifier.initial=random", "promoters.classifier.views=3")
    keys += ("encoder.max_length=24", "pretraining.sequence_tokens=16")
    words = [word for key in keys for word in ("--set", key)]
    invoke(
        *("finetune-promoter", tiny_config, "--negative-set", "genomic", "-o", model),
        *("--checkpoint-dir", tmp_path / "checkpoints", *words, *CPU),
    )
    paths = load_config(tiny_config).paths
    windows = read_windows(paths.windows, "genomic")
    texts = window_sequences(Reference(paths.reference), windows.rows, 1)
    lines = (f">{number}\n{text}\n" for number, text in enumerate(texts))
    (tmp_path / "windows.fa").write_text("".join(lines))
    scores = tmp_path / "scores.parquet"
    invoke(
        "score-promoters",
        model,
        tmp_path / "windows.fa",
        "--strand",
        "+",
        "-o",
        scores,
        *CPU,
    )
    found = pd.read_parquet(scores)
    assert found["contig"].astype(int).tolist() == list(range(len(texts)))
    metrics, probabilities = metrics_of(model), found["score"].to_numpy(float)
    for split in ("valid", "test"):
        rows = (windows.rows["split"] == split).to_numpy()
        y, p, stored = windows.labels[rows], probabilities[rows], metrics[split]
        called = (p >= 0.5).astype(int)
        assert stored["auroc"] == pytest.approx(roc_auc_score(y, p), **EXACT)
        assert stored["auprc"] == pytest.approx(average_precision_score(y, p), **EXACT)
        assert stored["f1"] == pytest.approx(f1_score(y, called), **EXACT)
        assert stored["mcc"] == pytest.approx(matthews_corrcoef(y, called), **EXACT)
    assert metrics["ensemble"]["valid_auroc"]["ensemble"] == metrics["valid"]["auroc"]


CHROMATIN: dict[str, Any] = {
    "genome": {"valid": ["b"], "test": ["c"]},
    "encoder": {
        "layers": 1,
        "hidden": 16,
        "heads": 2,
        "max_length": 64,
        "block_size": 8,
    },
    "chromatin": {
        "data": {
            "bin": 40,
            "window": 200,
            "negative_fraction": 1.0,
            "min_positives_train": 5,
        },
        "model": {"pooling": "bin", "initial": "random"},
        "training": {
            "steps": 10,
            "batch_size": 8,
            "bins_per_window": 3,
            "precision": "float32",
        },
        "evaluation": {"baseline_kmer": 3},
    },
}


def test_chromatin(tmp_path: Path) -> None:
    """By predict-tracks, on both strands; the labels of one class have a weight."""
    home, model = make_chromatin(tmp_path / "made"), tmp_path / "model"
    (tmp_path / "run.yaml").write_text(
        yaml.safe_dump({"results": str(tmp_path / "results"), **CHROMATIN})
    )
    invoke(
        *(
            "finetune-chromatin",
            tmp_path / "run.yaml",
            "--data",
            home / "data",
            "-o",
            model,
        ),
        *(
            "--reference",
            home / "reference.fa.gz",
            "--tokenizer",
            home / "tokenizer.model",
        ),
        *("--checkpoint-dir", tmp_path / "checkpoints"),
        *("--set", "chromatin.model.ensemble=true", *CPU),
    )
    data = read_dataset(home / "data")
    rows = data.rows("valid")
    bins = data.bins.iloc[rows]
    bins[["contig", "start", "end"]].to_csv(
        tmp_path / "bins.bed", sep="\t", header=False, index=False
    )
    tracks = tmp_path / "tracks.parquet"
    reference = ("--reference", home / "reference.fa.gz")
    invoke(
        "predict-tracks", model, tmp_path / "bins.bed", *reference, "-o", tracks, *CPU
    )
    names = [track.name for track in data.tracks]
    found = pd.read_parquet(tracks)
    assert found["start"].tolist() == bins["start"].tolist()
    p, y = found[names].to_numpy(float), data.labels.rows(rows)
    metrics = metrics_of(model)
    assert metrics["valid"]["bins"] == len(rows)
    assert metrics["valid"]["auroc"] == pytest.approx(median_auroc(y, p), **EXACT)
    p = p.clip(2**-25, 1 - 2**-25)
    expected = np.where(
        y == 1, -8 * np.log(p), -np.log1p(-p)
    ).mean()  # positive_weight 8
    assert metrics["valid"]["loss"] == pytest.approx(expected, **EXACT)
    assert metrics["ensemble"]["valid_auroc"]["ensemble"] == metrics["valid"]["auroc"]


@pytest.mark.parametrize("sets", [("pretraining.next_sentence=true",)])
def test_pretraining(tiny_config: Path, tmp_path: Path, sets: tuple[str, ...]) -> None:
    model = tmp_path / "model"
    words = [word for key in sets for word in ("--set", key)]
    invoke(
        *(
            "pretrain",
            tiny_config,
            "-o",
            model,
            "--checkpoint-dir",
            tmp_path / "checkpoints",
            *words,
            *CPU,
        )
    )
    metrics = metrics_of(model)
    found = evaluate_pretraining(
        model,
        load_config(tiny_config).paths.tokens,
        tmp_path / "bits.tsv",
        sequences=metrics["inputs"],
        sequence_tokens=metrics["sequence_tokens"],
        alone=True,
        device="cpu",
    )
    rows = found[(found["split"] == "valid") & (found["predictor"] == "model")]
    assert rows["bits_per_base"].item() == pytest.approx(
        metrics["bits_per_base"], **EXACT
    )
