"""A SentencePiece model of ordinary text, laid out as BigBird's own; and byte-pair encoding by hand."""

import io
import itertools
import json
from collections.abc import Sequence
from typing import Any

import sentencepiece


def text_model(text: str, vocabulary: int, **changes: Any) -> bytes:
    """Padding, end, begin, unknown; then [CLS] [SEP] [MASK]; then up to `vocabulary` pieces in all."""
    stream = io.BytesIO()
    options: dict[str, Any] = {
        "pad_id": 0,
        "eos_id": 1,
        "bos_id": 2,
        "unk_id": 3,
        "minloglevel": 2,
    }
    options |= {
        "user_defined_symbols": ["[CLS]", "[SEP]", "[MASK]"],
        "hard_vocab_limit": False,
        **changes,
    }
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([text] * 20),
        model_writer=stream,
        vocab_size=vocabulary,
        **options,
    )
    return stream.getvalue()


def unigram(pieces: Sequence[str]) -> bytes:
    """A tokenizer of the `tokenizers` library that puts a sign before a text."""
    sign = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"}
    vocabulary = [[piece, -float(index)] for index, piece in enumerate(pieces)]
    model = {"type": "Unigram", "unk_id": 0, "vocab": vocabulary}
    values = {
        "version": "1.0",
        "added_tokens": [],
        "pre_tokenizer": sign,
        "decoder": sign,
        "model": model,
    }
    return json.dumps(values).encode()


def merge_by_hand(text: str, learned: Sequence[str]) -> list[str]:
    """Merge the two neighbors whose text was learnt first, the leftmost of equals, until there are none."""
    rank = {piece: number for number, piece in enumerate(learned)}
    parts = list(text)
    while True:
        joined = [
            rank.get(left + right, len(rank))
            for left, right in itertools.pairwise(parts)
        ]
        if not joined or min(joined) == len(rank):
            return parts
        first = joined.index(min(joined))
        parts[first : first + 2] = [parts[first] + parts[first + 1]]
