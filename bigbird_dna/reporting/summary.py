"""Summary of the metrics of a run as table and text; `DataError` if a file lacks a metric."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from bigbird_dna.data.predictions import ALL as EVERY
from bigbird_dna.data.predictions import (
    AUROC_SHIFTED,
    CONTROL,
    KMER,
    MEDIAN_SHIFTED,
    MODEL,
    MODELS,
    NETWORK,
    NONCODING,
    ONE_AT_A_TIME,
    SHIFTS,
    SPLIT,
    of_split,
    read_bits,
)
from bigbird_dna.disk.atomic import read_object
from bigbird_dna.disk.tables import (
    Schema,
    number,
    read_table,
    whole_number,
    with_types,
    write_table,
)
from bigbird_dna.errors import DataError, UsageError, printable
from bigbird_dna.metrics.auroc import ENDS, Estimate, discoveries
from bigbird_dna.reporting.calibration import PROMOTER_CALIBRATION
from bigbird_dna.reporting.predictors import STYLES
from bigbird_dna.reporting.promoters import DIFFERENCES, PROMOTERS
from bigbird_dna.reporting.scan import BEST_F1, SCAN
from bigbird_dna.reporting.track_evaluation import PUBLISHED, groups_schema
from bigbird_dna.reporting.variants import ALL, COMPARED, HELD_OUT, VARIANTS

_UNEVEN = 0.05
_ERROR = "ece_debiased"
LISTED = 3  # number of tracks with the largest lead
_METRICS = {"auroc": "AUROC", "auprc": "AUPRC", "f1": "F1", "mcc": "MCC"}
_PREDICTORS = {
    "kmers": STYLES[KMER].label,
    "dyads": "k-mer and dyad regression",
    **{name: style.label for name, style in STYLES.items() if name != MODEL},
}
SHUFFLED = _PREDICTORS[CONTROL]
NO_BASELINES = (MODEL, _PREDICTORS[NETWORK], SHUFFLED, PUBLISHED)
MINUS = f"{MODEL} minus "
_STRATA = {NONCODING: "less than half coding"}
_MEDIAN, _LEAD = "median_auroc_", "delta_"

SUMMARY = Schema.of("text section metric; metric value low high; text note")

Line = Mapping[Any, Any]


def summarize(
    *,
    scan: Path | None = None,
    loci: Path | None = None,
    statistics: Path | None = None,
    pretraining: Path | None = None,
    bits: Path | None = None,
    promoters: Path | None = None,
    promoter_metrics: Mapping[str, Path] = {},
    groups: Path | None = None,
    tracks: Path | None = None,
    variants: Path | None = None,
    compared_variants: Path | None = None,
    calibration: Path | None = None,
    report: Path | None = None,
    output: Path | None = None,
) -> str:
    """Summarize a run from the tables and metrics of its steps, as text and as the table `output`.

    `scan` is the table of `evaluate scan`, `loci` `promoters.json` of the promoters mapped to the reference,
    `statistics` the tokenizer's `statistics.json`, `pretraining` the model's `metrics.json`, `bits` the table
    of `evaluate pretraining`, `promoter_metrics` the `metrics.json` of promoter models by negative set; the
    others are tables of the reports. The last line of the text contains the path `report`.
    """
    sources: list[tuple[Path | None, Callable[[Path], Iterable[SummaryRow]]]] = [
        (scan, scan_rows),
        (loci, locus_rows),
        (statistics, token_rows),
        (bits, language_rows),
        (pretraining, pretraining_rows),
        (promoters, promoter_rows),
        *((path, partial(shift_rows, name)) for name, path in promoter_metrics.items()),
        (calibration, calibration_rows),
        (groups, group_rows),
        (tracks, lead_rows),
        (variants, variant_rows),
        (compared_variants, compared_variant_rows),
    ]
    found = (row for path, read in sources if path is not None for row in read(path))
    # Control characters in names must not reach the terminal.
    rows = [
        SummaryRow._make(printable(one) if isinstance(one, str) else one for one in row)
        for row in found
    ]
    order = {
        section: place
        for place, section in enumerate(dict.fromkeys(row.section for row in rows))
    }
    rows.sort(
        key=lambda row: order[row.section]
    )  # groups the rows of a section from several files
    if not rows:
        raise UsageError(
            "no input: give metrics.json, promoters.tsv, groups.tsv or another table"
        )
    if output is not None:
        write_table(output, pd.DataFrame(rows, columns=SUMMARY.names), SUMMARY)
    cells = []
    for row in rows:
        ends = "" if math.isnan(row.low) else f"[{row.low:.4f}, {row.high:.4f}]"
        cells.append((row.metric, _value_text(row.value), ends, row.note))
    header = ("", "value", "95 % interval", "")
    widths = [
        max(len(line[column]) for line in [header, *cells]) for column in range(4)
    ]
    lines = [_line(header, widths)]
    for index, (row, cell) in enumerate(zip(rows, cells, strict=True)):
        if index == 0 or rows[index - 1].section != row.section:
            lines += ["", row.section[:1].upper() + row.section[1:]]
        lines.append(_line(cell, widths))
    if report is not None:
        lines += ["", f"Report: {report}"]
    return "\n".join(lines)


def _line(cells: tuple[str, str, str, str], widths: list[int]) -> str:
    figure, value, interval, note = cells
    return f"  {figure:<{widths[0]}}  {value:>{widths[1]}}  {interval:<{widths[2]}}  {note}".rstrip()


def _value_text(value: float) -> str:
    if math.isnan(value):
        return "–"
    return (
        f"{int(value):,}" if value.is_integer() and abs(value) >= 10 else f"{value:.4f}"
    )


class SummaryRow(NamedTuple):
    """One value of the summary; `low` and `high` are NaN if it has no interval."""

    section: str
    metric: str
    value: float
    low: float = math.nan
    high: float = math.nan
    note: str = ""


def token_rows(source: Path) -> Iterator[SummaryRow]:
    """Yield rows from the tokenizer's `statistics.json`: vocabulary, bp per token by region, unknown rate."""
    statistics = read_object(source)
    genome = _object(statistics, "genome", source)
    per_token = number(genome, "bases_per_token", source)
    bases = f"{whole_number(genome, 'bases', source):,} bp"
    yield SummaryRow("tokens", "vocabulary", number(statistics, "vocabulary", source))
    yield SummaryRow("tokens", "bp per token, genome", per_token, note=bases)
    regions = _object(statistics, "regions", source)
    for name in regions:
        region = _object(regions, name, source)
        if region.get("bases_per_token") is not None:
            found = number(region, "bases_per_token", source)
            yield SummaryRow("tokens", f"bp per token, {name}", found)
    yield SummaryRow(
        "tokens",
        "unknown tokens",
        number(genome, "unknown_rate", source),
        note="fraction",
    )


def locus_rows(source: Path) -> Iterator[SummaryRow]:
    """Yield counts from `promoters.json`: promoters used, and promoters dropped, by reason."""
    counts = read_object(source)
    read, used = (whole_number(counts, key, source) for key in ("read", "promoters"))
    yield SummaryRow("data", "promoters", float(used), note=f"of {read:,} in the file")
    reasons = {
        "unmapped": "not lifted",
        "off_reference": "not on the reference",
        "duplicates": "duplicates",
    }
    dropped = {
        why: whole_number(counts, key, source)
        for key, why in reasons.items()
        if counts.get(key) is not None
    }
    if any(dropped.values()):
        note = ", ".join(f"{count:,} {why}" for why, count in dropped.items() if count)
        yield SummaryRow(
            "data", "promoters dropped", float(sum(dropped.values())), note=note
        )


def language_rows(source: Path) -> Iterator[SummaryRow]:
    """Yield bits per base of the model and of the best baseline, and their difference.

    First for predictors that see no masked token, then for predictors that see all other tokens; on the test
    contigs, or on the validation contigs if there are no test contigs.
    """
    table = of_split(read_bits(source), "test")
    split = str(table[SPLIT].iloc[0])
    single = table["predictor"].str.endswith(ONE_AT_A_TIME)
    parts = (
        (table[~single], "pretraining"),
        (table[single], f"pretraining{ONE_AT_A_TIME}"),
    )
    for chosen, section in parts:
        own = chosen["predictor"].isin(MODELS)
        for line in chosen[own].to_dict("records"):
            yield SummaryRow(
                section, f"bits per base, {MODEL}", *_bits(line), f"held out ({split})"
            )
        if own.all():
            continue
        line = (
            chosen[~own]
            .sort_values("bits_per_base", kind="stable")
            .to_dict("records")[0]
        )
        name = line["predictor"].removesuffix(ONE_AT_A_TIME)
        yield SummaryRow(section, f"bits per base, {name}", *_bits(line), line["note"])
        gap = _estimate(line, "difference")
        yield SummaryRow(
            section, f"bits per base, {MINUS}{name}", *gap, "over blocks of 10 kb"
        )


def pretraining_rows(source: Path) -> list[SummaryRow]:
    """Return rows from the pretrained model's `metrics.json`, without bits per base."""
    metrics = read_object(source)
    split = metrics.get("split")
    held_out = f"held out ({split})" if split else "held out"
    needed = {"masked_accuracy": ("masked-token accuracy", held_out)}
    if "next_token_accuracy" in metrics:  # causal models only
        needed = {"next_token_accuracy": ("next-token accuracy", held_out)}
    others = {
        "next_sentence_accuracy": ("next-sentence accuracy", held_out),
        "steps": ("steps", ""),
        "tokens_seen": ("tokens seen", ""),
    }
    named = needed | {key: value for key, value in others.items() if key in metrics}
    return [
        SummaryRow("pretraining", figure, number(metrics, key, source), note=note)
        for key, (figure, note) in named.items()
    ]


def promoter_rows(source: Path) -> Iterator[SummaryRow]:
    """Yield, by negative set and stratum, the model's metrics, AUROC of the baselines, and the differences.

    Strata other than all windows have AUROC only.
    """
    table = read_table(source, PROMOTERS)
    for (negative_set, stratum), part in table.groupby(
        ["negative_set", "stratum"], sort=False
    ):
        section, metrics = f"promoters, {negative_set}", _METRICS
        if stratum != EVERY:
            section += f", {_STRATA.get(str(stratum), stratum)}"
            metrics = {"auroc": _METRICS["auroc"]}
        last: list[SummaryRow] = []
        for line in part.to_dict("records"):
            if line["model"] == MODEL:
                note, fraction = (
                    f"{line['n']:,} test windows",
                    line["positives"] / max(line["n"], 1),
                )
                if (
                    abs(fraction - 0.5) > _UNEVEN
                ):  # AUPRC and F1 depend on the prevalence
                    note += f", {fraction:.0%} positive"
                for name, figure in metrics.items():
                    yield SummaryRow(
                        section, f"{figure}, model", *_estimate(line, name), note
                    )
                for baseline, column in DIFFERENCES.items():
                    lead = _estimate(line, column)
                    if not math.isnan(lead.value):
                        figure = f"AUROC, {MINUS}{_PREDICTORS[baseline]}"
                        last.append(SummaryRow(section, figure, *lead, "paired"))
            elif line["model"] in _PREDICTORS:
                notes = (
                    ["chance is 0.5", line["note"]] if line["model"] == CONTROL else []
                )
                note = "; ".join(filter(None, notes))
                figure = f"AUROC, {_PREDICTORS[line['model']]}"
                yield SummaryRow(section, figure, *_estimate(line, "auroc"), note)
        yield from last


def scan_rows(source: Path) -> Iterator[SummaryRow]:
    """Yield the average precision of calls along contigs by distance, for the model and other predictors."""
    table = read_table(source, SCAN)
    for distance, part in table[table["selection"] == BEST_F1].groupby(
        "within", sort=False
    ):
        section, last = f"calls, within {distance:,} bp", []
        for line in part.to_dict("records"):
            name, precision = (
                _PREDICTORS.get(line["predictor"], line["predictor"]),
                "average precision",
            )
            note = f"{line['tss']:,} TSSs" if line["predictor"] == MODEL else ""
            yield SummaryRow(
                section,
                f"{precision}, {name}",
                *_estimate(line, "average_precision"),
                note,
            )
            lead = _estimate(line, "difference")
            if not math.isnan(lead.value):
                last.append(
                    SummaryRow(section, f"{precision}, {MINUS}{name}", *lead, "paired")
                )
        yield from last


def shift_rows(negative_set: str, source: Path) -> Iterator[SummaryRow]:
    """Yield, from a promoter model's `metrics.json`, the median scores of moved promoters, if measured."""
    test = read_object(source).get("test") or {}
    for bp in (0, *SHIFTS) if MEDIAN_SHIFTED.format(0) in test else ():
        median, area = (
            number(test, key.format(bp), source)
            for key in (MEDIAN_SHIFTED, AUROC_SHIFTED)
        )
        figure = f"median score, window moved by {bp} bp"
        yield SummaryRow(
            f"promoters, {negative_set}",
            figure,
            median,
            note=f"test promoters; AUROC {area:.4f}",
        )


def calibration_rows(source: Path) -> Iterator[SummaryRow]:
    """Yield the calibration error on test windows by negative set, before and after calibration."""
    schema = PROMOTER_CALIBRATION.part("negative_set", "probabilities", _ERROR)
    for line in read_table(source, schema).to_dict("records"):
        figure, error = (
            f"calibration error, {line['probabilities']}",
            _estimate(line, _ERROR),
        )
        yield SummaryRow(
            f"promoters, {line['negative_set']}", figure, *error, "debiased"
        )


def group_rows(source: Path) -> Iterator[SummaryRow]:
    """Yield the median AUROC of each group in `groups.tsv`, for the model and compared predictors."""
    schema = groups_schema(()).part("group", "tracks", "median_auroc")
    table = read_table(source, schema)
    others = [
        name.removeprefix(_MEDIAN) for name in table.columns if name.startswith(_MEDIAN)
    ]
    table = with_types(
        source, table, Schema.of(*(f"metric {_MEDIAN}{name}" for name in others))
    )
    for line in table.to_dict("records"):
        section = f"chromatin, {line['group']}"
        count = line["tracks"]
        note = f"{count:,} {'track' if count == 1 else 'tracks'}"
        yield SummaryRow(
            section, "median AUROC, model", line["median_auroc"], note=note
        )
        for name in others if count else []:
            value = line[f"{_MEDIAN}{name}"]
            yield SummaryRow(section, f"median AUROC, {_predictor_name(name)}", value)


def lead_rows(source: Path) -> list[SummaryRow]:
    """Return the median difference in AUROC of the tracks in `tracks.tsv`, by group and compared predictor.

    The note counts the tracks whose difference is significant (`discoveries`). The tracks with the largest
    lead over the first predictor follow; their leads are slightly overestimated, because they are the largest
    of many. Tracks excluded from the metrics of their group, and published metrics (of other data), are left
    out.
    """
    table = read_table(source, Schema.of("text track group note; metric auroc"))
    table = table[
        ~table["note"].str.contains("not in the group's metrics", regex=False)
    ]
    leads = [
        name
        for name in table.columns
        if name.startswith(_LEAD) and not name.endswith(ENDS[1:])
    ]
    medians: list[SummaryRow] = []
    largest: list[SummaryRow] = []
    for name in (lead.removeprefix(_LEAD) for lead in leads):
        if name == PUBLISHED:
            continue
        lead, other, title = f"{_LEAD}{name}", f"auroc_{name}", _predictor_name(name)
        known = with_types(
            source, table, Schema.of(f"estimate {lead}; metric p_{name} {other}")
        )
        known = known[known[lead].notna()]
        groups = {
            str(group): part for group, part in known.groupby("group", sort=False)
        }
        for group, part in (
            {**groups, EVERY: known} if len(groups) > 1 else groups
        ).items():
            certain = part[discoveries(part[f"p_{name}"])][lead]
            above, below = (certain > 0).sum(), (certain < 0).sum()
            note = f"better on {above:,}, worse on {below:,} of {len(part):,} tracks"
            figure = f"median AUROC, {MINUS}{title}"
            medians.append(
                SummaryRow(
                    f"chromatin, {group}", figure, part[lead].median(), note=note
                )
            )
        for line in [] if largest else known.nlargest(LISTED, lead).to_dict("records"):
            section = f"chromatin, AUROC above {title}"
            note = f"{line['auroc']:.4f} against {line[other]:.4f}"
            largest.append(
                SummaryRow(section, str(line["track"]), *_estimate(line, lead), note)
            )
    return medians + largest


def variant_rows(source: Path) -> Iterator[SummaryRow]:
    """Yield AUROC and sign accuracy from `variants.tsv`, for all variants and for held-out contigs."""
    for line in read_table(source, VARIANTS).to_dict("records"):
        if line["subset"] not in (ALL, HELD_OUT):
            continue
        area = _estimate(line, "auroc")
        note = f"{line['variants']:,} variants, {line['with_effect']:,} with an effect"
        section = f"variants, {line['subset']}"
        yield SummaryRow(section, f"AUROC, {MODEL}", *area, note)
        right = line["sign_accuracy"]
        if not math.isnan(right):
            yield SummaryRow(section, "sign accuracy", right, note="fraction")


def compared_variant_rows(source: Path) -> Iterator[SummaryRow]:
    """Yield, from `compared_variants.tsv`, the AUROC of other predictors and the differences of the model."""
    for line in read_table(source, COMPARED).to_dict("records"):
        if line["subset"] in (ALL, HELD_OUT):
            section, name = (
                f"variants, {line['subset']}",
                _predictor_name(line["predictor"]),
            )
            yield SummaryRow(section, f"AUROC, {name}", *_estimate(line, "auroc"))
            yield SummaryRow(
                section,
                f"AUROC, {MINUS}{name}",
                *_estimate(line, "difference"),
                "paired",
            )


def _predictor_name(name: str) -> str:
    window = re.fullmatch(
        r"window_(\d{1,9})", name
    )  # the workflow's name of a model that sees less sequence
    return (
        f"{int(window[1]):,}-bp model"
        if window
        else _PREDICTORS.get(name, name.replace("_", " "))
    )


def _object(values: Mapping[str, Any], key: str, source: Path) -> Mapping[str, Any]:
    value = values.get(key)
    if not isinstance(value, Mapping):
        raise DataError(f"{source}: {key!r} must be an object, found {value!r:.60}")
    return value


def _bits(line: Line) -> Estimate:
    return Estimate(*(line[name] for name in ("bits_per_base", "low", "high")))


def _estimate(line: Line, name: str) -> Estimate:
    return Estimate(*(line[f"{name}{end}"] for end in ENDS))
