"""Checks of HuggingFace's `tokenizer.json`, before the `tokenizers` library reads it.

The library follows a file without limits: patterns that try every division of a text, or nested replacements
that expand a word to gigabytes. Such files are rejected.
"""

import base64
import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from bigbird_dna.errors import ModelError, error_text, shortened
from bigbird_dna.tokens.interface import check_vocabulary
from bigbird_dna.tokens.piece_model import check_character_map

_MOST_STEPS = 64
_MOST_GROWTH = 4096  # maximum letters that one letter may become
_LONGEST_PATTERN = 1000  # maximum letters of a regular expression
_LONGEST_PART = 64  # maximum letters added before, after or inside a word
_LONGEST_WORD = (
    1000  # maximum letters of a word for WordPiece, which tries all divisions
)
# Maximum letters that one letter may become per step; the longest Unicode decompositions have 18.
_GROWTH = {
    "NFD": 4,
    "NFKD": 18,
    "NFC": 3,
    "NFKC": 18,
    "Precompiled": 32,
    "ByteLevel": 4,
    "Lowercase": 3,
}
_TRIES_ALL_DIVISIONS = re.compile(
    r"\)(?:[*+]|\{)|\\[1-9gk]|\(\?(?:R|&|P[=>]|\d)"
)  # quantified groups, references


def read_json(content: bytes, source: str) -> Any:
    """Parse JSON text; `ModelError` for invalid text."""
    try:
        return json.loads(content.decode())
    except RecursionError:
        raise ModelError(f"{source}: the file is damaged: nested too deeply") from None
    except (
        ValueError
    ) as error:  # not UTF-8, not JSON, or a number of thousands of digits
        raise ModelError(
            f"{source}: the file is damaged: {error_text(error)}"
        ) from None


def read_pieces(values: Any, source: str) -> tuple[dict[int, str], str]:
    """Return the text of each vocabulary entry by id, and the prefix of tokens inside a word."""
    try:
        model, added = values["model"], values.get("added_tokens") or []
        pieces = _vocabulary(model["vocab"])
        ids = {piece: index for index, piece in pieces.items()}
        for token in added:
            index, piece = token["id"], token["content"]
            if type(index) is not int or not isinstance(piece, str):
                raise ValueError(
                    f"added token {shortened(repr(piece))} with id {shortened(repr(index))}"
                )
            if (
                pieces.setdefault(index, piece) != piece
                or ids.setdefault(piece, index) != index
            ):
                found = shortened(repr(piece))
                raise ValueError(
                    f"added token {found}: its id belongs to another token, or it has two ids"
                )
        prefix = model.get("continuing_subword_prefix") or ""
        if not pieces or min(pieces) < 0 or not isinstance(prefix, str):
            raise ValueError("missing or invalid vocabulary")
        "".join(
            pieces.values()
        ).encode()  # an unpaired UTF-16 surrogate has no encoding
    except KeyError as error:
        raise ModelError(
            f"{source}: not a tokenizer: {error_text(error)} is missing"
        ) from None
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
        steps = list(
            _steps(
                [values.get(key) for key in ("normalizer", "pre_tokenizer", "decoder")]
            )
        )
        if len(steps) > _MOST_STEPS:
            raise ValueError(
                f"{len(steps)} normalization steps; at most {_MOST_STEPS} are supported"
            )
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
    if longest is not None and not (
        type(longest) is int and 0 <= longest <= _LONGEST_WORD
    ):
        raise ValueError(
            f"max_input_chars_per_word {shortened(repr(longest))} is above {_LONGEST_WORD}"
        )


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
            raise ValueError(
                f"a pattern has {len(expression)} letters, more than {_LONGEST_PATTERN}"
            )
        if found := _TRIES_ALL_DIVISIONS.search(expression):
            part = shortened(found[0])
            raise ValueError(
                f"a pattern could try all divisions of a text (it contains {part!r})"
            )
    for key in ("content", "prepend", "prefix", "suffix", "replacement"):
        if isinstance(step.get(key), str) and len(step[key]) > _LONGEST_PART:
            raise ValueError(f"{kind} inserts more than {_LONGEST_PART} letters")
    if kind == "Precompiled" and step.get("precompiled_charsmap"):
        check_character_map(
            base64.b64decode(step["precompiled_charsmap"], validate=True)
        )
    if kind == "FixedLength" and step.get("length") == 0:
        raise ValueError("FixedLength has length 0")
    if kind == "Replace":
        return (
            1 + len(step["content"])
            if expression is not None
            else max(1, len(step["content"]))
        )
    return _GROWTH.get(kind, 1) if isinstance(kind, str) else 1
