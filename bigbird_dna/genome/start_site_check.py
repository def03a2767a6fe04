"""Check of the strands and positions of transcription start sites against their reference.

Most transcripts begin with A or G after C or T. If the start sites of a strand do so far more often one or
two bases away, their positions are wrong. Elements of promoters are mostly before a start site: if the bases
after start sites have more information, strands may be swapped.
"""

import math
from collections.abc import Sequence

import numpy as np

from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import (
    STRANDS,
    Locus,
    base_codes,
    inside,
    window_around,
)

AROUND = 60  # bp compared on either side of a start site
SHIFTS = (-2, -1, 1, 2)  # bp downstream
FEWEST = 40  # start sites per strand
_CERTAIN = 5.0  # standard errors of a difference
_LEAST_BITS, _UPSTREAM_BITS = 0.05, 0.5


def check_start_sites(loci: Sequence[Locus], reference: Reference) -> list[str]:
    """Return what seems wrong with start sites, one sentence each; [] with fewer than `FEWEST` on a strand.

    A list whose positions on one strand are off by one, as in some releases of RegulonDB, is found.
    """
    codes = {}
    for strand in STRANDS:
        windows = [
            window_around(one, AROUND, AROUND) for one in loci if one.strand == strand
        ]
        texts = [
            reference.fetch(window)
            for window in windows
            if inside(window, reference.contigs)
        ]
        if len(texts) < FEWEST:
            return []

        codes[strand] = np.array([base_codes(text) for text in texts])

    # Information of the bases 3 to 38 bp before and after start sites, relative to the mean composition.
    bases = np.concatenate([*codes.values()])
    counts = np.stack([(bases == base).sum(axis=0) for base in range(4)], axis=1) + 1.0
    frequencies = counts / counts.sum(axis=1, keepdims=True)
    bits = (frequencies * np.log2(frequencies / frequencies.mean(axis=0))).sum(axis=1)
    bits -= 3 / (2 * math.log(2) * len(bases))  # bias of few start sites
    upstream = bits[AROUND - 38 : AROUND - 2].sum()
    downstream = bits[AROUND + 3 : AROUND + 39].sum()
    if upstream < _UPSTREAM_BITS and downstream > max(2 * upstream, _LEAST_BITS):
        return [
            f"{upstream:.2f} bits of sequence information before the start sites, {downstream:.2f} after "
            "them: strands may be swapped"
        ]

    found = []
    for strand, bases in codes.items():
        # (N, L - 1): whether the base is A or G after C or T.
        initiators = np.isin(bases[:, :-1], (1, 3)) & np.isin(bases[:, 1:], (0, 2))
        listed = initiators[:, AROUND - 1].astype(float)
        shift = max(SHIFTS, key=lambda bp: initiators[:, AROUND - 1 + bp].mean())
        gains = initiators[:, AROUND - 1 + shift] - listed
        if gains.mean() > _CERTAIN * gains.std() / math.sqrt(len(gains)):
            where = f"{abs(shift)} bp {'downstream' if shift > 0 else 'upstream'}"
            found.append(
                f"start sites on {strand} are probably off: {listed.mean():.0%} of them begin with A or G "
                f"after C or T, but {listed.mean() + gains.mean():.0%} {where}"
            )

    return found
