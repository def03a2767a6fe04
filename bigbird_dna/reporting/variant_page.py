"""Page of a result of `score-variants`, by any kind of model.

It has a table of all variants, and the scores and surroundings of the first ones.
"""

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from bigbird_dna.disk.atomic import atomic_path
from bigbird_dna.disk.compression import read_lines
from bigbird_dna.disk.outputs import check_output
from bigbird_dna.disk.tables import open_lines
from bigbird_dna.errors import DataError, check_at_least_one
from bigbird_dna.genome.assembly import shown
from bigbird_dna.genome.fields import decimal, quoted, whole_number
from bigbird_dna.genome.intervals import read_peaks
from bigbird_dna.genome.promoters import read_loci
from bigbird_dna.genome.sequence import Intervals, Locus
from bigbird_dna.genome.variants import PREFIX, open_vcf
from bigbird_dna.reporting.known_effects import info_of, is_table
from bigbird_dna.reporting.track_page import page_script, render_page

EFFECTS = {
    "max_delta": "largest change of a track’s probability",
    "delta": "largest change of the promoter score",
    "log_ratio": "log-ratio of the likelihoods of ALT and REF",
}
"""Column with the effect → what it is."""
_COLUMNS = {
    **{
        "MAX": "max_delta",
        "MAXTRACK": "max_track",
        "TOP": "top",
        "QUANTILE": "quantile",
        "NOTE": "note",
    },
    **{
        "PROMOTER_REF": "ref_score",
        "PROMOTER_ALT": "alt_score",
        "PROMOTER_DELTA": "delta",
    },
    **{
        "PROMOTER_SITE": "site",
        "PROMOTER_STRAND": "strand",
        "LOGRATIO": "log_ratio",
        "SPREAD": "spread",
    },
}
"""INFO key → column of the same values in a table."""
_MISSING = ("", ".", "NA")


class AlleleScores(NamedTuple):
    """The scores of both alleles: of a track, or of the TSS position with the largest change."""

    name: str
    ref: float
    alt: float


class ScoredVariant(NamedTuple):
    """An alternative allele and its effect; None if it was not scored. `position` is 1-based."""

    contig: str
    position: int
    ref: str
    alt: str
    id: str
    effect: float | None
    output: str  # the track or TSS position of the effect
    quantile: float | None
    notes: tuple[str, ...]
    scores: tuple[AlleleScores, ...]


class ScoredVariants(NamedTuple):
    """The alleles of a file in order, the column of their effects, and the file's provenance."""

    variants: list[ScoredVariant]
    effect: str
    origin: dict[str, str]


def read_scored(path: Path) -> ScoredVariants:
    """Read a VCF or table of `score-variants`.

    `DataError`: the file has no effects, no variant, or a value that is not a number.
    """
    origin: dict[str, str] = {}
    rows = _table_rows(path, origin) if is_table(path) else _vcf_rows(path, origin)
    found, effect = [], ""
    for where, row in rows:
        effect = effect or next((name for name in EFFECTS if name in row), "")
        found.append(_variant(where, row, effect))
    if not found:
        raise DataError(f"{path}: no variants in the file")
    if not effect:
        raise DataError(
            f"{path}: no effects in the file; score the variants with score-variants"
        )
    return ScoredVariants(found, effect, origin)


def _vcf_rows(
    path: Path, origin: dict[str, str]
) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield each ALT with its values by column of a table; an absent value is ""."""
    with open_vcf(path) as vcf:
        start = "##bigbird_dna_"
        pairs = (
            line.removeprefix(start).partition("=")
            for line in vcf.meta
            if line.startswith(start)
        )
        origin |= {key: value for key, _, value in pairs}
        declared = [
            key
            for key in _COLUMNS
            if any(f"##INFO=<ID={PREFIX}{key}," in line for line in vcf.meta)
        ]
        for record in vcf.records:
            where, info = f"{path}: line {record.line}", info_of(record)
            contig, position, name, ref = record.columns[:4]
            values = {
                _COLUMNS[key]: info.get(f"{PREFIX}{key}", "").split(",")
                for key in declared
            }
            for column, own in values.items():
                if len(own) not in (1, len(record.alts)) or (
                    len(own) == 1 < len(record.alts) and own[0]
                ):
                    raise DataError(
                        f"{where}: {len(own)} values of {column} for {len(record.alts)} ALT"
                    )
            for number, alt in enumerate(record.alts):
                row = {
                    "contig": contig,
                    "position": position,
                    "ref": ref,
                    "alt": alt,
                    "id": name,
                }
                row |= {
                    column: own[number] if len(own) > 1 or number == 0 else ""
                    for column, own in values.items()
                }
                row |= (
                    {"max_track": unquote(row["max_track"])}
                    if "max_track" in row
                    else {}
                )
                yield where, row


def _table_rows(
    path: Path, origin: dict[str, str]
) -> Iterator[tuple[str, dict[str, str]]]:
    for _, line in read_lines(path):
        if not line.startswith("## "):
            break
        key, _, value = line[3:].partition(" ")
        origin[key] = value
    where, header, rows = open_lines(path)
    missing = [
        name
        for name in ("contig", "position", "ref", "alt", "id", "note")
        if name not in header
    ]
    if missing:
        raise DataError(
            f"{where}: no column {quoted(missing[0])}; give a result of score-variants"
        )
    for where, cells in rows:
        yield where, dict(zip(header, cells, strict=True))


def _variant(where: str, row: Mapping[str, str], effect: str) -> ScoredVariant:
    def number(text: str, what: str, limit: float = math.inf) -> float | None:
        if text in _MISSING:
            return None
        if (value := decimal(text)) is None or not (
            limit == math.inf or 0 <= value <= limit
        ):
            needed = "a number" if limit == math.inf else f"a number from 0 to {limit}"
            raise DataError(f"{where}: {what} {quoted(text)} is not {needed}")
        return value

    position = whole_number(row["position"])
    if position is None:
        raise DataError(
            f"{where}: position {quoted(row['position'])} is not a whole number"
        )
    value = number(row.get(effect, ""), effect)
    output, scores = row.get("max_track", ""), list[AlleleScores]()
    if effect == "delta" and value is not None:
        site = whole_number(row.get("site", ""))
        output = (
            f"TSS at {site:,} ({row.get('strand', '')})" if site is not None else ""
        )
    top = "" if row.get("top", "") in _MISSING else row["top"]
    parts = [part.split(":") for part in top.split("&") if part]
    parts += (
        [[output, row.get("ref_score", ""), row.get("alt_score", "")]]
        if effect == "delta"
        else []
    )
    for part in parts:
        pair = [number(text, "probability", 1) for text in part[1:]]
        if len(pair) != 2:
            raise DataError(
                f"{where}: {quoted(':'.join(part))} is not of the form TRACK:REF:ALT"
            )
        if pair[0] is not None and pair[1] is not None:
            scores.append(AlleleScores(unquote(part[0]), pair[0], pair[1]))
    notes = "" if row.get("note", "") in _MISSING else row["note"]
    quantile = number(row.get("quantile", ""), "quantile", 1)
    return ScoredVariant(
        *(
            row["contig"],
            position,
            row["ref"],
            row["alt"],
            "" if row["id"] == "." else row["id"],
        ),
        *(value, "" if value is None else output, quantile),
        *(tuple(filter(None, notes.split("&"))), tuple(scores)),
    )


MOST_ROWS = 10_000
"""Most variants in the table of a page; browsers become slow with more."""
_LONGEST = 12  # letters of an allele that are shown
_WIDTH, _LEFT, _HEIGHT = (
    900,
    40,
    70,
)  # of a locus, of its scale, and of the largest effect, in pixels
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
        temporary.write_text(
            page, encoding="utf-8", errors="replace"
        )  # a VCF may have other bytes
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
    for locus in (
        [] if path is None else sorted(read_loci(path), key=lambda one: one.position)
    ):
        sites[locus.contig].append(locus)
    _check_contigs(path, sites, contigs)
    return sites


def _regions(path: Path | None, contigs: Iterable[str]) -> Mapping[str, Intervals]:
    regions = {} if path is None else read_peaks(path).contigs
    _check_contigs(path, regions, contigs)
    return regions


def _check_contigs(
    path: Path | None, found: Iterable[str], contigs: Iterable[str]
) -> None:
    if path is not None and not {*found} & {*contigs}:
        raise DataError(
            f"{path}: no contig of the variants ({shown(sorted(contigs))}; found {shown(found)})"
        )


def _shown(
    one: ScoredVariant, sites: Mapping[str, Sequence[Locus]], has_sites: bool
) -> ShownVariant:
    effect = "" if one.effect is None else f"{one.effect:+.3g}".replace("-", "−")
    quantile = "" if one.quantile is None else f"{one.quantile:.3f}"
    alleles = (
        text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
        for text in (one.ref, one.alt)
    )
    nearest = _nearest(one, sites.get(one.contig, ())) if has_sites else ""
    place, change = f"{one.contig}:{one.position:,}", " > ".join(alleles)
    return ShownVariant(
        one, place, change, nearest, effect, quantile, ", ".join(one.notes)
    )


def _nearest(one: ScoredVariant, sites: Sequence[Locus]) -> str:
    """Describe the nearest TSS of a variant: name, strand, and the distance of the first base of REF."""
    if not sites:
        return ""
    place = one.position - 1
    after = bisect_left(sites, place, key=lambda site: site.position)
    near = min(
        sites[max(0, after - 1) : after + 1],
        key=lambda site: abs(site.position - place),
    )
    gap = (place - near.position) * (1 if near.strand == "+" else -1)
    side = (
        "at the TSS"
        if not gap
        else f"{abs(gap):,} bp {'down' if gap > 0 else 'up'}stream"
    )
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
        self._largest = (
            max((abs(one.effect or 0.0) for one in found.variants), default=0.0) or 1.0
        )
        self._variants: defaultdict[str, list[ScoredVariant]] = defaultdict(list)
        for one in sorted(found.variants, key=lambda one: one.position):
            self._variants[one.contig].append(one)

    def draw(self, one: ScoredVariant) -> LocusDrawing:
        center = one.position - 1
        low, high = center - self._around, center + self._around

        def x(place: float) -> float:
            inside = min(max(place, low), high)
            return round(
                _LEFT + (_WIDTH - _LEFT - 10) * (inside - low) / (high - low), 1
            )

        near = self._variants[one.contig]
        first = bisect_left(near, low + 1, key=lambda other: other.position)
        last = bisect_right(near, high + 1, key=lambda other: other.position)
        variants = [
            Mark(
                x(v.position - 0.5),
                0,
                _title(v),
                self._height(v),
                "" if v == one else "other",
            )
            for v in sorted(near[first:last], key=lambda v: v == one)
            if v.effect is not None
        ]
        sites = [
            site
            for site in self._sites.get(one.contig, ())
            if low <= site.position <= high
        ]
        named = {
            site.name
            for site in sorted(sites, key=lambda s: abs(s.position - center))[
                :_MOST_NAMES
            ]
        }
        promoters = [
            Mark(
                x(s.position),
                0,
                s.name if s.name in named else "",
                0,
                "plus" if s.strand == "+" else "minus",
            )
            for s in sites
        ]
        own = self._regions.get(one.contig)
        peaks = (
            []
            if own is None
            else [
                Mark(
                    x(start),
                    max(x(end), x(start) + 1),
                    f"{one.contig}:{start + 1:,}-{end:,}",
                )
                for start, end in own.clipped(max(0, low), high + 1)
            ]
        )
        step = self._around / 2
        ticks = [
            Mark(x(center + k * step), 0, f"{round(center + 1 + k * step):,}")
            for k in range(-2, 3)
        ]
        return LocusDrawing(
            [t for t in ticks if not t.text.startswith("-")], variants, promoters, peaks
        )

    def _height(self, one: ScoredVariant) -> float:
        """Height of a variant in pixels: its quantile if any variant has one, else its absolute effect."""
        size = (
            (one.quantile or 0.0)
            if self._ranked
            else abs(one.effect or 0.0) / self._largest
        )
        return round(_HEIGHT * size, 1)


def _title(one: ScoredVariant) -> str:
    row = _shown(one, {}, False)
    return f"{row.place} {row.change}: effect {row.effect}" + (
        row.quantile and f", quantile {row.quantile}"
    )
