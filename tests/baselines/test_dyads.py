"""Spaced dyads: counts against a slow search, choice of planted dyads, and gains that are really gains."""

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigbird_dna.baselines.dyads import TrackWords, dyad_counts
from bigbird_dna.baselines.windows import TextWindows
from bigbird_dna.genome.sequence import DYADS, GAPS, dyad_parts, reverse_complement
from tests.toys import random_dna

TRINUCLEOTIDES = ["".join(letters) for letters in product("ACGT", repeat=3)]


def named(*numbers: int) -> list[tuple[str, int, str]]:
    parts = dyad_parts(np.array(numbers)).tolist()
    return [
        (TRINUCLEOTIDES[left], gap, TRINUCLEOTIDES[right]) for gap, left, right in parts
    ]


def searched(text: str, first: str, gap: int, second: str) -> int:
    """Occurrences on either strand; those that are their own reverse complements count once."""
    places = range(len(text) - 5 - gap)
    found = {
        at
        for at in places
        if text[at:][:3] == first and text[at + 3 + gap :][:3] == second
    }
    first, second = reverse_complement(second), reverse_complement(first)
    return len(
        found
        | {
            at
            for at in places
            if text[at:][:3] == first and text[at + 3 + gap :][:3] == second
        }
    )


def test_every_dyad_has_one_number_with_its_reverse_complement() -> None:
    parts = dyad_parts(np.arange(DYADS))
    assert parts.shape == (DYADS, 3) and parts.max(axis=0).tolist() == [
        GAPS - 1,
        63,
        63,
    ]
    names = {*named(*range(DYADS))}
    turned = {
        (reverse_complement(b), gap, reverse_complement(a)) for a, gap, b in names
    }
    assert len(names | turned) == GAPS * 4096 and len(names) == DYADS
    assert len(names & turned) == GAPS * 64  # their own reverse complements


@given(st.text("ACGTN", max_size=40), st.data())
def test_counts_are_those_of_a_search_and_the_same_on_both_strands(
    text: str, data: Any
) -> None:
    around = data.draw(st.integers(0, 5))
    window = "C" * around + text + "G" * around
    counts = dyad_counts([window, reverse_complement(window)], len(text)).toarray()
    np.testing.assert_array_equal(counts[0], counts[1])
    for number in [
        *np.flatnonzero(counts[0]),
        *data.draw(st.lists(st.integers(0, DYADS - 1), max_size=5)),
    ]:
        assert counts[0, number] == searched(text, *named(number)[0])
    known = sum(
        "N" not in text[at:][:3] + text[at + 3 + gap :][:3]
        for gap in range(GAPS)
        for at in range(len(text) - 5 - gap)
    )
    assert counts[0].sum() == known
    assert dyad_counts([], 10).shape == (0, DYADS)


SIZE = 60


@pytest.fixture(scope="module")
def planted() -> tuple[list[str], np.ndarray[Any, Any]]:
    """Windows, some with GAC, six bases, and TTG; labels of these, of half of them, and random ones."""
    rng = np.random.default_rng(1)
    texts, labels = [], np.zeros((1200, 3), np.uint8)
    labels[:, 2] = rng.random(1200) < 0.2
    for row in range(1200):
        text, at = random_dna(SIZE, row), rng.integers(0, SIZE - 12)
        if row % 4 == 0:
            site = "GAC" + text[at + 3 : at + 9] + "TTG"
            text = (
                text[:at]
                + (site if row % 8 else reverse_complement(site))
                + text[at + 12 :]
            )
            labels[row, :2] = 1, row % 8 > 0
        texts.append(text)
    return texts, labels


def test_a_planted_dyad_is_chosen_and_chance_gains_little(planted: Any) -> None:
    texts, labels = planted
    parts = (slice(0, 800), slice(800, 1000), slice(1000, 1200))
    # A baseline that knows the fraction of positives of each track only.
    share = labels.mean(axis=0)
    base = np.tile(np.log(share / (1 - share)).astype(np.float32), (len(texts), 1))

    def of(part: slice) -> Any:
        return TextWindows(texts[part], labels[part]), base[part]

    fitted = TrackWords(4, 3, [SIZE])
    fitted.fit_dyads(*of(parts[0]), *of(parts[1]))
    assert fitted.dyads.shape == fitted.weight.shape == (3, 3)
    for track in (0, 1):
        assert named(fitted.dyads[track, 0])[0] in {
            ("GAC", 6, "TTG"),
            ("CAA", 6, "GTC"),
        }
    assert fitted.weight[0, 0] > fitted.weight[1, 0] > 1
    gains = []
    for part in parts[1:]:
        losses = [
            np.mean(np.logaddexp(0, logits) - labels[part] * logits, axis=0)
            for logits in (
                base[part],
                base[part] + fitted.added(dyad_counts(texts[part], SIZE)),
            )
        ]
        gains.append(losses[0] - losses[1])
    # Never a loss on the windows of the choice; on others, no more than chance.
    assert (
        (gains[0] >= 0).all() and (gains[1][:2] > 0.1).all() and abs(gains[1][2]) < 0.02
    )
    none = TextWindows(texts[parts[1]], np.zeros_like(labels[parts[1]]))
    fitted.fit_dyads(*of(parts[0]), none, base[parts[1]])
    assert not fitted.weight.any()
