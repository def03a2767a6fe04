"""Baselines of the language model on hidden tokens, for comparison with masked language models.

All are evaluated on the same hidden tokens, in bits for the bases of each token. They have the same input as
a masked-token model: hidden tokens are unknown to each other. Strengths and exponents are chosen on
hidden validation tokens: if these are also the evaluated ones, this favors the baselines.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.baselines.markov import Markov
from bigbird_dna.baselines.ngram import (
    Floats,
    MaskedTokens,
    Tokens,
    TwoSidedBigram,
)
from bigbird_dna.console import log
from bigbird_dna.data.predictions import UNIFORM
from bigbird_dna.genome.sequence import UNKNOWN, base_codes
from bigbird_dna.tokens.interface import Tokenizer

UNIGRAM = "unigram tokens"
TOKENS_BOTH = "token n-gram, both sides"
BASES_BOTH = "Markov over bases, both sides"

MOST_TOKENS = 12_000_000  # of training, for n-grams


class LanguageBaselines:
    """Predictors of hidden tokens: uniform, token frequencies, and two-sided models of tokens and of bases."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.vocabulary = tokenizer.vocabulary
        self.candidates = tokenizer.base_ids.astype(np.int64)
        self.lengths = tokenizer.piece_lengths.astype(np.int64)  # (V,) bases
        self._codes = np.full((self.vocabulary, self.lengths.max()), UNKNOWN, np.uint8)
        for token in np.flatnonzero(self.lengths).tolist():
            bases = base_codes(tokenizer.decode([token]))
            self._codes[token, : len(bases)] = bases
        self.notes: dict[str, str] = {}  # the chosen parameters by predictor

    def fit(
        self,
        training: Sequence[Tokens],
        validation: MaskedTokens,
        *,
        both_strands: bool = True,
    ) -> Self:
        """Fit all predictors to documents, and choose their parameters on hidden validation tokens.

        Parameters
        ----------
        training
            Token ids of documents, each (n,). N-grams learn from at most `MOST_TOKENS` of evenly spaced ones.
        validation
            Documents with hidden tokens.
        both_strands
            The Markov model also counts the reverse complement of the documents; n-grams need documents of
            both strands instead.

        Raises
        ------
        ValueError
            There is no training token, or no hidden validation token.
        """
        if not any(map(len, validation.hidden)):
            raise ValueError("baselines need at least one hidden validation token")

        total = sum(map(len, training))
        count = min(int(len(training) * MOST_TOKENS / max(total, 1)), len(training))
        evenly = (np.arange(count) + 0.5) * len(training) / max(count, 1)

        documents = [training[index] for index in evenly.astype(int).tolist()]
        tokens = sum(map(len, documents))
        log(f"n-grams over tokens: training on {tokens:,} of {total:,} tokens")
        self.notes = {UNIFORM: "2 bits per base", UNIGRAM: "token frequencies"}

        self.both = TwoSidedBigram(self.vocabulary, self.candidates)
        self.both.fit(documents, validation)
        exponents = ", ".join(f"{value:.2f}" for value in self.both.exponents)
        self.notes[TOKENS_BOTH] = f"Kneser–Ney, order 2, exponents {exponents}"

        log(f"Markov model over bases: counting in {len(training):,} documents")
        self.markov = Markov().fit(
            map(self.bases, training),
            map(self.bases, validation.documents),
            both_strands,
        )
        strands = "both strands" if both_strands else "one strand"
        self.notes[BASES_BOTH] = f"order {self.markov.order}, {strands}"
        return self

    def bases(self, document: Tokens) -> NDArray[np.uint8]:
        """Return the base codes of a document, (bases,)."""
        covered = np.arange(self._codes.shape[1]) < self.lengths[document][:, None]
        return self._codes[document][covered]

    def bits(self, masked: MaskedTokens) -> dict[str, Floats]:
        """Return the bits (M,) of hidden tokens by predictor, document by document."""
        hidden = [np.zeros(0, np.int64)]
        for document, positions in zip(*masked, strict=True):
            hidden.append(document[positions].astype(np.int64))
        tokens = np.concatenate(hidden)
        return {
            UNIFORM: 2.0 * self.lengths[tokens],
            UNIGRAM: -np.log2(self.both.frequencies[tokens]),
            TOKENS_BOTH: self.both.bits(masked),
            BASES_BOTH: self._markov_bits(masked),
        }

    def _markov_bits(self, masked: MaskedTokens) -> Floats:
        order = self.markov.order
        offsets = np.arange(order)
        left, right = [], []
        tokens = []
        for document, positions in zip(*masked, strict=True):
            # The bases of hidden tokens are N, as those beyond both ends.
            sizes = self.lengths[document]
            ends = order + np.cumsum(sizes)
            codes = self.bases(document)
            codes[np.isin(np.repeat(np.arange(len(document)), sizes), positions)] = (
                UNKNOWN
            )
            codes = np.pad(codes, order, constant_values=UNKNOWN)
            starts = ends - sizes
            left.append(codes[starts[positions, None] - order + offsets])
            right.append(codes[ends[positions, None] + offsets])
            tokens.append(document[positions].astype(np.int64))

        hidden = np.concatenate(tokens)
        before, behind = np.concatenate(left), np.concatenate(right)
        bits = np.zeros(len(hidden))
        for length in np.unique(self.lengths[hidden]):
            rows = np.flatnonzero(self.lengths[hidden] == length)
            spans = self._codes[hidden[rows], :length]
            bits[rows] = self.markov.two_sided(before[rows], spans, behind[rows])

        return bits
