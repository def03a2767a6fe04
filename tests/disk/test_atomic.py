"""Outputs appear whole or not at all."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bigbird_dna.disk import atomic as scratch
from bigbird_dna.disk.atomic import atomic_path, bgzip_writer, checksum, write_json
from bigbird_dna.errors import DataError, UsageError
from tests.golden.messages import fails


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
    with fails(DataError), atomic_path(target):
        raise OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(RuntimeError), atomic_path(target):
        raise RuntimeError("a defect on a disk that has room")
    with monkeypatch.context() as context:
        context.setattr(os, "fsync", _full)
        with fails(DataError), atomic_path(target):
            raise RuntimeError("PytorchStreamWriter failed")
    assert not list(tmp_path.iterdir())


def _full(_: int) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_htslib_prints_nothing_of_its_own(capfd: pytest.CaptureFixture[str]) -> None:
    """Neither while writing, nor when an object goes that couldn't be closed."""
    for count in (1_000, 60_000, 1_000_000):
        with pytest.raises(OSError), bgzip_writer(Path("/dev/full")) as stream:
            stream.write(os.urandom(count))
        del stream
    assert capfd.readouterr() == ("", "")


def test_directories_that_nothing_was_written_to_are_removed_at_the_end(tmp_path: Path) -> None:
    (tmp_path / "before").mkdir()
    code = (
        "import sys; from pathlib import Path; from bigbird_dna.disk.atomic import check_writable;"
        "from bigbird_dna.disk.atomic import remove_left; home = Path(sys.argv[1]);"
        "[check_writable(home / name / 'inner/out') for name in ('before', 'failed', 'done')];"
        "(home / 'done/out').write_text('new'); remove_left()"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    assert {str(one.relative_to(tmp_path)) for one in tmp_path.rglob("*")} == {"before", "done", "done/out"}


def test_what_killed_processes_left_is_removed_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scratch, "swept", set())
    code = (
        "import os, sys; from pathlib import Path; from bigbird_dna.disk.atomic import make_scratch;"
        "made = make_scratch(Path(sys.argv[1])); (made / 'half').write_text('half'); print(made.name)"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    litter = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
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
