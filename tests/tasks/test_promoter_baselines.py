"""The promoter baselines by their command: predictions, reports and refusals."""

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest

from bigbird_dna.baselines.kmers import KmerLogistic, PositionLogistic
from bigbird_dna.config import load_config
from bigbird_dna.data.predictions import COLUMNS
from bigbird_dna.data.promoter_windows import read_windows, window_sequences
from bigbird_dna.genome.reference import Reference
from tests.cli.command import Run, refused


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


@pytest.mark.parametrize("command", ["baseline", "comparator"])
def test_sequences_that_are_not_aligned_are_refused(
    run: Run, tiny_config: Path, tmp_path: Path, command: str
) -> None:
    """Of such a data set `windows.json` says so; k-mers are counted all the same."""
    windows = tmp_path / "windows"
    shutil.copytree(load_config(tiny_config).paths.windows, windows)
    described = json.loads((windows / "windows.json").read_text())
    described |= {"window": {"upstream": 60, "downstream": 40}, "aligned": False}
    (windows / "windows.json").write_text(json.dumps(described))
    common = ["--negative-set", "genomic", "--windows", windows, "-o", tmp_path / "out"]
    words = {
        "baseline": ["train baseline-promoter", tiny_config, "--baseline", "position"],
        "comparator": ["train comparator-promoter", tiny_config, "position"],
    }[command]
    told = "the baseline 'position' needs sequences that are aligned at the transcription start site"
    refused(run(*words, *common), 1, told)
    assert not (tmp_path / "out").exists()
    if command == "baseline":
        assert run("train baseline-promoter", tiny_config, *common).code == 0


def test_bins_have_no_position(run: Run, tiny_config: Path, tmp_path: Path) -> None:
    words = ["train comparator-chromatin", tiny_config, "position", "-o", tmp_path / "out"]
    refused(run(*words), 2, "position: is for promoters alone")
