"""`prepare fetch`, `prepare deepsea` and `prepare chromatin` with a small bundle of DeepSEA's format."""

import functools
import shutil
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from bigbird_dna.genome.chromatin.dataset import ChromatinData, read_dataset
from bigbird_dna.genome.sources import inputs as sources
from tests.cli.command import Run, refused
from tests.genome.chromatin.small_bundle import (
    SIZES,
    TRACKS,
    World,
    make_world,
    write_public_files,
    write_reference,
)

FILES = {
    "DeepSEA.bundle": "deepsea_train_bundle.v0.9.tar.gz",
    "DeepSEA.bins": "allTFs.pos.bed.tar.gz",
    "DeepSEA.tracks": "deepsea_metadata.tsv",
}
OPTIONS = {"deepsea-bundle": "bundle", "deepsea-bins": "bins", "tracks": "tracks"}


@pytest.fixture(scope="module")
def world() -> World:
    return make_world()


@pytest.fixture(scope="module")
def public(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The public files by their names, and the reference they were made from."""
    directory = write_public_files(tmp_path_factory.mktemp("public") / "files", world)
    write_reference(directory.parent / "reference.fa.gz", world)
    return directory


@pytest.fixture(scope="module")
def site(public: Path) -> Iterator[str]:
    """The address of a server with the public files."""

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            """Stay silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=public))
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


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
    shutil.copytree(public.parent, tmp_path / "results/genome", ignore=shutil.ignore_patterns("files"))
    return path


def check(data: ChromatinData, world: World) -> None:
    """Rows are the forward strand's, in the bundle's order, with its labels and splits."""
    order = [row for split in SIZES for row in world.rows[split]]
    assert np.array_equal(data.labels.rows(), world.labels[order])
    expected = [(world.bins[row][0].removeprefix("chr"), world.bins[row][1]) for row in order]
    assert list(zip(data.bins["contig"], data.bins["start"], strict=True)) == expected
    assert data.info["bins"] == SIZES
    groups = [track.group for track in data.tracks]
    assert groups == sorted(groups, key=["DHS", "TF", "HM"].index) and len(set(groups)) == 3


def test_from_the_download_to_the_report(
    run: Run, world: World, config: Path, site: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = {
        key: replace(source, urls=(f"{site}/{source.file}",))
        for key, source in sources.load_sources().items()
        if key in FILES
    }
    monkeypatch.setattr(sources, "load_sources", lambda: entries)
    results = tmp_path / "results"
    for key, file in FILES.items():
        assert run("prepare fetch", key, "-o", results / "downloads" / file).code == 0
    assert run("prepare chromatin", config).code == 0
    data = read_dataset(results / "chromatin/data")
    check(data, world)
    assert {path.name for path in (results / "chromatin").iterdir()} == {"data"}

    # The list's AUROCs go with the data set into the report.
    predictions = tmp_path / "predictions.npy"
    np.save(predictions, np.random.default_rng(0).random((len(data), TRACKS), np.float32))
    directory, report = results / "chromatin/data", tmp_path / "report"
    arguments = ("--tracks", directory / "tracks.tsv", "--published", directory / "tracks.tsv")
    labels = directory / "labels.npz"
    assert run("auc-report", predictions, labels, *arguments, "-o", report).code == 0
    table = pd.read_csv(report / "tracks.tsv", sep="\t")
    assert (table["published_auroc"] == 0.9).all() and len(table) == TRACKS


def test_files_of_any_place(run: Run, world: World, public: Path, config: Path, tmp_path: Path) -> None:
    # A configuration without the keyword; a bundle that is unpacked; tracks of the package's form.
    settings = yaml.safe_load(config.read_text())
    del settings["chromatin"]
    config.write_text(yaml.safe_dump(settings))
    unpacked = tmp_path / "unpacked"
    assert run("prepare deepsea", public / FILES["DeepSEA.bundle"], "-o", unpacked).code == 0
    assert {path.name for path in unpacked.iterdir()} == {"train.mat", "valid.mat", "test.mat"}
    table = tmp_path / "tracks.tsv"
    groups = ["DHS"] * 2 + ["TF"] * 5 + ["HM"] * 6
    lines = [f"t{number}\t{group}" for number, group in enumerate(groups)]
    table.write_text("\n".join(["track\tgroup", *lines]))
    arguments = (
        *("--deepsea-bundle", unpacked, "--deepsea-bins", public / FILES["DeepSEA.bins"], "--tracks", table),
        *("--reference", public.parent / "reference.fa.gz", "-o", tmp_path / "out"),
    )
    assert run("prepare chromatin", config, *arguments).code == 0
    data = read_dataset(tmp_path / "out")
    check(data, world)
    assert [track.name for track in data.tracks] == [f"t{number}" for number in range(TRACKS)]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ((), 1),
        (("--deepsea-bundle", "none"), 1),
        (("--deepsea-bundle", "{bundle}", "--deepsea-bins", "none"), 1),
        (("--deepsea-bundle", "{bundle}", "--deepsea-bins", "{bins}"), 1),
        (("{all}", "--tracks", "{public}"), 1),
        (("{all}", "--tracks", "{short}"), 1),
        (("{all}", "--deepsea-bundle", "{cut}"), 1),
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
    run: Run, public: Path, config: Path, tmp_path: Path, arguments: tuple[str, ...], code: int
) -> None:
    tracks = public / FILES["DeepSEA.tracks"]
    places = {
        "public": public,
        "bundle": public / FILES["DeepSEA.bundle"],
        "bins": public / FILES["DeepSEA.bins"],
        "tracks": tracks,
        "results": tmp_path / "results",
        "short": tmp_path / "short.tsv",
        "cut": tmp_path / "cut.tar.gz",
    }
    places["short"].write_text("".join(tracks.read_text().splitlines(keepends=True)[:-1]))
    places["cut"].write_bytes(places["bundle"].read_bytes()[:100_000])
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


def test_an_archive_that_is_none(run: Run, config: Path, tmp_path: Path) -> None:
    result = run("prepare deepsea", config, "-o", tmp_path / "out")
    refused(result, 1, config)
    assert not (tmp_path / "out").exists()
