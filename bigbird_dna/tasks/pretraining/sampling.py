"""Inputs of pretraining, drawn from a token store: stretches of a document, or pairs of them."""

from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.errors import DataError
from bigbird_dna.tokens.interface import Tokenizer

Ids = NDArray[np.integer]


class Tokens(Protocol):
    """Tokens of documents one after the other, as a `TokenStore` has them."""

    @property
    def directory(self) -> Path:
        """Names them in errors."""

    @property
    def tokens(self) -> Ids:
        """Token ids (N,)."""

    @property
    def sentences(self) -> NDArray[np.integer]:
        """Where sentences begin among the tokens, and the end, (S + 1,)."""

    @property
    def documents(self) -> NDArray[np.integer]:
        """Where documents begin among the sentences, and the end, (D + 1,)."""


class Example(NamedTuple):
    """An input of the network before tokens are hidden."""

    ids: NDArray[np.int32]  # [CLS] A [SEP], or [CLS] A [SEP] B [SEP]
    first: int  # tokens up to and with the first [SEP]
    follows: bool  # whether B follows A; true without B


class Sampler(Protocol):
    """Draws examples of a length."""

    def draw(self, rng: np.random.Generator) -> Example:
        """One example, a function of the generator's state."""


def joined(tokenizer: Tokenizer, a: Ids, b: Ids | None = None, follows: bool = True) -> Example:
    """[CLS] A [SEP], and B [SEP] behind it if there is one."""
    second = [] if b is None else [b, [tokenizer.sep_id]]
    row = np.concatenate([[tokenizer.cls_id], a, [tokenizer.sep_id], *second])
    return Example(row.astype(np.int32), len(a) + 2, follows)


class StretchSampler:
    """Draws stretches that fill `sequence_tokens` with [CLS] A [SEP], each place of the store as likely."""

    def __init__(self, store: Tokens, tokenizer: Tokenizer, sequence_tokens: int) -> None:
        self.store, self.tokenizer = store, tokenizer
        self.room = sequence_tokens - 2
        self.bounds = document_bounds(store)

    def draw(self, rng: np.random.Generator) -> Example:
        place = int(rng.integers(len(self.store.tokens)))
        document = int(np.searchsorted(self.bounds, place, side="right")) - 1
        low, high = int(self.bounds[document]), int(self.bounds[document + 1])
        start = max(low, min(place, high - self.room))
        return joined(self.tokenizer, np.asarray(self.store.tokens[start : min(high, start + self.room)]))


class PairSampler:
    """Draws sentence pairs that fill `sequence_tokens` with [CLS] A [SEP] B [SEP].

    A starts at a sentence drawn uniformly and takes whole sentences up to about half of the room, B fills
    the rest: with the sentences after A, or (every second time) with those from a random place.
    """

    def __init__(self, store: Tokens, tokenizer: Tokenizer, sequence_tokens: int) -> None:
        self.store, self.tokenizer = store, tokenizer
        self.room = sequence_tokens - 3
        document_bounds(store)
        # Tokens from each sentence's start to the end of its document.
        document_ends = store.sentences[store.documents[1:]]
        sizes = np.diff(store.documents)
        starts = store.sentences[:-1]
        self.document_end = np.repeat(document_ends, sizes)  # (S,)
        ahead = self.document_end - starts
        self.full = np.flatnonzero(ahead >= self.room)
        if not len(self.full):
            # Documents shorter than the input: take what there is.
            self.full = np.flatnonzero(ahead >= min(self.room, int(ahead.max(initial=0))))

    def draw(self, rng: np.random.Generator) -> Example:
        sentence = int(self.full[rng.integers(len(self.full))])
        start, end = int(self.store.sentences[sentence]), int(self.document_end[sentence])
        half = min(self.room, end - start) // 2
        middle = self._sentence_end_near(sentence, start + half, start + 2 * half)
        room_b = self.room - (middle - start)
        follows = bool(rng.random() < 0.5)
        begin, stop = middle, end
        if not follows:
            other = int(self.full[rng.integers(len(self.full))])
            begin, stop = int(self.store.sentences[other]), int(self.document_end[other])
        tokens = self.store.tokens
        a, b = np.asarray(tokens[start:middle]), np.asarray(tokens[begin : min(stop, begin + room_b)])
        return joined(self.tokenizer, a, b, follows)

    def _sentence_end_near(self, sentence: int, target: int, limit: int) -> int:
        """The last sentence end at or before `target`, the first one after it, or `target` itself."""
        ends = self.store.sentences
        after = int(np.searchsorted(ends, target, side="right"))
        if after - 1 > sentence:
            return int(ends[after - 1])
        if after < len(ends) and int(ends[after]) < limit:
            return int(ends[after])
        return target


def document_bounds(store: Tokens) -> NDArray[np.int64]:
    """Where documents begin and end among the store's tokens, (D + 1,); `DataError` for an empty store."""
    bounds = np.asarray(store.sentences[store.documents])
    if len(bounds) < 2 or bounds[-1] < 1:
        raise DataError(f"{store.directory}: the token store holds no sentences")
    return bounds


def sampler(store: Tokens, tokenizer: Tokenizer, sequence_tokens: int, next_sentence: bool) -> Sampler:
    """Of pairs if next sentences are learnt, of stretches if not."""
    kind = PairSampler if next_sentence else StretchSampler
    return kind(store, tokenizer, sequence_tokens)
