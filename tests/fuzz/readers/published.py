"""Readers of configurations, of what downloads bring and leave, and of what publishes models."""

import functools
import gzip
import io
import tempfile
from collections.abc import Callable
from pathlib import Path

from bigbird_dna.config import Config, complete, load_config, stage_text
from bigbird_dna.errors import DataError
from bigbird_dna.genome.sources.inputs import read_sources
from bigbird_dna.genome.sources.transfer import find_fault, read_marks
from bigbird_dna.model.card import Publication, model_card
from bigbird_dna.model.catalog import Published
from bigbird_dna.model.directory import load
from bigbird_dna.model.model import METRICS
from bigbird_dna.registry.publishing import pack, unpack
from tests.conftest import REPOSITORY
from tests.fuzz.reader import Container, Reader, made, put, stored
from tests.genome.formats import bgzip, tar
from tests.registry.shelf import make_toy

SOURCES = REPOSITORY / "resources/sources.yaml"
CONTENT = {
    "MODEL_CARD.md": b"# toy\n",
    "config.json": b"{}",
    "model.safetensors": bytes(700),
}
_BLOCK = 512


def _configuration(path: Path) -> object:
    config = complete(load_config(path))
    return stage_text(config, "chromatin"), config.paths.report


def _configurations() -> list[bytes]:
    # That of the tasks on text has other sections, which others read.
    paths = [
        path
        for path in sorted((REPOSITORY / "workflow/config").glob("*.yaml"))
        if path.stem != "nlp"
    ]
    shipped = [path.read_bytes() for path in paths]
    return [
        *shipped,
        stage_text(Config(), "chromatin").encode(),
        *stored("configuration"),
    ]


def _checked(path: Path) -> None:
    fault = find_fault(
        path, f"file{path.suffix}" if path.suffix != ".tgz" else "file.tar.gz", None
    )
    if fault is not None:
        raise DataError(f"{path}: {fault}")


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
        part.ljust(size, b"\0")[:size]
        for part, size in zip(members, (100, 48, 356), strict=True)
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


READERS = [
    Reader(
        "configuration",
        ".yaml",
        _configuration,
        _configurations,
        tokens=(b"__use_yte__: true\n",),
    ),
    Reader(
        "sources",
        ".yaml",
        read_sources,
        lambda: [SOURCES.read_bytes(), *stored("sources")],
    ),
    Reader("download-marks", ".json", read_marks),
    Reader(
        "fetched-gzip",
        ".gz",
        _checked,
        lambda: [
            gzip.compress(b"chr1\t1\t2\n" * 90, mtime=0),
            bgzip(b">a\nACGT\n" * 50),
        ],
    ),
    Reader("fetched-archive", ".tgz", _checked, lambda: [tar(b"")]),
    Reader("fetched-text", ".bed", _checked, tokens=(b"<html>", b"<!DOCTYPE html>")),
    Reader("models", ".yaml", _list),
    Reader(
        "model-archive",
        ".tar",
        _archive,
        lambda: [_packed(CONTENT), _packed({"empty": b""})],
        Container(_headers, _with_headers),
        (
            b"toy/../x",
            b"/etc/passwd",
            b"77777777777",
            b"\x80\xff\xff\xff",
            b"ustar  \0",
            b"toy/a\nb",
        ),
    ),
    Reader("card-figures", ".json", _card(METRICS), lambda: [_model()[METRICS]]),
    Reader(
        "card-origin",
        ".json",
        _card("provenance.json"),
        lambda: [_model()["provenance.json"]],
    ),
]
