"""Reports of models of labeled sequences: metrics are those of scikit-learn, and the conclusion."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import pearsonr, spearmanr
from sklearn import metrics as reference

from bigbird_dna.metrics import labels
from bigbird_dna.metrics.auroc import auroc_difference
from bigbird_dna.metrics.labels import (
    CLASS_METRICS,
    MACRO,
    binary_metrics,
    label_metrics,
    weighted_areas,
    weighted_correlations,
)
from bigbird_dna.metrics.resampling import draw_counts
from bigbird_dna.reporting.sequences import sequence_report

ODD = ["a/b", 'c "d"', "<b>e</b>", "$f_$"]
OUTPUTS = {
    "binary": ["label"],
    "multiclass": ODD,
    "multilabel": ODD,
    "regression": ODD[:2],
}
NOISE = {
    "model": 0.5,
    "network": 0.6,
    "k-mer": 1.5,
    "position": 2.0,
    "composition": 4.0,
    "cnn": 1.0,
}
SEEDS = st.integers(0, 10_000)


@contextmanager
def few_resamples() -> Iterator[None]:
    """Intervals of fewer draws, in a tenth of the time."""

    def drawn(rng: Any, count: int, resamples: int, space: int) -> Any:
        return draw_counts(rng, count, min(resamples, 100), space)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(labels, "draw_counts", drawn)
        yield


def simulated(
    kind: str, outputs: list[str], rows: int = 240, seed: int = 1, **noise: float
) -> pd.DataFrame:
    """Predictions with this noise; those of a control have no relation to the labels."""
    rng = np.random.default_rng(seed)
    groups = rng.integers(0, rows // 3, rows)
    hidden = (
        rng.normal(size=(rows, len(outputs)))
        + rng.normal(size=(rows, len(outputs)))[groups]
    )
    values = {"label": hidden}
    for name, size in (noise or NOISE).items():
        values[name] = (
            size * rng.normal(size=hidden.shape) + ("control" not in name) * hidden
        )
    for name, own in values.items():
        if kind == "multiclass":
            odds = np.exp(own)
            own = (
                np.eye(len(outputs))[own.argmax(1)]
                if name == "label"
                else odds / odds.sum(1)[:, None]
            )
        elif kind != "regression":
            own = own > 0.5 if name == "label" else 1 / (1 + np.exp(0.5 - own))
        values[name] = own.astype(np.float32)
    splits = np.where(np.arange(rows) % 5, "test", "valid")
    names = [f"s{row}" for row in range(rows)]
    table = pd.DataFrame({"name": names, "split": splits, "group": groups})
    cells = {
        f"{name}/{o}": own[:, t]
        for name, own in values.items()
        for t, o in enumerate(outputs)
    }
    return pd.concat([table, pd.DataFrame(cells)], axis=1)


def reported(frame: pd.DataFrame, kind: str, home: Path) -> tuple[pd.DataFrame, str]:
    frame.to_parquet(home / "predictions.parquet")
    with few_resamples():
        table = sequence_report(home / "predictions.parquet", kind, home)
    return table, (home / "report.md").read_text()


def columns(frame: pd.DataFrame, name: str) -> np.ndarray:
    """Values of a predictor, or the labels, of the test rows."""
    chosen = [column for column in frame if column.startswith(f"{name}/")]
    return frame.loc[frame["split"] == "test", chosen].to_numpy(float)


def interval_widths(table: pd.DataFrame) -> dict[str, pd.Series]:
    ends = [column for column in table if column.endswith("_low")]
    return {
        end.removesuffix("_low"): table[end.replace("_low", "_high")] - table[end]
        for end in ends
    }


@given(SEEDS, st.booleans())
@settings(deadline=None, max_examples=25)
def test_metrics_of_classes_are_those_of_scikit_learn(seed: int, tied: bool) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(4, 40))
    y, p = rng.random(n) < 0.4, rng.integers(0, 4, n) / 4 if tied else rng.random(n)
    y[:2] = 0, 1
    weights = rng.integers(0, 4, (3, n)).astype(float)
    weights[:, :2] += 1
    found = weighted_areas(y, p, weights)
    for column, w in zip(found.T, weights, strict=True):
        assert column == pytest.approx(
            [
                reference.roc_auc_score(y, p, sample_weight=w),
                reference.average_precision_score(y, p, sample_weight=w),
            ]
        )
    assert np.isnan(weighted_areas(np.ones(n), p, weights)).all()


@given(SEEDS, st.booleans())
@settings(deadline=None, max_examples=25)
def test_metrics_of_numbers_are_those_of_repeated_rows(seed: int, tied: bool) -> None:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 5, 30).astype(float) if tied else rng.normal(size=30)
    p = np.round(y + rng.normal(size=30), 0 if tied else 9)
    weights = rng.integers(0, 4, (3, 30)).astype(float)
    found = weighted_correlations(y + 100, p + 100, weights)
    for column, w in zip(found.T, weights, strict=True):
        rows = [np.repeat(values, w.astype(int)) for values in (y, p)]
        expected = pearsonr(*rows).statistic, spearmanr(*rows).statistic
        assert column == pytest.approx(expected)
    one = np.eye(30)[:2] * 3  # a single row, which is drawn three times
    assert np.isnan(weighted_correlations(y, p, one)).all()
    assert np.isnan(weighted_correlations(y, np.full(30, 0.1), weights)).all()
    assert np.isnan(weighted_correlations(np.full(30, 0.1), p, weights)).all()


def test_of_one_output_metrics_and_intervals_are_those_of_promoters() -> None:
    frame = simulated("binary", ["x"])
    y = columns(frame, "label")
    groups = frame.loc[frame["split"] == "test", "group"].to_numpy()
    scores = {name: columns(frame, name) for name in ("model", "k-mer")}
    found = label_metrics(y, scores, groups, ["x"], "binary").set_index("model")
    ids = np.unique(groups, return_inverse=True)[1]
    for name, values in scores.items():
        expected = binary_metrics(y[:, 0], values[:, 0], blocks=groups)._asdict()
        for metric in expected.keys() - {"note"}:
            assert found.loc[name, metric] == pytest.approx(expected[metric])
    lead = auroc_difference(y[:, 0], *(own[:, 0] for own in scores.values()), ids)
    names = [f"auroc_difference{end}" for end in ("", "_low", "_high")]
    assert found.loc["k-mer", names].tolist() == pytest.approx(lead.estimate)


@pytest.mark.parametrize("kind", ["multilabel", "regression"])
def test_repeated_rows_change_neither_metrics_nor_intervals(kind: str) -> None:
    frame = simulated("multilabel", ["x", "y"], rows=100)
    groups = frame.loc[frame["split"] == "test", "group"].to_numpy()
    values = [columns(frame, name) for name in ("label", "model", "k-mer")]
    with few_resamples():
        once, twice = (
            label_metrics(y, {"model": p, "k-mer": k}, g, ["x", "y"], kind)
            for y, p, k, g in (
                (*values, groups),
                (*(np.tile(one, (2, 1)) for one in values), np.tile(groups, 2)),
            )
        )
    dropped = ["n", "positives"]
    pd.testing.assert_frame_equal(
        once.drop(columns=dropped, errors="ignore"),
        twice.drop(columns=dropped, errors="ignore"),
    )


@pytest.mark.parametrize("kind", OUTPUTS)
def test_files_of_each_kind(kind: str, tmp_path: Path) -> None:
    frame = simulated(kind, OUTPUTS[kind], **NOISE, control=1.0)
    table, text = reported(frame, kind, tmp_path)
    files = {path.name for path in tmp_path.iterdir()}
    tables = {"predictions.parquet", "metrics.tsv"} | (
        {"confusion.tsv"} if kind == "multiclass" else set()
    )
    figures = set() if kind == "multilabel" else {"figure.svg"}
    assert files == {*tables, "report.md", *figures}
    read = pd.read_csv(tmp_path / "metrics.tsv", sep="\t").drop(columns="note")
    expected = table.drop(columns="note").astype(read.dtypes.to_dict())
    pd.testing.assert_frame_equal(
        read, expected, check_exact=False, rtol=1e-4, atol=1e-5
    )
    several = len(OUTPUTS[kind]) > 1
    assert table["output"].unique().tolist() == [MACRO] * several + OUTPUTS[kind]
    assert [*table["model"][: len(NOISE) + 1]] == [*NOISE, "control"]
    assert table["n"].eq(len(columns(frame, "label"))).all() and not table["note"].any()
    for name, width in interval_widths(table).items():
        assert (width[table[name].notna()] > 0).all()
    assert all(name in text for name in NOISE)


def test_means_over_outputs_are_those_of_scikit_learn(tmp_path: Path) -> None:
    for kind in ("multiclass", "multilabel"):
        frame = simulated(kind, ODD, **{"model": 0.7, "k-mer": 1.5})
        row, other = (
            one for _, one in reported(frame, kind, tmp_path)[0][:2].iterrows()
        )
        assert other["auroc_difference"] == pytest.approx(row["auroc"] - other["auroc"])
        y, p = columns(frame, "label"), columns(frame, "model")
        called = np.eye(4)[p.argmax(1)] if kind == "multiclass" else p >= 0.5
        assert row["auroc"] == pytest.approx(
            reference.roc_auc_score(y, p, average="macro")
        )
        assert row["auprc"] == pytest.approx(
            reference.average_precision_score(y, p, average="macro")
        )
        assert row["f1"] == pytest.approx(
            reference.f1_score(y, called, average="macro")
        )
        if kind == "multiclass":
            classes = y.argmax(1), p.argmax(1)
            assert row["mcc"] == pytest.approx(reference.matthews_corrcoef(*classes))
            assert row["balanced_accuracy"] == pytest.approx(
                reference.balanced_accuracy_score(*classes)
            )
            counts = pd.read_csv(tmp_path / "confusion.tsv", sep="\t", index_col=0)
            assert (counts.to_numpy() == reference.confusion_matrix(*classes)).all()
            assert [*counts.index] == [*counts.columns] == ODD


def test_undefined_outputs_have_a_note_and_do_not_count(tmp_path: Path) -> None:
    frame = simulated("multilabel", ["x", "y", "z"], **NOISE).assign(
        **{"label/y": np.float32(0)}
    )
    table, _ = reported(frame, "multilabel", tmp_path)
    metrics = [*CLASS_METRICS, "auroc_difference"]
    lost = table[table["output"] == "y"]
    assert lost[metrics].isna().all(axis=None) and lost["note"].all()
    assert (lost["positives"] == 0).all()
    models = table[table["model"] == "model"].set_index("output")
    assert models.loc[MACRO, "auroc"] == pytest.approx(
        models.loc[["x", "z"], "auroc"].mean()
    )
    assert models.loc[MACRO, "note"] and not models.loc[["x", "z"], "note"].any()

    frame = simulated("regression", ["x"]).assign(**{"k-mer/x": np.float32(0.3)})
    flat = reported(frame, "regression", tmp_path)[0].set_index("model").loc["k-mer"]
    assert (
        np.isnan(flat["pearson"])
        and np.isnan(flat["pearson_difference"])
        and flat["note"]
    )
    assert flat["r2"] <= 0
    frame = simulated("regression", ["x"]).assign(
        **{"label/x": np.float32(0.3)}, group=0
    )
    table, _ = reported(frame, "regression", tmp_path)
    assert (
        table[["pearson", "spearman", "r2"]].isna().all(axis=None)
        and table["note"].all()
    )
    for kind in ("binary", "regression"):
        frame = simulated(kind, ["x"]).assign(group=5)
        table, _ = reported(frame, kind, tmp_path)
        assert table.filter(regex="_low|_high").isna().all(axis=None)


def test_of_many_outputs_only_auroc_has_intervals_for_each(tmp_path: Path) -> None:
    names = [f"t{t}" for t in range(21)]
    table, _ = reported(
        simulated("multilabel", names, model=0.5, cnn=1.0), "multilabel", tmp_path
    )
    widths = pd.DataFrame(interval_widths(table)).assign(model=table["model"])
    assert widths[:2][["auroc", "auprc"]].gt(0).all(axis=None)
    assert widths[2:]["auroc"].gt(0).all() and widths[2:]["auprc"].isna().all()
    assert widths[2:].loc[widths["model"] == "cnn", "auroc_difference"].gt(0).all()
    table, _ = reported(
        simulated("regression", names, model=0.5, cnn=1.0), "regression", tmp_path
    )
    widths = pd.DataFrame(interval_widths(table))
    assert widths["pearson"][:2].gt(0).all() and widths[2:].isna().all(axis=None)


@pytest.mark.parametrize("kind", ["binary", "regression"])
@pytest.mark.parametrize(
    ("noise", "word"),
    [
        ({"model": 0.1, "k-mer": 3.0, "position": 4.0}, "better"),
        ({"model": 3.0, "k-mer": 0.1, "position": 4.0}, "worse"),
        ({"model": 1.0, "k-mer": 1.0, "position": 4.0}, "measurably"),
    ],
)
def test_the_conclusion_is_about_the_strongest_baseline(
    kind: str, noise: dict[str, float], word: str, tmp_path: Path
) -> None:
    table, text = reported(simulated(kind, ["x"], **noise, control=1.0), kind, tmp_path)
    row, metric = (
        table.set_index("model").loc["k-mer"],
        "pearson" if kind == "regression" else "auroc",
    )
    assert word in text and f"{row[metric]:.3f}" in text and "Warning" not in text
    assert f"{row[f'{metric}_difference']:.3f}" in text


def test_a_control_that_predicts_labels_is_a_warning(tmp_path: Path) -> None:
    kind = "regression"
    leaked = simulated(kind, ["x"], model=0.1)
    leaked = leaked.assign(**{"control/x": leaked["model/x"]})
    assert "Warning" in reported(leaked, kind, tmp_path)[1]
