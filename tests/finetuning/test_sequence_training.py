"""Training on labeled sequences of every kind, by the command that users run: models, baselines, report."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from sklearn.metrics import (
    average_precision_score,
    balanced_accuracy_score,
    log_loss,
    roc_auc_score,
)

import bigbird_dna
from bigbird_dna.baselines.kmers import both_strand_frequencies, kmer_frequencies
from bigbird_dna.baselines.sequences import sequence_regressions
from bigbird_dna.config.training import StartConfig
from bigbird_dna.data.labeled_sequences import read_labeled_sequences
from bigbird_dna.errors import ModelError
from bigbird_dna.finetuning.ensembles import KMERS, Members, add_members
from bigbird_dna.genome.sequence import reverse_complement
from bigbird_dna.genome.sequence_tables import TableColumns
from bigbird_dna.model.directory import load, load_sequence_model, save
from bigbird_dna.model.encoder import Encoder
from bigbird_dna.model.promoter import LoadedSequenceModel
from bigbird_dna.model.settings import PretrainingSettings, SequenceSettings
from bigbird_dna.training.initialization import Initialization
from bigbird_dna.training.losses import LabelLoss
from tests.cli.command import Run, invoke, refused, table
from tests.golden.messages import fails
from tests.reporting.test_sequence_report import few_resamples
from tests.tiny_run import SETTINGS
from tests.toys import random_dna, random_model, small_encoder, small_tokenizer
from tests.training.test_losses import KINDS, labels_of

TRAINING = {
    "steps": 6,
    "batch_size": 8,
    "evaluate_every": 3,
    "checkpoint_minutes": 0,
    "precision": "float32",
}
SMALL: dict[str, Any] = {
    "tokens": {"vocabulary": 32, "max_piece_length": 4},
    "encoder": SETTINGS["encoder"],
    "sequences": {
        "model": {"initial": "random", "pooling": "mean"},
        "training": TRAINING,
        "baselines": {"cnn": False, "shuffled_labels": False},
    },
}
WITH_CONTROL = ("--set", "sequences.baselines.shuffled_labels=true")
COUNT = 80


class Labeled(NamedTuple):
    """A table, and the words of the command for it."""

    path: Path
    kind: str
    outputs: list[str]
    words: tuple[str, ...] = ()


def motif_counts(texts: list[str]) -> np.ndarray:
    return np.array(
        [[text.count(word) for word in ("TATA", "GC", "AC")] for text in texts]
    )


def labeled(home: Path, kind: str, **changes: Any) -> Labeled:
    """Sequences of the given or different lengths, with labels that depend on their words."""
    lengths = changes.get("lengths", (60,))
    texts = [
        random_dna(lengths[number % len(lengths)], number) for number in range(COUNT)
    ]
    marked = [
        "TATA" + text[4:] if number % 3 == 0 else text
        for number, text in enumerate(texts)
    ]
    counts, columns = motif_counts(marked), dict[str, Any]()
    words: tuple[str, ...] = ()
    match kind:
        case "binary":
            columns["label"] = [int(number % 3 == 0) for number in range(COUNT)]
        case "multiclass":
            columns["label"] = [
                ("none", "few", "many")[min(count, 5) // 2] for count in counts[:, 1]
            ]
        case "multilabel":
            columns |= {
                f"label_{number}": (counts[:, number] > 2).astype(int)
                for number in (1, 2)
            }
        case "regression":
            columns |= {"gc": counts[:, 1] / 10, "ac": counts[:, 2] - 0.5}
            words = ("--label-column", "gc", "--label-column", "ac")
    path = home / f"{kind}.csv"
    pd.DataFrame({"sequence": marked, **columns}).to_csv(path, index=False)
    found = read_labeled_sequences([path], columns=_columns(words))
    return Labeled(path, kind, [*found.labels.outputs], words)


def _columns(words: tuple[str, ...]) -> TableColumns:
    return TableColumns(labels=words[1::2])


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("config") / "small.yaml"
    path.write_text(yaml.safe_dump(SMALL))
    return path


def trained(data: Labeled, config: Path, output: Path, *words: object) -> Path:
    invoke(
        "finetune-sequences",
        data.path,
        *data.words,
        "--config",
        config,
        "-o",
        output,
        *words,
    )
    return output


@pytest.fixture(scope="module", params=KINDS)
def run_of_a_kind(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    config: Path,
) -> tuple[Labeled, Path]:
    home = tmp_path_factory.mktemp(request.param)
    data = labeled(home, request.param)
    words = ("--device", "cpu", "--threads", 1, *WITH_CONTROL)
    words += ("--set", "sequences.baselines.cnn=true")
    with few_resamples():
        return data, trained(data, config, home / "model", *words)


def test_a_model_directory_has_everything(
    run_of_a_kind: tuple[Labeled, Path], tmp_path: Path
) -> None:
    """Predictions of all predictors, a report, and a model that gives the same predictions as a command."""
    data, path = run_of_a_kind
    assert not [*path.parent.glob("model.checkpoints/*")]
    predictions = pd.read_parquet(path / "predictions.parquet")
    predictors = {"model", "network", "k-mer", "composition", "cnn", "control"}
    predictors |= {"position"} if data.kind == "binary" else set()
    names = {
        column.partition("/")[0] for column in predictions.columns if "/" in column
    }
    assert names == {"label", *predictors}
    held_out = read_labeled_sequences([data.path], columns=_columns(data.words))
    rows = held_out.rows("valid", "test")
    assert predictions["name"].tolist() == [held_out.names[row] for row in rows]
    for column, output in enumerate(data.outputs):
        expected = held_out.labels.values[rows, column]
        assert np.array_equal(predictions[f"label/{output}"], expected)
    metrics = pd.read_csv(path / "metrics.tsv", sep="\t")
    assert set(metrics["model"]) == predictors
    assert (path / "report.md").is_file()
    model = bigbird_dna.load(path)
    assert isinstance(model, bigbird_dna.SequenceModel)
    assert (model.settings.kind, [*model.settings.outputs]) == (data.kind, data.outputs)
    found = model.predict([held_out.sequences[row] for row in rows], device="cpu")
    stored = predictions[[f"model/{output}" for output in data.outputs]].to_numpy()
    np.testing.assert_array_equal(found, stored)
    scored = table(invoke("score-sequences", path, data.path, "--device", "cpu"))
    columns = ["score"] if data.kind == "binary" else data.outputs
    shown = np.array([[float(scored[row][name]) for name in columns] for row in rows])
    np.testing.assert_allclose(shown, stored, rtol=1e-4, atol=1e-6)
    if data.kind == "multiclass":
        assert [scored[row]["class"] for row in rows] == [
            data.outputs[c] for c in found.argmax(1)
        ]


@pytest.mark.slow
def test_labels_with_gaps_train_a_model_whose_metrics_are_of_known_labels(
    tmp_path: Path, config: Path
) -> None:
    """Loss, weights, regressions and metrics leave missing labels out, in all files."""
    data = labeled(tmp_path, "multilabel")
    frame = pd.read_csv(data.path)
    frame = pd.concat(
        [
            frame,
            *(
                frame.assign(
                    sequence=[random_dna(60, 500 * copy + row) for row in range(80)]
                )
                for copy in (1, 2)
            ),
        ]
    )
    counts = motif_counts(frame["sequence"].tolist())
    missing = np.random.default_rng(5).random((len(frame), 2)) < 0.25
    labels = np.where(
        missing, [["NA", "-1"]], (counts[:, 1:] > 2).astype(int).astype(str)
    )
    frame[["label_1", "label_2"]] = labels
    frame.to_csv(data.path, index=False)
    path = trained(
        data,
        config,
        tmp_path / "model",
    )
    provenance = json.loads((path / "provenance.json").read_text())
    without, single = (
        int(missing.all(axis=1).sum()),
        int((missing.sum(axis=1) == 1).sum()),
    )
    assert (provenance["rows_without_label"], provenance["missing_labels"]) == (
        without,
        single,
    )
    predictions = pd.read_parquet(path / "predictions.parquet").set_index("name")
    held_out = read_labeled_sequences([data.path])
    numbers = [int(name.partition("_")[2] or 1) - 1 for name in held_out.names]
    truth = pd.DataFrame(
        np.where(missing, np.nan, counts[:, 1:] > 2)[numbers], index=held_out.names
    )
    for column, output in enumerate(("label_1", "label_2")):
        np.testing.assert_array_equal(
            predictions[f"label/{output}"], truth.loc[predictions.index, column]
        )
    table = pd.read_csv(path / "metrics.tsv", sep="\t").set_index(["output", "model"])
    test, areas = predictions[predictions["split"] == "test"], []
    for output in ("label_1", "label_2"):
        known = test[test[f"label/{output}"].notna()]
        y, x = known[f"label/{output}"], known[f"model/{output}"]
        areas.append(roc_auc_score(y, x))
        row = table.loc[(output, "model")]
        assert (row["n"], row["positives"]) == (len(known), y.sum())
        assert row["auroc"] == pytest.approx(areas[-1], rel=1e-5)
        assert row["auprc"] == pytest.approx(average_precision_score(y, x), rel=1e-5)
        called = x >= 0.5
        assert row["balanced_accuracy"] == pytest.approx(
            balanced_accuracy_score(y, called), rel=1e-5
        )
    metrics = json.loads((path / "metrics.json").read_text())["test"]["model"]
    y, x = (
        test[[f"{name}/label_1", f"{name}/label_2"]].to_numpy(float)
        for name in ("label", "model")
    )
    both = ~np.isnan(y)
    assert metrics["loss"] == pytest.approx(log_loss(y[both], x[both]), rel=1e-4)
    assert metrics["auroc"] == pytest.approx(np.median(areas), rel=1e-9)


def test_a_stopped_training_resumes(
    tmp_path: Path, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also within the control, after the model itself was trained: the results are the same."""
    from bigbird_dna.finetuning import sequences as module

    data = labeled(tmp_path, "multilabel")
    whole = trained(data, config, tmp_path / "whole", *WITH_CONTROL)
    original = module.LabeledSequenceTask.build

    def stops(task: Any, *args: Any) -> Any:
        if task.is_control:
            raise KeyboardInterrupt
        return original(task, *args)

    monkeypatch.setattr(module.LabeledSequenceTask, "build", stops)
    with pytest.raises((KeyboardInterrupt, SystemExit, AssertionError)):
        trained(data, config, tmp_path / "again", *WITH_CONTROL)
    assert (
        not (tmp_path / "again").exists() and (tmp_path / "again.checkpoints").exists()
    )
    monkeypatch.undo()
    again = trained(data, config, tmp_path / "again", *WITH_CONTROL)
    for name in ("model.safetensors", "predictions.parquet", "metrics.tsv"):
        assert (again / name).read_bytes() == (whole / name).read_bytes()


def test_sequences_without_direction(tmp_path: Path, config: Path) -> None:
    """Predictions are the same, but for rounding, for the other strand."""
    data = labeled(tmp_path, "binary", lengths=(60, 47, 33))
    model = load_sequence_model(
        trained(data, config, tmp_path / "model", "--both-strands")
    )
    assert model.settings.both_strands and model.settings.length is None
    texts = [random_dna(length, length) for length in (20, 33, 80)]
    forward = model.predict(texts, device="cpu")
    turned = model.predict([reverse_complement(text) for text in texts], device="cpu")
    np.testing.assert_allclose(forward, turned, atol=1e-6)


@pytest.mark.parametrize("both_strands", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_outputs_add_up(kind: Any, both_strands: bool) -> None:
    """An ensemble's outputs are the weighted sum of those of its members."""
    labels = labels_of(kind, 60)
    loss, k = LabelLoss.of(kind, labels, True), 2
    texts = [random_dna(50, number) for number in range(60)]
    settings = SequenceSettings(
        kind=kind, outputs=tuple("abc")[: labels.shape[1]], length=50, pooling="mean", jitter=0, views=1,
        ensemble_kmers=k, both_strands=both_strands, means=loss.means, deviations=loss.deviations,
    )  # fmt: skip
    tokenizer = small_tokenizer()
    model = random_model(
        tokenizer, small_encoder(tokenizer.vocabulary), settings, scale=2.0
    )
    assert isinstance(model, LoadedSequenceModel) and model.network.ensemble is not None
    found = sequence_regressions(loss, k, 1, aligned=False, both_strands=both_strands)[
        "k-mer"
    ]
    data: Any = type("Data", (), {"sequences": texts, "labels": labels})
    found.fit(data, data)
    frequencies = (both_strand_frequencies if both_strands else kmer_frequencies)(
        texts, k
    )
    columns, intercept = found.coefficients()
    columns = np.asarray(columns).reshape(frequencies.shape[1], -1)
    np.testing.assert_allclose(
        frequencies @ columns + intercept, found.logits(texts), atol=1e-3
    )
    alone = loss.logits(model.window_predictions(texts, device="cpu").astype(float))
    members = Members({"network": 0.5, KMERS: 0.25}, 0.125)
    parts = {KMERS: found.coefficients()}
    add_members(model.network.ensemble, parts, members)
    total = loss.predictions(0.5 * alone + 0.25 * found.logits(texts) + 0.125)
    if not both_strands:  # of both strands it is the mean of predictions
        np.testing.assert_allclose(
            model.window_predictions(texts, device="cpu"), total, rtol=1e-3, atol=1e-3
        )


@pytest.mark.parametrize("task", ["pretraining", "sequences"])
def test_it_begins_with_the_encoder_of_any_model(
    tmp_path: Path, config: Path, task: str
) -> None:
    """Whose sizes need not be configured; its tokenizer and checksum are those of the start."""
    tokenizer = small_tokenizer()
    own = SequenceSettings(
        kind="binary", outputs=("label",), pooling="cls", jitter=0, views=1
    )
    settings = PretrainingSettings() if task == "pretraining" else own
    encoder = small_encoder(tokenizer.vocabulary, max_length=96)
    save(
        tmp_path / "start",
        random_model(tokenizer, encoder, settings),
        {"imported_from": "theirs"},
        {},
        {},
    )
    data, start = labeled(tmp_path, "binary"), load(tmp_path / "start")
    words = (
        "--pretrained",
        tmp_path / "start",
        "--set",
        "sequences.training.optimizer.learning_rate=1e-12",
    )
    model = load_sequence_model(trained(data, config, tmp_path / "model", *words))
    assert (
        model.tokenizer.sha256 == start.tokenizer.sha256
        and model.config.max_length == 96
    )
    found = model.one_encoder().state_dict()
    for name, value in start.one_encoder().state_dict().items():
        np.testing.assert_allclose(found[name], value, atol=1e-5)
    provenance = json.loads((tmp_path / "model/provenance.json").read_text())
    assert (
        provenance["pretrained_sha256"] == start.sha256
        and provenance["imported_from"] == "theirs"
    )


def test_a_start_that_has_changed_meanwhile_is_an_error(tmp_path: Path) -> None:
    tokenizer = small_tokenizer()
    start = random_model(
        tokenizer, small_encoder(tokenizer.vocabulary), PretrainingSettings()
    )
    save(tmp_path / "start", start, {}, {}, {})
    path, sha256 = tmp_path / "start", load(tmp_path / "start").sha256
    encoder = Encoder(start.config)
    found = Initialization(start.config, tokenizer, StartConfig(), path, sha256)
    found.apply(encoder)
    torch.testing.assert_close(encoder.state_dict(), start.one_encoder().state_dict())
    with fails(ModelError, "start"):
        found._replace(sha256="0" * 64).apply(encoder)


def test_published_and_untidy_sets_go_through(tmp_path: Path, config: Path) -> None:
    """Names that repeat or are missing, different lengths, both cases, FASTA and the layout of GUE."""
    texts = [random_dna(40 + number % 9, number) for number in range(COUNT)]
    for name, kept in (("p.fa", texts[::2]), ("n.fa", texts[1::2])):
        lines = (
            f">{('abrB', '')[row % 2]}\n{text.lower() if row % 3 else text}\n"
            for row, text in enumerate(kept)
        )
        (tmp_path / name).write_text("".join(lines))
    words = ("--negatives", tmp_path / "n.fa")
    fasta = trained(
        Labeled(tmp_path / "p.fa", "binary", ["label"]),
        config,
        tmp_path / "model",
        *words,
    )
    assert "control" not in set(pd.read_csv(fasta / "metrics.tsv", sep="\t")["model"])
    files = []
    for name, rows in (
        ("train.csv", slice(0, 60)),
        ("dev.csv", slice(60, 70)),
        ("test.csv", slice(70, 80)),
    ):
        files.append(tmp_path / name)
        frame = pd.DataFrame(
            {"sequence": texts, "label": [number % 4 for number in range(COUNT)]}
        )
        frame[rows].to_csv(files[-1], index=False)
    invoke("finetune-sequences", *files, "--config", config, "-o", tmp_path / "gue")
    assert (
        json.loads((tmp_path / "gue/metrics.json").read_text())["test"]["sequences"]
        == 10
    )


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("sequence,y\nACGT,1\n", ()),
        ("sequence,label\nACGT,1\nAACC,1\n", ()),
        ("sequence,label\nACGT,high\nAACC,0.5\n", ("--task", "regression")),
        ("sequence,label\nACGT,0\nMKVL,1\n", ()),
        ("sequence,label\nACGT,0\n", ("--task", "ranking")),
        ("sequence,label\nACGT,0\nACG\n", ()),
    ],
    ids=["column", "one class", "text", "protein", "task", "cells"],
)
def test_a_fault_is_one_sentence(
    run: Run, tmp_path: Path, content: str, words: tuple[str, ...]
) -> None:
    (tmp_path / "x.csv").write_text(content)
    result = run(
        "finetune-sequences", tmp_path / "x.csv", "-o", tmp_path / "model", *words
    )
    refused(result, 2 if "ranking" in words else 1)
    assert not (tmp_path / "model").exists()
