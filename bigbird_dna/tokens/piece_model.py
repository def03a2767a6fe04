"""SentencePiece models as bytes, checked in every byte that the library will read; opened, applied, learned.

The library trusts some of what it reads, and ends the process over the rest. It therefore gets a model put
together here: the pieces, each of them checked, and of the specifications what encoding and decoding need.
Samples that the library would encode to test itself are left out. Models are messages of protocol buffers,
every byte of which belongs to one of their fields.

Compiled rules of normalization (`precompiled_charsmap`) are a double array (Darts) of what is replaced, then
what stands in its place, each text ended by a zero byte. The libraries that read it trust its links, and
count the rules that fit on their stack.
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
from bigbird_dna.tokens.interface import TextPieces

NUMBER, EIGHT_BYTES, BYTES, FOUR_BYTES = 0, 1, 2, 5  # wire types; groups (3 and 4) are refused
_WIDTHS = {EIGHT_BYTES: 8, FOUR_BYTES: 4}


class Field(NamedTuple):
    """A field: its number, its wire type, and what it holds; `start` is where it begins in the message."""

    number: int
    wire: int
    value: int | bytes
    start: int


def read_fields(message: bytes) -> Iterator[Field]:
    """The fields of a message; `ValueError` where it is no message."""
    position = 0
    while position < len(message):
        first = position
        tag, position = read_number(message, position)
        number, wire = tag >> 3, tag & 7
        if not 0 < number < 1 << 29:
            raise ValueError(f"byte {first}: a field with number {number}")
        if wire not in (NUMBER, BYTES, *_WIDTHS):
            raise ValueError(f"byte {first}: a field of wire type {wire}")
        value: int | bytes
        width = _WIDTHS.get(wire, 0)
        if wire in (NUMBER, BYTES):
            value, position = read_number(message, position)
            width = value
        if wire != NUMBER:
            end = position + width
            if end > len(message):
                raise ValueError(f"byte {first}: a field that ends beyond what it is in")
            value, position = message[position:end], end
        yield Field(number, wire, value, first)


def read_number(message: bytes, position: int) -> tuple[int, int]:
    """An unsigned number of up to 64 bits, and where it ends."""
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
    raise ValueError(f"byte {position}: a number without an end")


def write_number(number: int) -> bytes:
    """An unsigned number as `read_number` reads it."""
    written = bytearray()
    while number >= 0x80:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)


def write_field(number: int, value: int | bytes) -> bytes:
    """A field that holds a number or bytes."""
    if isinstance(value, int):
        return write_number(number << 3 | NUMBER) + write_number(value)
    return write_number(number << 3 | BYTES) + write_number(len(value)) + value


LONGEST_RULE = 32  # bytes that are replaced; SentencePiece has room for as many rules that begin alike
LONGEST_REPLACEMENT = 256  # bytes
_LEAF, _HAS_LEAF = 0x8000_0000, 0x100  # mark a unit that holds a value; that has such a unit


def check_character_map(content: bytes) -> None:
    """`ValueError` unless every link of the map stays inside it, and every rule ends in a short text."""
    if len(content) < 4:
        raise ValueError("its rules of normalisation are cut off")
    size = int.from_bytes(content[:4], "little")
    if size % 4 or not 0 < size < len(content) - 4:
        raise ValueError(f"its rules of normalisation have {size} bytes of {len(content)}")
    units = np.frombuffer(content, "<u4", size // 4, 4)
    texts = content[4 + size :]
    starts = _check_texts(texts)
    labels: NDArray[np.uint32] = units & np.uint32(_LEAF | 0xFF)
    offsets = (units >> 10) << ((units & 0x200) >> 6)
    bases = np.arange(len(units), dtype=np.int64) ^ offsets.astype(np.int64)
    inner = labels < 0x100
    if not inner[0] or ((bases[inner] | 0xFF) >= len(units)).any():
        raise ValueError("its rules of normalisation lead out of their table")
    values = units[bases[inner & ((units & _HAS_LEAF) > 0)]] & ~np.uint32(_LEAF)
    if (values >= len(texts)).any() or not starts[values].all():
        raise ValueError("its rules of normalisation name a text that isn't there")
    _check_depth(labels, bases, inner)


def _check_texts(texts: bytes) -> NDArray[np.bool_]:
    """Where in `texts` a letter begins; `ValueError` for one that is cut off, no text, or too long."""
    if texts[-1] != 0:
        raise ValueError("its rules of normalisation end inside a text")
    try:
        texts.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"a rule of normalisation is not text: {shortened(str(error))}") from None
    letters = np.frombuffer(texts, np.uint8)
    if np.diff(np.flatnonzero(letters == 0), prepend=-1).max() > LONGEST_REPLACEMENT:
        raise ValueError(f"a rule of normalisation puts in more than {LONGEST_REPLACEMENT} bytes")
    return np.asarray((letters & 0xC0) != 0x80)


def _check_depth(labels: NDArray[np.uint32], bases: NDArray[np.int64], inner: NDArray[np.bool_]) -> None:
    """`ValueError` if a path from the root is longer than a rule may be; it could go in circles."""
    places = np.flatnonzero(inner)
    parents = places ^ labels[places].astype(np.int64)  # the base of a unit's parent, were it reached
    order = np.argsort(parents, kind="stable")
    places, parents = places[order], parents[order]
    reached = bases[:1]
    for _ in range(LONGEST_RULE):
        first, last = np.searchsorted(parents, reached), np.searchsorted(parents, reached, "right")
        found = [places[low:high] for low, high in zip(first, last, strict=True) if low < high]
        if not found:
            return
        reached = np.unique(bases[np.concatenate(found)])
    raise ValueError(f"a rule of normalisation replaces more than {LONGEST_RULE} bytes")


MOST_PIECES = 1 << 20
LONGEST_PIECE_BYTES = 4096
MOST_BYTES = 1 << 22  # of all pieces; the library takes seconds to put so many in order
MOST_NESTED = 32  # user-defined pieces that begin alike; SentencePiece has room for 64 on its stack

_PIECES, _TRAINER, _NORMALIZER, _SELF_TEST, _DENORMALIZER = 1, 2, 3, 4, 5
_LONGEST_NAME = 256  # bytes
_HIGHEST_SCORE = 1e9
_MODEL_TYPE = 3
# Of the specifications, what decides how a text is encoded and decoded: its number and what it holds.
_TRAINER_FIELDS = {_MODEL_TYPE: NUMBER, 24: NUMBER, 26: NUMBER, 35: NUMBER} | dict.fromkeys(
    range(44, 49), BYTES
)
_NORMALIZER_FIELDS = {2: BYTES, 3: NUMBER, 4: NUMBER, 5: NUMBER}
_CHARACTER_MAP, _DUMMY_PREFIX = 2, 3
_Specification = dict[int, int | bytes]

PieceType = IntEnum("PieceType", ["NORMAL", "UNKNOWN", "CONTROL", "USER_DEFINED", "UNUSED", "BYTE"])
ModelType = IntEnum("ModelType", ["UNIGRAM", "BPE", "WORD", "CHAR"])  # how a model cuts a text into pieces


class PieceModel(NamedTuple):
    """A checked model."""

    pieces: list[str]
    types: list[int]  # `PieceType` of each
    scores: list[float]  # of pairs the one whose piece has the highest is merged first
    kind: ModelType
    plain: bool  # a text is encoded as it is: no rule of normalisation, nothing put in front
    serialized: bytes  # what the library gets


def read_piece_model(content: bytes) -> PieceModel:
    """Check a serialised model; `ValueError` says in half a sentence what is wrong with it."""
    pieces: list[str] = []
    types: list[int] = []
    scores: list[float] = []
    parts: list[bytes] = []
    specifications: dict[int, _Specification] = {}
    for field in read_fields(content):
        if field.number == _PIECES:
            if len(pieces) >= MOST_PIECES:
                raise ValueError(f"more than {MOST_PIECES:,} pieces")
            text, kind, score = _read_piece(_bytes(field), len(pieces))
            pieces.append(text)
            types.append(kind)
            scores.append(score)
            parts.append(write_field(_PIECES, _bytes(field)))
        elif field.number in (_TRAINER, _NORMALIZER, _DENORMALIZER):
            if field.number in specifications:
                raise ValueError(f"field {field.number} is there twice")
            known = _TRAINER_FIELDS if field.number == _TRAINER else _NORMALIZER_FIELDS
            specifications[field.number] = _read_specification(_bytes(field), known)
    _check_pieces(pieces, types, scores)
    for number, values in specifications.items():
        parts.append(write_field(number, b"".join(write_field(*pair) for pair in values.items())))
    trainer, normalizer = (specifications.get(number, {}) for number in (_TRAINER, _NORMALIZER))
    plain = not normalizer.get(_CHARACTER_MAP) and not normalizer.get(_DUMMY_PREFIX, 1)
    model_type = ModelType(int(trainer.get(_MODEL_TYPE, ModelType.UNIGRAM)))
    return PieceModel(pieces, types, scores, model_type, plain, b"".join(parts))


def _read_piece(body: bytes, number: int) -> tuple[str, int, float]:
    values: dict[int, int | bytes] = {}
    for field in read_fields(body):
        if {1: BYTES, 2: FOUR_BYTES, 3: NUMBER}.get(field.number) != field.wire or field.number in values:
            raise ValueError(f"piece {number} has a field {field.number} that isn't known, or has it twice")
        values[field.number] = field.value
    text, score, kind = values.get(1, b""), values.get(2, bytes(4)), values.get(3, 1)
    assert isinstance(text, bytes) and isinstance(score, bytes) and isinstance(kind, int)
    if not 0 < len(text) <= LONGEST_PIECE_BYTES:
        raise ValueError(f"piece {number} has {len(text)} bytes, not 1 to {LONGEST_PIECE_BYTES}")
    try:
        return text.decode(), kind, struct.unpack("<f", score)[0]
    except UnicodeDecodeError:
        raise ValueError(f"piece {number} is not text: it isn't UTF-8") from None


def _bytes(field: Field) -> bytes:
    if not isinstance(field.value, bytes) or field.wire != BYTES:
        raise ValueError(f"field {field.number} holds a number, not a message")
    return field.value


def _read_specification(body: bytes, known: dict[int, int]) -> _Specification:
    """The fields that `known` lists, each with a value that the library can take."""
    values: _Specification = {}
    for field in read_fields(body):
        if field.number not in known:
            continue
        if field.wire != known[field.number] or field.number in values:
            raise ValueError(f"a specification has a damaged field {field.number}, or has it twice")
        _check_value(field, known is _TRAINER_FIELDS)
        values[field.number] = field.value
    return values


def _check_value(field: Field, of_trainer: bool) -> None:
    """`ValueError` for a value of a specification that the library can't take."""
    number, value = field.number, field.value
    if isinstance(value, int):
        if of_trainer and number == _MODEL_TYPE:
            if value not in {*ModelType}:
                raise ValueError(f"unknown kind of model {value}")
        elif value > 1:
            raise ValueError(f"a specification's field {number} is {value}, not yes or no")
    elif not of_trainer:
        if value:
            check_character_map(value)
    elif len(value) > _LONGEST_NAME or 0 in value:
        raise ValueError(f"a specification's field {number} is too long, or has a zero byte in it")
    else:
        value.decode()  # a UnicodeDecodeError is a ValueError


def _check_pieces(pieces: list[str], types: list[int], scores: list[float]) -> None:
    if not pieces:
        raise ValueError("it has no pieces")
    texts = "".join(pieces)
    if len(texts.encode()) > MOST_BYTES:
        raise ValueError(f"its pieces have more than {MOST_BYTES >> 20} MB of text")
    if "\0" in texts:
        raise ValueError("a piece has a zero byte in it")
    if len(set(pieces)) < len(pieces):
        raise ValueError(f"piece {shortened(repr(Counter(pieces).most_common(1)[0][0]))} is there twice")
    if unknown := set(types) - {*PieceType}:
        raise ValueError(f"a piece of the unknown type {min(unknown)}")
    if types.count(PieceType.UNKNOWN) != 1:
        raise ValueError(f"{types.count(PieceType.UNKNOWN)} pieces stand for what is unknown, not one")
    # The sum tells numbers that are none: they spoil it.
    if not math.isfinite(sum(scores)) or max(max(scores), -min(scores)) > _HIGHEST_SCORE:
        raise ValueError("a piece has a score beyond all bounds")
    nested: list[str] = []
    for piece in sorted(p for p, kind in zip(pieces, types, strict=True) if kind == PieceType.USER_DEFINED):
        while nested and not piece.startswith(nested[-1]):
            nested.pop()
        nested.append(piece)
        if len(nested) > MOST_NESTED:
            raise ValueError(f"more than {MOST_NESTED} pieces of the user's begin with one another")


LONGEST_LINE = 50_000  # SentencePiece drops or refuses training lines above 65,535 letters
LONGEST_PIECE = 512  # of SentencePiece
_SPANS, _ID_BEGIN_END = 2, (2, 4, 5)  # fields of a `SentencePieceText`


def open_model(content: bytes, source: str) -> tuple[Any, PieceModel]:
    """SentencePiece's processor of a serialized model, and what the model holds, all of which is checked, as
    damage could end the process; `ModelError` names `source`."""
    if not content:
        raise ModelError(f"{source}: empty, not a SentencePiece model")
    try:
        model = read_piece_model(content)
        return spm.SentencePieceProcessor(model_proto=model.serialized), model
    except (RuntimeError, ValueError) as error:
        raise ModelError(f"{source}: not a SentencePiece model, or damaged: {error_text(error)}") from None


def encode_rows(processor: Any, texts: Sequence[str], threads: int = 1) -> list[NDArray[np.int32]]:
    """Token ids (n,) of every text, without specials; `threads` don't change them."""
    if not texts:
        return []
    rows = processor.encode(list(texts), num_threads=threads)
    return [np.array(row, np.int32) for row in rows]


def encode_with_places(processor: Any, text: str) -> TextPieces:
    """Token ids of a text, without specials, and the characters that each stands for: SentencePiece counts
    bytes of UTF-8, in a message `SentencePieceText`, whose form is the same in all its versions."""
    message = processor.encode(text, out_type="serialized_proto")
    spans = (field.value for field in read_fields(message) if field.number == _SPANS)
    found = (
        {one.number: one.value for one in read_fields(span)} for span in spans if isinstance(span, bytes)
    )
    columns = [[int(span.get(number, 0)) for number in _ID_BEGIN_END] for span in found]
    ids, *sides = np.array(columns, np.int64).reshape(-1, 3).T
    leads = np.frombuffer(text.encode(), np.uint8) & 0xC0 != 0x80  # first bytes of characters
    before = np.concatenate([[0], np.cumsum(leads)])
    return TextPieces(ids.astype(np.int32), *(before[side] for side in sides))


def learn_model(
    lines: Iterable[str],
    vocabulary: int,
    specials: tuple[str, ...],
    symbols: list[str],
    max_piece_length: int,
) -> bytes:
    """A serialized model of byte-pair encoding, learned from lines of up to `LONGEST_LINE` letters.

    Ids begin with the special pieces and the symbols, which stand for themselves and are never merged.
    `RuntimeError` says why SentencePiece couldn't.
    """
    model = io.BytesIO()
    plain = ("add_dummy_prefix", "remove_extra_whitespaces", "split_by_number", "split_by_whitespace")
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
