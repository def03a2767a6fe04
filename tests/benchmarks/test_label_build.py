"""The labels of a whole genome, in the time that only `make test-slow` takes."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("label_build.py")


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_genome_of_919_tracks_is_labelled_in_ten_minutes_and_four_gigabytes() -> None:
    command = [sys.executable, str(SCRIPT)]
    outcome = subprocess.run(command, capture_output=True, text=True, check=False)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
