"""Likelihoods of variants under a masked-token model, without training on effects ("zero-shot").

The value of an allele is ln p(ALT | context) − ln p(REF | context), in natural logarithms. Both haplotypes
are cut at the same genome positions, `context` bp around the change, and tokenized as a whole, as in
training. Tokens that the two have in common at either end are visible. The other tokens are masked together,
and

    ln p(haplotype | context) = Σ_i ln p(token i | visible tokens)

with the model's softmax over the tokens that consist of bases. The number of masked tokens is visible to the
model: haplotypes of different lengths are compared by the probability of their tokens given this number, and
long insertions have low values. The value is the mean over both strands and several offsets of the window, at
which token boundaries differ. The standard deviation over them, `spread`, measures how far the value depends
on the boundaries.

An insertion or deletion in a repeat can be written at several positions. The window surrounds all of them, so
that neither the form of a record nor the strand of the reference has an effect.

On a validation contig of yeast, masking all tokens together separated changes of start codons, stop codons
and splice sites from synonymous changes better than predicting tokens from left to right or one at a time
(docs/results/yeast.md).

Shapes: W windows of an allele (offsets x strands), N inputs, M masked tokens, V vocabulary.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from bigbird_dna.errors import (
    ModelError,
    UsageError,
    check_at_least_one,
    check_fraction,
    check_whole,
)
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import Interval, reverse_complement
from bigbird_dna.genome.variants import (
    AlleleWindows,
    Change,
    Note,
    right_shift,
    window_offsets,
)
from bigbird_dna.model.batching import run_rows
from bigbird_dna.model.heads import PretrainingNetwork
from bigbird_dna.model.inference import choose_device
from bigbird_dna.model.model import LoadedModel
from bigbird_dna.scoring.regions import (
    Genome,
    Variants,
    allele_table,
    opened,
    read_variants,
)
from bigbird_dna.scoring.variant_effects import (
    EffectKind,
    InfoKey,
    Place,
    check_offsets,
    decimal,
    score_records,
)
from bigbird_dna.tokens.interface import Tokenizer, require_dna

CONTEXT = 100
"""Default number of bp on both sides of a change."""

_ROUNDING = 1e-3  # of a probability of 1, in any precision
Tokens = tuple[int, ...]


class MaskedHaplotype(NamedTuple):
    """An input in which the adjacent tokens between `before` and `after` are masked."""

    before: Tokens
    hidden: Tokens
    after: Tokens

    @property
    def visible(self) -> tuple[Tokens, int, Tokens]:
        """What determines the model's input: the visible tokens, and the number of masked ones."""
        return self.before, len(self.hidden), self.after


def haplotype_windows(
    change: Change, reference: Reference, context: int, offsets: Sequence[int]
) -> AlleleWindows:
    """Return windows with each allele, from `context + offset` bp before to `context − offset` bp after it.

    An insertion or deletion extends from the leftmost to the rightmost position at which it can be written.
    The reverse complements of reference and change give the reverse complements of the windows, for offsets
    that are symmetric about 0. Positions beyond the contig are N.
    """
    contig, start, ref, alt = change
    end = start + len(ref)
    shift = right_shift(change, reference)
    lefts, rights = (
        [context + sign * offset for offset in offsets] for sign in (1, -1)
    )
    left = reference.fetch(Interval(contig, start - max(lefts), start))
    right = reference.fetch(Interval(contig, end, end + shift + max(rights)))
    sizes = list(zip(lefts, rights, strict=True))
    first, second = (
        tuple(
            left[len(left) - before :] + allele + right[: shift + after]
            for before, after in sizes
        )
        for allele in (ref, alt)
    )
    beyond = start < max(lefts) or end + shift + max(rights) > reference.contigs[contig]
    return AlleleWindows(first, second, beyond)


def mask_difference(
    tokenizer: Tokenizer, ref: str, alt: str, room: int, phase: int = 0
) -> tuple[MaskedHaplotype, MaskedHaplotype] | None:
    """Mask the tokens in which two haplotypes differ; both inputs have the same visible tokens.

    An input has at most `room` tokens, those nearest to the masked ones; None: there are more masked ones.
    `ModelError`: the tokenizer has no token for one of the differing bases. `phase` as in
    `Tokenizer.split_batch`.
    """
    rows = tokenizer.split_batch([ref, alt], phase)
    shorter = min(map(len, rows))
    low = _alike(*(row[:shorter] for row in rows))
    high = min(_alike(*(row[::-1][:shorter] for row in rows)), shorter - low)
    hidden = [row[low : len(row) - high] for row in rows]
    if not np.isin(np.concatenate(hidden), tokenizer.base_ids).all():
        raise ModelError(f"{tokenizer.source}: the vocabulary lacks a token for a base")
    spare = room - max(map(len, hidden))
    if spare < 0:
        return None
    before = tuple(rows[0][:low][max(0, low - spare // 2) :].tolist())
    after = tuple(rows[0][len(rows[0]) - high :][: spare // 2].tolist())
    first, second = (
        MaskedHaplotype(before, tuple(one.tolist()), after) for one in hidden
    )
    return first, second


def _alike(one: NDArray[np.int32], other: NDArray[np.int32]) -> int:
    """Return the number of equal tokens at the start of two rows of the same length."""
    differ = np.flatnonzero(one != other)
    return int(differ[0]) if len(differ) else len(one)


def masked_log_likelihoods(
    model: LoadedModel,
    inputs: Sequence[MaskedHaplotype],
    *,
    batch_size: int = 32,
    device: str = "auto",
) -> NDArray[np.float32]:
    """Return the natural log-probability (N,) of the masked tokens of each input.

    A value depends on no other input; inputs with the same visible tokens are computed once.
    """
    place = choose_device(device)
    network, tokenizer = model.network.to(place).eval(), model.tokenizer
    assert isinstance(network, PretrainingNetwork)
    own: dict[tuple[Tokens, int, Tokens], list[int]] = {}
    for number, one in enumerate(inputs):
        if one.hidden:
            own.setdefault(one.visible, []).append(number)
    keys, most = list(own), max(map(len, own.values()), default=0)
    ends = ([tokenizer.cls_id], [tokenizer.sep_id])
    rows = [
        np.array(
            [*ends[0], *before, *[tokenizer.mask_id] * count, *after, *ends[1]],
            np.int32,
        )
        for before, count, after in keys
    ]
    of_bases = torch.from_numpy(np.array(tokenizer.base_ids, np.int64)).to(place)

    def run(ids: Tensor, lengths: Tensor, chosen: NDArray[np.intp]) -> Tensor:
        some = [keys[number] for number in chosen.tolist()]
        flat = [
            torch.arange(count, device="cpu") + (row * ids.shape[1] + 1 + len(before))
            for row, (before, count, _) in enumerate(some)
        ]
        logits: Tensor = network(
            ids, lengths, None, torch.cat(flat).to(ids.device)
        ).tokens.float()  # (M, V)
        logits = logits - logits[:, of_bases].logsumexp(1, keepdim=True)
        found = torch.zeros((len(some), most), device=ids.device)
        for row, scores in enumerate(
            torch.split(logits, [count for _, count, _ in some])
        ):
            hidden = torch.tensor(
                [inputs[number].hidden for number in own[some[row]]], device=ids.device
            )
            found[row, : len(hidden)] = scores.gather(1, hidden.T).sum(0)
        return found

    values = run_rows(
        network,
        rows,
        run,
        pad_id=tokenizer.pad_id,
        batch_size=batch_size,
        device=place,
        empty=(most,),
    )
    result = np.zeros(len(inputs), np.float32)
    for numbers, found in zip(own.values(), values, strict=True):
        result[numbers] = found[: len(numbers)]
    return result


class LikelihoodEffect(NamedTuple):
    """Effect of an allele: the log-ratio and its spread over windows; None if the allele was not scored."""

    notes: tuple[str, ...]
    delta: float | None
    spread: float | None


WindowRows = tuple[list[int], list[int]]
"""The rows (W,) of the reference and of the alternative haplotype."""


@dataclass(frozen=True)
class LikelihoodEffects(EffectKind[WindowRows, LikelihoodEffect]):
    """Log-ratios of the likelihoods of ALT and REF; see the module.

    Predictions are (N,) log-probabilities of `MaskedHaplotype`. `offsets` are shifts in bp, symmetric about
    0; an input has at most `most` tokens with [CLS] and [SEP].
    """

    batches = (64, 512)
    columns: ClassVar[Sequence[str]] = ("log_ratio", "spread")
    keys: ClassVar[Sequence[InfoKey]] = (
        InfoKey(
            "LOGRATIO",
            "A",
            "Float",
            "Natural log-likelihood of ALT minus that of REF, given the context",
        ),
        InfoKey(
            "SPREAD",
            "A",
            "Float",
            "Standard deviation of LOGRATIO over both strands and all offsets",
        ),
    )

    tokenizer: Tokenizer
    context: int
    offsets: Sequence[int]
    most: int

    def windows(
        self, change: Change, reference: Reference, max_n: float, place: Place
    ) -> tuple[tuple[str, ...], WindowRows | None]:
        room = self.most - 2
        if max(len(change.ref), len(change.alt)) > room * int(
            self.tokenizer.piece_lengths.max()
        ):
            return (Note.TOO_LONG,), None
        windows = haplotype_windows(change, reference, self.context, self.offsets)
        edge = (Note.CONTIG_EDGE,) if windows.reaches_beyond else ()
        if windows.largest_n_fraction > max_n:
            return (Note.TOO_MANY_N, *edge), None
        pairs = [
            mask_difference(self.tokenizer, *texts, room)
            for texts in _both_strands(windows)
        ]
        masked = [pair for pair in pairs if pair is not None]
        if len(masked) < len(pairs):
            return (Note.TOO_LONG, *edge), None
        return edge, (place(ref for ref, _ in masked), place(alt for _, alt in masked))

    def is_valid(self, predicted: NDArray[np.float32]) -> bool:
        return bool((np.isfinite(predicted) & (predicted <= _ROUNDING)).all())

    def effect(
        self,
        notes: tuple[str, ...],
        rows: WindowRows | None,
        values: NDArray[np.float32],
    ) -> LikelihoodEffect:
        if rows is None:
            return LikelihoodEffect(notes, None, None)
        ref, alt = (values[some].astype(np.float64) for some in rows)
        ratios = np.sort(
            alt - ref
        )  # sums of another order would have other last digits
        return LikelihoodEffect(notes, float(ratios.mean()), float(ratios.std()))

    def row(self, effect: LikelihoodEffect, missing: str = "NA") -> Sequence[str]:
        if effect.delta is None or effect.spread is None:
            return [missing] * len(self.columns)
        return decimal(effect.delta), decimal(effect.spread)


def _both_strands(windows: AlleleWindows) -> Iterator[tuple[str, str]]:
    for ref, alt in zip(windows.ref, windows.alt, strict=True):
        yield ref, alt
        yield reverse_complement(ref), reverse_complement(alt)


def check_masked(model: LoadedModel) -> None:
    """Raise `ModelError` unless the model is a pretrained masked-token model of DNA."""
    if model.task != "pretraining":
        raise ModelError(
            f"{model.name}: needs a pretrained model, found a {model.task} model"
        )
    if model.config.causal:
        raise ModelError(
            f"{model.name}: a causal model reads from left to right only; a masked-token model is needed"
        )
    require_dna(model.tokenizer)


def likelihood_effects(
    model: LoadedModel, offsets: int, context: int
) -> LikelihoodEffects:
    """Return the effects under a masked-token model; `UsageError` if offsets or context are out of range.

    `ModelError`: the model is causal, or its tokenizer is one of ordinary text.
    """
    check_masked(model)
    check_offsets(offsets)
    check_whole("context", context)
    places, most = window_offsets(offsets), model.config.max_length
    if not places[-1] < context:
        raise UsageError(
            f"context {context}: must be more than {places[-1]} bp with {offsets} offsets"
        )
    if context > most * int(model.tokenizer.piece_lengths.max()):
        raise UsageError(
            f"context {context}: more than {model.name} reads, {most:,} tokens"
        )
    return LikelihoodEffects(model.tokenizer, context, places, most)


def log_ratios(
    model: LoadedModel,
    variants: Variants,
    reference: Genome,
    *,
    aliases: str | os.PathLike[str] | None = None,
    offsets: int = 4,
    context: int = CONTEXT,
    max_n: float = 0.25,
    batch_size: int = 32,
    device: str = "auto",
) -> pd.DataFrame:
    """Return the log-ratio of the likelihoods of ALT and REF for each variant, as `score-variants`.

    Parameters
    ----------
    model
        A pretrained masked-token model.
    variants, reference, aliases, max_n, batch_size, device
        As for `PromoterModel.variant_effects`.
    offsets
        Number of windows to average over, shifted within the length of a few tokens, on both strands.
    context
        Number of bp on both sides of a change.

    Returns
    -------
    One row per alternative allele, in input order and with the index of an input table: contig, position
    (1-based), ref, alt, note, log_ratio, spread. Values are missing, with the reason in the note, if an
    allele was not scored.

    Raises
    ------
    UsageError, DataError, ModelError
        As for `PromoterModel.variant_effects`; the model is causal.
    """
    check_at_least_one({"batch_size": batch_size})
    check_fraction("max_n", max_n)
    kind = likelihood_effects(model, offsets, context)
    predict = partial(
        masked_log_likelihoods, model, batch_size=batch_size, device=device
    )
    with (
        opened(reference, aliases) as genome,
        read_variants(variants, genome) as (records, labels),
    ):
        table, effects = allele_table(
            score_records(records, genome, kind, predict, max_n=max_n), labels
        )
    for name, values in (
        ("log_ratio", [e.delta for e in effects]),
        ("spread", [e.spread for e in effects]),
    ):
        table[name] = np.array(values, np.float64)
    return table
