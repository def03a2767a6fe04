"""Comparisons of models with known predictions: means, paired differences, intervals, published values."""

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
from bigbird_dna.metrics.auroc import auroc
from bigbird_dna.metrics.resampling import (
    SampledMetrics,
    bits_per_base,
    mean_over_seeds,
    resampled_medians,
)
from bigbird_dna.papers.experiments.ablation import mechanism_table
from bigbird_dna.papers.experiments.predictors import choose_rates
from bigbird_dna.papers.experiments.shared import compare_seeds
from bigbird_dna.papers.experiments.table5 import bits_table
from bigbird_dna.papers.experiments.table6 import promoter_table
from bigbird_dna.papers.experiments.table7 import chromatin_table
from tests.golden.messages import fails
from tests.papers.experiments.conftest import MakeModel

TOKENS = 600
BASES = np.random.default_rng(0).integers(2, 8, TOKENS)
BLOCKS = np.arange(TOKENS) // 20
COMMON = np.random.default_rng(1).gamma(4.0, 2.0, TOKENS)


def test_differences_are_paired_by_seed() -> None:
    """By hand, for values without variation of the data: only common seeds count."""
    values = {("a", 1): 0.5, ("a", 2): 0.7, ("b", 2): 0.6, ("b", 3): 0.9, ("c", 1): 0.1}
    models = pd.DataFrame([*values], columns=["kind", "seed"])
    sampled = SampledMetrics(np.array([*values.values()]), np.zeros((5, 4)))
    table = compare_seeds("bits", sampled, models, ["kind"], {"kind": "a"})
    assert table["seeds"].tolist() == [2, 2, 1]
    assert table["bits"].tolist() == pytest.approx([0.6, 0.75, 0.1])
    # A single seed is compared with every other one.
    expected = [np.nan, -0.1, 0.1 - (0.5 + 0.7) / 2]
    assert table["difference"].tolist() == pytest.approx(expected, nan_ok=True)
    other = compare_seeds("bits", sampled, models, ["kind"], {"kind": "a"}, sign=-1)
    np.testing.assert_allclose(other["difference"], -table["difference"])


# Bits per base


def write_bits(model: Path, seed: int, lift: float, **changes: Any) -> Path:
    """Bits that are higher by `lift` a base, and a little otherwise for each seed."""
    noise = np.random.default_rng([seed, 7]).normal(0, 0.05, TOKENS)
    own = round(1000 * (lift + 1))
    noise += np.random.default_rng([seed, own]).normal(0, 1e-3, TOKENS)
    arrays = {"bits": COMMON + lift * BASES + noise, "bases": BASES, "blocks": BLOCKS}
    np.savez(model / "predictions.npz", **(arrays | changes))
    return model


def mechanisms(
    make: MakeModel, lifts: dict[str, float], seeds: tuple[int, ...]
) -> pd.DataFrame:
    rows = [
        (name, seed, write_bits(make(name, seed), seed, lift))
        for name, lift in lifts.items()
        for seed in seeds
    ]
    return pd.DataFrame(rows, columns=["mechanism", "seed", "model"])


def test_bits_of_mechanisms(make_model: MakeModel) -> None:
    lifts = {"full": -0.05, "bigbird": 0.0, "window": 0.04}
    models = mechanisms(make_model, lifts, (1, 2))
    run = parse_config({"ablation": {"mechanisms": [*lifts], "steps": 80}})
    table = mechanism_table(run, models).set_index("mechanism")
    for name, lift in (("full", -0.05), ("window", 0.04)):
        row = table.loc[name]
        # Pairs differ by nothing but the lift, so their interval is narrow; absolute ones aren't.
        assert row["difference"] == pytest.approx(lift, abs=1e-3)
        width = row["difference_high"] - row["difference_low"]
        assert width < 0.01 < row["bits_per_base_high"] - row["bits_per_base"]
    with np.load(models["model"][0] / "predictions.npz") as arrays:
        rates = bits_per_base({"full": arrays["bits"]}, BASES, BLOCKS, "full")
    value = rates["full"].bits_per_base.value
    first = mechanism_table(run, models[:1])
    assert first["bits_per_base"].tolist() == pytest.approx([value])
    other = write_bits(make_model("other"), 1, 0.0, bases=np.full(TOKENS, 6))
    models.loc[2, "model"] = other
    with fails(DataError, other):
        mechanism_table(run, models)
    (other / "predictions.npz").write_bytes(b"PK")
    with fails(DataError, other / "predictions.npz"):
        mechanism_table(run, models)


def test_published_values_stand_beside_mechanisms(make_model: MakeModel) -> None:
    names = {"full": 0.1, "bigbird": 0.0, "window": 0.2}
    run = parse_config({"ablation": {"mechanisms": [*names], "steps": 80}})
    table = mechanism_table(run, mechanisms(make_model, names, (1,)))
    assert table["mechanism"].tolist() == [*names]
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


# Promoters


def write_windows(
    model: Path,
    seed: int,
    lift: float,
    *,
    negative_set: str = "genomic",
    pairs: int = 300,
) -> Path:
    labels = np.tile([1, 0], pairs)
    rng = np.random.default_rng([seed, round(100 * lift)])
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
    frame.to_parquet(model / "predictions.parquet", index=False)
    return model


def predictors(
    make: MakeModel, *kinds: tuple[str, str, float, int], **options: Any
) -> pd.DataFrame:
    """Models of windows: predictor, weights, lift and number of seeds."""
    rows = []
    for name, weights, lift, seeds in kinds:
        for seed in range(1, seeds + 1):
            model = make(f"{name}-{weights}", seed)
            write_windows(model, seed, lift, **options)
            rows.append((400, name, weights, seed, model))
    table = pd.DataFrame(
        rows, columns=["window", "predictor", "weights", "seed", "model"]
    )
    table = table.assign(learning_rate=1e-3, seconds=9.0, best_step=4)
    return table.assign(negative_set=options.get("negative_set", "genomic"))


def area(model: Path, rows: Any = slice(None)) -> float:
    frame = pd.read_parquet(model / "predictions.parquet")[rows]
    return auroc(frame["label"], frame["probability"]).value


def test_promoters_by_predictor(make_model: MakeModel) -> None:
    models = predictors(
        make_model,
        ("bigbird", "pretrained", 2.0, 3),
        ("bigbird", "random", 1.5, 3),
        ("cnnprom", "", 1.0, 2),
        ("gc", "", 0.2, 1),
    )
    table = promoter_table(models)
    assert table["predictor"].tolist() == ["bigbird", "bigbird", "cnnprom", "gc"]
    assert table["seeds"].tolist() == [3, 3, 2, 1] and (table["windows"] == 600).all()
    areas = [area(model) for model in models["model"]]
    means = [np.mean(areas[:3]), np.mean(areas[3:6]), np.mean(areas[6:8]), areas[8]]
    assert table["auroc"].tolist() == pytest.approx(means)
    leads = [np.nan, means[0] - means[1], np.mean(areas[:2]) - means[2]]
    leads.append(means[0] - means[3])
    assert table["difference"].tolist() == pytest.approx(leads, nan_ok=True)
    inside = table["difference_low"].lt(leads) & table["difference_high"].gt(leads)
    assert inside[1:].all() and table["published_f1"].isna().all()
    write_windows(models["model"].iloc[-1], 1, 1.0, pairs=200)
    with fails(DataError):
        promoter_table(models)


def test_published_values_of_promoters(make_model: MakeModel) -> None:
    models = predictors(
        make_model,
        ("bigbird", "pretrained", 1.0, 1),
        ("bigbird", "random", 1.0, 1),
        ("cnnprom", "", 1.0, 1),
        negative_set="substituted",
    )
    published = promoter_table(models)["published_f1"].tolist()
    assert published == pytest.approx([0.999, np.nan, 0.697], nan_ok=True)


# Tracks of Table 7


def toy_labels(tracks: int) -> np.ndarray:
    """Labels (60, tracks)."""
    return (np.random.default_rng(1).random((60, tracks)) < 0.4).astype(np.int8)


def track_models(
    make: MakeModel, tracks: int, *kinds: tuple[str, str, int]
) -> pd.DataFrame:
    """Models of tracks: predictor, weights and number of seeds."""
    labels, rows = toy_labels(tracks), []
    for name, weights, seeds in kinds:
        for seed in range(1, seeds + 1):
            model = make(f"{name}-{weights}", seed)
            rng = np.random.default_rng([seed, 8])
            scores = labels + rng.normal(size=labels.shape)
            np.save(model / "predictions.npy", scores.astype(np.float32))
            rows.append((3000, name, weights, seed, model))
    table = pd.DataFrame(
        rows, columns=["window", "predictor", "weights", "seed", "model"]
    )
    return table.assign(learning_rate=1e-3, seconds=9.0, best_step=4)


def test_medians_of_tracks(make_model: MakeModel, tmp_path: Path) -> None:
    tracks = [Track(f"t{n}", "TF" if n < 6 else "DHS") for n in range(8)]
    labels = toy_labels(8)
    PackedLabels.from_dense(labels).save(tmp_path / "labels.npz")
    models = track_models(make_model, 8, ("bigbird", "pretrained", 2), ("gc", "", 1))
    medians = chromatin_table(models, tmp_path / "labels.npz", tracks)
    rows = medians.set_index(["group", "predictor"])
    scores = [
        np.load(model / "predictions.npy").astype(float) for model in models["model"]
    ]
    areas = np.array(
        [[auroc(labels[:, t], one[:, t]).value for t in range(8)] for one in scores]
    )
    sampled = SampledMetrics.of_resamples(
        np.median(areas[:2, :6], axis=1), resampled_medians(areas[:2, :6]), 5
    )
    names = [f"median_auroc{end}" for end in ("", "_low", "_high")]
    whole = rows.loc[("TF", "bigbird")]
    expected = mean_over_seeds(sampled, (0.0, 1.0))
    assert whole[names].tolist() == pytest.approx([*expected])
    assert (whole["seeds"], whole["window"], whole["n_tracks"]) == (2, 3000, 6)
    assert whole["published_median"] == 0.961
    both = np.median(areas[:, :6], axis=1)
    lead = both[:2].mean() - both[2]
    assert rows.loc[("TF", "gc")]["difference"] == pytest.approx(lead)
    few = rows.loc[("DHS", "bigbird")]
    assert few["n_tracks"] == 2 and np.isnan(few["median_auroc_low"])


def test_tracks_with_few_positives_do_not_count(
    make_model: MakeModel, tmp_path: Path
) -> None:
    tracks = [Track(name, "TF") for name in "abc"]
    path = tmp_path / "labels.npz"
    PackedLabels.from_dense(toy_labels(3)).save(path)
    models = track_models(make_model, 3, ("gc", "", 1))
    least = int(np.sort(toy_labels(3).sum(axis=0))[1])
    medians = chromatin_table(models, path, tracks, least)
    assert medians["n_tracks"].tolist() == [2]
    with fails(DataError, "1,000"):
        chromatin_table(models, path, tracks, 1000)


# Learning rates


def test_the_learning_rate_of_a_table_has_the_lowest_loss_on_validation_data(
    make_model: MakeModel,
) -> None:
    """Of the lowest losses of the seeds the mean decides, not their last losses."""
    rows = []
    for name, best in (("bigbird", 1e-3), ("cnnprom", 1e-2)):
        for rate in (1e-3, 1e-2):
            for seed in (1, 7):
                lowest = (0.3 if rate == best else 0.4) + (0.2 if seed == 7 else 0)
                model = make_model(f"{name}-{rate}", seed)
                lines = [
                    {"step": 5, "loss": 1.0, "seconds": 2.5},
                    {"step": 15, "loss": 1.0, "seconds": 7.5},
                    {"step": 5, "evaluation": {"loss": 0.7}},
                    {"step": 10, "evaluation": {"loss": lowest}},
                    {"step": 15, "evaluation": {"loss": 9.0 - lowest}},
                ]
                text = "".join(f"{json.dumps(line)}\n" for line in lines)
                (model / "training.jsonl").write_text(text)
                rows.append((400, "genomic", name, "", rate, seed, model))
    rows.append((400, "genomic", "gc", "", np.nan, 1, make_model("gc")))
    columns = ["window", "negative_set", "predictor", "weights", "learning_rate"]
    models = pd.DataFrame(rows, columns=[*columns, "seed", "model"])
    chosen = choose_rates(models)
    assert chosen["predictor"].tolist() == ["bigbird"] * 2 + ["cnnprom"] * 2 + ["gc"]
    assert chosen["learning_rate"].tolist()[:4] == [1e-3] * 2 + [1e-2] * 2
    losses = chosen["validation_loss"].tolist()[:4]
    assert losses == pytest.approx([0.3, 0.5] * 2)
    assert (chosen[["seconds", "best_step"]][:4] == [7.5, 10]).all(axis=None)
