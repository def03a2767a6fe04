"""Signals as bigWig where disks have little room; tests/faults fills real ones."""

import errno
import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

import pybigtools
import pytest

from bigbird_dna.scoring.formats import write_bigwig
from tests.golden.messages import fails

VALUES = [("one", 10 * place, 10 * place + 10, place / 8) for place in range(300)]


class Usage(NamedTuple):
    """Of a disk."""

    free: int


@pytest.mark.parametrize("full", ["output", "temporary"])
def test_a_disk_with_little_room_is_told_of_before_anything_is_lost(
    full: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a full disk for temporary files pybigtools would end well, with a file that can't be read."""
    (tmp_path / "temporary").mkdir()
    (tmp_path / "output").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    path = tmp_path / "output/x.bw"
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda place: Usage(10_000 if place.name == full else 1 << 30))
        with fails(OSError) as caught:
            write_bigwig(path, VALUES, {"one": 5000}, "window")
    assert caught.value.errno == errno.ENOSPC and not [*path.parent.iterdir()]
    write_bigwig(path, VALUES, {"one": 5000}, "window")
    assert [*pybigtools.open(str(path)).records("one")] == [value[1:] for value in VALUES]
