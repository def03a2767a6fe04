"""The public names as a type checker sees them."""

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent


@pytest.mark.slow
def test_the_public_names_pass_mypy_in_strict_mode() -> None:
    words = (
        "--strict",
        "--config-file=",
        "--ignore-missing-imports",
        HERE / "typed_use.py",
    )
    outcome = subprocess.run(
        [sys.executable, "-m", "mypy", *map(str, words)],
        cwd=HERE.parent.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
