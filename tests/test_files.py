"""Outputs appear whole or not at all."""

import json
from pathlib import Path

import pytest

from bigbird_dna.errors import DataError, UsageError
from bigbird_dna.files import atomic_directory, atomic_path, checksum, read_json, write_json


def test_an_error_leaves_the_old_file_and_nothing_beside_it(tmp_path: Path) -> None:
    target = tmp_path / "scores.tsv.gz"
    target.write_text("old")
    with pytest.raises(RuntimeError), atomic_path(target) as temporary:
        assert temporary.suffixes == [".tsv", ".gz"] or temporary.name.endswith(".tsv.gz")
        temporary.write_text("half")
        raise RuntimeError
    assert target.read_text() == "old" and list(tmp_path.iterdir()) == [target]
    with atomic_path(target) as temporary:
        temporary.write_text("new")
    assert target.read_text() == "new" and list(tmp_path.iterdir()) == [target]


def test_a_directory_is_replaced_whole(tmp_path: Path) -> None:
    target = tmp_path / "model"
    for content in ("first", "second"):
        with atomic_directory(target) as temporary:
            (temporary / content).write_text(content)
    assert [path.name for path in target.iterdir()] == ["second"]
    with pytest.raises(RuntimeError), atomic_directory(target) as temporary:
        (temporary / "third").write_text("third")
        raise RuntimeError
    assert [path.name for path in target.iterdir()] == ["second"] and list(tmp_path.iterdir()) == [target]


def test_json_round_trip_and_damage(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "info.json"
    write_json(path, {"å": [1, None]})
    assert read_json(path) == {"å": [1, None]} and json.loads(path.read_text())
    path.write_text("{")
    with pytest.raises(DataError, match=r"info\.json: not readable as JSON"):
        read_json(path)
    with pytest.raises(DataError, match="no such file"):
        read_json(tmp_path / "none.json")


def test_checksum_is_the_published_digest(tmp_path: Path) -> None:
    path = tmp_path / "abc"
    path.write_bytes(b"abc")
    assert checksum(path, "md5") == "900150983cd24fb0d6963f7d28e17f72"


def test_where_nothing_can_be_written_is_a_users_mistake(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    (tmp_path / "directory").mkdir()
    with (
        pytest.raises(UsageError, match=r"file/out\.tsv: can't be written"),
        atomic_path(tmp_path / "file/out.tsv"),
    ):
        pass
    with pytest.raises(UsageError, match="is a directory, a file"), atomic_path(tmp_path / "directory"):
        pass
    with pytest.raises(UsageError, match="is a file, a directory"), atomic_directory(tmp_path / "file"):
        pass
    assert (tmp_path / "file").read_text() == "in the way"
