"""SentencePiece tokenizers of ordinary text, as BigBird's own checkpoints have them (`spiece.model`)."""

from collections.abc import Iterable, Mapping, Sequence
from typing import SupportsInt

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.errors import ModelError
from bigbird_dna.tokens.interface import Specials, TextPieces, Tokenizer, check_vocabulary, find_specials
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
        """Open a serialised model; the parameters are those of `JsonTokenizer`."""
        self._processor, opened = open_model(model, source)
        pieces = opened.pieces
        size = len(pieces) if vocabulary is None else vocabulary
        check_vocabulary(size, source)
        if len(pieces) > size:
            raise ModelError(f"{source}: {len(pieces)} pieces, the model has {size} ids")
        ids = {piece: index for index, piece in enumerate(pieces)}
        specials = specials or find_specials(names or {}, ids.get, source)
        pieces += [""] * (size - len(pieces))
        super().__init__(model, pieces, [""] * size, specials, source)

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
