"""Scripts that measure time, memory and size of large work: what only `make test-slow` takes the time for."""

import subprocess
import sys
from pathlib import Path

import pytest

FORMATS = ("tsv", "bigwig", "parquet")
RUNS = [
    ("auc_report.py", "--rows", "45502"),
    ("label_build.py",),
    *(("score_memory.py", "--megabases", "100", "--format", format) for format in FORMATS),
]


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("words", RUNS, ids=" ".join)
def test_it_stays_within_its_bounds(words: tuple[str, ...]) -> None:
    command = [sys.executable, str(Path(__file__).with_name(words[0])), *words[1:]]
    outcome = subprocess.run(command, capture_output=True, text=True, check=False)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
