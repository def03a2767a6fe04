"""The interface and common parts of all tokenizers, and the masking of tokens."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, SupportsInt

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.disk.atomic import atomic_path
from bigbird_dna.errors import DataError, ModelError, shortened

BASES = "ACGT"
BREAKS = 64  # bp between the token boundaries that `Tokenizer.split_batch` adds
_USUAL_NAMES = {
    "pad": ("[PAD]", "<pad>"),
    "unk": ("[UNK]", "<unk>"),
    "cls": ("[CLS]", "<s>"),
    "sep": ("[SEP]", "</s>"),
    "mask": ("[MASK]", "<mask>"),
}


class Specials(NamedTuple):
    """Ids of the special tokens, which represent no text: padding, unknown, first, separator, mask."""

    pad: int
    unk: int
    cls: int
    sep: int
    mask: int


class Encoded(NamedTuple):
    """Tokens and the bases they cover: token i is `sequence[offsets[i]:offsets[i + 1]]`."""

    ids: NDArray[np.int32]  # (n,)
    offsets: NDArray[np.int64]  # (n + 1,), bp from the start of the sequence


class Tokenizer(ABC):
    """Encodes DNA or text as token ids and decodes ids; immutable, thread-safe, picklable. A tokenizer of
    ordinary text raises `ModelError` in methods about bases."""

    file_name: ClassVar[str]  # in a model directory
    is_dna: bool

    def __init__(
        self,
        content: bytes,
        pieces: Sequence[str],
        letters: Sequence[str],
        specials: Specials,
        source: str,
    ) -> None:
        """Store the content of a file; `letters` are the bases that each token covers, "" for none."""
        self.pieces = tuple(pieces)  # text of each token by id, "" for an unused id
        self.vocabulary = len(
            self.pieces
        )  # number of ids, including the special tokens
        self.specials = specials
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = specials
        self.sha256 = hashlib.sha256(content).hexdigest()
        self.source = source  # names the tokenizer in errors
        self.content = content
        self.letters = tuple(letters)  # bases that each token covers, "" for none

    @abstractmethod
    def encode(self, sequence: str) -> NDArray[np.int32]:
        """Return the token ids (n,) without special tokens; `DataError` for a letter that is not DNA."""

    @abstractmethod
    def encode_batch(
        self, sequences: Sequence[str], threads: int = 1
    ) -> list[NDArray[np.int32]]:
        """Encode each sequence with `encode`, using threads; the result does not depend on their number."""

    def split_batch(
        self, sequences: Sequence[str], phase: int, threads: int = 1
    ) -> list[NDArray[np.int32]]:
        """`encode_batch`, but with other tokens of the same bases: there is a token boundary after `phase` bp
        of a sequence, from 1 to `BREAKS`, and each `BREAKS` bp from there. Phase 0: no such boundaries."""
        if not phase:
            return self.encode_batch(sequences, threads)

        cuts = [[0, *range(phase, len(text), BREAKS), len(text)] for text in sequences]
        texts = [
            text[start:end]
            for text, edges in zip(sequences, cuts, strict=True)
            for start, end in pairwise(edges)
        ]
        rows = iter(self.encode_batch(texts, threads))
        return [np.concatenate(list(islice(rows, len(edges) - 1))) for edges in cuts]

    @abstractmethod
    def decode(self, ids: Iterable[SupportsInt]) -> str:
        """Return the bases, or the text, of token ids; `DataError` for an unknown id."""

    def encode_with_offsets(self, sequence: str) -> Encoded:
        """`encode`, with the bases that each token covers (0-based, half-open); together they cover all."""
        require_dna(self)
        ids = self.encode(sequence)
        return Encoded(ids, self.offsets(ids))

    def offsets(self, ids: NDArray[np.integer]) -> NDArray[np.int64]:
        """Return base offsets (n + 1,) of ids (n,): 0, then cumulative lengths of the tokens in bp."""
        offsets = np.zeros(len(ids) + 1, np.int64)
        np.cumsum(self.piece_lengths[ids], out=offsets[1:])
        return offsets

    @cached_property
    def piece_lengths(self) -> NDArray[np.int32]:
        """(V,) number of bases that each token covers; 0 for special tokens. Read-only."""
        require_dna(self)
        return _frozen(map(len, self.letters))

    @cached_property
    def base_ids(self) -> NDArray[np.int32]:
        """Ids of the tokens made of A, C, G and T only, ascending. Read-only."""
        require_dna(self)
        return _frozen(
            i for i, text in enumerate(self.letters) if text and set(text) <= set(BASES)
        )

    def description(self) -> dict[str, int]:
        """Return what `load_tokenizer` needs in addition to the file; {} if the file is sufficient."""
        return {**self.specials._asdict(), "vocabulary": self.vocabulary}

    def save(self, path: Path) -> None:
        """Write the original file, atomically."""
        with atomic_path(path) as temporary:
            temporary.write_bytes(self.content)

    def _known(self, ids: Iterable[SupportsInt]) -> list[int]:
        """Convert ids to integers; `DataError` for an id outside the vocabulary."""
        numbers = [int(index) for index in ids]
        for index in numbers:
            if not 0 <= index < self.vocabulary:
                raise DataError(
                    f"token {index} is outside the vocabulary of {self.vocabulary}"
                )
        return numbers

    def __len__(self) -> int:
        return self.vocabulary

    def __reduce__(self) -> tuple[type["Tokenizer"], tuple[Any, ...]]:
        return type(self), (self.content, self.specials, self.vocabulary)


def _frozen(numbers: Iterable[int]) -> NDArray[np.int32]:
    array = np.array([*numbers], np.int32)
    array.flags.writeable = False
    return array


def require_dna(tokenizer: Tokenizer) -> None:
    """Raise `ModelError` for a tokenizer of ordinary text."""
    if not tokenizer.is_dna:
        raise ModelError(
            f"{tokenizer.source} is a tokenizer of ordinary text, not of DNA"
        )


def complete_vocabulary(
    pieces: Mapping[int, str],
    specials: Specials | None,
    vocabulary: int | None,
    names: Mapping[str, str] | None,
    source: str,
) -> tuple[list[str], Specials]:
    """Return the text of each id below `vocabulary` (None: the largest id plus one), and the special tokens.

    Unless given, special tokens are found by `names` of "pad", "unk", "cls", "sep" and "mask", or by their
    usual names. `ModelError` if one is missing, or a token has a larger id.
    """
    last = max(pieces)
    size = last + 1 if vocabulary is None else vocabulary
    if last >= size:
        piece = shortened(repr(pieces[last]))
        raise ModelError(
            f"{source}: token {piece} has id {last}, but the model has {size} ids"
        )

    if specials is None:
        ids = {piece: index for index, piece in pieces.items()}
        roles = []
        for role, usual in _USUAL_NAMES.items():
            tried = (names[role],) if names and role in names else usual
            known = [ids[name] for name in tried if name in ids]
            if not known:
                raise ModelError(
                    f"{source}: no token {' or '.join(map(shortened, tried))} ({role})"
                )

            roles.append(known[0])

        specials = Specials(*roles)

    return [pieces.get(index, "") for index in range(size)], specials


def read_description(
    description: Mapping[str, Any], source: str
) -> tuple[Specials, int]:
    """Read special tokens and vocabulary from a `Tokenizer.description`; `ModelError` if it is damaged."""
    numbers = [description.get(name) for name in (*Specials._fields, "vocabulary")]
    integers = [number for number in numbers if type(number) is int]
    *specials, vocabulary = integers or [0]
    if (
        len(integers) < len(numbers)
        or not 0 <= min(specials) <= max(specials) < vocabulary
    ):
        raise ModelError(f"{source}: the description of its special tokens is damaged")
    return Specials(*specials), vocabulary


def read_content(path: Path) -> bytes:
    """Read a tokenizer file; `ModelError` if it is missing or unreadable."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ModelError(f"{path}: cannot read the file: {error.strerror}") from None


# Masking: BERT's 80/10/10 rule, with 15 % of the tokens in App. F.1

NOT_MASKED = -100  # label that torch's cross entropy ignores
MASKED = 0.8  # fraction of the chosen tokens
REPLACED = 0.1  # fraction of the chosen tokens; the others are unchanged


class Masked(NamedTuple):
    """Input of the model and the tokens to predict."""

    inputs: NDArray[np.integer]  # (…, L), same type as the ids
    labels: NDArray[np.int64]  # (…, L), −100 where nothing is predicted


def mask_tokens(
    ids: NDArray[np.integer],
    rng: np.random.Generator,
    fraction: float,
    tokenizer: Tokenizer,
    *,
    hide_all: bool = False,
) -> Masked:
    """Choose tokens of `ids` (…, L) to predict, and mask them.

    In each sequence exactly `round(fraction × candidates)` of `Tokenizer.base_ids` are chosen, and at least
    one if there are any. 80 % of these become [MASK], 10 % a uniformly drawn candidate (possibly the same),
    and 10 % are unchanged. With `hide_all`, all become [MASK], since an unchanged token is visible in an
    evaluation.
    """
    ids = np.asarray(ids)
    candidates = np.isin(ids, tokenizer.base_ids)
    counts = candidates.sum(-1, keepdims=True)
    number = np.rint(fraction * counts).astype(np.int64)
    number = np.clip(number, np.minimum(counts, 1), counts)
    # The candidates with the smallest random keys of a sequence are chosen.
    keys = rng.random(candidates.shape)
    order = np.argsort(np.where(candidates, keys, np.inf), -1, kind="stable")
    chosen = np.zeros(candidates.shape, np.bool_)
    np.put_along_axis(chosen, order, np.arange(candidates.shape[-1]) < number, -1)
    labels = np.where(chosen, ids.astype(np.int64), NOT_MASKED)
    if hide_all:
        return Masked(np.where(chosen, ids.dtype.type(tokenizer.mask_id), ids), labels)

    originals = ids[chosen]
    fate = rng.random(originals.size)
    others = rng.choice(tokenizer.base_ids, originals.size)
    inputs = np.array(ids)
    inputs[chosen] = np.select(
        [fate < MASKED, fate < MASKED + REPLACED],
        [tokenizer.mask_id, others],
        originals,
    )
    return Masked(inputs, labels)
