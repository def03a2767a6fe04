"""Scan a genome with promoter regressions; the table has the columns of `score-promoters`."""

from pathlib import Path

import numpy as np

from bigbird_dna.baselines.promoters import LogisticBaseline
from bigbird_dna.baselines.windows import blocks
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import Interval, centered_tiles, reverse_complement

MAX_N = 0.25  # windows with a larger fraction of N are not scored
_WINDOWS_AT_ONCE = 4096
_HEADER = "contig\tstart\tend\tname\tscore\tstrand\tnote\ttss\n"


def write_baseline_scan(
    path: Path,
    model: LogisticBaseline,
    genome: Reference,
    *,
    upstream: int,
    length: int,
    stride: int,
) -> None:
    """Write the scores of windows along every contig, on both strands, as TSV.

    Windows, notes and the position `tss` are those of `score-promoters`; contigs shorter than a window are
    left out.

    Parameters
    ----------
    path
        The table to write: a row per window and strand, by contig and start.
    model
        A regression on the bases or k-mers of a window.
    genome
        The indexed FASTA.
    upstream
        Distance of `tss` from the 5' end of a window, bp.
    length, stride
        Length and distance of windows, bp.
    """
    with path.open("w", encoding="utf-8") as file:
        file.write(_HEADER)
        for contig, size in genome.contigs.items():
            if size < length:
                continue

            tiles = np.array([*centered_tiles(size, length, stride)])

            for rows in blocks(len(tiles), _WINDOWS_AT_ONCE):
                starts = tiles[rows].tolist()
                text = genome.fetch(Interval(contig, starts[0], starts[-1] + length))
                windows = [text[start - starts[0] :][:length] for start in starts]
                forward = model.predict(windows).tolist()
                reverse = model.predict([*map(reverse_complement, windows)]).tolist()

                for number, start in enumerate(starts):
                    end = start + length
                    n = windows[number].count("N") / length
                    note = f"n_fraction={n:.4g}" if n > MAX_N else "."
                    for strand, probability, offset in (
                        ("+", forward[number], upstream),
                        ("-", reverse[number], length - 1 - upstream),
                    ):
                        name = f"{contig}:{start}-{end}({strand})"
                        score = "NA" if n > MAX_N else f"{probability:.6g}"
                        cells = (contig, start, end, name, score, strand, note)
                        file.write("\t".join(map(str, (*cells, start + offset))) + "\n")
