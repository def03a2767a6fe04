"""A byte-pair tokenizer of DNA with base offsets (paper App. F.1: SentencePiece BPE on A C G T N).

The vocabulary is `[PAD] [UNK] [CLS] [SEP] [MASK]` (ids 0 to 4), then the pieces of N, then the
merges in the order in which BPE found them, and last the four bases. Policy for N: a piece is made
of bases or of Ns, never of both. Ns are cut into runs of 16 (or of the longest allowed piece, when
that is shorter) and single Ns, so that an assembly gap inside a window costs few tokens.

Every letter has a piece of its own, so each string over A C G T N has an encoding and `decode`
gives it back. Other letters, lower case included, are refused: clean the sequence first
(`bigbird_dna.genome.sequence.clean`).
"""

import hashlib
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Self, SupportsInt

import numpy as np
import sentencepiece as spm
from numpy.typing import NDArray

from bigbird_dna.errors import ConfigError, DataError, ModelError
from bigbird_dna.files import atomic_path

SPECIAL_PIECES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
BASES = "ACGT"
N_RUN = 16  # bp in the piece of a run of Ns

_LETTERS = b"ACGTN"
_LONGEST_LINE = 50_000  # SentencePiece drops or refuses training lines above 65,535 letters
_LONGEST_PIECE = 512  # of SentencePiece


class Encoded(NamedTuple):
    """Tokens and the bases they cover: piece i is `sequence[offsets[i]:offsets[i + 1]]`."""

    ids: NDArray[np.int32]  # (n,)
    offsets: NDArray[np.int64]  # (n + 1,), bp from the start of the sequence


class DnaTokenizer:
    """Encodes cleaned DNA as token ids and back.

    Immutable, safe to share between threads, and picklable: a worker process gets the serialised
    model.

    Attributes
    ----------
    vocabulary : number of pieces, the specials included.
    pieces : text of every piece by id.
    piece_lengths : (V,) bases that a piece covers; 0 for the specials.
    base_ids : ids of the pieces that are made of bases: neither specials nor Ns.
    sha256 : digest of the serialised model, which is also that of the file it was loaded from.
    """

    file_name = "tokenizer.model"
    is_dna = True
    pad_id = 0
    unk_id = 1
    cls_id = 2
    sep_id = 3
    mask_id = 4

    vocabulary: int
    pieces: tuple[str, ...]
    piece_lengths: NDArray[np.int32]
    base_ids: NDArray[np.int32]
    sha256: str

    def __init__(self, model: bytes, source: str = "tokenizer") -> None:
        """Open a serialised SentencePiece model; `source` names it in `ModelError`."""
        if not model:
            raise ModelError(f"{source}: empty, not a SentencePiece model")
        try:
            self._processor = spm.SentencePieceProcessor(model_proto=model)
        except RuntimeError:
            raise ModelError(f"{source}: not a SentencePiece model, or damaged") from None
        self._model = model
        size = self._processor.get_piece_size()
        self.pieces = tuple(self._processor.id_to_piece(index) for index in range(size))
        _check_pieces(self.pieces, source)
        specials = len(SPECIAL_PIECES)
        self.vocabulary = size
        self.piece_lengths = np.array(
            [0] * specials + [len(piece) for piece in self.pieces[specials:]], np.int32
        )
        self.base_ids = np.array(
            [i for i in range(specials, size) if self.pieces[i][0] != "N"], np.int32
        )
        self.piece_lengths.flags.writeable = False
        self.base_ids.flags.writeable = False
        self.sha256 = hashlib.sha256(model).hexdigest()

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a model written by `save` or `train`; `ModelError` for anything else."""
        try:
            model = Path(path).read_bytes()
        except FileNotFoundError:
            raise ModelError(f"{path}: no such tokenizer file") from None
        except OSError as error:
            raise ModelError(f"{path}: not readable: {error.strerror}") from None
        return cls(model, str(path))

    @staticmethod
    def train(
        sentences: Iterable[str], path: Path, vocabulary: int, max_piece_length: int = 16
    ) -> "DnaTokenizer":
        """Learn BPE merges, write the model to `path` (atomically) and return the tokenizer.

        The same sentences in the same order give the same file. Nothing is left out: sentences
        above 50,000 bp, which SentencePiece could not take, are cut. Memory is about 80 bytes a
        base, as all sentences are held at once: see `bigbird_dna.tokens.corpus` for a sample.

        Parameters
        ----------
        sentences : cleaned DNA; no merge crosses from one to the next.
        vocabulary : number of pieces; the five specials, the pieces of N (two, or one where
            `max_piece_length` is 1) and the four bases are among them.
        max_piece_length : bp of the longest piece, 1 to 512.

        Raises
        ------
        ConfigError : `vocabulary` is below its least value or above what the corpus can give (the
            text names the bound), or `max_piece_length` is out of range.
        DataError : the corpus has no bases, or a letter outside A C G T N.
        """
        n_pieces = _n_pieces(max_piece_length)
        least = len(SPECIAL_PIECES) + len(n_pieces) + len(BASES)
        if vocabulary < least:
            raise ConfigError(
                f"vocabulary {vocabulary} is too small: the least possible is {least}"
            )
        feed = _Feed(sentences)
        model = io.BytesIO()
        pad, unk, cls, sep, mask = SPECIAL_PIECES
        try:
            spm.SentencePieceTrainer.train(
                sentence_iterator=iter(feed),
                model_writer=model,
                model_type="bpe",
                vocab_size=vocabulary,
                max_sentencepiece_length=max_piece_length,
                max_sentence_length=_LONGEST_LINE + 1,
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
                user_defined_symbols=n_pieces,
                num_threads=1,
                minloglevel=2,
            )
        except RuntimeError as error:
            if feed.failure is not None:
                raise feed.failure from None
            if not feed.bases:
                raise _no_bases() from None
            largest = re.search(r"set it to a value <= (\d+)", str(error))
            if largest is None:
                raise
            raise ConfigError(
                f"vocabulary {vocabulary} is too large for a corpus of {feed.bases:,} bases: "
                f"the largest possible is {largest[1]}"
            ) from None
        if not feed.bases:
            raise _no_bases()
        tokenizer = DnaTokenizer(model.getvalue())
        tokenizer.save(path)
        return tokenizer

    def description(self) -> dict[str, int]:
        """What a reader must know besides the file: nothing."""
        return {}

    def save(self, path: Path) -> None:
        """Write the serialised model, whole or not at all."""
        with atomic_path(path) as temporary:
            temporary.write_bytes(self._model)

    def encode(self, sequence: str) -> NDArray[np.int32]:
        """Token ids (n,) of a cleaned sequence, no specials added; n is 0 for an empty one.

        The sequence is encoded as a whole, in O(n log n), because cutting it would move the
        boundaries of pieces. A letter outside A C G T N raises `DataError` with its position.
        """
        check_letters(sequence)
        return np.array(self._processor.encode(sequence), np.int32)

    def encode_batch(self, sequences: Sequence[str], threads: int = 1) -> list[NDArray[np.int32]]:
        """`encode` of every sequence, over threads; the result does not depend on their number."""
        for number, sequence in enumerate(sequences, 1):
            check_letters(sequence, f"sequence {number}: ")
        if not sequences:
            return []
        rows = self._processor.encode(list(sequences), num_threads=threads)
        return [np.array(row, np.int32) for row in rows]

    def encode_with_offsets(self, sequence: str) -> Encoded:
        """`encode`, with the bases that each token covers (0-based, half-open)."""
        ids = self.encode(sequence)
        return Encoded(ids, self.offsets(ids))

    def offsets(self, ids: NDArray[np.integer]) -> NDArray[np.int64]:
        """Base offsets (n + 1,) of ids (n,): 0, then cumulative lengths of the pieces, bp."""
        offsets = np.zeros(len(ids) + 1, np.int64)
        np.cumsum(self.piece_lengths[ids], out=offsets[1:])
        return offsets

    def decode(self, ids: Iterable[SupportsInt]) -> str:
        """Bases of token ids; specials cover none. `DataError` for an id outside the vocabulary."""
        specials = len(SPECIAL_PIECES)
        parts = []
        for index in map(int, ids):
            if not 0 <= index < self.vocabulary:
                raise DataError(f"token {index} is outside the vocabulary of {self.vocabulary}")
            if index >= specials:
                parts.append(self.pieces[index])
        return "".join(parts)

    def __len__(self) -> int:
        return self.vocabulary

    def __reduce__(self) -> tuple[type["DnaTokenizer"], tuple[bytes]]:
        return DnaTokenizer, (self._model,)

    def __repr__(self) -> str:
        return f"DnaTokenizer(vocabulary={self.vocabulary}, sha256={self.sha256[:12]}…)"


def _no_bases() -> DataError:
    return DataError("the tokenizer's corpus holds no A, C, G or T")


class _Feed:
    """Checked lines for SentencePiece; keeps an exception, which it would turn into a text."""

    def __init__(self, sentences: Iterable[str]) -> None:
        self.sentences = sentences
        self.bases = 0
        self.failure: BaseException | None = None

    def __iter__(self) -> Iterator[str]:
        yield from BASES  # each base has a piece, even one that the corpus lacks
        try:
            for number, sentence in enumerate(self.sentences, 1):
                check_letters(sentence, f"sentence {number} of the corpus: ")
                self.bases += len(sentence) - sentence.count("N")
                for start in range(0, len(sentence), _LONGEST_LINE):
                    yield sentence[start : start + _LONGEST_LINE]
        except BaseException as error:
            self.failure = error
            raise


def _n_pieces(max_piece_length: int) -> list[str]:
    if not 1 <= max_piece_length <= _LONGEST_PIECE:
        raise ConfigError(f"max_piece_length {max_piece_length} is not in 1 to {_LONGEST_PIECE}")
    run = min(N_RUN, max_piece_length)
    return ["N"] if run == 1 else ["N", "N" * run]


def check_letters(sequence: str, where: str = "") -> None:
    """Raise `DataError` for a letter outside A C G T N, with its position; `where` goes in front."""
    try:
        rest = sequence.encode("ascii").translate(None, _LETTERS)
    except UnicodeEncodeError:
        rest = b"?"
    if rest:
        position, letter = next((i, c) for i, c in enumerate(sequence) if c not in "ACGTN")
        raise DataError(
            f"{where}letter {letter!r} at position {position + 1} is none of A, C, G, T, N "
            "(sequences are cleaned and upper-case before they are encoded)"
        )


def _check_pieces(pieces: tuple[str, ...], source: str) -> None:
    specials = len(SPECIAL_PIECES)
    if pieces[:specials] != SPECIAL_PIECES:
        raise ModelError(
            f"{source}: not a tokenizer of DNA: pieces 0 to 4 are {' '.join(pieces[:specials])}, "
            f"not {' '.join(SPECIAL_PIECES)}"
        )
    for index, piece in enumerate(pieces[specials:], specials):
        if not piece or not (set(piece) <= set(BASES) or set(piece) == {"N"}):
            raise ModelError(f"{source}: not a tokenizer of DNA: piece {index} is {piece!r}")
    missing = sorted(set("ACGTN") - set(pieces))
    if missing:
        raise ModelError(f"{source}: not a tokenizer of DNA: no piece for {missing[0]}")
