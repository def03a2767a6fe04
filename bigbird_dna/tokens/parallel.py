"""A map over processes whose results come in order and whose memory is bounded."""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any, TypeVar

from bigbird_dna.errors import BigBirdDnaError

T = TypeVar("T")
R = TypeVar("R")

_AHEAD = 8  # items a process that are under way or waiting to be taken

_function: Callable[[Any], Any] | None = None  # of a worker process, set once when it starts


def ordered_map(function: Callable[[T], R], items: Iterable[T], workers: int) -> Iterator[R]:
    """Yield `function(item)` for every item, in order, whatever the number of processes.

    Processes are spawned, so that it works with threads and CUDA in the parent; `function` is pickled once
    a process and items once each. `items` is read only a few items ahead of what has been
    taken. With one worker everything runs in this process.
    """
    if workers <= 1:
        yield from map(function, items)
        return
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, context, initializer=_start, initargs=(function,))
    pending: deque[Future[R]] = deque()
    try:
        for item in items:
            with _interrupts_held_back():
                pending.append(pool.submit(_run, item))
            if len(pending) >= _AHEAD * workers:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    except BrokenProcessPool:
        raise BigBirdDnaError(
            "a worker process ended abruptly, perhaps for lack of memory: try fewer threads"
        ) from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """For processes that are started meanwhile, until they answer for themselves."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start(function: Callable[[Any], Any]) -> None:
    global _function
    # An interrupt from the keyboard reaches every process; the parent alone answers it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    _function = function


def _end_with_the_parent() -> None:
    """A parent that is killed tells nobody, and this process would wait for work for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _run(item: Any) -> Any:
    assert _function is not None
    return _function(item)
