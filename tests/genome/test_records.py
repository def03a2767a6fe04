"""Sequences of one's own: records that are windows, what is alike, and splits that keep it together."""

import resource
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigbird_dna.data.labeled_sequences import (
    divide,
    take_validation,
)
from bigbird_dna.genome import similarity as module
from bigbird_dna.genome.sequence import reverse_complement
from bigbird_dna.genome.similarity import distinct_kmers, similar_groups
from tests.toys import random_dna


def fasta(path: Path, **records: str) -> Path:
    path.write_text(
        "".join(
            f">{name} described\n{sequence}\n" for name, sequence in records.items()
        )
    )
    return path


@given(st.integers(0, 5), st.integers(0, 99))
def test_a_tenth_of_the_training_sequences_is_for_validation(
    seed: int, draw: int
) -> None:
    rng = np.random.default_rng(draw)
    groups = np.repeat(np.arange(150), rng.integers(1, 4, 150))
    positive = rng.integers(0, 2, len(groups))
    splits = ["test" if group % 5 == 0 else "train" for group in groups.tolist()]
    found = np.array(take_validation(list(splits), groups, positive, seed))
    assert ((found == "test") == (np.array(splits) == "test")).all()
    for label in (0, 1):
        share = (found[positive == label] == "valid").sum() / (
            np.array(splits)[positive == label] == "train"
        ).sum()
        assert 0.05 < share < 0.15
    held_out = {*groups[found == "valid"].tolist()}
    assert not held_out & {*groups[found != "valid"].tolist()}


# Splits by groups.


@given(
    st.lists(st.tuples(st.integers(0, 30), st.booleans()), min_size=60, max_size=200),
    st.integers(0, 5),
)
def test_groups_stay_whole_and_the_same_seed_gives_the_same_splits(
    rows: list[tuple[int, bool]], seed: int
) -> None:
    names = {
        group: number
        for number, group in enumerate(dict.fromkeys(group for group, _ in rows))
    }
    groups = np.array([names[group] for group, _ in rows])
    positive = np.array([label for _, label in rows], np.int64)
    splits = divide(groups, positive, seed)
    assert splits == divide(groups, positive, seed)
    found = {
        (group, split) for group, split in zip(groups.tolist(), splits, strict=True)
    }
    assert len(found) == len(names)


def test_both_classes_are_divided_by_eight_one_and_one() -> None:
    groups = np.concatenate(
        [np.arange(900), np.full(100, 900), np.arange(901, 901 + 3000)]
    )
    positive = (np.arange(4000) < 1000).astype(np.int64)
    counts = Counter(zip(divide(groups, positive, 1), positive.tolist(), strict=True))
    sizes = {"train": 800, "valid": 100, "test": 100}
    assert counts == {
        (split, label): size * (1 if label else 3)
        for split, size in sizes.items()
        for label in (True, False)
    }
    other = divide(groups, positive, 2)
    assert other != divide(groups, positive, 1)
    # A large family is trained on, and the test isn't the file's end.
    assert {
        split
        for split, group in zip(other, groups.tolist(), strict=True)
        if group == 900
    } == {"train"}
    test = [place for place, split in enumerate(other) if split == "test"]
    assert 0.4 < np.mean(test) / 4000 < 0.6


# What is alike, against a comparison of all pairs.


def oracle(sequences: list[str], threshold: float) -> list[int]:
    """The groups by all k-mers of all pairs, as sets of text."""
    k = 8 if min(map(len, sequences)) < 64 else 16
    sets = []
    for one in sequences:
        words = {one[i : i + k] for i in range(len(one) - k + 1)}
        sets.append(
            {min(word, reverse_complement(word)) for word in words if "N" not in word}
        )
    groups = list(range(len(sequences)))
    for i in range(len(sequences)):
        for j in range(i):
            shared, most = len(sets[i] & sets[j]), max(len(sets[i]), len(sets[j]))
            if shared and shared >= threshold * most - 1e-9 and groups[i] != groups[j]:
                groups = [
                    groups[j] if group == groups[i] else group for group in groups
                ]
    numbers = {group: number for number, group in enumerate(dict.fromkeys(groups))}
    return [numbers[group] for group in groups]


def family(rng: np.random.Generator, length: int, count: int) -> list[str]:
    """Shifted parts of a few sequences with changed bases, on either strand; some begin with a repeat."""
    sources = [rng.choice(list("ACGT"), 2 * length) for _ in range(3)]
    made = []
    for _ in range(count):
        start = int(rng.integers(0, length))
        part = sources[rng.integers(3)][start : start + length].copy()
        changed = rng.integers(0, length, int(rng.integers(0, 6)))
        part[changed] = rng.choice(list("ACGTN"), len(changed))
        text = "".join(part)
        if rng.random() < 0.3:
            text = ("AC" * length)[: length // 2] + text[length // 2 :]
        made.append(reverse_complement(text) if rng.random() < 0.5 else text)
    return made


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 10_000),
    st.sampled_from([20, 63, 64, 90]),
    st.sampled_from([0.05, 0.1, 0.2, 0.35, 0.5, 0.9, 1.0]),
)
def test_groups_are_those_of_a_comparison_of_all_pairs(
    seed: int, length: int, threshold: float
) -> None:
    sequences = family(np.random.default_rng(seed), length, 40)
    assert similar_groups(sequences, threshold).tolist() == oracle(sequences, threshold)


def test_groups_depend_neither_on_batches_nor_on_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(4)
    sequences = [*family(rng, 100, 150), "N" * 100, "N" * 100]
    whole = similar_groups(sequences, 0.3)
    assert len(set(whole.tolist())) > 5
    for batch in (1, 700):
        monkeypatch.setattr(module, "BATCH", batch)
        monkeypatch.setattr(module, "PAIRS", batch)
        monkeypatch.setattr(module, "AT_ONCE", batch)
        np.testing.assert_array_equal(similar_groups(sequences, 0.3), whole)
    order = rng.permutation(len(sequences))
    shuffled = similar_groups([sequences[i] for i in order], 0.3)
    pairs = set(zip(shuffled.tolist(), whole[order].tolist(), strict=True))
    assert len(pairs) == len(set(whole.tolist()))


def test_what_is_common_to_all_links_nothing_and_a_family_is_linked_along_its_chain() -> (
    None
):
    adapter = random_dna(30, 1)
    singles = [adapter + random_dna(270, seed) for seed in range(2, 40)]
    assert len(set(similar_groups(singles, 0.2).tolist())) == 38
    source = random_dna(2000, 1)
    chain = [source[start : start + 300] for start in range(0, 1700, 100)]
    assert set(similar_groups([*chain, random_dna(300, 2)], 0.4).tolist()) == {0, 1}
    assert set(similar_groups([], 0.4).tolist()) == set()


def test_of_many_k_mers_the_same_part_is_looked_at_in_every_sequence() -> None:
    source = random_dna(3000, 3)
    sequences = [source[:2000], reverse_complement(source[1000:]), random_dna(2000, 4)]
    rows, kmers = distinct_kmers(sequences, 16, 6)
    assert 5 < len(distinct_kmers(sequences, 16)[0]) / len(rows) < 7
    mine, theirs, other = (set(kmers[rows == row].tolist()) for row in range(3))
    assert 0.35 < len(mine & theirs) / len(mine) < 0.65 and not mine & other
    assert similar_groups(sequences, 0.3, most_kmers=1000).tolist() == [0, 0, 1]


@pytest.mark.slow
def test_a_hundred_thousand_sequences_take_a_minute_or_two() -> None:
    rng = np.random.default_rng(0)
    letters = np.frombuffer(b"ACGT", np.uint8)[rng.integers(0, 4, (100_000, 300))]
    letters[:, :30] = letters[0, :30]  # an adapter
    changed = rng.random((20_000, 300)) < 0.13
    letters[:20_000] = np.where(changed, letters[:20_000], letters[20_000])  # a repeat
    letters[50_000:] = letters[:50_000]
    sequences = [row.tobytes().decode() for row in letters]
    started = time.process_time()
    groups = similar_groups(sequences, 0.2)
    assert time.process_time() - started < 180
    np.testing.assert_array_equal(groups[50_000:], groups[:50_000])
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 6 << 20


# Nearest sequences
