"""Data sets are built from peaks as counting base by base says, and read back or refused."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from bigbird_dna.config.chromatin import ChromatinDataConfig
from bigbird_dna.disk.directories import MARKER
from bigbird_dna.errors import DataError
from bigbird_dna.genome.assembly import load_assembly
from bigbird_dna.genome.chromatin.dataset import (
    ChromatinData,
    build_dataset,
    read_dataset,
)
from bigbird_dna.genome.chromatin.labels import PackedLabels
from bigbird_dna.genome.chromatin.track import Track
from bigbird_dna.genome.chromatin.tracks import read_tracks, tracks_from_folder
from bigbird_dna.genome.reference import Reference, prepare_reference, write_fasta
from bigbird_dna.model.directory import save
from bigbird_dna.model.settings import ChromatinSettings, NamedTrack
from tests.cli.command import Run, refused
from tests.golden.messages import fails, message
from tests.simulate.test_simulate import covered, read_peaks
from tests.toys import (
    MOTIFS,
    random_model,
    region_splits,
    small_encoder,
    small_tokenizer,
    write_motif_genome,
    written,
)

DEMO = load_assembly("demo")


def rows_of(data: ChromatinData) -> dict[tuple[str, int], tuple[str, tuple[int, ...]]]:
    places = zip(data.bins["contig"], data.bins["start"], strict=True)
    labels = map(tuple, data.labels.rows().tolist())
    return dict(zip(places, zip(data.bins["split"], labels, strict=True), strict=True))


@pytest.fixture(scope="module")
def demo_out(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("chromatin") / "data"


@pytest.fixture(scope="module")
def demo_data(demo, demo_out) -> ChromatinData:
    reference = Reference(demo.directory / "genome.fa.gz")
    splits = region_splits(
        reference.contigs, DEMO, valid=["demo2:20,001-60,000"], test=["demo3"]
    )
    tracks = read_tracks(demo.directory / "tracks.tsv")
    settings = ChromatinDataConfig(window=4000, max_n=1.0, min_positives_train=1)
    return build_dataset(demo_out, reference, DEMO, tracks, splits, settings)


def test_labels_agree_with_counting_bases(demo, demo_data):
    peaks = [
        read_peaks(demo, track.name)
        for track in read_tracks(demo.directory / "tracks.tsv")
    ]
    expected = {}
    for contig, sequence in demo.sequences.items():
        bins = len(sequence) // 200
        masks = [covered(len(sequence), own[contig])[: bins * 200] for own in peaks]
        labels = np.array(
            [mask.reshape(bins, 200).sum(axis=1) > 100 for mask in masks]
        ).T
        for number in np.flatnonzero(labels.any(axis=1)):
            start = int(number) * 200
            split = "test" if contig == "demo3" else "train"
            if contig == "demo2":
                # The windows of held-out bins reach 1,900 bp beyond the region.
                if start >= 20_000 and start + 200 <= 60_000:
                    split = "valid"
                elif start - 1_900 < 61_900 and start + 2_100 > 18_100:
                    continue
            expected[contig, start] = (
                split,
                tuple(labels[number].astype(int).tolist()),
            )
    assert rows_of(demo_data) == expected
    assert demo_data.info["dropped_bins"]["gap"] > 0


def test_rows_are_sorted_and_described_and_in_the_middle_of_windows(
    demo, demo_data, demo_out
):
    order = list(demo.sequences)
    places = [
        (order.index(c), s) for c, s in demo_data.bins[["contig", "start"]].values
    ]
    assert places == sorted(places)
    for split in ("train", "valid", "test"):
        rows = demo_data.rows(split)
        assert demo_data.info["bins"][split] == len(rows) > 0
        table = pd.read_csv(demo_out / "tracks.tsv", sep="\t")
        counted = table[f"positives_{split}"].tolist()
        assert counted == demo_data.labels.rows(rows).sum(axis=0).tolist()
    source = demo_data.info["sources"]["tracks"]["ALFA"]
    assert source["file"] == "ALFA.narrowPeak.gz"
    assert len(source["sha256"]) == 64
    assert demo_data.info["regions"]["valid"] == ["demo2:20001-60000"]
    (window,) = demo_data.windows(8000, [5])
    start = int(demo_data.bins["start"].iloc[5])
    assert (window.start, window.end) == (start - 3900, start + 4100)
    assert len(demo_data.windows(1000)) == len(demo_data)


class Small:
    """A genome of two contigs with N and a few peaks."""

    def __init__(self, directory: Path) -> None:
        rng = np.random.default_rng(4)
        a, b = ("".join(rng.choice(list("ACGT"), length)) for length in (10_050, 4_000))
        a = a[:3_000] + "N" * 1_000 + a[4_000:]
        self.directory = directory
        write_fasta(directory / "genome.fa", [("a", a), ("b", b)])
        self.reference = Reference(directory / "genome.fa")
        self.splits = region_splits(self.reference.contigs, DEMO, test=["b"])

    def track(self, name: str, text: str) -> Track:
        path = self.directory / f"{name}.bed"
        path.write_text(text)
        return Track(name, "TF", file=path)

    def build(self, *tracks: Track, **options: object) -> ChromatinData:
        splits = options.pop("splits", self.splits)
        settings = {"window": 1000, "max_n": 1.0, "min_positives_train": 1} | options
        more = {
            key: settings.pop(key) for key in ("seed", "blacklist") if key in settings
        }
        config = ChromatinDataConfig(**settings)
        out = self.directory / "data"
        return build_dataset(out, self.reference, DEMO, tracks, splits, config, **more)


@pytest.fixture
def small(tmp_path) -> Small:
    return Small(tmp_path)


def starts(data: ChromatinData, contig: str = "a") -> list[int]:
    return data.bins.loc[data.bins["contig"] == contig, "start"].tolist()


def test_one_base_peaks_are_widened(small):
    peaks = small.track("x", "a\t300\t301\na\t1000\t1001\na\t0\t1\nb\t3999\t4000\n")
    with fails(DataError):
        small.build(peaks)  # 1 bp is no half of a bin
    data = small.build(peaks, widen=100)
    # 200–401 covers bin 200 whole; 900–1101 has 100 bp of bin 800 and 101 of bin 1000; 0–101 has 101.
    assert starts(data) == [0, 200, 1000]
    assert starts(data, "b") == [
        3800
    ]  # 101 bp of the last bin, cut at the contig's end
    assert starts(small.build(peaks, label="any", widen=100)) == [
        0,
        200,
        400,
        800,
        1000,
    ]


def test_windows_with_many_n_are_dropped(small):
    peaks = small.track("x", "a\t0\t10000\nb\t0\t4000\n")
    data = small.build(peaks, max_n=0.1)
    kept = []
    for start in range(0, 10_001 - 200, 200):
        opens = start + 100 - 500
        unknown = sum(
            not 0 <= p < 10_050 or 3_000 <= p < 4_000
            for p in range(opens, opens + 1000)
        )
        if unknown <= 100:
            kept.append(start)
    assert starts(data) == kept
    assert (
        data.info["dropped_bins"]["too many N"] == 50 - len(kept) + 4
    )  # and two at each end of b


def test_blacklisted_bins_are_dropped(small):
    black = small.directory / "black.bed"
    black.write_text("a\t399\t601\nother\t5\t6\n")
    peaks = small.track("x", "a\t0\t1000\nb\t0\t1000\n")
    data = small.build(peaks, blacklist=black)
    assert starts(data) == [0, 800]
    assert data.info["dropped_bins"]["blacklist"] == 3
    assert data.info["sources"]["blacklist"]["unknown"] == 1


def test_bins_without_positives_are_sampled(small):
    peaks = small.track("x", "a\t0\t1000\nb\t0\t1000\n")
    assert len(small.build(peaks)) == 10
    everything = small.build(peaks, negative_fraction=1.0)
    assert len(everything) == 50 + 20
    some = small.build(peaks, negative_fraction=0.5)
    assert {row for row, (_, labels) in rows_of(some).items() if labels == (1,)} == {
        row for row, (_, labels) in rows_of(everything).items() if labels == (1,)
    }
    assert 22 < len(some) - 10 < 60 * 0.5 + 14
    assert rows_of(small.build(peaks, negative_fraction=0.5)) == rows_of(some)
    assert rows_of(small.build(peaks, negative_fraction=0.5, seed=1)) != rows_of(some)


def test_tracks_with_too_few_positives_are_left_out(small):
    good = small.track("good", "a\t0\t1000\nb\t0\t600\n")
    rare = small.track("rare", "a\t8000\t8400\nb\t0\t600\n")
    unseen = small.track("unseen", "a\t0\t1000\n")
    empty = small.track("empty", "")
    data = small.build(
        rare, good, unseen, empty, min_positives_train=3, min_positives_heldout=1
    )
    assert [track.name for track in data.tracks] == ["good"]
    assert starts(data) == [0, 200, 400, 600, 800]  # none of the bins of rare alone
    for name, entry in zip(
        ("rare", "unseen", "empty"), data.info["left_out"], strict=True
    ):
        assert entry["track"] == name
        message(entry["reason"])
    with fails(DataError):
        small.build(good, rare, min_positives_train=99)


def test_a_track_without_its_opposite_is_left_out(small):
    good = small.track("good", "a\t0\t1000\n")
    plus, minus = (
        small.track("plus", "a\t0\t1000\n"),
        small.track("minus", "a\t8000\t8400\n"),
    )
    pair = replace(plus, opposite="minus"), replace(minus, opposite="plus")
    data = small.build(good, *pair, min_positives_train=3)
    assert [track.name for track in data.tracks] == ["good"]
    assert [entry["track"] for entry in data.info["left_out"]] == ["plus", "minus"]
    for entry in data.info["left_out"]:
        message(entry["reason"])
    both = small.build(good, *pair, min_positives_train=1)
    assert both.tracks[1].opposite == "minus" and len(both.tracks) == 3


def test_a_held_out_region_without_bins_is_reported(small, capsys):
    splits = region_splits(small.reference.contigs, DEMO, valid=["a:1-100"], test=["b"])
    data = small.build(small.track("x", "a\t0\t9000\nb\t0\t900\n"), splits=splits)
    assert data.info["bins"]["valid"] == 0
    message(capsys.readouterr().err)


def test_the_same_input_gives_the_same_bytes(small, tmp_path):
    tracks = [
        small.track("x", "a\t0\t1000\n"),
        small.track("y", "a\t400\t5000\nb\t0\t700\n"),
    ]
    found = []
    for _ in range(2):
        small.build(*tracks, negative_fraction=0.3)
        found.append(
            {p.name: p.read_bytes() for p in (small.directory / "data").iterdir()}
        )
    assert found[0] == found[1]
    assert str(small.directory) not in json.dumps(json.loads(found[0]["dataset.json"]))


def test_peaks_that_lie_nowhere_are_refused(small):
    for tracks in ([small.track("x", "zz\t0\t1000\n")], [small.track("x", "")], []):
        with fails(DataError):
            small.build(*tracks)
    assert not (small.directory / "data").exists()


def test_incomplete_or_mixed_data_sets_are_refused(small):
    peaks = small.track("x", "a\t0\t1000\nb\t0\t900\n")
    small.build(peaks)
    directory = small.directory / "data"
    labels = (directory / "labels.npz").read_bytes()
    small.build(peaks, negative_fraction=1.0)
    assert len(read_dataset(directory)) == 70
    pd.DataFrame({"a": [1]}).to_parquet(small.directory / "other")
    others = [("labels.npz", labels), ("dataset.json", b"{}"), ("bins.parquet", b"no")]
    for name, content in [
        *others,
        ("bins.parquet", (small.directory / "other").read_bytes()),
    ]:
        whole = (directory / name).read_bytes()
        (directory / name).write_bytes(content)
        with fails(DataError):
            read_dataset(directory)
        (directory / name).write_bytes(whole)
    (directory / "bins.parquet").unlink()
    with fails(DataError):
        read_dataset(directory)


def test_yeast_and_human_peaks(shared_data, tmp_path):
    source, yeast = shared_data / "hg19", shared_data / "yeast"
    (tmp_path / "peaks").mkdir()
    for path in sorted((yeast / "peaks").glob("*_CX.bed.gz"))[:20]:
        (tmp_path / "peaks" / path.name).symlink_to(path)

    def build(genome, name, tracks, splits, **options):
        prepare_reference(genome, tmp_path / "x.fa.gz")
        reference, assembly = Reference(tmp_path / "x.fa.gz"), load_assembly(name)
        regions = region_splits(reference.contigs, assembly, **splits)
        return build_dataset(
            tmp_path / "data",
            reference,
            assembly,
            tracks,
            regions,
            ChromatinDataConfig(window=8000, max_n=0.1, **options),
        )

    tracks = tracks_from_folder(source / "peaks", "TF")
    assert len(tracks) == 109 and all(track.cell and track.target for track in tracks)
    splits = {"valid": ["22:19,000,001-20,000,000"], "test": ["22:20,500,001-"]}
    data = build(
        source / "chr22_1-22000000.fa.gz",
        "GRCh37",
        tracks,
        splits,
        min_positives_train=20,
    )
    assert 60 < len(data.tracks) < 80
    assert data.labels.positives(data.rows("train")).min() >= 20
    gap = data.bins.loc[data.bins["split"] == "train", "start"]
    assert not gap.between(18_992_200, 20_007_600).any()

    tracks = tracks_from_folder(tmp_path / "peaks", "TF", r"(?P<target>.+)_CX")
    splits = {"test": ["chrXVI"], "exclude": ["Mito"]}
    genome = next(yeast.glob("*toplevel.fa.gz"))
    data = build(genome, "sacCer3", tracks, splits, min_positives_train=1, widen=100)
    assert len(data.tracks) >= 15
    assert set(data.bins.loc[data.rows("test"), "contig"]) == {"XVI"}


# Packed labels are the labels.


def random_labels(rows: int, tracks: int, seed: int) -> np.ndarray:
    return (np.random.default_rng(seed).random((rows, tracks)) < 0.3).astype(np.uint8)


@given(st.integers(0, 40), st.integers(1, 30), st.integers(0, 2**16))
def test_packing_keeps_every_label(rows, tracks, seed):
    dense = random_labels(rows, tracks, seed)
    labels = PackedLabels.from_dense(dense)
    assert labels.shape == dense.shape
    assert labels.packed.shape == (rows, -(-tracks // 8))
    assert np.array_equal(labels.rows(), dense)
    assert np.array_equal(labels.positives(), dense.sum(axis=0))
    assert np.array_equal(labels.any(), dense.any(axis=1))
    marked = PackedLabels.empty(rows, tracks)
    for track in range(tracks):
        marked.mark(track, np.flatnonzero(dense[:, track]))
    assert np.array_equal(marked.packed, labels.packed)
    rng = np.random.default_rng(seed)
    index = rng.integers(0, rows, 7) if rows else np.zeros(0, np.intp)
    assert np.array_equal(labels.rows(index), dense[index])
    assert np.array_equal(labels.positives(index), dense[index].sum(axis=0))
    kept = labels.take(index)
    assert np.array_equal(kept.rows(), dense[index]) and kept.packed.flags.c_contiguous
    chosen = rng.permutation(tracks)[: rng.integers(0, tracks) + 1]
    assert np.array_equal(labels.select(chosen).rows(), dense[:, chosen])
    bits = dense[:, :8].astype(np.int64) @ 2 ** np.arange(
        min(tracks, 8)
    )  # counted from the lowest
    assert np.array_equal(labels.packed[:, 0], bits)


def test_a_file_holds_the_labels_and_is_the_same_every_time(tmp_path):
    labels = PackedLabels.from_dense(random_labels(1000, 13, 1))
    for name in ("a.npz", "b.npz"):
        labels.save(tmp_path / name)
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    back = PackedLabels.load(tmp_path / "a.npz", 1000)
    assert back.tracks == 13 and np.array_equal(back.packed, labels.packed)
    (tmp_path / "a.npz").write_bytes((tmp_path / "a.npz").read_bytes()[:-40])
    with fails(DataError):
        PackedLabels.load(tmp_path / "a.npz", 1000)


@pytest.mark.parametrize(
    "arrays",
    [
        None,
        {"packed": np.zeros((3, 1), np.uint8), "tracks": np.array(9)},
        {"labels": np.zeros((3, 1), np.uint8)},
    ],
)
def test_other_files_are_refused(tmp_path, arrays):
    path = written(tmp_path / "a.npz", "nothing of the kind")
    if arrays is not None:
        np.savez(path, **arrays)
    with fails(DataError):
        PackedLabels.load(path, 3)


# The commands that label bins, and predict test bins


LENGTHS = {"a": 9_000, "b": 30, "c": 4_000, "d": 5_000}
DATA = {
    **{"bin": 40, "window": 200, "shift_bp": 3, "max_n": 0.3, "negative_fraction": 0.4},
    **{
        "min_positives_train": 5,
        "min_positives_heldout": 1,
        "valid_regions": ["a:6001-7000"],
    },
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A configuration, `reference.fa.gz`, peaks with their table, a blacklist and two models."""
    home = tmp_path_factory.mktemp("label-shards")
    write_motif_genome(home, LENGTHS, spacing=110, gaps={"a": (3500, 3900)})
    (home / "peaks/none.bed").write_text("")
    (home / "peaks/rare.bed").write_text("a\t100\t180\n")
    names = [*MOTIFS, "none", "rare"]
    rows = "".join(
        f"{name}\tTF\t{'x' * (name == 'one')}\tpeaks/{name}.bed\n" for name in names
    )
    (home / "tracks.tsv").write_text(f"track\tgroup\tlab\tfile\n{rows}")
    (home / "bad.bed").write_text("a\t1000\t1400\nd\t0\t50\n")
    values = {
        "results": str(home / "results"),
        "seed": 7,
        "genome": {"valid": ["c"], "test": ["d"]},
        "chromatin": {
            "data": {**DATA, "tracks": str(home / "tracks.tsv")},
            "evaluation": {"test_bins": 50, "baseline_kmer": 4, "center_fraction": 0.6},
        },
    }
    (home / "config.yaml").write_text(yaml.safe_dump(values))
    tokenizer = small_tokenizer()
    config = small_encoder(tokenizer.vocabulary, max_length=160)
    tracks = tuple(NamedTrack(track=name, group="TF") for name in MOTIFS)
    settings = ChromatinSettings(
        window=200, bin=40, pooling="bin", bin_layers=0, members=1, tracks=tracks
    )
    for seed, name in enumerate(("first", "second")):
        save(
            home / name,
            random_model(tokenizer, config, settings, seed=seed, scale=4),
            {},
            {},
            {},
        )
    return home


@pytest.fixture
def label(run: Run, home: Path) -> Any:
    def call(output: Path, *more: object) -> Any:
        words = (
            "--reference",
            home / "reference.fa.gz",
            "--blacklist",
            home / "bad.bed",
            "-o",
            output,
        )
        return run("prepare chromatin", home / "config.yaml", *words, *more)

    return call


def files(directory: Path) -> dict[str, bytes]:
    return {
        path.name: path.read_bytes()
        for path in directory.iterdir()
        if path.name != MARKER
    }


def test_labels_are_those_of_the_files(label: Any, tmp_path: Path) -> None:
    assert label(tmp_path / "whole").code == 0
    whole = files(tmp_path / "whole")
    assert len(whole) == 4 and b'"blacklist": ' in whole["dataset.json"]
    assert label(tmp_path / "again").code == 0
    assert files(tmp_path / "again") == whole


def test_predictions_of_test_bins(
    run: Run, label: Any, home: Path, tmp_path: Path
) -> None:
    assert label(tmp_path / "data").code == 0
    models = home / "first", home / "second"
    inputs = ("--data", tmp_path / "data", "--reference", home / "reference.fa.gz")
    words = ("evaluate test-bins", home / "config.yaml", *models, *inputs, "-o")
    assert run(*words, tmp_path / "whole.npy").code == 0
    assert run(*words, tmp_path / "again.npy", "--batch-size", 3).code == 0
    assert (tmp_path / "again.npy").read_bytes() == (
        tmp_path / "whole.npy"
    ).read_bytes()
    refused(run(*words, tmp_path / "x.npy", "--precision", "float16"), 2, "float16")
    assert not (tmp_path / "x.npy").exists()
