"""Readers of what publishes models: lists, archives, and the files that a card is made from."""

import functools
import io
import tempfile
from collections.abc import Callable
from pathlib import Path

import yaml

from bigbird_dna.model.catalogue import Published
from bigbird_dna.model.directory import load
from bigbird_dna.model.model import METRICS
from bigbird_dna.registry.card import Publication, model_card
from bigbird_dna.registry.publishing import pack, unpack
from tests.fuzz.reader import Container, Reader, made, put
from tests.registry.shelf import make_toy

ENTRY = {
    "description": "A toy",
    "task": "promoter",
    "licence": "free",
    "size": 10240,
    "sha256": "0" * 64,
    "where": ["https://a/toy.tar", "ftp://b:21/toy.tar"],
    "card": "MODEL_CARD.md",
}
CONTENT = {"MODEL_CARD.md": b"# toy\n", "config.json": b"{}", "model.safetensors": bytes(700)}
_BLOCK = 512


def _list(path: Path) -> None:
    for line in Published(path).lines():
        assert line.isprintable() or "\t" in line


def _archive(path: Path) -> None:
    """What is unpacked packs into the very same bytes."""
    target = path.with_name("unpacked")
    target.mkdir()
    unpack(path, "toy", target)
    stream = io.BytesIO()
    pack("toy", {one.name: one for one in target.iterdir()}, stream.write)
    assert stream.getvalue() == path.read_bytes()


def _packed(content: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with tempfile.TemporaryDirectory() as home:
        directory = put(content, Path(home, "toy"))
        pack("toy", {name: directory / name for name in content}, stream.write)
    return stream.getvalue()


def _headers(data: bytes) -> list[bytes]:
    """The fields of the first header: its sum is put right around them."""
    return [data[:100], data[100:148], data[156:_BLOCK]]


def _with_headers(data: bytes, members: list[bytes]) -> bytes:
    name, middle, end = (
        part.ljust(size, b"\0")[:size] for part, size in zip(members, (100, 48, 356), strict=True)
    )
    total = sum(name) + sum(middle) + 8 * ord(" ") + sum(end)
    return name + middle + b"%06o\0 " % total + end + data[_BLOCK:]


@functools.cache
def _model() -> dict[str, bytes]:
    return made(lambda home: make_toy(home / "toy"))


def _card(name: str) -> Callable[[Path], None]:
    """A card of a model one of whose files, which loading doesn't need, is anything."""

    def read(path: Path) -> None:
        directory = put(_model(), path.with_name("model"))
        model = load(directory)
        (directory / name).write_bytes(path.read_bytes())
        text = model_card(model, Publication("toy", "A toy", "free"))
        assert all(line.isprintable() for line in text.split("\n"))
        assert len(text) < 200_000

    return read


WORDS = (b"-1", b"1e999", b"null", b"1" * 5000, b"[" * 2000, b'"\\u001b"', b"|", b"true", b"{}")
READERS = [
    Reader(
        "models",
        ".yaml",
        _list,
        lambda: [
            yaml.safe_dump({"toy": ENTRY, "own": {**ENTRY, "where": "own"}}, sort_keys=False).encode(),
            b"{}",
        ],
        tokens=(b"null", b"-1", b"1" * 5000, b"http://[", b"&a [*a]", b"!!timestamp x", b"../x", b"<<"),
    ),
    Reader(
        "model-archive",
        ".tar",
        _archive,
        lambda: [_packed(CONTENT), _packed({"empty": b""})],
        Container(_headers, _with_headers),
        (b"toy/../x", b"/etc/passwd", b"77777777777", b"\x80\xff\xff\xff", b"ustar  \0", b"toy/a\nb"),
    ),
    Reader("card-figures", ".json", _card(METRICS), lambda: [_model()[METRICS]], tokens=WORDS),
    Reader(
        "card-origin", ".json", _card("provenance.json"), lambda: [_model()["provenance.json"]], tokens=WORDS
    ),
]
