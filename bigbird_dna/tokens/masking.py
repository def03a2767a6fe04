"""Which tokens of an input are masked (BERT's 80/10/10 rule; App. F.1 masks 15 %) and are predicted."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.tokens.interface import Tokenizer

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
