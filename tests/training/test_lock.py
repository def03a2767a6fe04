"""A lock keeps others away while its holder lives, and no longer."""

import errno
import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from bigbird_dna.errors import ModelError, UsageError
from bigbird_dna.training.checkpoints import Lock
from bigbird_dna.training.distributed import world
from tests.golden.messages import fails

HOLD = """
import sys, time
from pathlib import Path
from bigbird_dna.training.checkpoints import Lock
Lock(Path(sys.argv[1])).take("it")
print("held", flush=True)
time.sleep(100)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "training" / "lock"


def test_a_lock_is_of_one_process_and_freed_when_it_is_killed(path: Path) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLD, path], stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
        with pytest.raises(ModelError) as caught:
            Lock(path).take("the training")
        told = (
            f"{path.parent}: the training is running already (process {holder.pid} on {os.uname().nodename} "
        )
        assert str(caught.value).startswith(f"{told}since 20")
        assert str(caught.value).endswith("): wait for its end")
        before = path.read_text()
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.communicate()
    assert path.read_text() == before, "nothing tidies up after a kill"
    lock = Lock(path)
    lock.take("the training")
    assert path.read_text().startswith(f"process {os.getpid()} on ")
    lock.release()
    assert not path.parent.exists()


def test_whoever_was_refused_takes_nothing_away(path: Path) -> None:
    lock, other = Lock(path), Lock(path)
    lock.take("it")
    with pytest.raises(ModelError):
        other.take("it")
    other.release()
    with pytest.raises(ModelError):
        other.take("it")
    (path.parent / "notes").write_text("")
    lock.release()
    assert [one.name for one in path.parent.iterdir()] == ["notes"]
    lock.release()
    other.take("it")


def test_a_file_that_is_removed_while_it_is_locked_is_made_anew(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who held it may remove it after another has opened it: to lock that one is worth nothing."""
    first, flock = Lock(path), fcntl.flock
    first.take("it")

    def late(handle: int, how: int) -> None:
        first.release()
        flock(handle, how)

    monkeypatch.setattr(fcntl, "flock", late)
    second = Lock(path)
    second.take("it")
    monkeypatch.undo()
    with pytest.raises(ModelError):
        Lock(path).take("it")
    second.release()


def test_without_locks_a_line_of_the_log_says_so(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def none(handle: int, how: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", none)
    Lock(path).take("the training")
    assert f"warning: {path}: can't be locked (No locks available): the training may run twice" in (
        capsys.readouterr().err
    )


def test_a_lock_that_cannot_be_written_is_refused(path: Path, tmp_path: Path) -> None:
    path.parent.mkdir()
    path.symlink_to(tmp_path / "elsewhere")
    with fails(UsageError, path):
        Lock(path).take("it")
    assert not (tmp_path / "elsewhere").exists()
    (tmp_path / "file").write_text("")
    with fails(UsageError):
        Lock(tmp_path / "file" / "lock").take("it")


def test_what_is_to_be_done_at_the_end_is_done_after_an_error() -> None:
    done: list[str] = []
    with pytest.raises(ZeroDivisionError), world("cpu") as here:
        assert here.device == torch.device("cpu")
        here.at_end.callback(done.append, "done")
        raise ZeroDivisionError
    assert done == ["done"]
