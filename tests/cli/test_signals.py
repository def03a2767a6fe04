"""A command that a signal ends leaves the previous output whole, and no other file."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.toys import random_dna


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)]
)
def test_signals(tmp_path: Path, number: signal.Signals, code: int) -> None:
    fasta, output = tmp_path / "a.fa", tmp_path / "scores.tsv"
    fasta.write_text(f">a\n{random_dna(2_000_000, 1)}\n")
    output.write_text("previous\n")
    before = set(tmp_path.iterdir())
    words = ["score-promoters", "yeast-promoters-window", fasta, "-o", output]
    process = subprocess.Popen(
        [sys.executable, "-m", "bigbird_dna.cli.main", *map(str, words)],
        stderr=subprocess.PIPE,
    )
    end = time.monotonic() + 120
    while set(tmp_path.iterdir()) == before and time.monotonic() < end:
        time.sleep(0.1)
    process.send_signal(number)
    _, messages = process.communicate(timeout=120)
    assert process.returncode == code, messages
    assert b"Traceback" not in messages
    assert output.read_text() == "previous\n"
    assert set(tmp_path.iterdir()) - before <= {tmp_path / "a.fa.fai"}
