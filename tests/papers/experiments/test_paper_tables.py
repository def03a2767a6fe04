"""The papers' tables from directories of models and comparators: rows, intervals, published figures."""

import json
import shutil
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
from bigbird_dna.metrics.resampling import gain, resampled_medians
from bigbird_dna.papers.experiments.tables import table_report
from tests.golden.messages import fails
from tests.papers.experiments.studies import toy_labels, write_model, write_predictions

TRACK_COLUMNS = ["track", "group", "known_motif", "positives"]
TRACK_COLUMNS += ["predictor", "weights", "training", "seeds", "window", "auroc"]
TRACKS = [Track(name, group) for name, group in zip("abcd", ["TF", "TF", "TF", "DHS"], strict=True)]


HEAD = "split\tpredictor\tbits_per_base\tlow\thigh\tdifference\tdifference_low\tdifference_high\tnote\n"


def describe(path: Path, name: str, seed: int) -> None:
    (path / "comparator.json").write_text(json.dumps({"comparator": name, "settings": {"seed": seed}}))


def promoter_comparator(path: Path, name: str, seed: int, lift: float, *, pairs: int = 300) -> Path:
    path.mkdir(parents=True)
    labels = np.tile([1, 0], pairs)
    scores = lift * labels + np.random.default_rng([seed, 9]).normal(size=2 * pairs)
    write_predictions(path / "predictions.parquet", labels, 1 / (1 + np.exp(-scores)))
    describe(path, name, seed)
    return path


def track_comparator(
    path: Path, name: str, seed: int, covered: list[int], bins: int = 60, tracks: Sequence[Track] = TRACKS
) -> Path:
    path.mkdir(parents=True)
    labels = toy_labels(len(tracks))[:bins][:, covered]
    scores = labels + np.random.default_rng([seed, 8]).normal(size=labels.shape)
    np.save(path / "predictions.npy", scores.astype(np.float32))
    PackedLabels.from_dense(labels).save(path / "labels.npz")
    write_tracks(path / "tracks.tsv", [tracks[one] for one in covered])
    describe(path, name, seed)
    return path


def of_bins(found: list[Path], home: Path, tracks: Sequence[Track] = TRACKS, **options: Any) -> pd.DataFrame:
    """Table 7 in `home`."""
    PackedLabels.from_dense(toy_labels(len(tracks))).save(home.parent / "labels.npz")
    write_tracks(home.parent / "tracks.tsv", tracks)
    files = {"labels": home.parent / "labels.npz", "tracks": home.parent / "tracks.tsv"}
    return table_report("table7", found, home, **files, **options)


@pytest.fixture(scope="module")
def promoters(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    home = tmp_path_factory.mktemp("promoters")
    found = [
        write_model(home / f"{start}-{seed}" / "model", start=start, seed=seed, lift=lift)
        for start, lift in (("pretrained", 2.0), ("random", 1.5))
        for seed in (1, 2, 3)
    ]
    found += [promoter_comparator(home / f"cnn-{seed}", "cnnprom", seed, 1.0) for seed in (1, 2)]
    return [*found, promoter_comparator(home / "gc", "gc", 1, 0.2)]


@pytest.fixture(scope="module")
def chromatin(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    home = tmp_path_factory.mktemp("chromatin")
    found = [
        write_model(home / f"{start}-{seed}" / "model", start=start, seed=seed, task="chromatin")
        for start in ("pretrained", "random")
        for seed in (1, 2)
    ]
    found += [track_comparator(home / f"deepsea-{seed}", "deepsea", seed, [0, 1, 2, 3]) for seed in (1, 2)]
    return [*found, track_comparator(home / "motifs", "motifs", 1, [1, 2])]


def test_a_row_for_each_predictor_and_its_weights(promoters: list[Path], tmp_path: Path) -> None:
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
    frames = [read_predictions(path / "predictions.parquet") for path in promoters[:3]]
    areas = [auroc(frame["label"], frame["probability"]).value for frame in frames]
    assert table["auroc"][0] == pytest.approx(np.mean(areas), abs=1e-5)
    assert (table["auroc_low"] < table["auroc"]).all() and (table["auroc"] < table["auroc_high"]).all()
    assert (np.diff(table["auroc"]) < 0).all() and table["f1"].between(0.4, 1).all()
    # Published figures are of the set `substituted`.
    assert set(table["published_f1"]) == {""}


def test_two_seeds_that_differ_widely_have_an_interval_of_areas(tmp_path: Path) -> None:
    pair = [
        promoter_comparator(tmp_path / str(seed), "cnnprom", seed, lift) for seed, lift in ((1, 0), (2, 6))
    ]
    (row,) = table_report("table6", pair, tmp_path / "report").to_dict("records")
    assert 0 < row["auroc_low"] < 0.01 and 0.99 < row["auroc_high"] < 1
    assert 0.7 < row["auroc"] < 0.8


def test_chromatin_models_of_other_windows_are_other_rows(chromatin: list[Path], tmp_path: Path) -> None:
    narrow = write_model(tmp_path / "narrow/model", task="chromatin", window=800)
    table = of_bins([*chromatin, narrow], tmp_path / "report")
    models = table.query("predictor == 'bigbird' and group == 'TF' and tracks == 'all'")
    assert models["window"].tolist() == [3000, 3000, 800] and models["seeds"].tolist() == [2, 2, 1]
    lines = (tmp_path / "report/table7.md").read_text().splitlines()
    place = lines.index("median AUROC, side by side:") + 2
    heads = ["predictor", "weights", "training", "window"]
    sides = ["TF, all", "TF, with a known motif", "TF, without one", "DHS, all", "DHS, without one"]
    assert lines[place] == f"| {' | '.join([*heads, *sides])} |"
    side = models["median_auroc"].iloc[2]
    (row,) = (
        line for line in lines[place:] if line.startswith("| bigbird | pretrained | fine-tuned | 800 |")
    )
    assert row.split(" | ")[4].startswith(f"{side:.3f}")


def test_published_figures_stand_beside_what_is_alike_and_are_marked(tmp_path: Path) -> None:
    models = [write_model(tmp_path / s / "model", start=s) for s in ("pretrained", "random")]
    directories = [*models, promoter_comparator(tmp_path / "cnn", "cnnprom", 1, 1.0)]
    for path in directories:
        frame = pd.read_parquet(path / "predictions.parquet")
        frame["negative_set"] = frame["negative_set"].replace("genomic", "substituted")
        frame.to_parquet(path / "predictions.parquet", index=False)
    table = table_report("table6", directories, tmp_path / "report")
    assert table["published_f1"].tolist() == pytest.approx([0.999, np.nan, 0.697], nan_ok=True)
    page = (tmp_path / "report/table6.md").read_text()
    assert "| predictor | weights | training | substituted, 400 bp |" in page
    assert page.count("0.999 †") == 1 and page.count("0.697 †") == 1
    told = json.loads((tmp_path / "report/table6.json").read_text())
    assert [row["published_f1"] for row in told["rows"]] == [0.999, None, 0.697]


def test_medians_by_group_with_and_without_a_known_motif(chromatin: list[Path], tmp_path: Path) -> None:
    table = of_bins(chromatin, tmp_path / "report")
    parts = table.groupby(["group", "tracks"], sort=False)["number"].first()
    assert parts.to_dict() == {
        **{("TF", "all"): 3, ("TF", "with a known motif"): 2, ("TF", "without one"): 1},
        **{("DHS", "all"): 1, ("DHS", "without one"): 1},
    }
    truth = toy_labels()
    values = [np.load(path.parent / "predictions.npy").astype(float) for path in chromatin[:2]]
    areas = np.array([[auroc(truth[:, one], v[:, one]).value for one in range(3)] for v in values])
    row = table.query("group == 'TF' and tracks == 'all' and weights == 'pretrained'").iloc[0]
    assert row["median_auroc"] == pytest.approx(np.median(areas, axis=1).mean())
    each = pd.read_csv(tmp_path / "report/table7_tracks.tsv", sep="\t", keep_default_na=False)
    assert list(each.columns) == TRACK_COLUMNS
    own = each.query("predictor == 'bigbird' and weights == 'pretrained'")
    assert own["track"].tolist() == list("abcd") and own["known_motif"].tolist() == ["no", "yes", "yes", "no"]
    assert own["auroc"][:3].tolist() == pytest.approx(areas.mean(axis=0).tolist(), abs=1e-5)
    assert own["positives"].tolist() == truth.sum(axis=0).tolist()
    figure = (tmp_path / "report/table7.svg").read_text()
    assert all(word in figure for word in ("above on", "deepsea", "motifs"))
    scan = table[table["predictor"] == "motifs"]
    assert scan[["tracks", "number"]].values.tolist() == [["all", 2], ["with a known motif", 2]]
    published = table[table["published_median"].notna()]
    assert published[["group", "predictor", "published_median"]].values.tolist() == [
        *(["TF", "bigbird", 0.961], ["TF", "deepsea", 0.958]),
        *(["DHS", "bigbird", 0.921], ["DHS", "deepsea", 0.923]),
    ]


def test_tracks_with_few_positives_dont_count(chromatin: list[Path], tmp_path: Path) -> None:
    positives = toy_labels().sum(axis=0)
    least = int(np.sort(positives[:3])[1])
    table = of_bins(chromatin, tmp_path / "report", min_positives=least)
    rows = table.query("group == 'TF' and tracks == 'all' and predictor == 'bigbird'")
    assert set(rows["number"]) == {int((positives[:3] >= least).sum())} == {2}
    each = pd.read_csv(tmp_path / "report/table7_tracks.tsv", sep="\t")
    assert set(each["track"]) == set("abcd")
    counting = int((positives >= least).sum())
    assert f"of {counting} tracks" in (tmp_path / "report/table7.svg").read_text() and counting < 4
    with fails(DataError):
        of_bins(chromatin, tmp_path / "none", min_positives=1000)
    assert not (tmp_path / "none").exists()


def test_a_probe_is_a_row_of_the_model_that_it_reads(promoters: list[Path], tmp_path: Path) -> None:
    probe = promoter_comparator(tmp_path / "probe", "probe", 1, 1.2)
    told = {"comparator": "probe", "settings": {"seed": 1}}
    chosen = {"attention": "bigbird", "weights": "random", "layer": 1}
    (probe / "comparator.json").write_text(json.dumps({**told, "chosen": chosen}))
    table = table_report("table6", [*promoters, probe], tmp_path / "report")
    rows = table[["predictor", "weights", "training"]].values.tolist()
    assert rows[-1] == ["bigbird", "random", "probed"] and rows[1] == ["bigbird", "random", "fine-tuned"]
    assert "bigbird, random, probed" in (tmp_path / "report/table6.svg").read_text()
    (probe / "comparator.json").write_text(json.dumps(told))
    with fails(DataError):
        table_report("table6", [probe], tmp_path / "report")


def test_bits_per_base(tmp_path: Path) -> None:
    rows = ["valid\tmodel\t1.8\t1.7\t1.9\t\t\t\t", "test\tmodel\t1.7\t1.6\t1.8\t\t\t\t"]
    rows.append("test\tuniform\t2\t2\t2\t-0.3\t-0.4\t-0.2\t2 bits a base")
    (tmp_path / "bits.tsv").write_text(HEAD + "\n".join(rows) + "\n")
    table = table_report("table5", [tmp_path / "bits.tsv"], tmp_path / "report")
    assert table[["predictor", "bits_per_base"]].values.tolist() == [["model", 1.7], ["uniform", 2.0]]
    assert table["published"].tolist() == pytest.approx([1.12, np.nan], nan_ok=True)
    page = (tmp_path / "report/table5.md").read_text()
    assert "| test | model | 1.700 [1.600, 1.800] |" in page
    assert "Intervals are of 95 %, over blocks of 10 kb of sequence." in page
    # Of a further model its own row alone.
    (tmp_path / "other.tsv").write_text(HEAD + "\n".join(rows).replace("1.7\t", "1.75\t") + "\n")
    further = {"bert-512": tmp_path / "other.tsv"}
    table = table_report("table5", [tmp_path / "bits.tsv"], tmp_path / "report", bits=further)
    assert table["predictor"].tolist() == ["model", "model bert-512", "uniform"]
    assert table["bits_per_base"].tolist() == [1.7, 1.75, 2.0] and table["published"].notna().sum() == 1
    assert "bits per base, test" in (tmp_path / "report/table5.svg").read_text()


def test_what_is_refused(promoters: list[Path], chromatin: list[Path], tmp_path: Path) -> None:
    twice = tmp_path / "twice"
    shutil.copytree(promoters[-1], twice)
    fewer = promoter_comparator(tmp_path / "fewer", "gc", 2, 1.0, pairs=200)
    for inputs, named in (
        ([tmp_path / "none"], [tmp_path / "none"]),
        ([chromatin[0]], [chromatin[0], "chromatin"]),
        ([*promoters, twice], [twice, promoters[-1]]),
        ([*promoters, fewer], []),
    ):
        with fails(DataError, *named):
            table_report("table6", inputs, tmp_path / "out")
    (twice / "comparator.json").write_text('{"comparator": 3}')
    with fails(DataError, twice):
        table_report("table6", [twice], tmp_path / "out")
    few = track_comparator(tmp_path / "few", "gc", 1, [0, 1], bins=50)
    for named in ("50", "'x'"):
        with fails(DataError, few, named):
            of_bins([*chromatin, few], tmp_path / "out")
        write_tracks(few / "tracks.tsv", [Track("a", "TF"), Track("x", "TF")])
    assert not (tmp_path / "out").exists()


def test_separated_classes_and_equal_scores_are_not_certain(tmp_path: Path) -> None:
    """As in all other tables: the exact interval of 30 pairs, and none."""
    labels = np.tile([1, 0], 30)
    for name, scores in (("cnnprom", labels), ("deepromoter", 1 - labels), ("gc", np.full(60, 0.5))):
        promoter_comparator(tmp_path / name, name, 1, 1.0)
        write_predictions(tmp_path / name / "predictions.parquet", labels, scores)
    names = ("cnnprom", "deepromoter", "gc")
    table = table_report("table6", [tmp_path / name for name in names], tmp_path / "report")
    least = 0.025 ** (1 / 30)
    figures = table[["auroc", "auroc_low", "auroc_high"]].to_numpy(float)
    expected = [(1, least, 1), (0, 0, 1 - least), (0.5, np.nan, np.nan)]
    np.testing.assert_allclose(figures, expected)
    page = (tmp_path / "report/table6.md").read_text()
    assert "| 0.500 |" in page and f"| 1.000 [{least:.3f}, 1.000] |" in page
    assert "Intervals are of 95 %, over promoters with their negatives, and seeds." in page


def test_medians_have_intervals_over_tracks_where_there_are_some(tmp_path: Path) -> None:
    tracks = [Track(f"t{number}", "TF" if number < 6 else "DHS") for number in range(8)]
    found = [
        track_comparator(tmp_path / f"cnn-{seed}", "deepsea", seed, [*range(8)], tracks=tracks)
        for seed in (1, 2)
    ]
    many, few = of_bins(found, tmp_path / "report", tracks).to_dict("records")
    labels = toy_labels(8)
    scores = [np.load(path / "predictions.npy").astype(float) for path in found]
    areas = np.array([[auroc(labels[:, t], one[:, t]).value for t in range(6)] for one in scores])
    medians, nothing = np.median(areas, axis=1), np.zeros(2)
    expected = gain(medians, nothing, resampled_medians(areas), np.zeros((2, 1)))
    figures = [f"median_auroc{end}" for end in ("", "_low", "_high")]
    assert [many[name] for name in figures] == pytest.approx(list(expected))
    assert few["number"] == 2 and np.isnan([few[name] for name in figures[1:]]).all()
    page = (tmp_path / "report/table7.md").read_text()
    assert f"| {few['median_auroc']:.3f} |" in page
    assert "over tracks and seeds; of fewer than 5 tracks there is none." in page
    told = json.loads((tmp_path / "report/table7.json").read_text())["note"]
    assert told.startswith("Published figures") and "over tracks and seeds" in told


def test_medians_over_some_tracks_dont_stand_beside_those_over_all(tmp_path: Path) -> None:
    tracks = [Track(f"t{number}", "TF") for number in range(6)]
    covered = {"k-mers": [*range(6)], "gkm-svm": [*range(5)], "motifs": [0, 1]}
    found = [track_comparator(tmp_path / name, name, 1, own, tracks=tracks) for name, own in covered.items()]
    table = of_bins(found, tmp_path / "report", tracks)
    rows = table[["predictor", "tracks", "number", "counting"]].to_numpy().tolist()
    assert rows[:3] == [["k-mers", "all", 6, 6], ["gkm-svm", "all", 5, 6], ["motifs", "all", 2, 6]]
    lines = (tmp_path / "report/table7.md").read_text().splitlines()
    place = lines.index("median AUROC, side by side:") + 4
    cells = {line.split(" | ")[0][2:]: line.split(" | ")[4:] for line in lines[place : place + 3]}
    shown = {name: [bool(cell.strip(" |")) for cell in own] for name, own in cells.items()}
    assert shown == {
        "k-mers": [True, True, True],
        "gkm-svm": [False, True, False],
        "motifs": [False, True, False],
    }


def test_a_table_of_one_predictor_has_a_figure_in_words(tmp_path: Path) -> None:
    """And no legend, of which matplotlib would warn."""
    found = track_comparator(tmp_path / "cnn", "deepsea", 1, [0, 1, 2, 3])
    of_bins([found], tmp_path / "report")
    assert "no other predictor to compare with" in (tmp_path / "report/table7.svg").read_text()


def test_bits_per_base_are_of_one_split_which_is_said(tmp_path: Path) -> None:
    for split in ("valid", "test"):
        (tmp_path / f"{split}.tsv").write_text(f"{HEAD}{split}\tmodel\t1.8\t1.7\t1.9\t\t\t\t\n")
    out = tmp_path / "report"
    table = table_report("table5", [tmp_path / "valid.tsv"], out, bits={"b": tmp_path / "valid.tsv"})
    assert table["split"].tolist() == ["valid"] * 2
    assert "| valid | model b | 1.800 [1.700, 1.900] |" in (out / "table5.md").read_text()
    drawn = (out / "table5.svg").read_text()
    assert "bits per base, validation" in drawn and "test" not in drawn
    for own, other in (("test", "valid"), ("valid", "test")):
        with fails(DataError, other, other, own, own):
            table_report("table5", [tmp_path / f"{own}.tsv"], out, bits={"b": tmp_path / f"{other}.tsv"})
