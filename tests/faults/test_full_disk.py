"""Every command that writes, on a disk that fills up: one line, and no half of a file."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.faults.nursery import Ended, Nursery
from tests.faults.test_kills import ALL, files, litter, output, undisturbed
from tests.faults.world import COMMANDS, World

KILOBYTES = 64
_LAUNCHER = f'mount -t tmpfs -o size={KILOBYTES}k none "$0" && exec "$@"'


class Disk(NamedTuple):
    """A small disk, and where processes run that see it."""

    nursery: Nursery
    place: Path  # as the processes call it

    @property
    def seen(self) -> Path:
        """The same, as this process sees it."""
        return self.nursery.root / self.place.relative_to("/")


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Disk]:
    place = tmp_path_factory.mktemp("disk")
    launcher = ["unshare", "--map-root-user", "--mount", "sh", "-c", _LAUNCHER, str(place)]
    if shutil.which("unshare") is None or subprocess.run([*launcher, "true"], check=False).returncode:
        pytest.skip("needs `unshare --mount`, to make a small disk")
    nursery = Nursery(*launcher)
    yield Disk(nursery, place)
    nursery.close()


def fill(disk: Disk, kilobytes: int) -> None:
    """Leave so much room on the disk, and nothing else."""
    for one in disk.seen.iterdir():
        shutil.rmtree(one) if one.is_dir() else one.unlink()
    if kilobytes < KILOBYTES:
        (disk.seen / "filler").write_bytes(bytes((KILOBYTES - kilobytes) * 1024))


def on_full_disk(disk: Disk, world: World, name: str, home: Path, kilobytes: int) -> Ended:
    expected, _ = undisturbed(disk.nursery, world, name, home / f"undisturbed-{kilobytes}")
    fill(disk, kilobytes)
    here = home / f"messages-{kilobytes}"
    here.mkdir()
    words = COMMANDS[name].words(world, output(disk.place, name))
    ended = disk.nursery.run(words, here, environment={"TMPDIR": str(disk.place)})
    found, about = files(disk.seen), (name, kilobytes, ended)
    assert "Traceback" not in ended.err, about
    assert not litter(disk.seen), about
    results = {one for one in expected if not one.startswith("checkpoints")}
    assert all(found[one] == expected[one] for one in results & set(found)), about
    if ended.code == 0:
        assert results <= set(found), about
    else:
        assert ended.code in (1, 2), about
        *before, line = ended.err.splitlines()
        assert not any(line.startswith("[") for line in before), about  # HTSlib's own
        assert line.startswith("bigbird-dna: error: ") and "No space left on device" in line, about
        left = {one for one in found if not one.startswith("checkpoints")}
        assert left - {"filler"} <= set(expected), about
        assert not [one for one in disk.seen.rglob("*") if one.is_dir() and not any(one.iterdir())], about
    return ended


@pytest.mark.slow
@pytest.mark.parametrize("kilobytes", [64, 20, 4, 0])
@pytest.mark.parametrize("name", ALL)
def test_every_command(name: str, kilobytes: int, disk: Disk, world: World, tmp_path: Path) -> None:
    on_full_disk(disk, world, name, tmp_path, kilobytes)


@pytest.mark.slow
@pytest.mark.parametrize("kilobytes", [16, 12, 8])
def test_vectors_of_which_a_part_fits(kilobytes: int, disk: Disk, world: World, tmp_path: Path) -> None:
    """They are written as they are made, and a disk that is full in the middle is told of as at the start."""
    on_full_disk(disk, world, "experiment compare layers", tmp_path, kilobytes)
