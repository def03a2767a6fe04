"""Documents as tokens, with the characters that each token stands for."""

from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.console import progress
from bigbird_dna.errors import DataError
from bigbird_dna.nlp.records import TextRecord, read_records
from bigbird_dna.tokens.interface import TextPieces, Tokenizer


class TextTokens(NamedTuple):
    """Tokens of a file of documents; what pretraining asks of a token store. N tokens, D documents."""

    directory: Path  # the file, which errors name
    tokens: NDArray[np.uint32]  # (N,)
    widths: NDArray[np.int64]  # (N,) characters of each; a document's add up to its text
    sentences: NDArray[np.int64]  # (D + 1,) where documents begin, and the end
    texts: tuple[str, ...]  # (D,)

    @property
    def documents(self) -> NDArray[np.int64]:
        """Every document is one sentence."""
        return np.arange(len(self.sentences))

    def each(self) -> list[NDArray[np.integer]]:
        """The tokens of each document."""
        return [self.tokens[start:end] for start, end in pairwise(self.sentences.tolist())]


def tokenize_records(path: Path, tokenizer: Tokenizer) -> TextTokens:
    """The documents of a file as tokens, all in memory: 12 bytes a token, and the text.

    Raises
    ------
    DataError
        As `read_records`; or no document has a token.
    """
    tokens, widths, lengths, texts = [], [], [], []
    for record in progress(read_records(path, TextRecord), "tokens of documents", None):
        pieces = tokenizer.text_pieces(record.text)
        tokens.append(pieces.ids.astype(np.uint32))
        widths.append(characters(pieces, len(record.text)))
        lengths.append(len(pieces.ids))
        texts.append(record.text)
    bounds = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    if not bounds[-1]:
        raise DataError(f"{path}: its documents have no tokens")
    return TextTokens(path, np.concatenate(tokens), np.concatenate(widths), bounds, tuple(texts))


def characters(pieces: TextPieces, length: int) -> NDArray[np.int64]:
    """Characters that each token adds to those before it (n,); they add up to the text's `length`.

    White space that a tokenizer leaves out counts to the token behind it, at the end to the last one. Of a
    character that several tokens share, the first has it.
    """
    ends = np.maximum.accumulate(pieces.ends) if len(pieces.ends) else pieces.ends
    ends = ends.astype(np.int64)
    if len(ends):
        ends[-1] = length
    return np.diff(ends, prepend=0)
