"""The models, genome, regions and variants of the front doors' tests."""

from pathlib import Path
from typing import Any

import pytest

import bigbird_dna
from tests.test_public_api import home as home


@pytest.fixture(scope="module")
def promoter(home: Path) -> Any:
    return bigbird_dna.load(home / "promoter")


@pytest.fixture(scope="module")
def chromatin(home: Path) -> Any:
    return bigbird_dna.load(home / "chromatin")


@pytest.fixture(scope="module", params=["promoter", "chromatin"])
def model(request: pytest.FixtureRequest, home: Path) -> Any:
    return bigbird_dna.load(home / request.param)
