"""The report of a study: which models it compares, what it computes, and what it says in words."""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from bigbird_dna.errors import DataError, UsageError
from bigbird_dna.genome.chromatin.labels import PackedLabels
from bigbird_dna.metrics.auroc import auroc
from bigbird_dna.papers.experiments.layer_probes import Probed, probe_report
from bigbird_dna.papers.experiments.pretraining_study import study_report
from bigbird_dna.papers.experiments.trained_models import read_models
from tests.golden.messages import fails
from tests.papers.experiments.studies import toy_labels, write, write_model, write_predictions, write_study


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Pretrained weights gain much with few examples, and nothing with all of them."""
    return write_study(tmp_path_factory.mktemp("study"), {0.05: 0.6, 1.0: 0.0}, longer=True)


@pytest.fixture(scope="module")
def report(models: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("report")
    study_report(models[::-1], output)
    return output


def test_nothing_is_written_into_a_model(models: list[Path]) -> None:
    before = sorted(models[0].iterdir())
    with fails(UsageError, str(models[0])):
        study_report(models, models[0] / "report")
    assert sorted(models[0].iterdir()) == before


def test_a_row_for_each_share_and_start(report: Path, models: list[Path]) -> None:
    table = pd.read_csv(report / "study.tsv", sep="\t")
    places = [*table[["share", "start", "steps", "seeds", "examples"]].itertuples(index=False, name=None)]
    starts = (("pretrained", 300), ("random", 300), ("random_long", 600))
    assert places == [(share, *start, 3, round(1000 * share)) for share in (0.05, 1.0) for start in starts]
    own = {(0.05, "random"): "random-300-0.05", (1.0, "random_long"): "random-600-1"}
    for (share, start), name in own.items():
        areas = []
        for path in [path for path in models if path.parent.name.startswith(f"{name}-")]:
            rows = pd.read_parquet(path / "predictions.parquet")
            areas.append(auroc(rows["label"], rows["probability"]).value)
        (row,) = table[(table["share"] == share) & (table["start"] == start)].to_dict("records")
        expected = (np.mean(areas), min(areas), max(areas))
        assert (row["auroc"], row["auroc_lowest"], row["auroc_highest"]) == pytest.approx(expected, abs=1e-6)
    # Of its own start nothing is gained, and a gain is the difference of two means of the table.
    assert table[table["start"] == "pretrained"]["gain"].isna().all()
    by = table.set_index(["share", "start"])
    for share in (0.05, 1.0):
        difference = by.loc[(share, "pretrained"), "auroc"] - by.loc[(share, "random"), "auroc"]
        assert by.loc[(share, "random"), "gain"] == pytest.approx(difference, abs=1e-5)
    assert by.loc[(0.05, "random"), "gain_low"] > 0.03
    assert by.loc[(1.0, "random"), "gain_low"] < 0 < by.loc[(1.0, "random"), "gain_high"]
    # 1,000 tokens a step at 500 a second.
    assert by["minutes"].tolist() == pytest.approx([10, 10, 20] * 2)


def test_what_it_says_is_what_the_table_has(report: Path) -> None:
    first, few, whole = (report / "study.txt").read_text().splitlines()
    assert first == (
        "Promoters: pretrained weights do better at 5 % of the examples; at 100 % no difference is seen."
    )
    table = pd.read_csv(report / "study.tsv", sep="\t").set_index(["share", "start"])
    gain = table.loc[(0.05, "random")]
    assert few.startswith(
        f"At 5 % of the examples (50 promoters) pretrained weights reach an AUROC of "
        f"{table.loc[(0.05, 'pretrained'), 'auroc']:.3f} on the test windows, random ones "
        f"{gain['auroc']:.3f}: a gain of {gain['gain']:.3f} [{gain['gain_low']:.3f}, "
        f"{gain['gain_high']:.3f}] over three seeds."
    )
    assert "On validation data they are after 200 steps where random ones end after 300." in few
    assert "trained for 600 steps instead of 300 reach " in few
    assert re.search(r"no gain is seen over three seeds: the interval of the difference, .* holds 0\.", whole)


def test_a_loss_is_called_one_and_times_are_said(tmp_path: Path) -> None:
    found = write_study(tmp_path / "m", {0.2: -1.0, 1.0: -1.0}, longer=True)
    pretrained = tmp_path / "pretrained"
    pretrained.mkdir()
    (pretrained / "training.jsonl").write_text(
        "".join(json.dumps({"step": step, "loss": 2, "seconds": 100.0 * step}) + "\n" for step in (10, 20))
    )
    benchmarks = tmp_path / "benchmarks"
    benchmarks.mkdir()
    jobs = {f"arm-{'-'.join(path.parts[-4:-1])}": 600 for path in found} | {"pretrain": 3000}
    for name, seconds in jobs.items():
        (benchmarks / f"{name}.tsv").write_text(f"s\tcpu_time\n1\t{seconds}\n")
    made = study_report(found, tmp_path / "report", pretrained=pretrained, benchmarks=benchmarks)
    said = made
    assert said.pop() == (
        "Pretraining took 50 minutes, fine-tuning 10 minutes: 60 minutes in all, against 10 minutes of "
        "random weights that were trained for longer, in the time of processors, of whole jobs."
    )
    assert said[0] == "Promoters: random weights do better at 20 % and 100 %."
    assert re.search(r"a loss of 0\.\d+ over three seeds \(a gain of −0\.\d+ \[−0", said[1])
    assert said[-1].startswith(
        "Pretraining took 33 minutes, fine-tuning 10 minutes: 43 minutes in all, against 20 minutes of random"
    )
    table = pd.read_csv(tmp_path / "report/study.tsv", sep="\t")
    assert table["pretraining_minutes"].dropna().tolist() == pytest.approx([100 / 3] * 2, abs=1e-3)


def test_a_job_that_was_not_measured_is_not_spoken_of(tmp_path: Path) -> None:
    found = write_study(tmp_path / "m", {1.0: 0.0}, seeds=2)
    benchmarks = tmp_path / "benchmarks"
    benchmarks.mkdir()
    (benchmarks / "pretrain.tsv").write_text("s\tcpu_time\n1\tNA\n")
    said = study_report(found, tmp_path / "report", benchmarks=benchmarks)
    assert not any("Pretraining took" in sentence for sentence in said)
    (benchmarks / "pretrain.tsv").write_text("s\n1\n")
    with fails(DataError, benchmarks / "pretrain.tsv", "'cpu_time'"):
        study_report(found, tmp_path / "report", benchmarks=benchmarks)


def test_nothing_at_all_is_said_plainly(tmp_path: Path) -> None:
    said = study_report(write_study(tmp_path / "m", {1.0: 0.0}, seeds=1), tmp_path / "report")
    assert said[0] == "Promoters: no gain is seen at 100 % of the examples."
    assert "with one seed, over the test data alone: the interval" in said[1]


def test_starts_without_a_seed_in_common_have_no_interval(tmp_path: Path) -> None:
    pair = [write_model(tmp_path / s, start=s, seed=n) for n, s in enumerate(("pretrained", "random"))]
    said = study_report(pair, tmp_path / "report")
    assert said[0] == "Promoters: there are no models of both starts to compare."
    assert "they have no seed in common" in said[1]


def test_chromatin_is_judged_by_its_median_track(tmp_path: Path) -> None:
    found = write_study(tmp_path / "m", {0.2: 1.5}, task="chromatin", tracks=6)
    labels = toy_labels(6)
    PackedLabels.from_dense(labels).save(tmp_path / "labels.npz")
    study_report(found, tmp_path / "report", labels=tmp_path / "labels.npz")
    table = pd.read_csv(tmp_path / "report/study.tsv", sep="\t")
    assert table["task"].tolist() == ["chromatin"] * 2 and table["gain_low"].iloc[1] > 0
    assert table["auroc"].iloc[0] == pytest.approx(_median(found, labels, range(6)), abs=1e-6)
    assert "in the median over the tracks" in (tmp_path / "report/study.txt").read_text()
    np.save(found[0].parent / "predictions.npy", np.zeros((7, 6), np.float32))
    with fails(DataError):
        study_report(found, tmp_path / "report", labels=tmp_path / "labels.npz")


@pytest.mark.parametrize("seeds", [1, 3])
def test_of_few_tracks_there_is_no_verdict(tmp_path: Path, seeds: int) -> None:
    """A single track has one median, however often it is drawn."""
    found = write_study(tmp_path / "m", {0.2: 1.5, 1.0: 1.5}, task="chromatin", tracks=1, seeds=seeds)
    PackedLabels.from_dense(toy_labels(1)).save(tmp_path / "labels.npz")
    said = study_report(found, tmp_path / "report", labels=tmp_path / "labels.npz")
    table = pd.read_csv(tmp_path / "report/study.tsv", sep="\t")
    assert table["gain"].iloc[1] > 0 and table[["gain_low", "gain_high"]].isna().all(axis=None)
    assert said[0] == (
        "Chromatin: the test tracks are too few, or too much alike, for an interval of the difference, so "
        "nothing is said of a gain."
    )
    assert "without an interval." in said[1] and "a gain of" not in " ".join(said[1:])


def test_tracks_with_few_positives_have_no_part_in_the_median(tmp_path: Path) -> None:
    found = write_study(tmp_path / "m", {0.2: 1.5}, task="chromatin", tracks=8)
    labels = toy_labels(8)
    labels[1:, :2] = 0  # one positive
    PackedLabels.from_dense(labels).save(tmp_path / "labels.npz")
    options = {"labels": tmp_path / "labels.npz"}
    for least, counting in ((1, range(8)), (2, range(2, 8))):
        study_report(found, tmp_path / "report", min_positives=least, **options)
        table = pd.read_csv(tmp_path / "report/study.tsv", sep="\t")
        assert table["auroc"].iloc[0] == pytest.approx(_median(found, labels, counting), abs=1e-6)
    with fails(DataError, tmp_path / "labels.npz", "61"):
        study_report(found, tmp_path / "report", min_positives=61, **options)


def _median(found: list[Path], labels: np.ndarray, tracks: Iterable[int]) -> float:
    """Of the pretrained models, the mean over seeds; every second model is one."""
    medians = []
    for path in found[::2]:
        scores = np.load(path.parent / "predictions.npy")
        areas = [auroc(labels[:, t], scores[:, t]).value for t in tracks]
        medians.append(np.nanmedian(areas))
    return float(np.mean(medians))


def test_curves_without_a_step_in_common_have_no_legend(tmp_path: Path) -> None:
    """Matplotlib would warn of an empty one."""
    found = [write_model(tmp_path / str(seed), seed=seed) for seed in (1, 2)]
    log = found[1] / "training.jsonl"
    log.write_text(re.sub(r'"step": (\d+)(?=, "eval)', lambda m: f'"step": {int(m[1]) + 5}', log.read_text()))
    study_report(found, tmp_path / "report")
    assert (tmp_path / "report/study_steps.svg").is_file()


@pytest.mark.parametrize(
    ("other", "named"),
    [
        ({}, "one"),
        ({"seed": 2, "changed": {"windows": {"upstream": 9}}}, "promoters.windows.upstream 9"),
        ({"seed": 2, "steps": 400}, "400"),
        ({"start": "random", "steps": 200}, "200"),
    ],
    ids=["twice", "another-window", "more-steps", "fewer-steps"],
)
def test_what_cannot_be_compared(tmp_path: Path, other: dict[str, Any], named: str) -> None:
    pair = [write_model(tmp_path / "one"), write_model(tmp_path / "other", **other)]
    with fails(DataError, pair[1], named):
        read_models(pair)


def test_another_pretraining_and_two_lengths_of_longer(tmp_path: Path) -> None:
    pair = [write_model(tmp_path / "one"), write_model(tmp_path / "other", seed=2)]
    values = json.loads((pair[1] / "provenance.json").read_text())
    write(pair[1] / "provenance.json", values | {"pretrained_sha256": "1" * 64})
    with fails(DataError):
        read_models(pair)
    three = [pair[0]]
    three += [write_model(tmp_path / f"{n}", start="random", steps=n, seed=n) for n in (500, 600)]
    with fails(DataError):
        read_models(three)


def test_what_is_made_twice_is_the_same(models: list[Path], tmp_path: Path) -> None:
    names = {"study.tsv", "study.svg", "study_steps.svg", "study.txt"}
    made = [study_report(models[:9], tmp_path / name) for name in ("report", "again")]
    assert "pretrained weights do better at 5 %" in made[0][0]
    assert all(
        (tmp_path / "again" / name).read_bytes() == (tmp_path / "report" / name).read_bytes()
        for name in names
    )


@pytest.mark.parametrize(
    ("file", "content"),
    [
        *(("config.json", '{"task": "pretraining"}'), ("config.json", "[]"), ("provenance.json", "{}")),
        ("metrics.json", '{"training": {"steps": 3}}'),
        ("training.jsonl", '{"step": 1, "loss": 1}\n'),
        ("predictions.parquet", None),
    ],
)
def test_damaged_models(tmp_path: Path, file: str, content: str | None) -> None:
    model = write_model(tmp_path / "model")
    (model / file).unlink()
    if content is not None:
        (model / file).write_text(content)
    for wrong in (model, tmp_path / "gone"):
        with fails(DataError, wrong):
            study_report([wrong], tmp_path / "report")
    assert not (tmp_path / "report").exists()


def test_other_windows_are_not_compared(tmp_path: Path) -> None:
    pair = [write_model(tmp_path / "one"), write_model(tmp_path / "other", start="random", pairs=200)]
    with fails(DataError):
        study_report(pair, tmp_path / "report")
    labels = np.ones(600, int)
    for path in pair:
        write_predictions(path / "predictions.parquet", labels, np.full(600, 0.5))
    with fails(DataError):
        study_report(pair, tmp_path / "report")


def test_probes_as_a_table(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    labels = np.tile([0, 1], 100)
    probes = [
        Probed(weights, layer, 0.1, labels * lift * layer + rng.normal(size=200))
        for weights, lift in (("pretrained", 1.0), ("random", 0.2))
        for layer in range(3)
    ]
    probes.append(Probed("k-mers", None, 1.0, labels + rng.normal(size=200)))
    probe_report(labels, probes, tmp_path / "report")
    table = pd.read_csv(tmp_path / "report/probes.tsv", sep="\t")
    assert table["weights"].tolist() == ["pretrained"] * 3 + ["random"] * 3 + ["k-mers"]
    assert table["layer"].tolist()[:6] == [0, 1, 2] * 2 and np.isnan(table["layer"].iloc[6])
    assert table["gain"].notna().tolist() == [True] * 3 + [False] * 4
    by = table.set_index(["weights", "layer"])["auroc"]
    assert table["gain"].iloc[2] == pytest.approx(by["pretrained", 2] - by["random", 2], abs=1e-5)
    assert table["gain_low"].iloc[2] > 0
