"""Predicted effects of alleles with known effects, and of the random variants drawn for them.

Known effects are in INFO: whether a variant has an effect, on which track, and its category. A field has one
value per record or one per ALT; characters not allowed in INFO are percent-encoded.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from bigbird_dna.disk.compression import control_character
from bigbird_dna.disk.tables import open_lines
from bigbird_dna.errors import DataError, UsageError
from bigbird_dna.genome.fields import check_name, decimal, quoted, whole_number
from bigbird_dna.genome.variants import PREFIX, VcfRecord, open_vcf

TABLES = (".tsv", ".txt", ".tsv.gz", ".txt.gz")
_KEY_COLUMNS = ("contig", "position", "ref", "alt")

_Key = tuple[str, ...]  # contig, position, REF, ALT, as written


class Fields(NamedTuple):
    """INFO keys of the known effects, or their values for an allele ("" if missing)."""

    effect: str = "EFFECT"
    track: str = "TRACK"
    category: str = "CATEGORY"


DEFAULT_FIELDS = Fields()
UNKNOWN = Fields("", "", "")


class KnownEffect(NamedTuple):
    """The known effect of a variant on a track, and the predicted changes of probability and log-odds.

    `effect` is one of `DIRECTIONS`, another word, or the word for no effect; `category` is a category of
    variants, or "". Changes are ALT minus REF; log-odds are natural logarithms.
    """

    contig: str
    position: int  # 1-based
    track: str
    category: str
    effect: str
    delta: float
    log_odds: float
    ref: str = ""
    alt: str = ""


class KnownEffects(NamedTuple):
    """Scored alleles with known effects in file order, and the number of excluded alleles by reason."""

    variants: list[KnownEffect]
    left_out: Counter[str]


class _ScoredAllele(NamedTuple):
    """A scored allele: changes of every track as text, or None if it was not scored."""

    where: str
    key: _Key
    id: str
    truth: Fields
    note: str
    deltas: Sequence[str] | None
    log_odds: Sequence[str] | None
    columns: Mapping[str, int]  # track → index in the changes

    def on_track(self, known: Fields) -> KnownEffect:
        """Return the predicted changes of a scored allele on the track of its known effect."""
        assert self.deltas is not None and self.log_odds is not None
        texts = tuple(
            values[self.columns[known.track]] for values in (self.deltas, self.log_odds)
        )
        delta, log_odds = map(decimal, texts)
        if delta is None or log_odds is None:
            wrong = " and ".join(map(quoted, texts))
            raise DataError(
                f"{self.where}: {known.track}: expected numbers, found {wrong}"
            )
        contig, text, ref, alt = self.key
        if (position := whole_number(text)) is None:
            raise DataError(
                f"{self.where}: position {quoted(text)} is not a whole number"
            )
        truth = known.track, known.category, known.effect
        return KnownEffect(contig, position, *truth, delta, log_odds, ref, alt)


def read_known_effects(
    scored: Path,
    truth: Path | None = None,
    fields: Fields = DEFAULT_FIELDS,
    track: str | None = None,
    unknown: str = "",
) -> KnownEffects:
    """Read the predicted effects of the alleles with known effects, each on the track of the known effect.

    `scored` is a VCF or table of `score-variants` with values of every track. `truth` is a VCF, matched by
    contig, position, REF and ALT; None: known effects are in `scored`. Effects are lowercased. The track is
    `track`, or the value of `fields.track`. If no effect is known, all have the effect `unknown` (if that is
    a word). `DataError`: no allele is left.
    """
    if truth is None and is_table(scored) and not (unknown and track):
        raise UsageError(
            f"{scored}: a table contains no known effects; give their VCF with --truth"
        )
    known = None if truth is None else _read_truth(truth, fields)
    found = KnownEffects([], Counter())
    for allele in _read_scored(scored, fields if known is None else None):
        if track is not None and track not in allele.columns:
            raise UsageError(f"--track {track!r}: {scored} has no values of this track")
        # Popped, so that a variant listed twice in both files is not counted four times.
        truths = [allele.truth] if known is None else known.pop(allele.key, [])
        for one in truths or [UNKNOWN]:
            named = one if track is None else one._replace(track=track)
            if unknown and not named.effect:
                named = named._replace(effect=unknown)
            if reason := _left_out(allele, named, fields):
                found.left_out[reason] += 1
                continue
            found.variants.append(allele.on_track(named))
    unmatched = sum(map(len, known.values())) if known else 0
    if unmatched:
        found.left_out["not in the scored file"] = unmatched
    effects = [one for one in found.variants if one.effect != unknown]
    if effects and len(effects) < len(found.variants):
        found.left_out[f"without {fields.effect}"] += len(found.variants) - len(effects)
        found = found._replace(variants=effects)
    if not found.variants:
        why = ", ".join(
            f"{count:,} {reason}" for reason, count in found.left_out.most_common(3)
        )
        raise DataError(
            f"{scored}: no variant to evaluate ({why or 'the file has none'})"
        )
    return found


def read_random(
    scored: Path, variants: Sequence[KnownEffect]
) -> tuple[list[KnownEffect], list[KnownEffect]]:
    """Return the variants for which random ones were scored, and these random variants.

    `scored` is a VCF or table of `score-variants`, with `--random`. A random
    variant has the track, category and known effect of its variant. `DataError`: there are none.
    """
    named: dict[_Key, list[KnownEffect]] = {}
    for one in variants:
        named.setdefault((one.contig, str(one.position), one.ref, one.alt), []).append(
            one
        )
    drawn: dict[KnownEffect, list[KnownEffect]] = {}
    for allele in _read_scored(scored):
        key = (
            allele.key[0],
            *allele.id.split(":")[:-1],
        )  # ID: POS:REF:ALT:NUMBER of the variant
        for one in named.get(key, ()) if allele.deltas is not None else ():
            if one.track not in allele.columns:
                raise DataError(
                    f"{allele.where}: no values of track {one.track!r}; use --tracks '*'"
                )
            own = allele.on_track(Fields(one.effect, one.track, one.category))
            drawn.setdefault(one, []).append(own)
    if not drawn:
        what = "score the same VCF with --random"
        raise DataError(
            f"{scored}: no scored random variant of the evaluated variants; {what}"
        )
    return [one for one in variants if one in drawn], [
        own for some in drawn.values() for own in some
    ]


def _left_out(allele: _ScoredAllele, truth: Fields, fields: Fields) -> str:
    """Return the reason why an allele cannot be evaluated, "" if it can."""
    if not truth.effect:
        return f"without {fields.effect}"
    if allele.deltas is None:
        return f"not scored ({allele.note})" if allele.note else "not scored"
    if not truth.track:
        return f"without {fields.track}"
    return (
        ""
        if truth.track in allele.columns
        else f"on {truth.track}, which was not predicted"
    )


def _read_truth(path: Path, fields: Fields) -> dict[_Key, list[Fields]]:
    known: dict[_Key, list[Fields]] = {}
    with open_vcf(path) as vcf:
        for record in vcf.records:
            for key, truth in _alleles(record, fields, f"{path}: line {record.line}"):
                if truth.effect:
                    known.setdefault(key, []).append(truth)
    if not known:
        raise DataError(f"{path}: no record has the INFO field {fields.effect}")
    return known


def is_table(path: Path) -> bool:
    """Return whether a result of `score-variants` is a table, by its name, and not a VCF."""
    return path.name.lower().endswith(TABLES)


def _read_scored(path: Path, fields: Fields | None = None) -> Iterator[_ScoredAllele]:
    return _read_table(path) if is_table(path) else _read_vcf(path, fields)


def _read_vcf(path: Path, fields: Fields | None) -> Iterator[_ScoredAllele]:
    """Yield the alleles of a scored VCF; without `fields`, known effects are not read."""
    with open_vcf(path) as vcf:
        columns = _columns(vcf.meta, path)
        for record in vcf.records:
            where = f"{path}: line {record.line}"
            info = info_of(record)
            deltas, log_odds = (
                _by_allele(
                    info.get(f"{PREFIX}{key}"), len(record.alts), len(columns), where
                )
                for key in ("DELTA", "LOGODDS")
            )
            if [one is None for one in deltas] != [one is None for one in log_odds]:
                raise DataError(
                    f"{where}: {PREFIX}DELTA and {PREFIX}LOGODDS have values for different ALT"
                )
            notes = info.get(f"{PREFIX}NOTE", "").split(",")
            for number, (key, truth) in enumerate(_alleles(record, fields, where)):
                note = notes[number].strip(".") if number < len(notes) else ""
                changes = deltas[number], log_odds[number]
                yield _ScoredAllele(
                    where, key, record.columns[2], truth, note, *changes, columns
                )


def _columns(meta: Sequence[str], path: Path) -> dict[str, int]:
    """Return track → index among the values of an ALT, from the header line that lists the tracks."""
    for line in meta:
        if line.startswith(f"##INFO=<ID={PREFIX}DELTA,"):
            listed = re.search(r': joined by &, for the tracks ([^"]*)"', line)
            if listed:
                names = [
                    check_name(unquote(name), "track", str(path))
                    for name in listed[1].split(",")
                ]
                return {name: number for number, name in enumerate(names)}
    raise DataError(
        f"{path}: the header has no {PREFIX}DELTA; score the variants with --tracks '*'"
    )


def _by_allele(
    text: str | None, alleles: int, tracks: int, where: str
) -> Sequence[Sequence[str] | None]:
    """Return the values of each ALT, None if it was not scored."""
    if text is None:
        return [None] * alleles
    values = [None if value == "." else value.split("&") for value in text.split(",")]
    if len(values) != alleles or any(
        value is not None and len(value) != tracks for value in values
    ):
        raise DataError(
            f"{where}: {text!r:.60}: expected values of {tracks:,} tracks for each of {alleles} ALT"
        )
    return values


def info_of(record: VcfRecord) -> dict[str, str]:
    """Return the values of a record's INFO keys; "" for a key without a value."""
    parts = (part.partition("=") for part in record.columns[7].split(";"))
    return {key: value for key, _, value in parts}


def _alleles(
    record: VcfRecord, fields: Fields | None, where: str
) -> Iterator[tuple[_Key, Fields]]:
    """Yield the key of each ALT, and its known effect from INFO."""
    contig, position, _, ref = record.columns[:4]
    info, alts = info_of(record), record.alts
    for number, alt in enumerate(alts):
        found = []
        for key in fields or ():
            values = info.get(key, "").split(",")
            if len(values) not in (1, len(alts)):
                raise DataError(
                    f"{where}: {key} has {len(values)} values for {len(alts)} ALT"
                )
            value = values[number] if len(values) > 1 else values[0]
            text = "" if value == "." else unquote(value)
            if control := control_character(text):
                raise DataError(
                    f"{where}: {key} {quoted(text)} contains a control character ({control})"
                )
            found.append(text)
        yield (
            (contig, position, ref, alt),
            Fields(found[0].lower(), *found[1:]) if found else UNKNOWN,
        )


def _read_table(path: Path) -> Iterator[_ScoredAllele]:
    where, header, rows = open_lines(path)
    names = [name.removesuffix(":delta") for name in header if name.endswith(":delta")]
    missing = {
        *_KEY_COLUMNS,
        "id",
        "note",
        *(f"{name}:logodds" for name in names),
    } - set(header)
    if missing or not names:
        what = (
            f"column {quoted(sorted(missing)[0])}"
            if missing
            else "values of each track"
        )
        raise DataError(
            f"{where}: no {what}; give a table of score-variants --tracks '*'"
        )
    columns = {name: index for index, name in enumerate(names)}
    for where, cells in rows:
        row = dict(zip(header, cells, strict=True))
        key = tuple(row[name] for name in _KEY_COLUMNS)
        scored = row[f"{names[0]}:delta"] != "NA"
        deltas, log_odds = (
            [row[f"{name}:{value}"] for name in names] if scored else None
            for value in ("delta", "logodds")
        )
        yield _ScoredAllele(
            where,
            key,
            row["id"],
            UNKNOWN,
            row["note"].strip("."),
            deltas,
            log_odds,
            columns,
        )
