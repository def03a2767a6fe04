"""What a `tokenizer.json` says, checked, and the part of it that the `tokenizers` library gets.

The library follows what the file says, however long that takes: patterns that try every division of a text,
replacements of replacements that make gigabytes of a word. Such files are refused.
"""

import base64
import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from bigbird_dna.errors import ModelError, error_text, shortened
from bigbird_dna.tokens.character_map import check_character_map
from bigbird_dna.tokens.interface import check_vocabulary

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
    """The text that the library is given: without truncation, padding, special pieces and random choices.

    With `decoding`, with what it needs to make a text of ids. `ModelError` for steps that could go on
    without end.
    """
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
        _check_steps([values.get(key) for key in ("normalizer", "pre_tokenizer", "decoder")])
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


def _check_steps(values: Any) -> None:
    """`ValueError` if the steps before and after the model could take without end, or make too much."""
    steps = list(_steps(values))
    if len(steps) > _MOST_STEPS:
        raise ValueError(f"{len(steps)} steps of normalisation: at most {_MOST_STEPS}")
    if math.prod(map(_growth, steps)) > _MOST_GROWTH:
        raise ValueError("its steps of normalisation make too much of a letter")


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
        _check_pattern(expression)
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


def _check_pattern(expression: str) -> None:
    if len(expression) > _LONGEST_PATTERN:
        raise ValueError(f"a pattern of {len(expression)} letters: at most {_LONGEST_PATTERN}")
    if found := _TRIES_ALL_DIVISIONS.search(expression):
        raise ValueError(f"a pattern that could try all divisions of a text ({shortened(found[0])!r} in it)")
