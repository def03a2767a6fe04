"""What the tests of faults share."""

from pathlib import Path

import pytest

from tests.faults.world import World, make_world


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """The small run; don't write there."""
    return make_world(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="session")
def own_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For results of these tests, by the names of commands."""
    return tmp_path_factory.mktemp("results")
