"""Tokenizers in the format of HuggingFace's `tokenizers` library (`tokenizer.json`).

Those of DNA models are byte-pair encodings of letters. Every base of a sequence belongs to exactly one
token: a letter without a piece is one unknown token of 1 bp, and a piece that is no letters (some
vocabularies replace long runs of N by a symbol) covers the whole run of N where it stands. A vocabulary is
taken for one of DNA where more than half of its pieces are letters of the nucleotide code.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any, Self, SupportsInt

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.errors import DataError, ModelError
from bigbird_dna.files import atomic_path
from bigbird_dna.tokens.interface import Specials, describe, find_specials, not_of_dna
from bigbird_dna.tokens.tokenizer import BASES, Encoded, check_letters

_NUCLEOTIDES = frozenset("ACGTUNRYSWKMBDHV")
_WORD_STARTS = ("▁", "Ġ")  # in front of a piece that begins a word


class JsonTokenizer:
    """Encodes with a `tokenizer.json`; needs the `tokenizers` library once it encodes.

    See `Tokenizer` and `DnaTokenizer` for the members. `piece_lengths` is 1 for the unknown piece and 0
    for a symbol that covers a run of N, whose length only `encode_with_offsets` knows. `decode` writes one N
    for either.
    """

    file_name = "tokenizer.json"

    def __init__(
        self,
        content: bytes,
        specials: Specials | None = None,
        vocabulary: int | None = None,
        *,
        names: Mapping[str, str] | None = None,
        source: str = "tokenizer.json",
    ) -> None:
        """Open the content of a file.

        Parameters
        ----------
        specials : ids of the special pieces; none: looked up by `names`, as in `find_specials`.
        vocabulary : number of ids, which may be larger than that of pieces; none: as many as pieces.
        source : names the tokenizer in errors.
        """
        self._content = content
        self._source = source
        pieces, self._prefix = _read_pieces(content, source)
        size = max(pieces) + 1 if vocabulary is None else vocabulary
        if max(pieces) >= size:
            raise ModelError(
                f"{source}: piece {pieces[max(pieces)]!r} has id {max(pieces)}, the model has {size} ids"
            )
        self.vocabulary = size
        self.pieces = tuple(pieces.get(index, "") for index in range(size))
        ids = {piece: index for index, piece in pieces.items()}
        self._specials = specials or find_specials(names or {}, ids.get, source)
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = self._specials
        self._letters = tuple(
            "" if index in self._specials else self._plain(piece)
            for index, piece in enumerate(self.pieces)
        )  # letters of each piece, "" for those that are none
        others = [
            index
            for index, piece in pieces.items()
            if index not in self._specials and piece.strip()
        ]
        letters = [self._letters[index] for index in others]
        lettered = sum(bool(text) and set(text) <= _NUCLEOTIDES for text in letters)
        self.is_dna = 2 * lettered > len(others)
        self.sha256 = hashlib.sha256(content).hexdigest()

    @classmethod
    def load(
        cls, path: Path, specials: Specials | None = None, vocabulary: int | None = None
    ) -> Self:
        """Read a file; `ModelError` for one that is no tokenizer."""
        try:
            content = Path(path).read_bytes()
        except FileNotFoundError:
            raise ModelError(f"{path}: no such tokenizer file") from None
        except OSError as error:
            raise ModelError(f"{path}: not readable: {error.strerror}") from None
        return cls(content, specials, vocabulary, source=str(path))

    def description(self) -> dict[str, int]:
        """Ids of the special pieces, and the vocabulary."""
        return describe(self._specials, self.vocabulary)

    def save(self, path: Path) -> None:
        """Write the file as it was read, whole or not at all."""
        with atomic_path(path) as temporary:
            temporary.write_bytes(self._content)

    def encode(self, sequence: str) -> NDArray[np.int32]:
        """Token ids (n,), no specials added; DNA is checked as `DnaTokenizer.encode` does it."""
        if self.is_dna:
            return self.encode_with_offsets(sequence).ids
        return np.array(self._encode(sequence), np.int32)

    def encode_batch(self, sequences: Sequence[str], threads: int = 1) -> list[NDArray[np.int32]]:
        """`encode` of every sequence, one after the other: the library's own threads break `fork`."""
        return [self.encode(sequence) for sequence in sequences]

    def encode_with_offsets(self, sequence: str) -> Encoded:
        """Token ids, and the bases that each covers; together they cover all."""
        self._require_dna()
        check_letters(sequence)
        ids = np.array(self._encode(sequence), np.int32)
        if "".join([self._letters[index] for index in ids]) != sequence:
            return self._align(ids, sequence)
        return Encoded(ids, self.offsets(ids))

    def offsets(self, ids: NDArray[np.integer]) -> NDArray[np.int64]:
        """Base offsets (n + 1,) of ids (n,); `DataError` where a piece covers a run of N."""
        symbols = self._symbols[ids]
        if symbols.any():
            piece = self.pieces[ids[symbols.argmax()]]
            raise DataError(f"piece {piece!r} stands for a run of N whose length it doesn't say")
        offsets = np.zeros(len(ids) + 1, np.int64)
        np.cumsum(self.piece_lengths[ids], out=offsets[1:])
        return offsets

    @cached_property
    def piece_lengths(self) -> NDArray[np.int32]:
        """(V,) bases that a piece covers."""
        self._require_dna()
        lengths = np.array([len(letters) for letters in self._letters], np.int32)
        lengths[self.unk_id] = 1
        lengths.flags.writeable = False
        return lengths

    @cached_property
    def base_ids(self) -> NDArray[np.int32]:
        """Ids of the pieces made of A, C, G and T."""
        self._require_dna()
        found = [i for i, text in enumerate(self._letters) if text and set(text) <= set(BASES)]
        ids = np.array(found, np.int32)
        ids.flags.writeable = False
        return ids

    def decode(self, ids: Iterable[SupportsInt]) -> str:
        """Bases, or text, of token ids; `DataError` for an id outside the vocabulary."""
        numbers = [int(index) for index in ids]
        for index in numbers:
            if not 0 <= index < self.vocabulary:
                raise DataError(f"token {index} is outside the vocabulary of {self.vocabulary}")
        if not self.is_dna:
            return str(self._library.decode(numbers))
        unknown = [index == self.unk_id or self._symbols[index] for index in numbers]
        pairs = zip(numbers, unknown, strict=True)
        return "".join("N" if lost else self._letters[index] for index, lost in pairs)

    def __len__(self) -> int:
        return self.vocabulary

    def __reduce__(self) -> tuple[Any, ...]:
        return JsonTokenizer, (self._content, self._specials, self.vocabulary)

    def __repr__(self) -> str:
        return f"JsonTokenizer(vocabulary={self.vocabulary}, sha256={self.sha256[:12]}…)"

    @cached_property
    def _symbols(self) -> NDArray[np.bool_]:
        """(V,) whether a piece is neither special nor letters."""
        symbols = np.array([not letters for letters in self._letters])
        symbols[list(self._specials)] = False
        return symbols

    @cached_property
    def _library(self) -> Any:
        try:
            from tokenizers import Tokenizer as LibraryTokenizer
        except ImportError:
            raise ModelError(
                f"{self._source}: needs the tokenizers library: pip install 'bigbird-dna[hf]'"
            ) from None
        try:
            library = LibraryTokenizer.from_str(self._content.decode())
        except Exception as error:  # the library raises bare exceptions
            raise ModelError(f"{self._source}: not a tokenizer: {error}") from None
        library.no_truncation()
        library.no_padding()
        if getattr(library.model, "dropout", None):
            library.model.dropout = None  # merges left out at random serve training alone
        return library

    def _encode(self, text: str) -> list[int]:
        return self._library.encode(text, add_special_tokens=False).ids  # type: ignore[no-any-return]

    def _plain(self, piece: str) -> str:
        """The letters that a piece covers in a text; "" if it is anything but letters."""
        if self._prefix and piece.startswith(self._prefix):
            piece = piece.removeprefix(self._prefix)
        elif piece[:1] in _WORD_STARTS:
            piece = piece[1:]
        piece = piece.upper()  # where the tokenizer makes its text lower case
        return piece if piece.isascii() and piece.isalpha() else ""

    def _align(self, ids: NDArray[np.int32], sequence: str) -> Encoded:
        """Ids with their offsets where some letters have no piece, or a symbol covers a run of N."""
        single = {letters for letters in self._letters if len(letters) == 1}
        found: list[int] = []
        starts: list[int] = []
        end = 0

        def add(index: int, length: int) -> None:
            nonlocal end
            found.append(index)
            starts.append(end)
            end += length

        def add_unknown(until: str) -> None:
            while end < len(sequence) and sequence[end] not in single:
                if until and sequence.startswith(until, end):
                    return
                add(self.unk_id, 1)

        for index in ids.tolist():
            letters = self._letters[index]
            if index == self.unk_id:
                if sequence[end : end + 1] not in single:
                    add(index, 1)
            elif letters:
                add_unknown(letters)
                if not sequence.startswith(letters, end):
                    break
                add(index, len(letters))
            else:
                add(index, len(sequence) - end - len(sequence[end:].lstrip("N")))
        add_unknown("")
        if end != len(sequence):
            return self._encode_known(sequence, single)
        return Encoded(np.array(found, np.int32), np.array([*starts, end], np.int64))

    def _encode_known(self, sequence: str, single: set[str]) -> Encoded:
        """For tokenizers that drop letters and join what stood around them: encode what is between."""
        found: list[int] = []
        for known, run in groupby(sequence, single.__contains__):
            letters = "".join(run)
            found += self._encode(letters) if known else [self.unk_id] * len(letters)
        ids = np.array(found, np.int32)
        if "".join([self._letters[index] or "?" for index in found]) != "".join(
            letter if letter in single else "?" for letter in sequence
        ):
            raise ModelError(f"{self._source}: its tokens don't cover the bases of a sequence")
        return Encoded(ids, self.offsets(ids))

    def _require_dna(self) -> None:
        if not self.is_dna:
            raise not_of_dna(self._source)


def _read_pieces(content: bytes, source: str) -> tuple[dict[int, str], str]:
    """Text of every piece by id, and the prefix of pieces inside a word."""
    try:
        values = json.loads(content)
        model = values["model"]
        vocabulary = model["vocab"]
        if isinstance(vocabulary, list):  # unigram: [piece, score]
            pieces = {index: str(piece) for index, (piece, _) in enumerate(vocabulary)}
        else:
            pieces = {int(index): str(piece) for piece, index in vocabulary.items()}
        for added in values.get("added_tokens") or ():
            pieces[int(added["id"])] = str(added["content"])
        if not pieces or min(pieces) < 0:
            raise ValueError("no vocabulary")
        return pieces, str(model.get("continuing_subword_prefix") or "")
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ModelError(f"{source}: damaged: {error}") from None
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ModelError(f"{source}: not a tokenizer: {error!r}") from None
