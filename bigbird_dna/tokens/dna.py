"""A byte-pair tokenizer of DNA with base offsets (paper App. F.1: SentencePiece BPE on A C G T N).

The vocabulary is `[PAD] [UNK] [CLS] [SEP] [MASK]` (ids 0 to 4), then the tokens of N, the merges in the order
of training, and the four bases, so that `decode` restores any string over A C G T N. A token consists of
bases or of Ns, never of both. Ns are divided into runs of 16 (or of the maximum token length, if shorter) and
single Ns, so that an assembly gap inside a window needs few tokens.

`bpe.cpp` finds the same ids as SentencePiece in an eighth of the time, without which scoring takes 4 % longer
with a model of start sites and 12 % with one of windows; its comments prove that the ids are the same. A
wheel contains its library; else it is compiled on first use (`disk.native_library`, with the environment of
`attention.native`). Its result for each vocabulary is compared with SentencePiece before use. SentencePiece
is the fallback.
"""

import ctypes
import io
import os
import re
import weakref
from collections.abc import Callable, Iterable, Sequence
from functools import cache, cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any, Self, SupportsInt

import numpy as np
import sentencepiece as spm
from numpy.typing import NDArray

from bigbird_dna.disk import native_library
from bigbird_dna.errors import ConfigError, DataError, ModelError
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
    threads = min(threads, len(texts))
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

        Return None without a compiler, if a token was not learned after its halves, if two tokens have the
        same score (they would be merged from the left), or if the result differs from that of `plain`.
        """
        library = load_library()
        runs = [i for i, piece in enumerate(pieces) if piece.startswith("N")]
        runs.sort(key=lambda i: -len(pieces[i]))
        learned = [
            i for i, piece in enumerate(pieces) if len(piece) > 1 and piece[0] != "N"
        ]
        learned.sort(key=lambda i: -scores[i])
        if library is None or len({scores[i] for i in learned}) < len(learned):
            return None

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
        if handle is None:
            return None

        native = cls(library, handle)
        samples = sample_texts(pieces)
        rows = native.encode(samples)
        if rows is None or not all(map(np.array_equal, rows, plain(samples))):
            return None

        return native

    def encode(self, texts: Sequence[str], threads: int = 1) -> list[Ids] | None:
        """Return the ids of each text, independent of `threads`; None for a letter outside A C G T N.

        Other Python threads run in the meantime.
        """
        try:
            letters, starts = _joined(texts)
        except UnicodeEncodeError:
            return None

        buffer, counts = (
            np.empty(len(letters), np.int32),
            np.empty(len(texts), np.int64),
        )
        failed = self.library.encode_pieces(
            ctypes.c_void_p(self._handle),
            _pointer(letters),
            _pointer(starts),
            ctypes.c_int64(len(texts)),
            ctypes.c_int64(threads),
            _pointer(buffer),
            _pointer(counts),
        )
        if failed:
            return None

        # The buffer is several times as large.
        ids = buffer[: counts.sum()].copy()
        return np.split(ids, np.cumsum(counts)[:-1]) if texts else []


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
    bases = "".join(rng.choice([*BASES], 2000))
    known = [piece for piece in pieces if piece]
    some = "".join(rng.permutation(known))[:2000]
    gaps = "".join(bases[i : i + i % 9] + "N" * (i % 50) for i in range(0, 500, 7))
    return [bases, some, some[::-1], gaps, "A" * 70, ""]


@cache
def load_library() -> ctypes.CDLL | None:
    """Return the library, found or compiled and loaded on the first call; None if it is not available."""
    if os.environ.get("BIGBIRD_DNA_NATIVE") == "0":
        return None

    source = files("bigbird_dna.tokens").joinpath("bpe.cpp").read_bytes()
    try:
        library = native_library.load_library(source)
    except (native_library.BuildError, OSError):
        return None

    library.open_pieces.restype = ctypes.c_void_p
    library.encode_pieces.restype = ctypes.c_int64
    library.close_pieces.restype = None
    return library


class DnaTokenizer(Tokenizer):
    """Encodes cleaned DNA as token ids, and decodes ids.

    Encoding by SentencePiece or by the compiled C++ library
    gives the same ids and differs only in speed.
    """

    file_name = "tokenizer.model"
    is_dna = True
    pad_id, unk_id, cls_id, sep_id, mask_id = range(5)

    def __init__(self, model: bytes, source: str = "tokenizer") -> None:
        """Open a serialized SentencePiece model; `ModelError`, with `source`, if it is not one of DNA."""
        self._processor = open_sentencepiece(model, source)
        self._num_letters = 0  # encoded so far
        pieces = read_vocabulary(self._processor)
        count = len(SPECIAL_PIECES)
        letters = [""] * count + pieces[count:]
        super().__init__(model, pieces, letters, Specials(*range(count)), source)
        is_dna = self.pieces[:count] == SPECIAL_PIECES
        is_dna &= {*BASES, "N"} <= {*letters}
        for piece in letters[count:]:
            is_dna &= set(piece) <= set(BASES) or set(piece) == {"N"}

        sample = "GATTACA" + "N" * (N_RUN + 1) + "CG"
        ids = self.encode(sample) if is_dna else np.zeros(1, np.int32)
        if ids.min() < count or self.decode(ids) != sample:
            raise ModelError(f"{source}: not a tokenizer of DNA")

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a model written by `save` or `train`; `ModelError` for other files."""
        return cls(read_content(path), str(path))

    @staticmethod
    def train(
        sentences: Iterable[str],
        path: Path | None,
        vocabulary: int,
        max_piece_length: int = 16,
    ) -> "DnaTokenizer":
        """Learn BPE merges, and write the model to `path`, if given.

        The same sentences in the same order give the same model. All sentences are used; those above 50,000
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

        corpus = [*BASES]  # each base gets a token, even if it is not in a sentence
        bases = 0
        for number, sentence in enumerate(sentences, 1):
            check_letters(sentence, f"sentence {number} of the corpus: ")
            bases += len(sentence) - sentence.count("N")
            for start in range(0, len(sentence), LONGEST_LINE):
                corpus.append(sentence[start : start + LONGEST_LINE])

        if not bases:
            raise DataError("the tokenizer's corpus contains no A, C, G or T")

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
            largest = re.search(r"set it to a value <= (\d+)", str(error))
            if largest is None:
                raise

            raise ConfigError(
                f"vocabulary {vocabulary} is too large for a corpus of {bases:,} bases: "
                f"the maximum is {largest[1]}"
            ) from None

        tokenizer = DnaTokenizer(model.getvalue())
        if path is not None:
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


def check_letters(sequence: str, where: str = "") -> None:
    """Raise `DataError` with the position of a letter outside A C G T N; `where` is the message's prefix."""
    if sequence.isascii() and not sequence.encode().translate(None, _LETTERS):
        return
    position, letter = next((i, c) for i, c in enumerate(sequence) if c not in "ACGTN")
    raise DataError(
        f"{where}letter {letter!r} at position {position + 1} is not one of A, C, G, T, N "
        "(sequences must be cleaned and in upper case)"
    )
