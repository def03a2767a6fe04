"""Report of scored variants compared with their known effects, and with the effects of random variants.

Known effects are in INFO: whether a variant has an effect, on which track, and its category. A field has one
value per record or one per ALT; characters not allowed in INFO are percent-encoded.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bigbird_dna.disk.atomic import quiet_htslib, reading
from bigbird_dna.disk.directories import into_directory
from bigbird_dna.disk.tables import Schema, open_lines, write_table
from bigbird_dna.errors import DataError, UsageError
from bigbird_dna.metrics.auroc import Floats, auroc, auroc_difference
from bigbird_dna.metrics.resampling import sequence_blocks
from bigbird_dna.reporting.result import BLUE, GRAY, ORANGE, panels, save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_METRICS = ("estimate auroc", "metric auroc_log_odds sign_accuracy")
VARIANTS = Schema.of(
    "text subset; count variants with_effect", *_METRICS, key=["subset"]
)
RANDOM = Schema.of(
    "text subset; count variants random; estimate auroc; metric median_p_value",
    key=["subset"],
)
COMPARED = Schema.of(
    "text subset predictor; count variants with_effect; estimate auroc difference; metric sign_accuracy",
    key=["subset", "predictor"],
)
P_VALUES = Schema.of(
    "text contig; count position; text ref alt track category effect; number delta; count random",
    "fraction p_value",
)
ALL, HELD_OUT = "all", "held-out"
LABELS = {"delta": "probability", "log_odds": "log-odds"}
DIRECTIONS = {"gain": 1, "loss": -1}
"""Expected sign of the change; other effects have no known direction."""
MOST_POINTS = 300
"""More points per row cannot be distinguished, and would make the figure large."""

GOLDEN_RATIO = 0.6180339887498949
"""Its multiples modulo 1 fill a row evenly for any number of points."""

COLUMNS = ["contig", "position", "track", "category", "effect"]
COLUMNS += ["delta", "log_odds", "ref", "alt"]
"""Columns of variants with a known effect on a track, and the predicted changes of probability and log-odds.

`position` is 1-based; `effect` is one of `DIRECTIONS`, another word, or the word for no effect; `category` may
be "". Changes are ALT minus REF; log-odds are natural logarithms.
"""
KEY = [name for name in COLUMNS if name not in ("delta", "log_odds")]

# Axes: n variants.
Flags = NDArray[np.bool_]


class Fields(NamedTuple):
    """INFO keys of the known effects, or their values for an allele ("" if missing)."""

    effect: str = "EFFECT"
    track: str = "TRACK"
    category: str = "CATEGORY"


FIELDS = Fields()


class VariantReport(NamedTuple):
    """The tables as written, the evaluated alleles, and the number of excluded alleles by reason."""

    table: pd.DataFrame
    variants: pd.DataFrame
    left_out: Counter[str]
    random: pd.DataFrame | None = None
    compared: pd.DataFrame | None = None


def variant_report(
    scored: Path,
    output: Path,
    *,
    truth: Path | None = None,
    null: Path | None = None,
    compare: Mapping[str, Path] | None = None,
    effect_field: str = FIELDS.effect,
    track_field: str = FIELDS.track,
    category_field: str = FIELDS.category,
    track: str | None = None,
    no_effect: str = "none",
    held_out: Collection[str] = (),
) -> VariantReport:
    """Evaluate predicted effects of variants with known effects: AUROC of their size for having an effect.

    Writes the table of `variant_table` and the plot of `variant_figure` to the directory `output`, and the
    tables of `random_tables` with `null`, scored random variants (see `read_random`); all effects may be
    unknown then. With `compare`, the same variants scored by other predictors, also writes `compared_table`.
    `no_effect` is the word, in any case, for variants without an effect. With `held_out`, additional rows
    evaluate these contigs alone. Other arguments and errors are those of `read_known_effects`.
    """
    fields = Fields(effect_field, track_field, category_field)
    unknown = "" if null is None else "unknown"
    variants, left_out = read_known_effects(scored, truth, fields, track, unknown)
    none = no_effect.lower()
    table = variant_table(variants, held_out, none)
    random = compared = None
    if null is not None:
        random = random_tables(*read_random(null, variants), held_out, none)
    if compare:
        others = {
            name: read_known_effects(path, truth, fields, track)[0]
            for name, path in compare.items()
        }
        compared = compared_table(variants, others, held_out, none)
    with into_directory(output) as files:
        write_table(files / "variants.tsv", table, VARIANTS)
        variant_figure(variants, files / "variants.svg", none)
        if random is not None:
            write_table(files / "random_variants.tsv", random[0], RANDOM)
            write_table(files / "variant_p_values.tsv", random[1], P_VALUES)
        if compared is not None:
            write_table(files / "compared_variants.tsv", compared, COMPARED)
    return VariantReport(table, variants, left_out, random and random[0], compared)


# Files of score-variants


class Allele(NamedTuple):
    """An allele of a VCF, or of a table of `score-variants`."""

    where: str
    contig: str
    position: int
    ref: str
    alt: str
    id: str
    note: str
    deltas: list[str]  # changes of all tracks; empty: not scored
    log_odds: list[str]
    truth: Fields = Fields("", "", "")

    @property
    def key(self) -> tuple[str, int, str, str]:
        return self.contig, self.position, self.ref, self.alt

    def on_track(self, truth: Fields, number: int) -> tuple[Any, ...]:
        """Return a row of `COLUMNS`: the changes on the track of the known effect, which has this number."""
        texts = self.deltas[number], self.log_odds[number]
        try:
            delta, log_odds = map(float, texts)
        except ValueError:
            delta = log_odds = math.nan
        if not (math.isfinite(delta) and math.isfinite(log_odds)):
            wrong = " and ".join(f"{text!r:.60}" for text in texts)
            raise DataError(
                f"{self.where}: {truth.track}: expected numbers, found {wrong}"
            )
        names = truth.track, truth.category, truth.effect
        changes = delta, log_odds
        return self.contig, self.position, *names, *changes, self.ref, self.alt


def read_known_effects(
    scored: Path,
    truth: Path | None = None,
    fields: Fields = FIELDS,
    track: str | None = None,
    unknown: str = "",
) -> tuple[pd.DataFrame, Counter[str]]:
    """Return the predicted effects of the alleles with known effects, and the number of others by reason.

    Rows have the columns `COLUMNS`, in file order. `scored` is a VCF or table of `score-variants` with values
    of every track. `truth` is a VCF, matched by contig, position, REF and ALT; None: known effects are in
    `scored`. Effects are lowercased. The track is `track`, or the value of `fields.track`. If no effect is
    known, all have the effect `unknown` (if that is a word). `DataError`: no allele is left.
    """
    if truth is None and is_table(scored) and not (unknown and track):
        raise UsageError(
            f"{scored}: a table contains no known effects; give their VCF with --truth"
        )
    known: dict[Any, list[Fields]] = {}
    if truth is not None:
        for allele in _read_vcf(truth, fields):
            if allele.truth.effect:
                known.setdefault(allele.key, []).append(allele.truth)
        if not known:
            raise DataError(f"{truth}: no record has the INFO field {fields.effect}")

    tracks, alleles = read_scored(scored, fields if truth is None else None)
    numbers = {name: number for number, name in enumerate(tracks)}
    if track is not None and track not in numbers:
        raise UsageError(f"--track {track!r}: {scored} has no values of this track")
    rows, left_out = [], Counter[str]()
    for allele in alleles:
        # Popped, so that a variant listed twice in both files is not counted four times.
        truths = [] if truth is None else known.pop(allele.key, [])
        for one in truths or [allele.truth]:
            effect, name = one.effect or unknown, track or one.track
            if not effect:
                left_out[f"without {fields.effect}"] += 1
            elif not allele.deltas:
                left_out["not scored" + f" ({allele.note})" * bool(allele.note)] += 1
            elif not name:
                left_out[f"without {fields.track}"] += 1
            elif name not in numbers:
                left_out[f"on {name}, which was not predicted"] += 1
            else:
                effects = Fields(effect, name, one.category)
                rows.append(allele.on_track(effects, numbers[name]))
    if unmatched := sum(map(len, known.values())):
        left_out["not in the scored file"] = unmatched

    variants = pd.DataFrame(rows, columns=COLUMNS)
    has_known = variants["effect"] != unknown
    if has_known.any() and not has_known.all():
        left_out[f"without {fields.effect}"] += int((~has_known).sum())
        variants = variants[has_known].reset_index(drop=True)
    if variants.empty:
        reasons = [f"{count:,} {reason}" for reason, count in left_out.most_common(3)]
        listed = ", ".join(reasons) or "the file has none"
        raise DataError(f"{scored}: no variant to evaluate ({listed})")
    return variants, left_out


def read_random(
    scored: Path, variants: pd.DataFrame
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the variants for which random ones were scored, and these random variants.

    `scored` is a VCF or table of `score-variants`, with `--random`. A random
    variant has the track, category and known effect of its variant. `DataError`: there are none.
    """
    keys = (
        variants[["contig", "position", "ref", "alt"]].astype(str).agg(":".join, axis=1)
    )
    by_key = keys.groupby(keys).groups
    tracks, alleles = read_scored(scored)
    truths = variants[["effect", "track", "category"]].to_numpy().tolist()
    rows: dict[int, list[tuple[Any, ...]]] = {}
    for allele in alleles:
        # ID: POS:REF:ALT:NUMBER of the variant
        key = f"{allele.contig}:{allele.id.rpartition(':')[0]}"
        for number in by_key.get(key, ()) if allele.deltas else ():
            truth = Fields(*truths[number])
            if truth.track not in tracks:
                raise DataError(
                    f"{allele.where}: no values of track {truth.track!r}; use --tracks '*'"
                )
            row = allele.on_track(truth, tracks.index(truth.track))
            rows.setdefault(number, []).append(row)
    if not rows:
        raise DataError(
            f"{scored}: no scored random variant of the evaluated variants; score the same VCF with --random"
        )
    random = [row for some in rows.values() for row in some]
    having = variants.iloc[sorted(rows)].reset_index(drop=True)
    return having, pd.DataFrame(random, columns=COLUMNS)


def is_table(path: Path) -> bool:
    """Return whether a result of `score-variants` is a table, by its name, and not a VCF."""
    return path.name.lower().removesuffix(".gz").endswith((".tsv", ".txt"))


def read_scored(
    path: Path, fields: Fields | None = None
) -> tuple[list[str], Iterator[Allele]]:
    """Return the tracks and the alleles of a VCF or table of `score-variants`.

    Without `fields`, known effects are not read.
    """
    import pysam

    if is_table(path):
        where, header, lines = open_lines(path)
        tracks = [
            name.removesuffix(":delta") for name in header if name.endswith(":delta")
        ]
        needed = ["alt", "contig", "id", "note", "position", "ref"]
        needed += [f"{name}:logodds" for name in tracks]
        missing = [f"column {name!r}" for name in needed if name not in header]
        if not tracks:
            missing.append("values of each track")
        if missing:
            raise DataError(
                f"{where}: no {missing[0]}; give a table of score-variants --tracks '*'"
            )
        rows = (
            (where, dict(zip(header, cells, strict=True))) for where, cells in lines
        )
        return tracks, (_table_allele(where, row, tracks) for where, row in rows)
    with (
        quiet_htslib(),
        reading(path, "not readable as VCF", OSError, ValueError),
        pysam.VariantFile(str(path)) as vcf,
    ):
        info = vcf.header.info
        text = str(info["BBD_DELTA"].description) if "BBD_DELTA" in info else ""
    # The description lists the tracks.
    listed = re.search(r": joined by &, for the tracks ([^\"]*)", text)
    if not listed:
        raise DataError(
            f"{path}: the header has no BBD_DELTA; score the variants with --tracks '*'"
        )
    tracks = [unquote(name) for name in listed[1].split(",")]
    return tracks, _read_vcf(path, fields, len(tracks))


def _table_allele(where: str, row: dict[str, str], tracks: Sequence[str]) -> Allele:
    position = row["position"]
    if not position.isdecimal():
        raise DataError(f"{where}: position {position!r:.60} is not a whole number")
    deltas = [row[f"{name}:delta"] for name in tracks]
    log_odds = [row[f"{name}:logodds"] for name in tracks]
    if deltas[0] == "NA":
        deltas, log_odds = [], []
    names = row["contig"], int(position), row["ref"], row["alt"], row["id"]
    return Allele(where, *names, row["note"].strip("."), deltas, log_odds)


def _read_vcf(path: Path, fields: Fields | None, tracks: int = 0) -> Iterator[Allele]:
    """Yield the alleles of a VCF or BCF, with their known effects, and their changes of some `tracks`."""
    import pysam

    with (
        quiet_htslib(),
        reading(path, "not readable as VCF", OSError, ValueError),
        pysam.VariantFile(str(path)) as vcf,
    ):
        for number, record in enumerate(vcf, start=1):
            where = f"{path}: record {number} ({record.chrom}:{record.pos})"
            alts = record.alts or ()
            empty = [""] * len(alts)
            truths = changes = [empty, empty, empty]
            if fields:
                truths = [_of_alts(record, key, where) for key in fields]
            if tracks:
                keys = ("BBD_DELTA", "BBD_LOGODDS", "BBD_NOTE")
                changes = [_of_alts(record, key, where) for key in keys]
            columns = zip(alts, *truths, *changes, strict=True)
            for alt, effect, track, category, *texts, note in columns:
                values = [text.split("&") if text else [] for text in texts]
                counts = [len(value) for value in values]
                if counts not in ([0, 0], [tracks, tracks]):
                    raise DataError(
                        f"{where}: BBD_DELTA and BBD_LOGODDS must have values of {tracks:,} tracks for the "
                        "same ALT"
                    )
                truth = Fields(
                    unquote(effect).lower(), unquote(track), unquote(category)
                )
                names = record.chrom, record.pos, str(record.ref), alt, record.id or ""
                yield Allele(where, *names, note, values[0], values[1], truth)


def _of_alts(record: Any, key: str, where: str) -> list[str]:
    """Return the values of an INFO key of a `pysam.VariantRecord`, one per ALT; "" if missing."""
    count = len(record.alts or ())
    # `get` fails for keys that the header does not define.
    value = record.info[key] if key in record.info else ""  # noqa: SIM401
    cells = value.split(",") if isinstance(value, str) else map(str, value)
    values = ["" if cell in (".", "None") else cell for cell in cells]
    if len(values) == 1:
        return values * count
    if len(values) != count:
        raise DataError(f"{where}: {key} has {len(values)} values for {count} ALT")
    return values


# Tables


def variant_table(
    variants: pd.DataFrame, held_out: Collection[str] = (), no_effect: str = "none"
) -> pd.DataFrame:
    """Return rows of `VARIANTS`: all variants, each category, each track; then again for `held_out` contigs.

    AUROC ranks variants by the absolute change, to separate variants with and without an effect. A category
    (`category`) with only one of the two classes is compared with all variants of the other class; a category
    with both is evaluated by itself. `variants` and `with_effect` count the variants in the AUROC;
    `sign_accuracy` is the fraction of known gains and losses (of the category itself) whose change has the
    expected sign. A category or track that contains no variants, or all variants, has no row.
    """
    has = has_effect(variants, no_effect)
    deltas, log_odds = variants[["delta", "log_odds"]].to_numpy(np.float64).T
    blocks = _blocks(variants)
    directions = variants["effect"].map(DIRECTIONS).fillna(0).to_numpy(np.int64)
    table = []
    for name, rows, members in _subsets(variants, has, held_out):
        areas = auroc(has[rows], np.abs(deltas[rows]), blocks[rows])
        other = auroc(has[rows], np.abs(log_odds[rows])).value
        directed = members & (directions != 0)
        right = math.nan
        if directed.any():
            right = float((np.sign(deltas[directed]) == directions[directed]).mean())
        counts = int(rows.sum()), int(has[rows].sum())
        table.append((name, *counts, *areas, other, right))
    return pd.DataFrame(table, columns=VARIANTS.names)


def random_tables(
    variants: pd.DataFrame,
    random: pd.DataFrame,
    held_out: Collection[str] = (),
    no_effect: str = "none",
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Compare variants with the `random` variants drawn for them; return rows of `RANDOM` and of `P_VALUES`.

    A p-value is the fraction of the random variants of the same track whose absolute change is not smaller,
    where the variant itself counts as one of them. In `RANDOM`, variants of a subset that have an effect (all
    variants, if none has) are compared with their own random variants: AUROC ranks both by absolute change.
    """
    both = pd.concat([variants, random], ignore_index=True)
    real = np.arange(len(both)) < len(variants)
    has, blocks = has_effect(both, no_effect), _blocks(both)
    sizes = both["delta"].abs().to_numpy(np.float64)
    each = variants.assign(random=0, p_value=1.0)
    for track in variants["track"].unique():
        own = variants["track"] == track
        null = np.sort(sizes[~real & (both["track"] == track).to_numpy()])
        above = len(null) - np.searchsorted(null, variants.loc[own, "delta"].abs())
        each.loc[own, "random"] = len(null)
        each.loc[own, "p_value"] = (1 + above) / (1 + len(null))
    table = []
    for name, _, members in _subsets(both, has, held_out):
        rows = members & has if (members & has).any() else members
        p_values = each["p_value"][rows[real]]
        areas = auroc(real[rows], sizes[rows], blocks[rows])
        counts = len(p_values), int((rows & ~real).sum())
        table.append((name, *counts, *areas, p_values.median()))
    return pd.DataFrame(table, columns=RANDOM.names), each[P_VALUES.names]


def compared_table(
    variants: pd.DataFrame,
    others: Mapping[str, pd.DataFrame],
    held_out: Collection[str] = (),
    no_effect: str = "none",
) -> pd.DataFrame:
    """Return rows of `COMPARED`: metrics of other predictors as in `variant_table`, on the common variants.

    `difference` is the AUROC of `variants` minus that of the predictor. `DataError`: no common variants.
    """
    tables = []
    for name, scored in others.items():
        other = scored.drop_duplicates(KEY, keep="last")
        common = variants.merge(other, on=KEY, suffixes=("_own", ""))
        if common.empty:
            raise DataError(
                f"--compare {name}: the file has none of the evaluated variants"
            )
        table = variant_table(common, held_out, no_effect)
        has, blocks = has_effect(common, no_effect), _blocks(common)
        own, theirs = common[["delta_own", "delta"]].abs().to_numpy().T
        table[["difference", "difference_low", "difference_high"]] = [
            auroc_difference(has[rows], own[rows], theirs[rows], blocks[rows]).estimate
            for _, rows, _ in _subsets(common, has, held_out)
        ]
        tables.append(table.assign(predictor=name)[COMPARED.names])
    return pd.concat(tables, ignore_index=True)


def _blocks(variants: pd.DataFrame) -> NDArray[np.int64]:
    return sequence_blocks(
        variants["contig"].to_numpy(), variants["position"].to_numpy()
    )


def _subsets(
    variants: pd.DataFrame, has: Flags, held_out: Collection[str]
) -> Iterator[tuple[str, Flags, Flags]]:
    """Yield the name of each row of a table, the variants for AUROC, and those of the subset itself."""
    scopes = [("", ALL, np.ones(len(has), bool))]
    if held_out:
        inside = variants["contig"].isin(held_out).to_numpy()
        scopes.append((f"{HELD_OUT} ", HELD_OUT, inside))
    for prefix, whole, inside in scopes:
        yield whole, inside, inside
        for kind in ("category", "track"):
            names = sorted(set(variants[kind]) - {""})
            for name in names if len(names) > 1 else ():
                members = (variants[kind] == name).to_numpy()
                rows = members
                if kind == "category" and len(set(has[members])) == 1:
                    # Add all rows of the other class.
                    rows = members | (has != has[members][0])
                if (inside & members).any():
                    yield f"{prefix}{kind}={name}", inside & rows, inside & members


def has_effect(variants: pd.DataFrame, no_effect: str = "none") -> Flags:
    """Return which variants have an effect (n,)."""
    return (variants["effect"] != no_effect).to_numpy()


def variant_figure(variants: pd.DataFrame, path: Path, no_effect: str = "none") -> None:
    """Draw a row per category, or per effect without categories: points, median, quartiles, 5 to 95 %.

    Categories with an effect are above categories without an effect.
    """
    names = variants["effect"]
    if variants["category"].any():
        names = variants["category"].replace("", "(none)")
    sizes = variants[["delta", "log_odds"]].abs()
    table = sizes.assign(has=has_effect(variants, no_effect)).groupby(names)
    groups = table.agg(has=("has", "mean"), size=("delta", "median"), n=("has", "size"))
    groups = groups.sort_values(["has", "size"], kind="stable")
    colors = {0.0: ORANGE, 1.0: BLUE}
    with panels(1, 2, 4.6, 1.3 + 0.48 * len(groups), sharey=True) as (figure, axes):
        for axis, column in zip(axes, sizes, strict=True):
            for row, (name, fraction) in enumerate(groups["has"].items()):
                values = sizes[column][names == name]
                color = colors.get(float(fraction), GRAY)
                _draw_distribution(axis, row, values.to_numpy(np.float64), color)
            axis.set_xlabel(f"|change of {LABELS[str(column)]}|")
            axis.set_xlim(left=0)
            axis.grid(visible=False, axis="y")
            axis.tick_params(axis="y", length=0)
        labels = [f"{name} ({count:,})" for name, count in groups["n"].items()]
        axes[0].set_yticks(range(len(groups)), labels)
        axes[0].set_title("Size of the predicted effect on the variant's track")
        for color, text in ((BLUE, "with a known effect"), (ORANGE, "without")):
            axes[1].plot([], [], "o", color=color, markeredgewidth=0, label=text)
        corner: Any = {"loc": "lower right", "bbox_to_anchor": (1, 1)}
        axes[1].legend(ncols=2, handletextpad=0.2, **corner)
        save_figure(figure, path)


def _draw_distribution(axis: Axes, row: int, sizes: Floats, color: str) -> None:
    points = np.sort(sizes)
    if len(points) > MOST_POINTS:  # quantiles have the same distribution
        points = np.quantile(sizes, (np.arange(MOST_POINTS) + 0.5) / MOST_POINTS)
    heights = row + 0.56 * ((np.arange(len(points)) * GOLDEN_RATIO) % 1 - 0.5)
    look: Any = {"color": color, "alpha": 0.4, "markersize": 3.2}
    axis.plot(points, heights, "o", markeredgewidth=0, zorder=2, **look)
    axis.boxplot(
        sizes,
        positions=[row],
        orientation="horizontal",
        widths=0.3,
        manage_ticks=False,
    )
