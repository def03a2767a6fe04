"""The promoter baselines by their command: predictions, reports and refusals."""

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest

from bigbird_dna.baselines.kmers import KmerLogistic
from bigbird_dna.baselines.position import PositionLogistic
from bigbird_dna.config import load_config
from bigbird_dna.data.predictions import COLUMNS
from bigbird_dna.data.promoter_windows import read_windows, window_sequences
from bigbird_dna.errors import DataError
from bigbird_dna.genome.reference import Reference
from bigbird_dna.papers.comparators.fitting import ComparatorOptions, PromoterData, fit_comparator
from tests.cli.command import Run, refused
from tests.golden.messages import fails, message


@pytest.mark.parametrize("baseline", ["k-mer", "position"])
def test_predictions_are_those_of_the_regression(
    run: Run, tiny_config: Path, tmp_path: Path, baseline: str
) -> None:
    words = ["train baseline-promoter", tiny_config, "--negative-set", "genomic"]
    assert run(*words, "--baseline", baseline, "-o", tmp_path / "p.parquet").code == 0
    found = pd.read_parquet(tmp_path / "p.parquet")
    assert set(COLUMNS) <= set(found.columns) and set(found["split"]) == {"valid", "test"}
    config = load_config(tiny_config)
    data = read_windows(config.paths.windows, "genomic")
    sequences = window_sequences(Reference(config.paths.reference), data.rows, config.seed)
    chosen = config.promoters.evaluation
    model = (
        PositionLogistic(chosen.seed)
        if baseline == "position"
        else KmerLogistic(chosen.baseline_kmer, chosen.seed)
    )
    train = (data.rows["split"] == "train").to_numpy()
    parts = {
        part: [sequence for sequence, own in zip(sequences, train, strict=True) if own == part]
        for part in (True, False)
    }
    expected = model.fit(parts[True], data.labels[train]).predict(parts[False])
    assert found["probability"].to_numpy().tobytes() == expected.tobytes()


def test_k_mers_are_the_default(run: Run, tiny_config: Path, tmp_path: Path) -> None:
    words = ["train baseline-promoter", tiny_config, "--negative-set", "genomic"]
    assert run(*words, "-o", tmp_path / "a.parquet").code == 0
    assert run(*words, "--baseline", "k-mer", "-o", tmp_path / "b.parquet").code == 0
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()


def test_another_baseline_is_refused(run: Run, tiny_config: Path) -> None:
    words = ["train baseline-promoter", tiny_config, "--negative-set", "genomic", "--baseline", "gc"]
    refused(run(*words), 2, "baseline 'gc': choose one of k-mer, position")


def test_sequences_that_are_not_aligned_are_refused(run: Run, tiny_config: Path, tmp_path: Path) -> None:
    """Of such a data set `windows.json` says so; k-mers are counted all the same."""
    windows, config = tmp_path / "windows", load_config(tiny_config)
    shutil.copytree(config.paths.windows, windows)
    described = json.loads((windows / "windows.json").read_text())
    described |= {"window": {"upstream": 60, "downstream": 40}, "aligned": False}
    (windows / "windows.json").write_text(json.dumps(described))
    words = ("train baseline-promoter", tiny_config, "--negative-set", "genomic", "--windows", windows)
    message(refused(run(*words, "--baseline", "position", "-o", tmp_path / "out"), 1), "'position'")
    data = PromoterData(config, "position", "genomic", windows, Reference(config.paths.reference))
    with fails(DataError, "'position'"):
        fit_comparator(data, tmp_path / "out", tmp_path / "checkpoints", ComparatorOptions())
    assert not (tmp_path / "out").exists()
    assert run(*words, "-o", tmp_path / "out").code == 0
