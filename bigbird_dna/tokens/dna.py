"""A byte-pair tokenizer of DNA with base offsets (paper App. F.1: SentencePiece BPE on A C G T N).

The vocabulary is `[PAD] [UNK] [CLS] [SEP] [MASK]` (ids 0 to 4), then the tokens of N, the merges in the order
of training, and the four bases, so that `decode` restores any string over A C G T N. A token consists of
bases or of Ns, never of both. Ns are divided into runs of 16 (or of the maximum token length, if shorter) and
single Ns, so that an assembly gap inside a window needs few tokens.

`bpe.cpp` finds the same ids as SentencePiece in a fraction of the time; its comments prove that they are the
same. A wheel contains its library; else it is compiled on first use (`disk.native_library`, with the
environment of `attention.native`). Its result for each vocabulary is compared with SentencePiece before use.
SentencePiece is the fallback.
"""

import ctypes
import os
import re
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, cached_property, partial
from importlib.resources import files
from pathlib import Path
from threading import Lock
from typing import Any, Self, SupportsInt

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.disk import native_library as native_build
from bigbird_dna.errors import ConfigError, DataError, ModelError, shortened
from bigbird_dna.tokens.interface import BASES, Specials, Tokenizer, read_content
from bigbird_dna.tokens.piece_model import (
    LONGEST_LINE,
    LONGEST_PIECE,
    ModelType,
    PieceModel,
    PieceType,
    encode_rows,
    learn_model,
    open_model,
)

Ids = NDArray[np.int32]
SPECIAL_PIECES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
N_RUN = 16  # bp in the token of a run of Ns
NATIVE_FROM = 100_000  # total letters from which opening or compiling the C++ encoder is worthwhile
_LETTERS = b"ACGTN"
_CHECKED = 2000  # random bases, and letters of the vocabulary, that are compared

_lock = Lock()


class NativePieces:
    """A vocabulary prepared for encoding by the loaded C++ library; several threads may use it."""

    def __init__(self, library: ctypes.CDLL, handle: int) -> None:
        self.library, self._handle = library, handle
        weakref.finalize(self, library.close_pieces, ctypes.c_void_p(handle))

    @classmethod
    def open(
        cls,
        pieces: Sequence[str],
        scores: Sequence[float],
        plain: Callable[[Sequence[str]], list[Ids]],
    ) -> Self | None:
        """Prepare the vocabulary of a model of DNA, by id, with "" for tokens that cover no letters.

        Return None without a compiler, if a token was not learned after its halves, or if the result differs
        from that of `plain`.
        """
        with _lock:
            library = load_library()
        opened = None if library is None else cls.opened_with(library, pieces, scores)
        if opened is None:
            return None
        samples = sample_texts(pieces)
        found, expected = opened.encode(samples), plain(samples)
        agree = found is not None and all(map(np.array_equal, found, expected))
        return opened if agree else None

    @classmethod
    def opened_with(
        cls, library: ctypes.CDLL, pieces: Sequence[str], scores: Sequence[float]
    ) -> Self | None:
        runs = [i for i, piece in enumerate(pieces) if piece.startswith("N")]
        runs.sort(key=lambda i: -len(pieces[i]))
        learned = [
            i for i, piece in enumerate(pieces) if len(piece) > 1 and piece[0] != "N"
        ]
        learned.sort(key=lambda i: -scores[i])
        if len({scores[i] for i in learned}) < len(learned):
            return None  # pairs of equal score would be merged from the left, independent of their token
        letters, starts = _joined([pieces[i] for i in learned])
        handle = library.open_pieces(
            ctypes.c_int64(len(learned)),
            _pointer(letters),
            _pointer(starts),
            _pointer(np.array([*map(pieces.index, BASES), *learned], np.int32)),
            ctypes.c_int64(len(runs)),
            _pointer(np.array([len(pieces[i]) for i in runs], np.int32)),
            _pointer(np.array(runs, np.int32)),
        )
        return None if handle is None else cls(library, handle)

    def encode(self, texts: Sequence[str], threads: int = 1) -> list[Ids] | None:
        """Return the ids of each text, independent of `threads`; None for a letter outside A C G T N.

        Other Python threads run in the meantime.
        """
        try:
            letters, starts = _joined(texts)
        except UnicodeEncodeError:
            return None
        room, counts = np.empty(len(letters), np.int32), np.empty(len(texts), np.int64)
        failed = self.library.encode_pieces(
            ctypes.c_void_p(self._handle),
            _pointer(letters),
            _pointer(starts),
            ctypes.c_int64(len(texts)),
            ctypes.c_int64(threads),
            _pointer(room),
            _pointer(counts),
        )
        if failed:
            return None
        ends = np.cumsum(counts).tolist()
        ids = room[
            : ends[-1] if ends else 0
        ].copy()  # the buffer is several times as large
        return [ids[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def _joined(texts: Sequence[str]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Concatenate texts; return their letters, and the start of each text and the end of the last."""
    starts = np.zeros(len(texts) + 1, np.int64)
    np.cumsum([len(text) for text in texts], out=starts[1:])
    return np.frombuffer("".join(texts).encode("ascii"), np.uint8), starts


def _pointer(array: NDArray[Any]) -> Any:
    """Return a pointer to an array for C, which is valid as long as the argument."""
    return array.ctypes.data_as(ctypes.c_void_p)


def sample_texts(pieces: Sequence[str]) -> list[str]:
    """Return random bases, with and without N, and concatenated tokens."""
    rng = np.random.default_rng(0)
    bases = "".join(rng.choice([*BASES], _CHECKED))
    known = [piece for piece in pieces if piece]
    some = "".join(known[i] for i in rng.permutation(len(known)))[:_CHECKED]
    gaps = "".join(bases[i : i + i % 9] + "N" * (i % 50) for i in range(0, 500, 7))
    return [bases, some, some[::-1], gaps, "A" * 70, ""]


@cache
def load_library() -> ctypes.CDLL | None:
    """Return the library, found or compiled and loaded on the first call; None if it is not available."""
    if os.environ.get("BIGBIRD_DNA_NATIVE") == "0":
        return None
    source = files("bigbird_dna.tokens").joinpath("bpe.cpp").read_bytes()
    try:
        with native_build.library(source, check_library) as path:
            return _library(path)
    except (native_build.BuildError, OSError, AttributeError):
        return None


def _library(path: Path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(path))
    library.open_pieces.restype = ctypes.c_void_p
    library.encode_pieces.restype = ctypes.c_int64
    library.close_pieces.restype = None
    return library


def check_library(path: Path) -> None:
    """Compare the encoding of a new library with the known result; `BuildError` if they differ."""
    pieces, scores = (
        ["", "A", "C", "G", "T", "N", "NN", "AA", "CG", "ACG"],
        [0.0] * 7 + [-1.0, -2.0, -3.0],
    )
    opened = NativePieces.opened_with(_library(path), pieces, scores)
    found = None if opened is None else opened.encode(["AAACGTNNNT", "", "ACG"], 2)
    if found is None or [row.tolist() for row in found] != [
        [7, 9, 4, 6, 5, 4],
        [],
        [9],
    ]:
        raise native_build.BuildError(
            "the compiled encoder does not find the expected tokens"
        )


class DnaTokenizer(Tokenizer):
    """Encodes cleaned DNA as token ids, and decodes ids.

    A worker process receives the serialized model. Encoding by SentencePiece or by the compiled C++ library
    gives the same ids and differs only in speed.
    """

    file_name = "tokenizer.model"
    is_dna = True
    pad_id, unk_id, cls_id, sep_id, mask_id = range(5)

    def __init__(self, model: bytes, source: str = "tokenizer") -> None:
        """Open a serialized SentencePiece model; `source` names it in `ModelError`."""
        self._processor, opened = open_model(model, source)
        for fault in _faults(opened):
            raise ModelError(f"{source}: not a tokenizer of DNA: {fault}")
        count = len(SPECIAL_PIECES)
        letters = [""] * count + opened.pieces[count:]
        self._scores, self._asked = opened.scores, 0  # letters encoded so far
        super().__init__(model, opened.pieces, letters, Specials(*range(count)), source)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a model written by `save` or `train`; `ModelError` for other files."""
        return cls(read_content(path), str(path))

    @staticmethod
    def train(
        sentences: Iterable[str],
        path: Path,
        vocabulary: int,
        max_piece_length: int = 16,
    ) -> "DnaTokenizer":
        """Learn BPE merges, write the model to `path` (atomically) and return the tokenizer.

        The same sentences in the same order give the same file. All sentences are used; those above 50,000
        bp, which SentencePiece does not support, are divided. Memory is about 80 bytes per base because all
        sentences are in memory at once; `bigbird_dna.tokens.corpus` draws a sample.

        Parameters
        ----------
        sentences : cleaned DNA; merges do not extend across sentences.
        vocabulary : number of tokens, including the five special tokens, the tokens of N (two, or one if
            `max_piece_length` is 1) and the four bases.
        max_piece_length : bp of the longest token, 1 to 512.

        Raises
        ------
        ConfigError : `vocabulary` is below the minimum or above the maximum for the corpus (the message
            names the bound), or `max_piece_length` is out of range.
        DataError : the corpus has no bases, or a letter outside A C G T N.
        """
        if not 1 <= max_piece_length <= LONGEST_PIECE:
            raise ConfigError(
                f"max_piece_length {max_piece_length}: must be from 1 to {LONGEST_PIECE}"
            )
        n_pieces = [*dict.fromkeys(["N", "N" * min(N_RUN, max_piece_length)])]
        least = len(SPECIAL_PIECES) + len(n_pieces) + len(BASES)
        if vocabulary < least:
            raise ConfigError(
                f"vocabulary {vocabulary} is too small: the minimum is {least}"
            )
        feed = _Feed(sentences)
        try:
            model = learn_model(
                feed, vocabulary, SPECIAL_PIECES, n_pieces, max_piece_length
            )
        except RuntimeError as error:
            raise feed.reason(error, vocabulary) from None
        if not feed.bases:
            raise DataError(_NO_BASES)
        tokenizer = DnaTokenizer(model)
        tokenizer.save(path)
        return tokenizer

    def description(self) -> dict[str, int]:
        """Return the additional information needed for loading: none."""
        return {}

    def encode(self, sequence: str) -> NDArray[np.int32]:
        """Return the token ids (n,) of a cleaned sequence, without special tokens; n is 0 for an empty one.

        The sequence is encoded as a whole, because dividing it would move the boundaries of tokens. A letter
        outside A C G T N is a `DataError` with its position.
        """
        if (rows := self._fast_rows([sequence], 1)) is not None:
            return rows[0]
        check_letters(sequence)
        return encode_rows(self._processor, [sequence])[0]

    def encode_batch(
        self, sequences: Sequence[str], threads: int = 1
    ) -> list[NDArray[np.int32]]:
        """Encode each sequence with `encode`, using threads; the result does not depend on their number."""
        if (rows := self._fast_rows(sequences, threads)) is not None:
            return rows
        for number, sequence in enumerate(sequences, 1):
            check_letters(sequence, f"sequence {number}: ")
        return encode_rows(self._processor, sequences, threads)

    def _fast_rows(
        self, sequences: Sequence[str], threads: int
    ) -> list[NDArray[np.int32]] | None:
        """Return the result of `encode_batch` from the C++ library; None if SentencePiece should be used."""
        self._asked += sum(map(len, sequences))
        if self._asked < NATIVE_FROM or self.native is None:
            return None
        return self.native.encode(sequences, threads)

    @cached_property
    def native(self) -> NativePieces | None:
        return NativePieces.open(
            self.letters, self._scores, partial(encode_rows, self._processor)
        )

    def decode(self, ids: Iterable[SupportsInt]) -> str:
        """Return the bases of token ids, without special tokens; `DataError` for an unknown id."""
        return "".join(self.letters[index] for index in self._known(ids))

    def __reduce__(self) -> tuple[type[Tokenizer], tuple[Any, ...]]:
        return DnaTokenizer, (self.content,)


_NO_BASES = "the tokenizer's corpus contains no A, C, G or T"


class _Feed:
    """Checked lines for SentencePiece; stores an exception, which SentencePiece would convert to text."""

    def __init__(self, sentences: Iterable[str]) -> None:
        self.sentences = sentences
        self.bases = 0
        self.failure: BaseException | None = None

    def __iter__(self) -> Iterator[str]:
        yield from BASES  # each base gets a token, even if it is not in the corpus
        try:
            for number, sentence in enumerate(self.sentences, 1):
                check_letters(sentence, f"sentence {number} of the corpus: ")
                self.bases += len(sentence) - sentence.count("N")
                for start in range(0, len(sentence), LONGEST_LINE):
                    yield sentence[start : start + LONGEST_LINE]
        except BaseException as error:
            self.failure = error
            raise

    def reason(self, error: RuntimeError, vocabulary: int) -> BaseException:
        """Return the exception to raise instead of an error of SentencePiece."""
        if self.failure is not None:
            return self.failure
        if not self.bases:
            return DataError(_NO_BASES)
        largest = re.search(r"set it to a value <= (\d+)", str(error))
        if largest is None:
            return error
        return ConfigError(
            f"vocabulary {vocabulary} is too large for a corpus of {self.bases:,} bases: "
            f"the maximum is {largest[1]}"
        )


def check_letters(sequence: str, where: str = "") -> None:
    """Raise `DataError` with the position of a letter outside A C G T N; `where` is the message's prefix."""
    try:
        rest = sequence.encode("ascii").translate(None, _LETTERS)
    except UnicodeEncodeError:
        rest = b"?"
    if rest:
        position, letter = next(
            (i, c) for i, c in enumerate(sequence) if c not in "ACGTN"
        )
        raise DataError(
            f"{where}letter {letter!r} at position {position + 1} is not one of A, C, G, T, N "
            "(sequences must be cleaned and in upper case)"
        )


def _faults(model: PieceModel) -> Iterator[str]:
    """Yield the differences of a model from the vocabulary and settings of `DnaTokenizer.train`."""
    pieces, specials = model.pieces, len(SPECIAL_PIECES)
    if tuple(pieces[:specials]) != SPECIAL_PIECES:
        found = shortened(" ".join(pieces[:specials]))
        yield f"tokens 0 to 4 are {found}, expected {' '.join(SPECIAL_PIECES)}"
    for index, piece in enumerate(pieces[specials:], specials):
        if not piece or not (set(piece) <= set(BASES) or set(piece) == {"N"}):
            yield f"token {index} is {shortened(repr(piece))}"
    if missing := sorted(set("ACGTN") - set(pieces)):
        yield f"no token for {missing[0]}"
    if model.kind != ModelType.BPE or not model.plain:
        yield "the model is not a byte-pair encoding, or normalizes text"
    wanted = [PieceType.CONTROL] * specials
    wanted[DnaTokenizer.unk_id] = PieceType.UNKNOWN
    wanted += [
        PieceType.USER_DEFINED if piece[0] == "N" else PieceType.NORMAL
        for piece in pieces[specials:]
    ]
    for index, (kind, own) in enumerate(zip(wanted, model.types, strict=True)):
        if kind != own:
            yield f"token {index} ({shortened(pieces[index])}) has type {own}, expected type {kind}"
