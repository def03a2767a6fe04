"""What the rest of the package asks of a tokenizer, whichever library does the work.

`DnaTokenizer` is the package's own; `JsonTokenizer` and `TextTokenizer` serve imported models.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, SupportsInt

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.errors import ModelError
from bigbird_dna.tokens.tokenizer import Encoded

_USUAL_NAMES = {
    "pad": ("[PAD]", "<pad>"),
    "unk": ("[UNK]", "<unk>"),
    "cls": ("[CLS]", "<s>"),
    "sep": ("[SEP]", "</s>"),
    "mask": ("[MASK]", "<mask>"),
}


class Specials(NamedTuple):
    """Ids of the pieces that stand for no text: padding, unknown, first, separator, hidden."""

    pad: int
    unk: int
    cls: int
    sep: int
    mask: int


class Tokenizer(Protocol):
    """Encodes DNA, or text, as token ids and back; immutable, shared between threads, picklable.

    `is_dna` is false for a tokenizer of ordinary text: `piece_lengths`, `base_ids`, `offsets` and
    `encode_with_offsets` then raise `ModelError`. The other members are described at `DnaTokenizer`.
    """

    file_name: str  # its name in a model directory

    @property
    def is_dna(self) -> bool: ...
    @property
    def vocabulary(self) -> int: ...
    @property
    def pieces(self) -> tuple[str, ...]: ...
    @property
    def pad_id(self) -> int: ...
    @property
    def unk_id(self) -> int: ...
    @property
    def cls_id(self) -> int: ...
    @property
    def sep_id(self) -> int: ...
    @property
    def mask_id(self) -> int: ...
    @property
    def piece_lengths(self) -> NDArray[np.int32]: ...
    @property
    def base_ids(self) -> NDArray[np.int32]: ...
    @property
    def sha256(self) -> str: ...

    def encode(self, sequence: str) -> NDArray[np.int32]: ...
    def encode_batch(
        self, sequences: Sequence[str], threads: int = 1
    ) -> list[NDArray[np.int32]]: ...
    def encode_with_offsets(self, sequence: str) -> Encoded: ...
    def offsets(self, ids: NDArray[np.integer]) -> NDArray[np.int64]: ...
    def decode(self, ids: Iterable[SupportsInt]) -> str: ...
    def save(self, path: Path) -> None: ...

    def description(self) -> dict[str, int]:
        """What `load_tokenizer` needs besides the file: {} if the file says everything."""
        ...


def require_dna(tokenizer: Tokenizer) -> None:
    """Raise `ModelError` if `tokenizer` is one of ordinary text."""
    if not tokenizer.is_dna:
        raise not_of_dna("the model's tokenizer")


def not_of_dna(source: str) -> ModelError:
    """The error that a tokenizer of ordinary text raises when it is asked about bases."""
    return ModelError(f"{source} is one of ordinary text, not of DNA: its pieces cover no bases")


def find_specials(
    names: Mapping[str, str], lookup: Callable[[str], int | None], source: str
) -> Specials:
    """Ids of the special pieces.

    Parameters
    ----------
    names : text of a special piece by "pad", "unk", "cls", "sep", "mask"; where it is missing, the usual
        ones are tried: `[PAD]` and `<pad>`, `[CLS]` and `<s>`, and so on.
    lookup : id of a piece, or None.
    source : named in the `ModelError` about a special piece that isn't there.
    """
    found = {}
    for role, usual in _USUAL_NAMES.items():
        tried = (names[role],) if role in names else usual
        ids = [index for name in tried if (index := lookup(name)) is not None]
        if not ids:
            raise ModelError(f"{source}: no piece {' or '.join(tried)} ({role})")
        found[role] = ids[0]
    return Specials(**found)


def read_description(description: Mapping[str, Any], source: str) -> tuple[Specials, int]:
    """Specials and vocabulary of what `Tokenizer.description` gave; `ModelError` if it is damaged."""
    try:
        specials = Specials(*(int(description[name]) for name in Specials._fields))
        vocabulary = int(description["vocabulary"])
    except (KeyError, TypeError, ValueError) as error:
        raise ModelError(f"{source}: its special pieces are not described: {error!r}") from None
    if not 0 <= min(specials) <= max(specials) < vocabulary:
        raise ModelError(f"{source}: special pieces outside its vocabulary of {vocabulary}")
    return specials, vocabulary


def describe(specials: Specials, vocabulary: int) -> dict[str, int]:
    """What `read_description` reads."""
    return {**specials._asdict(), "vocabulary": vocabulary}
