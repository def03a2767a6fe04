"""Small public files of every kind, with limits that make a download fail within a second."""

import io
import tarfile
from pathlib import Path
from random import Random

import pytest

from bigbird_dna.disk.outputs import open_text
from bigbird_dna.errors import BigBirdDnaError, DataError, UsageError
from bigbird_dna.genome.sources import inputs as public
from bigbird_dna.genome.sources.http_request import Limits
from bigbird_dna.genome.sources.inputs import Source
from tests.faults.server import FaultyServer

CONTENT = bytes(range(256)) * 400  # of the one file of some tests
LIMITS = Limits(
    silence=0.25,
    answer=0.35,
    rate=20_000,
    window=0.15,
    futile=3,
    attempts=6,
    seconds=1.5,
    pause=0.001,
    longest_pause=0.05,
    redirects=4,
)


def plain(rng: Random) -> bytes:
    lines = (
        f"chr{rng.randrange(23)}\t{rng.randrange(10**8)}\t{rng.random()}\n" for _ in range(rng.randrange(400))
    )
    return "".join(("contig\tposition\tvalue\n", *lines)).encode()


def bgzip(content: bytes, path: Path) -> bytes:
    with open_text(path) as stream:
        stream.write(content.decode())
    compressed = path.read_bytes()
    path.unlink()
    return compressed


def tar(content: bytes) -> bytes:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as stream:
        member = tarfile.TarInfo("member")
        member.size = len(content)
        stream.addfile(member, io.BytesIO(content))
    return archive.getvalue()


def described(server: FaultyServer, name: str, kind: str, checksum: str | None) -> Source:
    urls = tuple(server.url(name, address, "file") for address in range(len(server.sites[name].scripts)))
    return Source(name, kind.removeprefix("sha256 of "), "demo", urls, checksum, 0.02, "free", "us")


def one_line(error: BigBirdDnaError) -> bool:
    text = str(error)
    return text.isprintable() and len(text) < 3000 and isinstance(error, DataError | UsageError)


def use(monkeypatch: pytest.MonkeyPatch, entry: Source) -> None:
    """Let `entry` be the only public file, by the key "one"."""
    monkeypatch.setattr(public, "load_sources", lambda: {"one": entry})
