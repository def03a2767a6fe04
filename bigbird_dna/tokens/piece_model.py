"""Check, open, apply and train SentencePiece models; every byte that the library reads is checked first.

The library trusts some of its input, and aborts the process for other invalid input. It therefore receives a
model that is reassembled here: the checked vocabulary, and the parts of the specifications that encoding and
decoding need. Self-test samples are omitted. Models are protocol buffer messages without unused bytes.

Compiled normalization rules (`precompiled_charsmap`) are a double array (Darts) of replaced strings, followed
by the replacements, each ended by a zero byte. The libraries that read them trust its links, and have room
for a fixed number of matching rules on their stack.
"""

import io
import math
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import sentencepiece as spm
from numpy.typing import NDArray

from bigbird_dna.errors import ModelError, error_text, shortened
from bigbird_dna.gpus import limit_threads
from bigbird_dna.tokens.interface import TextPieces

NUMBER, EIGHT_BYTES, BYTES, FOUR_BYTES = (
    0,
    1,
    2,
    5,
)  # wire types; groups (3 and 4) are not supported
_WIDTHS = {EIGHT_BYTES: 8, FOUR_BYTES: 4}


class Field(NamedTuple):
    """A field: its number, wire type and value; `start` is its position in the message."""

    number: int
    wire: int
    value: int | bytes
    start: int


def read_fields(message: bytes) -> Iterator[Field]:
    """Yield the fields of a message; `ValueError` for invalid messages."""
    position = 0
    while position < len(message):
        first = position
        tag, position = read_number(message, position)
        number, wire = tag >> 3, tag & 7
        if not 0 < number < 1 << 29:
            raise ValueError(f"byte {first}: invalid field number {number}")
        if wire not in (NUMBER, BYTES, *_WIDTHS):
            raise ValueError(f"byte {first}: unsupported wire type {wire}")
        value: int | bytes
        width = _WIDTHS.get(wire, 0)
        if wire in (NUMBER, BYTES):
            value, position = read_number(message, position)
            width = value
        if wire != NUMBER:
            end = position + width
            if end > len(message):
                raise ValueError(f"byte {first}: a field extends beyond its message")
            value, position = message[position:end], end
        yield Field(number, wire, value, first)


def read_number(message: bytes, position: int) -> tuple[int, int]:
    """Read an unsigned number of up to 64 bits; return it and its end position."""
    number = 0
    for shift in range(0, 64, 7):
        if position >= len(message):
            break
        byte = message[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            if number >= 1 << 64:
                break
            return number, position
    raise ValueError(f"byte {position}: a number has no end")


def write_number(number: int) -> bytes:
    """Encode an unsigned number for `read_number`."""
    written = bytearray()
    while number >= 0x80:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)


def write_field(number: int, value: int | bytes) -> bytes:
    """Encode a field with a number or bytes."""
    if isinstance(value, int):
        return write_number(number << 3 | NUMBER) + write_number(value)
    return write_number(number << 3 | BYTES) + write_number(len(value)) + value


LONGEST_RULE = 32  # maximum replaced bytes; SentencePiece supports as many rules with a common prefix
LONGEST_REPLACEMENT = 256  # bytes
_LEAF, _HAS_LEAF = (
    0x8000_0000,
    0x100,
)  # marks of a unit that contains a value; of a unit with such a child


def check_character_map(content: bytes) -> None:
    """Raise `ValueError` unless all links of the map stay inside it, and each rule ends in a short text."""
    if len(content) < 4:
        raise ValueError("the normalization rules are truncated")
    size = int.from_bytes(content[:4], "little")
    if size % 4 or not 0 < size < len(content) - 4:
        raise ValueError(f"the normalization rules have {size} of {len(content)} bytes")
    units = np.frombuffer(content, "<u4", size // 4, 4)
    texts = content[4 + size :]
    starts = _check_texts(texts)
    labels: NDArray[np.uint32] = units & np.uint32(_LEAF | 0xFF)
    offsets = (units >> 10) << ((units & 0x200) >> 6)
    bases = np.arange(len(units), dtype=np.int64) ^ offsets.astype(np.int64)
    inner = labels < 0x100
    if not inner[0] or ((bases[inner] | 0xFF) >= len(units)).any():
        raise ValueError("the normalization rules refer beyond their table")
    values = units[bases[inner & ((units & _HAS_LEAF) > 0)]] & ~np.uint32(_LEAF)
    if (values >= len(texts)).any() or not starts[values].all():
        raise ValueError("the normalization rules refer to a missing text")
    _check_depth(labels, bases, inner)


def _check_texts(texts: bytes) -> NDArray[np.bool_]:
    """Return where a character begins in `texts`; `ValueError` for invalid, truncated or too long texts."""
    if texts[-1] != 0:
        raise ValueError("the normalization rules end inside a text")
    try:
        texts.decode()
    except UnicodeDecodeError as error:
        raise ValueError(
            f"a normalization rule is not text: {shortened(str(error))}"
        ) from None
    letters = np.frombuffer(texts, np.uint8)
    if np.diff(np.flatnonzero(letters == 0), prepend=-1).max() > LONGEST_REPLACEMENT:
        raise ValueError(
            f"a normalization rule inserts more than {LONGEST_REPLACEMENT} bytes"
        )
    return np.asarray((letters & 0xC0) != 0x80)


def _check_depth(
    labels: NDArray[np.uint32], bases: NDArray[np.int64], inner: NDArray[np.bool_]
) -> None:
    """Raise `ValueError` if a path from the root is longer than the longest rule; it could be a cycle."""
    places = np.flatnonzero(inner)
    parents = places ^ labels[places].astype(
        np.int64
    )  # the base of a unit's parent if the unit is reached
    order = np.argsort(parents, kind="stable")
    places, parents = places[order], parents[order]
    reached = bases[:1]
    for _ in range(LONGEST_RULE):
        first, last = (
            np.searchsorted(parents, reached),
            np.searchsorted(parents, reached, "right"),
        )
        found = [
            places[low:high]
            for low, high in zip(first, last, strict=True)
            if low < high
        ]
        if not found:
            return
        reached = np.unique(bases[np.concatenate(found)])
    raise ValueError(f"a normalization rule replaces more than {LONGEST_RULE} bytes")


MOST_PIECES = 1 << 20
LONGEST_PIECE_BYTES = 4096
MOST_BYTES = 1 << 22  # of the whole vocabulary; the library needs seconds to sort this
MOST_NESTED = (
    32  # user-defined tokens that are nested prefixes; SentencePiece supports 64
)

_PIECES, _TRAINER, _NORMALIZER, _SELF_TEST, _DENORMALIZER = 1, 2, 3, 4, 5
_LONGEST_NAME = 256  # bytes
_HIGHEST_SCORE = 1e9
_MODEL_TYPE = 3
# Fields of the specifications that determine encoding and decoding: number → wire type.
_TRAINER_FIELDS = {
    _MODEL_TYPE: NUMBER,
    24: NUMBER,
    26: NUMBER,
    35: NUMBER,
} | dict.fromkeys(range(44, 49), BYTES)
_NORMALIZER_FIELDS = {2: BYTES, 3: NUMBER, 4: NUMBER, 5: NUMBER}
_CHARACTER_MAP, _DUMMY_PREFIX = 2, 3
_Specification = dict[int, int | bytes]

PieceType = IntEnum(
    "PieceType", ["NORMAL", "UNKNOWN", "CONTROL", "USER_DEFINED", "UNUSED", "BYTE"]
)
ModelType = IntEnum(
    "ModelType", ["UNIGRAM", "BPE", "WORD", "CHAR"]
)  # how a model divides a text into tokens


class PieceModel(NamedTuple):
    """A checked model."""

    pieces: list[str]
    types: list[int]  # `PieceType` of each
    scores: list[float]  # the pair whose token has the highest score is merged first
    kind: ModelType
    plain: bool  # text is encoded unchanged: no normalization, no prefix
    serialized: bytes  # model for the library


def read_piece_model(content: bytes) -> PieceModel:
    """Check a serialized model; `ValueError` describes the fault in a clause."""
    pieces: list[str] = []
    types: list[int] = []
    scores: list[float] = []
    parts: list[bytes] = []
    specifications: dict[int, _Specification] = {}
    for field in read_fields(content):
        if field.number == _PIECES:
            if len(pieces) >= MOST_PIECES:
                raise ValueError(f"more than {MOST_PIECES:,} tokens")
            text, kind, score = _read_piece(_bytes(field), len(pieces))
            pieces.append(text)
            types.append(kind)
            scores.append(score)
            parts.append(write_field(_PIECES, _bytes(field)))
        elif field.number in (_TRAINER, _NORMALIZER, _DENORMALIZER):
            if field.number in specifications:
                raise ValueError(f"duplicate field {field.number}")
            known = _TRAINER_FIELDS if field.number == _TRAINER else _NORMALIZER_FIELDS
            specifications[field.number] = _read_specification(_bytes(field), known)
    _check_pieces(pieces, types, scores)
    for number, values in specifications.items():
        parts.append(
            write_field(number, b"".join(write_field(*pair) for pair in values.items()))
        )
    trainer, normalizer = (
        specifications.get(number, {}) for number in (_TRAINER, _NORMALIZER)
    )
    plain = not normalizer.get(_CHARACTER_MAP) and not normalizer.get(_DUMMY_PREFIX, 1)
    model_type = ModelType(int(trainer.get(_MODEL_TYPE, ModelType.UNIGRAM)))
    return PieceModel(pieces, types, scores, model_type, plain, b"".join(parts))


def _read_piece(body: bytes, number: int) -> tuple[str, int, float]:
    values: dict[int, int | bytes] = {}
    for field in read_fields(body):
        if {1: BYTES, 2: FOUR_BYTES, 3: NUMBER}.get(
            field.number
        ) != field.wire or field.number in values:
            raise ValueError(
                f"token {number} has an unknown or duplicate field {field.number}"
            )
        values[field.number] = field.value
    text, score, kind = values.get(1, b""), values.get(2, bytes(4)), values.get(3, 1)
    assert (
        isinstance(text, bytes) and isinstance(score, bytes) and isinstance(kind, int)
    )
    if not 0 < len(text) <= LONGEST_PIECE_BYTES:
        raise ValueError(
            f"token {number} has {len(text)} bytes, expected 1 to {LONGEST_PIECE_BYTES}"
        )
    try:
        return text.decode(), kind, struct.unpack("<f", score)[0]
    except UnicodeDecodeError:
        raise ValueError(f"token {number} is not UTF-8 text") from None


def _bytes(field: Field) -> bytes:
    if not isinstance(field.value, bytes) or field.wire != BYTES:
        raise ValueError(f"field {field.number} must contain a message, not a number")
    return field.value


def _read_specification(body: bytes, known: dict[int, int]) -> _Specification:
    """Return the fields listed in `known`, with values that are valid for the library."""
    values: _Specification = {}
    for field in read_fields(body):
        if field.number not in known:
            continue
        if field.wire != known[field.number] or field.number in values:
            raise ValueError(
                f"a specification has a damaged or duplicate field {field.number}"
            )
        _check_value(field, known is _TRAINER_FIELDS)
        values[field.number] = field.value
    return values


def _check_value(field: Field, of_trainer: bool) -> None:
    """Raise `ValueError` for a value of a specification that the library does not support."""
    number, value = field.number, field.value
    if isinstance(value, int):
        if of_trainer and number == _MODEL_TYPE:
            if value not in {*ModelType}:
                raise ValueError(f"unknown model type {value}")
        elif value > 1:
            raise ValueError(
                f"field {number} of a specification must be 0 or 1, not {value}"
            )
    elif not of_trainer:
        if value:
            check_character_map(value)
    elif len(value) > _LONGEST_NAME or 0 in value:
        raise ValueError(
            f"field {number} of a specification is too long or contains a zero byte"
        )
    else:
        value.decode()  # a UnicodeDecodeError is a ValueError


def _check_pieces(pieces: list[str], types: list[int], scores: list[float]) -> None:
    if not pieces:
        raise ValueError("the vocabulary is empty")
    texts = "".join(pieces)
    if len(texts.encode()) > MOST_BYTES:
        raise ValueError(f"the vocabulary has more than {MOST_BYTES >> 20} MB of text")
    if "\0" in texts:
        raise ValueError("a token contains a zero byte")
    if len(set(pieces)) < len(pieces):
        raise ValueError(
            f"duplicate token {shortened(repr(Counter(pieces).most_common(1)[0][0]))}"
        )
    if unknown := set(types) - {*PieceType}:
        raise ValueError(f"a token has the unknown type {min(unknown)}")
    if types.count(PieceType.UNKNOWN) != 1:
        raise ValueError(
            f"{types.count(PieceType.UNKNOWN)} tokens are the unknown token, expected one"
        )
    # The sum is not finite if any score is NaN or infinite.
    if (
        not math.isfinite(sum(scores))
        or max(max(scores), -min(scores)) > _HIGHEST_SCORE
    ):
        raise ValueError("a token has a score out of range")
    nested: list[str] = []
    for piece in sorted(
        p
        for p, kind in zip(pieces, types, strict=True)
        if kind == PieceType.USER_DEFINED
    ):
        while nested and not piece.startswith(nested[-1]):
            nested.pop()
        nested.append(piece)
        if len(nested) > MOST_NESTED:
            raise ValueError(
                f"more than {MOST_NESTED} user-defined tokens are prefixes of one another"
            )


LONGEST_LINE = (
    50_000  # SentencePiece drops or rejects training lines above 65,535 letters
)
LONGEST_PIECE = 512  # letters per token in SentencePiece
_SPANS, _ID_BEGIN_END = 2, (2, 4, 5)  # fields of a `SentencePieceText`


def open_model(content: bytes, source: str) -> tuple[Any, PieceModel]:
    """Open a serialized model; return SentencePiece's processor and the content of the model.

    All of the model is checked, as damage could abort the process. `ModelError` names `source`."""
    if not content:
        raise ModelError(f"{source}: not a SentencePiece model: the file is empty")
    try:
        model = read_piece_model(content)
        return spm.SentencePieceProcessor(model_proto=model.serialized), model
    except (RuntimeError, ValueError) as error:
        raise ModelError(
            f"{source}: not a SentencePiece model, or damaged: {error_text(error)}"
        ) from None


def encode_rows(
    processor: Any, texts: Sequence[str], threads: int = 1
) -> list[NDArray[np.int32]]:
    """Return the token ids (n,) of each text, without special tokens; independent of `threads`."""
    if not texts:
        return []
    # SentencePiece starts all threads, however few texts there are, and crashes if it cannot.
    rows = processor.encode(
        list(texts), num_threads=limit_threads(min(threads, len(texts)))
    )
    return [np.array(row, np.int32) for row in rows]


def encode_with_places(processor: Any, text: str) -> TextPieces:
    """Return the token ids of a text, without special tokens, and the characters that each covers.
    SentencePiece counts UTF-8 bytes in a message `SentencePieceText`, the same in all versions."""
    message = processor.encode(text, out_type="serialized_proto")
    spans = (field.value for field in read_fields(message) if field.number == _SPANS)
    found = (
        {one.number: one.value for one in read_fields(span)}
        for span in spans
        if isinstance(span, bytes)
    )
    columns = [[int(span.get(number, 0)) for number in _ID_BEGIN_END] for span in found]
    ids, *sides = np.array(columns, np.int64).reshape(-1, 3).T
    leads = (
        np.frombuffer(text.encode(), np.uint8) & 0xC0 != 0x80
    )  # first bytes of characters
    before = np.concatenate([[0], np.cumsum(leads)])
    return TextPieces(ids.astype(np.int32), *(before[side] for side in sides))


def learn_model(
    lines: Iterable[str],
    vocabulary: int,
    specials: tuple[str, ...],
    symbols: list[str],
    max_piece_length: int,
) -> bytes:
    """Train a byte-pair encoding on lines of up to `LONGEST_LINE` letters; return the serialized model.

    The first ids are the special tokens and the symbols, which are never merged. `RuntimeError` contains
    SentencePiece's reason for a failure.
    """
    model = io.BytesIO()
    plain = (
        "add_dummy_prefix",
        "remove_extra_whitespaces",
        "split_by_number",
        "split_by_whitespace",
    )
    options: dict[str, Any] = dict.fromkeys(plain, False)
    for number, role in enumerate(("pad", "unk", "bos", "eos")):
        options |= {f"{role}_id": number, f"{role}_piece": specials[number]}
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        model_type="bpe",
        vocab_size=vocabulary,
        max_sentencepiece_length=max_piece_length,
        max_sentence_length=LONGEST_LINE + 1,
        character_coverage=1.0,
        normalization_rule_name="identity",
        split_by_unicode_script=False,
        control_symbols=[*specials[4:]],
        user_defined_symbols=symbols,
        num_threads=1,
        minloglevel=2,
        **options,
    )
    return model.getvalue()
