"""Comparators fitted to promoters and bins: what is written, what reports make of it, what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from torch import nn

from bigbird_dna.baselines.networks import DrawnTexts
from bigbird_dna.baselines.windows import TextWindows
from bigbird_dna.config.reading import load_config
from bigbird_dna.data.promoter_windows import read_windows, window_sequences
from bigbird_dna.errors import DataError, ModelError, UsageError
from bigbird_dna.finetuning.chromatin import ChromatinObjective, config_for
from bigbird_dna.finetuning.promoters import PromoterTask
from bigbird_dna.genome.chromatin.dataset import read_dataset
from bigbird_dna.genome.chromatin.labels import PackedLabels
from bigbird_dna.genome.reference import Reference
from bigbird_dna.metrics.auroc import auroc
from bigbird_dna.model.settings import ChromatinSettings, NamedTrack
from bigbird_dna.papers.comparators.fitting import (
    DrawnBins,
    bin_windows,
    fit_promoters,
    fit_tracks,
    promoter_windows,
)
from bigbird_dna.papers.comparators.simple import EncoderProbe
from bigbird_dna.training.distributed import World
from tests.cli.command import Run, invoke
from tests.golden.messages import fails
from tests.papers.comparators.test_known_differences import write_language_model
from tests.toys import MOTIFS, small_tokenizer, write_motif_genome


def quick(task: str) -> list[str]:
    """Settings of a short training."""
    return [
        f"{task}.training.{key}"
        for key in ("steps=4", "batch_size=8", "evaluate_every=2", "keep=best")
    ]


def fit_windows(
    path: Path,
    name: str,
    output: Path,
    *sets: str,
    negative_set: str = "substituted",
    windows: Path | None = None,
    **options: Any,
) -> dict[str, Any]:
    """A comparator of promoters: its description."""
    config = load_config(path, sets)
    return fit_promoters(
        config,
        name,
        negative_set,
        windows or config.paths.windows,
        Reference(config.paths.reference),
        output,
        output.parent / "checkpoints",
        device="cpu",
        **options,
    )


def fit_bins(
    home: Path,
    name: str,
    output: Path,
    window: int | None = None,
    *sets: str,
    data: Path | None = None,
    **options: Any,
) -> dict[str, Any]:
    """A comparator of chromatin: its description."""
    return fit_tracks(
        load_config(home / "config.yaml", sets),
        name,
        data or home / "data",
        home / "reference.fa.gz",
        output,
        output.parent / "checkpoints",
        window=window,
        device="cpu",
        **options,
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
            "compare_window": None,
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
    counts = {
        base: [9 * (base == letter) for letter in MOTIFS["one"]] for base in "ACGT"
    }
    lines = [f"{base} [ {' '.join(map(str, row))} ]\n" for base, row in counts.items()]
    (home / "motifs.txt").write_text("".join([">MA1 One\n", *lines]))
    return home


# Promoters


@pytest.mark.parametrize("name", ["k-mers", "position", "orf", "composition"])
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
    assert (told["comparator"], told["negative_set"]) == (name, "substituted")
    assert set(told["chosen"]) == {
        "inverse_penalty",
        *(["k"] if name == "k-mers" else []),
    }
    assert (
        set(told["metrics"]) == {"valid", "test"}
        and told["metrics"]["test"]["auroc"] > 0.5
    )


def test_a_network_of_promoters_and_its_report(
    run: Run, tiny_config: Path, tmp_path: Path
) -> None:
    sets = quick("promoters")
    told = fit_windows(tiny_config, "cnnprom", tmp_path / "one", *sets)
    half = fit_windows(
        tiny_config,
        "cnnprom",
        tmp_path / "half",
        *sets,
        "promoters.training.train_fraction=0.5",
    )
    assert half["training_windows"] == told["training_windows"] // 2
    assert (tmp_path / "one/training.jsonl").is_file()
    assert not list((tmp_path / "checkpoints").rglob("*.pt"))
    settings = told["settings"]
    assert (
        settings["steps"] == told["chosen"]["steps"] == 4 and settings["keep"] == "best"
    )
    given = f"substituted={tmp_path / 'one/predictions.parquet'}"
    assert (
        run(
            "evaluate promoters", "--predictions", given, "-o", tmp_path / "report"
        ).code
        == 0
    )
    table = pd.read_csv(tmp_path / "report/promoters.tsv", sep="\t")
    assert table["auroc"].tolist() == pytest.approx([told["metrics"]["test"]["auroc"]])


@pytest.mark.parametrize(
    "name", ["gc", "nearest", pytest.param("gkm-svm", marks=pytest.mark.slow)]
)
def test_others_of_promoters(tiny_config: Path, tmp_path: Path, name: str) -> None:
    fit_windows(tiny_config, name, tmp_path / "out")
    found = pd.read_parquet(tmp_path / "out/predictions.parquet")
    assert (
        set(found["split"]) == {"valid", "test"}
        and found["probability"].between(0, 1).all()
    )


def test_a_probe_reads_a_model_that_stays_as_it_is(
    tiny_config: Path, tmp_path: Path
) -> None:
    pretrained = write_language_model(tmp_path / "model", seed=3)
    for weights in ("pretrained", "random"):
        told = fit_windows(
            tiny_config,
            "probe",
            tmp_path / weights,
            model=pretrained,
            weights=weights,
            seed=2,
        )
        assert (told["comparator"], told["chosen"]["weights"]) == ("probe", weights)
        assert (
            told["settings"] == {"seed": 2} and told["metrics"]["test"]["auroc"] > 0.5
        )


# Chromatin


@pytest.mark.parametrize(
    ("name", "window", "command"),
    [
        (
            "k-mers",
            None,
            ["train baseline chromatin", "--write-labels", "held-out", "-o", "old.npy"],
        ),
        (
            "dyads",
            None,
            ["train baseline chromatin", "-o", "a.npy", "--write-dyads", "old.npy"],
        ),
    ],
)
def test_comparators_of_bins_are_what_other_commands_give(
    run: Run,
    chromatin: Path,
    tmp_path: Path,
    name: str,
    window: int | None,
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
    fit_bins(chromatin, name, tmp_path / "new", window)
    assert (tmp_path / "new/predictions.npy").read_bytes() == (
        tmp_path / "old.npy"
    ).read_bytes()
    for path in (tmp_path / "held-out").glob("[a-z]*"):
        assert (
            tmp_path / "new" / path.name
        ).read_bytes() == path.read_bytes() or path.name == "tracks.tsv"


def test_a_network_of_bins_and_its_report(
    run: Run, chromatin: Path, tmp_path: Path
) -> None:
    told = fit_bins(
        chromatin, "residual-cnn", tmp_path / "out", 120, *quick("chromatin")
    )
    values = np.load(tmp_path / "out/predictions.npy")
    assert values.shape == (60, 2) and ((values > 0) & (values < 1)).all()
    assert (
        told["window"] == 120
        and told["settings"]["batch_size"] == 8
        and told["tracks_left_out"] == []
    )
    words = [
        "auc-report",
        tmp_path / "out/predictions.npy",
        tmp_path / "out/labels.npz",
    ]
    assert (
        run(
            *words, "--tracks", tmp_path / "out/tracks.tsv", "-o", tmp_path / "report"
        ).code
        == 0
    )


def test_known_motifs_of_bins(chromatin: Path, tmp_path: Path) -> None:
    told = fit_bins(
        chromatin, "motifs", tmp_path / "out", motifs=chromatin / "motifs.txt"
    )
    values = np.load(tmp_path / "out/predictions.npy")
    labels = PackedLabels.load(tmp_path / "out/labels.npz")
    assert values.shape == (60, 1) and labels.shape == (60, 1)
    table = pd.read_csv(tmp_path / "out/tracks.tsv", sep="\t")
    assert table["track"].tolist() == ["one"]
    assert told["tracks_left_out"] == ["two"] and told["chosen"]["matrices"] == [
        "MA1",
        None,
    ]
    bins = pd.read_parquet(tmp_path / "out/bins.parquet")
    genome = Reference(chromatin / "reference.fa.gz")
    assert told["window"] == 40
    assert auroc(labels.rows()[:, 0], values[:, 0].astype(float)).value > 0.9
    assert len(bins) == 60 and set(bins["contig"]) <= set(genome.contigs)


# Networks learn from the draws of the models


@pytest.mark.parametrize("negative_set", ["substituted", "genomic"])
def test_networks_draw_the_windows_of_the_models(
    tiny_config: Path, negative_set: str
) -> None:
    sets = ["training.crop_jitter_bp=9", "training.seed=5", "model.initial=random"]
    config = load_config(tiny_config, [f"promoters.{key}" for key in sets])
    paths, reference = config.paths, Reference(config.paths.reference)
    task = PromoterTask(
        config, paths.tokenizer, None, paths.windows, reference, negative_set, False
    )
    models = task.objective(nn.Identity(), World(0, 1, CPU))
    data = read_windows(paths.windows, negative_set)
    sequences = window_sequences(reference, data.rows, config.seed)
    learned, _ = promoter_windows(config, "cnnprom", paths.windows, data, sequences)
    assert isinstance(learned, DrawnTexts)
    size = config.promoters.training.batch_size
    trimmed = set()
    for step in (0, 3, 40):
        texts, labels = learned.draw(step, 0, size)
        assert labels.tolist() == models.batch(step, 0, size)["labels"].tolist()
        rows, cuts = models.draws.at(step, 0, size)
        for text, row, (left, right) in zip(texts, rows, cuts, strict=True):
            whole = models.windows.sequences[row]
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
    models = ChromatinObjective(
        bins, reference, tokenizer, section, bins.bin_size, 100, World(0, 1, CPU)
    )
    learned = bin_windows(config, "residual-cnn", bins, reference, 120)
    size = section.training.batch_size
    assert isinstance(learned, DrawnBins)
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
    keep = ~((rows["split"] == "valid") & (rows["negative_set"] == "positive"))
    home = tmp_path / "windows"
    home.mkdir()
    rows[keep].to_parquet(home / "windows.parquet", index=False)
    labels = (rows[keep]["negative_set"] == "positive").to_numpy()
    packed = np.packbits(labels[:, None], axis=1)
    np.savez(home / "labels.npz", packed=packed, tracks=np.array(["promoter"]))
    with fails(DataError, home, "validation"):
        fit_windows(tiny_config, "gc", tmp_path / "out", windows=home)


def test_bins_that_are_refused(run: Run, chromatin: Path, tmp_path: Path) -> None:
    words = [
        "prepare chromatin",
        chromatin / "config.yaml",
        "--reference",
        chromatin / "reference.fa.gz",
    ]
    assert run(*words, "--set", "genome.valid=[]", "-o", tmp_path / "data").code == 0
    other = tmp_path / "other"
    other.write_text((chromatin / "motifs.txt").read_text().replace("One", "Else"))
    for name, error, options, named in (
        *(
            ("gc", UsageError, {"window": window}, (window, "40"))
            for window in (39, 41)
        ),
        ("motifs", DataError, {"motifs": tmp_path / "none"}, [tmp_path / "none"]),
        ("motifs", DataError, {"motifs": other}, [other, "tracks.tsv"]),
        (
            "gc",
            DataError,
            {"data": tmp_path / "data"},
            [tmp_path / "data", "validation"],
        ),
    ):
        with fails(error, *named):
            fit_bins(chromatin, name, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


# Linear probes behind the comparators' interface: what they read, and that nothing else is chosen


MIDDLE = 40  # bp, as much as the two flanks beside it have together
RICH, POOR = (0.1, 0.4, 0.4, 0.1), (0.4, 0.1, 0.1, 0.4)
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_language_model(
        tmp_path_factory.mktemp("probe") / "model", attention="full"
    )


def windows(count: int, seed: int, *, tracks: int = 1) -> TextWindows:
    """The middle is rich in G and C where the first label is 1, else what is around it, which is as long."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, (count, tracks))
    texts = []
    for label in labels[:, 0]:
        inside, outside = (RICH, POOR) if label else (POOR, RICH)
        flank, far = (
            rng.choice(list("ACGT"), (2, MIDDLE // 2), p=p) for p in (outside, None)
        )
        middle = rng.choice(list("ACGT"), MIDDLE, p=inside)
        texts.append("".join([*far[0], *flank[0], *middle, *flank[1], *far[1]]))
    return TextWindows(texts, labels)


@pytest.mark.slow
@pytest.mark.parametrize("weights", ["pretrained", "random"])
def test_the_middle_is_read_apart_from_the_window(model: Path, weights: str) -> None:
    learned, held_out, test = (
        windows(count, seed, tracks=2) for seed, count in enumerate((500, 200, 200))
    )
    probe = EncoderProbe(model, weights, size=MIDDLE, seed=3, device="cpu").fit(
        learned, held_out
    )
    found = probe.predict(test.sequences(np.arange(200)))
    labels = test.labels(np.arange(200))
    assert found.shape == (200, 2) and auroc(labels[:, 0], found[:, 0]).value > 0.97
    # The second label means nothing.
    assert abs(auroc(labels[:, 1], found[:, 1]).value - 0.5) < 0.15
    told = probe.chosen()
    assert (
        told["weights"] == weights
        and told["attention"] == "full"
        and told["layer"] in (0, 1, 2)
    )
    again = EncoderProbe(model, weights, size=MIDDLE, seed=3, device="cpu").fit(
        learned, held_out
    )
    np.testing.assert_array_equal(again.predict(test.sequences(np.arange(200))), found)


def test_windows_of_one_label_are_read_as_a_whole(model: Path) -> None:
    rng = np.random.default_rng(5)
    labels = rng.integers(0, 2, 400)
    texts = [
        "".join(rng.choice(list("ACGT"), 90, p=RICH if label else POOR))
        for label in labels
    ]
    learned, held_out = (
        TextWindows(texts[:300], labels[:300]),
        TextWindows(texts[300:], labels[300:]),
    )
    probe = EncoderProbe(model, "pretrained", device="cpu").fit(learned, held_out)
    assert auroc(labels[300:], probe.predict(texts[300:])[:, 0]).value > 0.97
    assert probe.chosen()["inverse_penalty"] > 0


def test_a_model_of_several_encoders_is_not_probed(tmp_path: Path) -> None:
    tracks = (NamedTrack(track="a", group="TF"),)
    settings = ChromatinSettings(
        window=60, bin=20, pooling="bin", bin_layers=0, members=2, tracks=tracks
    )
    with fails(ModelError):
        EncoderProbe(
            write_language_model(tmp_path / "two", settings), "pretrained", device="cpu"
        )
