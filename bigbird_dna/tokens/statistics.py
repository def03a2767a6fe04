"""How a tokenizer fares on a genome: bases a token by split, contig and region, and use of its pieces.

Contigs are read in pieces of 10,000 bp, regions in windows; each is encoded by itself. Bases a token
counts pieces of bases only: Ns and the pieces that cover them are given apart, because a long gap would
otherwise raise the figure.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.console import progress
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.regions import format_named_region
from bigbird_dna.genome.sequence import Interval, Locus, inside, window_around
from bigbird_dna.genome.splits import Stretch
from bigbird_dna.tokens.interface import Tokenizer
from bigbird_dna.tokens.store import ordered_map

PIECE = 10_000  # bp encoded at a time
FLANK = 500  # bp on either side of a TSS in the region "promoters"
_FREQUENT = 20  # pieces listed by name
_BATCH = 50  # intervals an item of work

Usage = NDArray[np.int64]  # (V,) how often each piece was used


def tokenizer_statistics(
    reference: Reference,
    stretches: Sequence[Stretch],
    tokenizer: Tokenizer,
    *,
    promoters: Sequence[Locus] | None = None,
    workers: int = 1,
) -> dict[str, Any]:
    """Encode a genome and describe the tokens, as a dictionary for JSON.

    Parameters
    ----------
    stretches : what to encode: contigs, or stretches of them. One whose split is None takes no part in
        training: it counts for `genome` and `contigs` only.
    promoters : start sites; adds the region "promoters", 500 bp before each TSS to 500 bp from it
        on, read on its own strand. Windows that leave the contig are left out and counted.
    workers : processes; the result doesn't depend on them.

    Returns
    -------
    dict with `genome`, `splits`, `contigs` (of those that are divided each stretch, as a named region),
    `regions` (each a summary: bases and n_bases in bp, tokens,
    n_tokens, bases_per_token and unknown_rate, None where there is no token to divide by), `pieces` (how much
    of the vocabulary is used), `piece_lengths` (for each length in bp, pieces of the vocabulary and
    tokens of the genome, Ns left out), `frequent_pieces`, and what identifies tokenizer and
    reference.
    """
    usages = _usages(reference, [stretch.interval for stretch in stretches], tokenizer, workers)
    genome = _sum(usages, tokenizer)
    by_split = {
        split: _sum(
            (used for (_, own), used in zip(stretches, usages, strict=True) if own == split), tokenizer
        )
        for split in dict.fromkeys(stretch.split for stretch in stretches)
        if split is not None
    }
    regions: dict[str, Any] = {}
    if promoters is not None:
        regions["promoters"] = _promoter_summary(reference, stretches, promoters, tokenizer, workers)
    return {
        "reference": reference.path.name,
        "tokenizer_sha256": tokenizer.sha256,
        "vocabulary": tokenizer.vocabulary,
        "genome": _summary(genome, tokenizer),
        "splits": {split: _summary(usage, tokenizer) for split, usage in by_split.items()},
        "regions": regions,
        "contigs": {
            _name(interval, reference): {"split": split} | _summary(usage, tokenizer)
            for (interval, split), usage in zip(stretches, usages, strict=True)
        },
        "pieces": _pieces_used(genome, tokenizer),
        "piece_lengths": _length_histogram(genome, tokenizer),
        "frequent_pieces": _frequent(genome, tokenizer),
    }


@dataclass(frozen=True)
class _Counter:
    """Counts the pieces of a batch of intervals; picklable, for worker processes."""

    reference: Reference
    tokenizer: Tokenizer

    def __call__(self, intervals: Sequence[Interval]) -> Usage:
        rows = self.tokenizer.encode_batch([self.reference.fetch(each) for each in intervals])
        ids = np.concatenate(rows) if rows else np.empty(0, np.int32)
        return np.bincount(ids, minlength=self.tokenizer.vocabulary).astype(np.int64)


def _name(stretch: Interval, reference: Reference) -> str:
    whole = len(stretch) == reference.contigs[stretch.contig]
    return stretch.contig if whole else format_named_region(stretch)


def _usages(
    reference: Reference, stretches: Sequence[Interval], tokenizer: Tokenizer, workers: int
) -> list[Usage]:
    usages = [_sum((), tokenizer) for _ in stretches]
    work = [(place, batch) for place, stretch in enumerate(stretches) for batch in _batches(stretch)]
    counted = ordered_map(_Counter(reference, tokenizer), [batch for _, batch in work], workers)
    pairs = zip(work, counted, strict=True)
    for (place, _), part in progress(pairs, "counting tokens", total=len(work)):
        usages[place] += part
    return usages


def _batches(stretch: Interval) -> Iterator[list[Interval]]:
    """Batches of the consecutive pieces of a stretch."""
    starts = range(stretch.start, stretch.end, PIECE)
    for first in range(0, len(starts), _BATCH):
        yield [
            Interval(stretch.contig, start, min(start + PIECE, stretch.end))
            for start in starts[first : first + _BATCH]
        ]


def _promoter_summary(
    reference: Reference,
    stretches: Sequence[Stretch],
    promoters: Sequence[Locus],
    tokenizer: Tokenizer,
    workers: int,
) -> dict[str, Any]:
    lengths = {stretch.interval.contig: reference.contigs[stretch.interval.contig] for stretch in stretches}
    windows = [window_around(locus, FLANK, FLANK) for locus in promoters]
    usable = [window for window in windows if inside(window, lengths)]
    batches = [usable[first : first + _BATCH] for first in range(0, len(usable), _BATCH)]
    parts = ordered_map(_Counter(reference, tokenizer), batches, workers)
    usage = _sum(progress(parts, "counting tokens of promoters", total=len(batches)), tokenizer)
    return {
        "loci": len(usable),
        "left_out": len(windows) - len(usable),
        "upstream": FLANK,
        "downstream": FLANK,
    } | _summary(usage, tokenizer)


def _sum(parts: Iterable[Usage], tokenizer: Tokenizer) -> Usage:
    total = np.zeros(tokenizer.vocabulary, np.int64)
    for part in parts:
        total += part
    return total


def _summary(usage: Usage, tokenizer: Tokenizer) -> dict[str, int | float | None]:
    covered = usage * tokenizer.piece_lengths
    base_tokens = int(usage[tokenizer.base_ids].sum())
    bases = int(covered[tokenizer.base_ids].sum())
    tokens = int(usage.sum())
    unknown = int(usage[tokenizer.unk_id])
    return {
        "bases": bases,
        "n_bases": int(covered.sum()) - bases,
        "tokens": tokens,
        "n_tokens": tokens - base_tokens - unknown,
        "bases_per_token": round(bases / base_tokens, 4) if base_tokens else None,
        "unknown_rate": unknown / tokens if tokens else None,
    }


def _pieces_used(usage: Usage, tokenizer: Tokenizer) -> dict[str, int | float]:
    used = int((usage[tokenizer.base_ids] > 0).sum())
    total = len(tokenizer.base_ids)
    return {"of_bases": total, "used": used, "used_fraction": round(used / total, 6)}


def _length_histogram(usage: Usage, tokenizer: Tokenizer) -> dict[str, dict[str, int]]:
    lengths = tokenizer.piece_lengths[tokenizer.base_ids]
    pieces = np.bincount(lengths)
    tokens = np.zeros(len(pieces), np.int64)
    np.add.at(tokens, lengths, usage[tokenizer.base_ids])
    return {
        str(length): {"pieces": int(pieces[length]), "tokens": int(tokens[length])}
        for length in range(1, len(pieces))
        if pieces[length]
    }


def _frequent(usage: Usage, tokenizer: Tokenizer) -> dict[str, int]:
    """The most frequent pieces, most frequent first."""
    order = np.argsort(-usage, kind="stable")[:_FREQUENT]
    return {tokenizer.pieces[i]: int(usage[i]) for i in order if usage[i]}
