"""Check of the strands and positions of a list of transcription start sites against their reference.

The bases around start sites on one strand are compared with the position weight matrix of those on the other,
in their order of transcription, also shifted by up to two bases and reversed. If the fit is better elsewhere
than at the listed positions, the positions on one of the strands are wrong.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bigbird_dna.disk.atomic import atomic_path
from bigbird_dna.disk.tables import Schema, write_table
from bigbird_dna.errors import DataError
from bigbird_dna.genome.assembly import open_assembly
from bigbird_dna.genome.promoters import place, read_promoters
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import (
    OPPOSITE,
    UNKNOWN,
    Locus,
    base_codes,
    inside,
    window_around,
)

MATRIX = Schema.of(
    "text strand; text orientation; number shift; count promoters; metric log_odds; estimate difference; "
    "metric initiator",
    key=["strand", "orientation", "shift"],
)
UPSTREAM, DOWNSTREAM = 60, 40  # bp compared around a start site
SHIFTS = (-2, -1, 0, 1, 2)  # bp downstream
FEWEST = 40  # start sites per strand
_SMOOTHED = 11  # bp over which the composition around a position is averaged
_CERTAIN = 5.0  # standard errors of a difference
_LEAST_BITS = 0.05  # information that counts as promoter elements

# Axes: N start sites, L = UPSTREAM + DOWNSTREAM positions.
Floats = NDArray[np.float64]


class StrandFit(NamedTuple):
    """How well the start sites of a strand fit the matrix of the other one, in bits."""

    strand: str
    turned: bool  # whether they are read on the opposite strand
    shift: int
    scores: Floats  # (N,)
    initiator: float  # fraction with C or T before the start site, and A or G at it

    def lead(self, listed: StrandFit) -> tuple[float, float]:
        """Return the mean gain over the fit of the listed positions, and its standard error."""
        gains = self.scores - listed.scores
        return float(gains.mean()), float(gains.std(ddof=1) / np.sqrt(len(gains)))


def check_promoters(
    promoters: Path,
    reference: Path,
    output: Path | None = None,
    *,
    assembly: str = "custom",
    aliases: Path | None = None,
) -> list[str]:
    """Check start sites, in a file as for `prepare_promoters`, against a reference; return the conclusions.

    `output` is a table to write: how well the start sites of each strand fit those of the other one, shifted
    and read on the opposite strand. `DataError`: fewer than `FEWEST` start sites on a strand.
    """
    with Reference(reference) as genome:
        names = open_assembly(assembly, aliases)
        placed = place(read_promoters(promoters), genome.contigs, names, str(promoters))
        strands = _strands(placed.loci, genome, promoters)
        fits = [*_fits(strands, genome)]
        sides = _information(
            np.concatenate([_codes(own, genome, False) for own in strands.values()])
        )
    if output is not None:
        with atomic_path(output) as temporary:
            write_table(temporary, _table(fits), MATRIX)
    return conclusions(fits, sides)


def _strands(
    loci: Sequence[Locus], genome: Reference, path: Path
) -> dict[str, list[Locus]]:
    """Return the start sites of each strand that are not at a contig's edge."""
    edge = UPSTREAM + DOWNSTREAM + max(SHIFTS)
    whole = [
        locus
        for locus in loci
        if inside(window_around(locus, edge, edge), genome.contigs)
    ]
    strands = {
        name: [locus for locus in whole if locus.strand == name] for name in ("+", "-")
    }
    for name, own in strands.items():
        if len(own) < FEWEST:
            raise DataError(
                f"{path}: {len(own):,} start sites on strand {name}; the check needs {FEWEST}"
            )
    return strands


def _codes(loci: Sequence[Locus], genome: Reference, turned: bool) -> NDArray[np.uint8]:
    """Return the bases (N, L + 2 · shifts) around start sites, or around them on the opposite strand."""
    reach, rows = max(SHIFTS), []
    for locus in loci:
        read = Locus(
            locus.contig,
            locus.position,
            OPPOSITE[locus.strand] if turned else locus.strand,
            "",
        )
        rows.append(
            base_codes(
                genome.fetch(window_around(read, UPSTREAM + reach, DOWNSTREAM + reach))
            )
        )
    return np.array(rows)


def _fits(
    strands: Mapping[str, Sequence[Locus]], genome: Reference
) -> Iterator[StrandFit]:
    """Yield the fits of both strands, orientations and all shifts."""
    given = {name: _codes(own, genome, False) for name, own in strands.items()}
    for name, other in (("+", "-"), ("-", "+")):
        matrix = _matrix(given[other])
        for turned in (False, True):
            codes = _codes(strands[name], genome, True) if turned else given[name]
            for shift in SHIFTS:
                first = max(SHIFTS) + shift
                window = codes[:, first : first + UPSTREAM + DOWNSTREAM]
                scores = np.where(
                    window < UNKNOWN,
                    matrix[np.arange(len(matrix)), window % UNKNOWN],
                    0,
                ).sum(1)
                before, at = window[:, UPSTREAM - 1], window[:, UPSTREAM]
                initiator = float(
                    (np.isin(before, (1, 3)) & np.isin(at, (0, 2))).mean()
                )
                yield StrandFit(name, turned, shift, scores, initiator)


def _shares(codes: NDArray[np.uint8]) -> Floats:
    """Return the frequencies (L, 4) of bases around start sites."""
    reach = max(SHIFTS)
    counts = (
        np.stack([(codes == base).sum(0) for base in range(UNKNOWN)], 1)[reach:-reach]
        + 1.0
    )
    return np.asarray(counts / counts.sum(1, keepdims=True))


def _matrix(codes: NDArray[np.uint8]) -> Floats:
    """Return the log-odds (L, 4), in bits, of bases against the composition around each position."""
    shares = _shares(codes)
    kernel, places = np.ones(_SMOOTHED), np.ones(len(shares))
    around = [
        np.convolve(column, kernel, "same") / np.convolve(places, kernel, "same")
        for column in shares.T
    ]
    return np.asarray(np.log2(shares / np.stack(around, 1)))


def _information(codes: NDArray[np.uint8]) -> tuple[float, float]:
    """Return the information, in bits, of the bases 3 to 38 bp before and after start sites."""
    bits = (_shares(codes) * _matrix(codes)).sum(1) - 3 / (2 * math.log(2) * len(codes))
    before, after = (
        bits[UPSTREAM - 38 : UPSTREAM - 2],
        bits[UPSTREAM + 3 : UPSTREAM + 39],
    )
    return float(before.sum()), float(after.sum())


def _table(fits: Sequence[StrandFit]) -> pd.DataFrame:
    """Return the fits with the columns of `MATRIX`."""
    rows = []
    for fit in fits:
        value, error = fit.lead(_listed(fits, fit.strand))
        ends = (value - 1.96 * error, value + 1.96 * error)
        where = "opposite strand" if fit.turned else "as listed"
        of_scores = (
            len(fit.scores),
            float(fit.scores.mean()),
            value,
            *ends,
            fit.initiator,
        )
        rows.append((fit.strand, where, fit.shift, *of_scores))
    return pd.DataFrame(rows, columns=MATRIX.names)


def _listed(fits: Sequence[StrandFit], strand: str) -> StrandFit:
    return next(
        fit for fit in fits if (fit.strand, fit.turned, fit.shift) == (strand, False, 0)
    )


def conclusions(fits: Sequence[StrandFit], sides: tuple[float, float]) -> list[str]:
    """Return what is wrong with the list, in sentences; what was checked if nothing is.

    `sides` is the information before and after start sites: promoter elements are before them.
    """
    apart = {
        shift: {"+": (False, shift), "-": (False, -shift)} for shift in SHIFTS if shift
    }
    best = _best(fits, {**apart, 0: {"+": (True, 0), "-": (True, 0)}})
    if best == 0:
        return [
            "One of the strands is read in the wrong direction: both fit better on the opposite strand."
        ]
    if best is not None:
        there, back = (
            ("downstream", "upstream") if best > 0 else ("upstream", "downstream")
        )
        own = {
            fit.strand: fit.initiator
            for fit in fits
            if (fit.turned, fit.shift) == (False, 0)
        }
        return [
            f"The strands differ by {abs(best)} bp: to fit each other, start sites on - must move "
            f"{abs(best)} bp {back}, or those on + {abs(best)} bp {there}.",
            f"{own['+']:.0%} of those on + and {own['-']:.0%} on - begin with A or G after C or T: those on "
            f"{min(own, key=lambda strand: own[strand])} are probably wrong.",
        ]
    found = [
        "The start sites of both strands fit each other best at the listed positions."
    ]
    before, after = sides
    if after > max(2 * before, _LEAST_BITS):
        swapped = (
            f"{before:.2f} bits before the start sites, {after:.2f} bits after them"
        )
        return [
            *found,
            f"Promoter elements seem to be on the wrong side ({swapped}): strands may be swapped.",
        ]
    shares = {
        shift: float(
            np.mean(
                [
                    fit.initiator
                    for fit in fits
                    if (fit.turned, fit.shift) == (False, shift)
                ]
            )
        )
        for shift in SHIFTS
    }
    shift = max(shares, key=lambda one: shares[one])
    text = f"{shares[0]:.0%} begin with A or G after C or T"
    if not shift:
        return [*found, f"{text}, more than at the positions around."]
    where = f"{abs(shift)} bp {'downstream' if shift > 0 else 'upstream'}"
    return [
        *found,
        f"Only {text}, but {shares[shift]:.0%} {where}: all start sites may be off.",
    ]


def _best(
    fits: Sequence[StrandFit], options: dict[int, dict[str, tuple[bool, int]]]
) -> int | None:
    """Return the key of the option with the largest gain on both strands together; None: no certain gain."""
    gains = {}
    for key, of_strands in options.items():
        chosen = [
            fit for fit in fits if (fit.turned, fit.shift) == of_strands[fit.strand]
        ]
        leads = [fit.lead(_listed(fits, fit.strand)) for fit in chosen]
        value, error = (
            sum(lead for lead, _ in leads),
            math.hypot(*(error for _, error in leads)),
        )
        if value > _CERTAIN * error:
            gains[key] = value
    return max(gains, key=lambda key: gains[key]) if gains else None
