"""What a run of the command line gives."""

from collections.abc import Callable
from typing import NamedTuple

import pandas as pd
from typer.testing import CliRunner

from bigbird_dna.cli.main import app
from tests.golden.messages import message


class Result(NamedTuple):
    """Exit code, standard output and standard error of a command."""

    code: int
    out: str
    err: str


Run = Callable[..., Result]


def words_of_command(*words: object) -> list[str]:
    """The words of a command whose first is its group and name, with a blank between."""
    return [*str(words[0]).split(), *map(str, words[1:])]


def invoke(*words: object) -> str:
    """Run a command that must succeed, where no fixture can be had; an error of its is the test's.

    Gives what it printed to standard output.
    """
    outcome = CliRunner().invoke(app, words_of_command(*words))
    if outcome.exception and not isinstance(outcome.exception, SystemExit):
        raise outcome.exception
    assert outcome.exit_code == 0, outcome.output
    return outcome.stdout


def table(text: str) -> list[dict[str, str]]:
    """The rows of a table or VCF that a command wrote, after the lines about it."""
    head, *rows = (
        line.split("\t") for line in text.splitlines() if not line.startswith("##")
    )
    head[0] = head[0].lstrip("#")
    return [dict(zip(head, row, strict=True)) for row in rows]


def frame(text: str) -> pd.DataFrame:
    """The same as a frame of texts."""
    return pd.DataFrame(table(text))


def silent(run: Run) -> Run:
    """`run` for commands that write files: nothing may be on standard output."""

    def call(*words: object) -> Result:
        result = run(*words)
        assert result.out == ""
        return result

    return call


def refused(result: Result, code: int, *named: object, after_log: bool = False) -> str:
    """Assert that a command gave up with one sentence, which names these values, and no other word.

    With `after_log` lines of the log may come before it. Gives the sentence.
    """
    assert (result.code, result.out) == (code, ""), result
    if code == 2 and result.err.startswith("Usage: "):
        # Typer's own, of an option: a box whose lines may break a sentence.
        return message(" ".join(result.err.replace("│", " ").split()), *named)
    *log, sentence = result.err.splitlines()
    assert sentence.startswith("bigbird-dna: error: "), sentence
    assert result.err.count("bigbird-dna: error: ") == 1, result.err
    assert after_log or not log, result.err
    return message(sentence, *named)
