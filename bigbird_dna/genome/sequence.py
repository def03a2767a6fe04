"""Which letters a DNA sequence may have, and what becomes of them.

Lower case (soft masking) is read as upper case. IUPAC codes for several bases become N, and callers
report how many there were. Everything else, such as the U of RNA, the letters of proteins, gaps and
digits, is an error: a sequence with them is not what its user takes it for.
"""

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.errors import DataError

AMBIGUOUS = "RYSWKMBDHV"
LETTERS = "ACGTN"

_UPPER = (LETTERS + AMBIGUOUS).encode()
_ACCEPTED = _UPPER + _UPPER.lower()
_AMBIGUOUS = (AMBIGUOUS + AMBIGUOUS.lower()).encode()
_UNAMBIGUOUS = bytes(sorted(set(range(256)) - set(_AMBIGUOUS)))
_CLEAN = bytes.maketrans(_ACCEPTED, (LETTERS + "N" * len(AMBIGUOUS)).encode() * 2)
_COMPLEMENT = str.maketrans("ACGTNacgtn", "TGCANtgcan")

UNKNOWN = 4
"""The code of an N; those of A, C, G and T are 0 to 3."""
_CODES = np.full(256, UNKNOWN, np.uint8)
_CODES[np.frombuffer(b"ACGT", np.uint8)] = np.arange(UNKNOWN)


def base_codes(text: str) -> NDArray[np.uint8]:
    """The codes (L,) of a sequence; whatever isn't A, C, G or T is `UNKNOWN`."""
    return _CODES[np.frombuffer(text.encode("ascii"), np.uint8)]


def first_bad_letter(raw: bytes) -> int | None:
    """Offset of the first byte that is not a DNA letter; `None` if all are."""
    bad = raw.translate(None, _ACCEPTED)
    return raw.index(bad[0]) if bad else None


def describe_bad_letter(letter: int) -> str:
    """Say what a byte that is not a DNA letter is, and what it hints at."""
    text = repr(chr(letter)) if 32 <= letter < 127 else f"byte 0x{letter:02x}"
    if letter in b"Uu":
        return f"{text} is not a DNA letter (is this RNA?)"
    if letter in b"EFIJLOPQXZefijlopqxz*":
        return f"{text} is not a DNA letter (is this a protein?)"
    return f"{text} is not a DNA letter"


def clean_bytes(raw: bytes) -> bytes:
    """Upper-case `raw` and turn IUPAC codes into N; `raw` has been found free of other letters."""
    return raw.translate(_CLEAN)


def count_ambiguous_bytes(raw: bytes) -> int:
    """How many letters of `raw` are IUPAC codes for several bases, N not counted."""
    return len(raw.translate(None, _UNAMBIGUOUS))


def clean(text: str, where: str) -> str:
    """Return `text` in the letters A C G T N, of the same length.

    Parameters
    ----------
    text
        A sequence as a user wrote it, without line ends.
    where
        What an error calls the sequence: a file, record or interval.

    Raises
    ------
    DataError
        A letter is neither a base nor an IUPAC code; the text gives it and its position from 1 on.
    """
    # One byte a character, so that positions hold; characters beyond ASCII become '?', an error
    # too.
    raw = text.encode("ascii", errors="replace")
    bad = first_bad_letter(raw)
    if bad is not None:
        what = describe_bad_letter(raw[bad]) if text[bad].isascii() else f"{text[bad]!r} is not a DNA letter"
        raise DataError(f"{where}: position {bad + 1}: {what}")
    return clean_bytes(raw).decode("ascii")


def reverse_complement(sequence: str) -> str:
    """The other strand of a sequence of A C G T N, read in its own direction; case is kept."""
    return sequence.translate(_COMPLEMENT)[::-1]


def fraction_n(sequence: str) -> float:
    """Share of N in a clean sequence; 0.0 for an empty one."""
    return sequence.count("N") / len(sequence) if sequence else 0.0
