"""What the rest of the package asks of a tokenizer, what all have in common; and which tokens are masked."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, SupportsInt

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.disk.atomic import atomic_path
from bigbird_dna.errors import DataError, ModelError, shortened

BASES = "ACGT"
LARGEST_VOCABULARY = 1 << 20  # ids; the largest published vocabularies have a quarter of it
LARGEST_FILE = 1 << 25  # bytes of a tokenizer's file; a vocabulary of 32,768 pieces takes a fifth of it
_USUAL_NAMES = {
    "pad": ("[PAD]", "<pad>"),
    "unk": ("[UNK]", "<unk>"),
    "cls": ("[CLS]", "<s>"),
    "sep": ("[SEP]", "</s>"),
    "mask": ("[MASK]", "<mask>"),
}


class Specials(NamedTuple):
    """Ids of the pieces that stand for no text: padding, unknown, first, separator, hidden."""

    pad: int
    unk: int
    cls: int
    sep: int
    mask: int


class Encoded(NamedTuple):
    """Tokens and the bases they cover: piece i is `sequence[offsets[i]:offsets[i + 1]]`."""

    ids: NDArray[np.int32]  # (n,)
    offsets: NDArray[np.int64]  # (n + 1,), bp from the start of the sequence


class TextPieces(NamedTuple):
    """Tokens of a text: piece i stands for `text[starts[i]:ends[i]]`, white space before a word included."""

    ids: NDArray[np.int32]  # (n,)
    starts: NDArray[np.int64]  # (n,) characters
    ends: NDArray[np.int64]  # (n,) characters


class Tokenizer(ABC):
    """Encodes DNA, or text, as token ids and back; immutable, shared between threads, picklable. Of one of
    ordinary text whatever has to do with bases raises `ModelError`."""

    file_name: ClassVar[str]  # in a model directory
    is_dna: bool

    def __init__(
        self, content: bytes, pieces: Sequence[str], letters: Sequence[str], specials: Specials, source: str
    ) -> None:
        """Keep what a subclass found in a file; `letters`: the bases that each piece covers, "" for none."""
        self.pieces = tuple(pieces)  # text of each by id, "" for an id without one
        self.vocabulary = len(self.pieces)  # ids, the specials included
        self.specials = specials
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = specials
        self.sha256 = hashlib.sha256(content).hexdigest()
        self.source = source  # names the tokenizer in errors
        self.content = content
        self._letters = tuple(letters)

    @abstractmethod
    def encode(self, sequence: str) -> NDArray[np.int32]:
        """Token ids (n,), no specials added; `DataError` for a letter outside A C G T N, if it is of DNA."""

    @abstractmethod
    def encode_batch(self, sequences: Sequence[str], threads: int = 1) -> list[NDArray[np.int32]]:
        """`encode` of every sequence, over threads; the result does not depend on their number."""

    @abstractmethod
    def decode(self, ids: Iterable[SupportsInt]) -> str:
        """Bases, or text, of token ids; `DataError` for an id outside the vocabulary."""

    def encode_with_offsets(self, sequence: str) -> Encoded:
        """`encode`, with the bases that each token covers (0-based, half-open); together they cover all."""
        require_dna(self)
        ids = self.encode(sequence)
        return Encoded(ids, self.offsets(ids))

    def text_pieces(self, text: str) -> TextPieces:
        """`encode`, with the characters that each token stands for; `ModelError` from a tokenizer of DNA."""
        raise ModelError(f"{self.source} is one of DNA, not of ordinary text")

    def offsets(self, ids: NDArray[np.integer]) -> NDArray[np.int64]:
        """Base offsets (n + 1,) of ids (n,): 0, then cumulative lengths of the pieces, bp."""
        offsets = np.zeros(len(ids) + 1, np.int64)
        np.cumsum(self.piece_lengths[ids], out=offsets[1:])
        return offsets

    @cached_property
    def piece_lengths(self) -> NDArray[np.int32]:
        """(V,) bases that a piece covers; 0 for the specials. Read-only."""
        require_dna(self)
        return _frozen(self._covered())

    @cached_property
    def base_ids(self) -> NDArray[np.int32]:
        """Ids of the pieces made of A, C, G and T alone, ascending. Read-only."""
        require_dna(self)
        return _frozen(i for i, text in enumerate(self._letters) if text and set(text) <= set(BASES))

    @cached_property
    def hidden_ids(self) -> NDArray[np.int32]:
        """Ids that masked-token training hides, ascending: `base_ids`; of ordinary text all but specials."""
        if self.is_dna:
            return self.base_ids
        return _frozen(i for i, piece in enumerate(self.pieces) if piece and i not in self.specials)

    def description(self) -> dict[str, int]:
        """What `load_tokenizer` needs besides the file: {} if the file says everything."""
        return {**self.specials._asdict(), "vocabulary": self.vocabulary}

    def save(self, path: Path) -> None:
        """Write the file as it was read, whole or not at all."""
        with atomic_path(path) as temporary:
            temporary.write_bytes(self.content)

    def _covered(self) -> list[int]:
        return [len(letters) for letters in self._letters]

    def _known(self, ids: Iterable[SupportsInt]) -> list[int]:
        """Ids as integers; `DataError` for one outside the vocabulary."""
        numbers = [int(index) for index in ids]
        for index in numbers:
            if not 0 <= index < self.vocabulary:
                raise DataError(f"token {index} is outside the vocabulary of {self.vocabulary}")
        return numbers

    def __len__(self) -> int:
        return self.vocabulary

    def __reduce__(self) -> tuple[type["Tokenizer"], tuple[Any, ...]]:
        return type(self), (self.content, self.specials, self.vocabulary)

    def __repr__(self) -> str:
        name = type(self).__name__
        return f"{name}(vocabulary={self.vocabulary}, sha256={self.sha256[:12]}…)"


def _frozen(numbers: Iterable[int]) -> NDArray[np.int32]:
    array = np.array([*numbers], np.int32)
    array.flags.writeable = False
    return array


def require_dna(tokenizer: Tokenizer) -> None:
    """Raise `ModelError` if `tokenizer` is one of ordinary text."""
    if not tokenizer.is_dna:
        raise ModelError(f"{tokenizer.source} is one of ordinary text, not of DNA: its pieces cover no bases")


def complete_vocabulary(
    pieces: Mapping[int, str],
    specials: Specials | None,
    vocabulary: int | None,
    names: Mapping[str, str] | None,
    source: str,
) -> tuple[list[str], Specials]:
    """Text of every id below `vocabulary` (none: of as many as there are pieces), and the special pieces.

    These are looked up unless they are known, by `names` of "pad", "unk", "cls", "sep" and "mask", or by
    their usual ones. `ModelError`: one is missing, or a piece has a larger id.
    """
    last = max(pieces)
    size = last + 1 if vocabulary is None else vocabulary
    check_vocabulary(size, source)
    if last >= size:
        piece = shortened(repr(pieces[last]))
        raise ModelError(f"{source}: piece {piece} has id {last}, the model has {size} ids")
    if specials is None:
        ids, found = {piece: index for index, piece in pieces.items()}, {}
        for role, usual in _USUAL_NAMES.items():
            tried = (names[role],) if names and role in names else usual
            known = [ids[name] for name in tried if name in ids]
            if not known:
                raise ModelError(f"{source}: no piece {' or '.join(map(shortened, tried))} ({role})")
            found[role] = known[0]
        specials = Specials(**found)
    return [pieces.get(index, "") for index in range(size)], specials


def check_vocabulary(size: int, source: str) -> None:
    """`ModelError` for a number of ids that no vocabulary has: lists of that length would be made."""
    if not 0 < size <= LARGEST_VOCABULARY:
        found = f"{size:,}" if size.bit_length() < 100 else "more"
        raise ModelError(f"{source}: {found} ids; a vocabulary has 1 to {LARGEST_VOCABULARY:,}")


def read_description(description: Mapping[str, Any], source: str) -> tuple[Specials, int]:
    """Specials and vocabulary of what `Tokenizer.description` gave; `ModelError` if it is damaged."""
    names = (*Specials._fields, "vocabulary")
    numbers: list[int] = [description[name] for name in names if type(description.get(name)) is int]
    if len(numbers) < len(names):
        raise ModelError(f"{source}: its special pieces are not described by whole numbers")
    *specials, vocabulary = numbers
    check_vocabulary(vocabulary, source)
    if not 0 <= min(specials) <= max(specials) < vocabulary:
        raise ModelError(f"{source}: special pieces outside its vocabulary of {vocabulary}")
    return Specials(*specials), vocabulary


def read_content(path: Path) -> bytes:
    """Content of a tokenizer file; `ModelError` where there is none to read, or too much."""
    try:
        with Path(path).open("rb") as stream:
            content = stream.read(LARGEST_FILE + 1)
    except FileNotFoundError:
        raise ModelError(f"{path}: no such tokenizer file") from None
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: not readable: {getattr(error, 'strerror', error)}") from None
    if len(content) > LARGEST_FILE:
        raise ModelError(f"{path}: larger than {LARGEST_FILE >> 20} MB, which no tokenizer is")
    return content


# Masks: BERT's 80/10/10 rule, of which App. F.1 masks 15 %

NOT_MASKED = -100  # label that torch's cross entropy leaves out
MASKED = 0.8  # of the chosen tokens
REPLACED = 0.1  # of the chosen tokens; the rest stay as they are


class Masked(NamedTuple):
    """Input of the model and what it is to predict."""

    inputs: NDArray[np.integer]  # (…, L), of the ids' type
    labels: NDArray[np.int64]  # (…, L), −100 where nothing is predicted


def mask_tokens(
    ids: NDArray[np.integer],
    rng: np.random.Generator,
    fraction: float,
    tokenizer: Tokenizer,
    *,
    hide_all: bool = False,
    mean_span: float = 1.0,
) -> Masked:
    """Choose tokens of `ids` (…, L) to predict, and hide them.

    In each sequence exactly `round(fraction × candidates)` of `Tokenizer.hidden_ids` are chosen, at least one
    if there is one. 80 % of these become [MASK], 10 % a candidate drawn uniformly (which may be the same
    one), and 10 % stay; with `hide_all` none, as a token that stays gives itself away in a measurement.
    `mean_span` tokens are hidden side by side, on average, before spans meet or the fraction is reached:
    lengths are geometric (SpanBERT, Joshi et al. 2020, cuts them at ten).
    """
    if mean_span < 1:
        raise ValueError(f"mean_span {mean_span} is below 1")
    if not 0 < fraction < 1:
        raise ValueError(f"fraction {fraction} is not between 0 and 1")
    ids = np.asarray(ids)
    is_candidate = np.zeros(tokenizer.vocabulary, np.bool_)
    is_candidate[tokenizer.hidden_ids] = True
    chosen = _choose(is_candidate[ids], rng, fraction, mean_span)
    labels = np.where(chosen, ids.astype(np.int64), NOT_MASKED)
    if hide_all:
        return Masked(np.where(chosen, ids.dtype.type(tokenizer.mask_id), ids), labels)
    originals = ids[chosen]
    fate = rng.random(originals.size)
    drawn = rng.choice(tokenizer.hidden_ids, originals.size)
    inputs = np.array(ids)
    inputs[chosen] = np.select(
        [fate < MASKED, fate < MASKED + REPLACED], [tokenizer.mask_id, drawn], originals
    )
    return Masked(inputs, labels)


def _choose(
    candidates: NDArray[np.bool_], rng: np.random.Generator, fraction: float, mean_span: float
) -> NDArray[np.bool_]:
    """The candidates with the smallest of random keys, in each sequence; a span's have the same key."""
    counts = candidates.sum(-1, keepdims=True)
    wanted = np.clip(np.rint(fraction * counts).astype(np.int64), np.minimum(counts, 1), counts)
    keys = rng.random(candidates.shape)
    if mean_span > 1:
        spans = np.cumsum(rng.random(candidates.shape) < 1 / mean_span, -1)
        keys = np.take_along_axis(keys, np.minimum(spans, candidates.shape[-1] - 1), -1)
    order = np.argsort(np.where(candidates, keys, np.inf), -1, kind="stable")
    chosen = np.zeros(candidates.shape, np.bool_)
    np.put_along_axis(chosen, order, np.arange(candidates.shape[-1]) < wanted, -1)
    return chosen


def next_tokens(ids: NDArray[np.integer], tokenizer: Tokenizer) -> Masked:
    """The ids (L,) as they are, and at each place the token behind it, where that is a piece of bases."""
    labels = np.full(len(ids), NOT_MASKED, np.int64)
    behind = np.asarray(ids[1:], np.int64)
    labels[:-1] = np.where(np.isin(behind, tokenizer.base_ids), behind, NOT_MASKED)
    return Masked(np.asarray(ids), labels)
