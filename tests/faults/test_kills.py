"""A command that is killed at any moment leaves its previous output whole, and can be run again."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

GENOME = REPOSITORY / "resources/examples/yeast_VII_20kb.fa.gz"
COMMANDS = {
    "score-promoters": ["yeast-promoters-window", str(GENOME), "--stride", "100"],
    "simulate": ["--megabases", "0.1"],
}


def _start(*words: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "bigbird_dna.cli.main", *words],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _finish(process: "subprocess.Popen[str]") -> None:
    _, err = process.communicate()
    assert process.returncode == 0, err


def _content(path: Path) -> dict[str, bytes]:
    """The files of an output, without what a killed command left in a hidden directory."""
    files = [path] if path.is_file() else sorted(path.rglob("*"))
    return {
        str(file.relative_to(path)): file.read_bytes()
        for file in files
        if file.is_file()
        and not any(part.startswith(".") for part in file.relative_to(path).parts)
    }


@pytest.mark.parametrize(
    ("name", "kills"),
    [
        ("simulate", 2),
        pytest.param("score-promoters", 30, marks=pytest.mark.slow),
        pytest.param("simulate", 30, marks=pytest.mark.slow),
    ],
)
def test_the_previous_output_stays_whole(name: str, kills: int, tmp_path: Path) -> None:
    moments = random.Random(name)
    output = tmp_path / "output"
    options = [str(output)] if name == "simulate" else ["-o", str(output)]
    words = [name, *COMMANDS[name], *options]
    began = time.monotonic()
    _finish(_start(*words))
    seconds = time.monotonic() - began
    expected = _content(output)
    assert expected
    for _ in range(kills):
        number = moments.choice([signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
        process = _start(*words)
        time.sleep(moments.uniform(0, seconds))
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
        assert "Traceback" not in err
        assert process.returncode in (0, -number, 128 + number)
        assert _content(output) == expected
    _finish(_start(*words))
    assert _content(output) == expected


@pytest.mark.parametrize("count", [1, pytest.param(40, marks=pytest.mark.slow)])
def test_an_early_interrupt_gives_no_traceback(count: int) -> None:
    """Between the moment at which Python itself has started and a second later."""
    moments = random.Random(count)
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", "import re, runpy"], check=True)
    start = time.monotonic() - began
    for _ in range(count):
        process = _start("score-promoters", "yeast-promoters-window", str(GENOME))
        time.sleep(2 * start + moments.uniform(0, 1))
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        assert "Traceback" not in err
        assert process.returncode in (0, 130, -signal.SIGINT), err
