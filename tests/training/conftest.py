"""Fixtures that several tests of trainings share."""

from pathlib import Path

import pytest

from tests.training.kinds import make_chromatin


@pytest.fixture(scope="session")
def chromatin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Reference, tokenizer and bins of a chromatin training; don't write there."""
    return make_chromatin(tmp_path_factory.mktemp("chromatin") / "made")
