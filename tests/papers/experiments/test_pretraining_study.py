"""The report of a study: which models it compares, what it computes, and what it says in words."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from bigbird_dna.errors import DataError, UsageError
from bigbird_dna.genome.chromatin.labels import PackedLabels
from bigbird_dna.metrics.auroc import auroc
from bigbird_dna.papers.experiments.comparing import PREDICTIONS, ArmModel, StudyRow
from bigbird_dna.papers.experiments.pretraining_study import study_report
from tests.cli.command import invoke
from tests.golden.messages import fails, message


def write_model(
    path: Path,
    *,
    start: str = "pretrained",
    share: float = 1.0,
    seed: int = 1,
    steps: int = 300,
    lift: float = 1.5,
    pairs: int = 300,
    task: str = "promoters",
    changed: dict[str, Any] | None = None,
    tracks: int = 4,
    weights: str = "0" * 64,
) -> ArmModel:
    """A model directory as the study reads it; test promoters score `lift` deviations above negatives.
    `changed` are further keys of the task's section. A chromatin model has predictions of 60 bins × `tracks`
    beside it."""
    path.mkdir(parents=True)
    training = {
        "train_fraction": share,
        "seed": seed,
        "steps": steps,
        "batch_size": 32,
        "evaluate_every": 100,
    }
    own = {"model": {"initial": start}, "training": training, **(changed or {})}
    provenance = {
        "configuration": {"seed": 1, task: own},
        "pretrained_sha256": weights if start == "pretrained" else None,
    }
    counts = {
        "steps": steps,
        "tokens_seen": 1000 * steps,
        "examples": round(1000 * share),
    }
    write(path / "provenance.json", provenance)
    write(path / "metrics.json", {"training": counts})
    lines = []
    for step in range(10, steps + 1, 10):
        lines.append({"step": step, "loss": 1 / step, "seconds": 2.0 * step})
        if step % 100 == 0:
            auroc = 0.5 + 0.4 * (
                1 - np.exp(-step / (100 if start == "pretrained" else 250))
            )
            lines.append(
                {
                    "step": step,
                    "evaluation": {"loss": 0.5, "auroc": auroc + 0.002 * seed},
                }
            )
    (path / "training.jsonl").write_text(
        "".join(json.dumps(line) + "\n" for line in lines)
    )
    # What models share is drawn by the pair, what is their own by all of them.
    common = np.random.default_rng(0).normal(size=2 * pairs)
    rng = np.random.default_rng(
        [seed, steps, round(100 * share), start == "pretrained"]
    )
    predictions = path / PREDICTIONS[task]
    if task == "promoters":
        labels = np.tile([1, 0], pairs)
        scores = lift * labels + 0.8 * common + 0.6 * rng.normal(size=2 * pairs)
        write_predictions(predictions, labels, 1 / (1 + np.exp(-scores)))
    else:
        labels = toy_labels(tracks)
        scores = lift * labels + rng.normal(size=labels.shape)
        predictions = path.parent / "predictions.npy"
        np.save(predictions, scores.astype(np.float32))
    row = StudyRow(task, share, "random_long" if steps > 300 else start)
    return ArmModel(row, seed, path, predictions)


def write(path: Path, values: object) -> None:
    path.write_text(json.dumps(values))


def toy_labels(tracks: int = 4) -> np.ndarray:
    """Labels (60, tracks)."""
    return (np.random.default_rng(1).random((60, tracks)) < 0.4).astype(np.int8)


def write_predictions(path: Path, labels: np.ndarray, scores: np.ndarray) -> None:
    """Test windows, two a pair: the promoter and its negative."""
    rows = len(labels)
    frame = pd.DataFrame(
        {
            "contig": "chr2",
            "start": 500 * np.arange(rows),
            "end": 500 * np.arange(rows) + 400,
            "strand": "+",
            "split": "test",
            "negative_set": np.where(labels == 1, "positive", "genomic"),
            "pair": np.arange(rows) // 2,
            "label": labels,
            "probability": scores,
        }
    )
    frame.to_parquet(path, index=False)


def write_study(
    home: Path,
    gains: dict[float, float],
    *,
    seeds: int = 3,
    longer: bool = False,
    **options: Any,
) -> list[ArmModel]:
    """Models of both starts, by the gain in lift that pretrained weights have at each share."""
    models = []
    for share, gain in gains.items():
        for seed in range(1, seeds + 1):
            base = 1.2 + 0.6 * share
            starts = [("pretrained", 300, base + gain), ("random", 300, base)]
            starts += [("random", 600, base + gain / 2)] if longer else []
            for start, steps, lift in starts:
                path = home / f"{start}-{steps}-{share:g}-{seed}" / "model"
                own: dict[str, Any] = {
                    "start": start,
                    "share": share,
                    "seed": seed,
                    "lift": lift,
                }
                models.append(write_model(path, steps=steps, **own, **options))
    return models


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[ArmModel]:
    """Pretrained weights gain much with few examples, and nothing with all of them."""
    return write_study(
        tmp_path_factory.mktemp("study"), {0.05: 0.6, 1.0: 0.0}, longer=True
    )


@pytest.fixture(scope="module")
def report(models: list[ArmModel], tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("report")
    study_report(models[::-1], output)
    return output


def test_a_row_for_each_share_and_start(report: Path, models: list[ArmModel]) -> None:
    table = pd.read_csv(report / "study.tsv", sep="\t")
    places = [
        *table[["share", "start", "steps", "seeds", "examples"]].itertuples(
            index=False, name=None
        )
    ]
    starts = (("pretrained", 300), ("random", 300), ("random_long", 600))
    assert places == [
        (share, *start, 3, round(1000 * share))
        for share in (0.05, 1.0)
        for start in starts
    ]
    own = {(0.05, "random"): "random-300-0.05", (1.0, "random_long"): "random-600-1"}
    for (share, start), name in own.items():
        areas = []
        for one in [
            one for one in models if one.path.parent.name.startswith(f"{name}-")
        ]:
            rows = pd.read_parquet(one.predictions)
            areas.append(auroc(rows["label"], rows["probability"]).value)
        (row,) = table[(table["share"] == share) & (table["start"] == start)].to_dict(
            "records"
        )
        expected = (np.mean(areas), min(areas), max(areas))
        assert (row["auroc"], row["auroc_min"], row["auroc_max"]) == pytest.approx(
            expected, abs=1e-6
        )
    # Of its own start nothing is gained, and a gain is the difference of two means of the table.
    assert table[table["start"] == "pretrained"]["delta_auroc"].isna().all()
    by = table.set_index(["share", "start"])
    for share in (0.05, 1.0):
        difference = (
            by.loc[(share, "pretrained"), "auroc"] - by.loc[(share, "random"), "auroc"]
        )
        assert by.loc[(share, "random"), "delta_auroc"] == pytest.approx(
            difference, abs=1e-5
        )
    assert by.loc[(0.05, "random"), "delta_auroc_low"] > 0.03
    assert (
        by.loc[(1.0, "random"), "delta_auroc_low"]
        < 0
        < by.loc[(1.0, "random"), "delta_auroc_high"]
    )
    # 1,000 tokens a step at 500 a second.
    assert by["minutes"].tolist() == pytest.approx([10, 10, 20] * 2)


def test_noncoding_pairs_are_a_stratum_of_their_own(tmp_path: Path) -> None:
    models = write_study(tmp_path / "models", {1.0: 0.3})
    noncoding = np.arange(600) // 2 % 3 > 0  # two of three pairs
    for model in models:
        rows = pd.read_parquet(model.predictions)
        rows.assign(coding=np.where(noncoding, 0.1, 0.9)).to_parquet(
            model.predictions, index=False
        )
    whole = study_report(models, tmp_path / "report")
    table = pd.read_csv(tmp_path / "report/study.tsv", sep="\t")
    assert [*zip(table["stratum"], table["start"], strict=True)] == [
        (stratum, start)
        for stratum in ("all", "noncoding")
        for start in ("pretrained", "random")
    ]
    for model in models:
        rows = pd.read_parquet(model.predictions)[noncoding]
        rows.drop(columns="coding").to_parquet(model.predictions, index=False)
    study_report(models, tmp_path / "own")
    own = pd.read_csv(tmp_path / "own/study.tsv", sep="\t").drop(columns="stratum")
    kept = (
        table[table["stratum"] == "noncoding"]
        .drop(columns="stratum")
        .reset_index(drop=True)
    )
    pd.testing.assert_frame_equal(kept, own)
    # What it says is of all windows.
    assert f"{table['auroc'].iloc[0]:.3f}" in " ".join(whole)


def test_what_it_says_is_what_the_table_has(report: Path) -> None:
    text = (report / "study.txt").read_text()
    by = pd.read_csv(report / "study.tsv", sep="\t").set_index(["share", "start"])[
        "auroc"
    ]
    gain = (
        pd.read_csv(report / "study.tsv", sep="\t")
        .set_index(["share", "start"])
        .loc[(0.05, "random")]
    )
    figures = [
        by[0.05, "pretrained"],
        *gain[["auroc", "delta_auroc", "delta_auroc_low", "delta_auroc_high"]],
    ]
    for sentence in text.splitlines():
        message(sentence)
    assert all(f"{value:.3f}" in text.splitlines()[1] for value in figures)


def write_benchmarks(
    home: Path, seconds: dict[str, object], column: str = "cpu_time"
) -> Path:
    home.mkdir(exist_ok=True)
    for name, value in seconds.items():
        (home / f"{name}.tsv").write_text(f"s\t{column}\n1\t{value}\n")
    return home


def test_a_loss_is_called_one_and_times_are_said(tmp_path: Path) -> None:
    found = write_study(tmp_path / "m", {0.2: -1.0, 1.0: -1.0}, longer=True)
    pretrained = tmp_path / "pretrained"
    pretrained.mkdir()
    (pretrained / "training.jsonl").write_text(
        '{"step": 20, "loss": 2, "seconds": 2000.0}\n'
    )
    jobs = {f"arm-{'-'.join(one.path.parts[-4:-1])}": 600 for one in found} | {
        "pretrain": 3000
    }
    benchmarks = write_benchmarks(tmp_path / "benchmarks", jobs)
    with fails(UsageError, str(found[0].path)):
        study_report(found, found[0].path / "report")
    for sentence in study_report(
        found, tmp_path / "report", pretrained=pretrained, benchmarks=benchmarks
    ):
        message(sentence)
    table = pd.read_csv(tmp_path / "report/study.tsv", sep="\t")
    assert table["pretraining_minutes"].dropna().tolist() == pytest.approx(
        [100 / 3] * 2, abs=1e-3
    )


def test_a_job_that_was_not_measured_is_not_spoken_of(tmp_path: Path) -> None:
    found = write_study(tmp_path / "m", {1.0: 0.0}, seeds=2)
    benchmarks = write_benchmarks(tmp_path / "benchmarks", {"pretrain": "NA"})
    message("\n".join(study_report(found, tmp_path / "report", benchmarks=benchmarks)))
    write_benchmarks(benchmarks, {"pretrain": 1}, "other")
    with fails(DataError, benchmarks / "pretrain.tsv", "'cpu_time'"):
        study_report(found, tmp_path / "report", benchmarks=benchmarks)


def test_what_cannot_be_said_is_said_plainly(tmp_path: Path) -> None:
    """Of one seed the interval is over test data alone; of starts without a common seed there is none."""
    one = write_study(tmp_path / "m", {1.0: 0.0}, seeds=1)
    pair = [
        write_model(tmp_path / s, start=s, seed=n)
        for n, s in enumerate(("pretrained", "random"))
    ]
    for models in (one, pair):
        message("\n".join(study_report(models, tmp_path / "report")))


def of_tracks(
    home: Path, gains: dict[float, float], tracks: int, seeds: int = 3
) -> Any:
    """Models of chromatin, the labels (60, T), and a report of them, as sentences and a table."""
    found = write_study(home / "m", gains, task="chromatin", tracks=tracks, seeds=seeds)
    labels = toy_labels(tracks)

    def report(**options: Any) -> tuple[list[str], pd.DataFrame]:
        PackedLabels.from_dense(labels).save(home / "labels.npz")
        said = study_report(
            found, home / "report", labels=home / "labels.npz", **options
        )
        return said, pd.read_csv(home / "report/study.tsv", sep="\t")

    return found, labels, report


def test_chromatin_is_judged_by_its_median_track(tmp_path: Path) -> None:
    """In which tracks with few positives have no part."""
    found, labels, report = of_tracks(tmp_path, {0.2: 1.5}, tracks=8)
    labels[1:, :2] = 0  # one positive
    pretrained = [np.load(one.predictions) for one in found[::2]]
    for least, counting in ((1, range(8)), (2, range(2, 8))):
        said, table = report(min_positives=least)
        assert table["task"].tolist() == ["chromatin"] * 2
        areas = [
            [auroc(labels[:, t], scores[:, t]).value for t in counting]
            for scores in pretrained
        ]
        assert table["auroc"].iloc[0] == pytest.approx(
            np.nanmedian(areas, axis=1).mean(), abs=1e-6
        )
    assert table["delta_auroc_low"].iloc[1] > 0
    message(said[1])
    with fails(DataError, tmp_path / "labels.npz", "61"):
        report(min_positives=61)
    np.save(found[0].predictions, np.zeros((7, 8), np.float32))
    with fails(DataError):
        report()


@pytest.mark.parametrize("seeds", [1, 3])
def test_of_few_tracks_there_is_no_verdict(tmp_path: Path, seeds: int) -> None:
    """A single track has one median, however often it is drawn."""
    _, _, report = of_tracks(tmp_path, {0.2: 1.5, 1.0: 1.5}, tracks=1, seeds=seeds)
    said, table = report()
    assert table["delta_auroc"].iloc[1] > 0 and table[
        ["delta_auroc_low", "delta_auroc_high"]
    ].isna().all(axis=None)
    message("\n".join(said))


def test_curves_without_a_step_in_common_have_no_legend(tmp_path: Path) -> None:
    """Matplotlib would warn of an empty one."""
    found = [write_model(tmp_path / str(seed), seed=seed) for seed in (1, 2)]
    log = found[1].path / "training.jsonl"
    log.write_text(
        re.sub(
            r'"step": (\d+)(?=, "eval)',
            lambda m: f'"step": {int(m[1]) + 5}',
            log.read_text(),
        )
    )
    study_report(found, tmp_path / "report")
    assert (tmp_path / "report/study_steps.svg").is_file()


@pytest.mark.parametrize(
    ("others", "named"),
    [
        ([{}], "one"),
        (
            [{"seed": 2, "changed": {"windows": {"upstream": 9}}}],
            "promoters.windows.upstream 9",
        ),
        ([{"seed": 2, "steps": 200}], "200"),
        ([{"start": "random", "steps": 200}], "200"),
        ([{"seed": 2, "weights": "1" * 64}], "one"),
        (
            [
                {"start": "random", "steps": steps, "seed": steps}
                for steps in (500, 600)
            ],
            "600",
        ),
    ],
)
def test_what_cannot_be_compared(
    tmp_path: Path, others: list[dict[str, Any]], named: str
) -> None:
    models = [write_model(tmp_path / "one")]
    models += [
        write_model(tmp_path / f"other-{n}", **other) for n, other in enumerate(others)
    ]
    with fails(DataError, models[-1].path, named):
        study_report(models, tmp_path / "report")


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("provenance.json", "{}"),
        ("metrics.json", '{"training": {"steps": 3}}'),
        ("training.jsonl", '{"step": 1, "loss": 1}\n'),
        ("predictions.parquet", None),
    ],
)
def test_damaged_models(tmp_path: Path, file: str, content: str | None) -> None:
    model = write_model(tmp_path / "model")
    (model.path / file).unlink()
    if content is not None:
        (model.path / file).write_text(content)
    for wrong in (
        model,
        model._replace(path=tmp_path / "gone"),
        model._replace(seed=9),
    ):
        with fails(DataError, wrong.path if wrong.seed < 9 else model.path):
            study_report([wrong], tmp_path / "report")
    assert not (tmp_path / "report").exists()


def test_other_windows_are_not_compared(tmp_path: Path) -> None:
    pair = [
        write_model(tmp_path / "one"),
        write_model(tmp_path / "other", start="random", pairs=200),
    ]
    with fails(DataError):
        study_report(pair, tmp_path / "report")
    labels = np.ones(600, int)
    for one in pair:
        write_predictions(one.predictions, labels, np.full(600, 0.5))
    with fails(DataError):
        study_report(pair, tmp_path / "report")


def test_a_study_of_trained_models(tiny_config: Path, tmp_path: Path) -> None:
    """In miniature by the commands: a pretrained model, and one model of each start."""
    begun, checkpoints = (
        tmp_path / "start",
        ("--checkpoint-dir", tmp_path / "checkpoints"),
    )
    invoke(
        "pretrain",
        tiny_config,
        "--set",
        "pretraining.steps=4",
        *checkpoints,
        "-o",
        begun,
    )
    own = ("training.train_fraction=0.3", "training.seed=5", "training.steps=4")
    models, words = (
        [],
        ("finetune-promoter", tiny_config, "--negative-set", "genomic", *checkpoints),
    )
    for start in ("pretrained", "random"):
        sets = [
            word
            for key in (f"model.initial={start}", *own)
            for word in ("--set", f"promoters.{key}")
        ]
        path = tmp_path / start / "model"
        invoke(*words, "--pretrained", begun, *sets, "-o", path)
        row = StudyRow("promoters", 0.3, start)
        models.append(ArmModel(row, 5, path, path / "predictions.parquet"))
    study_report(models, tmp_path / "report", pretrained=begun)
    table = pd.read_csv(tmp_path / "report/study.tsv", sep="\t")
    assert table["start"].tolist() == ["pretrained", "random"] and table[
        "steps"
    ].tolist() == [4, 4]
    assert table["examples"].tolist() == [29, 29] and table["share"].tolist() == [
        0.3,
        0.3,
    ]
    assert table["minutes"].gt(0).all() and table["pretraining_minutes"].iloc[0] > 0
    metrics = json.loads((models[0].path / "metrics.json").read_text())
    assert table["auroc"].iloc[0] == pytest.approx(metrics["test"]["auroc"], abs=1e-5)
    message((tmp_path / "report/study.txt").read_text(), "less than a minute")
