"""The ordered map."""

import os
from collections.abc import Iterator

import pytest

from bigbird_dna.errors import BigBirdDnaError, DataError
from bigbird_dna.tokens.parallel import ordered_map


def slow_for_even(number: int) -> int:
    if number % 2 == 0:
        sum(range(200_000))
    return number * number


def refuse_seven(number: int) -> int:
    if number == 7:
        raise DataError("seven")
    return number


def die_at_seven(number: int) -> int:
    if number == 7:
        os._exit(1)
    return number


@pytest.mark.parametrize("workers", [1, 2])
def test_results_in_order_and_items_read_little_ahead(workers: int) -> None:
    read = 0

    def items() -> Iterator[int]:
        nonlocal read
        for number in range(100):
            read += 1
            yield number

    for taken, result in enumerate(ordered_map(slow_for_even, items(), workers), 1):
        assert result == (taken - 1) ** 2
        assert read <= taken + 8 * workers
    assert taken == read == 100


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_of_the_function_arrives_in_its_turn(workers: int) -> None:
    results = ordered_map(refuse_seven, range(20), workers)
    assert [next(results) for _ in range(7)] == list(range(7))
    with pytest.raises(DataError, match="seven"):
        next(results)


def test_a_process_that_dies_is_told_of() -> None:
    with pytest.raises(BigBirdDnaError, match="ended abruptly"):
        list(ordered_map(die_at_seven, range(20), 2))


@pytest.mark.parametrize("workers", [1, 2])
def test_nothing_to_do(workers: int) -> None:
    assert list(ordered_map(slow_for_even, [], workers)) == []
