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

NO_EFFECT = "none"
DIRECTIONS = {"gain": 1, "loss": -1}
KEY = ["contig", "position", "ref", "alt", "track", "category", "effect"]
INFO = ("EFFECT", "TRACK", "CATEGORY", "BBD_DELTA", "BBD_NOTE")


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

        rows = variant_table(common)
        rows.insert(1, "predictor", name)
        tables[name] = rows

    with into_directory(output) as directory:
        write_tsv(directory / "variants.tsv", table)
        variant_figure(variants, directory / "variants.plotly.json")
        if compare:
            rows = pd.concat([tables[name] for name in compare], ignore_index=True)
            write_tsv(directory / "compared_variants.tsv", rows)

    effects = Counter(variants["effect"])
    for what, counts in (("evaluated", effects), ("excluded", excluded)):
        listed = [f"{count:,} {reason}" for reason, count in counts.most_common(6)]
        if listed:
            log(f"{counts.total():,} variants {what}: {', '.join(listed)}")

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

    Columns are `KEY` (positions are 1-based; effects are lower-case; a missing category is ""), and `delta`,
    the change (ALT minus REF) of the probability of the affected track: `track`, or else TRACK of INFO.
    `DataError`: the file is not a VCF of `score-variants --tracks '*'`, or no allele is left.
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
            values = {}
            for key in INFO:
                # `get` fails for keys that the header does not define.
                value: Any = record.info[key] if key in record.info else ""  # noqa: SIM401
                cells = value.split(",") if isinstance(value, str) else [*value]
                if len(cells) not in (1, len(alts)):
                    raise DataError(
                        f"{where}: {key} has {len(cells)} values for {len(alts)} ALT"
                    )

                cells = ["" if cell in (".", None) else unquote(cell) for cell in cells]
                values[key] = cells * len(alts) if len(cells) == 1 else cells

            for i, alt in enumerate(alts):
                effect, name, category, delta, note = (values[key][i] for key in INFO)
                name = track or name
                if not effect:
                    excluded["without EFFECT"] += 1
                elif not delta:
                    excluded[f"not scored ({note})" if note else "not scored"] += 1
                elif name not in tracks:
                    excluded[f"on {name}, which was not predicted"] += 1
                else:
                    deltas = delta.split("&")
                    try:
                        change = float(deltas[tracks.index(name)])
                    except ValueError:
                        change = math.nan

                    if len(deltas) != len(tracks) or not math.isfinite(change):
                        raise DataError(
                            f"{where}: BBD_DELTA needs numbers for {len(tracks):,} tracks"
                        )

                    place = record.chrom, record.pos, record.ref, alt
                    rows.append((*place, name, category, effect.lower(), change))

    if not rows:
        reasons = [f"{count:,} {reason}" for reason, count in excluded.most_common(3)]
        raise DataError(
            f"{path}: no variant to evaluate ({', '.join(reasons) or 'the file has none'})"
        )

    return pd.DataFrame(rows, columns=[*KEY, "delta"]), excluded


def variant_table(variants: pd.DataFrame) -> pd.DataFrame:
    """Return the metrics of all variants, of each category and of each track.

    AUROC ranks variants by the absolute change, to separate variants with and without an effect. A category
    with only one of the two classes is compared with all variants of the other class. `variants` and
    `with_effect` count the variants in the AUROC; `sign_accuracy` is the fraction of known gains and losses
    (of the category itself) whose change has the expected sign. With a column `delta_model`, `difference` is
    the AUROC of these changes minus that of `delta`.
    """
    variants = variants.assign(
        has_effect=variants["effect"] != NO_EFFECT,
        size=variants["delta"].abs(),
        block=sequence_blocks(variants["contig"], variants["position"]),
    )
    direction = variants["effect"].map(DIRECTIONS)
    correct = (np.sign(variants["delta"]) == direction).where(direction.notna())
    subsets = {"all": pd.Series(True, variants.index)}
    for kind in ("category", "track"):
        names = sorted(set(variants[kind]) - {""})
        if len(names) > 1:
            for name in names:
                subsets[f"{kind}={name}"] = variants[kind] == name

    table = []
    for subset, members in subsets.items():
        classes = variants["has_effect"][members].unique()
        rows = variants[members]
        if subset.startswith("category") and len(classes) == 1:
            rows = variants[members | (variants["has_effect"] != classes[0])]

        row: dict[str, Any] = {
            "subset": subset,
            "variants": len(rows),
            "with_effect": int(rows["has_effect"].sum()),
        }
        area = auroc(rows["has_effect"], rows["size"], rows["block"])
        row |= zip(("auroc", "auroc_low", "auroc_high"), area, strict=True)
        if "delta_model" in variants:
            model = rows["delta_model"].abs()
            lead = auroc_difference(
                rows["has_effect"], model, rows["size"], rows["block"]
            )
            columns = ("difference", "difference_low", "difference_high")
            row |= zip(columns, lead.estimate, strict=True)

        row["sign_accuracy"] = correct[members].astype(float).mean()
        table.append(row)

    return pd.DataFrame(table)


def variant_figure(variants: pd.DataFrame, path: Path) -> None:
    """Draw the percentiles of the sizes of the changes by category, or by effect without categories."""
    import plotly.express as px

    names = variants["effect"]
    if variants["category"].any():
        names = variants["category"].replace("", "(none)")

    names = names + names.map(names.value_counts()).map(" ({:,})".format)
    is_none = variants.groupby(names)["effect"].apply(lambda x: (x == NO_EFFECT).mean())
    sizes = variants["delta"].abs().groupby(names)
    percentiles = sizes.quantile(np.linspace(0, 1, 101)).reset_index()
    percentiles.columns = pd.Index(["category", "percentile", "change"])
    # Categories with an effect are above the others.
    order = (is_none - sizes.mean()).sort_values(kind="stable").index
    no_effect = percentiles["category"].map(is_none > 0.5)
    figure = px.box(
        percentiles.assign(
            effect=no_effect.map({True: "no effect", False: "known effect"})
        ),
        x="change",
        y="category",
        color="effect",
        points="all",
        category_orders={"category": [*order]},
        labels={
            "change": "|change of probability| on the variant's track",
            "category": "",
        },
        height=180 + 60 * len(order),
    )
    figure.update_layout(boxmode="overlay")
    write_figure(figure, path)
