"""Tokenizer files of all kinds: HuggingFace's `tokenizer.json`, SentencePiece's for text, and this package's.

Each base of a sequence belongs to exactly one token. A letter without a token is one unknown token of 1 bp. A
token without letters (some vocabularies replace long runs of N by a symbol) covers the whole run of N.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, SupportsInt

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.errors import DataError, ModelError, error_text
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


class JsonTokenizer(Tokenizer):
    """Encodes with a `tokenizer.json`, by the `tokenizers` library.

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
        try:
            from tokenizers import Tokenizer as LibraryTokenizer
        except ImportError:
            raise ModelError(
                f"{source}: needs the tokenizers library; run pip install 'bigbird-dna[hf]'"
            ) from None

        try:
            values = json.loads(content)
            for key in ("truncation", "padding", "post_processor"):
                values[key] = None

            if values["model"].get("dropout"):
                values["model"]["dropout"] = None  # random merges are for training only

            self._library: Any = LibraryTokenizer.from_str(json.dumps(values))
            prefix = values["model"].get("continuing_subword_prefix") or ""
            ids = self._library.get_vocab(with_added_tokens=True)
            pieces = {index: piece for piece, index in ids.items()}
            if not pieces or len(pieces) < len(ids):
                raise ValueError("no tokens, or two with the same id")
        except Exception as error:  # the library raises nothing more specific
            raise ModelError(
                f"{source}: not a tokenizer: {error_text(error)}"
            ) from None

        texts, specials = complete_vocabulary(
            pieces, specials, vocabulary, names, source
        )
        letters = [""] * len(texts)
        nucleotides = others = 0
        for index, piece in pieces.items():
            if index in specials:
                continue

            letters[index] = _letters(piece, prefix)
            if piece.strip():
                is_dna = letters[index] and set(letters[index]) <= _NUCLEOTIDES
                nucleotides += bool(is_dna)
                others += 1

        super().__init__(content, texts, letters, specials, source)
        # A DNA vocabulary consists of nucleotide letters in more than half of its tokens.
        self.is_dna = 2 * nucleotides > others

    def encode(self, sequence: str) -> NDArray[np.int32]:
        """Return the token ids (n,) without special tokens; DNA is checked as in `DnaTokenizer.encode`."""
        if self.is_dna:
            return self.encode_with_offsets(sequence).ids
        encoding = self._library.encode(sequence, add_special_tokens=False)
        return np.array(encoding.ids, np.int32)

    def encode_batch(
        self, sequences: Sequence[str], threads: int = 1
    ) -> list[NDArray[np.int32]]:
        """Encode each sequence with `encode`, serially, because the library's threads break `fork`."""
        return [self.encode(sequence) for sequence in sequences]

    def encode_with_offsets(self, sequence: str) -> Encoded:
        """Return the token ids and the bases that each covers; together they cover all bases."""
        require_dna(self)
        check_letters(sequence)
        encoding = self._library.encode(sequence, add_special_tokens=False)
        ids: list[int] = []
        ends = [0]
        for index, (start, end) in zip(encoding.ids, encoding.offsets, strict=True):
            if index == self.unk_id or end <= ends[-1]:  # or a sign before a text
                continue

            letters = self.letters[index]
            if letters:
                if sequence[start:end] != letters:
                    raise ModelError(
                        f"{self.source}: the tokens do not cover the bases of a sequence"
                    )

                # Bases between two tokens are unknown tokens of 1 bp.
                ids += [self.unk_id] * (start - ends[-1])
                ends += range(ends[-1] + 1, start + 1)

            ids.append(index)
            ends.append(end)

        ids += [self.unk_id] * (len(sequence) - ends[-1])
        ends += range(ends[-1] + 1, len(sequence) + 1)
        return Encoded(np.array(ids, np.int32), np.array(ends, np.int64))

    def offsets(self, ids: NDArray[np.integer]) -> NDArray[np.int64]:
        """Return base offsets (n + 1,) of ids (n,); `DataError` if a token covers a run of N."""
        symbols = self._symbols[ids]
        if symbols.any():
            piece = self.pieces[ids[symbols.argmax()]]
            raise DataError(
                f"token {piece!r} represents a run of N of unspecified length"
            )
        return super().offsets(ids)

    @cached_property
    def piece_lengths(self) -> NDArray[np.int32]:
        """(V,) number of bases that each token covers; 1 for the unknown token."""
        lengths = super().piece_lengths.copy()
        lengths[self.unk_id] = 1
        return lengths

    def decode(self, ids: Iterable[SupportsInt]) -> str:
        """Return the bases, or the text, of token ids; `DataError` for an unknown id."""
        numbers = self._known(ids)
        if not self.is_dna:
            return str(self._library.decode(numbers))
        unknown = self._symbols.copy()
        unknown[self.unk_id] = True
        return "".join("N" if unknown[i] else self.letters[i] for i in numbers)

    @cached_property
    def _symbols(self) -> NDArray[np.bool_]:
        """(V,) whether a token is neither special nor letters."""
        symbols = np.array([not letters for letters in self.letters])
        symbols[list(self.specials)] = False
        return symbols


def _letters(piece: str, prefix: str) -> str:
    """Return the letters that a token covers in a text; "" if it contains anything but letters.

    `prefix` is that of tokens inside a word.
    """
    if prefix and piece.startswith(prefix):
        piece = piece.removeprefix(prefix)
    elif piece[:1] in _WORD_STARTS:
        piece = piece[1:]
    piece = piece.upper()  # some tokenizers convert text to lower case
    return piece if piece.isascii() and piece.isalpha() else ""


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
