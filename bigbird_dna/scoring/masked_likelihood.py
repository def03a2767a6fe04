"""Likelihoods of variants under a masked-token model, without training on effects ("zero-shot").

The value of an allele is ln p(ALT | context) − ln p(REF | context), in natural logarithms. Both haplotypes
are cut at the same genome positions, 100 bp around the change, and tokenized as a whole, as in
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

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bigbird_dna.errors import ModelError
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
from bigbird_dna.scoring.effects import OFFSETS, InfoKey, Inputs, decimal
from bigbird_dna.tokens.interface import Tokenizer, require_dna

CONTEXT = 100
"""Number of bp on both sides of a change."""

_ROUNDING = 1e-3  # of a probability of 1, in any precision
Tokens = tuple[int, ...]


class MaskedHaplotype(NamedTuple):
    """An input in which the adjacent tokens between `before` and `after` are masked."""

    before: Tokens
    hidden: Tokens
    after: Tokens


def haplotype_windows(
    change: Change,
    reference: Reference,
    offsets: Sequence[int],
    context: int = CONTEXT,
) -> AlleleWindows:
    """Return windows with each allele, from `context + offset` bp before to `context − offset` bp after it.

    An insertion or deletion extends from the leftmost to the rightmost position at which it can be written.
    The reverse complements of reference and change give the reverse complements of the windows, for offsets
    that are symmetric about 0. Positions beyond the contig are N.
    """
    contig, start, ref, alt = change
    end = start + len(ref)
    shift = right_shift(change, reference)
    most = context + max(abs(offset) for offset in offsets)
    before = reference.fetch(Interval(contig, start - most, start))
    after = reference.fetch(Interval(contig, end, end + shift + most))
    windows = []
    for allele in (ref, alt):
        for offset in offsets:
            left = before[most - context - offset :]
            right = after[: shift + context - offset]
            windows.append(left + allele + right)

    beyond = start < most or end + shift + most > reference.contigs[contig]
    count = len(offsets)
    return AlleleWindows(tuple(windows[:count]), tuple(windows[count:]), beyond)


def mask_difference(
    tokenizer: Tokenizer, ref: str, alt: str, room: int, phase: int = 0
) -> tuple[MaskedHaplotype, MaskedHaplotype] | None:
    """Mask the tokens in which two haplotypes differ; both inputs have the same visible tokens.

    An input has at most `room` tokens, those nearest to the masked ones; None: there are more masked ones.
    `ModelError`: the tokenizer has no token for one of the differing bases. `phase` as in
    `Tokenizer.split_batch`.
    """
    first, second = tokenizer.split_batch([ref, alt], phase)
    shorter = min(len(first), len(second))
    differ = np.flatnonzero(first[:shorter] != second[:shorter])
    low = int(differ[0]) if len(differ) else shorter
    differ = np.flatnonzero(first[::-1][:shorter] != second[::-1][:shorter])
    high = min(int(differ[0]) if len(differ) else shorter, shorter - low)
    hidden = [row[low : len(row) - high] for row in (first, second)]
    if not np.isin(np.concatenate(hidden), tokenizer.base_ids).all():
        raise ModelError(f"{tokenizer.source}: the vocabulary lacks a token for a base")

    spare = room - max(map(len, hidden))
    if spare < 0:
        return None

    before = tuple(first[max(0, low - spare // 2) : low].tolist())
    after = tuple(first[len(first) - high :][: spare // 2].tolist())
    return (
        MaskedHaplotype(before, tuple(hidden[0].tolist()), after),
        MaskedHaplotype(before, tuple(hidden[1].tolist()), after),
    )


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
    torch_device = choose_device(device)
    network = model.network.to(torch_device).eval()
    tokenizer = model.tokenizer
    assert isinstance(network, PretrainingNetwork)

    # Numbers of the inputs by what the network sees.
    groups: dict[tuple[Tokens, int, Tokens], list[int]] = {}
    for number, (before, hidden, after) in enumerate(inputs):
        groups.setdefault((before, len(hidden), after), []).append(number)

    visible = list(groups)
    members = list(groups.values())
    most = max(map(len, members))
    rows = []
    for before, count, after in visible:
        ids = [*before, *[tokenizer.mask_id] * count, *after]
        rows.append(np.array([tokenizer.cls_id, *ids, tokenizer.sep_id], np.int32))

    base_ids = torch.tensor(tokenizer.base_ids, device=torch_device)

    def run(ids: Tensor, lengths: Tensor, batch: NDArray[np.intp]) -> Tensor:
        positions, counts = [], []
        for row, number in enumerate(batch.tolist()):
            before, count, _ = visible[number]
            first = row * ids.shape[1] + 1 + len(before)
            positions.append(torch.arange(first, first + count, device="cpu"))
            counts.append(count)

        masked = torch.cat(positions).to(ids.device)
        logits: Tensor = network(ids, lengths, None, masked).tokens.float()  # (M, V)
        logits = logits - logits[:, base_ids].logsumexp(1, keepdim=True)
        sums = torch.zeros((len(batch), most), device=ids.device)
        for row, scores in enumerate(torch.split(logits, counts)):
            hidden = [inputs[number].hidden for number in members[batch[row]]]
            tokens = torch.tensor(hidden, dtype=torch.long, device=ids.device)
            sums[row, : len(hidden)] = scores.gather(1, tokens.T).sum(0)

        return sums

    values = run_rows(
        network,
        rows,
        run,
        pad_id=tokenizer.pad_id,
        batch_size=batch_size,
        device=torch_device,
        empty=(most,),
    )
    result = np.zeros(len(inputs), np.float32)
    for numbers, sums in zip(members, values, strict=True):
        result[numbers] = sums[: len(numbers)]

    return result


class LikelihoodEffects:
    """Log-ratios of the likelihoods of ALT and REF under a masked-token model; see the module.

    `offsets` is the number of windows, on both strands each.
    """

    columns = ("log_ratio", "spread")
    info_keys: tuple[InfoKey, ...] = (
        (
            "LOGRATIO",
            "Float",
            "Natural log-likelihood of ALT minus that of REF, given the context",
        ),
        (
            "SPREAD",
            "Float",
            "Standard deviation of LOGRATIO over both strands and all offsets",
        ),
    )

    def __init__(
        self, model: LoadedModel, offsets: int = OFFSETS, **computing: Any
    ) -> None:
        """`ModelError`: not a masked-token model of DNA."""
        require_dna(model.tokenizer)
        self.model = model
        self.computing = computing
        self.offsets = window_offsets(offsets)

    def inputs(self, change: Change, reference: Reference, max_n: float) -> Inputs:
        """Return the masked haplotypes of REF, then of ALT, by offset and strand."""
        tokenizer = self.model.tokenizer
        room = self.model.config.max_length - 2  # without [CLS] and [SEP]
        longest = room * int(tokenizer.piece_lengths.max())
        if max(len(change.ref), len(change.alt)) > longest:
            return (Note.TOO_LONG,), (), None

        windows = haplotype_windows(change, reference, self.offsets)
        edge = (Note.CONTIG_EDGE,) if windows.reaches_beyond else ()
        if windows.largest_n_fraction > max_n:
            return (Note.TOO_MANY_N, *edge), (), None

        refs, alts = [], []
        for ref, alt in zip(windows.ref, windows.alt, strict=True):
            reverse = reverse_complement(ref), reverse_complement(alt)
            for texts in ((ref, alt), reverse):
                pair = mask_difference(tokenizer, *texts, room)
                if pair is None:
                    return (Note.TOO_LONG, *edge), (), None

                refs.append(pair[0])
                alts.append(pair[1])

        return edge, [*refs, *alts], None

    def predict(self, texts: Sequence[MaskedHaplotype]) -> NDArray[np.float32]:
        """Return the log-likelihoods (N,)."""
        values = masked_log_likelihoods(self.model, texts, **self.computing)
        if not (np.isfinite(values) & (values <= _ROUNDING)).all():
            raise ModelError(
                "the model predicts values that are not probabilities: its weights are damaged"
            )
        return values

    def row(self, _about: object, values: NDArray[np.float32]) -> list[float]:
        """Return mean and standard deviation over windows of the log-ratio."""
        ref, alt = values.astype(np.float64).reshape(2, -1)
        # Sums of another order would have other last digits.
        ratios = np.sort(alt - ref)
        return [float(ratios.mean()), float(ratios.std())]

    def info(self, row: Sequence[float]) -> list[str]:
        """Return the values of `info_keys` for the cells of a row."""
        return [decimal(cell) for cell in row]
