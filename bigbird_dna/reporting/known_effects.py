"""Results of `score-variants`, read with the known effects of the variants.

The truth is in INFO: whether a variant has an effect, on which track, and its category. A field has one
value for the record or one for each ALT; `%` and two digits stand for what INFO can't hold.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from bigbird_dna.disk.compression import control_character
from bigbird_dna.disk.tables import open_lines
from bigbird_dna.errors import DataError, UsageError
from bigbird_dna.genome.fields import check_name, decimal, quoted
from bigbird_dna.genome.variants import PREFIX, VcfRecord, open_vcf

TABLES = (".tsv", ".txt", ".tsv.gz", ".txt.gz")
_KEY_COLUMNS = ("contig", "position", "ref", "alt")

_Key = tuple[str, ...]  # contig, position, REF, ALT, as written


class Fields(NamedTuple):
    """INFO keys of the truth, or their values for an allele, "" where there are none."""

    effect: str = "EFFECT"
    track: str = "TRACK"
    place: str = "PLACE"


DEFAULT_FIELDS = Fields()
UNKNOWN = Fields("", "", "")


class KnownEffect(NamedTuple):
    """The known effect of a variant on a track, and the predicted changes of probability and log-odds.

    `effect` is one of `DIRECTIONS` or another word, or the one that stands for none; `place` is a kind of
    variant, "" if there are none. Changes are ALT minus REF, of natural log-odds.
    """

    contig: str
    track: str
    place: str
    effect: str
    delta: float
    log_odds: float


class KnownEffects(NamedTuple):
    """Scored alleles of known effect in the file's order, and how many others there were, by reason."""

    variants: list[KnownEffect]
    left_out: Counter[str]


class _ScoredAllele(NamedTuple):
    """An allele as it was scored: changes of every track as text, None if it has none."""

    where: str
    key: _Key
    truth: Fields
    note: str
    deltas: Sequence[str] | None
    log_odds: Sequence[str] | None
    columns: Mapping[str, int]  # of the tracks


def read_known_effects(
    scored: Path, truth: Path | None = None, fields: Fields = DEFAULT_FIELDS, track: str | None = None
) -> KnownEffects:
    """Predicted effects of the alleles whose effect is known, each on the track that it is known for.

    `scored` is a VCF or table of `score-variants` with the values of each track; `truth` a VCF, matched by
    contig, position, REF and ALT, None if it is in `scored`. Effects are read in lower case. All are known
    for `track`, or for the one that `fields.track` names. `DataError`: no allele is left.
    """
    is_table = scored.name.lower().endswith(TABLES)
    if is_table and truth is None:
        raise UsageError(f"{scored}: a table holds no known effects: name their VCF with --truth")
    known = None if truth is None else _read_truth(truth, fields)
    found = KnownEffects([], Counter())
    alleles = _read_table(scored) if is_table else _read_vcf(scored, fields if known is None else None)
    for allele in alleles:
        if track is not None and track not in allele.columns:
            raise UsageError(f"--track {track!r}: {scored} has no values of it")
        # Popped: a variant that is listed twice in both files isn't counted four times.
        truths = [allele.truth] if known is None else known.pop(allele.key, [])
        for one in truths or [UNKNOWN]:
            named = one if track is None else one._replace(track=track)
            reason = _left_out(allele, named, fields)
            if reason:
                found.left_out[reason] += 1
            else:
                found.variants.append(_known_effect(allele, named))
    unmatched = sum(map(len, known.values())) if known else 0
    if unmatched:
        found.left_out["not among the scored"] = unmatched
    if not found.variants:
        why = ", ".join(f"{count:,} {reason}" for reason, count in found.left_out.most_common(3))
        raise DataError(f"{scored}: no variant to evaluate ({why or 'the file has none'})")
    return found


def _left_out(allele: _ScoredAllele, truth: Fields, fields: Fields) -> str:
    """Why an allele can't be evaluated, "" if it can."""
    if not truth.effect:
        return f"without {fields.effect}"
    if allele.deltas is None:
        return f"not scored ({allele.note})" if allele.note else "not scored"
    if not truth.track:
        return f"without {fields.track}"
    return "" if truth.track in allele.columns else f"on {truth.track}, which was not predicted"


def _known_effect(allele: _ScoredAllele, truth: Fields) -> KnownEffect:
    assert allele.deltas is not None and allele.log_odds is not None
    column = allele.columns[truth.track]
    texts = allele.deltas[column], allele.log_odds[column]
    delta, log_odds = map(decimal, texts)
    if delta is None or log_odds is None:
        raise DataError(f"{allele.where}: {truth.track}: {' and '.join(map(quoted, texts))} are not numbers")
    return KnownEffect(allele.key[0], truth.track, truth.place, truth.effect, delta, log_odds)


def _read_truth(path: Path, fields: Fields) -> dict[_Key, list[Fields]]:
    known: dict[_Key, list[Fields]] = {}
    with open_vcf(path) as vcf:
        for record in vcf.records:
            info = _info(record)
            for number, key in enumerate(_keys(record)):
                truth = _truth(info, fields, record, number, f"{path}: line {record.line}")
                if truth.effect:
                    known.setdefault(key, []).append(truth)
    if not known:
        raise DataError(f"{path}: no record has {fields.effect} in INFO")
    return known


def _read_vcf(path: Path, fields: Fields | None) -> Iterator[_ScoredAllele]:
    """Alleles of a scored VCF; without `fields` nothing is known of them."""
    with open_vcf(path) as vcf:
        columns = _columns(vcf.meta, path)
        for record in vcf.records:
            where = f"{path}: line {record.line}"
            info = _info(record)
            deltas, log_odds = (
                _by_allele(info.get(f"{PREFIX}{key}"), len(record.alts), len(columns), where)
                for key in ("DELTA", "LOGODDS")
            )
            if [one is None for one in deltas] != [one is None for one in log_odds]:
                raise DataError(f"{where}: {PREFIX}DELTA and {PREFIX}LOGODDS are not of the same ALT")
            notes = info.get(f"{PREFIX}NOTE", "").split(",")
            for number, key in enumerate(_keys(record)):
                yield _ScoredAllele(
                    where,
                    key,
                    _truth(info, fields, record, number, where) if fields else UNKNOWN,
                    notes[number].strip(".") if number < len(notes) else "",
                    deltas[number],
                    log_odds[number],
                    columns,
                )


def _columns(meta: Sequence[str], path: Path) -> dict[str, int]:
    """Track → place among the values of an ALT, from the header line that lists them."""
    for line in meta:
        if line.startswith(f"##INFO=<ID={PREFIX}DELTA,"):
            listed = re.search(r': for each ALT the tracks ([^"]*)"', line)
            if listed:
                names = [check_name(unquote(name), "track", str(path)) for name in listed[1].split(",")]
                return {name: number for number, name in enumerate(names)}
    raise DataError(f"{path}: the header has no {PREFIX}DELTA: score the variants with --tracks '*'")


def _by_allele(text: str | None, alleles: int, tracks: int, where: str) -> Sequence[Sequence[str] | None]:
    """The values of each ALT, None where it was not scored."""
    if text is None:
        return [None] * alleles
    values = text.split(",")
    if len(values) != alleles * tracks:
        raise DataError(
            f"{where}: {len(values):,} values, not one for each of {alleles} ALT and {tracks:,} tracks"
        )
    parts = [values[first : first + tracks] for first in range(0, len(values), tracks)]
    return [None if part[0] == "." else part for part in parts]


def _info(record: VcfRecord) -> dict[str, str]:
    parts = (part.partition("=") for part in record.columns[7].split(";"))
    return {key: value for key, _, value in parts}


def _keys(record: VcfRecord) -> Iterator[_Key]:
    contig, position, _, ref = record.columns[:4]
    return ((contig, position, ref, alt) for alt in record.alts)


def _truth(info: Mapping[str, str], fields: Fields, record: VcfRecord, number: int, where: str) -> Fields:
    """The truth of ALT `number`."""
    found = []
    for key in fields:
        values = info.get(key, "").split(",")
        if len(values) not in (1, len(record.alts)):
            raise DataError(f"{where}: {key} has {len(values)} values for {len(record.alts)} ALT")
        value = values[number] if len(values) > 1 else values[0]
        text = "" if value == "." else unquote(value)
        if control := control_character(text):
            raise DataError(f"{where}: {key} {quoted(text)} has a control character ({control})")
        found.append(text)
    return Fields(found[0].lower(), *found[1:])


def _read_table(path: Path) -> Iterator[_ScoredAllele]:
    where, header, rows = open_lines(path)
    names = [name.removesuffix(":delta") for name in header if name.endswith(":delta")]
    missing = {*_KEY_COLUMNS, "note", *(f"{name}:logodds" for name in names)} - set(header)
    if missing or not names:
        what = f"column {quoted(sorted(missing)[0])}" if missing else "values of each track"
        raise DataError(f"{where}: no {what}: not a table of score-variants --tracks '*'")
    columns = {name: index for index, name in enumerate(names)}
    for where, cells in rows:
        row = dict(zip(header, cells, strict=True))
        key = tuple(row[name] for name in _KEY_COLUMNS)
        scored = row[f"{names[0]}:delta"] != "NA"
        deltas, log_odds = (
            [row[f"{name}:{value}"] for name in names] if scored else None for value in ("delta", "logodds")
        )
        yield _ScoredAllele(where, key, UNKNOWN, row["note"].strip("."), deltas, log_odds, columns)
