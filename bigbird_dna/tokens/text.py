"""Tokenizer files of all kinds: HuggingFace's `tokenizer.json`, SentencePiece's for text, and this package's.

The `tokenizers` library follows a file without limits: patterns that try every division of a text, or nested
replacements that expand a word to gigabytes. Such files are rejected.

Each base of a sequence belongs to exactly one token. A letter without a token is one unknown token of 1 bp. A
token without letters (some vocabularies replace long runs of N by a symbol) covers the whole run of N.
"""

import base64
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import groupby
from pathlib import Path
from typing import Any, SupportsInt

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.errors import DataError, ModelError, error_text, shortened
from bigbird_dna.tokens.dna import DnaTokenizer, check_letters
from bigbird_dna.tokens.interface import (
    Encoded,
    Specials,
    TextPieces,
    Tokenizer,
    check_vocabulary,
    complete_vocabulary,
    read_content,
    read_description,
    require_dna,
)
from bigbird_dna.tokens.piece_model import check_character_map, encode_rows, encode_with_places, open_model

_MOST_STEPS = 64
_MOST_GROWTH = 4096  # maximum letters that one letter may become
_LONGEST_PATTERN = 1000  # maximum letters of a regular expression
_LONGEST_PART = 64  # maximum letters added before, after or inside a word
_LONGEST_WORD = 1000  # maximum letters of a word for WordPiece, which tries all divisions
# Maximum letters that one letter may become per step; the longest Unicode decompositions have 18.
_GROWTH = {"NFD": 4, "NFKD": 18, "NFC": 3, "NFKC": 18, "Precompiled": 32, "ByteLevel": 4, "Lowercase": 3}
_TRIES_ALL_DIVISIONS = re.compile(
    r"\)(?:[*+]|\{)|\\[1-9gk]|\(\?(?:R|&|P[=>]|\d)"
)  # quantified groups, references


def read_json(content: bytes, source: str) -> Any:
    """Parse JSON text; `ModelError` for invalid text."""
    try:
        return json.loads(content.decode())
    except RecursionError:
        raise ModelError(f"{source}: the file is damaged: nested too deeply") from None
    except ValueError as error:  # not UTF-8, not JSON, or a number of thousands of digits
        raise ModelError(f"{source}: the file is damaged: {error_text(error)}") from None


def read_pieces(values: Any, source: str) -> tuple[dict[int, str], str]:
    """Return the text of each vocabulary entry by id, and the prefix of tokens inside a word."""
    try:
        model, added = values["model"], values.get("added_tokens") or []
        pieces = _vocabulary(model["vocab"])
        ids = {piece: index for index, piece in pieces.items()}
        for token in added:
            index, piece = token["id"], token["content"]
            if type(index) is not int or not isinstance(piece, str):
                raise ValueError(f"added token {shortened(repr(piece))} with id {shortened(repr(index))}")
            if pieces.setdefault(index, piece) != piece or ids.setdefault(piece, index) != index:
                found = shortened(repr(piece))
                raise ValueError(f"added token {found}: its id belongs to another token, or it has two ids")
        prefix = model.get("continuing_subword_prefix") or ""
        if not pieces or min(pieces) < 0 or not isinstance(prefix, str):
            raise ValueError("missing or invalid vocabulary")
        "".join(pieces.values()).encode()  # an unpaired UTF-16 surrogate has no encoding
    except KeyError as error:
        raise ModelError(f"{source}: not a tokenizer: {error_text(error)} is missing") from None
    except (AttributeError, TypeError, ValueError) as error:
        raise ModelError(f"{source}: not a tokenizer: {error_text(error)}") from None
    check_vocabulary(max(pieces) + 1, source)
    return pieces, prefix


def _vocabulary(vocabulary: Any) -> dict[int, str]:
    if isinstance(vocabulary, list):  # unigram: [token, score]
        if not all(isinstance(piece, str) for piece, _ in vocabulary):
            raise ValueError("a token is not text")
        return {index: piece for index, (piece, _) in enumerate(vocabulary)}
    pieces: dict[int, str] = {index: piece for piece, index in vocabulary.items()}
    if not all(type(index) is int for index in pieces):
        raise ValueError("the id of a token is not a whole number")
    if len(pieces) < len(vocabulary):
        raise ValueError("two tokens have the same id")
    return pieces


def library_json(content: bytes, *, decoding: bool, source: str) -> str:
    """Return the JSON for the library; `ModelError` for steps that might not terminate.

    Truncation, padding, special tokens and random choices are removed, and the decoder unless `decoding`."""
    values = read_json(content, source)
    for key in ("truncation", "padding", "post_processor"):
        values[key] = None
    if not decoding:
        values["decoder"] = None
    model = values["model"]
    if model.get("dropout"):
        model["dropout"] = None  # random omission of merges is only used in training
    try:
        _check_model(model)
        steps = list(_steps([values.get(key) for key in ("normalizer", "pre_tokenizer", "decoder")]))
        if len(steps) > _MOST_STEPS:
            raise ValueError(f"{len(steps)} normalization steps; at most {_MOST_STEPS} are supported")
        if math.prod(map(_growth, steps)) > _MOST_GROWTH:
            raise ValueError("the normalization steps expand a letter too much")
        return json.dumps(values, ensure_ascii=False, allow_nan=False)
    except RecursionError:
        raise ModelError(f"{source}: damaged: nested too deeply") from None
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ModelError(f"{source}: not a tokenizer: {error_text(error)}") from None


def _check_model(model: Mapping[str, Any]) -> None:
    for key in ("continuing_subword_prefix", "end_of_word_suffix"):
        if len(model.get(key) or "") > _LONGEST_PART:
            raise ValueError(f"{key} is longer than {_LONGEST_PART} letters")
    longest = model.get("max_input_chars_per_word")
    if longest is not None and not (type(longest) is int and 0 <= longest <= _LONGEST_WORD):
        raise ValueError(f"max_input_chars_per_word {shortened(repr(longest))} is above {_LONGEST_WORD}")


def _steps(values: Any) -> Iterator[Mapping[str, Any]]:
    """Yield all objects in a value, in order."""
    if isinstance(values, list):
        for value in values:
            yield from _steps(value)
    elif isinstance(values, dict):
        if "type" in values:
            yield values
        for value in values.values():
            yield from _steps(value)


def _growth(step: Mapping[str, Any]) -> int:
    """Return how many letters one letter may become in a step; `ValueError` if the step might not end."""
    kind = step["type"]
    pattern = step.get("pattern")
    expression = pattern.get("Regex") if isinstance(pattern, Mapping) else None
    if expression is not None:
        if len(expression) > _LONGEST_PATTERN:
            raise ValueError(f"a pattern has {len(expression)} letters, more than {_LONGEST_PATTERN}")
        if found := _TRIES_ALL_DIVISIONS.search(expression):
            part = shortened(found[0])
            raise ValueError(f"a pattern could try all divisions of a text (it contains {part!r})")
    for key in ("content", "prepend", "prefix", "suffix", "replacement"):
        if isinstance(step.get(key), str) and len(step[key]) > _LONGEST_PART:
            raise ValueError(f"{kind} inserts more than {_LONGEST_PART} letters")
    if kind == "Precompiled" and step.get("precompiled_charsmap"):
        check_character_map(base64.b64decode(step["precompiled_charsmap"], validate=True))
    if kind == "FixedLength" and step.get("length") == 0:
        raise ValueError("FixedLength has length 0")
    if kind == "Replace":
        return 1 + len(step["content"]) if expression is not None else max(1, len(step["content"]))
    return _GROWTH.get(kind, 1) if isinstance(kind, str) else 1


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
        pieces, self._prefix = read_pieces(read_json(content, source), source)
        texts, specials = complete_vocabulary(pieces, specials, vocabulary, names, source)
        letters = ["" if i in specials else self._plain(text) for i, text in enumerate(texts)]
        super().__init__(content, texts, letters, specials, source)
        others = [i for i, piece in pieces.items() if i not in specials and piece.strip()]
        # A DNA vocabulary consists of nucleotide letters in more than half of its tokens.
        lettered = sum(bool(letters[i]) and set(letters[i]) <= _NUCLEOTIDES for i in others)
        self.is_dna = 2 * lettered > len(others)

    def encode(self, sequence: str) -> NDArray[np.int32]:
        """Return the token ids (n,) without special tokens; DNA is checked as in `DnaTokenizer.encode`."""
        return self.encode_with_offsets(sequence).ids if self.is_dna else self._encode(sequence)

    def text_pieces(self, text: str) -> TextPieces:
        """Return the token ids of a text, with the characters that each covers."""
        if self.is_dna:
            return super().text_pieces(text)
        found = self._called(partial(self._library.encode, add_special_tokens=False), text)
        spans = np.array(found.offsets, np.int64).reshape(-1, 2)
        return TextPieces(np.array(found.ids, np.int32), spans[:, 0], spans[:, 1])

    def encode_batch(self, sequences: Sequence[str], threads: int = 1) -> list[NDArray[np.int32]]:
        """Encode each sequence with `encode`, serially, because the library's threads break `fork`."""
        return [self.encode(sequence) for sequence in sequences]

    def encode_with_offsets(self, sequence: str) -> Encoded:
        """Return the token ids and the bases that each covers; together they cover all bases."""
        require_dna(self)
        check_letters(sequence)
        ids = self._encode(sequence)
        # An unknown token before letters that are all covered represents a sign that was added before them.
        if (ids == self.unk_id).any() or "".join([self.letters[index] for index in ids]) != sequence:
            return self._align(ids, sequence)
        return Encoded(ids, self.offsets(ids))

    def offsets(self, ids: NDArray[np.integer]) -> NDArray[np.int64]:
        """Return base offsets (n + 1,) of ids (n,); `DataError` if a token covers a run of N."""
        symbols = self._symbols[ids]
        if symbols.any():
            piece = self.pieces[ids[symbols.argmax()]]
            raise DataError(f"token {piece!r} represents a run of N of unspecified length")
        return super().offsets(ids)

    def _covered(self) -> list[int]:
        lengths = super()._covered()
        lengths[self.unk_id] = 1
        return lengths

    def decode(self, ids: Iterable[SupportsInt]) -> str:
        """Return the bases, or the text, of token ids; `DataError` for an unknown id."""
        numbers = self._known(ids)
        if not self.is_dna:
            return str(self._called(self._library.decode, numbers))
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
        text = library_json(self.content, decoding=not self.is_dna, source=self.source)
        library = self._called(LibraryTokenizer.from_str, text)
        for piece, index in library.get_vocab(with_added_tokens=True).items():
            if not 0 <= index < self.vocabulary or self.pieces[index] != piece:
                raise ModelError(
                    f"{self.source}: not a tokenizer: the tokenizers library maps {shortened(repr(piece))} "
                    f"to {index}, which is the id of another token"
                )
        return library

    def _called(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function of the library; convert its exceptions and panics to `ModelError`."""
        try:
            return function(*arguments)
        except BaseException as error:
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                raise
            raise ModelError(f"{self.source}: not a tokenizer: {error_text(error)}") from None

    def _encode(self, text: str) -> NDArray[np.int32]:
        encode = partial(self._library.encode, add_special_tokens=False)
        return np.array(self._called(encode, text).ids, np.int32)

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
            found += self._encode(letters).tolist() if known else [self.unk_id] * len(letters)
        ids = np.array(found, np.int32)
        if "".join([self.letters[index] or "?" for index in found]) != "".join(
            letter if letter in single else "?" for letter in sequence
        ):
            raise ModelError(f"{self.source}: the tokens do not cover the bases of a sequence")
        return Encoded(ids, self.offsets(ids))


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
        self._processor, opened = open_model(model, source)
        pieces = dict(enumerate(opened.pieces))
        texts, specials = complete_vocabulary(pieces, specials, vocabulary, names, source)
        super().__init__(model, texts, [""] * len(texts), specials, source)

    def encode(self, sequence: str) -> NDArray[np.int32]:
        """Return the token ids (n,) of a text, without special tokens."""
        return encode_rows(self._processor, [sequence])[0]

    def text_pieces(self, text: str) -> TextPieces:
        """Return the token ids of a text, with the characters that each covers."""
        return encode_with_places(self._processor, text)

    def encode_batch(self, sequences: Sequence[str], threads: int = 1) -> list[NDArray[np.int32]]:
        """Encode each text with `encode`, using threads."""
        return encode_rows(self._processor, sequences, threads)

    def decode(self, ids: Iterable[SupportsInt]) -> str:
        """Return the text of token ids, without special tokens; `DataError` for an unknown id."""
        known = self._known(ids)
        numbers = [i for i in known if i not in self.specials and self.pieces[i]]
        return str(self._processor.decode(numbers))


TOKENIZER_FILES = (DnaTokenizer.file_name, JsonTokenizer.file_name)


def load_tokenizer(path: Path, description: Mapping[str, Any] | None = None) -> Tokenizer:
    """Open a tokenizer file: a `.json` with the `tokenizers` library, any other with SentencePiece.

    `description` is the result of the tokenizer's method when it was saved. Without it (or with {}), special
    tokens are found by their usual names, and a SentencePiece model must be one of `DnaTokenizer.train`.
    """
    known = read_description(description, str(path)) if description else (None, None)
    content = read_content(path)
    if Path(path).suffix == ".json":
        return JsonTokenizer(content, *known, source=str(path))
    if description:
        return TextTokenizer(content, *known, source=str(path))
    return DnaTokenizer(content, str(path))
