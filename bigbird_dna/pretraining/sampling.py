"""Inputs of pretraining, drawn from a token store: segments of a document, or pairs of them."""

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


class SegmentSampler:
    """Draws segments that fill `sequence_tokens` with [CLS] A [SEP], each place of the store as likely."""

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
    """Draws sentence pairs, [CLS] A [SEP] B [SEP], that fill `sequence_tokens` where documents have as much.

    A starts at a sentence drawn uniformly from those with an input's tokens ahead in their document, or half
    of a document that is shorter. It takes whole sentences up to about half of the room, B fills the rest:
    with what follows A, or (every second time) from a start in another document; in a store's only one, from
    a start that is as far from A's as an input is long, which is a quarter of the document at most. B is as
    long as both what follows A and the other place allow, so that its length doesn't tell which it is.
    `DataError`: the store is empty, or has no two such starts.
    """

    def __init__(self, store: Tokens, tokenizer: Tokenizer, sequence_tokens: int) -> None:
        self.store, self.tokenizer = store, tokenizer
        self.room = sequence_tokens - 3
        self.bounds = document_bounds(store)
        lengths = np.diff(self.bounds)
        self.only_one = int((lengths > 1).sum()) == 1
        if self.only_one:
            self.room = min(self.room, int(lengths.max()) // 4)
        least = np.where(lengths >= self.room, self.room, np.maximum((lengths + 1) // 2, 2))
        sizes = np.diff(store.documents)
        ahead = np.repeat(self.bounds[1:], sizes) - store.sentences[:-1]
        self.starts = np.flatnonzero(ahead >= np.repeat(least, sizes))  # sentences
        if self.only_one:
            first, last = self._near(self.starts)
            self.starts = self.starts[last - first < len(self.starts)]
        if not len(self.starts) or self.room < 2:
            raise DataError(
                f"{store.directory}: next sentences need a second document, or a longer one: "
                "pretraining.next_sentence: false does without"
            )
        ahead = ahead[self.starts]
        self.fewest = int(ahead.min())
        """Tokens that every start has ahead."""
        begins = store.sentences[self.starts]
        reached = np.minimum(begins + np.minimum(ahead, self.room), np.append(begins[1:], self.bounds[-1]))
        self.share = float((reached - begins).sum() / self.bounds[-1])
        """Of the store's tokens, those that an input can reach."""

    def draw(self, rng: np.random.Generator) -> Example:
        number = int(rng.integers(len(self.starts)))
        start, end = self._place(number)
        half = min(self.room, end - start) // 2
        middle = self._sentence_end_near(int(self.starts[number]), start + half, start + 2 * half)
        length = min(self.room - (middle - start), end - middle)
        follows = bool(rng.random() < 0.5)
        begin = middle
        if not follows or length > self.fewest:
            # Of what follows, too, no more is taken than the other place has.
            other, stop = self._place(self._elsewhere(number, rng))
            length = min(length, stop - other)
            begin = middle if follows else other
        tokens = self.store.tokens
        a, b = np.asarray(tokens[start:middle]), np.asarray(tokens[begin : begin + length])
        return joined(self.tokenizer, a, b, follows)

    def _place(self, number: int) -> tuple[int, int]:
        """The token that a start is at, and the end of its document."""
        sentence = self.starts[number]
        document = self.store.documents.searchsorted(sentence, side="right")
        return int(self.store.sentences[sentence]), int(self.bounds[document])

    def _elsewhere(self, number: int, rng: np.random.Generator) -> int:
        """A start that is not near one, each as likely."""
        other = int(rng.integers(len(self.starts)))
        (first,), (last,) = self._near(self.starts[number : number + 1])
        if not first <= other < last:
            return other
        other = int(rng.integers(len(self.starts) - (last - first)))
        return int(other + (last - first) * (other >= first))

    def _near(self, sentences: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """The starts near each of some sentences (n,): the number of the first (n,), and the end (n,)."""
        store = self.store
        first: Ids
        last: Ids
        if self.only_one:
            places = store.sentences[sentences]
            first = store.sentences.searchsorted(places - self.room, side="right")
            last = store.sentences.searchsorted(places + self.room)
        else:
            document = store.documents.searchsorted(sentences, side="right")
            first, last = store.documents[document - 1], store.documents[document]
        return self.starts.searchsorted(first), self.starts.searchsorted(last)

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
    """Of pairs if next sentences are learnt, of segments if not."""
    return (PairSampler if next_sentence else SegmentSampler)(store, tokenizer, sequence_tokens)
