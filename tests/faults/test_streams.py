"""Streams that are closed, full or unread, and hostile names of files: one line, and an exit code."""

import gzip
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from tests.cli.command import Run
from tests.faults.world import World
from tests.golden.messages import message
from tests.nursery import REPOSITORY


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
        result = shell(
            f"$BB {words} {redirection}", world / "models/pretrained/metrics.json"
        )
        assert result.returncode == 1, result
        assert (
            result.stderr.startswith("bigbird-dna: error: ") and reason in result.stderr
        )
        assert result.stderr.count("\n") == 1


def test_input_that_is_closed(world: World) -> None:
    result = shell("$BB score-promoters $1 - <&-", world / "models/promoter-genomic")
    assert (result.returncode, result.stdout) == (1, "")
    message(result.stderr)


@pytest.mark.parametrize(
    "redirection", [pytest.param("2>/dev/full", marks=pytest.mark.slow), "<&- >&- 2>&-"]
)
def test_messages_that_nobody_can_read_stop_nothing(
    redirection: str, world: World, tmp_path: Path
) -> None:
    """Nor do they get into the result, whose file would have the number of the closed stream."""
    figure = tmp_path / "figure.svg"
    result = shell(
        f'$BB report pretraining "$1" --bits-per-base "$2" -o "$3" {redirection}',
        *(world / "models/pretrained", world / "bits.tsv", tmp_path),
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    result = shell(
        f'$BB report plot-attention "$1" -o "$2" {redirection}', world.config, figure
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    assert ElementTree.parse(figure).getroot().tag.endswith("svg")


def test_a_reader_that_has_gone(world: World) -> None:
    result = shell(
        "$BB score-promoters $1 $2 --stride 400 | true; echo ${PIPESTATUS[0]}",
        world / "models/promoter-genomic",
        world / "genome/reference.fa.gz",
    )
    assert result.stdout in ("1\n", "141\n")
    assert "error" not in result.stderr and "Traceback" not in result.stderr, (
        result.stderr
    )


NAMES = {
    "blank": "my genome",
    "blank at the end": "genome ",
    "quotes": "a'b\"c",
    "shell": "$(touch PWNED)`touch PWNED`;touch PWNED|x&",
    "line break": "a\nb",
    "return and tab": "a\r\tb",
    "escape sequence": "\x1b[31mred\x1b]0;title\x07",
    "option": "-rf",
    "format": "%s{0}{wildcards.x}",
    "comment": "#a",
    "glob": "[a-z]*?",
    "not UTF-8": os.fsdecode(b"a\xff\xfeb"),
    "right to left": "a\u202egpj",
    "long": "n" * 240,
    "dots": "...",
}


@pytest.fixture(params=NAMES)
def home(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    directory = tmp_path / NAMES[request.param]
    directory.mkdir()
    monkeypatch.chdir(tmp_path)
    return (
        Path(directory.name)
        if request.param != "option"
        else Path(".", directory.name).absolute()
    )


def test_names_are_names(home: Path, world: World, run: Run) -> None:
    """Of inputs, outputs and their directories; what is said of them stands on one line."""
    name = home.name
    genome, reference = home / f"{name}.fa", home / f"{name}.gz"
    with gzip.open(world / "genome/reference.fa.gz", "rb") as stream:
        genome.write_bytes(stream.read())
    model = world / "models/promoter-genomic"
    if "\udcff" not in name:  # safetensors opens no such file
        model, target = home / "model", model
        model.symlink_to(target)
    for words, made in (
        (["prepare reference", genome, "-o", reference], reference),
        (
            [
                "prepare contig",
                reference,
                "demo6",
                "-o",
                home / "contig",
                "--megabases",
                0.002,
            ],
            home / "contig",
        ),
        (
            ["score-promoters", model, home / "contig", "-o", home / f"{name}.tsv"],
            home / f"{name}.tsv",
        ),
        (
            ["report plot-scores", home / f"{name}.tsv", "-o", home / "x.svg"],
            home / "x.svg",
        ),
    ):
        result = run(*words)
        assert result.code == 0, result
        assert made.exists()
        assert all(line[2] == ":" for line in result.err.splitlines()), result.err
    missing = run("prepare contig", home / "none", "demo6", "-o", home / "x")
    assert (
        missing.code == 1
        and missing.err.count("\n") == 1
        and missing.err.isprintable() is False
    )
    assert all(letter.isprintable() or letter == "\n" for letter in missing.err)
    table = (home / f"{name}.tsv").read_text(encoding="utf-8").splitlines()
    assert [line for line in table if line.startswith("## command")]
    assert all(
        len(line.split("\t")) == 8 for line in table if not line.startswith("##")
    )
    assert not list(Path.cwd().rglob("PWNED"))
