"""Evaluate the predicted effects of variants whose effects are known.

Known effects are in INFO of a VCF of `score-variants`: EFFECT ("none" for no effect; "gain" and "loss" have
an expected sign), TRACK, the affected track, and optionally CATEGORY. A field has one value per record or one
per ALT; characters not allowed in INFO are percent-encoded.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pandas as pd

from bigbird_dna.console import log
from bigbird_dna.disk.atomic import quiet_htslib, reading
from bigbird_dna.disk.directories import into_directory
from bigbird_dna.disk.tables import write_tsv
from bigbird_dna.errors import DataError, UsageError
from bigbird_dna.metrics.auroc import auroc, auroc_difference
from bigbird_dna.metrics.resampling import sequence_blocks
from bigbird_dna.reporting.pages import write_figure
from bigbird_dna.reporting.result import interval

_POINTS = 300
NO_EFFECT = "none"
DIRECTIONS = {"gain": 1, "loss": -1}
KEY = ["contig", "position", "ref", "alt", "track", "category", "effect"]


def variant_report(
    scored: Path,
    output: Path,
    *,
    compare: Mapping[str, Path] | None = None,
    track: str | None = None,
) -> pd.DataFrame:
    """Evaluate the effects in a VCF; write `variants.tsv` (returned) and the figure `variants`.

    With `compare` (name → VCF of the same variants scored by another predictor), also writes
    `compared_variants.tsv`. Arguments and errors are those of `read_known_effects`.
    """
    variants, excluded = read_known_effects(scored, track)
    table = variant_table(variants)
    tables = {"model": table}
    for name, path in (compare or {}).items():
        other = read_known_effects(path, track)[0].drop_duplicates(KEY, keep="last")
        common = variants.merge(other, on=KEY, suffixes=("_model", ""))
        if common.empty:
            raise DataError(f"--compare {name}: {path} has none of these variants")
        rows = variant_table(common).drop(columns="auroc_log_odds")
        rows.insert(1, "predictor", name)
        tables[name] = rows
    with into_directory(output) as directory:
        write_tsv(directory / "variants.tsv", table)
        variant_figure(variants, directory / "variants.plotly.json")
        if compare:
            rows = pd.concat([tables[name] for name in compare], ignore_index=True)
            write_tsv(directory / "compared_variants.tsv", rows)

    counts = variants["effect"].value_counts().head(6).items()
    listed = ", ".join(f"{count:,} {effect}" for effect, count in counts)
    log(f"{len(variants):,} variants evaluated: {listed}")
    if excluded:
        reasons = [f"{count:,} {reason}" for reason, count in excluded.most_common(5)]
        log(f"{excluded.total():,} excluded: {', '.join(reasons)}")
    for predictor, rows in tables.items():
        row = rows.iloc[0]
        area = interval(row["auroc"], row["auroc_low"], row["auroc_high"])
        signs = row["sign_accuracy"]
        text = "" if math.isnan(signs) else f", {signs:.1%} of the signs correct"
        log(f"{predictor}: AUROC {area} of {row['variants']:,} variants{text}")
    return table


def read_known_effects(
    path: Path, track: str | None = None
) -> tuple[pd.DataFrame, Counter[str]]:
    """Return the alleles with a known and a predicted effect, and the number of excluded alleles by reason.

    Columns are `KEY` (positions are 1-based; effects are lower-case; a missing category is ""), and `delta`
    and `log_odds`, the changes (ALT minus REF) of the probability and of the natural log-odds on the affected
    track: `track`, or else TRACK of INFO. `DataError`: the file is not a VCF of `score-variants --tracks
    '*'`, or no allele is left.
    """
    import pysam

    rows = []
    excluded = Counter[str]()
    with (
        quiet_htslib(),
        reading(path, "not readable as VCF", OSError, ValueError),
        pysam.VariantFile(str(path)) as vcf,
    ):
        info = vcf.header.info
        text = str(info["BBD_DELTA"].description) if "BBD_DELTA" in info else ""
        listed = re.search(r": joined by &, for the tracks ([^\"]*)", text)
        if not listed:
            raise DataError(
                f"{path}: the header has no BBD_DELTA; score the variants with --tracks '*'"
            )
        tracks = [unquote(name) for name in listed[1].split(",")]
        if track is not None and track not in tracks:
            raise UsageError(f"--track {track!r}: {path} has no values of this track")
        for number, record in enumerate(vcf, start=1):
            where = f"{path}: record {number} ({record.chrom}:{record.pos})"
            alts = record.alts or ()
            effects, names, categories, deltas, log_odds, notes = (
                _values_per_alt(record, key, where)
                for key in (
                    "EFFECT",
                    "TRACK",
                    "CATEGORY",
                    "BBD_DELTA",
                    "BBD_LOGODDS",
                    "BBD_NOTE",
                )
            )
            for i, alt in enumerate(alts):
                name = track or unquote(names[i])
                if not effects[i]:
                    excluded["without EFFECT"] += 1
                elif not deltas[i] and not log_odds[i]:
                    note = f" ({notes[i]})" if notes[i] else ""
                    excluded[f"not scored{note}"] += 1
                elif not name:
                    excluded["without TRACK"] += 1
                elif name not in tracks:
                    excluded[f"on {name}, which was not predicted"] += 1
                else:
                    row: dict[str, Any] = {
                        "contig": record.chrom,
                        "position": record.pos,
                        "ref": record.ref,
                        "alt": alt,
                        "track": name,
                        "category": unquote(categories[i]),
                        "effect": unquote(effects[i]).lower(),
                    }
                    for column, values in (("delta", deltas), ("log_odds", log_odds)):
                        cells = values[i].split("&")
                        if len(cells) != len(tracks):
                            raise DataError(
                                f"{where}: BBD_DELTA and BBD_LOGODDS need values of {len(tracks):,} tracks"
                            )
                        try:
                            row[column] = float(cells[tracks.index(name)])
                        except ValueError:
                            row[column] = math.nan
                        if not math.isfinite(row[column]):
                            raise DataError(
                                f"{where}: the {column} of {name} is not a number"
                            )
                    rows.append(row)
    if not rows:
        reasons = [f"{count:,} {reason}" for reason, count in excluded.most_common(3)]
        raise DataError(
            f"{path}: no variant to evaluate ({', '.join(reasons) or 'the file has none'})"
        )
    return pd.DataFrame(rows), excluded


def _values_per_alt(record: Any, key: str, where: str) -> list[str]:
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


def variant_table(variants: pd.DataFrame) -> pd.DataFrame:
    """Return the metrics of all variants, of each category and of each track.

    AUROC ranks variants by the absolute change, to separate variants with and without an effect. A category
    with only one of the two classes is compared with all variants of the other class. `variants` and
    `with_effect` count the variants in the AUROC; `sign_accuracy` is the fraction of known gains and losses
    (of the category itself) whose change has the expected sign. With a column `delta_model`, `difference` is
    the AUROC of these changes minus that of `delta`.
    """
    has_effect = (variants["effect"] != NO_EFFECT).to_numpy()
    delta = variants["delta"].to_numpy()
    log_odds = variants["log_odds"].to_numpy()
    direction = variants["effect"].map(DIRECTIONS).fillna(0).to_numpy()
    blocks = sequence_blocks(variants["contig"], variants["position"])
    everything = np.ones(len(variants), bool)
    subsets = [("all", everything, everything)]
    for kind in ("category", "track"):
        names = sorted(set(variants[kind]) - {""})
        for name in names if len(names) > 1 else ():
            members = (variants[kind] == name).to_numpy()
            rows = members
            if kind == "category" and len(set(has_effect[members])) == 1:
                rows = members | (has_effect != has_effect[members][0])
            subsets.append((f"{kind}={name}", rows, members))
    table = []
    for subset, rows, members in subsets:
        labels = has_effect[rows]
        size = np.abs(delta[rows])
        row: dict[str, Any] = {
            "subset": subset,
            "variants": len(labels),
            "with_effect": int(labels.sum()),
        }
        columns = ("auroc", "auroc_low", "auroc_high")
        row |= zip(columns, auroc(labels, size, blocks[rows]), strict=True)
        if "delta_model" in variants:
            model = variants["delta_model"].abs().to_numpy()[rows]
            lead = auroc_difference(labels, model, size, blocks[rows])
            columns = ("difference", "difference_low", "difference_high")
            row |= zip(columns, lead.estimate, strict=True)
        row["auroc_log_odds"] = auroc(labels, np.abs(log_odds[rows])).value
        directed = members & (direction != 0)
        row["sign_accuracy"] = math.nan
        if directed.any():
            correct = np.sign(delta[directed]) == direction[directed]
            row["sign_accuracy"] = float(correct.mean())
        table.append(row)
    return pd.DataFrame(table)


def variant_figure(variants: pd.DataFrame, path: Path) -> None:
    """Draw the sizes of the changes by category, or by effect without categories, as boxes and points.

    Categories with an effect are above the others. Of many variants, 300 quantiles per category are drawn.
    """
    import plotly.express as px

    names = variants["effect"]
    if variants["category"].any():
        names = variants["category"].replace("", "(none)")
    tables = []
    for name, rows in variants.groupby(names):
        sizes = rows["delta"].abs()
        if len(sizes) > _POINTS:
            sizes = sizes.quantile(np.linspace(0, 1, _POINTS))
        with_effect = (rows["effect"] != NO_EFFECT).mean()
        points = {
            "category": f"{name} ({len(rows):,})",
            "effect": "known effect" if with_effect > 0.5 else "no effect",
            "change": sizes,
            "rank": with_effect + sizes.mean() / 2,
        }
        tables.append(pd.DataFrame(points))
    table = pd.concat(tables).sort_values("rank", kind="stable")
    figure = px.box(
        table,
        x="change",
        y="category",
        color="effect",
        points="all",
        labels={"change": "|change of probability| on the variant's track"},
        height=180 + 60 * len(tables),
    )
    figure.update_yaxes(
        categoryorder="array", categoryarray=table["category"].unique(), title=""
    )
    figure.update_layout(boxmode="overlay")
    write_figure(figure, path)
