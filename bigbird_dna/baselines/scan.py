"""Scan a genome with the promoter regressions on positions and on k-mers, in seconds per megabase.

The log-odds of all windows come from the bases of a contig at once: those of `position` are a sum over the
offsets in the window, those of k-mers a difference of running sums. The table has the columns of
`score-promoters`.
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from bigbird_dna.baselines.promoters import KmerLogistic, PositionLogistic
from bigbird_dna.disk.outputs import open_text
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import (
    UNKNOWN,
    Interval,
    Strand,
    base_codes,
    centered_tiles,
    known_before,
    turned_word,
    words_ending,
)

ScanBaseline = PositionLogistic | KmerLogistic

MAX_N = 0.25  # windows with a larger fraction of N are not scored
_WINDOWS_AT_ONCE = 100_000

# Axes: N windows, L bases of a window; both strands in the order of "+" and "-".

Codes = NDArray[np.uint8]
Integers = NDArray[np.int64]
Floats = NDArray[np.float64]


def window_log_odds(
    model: ScanBaseline, codes: Codes, starts: Integers, length: int
) -> Floats:
    """Return the log-odds (2, N) of the windows `[starts, starts + length)` of a sequence, on both strands.

    They are those of `model.logits` for the windows and their reverse complements, up to rounding.
    """
    if isinstance(model, PositionLogistic):
        return _position_log_odds(model, codes, starts)
    return _kmer_log_odds(model, codes, starts, length)


def _position_log_odds(
    model: PositionLogistic, codes: Codes, starts: Integers
) -> Floats:
    weights = np.pad(model.coefficients, ((0, 0), (0, 1)))  # an N adds nothing
    reverse = np.pad(model.coefficients[::-1, ::-1], ((0, 0), (0, 1)))
    log_odds = np.full((2, len(starts)), model.intercept)
    for offset, strands in enumerate(zip(weights, reverse, strict=True)):
        log_odds += np.stack(strands)[:, codes[starts + offset]]
    return log_odds


def _kmer_log_odds(
    model: KmerLogistic, codes: Codes, starts: Integers, length: int
) -> Floats:
    k, words = model.k, words_ending(codes, model.k)
    known = known_before(codes) >= k
    reverse = model.coefficients[turned_word(np.arange(4**k), k)]
    rows = [known, known * model.coefficients[words], known * reverse[words]]
    running = np.cumsum(rows, axis=1, dtype=np.float64)
    # The k-mers of a window end at its bases from k − 1 on.
    running = np.pad(running, ((0, 0), (1, 0)))
    count, *sums = running[:, starts + length] - running[:, starts + k - 1]
    return np.asarray(model.intercept + np.stack(sums) / np.maximum(count, 1))


def write_baseline_scans(
    models: Mapping[Path, ScanBaseline],
    fasta: Path,
    *,
    upstream: int,
    length: int,
    stride: int,
) -> None:
    """Write the scores of windows of `length` bp along every record of an indexed FASTA, a table per model.

    Windows, notes and the position `tss`, `upstream` bp from the 5' end of a window, are those of
    `score-promoters`; contigs shorter than a window are left out.
    """
    with Reference(fasta) as genome:
        for path, model in models.items():
            with open_text(path) as file:
                file.write("contig\tstart\tend\tname\tscore\tstrand\tnote\ttss\n")
                for contig, size in genome.contigs.items():
                    for line in _lines(
                        model, genome, contig, size, upstream, length, stride
                    ):
                        file.write(line)


def _lines(
    model: ScanBaseline,
    genome: Reference,
    contig: str,
    size: int,
    upstream: int,
    length: int,
    stride: int,
) -> Iterator[str]:
    tiles = centered_tiles(size, length, stride) if size >= length else iter(())
    tss_of: dict[Strand, int] = {"+": upstream, "-": length - 1 - upstream}
    while some := [*islice(tiles, _WINDOWS_AT_ONCE)]:
        codes = base_codes(genome.fetch(Interval(contig, some[0], some[-1] + length)))
        starts = np.array(some, np.int64) - some[0]
        unknown = np.concatenate([[0], np.cumsum(codes == UNKNOWN)])
        fractions = (unknown[starts + length] - unknown[starts]) / length
        scores = expit(window_log_odds(model, codes, starts, length)).T.tolist()
        for start, n, values in zip(some, fractions.tolist(), scores, strict=True):
            end, note = start + length, f"n_fraction={n:.4g}" if n > MAX_N else "."
            for (strand, offset), value in zip(tss_of.items(), values, strict=True):
                score = "NA" if n > MAX_N else f"{value:.6g}"
                name = f"{contig}:{start}-{end}({strand})"
                yield f"{contig}\t{start}\t{end}\t{name}\t{score}\t{strand}\t{note}\t{start + offset}\n"
