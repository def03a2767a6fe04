"""Fine-tuning on a share of the examples: which are kept, and for whom they are the same."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigbird_dna.config import ChromatinTrainingConfig, load_config
from bigbird_dna.data.chromatin import draw_groups, training_bins
from bigbird_dna.data.promoter_windows import WindowSet, read_windows, training_windows
from bigbird_dna.errors import ConfigError
from bigbird_dna.genome.chromatin.dataset import ChromatinData, make_bins
from bigbird_dna.genome.chromatin.labels import PackedLabels
from bigbird_dna.genome.chromatin.tracks import Track
from bigbird_dna.papers.experiments.comparing import ArmModel, StudyRow
from bigbird_dna.papers.experiments.pretraining_study import study_report
from tests.cli.command import Run, refused
from tests.golden.messages import fails, message


@given(
    st.lists(st.integers(0, 30), min_size=1, max_size=60), st.floats(1e-4, 1), st.floats(0, 1), st.integers(0)
)
def test_groups_stay_whole_and_shares_are_nested(
    groups: list[int], share: float, part: float, seed: int
) -> None:
    codes = np.array(groups)
    kept = draw_groups(codes, share, (seed,))
    names = set(groups)
    inside = {name for name in names if kept[codes == name].any()}
    assert len(inside) == min(max(round(share * len(names)), 1), len(names))
    assert all(kept[codes == name].all() for name in inside)
    fewer = draw_groups(codes, max(share * part, 1e-9), (seed,))
    assert not (fewer & ~kept).any()


@pytest.mark.parametrize("negative_set", ["genomic", "permuted"])
def test_a_promoter_is_kept_with_all_its_negatives(tiny_config: Path, negative_set: str) -> None:
    data = read_windows(load_config(tiny_config).paths.windows, negative_set)
    train = data.rows["split"] == "train"
    whole = training_windows(data, 1.0, 1)
    np.testing.assert_array_equal(whole, np.flatnonzero(train))
    rows = training_windows(data, 0.2, 1)
    kept = data.rows.iloc[rows]
    assert set(kept["split"]) == {"train"}
    pairs = set(kept["pair"])
    assert len(pairs) == round(0.2 * data.rows.loc[train, "pair"].nunique()) == data.labels[rows].sum()
    pd.testing.assert_frame_equal(kept, data.rows[train & data.rows["pair"].isin(pairs)])
    assert kept["negative_set"].value_counts()[negative_set] > len(pairs)
    np.testing.assert_array_equal(rows, training_windows(data, 0.2, 1))
    assert not np.array_equal(rows, training_windows(data, 0.2, 2))
    assert set(rows) < set(training_windows(data, 0.6, 1))


def test_negatives_that_are_nobody_s_pair_are_drawn_by_the_same_share() -> None:
    rows = pd.DataFrame({"pair": np.arange(140), "split": "train"})
    data = WindowSet(rows, (np.arange(140) < 40).astype(np.uint8))
    kept = training_windows(data, 0.25, 3)
    assert data.labels[kept].sum() == 10 and len(kept) == 35


def test_too_few_promoters_are_refused_at_once(tiny_config: Path, tmp_path: Path, run: Run) -> None:
    words = ("finetune-promoter", tiny_config, "--negative-set", "genomic", "-o", tmp_path / "model")
    words += ("--set", "promoters.model.initial=random", "--checkpoint-dir", tmp_path / "checkpoints")
    result = run(*words, "--set", "promoters.training.train_fraction=0.02")
    message(refused(result, 2), "promoters.training.train_fraction", "0.02", "98")
    assert not list(tmp_path.iterdir())
    message(
        refused(run(*words, "--set", "promoters.training.train_fraction=0"), 2),
        "promoters.training.train_fraction",
    )


def bins(positives: int = 400) -> ChromatinData:
    """Two contigs of 600 training bins each and 20 for validation, of one track."""
    owners = np.repeat([0, 1], 610)
    starts = np.tile(200 * np.arange(610), 2)
    splits = np.where(starts < 200 * 600, 0, 1)
    table = make_bins(["a", "b"], owners, starts, splits, 200)
    labels = np.zeros((1220, 1), np.uint8)
    labels[np.random.default_rng(0).permutation(1220)[:positives]] = 1
    return ChromatinData(table, PackedLabels.from_dense(labels), (Track("x", "TF"),), {"bin_size": 200})


def settings(share: float, neighbours: int = 1, seed: int = 1) -> ChromatinTrainingConfig:
    return ChromatinTrainingConfig(train_fraction=share, bins_per_window=neighbours, seed=seed)


def test_bins_are_kept_in_stretches_as_long_as_a_window_is_learnt_from() -> None:
    data = bins()
    np.testing.assert_array_equal(training_bins(data, settings(1.0)), data.rows("train"))
    single = training_bins(data, settings(0.2))
    assert len(single) == 240 and set(single) < set(data.rows("train"))
    assert set(single) < set(training_bins(data, settings(0.5)))
    stretches = training_bins(data, settings(0.2, neighbours=15))
    assert len(stretches) == 240
    numbers = np.array(stretches)
    begins = numbers[np.r_[True, np.diff(numbers) != 1]]
    assert len(begins) <= 16 and all((begin % 610) % 15 == 0 for begin in begins)
    assert not np.array_equal(stretches, training_bins(data, settings(0.2, 15, seed=2)))


def test_too_few_bins_are_refused() -> None:
    with fails(ConfigError):
        training_bins(bins(positives=40), settings(0.01))


def test_tracks_that_have_become_poor_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    data = bins()
    labels = np.zeros((1220, 2), np.uint8)
    labels[:, :1] = data.labels.rows()
    labels[:6, 1] = 1
    two = ChromatinData(data.bins, PackedLabels.from_dense(labels), data.tracks * 2, data.info)
    training_bins(two, settings(0.1))
    message(capsys.readouterr().err.partition("  ")[2], "1 of 2 tracks", "120")


@pytest.fixture(scope="module")
def study(tiny_config: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study in miniature by the commands: a pretrained model, and one model of each start."""
    from tests.cli.command import invoke

    home = tmp_path_factory.mktemp("study")
    steps = ("--set", "pretraining.steps=4", "--checkpoint-dir", home / "checkpoints")
    invoke("pretrain", tiny_config, *steps, "-o", home / "start")
    for start in ("pretrained", "random"):
        values = {
            "model.initial": start,
            "training.train_fraction": 0.3,
            "training.seed": 5,
            "training.steps": 4,
        }
        invoke(
            *("finetune-promoter", tiny_config, "--negative-set", "genomic", "-o", home / start / "model"),
            *("--pretrained", home / "start", "--checkpoint-dir", home / "checkpoints"),
            *(word for key, value in values.items() for word in ("--set", f"promoters.{key}={value}")),
        )
    return home


def test_a_study_of_trained_models(study: Path, tmp_path: Path) -> None:
    paths = {start: study / start / "model" for start in ("pretrained", "random")}
    models = [
        ArmModel(StudyRow("promoters", 0.3, start), 5, path, path / "predictions.parquet")
        for start, path in paths.items()
    ]
    study_report(models, tmp_path, pretrained=study / "start")
    table = pd.read_csv(tmp_path / "study.tsv", sep="\t")
    assert table["start"].tolist() == ["pretrained", "random"] and table["steps"].tolist() == [4, 4]
    assert table["examples"].tolist() == [29, 29] and table["share"].tolist() == [0.3, 0.3]
    assert table["minutes"].gt(0).all() and table["pretraining_minutes"].iloc[0] > 0
    metrics = json.loads((paths["pretrained"] / "metrics.json").read_text())
    assert table["auroc"].iloc[0] == pytest.approx(metrics["test"]["auroc"], abs=1e-5)
    assert "Pretraining took less than a minute" in (tmp_path / "study.txt").read_text()
