"""A report of a tenth of DeepSEA's rows, in the time that only `make test-slow` takes."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("auc_report.py")


@pytest.mark.slow
def test_time_memory_and_figures() -> None:
    command = [sys.executable, str(SCRIPT), "--rows", "45502"]
    outcome = subprocess.run(command, capture_output=True, text=True, check=False)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
