"""Check of the expected precision of calls: calls of held-out contigs, with the precision that they have.

The expected precision of each predictor is fitted to its scan of validation contigs, as by `model
calibrate-calls`, and checked on its scan of other contigs. Any predictor with a table of scores can be
checked, so that a model is compared with baselines in the same way. Thresholds are those of the validation
contigs: nothing is chosen on the held-out ones.

Annotated start sites are incomplete. Calls that are not correct, are outside of all annotated genes, and have
no annotated start site of either strand near are therefore also counted: some may be unknown promoters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bigbird_dna.calibration.call_precision import (
    CallPrecision,
    estimate_calls,
    fit_calls,
)
from bigbird_dna.calibration.calls import (
    DISTANCES,
    Integers,
    MatchedCalls,
    Points,
    Scan,
    Track,
    find_track_calls,
    match_tracks,
    sites_of,
)
from bigbird_dna.calibration.maps import LEAST
from bigbird_dna.disk.directories import into_directory
from bigbird_dna.disk.tables import Schema, write_table
from bigbird_dna.errors import DataError, UsageError
from bigbird_dna.genome.annotation import read_genes
from bigbird_dna.genome.sequence import Intervals
from bigbird_dna.reporting.result import PALE, SERIES, legend_label, panels, save_figure
from bigbird_dna.reporting.scan import BEST_F1, RATES, read_scan

ALL = "all"
CALLS = Schema.of(
    "text predictor; count within; text contig selection; count tss calls",
    "metric threshold calls_per_megabase; estimate expected_precision precision recall; optional intergenic",
    key=["predictor", "within", "contig", "selection"],
)
EDGES = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
"""Bounds of the bins of expected precision."""
_FEWEST = 5  # calls of a bin that is drawn

# Axes: C calls, from the highest score to the lowest.


class CheckedCalls(NamedTuple):
    """Calls of held-out contigs and their expected precision; `intergenic` (C,) is None without genes."""

    found: MatchedCalls
    expected: tuple[NDArray[np.float64], ...]  # with its interval, (C,) each
    intergenic: NDArray[np.bool_] | None
    megabases: float


def call_report(
    scans: Mapping[str, Path],
    fits: Mapping[str, Path],
    promoters: Path,
    output: Path,
    *,
    annotation: Path | None = None,
    within: Sequence[int] = DISTANCES,
    suppress: int = 100,
) -> pd.DataFrame:
    """Check expected precision on scans (predictor → table), and write `calls.tsv` (returned) and `.svg`.

    `fits` has the scans of validation contigs, of the same predictors and with the same stride. `annotation`
    (GFF3 or GTF) has the genes between which calls are counted separately. Other arguments and errors are
    those of `scan_report`. `UsageError`: a predictor is in one of `scans` and `fits` only. `DataError`: both
    scans of a predictor have a contig in common, or too few calls to fit their precision; no gene is on their
    contigs.
    """
    if missing := sorted(set(scans) ^ set(fits)):
        raise UsageError(
            f"{missing[0]}: needs a scan of held-out and of validation contigs (--scores, --fit)"
        )
    genes = None if annotation is None else _gene_bodies(annotation)
    rows: list[tuple[Any, ...]] = []
    for name, path in scans.items():
        valid, held_out = read_scan(fits[name]), read_scan(path)
        if genes is not None and not genes.keys() & _contigs(held_out):
            raise DataError(f"{annotation}: no gene on the contigs of {path}")
        if both := sorted(_contigs(valid) & _contigs(held_out)):
            raise DataError(
                f"{path}: contig {both[0]!r} is also in {fits[name]}; give other contigs"
            )
        for distance in within:
            precision = _fit(valid, promoters, fits[name], suppress, distance)
            for contig, part in _parts(held_out):
                checked = _check(part, promoters, precision, genes)
                rows += [
                    (name, distance, contig, *values)
                    for values in _rows(checked, precision)
                ]
    table = pd.DataFrame(rows, columns=CALLS.names)
    inputs = [
        promoters,
        *scans.values(),
        *fits.values(),
        *([annotation] if annotation else []),
    ]
    with into_directory(output, inputs) as files:
        write_table(files / "calls.tsv", table, CALLS)
        _draw(table, within, files / "calls.svg")
    return table


def _contigs(scan: Scan) -> set[str]:
    return {contig for contig, _ in scan.windows}


def _parts(scan: Scan) -> Iterator[tuple[str, Scan]]:
    """Yield the whole scan, and that of each contig if there are several."""
    yield ALL, scan
    contigs = sorted(_contigs(scan))
    for contig in contigs if len(contigs) > 1 else []:
        yield (
            contig,
            Scan(
                {track: of for track, of in scan.windows.items() if track[0] == contig},
                scan.stride,
            ),
        )


def _fit(
    scan: Scan, promoters: Path, where: Path, suppress: int, within: int
) -> CallPrecision:
    sites = sites_of(promoters, scan)
    fitted = None
    if any(map(len, sites.values())):
        calls = match_tracks(find_track_calls(scan, suppress), sites, within)
        fitted = fit_calls(
            calls,
            stride=scan.stride,
            suppress=suppress,
            within=within,
            megabases=scan.megabases,
            fitted_on={},
        )
    if fitted is None:
        raise DataError(
            f"{where}: fewer than {LEAST} calls are within {within} bp of a TSS, or fewer are not: too few "
            "to fit their precision"
        )
    return fitted


def _gene_bodies(annotation: Path) -> dict[str, Intervals]:
    genes = pd.DataFrame(
        read_genes(annotation), columns=["contig", "start", "end", "strand", "name"]
    )
    return {
        str(contig): Intervals.union(part["start"].to_numpy(), part["end"].to_numpy())
        for contig, part in genes.groupby("contig")
    }


def _check(
    scan: Scan,
    promoters: Path,
    precision: CallPrecision,
    genes: Mapping[str, Intervals] | None,
) -> CheckedCalls:
    sites, calls = sites_of(promoters, scan), find_track_calls(scan, precision.suppress)
    found = match_tracks(calls, sites, precision.within)
    flags = None
    if genes is not None:
        parts = [
            _between_genes(track, of, sites, genes, precision.within)
            for track, of in calls.items()
        ]
        scores = np.concatenate([of.scores for of in calls.values()])
        flags = np.concatenate(parts)[
            np.argsort(-scores, kind="stable")
        ]  # the order of `match_tracks`
    return CheckedCalls(found, precision(found.scores), flags, scan.megabases)


def _between_genes(
    track: Track,
    calls: Points,
    sites: Mapping[Track, Integers],
    genes: Mapping[str, Intervals],
    within: int,
) -> NDArray[np.bool_]:
    """Return which calls are outside of genes and have no annotated TSS of either strand near."""
    places, bodies = calls.positions, genes.get(track[0])
    free = np.ones(len(places), bool)
    if bodies is not None and len(bodies.starts):
        before = np.searchsorted(bodies.starts, places, "right") - 1
        free &= (before < 0) | (places >= bodies.ends[before])
    for strand in "+-":
        near = sites.get((track[0], strand), np.empty(0, np.int64))
        first = np.searchsorted(near, places - within, "left")
        last = np.searchsorted(near, places + within, "right")
        free &= first == last
    return free


def _rows(checked: CheckedCalls, precision: CallPrecision) -> Iterator[tuple[Any, ...]]:
    """Yield the columns of `CALLS` from `selection` on: calls above thresholds, and in bins of precision."""
    scores, expected = checked.found.scores, checked.expected[0]
    rates = {f"expected FDR {rate:g}": precision.at_rate(rate) for rate in RATES}
    for name, chosen in {BEST_F1: precision.best(), **rates}.items():
        above = (
            np.zeros(len(scores), bool) if chosen is None else scores >= chosen.score
        )
        yield (
            name,
            *_metrics(checked, above, np.nan if chosen is None else chosen.score),
        )
    for low, high in pairwise(EDGES):
        inside = (expected >= low) & (expected < high)
        yield (
            f"precision {low:g} to {high:g}",
            *_metrics(checked, inside, scores[inside].min(initial=1.0)),
        )


def _metrics(
    checked: CheckedCalls, chosen: NDArray[np.bool_], threshold: float
) -> tuple[Any, ...]:
    found, count = checked.found, int(chosen.sum())
    sites, density = len(found.site_blocks), count / checked.megabases
    if not count:
        return sites, 0, threshold, density, *[np.nan] * 9, np.nan
    expected, realized, recall = estimate_calls(found, checked.expected, chosen)
    correct = found.gaps[chosen] >= 0
    between = (
        np.nan
        if checked.intergenic is None
        else int((checked.intergenic[chosen] & ~correct).sum())
    )
    return sites, count, threshold, density, *expected, *realized, *recall, between


def _draw(table: pd.DataFrame, within: Sequence[int], path: Path) -> None:
    """Draw realized against expected precision for each distance, and below it the calls per Mb."""
    bins = table[
        (table["contig"] == ALL) & table["selection"].str.startswith("precision ")
    ]
    with panels(2, len(within), 3.7, 3.4) as (figure, axes):
        for column, distance in enumerate(within):
            upper, lower = axes[column], axes[len(within) + column]
            upper.plot([0, 1], [0, 1], color=PALE, linewidth=1.2)
            drawn = bins[(bins["within"] == distance) & (bins["calls"] >= _FEWEST)]
            for number, (name, rows) in enumerate(
                drawn.groupby("predictor", sort=False)
            ):
                color, x = SERIES[number % len(SERIES)], rows["expected_precision"]
                sides = [
                    rows["precision"] - rows["precision_low"],
                    rows["precision_high"] - rows["precision"],
                ]
                error = np.nan_to_num(np.array(sides)).clip(0)
                upper.errorbar(
                    x,
                    rows["precision"],
                    error,
                    color=color,
                    marker="o",
                    markersize=3,
                    label=legend_label(str(name)),
                )
                lower.plot(
                    x, rows["calls_per_megabase"], color=color, marker="o", markersize=3
                )
            upper.set(
                xlabel="expected precision",
                ylabel="realized precision",
                xlim=(0, 1),
                ylim=(0, 1.02),
            )
            upper.set_title(f"within {distance:,} bp of a TSS")
            upper.legend(loc="upper left")
            lower.set(
                xlabel="expected precision",
                ylabel="calls per Mb",
                xlim=(0, 1),
                yscale="log",
            )
        save_figure(figure, path)
