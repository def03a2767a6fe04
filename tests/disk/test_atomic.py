"""Outputs are written whole or not at all, and nothing that an earlier run did not write is lost."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from bigbird_dna.disk.atomic import atomic_path, write_json
from bigbird_dna.disk.directories import (
    MARKER,
    atomic_directory,
    check_directory,
    into_directory,
)
from bigbird_dna.errors import UsageError
from tests.golden.messages import fails


def write(path: Path, **files: str) -> None:
    with atomic_directory(path) as temporary:
        for name, text in files.items():
            (temporary / name).write_text(text)


def add(path: Path, **files: str) -> None:
    with into_directory(path) as temporary:
        for name, text in files.items():
            (temporary / name).write_text(text)


def content(path: Path) -> dict[str, str]:
    return {
        str(one.relative_to(path)): one.read_text()
        for one in path.rglob("*")
        if one.is_file() and one.name != MARKER
    }


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_an_interrupted_writer_leaves_the_old_file(
    tmp_path: Path, error: type[BaseException]
) -> None:
    path = tmp_path / "new/out.json"
    write_json(path, 1)
    with pytest.raises(error), atomic_path(path) as temporary:
        temporary.write_text("half of it")
        raise error
    assert content(tmp_path) == {"new/out.json": "1\n"}


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_an_interrupted_writer_leaves_the_old_directory(
    tmp_path: Path, error: type[BaseException]
) -> None:
    write(tmp_path / "model", a="old")
    add(tmp_path / "report", a="old")
    for context in (
        atomic_directory(tmp_path / "model"),
        into_directory(tmp_path / "report"),
    ):
        with pytest.raises(error), context as temporary:
            (temporary / "a").write_text("half of it")
            raise error
    assert content(tmp_path) == {"model/a": "old", "report/a": "old"}
    assert len(list(tmp_path.iterdir())) == 2


def test_a_file_in_a_file_or_a_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file/out", tmp_path):
        with fails(UsageError, path), atomic_path(path):
            pass


def test_a_long_name(tmp_path: Path) -> None:
    write_json(tmp_path / ("n" * 250 + ".json"), 1)
    assert [len(path.name) for path in tmp_path.iterdir()] == [255]


def test_a_directory_is_replaced(tmp_path: Path) -> None:
    target = tmp_path / "model"
    for name in ("first", "second"):
        write(target, **{name: name})
        assert content(target) == {name: name}
        (target / ".snakemake_timestamp").touch()
    assert json.loads((target / MARKER).read_text())["files"] == ["second"]
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda target: (target / "thesis.txt").write_text("years"),
        lambda target: (target / MARKER).write_text("{"),
        lambda target: (target / MARKER).unlink(),
    ],
)
def test_a_directory_with_other_files_is_refused(
    tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    target = tmp_path / "model"
    write(target, a="a")
    spoil(target)
    before = content(target)
    with fails(UsageError, target):
        check_directory(target)
    with fails(UsageError, target):
        write(target, b="b")
    assert content(target) == before


def test_a_file_that_appears_during_the_work_is_kept(tmp_path: Path) -> None:
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
    assert content(model) == {"a": "a"}


def test_files_are_added_to_a_directory(tmp_path: Path) -> None:
    target = tmp_path / "report"
    target.mkdir()
    (target / "notes.txt").write_text("mine")
    add(target, a="1", b="1")
    add(target, b="2", c="2")
    assert content(target) == {"notes.txt": "mine", "a": "1", "b": "2", "c": "2"}


def test_a_file_that_is_added_to_a_result_is_replaced_with_it(tmp_path: Path) -> None:
    target = tmp_path / "model"
    write(target, a="1")
    add(target, calibration="1")
    write(target, a="2")
    assert content(target) == {"a": "2"}
