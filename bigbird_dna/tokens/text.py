"""Tokenizer files of all kinds: HuggingFace's `tokenizer.json`, SentencePiece's for text, and this package's.

Each base of a sequence belongs to exactly one token. A letter without a token is one unknown token of 1 bp. A
token without letters (some vocabularies replace long runs of N by a symbol) covers the whole run of N.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import groupby
from typing import Any, SupportsInt

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.errors import DataError, ModelError, error_text, shortened
from bigbird_dna.tokens.dna import (
    check_letters,
    encode_rows,
    open_sentencepiece,
    read_vocabulary,
)
from bigbird_dna.tokens.interface import (
    Encoded,
    Specials,
    Tokenizer,
    complete_vocabulary,
    require_dna,
)

_NUCLEOTIDES = frozenset("ACGTUNRYSWKMBDHV")
_WORD_STARTS = ("▁", "Ġ")  # prefix of a token at the start of a word
_GAP = re.compile("N+")


class JsonTokenizer(Tokenizer):
    """Encodes with a `tokenizer.json`; encoding requires the `tokenizers` library.

    `piece_lengths` is 1 for the unknown token and 0 for a symbol that covers a run of N, whose length is only
    available from `encode_with_offsets`. `decode` writes one N for either.
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
        """Open the content of a file; the parameters are those of `complete_vocabulary`."""
        pieces, self._prefix = _read_pieces(content, source)
        texts, specials = complete_vocabulary(
            pieces, specials, vocabulary, names, source
        )
        letters = [
            "" if i in specials else self._plain(text) for i, text in enumerate(texts)
        ]
        super().__init__(content, texts, letters, specials, source)
        others = [
            i for i, piece in pieces.items() if i not in specials and piece.strip()
        ]
        # A DNA vocabulary consists of nucleotide letters in more than half of its tokens.
        lettered = sum(
            bool(letters[i]) and set(letters[i]) <= _NUCLEOTIDES for i in others
        )
        self.is_dna = 2 * lettered > len(others)

    def encode(self, sequence: str) -> NDArray[np.int32]:
        """Return the token ids (n,) without special tokens; DNA is checked as in `DnaTokenizer.encode`."""
        return (
            self.encode_with_offsets(sequence).ids
            if self.is_dna
            else self._encode(sequence)
        )

    def encode_batch(
        self, sequences: Sequence[str], threads: int = 1
    ) -> list[NDArray[np.int32]]:
        """Encode each sequence with `encode`, serially, because the library's threads break `fork`."""
        return [self.encode(sequence) for sequence in sequences]

    def encode_with_offsets(self, sequence: str) -> Encoded:
        """Return the token ids and the bases that each covers; together they cover all bases."""
        require_dna(self)
        check_letters(sequence)
        ids = self._encode(sequence)
        # An unknown token before letters that are all covered represents a sign that was added before them.
        if (ids == self.unk_id).any() or "".join(
            [self.letters[index] for index in ids]
        ) != sequence:
            return self._align(ids, sequence)
        return Encoded(ids, self.offsets(ids))

    def offsets(self, ids: NDArray[np.integer]) -> NDArray[np.int64]:
        """Return base offsets (n + 1,) of ids (n,); `DataError` if a token covers a run of N."""
        symbols = self._symbols[ids]
        if symbols.any():
            piece = self.pieces[ids[symbols.argmax()]]
            raise DataError(
                f"token {piece!r} represents a run of N of unspecified length"
            )
        return super().offsets(ids)

    def _covered(self) -> list[int]:
        lengths = super()._covered()
        lengths[self.unk_id] = 1
        return lengths

    def decode(self, ids: Iterable[SupportsInt]) -> str:
        """Return the bases, or the text, of token ids; `DataError` for an unknown id."""
        numbers = self._known(ids)
        if not self.is_dna:
            return str(self._library.decode(numbers))
        unknown = [index == self.unk_id or self._symbols[index] for index in numbers]
        pairs = zip(numbers, unknown, strict=True)
        return "".join("N" if lost else self.letters[index] for index, lost in pairs)

    @cached_property
    def _symbols(self) -> NDArray[np.bool_]:
        """(V,) whether a token is neither special nor letters."""
        symbols = np.array([not letters for letters in self.letters])
        symbols[list(self.specials)] = False
        return symbols

    @cached_property
    def _library(self) -> Any:
        try:
            from tokenizers import Tokenizer as LibraryTokenizer
        except ImportError:
            raise ModelError(
                f"{self.source}: needs the tokenizers library; run pip install 'bigbird-dna[hf]'"
            ) from None
        values = json.loads(self.content)
        for key in ("truncation", "padding", "post_processor"):
            values[key] = None
        if self.is_dna:
            values["decoder"] = None
        if values["model"].get("dropout"):
            values["model"]["dropout"] = None  # random merges are for training only
        try:
            library = LibraryTokenizer.from_str(json.dumps(values))
        except Exception as error:  # the library raises nothing more specific
            raise ModelError(
                f"{self.source}: not a tokenizer: {error_text(error)}"
            ) from None
        for piece, index in library.get_vocab(with_added_tokens=True).items():
            if not 0 <= index < self.vocabulary or self.pieces[index] != piece:
                raise ModelError(
                    f"{self.source}: not a tokenizer: the tokenizers library maps {shortened(repr(piece))} "
                    f"to {index}, which is the id of another token"
                )
        return library

    def _encode(self, text: str) -> NDArray[np.int32]:
        encoded = self._library.encode(text, add_special_tokens=False)
        return np.array(encoded.ids, np.int32)

    def _plain(self, piece: str) -> str:
        """Return the letters that a token covers in a text; "" if it contains anything but letters."""
        if self._prefix and piece.startswith(self._prefix):
            piece = piece.removeprefix(self._prefix)
        elif piece[:1] in _WORD_STARTS:
            piece = piece[1:]
        piece = piece.upper()  # some tokenizers convert text to lower case
        return piece if piece.isascii() and piece.isalpha() else ""

    def _align(self, ids: NDArray[np.int32], sequence: str) -> Encoded:
        """Return ids with offsets if some letters have no token, or a symbol covers a run of N."""
        single = {letters for letters in self.letters if len(letters) == 1}
        found: list[int] = []
        ends = [0]
        for index in [*ids.tolist(), None]:  # None: the rest after the last id
            start = end = ends[-1]
            if index == self.unk_id:
                if sequence[start : start + 1] not in single:
                    found.append(index)
                    ends.append(start + 1)
                continue
            letters = "" if index is None else self.letters[index]
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
        """Encode between unknown letters, for tokenizers that drop letters and join their neighbors."""
        found: list[int] = []
        for known, run in groupby(sequence, single.__contains__):
            letters = "".join(run)
            found += (
                self._encode(letters).tolist()
                if known
                else [self.unk_id] * len(letters)
            )
        ids = np.array(found, np.int32)
        if "".join([self.letters[index] or "?" for index in found]) != "".join(
            letter if letter in single else "?" for letter in sequence
        ):
            raise ModelError(
                f"{self.source}: the tokens do not cover the bases of a sequence"
            )
        return Encoded(ids, self.offsets(ids))


def _read_pieces(content: bytes, source: str) -> tuple[dict[int, str], str]:
    """Return the text of each vocabulary entry of a `tokenizer.json` by id, and the prefix of tokens inside a
    word; `ModelError` for another file."""
    try:
        values = json.loads(content)
        model = values["model"]
        if isinstance(model["vocab"], list):  # unigram: [token, score]
            pieces = {i: str(piece) for i, (piece, _) in enumerate(model["vocab"])}
        else:
            pieces = {int(i): str(piece) for piece, i in model["vocab"].items()}
            if len(pieces) < len(model["vocab"]):
                raise ValueError("two tokens have the same id")
        for token in values.get("added_tokens") or []:
            index, piece = token["id"], token["content"]
            if pieces.setdefault(index, piece) != piece:
                raise ValueError(
                    f"added token {shortened(repr(piece))}: its id belongs to another token"
                )
        if not pieces or min(pieces) < 0:
            raise ValueError("missing or invalid vocabulary")
    except KeyError as error:
        raise ModelError(f"{source}: not a tokenizer: {error} is missing") from None
    except (AttributeError, TypeError, ValueError, RecursionError) as error:
        raise ModelError(f"{source}: not a tokenizer: {error_text(error)}") from None
    return pieces, model.get("continuing_subword_prefix") or ""


class TextTokenizer(Tokenizer):
    """Encodes ordinary text; see `Tokenizer`. Methods about bases raise `ModelError`."""

    file_name = "tokenizer.model"
    is_dna = False

    def __init__(
        self,
        model: bytes,
        specials: Specials | None = None,
        vocabulary: int | None = None,
        *,
        names: Mapping[str, str] | None = None,
        source: str = "spiece.model",
    ) -> None:
        """Open a serialized model; the parameters are those of `complete_vocabulary`."""
        self._processor = open_sentencepiece(model, source)
        pieces = dict(enumerate(read_vocabulary(self._processor)))
        texts, specials = complete_vocabulary(
            pieces, specials, vocabulary, names, source
        )
        super().__init__(model, texts, [""] * len(texts), specials, source)

    def encode(self, sequence: str) -> NDArray[np.int32]:
        """Return the token ids (n,) of a text, without special tokens."""
        return encode_rows(self._processor, [sequence])[0]

    def encode_batch(
        self, sequences: Sequence[str], threads: int = 1
    ) -> list[NDArray[np.int32]]:
        """Encode each text with `encode`, using threads."""
        return encode_rows(self._processor, sequences, threads)

    def decode(self, ids: Iterable[SupportsInt]) -> str:
        """Return the text of token ids, without special tokens; `DataError` for an unknown id."""
        known = self._known(ids)
        numbers = [i for i in known if i not in self.specials and self.pieces[i]]
        return str(self._processor.decode(numbers))
