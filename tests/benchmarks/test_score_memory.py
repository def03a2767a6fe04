"""The memory of a long scan, in the time that only `make test-slow` takes."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("score_memory.py")


@pytest.mark.slow
@pytest.mark.parametrize("format", ["tsv", "bigwig", "parquet"])
def test_a_hundred_megabases_take_less_than_a_gigabyte(format: str) -> None:
    command = [sys.executable, str(SCRIPT), "--megabases", "100", "--format", format]
    outcome = subprocess.run(command, capture_output=True, text=True, check=False)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
