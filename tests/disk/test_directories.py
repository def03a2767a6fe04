"""Directories that results go to keep what no earlier run wrote."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from bigbird_dna.disk import directories
from bigbird_dna.disk.directories import MARKER, atomic_directory, check_directory, into_directory
from bigbird_dna.errors import UsageError
from tests.golden.messages import fails


def write(path: Path, **files: str) -> None:
    with atomic_directory(path) as temporary:
        for name, content in files.items():
            (temporary / name).parent.mkdir(exist_ok=True)
            (temporary / name).write_text(content)


def add(path: Path, **files: str) -> None:
    with into_directory(path) as temporary:
        for name, content in files.items():
            (temporary / name).write_text(content)


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
    assert content(target) == {"second": "second"} and list(tmp_path.iterdir()) == [target]


def test_an_empty_directory_and_what_snakemake_leaves_may_be_replaced(tmp_path: Path) -> None:
    target = tmp_path / "model"
    target.mkdir()
    write(target, a="a")
    (target / ".snakemake_timestamp").touch()
    (target / "a").unlink()
    write(target, b="b")
    assert content(target) == {"b": "b"}
    assert target.stat().st_mode & 0o777 == 0o777 & ~_umask()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _link(target: Path) -> None:
    (target / "a").rename(target.parent / "elsewhere")
    (target / "a").symlink_to(target.parent / "elsewhere")


@pytest.mark.parametrize(
    "spoil",
    [
        lambda target: (target / "thesis.txt").write_text("years"),
        lambda target: ((target / "notes").mkdir(), (target / "notes/thesis.txt").write_text("years")),
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


def test_locations_that_are_never_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert content(target) == {"thesis.txt": "years", "a": "1", "b": "mine", "c": "2", "d": "mine"}
    assert {one.name for one in target.iterdir()} == {MARKER, "thesis.txt", "a", "b", "c", "d"}


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
    assert {len(one) for one in json.loads((target / MARKER).read_text())["files"].values()} == {1}
