"""Locks end with their process; nobody waits without limit for one that doesn't."""

import errno
import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bigbird_dna.disk import atomic
from bigbird_dna.disk.atomic import lock_file
from bigbird_dna.errors import ModelError
from bigbird_dna.training import checkpoints
from bigbird_dna.training.checkpoints import Lock
from tests.golden.messages import fails, message

HOLD = """
import fcntl, os, sys, time
fcntl.flock(os.open(sys.argv[1], os.O_RDONLY), fcntl.LOCK_EX)
print("held", flush=True)
time.sleep(float(sys.argv[2]))
"""


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atomic, "PAUSE", 0.01)
    monkeypatch.setattr(checkpoints, "FAILED_SECONDS", 0.2)


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Path]:
    """A directory that another process has locked, with a file `lock` that it has locked as well."""
    path = tmp_path / "shared"
    path.mkdir()
    (path / "lock").touch()
    holders = [
        subprocess.Popen(
            [sys.executable, "-c", HOLD, one, "100"], stdout=subprocess.PIPE
        )
        for one in (path, path / "lock")
    ]
    for one in holders:
        assert one.stdout is not None and one.stdout.readline() == b"held\n"
    yield path
    for one in holders:
        one.kill()
        one.communicate()


def refuse(handle: int, how: int) -> None:
    raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))


@pytest.mark.parametrize("seconds", [0.0, 0.2])
def test_a_lock_that_is_held_is_waited_for_so_long(held: Path, seconds: float) -> None:
    with (held / "lock").open() as stream:
        began = time.monotonic()
        assert not lock_file(stream.fileno(), held / "lock", "it is lost", seconds)
        assert seconds <= time.monotonic() - began < seconds + 10


def test_a_lock_that_is_given_up_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.touch()
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, path, "0.1"], stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
        with path.open() as stream, path.open() as other:
            assert lock_file(stream.fileno(), path, seconds=60)
            assert not lock_file(other.fileno(), path)


@pytest.mark.parametrize("consequence", ["", "it is lost"])
def test_without_locks_nobody_is_excluded(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    consequence: str,
) -> None:
    monkeypatch.setattr(fcntl, "flock", refuse)
    with (tmp_path / "lock").open("w") as stream, (tmp_path / "lock").open() as other:
        for one in (stream, other):
            assert lock_file(one.fileno(), tmp_path / "lock", consequence)
    log = capsys.readouterr().err.splitlines()
    assert len(log) == (2 if consequence else 0)
    for line in log:
        message(line.partition("  ")[2], tmp_path / "lock", consequence)


@pytest.mark.parametrize("failed", [True, False])
def test_a_training_waits_for_the_lock_of_another_machine(
    held: Path, failed: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """It may have failed; what runs on this one is not waited for."""
    machine = "node-that-failed" if failed else os.uname().nodename
    (held / "lock").write_text(
        f"process 1 on {machine} since 2026-01-01 00:00:00+0000\n"
    )
    began = time.monotonic()
    with fails(ModelError, held, "process 1") as caught:
        Lock(held / "lock").take("the training")
    assert (time.monotonic() - began >= 0.2) == failed
    assert (str(held / "lock") in str(caught.value)) == failed
    (held / "lock").unlink()
    Lock(held / "lock").take("the training")
