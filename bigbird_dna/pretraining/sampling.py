"""Pretraining inputs drawn from a token store."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.errors import DataError
from bigbird_dna.tokens.interface import Tokenizer
from bigbird_dna.tokens.store import TokenStore

Ids = NDArray[np.integer]


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
        self, store: TokenStore, tokenizer: Tokenizer, sequence_tokens: int
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


class PairSampler:
    """Draws sentence pairs, [CLS] A [SEP] B [SEP], that fill `sequence_tokens` if documents are long enough.

    A starts at a sentence drawn uniformly from those followed by at least one input's tokens in the document,
    or by half of a shorter document. A takes whole sentences up to about half of the input. B fills the rest,
    with equal probability by the tokens after A or by tokens from a start in another document. Both sources
    limit B's length, so that the length does not reveal the source. Sentences are drawn until one is such a
    start, so that starts need not be listed. Raises `DataError` if there are less than two documents.
    """

    def __init__(
        self, store: TokenStore, tokenizer: Tokenizer, sequence_tokens: int
    ) -> None:
        self.tokens, self.bounds = store.tokens, document_bounds(store)
        self.sentences, self.documents = store.sentences, store.documents
        self.tokenizer, self.room = tokenizer, sequence_tokens - 3
        if (np.diff(self.bounds) > 1).sum() < 2:
            raise DataError(
                f"{store.directory}: next-sentence prediction needs a second document; set "
                "pretraining.next_sentence: false"
            )

    def draw(self, rng: np.random.Generator) -> Example:
        """Return one example, determined by the generator's state."""
        sentence, begin, end = self._draw_start(rng)
        half = min(self.room, end - begin) // 2
        # The last sentence end up to the middle, else the first one after it, else the middle.
        middle = begin + half
        after = int(self.sentences.searchsorted(middle, "right"))
        if after - 1 > sentence:
            middle = int(self.sentences[after - 1])
        elif after < len(self.sentences) and self.sentences[after] < begin + 2 * half:
            middle = int(self.sentences[after])

        follows = bool(rng.random() < 0.5)
        document = int(self.documents.searchsorted(sentence, "right")) - 1
        _, other, other_end = self._draw_start(rng, document)
        # The tokens after A are cut to the other start's length as well.
        length = min(self.room - (middle - begin), end - middle, other_end - other)
        b = middle if follows else other
        return joined(
            self.tokenizer,
            self.tokens[begin:middle],
            self.tokens[b : b + length],
            follows,
        )

    def _draw_start(
        self, rng: np.random.Generator, excluded: int | None = None
    ) -> tuple[int, int, int]:
        """Draw uniformly from the starts that are not in the `excluded` document; return the sentence, its
        token offset and the end of its document."""
        first, last = 0, 0
        if excluded is not None:
            first, last = self.documents[excluded : excluded + 2].tolist()

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
                return sentence, begin, high


def document_bounds(store: TokenStore, tokens: int | None = None) -> NDArray[np.int64]:
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
    store: TokenStore, tokenizer: Tokenizer, sequence_tokens: int, next_sentence: bool
) -> Sampler:
    """Return a sampler of sentence pairs for next-sentence prediction, else of segments."""
    kind = PairSampler if next_sentence else SegmentSampler
    return kind(store, tokenizer, sequence_tokens)
