"""The harness notices whatever a reader may not do, goes on after it, and does the same for the same seed."""

import json
import os
import zipfile
from collections.abc import Iterator
from io import BytesIO
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from bigbird_dna.errors import DataError
from tests.fuzz import reader as containers
from tests.fuzz.execution import Executor, shrunk
from tests.fuzz.mutation import LARGEST, Mutator
from tests.fuzz.reader import Reader


def _misread(path: Path) -> object:
    match path.read_bytes().strip(b" "):
        case b"crash":
            os.abort()
        case b"exit":
            os._exit(3)
        case b"hang":
            while True:
                pass
        case b"refused":
            raise DataError(f"{path}: no")
        case b"defect":
            raise KeyError("x")
        case b"panic":
            raise BaseException("of Rust")
        case b"swell":
            return bytearray(5 << 30)
        case b"swell, refused":
            try:
                return bytearray(5 << 30)
            except MemoryError as error:
                raise DataError(f"{path}: {error}") from None
        case b"swell, unused":
            return np.empty(
                2 << 30, np.uint8
            )  # its pages are there once they are written to
        case b"swell, used":
            return b"x" * (33 << 25)  # little above the bound
        case b"swell, slowly":
            return [b"x" * (1 << 20) for _ in range(300)]
        case b"lines":
            two_lines = DataError("")
            two_lines.args = ("one\ntwo",)
            raise two_lines
    return None


READERS = {"toy": Reader("toy", ".txt", _misread, lambda: [b"seed"])}
TOY = READERS["toy"]  # does all that no reader may do


@pytest.fixture(scope="module")
def executor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Executor]:
    # Some machines take seconds for the memory of these tests, when others want it as well.
    with Executor(
        tmp_path_factory.mktemp("toy"), seconds=30, readers="tests.fuzz.test_harness"
    ) as made:
        yield made


@pytest.mark.parametrize(
    ("data", "kind", "text"),
    [
        ("", "read", ""),
        ("refused", "refused", ": no"),
        ("defect", "exception", "KeyError"),
        ("panic", "exception", "of Rust"),
        ("lines", "message", "one\\ntwo"),
        ("swell", "memory", "MemoryError"),
        ("swell, refused", "memory", ""),
        ("swell, unused", "read", ""),
        ("swell, used", "memory", " MB"),
        ("swell, slowly", "read", ""),
        ("crash", "crash", "SIGABRT"),
        ("exit", "crash", "exit status 3"),
        ("refused", "refused", ": no"),
    ],
)
def test_every_kind_of_outcome_is_told(
    executor: Executor, data: str, kind: str, text: str
) -> None:
    outcome = executor.read(TOY, data.encode())
    assert outcome.kind == kind
    assert text in outcome.text
    assert outcome.accepted == (kind in ("read", "refused"))
    if data == "swell, slowly":
        assert outcome.bytes > 290 << 20
    if data == "crash":
        assert "test_harness.py:" in outcome.place


def test_what_hangs_is_told_and_left(tmp_path: Path) -> None:
    with Executor(tmp_path, seconds=3, readers="tests.fuzz.test_harness") as executor:
        outcome = executor.read(TOY, b"hang")
        assert (outcome.kind, outcome.text) == ("hang", "more than 3.0 s")
        assert "test_harness.py:" in outcome.place
        assert executor.read(TOY, b"refused").kind == "refused"


def test_a_finding_is_made_smaller(executor: Executor) -> None:
    data = b" " * 50 + b"defect" + b" " * 30
    outcome = executor.read(TOY, data)
    assert (
        shrunk(lambda shorter: executor.read(TOY, shorter), data, outcome, 200)
        == b"defect"
    )


def test_lines_that_are_run_first_are_counted(tmp_path: Path) -> None:
    from tests.fuzz.readers import READERS as REAL

    reader = REAL["published"]
    seed = reader.seeds()[0]
    with Executor(tmp_path, coverage=True) as executor:
        assert executor.read(reader, seed).new == 0
        assert executor.read(reader, b"no table\n").new > 0
        assert executor.read(reader, b"no table\n").new == 0


def test_the_same_seed_gives_the_same_files() -> None:
    seeds = [
        json.dumps({"a": [1, 2.5, "x"], "b": {"c": None}}).encode(),
        b"chr1\t10\t20\nchr2\t5\t9\n",
    ]
    one, two, other = (Mutator(TOY, seeds, seed) for seed in (1, 1, 2))
    files = list(islice(iter(one, None), 400))
    assert files == list(islice(iter(two, None), 400))
    assert files != list(islice(iter(other, None), 400))
    assert max(map(len, files)) <= LARGEST
    assert len(set(files)) > 350
    changed = [
        json.loads(data)
        for data in files
        if data.startswith(b'{"a"') and _is_json(data)
    ]
    assert len({json.dumps(value) for value in changed}) > 10, (
        "values are exchanged inside JSON"
    )


def _is_json(data: bytes) -> bool:
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        return False
    return True


def test_containers_are_damaged_inside() -> None:
    packed = BytesIO()
    np.savez_compressed(packed, values=np.arange(12.0))
    reader = Reader("toy", ".npz", TOY.read, TOY.seeds, containers.NPZ)
    mutate = Mutator(reader, [packed.getvalue()], 0)
    sound = 0
    for data in islice(iter(mutate, None), 300):
        try:
            with zipfile.ZipFile(BytesIO(data)) as archive:
                sound += archive.testzip() is None
        except Exception:
            pass
    assert sound > 150, (
        "the packing of most files is sound, so that readers get to see what is inside"
    )


@pytest.mark.parametrize(
    "name", ["ZIP", "GZIP", "NPY", "NPZ", "SAFETENSORS", "MATLAB5"]
)
def test_containers_put_together_what_they_took_apart(name: str) -> None:
    from tests.fuzz.readers import READERS as REAL

    container = getattr(containers, name)
    readers = [reader for reader in REAL.values() if reader.container is container]
    for reader in readers:
        for seed in reader.seeds():
            try:
                members = container.unwrap(seed)
            except Exception:
                continue
            assert container.unwrap(container.wrap(seed, list(members))) == members
