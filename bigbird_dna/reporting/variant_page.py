"""Page of scored variants: a table of all of them, and the scores and surroundings of the first ones."""

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from bigbird_dna.disk.atomic import atomic_path
from bigbird_dna.disk.outputs import check_output
from bigbird_dna.errors import DataError, check_at_least_one
from bigbird_dna.genome.assembly import shown
from bigbird_dna.genome.intervals import read_peaks
from bigbird_dna.genome.promoters import read_loci
from bigbird_dna.genome.sequence import Intervals, Locus
from bigbird_dna.reporting.scored_variants import EFFECTS, ScoredVariant, ScoredVariants, read_scored
from bigbird_dna.reporting.track_page import page_script, render_page

MOST_ROWS = 10_000
"""Most variants in the table of a page; browsers become slow with more."""
_LONGEST = 12  # letters of an allele that are shown
_WIDTH, _LEFT, _HEIGHT = 900, 40, 70  # of a locus, of its scale, and of the largest effect, in pixels
_MOST_NAMES = 12  # of promoters in a locus


class Mark(NamedTuple):
    """A mark in the drawing of a locus, from `x` to `end`, in pixels."""

    x: float
    end: float
    text: str
    height: float = 0.0
    kind: str = ""


class LocusDrawing(NamedTuple):
    """The drawing of the surroundings of a variant."""

    ticks: Sequence[Mark]
    variants: Sequence[Mark]
    promoters: Sequence[Mark]
    peaks: Sequence[Mark]


class ShownVariant(NamedTuple):
    """A variant on the page, as text."""

    variant: ScoredVariant
    place: str
    change: str
    nearest: str
    effect: str
    quantile: str
    notes: str


def variant_page(
    scored: Path,
    output: Path,
    *,
    promoters: Path | None = None,
    peaks: Path | None = None,
    top: int = 50,
    around: int = 2000,
) -> list[ScoredVariant]:
    """Write an HTML page of the variants in a result of `score-variants`, and return them in its order.

    Parameters
    ----------
    scored
        VCF or table; `score_variants` with `top_tracks` adds the tracks whose scores are shown.
    output
        HTML file, which needs no network.
    promoters, peaks
        TSSs (the TSV of `prepare promoters`), for the nearest one of each variant; regions (BED). Both are
        drawn near the first variants.
    top, around
        Number of variants, in the order of the table, that are shown in detail, with the other variants at
        most `around` bp away.

    Raises
    ------
    UsageError, DataError
        `top` is negative; a file cannot be read, has no effects, or no contig of the variants.
    """
    check_at_least_one({"around": around, "top": top + 1})
    check_output(output, [scored, promoters, peaks])
    found = read_scored(scored)
    order = sorted(found.variants, key=_rank)
    contigs = {one.contig for one in order}
    sites, regions = _sites(promoters, contigs), _regions(peaks, contigs)
    rows = [_shown(one, sites, promoters is not None) for one in order[:MOST_ROWS]]
    nearby = _Neighbors(found, sites, regions, around)
    detailed = [row for row in rows[:top] if row.variant.effect is not None]
    page = render_page(
        "variant_page.html",
        style="track_page.css variant_page.css",
        title="Effects of variants",
        conclusions=conclusions(found),
        rows=rows,
        left_out=len(order) - len(rows),
        details=[(row, nearby.draw(row.variant)) for row in detailed],
        has_ranks=any(one.quantile is not None for one in order),
        has_promoters=promoters is not None,
        measure=EFFECTS[found.effect],
        kind=found.effect,
        around=around,
        source=scored.name,
        origin=found.origin,
        width=_WIDTH,
        left=_LEFT,
        height=_HEIGHT,
        **page_script("sortable_table.js"),
    )
    with atomic_path(output) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return order


def conclusions(found: ScoredVariants) -> list[str]:
    """Return what the effects show, in sentences."""
    scored = [one for one in found.variants if one.effect is not None]
    ranks = [one.quantile for one in scored if one.quantile is not None]
    counted = f"{len(found.variants):,} variants, of which {len(scored):,} were scored."
    if not ranks:
        return [
            counted,
            "Their effects were not compared with those of random variants (model add-background).",
        ]
    high = sum(rank >= 0.99 for rank in ranks)
    return [
        f"{counted} {high:,} of {len(ranks):,} have a larger effect than 99 % of random variants of their "
        "type. About 1 % are expected if the variants are no different from random ones."
    ]


def _rank(one: ScoredVariant) -> tuple[float, float]:
    """Sort key: the largest quantiles first, then the largest effects; variants without a score are last."""
    if one.effect is None:
        return math.inf, 0.0
    return -1.0 if one.quantile is None else -1.0 - one.quantile, -abs(one.effect)


def _sites(path: Path | None, contigs: Iterable[str]) -> dict[str, list[Locus]]:
    sites: defaultdict[str, list[Locus]] = defaultdict(list)
    for locus in [] if path is None else sorted(read_loci(path), key=lambda one: one.position):
        sites[locus.contig].append(locus)
    _check_contigs(path, sites, contigs)
    return sites


def _regions(path: Path | None, contigs: Iterable[str]) -> Mapping[str, Intervals]:
    regions = {} if path is None else read_peaks(path).contigs
    _check_contigs(path, regions, contigs)
    return regions


def _check_contigs(path: Path | None, found: Iterable[str], contigs: Iterable[str]) -> None:
    if path is not None and not {*found} & {*contigs}:
        raise DataError(f"{path}: no contig of the variants ({shown(sorted(contigs))}; found {shown(found)})")


def _shown(one: ScoredVariant, sites: Mapping[str, Sequence[Locus]], has_sites: bool) -> ShownVariant:
    effect = "" if one.effect is None else f"{one.effect:+.3g}".replace("-", "−")
    quantile = "" if one.quantile is None else f"{one.quantile:.3f}"
    alleles = (text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…" for text in (one.ref, one.alt))
    nearest = _nearest(one, sites.get(one.contig, ())) if has_sites else ""
    place, change = f"{one.contig}:{one.position:,}", " > ".join(alleles)
    return ShownVariant(one, place, change, nearest, effect, quantile, ", ".join(one.notes))


def _nearest(one: ScoredVariant, sites: Sequence[Locus]) -> str:
    """Describe the nearest TSS of a variant: name, strand, and the distance of the first base of REF."""
    if not sites:
        return ""
    place = one.position - 1
    after = bisect_left(sites, place, key=lambda site: site.position)
    near = min(sites[max(0, after - 1) : after + 1], key=lambda site: abs(site.position - place))
    gap = (place - near.position) * (1 if near.strand == "+" else -1)
    side = "at the TSS" if not gap else f"{abs(gap):,} bp {'down' if gap > 0 else 'up'}stream"
    return f"{near.name} ({near.strand}), {side}"


class _Neighbors:
    """What is drawn around a variant: others, promoters and peaks."""

    def __init__(
        self,
        found: ScoredVariants,
        sites: Mapping[str, Sequence[Locus]],
        regions: Mapping[str, Intervals],
        around: int,
    ) -> None:
        self._sites, self._regions, self._around = sites, regions, around
        self._ranked = any(one.quantile is not None for one in found.variants)
        self._largest = max((abs(one.effect or 0.0) for one in found.variants), default=0.0) or 1.0
        self._variants: defaultdict[str, list[ScoredVariant]] = defaultdict(list)
        for one in sorted(found.variants, key=lambda one: one.position):
            self._variants[one.contig].append(one)

    def draw(self, one: ScoredVariant) -> LocusDrawing:
        center = one.position - 1
        low, high = center - self._around, center + self._around

        def x(place: float) -> float:
            inside = min(max(place, low), high)
            return round(_LEFT + (_WIDTH - _LEFT - 10) * (inside - low) / (high - low), 1)

        near = self._variants[one.contig]
        first = bisect_left(near, low + 1, key=lambda other: other.position)
        last = bisect_right(near, high + 1, key=lambda other: other.position)
        variants = [
            Mark(x(v.position - 0.5), 0, _title(v), self._height(v), "" if v == one else "other")
            for v in sorted(near[first:last], key=lambda v: v == one)
            if v.effect is not None
        ]
        sites = [site for site in self._sites.get(one.contig, ()) if low <= site.position <= high]
        named = {site.name for site in sorted(sites, key=lambda s: abs(s.position - center))[:_MOST_NAMES]}
        promoters = [
            Mark(
                x(s.position), 0, s.name if s.name in named else "", 0, "plus" if s.strand == "+" else "minus"
            )
            for s in sites
        ]
        own = self._regions.get(one.contig)
        peaks = (
            []
            if own is None
            else [
                Mark(x(start), max(x(end), x(start) + 1), f"{one.contig}:{start + 1:,}-{end:,}")
                for start, end in own.clipped(max(0, low), high + 1)
            ]
        )
        step = self._around / 2
        ticks = [Mark(x(center + k * step), 0, f"{round(center + 1 + k * step):,}") for k in range(-2, 3)]
        return LocusDrawing([t for t in ticks if not t.text.startswith("-")], variants, promoters, peaks)

    def _height(self, one: ScoredVariant) -> float:
        """Height of a variant in pixels: its quantile if any variant has one, else its absolute effect."""
        size = (one.quantile or 0.0) if self._ranked else abs(one.effect or 0.0) / self._largest
        return round(_HEIGHT * size, 1)


def _title(one: ScoredVariant) -> str:
    row = _shown(one, {}, False)
    return f"{row.place} {row.change}: effect {row.effect}" + (row.quantile and f", quantile {row.quantile}")
