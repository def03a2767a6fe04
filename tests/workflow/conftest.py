"""Dry runs that several tests read."""

import pytest

from tests.workflow.dry_runs import dry_run, overlay


@pytest.fixture(scope="session")
def demo_run(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The dry run that `snakemake` without a configuration gives."""
    return dry_run(tmp_path_factory.mktemp("demo"))


@pytest.fixture(scope="session")
def tables_run(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The dry run of the demo with Tables 6 and 7."""
    directory = tmp_path_factory.mktemp("tables")
    words = overlay(directory, {})
    return dry_run(directory, *words, "--", "all", "table6", "table7")
