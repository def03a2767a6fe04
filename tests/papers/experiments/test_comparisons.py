"""Comparisons of arms with known predictions: means, paired differences, intervals, published values."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from bigbird_dna.config.reading import parse_config
from bigbird_dna.errors import DataError
from bigbird_dna.genome.chromatin.labels import PackedLabels
from bigbird_dna.genome.chromatin.track import Track
from bigbird_dna.genome.chromatin.tracks import write_tracks
from bigbird_dna.metrics.auroc import auroc
from bigbird_dna.metrics.resampling import (
    SampledMetrics,
    bits_per_base,
    mean_over_seeds,
    resampled_medians,
)
from bigbird_dna.papers.experiments.ablation import (
    bits_metric,
    mechanism_table,
)
from bigbird_dna.papers.experiments.arms import Arm
from bigbird_dna.papers.experiments.comparing import Metric, compare_arms, row_aurocs
from bigbird_dna.papers.experiments.pretraining_study import (
    study_table,
)
from bigbird_dna.papers.experiments.table5 import bits_table
from bigbird_dna.papers.experiments.table6 import promoter_table, write_table6
from bigbird_dna.papers.experiments.table7 import chromatin_tables, write_table7
from tests.golden.messages import fails
from tests.papers.experiments.conftest import MakeArm

TOKENS = 600
BASES = np.random.default_rng(0).integers(2, 8, TOKENS)
BLOCKS = np.arange(TOKENS) // 20
COMMON = np.random.default_rng(1).gamma(4.0, 2.0, TOKENS)


def test_differences_are_paired_by_seed(finished_arm: MakeArm) -> None:
    """By hand, for values without variation of the data: only common seeds count."""
    values = {("a", 1): 0.5, ("a", 2): 0.7, ("b", 2): 0.6, ("b", 3): 0.9, ("c", 1): 0.1}
    arms = [finished_arm(name, seed, kind=name) for name, seed in values]
    sampled = SampledMetrics(np.array([*values.values()]), np.zeros((5, 4)))
    metric = Metric("bits_per_base", sampled)
    table = compare_arms(metric, arms, ["kind"], {"kind": "a"}).set_index("kind")
    assert table["seeds"].tolist() == [2, 2, 1]
    assert table["bits_per_base"].tolist() == pytest.approx([0.6, 0.75, 0.1])
    differences = table["difference"].tolist()
    assert differences == pytest.approx([np.nan, -0.1, -0.4], nan_ok=True)
    once = compare_arms(
        metric, arms, ["kind"], {"kind": "a"}, sign=-1, fitted_once=True
    ).set_index("kind")
    assert once["difference"]["b"] == pytest.approx(0.1)
    assert once["difference"]["c"] == pytest.approx((0.4 + 0.6) / 2)


# Bits per base


def write_bits(arm: Arm, lift: float, **changes: Any) -> Arm:
    """Bits that are higher by `lift` a base, and a little otherwise for each seed."""
    noise = np.random.default_rng([arm.seed, 7]).normal(0, 0.05, TOKENS)
    arrays = {"bits": COMMON + lift * BASES + noise, "bases": BASES, "blocks": BLOCKS}
    np.savez(arm.model / "predictions.npz", **(arrays | changes))
    return arm


def test_bits_of_mechanisms(finished_arm: MakeArm) -> None:
    lifts = {"full": -0.05, "bigbird": 0.0, "window": 0.04}
    arms = [
        write_bits(finished_arm(name, seed, {"steps": 80}, mechanism=name), lift)
        for name, lift in lifts.items()
        for seed in (1, 2)
    ]
    metric = bits_metric(arms)
    reference = {"mechanism": "bigbird"}
    table = compare_arms(metric, arms, ["mechanism"], reference)
    table = table.set_index("mechanism")
    for name, lift in (("full", -0.05), ("window", 0.04)):
        row = table.loc[name]
        # Pairs differ by nothing but the lift, so their interval is narrow; absolute ones aren't.
        assert row["difference"] == pytest.approx(lift, abs=1e-6)
        width = row["difference_high"] - row["difference_low"]
        assert width < 0.01 < row["bits_per_base_high"] - row["bits_per_base"]
    (one,) = (arm for arm in arms if arm.name == "full-seed1")
    with np.load(one.model / "predictions.npz") as arrays:
        rates = bits_per_base({"full": arrays["bits"]}, BASES, BLOCKS, "full")
    assert metric.mean({1: 0}) == pytest.approx(rates["full"].bits_per_base, abs=0.01)
    other = write_bits(
        finished_arm("other", mechanism="other"), 0.0, bases=np.full(TOKENS, 6)
    )
    with fails(DataError, other.model):
        bits_metric([*arms, other])
    (other.model / "predictions.npz").write_bytes(b"PK")
    with fails(DataError, other.model / "predictions.npz"):
        bits_metric([other])


def test_published_values_stand_beside_mechanisms(finished_arm: MakeArm) -> None:
    names = {"full": 0.1, "bigbird": 0.0, "window": 0.2}
    run = parse_config({"ablation": {"mechanisms": [*names], "steps": 80}})
    arms = [
        write_bits(finished_arm(name, 1, mechanism=name), lift)
        for name, lift in names.items()
    ]
    table = mechanism_table(run, arms)
    assert table["mechanism"].tolist() == [*names]
    assert table["paper_table1_row"].tolist() == ["BERT", "", "W"]
    accuracy = table["published_masked_accuracy"].tolist()
    assert accuracy == pytest.approx([64.2, np.nan, 58.3], nan_ok=True)
    assert (table["steps"] == 80).all() and (table["seconds"] == 9).all()


def test_bits_per_base_are_of_one_split(tmp_path: Path) -> None:
    head = "split\tpredictor\tbits_per_base\tlow\thigh\tdifference\tdifference_low\tdifference_high\tnote\n"

    def bits(name: str, *rows: tuple[str, str, float]) -> Path:
        lines = [f"{split}\t{who}\t{value}" + "\t" * 6 for split, who, value in rows]
        (tmp_path / name).write_text(head + "".join(f"{line}\n" for line in lines))
        return tmp_path / name

    both = bits(
        "bits.tsv",
        ("valid", "model", 1.8),
        ("test", "model", 1.7),
        ("test", "uniform", 2),
    )
    other = bits("a.tsv", ("test", "model", 1.75), ("test", "uniform", 2))
    table = bits_table(both, {"bert": other})
    assert table[["predictor", "bits_per_base", "published"]].values.tolist() == [
        ["model", 1.7, 1.12],
        ["model bert", 1.75, pytest.approx(np.nan, nan_ok=True)],
        ["uniform", 2, pytest.approx(np.nan, nan_ok=True)],
    ]
    valid = bits("v.tsv", ("valid", "model", 1.8))
    assert bits_table(valid, {"b": valid})["split"].tolist() == ["valid"] * 2
    for first, second in ((valid, other), (other, valid)):
        with fails(DataError, second, first):
            bits_table(first, {"b": second})


def test_separated_classes_are_not_certain() -> None:
    """The interval is that of pairs that share no stretch."""
    labels = np.repeat([1, 0], 10)
    scores = np.stack([labels * 2.0, labels * 3.0, -labels, labels * 0])
    metric = row_aurocs(labels, scores, np.arange(20))
    assert metric.mean({1: 1}) == auroc(labels, scores[1])
    assert metric.mean({1: 2}) == auroc(labels, scores[2])
    equal = metric.mean({1: 3})
    assert equal.value == 0.5 and np.isnan(equal.low)
    difference = metric.difference({1: 1}, {1: 0})
    assert difference.value == 0 and np.isnan(difference.low)
    pairs = row_aurocs(labels, scores, np.arange(20) // 2)
    assert pairs.mean({1: 1}).low == pytest.approx(0.025 ** (1 / 5))


# Promoters


def write_windows(
    arm: Arm, lift: float, *, negative_set: str = "genomic", pairs: int = 300
) -> Arm:
    labels = np.tile([1, 0], pairs)
    rng = np.random.default_rng([arm.seed, round(100 * lift)])
    scores = lift * labels + np.random.default_rng(0).normal(size=2 * pairs)
    scores += 0.6 * rng.normal(size=2 * pairs)
    starts = 500 * np.arange(2 * pairs)
    frame = pd.DataFrame(
        {
            "contig": "chr2",
            "start": starts,
            "end": starts + 400,
            "strand": "+",
            "split": "test",
            "negative_set": np.where(labels == 1, "positive", negative_set),
            "pair": np.arange(2 * pairs) // 2,
            "label": labels,
            "probability": 1 / (1 + np.exp(-scores)),
        }
    )
    frame.to_parquet(arm.model / "predictions.parquet", index=False)
    return arm


def predictor(make: MakeArm, name: str, seed: int = 1, **options: Any) -> Arm:
    tuned = options.setdefault("weights", "") != ""
    if not tuned:
        options.setdefault("comparator", name)
    label = f"{name}-{options['weights']}"
    return make(label, seed, name=label, predictor=name, **options)


def area(arm: Arm, rows: Any = slice(None)) -> float:
    frame = pd.read_parquet(arm.model / "predictions.parquet")[rows]
    return auroc(frame["label"], frame["probability"]).value


def test_promoters_by_predictor(finished_arm: MakeArm, tmp_path: Path) -> None:
    arms = [
        write_windows(predictor(finished_arm, "bigbird", seed, weights=weights), lift)
        for weights, lift in (("pretrained", 2.0), ("random", 1.5))
        for seed in (1, 2, 3)
    ]
    arms += [
        write_windows(predictor(finished_arm, "cnnprom", seed), 1.0) for seed in (1, 2)
    ]
    arms.append(write_windows(predictor(finished_arm, "gc"), 0.2))
    table = promoter_table(arms)
    assert table["predictor"].tolist() == ["bigbird", "bigbird", "cnnprom", "gc"]
    assert table["seeds"].tolist() == [3, 3, 2, 1] and (table["windows"] == 600).all()
    areas = [area(arm) for arm in arms]
    means = [np.mean(areas[:3]), np.mean(areas[3:6]), np.mean(areas[6:8]), areas[8]]
    assert table["auroc"].tolist() == pytest.approx(means)
    leads = [np.nan, means[0] - means[1], np.mean(areas[:2]) - means[2]]
    leads.append(means[0] - means[3])
    assert table["difference"].tolist() == pytest.approx(leads, nan_ok=True)
    inside = table["difference_low"].lt(leads) & table["difference_high"].gt(leads)
    assert inside[1:].all() and table["published_f1"].isna().all()
    write_table6(table, tmp_path)
    assert "bigbird pretrained" in (tmp_path / "table6.svg").read_text()
    fewer = write_windows(predictor(finished_arm, "orf"), 1.0, pairs=200)
    with fails(DataError):
        promoter_table([*arms, fewer])


def test_published_values_of_promoters(finished_arm: MakeArm, tmp_path: Path) -> None:
    arms = [
        write_windows(arm, 1.0, negative_set="substituted")
        for arm in (
            predictor(finished_arm, "bigbird", weights="pretrained"),
            predictor(finished_arm, "bigbird", weights="random"),
            predictor(finished_arm, "cnnprom"),
        )
    ]
    table = promoter_table(arms)
    published = table["published_f1"].tolist()
    assert published == pytest.approx([0.999, np.nan, 0.697], nan_ok=True)
    write_table6(table, tmp_path)
    assert (tmp_path / "table6.md").read_text().count("0.999 †") == 1
    rows = json.loads((tmp_path / "table6.json").read_text())["rows"]
    assert [row["published_f1"] for row in rows] == [0.999, None, 0.697]


def test_noncoding_windows_are_a_stratum(finished_arm: MakeArm) -> None:
    arms = [
        write_windows(predictor(finished_arm, "bigbird", weights=weights), 0.5)
        for weights in ("pretrained", "random")
    ]
    noncoding = np.arange(600) // 2 % 3 > 0
    for arm in arms:
        path = arm.model / "predictions.parquet"
        frame = pd.read_parquet(path).assign(coding=np.where(noncoding, 0.1, 0.9))
        frame.to_parquet(path, index=False)
    table = promoter_table(arms)
    assert table["stratum"].tolist() == ["all"] * 2 + ["noncoding"] * 2
    assert table["windows"].tolist() == [600] * 2 + [400] * 2
    assert table["auroc"][2] == pytest.approx(area(arms[0], noncoding))


# Tracks of Table 7


def write_tracks_of(
    arm: Arm, tracks: list[Track], covered: list[int], bins: int = 60
) -> Arm:
    labels = toy_labels(len(tracks))[:bins, covered]
    scores = labels + np.random.default_rng([arm.seed, 8]).normal(size=labels.shape)
    np.save(arm.model / "predictions.npy", scores.astype(np.float32))
    PackedLabels.from_dense(labels).save(arm.model / "labels.npz")
    write_tracks(arm.model / "tracks.tsv", [tracks[one] for one in covered])
    (arm.model / "comparator.json").write_text('{"window": 1000}')
    return arm


def toy_labels(tracks: int) -> np.ndarray:
    """Labels (60, tracks)."""
    return (np.random.default_rng(1).random((60, tracks)) < 0.4).astype(np.int8)


def tables7(
    home: Path, tracks: list[Track], arms: list[Arm], **more: Any
) -> tuple[pd.DataFrame, pd.DataFrame]:
    PackedLabels.from_dense(toy_labels(len(tracks))).save(home / "labels.npz")
    write_tracks(home / "tracks.tsv", tracks)
    return chromatin_tables(arms, home / "labels.npz", home / "tracks.tsv", **more)


def test_medians_of_tracks(finished_arm: MakeArm, tmp_path: Path) -> None:
    tracks = [Track(f"t{n}", "TF" if n < 6 else "DHS") for n in range(8)]
    arms = [
        write_tracks_of(
            predictor(finished_arm, "bigbird", seed, weights="pretrained", window=3000),
            tracks,
            [*range(8)],
        )
        for seed in (1, 2)
    ]
    motifs = predictor(finished_arm, "motifs", comparator="motifs")
    arms.append(write_tracks_of(motifs, tracks, [1, 2]))
    medians, each = tables7(tmp_path, tracks, arms)
    rows = medians.set_index(["group", "tracks", "predictor"])
    labels = toy_labels(8)
    scores = [np.load(arm.model / "predictions.npy").astype(float) for arm in arms[:2]]
    areas = np.array(
        [[auroc(labels[:, t], one[:, t]).value for t in range(8)] for one in scores]
    )
    sampled = SampledMetrics.of_resamples(
        np.median(areas[:, :6], axis=1), resampled_medians(areas[:, :6]), 5
    )
    names = [f"median_auroc{end}" for end in ("", "_low", "_high")]
    whole = rows.loc[("TF", "all", "bigbird")]
    expected = mean_over_seeds(sampled, (0.0, 1.0))
    assert whole[names].tolist() == pytest.approx([*expected])
    assert (whole["seeds"], whole["window"], whole["n_tracks"]) == (2, 3000, 6)
    assert whole["published_median"] == 0.961
    known = rows.loc[("TF", "with a known motif", "bigbird")]
    assert known["n_tracks"] == 2 and np.isnan(known["median_auroc_low"])
    assert np.isnan(known["published_median"])
    scan = rows.loc[("TF", "all", "motifs")]
    assert (scan["n_tracks"], scan["n_tracks_in_median"]) == (2, 6)
    own = each[each["predictor"] == "bigbird"]
    assert own["auroc"].tolist() == pytest.approx(areas.mean(axis=0).tolist())
    assert own["known_motif"].tolist() == ["no", "yes", "yes"] + ["no"] * 5
    assert own["positives"].tolist() == labels.sum(axis=0).tolist()
    write_table7(medians, each, 1, tmp_path)
    assert "above on" in (tmp_path / "table7.svg").read_text()


def test_tracks_with_few_positives_do_not_count(
    finished_arm: MakeArm, tmp_path: Path
) -> None:
    tracks = [Track(name, "TF") for name in "abc"]
    arm = write_tracks_of(predictor(finished_arm, "gc"), tracks, [0, 1, 2])
    positives = toy_labels(3).sum(axis=0)
    least = int(np.sort(positives)[1])
    medians, each = tables7(tmp_path, tracks, [arm], min_positives=least)
    assert medians["n_tracks"].tolist() == [2] and len(each) == 3
    with fails(DataError, "1,000"):
        tables7(tmp_path, tracks, [arm], min_positives=1000)
    few = write_tracks_of(predictor(finished_arm, "k-mers"), tracks, [0, 1], bins=50)
    with fails(DataError, few.model, "50"):
        tables7(tmp_path, tracks, [arm, few])
    write_tracks(few.model / "tracks.tsv", [Track("a", "TF"), Track("x", "TF")])
    with fails(DataError, few.model, "'x'"):
        tables7(tmp_path, tracks, [arm, few])


# The study of pretraining


def test_gains_of_pretraining(finished_arm: MakeArm) -> None:
    arms = []
    for share, gain in ((1.0, 0.01), (0.05, 0.8)):
        for start, lift in (("pretrained", 1.2 + gain), ("random", 1.2)):
            for seed in (1, 2, 3):
                counts = {"steps": 300, "examples": round(1000 * share)}
                options = {"task": "promoters", "share": share, "start": start}
                arm = finished_arm(
                    f"{start}-{share}",
                    seed,
                    {"training": counts},
                    negative_set="genomic",
                    **options,
                )
                arms.append(write_windows(arm, lift))
    table = study_table(arms, Path("none"), 1, 1200.0)
    assert table["share"].tolist() == [0.05, 0.05, 1, 1]
    assert table["start"].tolist() == ["pretrained", "random"] * 2
    assert table["examples"].tolist() == [50, 50, 1000, 1000]
    gains = table["delta_auroc"].tolist()
    assert gains[1] == pytest.approx(table["auroc"][0] - table["auroc"][1])
    assert np.isnan(gains[0]) and table["delta_auroc_low"][1] > 0
    assert table["delta_auroc_low"][3] < 0 < table["delta_auroc_high"][3]
    assert table["pretraining_minutes"].tolist()[:1] == [20]
