"""SentencePiece tokenizers of ordinary text, as BigBird's own checkpoints have them (`spiece.model`)."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, Self, SupportsInt

import numpy as np
import sentencepiece as spm
from numpy.typing import NDArray

from bigbird_dna.errors import DataError, ModelError
from bigbird_dna.files import atomic_path
from bigbird_dna.tokens.interface import Specials, describe, find_specials, not_of_dna
from bigbird_dna.tokens.tokenizer import Encoded


class TextTokenizer:
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
        if not model:
            raise ModelError(f"{source}: empty, not a SentencePiece model")
        try:
            self._processor = spm.SentencePieceProcessor(model_proto=model)
        except RuntimeError:
            raise ModelError(f"{source}: not a SentencePiece model, or damaged") from None
        self._model = model
        self._source = source
        count = self._processor.get_piece_size()
        size = count if vocabulary is None else vocabulary
        if count > size:
            raise ModelError(f"{source}: {count} pieces, the model has {size} ids")
        self.vocabulary = size
        pieces = [self._processor.id_to_piece(index) for index in range(count)]
        self.pieces = (*pieces, *[""] * (size - count))
        ids = {piece: index for index, piece in enumerate(pieces)}
        self._specials = specials or find_specials(names or {}, ids.get, source)
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = self._specials
        self.sha256 = hashlib.sha256(model).hexdigest()

    @classmethod
    def load(
        cls, path: Path, specials: Specials | None = None, vocabulary: int | None = None
    ) -> Self:
        """Read a file; `ModelError` for one that is no SentencePiece model."""
        try:
            model = Path(path).read_bytes()
        except FileNotFoundError:
            raise ModelError(f"{path}: no such tokenizer file") from None
        except OSError as error:
            raise ModelError(f"{path}: not readable: {error.strerror}") from None
        return cls(model, specials, vocabulary, source=str(path))

    def description(self) -> dict[str, int]:
        """Ids of the special pieces, and the vocabulary."""
        return describe(self._specials, self.vocabulary)

    def save(self, path: Path) -> None:
        """Write the serialised model, whole or not at all."""
        with atomic_path(path) as temporary:
            temporary.write_bytes(self._model)

    def encode(self, sequence: str) -> NDArray[np.int32]:
        """Token ids (n,) of a text, no specials added."""
        return np.array(self._processor.encode(sequence), np.int32)

    def encode_batch(self, sequences: Sequence[str], threads: int = 1) -> list[NDArray[np.int32]]:
        """`encode` of every text, over threads."""
        if not sequences:
            return []
        rows = self._processor.encode(list(sequences), num_threads=threads)
        return [np.array(row, np.int32) for row in rows]

    def decode(self, ids: Iterable[SupportsInt]) -> str:
        """Text of token ids, specials left out; `DataError` for an id outside the vocabulary."""
        numbers = []
        for index in map(int, ids):
            if not 0 <= index < self.vocabulary:
                raise DataError(f"token {index} is outside the vocabulary of {self.vocabulary}")
            if index not in self._specials and self.pieces[index]:
                numbers.append(index)
        return str(self._processor.decode(numbers))

    def encode_with_offsets(self, sequence: str) -> Encoded:
        """Raises: see the class."""
        self._refuse()

    def offsets(self, ids: NDArray[np.integer]) -> NDArray[np.int64]:
        """Raises: see the class."""
        self._refuse()

    @property
    def piece_lengths(self) -> NDArray[np.int32]:
        """Raises: see the class."""
        self._refuse()

    @property
    def base_ids(self) -> NDArray[np.int32]:
        """Raises: see the class."""
        self._refuse()

    def __len__(self) -> int:
        return self.vocabulary

    def __reduce__(self) -> tuple[Any, ...]:
        return TextTokenizer, (self._model, self._specials, self.vocabulary)

    def __repr__(self) -> str:
        return f"TextTokenizer(vocabulary={self.vocabulary}, sha256={self.sha256[:12]}…)"

    def _refuse(self) -> NoReturn:
        raise not_of_dna(self._source)
