"""Outputs appear whole or not at all."""

import errno
import grp
import json
import os
import pwd
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from bigbird_dna.disk import atomic as scratch
from bigbird_dna.disk import directories
from bigbird_dna.disk.atomic import atomic_path, bgzip_writer, checksum, write_json
from bigbird_dna.disk.directories import (
    MARKER,
    atomic_directory,
    check_directory,
    into_directory,
)
from bigbird_dna.disk.user_cache import distrust
from bigbird_dna.errors import DataError, UsageError
from tests.golden.messages import fails, message


def test_an_error_leaves_the_old_file_and_nothing_beside_it(tmp_path: Path) -> None:
    target = tmp_path / "scores.tsv.gz"
    target.write_text("old")
    with pytest.raises(RuntimeError), atomic_path(target) as temporary:
        assert temporary.suffixes == [".tsv", ".gz"] or temporary.name.endswith(
            ".tsv.gz"
        )
        temporary.write_text("half")
        raise RuntimeError
    assert target.read_text() == "old" and list(tmp_path.iterdir()) == [target]
    with atomic_path(target) as temporary:
        temporary.write_text("new")
    assert target.read_text() == "new" and list(tmp_path.iterdir()) == [target]


def test_checksum_is_the_published_digest(tmp_path: Path) -> None:
    path = tmp_path / "abc"
    path.write_bytes(b"abc")
    assert checksum(path, "md5") == "900150983cd24fb0d6963f7d28e17f72"


def test_where_nothing_can_be_written_is_a_users_mistake(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    (tmp_path / "directory").mkdir()
    with fails(UsageError), atomic_path(tmp_path / "file/out.tsv"):
        pass
    with fails(UsageError), atomic_path(tmp_path / "directory"):
        pass
    assert (tmp_path / "file").read_text() == "in the way"


def test_a_full_disk_is_one_line_whatever_the_writer_raises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "out.parquet"
    full = OSError(errno.ENOSPC, "No space left on device")
    with fails(DataError), atomic_path(target):
        raise full
    with pytest.raises(RuntimeError), atomic_path(target):
        raise RuntimeError("a defect on a disk that has room")
    with monkeypatch.context() as context:
        context.setattr(os, "fsync", Mock(side_effect=full))
        with fails(DataError), atomic_path(target):
            raise RuntimeError("PytorchStreamWriter failed")
    assert not list(tmp_path.iterdir())


def test_htslib_prints_nothing_of_its_own(capfd: pytest.CaptureFixture[str]) -> None:
    """Neither while writing, nor when an object goes that couldn't be closed."""
    for count in (1_000, 60_000, 1_000_000):
        with pytest.raises(OSError), bgzip_writer(Path("/dev/full")) as stream:
            stream.write(os.urandom(count))
        del stream
    assert capfd.readouterr() == ("", "")


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What is synchronized and renamed, in order, by the last part of its path."""
    done: list[tuple[str, str]] = []
    fsync, replace = os.fsync, os.replace

    def record_fsync(handle: int) -> None:
        done.append(("fsync", Path(f"/proc/self/fd/{handle}").readlink().name))
        fsync(handle)

    def record_replace(source: Path, target: Path) -> None:
        done.append(("replace", Path(target).name))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", record_fsync)
    monkeypatch.setattr(os, "replace", record_replace)
    return done


def test_what_has_its_name_is_on_disk(
    tmp_path: Path, disk: list[tuple[str, str]]
) -> None:
    """First the content, then the name; a new directory is on disk under its own name as well."""
    with atomic_path(tmp_path / "runs/first/state.pt") as temporary:
        temporary.write_text("weights")
    made = [("fsync", "runs"), ("fsync", tmp_path.name)]
    assert disk == [
        *made,
        ("fsync", "state.pt"),
        ("replace", "state.pt"),
        ("fsync", "first"),
    ]


@pytest.mark.parametrize("exchanges", [True, False])
def test_what_replaces_a_directory_is_on_disk(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    disk: list[tuple[str, str]],
    exchanges: bool,
) -> None:
    named: list[int] = []

    def rename(*words: Any) -> int:
        named.append(len(disk))
        return 0 if exchanges else -1

    monkeypatch.setattr(directories.ctypes, "CDLL", lambda _: Mock(renameat2=rename))
    target = tmp_path / "model"
    for _ in range(2):
        disk.clear()
        with atomic_directory(target) as temporary:
            (temporary / "inner").mkdir()
            for name in ("weights", "inner/config"):
                (temporary / name).write_text(name)
        when = named[-1] if named and exchanges else disk.index(("replace", "model"))
        before, after = disk[:when], disk[when:]
        assert {
            ("fsync", name)
            for name in ("weights", "config", "inner", MARKER, "incoming")
        } <= {*before}
        assert ("fsync", tmp_path.name) in after and (
            "fsync",
            tmp_path.name,
        ) not in before
    assert len(named) == 1


def test_files_that_go_into_a_directory_are_on_disk(
    tmp_path: Path, disk: list[tuple[str, str]]
) -> None:
    """Each before it has its name, and the names between both lists of them."""
    add(tmp_path / "report", a="1", b="2")
    lists = [place for place, one in enumerate(disk) if one == ("replace", MARKER)]
    between = disk[lists[0] + 1 : lists[1]]
    files = [
        [("fsync", name), ("replace", name), ("fsync", "report")] for name in ("a", "b")
    ]
    assert [one for one in between if one != ("fsync", MARKER)] == [
        ("fsync", "report"),
        *files[0],
        *files[1],
    ]


@pytest.mark.parametrize("code", ["EINVAL", "ENOTSUP", "EIO"])
def test_a_file_system_without_synchronization_is_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    """A failure is an error, since the result may be lost."""
    number = getattr(errno, code)
    monkeypatch.setattr(
        os, "fsync", Mock(side_effect=OSError(number, os.strerror(number)))
    )
    if code == "EIO":
        with fails(DataError, tmp_path / "a"):
            write_json(tmp_path / "a", 1)
    else:
        write_json(tmp_path / "a", 1)
        write(tmp_path / "model", a="a")
        assert content(tmp_path) == {"a": "1\n", "model/a": "a"}


def test_directories_that_nothing_was_written_to_are_removed_at_the_end(
    tmp_path: Path,
) -> None:
    (tmp_path / "before").mkdir()
    code = (
        "import sys; from pathlib import Path; from bigbird_dna.disk.atomic import check_writable;"
        "from bigbird_dna.disk.atomic import remove_left; home = Path(sys.argv[1]);"
        "[check_writable(home / name / 'inner/out') for name in ('before', 'failed', 'done')];"
        "(home / 'done/out').write_text('new'); remove_left()"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    assert {str(one.relative_to(tmp_path)) for one in tmp_path.rglob("*")} == {
        "before",
        "done",
        "done/out",
    }


def test_what_killed_processes_left_is_removed_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scratch, "swept", set())
    code = (
        "import os, sys; from pathlib import Path; from bigbird_dna.disk.atomic import make_scratch;"
        "made = make_scratch(Path(sys.argv[1])); (made / 'half').write_text('half'); print(made.name)"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    litter = subprocess.run(
        command, capture_output=True, text=True, check=True
    ).stdout.strip()
    assert (tmp_path / litter / "half").is_file()
    place = litter.split("-")[2]
    kept = [
        f"{scratch.PREFIX}{'0' * 8}-1-1-abcd",  # another machine's
        f"{scratch.PREFIX}{place}-{os.getpid()}-0-abcd",  # a living process's
        f"{scratch.PREFIX}{place}-thesis",
        ".bigbird-dna.json",
        "bigbird-dna-thesis",
    ]
    for name in kept:
        (tmp_path / name).mkdir()
    (tmp_path / litter).with_name(f"{litter}0").symlink_to(tmp_path / kept[0])
    with atomic_path(tmp_path / "new") as temporary:
        temporary.write_text("new")
    assert {path.name for path in tmp_path.iterdir()} - {f"{litter}0"} == {*kept, "new"}


def test_a_name_of_any_length_can_be_written(tmp_path: Path) -> None:
    write_json(tmp_path / ("n" * 250 + ".json"), 1)
    assert [len(path.name) for path in tmp_path.iterdir()] == [255]


# Who could have put a file where it is


@pytest.fixture
def place(tmp_path: Path) -> Path:
    path = tmp_path / "way" / "place"
    path.mkdir(parents=True)
    path.chmod(0o755)
    path.parent.chmod(0o755)
    return path


def test_an_own_directory_is_trusted_however_it_is_reached(
    place: Path, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to("way")
    (tmp_path / "absolute").symlink_to(place)
    ways = ("way/place", "link/place", "absolute", "way/../link/place")
    assert [distrust(tmp_path / way) for way in ways] == [None] * 4


@pytest.mark.parametrize("mode", [0o757, 0o777, 0o1777])
def test_what_others_may_write_to_is_not(place: Path, mode: int) -> None:
    """The way to a directory may be, where it is sticky."""
    place.chmod(mode)
    message(distrust(place) or "")
    place.chmod(0o755)
    place.parent.chmod(mode)
    if mode == 0o1777:
        assert distrust(place) is None
    else:
        message(distrust(place) or "", place.parent)


def test_another_user_s_is_not_trusted(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = pwd.getpwuid(os.geteuid()).pw_name
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    message(distrust(place) or "", owner)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give links away")
def test_another_user_s_link_is_not_followed(place: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(place)
    os.chown(link, 54321, 54321, follow_symlinks=False)
    message(distrust(link) or "", link)


def test_a_group_of_oneself_is_nobody_else(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.chmod(0o775)
    user = pwd.getpwuid(os.geteuid())
    number = place.stat().st_gid
    members: list[str] = []
    monkeypatch.setattr(
        pwd, "getpwuid", lambda _: type(user)([*user[:3], number, *user[4:]])
    )
    monkeypatch.setattr(
        grp, "getgrgid", lambda gid: grp.struct_group((name, "x", gid, members))
    )
    name = user.pw_name
    assert distrust(place) is None
    members.append("somebody")
    assert distrust(place)
    members[:], name = [], "staff"
    assert distrust(place)


def test_no_directory_is_no_place(place: Path, tmp_path: Path) -> None:
    (place / "file").write_text("")
    (tmp_path / "loop").symlink_to("loop")
    for path in (
        place / "file",
        place / "none",
        place / "file/below",
        Path("way"),
        tmp_path / "loop",
    ):
        message(distrust(path) or "")


# Directories that results go to keep what no earlier run wrote


def write(
    path: Path, into: Callable[..., Any] = atomic_directory, **files: str
) -> None:
    with into(path) as temporary:
        for name, content in files.items():
            (temporary / name).write_text(content)


add = partial(write, into=into_directory)


def content(path: Path) -> dict[str, str]:
    return {
        str(one.relative_to(path)): one.read_text()
        for one in path.rglob("*")
        if one.is_file() and one.name != MARKER
    }


@pytest.mark.parametrize("exchanges", [True, False])
def test_a_directory_is_replaced_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exchanges: bool
) -> None:
    if not exchanges:  # as where the file system can't
        monkeypatch.setattr(directories.ctypes, "CDLL", lambda _: None)
    target = tmp_path / "model"
    for name in ("first", "second"):
        write(target, **{name: name})
        assert content(target) == {name: name}
    with pytest.raises(RuntimeError), atomic_directory(target) as temporary:
        (temporary / "third").write_text("third")
        raise RuntimeError
    assert content(target) == {"second": "second"} and list(tmp_path.iterdir()) == [
        target
    ]


def test_an_empty_directory_and_what_snakemake_leaves_may_be_replaced(
    tmp_path: Path,
) -> None:
    target = tmp_path / "model"
    target.mkdir()
    write(target, a="a")
    (target / ".snakemake_timestamp").touch()
    (target / "a").unlink()
    write(target, b="b")
    assert content(target) == {"b": "b"}
    os.umask(mask := os.umask(0))
    assert target.stat().st_mode & 0o777 == 0o777 & ~mask


def _link(target: Path) -> None:
    (target / "a").rename(target.parent / "elsewhere")
    (target / "a").symlink_to(target.parent / "elsewhere")


@pytest.mark.parametrize(
    "spoil",
    [
        lambda target: (target / "thesis.txt").write_text("years"),
        lambda target: (
            (target / "notes").mkdir(),
            (target / "notes/thesis.txt").write_text("years"),
        ),
        lambda target: (target / "photos").mkdir(),
        lambda target: (target / ".git").mkdir(),
        lambda target: (target / "a").write_text("years"),
        _link,
        lambda target: (target / MARKER).write_text("{"),
        lambda target: (target / MARKER).unlink(),
    ],
)
def test_what_is_foreign_is_kept(tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    target = tmp_path / "model"
    write(target, a="a")
    spoil(target)
    before = sorted(str(one) for one in tmp_path.rglob("*")), content(target)
    with fails(UsageError):
        check_directory(target)
    with fails(UsageError):
        write(target, b="b")
    assert (sorted(str(one) for one in tmp_path.rglob("*")), content(target)) == before


def test_what_comes_while_work_goes_on_is_kept(tmp_path: Path) -> None:
    target = tmp_path / "model"
    write(target, a="a")
    with fails(UsageError), atomic_directory(target) as temporary:
        (temporary / "b").write_text("b")
        (target / "thesis.txt").write_text("years")
    assert content(target) == {"a": "a", "thesis.txt": "years"}
    assert [one.name for one in tmp_path.iterdir()] == ["model"]


def test_locations_that_are_never_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, link = tmp_path / "run/model", tmp_path / "link"
    write(model, a="a")
    link.symlink_to(model)
    (tmp_path / "file").write_text("")
    work = tmp_path / "run/inner/here"
    work.mkdir(parents=True)
    monkeypatch.chdir(work)
    inside = (model / "new", model / "deeper/new")
    around = (Path(), Path(".."), Path("/"), work, tmp_path / "run")
    for path in (link, tmp_path / "file", *around, model, *inside):
        with fails(UsageError, path):
            check_directory(path, [model])
    monkeypatch.chdir("/")
    for path, given in ((tmp_path / "run", model), (model, link)):
        with fails(UsageError, path, given):
            check_directory(path, [given])
    assert content(model) == {"a": "a"}


def test_files_go_into_a_directory_beside_others(tmp_path: Path) -> None:
    target = tmp_path / "report"
    target.mkdir()
    (target / "thesis.txt").write_text("years")
    add(target, a="1", b="1")
    add(target, b="2", c="2")
    assert content(target) == {"thesis.txt": "years", "a": "1", "b": "2", "c": "2"}
    (target / "b").write_text("mine")
    (target / "d").write_text("mine")
    for name in ("b", "d", "thesis.txt"):
        with fails(UsageError):
            add(target, **{"a": "3", name: "3"})
    assert content(target) == {
        "thesis.txt": "years",
        "a": "1",
        "b": "mine",
        "c": "2",
        "d": "mine",
    }
    assert {one.name for one in target.iterdir()} == {
        MARKER,
        "thesis.txt",
        "a",
        "b",
        "c",
        "d",
    }


def test_a_run_that_was_killed_while_files_moved_can_be_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "report"
    add(target, a="1", b="1")
    moved: list[Path] = []
    whole = Path.replace

    def replace(self: Path, other: Path) -> Path:
        if self.name in ("a", "b"):
            if moved:
                raise KeyboardInterrupt
            moved.append(self)
        return whole(self, other)

    with monkeypatch.context() as context:
        context.setattr(Path, "replace", replace)
        with pytest.raises(KeyboardInterrupt):
            add(target, a="2", b="2")
    assert content(target) == {"a": "2", "b": "1"}
    add(target, a="3", b="3")
    assert content(target) == {"a": "3", "b": "3"}
    assert {
        len(one) for one in json.loads((target / MARKER).read_text())["files"].values()
    } == {1}
