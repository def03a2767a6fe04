"""Streams that are full or unread, and hostile names of files: one line, and an exit code."""

import gzip
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.command import Run
from tests.conftest import REPOSITORY

MODEL = "yeast-promoters-window"
GENOME = REPOSITORY / "resources/examples/yeast_VII_20kb.fa.gz"


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


@pytest.mark.parametrize("words", ["--version", "fetch-model --list"])
def test_output_on_a_full_disk(words: str) -> None:
    result = shell(f"$BB {words} >/dev/full")
    expected = "bigbird-dna: error: No space left on device\n"
    assert (result.returncode, result.stderr) == (1, expected)


def test_a_reader_that_has_gone() -> None:
    result = shell(
        "$BB score-promoters $1 $2 --stride 400 | true; echo ${PIPESTATUS[0]}",
        MODEL,
        GENOME,
    )
    assert result.stdout in ("1\n", "141\n")
    assert "error" not in result.stderr and "Traceback" not in result.stderr, (
        result.stderr
    )


NAMES = {
    "shell": "a b'c\"d $(touch PWNED)`touch PWNED`;touch PWNED|x&",
    "terminal": "a\nb \x1b[31mred\x1b]0;title\x07",
    "option": "-rf",
    "long": "n" * 240,
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


def test_names_are_names(home: Path, run: Run) -> None:
    """Of inputs, outputs and their directories; what is said of them stands on one line."""
    name = home.name
    genome, reference = home / f"{name}.fa", home / f"{name}.gz"
    with gzip.open(GENOME, "rb") as stream:
        genome.write_bytes(stream.read())
    model = REPOSITORY / "resources/models" / MODEL
    model, target = home / "model", model
    model.symlink_to(target)
    scores = home / f"{name}.tsv"
    for words, made in (
        (["prepare reference", genome, "-o", reference], reference),
        (["score-promoters", model, reference, "--stride", 500, "-o", scores], scores),
        (["report plot-scores", scores, "-o", home / "x.svg"], home / "x.svg"),
    ):
        result = run(*words)
        assert result.code == 0, result
        assert made.exists()
        assert all(line[2] == ":" for line in result.err.splitlines()), result.err
    missing = run("prepare reference", home / "none", "-o", home / "x")
    assert missing.code == 1 and missing.err.count("\n") == 1
    assert all(letter.isprintable() or letter == "\n" for letter in missing.err)
    table = scores.read_text(encoding="utf-8").splitlines()
    assert [line for line in table if line.startswith("## command")]
    assert all(
        len(line.split("\t")) == 8 for line in table if not line.startswith("##")
    )
    assert not list(Path.cwd().rglob("PWNED"))
