"""Commands that are ended at any moment, or whose disk fills up, leave nothing half-written."""

import errno
import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from bigbird_dna.disk.atomic import PREFIX
from bigbird_dna.disk.directories import MARKER
from tests.faults.world import COMMANDS, World
from tests.nursery import REPOSITORY, Ended, Nursery

KILLS = int(os.environ.get("BIGBIRD_DNA_KILLS", "60"))
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGKILL)
STOPPED = 75  # a training that has saved a checkpoint first
# Say how long they took, or hold such a file's checksum.
TIMED = {"training.jsonl", "out.json", MARKER}
QUICK = ("score-variants vcf", "export-hf")
ALL = sorted({one.name for one in COMMANDS.values()})
ENDINGS = {
    **{"score-variants vcf": ".vcf.gz", "experiment run cost": ".json"},
    **dict.fromkeys(("prepare reference", "prepare contig"), ".fa.gz"),
}


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    nursery = Nursery()
    yield nursery
    nursery.close()


def output(home: Path, name: str) -> Path:
    ending = ".svg" if name.startswith("report plot-") else ENDINGS.get(name, "")
    return home / f"out{ending}"


def files(home: Path) -> dict[str, str]:
    """Everything below a directory but what says how long it took: file → checksum, directory → ''."""
    return {
        str(one.relative_to(home)): hashlib.sha256(one.read_bytes()).hexdigest()
        if one.is_file()
        else ""
        for one in home.rglob("*")
        if one.name not in TIMED
    }


def _but_emptied(found: dict[str, str]) -> dict[str, str]:
    """Without the directory of checkpoints itself: the run that made it removes it when it is empty, and one
    that goes on with an earlier run's checkpoints, which it deletes, leaves it."""
    return {one: checksum for one, checksum in found.items() if one != "checkpoints"}


def litter(home: Path) -> list[str]:
    return [str(one) for one in home.rglob(f"{PREFIX}*") if one.name != MARKER]


def undisturbed(
    nursery: Nursery, world: World, name: str, home: Path
) -> tuple[dict[str, str], float]:
    home.mkdir()
    ended = nursery.run(COMMANDS[name].words(world, output(home, name)), home)
    assert ended.code == 0, (name, ended.err)
    assert not litter(home)
    return files(home), ended.seconds


def _kill(
    nursery: Nursery, world: World, name: str, home: Path, seed: int, kills: int
) -> None:
    moments = random.Random(f"{seed} {name}")
    expected, seconds = undisturbed(nursery, world, name, home / "undisturbed")
    results = {one for one in expected if not one.startswith("checkpoints")}
    for number in range(kills):
        here = home / str(number)
        here.mkdir()
        words, how = (
            COMMANDS[name].words(world, output(here, name)),
            moments.choice(SIGNALS),
        )
        ended = nursery.run(
            words, here, after=moments.uniform(0, 1.05 * seconds), number=how
        )
        found = files(here)
        about = (name, number, how.name, ended)
        assert "Traceback" not in ended.err, about
        assert all(found[one] == expected[one] for one in results & set(found)), about
        if how == signal.SIGKILL:
            assert ended.code in (0, -how), about
        else:
            codes = (0, 128 + how, -how, *((STOPPED,) if how == signal.SIGTERM else ()))
            assert ended.code in codes, about
            assert not litter(here), about
        again = nursery.run(words, here)
        assert again.code == 0, (about, again.err)
        assert not litter(here), about
        assert _but_emptied(files(here)) == _but_emptied(expected), about


@pytest.mark.parametrize("name", QUICK)
def test_some_commands_are_ended_at_some_moments(
    name: str, nursery: Nursery, world: World, tmp_path: Path
) -> None:
    _kill(nursery, world, name, tmp_path, 1, 1)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_every_command_is_ended_at_random_moments(
    nursery: Nursery, world: World, tmp_path: Path
) -> None:
    """$BIGBIRD_DNA_KILLS of them, spread over the commands."""
    for place, name in enumerate(ALL):
        kills = KILLS // len(ALL) + (place < KILLS % len(ALL))
        home = tmp_path / name.replace(" ", "_")
        home.mkdir()
        _kill(nursery, world, name, home, 2, kills)


def _interrupt_early(count: int, seed: int, words: tuple[str, ...]) -> None:
    """Press Ctrl-C between the moment at which Python itself has started and a second later."""
    moments = random.Random(seed)
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", "import re, runpy"], check=True)
    start = time.monotonic() - began
    for _ in range(count):
        process = subprocess.Popen(
            [sys.executable, "-m", "bigbird_dna.cli.main", *words],
            cwd=REPOSITORY,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        after = 2 * start + moments.uniform(0, 1)
        time.sleep(after)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        assert b"Traceback" not in err, (after, err)
        # Ended by the signal itself where Python was so slow to start that it didn't mind signals yet.
        assert process.returncode in (0, 130, -signal.SIGINT), (
            after,
            process.returncode,
            err,
        )


def test_an_early_interrupt_gives_no_traceback(world: World) -> None:
    _interrupt_early(
        1, 1, ("pretrain", str(world.config), "--set", "pretraining.steps=100000")
    )


@pytest.mark.slow
def test_early_interrupts_give_no_traceback(world: World, tmp_path: Path) -> None:
    _interrupt_early(40, 2, ("--help",))
    words = (
        "-o",
        str(tmp_path / "model"),
        "--checkpoint-dir",
        str(tmp_path / "checkpoints"),
    )
    _interrupt_early(
        60,
        3,
        ("pretrain", str(world.config), "--set", "pretraining.steps=100000", *words),
    )


@pytest.mark.parametrize(
    ("moment", "expected"),
    [
        (
            "import typer.main\ntyper.main.get_command = interrupt",
            "",
        ),  # nothing is there to clean up
        (
            "sys.path.insert(0, sys.argv.pop())",
            "imported",
        ),  # C++ would abort at an exception in its import
    ],
    ids=["before a command", "in an import of a command"],
)
def test_an_interrupt_ends_quietly(tmp_path: Path, moment: str, expected: str) -> None:
    interrupt = "interrupt = lambda *_: os.kill(os.getpid(), signal.SIGINT)\n"
    code = f"import os, signal, sys\nfrom bigbird_dna.cli.main import main\n{interrupt}{moment}\nmain()"
    (tmp_path / "torch.py").write_text(
        f"import os, signal\n{interrupt}interrupt()\nprint('imported')"
    )
    words = [
        "score-promoters",
        str(REPOSITORY / "resources/models/yeast-promoters-window"),
        os.devnull,
        str(tmp_path),
    ]
    ended = subprocess.run(
        [sys.executable, "-c", code, *words],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
    )
    assert (ended.returncode, ended.stdout.strip(), ended.stderr) == (130, expected, "")


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
    launcher = [
        "unshare",
        "--map-root-user",
        "--mount",
        "sh",
        "-c",
        _LAUNCHER,
        str(place),
    ]
    if (
        shutil.which("unshare") is None
        or subprocess.run([*launcher, "true"], check=False).returncode
    ):
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


def on_full_disk(
    disk: Disk, world: World, name: str, home: Path, kilobytes: int
) -> Ended:
    expected, _ = undisturbed(
        disk.nursery, world, name, home / f"undisturbed-{kilobytes}"
    )
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
        assert (
            line.startswith("bigbird-dna: error: ")
            and os.strerror(errno.ENOSPC) in line
        ), about
        left = {one for one in found if not one.startswith("checkpoints")}
        assert left - {"filler"} <= set(expected), about
        assert not [
            one
            for one in disk.seen.rglob("*")
            if one.is_dir() and not any(one.iterdir())
        ], about
    return ended


@pytest.mark.slow
@pytest.mark.parametrize("kilobytes", [64, 20, 4, 0])
@pytest.mark.parametrize("name", ALL)
def test_every_command(
    name: str, kilobytes: int, disk: Disk, world: World, tmp_path: Path
) -> None:
    on_full_disk(disk, world, name, tmp_path, kilobytes)


@pytest.mark.slow
@pytest.mark.parametrize("kilobytes", [16, 12, 8])
def test_vectors_of_which_a_part_fits(
    kilobytes: int, disk: Disk, world: World, tmp_path: Path
) -> None:
    """They are written as they are made, and a disk that is full in the middle is told of as at the start."""
    on_full_disk(disk, world, "experiment compare layers", tmp_path, kilobytes)
