"""Dry runs that several tests read."""

import pytest

from tests.workflow.dry_runs import STUDY, dry_run, overlay


@pytest.fixture(scope="session")
def demo_run(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The dry run that `snakemake` without a configuration gives."""
    return dry_run(tmp_path_factory.mktemp("demo"))


@pytest.fixture(scope="session")
def study_run(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The dry run of the demo with a study of both tasks."""
    directory = tmp_path_factory.mktemp("study")
    return dry_run(directory, *overlay(directory, {"pretraining_study": STUDY}))
