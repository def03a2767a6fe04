"""The effects in a result of `score-variants`, VCF or table, by any kind of model."""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from bigbird_dna.disk.compression import read_lines
from bigbird_dna.disk.tables import open_lines
from bigbird_dna.errors import DataError
from bigbird_dna.genome.fields import decimal, quoted, whole_number
from bigbird_dna.genome.variants import PREFIX, open_vcf
from bigbird_dna.reporting.known_effects import info_of, is_table

EFFECTS = {
    "max_delta": "largest change of a track’s probability",
    "delta": "largest change of the promoter score",
    "log_ratio": "log-ratio of the likelihoods of ALT and REF",
}
"""Column with the effect → what it is."""
_COLUMNS = {
    **{"MAX": "max_delta", "MAXTRACK": "max_track", "TOP": "top", "QUANTILE": "quantile", "NOTE": "note"},
    **{"PROMOTER_REF": "ref_score", "PROMOTER_ALT": "alt_score", "PROMOTER_DELTA": "delta"},
    **{"PROMOTER_SITE": "site", "PROMOTER_STRAND": "strand", "LOGRATIO": "log_ratio", "SPREAD": "spread"},
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
        raise DataError(f"{path}: no effects in the file; score the variants with score-variants")
    return ScoredVariants(found, effect, origin)


def _vcf_rows(path: Path, origin: dict[str, str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield each ALT with its values by column of a table; an absent value is ""."""
    with open_vcf(path) as vcf:
        start = "##bigbird_dna_"
        pairs = (line.removeprefix(start).partition("=") for line in vcf.meta if line.startswith(start))
        origin |= {key: value for key, _, value in pairs}
        declared = [key for key in _COLUMNS if any(f"##INFO=<ID={PREFIX}{key}," in line for line in vcf.meta)]
        for record in vcf.records:
            where, info = f"{path}: line {record.line}", info_of(record)
            contig, position, name, ref = record.columns[:4]
            values = {_COLUMNS[key]: info.get(f"{PREFIX}{key}", "").split(",") for key in declared}
            for column, own in values.items():
                if len(own) not in (1, len(record.alts)) or (len(own) == 1 < len(record.alts) and own[0]):
                    raise DataError(f"{where}: {len(own)} values of {column} for {len(record.alts)} ALT")
            for number, alt in enumerate(record.alts):
                row = {"contig": contig, "position": position, "ref": ref, "alt": alt, "id": name}
                row |= {
                    column: own[number] if len(own) > 1 or number == 0 else ""
                    for column, own in values.items()
                }
                row |= {"max_track": unquote(row["max_track"])} if "max_track" in row else {}
                yield where, row


def _table_rows(path: Path, origin: dict[str, str]) -> Iterator[tuple[str, dict[str, str]]]:
    for _, line in read_lines(path):
        if not line.startswith("## "):
            break
        key, _, value = line[3:].partition(" ")
        origin[key] = value
    where, header, rows = open_lines(path)
    missing = [name for name in ("contig", "position", "ref", "alt", "id", "note") if name not in header]
    if missing:
        raise DataError(f"{where}: no column {quoted(missing[0])}; give a result of score-variants")
    for where, cells in rows:
        yield where, dict(zip(header, cells, strict=True))


def _variant(where: str, row: Mapping[str, str], effect: str) -> ScoredVariant:
    def number(text: str, what: str, limit: float = math.inf) -> float | None:
        if text in _MISSING:
            return None
        if (value := decimal(text)) is None or not (limit == math.inf or 0 <= value <= limit):
            needed = "a number" if limit == math.inf else f"a number from 0 to {limit}"
            raise DataError(f"{where}: {what} {quoted(text)} is not {needed}")
        return value

    position = whole_number(row["position"])
    if position is None:
        raise DataError(f"{where}: position {quoted(row['position'])} is not a whole number")
    value = number(row.get(effect, ""), effect)
    output, scores = row.get("max_track", ""), list[AlleleScores]()
    if effect == "delta" and value is not None:
        site = whole_number(row.get("site", ""))
        output = f"TSS at {site:,} ({row.get('strand', '')})" if site is not None else ""
    top = "" if row.get("top", "") in _MISSING else row["top"]
    parts = [part.split(":") for part in top.split("&") if part]
    parts += [[output, row.get("ref_score", ""), row.get("alt_score", "")]] if effect == "delta" else []
    for part in parts:
        pair = [number(text, "probability", 1) for text in part[1:]]
        if len(pair) != 2:
            raise DataError(f"{where}: {quoted(':'.join(part))} is not of the form TRACK:REF:ALT")
        if pair[0] is not None and pair[1] is not None:
            scores.append(AlleleScores(unquote(part[0]), pair[0], pair[1]))
    notes = "" if row.get("note", "") in _MISSING else row["note"]
    quantile = number(row.get("quantile", ""), "quantile", 1)
    return ScoredVariant(
        *(row["contig"], position, row["ref"], row["alt"], "" if row["id"] == "." else row["id"]),
        *(value, "" if value is None else output, quantile),
        *(tuple(filter(None, notes.split("&"))), tuple(scores)),
    )
