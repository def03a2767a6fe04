"""Published models get here whole, from the package and from a server, or with one line not at all."""

import hashlib
import io
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import bigbird_dna
from bigbird_dna.disk.directories import MARKER
from bigbird_dna.errors import BigBirdDnaError, DataError, ModelError, UsageError
from bigbird_dna.genome import download as downloads
from bigbird_dna.model.published import fetch_model, read_published, unpack
from tests.file_server import FileServer, running_server
from tests.golden.messages import fails
from tests.registry.shelf import installed as installed
from tests.registry.shelf import make_toy, write_list
from tests.registry.shelf import shelf as shelf
from tests.toys import random_dna


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    monkeypatch.setattr(downloads, "PAUSE", 0.0)
    with running_server() as server:
        yield server


def served(shelf: Path, server: FileServer) -> None:
    """Let the model of the list be at an address."""
    packed = (shelf.parent / "toy.tar").read_bytes()
    server.files["toy.tar"] = packed
    relist(
        shelf,
        urls=[server.url("toy.tar")],
        sha256=hashlib.sha256(packed).hexdigest(),
    )


def relist(shelf: Path, **fields: Any) -> None:
    """Change fields of the list's one entry."""
    entry = read_published(shelf)["toy"].model_dump(exclude_none=True) | fields
    write_list(
        shelf,
        {"toy": {k: list(v) if isinstance(v, tuple) else v for k, v in entry.items()}},
    )


def content(directory: Path) -> dict[str, bytes]:
    return {
        one.name: one.read_bytes() for one in directory.iterdir() if one.name != MARKER
    }


def test_a_bundled_model_is_copied(
    shelf: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fetch_model("toy", catalog=shelf) == Path("models/toy")
    assert content(Path("models/toy")) == content(shelf.parent / "models/toy")
    line = capsys.readouterr().err
    assert "license: free for all" in line
    # What it made itself it replaces, and nothing else.
    fetch_model("toy", catalog=shelf)
    Path("models/toy/thesis.txt").write_text("years of work")
    with fails(UsageError):
        fetch_model("toy", catalog=shelf)


def test_a_model_is_downloaded(shelf: Path, server: FileServer) -> None:
    expected = content(shelf.parent / "models/toy")
    served(shelf, server)
    assert fetch_model("toy", Path("mine"), shelf) == Path("mine")
    assert content(Path("mine")) == expected
    assert [one.name for one in Path().iterdir()] == ["mine"]
    sequence = random_dna(40, 1)
    ours, theirs = (
        bigbird_dna.load(one) for one in (Path("mine"), shelf.parent / "models/toy")
    )
    assert (
        ours.predict(sequence) == theirs.predict(sequence)
        and ours.sha256 == theirs.sha256
    )


def test_an_interrupted_download_resumes(shelf: Path, server: FileServer) -> None:
    served(shelf, server)
    server.cuts = [downloads._CHUNK, *[0] * (downloads.ATTEMPTS - 1)]
    with fails(DataError):
        fetch_model("toy", None, shelf)
    assert not Path("models/toy").exists()
    assert Path("models/toy.tar.part").stat().st_size == downloads._CHUNK
    server.ranges = []
    fetch_model("toy", None, shelf)
    assert server.ranges == [f"bytes={downloads._CHUNK}-"]
    assert [one.name for one in Path("models").iterdir()] == ["toy"]


def refused(
    shelf: Path,
    error: type[BigBirdDnaError],
    *named: object,
    name: str = "toy",
    output: Any = None,
) -> str:
    """The sentence of a fetch that fails, and leaves nothing."""
    with fails(error, *named) as caught:
        fetch_model(name, output, shelf)
    assert [one for one in Path().rglob("*") if one != Path("models")] == []
    return str(caught.value)


def test_what_is_not_the_archive(shelf: Path, server: FileServer) -> None:
    served(shelf, server)
    server.files["toy.tar"] = server.files["toy.tar"][::-1]
    refused(shelf, DataError)


@pytest.mark.parametrize(
    "fields", [{"urls": ["http://127.0.0.1:9/toy.tar"]}, {"sha256": "0" * 64}]
)
def test_no_server_and_another_checksum(
    shelf: Path, server: FileServer, fields: dict[str, Any]
) -> None:
    served(shelf, server)
    relist(shelf, **fields)
    refused(shelf, DataError)


def test_a_bundled_model_that_was_changed_is_refused(shelf: Path) -> None:
    home = shelf.parent / "models/toy"
    for name in ("config.json", "model.safetensors", "tokenizer.model"):
        before = (home / name).read_bytes()
        (home / name).write_bytes(before[:-1] + bytes([before[-1] ^ 1]))
        refused(shelf, ModelError, name)
        (home / name).write_bytes(before)


def archive(members: dict[str, bytes | tarfile.TarInfo]) -> bytes:
    """A tar file of files by name, or of other members."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as writer:
        for name, content in members.items():
            if isinstance(content, bytes):
                member = tarfile.TarInfo(name)
                member.size = len(content)
                writer.addfile(member, io.BytesIO(content))
            else:
                writer.addfile(content)
    return stream.getvalue()


def special(kind: bytes, name: str, target: str = "") -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member


OTHERS: dict[str, bytes | tarfile.TarInfo] = {
    "../above": b"",
    "toy/../../further": b"",
    "/tmp/absolute": b"",
    "toy/link": special(tarfile.SYMTYPE, "toy/link", "/etc/passwd"),
    "toy/hard": special(tarfile.LNKTYPE, "toy/hard", "/etc/passwd"),
    "toy/pipe": special(tarfile.FIFOTYPE, "toy/pipe"),
    "toy/device": special(tarfile.CHRTYPE, "toy/device"),
    "toy/directory": special(tarfile.DIRTYPE, "toy/directory"),
}


def test_nothing_is_written_outside_of_the_directory(tmp_path: Path) -> None:
    """And no link is made."""
    path, target = tmp_path / "x.tar", tmp_path / "deep/unpacked"
    path.write_bytes(archive(OTHERS))
    target.mkdir(parents=True)
    unpack(path, target)
    files = {"above", "further", "absolute"}
    assert {one.name for one in target.iterdir()} == files
    names = {"x.tar", "deep", "unpacked", *files}
    assert {one.name for one in tmp_path.rglob("*")} == names
    assert not Path("/tmp/absolute").exists()


def test_an_archive_that_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    whole = archive({"toy/model.safetensors": bytes(5000)})
    for number, data in enumerate((whole[:2000], b"no archive")):
        path.write_bytes(data)
        target = tmp_path / str(number)
        target.mkdir()
        with fails(ModelError, path):
            unpack(path, target)


@pytest.mark.parametrize(
    ("file", "data"), [("config.json", b"{}"), ("model.safetensors", None)]
)
def test_a_wrong_model_with_the_right_checksum(
    shelf: Path, server: FileServer, file: str, data: bytes | None
) -> None:
    """Whoever wrote the list may have packed anything: it is refused, and nothing of it stays."""
    members: dict[str, bytes | tarfile.TarInfo] = {
        f"toy/{name}": one
        for name, one in content(shelf.parent / "models/toy").items()
        if name != file
    }
    if data is not None:
        members[f"toy/{file}"] = data
    served(shelf, server)
    packed = archive(members)
    server.files["toy.tar"] = packed
    relist(shelf, sha256=hashlib.sha256(packed).hexdigest())
    with fails(ModelError, "toy") as caught:
        fetch_model("toy", None, shelf)
    assert ".bigbird-dna-" not in str(caught.value)
    assert not Path("models/toy").exists()


def test_faults_of_usage(shelf: Path) -> None:
    refused(shelf, UsageError, "tay", name="tay")
    refused(shelf, UsageError, output=Path())


def test_a_bundled_model_is_loaded_by_its_name(installed: Path) -> None:
    model = bigbird_dna.load("toy")
    assert model.path == installed.parent / "models/toy"
    assert model.predict(random_dna(40, 1)) == bigbird_dna.load(model.path).predict(
        random_dna(40, 1)
    )


def test_a_path_that_is_there_wins_over_a_name(installed: Path) -> None:
    make_toy(Path("toy"), "pretraining")
    assert bigbird_dna.load("toy").task == "pretraining"
    Path("toy/model.safetensors").unlink()
    with fails(ModelError):
        bigbird_dna.load("toy")


@pytest.mark.parametrize("name", ["./toy2", "tay", "a/toy", "..", "to\ny"])
def test_other_names_are_paths(installed: Path, name: str) -> None:
    with fails(BigBirdDnaError):
        bigbird_dna.load(name)
