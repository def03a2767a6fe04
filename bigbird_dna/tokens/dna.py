"""A byte-pair tokenizer of DNA with base offsets (paper App. F.1: SentencePiece BPE on A C G T N).

The vocabulary is `[PAD] [UNK] [CLS] [SEP] [MASK]` (ids 0 to 4), then the tokens of N, the merges in the order
of training, and the four bases, so that `decode` restores any string over A C G T N. A token consists of
bases or of Ns, never of both. Ns are divided into runs of 16 (or of the maximum token length, if shorter) and
single Ns, so that an assembly gap inside a window needs few tokens.

`bpe.cpp` finds the same ids as SentencePiece in an eighth of the time, without which scoring takes 4 % longer
with a model of start sites and 12 % with one of windows; its comments prove that the ids are the same. A wheel contains its library; else it is compiled on first use (`disk.native_library`, with the
environment of `attention.native`). Its result for each vocabulary is compared with SentencePiece before use.
SentencePiece is the fallback.
"""

import ctypes
import io
import os
import re
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, cached_property
from importlib.resources import files
from pathlib import Path
from threading import Lock
from typing import Any, Self, SupportsInt

import numpy as np
import sentencepiece as spm
from numpy.typing import NDArray

from bigbird_dna.disk import native_library as native_build
from bigbird_dna.errors import ConfigError, DataError, ModelError, shortened
from bigbird_dna.gpus import limit_threads
from bigbird_dna.tokens.interface import BASES, Specials, Tokenizer, read_content

Ids = NDArray[np.int32]
SPECIAL_PIECES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
N_RUN = 16  # bp in the token of a run of Ns
NATIVE_FROM = 100_000  # total letters from which opening or compiling the C++ encoder is worthwhile
LONGEST_LINE = (
    50_000  # SentencePiece drops or rejects longer lines (above 65,535 letters)
)
LONGEST_PIECE = 512  # letters per token in SentencePiece
_LETTERS = b"ACGTN"
_CHECKED = 2000  # random bases, and letters of the vocabulary, that are compared

_lock = Lock()


def open_sentencepiece(content: bytes, source: str) -> spm.SentencePieceProcessor:
    """Open a serialized SentencePiece model; `ModelError` names `source`."""
    try:
        if content:  # else SentencePiece returns a processor without a model
            return spm.SentencePieceProcessor(model_proto=content)
    except RuntimeError:  # its text is about SentencePiece's source code
        pass
    raise ModelError(f"{source}: not a SentencePiece model, or damaged")


def read_vocabulary(processor: spm.SentencePieceProcessor) -> list[str]:
    """Return the text of each token by id."""
    return list(processor.id_to_piece(list(range(processor.vocab_size()))))


def encode_rows(
    processor: spm.SentencePieceProcessor, texts: Sequence[str], threads: int = 1
) -> list[Ids]:
    """Return the token ids (n,) of each text, without special tokens; independent of `threads`."""
    if not texts:
        return []
    # SentencePiece starts all threads, however few texts there are, and crashes if it cannot.
    threads = limit_threads(min(threads, len(texts)))
    return list(processor.encode(list(texts), num_threads=threads, return_type="numpy"))


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
        library = native_build.load_library(source, check_library)
    except (native_build.BuildError, OSError, AttributeError):
        return None
    return _declare(library)


def _declare(library: ctypes.CDLL) -> ctypes.CDLL:
    library.open_pieces.restype = ctypes.c_void_p
    library.encode_pieces.restype = ctypes.c_int64
    library.close_pieces.restype = None
    return library


def check_library(library: ctypes.CDLL) -> None:
    """Compare the encoding of a new library with the known result; `BuildError` if they differ."""
    pieces, scores = (
        ["", "A", "C", "G", "T", "N", "NN", "AA", "CG", "ACG"],
        [0.0] * 7 + [-1.0, -2.0, -3.0],
    )
    opened = NativePieces.opened_with(_declare(library), pieces, scores)
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
        self._processor = open_sentencepiece(model, source)
        self._num_letters = 0  # encoded so far
        pieces = read_vocabulary(self._processor)
        count = len(SPECIAL_PIECES)
        letters = [""] * count + pieces[count:]
        super().__init__(model, pieces, letters, Specials(*range(count)), source)
        self._check_vocabulary()

    def _check_vocabulary(self) -> None:
        """Raise `ModelError` for a model of other text than DNA, or one that changes a text."""
        count = len(SPECIAL_PIECES)
        fault = None
        if self.pieces[:count] != SPECIAL_PIECES:
            names = shortened(" ".join(self.pieces[:count]))
            fault = f"tokens 0 to 4 are {names}, expected {' '.join(SPECIAL_PIECES)}"
        for index, piece in enumerate(self.letters[count:], count):
            if not piece or not (set(piece) <= set(BASES) or set(piece) == {"N"}):
                fault = fault or f"token {index} is {shortened(repr(piece))}"
        for letter in BASES + "N":
            if letter not in self.letters:
                fault = fault or f"no token for {letter}"
        sample = "GATTACA" + "N" * (N_RUN + 1) + "CG"
        if fault is None:
            ids = self.encode(sample)
            if ids.min() < count or self.decode(ids) != sample:
                fault = "the model changes a text before it encodes it"
        if fault is not None:
            raise ModelError(f"{self.source}: not a tokenizer of DNA: {fault}")

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
        corpus = _Corpus(sentences)
        model = io.BytesIO()
        pad, unk, cls, sep, mask = SPECIAL_PIECES
        try:
            spm.SentencePieceTrainer.train(
                sentence_iterator=iter(corpus),
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
                pad_piece=pad,
                unk_id=1,
                unk_piece=unk,
                bos_id=2,
                bos_piece=cls,
                eos_id=3,
                eos_piece=sep,
                control_symbols=[mask],
                user_defined_symbols=n_pieces,  # never merged
                num_threads=1,
                minloglevel=2,
            )
        except RuntimeError as error:
            if corpus.failure is not None:
                raise corpus.failure from None
            if corpus.bases and (
                largest := re.search(r"set it to a value <= (\d+)", str(error))
            ):
                raise ConfigError(
                    f"vocabulary {vocabulary} is too large for a corpus of {corpus.bases:,} bases: "
                    f"the maximum is {largest[1]}"
                ) from None
            if corpus.bases:
                raise
        if not corpus.bases:
            raise DataError("the tokenizer's corpus contains no A, C, G or T")
        tokenizer = DnaTokenizer(model.getvalue())
        tokenizer.save(path)
        return tokenizer

    def description(self) -> dict[str, int]:
        """Return the additional information needed for loading: none."""
        return {}

    def encode(self, sequence: str) -> Ids:
        """Return the token ids (n,) of a cleaned sequence, without special tokens; n is 0 for an empty one.

        The sequence is encoded as a whole, because dividing it would move the boundaries of tokens. A letter
        outside A C G T N is a `DataError` with its position.
        """
        return self.encode_batch([sequence])[0]

    def encode_batch(self, sequences: Sequence[str], threads: int = 1) -> list[Ids]:
        """Encode each sequence with `encode`, using threads; the result does not depend on their number."""
        self._num_letters += sum(map(len, sequences))
        if self._num_letters >= NATIVE_FROM and self.native is not None:
            rows = self.native.encode(sequences, threads)
            if rows is not None:
                return rows
        for number, sequence in enumerate(sequences, 1):
            where = f"sequence {number}: " if len(sequences) > 1 else ""
            check_letters(sequence, where)
        return encode_rows(self._processor, sequences, threads)

    @cached_property
    def native(self) -> NativePieces | None:
        """The vocabulary in the C++ library; None if that is not available."""
        scores = self._processor.get_score(list(range(self.vocabulary)))
        return NativePieces.open(
            self.letters, scores, lambda texts: encode_rows(self._processor, texts)
        )

    def decode(self, ids: Iterable[SupportsInt]) -> str:
        """Return the bases of token ids, without special tokens; `DataError` for an unknown id."""
        return "".join(self.letters[index] for index in self._known(ids))

    def __reduce__(self) -> tuple[type[Tokenizer], tuple[Any, ...]]:
        return DnaTokenizer, (self.content,)


class _Corpus:
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


def check_letters(sequence: str, where: str = "") -> None:
    """Raise `DataError` with the position of a letter outside A C G T N; `where` is the message's prefix."""
    if sequence.isascii() and not sequence.encode().translate(None, _LETTERS):
        return
    position, letter = next((i, c) for i, c in enumerate(sequence) if c not in "ACGTN")
    raise DataError(
        f"{where}letter {letter!r} at position {position + 1} is not one of A, C, G, T, N "
        "(sequences must be cleaned and in upper case)"
    )
