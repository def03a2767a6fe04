"""SentencePiece's models as bytes: opened, applied, and learnt from DNA."""

import io
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import sentencepiece as spm
from numpy.typing import NDArray

from bigbird_dna.errors import ModelError, error_text
from bigbird_dna.tokens.interface import TextPieces
from bigbird_dna.tokens.piece_model import PieceModel, read_fields, read_piece_model

LONGEST_LINE = 50_000  # SentencePiece drops or refuses training lines above 65,535 letters
LONGEST_PIECE = 512  # of SentencePiece
_PIECES, _ID_BEGIN_END = 2, (2, 4, 5)  # fields of its messages


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
    columns = []
    for field in read_fields(message):
        if field.number == _PIECES and isinstance(field.value, bytes):
            piece = {one.number: one.value for one in read_fields(field.value)}
            columns.append([int(piece.get(number, 0)) for number in _ID_BEGIN_END])
    ids, *sides = np.array(columns, np.int64).reshape(-1, 3).T
    leads = np.frombuffer(text.encode(), np.uint8) & 0xC0 != 0x80  # first bytes of characters
    before = np.concatenate([[0], np.cumsum(leads)])
    starts, ends = (before[side] for side in sides)
    return TextPieces(ids.astype(np.int32), starts, ends)


def learn_model(
    lines: Iterable[str],
    vocabulary: int,
    specials: tuple[str, str, str, str, str],
    symbols: list[str],
    max_piece_length: int,
) -> bytes:
    """A serialized model of byte-pair encoding, learnt from lines of up to `LONGEST_LINE` letters.

    Ids begin with the special pieces and the symbols, which stand for themselves and are never merged.
    `RuntimeError` says why SentencePiece couldn't.
    """
    model = io.BytesIO()
    pad, unk, cls, sep, mask = specials
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        model_type="bpe",
        vocab_size=vocabulary,
        max_sentencepiece_length=max_piece_length,
        max_sentence_length=LONGEST_LINE + 1,
        character_coverage=1.0,
        normalization_rule_name="identity",
        add_dummy_prefix=False,
        remove_extra_whitespaces=False,
        split_by_unicode_script=False,
        split_by_number=False,
        split_by_whitespace=False,
        pad_id=0,
        unk_id=1,
        bos_id=2,
        eos_id=3,
        pad_piece=pad,
        unk_piece=unk,
        bos_piece=cls,
        eos_piece=sep,
        control_symbols=[mask],
        user_defined_symbols=symbols,
        num_threads=1,
        minloglevel=2,
    )
    return model.getvalue()
