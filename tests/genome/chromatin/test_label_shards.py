"""Data sets labelled in shards, and test bins predicted in shards, merge to the bytes of the whole."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from bigbird_dna.config import EncoderConfig
from bigbird_dna.disk.directories import MARKER
from bigbird_dna.model.directory import save
from bigbird_dna.model.settings import ChromatinSettings, NamedTrack
from tests.cli.command import Run, refused
from tests.toys import MOTIFS, random_model, small_tokenizer, write_motif_genome

LENGTHS = {"a": 9_000, "b": 30, "c": 4_000, "d": 5_000}
DATA = {
    **{"bin": 40, "window": 200, "shift_bp": 3, "max_n": 0.3, "negative_fraction": 0.4},
    **{"min_positives_train": 5, "min_positives_heldout": 1, "valid_regions": ["a:6001-7000"]},
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A configuration, `reference.fa.gz`, peaks with their table, a blacklist and two models."""
    home = tmp_path_factory.mktemp("label-shards")
    write_motif_genome(home, LENGTHS, spacing=110, gaps={"a": (3500, 3900)})
    (home / "peaks/none.bed").write_text("")
    (home / "peaks/rare.bed").write_text("a\t100\t180\n")
    names = [*MOTIFS, "none", "rare"]
    rows = "".join(f"{name}\tTF\t{'x' * (name == 'one')}\tpeaks/{name}.bed\n" for name in names)
    (home / "tracks.tsv").write_text(f"track\tgroup\tlab\tfile\n{rows}")
    (home / "bad.bed").write_text("a\t1000\t1400\nd\t0\t50\n")
    values = {
        "results": str(home / "results"),
        "seed": 7,
        "genome": {"valid": ["c"], "test": ["d"]},
        "chromatin": {
            "data": {**DATA, "tracks": str(home / "tracks.tsv")},
            "evaluation": {"test_bins": 50, "baseline_kmer": 4, "middle": 0.6},
        },
    }
    (home / "config.yaml").write_text(yaml.safe_dump(values))
    tokenizer = small_tokenizer()
    config = EncoderConfig(
        vocabulary=tokenizer.vocabulary, layers=1, hidden=16, heads=2, max_length=160, block_size=8
    )
    tracks = tuple(NamedTrack(track=name, group="TF") for name in MOTIFS)
    settings = ChromatinSettings(window=200, bin=40, pooling="bin", bin_layers=0, members=1, tracks=tracks)
    for seed, name in enumerate(("first", "second")):
        save(home / name, random_model(tokenizer, config, settings, seed=seed, scale=4), {}, {}, {})
    return home


@pytest.fixture
def label(run: Run, home: Path) -> Any:
    def call(output: Path, *more: object) -> Any:
        words = ("--reference", home / "reference.fa.gz", "--blacklist", home / "bad.bed", "-o", output)
        return run("prepare chromatin", home / "config.yaml", *words, *more)

    return call


def files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.name != MARKER}


def test_labels_of_any_number_of_shards(run: Run, label: Any, tmp_path: Path) -> None:
    assert label(tmp_path / "whole").code == 0
    whole = files(tmp_path / "whole")
    assert len(whole) == 4 and b'"blacklist": ' in whole["dataset.json"]
    for of in (1, 2, 3, 7):
        shards = [tmp_path / f"{number}.shard" for number in range(1, of + 1)]
        for number, path in enumerate(shards, start=1):
            assert label(path, "--shard", f"{number}/{of}").code == 0
        result = run("merge-shards", *shards[::-1], "-o", tmp_path / "merged")
        assert result.code == 0, result.err
        assert files(tmp_path / "merged") == whole, of
        shutil.rmtree(tmp_path / "merged")
    assert label(tmp_path / "empty", "--shard", "1/600").code == 0  # of fewer bins


def test_predictions_of_test_bins(run: Run, label: Any, home: Path, tmp_path: Path) -> None:
    assert label(tmp_path / "data").code == 0
    models = home / "first", home / "second"
    inputs = ("--data", tmp_path / "data", "--reference", home / "reference.fa.gz")
    words = ("evaluate test-bins", home / "config.yaml", *models, *inputs, "-o")
    assert run(*words, tmp_path / "whole.npy").code == 0
    for of in (2, 7):
        shards = [tmp_path / f"{number}.shard" for number in range(1, of + 1)]
        for number, path in enumerate(shards, start=1):
            assert run(*words, path, "--shard", f"{number}/{of}", "--batch-size", number).code == 0
        assert run("merge-shards", *shards, "-o", tmp_path / "merged.npy").code == 0
        assert (tmp_path / "merged.npy").read_bytes() == (tmp_path / "whole.npy").read_bytes(), of
    assert run(*words, tmp_path / "empty", "--shard", "1/60").code == 0  # of fewer bins
    refused(run("merge-shards", *shards), 2, "predicted bins can't go to standard output")
    result = run(*words, shards[0], "--shard", "1/7", "--labels", tmp_path / "x")
    refused(result, 2, "the labels of all bins go")
    assert run(*words, shards[1], "--shard", "2/7", "--set", "chromatin.evaluation.seed=3").code == 0
    result = run("merge-shards", *shards, "-o", tmp_path / "merged.npy")
    refused(result, 1, "2.shard: is not of the same job", "it differs in evaluation (seed)")
    assert run(*words, shards[1], "--shard", "2/7", "--precision", "bfloat16").code == 0
    result = run("merge-shards", *shards, "-o", tmp_path / "merged.npy")
    refused(result, 1, "2.shard: is not of the same job", "it differs in evaluation (precision)")
    refused(run(*words, tmp_path / "x.npy", "--precision", "float16"), 2, "precision float16: for GPUs")
    assert not (tmp_path / "x.npy").exists()


def test_shards_of_other_labels_are_refused(run: Run, label: Any, home: Path, tmp_path: Path) -> None:
    assert label(tmp_path / "1", "--shard", "1/2").code == 0
    shards = tmp_path / "1", tmp_path / "2"

    def told(*more: object) -> str:
        result = label(tmp_path / "2", "--shard", "2/2", *more)
        assert result.code == 0, result.err
        return refused(run("merge-shards", *shards, "-o", tmp_path / "out"), 1, "2: is not of the same job")

    assert "it differs in labelling (seed)" in told("--set", "seed=8")
    assert "it differs in regions (test)" in told("--set", "genome.test=[d, b]")
    peaks = home / "peaks/one.bed"
    before = peaks.read_text()
    peaks.write_text(before + "d\t4900\t4980\n")
    assert "it differs in sources (tracks)" in told()
    peaks.write_text(before)
    assert not (tmp_path / "out").exists()
    refused(label(tmp_path / "2", "--shard", "3/2"), 2, "piece '3/2'")
    words = ("prepare chromatin", home / "config.yaml", "--shard", "1/2")
    refused(run(*words), 2, "--shard: name a file for it with -o")
    result = run(
        *words, "--set", "chromatin.data=null", "--deepsea-bundle", home / "none", "-o", tmp_path / "2"
    )
    assert result.code == 2


def test_published_labels_are_not_made_in_shards(run: Run, home: Path, tmp_path: Path) -> None:
    (tmp_path / "deepsea.yaml").write_text(
        yaml.safe_dump({"genome": {"assembly": "GRCh37"}, "chromatin": {"data": {"tracks": "deepsea"}}})
    )
    words = ("prepare chromatin", tmp_path / "deepsea.yaml", "--reference", home / "reference.fa.gz")
    result = run(*words, "--shard", "1/2", "-o", tmp_path / "1")
    refused(result, 2, "piece 1/2: DeepSEA's labels are taken as published")
    result = run(*words, "--set", "chromatin.shards.data=2", "-o", tmp_path / "1")
    refused(result, 2, "shards.data must be 1")
