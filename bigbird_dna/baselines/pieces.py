"""Documents of tokens as bases."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.baselines.markov_counts import UNKNOWN
from bigbird_dna.tokens.interface import BASES, Tokenizer

_BATCH = 1 << 22  # bases of documents that are put together

Ids = NDArray[np.integer]


class Stretches(NamedTuple):
    """The bases of documents, an N between two, and those that hidden tokens cover."""

    codes: NDArray[np.uint8]  # A 0, C 1, G 2, T 3, N 4
    starts: NDArray[np.int64]  # (M,) ascending
    ends: NDArray[np.int64]  # (M,)

    def apart(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Bases between each stretch and the one before it, and the one behind it, (M,) each."""
        gaps = self.starts[1:] - self.ends[:-1]
        size = len(self.codes)
        return np.append(size, gaps)[: len(self.starts)], np.append(gaps, size)[-len(self.starts) :]


class PieceBases:
    """Turns token ids into base codes."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.lengths = tokenizer.piece_lengths.astype(np.int64)  # (V,)
        covering = np.flatnonzero(self.lengths)
        letters = "".join(tokenizer.decode([index]) for index in covering.tolist())
        table = np.full(256, UNKNOWN, np.uint8)
        table[np.frombuffer(BASES.encode(), np.uint8)] = np.arange(4)
        self._codes = table[np.frombuffer(letters.encode(), np.uint8)]
        assert len(self._codes) == self.lengths.sum()
        self._starts = np.cumsum(self.lengths) - self.lengths

    def codes(self, document: Ids) -> NDArray[np.uint8]:
        """Base codes of a document, (bases,)."""
        lengths = self.lengths[document]
        ends = np.cumsum(lengths)
        where = np.repeat(self._starts[document] - ends + lengths, lengths)
        return self._codes[where + np.arange(len(where))]

    def batches(self, documents: Sequence[Ids], hidden: Iterable[Ids]) -> Iterator[Stretches]:
        """Documents put together, some megabases at a time, with the stretches of their hidden tokens."""
        parts: list[Stretches] = []
        size = 0
        for document, places in zip(documents, hidden, strict=True):
            ends = np.cumsum(self.lengths[document])
            parts.append(
                Stretches(
                    np.append(self.codes(document), np.uint8(UNKNOWN)),
                    size + (ends - self.lengths[document])[places],
                    size + ends[places],
                )
            )
            size += len(parts[-1].codes)
            if size >= _BATCH:
                yield Stretches(*map(np.concatenate, zip(*parts, strict=True)))
                parts, size = [], 0
        if parts:
            yield Stretches(*map(np.concatenate, zip(*parts, strict=True)))
