"""Every reader on files that are kept for it and on damaged ones: a few quickly, minutes of them slowly."""

import os
import tempfile
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.fuzz.execution import Executor
from tests.fuzz.hunting import CORPUS, Result, corpus, hunt
from tests.fuzz.mutation import Mutator
from tests.fuzz.readers import READERS

SECONDS = float(os.environ.get("FUZZ_TEST_SECONDS", "60"))  # of CPU, each reader
DAMAGED = 4
# Readers that have nothing to give: a good file too is a reason to stop.
REFUSED = {"training-lock"}


@pytest.fixture(scope="module")
def executor() -> Iterator[Executor]:
    with tempfile.TemporaryDirectory() as directory, Executor(Path(directory)) as made:
        yield made


@pytest.mark.parametrize("name", READERS)
def test_reader_copes_with_damaged_files(executor: Executor, name: str) -> None:
    reader = READERS[name]
    seeds = reader.seeds()
    for seed in seeds:
        outcome = executor.read(reader, seed)
        assert outcome.kind == ("refused" if name in REFUSED else "read"), outcome
    mutate = Mutator(reader, seeds, 1)
    for data in [*corpus(reader), *(mutate() for _ in range(DAMAGED))]:
        outcome = executor.read(reader, data)
        assert outcome.accepted, (outcome, data[:200])


@pytest.fixture(scope="module")
def hunts(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[Result]]]:
    """What comes of each reader that a test was chosen for; as many at a time as there are cores."""
    chosen = [
        item.callspec.params["name"]
        for item in request.session.items
        if isinstance(item, pytest.Function)
        and item.originalname == "test_reader_copes_for_a_minute"
    ]
    out = tmp_path_factory.mktemp("findings")
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        yield {
            name: pool.submit(hunt, READERS[name], SECONDS, seed=1, out=out)
            for name in chosen
        }
        pool.shutdown(cancel_futures=True)


@pytest.mark.slow
@pytest.mark.timeout(0)  # the first one waits for others
@pytest.mark.parametrize("name", READERS)
def test_reader_copes_for_a_minute(hunts: dict[str, Future[Result]], name: str) -> None:
    result = hunts[name].result()
    print(result.row())
    assert not result.findings, [(outcome, path) for outcome, path in result.findings]


def test_kept_files_are_small_and_of_known_readers() -> None:
    files = [path for path in CORPUS.rglob("*") if path.is_file()]
    assert {path.parent.name for path in files} <= set(READERS)
    assert sum(path.stat().st_size for path in files) < 300_000
