"""A bundle of the published format is made here, read back exactly, and refused when it is off."""

import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bigbird_dna.errors import DataError
from bigbird_dna.genome.assembly import load_assembly
from bigbird_dna.genome.chromatin.dataset import read_dataset
from bigbird_dna.genome.chromatin.deepsea import build_deepsea
from bigbird_dna.genome.chromatin.track import Track
from bigbird_dna.genome.reference import Reference, write_fasta
from tests.genome.chromatin import small_bundle
from tests.genome.chromatin.small_bundle import (
    SIZES,
    World,
    make_matrices,
    make_world,
    write_bed,
    write_bundle,
    write_reference,
)
from tests.golden.messages import fails
from tests.toys import written

HUMAN = load_assembly("GRCh37")
TRACKS = tuple(Track(f"t{number}", "TF") for number in range(small_bundle.TRACKS))


@pytest.fixture(scope="module")
def world() -> World:
    return make_world()


@pytest.fixture(scope="module")
def matrices(world) -> dict[str, np.ndarray]:
    return make_matrices(world)


@pytest.fixture(scope="module")
def reference(world, tmp_path_factory) -> Reference:
    return Reference(
        write_reference(tmp_path_factory.mktemp("reference") / "genome.fa.gz", world)
    )


@pytest.fixture(scope="module")
def bundle(matrices, tmp_path_factory) -> Path:
    return write_bundle(
        tmp_path_factory.mktemp("bundle") / "deepsea_train", matrices
    ).parent


@pytest.fixture
def bed(world, tmp_path) -> Path:
    return write_bed(tmp_path / "allTFs.pos.bed", world.bins)


@pytest.fixture
def build(reference, bed, tmp_path) -> Callable[..., object]:
    def build(
        bundle: Path,
        bins: Path = bed,
        tracks: tuple[Track, ...] = TRACKS,
    ):
        return build_deepsea(
            tmp_path / "data",
            bundle,
            bins,
            reference,
            HUMAN,
            tracks,
        )

    return build


def check(data, world: World) -> None:
    order = [row for split in ("train", "valid", "test") for row in world.rows[split]]
    assert np.array_equal(data.labels.rows(), world.labels[order])
    expected = [
        (world.bins[row][0].removeprefix("chr"), world.bins[row][1]) for row in order
    ]
    assert list(zip(data.bins["contig"], data.bins["start"], strict=True)) == expected
    assert (data.bins["end"] - data.bins["start"] == 200).all()
    assert [len(data.rows(split)) for split in SIZES] == list(SIZES.values())
    assert data.bins["split"].tolist() == [
        split for split, n in SIZES.items() for _ in range(n)
    ]
    assert [track.name for track in data.tracks] == [track.name for track in TRACKS]


@pytest.mark.parametrize("compress", [False, True])
def test_a_bundle_of_2000_rows_is_read_back_exactly(
    world, matrices, reference, build, tmp_path, compress
):
    directory = write_bundle(tmp_path / "bundle", matrices, compress)
    data = build(directory)  # every window is compared with the reference
    check(data, world)
    check(read_dataset(tmp_path / "data"), world)
    assert data.info["bins_of_no_split"] == 50
    positives = world.labels[world.rows["test"]].sum(axis=0)
    table = pd.read_csv(tmp_path / "data/tracks.tsv", sep="\t")
    assert table["positives_test"].tolist() == positives.tolist()
    first = {path.name: path.read_bytes() for path in (tmp_path / "data").iterdir()}
    build(directory)
    assert first == {
        path.name: path.read_bytes() for path in (tmp_path / "data").iterdir()
    }
    for row in (
        0,
        3,
        640,
        800,
    ):  # windows of the data set have the bundle's in their middle
        wide, narrow = (data.windows(length, [row])[0] for length in (8000, 1000))
        sequence = reference.fetch(wide)
        assert sequence[3500:4500] == reference.fetch(narrow)
        split = data.bins["split"].iloc[row]
        found = matrices[f"{split}xdata"][
            row - {"train": 0, "valid": 600, "test": 700}[split]
        ]
        assert np.array([*"NAGCT"])[
            (found * np.array([[1], [2], [3], [4]])).sum(axis=0)
        ].tolist() == [*sequence[3500:4500]]


def test_archives_are_unpacked(world, bundle, build, bed, tmp_path):
    archive, packed = tmp_path / "bundle.tar.gz", tmp_path / "allTFs.pos.bed.tar.gz"
    with tarfile.open(archive, "w:gz", compresslevel=1) as tar:
        tar.add(bundle / "deepsea_train", "deepsea_train")
    with tarfile.open(packed, "w:gz", compresslevel=1) as tar:
        tar.add(bed, "data/allTFs.pos.bed")
    check(build(archive, packed), world)
    assert {path.name for path in tmp_path.iterdir()} == {
        *("bundle.tar.gz", "allTFs.pos.bed.tar.gz", "allTFs.pos.bed", "data")
    }
    check(
        build(bundle, written(tmp_path / "bins.bed.gz", bed.read_bytes(), packed=True)),
        world,
    )


def test_archives_that_are_cut_or_lack_a_file_are_refused(bundle, build, tmp_path):
    archive = tmp_path / "bundle.tar.gz"
    with tarfile.open(archive, "w:gz", compresslevel=1) as tar:
        tar.add(bundle / "deepsea_train" / "train.mat", "train.mat")
    raw = archive.read_bytes()
    for content in (raw, raw[: len(raw) // 2], b"something else" * 100):
        archive.write_bytes(content)
        with fails(DataError):
            build(archive)
    with fails(DataError):
        build(tmp_path / "none.tar.gz")
    assert not (tmp_path / "data").exists()


def interleaved(array: np.ndarray) -> np.ndarray:
    return array[np.arange(200).reshape(2, 100).T.ravel()]


def with_many_channels(array: np.ndarray) -> np.ndarray:
    array = array.copy()
    array[3, :, 0] = array[103, :, 999] = 1
    return array


def with_first_label(
    change: Callable[[int], int],
) -> Callable[[np.ndarray], np.ndarray]:
    def changed(array: np.ndarray) -> np.ndarray:
        array = array.copy()
        array[0, 4] = change(int(array[0, 4]))
        return array

    return changed


# What becomes of arrays; None: they are missing.
CHANGES: list[dict[str, Callable[[np.ndarray], np.ndarray] | None]] = [
    {"trainxdata": None},
    {"testdata": None},
    {"trainxdata": lambda array: array.transpose(2, 1, 0)},
    {"validxdata": lambda array: array.transpose(0, 2, 1)},
    {"traindata": np.transpose},
    {"testdata": np.transpose},
    {"testdata": lambda array: array[:599]},
    {"validxdata": lambda array: array[:, :, :999]},
    {"validxdata": lambda array: array[:, 0]},
    {"validdata": lambda array: array[:, :12]},
    {"testxdata": lambda array: array[:-1], "testdata": lambda array: array[:-1]},
    {"validxdata": interleaved, "validdata": interleaved},
    {"trainxdata": lambda array: array[:, [0, 2, 1, 3]]},  # A C G T
    {"validxdata": with_many_channels},
    {"testdata": with_first_label(lambda label: 2)},
]


@pytest.mark.parametrize("changes", CHANGES)
def test_a_bundle_of_another_form_is_refused(matrices, build, tmp_path, changes):
    content = {
        name: array if name not in changes else changes[name](array)
        for name, array in matrices.items()
        if changes.get(name, array) is not None
    }
    with fails(DataError) as error:
        build(write_bundle(tmp_path / "bundle", content))
    assert "\n" not in str(error.value)
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("name", ["train.mat", "valid.mat", "test.mat"])
def test_missing_truncated_and_other_files_are_refused(bundle, build, tmp_path, name):
    directory = shutil.copytree(bundle / "deepsea_train", tmp_path / "bundle")
    raw = (directory / name).read_bytes()
    for content in (raw[: len(raw) * 2 // 3], b"<html>" * 99, None):
        (directory / name).unlink()
        if content is not None:
            (directory / name).write_bytes(content)
        with fails(DataError, name):
            build(directory)


@pytest.mark.parametrize("moved", [True, False])
def test_a_reference_of_other_bases_is_refused(world, bundle, bed, tmp_path, moved):
    sequences = {
        name: "N" * moved + sequence.upper()
        for name, sequence in world.sequences.items()
    }
    base = sequences["chr8"][500]
    sequences["chr8"] = (
        sequences["chr8"][:500]
        + ("A" if base != "A" else "C")
        + sequences["chr8"][501:]
    )
    write_fasta(tmp_path / "other.fa.gz", sequences.items())
    named = (
        ("train.mat: window 1 (chr1:-400-600, 0-based)", "first in base 401")
        if moved
        else ()
    )
    with (
        Reference(tmp_path / "other.fa.gz") as reference,
        fails(DataError, reference.path, *named),
    ):
        build_deepsea(tmp_path / "data", bundle, bed, reference, HUMAN, TRACKS)


@pytest.mark.parametrize(
    "change",
    [
        lambda bins: bins[:500],
        lambda bins: bins[750:] + bins[:750],
        lambda bins: bins[:-1],
        lambda bins: [*bins, ("chr7", 0)],
        lambda bins: [*bins, ("chr9", 9_900)],
        lambda bins: bins[1:600] + bins[:1] + bins[600:],
    ],
)
def test_other_bins_are_refused(world, bundle, build, tmp_path, change):
    with fails(DataError):
        build(bundle, write_bed(tmp_path / "other.bed", change(world.bins)))
