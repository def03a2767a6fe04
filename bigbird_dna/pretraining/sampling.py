"""Pretraining inputs drawn from a token store."""

from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.errors import DataError
from bigbird_dna.tokens.interface import Tokenizer

Ids = NDArray[np.integer]


class Values(Protocol):
    """An array, or several of which slices are read as of one."""

    def __len__(self) -> int: ...

    def __getitem__(self, key: Any, /) -> Any: ...


class Tokens(Protocol):
    """Concatenated tokens of documents, as in a `TokenStore`."""

    @property
    def directory(self) -> Path:
        """Path for error messages."""

    @property
    def tokens(self) -> Values:
        """Token ids (N,)."""

    @property
    def sentences(self) -> NDArray[np.int64]:
        """Token offsets of the sentences' starts, and the end, (S + 1,)."""

    @property
    def documents(self) -> NDArray[np.int64]:
        """Sentence offsets of the documents' starts, and the end, (D + 1,)."""


class Example(NamedTuple):
    """A network input before masking."""

    ids: NDArray[np.int32]  # [CLS] A [SEP], or [CLS] A [SEP] B [SEP]
    first: int  # number of tokens up to and including the first [SEP]
    follows: bool  # whether B follows A; true without B


def joined(
    tokenizer: Tokenizer, a: Ids, b: Ids | None = None, follows: bool = True
) -> Example:
    """Return [CLS] A [SEP], followed by B [SEP] if `b` is given."""
    second = [] if b is None else [b, [tokenizer.sep_id]]
    row = np.concatenate([[tokenizer.cls_id], a, [tokenizer.sep_id], *second])
    return Example(row.astype(np.int32), len(a) + 2, follows)


class SegmentSampler:
    """Draws segments that fill `sequence_tokens` as [CLS] A [SEP], uniformly over positions of the store."""

    def __init__(
        self, store: Tokens, tokenizer: Tokenizer, sequence_tokens: int
    ) -> None:
        self.tokens, self.bounds = store.tokens, document_bounds(store)
        self.tokenizer, self.room = tokenizer, sequence_tokens - 2

    def draw(self, rng: np.random.Generator) -> Example:
        """Return one example, determined by the generator's state."""
        position = int(rng.integers(len(self.tokens)))
        document = int(self.bounds.searchsorted(position, "right")) - 1
        low, high = self.bounds[document : document + 2].tolist()
        start = max(low, min(position, high - self.room))
        end = min(high, start + self.room)
        return joined(self.tokenizer, self.tokens[start:end])


class _Start(NamedTuple):
    """A sentence at which A or B can begin."""

    sentence: int
    begin: int  # token offset
    end: int  # of its document
    document: tuple[int, int]  # the sentences of its document


class PairSampler:
    """Draws sentence pairs, [CLS] A [SEP] B [SEP], that fill `sequence_tokens` if documents are long enough.

    A starts at a sentence drawn uniformly from those followed by at least one input's tokens in the document,
    or by half of a shorter document. A takes whole sentences up to about half of the input. B fills the rest,
    with equal probability by the tokens after A or by tokens from a start in another document. In a store of
    one document, that start is at least an input's length from A's; inputs are at most a quarter of the
    document. Both sources limit B's length, so that the length does not reveal the source. Sentences are
    drawn until one is such a start, so that starts need not be listed.
    Raises `DataError` if the store is empty or lacks two such starts.
    """

    def __init__(
        self, store: Tokens, tokenizer: Tokenizer, sequence_tokens: int
    ) -> None:
        self.tokens, self.bounds = store.tokens, document_bounds(store)
        self.sentences, self.documents = store.sentences, store.documents
        self.tokenizer, self.room = tokenizer, sequence_tokens - 3
        lengths = np.diff(self.bounds)
        longer = int((lengths > 1).sum())
        self.only: range | None = None
        """With a single document of more than one token: token offsets of its first and last start."""
        if longer == 1:
            self.room = min(self.room, int(lengths.max()) // 4)
            low, high = self.bounds[lengths.argmax() :][:2].tolist()
            last = int(self.sentences.searchsorted(high - self.room, "right")) - 1
            self.only = range(low, int(self.sentences[last]))
        if (
            not longer
            or self.room < 2
            or (self.only is not None and len(self.only) < self.room)
        ):
            raise DataError(
                f"{store.directory}: next-sentence prediction needs a second document, or a longer one; "
                "set pretraining.next_sentence: false"
            )

    def draw(self, rng: np.random.Generator) -> Example:
        """Return one example, determined by the generator's state."""
        a = self._draw_start(rng)
        while not self._has_others(a):
            a = self._draw_start(rng)
        half = min(self.room, a.end - a.begin) // 2
        middle = self._sentence_end_near(a.sentence, a.begin + half, a.begin + 2 * half)
        follows = bool(rng.random() < 0.5)
        other = self._draw_start(rng, *self._near(a))
        # The tokens after A are cut to the other start's length as well.
        length = min(
            self.room - (middle - a.begin), a.end - middle, other.end - other.begin
        )
        begin = middle if follows else other.begin
        first, second = (
            self.tokens[a.begin : middle],
            self.tokens[begin : begin + length],
        )
        return joined(self.tokenizer, first, second, follows)

    def _draw_start(
        self, rng: np.random.Generator, first: int = 0, last: int = 0
    ) -> _Start:
        """Draw uniformly from the starts that are not among the sentences `first` to `last` - 1."""
        while True:
            sentence = int(rng.integers(len(self.sentences) - 1 - (last - first)))
            if sentence >= first:
                sentence += last - first
            document = int(self.documents.searchsorted(sentence, "right")) - 1
            low, high = self.bounds[document : document + 2].tolist()
            begin = int(self.sentences[sentence])
            needed = self.room
            if high - low < self.room:
                needed = max((high - low + 1) // 2, 2)
            if high - begin >= needed:
                beside = self.documents[document : document + 2].tolist()
                return _Start(sentence, begin, high, tuple(beside))

    def _has_others(self, start: _Start) -> bool:
        """Return whether there are starts that are not near this one."""
        if self.only is None:
            return True
        distance = max(start.begin - self.only.start, self.only.stop - start.begin)
        return distance >= self.room

    def _near(self, start: _Start) -> tuple[int, int]:
        """Return the range of the sentences near a start: of its document, or within an input's length."""
        if self.only is None:
            return start.document
        first = int(self.sentences.searchsorted(start.begin - self.room, "right"))
        last = int(self.sentences.searchsorted(start.begin + self.room))
        return first, min(last, len(self.sentences) - 1)

    def _sentence_end_near(self, sentence: int, target: int, limit: int) -> int:
        """Return the last sentence end up to `target`, else the first one after it, else `target`."""
        ends = self.sentences
        after = int(ends.searchsorted(target, "right"))
        if after - 1 > sentence:
            return int(ends[after - 1])
        if after < len(ends) and int(ends[after]) < limit:
            return int(ends[after])
        return target


def document_bounds(store: Tokens, tokens: int | None = None) -> NDArray[np.int64]:
    """Return the token offsets of document boundaries, (D + 1,), with `tokens` only of the documents with the
    first `tokens` tokens; `DataError` for an empty store."""
    if not len(store.tokens):
        raise DataError(f"{store.directory}: the token store contains no sentences")
    documents = store.documents
    if tokens is not None:
        last = int(store.sentences.searchsorted(tokens))
        documents = documents[: int(store.documents.searchsorted(last)) + 1]
    return np.asarray(store.sentences[np.asarray(documents)])


Sampler = SegmentSampler | PairSampler


def sampler(
    store: Tokens, tokenizer: Tokenizer, sequence_tokens: int, next_sentence: bool
) -> Sampler:
    """Return a sampler of sentence pairs for next-sentence prediction, else of segments."""
    kind = PairSampler if next_sentence else SegmentSampler
    return kind(store, tokenizer, sequence_tokens)
