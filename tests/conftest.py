"""Fixtures shared by all tests."""

import os
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Directory of public real data; tests that want it skip where it is missing."""
    path = Path(os.environ.get("BIGBIRD_DNA_DATA", REPOSITORY.parent / "shared" / "data"))
    if not path.is_dir():
        pytest.skip(f"real data not found at {path}; set BIGBIRD_DNA_DATA to its directory")
    return path


@pytest.fixture(scope="session")
def tiny_config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Configuration of a miniature run up to its promoter windows; don't write there."""
    from tests import tiny_run

    return tiny_run.make(tmp_path_factory.mktemp("tiny"))
