"""ROUGE by hand."""

import pytest

from bigbird_dna.papers.nlp.summaries.task import rouge, sentences


@pytest.mark.parametrize(
    ("true", "predicted", "wanted"),
    [
        ("the cat sat on the mat", "the cat sat on the mat", (1, 1, 1, 1)),
        # 2 of 2 words and 2 of 3; one pair of one, and of two
        ("the cat sat", "the cat", (0.8, 2 / 3, 0.8, 0.8)),
        # the same words, the other way round: of the subsequence one is left
        ("cat mat", "mat cat", (1, 0, 0.5, 0.5)),
        # words count as often as they stand in both
        ("a a b", "a b b", (2 / 3, 0.5, 2 / 3, 2 / 3)),
        # stems, case and signs
        ("Runs, jumping!", "run jumped", (1, 1, 1, 1)),
        ("word", "", (0, 0, 0, 0)),
        ("word", "...", (0, 0, 0, 0)),
        ("one two", "three four", (0, 0, 0, 0)),
    ],
)
def test_by_hand(true: str, predicted: str, wanted: tuple[float, ...]) -> None:
    found = rouge([true], [predicted])
    assert [*found] == ["rouge1", "rouge2", "rougeL", "rougeLsum"]
    assert [*found.values()] == pytest.approx(wanted)


def test_sentences_in_another_order_count_for_lsum_alone() -> None:
    true, predicted = "The dog barks. A cat sleeps.", "A cat sleeps. The dog barks."
    found = rouge([true], [predicted])
    assert found["rougeLsum"] == 1 and found["rougeL"] == pytest.approx(0.5)


def test_figures_are_means_over_summaries() -> None:
    assert rouge(["cat", "dog"], ["cat", "mat"])["rouge1"] == 0.5
    assert rouge([], []) == {}


def test_where_sentences_end() -> None:
    assert sentences("One. Two! Three? 3.5 is four") == "One.\nTwo!\nThree?\n3.5 is four"
    assert sentences("One. Still one\nTwo\n\n") == "One. Still one\nTwo"
    assert sentences("  ") == ""
