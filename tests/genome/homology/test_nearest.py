"""Nearest windows: exact figures of the pairs that are found, and which are found."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bigbird_dna.genome import seeds
from bigbird_dna.genome import similarity as nearest
from bigbird_dna.genome.seeds import SeedIndex, Sketch, kmers_of, minimizers
from bigbird_dna.genome.sequence import reverse_complement
from bigbird_dna.genome.similarity import SequenceWindows, aligned_pairs, alignment_scores

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


def mutated(sequence: str, rate: float, rng: np.random.Generator, gaps: float = 0.1) -> str:
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
    letters = np.random.default_rng(seed).choice(list("ACGT"), (count, length), p=[0.31, 0.19, 0.19, 0.31])
    return ["".join(row) for row in letters]


@given(st.lists(st.tuples(DNA, DNA), min_size=1, max_size=8))
@example([("N" * 5, "N" * 5), ("", ""), ("A", "")])
def test_scores_are_those_of_the_recurrence(pairs: list[tuple[str, str]]) -> None:
    # Sequences of a part in common are aligned over gaps and N.
    pairs += [(one + other, other + one) for one, other in pairs]
    first, second = zip(*pairs, strict=True)
    assert alignment_scores(first, second).tolist() == [slow_score(*pair) for pair in pairs]


@given(st.lists(st.text(alphabet="ACGTN", max_size=25), min_size=1, max_size=5), st.integers(1, 16))
def test_kmers_are_those_of_every_place(sequences: list[str], k: int) -> None:
    kmers = kmers_of(sequences, k)
    found = [
        (int(row), int(code), bool(turned), bool(directed))
        for row, code, turned, known, directed in zip(
            kmers.rows, kmers.codes, kmers.turned, kmers.known, kmers.directed, strict=True
        )
        if known
    ]
    wanted = []
    for row, sequence in enumerate(sequences):
        for place in range(len(sequence) - k + 1):
            word = sequence[place : place + k]
            if "N" not in word:
                both = [word, reverse_complement(word)]
                code = int("".join(str("ACGT".index(letter)) for letter in min(both)), 4)
                wanted.append((row, code, both[1] < both[0], both[0] != both[1]))
    assert found == wanted


@given(st.lists(PLAIN, min_size=1, max_size=4), st.integers(1, 5))
def test_minimizers_are_the_same_on_both_strands_and_in_any_company(sequences: list[str], width: int) -> None:
    def chosen(texts: Sequence[str]) -> list[set[int]]:
        kmers = kmers_of(texts, 7)
        marked = np.flatnonzero(minimizers(kmers, width))
        return [set(kmers.codes[marked[kmers.rows[marked] == row]].tolist()) for row in range(len(texts))]

    together = chosen(sequences)
    assert together == [chosen([sequence])[0] for sequence in sequences]
    assert together == chosen([reverse_complement(sequence) for sequence in sequences])


def test_of_places_in_a_row_one_is_chosen() -> None:
    kmers = kmers_of(random_windows(1, 2000, 3), 11)
    marked = np.flatnonzero(minimizers(kmers, 5))
    assert np.diff(marked).max() <= 5 and 0.25 < len(marked) / 1990 < 0.42  # 2 / (width + 1) is expected


@pytest.fixture(scope="module")
def family() -> tuple[list[str], list[str], list[int | None], list[float]]:
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


def test_planted_relatives_are_found_on_both_strands(family: tuple) -> None:
    queries, others, owners, rates = family
    found = aligned_pairs(queries, SequenceWindows.of(others)).nearest(len(queries))
    right = np.array([row == owner for row, owner in zip(found.rows, owners, strict=True)])
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


def test_the_nearest_of_all_pairs_is_found(family: tuple) -> None:
    """The oracle aligns every pair on both strands."""
    queries, others, *_ = family
    queries, others = queries[:35], others[:40] + [others[owner] for owner in family[2][:35] if owner]
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
    family: tuple, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries, others = family[0][:21], family[1][:150]
    wanted = aligned_pairs(queries, SequenceWindows.of(others), threshold=0.5)
    for name, value in (("BATCH", 5_000), ("HITS", 1000)):
        monkeypatch.setattr(seeds, name, value)
    monkeypatch.setattr(nearest, "PAIRS", 7)
    found = aligned_pairs(queries, SequenceWindows.of(others), threshold=0.5)
    assert all(np.array_equal(one, other) for one, other in zip(found, wanted, strict=True))
    moved = np.random.default_rng(1).permutation(len(others))
    found = aligned_pairs(queries, SequenceWindows.of([others[row] for row in moved]))
    near, before = found.nearest(len(queries)), wanted.nearest(len(queries))
    sure = before.similarities > 0.2
    assert np.array_equal(moved[near.rows[sure]], before.rows[sure])


def test_a_family_larger_than_what_is_looked_at_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    ancestor = random_windows(1, 300, 1)[0]
    monkeypatch.setattr(seeds, "FREQUENT", 3)
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


@pytest.mark.parametrize("queries", [[], ["N" * 50], ["ACG"], [""]])
@pytest.mark.parametrize("others", [[], ["N" * 50], ["ACGTT" * 10], ["ACG", ""]])
def test_windows_without_a_seed_have_no_nearest(queries: list[str], others: list[str]) -> None:
    found = aligned_pairs(queries, SequenceWindows.of(others), threshold=0.5).nearest(len(queries))
    assert found.rows.tolist() == [-1] * len(queries)
    assert found.similarities.tolist() == [0.0] * len(queries)


def test_bases_that_are_not_known_count_for_nothing() -> None:
    window = random_windows(1, 200, 1)[0]
    query = window[:50] + "N" * 100 + window[150:]
    found = aligned_pairs([query], SequenceWindows.of([window, query])).nearest(1)
    assert (found.rows[0], found.similarities[0]) == (0, 1.0)


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 2**20), st.integers(1, 30))
def test_candidates_are_worth_the_bases_that_seeds_cover(seed: int, overlap: int) -> None:
    """Of two windows with a segment in common, its length, wherever it lies and on either strand."""
    one, other = random_windows(2, 100, seed)
    shared, start = "ACGTTGCAACTGATTCCGAGTCATGACCTT"[:overlap], seed % 60
    one = one[:20] + shared + one[20 + overlap :]
    other = other[:start] + shared + other[start + overlap :]
    index = SeedIndex([one], Sketch(9, 1))
    for turned in (False, True):
        found = [*index.share([reverse_complement(other) if turned else other], 7)]
        worth = {bool(t): int(w) for each in found for t, w in zip(each.turned, each.weights, strict=True)}
        if overlap >= 9:
            assert worth[turned] >= overlap
        assert all(set(each.others.tolist()) <= {7} for each in found)
