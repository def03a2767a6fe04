"""What a run of the command line gives."""

from collections.abc import Callable
from typing import NamedTuple


class Result(NamedTuple):
    """Exit code, standard output and standard error of a command."""

    code: int
    out: str
    err: str


Run = Callable[..., Result]


def refused(result: Result, code: int, *parts: object) -> str:
    """Assert that a command gave up with one sentence, after the log, that has these parts.

    Nothing may be on standard output. Gives the sentence.
    """
    assert (result.code, result.out) == (code, ""), result
    sentence = result.err.splitlines()[-1]
    assert sentence.startswith("bigbird-dna: error: "), sentence
    assert result.err.count("bigbird-dna: error: ") == 1, result.err
    assert all(str(part) in sentence for part in parts), sentence
    return sentence
