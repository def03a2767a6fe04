"""Scan a genome with baselines at every base; the table has the columns of `score-promoters`.

A row is a bin of a strand: the highest score of the bin's bases, and the base that has it, as `tss`. So a table of
10-bp bins loses no call of a scan at every base.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.signal import oaconvolve
from scipy.special import expit

from bigbird_dna.baselines.promoters import LogisticBaseline
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import (
    STRANDS,
    UNKNOWN,
    Interval,
    base_codes,
    known_before,
    words_ending,
)

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float64]
WindowScores = Callable[[Bytes], Floats]
"""Scores (L - length + 1,) of all windows of a sequence of codes (L,), in its direction."""
BaseScores = Callable[[str, int, int], NDArray[Any]]
"""Scores (2, last - first) of the bases `[first, last)` of a contig as TSSs on "+" and "-"; NaN: not scored."""

MAX_N = 0.25  # windows with a larger fraction of N are not scored
CPG_WINDOW = 500  # bp
_BASES_AT_ONCE = 1 << 21
_HEADER = "contig\tstart\tend\tname\tscore\tstrand\tnote\ttss\n"

# Axes: L bases.


def write_scan(path: Path, genome: Reference, scores: BaseScores, stride: int) -> None:
    """Write the highest score in each bin of `stride` bp, on both strands, as TSV.

    Of equal scores, the first in the direction of transcription is that of `tss`. Bins without a score are left
    out.
    """
    span = max(_BASES_AT_ONCE // stride, 1) * stride
    with path.open("w", encoding="utf-8") as file:
        file.write(_HEADER)
        for contig, size in genome.contigs.items():
            for first in range(0, size, span):
                last = min(first + span, size)
                values = np.full((2, -(-(last - first) // stride) * stride), -np.inf)
                found = scores(contig, first, last)
                values[:, : last - first] = np.where(np.isnan(found), -np.inf, found)
                bins = values.reshape(2, -1, stride)
                offsets = np.stack(
                    [bins[0].argmax(1), stride - 1 - bins[1, :, ::-1].argmax(1)], axis=1
                )
                best = bins.max(axis=2).T.tolist()
                for number, places in enumerate(offsets.tolist()):
                    start = first + number * stride
                    end = min(start + stride, size)
                    for strand, score, place in zip(
                        STRANDS, best[number], places, strict=True
                    ):
                        if score > -np.inf:
                            file.write(
                                f"{contig}\t{start}\t{end}\t{contig}:{start}-{end}({strand})\t"
                                f"{score:.6g}\t{strand}\t.\t{start + place}\n"
                            )


def scores_of_windows(
    genome: Reference, scores: WindowScores, *, upstream: int, length: int
) -> BaseScores:
    """Return scores of bases as TSSs from scores of windows of `length` bp, of which `upstream` are before the TSS.

    Bases whose windows extend beyond the contig or have more than `MAX_N` N are not scored.
    """

    def of_bases(contig: str, first: int, last: int) -> NDArray[Any]:
        rows = []
        for strand, before in zip(
            STRANDS, (upstream, length - 1 - upstream), strict=True
        ):
            start = first - before
            end = last - before + length - 1
            codes = base_codes(genome.fetch(Interval(contig, start, end, strand)))
            n = running_sum(codes == UNKNOWN, length)
            values = np.where(n > MAX_N * length, np.nan, scores(codes))
            if strand == "-":
                values = values[::-1]

            # Beyond the contig, all bases are N, but few may be.
            values[: max(-start, 0)] = np.nan
            values[max(genome.contigs[contig] - length + 1 - start, 0) :] = np.nan
            rows.append(values)

        return np.stack(rows)

    return of_bases


def running_sum(values: NDArray[Any], width: int) -> Floats:
    """Return the sums of `width` consecutive values (L,), (L - width + 1,)."""
    sums = np.append(0, np.cumsum(values, dtype=np.float64))
    return np.asarray(sums[width:] - sums[:-width])


def position_scores(model: LogisticBaseline) -> WindowScores:
    """Return the probabilities of a regression on the base at each position."""
    weights, bias = model.coefficients()
    filters = weights.reshape(-1, UNKNOWN)[::-1].T  # convolution reverses a filter

    def scores(codes: Bytes) -> Floats:
        logits = np.full(len(codes) - len(filters[0]) + 1, bias)
        for base, row in enumerate(filters):
            logits += oaconvolve((codes == base).astype(np.float64), row, mode="valid")

        return np.asarray(expit(logits))

    return scores


def kmer_scores(model: LogisticBaseline, length: int) -> WindowScores:
    """Return the probabilities of a regression on the frequencies of k-mers in windows of `length` bp."""
    weights, bias = model.coefficients()
    k = (len(weights).bit_length() - 1) // 2

    def scores(codes: Bytes) -> Floats:
        known = (known_before(codes) >= k)[k - 1 :]
        of_words = np.where(known, weights[words_ending(codes, k)[k - 1 :]], 0)
        counts = running_sum(known, length - k + 1)
        sums = running_sum(of_words, length - k + 1)
        return np.asarray(expit(bias + sums / np.maximum(counts, 1)))

    return scores


def cpg_scores(codes: Bytes) -> Floats:
    """Return the number of CpG per position of windows of `CPG_WINDOW` bp."""
    cpg = (codes[:-1] == 1) & (codes[1:] == 2)
    return running_sum(cpg, CPG_WINDOW - 1) / (CPG_WINDOW - 1)
