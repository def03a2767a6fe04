"""The ordered map."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import repeat
from pathlib import Path

import pytest

from bigbird_dna.errors import BigBirdDnaError, DataError
from bigbird_dna.tokens.store import ordered_map
from tests.golden.messages import fails


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
    with fails(DataError):
        next(results)


def test_a_process_that_dies_is_told_of() -> None:
    with fails(BigBirdDnaError):
        list(ordered_map(die_at_seven, range(20), 2))


@pytest.mark.parametrize("workers", [1, 2])
def test_nothing_to_do(workers: int) -> None:
    assert list(ordered_map(slow_for_even, [], workers)) == []


def own_number(_: object) -> int:
    time.sleep(0.05)
    return os.getpid()


def say_numbers() -> None:
    for number in ordered_map(own_number, repeat(None), 2):
        print(number, flush=True)


def lives(process: int) -> bool:
    """Whether it runs; a dead one may be listed until somebody asks how it ended."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_processes_end_with_their_parent(number: int) -> None:
    """Also where it is killed and can't tell them; an interrupt reaches all, and one of them says so."""
    code = "from tests.tokens.test_parallel import say_numbers; say_numbers()"
    parent = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert parent.stdout is not None and parent.stderr is not None
    workers: set[int] = set()
    while len(workers) < 2:
        workers.add(int(parent.stdout.readline()))
    if number == signal.SIGINT:
        os.killpg(parent.pid, number)
    else:
        parent.send_signal(number)
    _, said = parent.communicate(timeout=30)
    assert said.count("Traceback") == (number == signal.SIGINT), said  # of the parent, which is not a command
    deadline = time.monotonic() + 20
    while any(lives(worker) for worker in workers):
        assert time.monotonic() < deadline
        time.sleep(0.05)
