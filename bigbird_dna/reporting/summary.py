"""The metrics of a run as one table, as text, and each with the best baseline."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from bigbird_dna.config.paths import RunPaths
from bigbird_dna.config.run import Config
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
from bigbird_dna.disk.atomic import read_object, reading
from bigbird_dna.disk.tables import Schema, read_table, with_types
from bigbird_dna.errors import printable
from bigbird_dna.metrics.auroc import ENDS, discoveries
from bigbird_dna.reporting.calibration import PROMOTER_CALIBRATION
from bigbird_dna.reporting.predictors import NEAR_CHANCE, STYLES
from bigbird_dna.reporting.promoters import DIFFERENCES, PROMOTERS
from bigbird_dna.reporting.scan import BEST_F1, SCAN
from bigbird_dna.reporting.track_evaluation import PUBLISHED, groups_schema
from bigbird_dna.reporting.variants import ALL, COMPARED, HELD_OUT, VARIANTS

SUMMARY = Schema.of("text section metric; metric value low high; text note")

PREDICTOR_NAMES = {
    "kmers": STYLES[KMER].label,
    "dyads": "k-mer and dyad regression",
    **{name: style.label for name, style in STYLES.items() if name != MODEL},
}
SHUFFLED = PREDICTOR_NAMES[CONTROL]
# An ensemble's network is part of the model, and published metrics are of other data.
NO_BASELINES = (MODEL, PREDICTOR_NAMES[NETWORK], SHUFFLED, PUBLISHED)
MINUS = f"{MODEL} minus "
LARGEST_LEADS = 3
UNEVEN = 0.05
"""AUPRC and F1 depend on the prevalence, which is stated if it is farther from 0.5 than this."""


class SummaryRow(NamedTuple):
    """One value of the summary; `low` and `high` are NaN if it has no interval."""

    section: str
    metric: str
    value: float
    low: float = math.nan
    high: float = math.nan
    note: str = ""


Rows = Iterable[SummaryRow]


def summarize(config: Config, paths: RunPaths) -> pd.DataFrame:
    """Return the metrics of the run in `paths`, with the columns of `SUMMARY`; missing files are skipped.

    `DataError` if a file lacks a metric.
    """
    report, chromatin = paths.report, paths.report / "chromatin"
    readers: list[tuple[Callable[[Path], Rows], Path]] = []
    if config.start_sites is not None:
        readers.append((scan_rows, report / "scan.tsv"))
    if config.has_promoters and not config.has_sequences:
        readers.append((promoter_counts, paths.promoter_counts))
    if config.has_pretraining:
        readers.append((token_rows, paths.token_statistics))
        readers.append((language_rows, paths.pretraining_bits))
        readers.append((pretraining_rows, paths.pretrained / "metrics.json"))
    if config.has_promoters:
        readers.append((promoter_rows, report / "promoters.tsv"))
        for name in config.promoters.windows.negative_sets:
            metrics = paths.promoter_model(name) / "metrics.json"
            readers.append((partial(shift_rows, name), metrics))
        readers.append((calibration_rows, report / "calibration.tsv"))
    if config.has_chromatin:
        readers.append((group_rows, chromatin / "groups.tsv"))
        readers.append((lead_rows, chromatin / "tracks.tsv"))
        readers.append((variant_rows, report / "variants.tsv"))
        readers.append((compared_variant_rows, report / "compared_variants.tsv"))
    rows: list[SummaryRow] = []
    for read, path in readers:
        if path.is_file():
            rows += read(path)
    table = pd.DataFrame(rows, columns=SUMMARY.names)
    for column in ("section", "metric", "note"):
        # Control characters in names must not reach the terminal.
        table[column] = table[column].map(printable)
    # Rows of a section can be from several files.
    order = pd.factorize(table["section"])[0].argsort(kind="stable")
    return table.iloc[order].reset_index(drop=True)


def summary_text(table: pd.DataFrame) -> str:
    """Return a summary as aligned text, with a heading per section."""
    cells = [("", "value", "95 % interval", "")]
    for _, metric, value, low, high, note in table[SUMMARY.names].to_numpy().tolist():
        text = f"{value:.4f}"
        if math.isnan(value):
            text = "–"
        elif value.is_integer() and abs(value) >= 10:
            text = f"{int(value):,}"
        ends = "" if math.isnan(low) else f"[{low:.4f}, {high:.4f}]"
        cells.append((metric, text, ends, note))
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    previous = ""
    for section, (metric, value, ends, note) in zip(
        ["", *table["section"]], cells, strict=True
    ):
        if section != previous:
            lines += ["", section[:1].upper() + section[1:]]
            previous = section
        line = f"  {metric:<{widths[0]}}  {value:>{widths[1]}}  {ends:<{widths[2]}}  {note}"
        lines.append(line.rstrip())
    return "\n".join(lines)


def scan_rows(path: Path) -> Iterator[SummaryRow]:
    """Yield the average precision of calls along contigs by distance, for all predictors, from `scan.tsv`."""
    table = read_table(path, SCAN)
    best = table[table["selection"] == BEST_F1]
    for distance, part in best.groupby("within", sort=False):
        section = f"calls, within {distance:,} bp"
        differences = []
        for row in part.to_dict("records"):
            name = _predictor_name(row["predictor"])
            note = f"{row['tss']:,} TSSs" if row["predictor"] == MODEL else ""
            precision, difference = (
                _estimate(row, column) for column in ("average_precision", "difference")
            )
            yield SummaryRow(section, f"average precision, {name}", *precision, note)
            if not math.isnan(difference[0]):
                metric = f"average precision, {MINUS}{name}"
                differences.append(SummaryRow(section, metric, *difference, "paired"))
        yield from differences


def promoter_counts(path: Path) -> list[SummaryRow]:
    """Return the numbers of promoters, and of those dropped by reason, from `promoters.json`."""
    counts = read_object(path)
    with reading(path, "not counts of promoters", KeyError, TypeError, ValueError):
        note = f"of {counts['read']:,} in the file"
        rows = [SummaryRow("data", "promoters", float(counts["promoters"]), note=note)]
        reasons = {
            "not lifted": counts.get("unmapped"),
            "not on the reference": counts.get("off_reference"),
            "duplicates": counts.get("duplicates"),
        }
        dropped = {reason: count for reason, count in reasons.items() if count}
        if dropped:
            note = ", ".join(f"{count:,} {reason}" for reason, count in dropped.items())
            total = float(sum(dropped.values()))
            rows.append(SummaryRow("data", "promoters dropped", total, note=note))
    return rows


def token_rows(path: Path) -> list[SummaryRow]:
    """Return vocabulary, bp per token by region, and rate of unknown tokens, from `statistics.json`."""
    statistics = read_object(path)
    with reading(path, "not token statistics", KeyError, TypeError, ValueError):
        genome = statistics["genome"]
        rates = {"genome": genome, **statistics["regions"]}
        rows = [SummaryRow("tokens", "vocabulary", float(statistics["vocabulary"]))]
        for name, region in rates.items():
            if region["bases_per_token"] is not None:
                value = float(region["bases_per_token"])
                note = f"{genome['bases']:,} bp" if name == "genome" else ""
                metric = f"bp per token, {name}"
                rows.append(SummaryRow("tokens", metric, value, note=note))
        unknown = float(genome["unknown_rate"])
        rows.append(SummaryRow("tokens", "unknown tokens", unknown, note="fraction"))
    return rows


def language_rows(path: Path) -> Iterator[SummaryRow]:
    """Yield bits per base of the model and of the best baseline, and their difference.

    First for predictors that see no masked token, then for predictors that see all other tokens; on the test
    contigs, or on the validation contigs if there are no test contigs.
    """
    table = of_split(read_bits(path), "test")
    split = table[SPLIT].iloc[0]
    one_at_a_time = table["predictor"].str.endswith(ONE_AT_A_TIME)
    for rows, section in (
        (table[~one_at_a_time], "pretraining"),
        (table[one_at_a_time], f"pretraining{ONE_AT_A_TIME}"),
    ):
        is_model = rows["predictor"].isin(MODELS)
        best = rows[~is_model].nsmallest(1, "bits_per_base")
        for row in pd.concat([rows[is_model], best]).to_dict("records"):
            name, note = row["predictor"].removesuffix(ONE_AT_A_TIME), row["note"]
            if name == MODEL:
                note = f"held out ({split})"
            bits = row["bits_per_base"], row["low"], row["high"]
            yield SummaryRow(section, f"bits per base, {name}", *bits, note)
            if name != MODEL:
                metric, note = f"bits per base, {MINUS}{name}", "over blocks of 10 kb"
                yield SummaryRow(section, metric, *_estimate(row, "difference"), note)


def pretraining_rows(path: Path) -> list[SummaryRow]:
    """Return metrics from the pretrained model's `metrics.json`, without bits per base."""
    metrics = read_object(path)
    split = metrics.get("split")
    held_out = f"held out ({split})" if split else "held out"
    names = {
        "masked_accuracy": ("masked-token accuracy", held_out),
        "next_token_accuracy": ("next-token accuracy", held_out),
        "next_sentence_accuracy": ("next-sentence accuracy", held_out),
        "steps": ("steps", ""),
        "tokens_seen": ("tokens seen", ""),
    }
    if "next_token_accuracy" in metrics:
        del names["masked_accuracy"]
    rows = []
    with reading(path, "not metrics of a pretraining", KeyError, TypeError, ValueError):
        for key, (metric, note) in names.items():
            if key == "masked_accuracy" or key in metrics:
                value = float(metrics[key])
                rows.append(SummaryRow("pretraining", metric, value, note=note))
    return rows


def promoter_rows(path: Path) -> Iterator[SummaryRow]:
    """Yield, by negative set and stratum, the model's metrics, AUROC of the baselines, and the differences.

    Strata other than all windows have AUROC only.
    """
    table = read_table(path, PROMOTERS)
    strata = {EVERY: "", NONCODING: ", less than half coding"}
    for (negative_set, stratum), part in table.groupby(
        ["negative_set", "stratum"], sort=False
    ):
        section = f"promoters, {negative_set}{strata.get(str(stratum), f', {stratum}')}"
        metrics = {"auroc": "AUROC", "auprc": "AUPRC", "f1": "F1", "mcc": "MCC"}
        if stratum != EVERY:
            metrics = {"auroc": "AUROC"}
        differences: list[SummaryRow] = []
        for row in part.to_dict("records"):
            name, note = row["model"], ""
            if name == MODEL:
                note = f"{row['n']:,} test windows"
                positive = row["positives"] / max(row["n"], 1)
                if abs(positive - 0.5) > UNEVEN:
                    note += f", {positive:.0%} positive"
                for column, metric in metrics.items():
                    values = _estimate(row, column)
                    yield SummaryRow(section, f"{metric}, {MODEL}", *values, note)
                for baseline, column in DIFFERENCES.items():
                    difference = _estimate(row, column)
                    if not math.isnan(difference[0]):
                        metric = f"AUROC, {MINUS}{PREDICTOR_NAMES[baseline]}"
                        lead = SummaryRow(section, metric, *difference, "paired")
                        differences.append(lead)
            elif name in PREDICTOR_NAMES:
                if name == CONTROL:
                    note = "; ".join(filter(None, ["chance is 0.5", row["note"]]))
                metric = f"AUROC, {PREDICTOR_NAMES[name]}"
                yield SummaryRow(section, metric, *_estimate(row, "auroc"), note)
        yield from differences


def shift_rows(negative_set: str, path: Path) -> list[SummaryRow]:
    """Return the median scores of moved promoters from a promoter model's `metrics.json`, if measured."""
    test = read_object(path).get("test") or {}
    rows = []
    with reading(path, "not metrics of a promoter model", KeyError, TypeError):
        for bp in (0, *SHIFTS) if MEDIAN_SHIFTED.format(0) in test else ():
            section = f"promoters, {negative_set}"
            metric = f"median score, window moved by {bp} bp"
            median = float(test[MEDIAN_SHIFTED.format(bp)])
            note = f"test promoters; AUROC {float(test[AUROC_SHIFTED.format(bp)]):.4f}"
            rows.append(SummaryRow(section, metric, median, note=note))
    return rows


def calibration_rows(path: Path) -> Iterator[SummaryRow]:
    """Yield the calibration error on test windows by negative set, before and after calibration."""
    error = "ece_debiased"
    schema = PROMOTER_CALIBRATION.part("negative_set", "probabilities", error)
    for row in read_table(path, schema).to_dict("records"):
        section = f"promoters, {row['negative_set']}"
        metric = f"calibration error, {row['probabilities']}"
        yield SummaryRow(section, metric, *_estimate(row, error), "debiased")


def group_rows(path: Path) -> Iterator[SummaryRow]:
    """Yield the median AUROC of each group in `groups.tsv`, for the model and compared predictors."""
    table = read_table(path, groups_schema(()).part("group", "tracks", "median_auroc"))
    prefix = "median_auroc_"
    others = [name for name in table.columns if name.startswith(prefix)]
    table = with_types(path, table, Schema.of(*(f"metric {name}" for name in others)))
    for row in table.to_dict("records"):
        section, count = f"chromatin, {row['group']}", row["tracks"]
        note = f"{count:,} {'track' if count == 1 else 'tracks'}"
        median = row["median_auroc"]
        yield SummaryRow(section, f"median AUROC, {MODEL}", median, note=note)
        for name in others if count else []:
            metric = f"median AUROC, {_predictor_name(name.removeprefix(prefix))}"
            yield SummaryRow(section, metric, row[name])


def lead_rows(path: Path) -> list[SummaryRow]:
    """Return the median difference in AUROC of the tracks in `tracks.tsv`, by group and compared predictor.

    The note counts the tracks whose difference is significant (`discoveries`). The tracks with the largest
    lead over the first predictor follow; their leads are slightly overestimated, because they are the largest
    of many. Tracks excluded from the metrics of their group, and published metrics, are left out.
    """
    table = read_table(path, Schema.of("text track group note; metric auroc"))
    excluded = table["note"].str.contains("not in the group's metrics", regex=False)
    table = table[~excluded]
    medians: list[SummaryRow] = []
    largest: list[SummaryRow] = []
    for lead in table.columns:
        name = lead.removeprefix("delta_")
        if name in (lead, PUBLISHED) or name.endswith(ENDS[1:]):
            continue
        title, auroc = _predictor_name(name), f"auroc_{name}"
        schema = Schema.of(f"estimate {lead}; metric p_{name} {auroc}")
        known = with_types(path, table, schema)
        known = known[known[lead].notna()]
        groups = dict([*known.groupby("group", sort=False)])
        if len(groups) > 1:
            groups[EVERY] = known
        for group, part in groups.items():
            significant = part[discoveries(part[f"p_{name}"])][lead]
            better, worse = (significant > 0).sum(), (significant < 0).sum()
            note = f"better on {better:,}, worse on {worse:,} of {len(part):,} tracks"
            section, metric = f"chromatin, {group}", f"median AUROC, {MINUS}{title}"
            medians.append(SummaryRow(section, metric, part[lead].median(), note=note))
        if not largest:
            for row in known.nlargest(LARGEST_LEADS, lead).to_dict("records"):
                section = f"chromatin, AUROC above {title}"
                note = f"{row['auroc']:.4f} against {row[auroc]:.4f}"
                values = _estimate(row, lead)
                largest.append(SummaryRow(section, str(row["track"]), *values, note))
    return medians + largest


def variant_rows(path: Path) -> Iterator[SummaryRow]:
    """Yield AUROC and sign accuracy from `variants.tsv`, for all variants and for held-out contigs."""
    table = read_table(path, VARIANTS)
    for row in table[table["subset"].isin([ALL, HELD_OUT])].to_dict("records"):
        section = f"variants, {row['subset']}"
        note = f"{row['variants']:,} variants, {row['with_effect']:,} with an effect"
        yield SummaryRow(section, f"AUROC, {MODEL}", *_estimate(row, "auroc"), note)
        accuracy = row["sign_accuracy"]
        if not math.isnan(accuracy):
            yield SummaryRow(section, "sign accuracy", accuracy, note="fraction")


def compared_variant_rows(path: Path) -> Iterator[SummaryRow]:
    """Yield, from `compared_variants.tsv`, the AUROC of other predictors and the differences of the model."""
    table = read_table(path, COMPARED)
    for row in table[table["subset"].isin([ALL, HELD_OUT])].to_dict("records"):
        section = f"variants, {row['subset']}"
        name = _predictor_name(row["predictor"])
        difference = _estimate(row, "difference")
        yield SummaryRow(section, f"AUROC, {name}", *_estimate(row, "auroc"))
        yield SummaryRow(section, f"AUROC, {MINUS}{name}", *difference, "paired")


def _predictor_name(name: str) -> str:
    # The workflow's name of a model that sees less sequence.
    if window := re.fullmatch(r"window_(\d{1,9})", name):
        return f"{int(window[1]):,}-bp model"
    return PREDICTOR_NAMES.get(name, name.replace("_", " "))


def _estimate(row: Any, name: str) -> tuple[float, float, float]:
    return row[name], row[f"{name}_low"], row[f"{name}_high"]


# Each metric of the model with the best baseline

# Metrics, with the sign of a better value.
METRICS = {"average precision": 1, "AUROC": 1, "bits per base": -1, "median AUROC": 1}
CALLS, CHANCE = "calls", "chance"


class Headline(NamedTuple):
    """A metric of the model, or of the control, and of its best baseline."""

    model: SummaryRow
    metric: str
    baseline: str
    best: SummaryRow
    difference: SummaryRow  # model minus baseline

    @property
    def task(self) -> str:
        """The section in words."""
        subject, _, rest = self.model.section.partition(", ")
        if subject == "promoters":
            negatives, _, stratum = rest.partition(", ")
            task = f"promoters against {negatives} negatives"
            return f"{task} ({stratum})" if stratum else task
        if subject == CALLS:
            return f"{subject} {rest} of a TSS"
        if subject == "pretraining":
            subject = "held-out sequence"
        return f"{subject} ({rest})" if rest else subject

    @property
    def verdict(self) -> str:
        """What the model is, by the interval of the difference; for a median, on how many tracks."""
        difference = self.difference
        if math.isnan(difference.low):
            return difference.note or "without interval"
        if SHUFFLED in self.metric:
            near = abs(difference.value) < NEAR_CHANCE
            return f"near {CHANCE}, as it should be" if near else f"not near {CHANCE}"
        if difference.low <= 0 <= difference.high:
            return "not measurably different"
        return "better" if METRICS[self.metric] * difference.value > 0 else "worse"


def headlines(summary: pd.DataFrame) -> list[Headline]:
    """Return the metrics of a summary that have a baseline, each with the best one.

    An AUROC without a baseline, such as that of the control, is compared with chance.
    """
    found = []
    for section, part in summary.groupby("section", sort=False):
        rows = [SummaryRow(*row) for row in part[SUMMARY.names].to_numpy().tolist()]
        for metric, sign in METRICS.items():
            prefix = f"{metric}, "
            by_name = {
                row.metric.removeprefix(prefix): row
                for row in rows
                if row.metric.startswith(prefix) and not math.isnan(row.value)
            }
            baselines = [
                (sign * row.value, name)
                for name, row in by_name.items()
                if name not in NO_BASELINES and not name.startswith(MINUS)
            ]
            best = max(baselines, default=(0.0, CHANCE))[1]
            pairs = [(MODEL, metric, best)]
            if metric == "AUROC":
                by_name[CHANCE] = SummaryRow(str(section), CHANCE, 0.5)
                pairs.append((SHUFFLED, f"{metric}, {SHUFFLED}", CHANCE))
            for name, title, other in pairs:
                if name not in by_name or other not in by_name:
                    continue
                row, reference = by_name[name], by_name[other]
                difference = by_name.get(MINUS + other)
                if (
                    difference is None
                ):  # only to chance, a fixed value, with an interval
                    low = high = math.nan
                    if other == CHANCE:
                        low, high = row.low - 0.5, row.high - 0.5
                    lead = row.value - reference.value
                    difference = SummaryRow(row.section, "", lead, low, high)
                found.append(Headline(row, title, other, reference, difference))
    return found
