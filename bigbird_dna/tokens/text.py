"""Opens tokenizer files of every kind; those of ordinary text, as BigBird's own checkpoints have them."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, SupportsInt

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.tokens.dna import DnaTokenizer
from bigbird_dna.tokens.interface import (
    Specials,
    TextPieces,
    Tokenizer,
    complete_vocabulary,
    read_content,
    read_description,
)
from bigbird_dna.tokens.json_tokenizer import JsonTokenizer
from bigbird_dna.tokens.sentence_pieces import encode_rows, encode_with_places, open_model


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
