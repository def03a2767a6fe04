"""Published models get here whole, from the package and from a server, or with one line not at all."""

import gzip
import hashlib
import io
import json
import random
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bigbird_dna
from bigbird_dna.disk.directories import MARKER
from bigbird_dna.errors import BigBirdDnaError, DataError, ModelError, UsageError
from bigbird_dna.genome import download as downloads
from bigbird_dna.model.catalog import Published
from bigbird_dna.registry.publishing import fetch_model, pack, packed, unpack
from tests.file_server import FileServer, running_server
from tests.golden.messages import fails
from tests.registry.shelf import installed as installed
from tests.registry.shelf import make_toy, publish, write_list
from tests.registry.shelf import shelf as shelf
from tests.toys import random_dna


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    monkeypatch.setattr(downloads, "PAUSE", 0.0)
    with running_server() as server:
        yield server


def served(shelf: Path, server: FileServer) -> None:
    """Let the model of the list be at an address."""
    server.files["toy.tar"] = (shelf.parent / "toy.tar").read_bytes()
    relist(shelf, where=[server.url("toy.tar")])


def relist(shelf: Path, **fields: Any) -> None:
    """Change fields of the list's one entry."""
    entry = Published(shelf).models["toy"].model_dump() | fields
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
    assert "license: free for all" in line and "models/toy/MODEL_CARD.md" in line
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
        bigbird_dna.load(one) for one in (Path("mine"), shelf.parent / "made")
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
    "fields", [{"where": ["http://127.0.0.1:9/toy.tar"]}, {"sha256": "0" * 64}]
)
def test_no_server_and_another_checksum(
    shelf: Path, server: FileServer, fields: dict[str, Any]
) -> None:
    served(shelf, server)
    relist(shelf, **fields)
    refused(shelf, DataError)


def test_a_bundled_model_that_was_changed_is_refused(shelf: Path) -> None:
    """Also where its own checksums don't look: they leave out the card and the figures."""
    home = shelf.parent / "models/toy"
    for name in content(home):
        before = (home / name).read_bytes()
        (home / name).write_bytes(before[:-1] + bytes([before[-1] ^ 1]))
        refused(shelf, ModelError, home)
        (home / name).write_bytes(before)
    (home / "more.txt").touch()
    refused(shelf, ModelError, home)


@pytest.mark.parametrize(
    ("file", "data"),
    [
        ("config.json", b"{}"),
        ("model.safetensors", None),
        ("MODEL_CARD.md", None),
        ("link", None),
    ],
)
def test_a_wrong_model_with_the_right_checksum(
    shelf: Path, server: FileServer, tmp_path: Path, file: str, data: bytes | None
) -> None:
    """Whoever wrote the list may have packed anything: it is refused, and nothing of it stays."""
    own = {
        name: one
        for name, one in content(shelf.parent / "models/toy").items()
        if name != file
    }
    own |= {} if data is None else {file: data}
    link = made(special(tarfile.SYMTYPE, "toy/config.json", "/etc/passwd"))
    served(shelf, server)
    content_ = link if file == "link" else archive(tmp_path / "in", own)
    server.files["toy.tar"] = content_
    relist(shelf, size=len(content_), sha256=hashlib.sha256(content_).hexdigest())
    assert ".bigbird-dna-" not in refused(shelf, ModelError, "toy")


def test_faults_of_usage_and_of_the_list(shelf: Path) -> None:
    bundled = shelf.parent / "models/toy"
    refused(shelf, UsageError, "tay", name="tay")
    for output in (Path(), bundled, bundled / "new"):
        refused(shelf, UsageError, output=output)
    relist(shelf, task="pretraining")
    refused(shelf, ModelError, "toy")
    relist(shelf, where="gone")
    refused(shelf, ModelError, "gone")


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


def test_publishing_a_fetched_model_gives_the_same_archive(shelf: Path) -> None:
    """Its own card stays, also one that was edited."""
    fetched = fetch_model("toy", catalog=shelf)
    entry = publish(fetched, Path("again.tar"))
    assert entry == Published(shelf).models["toy"].model_dump()
    assert Path("again.tar").read_bytes() == (shelf.parent / "toy.tar").read_bytes()
    (fetched / "MODEL_CARD.md").write_text("# mine\n")
    assert publish(fetched, Path("edited.tar"))["sha256"] != entry["sha256"]
    with tarfile.open("edited.tar") as archive:
        card = archive.extractfile("toy/MODEL_CARD.md")
        assert card is not None and card.read() == b"# mine\n"


@pytest.mark.parametrize(
    "spoil",
    [
        lambda m: (m / "deep").mkdir(),
        lambda m: (m / "x").symlink_to("config.json"),
        lambda m: (m / "a b").touch(),
        lambda m: (m / "a\nb").touch(),
        lambda m: (m / "provenance.json").unlink(),
        lambda m: (m / "config.json").write_text("{}"),
        lambda m: (m / "metrics.json").write_text("["),
    ],
)
def test_a_model_that_cannot_be_published(tmp_path: Path, spoil: Any) -> None:
    model = make_toy(tmp_path / "toy")
    spoil(model)
    with fails(BigBirdDnaError):
        publish(model, tmp_path / "toy.tar")
    assert not (tmp_path / "toy.tar").exists()


def test_hidden_files_of_other_programs_are_left_out(tmp_path: Path) -> None:
    model = make_toy(tmp_path / "toy")
    before = publish(model, tmp_path / "one.tar")
    (model / ".snakemake_timestamp").touch()
    assert publish(model, tmp_path / "other.tar") == before
    known = content(model).keys() - {".snakemake_timestamp"}
    assert json.loads((model / MARKER).read_text())["files"].keys() == known


# Archives of models: the same bytes every time, read by any tar, and nothing else is unpacked


FILE_NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,47}", fullmatch=True)
CONTENT = {
    "MODEL_CARD.md": b"# toy\n",
    "config.json": b"{}",
    "empty": b"",
    "model.safetensors": bytes(2000),
}


def files(directory: Path, content: dict[str, bytes]) -> dict[str, Path]:
    directory.mkdir(exist_ok=True)
    for name, data in content.items():
        (directory / name).write_bytes(data)
    return {name: directory / name for name in content}


def archive(
    directory: Path, content: dict[str, bytes] = CONTENT, name: str = "toy"
) -> bytes:
    stream = io.BytesIO()
    pack(name, files(directory, content), stream.write)
    return stream.getvalue()


def unpacked(path: Path, data: bytes, name: str = "toy") -> dict[str, bytes]:
    path.write_bytes(data)
    target = path.with_name("unpacked")
    target.mkdir()
    unpack(path, name, target)
    return {one.name: one.read_bytes() for one in target.iterdir()}


@settings(max_examples=60)
@given(
    st.dictionaries(FILE_NAMES, st.binary(max_size=1500), min_size=1, max_size=6),
    FILE_NAMES,
)
def test_what_is_packed_comes_out(
    tmp_path_factory: pytest.TempPathFactory, content: dict[str, bytes], name: str
) -> None:
    home = tmp_path_factory.mktemp("archive")
    data = archive(home / "in", content, name)
    assert unpacked(home / "x.tar", data, name) == content
    assert packed(name, files(home / "in", content)) == (
        len(data),
        hashlib.sha256(data).hexdigest(),
    )
    # Python's own reader, as an oracle: the same files, below one directory.
    with tarfile.open(fileobj=io.BytesIO(data)) as read:
        found = {one.name: read.extractfile(one).read() for one in read}  # type: ignore[union-attr]
    assert found == {f"{name}/{file}": data for file, data in content.items()}


def test_the_bytes_follow_from_the_files_alone(tmp_path: Path) -> None:
    """Not from times, owners, permissions, or the order in which they are named."""
    before = archive(tmp_path / "one")
    changed = files(tmp_path / "other", dict(reversed(CONTENT.items())))
    changed["config.json"].chmod(0o600)
    stream = io.BytesIO()
    pack("toy", changed, stream.write)
    assert stream.getvalue() == before
    # Checksums of archives stand in lists: later versions write the same bytes.
    assert hashlib.sha256(before).hexdigest()[:16] == "8f92696ff01c0389"


def made(
    *members: tarfile.TarInfo | tuple[str, bytes], format: int = tarfile.USTAR_FORMAT
) -> bytes:
    """A tar file as Python writes it."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=format) as writer:
        for member in members:
            content = b""
            if isinstance(member, tuple):
                name, content = member
                member = tarfile.TarInfo(name)
                member.size = len(content)
            writer.addfile(member, io.BytesIO(content))
    return stream.getvalue()


def special(kind: bytes, name: str = "toy/x", target: str = "") -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member


NAMES = {
    **{
        "slip": "toy/../../x",
        "slip in the directory": "../x",
        "absolute": "/tmp/x",
        "dots": "toy/..",
    },
    **{
        "no directory": "x",
        "deeper": "toy/x/y",
        "another directory": "tay/x",
        "hidden": "toy/.x",
    },
    **{
        "line break": "toy/a\nb",
        "escape sequence": "toy/\x1b[31m",
        "not ASCII": "toy/ä",
        "no name": "toy/",
    },
}
LONG = (f"toy/{'x' * 200}", b"a")
ONE = made(("toy/a", b"a"))
HOSTILE: dict[str, bytes] = {
    **{case: made((name, b"a")) for case, name in NAMES.items()},
    "long name": made(LONG, format=tarfile.GNU_FORMAT),
    "extended header": made(LONG, format=tarfile.PAX_FORMAT),
    "symbolic link": made(special(tarfile.SYMTYPE, target="/etc/passwd")),
    "hard link": made(("toy/a", b"a"), special(tarfile.LNKTYPE, target="toy/a")),
    "directory": made(special(tarfile.DIRTYPE, "toy")),
    "device": made(special(tarfile.CHRTYPE)),
    "pipe": made(special(tarfile.FIFOTYPE)),
    "sparse": made(special(tarfile.GNUTYPE_SPARSE)),
    "twice": made(("toy/a", b"1"), ("toy/a", b"2")),
    "another order": made(("toy/b", b"1"), ("toy/a", b"2")),
    **{"nothing": b"", "zeros": bytes(512), "text": b"<html>" * 200},
    "gzip": gzip.compress(ONE * 3, 0, mtime=0),
    "more than it has": made(("toy/a", b"a" * 5000))[:2048],
    "something after it": ONE + bytes(10240),
    "something in its end": ONE[:-1] + b"x",
    "something between": ONE.replace(b"a" + bytes(511), b"a" + bytes(510) + b"x"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_other_archives_are_refused(tmp_path: Path, case: str) -> None:
    (tmp_path / "untouched").write_text("mine")
    with fails(ModelError, tmp_path / "x.tar"):
        unpacked(tmp_path / "x.tar", HOSTILE[case])
    assert {one.name for one in tmp_path.iterdir()} == {
        "untouched",
        "x.tar",
        "unpacked",
    }
    assert all(
        one.is_file() and not one.is_symlink()
        for one in (tmp_path / "unpacked").iterdir()
    )


def test_an_archive_that_claims_terabytes_is_refused_at_once(tmp_path: Path) -> None:
    data = bytearray(archive(tmp_path / "in"))
    for size in (b"77777777777", b"\x80\x00\x00\x7f\xff\xff\xff\xff\xff\xff\xff"):
        header = bytearray(data[:512])
        header[124:135] = size
        header[148:156] = b" " * 8
        header[148:156] = b"%06o\0 " % sum(header)
        (tmp_path / "unpacked").mkdir(exist_ok=True)
        (tmp_path / "x.tar").write_bytes(header + data[512:])
        with pytest.raises(ModelError):
            unpack(tmp_path / "x.tar", "toy", tmp_path / "unpacked")
        assert not any((tmp_path / "unpacked").iterdir())


def test_no_other_archive_gives_the_same_files(tmp_path: Path) -> None:
    """Any byte that is changed, and any end that is cut off, changes a file's content or is refused."""
    data, draw = archive(tmp_path / "in"), random.Random(3)
    places = [*range(0, 512, 2), *(draw.randrange(len(data)) for _ in range(200))]
    changes: list[Callable[[], bytes]] = [
        *(
            lambda p=p: (
                data[:p] + bytes([data[p] ^ 1 << draw.randrange(8)]) + data[p + 1 :]
            )
            for p in places
        ),  # type: ignore[misc]
        *(lambda p=p: data[:p] for p in draw.sample(range(len(data)), 60)),  # type: ignore[misc]
    ]
    (tmp_path / "unpacked").mkdir()
    refused = 0
    for change in changes:
        (tmp_path / "x.tar").write_bytes(change())
        for one in (tmp_path / "unpacked").iterdir():
            one.unlink()
        try:
            unpack(tmp_path / "x.tar", "toy", tmp_path / "unpacked")
        except ModelError:
            refused += 1
            continue
        assert {
            one.name: one.read_bytes() for one in (tmp_path / "unpacked").iterdir()
        } != CONTENT
    assert refused > 400
