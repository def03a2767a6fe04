"""Promoter data sets: their windows, pairs and files, and negatives that are made of a promoter."""

import gzip
import hashlib
from collections import Counter
from collections.abc import Callable
from itertools import pairwise, permutations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigbird_dna.baselines.kmers import KmerLogistic
from bigbird_dna.config import load_config
from bigbird_dna.data.predictions import EXTRA_NEGATIVES, POSITIVE
from bigbird_dna.data.promoter_windows import (
    PARTS,
    permute,
    prepare_windows,
    read_windows,
    shuffle_dinucleotides,
    substitute,
    window_sequences,
)
from bigbird_dna.errors import DataError
from bigbird_dna.genome.reference import Reference
from bigbird_dna.metrics.auroc import auroc
from tests.golden.messages import fails
from tests.tiny_run import MOTIF, UPSTREAM

dna = st.text("ACGTN", min_size=PARTS, max_size=300)


seeds = st.integers(0, 2**32)


def _parts(sequence: str) -> list[str]:
    size = len(sequence) // PARTS
    return [sequence[i * size : (i + 1) * size] for i in range(PARTS)]


@given(dna, seeds)
def test_permuted_keeps_eight_parts_in_place_and_all_parts_somewhere(sequence: str, seed: int) -> None:
    result = permute(sequence, np.random.default_rng(seed))
    assert len(result) == len(sequence)
    assert sorted(_parts(result)) == sorted(_parts(sequence))
    kept = sum(a == b for a, b in zip(_parts(result), _parts(sequence), strict=True))
    assert kept >= 8
    rest = len(sequence) // PARTS * PARTS
    assert result[rest:] == sequence[rest:]


@given(dna, seeds)
def test_substituted_changes_at_most_twelve_parts(sequence: str, seed: int) -> None:
    result = substitute(sequence, np.random.default_rng(seed))
    assert len(result) == len(sequence)
    assert sum(a != b for a, b in zip(_parts(result), _parts(sequence), strict=True)) <= 12


def test_substituted_parts_are_uniform_bases() -> None:
    result = substitute("N" * 100_000, np.random.default_rng(1))
    counts = np.array([result.count(base) for base in "ACGT"])
    assert counts.sum() == 60_000 and np.allclose(counts / 60_000, 0.25, atol=0.01)


def test_a_window_shorter_than_its_parts_is_refused() -> None:
    with fails(ValueError):
        permute("ACGT", np.random.default_rng(0))


@pytest.mark.parametrize(("change", "known"), [(substitute, 0.97), (permute, 0.59)])
def test_a_regression_on_4_mers_tells_random_bases_but_hardly_another_order(
    shared_data: Path, change: Callable[[str, np.random.Generator], str], known: float
) -> None:
    """2,929 human TATA promoters of 300 bp; a fifth of them, with their negatives, is the test."""
    with gzip.open(shared_data / "epdnew/Hs_TATA_300bp.txt.gz", "rt") as stream:
        promoters = stream.read().split()
    assert len(promoters) == 2929 and {len(one) for one in promoters} == {300}
    rng = np.random.default_rng(1)
    promoters = rng.permutation(promoters).tolist()
    test, train = promoters[: len(promoters) // 5], promoters[len(promoters) // 5 :]
    learnt, judged = (own + [change(one, rng) for one in own] for own in (train, test))
    labels = [np.repeat([1, 0], len(own)) for own in (train, test)]
    model = KmerLogistic(4, seed=1).fit(learnt, labels[0])
    assert auroc(labels[1], model.predict(judged)).value == pytest.approx(known, abs=0.03)


@given(st.text("ACGTN", max_size=200), st.integers(0, 2**32))
def test_a_shuffle_keeps_every_dinucleotide_and_both_ends(sequence: str, seed: int) -> None:
    found = shuffle_dinucleotides(sequence, np.random.default_rng(seed))
    assert Counter(pairwise(found)) == Counter(pairwise(sequence))
    assert Counter(found) == Counter(sequence)
    assert found[:1] == sequence[:1] and found[-1:] == sequence[-1:]


@pytest.mark.parametrize("sequence", ["ACACGAGTA", "AACCAACA", "ACGTACGA"])
def test_all_sequences_of_the_same_dinucleotides_are_equally_likely(sequence: str) -> None:
    wanted = Counter(pairwise(sequence))
    possible = {
        text
        for middle in set(permutations(sequence[1:-1]))
        if Counter(pairwise(text := sequence[0] + "".join(middle) + sequence[-1])) == wanted
    }
    assert len(possible) > 1
    rng, draws = np.random.default_rng(1), 200 * len(possible)
    found = Counter(shuffle_dinucleotides(sequence, rng) for _ in range(draws))
    assert set(found) == possible
    deviations = (np.array([found[text] for text in possible]) - 200) / np.sqrt(200)
    assert np.abs(deviations).max() < 4


def test_shuffled_windows_keep_their_promoter_s_dinucleotides(tiny_config: Path, tmp_path: Path) -> None:
    changes = [
        "promoters.windows.negative_sets=[dinucleotide_shuffled]",
        "promoters.shuffled_label_control=null",
    ]
    config = load_config(tiny_config, [*changes, "example_scan.negative_set=dinucleotide_shuffled"])
    prepare_windows(config, config.paths.reference, config.paths.promoters, tmp_path)
    data, genome = read_windows(tmp_path, "dinucleotide_shuffled"), Reference(config.paths.reference)
    texts = window_sequences(genome, data.rows, config.seed)
    assert texts == window_sequences(genome, data.rows, config.seed) and len(set(texts)) == len(texts)
    promoters = dict(zip(data.rows["pair"][data.labels == 1], texts, strict=False))
    for pair, text in zip(data.rows["pair"], texts, strict=True):
        assert Counter(pairwise(text)) == Counter(pairwise(promoters[pair]))


def test_no_pair_is_parted_and_every_positive_has_its_negatives(tiny_config: Path) -> None:
    results = Path(load_config(tiny_config).results)
    rows = pd.read_parquet(results / "promoters/windows.parquet")
    assert (rows.groupby("pair")["split"].nunique() == 1).all()
    assert (rows.groupby("pair")["negative_set"].nunique() == 4).all()
    negatives = rows[rows["negative_set"] != POSITIVE].groupby(["split", "negative_set", "pair"])
    for (split, _), counts in negatives.size().groupby(["split", "negative_set"]):
        assert (counts == (2 if split == "train" else 1)).all()
    assert (rows["end"] - rows["start"] == 100).all()
    split_of = {"one": "train", "two": "valid", "three": "test"}
    assert (rows["contig"].map(split_of) == rows["split"]).all()


def test_whole_contigs_have_the_windows_that_they_always_had(tiny_config: Path) -> None:
    """Published figures are of such windows: an earlier version gave this checksum."""
    rows = pd.read_parquet(Path(load_config(tiny_config).results) / "promoters/windows.parquet")
    found = hashlib.sha256(rows.to_csv(index=False).encode()).hexdigest()
    assert found == "ecbe45184233024b84f2817538e12bad4e512c171b9723968762cb96da531213"


def test_extra_negatives_of_held_out_promoters_change_no_other(tiny_config: Path, tmp_path: Path) -> None:
    """Nothing else changes, and who doesn't ask for them doesn't meet them."""
    config = load_config(tiny_config, ["promoters.calibration.negatives=3"])
    reference = config.paths.reference
    prepare_windows(config, reference, config.paths.promoters, tmp_path)
    plain = pd.read_parquet(Path(config.results) / "promoters/windows.parquet")
    rows = pd.read_parquet(tmp_path / "windows.parquet")
    more = rows["split"].isin(EXTRA_NEGATIVES.values())
    pd.testing.assert_frame_equal(rows[~more].reset_index(drop=True), plain)
    held_out = plain[(plain["split"] != "train") & (plain["negative_set"] == POSITIVE)]
    for negative_set in config.promoters.windows.negative_sets:
        own = rows[more & (rows["negative_set"] == negative_set)]
        assert set(own["pair"]) == ({*held_out["pair"]} if negative_set != "upstream" else set())
        assert (own.groupby("pair").size() == 3).all()
        few, all_of_them = (read_windows(tmp_path, negative_set, further=asked) for asked in (False, True))
        assert not few.rows["split"].isin(EXTRA_NEGATIVES.values()).any()
        assert len(all_of_them.rows) == len(few.rows) + len(own) and not all_of_them.labels[-len(own) :].any()
    assert set(rows[more]["negative_set"]) >= {"genomic", "permuted"}
    contigs = {"valid-further": "two", "test-further": "three"}
    assert (rows[more]["contig"] == rows[more]["split"].map(contigs)).all()
    # No two of a promoter are the same, and the first is that of a data set without further ones.
    data = read_windows(tmp_path, "permuted", further=True)
    sequences = np.array(window_sequences(Reference(reference), data.rows, config.seed))
    first = read_windows(Path(config.results) / "promoters", "permuted")
    kept = ~data.rows["split"].isin(EXTRA_NEGATIVES.values()).to_numpy()
    assert sequences[kept].tolist() == window_sequences(Reference(reference), first.rows, config.seed)
    owned = data.rows["pair"].isin(held_out["pair"])
    assert (pd.Series(sequences[owned]).groupby(data.rows["pair"][owned].to_numpy()).nunique() == 5).all()


def test_sequences_are_in_transcription_order_and_the_same_each_time(tiny_config: Path) -> None:
    results = Path(load_config(tiny_config).results)
    reference = Reference(results / "genome/reference.fa.gz")
    for negative_set in ("substituted", "permuted"):
        data = read_windows(results / "promoters", negative_set)
        first, second = (window_sequences(reference, data.rows, 1) for _ in range(2))
        assert first == second != window_sequences(reference, data.rows, 2)
        negatives = [s for s, label in zip(first, data.labels, strict=True) if not label]
        assert len(set(negatives)) == len(negatives)
        for sequence, label in zip(first, data.labels, strict=True):
            if label:
                assert sequence[UPSTREAM - len(MOTIF) : UPSTREAM] == MOTIF
        assert set(data.rows["strand"]) == {"+", "-"}


def test_missing_damaged_and_absent_sets_are_named(tiny_config: Path, tmp_path: Path) -> None:
    source = Path(load_config(tiny_config).results) / "promoters"
    with fails(DataError):
        read_windows(tmp_path, "genomic")
    for name in ("windows.parquet", "labels.npz"):
        (tmp_path / name).write_bytes((source / name).read_bytes())
    rows = pd.read_parquet(source / "windows.parquet")
    rows["negative_set"] = rows["negative_set"].where(rows["negative_set"] == POSITIVE, "genomic")
    rows.to_parquet(tmp_path / "windows.parquet")
    with fails(DataError):
        read_windows(tmp_path, "permuted")
    (tmp_path / "windows.parquet").write_bytes(b"PAR1")
    with fails(DataError):
        read_windows(tmp_path, "genomic")
