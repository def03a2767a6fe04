"""Archives of models: the same bytes every time, read by any tar, and nothing else is unpacked."""

import gzip
import hashlib
import io
import random
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigbird_dna.errors import ModelError
from bigbird_dna.registry.publishing import pack, packed, unpack
from tests.golden.messages import fails

FILE_NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,47}", fullmatch=True)
CONTENT = {"MODEL_CARD.md": b"# toy\n", "config.json": b"{}", "empty": b"", "model.safetensors": bytes(2000)}


def files(directory: Path, content: dict[str, bytes]) -> dict[str, Path]:
    directory.mkdir(exist_ok=True)
    for name, data in content.items():
        (directory / name).write_bytes(data)
    return {name: directory / name for name in content}


def archive(directory: Path, content: dict[str, bytes] = CONTENT, name: str = "toy") -> bytes:
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
@given(st.dictionaries(FILE_NAMES, st.binary(max_size=1500), min_size=1, max_size=6), FILE_NAMES)
def test_what_is_packed_comes_out(
    tmp_path_factory: pytest.TempPathFactory, content: dict[str, bytes], name: str
) -> None:
    home = tmp_path_factory.mktemp("archive")
    data = archive(home / "in", content, name)
    assert unpacked(home / "x.tar", data, name) == content
    assert packed(name, files(home / "in", content)) == (len(data), hashlib.sha256(data).hexdigest())
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


def made(*members: tarfile.TarInfo | tuple[str, bytes], format: int = tarfile.USTAR_FORMAT) -> bytes:
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
    **{"slip": "toy/../../x", "slip in the directory": "../x", "absolute": "/tmp/x", "dots": "toy/.."},
    **{"no directory": "x", "deeper": "toy/x/y", "another directory": "tay/x", "hidden": "toy/.x"},
    **{"line break": "toy/a\nb", "escape sequence": "toy/\x1b[31m", "not ASCII": "toy/ä", "no name": "toy/"},
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
    with fails(ModelError, tmp_path / "x.tar") as caught:
        unpacked(tmp_path / "x.tar", HOSTILE[case])
    assert str(caught.value).isprintable()
    assert {one.name for one in tmp_path.iterdir()} == {"untouched", "x.tar", "unpacked"}
    assert all(one.is_file() and not one.is_symlink() for one in (tmp_path / "unpacked").iterdir())


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
        *(lambda p=p: data[:p] + bytes([data[p] ^ 1 << draw.randrange(8)]) + data[p + 1 :] for p in places),  # type: ignore[misc]
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
        assert {one.name: one.read_bytes() for one in (tmp_path / "unpacked").iterdir()} != CONTENT
    assert refused > 400
