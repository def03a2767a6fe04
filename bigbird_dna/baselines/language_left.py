"""What simple predictors know of the next token: the rivals of a causal model.

They see every token, or base, to the left of the one in question, from its document's beginning on, which is
more than a causal model sees of an input. Orders and strengths are chosen on validation tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bigbird_dna.baselines.language import (
    BASES_LEFT,
    CHOOSING_TOKENS,
    MEMORY,
    TOKENS_LEFT,
    UNIGRAM,
    BaseModel,
    Ids,
    Judged,
    best_base_order,
    fit_bases,
)
from bigbird_dna.baselines.language_tokens import HeldOut, evenly, fit_left_model, left_bits
from bigbird_dna.baselines.markov import LARGEST_ORDER
from bigbird_dna.baselines.ngram import KneserNey
from bigbird_dna.baselines.pieces import PieceBases
from bigbird_dna.reporting.language_model.table import UNIFORM
from bigbird_dna.tokens.interface import Tokenizer

LEFT_PREDICTORS = (UNIFORM, UNIGRAM, TOKENS_LEFT, BASES_LEFT)


@dataclass(frozen=True)
class LeftBaselines:
    """Fitted predictors; `fit_left_baselines` makes them."""

    tokens: KneserNey
    unigram: KneserNey
    bases: BaseModel
    base_order: int
    both_strands: bool

    def judge(self, held_out: HeldOut) -> Judged:
        """Bits of tokens; `ValueError` for one that is not made of A, C, G and T alone."""
        ids = [document[places] for document, places in zip(*held_out, strict=True)]
        bases = self.bases.pieces.lengths[np.concatenate([np.zeros(0, np.int64), *ids])]
        bits = {
            UNIFORM: 2.0 * bases,
            UNIGRAM: left_bits(self.unigram, held_out, told=True),
            TOKENS_LEFT: left_bits(self.tokens, held_out, told=True),
            BASES_LEFT: self.bases.bits(held_out, self.base_order, both=False, told=True),
        }
        return Judged(bits, bases, self.notes())

    def notes(self) -> dict[str, str]:
        """What was chosen, by predictor."""
        strands = "both strands" if self.both_strands else "one strand"
        return {
            UNIFORM: "2 bits a base",
            UNIGRAM: "frequencies of tokens",
            TOKENS_LEFT: f"Kneser–Ney, order {self.tokens.order}",
            BASES_LEFT: f"order {self.base_order}, {strands}",
        }


def fit_left_baselines(
    training: Sequence[Ids],
    validation: HeldOut,
    tokenizer: Tokenizer,
    *,
    token_order: int = 6,
    base_order: int = LARGEST_ORDER,
    both_strands: bool = True,
    memory: int = MEMORY,
) -> LeftBaselines:
    """Fit an n-gram over tokens and a Markov model over bases; arguments and errors as of
    `fit_language_baselines`."""
    hidden = sum(map(len, validation.hidden))
    if not hidden:
        raise ValueError("baselines are chosen on validation tokens, and there are none")
    chosen = np.asarray(evenly(hidden, CHOOSING_TOKENS / hidden))
    tokens, unigram = fit_left_model(training, validation, chosen, tokenizer, token_order, memory)
    bases = fit_bases(training, validation, PieceBases(tokenizer), base_order, both_strands)
    order = best_base_order(bases, validation, chosen, base_order, both=False, told=True)
    return LeftBaselines(tokens, unigram, bases, order, both_strands)
