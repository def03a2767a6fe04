"""The comparators' commands: what they write, what reports make of it, and what they refuse."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from bigbird_dna.config import EncoderConfig
from bigbird_dna.genome.chromatin.labels import PackedLabels
from bigbird_dna.genome.reference import Reference
from bigbird_dna.metrics.auroc import auroc
from bigbird_dna.model.directory import save
from bigbird_dna.model.settings import PretrainingSettings
from bigbird_dna.papers.comparators.registry import NAMES
from tests.cli.command import Run, invoke, refused
from tests.toys import MOTIFS, random_model, small_tokenizer, write_motif_genome

QUICK = ("--steps", 4, "--training-batch-size", 8, "--device", "cpu")


@pytest.fixture(scope="module")
def chromatin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Configuration, reference and data set of two motifs; don't write there."""
    home = tmp_path_factory.mktemp("comparators")
    write_motif_genome(home, {"a": 10_000, "b": 4000, "c": 5000}, spacing=110, both_strands=True)
    rows = "".join(f"{name}\tTF\tpeaks/{name}.bed\n" for name in MOTIFS)
    (home / "tracks.tsv").write_text(f"track\tgroup\tfile\n{rows}")
    data = {
        **{"tracks": str(home / "tracks.tsv"), "bin": 40, "window": 200, "compare_window": None},
        **{"shift": 3, "min_positives_train": 5, "min_positives_heldout": 1, "negative_fraction": 1.0},
    }
    values = {
        "results": str(home / "results"),
        "genome": {"valid": ["b"], "test": ["c"]},
        "chromatin": {"data": data, "evaluation": {"test_bins": 60, "baseline_kmer": 4}},
    }
    (home / "config.yaml").write_text(yaml.safe_dump(values))
    reference = home / "reference.fa.gz"
    invoke("prepare chromatin", home / "config.yaml", "--reference", reference, "-o", home / "data")
    lines = []
    for motif in (MOTIFS["one"],):
        lines.append(">MA1 One\n")
        lines += [
            f"{base} [ {' '.join(str(9 * (base == letter)) for letter in motif)} ]\n" for base in "ACGT"
        ]
    (home / "motifs.txt").write_text("".join(lines))
    return home


def of_bins(home: Path, name: str, *further: object) -> list[object]:
    """The command for chromatin, but for what it writes."""
    words: list[object] = ["train comparator-chromatin", home / "config.yaml", name, "--data", home / "data"]
    return [*words, "--reference", home / "reference.fa.gz", *further]


def of_windows(config: Path, name: str, *further: object) -> list[object]:
    """The command for promoters, but for what it writes."""
    return ["train comparator-promoter", config, name, "--negative-set", "substituted", *further]


# Promoters


def test_kmers_of_promoters_are_those_of_the_baseline(run: Run, tiny_config: Path, tmp_path: Path) -> None:
    words = ("train baseline-promoter", tiny_config, "--negative-set", "substituted")
    assert run(*words, "-o", tmp_path / "old.parquet").code == 0
    assert run(*of_windows(tiny_config, "k-mers"), "-o", tmp_path / "new").code == 0
    assert (tmp_path / "new/predictions.parquet").read_bytes() == (tmp_path / "old.parquet").read_bytes()
    told = json.loads((tmp_path / "new/comparator.json").read_text())
    assert (told["comparator"], told["negative_set"], told["chosen"]["k"]) == ("k-mers", "substituted", 5)
    assert set(told["metrics"]) == {"valid", "test"} and told["metrics"]["test"]["auroc"] > 0.5


def test_positions_of_promoters_are_those_of_the_baseline(
    run: Run, tiny_config: Path, tmp_path: Path
) -> None:
    words = (
        "train baseline-promoter",
        tiny_config,
        "--negative-set",
        "substituted",
        "--baseline",
        "position",
    )
    assert run(*words, "-o", tmp_path / "baseline.parquet").code == 0
    assert run(*of_windows(tiny_config, "position"), "-o", tmp_path / "new").code == 0
    predicted = (tmp_path / "new/predictions.parquet").read_bytes()
    assert predicted == (tmp_path / "baseline.parquet").read_bytes()
    told = json.loads((tmp_path / "new/comparator.json").read_text())
    assert told["comparator"] == "position" and set(told["chosen"]) == {"inverse_penalty"}


def test_a_network_of_promoters_and_its_report(run: Run, tiny_config: Path, tmp_path: Path) -> None:
    words = of_windows(tiny_config, "cnnprom", *QUICK, "--checkpoint-dir", tmp_path / "checkpoints")
    for name in ("one", "two"):
        assert run(*words, "-o", tmp_path / name).code == 0
    files = ("predictions.parquet", "comparator.json")
    less = [*words, "--set", "promoters.training.train_fraction=0.5"]
    assert run(*less, "-o", tmp_path / "half").code == 0
    all_of_them, half = (
        json.loads((tmp_path / name / "comparator.json").read_text())["training_windows"]
        for name in ("one", "half")
    )
    assert half == all_of_them // 2
    assert all(
        (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes() for file in files
    )
    assert (tmp_path / "one/training.jsonl").is_file()
    assert not list((tmp_path / "checkpoints").rglob("*.pt"))
    told = json.loads((tmp_path / "one/comparator.json").read_text())
    assert (
        told["settings"]["steps"] == 4
        and told["settings"]["balanced"]
        and not told["settings"]["both_strands"]
    )
    given = f"substituted={tmp_path / 'one/predictions.parquet'}"
    assert run("evaluate promoters", "--predictions", given, "-o", tmp_path / "report").code == 0
    table = pd.read_csv(tmp_path / "report/promoters.tsv", sep="\t")
    assert table["auroc"].tolist() == pytest.approx([told["metrics"]["test"]["auroc"]])


@pytest.mark.parametrize("name", ["gc", "nearest", pytest.param("gkm-svm", marks=pytest.mark.slow)])
def test_others_of_promoters(run: Run, tiny_config: Path, tmp_path: Path, name: str) -> None:
    assert run(*of_windows(tiny_config, name), "-o", tmp_path / "out").code == 0
    found = pd.read_parquet(tmp_path / "out/predictions.parquet")
    assert set(found["split"]) == {"valid", "test"} and found["probability"].between(0, 1).all()


def test_a_probe_reads_a_model_that_stays_as_it_is(run: Run, tiny_config: Path, tmp_path: Path) -> None:
    tokenizer, pretrained = small_tokenizer(), tmp_path / "model"
    config = EncoderConfig(
        vocabulary=tokenizer.vocabulary, layers=2, hidden=16, heads=2, positions=128, block_size=8
    )
    save(pretrained, random_model(tokenizer, config, PretrainingSettings(), seed=3), {}, {}, {})
    words = of_windows(tiny_config, "probe", "--model", pretrained, "--device", "cpu")
    for weights in ("pretrained", "random"):
        assert run(*words, "--weights", weights, "--seed", 2, "-o", tmp_path / weights).code == 0
        told = json.loads((tmp_path / weights / "comparator.json").read_text())
        assert (told["comparator"], told["chosen"]["weights"]) == ("probe", weights)
        assert told["settings"] == {"seed": 2} and told["metrics"]["test"]["auroc"] > 0.5
    assert run("report paper-table", "table6", tmp_path / "pretrained", "-o", tmp_path / "report").code == 0
    out = ("-o", tmp_path / "x")
    refused(run(*of_windows(tiny_config, "probe"), *out), 2, "name its directory with --model")
    wrong = of_windows(tiny_config, "gc", "--model", pretrained)
    refused(run(*wrong, *out), 2, "is an option of the comparator probe, which gc is not")
    refused(run(*words, "--weights", "best", *out), 2, "--weights 'best': choose pretrained or random")
    assert not (tmp_path / "x").exists()


# Chromatin


def test_kmers_of_bins_are_those_of_the_baseline(run: Run, chromatin: Path, tmp_path: Path) -> None:
    words = ["train baseline-chromatin", chromatin / "config.yaml", "--data", chromatin / "data"]
    words += ["--reference", chromatin / "reference.fa.gz", "--labels", tmp_path / "held-out"]
    assert run(*words, "-o", tmp_path / "old.npy").code == 0
    assert run(*of_bins(chromatin, "k-mers"), "-o", tmp_path / "new").code == 0
    assert (tmp_path / "new/predictions.npy").read_bytes() == (tmp_path / "old.npy").read_bytes()
    for file in ("bins.parquet", "labels.npz"):
        assert (tmp_path / "new" / file).read_bytes() == (tmp_path / "held-out" / file).read_bytes()


def test_a_network_of_bins_and_its_report(run: Run, chromatin: Path, tmp_path: Path) -> None:
    words = of_bins(chromatin, "residual-cnn", *QUICK, "--window", 120, "--checkpoint-dir", tmp_path / "c")
    assert run(*words, "-o", tmp_path / "out").code == 0
    values = np.load(tmp_path / "out/predictions.npy")
    assert values.shape == (60, 2) and ((values > 0) & (values < 1)).all()
    told = json.loads((tmp_path / "out/comparator.json").read_text())
    assert told["window"] == 120 and told["settings"]["both_strands"] and told["tracks_left_out"] == []
    words = ["auc-report", tmp_path / "out/predictions.npy", tmp_path / "out/labels.npz"]
    assert run(*words, "--tracks", tmp_path / "out/tracks.tsv", "-o", tmp_path / "report").code == 0


def test_the_nearest_window_of_bins_is_that_of_the_similarity(
    run: Run, chromatin: Path, tmp_path: Path
) -> None:
    words = ["evaluate nearest-bins", chromatin / "config.yaml", "--data", chromatin / "data", "--window", 40]
    words += ["--reference", chromatin / "reference.fa.gz", "--predictions", tmp_path / "old.npy"]
    assert run(*words, "-o", tmp_path / "old.tsv").code == 0
    assert run(*of_bins(chromatin, "nearest", "--window", 40), "-o", tmp_path / "new").code == 0
    assert (tmp_path / "new/predictions.npy").read_bytes() == (tmp_path / "old.npy").read_bytes()


def test_known_motifs_of_bins(run: Run, chromatin: Path, tmp_path: Path) -> None:
    result = run(*of_bins(chromatin, "motifs", "--motifs", chromatin / "motifs.txt"), "-o", tmp_path / "out")
    assert result.code == 0
    assert "1 of 2 tracks have a factor with a matrix, among 1 matrices" in result.err
    values = np.load(tmp_path / "out/predictions.npy")
    labels = PackedLabels.load(tmp_path / "out/labels.npz")
    assert values.shape == (60, 1) and labels.shape == (60, 1)
    table = pd.read_csv(tmp_path / "out/tracks.tsv", sep="\t")
    assert table["track"].tolist() == ["one"]
    told = json.loads((tmp_path / "out/comparator.json").read_text())
    assert told["tracks_left_out"] == ["two"] and told["chosen"]["matrices"] == ["MA1", None]
    bins = pd.read_parquet(tmp_path / "out/bins.parquet")
    genome = Reference(chromatin / "reference.fa.gz")
    assert told["window"] == 40
    assert auroc(labels.rows()[:, 0], values[:, 0].astype(float)).value > 0.9
    assert len(bins) == 60 and set(bins["contig"]) <= set(genome.contigs)


# Refusals


@pytest.mark.parametrize(
    ("name", "words", "part"),
    [
        ("cnn", (), f"'cnn' is not a comparator: choose {', '.join(NAMES)}"),
        ("motifs", (), "motifs: looks for the motif of a track's factor, which promoters don't have"),
        ("gc", ("--steps", 3), "--steps 3: is an option of networks, which gc is not"),
        ("gc", ("--learning-rate", 0.1), "--learning-rate 0.1: is an option of networks"),
        ("danq", ("--steps", 0), "steps 0: must be at least 1"),
        ("danq", ("--training-batch-size", -1), "training-batch-size -1: must be at least 1"),
        ("danq", ("--learning-rate", 0), "--learning-rate 0: must be above 0 and at most 1"),
        ("danq", ("--learning-rate", "nan"), "--learning-rate nan: must be above 0 and at most 1"),
        ("danq", ("--device", "tpu"), "device 'tpu': choose auto, cpu or cuda"),
        ("gc", ("--threads", 0), "threads 0: must be at least 1"),
    ],
)
def test_promoter_comparators_that_are_refused(
    run: Run, tiny_config: Path, tmp_path: Path, name: str, words: tuple[object, ...], part: str
) -> None:
    refused(run(*of_windows(tiny_config, name, *words), "-o", tmp_path / "out"), 2, part)
    assert not (tmp_path / "out").exists()


def test_promoter_data_that_are_refused(run: Run, tiny_config: Path, tmp_path: Path) -> None:
    words = of_windows(tiny_config, "gc")
    (tmp_path / "none").mkdir()
    result = run(*words, "--windows", tmp_path / "none", "-o", tmp_path / "out")
    refused(result, 1, "windows.parquet: no such file")
    again = [*words, "--negative-set", "upside"]
    refused(run(*again, "-o", tmp_path / "out"), 1, "has no negative set 'upside'")
    (tmp_path / "file").write_text("mine")
    refused(run(*words, "-o", tmp_path / "file"), 2, "file: is a file, a directory is to be written")
    refused(run(*words, "-o", tmp_path), 2, "only what an earlier run wrote is replaced")
    # 100 bp.
    short = of_windows(tiny_config, "deepsea", *QUICK, "--checkpoint-dir", tmp_path / "c")
    part = "deepsea: windows of 100 bp are shorter than the 163 bp it needs"
    refused(run(*short, "-o", tmp_path / "out"), 1, part)
    assert not (tmp_path / "out").exists() and not list((tmp_path / "c").rglob("*"))


def test_windows_of_one_class_are_refused(run: Run, tiny_config: Path, tmp_path: Path) -> None:
    source = tiny_config.parent / "results/promoters"
    rows = pd.read_parquet(source / "windows.parquet")
    keep = ~((rows["split"] == "valid") & (rows["negative_set"] == "positive"))
    home = tmp_path / "windows"
    home.mkdir()
    rows[keep].to_parquet(home / "windows.parquet", index=False)
    labels = (rows[keep]["negative_set"] == "positive").to_numpy()
    packed = np.packbits(labels[:, None], axis=1)
    np.savez(home / "labels.npz", packed=packed, tracks=np.array(["promoter"]))
    words = of_windows(tiny_config, "gc", "--windows", home)
    part = "the validation windows are not of both classes, which are to be told apart"
    refused(run(*words, "-o", tmp_path / "out"), 1, home, part)


@pytest.mark.parametrize(
    ("name", "words", "part"),
    [
        ("cnn", (), "'cnn' is not a comparator"),
        ("gc", ("--window", 39), "--window 39: doesn't hold the bin of 40 bp in its middle"),
        ("gc", ("--window", 41), "--window 41: doesn't hold the bin of 40 bp in its middle"),
        ("gc", ("--taxon", "fungi"), "--taxon fungi: is an option of the comparator motifs, which gc is not"),
        ("motifs", ("--taxon", "moss"), "--taxon 'moss': choose vertebrates"),
        ("motifs", ("--taxon", "fungi", "--motifs", "m.txt"), "chooses among JASPAR's matrices"),
    ],
)
def test_chromatin_comparators_that_are_refused(
    run: Run, chromatin: Path, tmp_path: Path, name: str, words: tuple[object, ...], part: str
) -> None:
    refused(run(*of_bins(chromatin, name, *words), "-o", tmp_path / "out"), 2, part)


def test_matrices_that_are_refused(run: Run, chromatin: Path, tmp_path: Path) -> None:
    words = of_bins(chromatin, "motifs", "--motifs")
    refused(run(*words, tmp_path / "none", "-o", tmp_path / "out"), 1, tmp_path / "none", "no such file")
    (tmp_path / "other").write_text((chromatin / "motifs.txt").read_text().replace("One", "Else"))
    result = run(*words, tmp_path / "other", "-o", tmp_path / "out")
    refused(result, 1, "other: has no matrix of the factors of", "tracks.tsv", after_log=True)
    assert not (tmp_path / "out").exists()


def test_data_without_validation_bins_are_refused(run: Run, chromatin: Path, tmp_path: Path) -> None:
    words = ["prepare chromatin", chromatin / "config.yaml", "--reference", chromatin / "reference.fa.gz"]
    assert run(*words, "--set", "genome.valid=[]", "-o", tmp_path / "data").code == 0
    words = of_bins(chromatin, "gc", "--data", tmp_path / "data")
    refused(run(*words, "-o", tmp_path / "out"), 1, tmp_path / "data", "has no validation bins")
