"""Negatives that keep dinucleotides, and negatives from upstream of promoters."""

import json
from collections import Counter
from itertools import pairwise, permutations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigbird_dna.config import load_config
from bigbird_dna.data.negatives import FURTHEST, find_upstream, shuffle_dinucleotides
from bigbird_dna.data.predictions import POSITIVE
from bigbird_dna.data.promoter_windows import prepare_windows, read_windows, window_sequences
from bigbird_dna.genome.promoters import read_loci
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import Interval, window_around
from tests.toys import random_dna

SIZE = 20


# Dinucleotides


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


def test_a_long_sequence_comes_out_in_another_order() -> None:
    sequence = random_dna(2000, 1)
    found = shuffle_dinucleotides(sequence, np.random.default_rng(1))
    assert np.mean([a == b for a, b in zip(found, sequence, strict=True)]) < 0.35
    assert found != shuffle_dinucleotides(sequence, np.random.default_rng(2))


# Upstream


def overlaps(one: Interval, other: Interval) -> bool:
    return one.contig == other.contig and one.start < other.end and other.start < one.end


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 600), st.sampled_from("+-")), max_size=12),
    st.integers(0, 300),
)
def test_a_negative_is_the_nearest_free_window_upstream(
    places: list[tuple[str, int, str]], left_of: int
) -> None:
    promoters = [Interval(contig, start, start + SIZE, strand) for contig, start, strand in places]
    owners = [one for one in promoters if one.contig == "a"] * 2

    def usable(owner: Interval, negative: Interval) -> bool:
        return negative.start >= 0 and negative.end <= 700 and not negative.start < left_of < negative.end

    found = find_upstream(owners, promoters, usable)
    taken = list(promoters)
    for owner, negative in zip(owners, found, strict=True):
        # By trying all places, the nearest first.
        ahead = range(owner.start - SIZE, -1, -1) if owner.strand == "+" else range(owner.end, 700)
        free = (
            window
            for start in ahead
            if not any(overlaps(window := Interval("a", start, start + SIZE, owner.strand), t) for t in taken)
        )
        if negative is None:
            continue
        assert negative.strand == owner.strand and len(negative) == SIZE and usable(owner, negative)
        assert not any(overlaps(negative, other) for other in taken)
        nearest = next(free)
        assert usable(owner, nearest) is False or negative == nearest
        taken.append(negative)


def test_a_promoter_far_from_any_free_window_has_none() -> None:
    owner = Interval("a", 2 * FURTHEST, 2 * FURTHEST + SIZE, "+")
    crowd = [
        Interval("a", start, start + SIZE, "-") for start in range(FURTHEST - 3 * SIZE, owner.start, SIZE)
    ]
    assert find_upstream([owner], [owner, *crowd], lambda *_: True) == [None]
    (found,) = find_upstream([owner], [owner, *crowd[SIZE:]], lambda *_: True)
    assert found is not None and owner.start - found.end <= FURTHEST


@pytest.mark.parametrize("valid", ["two", "two:1-6,000"])
def test_windows_of_both_sets(tiny_config: Path, tmp_path: Path, valid: str) -> None:
    changes = (
        "promoters.windows.negative_sets=[dinucleotide_shuffled, upstream]",
        f"genome.valid=['{valid}']",
    )
    config = load_config(
        tiny_config, [*changes, "promoters.shuffled_label_control=null", "example_scan.negative_set=upstream"]
    )
    reference, promoters = config.paths.reference, config.paths.promoters
    prepare_windows(config, reference, promoters, tmp_path / "windows")
    genome = Reference(reference)
    shuffled = read_windows(tmp_path / "windows", "dinucleotide_shuffled")
    texts = window_sequences(genome, shuffled.rows, config.seed)
    assert texts == window_sequences(genome, shuffled.rows, config.seed)
    whole = {
        pair: text
        for pair, kind, text in zip(shuffled.rows["pair"], shuffled.rows["negative_set"], texts, strict=True)
        if kind == POSITIVE
    }
    for pair, text in zip(shuffled.rows["pair"], texts, strict=True):
        assert Counter(pairwise(text)) == Counter(pairwise(whole[pair]))
    assert len(set(texts)) == len(texts)
    upstream = read_windows(tmp_path / "windows", "upstream").rows
    sides = config.promoters.windows.sides
    around = [window_around(locus, *sides) for locus in read_loci(promoters)]
    rows = upstream[upstream["negative_set"] == "upstream"]
    assert set(rows["split"]) == {"train", "valid", "test"} and len(rows) > 20
    assert not rows.duplicated(["contig", "start"]).any()
    own = upstream[upstream["negative_set"] == POSITIVE].set_index("pair")
    for row in rows.itertuples():
        window = Interval(row.contig, row.start, row.end, row.strand)
        assert not any(overlaps(window, promoter) for promoter in around)
        pair = own.loc[row.pair]
        assert (row.contig, row.strand, row.split) == (pair["contig"], pair["strand"], pair["split"])
        assert row.end <= pair["start"] if row.strand == "+" else row.start >= pair["end"]
        if valid != "two" and row.contig == "two":
            assert row.start >= 6000 if row.split == "train" else row.end <= 6000


def test_every_promoter_has_a_first_negative_before_any_has_a_second(
    tiny_config: Path, tmp_path: Path
) -> None:
    few, many = (
        load_config(
            tiny_config,
            ["promoters.windows.negative_sets=[upstream]", f"promoters.windows.negatives={number}"],
        )
        for number in (1, 4)
    )
    found = []
    for config in (few, many):
        home = tmp_path / str(config.promoters.windows.negatives)
        prepare_windows(config, config.paths.reference, config.paths.promoters, home)
        rows = read_windows(home, "upstream").rows.query("negative_set == 'upstream'")
        found.append(set(rows.drop_duplicates("pair")[["pair", "start"]].itertuples(index=False, name=None)))
    assert found[0] == found[1]


def test_promoters_without_room_upstream_stay_and_are_counted_in_one_warning(
    tiny_config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changes = ["promoters.windows.negative_sets=[upstream]", "promoters.windows.negatives=60"]
    config = load_config(tiny_config, changes)
    prepare_windows(config, config.paths.reference, config.paths.promoters, tmp_path)
    missing = json.loads((tmp_path / "windows.json").read_text())["upstream negatives not found"]
    rows = read_windows(tmp_path, "upstream").rows
    promoters = rows[rows["negative_set"] == POSITIVE]
    wanted = int(promoters["split"].map({"train": 60, "valid": 1, "test": 1}).sum())
    assert missing == wanted - (len(rows) - len(promoters)) > 0
    bare = set(promoters["pair"]) - set(rows[rows["negative_set"] == "upstream"]["pair"])
    (warning,) = [line for line in capsys.readouterr().err.splitlines() if "warning" in line]
    assert f"no place for {missing:,} of {wanted:,} upstream negatives: no window without" in warning
    assert f"{len(bare):,} of {len(promoters):,} promoters have none, and stay" in warning
