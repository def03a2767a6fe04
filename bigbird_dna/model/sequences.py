"""Sequences as a Python user gives them: checked, in A C G T N, and as long as a model's window.

What the command line does with the records of a file holds for them too: lower case is read, IUPAC codes are
N, and any other letter is an error.
"""

from collections.abc import Iterable, Mapping, Set
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from bigbird_dna.errors import DataError, UsageError, shortened
from bigbird_dna.genome.sequence import clean

Sequences = str | Iterable[object]
"""One sequence as text or `Seq`; or several in a list, tuple, array, Series or other iterable."""

_WANTED = "give a text, a list of texts, an array or a Series of them"


class GivenSequences(NamedTuple):
    """Sequences over A C G T N, what a message calls each, and the labels of the Series they came in."""

    texts: list[str]
    names: list[str]
    labels: "pd.Index[Any] | None"


def read_sequences(given: Sequences) -> GivenSequences:
    """Take one sequence or several, as text, `Bio.Seq` or `SeqRecord`; a bare text is one sequence.

    `UsageError` for what is not sequences or is empty, `DataError` for a letter that is not of DNA: both name
    the index.
    """
    single = _text(given)
    if single is not None:
        return GivenSequences([_clean(single, "the sequence")], ["the sequence"], None)
    if isinstance(given, Mapping | Set | pd.DataFrame | bytes | bytearray) or not isinstance(given, Iterable):
        hint = {pd.DataFrame: "give one of its columns", dict: "give pandas.Series(it) or its values"}
        said = hint.get(type(given), _WANTED)
        raise UsageError(f"sequences: {_what(given)} is not a sequence or a list of them: {said}")
    if isinstance(given, np.ndarray) and given.ndim != 1:
        raise UsageError(f"sequences: an array of {given.ndim} dimensions: one of texts has 1")
    index = given.index if isinstance(given, pd.Series) else None
    texts, names = [], []
    for place, item in enumerate(given):
        name = f"sequences[{place if index is None else index[place]!r}]"
        text = _text(item)
        if text is None:
            raise UsageError(f"{name}: {_what(item)} is not a sequence: give text")
        texts.append(_clean(text, name))
        names.append(name)
    return GivenSequences(texts, names, index)


def fit_windows(given: GivenSequences, window: int, pad: bool) -> list[str]:
    """The sequences, none longer than `window` bp; with `pad` a longer one keeps its middle.

    Without `pad` one of another length is a `UsageError`; with it a shorter one is left to the caller.
    """
    for text, name in zip(given.texts, given.names, strict=True):
        if len(text) != window and not pad:
            raise UsageError(
                f"{name} has {len(text):,} bp, the model's window has {window:,} bp "
                "(pad=True fills a shorter one up with N and cuts a longer one)"
            )
    starts = [max(0, (len(text) - window) // 2) for text in given.texts]
    return [text[start : start + window] for text, start in zip(given.texts, starts, strict=True)]


def _text(given: object) -> str | None:
    """The letters of one sequence; None if it is something else."""
    if isinstance(given, np.ndarray) and given.ndim == 0:
        given = given.item()
    if isinstance(given, str):
        return str(given)
    held = getattr(given, "seq", None) if not isinstance(given, pd.Series | pd.DataFrame) else None
    for part in (held, given):  # a record's sequence; as text the record would be its description
        if isinstance(part, str):
            return str(part)
        if type(part).__module__.startswith("Bio.Seq"):
            try:
                return str(part)
            except Exception:
                raise UsageError("sequences: a Bio.Seq of no known letters is not a sequence") from None
    return None


def _clean(text: str, name: str) -> str:
    if not text:
        raise UsageError(f"{name} is empty")
    try:
        return clean(text, name)
    except DataError as error:
        raise DataError(shortened(str(error), 300)) from None


def _what(given: object) -> str:
    """A value as a message shows it."""
    if given is None or isinstance(given, int | float) or given is pd.NA:
        return shortened(str(given))
    kind = type(given).__name__
    return f"{'an' if kind[0] in 'aeiouAEIOU' else 'a'} {kind}" + (
        " (decode it to text)" if isinstance(given, bytes | bytearray) else ""
    )
