"""What the tests of faults share."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from bigbird_dna.genome.sources import inputs as public
from bigbird_dna.genome.sources.inputs import Source
from tests.faults.downloads import CONTENT, use
from tests.faults.server import FaultyServer, Site, running
from tests.faults.world import World, make_world


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """The small run; don't write there."""
    return make_world(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="session")
def own_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For results of these tests, by the names of commands."""
    return tmp_path_factory.mktemp("results")


@pytest.fixture(scope="module")
def server() -> Iterator[FaultyServer]:
    with running() as server:
        yield server


@pytest.fixture
def catalogue(monkeypatch: pytest.MonkeyPatch) -> dict[str, Source]:
    """The public files by key: none, to be filled by a test."""
    entries: dict[str, Source] = {}
    monkeypatch.setattr(public, "load_sources", lambda: entries)
    return entries


@pytest.fixture
def source(server: FaultyServer, monkeypatch: pytest.MonkeyPatch) -> Source:
    """The only public file, of `CONTENT`, at the server's site "one"."""
    server.sites["one"] = Site(CONTENT)
    digest = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"
    entry = Source("one", "file.txt", "demo", (server.url("one", 0, "file"),), digest, 1, "free", "us")
    use(monkeypatch, entry)
    return entry
