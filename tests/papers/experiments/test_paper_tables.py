"""The papers' tables from directories of models and comparators: rows, intervals, published figures."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from bigbird_dna.data.predictions import read_predictions
from bigbird_dna.errors import DataError
from bigbird_dna.genome.chromatin.labels import PackedLabels
from bigbird_dna.genome.chromatin.tracks import Track, write_tracks
from bigbird_dna.metrics.auroc import auroc
from bigbird_dna.metrics.resampling import (
    SampledMetrics,
    mean_over_seeds,
    resampled_medians,
)
from bigbird_dna.papers.experiments.comparing import ArmModel
from bigbird_dna.papers.experiments.tables import PredictorRow, table_report
from tests.golden.messages import fails, message
from tests.papers.experiments.test_pretraining_study import (
    toy_labels,
    write,
    write_model,
    write_predictions,
)

TRACKS = [
    Track(name, group)
    for name, group in zip("abcd", ["TF", "TF", "TF", "DHS"], strict=True)
]


HEAD = "split\tpredictor\tbits_per_base\tlow\thigh\tdifference\tdifference_low\tdifference_high\tnote\n"


def of_promoters(
    path: Path, name: str, seed: int, lift: float, *, pairs: int = 300
) -> ArmModel:
    path.mkdir(parents=True)
    labels = np.tile([1, 0], pairs)
    scores = lift * labels + np.random.default_rng([seed, 9]).normal(size=2 * pairs)
    write_predictions(path / "predictions.parquet", labels, 1 / (1 + np.exp(-scores)))
    return ArmModel(
        PredictorRow(name, "", "fitted"), seed, path, path / "predictions.parquet"
    )


def of_tracks(
    path: Path,
    name: str,
    seed: int,
    covered: list[int],
    bins: int = 60,
    tracks: Sequence[Track] = TRACKS,
) -> ArmModel:
    path.mkdir(parents=True)
    labels = toy_labels(len(tracks))[:bins][:, covered]
    scores = labels + np.random.default_rng([seed, 8]).normal(size=labels.shape)
    np.save(path / "predictions.npy", scores.astype(np.float32))
    PackedLabels.from_dense(labels).save(path / "labels.npz")
    write_tracks(path / "tracks.tsv", [tracks[one] for one in covered])
    write(path / "comparator.json", {"window": 1000})
    return ArmModel(
        PredictorRow(name, "", "fitted"), seed, path, path / "predictions.npy"
    )


def fine_tuned(
    path: Path, start: str, window: int | None = None, **options: Any
) -> ArmModel:
    model = write_model(
        path, start=start, task="chromatin" if window else "promoters", **options
    )
    return model._replace(row=PredictorRow("bigbird", start, "fine-tuned", window))


def table7(
    found: list[ArmModel], home: Path, tracks: Sequence[Track] = TRACKS, **options: Any
) -> pd.DataFrame:
    """Table 7 in `home`."""
    PackedLabels.from_dense(toy_labels(len(tracks))).save(home.parent / "labels.npz")
    write_tracks(home.parent / "tracks.tsv", tracks)
    files = {"labels": home.parent / "labels.npz", "tracks": home.parent / "tracks.tsv"}
    return table_report("table7", found, home, **files, **options)


def side_by_side(page: Path) -> list[list[str]]:
    """The cells of its first table."""
    table = page.read_text().split("\n\n")[2].splitlines()
    return [
        [cell.strip() for cell in line[1:-1].split("|")]
        for line in (table[0], *table[2:])
    ]


@pytest.fixture(scope="module")
def promoters(tmp_path_factory: pytest.TempPathFactory) -> list[ArmModel]:
    home = tmp_path_factory.mktemp("promoters")
    found = [
        fine_tuned(home / f"{start}-{seed}" / "model", start, seed=seed, lift=lift)
        for start, lift in (("pretrained", 2.0), ("random", 1.5))
        for seed in (1, 2, 3)
    ]
    found += [
        of_promoters(home / f"cnn-{seed}", "cnnprom", seed, 1.0) for seed in (1, 2)
    ]
    return [*found, of_promoters(home / "gc", "gc", 1, 0.2)]


@pytest.fixture(scope="module")
def chromatin(tmp_path_factory: pytest.TempPathFactory) -> list[ArmModel]:
    home = tmp_path_factory.mktemp("chromatin")
    found = [
        fine_tuned(home / f"{start}-{seed}" / "model", start, 3000, seed=seed)
        for start in ("pretrained", "random")
        for seed in (1, 2)
    ]
    found += [
        of_tracks(home / f"deepsea-{seed}", "deepsea", seed, [0, 1, 2, 3])
        for seed in (1, 2)
    ]
    return [*found, of_tracks(home / "motifs", "motifs", 1, [1, 2])]


def test_a_row_for_each_predictor_and_its_weights(
    promoters: list[ArmModel], tmp_path: Path
) -> None:
    table_report("table6", promoters, tmp_path)
    table = pd.read_csv(tmp_path / "table6.tsv", sep="\t", keep_default_na=False)
    rows = table[["predictor", "weights", "training", "seeds"]].values.tolist()
    assert rows == [
        ["bigbird", "pretrained", "fine-tuned", 3],
        ["bigbird", "random", "fine-tuned", 3],
        ["cnnprom", "", "fitted", 2],
        ["gc", "", "fitted", 1],
    ]
    assert set(table["window"]) == {400} and set(table["negative_set"]) == {"genomic"}
    frames = [read_predictions(one.predictions) for one in promoters[:3]]
    areas = [auroc(frame["label"], frame["probability"]).value for frame in frames]
    assert table["auroc"][0] == pytest.approx(np.mean(areas), abs=1e-5)
    assert (table["auroc_low"] < table["auroc"]).all() and (
        table["auroc"] < table["auroc_high"]
    ).all()
    assert (np.diff(table["auroc"]) < 0).all() and table["f1"].between(0.4, 1).all()
    # The model's lead is paired by seed; what has no seed is compared with each of the model's.
    leads = [
        np.mean(areas[:count]) - table["auroc"][row]
        for row, count in ((1, 3), (2, 2), (3, 3))
    ]
    assert pd.to_numeric(table["difference"]).tolist() == pytest.approx(
        [np.nan, *leads], abs=1e-5, nan_ok=True
    )
    low, high = (
        pd.to_numeric(table[f"difference_{end}"])[1:] for end in ("low", "high")
    )
    assert ((low < leads) & (leads < high)).all()
    # Published figures are of the set `substituted`.
    assert set(table["published_f1"]) == {""}


def test_windows_that_are_less_than_half_coding_have_rows_of_their_own(
    tmp_path: Path,
) -> None:
    models = [
        fine_tuned(tmp_path / s / "model", s, lift=0.5)
        for s in ("pretrained", "random")
    ]
    for number, one in enumerate(models):
        frame = pd.read_parquet(one.predictions)
        frame["coding"] = np.random.default_rng(0).random(len(frame))
        frame.drop(columns=["coding"][:number]).to_parquet(one.predictions, index=False)
    table = table_report("table6", models, tmp_path / "report")
    assert table["stratum"].tolist() == ["all", "all", "noncoding", "noncoding"]
    frame = read_predictions(models[0].predictions)
    pairs = frame[frame["coding"] < 0.5].groupby("pair")["label"].nunique()
    kept = frame[frame["pair"].isin(pairs[pairs == 2].index)]
    assert (
        10 < len(kept) < len(frame)
        and table["windows"].tolist() == [len(frame)] * 2 + [len(kept)] * 2
    )
    area = auroc(kept["label"], kept["probability"]).value
    assert (
        table["auroc"][2] == pytest.approx(area)
        and table["auroc"][2] != table["auroc"][0]
    )
    page = tmp_path / "report/table6.md"
    assert side_by_side(page)[0][3:] == ["genomic, 400 bp", "genomic noncoding, 400 bp"]
    assert "genomic noncoding, 400 bp" in (tmp_path / "report/table6.svg").read_text()


def test_chromatin_models_of_other_windows_are_other_rows(
    chromatin: list[ArmModel], tmp_path: Path
) -> None:
    narrow = fine_tuned(tmp_path / "narrow/model", "pretrained", 800)
    table = table7([*chromatin, narrow], tmp_path / "report")
    models = table.query("predictor == 'bigbird' and group == 'TF' and tracks == 'all'")
    assert models["window"].tolist() == [3000, 3000, 800] and models[
        "seeds"
    ].tolist() == [2, 2, 1]
    head, *rows = side_by_side(tmp_path / "report/table7.md")
    assert head[4:7] == ["TF, all", "TF, with a known motif", "TF, without one"]
    assert head[7:] == ["DHS, all", "DHS, without one"]
    (row,) = (
        row for row in rows if row[:4] == ["bigbird", "pretrained", "fine-tuned", "800"]
    )
    assert row[4].startswith(f"{models['median_auroc'].iloc[2]:.3f}")


def test_published_figures_stand_beside_what_is_alike_and_are_marked(
    tmp_path: Path,
) -> None:
    models = [fine_tuned(tmp_path / s / "model", s) for s in ("pretrained", "random")]
    directories = [*models, of_promoters(tmp_path / "cnn", "cnnprom", 1, 1.0)]
    for one in directories:
        frame = pd.read_parquet(one.predictions)
        frame["negative_set"] = frame["negative_set"].replace("genomic", "substituted")
        frame.to_parquet(one.predictions, index=False)
    table = table_report("table6", directories, tmp_path / "report")
    assert table["published_f1"].tolist() == pytest.approx(
        [0.999, np.nan, 0.697], nan_ok=True
    )
    page = (tmp_path / "report/table6.md").read_text()
    assert side_by_side(tmp_path / "report/table6.md")[0][3] == "substituted, 400 bp"
    assert page.count("0.999 †") == 1 and page.count("0.697 †") == 1
    message(page.split("\n\n")[-1])
    told = json.loads((tmp_path / "report/table6.json").read_text())
    assert [row["published_f1"] for row in told["rows"]] == [0.999, None, 0.697]


def test_medians_by_group_with_and_without_a_known_motif(
    chromatin: list[ArmModel], tmp_path: Path
) -> None:
    table = table7(chromatin, tmp_path / "report")
    parts = table.groupby(["group", "tracks"], sort=False)["n_tracks"].first()
    assert parts.to_dict() == {
        **{("TF", "all"): 3, ("TF", "with a known motif"): 2, ("TF", "without one"): 1},
        **{("DHS", "all"): 1, ("DHS", "without one"): 1},
    }
    truth = toy_labels()
    values = [np.load(one.predictions).astype(float) for one in chromatin[:2]]
    areas = np.array(
        [[auroc(truth[:, one], v[:, one]).value for one in range(3)] for v in values]
    )
    row = table.query(
        "group == 'TF' and tracks == 'all' and weights == 'pretrained'"
    ).iloc[0]
    assert row["median_auroc"] == pytest.approx(np.median(areas, axis=1).mean())
    each = pd.read_csv(
        tmp_path / "report/table7_tracks.tsv", sep="\t", keep_default_na=False
    )
    assert list(each.columns[:5]) == [
        "track",
        "group",
        "known_motif",
        "positives",
        "predictor",
    ]
    assert list(each.columns[5:]) == ["weights", "training", "seeds", "window", "auroc"]
    own = each.query("predictor == 'bigbird' and weights == 'pretrained'")
    assert own["track"].tolist() == list("abcd") and own["known_motif"].tolist() == [
        "no",
        "yes",
        "yes",
        "no",
    ]
    assert own["auroc"][:3].tolist() == pytest.approx(
        areas.mean(axis=0).tolist(), abs=1e-5
    )
    assert own["positives"].tolist() == truth.sum(axis=0).tolist()
    figure = (tmp_path / "report/table7.svg").read_text()
    assert all(word in figure for word in ("above on", "deepsea", "motifs"))
    scan = table[table["predictor"] == "motifs"]
    assert scan[["tracks", "n_tracks"]].values.tolist() == [
        ["all", 2],
        ["with a known motif", 2],
    ]
    published = table[table["published_median"].notna()]
    assert published[["group", "predictor", "published_median"]].values.tolist() == [
        *(["TF", "bigbird", 0.961], ["TF", "deepsea", 0.958]),
        *(["DHS", "bigbird", 0.921], ["DHS", "deepsea", 0.923]),
    ]


def test_tracks_with_few_positives_dont_count(
    chromatin: list[ArmModel], tmp_path: Path
) -> None:
    positives = toy_labels().sum(axis=0)
    least = int(np.sort(positives[:3])[1])
    table = table7(chromatin, tmp_path / "report", min_positives=least)
    rows = table.query("group == 'TF' and tracks == 'all' and predictor == 'bigbird'")
    assert set(rows["n_tracks"]) == {int((positives[:3] >= least).sum())} == {2}
    each = pd.read_csv(tmp_path / "report/table7_tracks.tsv", sep="\t")
    assert set(each["track"]) == set("abcd")
    counting = int((positives >= least).sum())
    assert (
        f"of {counting} tracks" in (tmp_path / "report/table7.svg").read_text()
        and counting < 4
    )
    with fails(DataError):
        table7(chromatin, tmp_path / "none", min_positives=1000)
    assert not (tmp_path / "none").exists()


def test_a_probe_is_a_row_of_the_model_that_it_reads(
    promoters: list[ArmModel], tmp_path: Path
) -> None:
    probe = of_promoters(tmp_path / "probe", "probe", 1, 1.2)
    probe = probe._replace(row=PredictorRow("bigbird", "random", "probed"))
    table = table_report("table6", [*promoters, probe], tmp_path / "report")
    rows = table[["predictor", "weights", "training"]].values.tolist()
    assert rows[-1] == ["bigbird", "random", "probed"] and rows[1] == [
        "bigbird",
        "random",
        "fine-tuned",
    ]
    assert "bigbird, random, probed" in (tmp_path / "report/table6.svg").read_text()


def test_bits_per_base_are_of_one_split_which_is_said(tmp_path: Path) -> None:
    out, uniform = (
        tmp_path / "report",
        "test\tuniform\t2\t2\t2\t-0.3\t-0.4\t-0.2\t2 bits a base\n",
    )

    def bits(name: str, *rows: str) -> Path:
        (tmp_path / name).write_text(HEAD + "".join(rows))
        return tmp_path / name

    def row(split: str, value: float) -> str:
        return f"{split}\tmodel\t{value}\t{value - 0.1}\t{value + 0.1}\t\t\t\t\n"

    both = bits("bits.tsv", row("valid", 1.8), row("test", 1.7), uniform)
    table = table_report("table5", (), out, bits={"": both})
    assert table[["predictor", "bits_per_base"]].values.tolist() == [
        ["model", 1.7],
        ["uniform", 2.0],
    ]
    assert table["published"].tolist() == pytest.approx([1.12, np.nan], nan_ok=True)
    message((out / "table5.md").read_text(), "| test | model | 1.700 [1.600, 1.800] |")
    # Of a further model its own row alone.
    table = table_report(
        "table5",
        (),
        out,
        bits={"": both, "bert-512": bits("a.tsv", row("test", 1.75), uniform)},
    )
    assert table["predictor"].tolist() == ["model", "model bert-512", "uniform"]
    assert (
        table["bits_per_base"].tolist() == [1.7, 1.75, 2.0]
        and table["published"].notna().sum() == 1
    )
    own, other = (bits(f"{split}.tsv", row(split, 1.8)) for split in ("valid", "test"))
    table = table_report("table5", (), out, bits={"": own, "b": own})
    assert table["split"].tolist() == ["valid"] * 2
    assert (
        "| valid | model b | 1.800 [1.700, 1.900] |" in (out / "table5.md").read_text()
    )
    drawn = (out / "table5.svg").read_text()
    assert "validation" in drawn and "test" not in drawn
    for first, second in ((own, other), (other, own)):
        with fails(DataError, second, first):
            table_report("table5", (), out, bits={"": first, "b": second})


def test_what_is_refused(
    promoters: list[ArmModel], chromatin: list[ArmModel], tmp_path: Path
) -> None:
    none = promoters[0]._replace(path=tmp_path, predictions=tmp_path / "none")
    fewer = of_promoters(tmp_path / "fewer", "gc", 2, 1.0, pairs=200)
    for inputs, named in (
        ([none], [tmp_path / "none"]),
        ([*promoters, promoters[-1]], [promoters[-1].path]),
        ([*promoters, fewer], []),
    ):
        with fails(DataError, *named):
            table_report("table6", inputs, tmp_path / "out")
    few = of_tracks(tmp_path / "few", "gc", 1, [0, 1], bins=50)
    for named in ("50", "'x'"):
        with fails(DataError, few.path, named):
            table7([*chromatin, few], tmp_path / "out")
        write_tracks(few.path / "tracks.tsv", [Track("a", "TF"), Track("x", "TF")])
    assert not (tmp_path / "out").exists()


def test_medians_have_intervals_over_tracks_where_there_are_some(
    tmp_path: Path,
) -> None:
    tracks = [Track(f"t{number}", "TF" if number < 6 else "DHS") for number in range(8)]
    found = [
        of_tracks(tmp_path / f"cnn-{seed}", "deepsea", seed, [*range(8)], tracks=tracks)
        for seed in (1, 2)
    ]
    many, few = table7(found, tmp_path / "report", tracks).to_dict("records")
    labels = toy_labels(8)
    scores = [np.load(one.predictions).astype(float) for one in found]
    areas = np.array(
        [[auroc(labels[:, t], one[:, t]).value for t in range(6)] for one in scores]
    )
    medians = SampledMetrics.of_resamples(
        np.median(areas, axis=1), resampled_medians(areas), 5
    )
    expected = mean_over_seeds(medians, (0.0, 1.0))
    figures = [f"median_auroc{end}" for end in ("", "_low", "_high")]
    assert [many[name] for name in figures] == pytest.approx(list(expected))
    assert few["n_tracks"] == 2 and np.isnan([few[name] for name in figures[1:]]).all()
    assert (
        f"| {few['median_auroc']:.3f} |" in (tmp_path / "report/table7.md").read_text()
    )
    message(json.loads((tmp_path / "report/table7.json").read_text())["note"])


def test_medians_over_some_tracks_dont_stand_beside_those_over_all(
    tmp_path: Path,
) -> None:
    tracks = [Track(f"t{number}", "TF") for number in range(6)]
    covered = {"k-mers": [*range(6)], "gkm-svm": [*range(5)], "motifs": [0, 1]}
    found = [
        of_tracks(tmp_path / name, name, 1, own, tracks=tracks)
        for name, own in covered.items()
    ]
    table = table7(found, tmp_path / "report", tracks)
    rows = (
        table[["predictor", "tracks", "n_tracks", "n_tracks_in_median"]]
        .to_numpy()
        .tolist()
    )
    assert rows[:3] == [
        ["k-mers", "all", 6, 6],
        ["gkm-svm", "all", 5, 6],
        ["motifs", "all", 2, 6],
    ]
    shown = {
        row[0]: [*map(bool, row[4:])]
        for row in side_by_side(tmp_path / "report/table7.md")[1:]
    }
    few = [False, True, False]
    assert shown == {"k-mers": [True, True, True], "gkm-svm": few, "motifs": few}
    # Of one predictor the figure is in words, and without a legend, of which matplotlib would warn.
    table7(found[:1], tmp_path / "report", tracks)
    assert "no other predictor" in (tmp_path / "report/table7.svg").read_text()
