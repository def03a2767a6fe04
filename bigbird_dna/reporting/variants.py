"""Report of scored variants compared with their known effects: `variants.tsv` and `variants.svg`.

Known effects are in INFO: whether a variant has an effect, on which track, and its category. A field has one
value per record or one per ALT; characters not allowed in INFO are percent-encoded.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bigbird_dna.disk.compression import control_character
from bigbird_dna.disk.directories import into_directory
from bigbird_dna.disk.tables import Schema, open_lines, write_table
from bigbird_dna.errors import DataError, UsageError
from bigbird_dna.genome.fields import check_name, decimal, quoted, whole_number
from bigbird_dna.genome.variants import PREFIX, VcfRecord, open_vcf
from bigbird_dna.metrics.auroc import Floats, auroc
from bigbird_dna.metrics.resampling import sequence_blocks
from bigbird_dna.reporting.result import BLUE, GRAY, INK, ORANGE, panels, save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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


class KnownEffects(NamedTuple):
    """Scored alleles with known effects in file order, and the number of excluded alleles by reason."""

    variants: list[KnownEffect]
    left_out: Counter[str]


class _ScoredAllele(NamedTuple):
    """A scored allele: changes of every track as text, or None if it was not scored."""

    where: str
    key: _Key
    truth: Fields
    note: str
    deltas: Sequence[str] | None
    log_odds: Sequence[str] | None
    columns: Mapping[str, int]  # track → index in the changes


def read_known_effects(
    scored: Path, truth: Path | None = None, fields: Fields = DEFAULT_FIELDS, track: str | None = None
) -> KnownEffects:
    """Read the predicted effects of the alleles with known effects, each on the track of the known effect.

    `scored` is a VCF or table of `score-variants` with values of every track. `truth` is a VCF, matched by
    contig, position, REF and ALT; None: known effects are in `scored`. Effects are lowercased. The track is
    `track`, or the value of `fields.track`. `DataError`: no allele is left.
    """
    is_table = scored.name.lower().endswith(TABLES)
    if is_table and truth is None:
        raise UsageError(f"{scored}: a table contains no known effects; give their VCF with --truth")
    known = None if truth is None else _read_truth(truth, fields)
    found = KnownEffects([], Counter())
    alleles = _read_table(scored) if is_table else _read_vcf(scored, fields if known is None else None)
    for allele in alleles:
        if track is not None and track not in allele.columns:
            raise UsageError(f"--track {track!r}: {scored} has no values of this track")
        # Popped, so that a variant listed twice in both files is not counted four times.
        truths = [allele.truth] if known is None else known.pop(allele.key, [])
        for one in truths or [UNKNOWN]:
            named = one if track is None else one._replace(track=track)
            if reason := _left_out(allele, named, fields):
                found.left_out[reason] += 1
                continue
            assert allele.deltas is not None and allele.log_odds is not None
            column = allele.columns[named.track]
            texts = allele.deltas[column], allele.log_odds[column]
            delta, log_odds = map(decimal, texts)
            if delta is None or log_odds is None:
                wrong = " and ".join(map(quoted, texts))
                raise DataError(f"{allele.where}: {named.track}: expected numbers, found {wrong}")
            contig, text, *_ = allele.key
            if (position := whole_number(text)) is None:
                raise DataError(f"{allele.where}: position {quoted(text)} is not a whole number")
            truth_of_track = named.track, named.category, named.effect
            found.variants.append(KnownEffect(contig, position, *truth_of_track, delta, log_odds))
    unmatched = sum(map(len, known.values())) if known else 0
    if unmatched:
        found.left_out["not in the scored file"] = unmatched
    if not found.variants:
        why = ", ".join(f"{count:,} {reason}" for reason, count in found.left_out.most_common(3))
        raise DataError(f"{scored}: no variant to evaluate ({why or 'the file has none'})")
    return found


def _left_out(allele: _ScoredAllele, truth: Fields, fields: Fields) -> str:
    """Return the reason why an allele cannot be evaluated, "" if it can."""
    if not truth.effect:
        return f"without {fields.effect}"
    if allele.deltas is None:
        return f"not scored ({allele.note})" if allele.note else "not scored"
    if not truth.track:
        return f"without {fields.track}"
    return "" if truth.track in allele.columns else f"on {truth.track}, which was not predicted"


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


def _read_vcf(path: Path, fields: Fields | None) -> Iterator[_ScoredAllele]:
    """Yield the alleles of a scored VCF; without `fields`, known effects are not read."""
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
                raise DataError(f"{where}: {PREFIX}DELTA and {PREFIX}LOGODDS have values for different ALT")
            notes = info.get(f"{PREFIX}NOTE", "").split(",")
            for number, (key, truth) in enumerate(_alleles(record, fields, where)):
                note = notes[number].strip(".") if number < len(notes) else ""
                yield _ScoredAllele(where, key, truth, note, deltas[number], log_odds[number], columns)


def _columns(meta: Sequence[str], path: Path) -> dict[str, int]:
    """Return track → index among the values of an ALT, from the header line that lists the tracks."""
    for line in meta:
        if line.startswith(f"##INFO=<ID={PREFIX}DELTA,"):
            listed = re.search(r': for each ALT the tracks ([^"]*)"', line)
            if listed:
                names = [check_name(unquote(name), "track", str(path)) for name in listed[1].split(",")]
                return {name: number for number, name in enumerate(names)}
    raise DataError(f"{path}: the header has no {PREFIX}DELTA; score the variants with --tracks '*'")


def _by_allele(text: str | None, alleles: int, tracks: int, where: str) -> Sequence[Sequence[str] | None]:
    """Return the values of each ALT, None if it was not scored."""
    if text is None:
        return [None] * alleles
    values = text.split(",")
    if len(values) != alleles * tracks:
        raise DataError(
            f"{where}: {len(values):,} values, expected one for each of {alleles} ALT and {tracks:,} tracks"
        )
    parts = [values[first : first + tracks] for first in range(0, len(values), tracks)]
    return [None if part[0] == "." else part for part in parts]


def _info(record: VcfRecord) -> dict[str, str]:
    parts = (part.partition("=") for part in record.columns[7].split(";"))
    return {key: value for key, _, value in parts}


def _alleles(record: VcfRecord, fields: Fields | None, where: str) -> Iterator[tuple[_Key, Fields]]:
    """Yield the key of each ALT, and its known effect from INFO."""
    contig, position, _, ref = record.columns[:4]
    info, alts = _info(record), record.alts
    for number, alt in enumerate(alts):
        found = []
        for key in fields or ():
            values = info.get(key, "").split(",")
            if len(values) not in (1, len(alts)):
                raise DataError(f"{where}: {key} has {len(values)} values for {len(alts)} ALT")
            value = values[number] if len(values) > 1 else values[0]
            text = "" if value == "." else unquote(value)
            if control := control_character(text):
                raise DataError(f"{where}: {key} {quoted(text)} contains a control character ({control})")
            found.append(text)
        yield (contig, position, ref, alt), Fields(found[0].lower(), *found[1:]) if found else UNKNOWN


def _read_table(path: Path) -> Iterator[_ScoredAllele]:
    where, header, rows = open_lines(path)
    names = [name.removesuffix(":delta") for name in header if name.endswith(":delta")]
    missing = {*_KEY_COLUMNS, "note", *(f"{name}:logodds" for name in names)} - set(header)
    if missing or not names:
        what = f"column {quoted(sorted(missing)[0])}" if missing else "values of each track"
        raise DataError(f"{where}: no {what}; give a table of score-variants --tracks '*'")
    columns = {name: index for index, name in enumerate(names)}
    for where, cells in rows:
        row = dict(zip(header, cells, strict=True))
        key = tuple(row[name] for name in _KEY_COLUMNS)
        scored = row[f"{names[0]}:delta"] != "NA"
        deltas, log_odds = (
            [row[f"{name}:{value}"] for name in names] if scored else None for value in ("delta", "logodds")
        )
        yield _ScoredAllele(where, key, UNKNOWN, row["note"].strip("."), deltas, log_odds, columns)


_METRICS = ("estimate auroc", "metric auroc_log_odds sign_accuracy")
VARIANTS = Schema.of("text subset; count variants with_effect", *_METRICS, key=["subset"])
ALL, HELD_OUT = "all", "held-out"
# Expected sign of the change; other effects have no known direction.
DIRECTIONS = {"gain": 1, "loss": -1}

# Axes: n variants.
Flags = NDArray[np.bool_]

# More points per row cannot be distinguished, and would make the file large.
MOST_POINTS = 300
_GOLDEN = 0.6180339887498949  # multiples modulo 1 fill a row evenly for any number of points


class VariantReport(NamedTuple):
    """The table as written, the evaluated alleles, and the number of excluded alleles by reason."""

    table: pd.DataFrame
    variants: list[KnownEffect]
    left_out: Counter[str]


def variant_report(
    scored: Path,
    output: Path,
    *,
    truth: Path | None = None,
    fields: Fields = DEFAULT_FIELDS,
    track: str | None = None,
    no_effect: str = "none",
    held_out: Collection[str] = (),
) -> VariantReport:
    """Evaluate predicted effects of variants with known effects: AUROC of their size for having an effect.

    Writes the table of `variant_table` and the plot of `variant_figure` to the directory `output`.
    `no_effect` is the word, in any case, for variants without an effect. With `held_out`, additional rows
    evaluate these contigs alone. Other arguments and errors are those of `read_known_effects`.
    """
    variants, left_out = read_known_effects(scored, truth, fields, track)
    none = no_effect.lower()
    table = variant_table(variants, held_out, none)
    with into_directory(output) as files:
        write_table(files / "variants.tsv", table, VARIANTS)
        variant_figure(variants, files / "variants.svg", none)
    return VariantReport(table, variants, left_out)


def variant_table(
    variants: Sequence[KnownEffect], held_out: Collection[str] = (), no_effect: str = "none"
) -> pd.DataFrame:
    """Return rows of `VARIANTS`: all variants, each category, each track; then again for `held_out` contigs.

    AUROC ranks variants by the absolute change, to separate variants with and without an effect. A category
    (`category`) with only one of the two classes is compared with all variants of the other class; a category
    with both is evaluated by itself. `variants` and `with_effect` count the variants in the AUROC;
    `sign_accuracy` is the fraction of known gains and losses (of the category itself) whose change has the
    expected sign. A category or track that contains no variants, or all variants, has no row.
    """
    has = has_effect(variants, no_effect)
    known = pd.DataFrame(variants, columns=list(KnownEffect._fields))
    scopes = [("", ALL, np.ones(len(has), bool))]
    if held_out:
        scopes.append((f"{HELD_OUT} ", HELD_OUT, known["contig"].isin(held_out).to_numpy()))
    subsets: list[tuple[str, Flags, Flags]] = []  # name, rows for AUROC, rows for signs
    for prefix, whole, inside in scopes:
        subsets.append((whole, inside, inside))
        for kind in ("category", "track"):
            values = known[kind].to_numpy(object)
            names = sorted(set(values.tolist()) - {""})
            for name in names if len(names) > 1 else ():
                members = values == name
                own, rows = inside & members, members
                if kind == "category" and len(set(has[members])) == 1:  # add all rows of the other class
                    rows = members | (has != has[members][0])
                if own.any():
                    subsets.append((f"{prefix}{kind}={name}", inside & rows, own))
    deltas, log_odds = known[["delta", "log_odds"]].to_numpy(np.float64).T
    blocks = sequence_blocks(known["contig"].to_numpy(), known["position"].to_numpy())
    directions = np.array([DIRECTIONS.get(effect, 0) for effect in known["effect"]], np.int64)
    table = []
    for name, rows, signs in subsets:
        areas = auroc(has[rows], np.abs(deltas[rows]), blocks[rows])
        other = auroc(has[rows], np.abs(log_odds[rows])).value
        directed = signs & (directions != 0)
        right = math.nan
        if directed.any():
            right = float((np.sign(deltas[directed]) == directions[directed]).mean())
        table.append([name, int(rows.sum()), int(has[rows].sum()), *areas, other, right])
    return pd.DataFrame(table, columns=VARIANTS.names)


def has_effect(variants: Sequence[KnownEffect], no_effect: str = "none") -> Flags:
    """Return which variants have an effect (n,)."""
    return np.array([variant.effect != no_effect for variant in variants], dtype=bool)


class _CategoryEffects(NamedTuple):
    label: str
    color: str
    deltas: Floats  # absolute values, ascending
    log_odds: Floats  # absolute values, ascending


def variant_figure(variants: Sequence[KnownEffect], path: Path, no_effect: str = "none") -> None:
    """Draw a row per category, or per effect without categories: points, median, quartiles, 5 to 95 %.

    Categories with an effect are above categories without an effect.
    """
    groups = _groups(variants, no_effect)
    with panels(1, 2, 4.6, 1.3 + 0.48 * len(groups), sharey=True) as (figure, axes):
        for axis, name, label in (
            (axes[0], "deltas", "|change of probability|"),
            (axes[1], "log_odds", "|change of log-odds|"),
        ):
            for row, group in enumerate(reversed(groups)):
                _draw(axis, row, getattr(group, name), group.color)
            axis.set_xlabel(label)
            axis.set_xlim(left=0)
            axis.grid(visible=False, axis="y")
            axis.tick_params(axis="y", length=0)
        labels = [f"{group.label} ({len(group.deltas):,})" for group in reversed(groups)]
        axes[0].set_yticks(range(len(groups)), labels)
        axes[0].set_title("Size of the predicted effect on the variant's track")
        for color, text in ((BLUE, "with a known effect"), (ORANGE, "without")):
            axes[1].plot([], [], "o", color=color, markeredgewidth=0, label=text)
        axes[1].legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2, handletextpad=0.2)
        save_figure(figure, path)


def _groups(variants: Sequence[KnownEffect], no_effect: str) -> list[_CategoryEffects]:
    has = has_effect(variants, no_effect)
    by_category = any(variant.category for variant in variants)
    names = np.array([(v.category or "(none)") if by_category else v.effect for v in variants])
    sizes = np.abs([(variant.delta, variant.log_odds) for variant in variants])
    found = []
    for name in np.unique(names).tolist():
        rows = names == name
        deltas, log_odds = np.sort(sizes[rows], axis=0).T
        fraction = float(has[rows].mean())
        color = {0.0: ORANGE, 1.0: BLUE}.get(fraction, GRAY)
        found.append((-fraction, -float(np.median(deltas)), _CategoryEffects(name, color, deltas, log_odds)))
    return [group for *_, group in sorted(found, key=lambda one: one[:2])]


def _draw(axis: Axes, row: int, sizes: Floats, color: str) -> None:
    shown = sizes
    if len(sizes) > MOST_POINTS:  # quantiles have the same distribution
        shown = np.quantile(sizes, (np.arange(MOST_POINTS) + 0.5) / MOST_POINTS)
    heights = row + 0.56 * ((np.arange(len(shown)) * _GOLDEN) % 1 - 0.5)
    axis.plot(shown, heights, "o", color=color, alpha=0.4, markersize=3.2, markeredgewidth=0, zorder=2)
    low, first, median, third, high = np.quantile(sizes, (0.05, 0.25, 0.5, 0.75, 0.95))
    axis.plot([low, high], [row, row], color=INK, linewidth=1, zorder=3)
    axis.plot([first, third], [row, row], color=INK, linewidth=4.5, solid_capstyle="butt", zorder=3)
    axis.plot([median], [row], "o", color="white", markeredgecolor=INK, markersize=6, zorder=4)
