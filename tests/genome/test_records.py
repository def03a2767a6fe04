"""Sequences of one's own: records that are windows, what is alike, and splits that keep it together."""

import resource
import time
from collections import Counter
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bigbird_dna.errors import DataError
from bigbird_dna.genome import similar_groups as module
from bigbird_dna.genome import similarity as nearest
from bigbird_dna.genome.fields import RecordNames
from bigbird_dna.genome.records import (
    divide,
    look_up,
    read_records,
    read_splits,
    with_validation,
)
from bigbird_dna.genome.sequence import reverse_complement
from bigbird_dna.genome.similar_groups import distinct_kmers, similar_groups
from bigbird_dna.genome.similarity import (
    SeedIndex,
    SequenceWindows,
    Sketch,
    aligned_pairs,
    alignment_scores,
    kmers_of,
    minimizers,
)
from tests.golden.messages import fails
from tests.toys import random_dna


def fasta(path: Path, **records: str) -> Path:
    path.write_text(
        "".join(
            f">{name} described\n{sequence}\n" for name, sequence in records.items()
        )
    )
    return path


def test_records_are_read_whole_in_their_order(tmp_path: Path) -> None:
    records = read_records(fasta(tmp_path / "x.fa", b="acgtRACG", a="TTTT"))
    assert records.sequences == {"b": "ACGTNACG", "a": "TTTT"}
    assert records.lower == {"b": 4, "a": 0}
    fasta(
        tmp_path / "x.fa", short="ACGT", fits="A" * 100_000, long="A" * 100_001
    )  # a contig
    with fails(DataError):
        read_records(tmp_path / "x.fa")


def test_missing_and_repeated_names_get_the_number_of_their_record(
    tmp_path: Path,
) -> None:
    (tmp_path / "x.fa").write_text(">a one\nAC\n>\nGT\n>a two\nCC\n> b\nGG\n>a_3\nTT\n")
    (tmp_path / "y.fa").write_text(">b\nAA\n>c\nTA\n")
    names = RecordNames()
    first, second = (read_records(tmp_path / f"{one}.fa", names) for one in "xy")
    assert first.sequences == {
        "a": "AC",
        "record_2": "GT",
        "a_3": "CC",
        "b": "GG",
        "a_3_5": "TT",
    }
    assert second.sequences == {"b_6": "AA", "c": "TA"}
    assert names.changed == ["record_2", "a_3", "a_3_5", "b_6"]
    (tmp_path / "y.fa").write_text(">#b\nAA\n")
    with fails(DataError):  # a name that no table can contain
        read_records(tmp_path / "y.fa", names)


@given(st.lists(st.sampled_from(["", "a", "a_2", "a_3", "b"]), max_size=9))
def test_names_of_records_are_unique_and_kept_where_they_were(
    given_names: list[str],
) -> None:
    names = RecordNames()
    found = [names.add(one) for one in given_names]
    assert len({*found}) == len(found) and all(found)
    assert {*names.changed} == {
        name for name, one in zip(found, given_names, strict=True) if name != one
    }
    for one in {*given_names} - {""}:
        assert one in found


@given(st.integers(0, 5), st.integers(0, 99))
def test_a_tenth_of_the_training_sequences_is_for_validation(
    seed: int, draw: int
) -> None:
    rng = np.random.default_rng(draw)
    groups = np.repeat(np.arange(150), rng.integers(1, 4, 150))
    positive = rng.random(len(groups)) < 0.5
    splits = ["test" if group % 5 == 0 else "train" for group in groups.tolist()]
    found = np.array(with_validation(list(splits), groups, positive, seed))
    assert ((found == "test") == (np.array(splits) == "test")).all()
    for label in (False, True):
        share = (found[positive == label] == "valid").sum() / (
            np.array(splits)[positive == label] == "train"
        ).sum()
        assert 0.05 < share < 0.15
    held_out = {*groups[found == "valid"].tolist()}
    assert not held_out & {*groups[found != "valid"].tolist()}
    assert with_validation(found.tolist(), groups, positive, seed) == found.tolist()


# Splits by a table.


def test_a_table_of_splits(tmp_path: Path) -> None:
    path = tmp_path / "s.tsv"
    path.write_text("name\tsplit\tgroup\na\ttrain\t0\nb\ttest\t1\nc\tvalid\t1\n")
    assert read_splits(path) == {"a": "train", "b": "test", "c": "valid"}
    path.write_text("# mine\n\nname\ttrain\nsplit\ttest\n")
    assert read_splits(path) == {"name": "train", "split": "test"}


def test_every_record_is_in_the_table_and_no_other() -> None:
    table = {name: "train" for name in "abcde"}
    assert look_up(["b", "a", "c", "d", "e"], table, Path("s")) == ["train"] * 5  # type: ignore[arg-type]
    for names in ("abcdevwxy", "abcd"):
        with fails(DataError):
            look_up([*names], table, Path("s"))  # type: ignore[arg-type]


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
    positive = np.array([label for _, label in rows])
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
    positive = np.arange(4000) < 1000
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
    assert whole[-2] != whole[-1] and len(set(whole.tolist())) > 5
    for batch in (1, 700):
        monkeypatch.setattr(module, "BATCH", batch)
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
    some = distinct_kmers(sequences, most=1000)
    assert 6 < distinct_kmers(sequences).sizes.sum() / some.sizes.sum() < 9
    mine, theirs, other = (
        set(some.codes[some.rows == row].tolist()) for row in range(3)
    )
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


# Nearest windows: exact figures of the pairs that are found, and which are found


DNA = st.text(alphabet="ACGTN", max_size=30)
PLAIN = st.text(alphabet="ACGT", max_size=60)


def slow_score(one: str, other: str) -> int:
    """Smith and Waterman's recurrence, cell by cell."""
    before, best = [0] * (len(other) + 1), 0
    for x in one:
        row = [0]
        for place, y in enumerate(other, 1):
            step = 0 if "N" in (x, y) else 1 if x == y else -1
            row.append(max(0, before[place - 1] + step, before[place] - 2, row[-1] - 2))
        best, before = max(best, *row), row
    return best


def mutated(
    sequence: str, rate: float, rng: np.random.Generator, gaps: float = 0.1
) -> str:
    """Each base changed at this rate, in a part of the cases by a base more or less."""
    letters = []
    for letter in sequence:
        draw = rng.random()
        if draw >= rate:
            letters.append(letter)
        elif draw >= rate * gaps:
            letters.append("ACGT"[("ACGT".index(letter) + rng.integers(1, 4)) % 4])
        elif rng.random() < 0.5:
            letters.append(letter + "ACGT"[rng.integers(4)])
    return "".join(letters)


def random_windows(count: int, length: int, seed: int) -> list[str]:
    letters = np.random.default_rng(seed).choice(
        list("ACGT"), (count, length), p=[0.31, 0.19, 0.19, 0.31]
    )
    return ["".join(row) for row in letters]


@given(st.lists(st.tuples(DNA, DNA), min_size=1, max_size=8))
@example([("N" * 5, "N" * 5), ("", ""), ("A", "")])
def test_scores_are_those_of_the_recurrence(pairs: list[tuple[str, str]]) -> None:
    # Sequences of a part in common are aligned over gaps and N.
    pairs += [(one + other, other + one) for one, other in pairs]
    first, second = zip(*pairs, strict=True)
    assert alignment_scores(first, second).tolist() == [
        slow_score(*pair) for pair in pairs
    ]


@given(
    st.lists(st.text(alphabet="ACGTN", max_size=25), min_size=1, max_size=5),
    st.integers(1, 16),
)
def test_kmers_are_those_of_every_place(sequences: list[str], k: int) -> None:
    kmers = kmers_of(sequences, k)
    found = [
        (int(row), int(code), bool(turned), bool(directed))
        for row, code, turned, known, directed in zip(
            kmers.rows,
            kmers.codes,
            kmers.turned,
            kmers.known,
            kmers.directed,
            strict=True,
        )
        if known
    ]
    wanted = []
    for row, sequence in enumerate(sequences):
        for place in range(len(sequence) - k + 1):
            word = sequence[place : place + k]
            if "N" not in word:
                both = [word, reverse_complement(word)]
                code = int(
                    "".join(str("ACGT".index(letter)) for letter in min(both)), 4
                )
                wanted.append((row, code, both[1] < both[0], both[0] != both[1]))
    assert found == wanted


@given(st.lists(PLAIN, min_size=1, max_size=4), st.integers(1, 5))
def test_minimizers_are_the_same_on_both_strands_and_in_any_company(
    sequences: list[str], width: int
) -> None:
    def chosen(texts: Sequence[str]) -> list[set[int]]:
        kmers = kmers_of(texts, 7)
        marked = np.flatnonzero(minimizers(kmers, width))
        return [
            set(kmers.codes[marked[kmers.rows[marked] == row]].tolist())
            for row in range(len(texts))
        ]

    together = chosen(sequences)
    assert together == [chosen([sequence])[0] for sequence in sequences]
    assert together == chosen([reverse_complement(sequence) for sequence in sequences])


def test_of_places_in_a_row_one_is_chosen() -> None:
    kmers = kmers_of(random_windows(1, 2000, 3), 11)
    marked = np.flatnonzero(minimizers(kmers, 5))
    assert (
        np.diff(marked).max() <= 5 and 0.25 < len(marked) / 1990 < 0.42
    )  # 2 / (width + 1) is expected


@pytest.fixture(scope="module")
def relatives() -> tuple[list[str], list[str], list[int | None], list[float]]:
    """Queries of 300 bp that are mutated windows, half of them turned, or overlap one, or are like none."""
    rng = np.random.default_rng(5)
    others, queries, owners, rates = random_windows(1500, 300, 11), [], [], []
    for number in range(210):
        rate = (0.0, 0.05, 0.1, 0.2, 0.25, 0.5, 1.0)[number % 7]
        owner = int(rng.integers(len(others)))
        query = mutated(others[owner], min(rate, 0.25), rng)
        if rate == 0.5:  # half of it
            query = others[owner][150:] + random_windows(1, 150, 1000 + number)[0]
        elif rate == 1.0:
            query = random_windows(1, 300, 1000 + number)[0]
        queries.append(reverse_complement(query) if rng.random() < 0.5 else query)
        owners.append(None if rate == 1.0 else owner)
        rates.append(rate)
    return queries, others, owners, rates


def test_planted_relatives_are_found_on_both_strands(relatives: tuple) -> None:
    queries, others, owners, rates = relatives
    found = aligned_pairs(queries, SequenceWindows.of(others)).nearest(len(queries))
    right = np.array(
        [row == owner for row, owner in zip(found.rows, owners, strict=True)]
    )
    for rate, least, low, high in (
        *((0.0, 1.0, 1.0, 1.0), (0.05, 1.0, 0.8, 0.97), (0.1, 1.0, 0.65, 0.9)),
        *((0.2, 1.0, 0.4, 0.75), (0.25, 0.95, 0.25, 0.65), (0.5, 1.0, 0.5, 0.55)),
    ):
        some = np.array(rates) == rate
        assert right[some].mean() >= least, rate
        near = found.similarities[some & right]
        assert low <= near.min() and near.max() <= high, (rate, near.min(), near.max())
    unlike = np.array(rates) == 1.0
    assert found.similarities[unlike].max() < 0.12


def test_the_nearest_of_all_pairs_is_found(relatives: tuple) -> None:
    """The oracle aligns every pair on both strands."""
    queries, others, *_ = relatives
    queries, others = (
        queries[:35],
        others[:40] + [others[owner] for owner in relatives[2][:35] if owner],
    )
    pairs = aligned_pairs(queries, SequenceWindows.of(others))
    found = pairs.nearest(len(queries))
    best = np.zeros(len(queries))
    for number, query in enumerate(queries):
        both = [*[query] * len(others), *[reverse_complement(query)] * len(others)]
        best[number] = alignment_scores(both, others * 2).max() / len(query)
    assert (found.similarities <= best).all()
    near = best >= 0.3
    assert near.sum() > 25 and np.array_equal(found.similarities[near], best[near])
    for query, other, turned, similarity in [*zip(*pairs, strict=True)][::40]:
        text = reverse_complement(queries[query]) if turned else queries[query]
        assert similarity == slow_score(text, others[other]) / len(text)


def test_the_order_and_number_of_windows_read_at_a_time_change_nothing(
    relatives: tuple, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries, others = relatives[0][:21], relatives[1][:150]
    wanted = aligned_pairs(queries, SequenceWindows.of(others), threshold=0.5)
    for name, value in (("BATCH", 5_000), ("HITS", 1000)):
        monkeypatch.setattr(nearest, name, value)
    monkeypatch.setattr(nearest, "PAIRS", 7)
    found = aligned_pairs(queries, SequenceWindows.of(others), threshold=0.5)
    assert all(
        np.array_equal(one, other) for one, other in zip(found, wanted, strict=True)
    )
    moved = np.random.default_rng(1).permutation(len(others))
    found = aligned_pairs(queries, SequenceWindows.of([others[row] for row in moved]))
    near, before = found.nearest(len(queries)), wanted.nearest(len(queries))
    sure = before.similarities > 0.2
    assert np.array_equal(moved[near.rows[sure]], before.rows[sure])


def test_a_family_larger_than_what_is_looked_at_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(2)
    ancestor = random_windows(1, 300, 1)[0]
    monkeypatch.setattr(nearest, "FREQUENT", 3)
    queries = [mutated(ancestor, 0.02, rng) for _ in range(40)]
    others = random_windows(200, 300, 4)
    others[77] = mutated(ancestor, 0.02, rng)
    found = aligned_pairs(queries, SequenceWindows.of(others)).nearest(40)
    assert (found.rows == 77).all() and found.similarities.min() > 0.8


def test_with_a_threshold_every_relative_of_a_query_is_aligned() -> None:
    """Of a query four windows are aligned; twenty that are like it find it from their side."""
    rng = np.random.default_rng(3)
    query = random_windows(1, 300, 1)[0]
    others = random_windows(100, 300, 2)
    for row in range(20, 40):
        others[row] = mutated(query, 0.05, rng)
    one = aligned_pairs([query], SequenceWindows.of(others))
    both = aligned_pairs([query], SequenceWindows.of(others), threshold=0.5)
    assert len(one.others) == nearest.ALIGNED
    assert set(range(20, 40)) <= set(both.others.tolist())


def test_ties_go_to_the_first_window_and_are_known() -> None:
    query, *others = random_windows(9, 200, 1)
    others[3] = others[5] = query
    others[6] = reverse_complement(query)
    pairs = aligned_pairs([query], SequenceWindows.of(others))
    found = pairs.nearest(1)
    assert (found.rows[0], found.turned[0], found.similarities[0]) == (3, False, 1.0)
    assert sorted(pairs.others[pairs.as_near()].tolist()) == [3, 5, 6]


def test_windows_without_a_seed_have_no_nearest_and_unknown_bases_count_for_nothing() -> (
    None
):
    others = ([], ["N" * 50], ["ACGTT" * 10], ["ACG", ""])
    for queries, theirs in product(([], ["N" * 50], ["ACG"], [""]), others):
        found = aligned_pairs(
            queries, SequenceWindows.of(theirs), threshold=0.5
        ).nearest(len(queries))
        assert found.rows.tolist() == [-1] * len(queries)
        assert found.similarities.tolist() == [0.0] * len(queries)
    window = random_windows(1, 200, 1)[0]
    query = window[:50] + "N" * 100 + window[150:]
    found = aligned_pairs([query], SequenceWindows.of([window, query])).nearest(1)
    assert (found.rows[0], found.similarities[0]) == (0, 1.0)


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 2**20), st.integers(1, 30))
def test_candidates_are_worth_the_bases_that_seeds_cover(
    seed: int, overlap: int
) -> None:
    """Of two windows with a segment in common, its length, wherever it lies and on either strand."""
    one, other = random_windows(2, 100, seed)
    shared, start = "ACGTTGCAACTGATTCCGAGTCATGACCTT"[:overlap], seed % 60
    one = one[:20] + shared + one[20 + overlap :]
    other = other[:start] + shared + other[start + overlap :]
    index = SeedIndex([one], Sketch(9, 1))
    for turned in (False, True):
        found = [*index.share([reverse_complement(other) if turned else other], 7)]
        worth = {
            bool(t): int(w)
            for each in found
            for t, w in zip(each.turned, each.weights, strict=True)
        }
        if overlap >= 9:
            assert worth[turned] >= overlap
        assert all(set(each.others.tolist()) <= {7} for each in found)
