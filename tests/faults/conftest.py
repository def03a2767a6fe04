"""What the tests of faults share."""

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bigbird_dna.genome.sources import inputs as public
from bigbird_dna.genome.sources.inputs import Source
from tests.faults.server import CONTENT, FaultyServer, Site, described, running
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
def catalog(monkeypatch: pytest.MonkeyPatch) -> dict[str, Source]:
    """The public files by key: none, to be filled by a test."""
    entries: dict[str, Source] = {}
    monkeypatch.setattr(public, "load_sources", lambda: entries)
    return entries


@pytest.fixture
def site(server: FaultyServer) -> Site:
    """A file at one address."""
    server.sites["one"] = Site(CONTENT)
    return server.sites["one"]


@pytest.fixture
def source(server: FaultyServer, site: Site, catalog: dict[str, Source]) -> Source:
    """The only public file: that site's, with its checksum."""
    digest = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"
    catalog["one"] = described(server, "one", "file.txt", digest)
    return catalog["one"]


@pytest.fixture
def unsigned(source: Source, catalog: dict[str, Source]) -> Source:
    """The same, whose checksum nobody published."""
    catalog["one"] = replace(source, checksum=None)
    return catalog["one"]
