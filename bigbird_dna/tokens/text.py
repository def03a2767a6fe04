"""Tokenizer files of every kind: HuggingFace's `tokenizer.json`, SentencePiece's of ordinary text, and ours.

The `tokenizers` library follows what a file says, however long that takes: patterns that try every division
of a text, replacements of replacements that make gigabytes of a word. Such files are refused.

Every base of a sequence belongs to exactly one token: a letter without a piece is one unknown token of 1 bp,
and a piece that is no letters (some vocabularies replace long runs of N by a symbol) covers the whole run of
N where it stands.
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
_MOST_GROWTH = 4096  # letters that a letter may become
_LONGEST_PATTERN = 1000  # letters of a regular expression
_LONGEST_PART = 64  # letters put in front of, behind or inside a word
_LONGEST_WORD = 1000  # letters of a word that WordPiece cuts: it tries all divisions
# What a letter may become in a step, at most; the compositions of Unicode are 18 at the longest.
_GROWTH = {"NFD": 4, "NFKD": 18, "NFC": 3, "NFKC": 18, "Precompiled": 32, "ByteLevel": 4, "Lowercase": 3}
_TRIES_ALL_DIVISIONS = re.compile(
    r"\)(?:[*+]|\{)|\\[1-9gk]|\(\?(?:R|&|P[=>]|\d)"
)  # quantified groups, references


def read_json(content: bytes, source: str) -> Any:
    """The value of a JSON text; `ModelError` for anything else."""
    try:
        return json.loads(content.decode())
    except RecursionError:
        raise ModelError(f"{source}: damaged: nested too deeply") from None
    except ValueError as error:  # not UTF-8, not JSON, or a number of thousands of digits
        raise ModelError(f"{source}: damaged: {error_text(error)}") from None


def read_pieces(values: Any, source: str) -> tuple[dict[int, str], str]:
    """Text of every piece by id, and the prefix of pieces inside a word."""
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
                raise ValueError(f"added token {found}: its id is another piece's, or it has two")
        prefix = model.get("continuing_subword_prefix") or ""
        if not pieces or min(pieces) < 0 or not isinstance(prefix, str):
            raise ValueError("no vocabulary")
        "".join(pieces.values()).encode()  # half a letter of UTF-16 has no encoding
    except KeyError as error:
        raise ModelError(f"{source}: not a tokenizer: {error_text(error)} is missing") from None
    except (AttributeError, TypeError, ValueError) as error:
        raise ModelError(f"{source}: not a tokenizer: {error_text(error)}") from None
    check_vocabulary(max(pieces) + 1, source)
    return pieces, prefix


def _vocabulary(vocabulary: Any) -> dict[int, str]:
    if isinstance(vocabulary, list):  # unigram: [piece, score]
        if not all(isinstance(piece, str) for piece, _ in vocabulary):
            raise ValueError("a piece that is not text")
        return {index: piece for index, (piece, _) in enumerate(vocabulary)}
    pieces: dict[int, str] = {index: piece for piece, index in vocabulary.items()}
    if not all(type(index) is int for index in pieces):
        raise ValueError("a piece whose id is not a whole number")
    if len(pieces) < len(vocabulary):
        raise ValueError("two pieces with one id")
    return pieces


def library_json(content: bytes, *, decoding: bool, source: str) -> str:
    """What the library gets: no truncation, padding, special pieces, random choices, or (unless `decoding`)
    way back to a text; `ModelError` for steps that could go on without end."""
    values = read_json(content, source)
    for key in ("truncation", "padding", "post_processor"):
        values[key] = None
    if not decoding:
        values["decoder"] = None
    model = values["model"]
    if model.get("dropout"):
        model["dropout"] = None  # merges left out at random serve training alone
    try:
        _check_model(model)
        steps = list(_steps([values.get(key) for key in ("normalizer", "pre_tokenizer", "decoder")]))
        if len(steps) > _MOST_STEPS:
            raise ValueError(f"{len(steps)} steps of normalization: at most {_MOST_STEPS}")
        if math.prod(map(_growth, steps)) > _MOST_GROWTH:
            raise ValueError("its steps of normalization make too much of a letter")
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
        raise ValueError(f"max_input_chars_per_word is {shortened(repr(longest))}: at most {_LONGEST_WORD}")


def _steps(values: Any) -> Iterator[Mapping[str, Any]]:
    """All objects in a value, in order."""
    if isinstance(values, list):
        for value in values:
            yield from _steps(value)
    elif isinstance(values, dict):
        if "type" in values:
            yield values
        for value in values.values():
            yield from _steps(value)


def _growth(step: Mapping[str, Any]) -> int:
    """What a letter may become in a step; `ValueError` for a step that may have no end."""
    kind = step["type"]
    pattern = step.get("pattern")
    expression = pattern.get("Regex") if isinstance(pattern, Mapping) else None
    if expression is not None:
        if len(expression) > _LONGEST_PATTERN:
            raise ValueError(f"a pattern of {len(expression)} letters: at most {_LONGEST_PATTERN}")
        if found := _TRIES_ALL_DIVISIONS.search(expression):
            part = shortened(found[0])
            raise ValueError(f"a pattern that could try all divisions of a text ({part!r} in it)")
    for key in ("content", "prepend", "prefix", "suffix", "replacement"):
        if isinstance(step.get(key), str) and len(step[key]) > _LONGEST_PART:
            raise ValueError(f"{kind} puts in more than {_LONGEST_PART} letters")
    if kind == "Precompiled" and step.get("precompiled_charsmap"):
        check_character_map(base64.b64decode(step["precompiled_charsmap"], validate=True))
    if kind == "FixedLength" and step.get("length") == 0:
        raise ValueError("FixedLength cuts into nothing")
    if kind == "Replace":
        return 1 + len(step["content"]) if expression is not None else max(1, len(step["content"]))
    return _GROWTH.get(kind, 1) if isinstance(kind, str) else 1


_NUCLEOTIDES = frozenset("ACGTUNRYSWKMBDHV")
_WORD_STARTS = ("▁", "Ġ")  # in front of a piece that begins a word
_GAP = re.compile("N+")


class JsonTokenizer(Tokenizer):
    """Encodes with a `tokenizer.json`; needs the `tokenizers` library once it encodes.

    `piece_lengths` is 1 for the unknown piece and 0 for a symbol that covers a run of N, whose length only
    `encode_with_offsets` knows. `decode` writes one N for either.
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
        # Of DNA are those of which more than half are letters of the nucleotide code.
        lettered = sum(bool(letters[i]) and set(letters[i]) <= _NUCLEOTIDES for i in others)
        self.is_dna = 2 * lettered > len(others)

    def encode(self, sequence: str) -> NDArray[np.int32]:
        """Token ids (n,), no specials added; DNA is checked as `DnaTokenizer.encode` does it."""
        return self.encode_with_offsets(sequence).ids if self.is_dna else self._encode(sequence)

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
        ids = self._encode(sequence)
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
        text = library_json(self.content, decoding=not self.is_dna, source=self.source)
        library = self._called(LibraryTokenizer.from_str, text)
        for piece, index in library.get_vocab(with_added_tokens=True).items():
            if not 0 <= index < self.vocabulary or self.pieces[index] != piece:
                raise ModelError(
                    f"{self.source}: not a tokenizer: the tokenizers library takes {shortened(repr(piece))} "
                    f"for {index}, which is another piece's id"
                )
        return library

    def _called(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """What a function of the library gives; it raises bare exceptions, and panics that aren't even these:
        `ModelError` then."""
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
            found += self._encode(letters).tolist() if known else [self.unk_id] * len(letters)
        ids = np.array(found, np.int32)
        if "".join([self._letters[index] or "?" for index in found]) != "".join(
            letter if letter in single else "?" for letter in sequence
        ):
            raise ModelError(f"{self.source}: its tokens don't cover the bases of a sequence")
        return Encoded(ids, self.offsets(ids))


class TextTokenizer(Tokenizer):
    """Encodes text; see `Tokenizer`. Whatever has to do with bases raises `ModelError`."""

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
        """Token ids (n,) of a text, no specials added."""
        return encode_rows(self._processor, [sequence])[0]

    def text_pieces(self, text: str) -> TextPieces:
        """Token ids of a text, with the characters that each stands for."""
        return encode_with_places(self._processor, text)

    def encode_batch(self, sequences: Sequence[str], threads: int = 1) -> list[NDArray[np.int32]]:
        """`encode` of every text, over threads."""
        return encode_rows(self._processor, sequences, threads)

    def decode(self, ids: Iterable[SupportsInt]) -> str:
        """Text of token ids, specials left out; `DataError` for an id outside the vocabulary."""
        known = self._known(ids)
        numbers = [i for i in known if i not in self.specials and self.pieces[i]]
        return str(self._processor.decode(numbers))


TOKENIZER_FILES = (DnaTokenizer.file_name, JsonTokenizer.file_name)


def load_tokenizer(path: Path, description: Mapping[str, Any] | None = None) -> Tokenizer:
    """Open a tokenizer file: a `.json` with the `tokenizers` library, any other with SentencePiece.

    `description` is what the tokenizer's method said when it was saved; none (or {}): special pieces are
    found by their usual names, and a SentencePiece model must be one of `DnaTokenizer.train`.
    """
    known = read_description(description, str(path)) if description else (None, None)
    content = read_content(path)
    if Path(path).suffix == ".json":
        return JsonTokenizer(content, *known, source=str(path))
    if description:
        return TextTokenizer(content, *known, source=str(path))
    return DnaTokenizer(content, str(path))
