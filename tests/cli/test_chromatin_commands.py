"""The chromatin commands on a small genome: what they write, write again, and refuse."""

import gzip
import json
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from bigbird_dna.disk.directories import MARKER
from bigbird_dna.genome import sources
from bigbird_dna.genome.chromatin.dataset import ChromatinData, read_dataset
from bigbird_dna.genome.chromatin.labels import PackedLabels
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import Interval
from bigbird_dna.metrics.auroc import auroc
from bigbird_dna.model.directory import save
from bigbird_dna.model.settings import (
    ChromatinSettings,
    NamedTrack,
    PretrainingSettings,
)
from bigbird_dna.tokens.dna import DnaTokenizer
from tests.cli.command import Run, frame, invoke, refused
from tests.file_server import running_server
from tests.genome.chromatin.small_bundle import (
    SIZES,
    TRACKS,
    World,
    make_world,
    write_public_files,
    write_reference,
)
from tests.toys import MOTIFS, random_model, small_encoder, write_motif_genome

LENGTHS = {"a": 10_000, "b": 4000, "c": 5000}
DATA = {
    **{
        "tracks": "tracks.tsv",
        "bin": 40,
        "window": 200,
        "shift_bp": 3,
    },
    **{
        "min_positives_train": 5,
        "min_positives_heldout": 1,
        "max_n": 0.5,
        "negative_fraction": 1.0,
    },
}
EVALUATION = {"test_bins": 50, "baseline_kmer": 4}
RULES = ("bins.parquet", "labels.npz", "tracks.tsv", "dataset.json")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Configuration, reference, peaks with their table, data set and models; don't write there."""
    home = tmp_path_factory.mktemp("chromatin-commands")
    write_motif_genome(home, LENGTHS, spacing=110, gaps={"b": (3500, 3900)})
    rows = "".join(f"{name}\tTF\tpeaks/{name}.bed\n" for name in MOTIFS)
    (home / "tracks.tsv").write_text(f"track\tgroup\tfile\n{rows}")
    values = {
        "results": str(home / "results"),
        "genome": {"valid": ["b"], "test": ["c"]},
        "chromatin": {
            "data": {**DATA, "tracks": str(home / "tracks.tsv")},
            "evaluation": EVALUATION,
        },
    }
    (home / "config.yaml").write_text(yaml.safe_dump(values))
    invoke(*data_words(home, home / "data"))
    _write_models(home)
    return home


def _write_models(home: Path) -> None:
    """Models that were not trained; all but `other` and `pretraining` fit the data set."""
    text = Reference(home / "reference.fa.gz").fetch(Interval("a", 0, LENGTHS["a"]))
    tokenizer = DnaTokenizer.train([text], home / "tokenizer", 24, 4)
    other_tokenizer = DnaTokenizer.train([text[::-1]], home / "tokenizer2", 24, 4)
    config = small_encoder(tokenizer.vocabulary, max_length=160)
    tracks = tuple(NamedTrack(track=name, group="TF") for name in MOTIFS)
    shape = ChromatinSettings(
        window=200, bin=40, pooling="bin", bin_layers=0, members=1, tracks=tracks
    )
    variations = {
        "first": {},
        "second": {},
        "narrow": {"window": 80},
        "small": {"bin": 20},
        "other": {"tracks": tracks[::-1]},
        "tokens": {},
        "paper": {"pooling": "cls"},
    }
    for seed, (name, changed) in enumerate(variations.items()):
        own = other_tokenizer if name == "tokens" else tokenizer
        settings = shape.model_copy(update=changed)
        save(
            home / name,
            random_model(own, config, settings, seed=seed, scale=4),
            {},
            {},
            {},
        )
    pretrained = random_model(tokenizer, config, PretrainingSettings())
    save(home / "pretraining", pretrained, {}, {}, {})


def words_of(home: Path, command: str, *models: Path) -> list[object]:
    """A command with what all of them need; options that come later count."""
    words: list[object] = [command, home / "config.yaml", *models]
    return [*words, "--data", home / "data", "--reference", home / "reference.fa.gz"]


def contents(directory: Path) -> dict[str, bytes]:
    return {
        path.name: path.read_bytes()
        for path in directory.iterdir()
        if path.name != MARKER
    }


# prepare chromatin


def data_words(home: Path, out: Path, *further: object) -> Sequence[object]:
    words = [
        "prepare chromatin",
        home / "config.yaml",
        "--reference",
        home / "reference.fa.gz",
    ]
    return [*words, "-o", out, *further]


def test_data_set_again_and_of_a_folder(run: Run, home: Path, tmp_path: Path) -> None:
    out = tmp_path / "sub/data"
    assert run(*data_words(home, out)).code == 0
    assert {**contents(out)} == contents(home / "data")
    assert (
        json.loads((out / "dataset.json").read_text())["window"] == 206
    )  # 200, and 3 to either side
    again = data_words(
        home, out, "--track-table", home / "peaks", "--set", "chromatin.data.group=X"
    )
    (out / "notes").write_text("x")
    refused(run(*again), 2)
    (out / "notes").unlink()
    result = run(*again)
    assert (result.code, result.out) == (0, ""), result.err
    assert set(contents(out)) == set(RULES), (
        "a data set takes the place of the former directory"
    )
    for name in ("bins.parquet", "labels.npz"):
        assert (out / name).read_bytes() == (home / "data" / name).read_bytes()
    assert pd.read_csv(out / "tracks.tsv", sep="\t")["group"].tolist() == ["X", "X"]
    assert [path.name for path in out.parent.iterdir()] == ["data"]


def test_a_blacklist_in_the_directory_of_local_data(
    run: Run, home: Path, tmp_path: Path
) -> None:
    (tmp_path / "local").mkdir()
    (tmp_path / "local/black.bed").write_text("a\t0\t400\n")
    local = (
        "--set",
        f"data_dir={tmp_path}/local",
        "--set",
        "chromatin.data.blacklist=black.bed",
    )
    given = ("--blacklist", tmp_path / "local/black.bed")
    for further in (local, given):
        assert run(*data_words(home, tmp_path / "data", *further)).code == 0
        info = json.loads((tmp_path / "data/dataset.json").read_text())
        assert info["dropped_bins"]["blacklist"] > 0
    black = ("--blacklist", tmp_path / "no.bed")
    refused(run(*data_words(home, tmp_path / "x", *black)), 1)


def test_data_set_mistakes(run: Run, home: Path, tmp_path: Path) -> None:
    out = tmp_path / "data"
    assert run(*data_words(home, out)).code == 0
    before = contents(out)
    table, peaks = tmp_path / "tracks.tsv", tmp_path / "x.bed"
    table.write_text("track\tgroup\tfile\nx\tTF\tx.bed\n")
    given = ("--track-table", table)
    refused(run(*data_words(home, out, *given)), 1, peaks)
    peaks.write_text("chr77\t10\t50\n")
    unknown = ("x.bed: no peak is on the reference", "chr77", "a, b, c")
    refused(run(*data_words(home, out, *given)), 1, *unknown)
    peaks.write_text("a\t10\t50\n")
    refused(run(*data_words(home, out, *given)), 1)
    none = ("--set", "chromatin.data.tracks=null")
    refused(run(*data_words(home, out, *none)), 2)
    refused(
        run(*data_words(home, out, "--set", "chromatin.data.bins=9")),
        2,
        "'chromatin.data.bins'",
    )
    refused(run(*data_words(home, out, "--set", "genome.test=[d]")), 2, "'d'")
    refused(run(*data_words(home, out, "--reference", tmp_path / "no.fa")), 1)
    refused(run(*data_words(home, peaks)), 2)
    assert contents(out) == before, "a failure leaves the former data set"
    assert {path.name for path in tmp_path.iterdir()} == {"data", "tracks.tsv", "x.bed"}


# evaluate test-bins and train baseline chromatin


def test_predictions(run: Run, home: Path, tmp_path: Path) -> None:
    out, held_out = tmp_path / "p.npy", tmp_path / "held-out"
    words = words_of(home, "evaluate test-bins", home / "first", home / "second")
    result = run(*words, "-o", out, "--write-labels", held_out)
    assert (result.code, result.out) == (0, ""), result.err
    values = np.load(out)
    assert values.shape == (50, 2) and values.dtype == np.float32
    assert ((values >= 0) & (values <= 1)).all() and values.std(axis=0).min() > 0.01
    assert set(contents(held_out)) == {"bins.parquet", "labels.npz"}
    bins = pd.read_parquet(held_out / "bins.parquet")
    assert len(bins) == 50 and set(bins["contig"]) == {"c"}
    assert PackedLabels.load(held_out / "labels.npz").shape == (50, 2)
    parts = []
    for model in ("first", "second"):
        words = words_of(home, "evaluate test-bins", home / model)
        assert run(*words, "-o", tmp_path / "one.npy", "--batch-size", 3).code == 0
        parts.append(
            np.load(tmp_path / "one.npy")
        )  # the second in the place of the first
    np.testing.assert_allclose(values, np.mean(parts, axis=0), atol=2e-6)
    words = words_of(home, "evaluate test-bins", home / "first")
    assert (
        run(
            *words,
            "-o",
            tmp_path / "all.npy",
            "--set",
            "chromatin.evaluation.test_bins=0",
        ).code
        == 0
    )
    everything = pd.read_parquet(home / "data/bins.parquet")
    assert len(np.load(tmp_path / "all.npy")) == (everything["split"] == "test").sum()
    # The arrays are what auc-report reads.
    words = [
        "auc-report",
        out,
        held_out / "labels.npz",
        "--tracks",
        home / "data/tracks.tsv",
    ]
    assert run(*words, "-o", tmp_path / "report").code == 0


def test_baseline(run: Run, home: Path, tmp_path: Path) -> None:
    out, held_out = tmp_path / "kmers.npy", tmp_path / "held-out"
    words = (
        *words_of(home, "train baseline chromatin"),
        "-o",
        out,
        "--write-labels",
        held_out,
    )
    result = run(*words)
    assert (result.code, result.out) == (0, ""), result.err
    values = np.load(out)
    assert values.shape == (50, 2) and values.dtype == np.float32
    labels = PackedLabels.load(held_out / "labels.npz").rows(np.arange(50))
    # Bins of 40 bp hold a motif of 14 bp: its k-mers say nearly all.
    assert (
        min(auroc(labels[:, track], values[:, track]).value for track in range(2)) > 0.9
    )
    before = out.read_bytes(), contents(held_out)
    assert run(*words).code == 0
    assert (out.read_bytes(), contents(held_out)) == before


@pytest.mark.parametrize("model", ["none", "data", "pretraining", "other", "small"])
def test_models_that_do_not_fit(
    run: Run, home: Path, tmp_path: Path, model: str
) -> None:
    out = tmp_path / "p.npy"
    out.write_text("former")
    words = words_of(home, "evaluate test-bins", home / "first", home / model)
    refused(run(*words, "-o", out, "--write-labels", tmp_path / "x"), 1)
    assert out.read_text() == "former" and list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize("command", ["evaluate test-bins", "train baseline chromatin"])
def test_data_that_can_not_be_used(
    run: Run, home: Path, tmp_path: Path, command: str
) -> None:
    models = [home / "first"] * (command == "evaluate test-bins")
    words = (*words_of(home, command, *models), "-o", tmp_path / "p.npy")
    nowhere = tmp_path / "nowhere"
    refused(run(*words, "--data", nowhere), 1, nowhere)
    refused(run(*words, "--reference", tmp_path / "no.fa"), 1)
    # A reference of another assembly.
    (tmp_path / "other.fa").write_text(f">z\n{'ACGT' * 100}\n")
    other = run(*words, "--reference", tmp_path / "other.fa")
    refused(other, 1, after_log=True)
    # A data set without a contig to test on.
    made = run(*data_words(home, tmp_path / "data", "--set", "genome.test=[]"))
    assert made.code == 0, made.err
    refused(run(*words, "--data", tmp_path / "data"), 1)
    refused(run(*words[:-1], tmp_path), 2)
    assert not (tmp_path / "p.npy").exists()


# model ensemble


def test_an_ensemble_of_two(run: Run, home: Path, tmp_path: Path) -> None:
    out = tmp_path / "sub/both"
    result = run("model ensemble", home / "first", home / "second", "-o", out)
    assert (result.code, result.out) == (0, ""), result.err
    description = json.loads((out / "config.json").read_text())
    assert (description["task"], description["settings"]["members"]) == ("chromatin", 2)
    words = words_of(home, "evaluate test-bins", out)
    assert run(*words, "-o", tmp_path / "both.npy").code == 0
    words = words_of(home, "evaluate test-bins", home / "first", home / "second")
    assert run(*words, "-o", tmp_path / "mean.npy").code == 0
    np.testing.assert_allclose(
        np.load(tmp_path / "both.npy"), np.load(tmp_path / "mean.npy"), atol=2e-6
    )
    # Of an ensemble and a model: three members.
    refused(run("model ensemble", out, home / "first", "-o", out), 2)
    assert (
        run("model ensemble", out, home / "first", "-o", tmp_path / "three").code == 0
    )
    assert (
        json.loads((tmp_path / "three/config.json").read_text())["settings"]["members"]
        == 3
    )
    assert list(out.parent.iterdir()) == [out]


@pytest.mark.parametrize(
    ("second", "code"),
    [
        (None, 2),
        ("none", 1),
        ("pretraining", 1),
        ("narrow", 1),
        ("other", 1),
        ("tokens", 1),
    ],
)
def test_models_that_can_not_be_combined(
    run: Run, home: Path, tmp_path: Path, second: str | None, code: int
) -> None:
    models = [home / "first", *([home / second] if second else [])]
    refused(run("model ensemble", *models, "-o", tmp_path / "x"), code)
    assert list(tmp_path.iterdir()) == []


# predict-tracks


@pytest.fixture
def bed(tmp_path: Path) -> Path:
    path = tmp_path / "regions.bed"
    path.write_text(
        "c\t400\t440\tfirst\nc\t380\t500\nb\t3600\t3640\tgap\na\t0\t10\tedge\nc\t400\t440\n"
    )
    return path


def test_tracks_of_regions(run: Run, home: Path, bed: Path, tmp_path: Path) -> None:
    words = (
        "predict-tracks",
        home / "first",
        bed,
        "--reference",
        home / "reference.fa.gz",
    )
    result = run(*words)
    assert (
        result.code == 0 and "5 regions, 2 tracks; 2 regions not scored" in result.err
    )
    header = result.out.splitlines()[:3]
    assert [line.split()[1] for line in header] == ["bigbird-dna", "model", "command"]
    rows = frame(result.out)
    assert list(rows.columns) == ["contig", "start", "end", "name", "note", *MOTIFS]
    assert rows["name"].tolist() == ["first", "c:380-500", "gap", "edge", "c:400-440"]
    assert (
        rows["note"].tolist()[:3] == [".", ".", "too_many_n"] and rows["note"][3] != "."
    )
    assert rows.loc[2, list(MOTIFS)].tolist() == [".", "."]
    scored = rows.loc[[0, 1, 4], list(MOTIFS)].astype(float)
    assert ((scored > 0) & (scored < 1)).all(axis=None)
    assert scored.loc[0].tolist() == scored.loc[4].tolist()
    # A bin of the data set has the probability that evaluate test-bins gives it.
    array = tmp_path / "all.npy"
    predict = words_of(home, "evaluate test-bins", home / "first")
    assert (
        run(*predict, "-o", array, "--set", "chromatin.evaluation.test_bins=0").code
        == 0
    )
    bins = pd.read_parquet(home / "data/bins.parquet").query("split == 'test'")
    place = bins["start"].tolist().index(400)
    np.testing.assert_allclose(scored.loc[0], np.load(array)[place], atol=2e-6)
    chosen = run(*words, "--tracks", "tw*", "--summary", "mean")
    assert chosen.code == 0 and "5 regions, 1 tracks" in chosen.err
    fewer = frame(chosen.out)
    assert list(fewer.columns)[5:] == ["two"]
    assert float(fewer.loc[1, "two"]) < scored.loc[1, "two"]


def test_bins_that_share_windows(
    run: Run, home: Path, bed: Path, tmp_path: Path
) -> None:
    """What is said of a bin is what evaluate test-bins says of it."""
    bed.write_text("c\t440\t480\n")
    further = (bed, "--reference", home / "reference.fa.gz", "--center-fraction", 0.7)
    result = run("predict-tracks", home / "first", *further)
    assert result.code == 0 and " --center-fraction 0.7 " in result.out.splitlines()[2]
    alone = frame(result.out).loc[0, list(MOTIFS)].astype(float)
    plain = frame(run("predict-tracks", home / "first", *further[:-2]).out)
    assert (alone != plain.loc[0, list(MOTIFS)].astype(float)).all()
    array = tmp_path / "all.npy"
    predict = [*words_of(home, "evaluate test-bins", home / "first"), "-o", array]
    for key in ("center_fraction=0.7", "test_bins=0"):
        predict += ["--set", f"chromatin.evaluation.{key}"]
    assert run(*predict).code == 0
    bins = pd.read_parquet(home / "data/bins.parquet").query("split == 'test'")
    np.testing.assert_allclose(
        alone, np.load(array)[bins["start"].tolist().index(440)], atol=2e-6
    )
    words = ("predict-tracks", home / "paper", *further)
    refused(run(*words), 2)
    refused(run(*words[:-1], 1.5), 2)


def test_regions_that_will_not_do(
    run: Run, home: Path, bed: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.tsv"
    out.write_text("former")
    further = ("--reference", home / "reference.fa.gz", "-o", out)
    for text, named in {
        "chr77\t0\t40\n": f"(chr77) is in {further[1]} (a, b, c)",
        "c\t40\tx\n": "line 1",
        "c\t40\t80\nc\t50\t50\n": "line 2",
        "c\t40\t80\nc\t50\t40\n": "line 2",
        "# nothing\n": "",
        "": "",
    }.items():
        bed.write_text(text)
        refused(
            run("predict-tracks", home / "first", bed, *further),
            1,
            "regions.bed",
            named,
        )
        assert out.read_text() == "former"
        if text:
            result = run(
                "predict-tracks", home / "first", "-", *further[:2], stdin=text.encode()
            )
            assert (result.code, result.out.count("\n") <= 5) == (1, True)
            assert named in result.err and "standard input: " in result.err
    assert {path.name for path in tmp_path.iterdir()} == {"out.tsv", "regions.bed"}


def test_every_format_of_tracks(
    run: Run, home: Path, bed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pybigtools

    bed.write_text(f"chr77\t0\t40\n{bed.read_text()}")
    words = (
        "predict-tracks",
        home / "first",
        bed,
        "--reference",
        home / "reference.fa.gz",
    )
    rows = frame(run(*words).out)
    for name in ("x.bed", "x.parquet", "x.tsv.gz"):
        assert run(*words, "-o", tmp_path / name).code == 0
    assert gzip.decompress((tmp_path / "x.tsv.gz").read_bytes()).decode().splitlines()[
        4:
    ] == ["\t".join(row) for row in rows.itertuples(index=False)]
    lines = frame((tmp_path / "x.bed").read_text())
    assert list(lines.columns) == [
        "contig",
        "start",
        "end",
        "name",
        "score",
        "strand",
        "note",
        *MOTIFS,
    ]
    pd.testing.assert_frame_equal(lines.drop(columns=["score", "strand"]), rows)
    largest = rows[list(MOTIFS)].replace(".", "0").astype(float).max(axis=1)
    np.testing.assert_allclose(lines["score"].astype(int), 1000 * largest, atol=0.501)
    stored = pd.read_parquet(tmp_path / "x.parquet")
    assert list(stored.columns) == list(rows.columns)
    np.testing.assert_allclose(
        stored[list(MOTIFS)],
        rows[list(MOTIFS)].replace(".", "nan").astype(float),
        atol=1e-6,
    )
    assert stored["note"].fillna(".").tolist() == rows["note"].tolist()
    # A bigWig has one track, and one value a base.
    for format in ("bigwig", "parquet"):
        refused(run(*words, "--format", format, "--tracks", "one"), 2)
    out = tmp_path / "x.bw"
    refused(run(*words, "-o", out), 2)
    refused(run(*words, "-o", out, "--tracks", "one"), 1, "overlap")
    bed.write_text(
        "c\t400\t440\nchr77\t0\t40\nb\t3600\t3640\na\t100\t140\nc\t380\t400\n"
    )
    one = frame(run(*words, "--tracks", "one").out)
    assert run(*words, "-o", out, "--tracks", "one").code == 0
    with pybigtools.open(str(out)) as signal:
        found = [(name, *record) for name in "ac" for record in signal.records(name)]
    expected = one[one["one"] != "."].sort_values(["contig", "start"])
    assert found == [
        (row[0], int(row[1]), int(row[2]), pytest.approx(float(row[5])))
        for row in expected.itertuples(index=False)
    ]
    bed.write_text("b\t3600\t3640\n")
    refused(run(*words, "-o", out, "--tracks", "one"), 1)


# `prepare fetch`, `prepare deepsea` and `prepare chromatin` with a small bundle of DeepSEA's format


FILES = {
    "DeepSEA.bundle": "deepsea_train_bundle.v0.9.tar.gz",
    "DeepSEA.bins": "allTFs.pos.bed.tar.gz",
    "DeepSEA.tracks": "deepsea_metadata.tsv",
}
OPTIONS = {"deepsea-bundle": "bundle", "deepsea-bins": "bins", "track-table": "tracks"}


@pytest.fixture(scope="module")
def world() -> World:
    return make_world()


@pytest.fixture(scope="module")
def public(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The public files by their names, and the reference they were made from."""
    directory = write_public_files(tmp_path_factory.mktemp("public") / "files", world)
    write_reference(directory.parent / "reference.fa.gz", world)
    return directory


@pytest.fixture
def config(tmp_path: Path, public: Path) -> Path:
    """A run on the small genome, with its reference prepared and nothing fetched."""
    path = tmp_path / "run.yaml"
    settings = {
        "results": str(tmp_path / "results"),
        "genome": {"assembly": "GRCh37"},
        "chromatin": {"data": {"tracks": "deepsea"}},
    }
    path.write_text(yaml.safe_dump(settings))
    shutil.copytree(
        public.parent,
        tmp_path / "results/genome",
        ignore=shutil.ignore_patterns("files"),
    )
    return path


def check(data: ChromatinData, world: World) -> None:
    """Rows are the forward strand's, in the bundle's order, with its labels and splits."""
    order = [row for split in SIZES for row in world.rows[split]]
    assert np.array_equal(data.labels.rows(), world.labels[order])
    expected = [
        (world.bins[row][0].removeprefix("chr"), world.bins[row][1]) for row in order
    ]
    assert list(zip(data.bins["contig"], data.bins["start"], strict=True)) == expected
    assert data.info["bins"] == SIZES
    groups = [track.group for track in data.tracks]
    assert (
        groups == sorted(groups, key=["DHS", "TF", "HM"].index)
        and len(set(groups)) == 3
    )


def test_from_the_download_to_the_report(
    run: Run,
    world: World,
    config: Path,
    public: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    results, known = tmp_path / "results", sources.load_sources()
    with running_server() as server:
        entries = {
            key: replace(known[key], urls=(server.url(file),))
            for key, file in FILES.items()
        }
        monkeypatch.setattr(sources, "load_sources", lambda: entries)
        for key, file in FILES.items():
            server.files[file] = (public / file).read_bytes()
            assert (
                run("prepare fetch", key, "-o", results / "downloads" / file).code == 0
            )
    assert run("prepare chromatin", config).code == 0
    data = read_dataset(results / "chromatin/data")
    check(data, world)
    assert {path.name for path in (results / "chromatin").iterdir()} == {"data"}

    predictions = tmp_path / "predictions.npy"
    np.save(
        predictions, np.random.default_rng(0).random((len(data), TRACKS), np.float32)
    )
    directory, report = results / "chromatin/data", tmp_path / "report"
    arguments = ("--tracks", directory / "tracks.tsv")
    labels = directory / "labels.npz"
    assert run("auc-report", predictions, labels, *arguments, "-o", report).code == 0
    table = pd.read_csv(report / "tracks.tsv", sep="\t")
    assert len(table) == TRACKS


def test_files_of_any_place(
    run: Run, world: World, public: Path, config: Path, tmp_path: Path
) -> None:
    # A configuration without the keyword; a bundle that is unpacked; tracks of the package's form.
    settings = yaml.safe_load(config.read_text())
    del settings["chromatin"]
    config.write_text(yaml.safe_dump(settings))
    unpacked = tmp_path / "unpacked"
    unpacked.mkdir()
    archive = public / FILES["DeepSEA.bundle"]
    subprocess.run(["tar", "xf", archive, "-C", unpacked], check=True)
    table = tmp_path / "tracks.tsv"
    groups = ["DHS"] * 2 + ["TF"] * 5 + ["HM"] * 6
    lines = [f"t{number}\t{group}" for number, group in enumerate(groups)]
    table.write_text("\n".join(["track\tgroup", *lines]))
    arguments = (
        *(
            "--deepsea-bundle",
            unpacked,
            "--deepsea-bins",
            public / FILES["DeepSEA.bins"],
            "--track-table",
            table,
        ),
        *("--reference", public.parent / "reference.fa.gz", "-o", tmp_path / "out"),
    )
    assert run("prepare chromatin", config, *arguments).code == 0
    data = read_dataset(tmp_path / "out")
    check(data, world)
    assert [track.name for track in data.tracks] == [
        f"t{number}" for number in range(TRACKS)
    ]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ((), 1),
        (("--deepsea-bundle", "none"), 1),
        (("--deepsea-bundle", "{bundle}", "--deepsea-bins", "none"), 1),
        (("--deepsea-bundle", "{bundle}", "--deepsea-bins", "{bins}"), 1),
        (("{all}", "--track-table", "{public}"), 1),
        (("{all}", "--deepsea-bundle", "{public}"), 1),
        (("{all}", "--deepsea-bins", "{tracks}"), 1),
        (("{all}", "--reference", "none"), 1),
        (("{all}", "--set", "genome.assembly=sacCer3"), 2),
        (("{all}", "--set", "chromatin.data.bin=100"), 2),
        (("--set", "chromatin.data.tracks=null", "--deepsea-bins", "{bins}"), 2),
        (("{all}", "--blacklist", "{tracks}"), 2),
        (("--set", "chromatin.data.tracks=null"), 2),
    ],
)
def test_mistakes_take_one_line(
    run: Run,
    public: Path,
    config: Path,
    tmp_path: Path,
    arguments: tuple[str, ...],
    code: int,
) -> None:
    places = {
        "public": public,
        "bundle": public / FILES["DeepSEA.bundle"],
        "bins": public / FILES["DeepSEA.bins"],
        "tracks": public / FILES["DeepSEA.tracks"],
    }
    given: list[str] = []
    for argument in arguments:
        if argument == "{all}":
            for option, place in OPTIONS.items():
                if f"--{option}" not in arguments:
                    given += [f"--{option}", str(places[place])]
        else:
            given.append(argument.format(**places))
    result = run("prepare chromatin", config, *given)
    said = [line for line in result.err.splitlines() if "unpacking" not in line]
    refused(result._replace(err="\n".join(said)), code)
    assert not (tmp_path / "results/chromatin/data").exists()
