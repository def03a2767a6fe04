"""Comparators fitted to promoters and bins: what is written, what reports make of it, what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import yaml

from bigbird_dna.baselines.networks import DrawnTexts
from bigbird_dna.config.reading import load_config
from bigbird_dna.data.promoter_windows import (
    read_windows,
    variants,
    window_sequences,
)
from bigbird_dna.errors import DataError, UsageError
from bigbird_dna.finetuning.chromatin import (
    BinDraws,
    ChromatinTask,
    config_for,
)
from bigbird_dna.finetuning.promoters import PromoterTask
from bigbird_dna.genome.chromatin.dataset import read_dataset
from bigbird_dna.genome.reference import Reference
from bigbird_dna.papers.comparators.fitting import (
    DrawnBins,
    fit_promoters,
    fit_tracks,
)
from bigbird_dna.training.distributed import World
from bigbird_dna.training.draws import WindowDraws, variant_epochs
from bigbird_dna.training.initialization import Initialization
from tests.cli.command import Run, invoke
from tests.golden.messages import fails
from tests.toys import MOTIFS, small_encoder, small_tokenizer, write_motif_genome

CPU = torch.device("cpu")


def quick(task: str) -> list[str]:
    """Settings of a short training."""
    return [
        f"{task}.training.{key}"
        for key in ("steps=4", "batch_size=8", "evaluate_every=2")
    ]


HERE = World(0, 1, CPU)


def fit_windows(
    path: Path,
    name: str,
    output: Path,
    *sets: str,
    negative_set: str = "substituted",
    windows: Path | None = None,
) -> dict[str, Any]:
    """A comparator of promoters: its metrics."""
    config = load_config(path, sets)
    return fit_promoters(
        config,
        name,
        config.promoters.evaluation.seed,
        negative_set,
        windows or config.paths.windows,
        config.paths.reference,
        output,
        output.parent / "checkpoints",
        HERE,
    )


def fit_bins(
    home: Path, name: str, output: Path, *sets: str, data: Path | None = None
) -> None:
    """A comparator of chromatin."""
    fit_tracks(
        load_config(home / "config.yaml", sets),
        name,
        1,
        data or home / "data",
        home / "reference.fa.gz",
        1000,
        output,
        output.parent / "checkpoints",
        HERE,
    )


@pytest.fixture(scope="module")
def chromatin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Configuration, reference and data set of two motifs; don't write there."""
    home = tmp_path_factory.mktemp("comparators")
    write_motif_genome(
        home, {"a": 10_000, "b": 4000, "c": 5000}, spacing=110, both_strands=True
    )
    rows = "".join(f"{name}\tTF\tpeaks/{name}.bed\n" for name in MOTIFS)
    (home / "tracks.tsv").write_text(f"track\tgroup\tfile\n{rows}")
    data = {
        **{
            "tracks": str(home / "tracks.tsv"),
            "bin": 40,
            "window": 200,
        },
        **{
            "shift_bp": 3,
            "min_positives_train": 5,
            "min_positives_heldout": 1,
            "negative_fraction": 1.0,
        },
    }
    values = {
        "results": str(home / "results"),
        "genome": {"valid": ["b"], "test": ["c"]},
        "chromatin": {
            "data": data,
            "evaluation": {"test_bins": 60, "baseline_kmer": 4},
        },
    }
    (home / "config.yaml").write_text(yaml.safe_dump(values))
    reference = home / "reference.fa.gz"
    invoke(
        "prepare chromatin",
        home / "config.yaml",
        "--reference",
        reference,
        "-o",
        home / "data",
    )
    return home


# Promoters


@pytest.mark.parametrize("name", ["k-mers", "position", "composition"])
def test_regressions_of_promoters_are_the_baselines(
    run: Run, tiny_config: Path, tmp_path: Path, name: str
) -> None:
    words = (
        "train baseline promoter",
        tiny_config,
        "--negative-set",
        "substituted",
        "--baseline",
    )
    assert (
        run(*words, name.replace("k-mers", "k-mer"), "-o", tmp_path / "old").code == 0
    )
    old = tmp_path / "old" / f"{name.replace('-', '').rstrip('s')}.parquet"
    told = fit_windows(tiny_config, name, tmp_path / "new")
    assert (tmp_path / "new/predictions.parquet").read_bytes() == old.read_bytes()
    assert set(told) == {"valid", "test"} and told["test"]["auroc"] > 0.5


def test_a_network_of_promoters_and_its_report(
    run: Run, tiny_config: Path, tmp_path: Path
) -> None:
    sets = quick("promoters")
    told = fit_windows(tiny_config, "cnnprom", tmp_path / "one", *sets)
    assert (tmp_path / "one/training.jsonl").is_file()
    assert not list((tmp_path / "checkpoints").rglob("*.pt"))
    given = f"substituted={tmp_path / 'one/predictions.parquet'}"
    assert (
        run(
            "evaluate promoters", "--predictions", given, "-o", tmp_path / "report"
        ).code
        == 0
    )
    table = pd.read_csv(tmp_path / "report/promoters.tsv", sep="\t")
    assert table["auroc"].tolist() == pytest.approx([told["test"]["auroc"]])


@pytest.mark.parametrize(
    "name", ["gc", pytest.param("gkm-svm", marks=pytest.mark.slow)]
)
def test_others_of_promoters(tiny_config: Path, tmp_path: Path, name: str) -> None:
    fit_windows(tiny_config, name, tmp_path / "out")
    found = pd.read_parquet(tmp_path / "out/predictions.parquet")
    assert (
        set(found["split"]) == {"valid", "test"}
        and found["probability"].between(0, 1).all()
    )


# Chromatin


@pytest.mark.parametrize(
    ("name", "command"),
    [
        (
            "k-mers",
            ["train baseline chromatin", "--write-labels", "held-out", "-o", "old.npy"],
        ),
        (
            "dyads",
            ["train baseline chromatin", "-o", "a.npy", "--write-dyads", "old.npy"],
        ),
    ],
)
def test_comparators_of_bins_are_what_other_commands_give(
    run: Run,
    chromatin: Path,
    tmp_path: Path,
    name: str,
    command: list[object],
) -> None:
    made = ("held-out", "old.npy", "a.npy", "a.tsv")
    words = [tmp_path / word if word in made else word for word in command[1:]]
    words += [
        "--data",
        chromatin / "data",
        "--reference",
        chromatin / "reference.fa.gz",
    ]
    assert run(command[0], chromatin / "config.yaml", *words).code == 0
    fit_bins(chromatin, name, tmp_path / "new")
    assert (tmp_path / "new/predictions.npy").read_bytes() == (
        tmp_path / "old.npy"
    ).read_bytes()


def test_a_network_of_bins(chromatin: Path, tmp_path: Path) -> None:
    fit_bins(chromatin, "residual-cnn", tmp_path / "out", *quick("chromatin"))
    values = np.load(tmp_path / "out/predictions.npy")
    assert values.shape == (60, 2) and ((values > 0) & (values < 1)).all()
    assert (tmp_path / "out/training.jsonl").is_file()


# Networks learn from the draws of the models


@pytest.mark.parametrize("negative_set", ["substituted", "genomic"])
def test_networks_draw_the_windows_of_the_models(
    tiny_config: Path, negative_set: str
) -> None:
    sets = ["training.crop_jitter_bp=9", "training.seed=5", "classifier.initial=random"]
    config = load_config(tiny_config, [f"promoters.{key}" for key in sets])
    paths, reference = config.paths, Reference(config.paths.reference)
    models = PromoterTask(
        config, paths.tokenizer, None, paths.windows, reference, negative_set, False
    )
    data, training = (
        read_windows(paths.windows, negative_set),
        config.promoters.training,
    )
    sequences = window_sequences(reference, data.rows, config.seed)
    some = np.flatnonzero(data.rows["split"] == "train")
    labels = data.labels[some]
    members = variant_epochs(labels == 1, variants(data.rows)[some])
    draws = WindowDraws(members, training)
    learned = DrawnTexts([sequences[row] for row in some], labels, draws, [0.5])
    size = config.promoters.training.batch_size
    trimmed = set()
    for step in (0, 3, 40):
        texts, labels = learned.draw(step, 0, size)
        assert labels.tolist() == models.batch(step, 0, size)["labels"].tolist()
        rows, cuts = models.draws.at(step, 0, size)
        for text, row, (left, right) in zip(texts, rows, cuts, strict=True):
            whole = models.train_windows.sequences[row]
            assert text == "N" * left + whole[left : len(whole) - right] + "N" * right
            trimmed |= {left, right}
        part, _ = learned.draw(step, 2, 3)
        assert part == texts[2:5]
    assert {0, 9} <= trimmed <= {*range(10)}


def test_networks_draw_the_bins_of_the_models(chromatin: Path, tmp_path: Path) -> None:
    config = load_config(chromatin / "config.yaml", ["chromatin.training.seed=5"])
    reference = Reference(chromatin / "reference.fa.gz")
    tokenizer, bins = small_tokenizer(), read_dataset(chromatin / "data")
    section = config_for(config.chromatin, bins.bin_size)
    models = ChromatinTask(
        config, Path(), None, chromatin / "data", reference, bins.bin_size, 0
    )
    encoder = small_encoder(tokenizer.vocabulary, max_length=100)
    models.start = Initialization(encoder, tokenizer, section.model)
    learned = DrawnBins(bins, reference, 120, BinDraws(bins, section))
    size = section.training.batch_size
    for step in (0, 7):
        texts, labels = learned.draw(step, 0, size)
        batch = models.batch(step, 0, size)
        assert labels.tolist() == batch["labels"][:, 0].tolist()
        for text, ids, length in zip(
            texts, batch["ids"].tolist(), batch["lengths"].tolist(), strict=True
        ):
            assert tokenizer.decode(ids[1 : length - 1]) == text[40:80]


# Refusals


def test_promoter_data_that_are_refused(tiny_config: Path, tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    with fails(DataError, tmp_path / "none/windows.parquet"):
        fit_windows(tiny_config, "gc", tmp_path / "out", windows=tmp_path / "none")
    with fails(DataError, "'upside'"):
        fit_windows(tiny_config, "gc", tmp_path / "out", negative_set="upside")
    (tmp_path / "file").write_text("mine")
    for place in (tmp_path / "file", tmp_path):
        with fails(UsageError, place):
            fit_windows(tiny_config, "gc", place)
    with fails(DataError, "deepsea", "100", "163"):
        fit_windows(tiny_config, "deepsea", tmp_path / "out", *quick("promoters"))
    assert not (tmp_path / "out").exists() and not list(
        (tmp_path / "checkpoints").rglob("*")
    )


def test_windows_of_one_class_are_refused(tiny_config: Path, tmp_path: Path) -> None:
    source = tiny_config.parent / "results/promoters"
    rows = pd.read_parquet(source / "windows.parquet")
    keep = ~((rows["split"] == "train") & (rows["negative_set"] == "positive"))
    home = tmp_path / "windows"
    home.mkdir()
    rows[keep].to_parquet(home / "windows.parquet", index=False)
    labels = (rows[keep]["negative_set"] == "positive").to_numpy()
    packed = np.packbits(labels[:, None], axis=1)
    np.savez(home / "labels.npz", packed=packed, tracks=np.array(["promoter"]))
    with fails(DataError, home):
        fit_windows(tiny_config, "gc", tmp_path / "out", windows=home)


def test_bins_that_are_refused(run: Run, chromatin: Path, tmp_path: Path) -> None:
    words = [
        "prepare chromatin",
        chromatin / "config.yaml",
        "--reference",
        chromatin / "reference.fa.gz",
    ]
    assert run(*words, "--set", "genome.valid=[]", "-o", tmp_path / "data").code == 0
    with fails(DataError, tmp_path / "data", "'valid'"):
        fit_bins(chromatin, "gc", tmp_path / "out", data=tmp_path / "data")
    with fails(UsageError, "'nowhere:Thing'"):
        fit_bins(chromatin, "nowhere:Thing", tmp_path / "out")
    assert not (tmp_path / "out").exists()
