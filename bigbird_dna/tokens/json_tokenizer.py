"""Tokenizers in the format of HuggingFace's `tokenizers` library (`tokenizer.json`).

Those of DNA models are byte-pair encodings of letters. Every base of a sequence belongs to exactly one
token: a letter without a piece is one unknown token of 1 bp, and a piece that is no letters (some
vocabularies replace long runs of N by a symbol) covers the whole run of N where it stands. A vocabulary is
taken for one of DNA where more than half of its pieces are letters of the nucleotide code.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from itertools import groupby
from typing import Any, SupportsInt

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.errors import DataError, ModelError, error_text, shortened
from bigbird_dna.tokens.interface import (
    Encoded,
    Specials,
    TextPieces,
    Tokenizer,
    check_vocabulary,
    find_specials,
    require_dna,
)
from bigbird_dna.tokens.json_description import library_json, read_json, read_pieces
from bigbird_dna.tokens.tokenizer import check_letters

_NUCLEOTIDES = frozenset("ACGTUNRYSWKMBDHV")
_WORD_STARTS = ("▁", "Ġ")  # in front of a piece that begins a word
_GAP = re.compile("N+")


class JsonTokenizer(Tokenizer):
    """Encodes with a `tokenizer.json`; needs the `tokenizers` library once it encodes.

    See `Tokenizer` for the members. `piece_lengths` is 1 for the unknown piece and 0 for a symbol that covers
    a run of N, whose length only `encode_with_offsets` knows. `decode` writes one N for either.
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
        pieces, self._prefix = read_pieces(read_json(content, source), source)
        size = max(pieces) + 1 if vocabulary is None else vocabulary
        check_vocabulary(size, source)
        if max(pieces) >= size:
            last = shortened(repr(pieces[max(pieces)]))
            raise ModelError(f"{source}: piece {last} has id {max(pieces)}, the model has {size} ids")
        ids = {piece: index for index, piece in pieces.items()}
        specials = specials or find_specials(names or {}, ids.get, source)
        texts = [pieces.get(index, "") for index in range(size)]
        letters = ["" if i in specials else self._plain(text) for i, text in enumerate(texts)]
        super().__init__(content, texts, letters, specials, source)
        others = [i for i, piece in pieces.items() if i not in specials and piece.strip()]
        lettered = sum(bool(letters[i]) and set(letters[i]) <= _NUCLEOTIDES for i in others)
        self.is_dna = 2 * lettered > len(others)

    def encode(self, sequence: str) -> NDArray[np.int32]:
        """Token ids (n,), no specials added; DNA is checked as `DnaTokenizer.encode` does it."""
        if self.is_dna:
            return self.encode_with_offsets(sequence).ids
        return np.array(self._encode(sequence), np.int32)

    def text_pieces(self, text: str) -> TextPieces:
        """Token ids of a text, with the characters that each stands for."""
        if self.is_dna:
            return super().text_pieces(text)
        found = self._called(partial(self._library.encode, add_special_tokens=False), text)
        spans = np.array(found.offsets, np.int64).reshape(-1, 2)
        return TextPieces(np.array(found.ids, np.int32), spans[:, 0], spans[:, 1])

    def encode_batch(self, sequences: Sequence[str], threads: int = 1) -> list[NDArray[np.int32]]:
        """`encode` of every sequence, one after the other: the library's own threads break `fork`."""
        return [self.encode(sequence) for sequence in sequences]

    def encode_with_offsets(self, sequence: str) -> Encoded:
        """Token ids, and the bases that each covers; together they cover all."""
        require_dna(self)
        check_letters(sequence)
        ids = np.array(self._encode(sequence), np.int32)
        # An unknown piece in front of letters that are all there stands for a sign that was put before them.
        if (ids == self.unk_id).any() or "".join([self._letters[index] for index in ids]) != sequence:
            return self._align(ids, sequence)
        return Encoded(ids, self.offsets(ids))

    def offsets(self, ids: NDArray[np.integer]) -> NDArray[np.int64]:
        """Base offsets (n + 1,) of ids (n,); `DataError` where a piece covers a run of N."""
        symbols = self._symbols[ids]
        if symbols.any():
            piece = self.pieces[ids[symbols.argmax()]]
            raise DataError(f"piece {piece!r} stands for a run of N whose length it doesn't say")
        return super().offsets(ids)

    def _covered(self) -> list[int]:
        lengths = super()._covered()
        lengths[self.unk_id] = 1
        return lengths

    def decode(self, ids: Iterable[SupportsInt]) -> str:
        """Bases, or text, of token ids; `DataError` for an id outside the vocabulary."""
        numbers = self._known(ids)
        if not self.is_dna:
            return str(self._called(self._library.decode, numbers))
        unknown = [index == self.unk_id or self._symbols[index] for index in numbers]
        pairs = zip(numbers, unknown, strict=True)
        return "".join("N" if lost else self._letters[index] for index, lost in pairs)

    @cached_property
    def _symbols(self) -> NDArray[np.bool_]:
        """(V,) whether a piece is neither special nor letters."""
        symbols = np.array([not letters for letters in self._letters])
        symbols[list(self.specials)] = False
        return symbols

    @cached_property
    def _library(self) -> Any:
        try:
            from tokenizers import Tokenizer as LibraryTokenizer
        except ImportError:
            raise ModelError(
                f"{self.source}: needs the tokenizers library: pip install 'bigbird-dna[hf]'"
            ) from None
        text = library_json(self._content, decoding=not self.is_dna, source=self.source)
        library = self._called(LibraryTokenizer.from_str, text)
        for piece, index in library.get_vocab(with_added_tokens=True).items():
            if not 0 <= index < self.vocabulary or self.pieces[index] != piece:
                raise ModelError(
                    f"{self.source}: not a tokenizer: the tokenizers library takes {shortened(repr(piece))} "
                    f"for {index}, which is another piece's id"
                )
        return library

    def _called(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """What a function of the library gives; `ModelError` if it can't do with this tokenizer.

        It raises bare exceptions, and panics that aren't even these.
        """
        try:
            return function(*arguments)
        except BaseException as error:
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                raise
            raise ModelError(f"{self.source}: not a tokenizer: {error_text(error)}") from None

    def _encode(self, text: str) -> list[int]:
        encode = partial(self._library.encode, add_special_tokens=False)
        return self._called(encode, text).ids  # type: ignore[no-any-return]

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
        ends = [0]
        for index in [*ids.tolist(), None]:  # None: what is left after the last
            start = end = ends[-1]
            if index == self.unk_id:
                if sequence[start : start + 1] not in single:
                    found.append(index)
                    ends.append(start + 1)
                continue
            letters = "" if index is None else self._letters[index]
            if index is not None and not letters:  # a symbol
                found.append(index)
                gap = _GAP.match(sequence, start)
                ends.append(gap.end() if gap else start)
                continue
            while end < len(sequence) and sequence[end] not in single:
                if letters and sequence.startswith(letters, end):
                    break
                end += 1
            found += [self.unk_id] * (end - start)
            ends += range(start + 1, end + 1)
            if index is None or not sequence.startswith(letters, end):
                break
            found.append(index)
            ends.append(end + len(letters))
        if ends[-1] != len(sequence):
            return self._encode_known(sequence, single)
        return Encoded(np.array(found, np.int32), np.array(ends, np.int64))

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
            raise ModelError(f"{self.source}: its tokens don't cover the bases of a sequence")
        return Encoded(ids, self.offsets(ids))
