"""Outputs that are links, pipes and devices, and names of files."""

import errno
import gzip
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest

from bigbird_dna.disk.atomic import atomic_path, check_writable, write_array, write_json
from bigbird_dna.disk.directories import (
    atomic_directory,
    into_directory,
)
from bigbird_dna.disk.outputs import (
    check_output,
    file_names,
    open_text,
)
from bigbird_dna.disk.tables import write_tsv
from bigbird_dna.errors import DataError, UsageError
from bigbird_dna.reporting.result import panels, save_figure
from tests.golden.messages import fails


def text(path: Path) -> None:
    with open_text(path) as stream:
        stream.write("line\n")


def parquet(path: Path) -> None:
    with atomic_path(path) as temporary:
        pd.DataFrame({"x": [1, 2]}).to_parquet(temporary)


def figure(path: Path) -> None:
    with panels(1, 1, 2, 2) as (drawn, _):
        save_figure(drawn, path)


# A writer, a suffix, and whether bytes are what it writes.
WRITERS: dict[str, tuple[Callable[[Path], None], str, Callable[[bytes], bool]]] = {
    "text": (text, ".tsv", lambda data: data == b"line\n"),
    "bgzip": (text, ".tsv.gz", lambda data: gzip.decompress(data) == b"line\n"),
    "json": (
        lambda path: write_json(path, {"a": 1}),
        ".json",
        lambda data: data == b'{\n  "a": 1\n}\n',
    ),
    "array": (
        lambda path: write_array(path, np.arange(3)),
        ".npy",
        lambda data: data[:6] == b"\x93NUMPY",
    ),
    "table": (
        lambda path: write_tsv(path, pd.DataFrame({"x": [1]})),
        ".tsv",
        lambda data: data == b"x\n1\n",
    ),
    "figure": (figure, ".png", lambda data: data[:4] == b"\x89PNG"),
    "parquet": (parquet, ".parquet", lambda data: data[:4] == data[-4:] == b"PAR1"),
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_link_stays_and_its_target_is_written(tmp_path: Path, name: str) -> None:
    """Even if the target has another suffix, or does not exist yet."""
    write, suffix, is_right = WRITERS[name]
    (tmp_path / "store").mkdir()
    link, target = tmp_path / f"link{suffix}", tmp_path / "store" / "target"
    link.symlink_to("store/target")
    for before in (None, "old"):
        if before is not None:
            target.write_text(before)
        write(link)
        assert (
            link.is_symlink()
            and not target.is_symlink()
            and is_right(target.read_bytes())
        )
    assert [path.name for path in (tmp_path / "store").iterdir()] == ["target"]
    assert {path.name for path in tmp_path.iterdir()} == {link.name, "store"}


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (KeyboardInterrupt(), KeyboardInterrupt),
        (SystemExit(143), SystemExit),
        (OSError(errno.ENOSPC, "No space left on device"), (OSError, DataError)),
    ],
    ids=["SIGINT", "SIGTERM", "full disk"],
)
def test_an_interrupted_writer_leaves_the_old_file(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    error: BaseException,
    raised: Any,
) -> None:
    write, suffix, _ = WRITERS[name]
    path = tmp_path / f"out{suffix}"
    path.write_text("old")
    # The last moment before the new file would have its name.
    monkeypatch.setattr(Path, "replace", Mock(side_effect=error))
    with pytest.raises(raised):
        write(path)
    assert path.read_text() == "old"
    assert [*tmp_path.iterdir()] == [path]


@pytest.mark.parametrize("name", WRITERS)
def test_a_pipe_receives_the_bytes(tmp_path: Path, name: str) -> None:
    write, suffix, is_right = WRITERS[name]
    pipe, received = tmp_path / f"pipe{suffix.removesuffix('.gz')}", list[bytes]()
    if name == "bgzip":
        pytest.skip("a pipe receives text as it is")
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: received.append(pipe.read_bytes()))
    reader.start()
    check_writable(pipe)
    write(pipe)
    reader.join(20)
    assert pipe.is_fifo() and is_right(received[0]) and [*tmp_path.iterdir()] == [pipe]


@pytest.mark.parametrize("name", WRITERS)
def test_a_device_stays_a_device(tmp_path: Path, name: str) -> None:
    """Through a link, because a figure needs a suffix."""
    write, suffix, _ = WRITERS[name]
    link = tmp_path / f"null{suffix}"
    link.symlink_to(os.devnull)
    write(link)
    assert (
        Path(os.devnull).is_char_device()
        and link.is_symlink()
        and [*tmp_path.iterdir()] == [link]
    )
    if Path("/dev/full").exists():
        full = tmp_path / f"full{suffix}"
        full.symlink_to("/dev/full")
        with pytest.raises((OSError, DataError)):
            write(full)


def test_a_failed_command_leaves_the_target_of_a_link(tmp_path: Path) -> None:
    link, target = tmp_path / "link", tmp_path / "target"
    link.symlink_to("target")
    target.write_text("old")
    with pytest.raises(RuntimeError), atomic_path(link) as temporary:
        temporary.write_text("half of it")
        raise RuntimeError
    assert target.read_text() == "old" and {
        path.name for path in tmp_path.iterdir()
    } == {"link", "target"}


def test_a_link_to_a_directory_stays(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    link = tmp_path / "link"
    link.symlink_to("store/model")
    for into, name in (
        (atomic_directory, "a"),
        (atomic_directory, "b"),
        (into_directory, "c"),
    ):
        with into(link) as temporary:  # type: ignore[operator]
            (temporary / name).write_text(name)
    assert link.is_symlink()
    assert {
        path.name
        for path in (tmp_path / "store/model").iterdir()
        if path.name[0] != "."
    } == {"b", "c"}


def test_an_output_is_no_input_and_not_inside_a_model(tmp_path: Path) -> None:
    model, other = tmp_path / "model", tmp_path / "other"
    for path in (model, other):
        path.mkdir()
    (model / "config.json").write_text("{}")
    (tmp_path / "link").symlink_to("model")
    for output in (
        model,
        model / "x.tsv",
        model / "deep/x.tsv",
        tmp_path / "link",
        tmp_path / "link/x",
    ):
        with fails(UsageError, output):
            check_output(output, [model])
        if output.is_dir():
            with fails(UsageError, output), into_directory(output, [model]):
                pass
    for output in (other / "x", tmp_path / "models", Path(os.devnull)):
        check_output(output, [model, Path(os.devnull)])
    assert [path.name for path in model.iterdir()] == ["config.json"]


def test_names_of_files_are_different_short_and_plain() -> None:
    plain = ["CTCF", "chr1_100-200", "a.b"]
    assert file_names(plain) == dict(zip(plain, plain, strict=True))
    names = [
        "CD4+ T",
        "CD4_T",
        "CD4 T",
        "a/b",
        "ctcf",
        "CTCF",
        "é",
        "ё",
        "",
        "..",
        "-o",
    ]
    names += ["x" * 300, "x" * 301, "/etc/passwd", "../a", "CTCF_6"]
    files = file_names(names)
    assert list(files) == names
    assert len({name.casefold() for name in files.values()}) == len(names)
    for name in files.values():
        assert name.isascii() and 0 < len(name) < 80 and name[0] not in "-."
        assert "/" not in name
    assert files["CD4+ T"] == "CD4_T" and files["CD4 T"] == "CD4_T_3"
