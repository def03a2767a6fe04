"""The site, built once, and a directory in which the documentation's commands can be run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.docs import toy_run


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that `make docs` fills, built as strictly and with the network out of reach."""
    place = tmp_path_factory.mktemp("site")
    nowhere = dict.fromkeys(
        ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9"
    )
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "mkdocs",
            "build",
            "--strict",
            "--quiet",
            "--site-dir",
            place,
        ],
        cwd=REPOSITORY,
        env={
            **os.environ,
            **nowhere,
            "NO_MKDOCS_2_WARNING": "1",
            "PYTHONPATH": str(REPOSITORY),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return place


@pytest.fixture(scope="session")
def toy_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with `results/demo` of toy models."""
    home = tmp_path_factory.mktemp("toy-run")
    toy_run.make(home)
    return home


@pytest.fixture(scope="session")
def demo_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the results of `make demo` as `results/demo`; skips where nobody has run it."""
    results = Path(
        os.environ.get("BIGBIRD_DNA_DEMO", REPOSITORY / "results/demo")
    ).resolve()
    if not (results / "report/summary.txt").is_file():
        pytest.skip(
            f"no results of `make demo` at {results}; set BIGBIRD_DNA_DEMO to their directory"
        )
    home = tmp_path_factory.mktemp("demo-run")
    toy_run.make(home)
    (home / "results/demo").rename(home / "toys")
    (home / "results/demo").symlink_to(results)
    return home
