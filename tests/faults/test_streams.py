"""Standard streams that are closed, full, or read by nobody: one line, and an exit code."""

import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from tests.faults.nursery import REPOSITORY
from tests.faults.world import World


def shell(line: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a line of the shell in which $BB is the command and $1, $2, … the arguments."""
    return subprocess.run(
        [
            "bash",
            "-c",
            f'BB="{sys.executable} -m bigbird_dna.cli.main"; {line}',
            "bash",
            *map(str, arguments),
        ],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.parametrize(
    ("redirection", "reason"),
    [(">&-", "standard output is closed"), (">/dev/full", "No space left on device")],
)
def test_output_that_goes_nowhere(redirection: str, reason: str, world: World) -> None:
    for words in ("--version", "report summary --pretraining $1"):
        result = shell(f"$BB {words} {redirection}", world / "models/pretrained/metrics.json")
        assert result.returncode == 1, result
        assert result.stderr.startswith("bigbird-dna: error: ") and reason in result.stderr
        assert result.stderr.count("\n") == 1


def test_input_that_is_closed(world: World) -> None:
    result = shell("$BB score-promoters $1 - <&-", world / "models/promoter-genomic")
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == "bigbird-dna: error: standard input is closed\n"


@pytest.mark.parametrize("redirection", [pytest.param("2>/dev/full", marks=pytest.mark.slow), "<&- >&- 2>&-"])
def test_messages_that_nobody_can_read_stop_nothing(redirection: str, world: World, tmp_path: Path) -> None:
    """Nor do they get into the result, whose file would have the number of the closed stream."""
    figure = tmp_path / "figure.svg"
    result = shell(
        f'$BB report pretraining "$1" --bits-per-base "$2" -o "$3" {redirection}',
        *(world / "models/pretrained", world / "bits.tsv", tmp_path),
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    result = shell(f'$BB report plot-attention "$1" -o "$2" {redirection}', world.config, figure)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    assert ElementTree.parse(figure).getroot().tag.endswith("svg")


def test_a_reader_that_has_gone(world: World) -> None:
    result = shell(
        "$BB score-promoters $1 $2 --stride 400 | true; echo ${PIPESTATUS[0]}",
        world / "models/promoter-genomic",
        world / "genome/reference.fa.gz",
    )
    assert result.stdout in ("1\n", "141\n")
    assert "error" not in result.stderr and "Traceback" not in result.stderr, result.stderr
