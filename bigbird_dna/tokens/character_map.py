"""Compiled rules of normalisation (`precompiled_charsmap`), checked before a library follows them.

The map is a double array (Darts) of what is replaced, then what stands in its place, each text ended by a
zero byte. The libraries that read it trust its links, and count the rules that fit on their stack.
"""

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.errors import shortened

LONGEST_RULE = 32  # bytes that are replaced; SentencePiece has room for as many rules that begin alike
LONGEST_REPLACEMENT = 256  # bytes

_LEAF = 0x8000_0000  # marks a unit that holds a value
_HAS_LEAF = 0x100


def check_character_map(content: bytes) -> None:
    """`ValueError` unless every link of the map stays inside it, and every rule ends in a short text."""
    if len(content) < 4:
        raise ValueError("its rules of normalisation are cut off")
    size = int.from_bytes(content[:4], "little")
    if size % 4 or not 0 < size < len(content) - 4:
        raise ValueError(f"its rules of normalisation have {size} bytes of {len(content)}")
    units = np.frombuffer(content, "<u4", size // 4, 4)
    texts = content[4 + size :]
    starts = _check_texts(texts)
    labels: NDArray[np.uint32] = units & np.uint32(_LEAF | 0xFF)
    offsets = (units >> 10) << ((units & 0x200) >> 6)
    bases = np.arange(len(units), dtype=np.int64) ^ offsets.astype(np.int64)
    inner = labels < 0x100
    if not inner[0] or ((bases[inner] | 0xFF) >= len(units)).any():
        raise ValueError("its rules of normalisation lead out of their table")
    values = units[bases[inner & ((units & _HAS_LEAF) > 0)]] & ~np.uint32(_LEAF)
    if (values >= len(texts)).any() or not starts[values].all():
        raise ValueError("its rules of normalisation name a text that isn't there")
    _check_depth(labels, bases, inner)


def _check_texts(texts: bytes) -> NDArray[np.bool_]:
    """Where in `texts` a letter begins."""
    if texts[-1] != 0:
        raise ValueError("its rules of normalisation end inside a text")
    try:
        texts.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"a rule of normalisation is not text: {shortened(str(error))}") from None
    letters = np.frombuffer(texts, np.uint8)
    if np.diff(np.flatnonzero(letters == 0), prepend=-1).max() > LONGEST_REPLACEMENT:
        raise ValueError(f"a rule of normalisation puts in more than {LONGEST_REPLACEMENT} bytes")
    begin: NDArray[np.bool_] = (letters & 0xC0) != 0x80
    return begin


def _check_depth(labels: NDArray[np.uint32], bases: NDArray[np.int64], inner: NDArray[np.bool_]) -> None:
    """`ValueError` if a path from the root is longer than a rule may be; it could go in circles."""
    places = np.flatnonzero(inner)
    parents = places ^ labels[places].astype(np.int64)  # the base of a unit's parent, were it reached
    order = np.argsort(parents, kind="stable")
    places, parents = places[order], parents[order]
    reached = bases[:1]
    for _ in range(LONGEST_RULE):
        first, last = np.searchsorted(parents, reached), np.searchsorted(parents, reached, "right")
        found = [places[low:high] for low, high in zip(first, last, strict=True) if low < high]
        if not found:
            return
        reached = np.unique(bases[np.concatenate(found)])
    raise ValueError(f"a rule of normalisation replaces more than {LONGEST_RULE} bytes")
