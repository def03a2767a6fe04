"""Tokenizers of ordinary text: learnt here, by the library `tokenizers`, or opened from files."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from bigbird_dna.errors import DataError
from bigbird_dna.papers.nlp.loading import extra
from bigbird_dna.tokens.interface import Tokenizer, read_content
from bigbird_dna.tokens.json_tokenizer import JsonTokenizer
from bigbird_dna.tokens.text import TextTokenizer

SPECIAL_PIECES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
LEARNT_FROM = 50_000_000
"""Characters of the training text that a tokenizer is learnt from, at most."""


def learn_tokenizer(texts: Iterable[str], vocabulary: int) -> JsonTokenizer:
    """A byte-pair encoding of bytes, as RoBERTa's: no text has an unknown piece.

    A piece is part of a word with the white space before it. The same texts give the same pieces.
    `DataError` if there is no text.
    """
    library = extra("tokenizers")
    bounded = _bounded(texts)
    tokenizer = library.Tokenizer(library.models.BPE(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = library.decoders.ByteLevel()
    trainer = library.trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=list(SPECIAL_PIECES),
        initial_alphabet=sorted(library.pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(bounded, trainer)
    return JsonTokenizer(tokenizer.to_str().encode(), source="the tokenizer learnt here")


def open_tokenizer(
    path: Path, vocabulary: int | None = None, names: Mapping[str, str] | None = None
) -> Tokenizer:
    """A `tokenizer.json`, or a SentencePiece model; `ModelError` as of these.

    `vocabulary` is that of the model which it belongs to, `names` are those of special pieces.
    """
    kind: Any = JsonTokenizer if Path(path).suffix == ".json" else TextTokenizer
    found: Tokenizer = kind(read_content(path), None, vocabulary, names=names, source=str(path))
    return found


def _bounded(texts: Iterable[str]) -> Iterator[str]:
    left = LEARNT_FROM
    for text in texts:
        if left <= 0:
            return
        yield text[:left]
        left -= len(text)
    if left == LEARNT_FROM:
        raise DataError("there is no text to learn a tokenizer from")
