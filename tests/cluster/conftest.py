"""Slurms of several sizes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.site import start


@pytest.fixture
def one_node(tmp_path: Path) -> Iterator[None]:
    """Slurm with one node, which has two stand-ins for GPUs."""
    stop = start(tmp_path / "slurm", 1)
    yield
    stop()


@pytest.fixture
def two_nodes(tmp_path: Path) -> Iterator[None]:
    """Slurm with two nodes, each of which has one."""
    stop = start(tmp_path / "slurm", 2)
    yield
    stop()
