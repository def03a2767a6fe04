"""Nearest training windows of data sets, the baseline that goes by them, and splits without relatives."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from bigbird_dna.baselines.windows import NearestWindow, TextWindows
from bigbird_dna.config.reading import load_config, parse_config
from bigbird_dna.config.run import Config
from bigbird_dna.data.predictions import EXTRA_NEGATIVES
from bigbird_dna.data.promoter_windows import (
    prepare_windows,
    read_windows,
    window_sequences,
)
from bigbird_dna.errors import ConfigError, DataError
from bigbird_dna.finetuning.similar import drop_similar_bins
from bigbird_dna.genome.assembly import load_assembly
from bigbird_dna.genome.chromatin.dataset import ChromatinData, read_dataset
from bigbird_dna.genome.promoters import prepare_promoters, write_loci
from bigbird_dna.genome.reference import Reference, prepare_reference, write_fasta
from bigbird_dna.genome.sequence import Locus, reverse_complement
from bigbird_dna.genome.similarity import Pairs, alignment_scores
from tests.conftest import REPOSITORY
from tests.data.test_leaks import (
    by_split,
    crossing_copies,
    crossing_overlaps,
    crossing_pairs,
    whole_splits,
)
from tests.genome.test_records import mutated
from tests.golden.messages import fails
from tests.toys import label_bins

LENGTH, SPACING = 200, 400
SETS = ("substituted", "permuted", "genomic")
BIN, WINDOW = 40, 200


def settings(**splits: Any) -> Config:
    windows = {
        "upstream": 120,
        "downstream": 80,
        "negatives": 2,
        "min_tss_distance": 20,
    }
    return parse_config(
        {
            "genome": {"valid": ["two"], "test": ["three"]},
            "splits": splits,
            "promoters": {"windows": windows, "training": {"crop_jitter_bp": 0}},
            "chromatin": {"evaluation": {"test_bins": 60}},
        }
    )


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A genome whose held-out contigs have relatives in the training: a copy, a turned one, an old one."""
    home = tmp_path_factory.mktemp("related")
    rng = np.random.default_rng(8)
    one, two, three = (
        "".join(rng.choice(list("ACGT"), size)) for size in (24_000, 8_000, 8_000)
    )
    three = three[:1000] + one[5000:5600] + three[1600:]
    three = three[:3000] + reverse_complement(one[9000:9600]) + three[3600:]
    old = mutated(one[12_000:12_600], 0.1, rng)
    two = two[:2000] + old + two[2000 + len(old) :]
    write_fasta(
        home / "reference.fa.gz", [("one", one), ("two", two), ("three", three)]
    )
    # A window of a locus at p on "+" is [p - 120, p + 80).
    loci = [
        Locus(contig, position, "+", f"{contig}{position}")
        for contig, size in (("one", 24_000), ("two", 8_000), ("three", 8_000))
        for position in range(SPACING // 2, size - SPACING, SPACING)
    ]
    loci.append(
        Locus("one", 9240, "+", "turned")
    )  # [9120, 9320), which is three's [3280, 3480) turned
    write_loci(
        home / "loci.tsv",
        sorted(loci, key=lambda locus: (locus.contig, locus.position)),
    )
    prepare_windows(
        settings(), home / "reference.fa.gz", home / "loci.tsv", home / "windows"
    )
    peaks = rng.integers(0, 23_000, 120)
    lines = [f"one\t{at}\t{at + 40}\n" for at in np.sort(peaks)]
    lines += [
        f"{name}\t{at}\t{at + 40}\n"
        for name in ("two", "three")
        for at in range(500, 7500, 600)
    ]
    (home / "a.bed").write_text("".join(lines))
    (home / "b.bed").write_text("".join(lines[::2]))
    beds = {name: home / f"{name}.bed" for name in "ab"}
    label_bins(home, beds, "two", "three", window=WINDOW, negatives=0.4)
    return home


def test_ties_share_their_labels_and_without_a_neighbor_the_share_of_all_is_predicted() -> (
    None
):
    rng = np.random.default_rng(1)
    a, b, c = ("".join(rng.choice(list("ACGT"), 90)) for _ in range(3))
    learned = TextWindows(
        [a, reverse_complement(a), b, c], [[1, 0], [0, 0], [1, 1], [0, 1]]
    )
    model = NearestWindow().fit(learned)
    values = model.predict([a, b[:45] + "N" * 45, "N" * 90, "AC"])
    np.testing.assert_allclose(values, [[0.5, 0], [1, 1], [0.5, 0.5], [0.5, 0.5]])
    half = model.predict([c[:45] + "".join(rng.choice(list("ACGT"), 45))])[0]
    assert 0.2 < half[0] < 0.26 and 0.74 < half[1] < 0.8
    one = Pairs(np.array([1]), np.array([2]), np.array([False]), np.array([0.4]))
    learned = TextWindows([a, b, c, c], [[1], [0], [1], [1]])
    np.testing.assert_allclose(
        NearestWindow().fit(learned).predict_pairs(one, 2), [[0.75], [0.4 + 0.6 * 0.75]]
    )
    balanced = NearestWindow(balanced=True).fit(learned)
    np.testing.assert_allclose(balanced.predict_pairs(one, 2), [[0.5], [0.7]])


# Splits without relatives.


def most_similar(held_out: list[str], training: list[str]) -> float:
    """The largest similarity of any pair on either strand: every one is aligned."""
    best = 0.0
    for query in held_out:
        for text in (query, reverse_complement(query)):
            scores = alignment_scores([text] * len(training), training)
            best = max(best, scores.max() / len(query))
    return best


def scan_promoters(
    home: Path, directory: Path, threshold: float | None, step: int = 1
) -> None:
    """No pair, no overlapping window and, with a threshold, no near-duplicate crosses a split."""
    rows = pd.read_parquet(directory / "windows.parquet")
    rows["split"] = whole_splits(rows)
    assert crossing_pairs(rows) == [] and crossing_overlaps(rows) == []
    if threshold is None:
        return
    for negative_set in SETS:
        data = read_windows(directory, negative_set, further=True)
        texts = window_sequences(Reference(home / "reference.fa.gz"), data.rows, 1)
        assert crossing_copies(by_split(data.rows, texts)) == 0
        training = (data.rows["split"] == "train").to_numpy()
        held_out = [texts[row] for row in np.flatnonzero(~training)[::step]]
        assert (
            most_similar(held_out, [texts[row] for row in np.flatnonzero(training)])
            < threshold
        )


def test_no_relative_of_a_promoter_window_crosses_a_split(
    home: Path, tmp_path: Path
) -> None:
    config, before = settings(max_train_test_similarity=0.4), home / "windows"
    scan_promoters(home, before, None)
    prepare_windows(
        config, home / "reference.fa.gz", home / "loci.tsv", tmp_path / "kept"
    )
    scan_promoters(home, tmp_path / "kept", 0.4, step=7)
    whole, kept = (
        pd.read_parquet(path / "windows.parquet")
        for path in (before, tmp_path / "kept")
    )
    info = json.loads((tmp_path / "kept/windows.json").read_text())
    similarity, left_out = (
        info["similarity"],
        info["training windows left out for likeness"],
    )
    promoters = info["training promoters like a held-out window"]
    assert similarity == 0.4 and left_out == len(whole) - len(kept) and promoters >= 3
    # Test and validation are the same, and so are the windows of training that are kept.
    key = ["contig", "start", "end", "negative_set", "pair"]
    gone = whole.merge(kept[key].drop_duplicates(), how="left", on=key, indicator=True)
    gone = gone[gone["_merge"] == "left_only"]
    assert set(gone["split"]) == {"train"}
    assert {5280, 9120, 12_080} <= set(
        gone[gone["negative_set"] == "positive"]["start"]
    )
    assert len(gone[gone["negative_set"] == "positive"]) < 12
    orphans = kept[
        kept["negative_set"].isin(["substituted", "permuted"])
        & (kept["split"] == "train")
    ]
    assert set(orphans["pair"]) <= set(kept[kept["negative_set"] == "positive"]["pair"])
    assert (orphans.groupby(["pair", "negative_set"]).size() == 2).all()
    reference = Reference(home / "reference.fa.gz")
    for negative_set in SETS:
        texts = [
            set(
                zip(
                    data.rows["pair"],
                    window_sequences(reference, data.rows, 1),
                    strict=True,
                )
            )
            for data in (
                read_windows(path, negative_set) for path in (before, tmp_path / "kept")
            )
        ]
        assert texts[1] < texts[0]


def bin_texts(home: Path, data: ChromatinData, rows: np.ndarray) -> list[str]:
    reference = Reference(home / "reference.fa.gz")
    return [reference.fetch(window) for window in data.windows(WINDOW, rows)]


def test_no_relative_of_a_bin_crosses_a_split(home: Path, tmp_path: Path) -> None:
    before = read_dataset(home / "data")
    told = drop_similar_bins(
        home / "data", home / "reference.fa.gz", tmp_path / "kept", 0.4, window=WINDOW
    )
    data = read_dataset(tmp_path / "kept")
    assert (
        data.info["similar"]
        == told
        == {"similarity": 0.4, "window": WINDOW, "left_out": told["left_out"]}
    )
    assert told["left_out"] == len(before) - len(data) > 15
    for split in ("valid", "test"):
        rows, former = data.rows(split), before.rows(split)  # type: ignore[arg-type]
        assert len(rows) == len(former)
        assert np.array_equal(data.labels.rows(rows), before.labels.rows(former))
    assert data.tracks[0].name == before.tracks[0].name
    training, held_out = (
        data.rows("train"),
        np.flatnonzero(data.bins["split"] != "train"),
    )
    assert (
        most_similar(
            bin_texts(home, data, held_out[::40]), bin_texts(home, data, training)
        )
        < 0.4
    )
    reaching = data.bins.assign(
        start=data.bins["start"] - 83, end=data.bins["end"] + 83
    )
    assert crossing_overlaps(reaching) == []


@pytest.mark.parametrize(
    ("similarity", "error"), [(0.0, ConfigError), (1.5, ConfigError), (0.01, DataError)]
)
def test_wrong_similarities(
    home: Path, tmp_path: Path, similarity: float, error: type[Exception]
) -> None:
    reference, kept = home / "reference.fa.gz", tmp_path / "kept"
    if error is DataError:
        with fails(error, f"{similarity:g}"):
            drop_similar_bins(home / "data", reference, kept, similarity, window=WINDOW)
    with fails(error):
        config = settings(max_train_test_similarity=similarity)
        prepare_windows(config, reference, home / "loci.tsv", kept)
    assert not (tmp_path / "kept").exists()


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_promoters_of_yeast_have_few_relatives_in_the_training(
    shared_data: Path, tmp_path: Path
) -> None:
    """On VII and XV: genes near telomeres, Ty elements, and genes that came in twos."""
    yeast, reference = shared_data / "yeast", tmp_path / "reference.fa.gz"
    assembly = load_assembly("sacCer3")
    prepare_reference(next(yeast.glob("Saccharomyces*.fa.gz")), reference, assembly)
    prepare_promoters(
        yeast / "Sc_EPDnew_002_sacCer3.sga", reference, tmp_path / "loci.tsv", assembly
    )
    changed = [
        "promoters.windows.negative_sets=[genomic]",
        "promoters.windows.negatives=1",
    ]
    changed.append("promoters.calibration.negatives=3")
    copies = []
    for similarity in ("null", "0.5"):
        overrides = [
            *changed,
            f"splits.max_train_test_similarity={similarity}",
        ]
        config = load_config(REPOSITORY / "workflow/config/yeast.yaml", overrides)
        windows = tmp_path / similarity
        prepare_windows(config, reference, tmp_path / "loci.tsv", windows)
        scan_promoters(tmp_path, windows, None)
        data = read_windows(windows, "genomic", further=True)
        assert data.rows["split"].isin(EXTRA_NEGATIVES.values()).any()
        copies.append(
            crossing_copies(
                by_split(
                    data.rows, window_sequences(Reference(reference), data.rows, 1)
                )
            )
        )
    # As other eyes see it, which count words and align nothing.
    assert copies[0] > 10 and copies[1] == 0
