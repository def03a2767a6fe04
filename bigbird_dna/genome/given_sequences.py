"""Sequences that a Python user gives: checked, converted to A C G T N, and fitted to a model's window.

Lower case is accepted, IUPAC codes become N, and any other letter is an error, as in the records of a file.
"""

from collections.abc import Iterable, Mapping, Set
from typing import Any, NamedTuple

from bigbird_dna.errors import DataError, UsageError, shortened
from bigbird_dna.genome.sequence import clean

Sequences = str | Iterable[object]
"""A sequence as text or `Seq`, or several in a list, tuple, array, Series or other iterable."""

PADDING = "pad=True pads shorter sequences with N and crops longer ones"


class GivenSequences(NamedTuple):
    """Sequences over A C G T N, and their names in messages."""

    texts: list[str]
    names: list[str]


def read_sequences(sequences: Sequences) -> GivenSequences:
    """Read one or several sequences, as text, `Bio.Seq` or `SeqRecord`; a plain string is one sequence.

    `UsageError` for anything that is not a non-empty sequence, `DataError` for a letter that is not DNA; both
    name the index.
    """
    text = _text(sequences)
    if text is not None:
        return GivenSequences([_clean(text, "the sequence")], ["the sequence"])

    if (
        not isinstance(sequences, Iterable)
        or isinstance(sequences, Mapping | Set | bytes | bytearray)
        or getattr(sequences, "ndim", 1) != 1
    ):
        raise UsageError(
            f"sequences: {_what(sequences)} is not a sequence or a list of sequences: give a string, or a "
            "list, array or Series of strings"
        )

    # Lists have a method of this name.
    index: Any = getattr(sequences, "index", None)
    index = None if callable(index) else index
    texts, names = [], []
    for number, item in enumerate(sequences):
        name = f"sequences[{number if index is None else index[number]!r}]"
        text = _text(item)
        if text is None:
            raise UsageError(f"{name}: {_what(item)} is not a sequence: give a string")

        texts.append(_clean(text, name))
        names.append(name)

    return GivenSequences(texts, names)


def filled(sequence: str, window: int) -> str:
    """Center a sequence in a window of N, one base shorter if an odd number is missing.

    The window of the reverse complement is thus the reverse complement of the window.
    """
    filling = "N" * ((window - len(sequence)) // 2)
    return filling + sequence + filling


def fit_windows(given: GivenSequences, window: int, pad: bool) -> list[str]:
    """The sequences, none longer than `window` bp; with `pad`, longer ones are cropped to their central part.

    Without `pad`, another length raises `UsageError`; with it, the caller pads shorter sequences.
    """
    for text, name in zip(given.texts, given.names, strict=True):
        if len(text) != window and not pad:
            raise UsageError(
                f"{name} has {len(text):,} bp, the model's window has {window:,} bp ({PADDING})"
            )

    starts = [max(0, (len(text) - window) // 2) for text in given.texts]
    return [
        text[start : start + window]
        for text, start in zip(given.texts, starts, strict=True)
    ]


def _text(value: object) -> str | None:
    """The letters of one sequence, as text, `Seq` or `SeqRecord`; None for any other type."""
    value = getattr(value, "seq", value)
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        value = value.item()  # an array with one text

    if isinstance(value, str):
        return str(value)

    if type(value).__module__ != "Bio.Seq":
        return None

    try:
        return str(value)
    except ValueError:
        raise UsageError(
            "sequences: a Bio.Seq with undefined letters is not a sequence"
        ) from None


def _clean(text: str, name: str) -> str:
    if not text:
        raise UsageError(f"{name} is empty")
    try:
        return clean(text, name)
    except DataError as error:
        raise DataError(shortened(str(error), 300)) from None


def _what(value: object) -> str:
    """Description of a value in a message."""
    if value is None or isinstance(value, int | float):
        return str(value)
    return f"a value of type {type(value).__name__}"
