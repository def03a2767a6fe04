"""The search for summaries, on a decoder that is a table: its best summary can be had by trying all."""

import itertools
import math

import pytest
import torch
from torch import Tensor

from bigbird_dna.papers.nlp.config import SearchConfig, SpecialIds
from bigbird_dna.papers.nlp.summaries.search import (
    FORBIDDEN,
    BeamDecoder,
    Cache,
    constrained,
    search_summaries,
)

SPECIAL = SpecialIds(start=0, end=1, pad=2)


class Table(BeamDecoder):
    """Log-probabilities of the next token by the last one, and nothing else."""

    def __init__(self, seed: int, vocabulary: int = 6) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.scores = (torch.randn(vocabulary, vocabulary, generator=generator) * 2).log_softmax(-1)

    def begin(self, hidden: Tensor, lengths: Tensor | None = None) -> Cache:
        """A cache of no layers to speak of."""
        return Cache([(hidden[:, None], hidden[:, None])], None)

    def decode(self, ids: Tensor, cache: Cache) -> Tensor:
        """The table's rows."""
        return self.scores[ids]

    def log_probability(self, summary: tuple[int, ...]) -> float:
        """Of a summary after the start."""
        rows = itertools.pairwise((SPECIAL.start, *summary))
        return sum(float(self.scores[one, other]) for one, other in rows)


@pytest.mark.parametrize("penalty", [0.0, 0.8, 2.0])
def test_enough_beams_find_the_best_summary_of_all(penalty: float) -> None:
    for seed in range(8):
        table, longest = Table(seed), 4
        search = SearchConfig(
            beams=90, length_penalty=penalty, early_stopping="never", max_length=longest + 1
        )
        [found] = search_summaries(table, torch.zeros(1, 3, 4), None, search, SPECIAL)
        whole = [
            (*middle, last)
            for length in range(1, longest + 1)
            for middle in itertools.product([0, 2, 3, 4, 5], repeat=length - 1)
            for last in ([1] if length < longest else range(6))
        ]
        best = max(whole, key=lambda one: table.log_probability(one) / len(one) ** penalty)
        assert tuple(found) == best


def test_one_beam_takes_the_likeliest_token_each_time() -> None:
    for seed in range(8):
        table = Table(seed)
        [found] = search_summaries(
            table, torch.zeros(1, 3, 4), None, SearchConfig(beams=1, max_length=9), SPECIAL
        )
        last = SPECIAL.start
        wanted: list[int] = []
        while len(wanted) < 8 and last != SPECIAL.end:
            last = int(table.scores[last].argmax())
            wanted.append(last)
        assert found == wanted


def test_rewarding_length_makes_no_summary_shorter() -> None:
    lengths = []
    for seed in range(20):
        each = [
            SearchConfig(beams=4, length_penalty=penalty, early_stopping="never", max_length=12)
            for penalty in (-2.0, 0.0, 3.0)
        ]
        found = [search_summaries(Table(seed), torch.zeros(1, 1, 4), None, one, SPECIAL)[0] for one in each]
        lengths.append([len(summary) for summary in found])
    assert all(row == sorted(row) for row in lengths)
    assert any(row[0] < row[2] for row in lengths)


def test_no_document_has_no_summary() -> None:
    assert search_summaries(Table(0), torch.zeros(0, 3, 4), None, SearchConfig(), SPECIAL) == []


def allowed(row: list[int], search: SearchConfig, special: SpecialIds = SPECIAL) -> set[int]:
    scores = constrained(torch.zeros(1, 6), torch.tensor([row]), search, special)
    return {token for token, score in enumerate(scores[0].tolist()) if score > FORBIDDEN}


def test_what_may_follow() -> None:
    all_six = {*range(6)}
    assert allowed([0, 3], SearchConfig()) == all_six
    assert allowed([0, 3], SearchConfig(min_length=3)) == all_six - {1}
    assert allowed([0, 3, 4], SearchConfig(min_length=3)) == all_six
    assert allowed([0, 3, 4, 3], SearchConfig(no_repeat=2)) == all_six - {4}
    assert allowed([0, 3, 4, 3], SearchConfig(no_repeat=1)) == {1, 2, 5}
    assert allowed([0, 3, 4, 5, 3, 4], SearchConfig(no_repeat=3)) == all_six - {5}
    assert allowed([0, 3], SearchConfig(no_repeat=3)) == all_six
    forced = SPECIAL.model_copy(update={"forced_first": 5, "forced_last": 1})
    assert allowed([0], SearchConfig(min_length=9), forced) == {5}
    assert allowed([0, 3, 4], SearchConfig(max_length=4, min_length=4), forced) == {1}
    assert allowed([0, 3], SearchConfig(max_length=4), forced) == all_six


def test_scores_that_are_given_are_left_as_they_are() -> None:
    scores = torch.randn(2, 6)
    before = scores.clone()
    constrained(
        scores, torch.tensor([[0, 3, 3], [0, 4, 5]]), SearchConfig(no_repeat=1, min_length=9), SPECIAL
    )
    assert torch.equal(scores, before)
    assert math.isinf(FORBIDDEN)
