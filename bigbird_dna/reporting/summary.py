"""The metrics of a run as one table, as text, and each with the best baseline."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from bigbird_dna.config import Config
from bigbird_dna.config.paths import RunPaths
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
)
from bigbird_dna.errors import DataError, printable
from bigbird_dna.metrics.auroc import ENDS, discoveries
from bigbird_dna.reporting.calibration import PROMOTER_CALIBRATION
from bigbird_dna.reporting.predictors import STYLES
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
    rows: list[SummaryRow] = []

    def add(read: Callable[[Path], Rows], path: Path) -> None:
        if path.is_file():
            rows.extend(read(path))

    report, chromatin = paths.report, paths.report / "chromatin"
    if config.start_sites is not None:
        add(scan_rows, report / "scan.tsv")
    if config.has_promoters and not config.has_sequences:
        add(promoter_counts, paths.promoter_counts)
    if config.has_pretraining:
        add(token_rows, paths.token_statistics)
        add(language_rows, paths.pretraining_bits)
        add(pretraining_rows, paths.pretrained / "metrics.json")
    if config.has_promoters:
        add(promoter_rows, report / "promoters.tsv")
        for negative_set in config.promoters.windows.negative_sets:
            metrics = paths.promoter_model(negative_set) / "metrics.json"
            add(partial(shift_rows, negative_set), metrics)
        add(calibration_rows, report / "calibration.tsv")
    if config.has_chromatin:
        add(group_rows, chromatin / "groups.tsv")
        add(lead_rows, chromatin / "tracks.tsv")
        add(variant_rows, report / "variants.tsv")
        add(compared_variant_rows, report / "compared_variants.tsv")

    table = pd.DataFrame(rows, columns=SUMMARY.names)
    for name in ("section", "metric", "note"):
        # Control characters in names must not reach the terminal.
        table[name] = table[name].map(printable)
    # Rows of a section can be from several files.
    order = {section: place for place, section in enumerate(table["section"].unique())}
    return table.sort_values(
        "section",
        key=lambda column: column.map(order),
        kind="stable",
        ignore_index=True,
    )


def summary_text(table: pd.DataFrame) -> str:
    """Return a summary as aligned text, with a heading per section."""
    header = ("", "value", "95 % interval", "")
    cells = []
    for _, metric, value, low, high, note in table[SUMMARY.names].to_numpy().tolist():
        ends = "" if math.isnan(low) else f"[{low:.4f}, {high:.4f}]"
        cells.append((metric, _value_text(value), ends, note))
    widths = [max(map(len, column)) for column in zip(header, *cells, strict=True)]

    def line(metric: str, value: str, ends: str, note: str) -> str:
        text = f"  {metric:<{widths[0]}}  {value:>{widths[1]}}  {ends:<{widths[2]}}  {note}"
        return text.rstrip()

    lines = [line(*header)]
    previous = ""
    for section, cell in zip(table["section"], cells, strict=True):
        if section != previous:
            lines += ["", section[:1].upper() + section[1:]]
            previous = section
        lines.append(line(*cell))
    return "\n".join(lines)


def _value_text(value: float) -> str:
    if math.isnan(value):
        return "–"
    if value.is_integer() and abs(value) >= 10:
        return f"{int(value):,}"
    return f"{value:.4f}"


def scan_rows(path: Path) -> Iterator[SummaryRow]:
    """Yield the average precision of calls along contigs by distance, for all predictors, from `scan.tsv`."""
    table = read_table(path, SCAN)
    best = table[table["selection"] == BEST_F1]
    for distance, part in best.groupby("within", sort=False):
        section = f"calls, within {distance:,} bp"
        differences = []
        for row in part.to_dict("records"):
            name = PREDICTOR_NAMES.get(row["predictor"], row["predictor"])
            note = f"{row['tss']:,} TSSs" if row["predictor"] == MODEL else ""
            metric = f"average precision, {name}"
            yield SummaryRow(
                section, metric, *_estimate(row, "average_precision"), note
            )
            difference = _estimate(row, "difference")
            if not math.isnan(difference[0]):
                metric = f"average precision, {MINUS}{name}"
                differences.append(SummaryRow(section, metric, *difference, "paired"))
        yield from differences


def promoter_counts(path: Path) -> Iterator[SummaryRow]:
    """Yield the numbers of promoters, and of those dropped by reason, from `promoters.json`."""
    counts = read_object(path)
    read = whole_number(counts, "read", path)
    promoters = whole_number(counts, "promoters", path)
    note = f"of {read:,} in the file"
    yield SummaryRow("data", "promoters", float(promoters), note=note)
    reasons = {
        "unmapped": "not lifted",
        "off_reference": "not on the reference",
        "duplicates": "duplicates",
    }
    dropped = {
        reason: whole_number(counts, key, path)
        for key, reason in reasons.items()
        if counts.get(key) is not None
    }
    if any(dropped.values()):
        note = ", ".join(f"{n:,} {reason}" for reason, n in dropped.items() if n)
        total = float(sum(dropped.values()))
        yield SummaryRow("data", "promoters dropped", total, note=note)


def token_rows(path: Path) -> Iterator[SummaryRow]:
    """Yield vocabulary, bp per token by region, and rate of unknown tokens, from `statistics.json`."""
    statistics = read_object(path)
    genome = _object(statistics, "genome", path)
    vocabulary = number(statistics, "vocabulary", path)
    per_token = number(genome, "bases_per_token", path)
    note = f"{whole_number(genome, 'bases', path):,} bp"
    yield SummaryRow("tokens", "vocabulary", vocabulary)
    yield SummaryRow("tokens", "bp per token, genome", per_token, note=note)
    regions = _object(statistics, "regions", path)
    for name in regions:
        region = _object(regions, name, path)
        if region.get("bases_per_token") is not None:
            per_token = number(region, "bases_per_token", path)
            yield SummaryRow("tokens", f"bp per token, {name}", per_token)
    unknown = number(genome, "unknown_rate", path)
    yield SummaryRow("tokens", "unknown tokens", unknown, note="fraction")


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
        for row in rows[is_model].to_dict("records"):
            bits = (row["bits_per_base"], row["low"], row["high"])
            note = f"held out ({split})"
            yield SummaryRow(section, f"bits per base, {MODEL}", *bits, note)
        if is_model.all():
            continue
        baselines = rows[~is_model].sort_values("bits_per_base", kind="stable")
        best = baselines.to_dict("records")[0]
        name = best["predictor"].removesuffix(ONE_AT_A_TIME)
        bits = (best["bits_per_base"], best["low"], best["high"])
        yield SummaryRow(section, f"bits per base, {name}", *bits, best["note"])
        metric = f"bits per base, {MINUS}{name}"
        difference = _estimate(best, "difference")
        yield SummaryRow(section, metric, *difference, "over blocks of 10 kb")


def pretraining_rows(path: Path) -> Iterator[SummaryRow]:
    """Yield metrics from the pretrained model's `metrics.json`, without bits per base."""
    metrics = read_object(path)
    split = metrics.get("split")
    held_out = f"held out ({split})" if split else "held out"
    causal = "next_token_accuracy" in metrics
    required = "next_token_accuracy" if causal else "masked_accuracy"
    for key, metric, note in (
        ("masked_accuracy", "masked-token accuracy", held_out),
        ("next_token_accuracy", "next-token accuracy", held_out),
        ("next_sentence_accuracy", "next-sentence accuracy", held_out),
        ("steps", "steps", ""),
        ("tokens_seen", "tokens seen", ""),
    ):
        if key == required or (key in metrics and key != "masked_accuracy"):
            yield SummaryRow(
                "pretraining", metric, number(metrics, key, path), note=note
            )


def promoter_rows(path: Path) -> Iterator[SummaryRow]:
    """Yield, by negative set and stratum, the model's metrics, AUROC of the baselines, and the differences.

    Strata other than all windows have AUROC only.
    """
    table = read_table(path, PROMOTERS)
    for (negative_set, stratum), part in table.groupby(
        ["negative_set", "stratum"], sort=False
    ):
        section = f"promoters, {negative_set}"
        metrics = {"auroc": "AUROC", "auprc": "AUPRC", "f1": "F1", "mcc": "MCC"}
        if stratum != EVERY:
            metrics = {"auroc": "AUROC"}
            section += (
                ", less than half coding" if stratum == NONCODING else f", {stratum}"
            )
        differences: list[SummaryRow] = []
        for row in part.to_dict("records"):
            name = row["model"]
            if name == MODEL:
                note = f"{row['n']:,} test windows"
                positive = row["positives"] / max(row["n"], 1)
                if abs(positive - 0.5) > UNEVEN:
                    note += f", {positive:.0%} positive"
                for column, metric in metrics.items():
                    yield SummaryRow(
                        section, f"{metric}, {MODEL}", *_estimate(row, column), note
                    )
                for baseline, column in DIFFERENCES.items():
                    difference = _estimate(row, column)
                    if not math.isnan(difference[0]):
                        metric = f"AUROC, {MINUS}{PREDICTOR_NAMES[baseline]}"
                        differences.append(
                            SummaryRow(section, metric, *difference, "paired")
                        )
            elif name in PREDICTOR_NAMES:
                note = ""
                if name == CONTROL:
                    note = "; ".join(filter(None, ["chance is 0.5", row["note"]]))
                metric = f"AUROC, {PREDICTOR_NAMES[name]}"
                yield SummaryRow(section, metric, *_estimate(row, "auroc"), note)
        yield from differences


def shift_rows(negative_set: str, path: Path) -> Iterator[SummaryRow]:
    """Yield the median scores of moved promoters from a promoter model's `metrics.json`, if measured."""
    test = read_object(path).get("test") or {}
    if MEDIAN_SHIFTED.format(0) not in test:
        return
    for bp in (0, *SHIFTS):
        median = number(test, MEDIAN_SHIFTED.format(bp), path)
        area = number(test, AUROC_SHIFTED.format(bp), path)
        yield SummaryRow(
            f"promoters, {negative_set}",
            f"median score, window moved by {bp} bp",
            median,
            note=f"test promoters; AUROC {area:.4f}",
        )


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
        section = f"chromatin, {row['group']}"
        count = row["tracks"]
        note = f"{count:,} {'track' if count == 1 else 'tracks'}"
        yield SummaryRow(
            section, f"median AUROC, {MODEL}", row["median_auroc"], note=note
        )
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
        groups = {
            str(group): part for group, part in known.groupby("group", sort=False)
        }
        if len(groups) > 1:
            groups[EVERY] = known
        for group, part in groups.items():
            significant = part[discoveries(part[f"p_{name}"])][lead]
            better, worse = (significant > 0).sum(), (significant < 0).sum()
            note = f"better on {better:,}, worse on {worse:,} of {len(part):,} tracks"
            metric = f"median AUROC, {MINUS}{title}"
            median = part[lead].median()
            medians.append(SummaryRow(f"chromatin, {group}", metric, median, note=note))
        if not largest:
            for row in known.nlargest(LARGEST_LEADS, lead).to_dict("records"):
                section = f"chromatin, AUROC above {title}"
                note = f"{row['auroc']:.4f} against {row[auroc]:.4f}"
                largest.append(
                    SummaryRow(section, str(row["track"]), *_estimate(row, lead), note)
                )
    return medians + largest


def variant_rows(path: Path) -> Iterator[SummaryRow]:
    """Yield AUROC and sign accuracy from `variants.tsv`, for all variants and for held-out contigs."""
    for row in read_table(path, VARIANTS).to_dict("records"):
        if row["subset"] in (ALL, HELD_OUT):
            section = f"variants, {row['subset']}"
            note = (
                f"{row['variants']:,} variants, {row['with_effect']:,} with an effect"
            )
            yield SummaryRow(section, f"AUROC, {MODEL}", *_estimate(row, "auroc"), note)
            accuracy = row["sign_accuracy"]
            if not math.isnan(accuracy):
                yield SummaryRow(section, "sign accuracy", accuracy, note="fraction")


def compared_variant_rows(path: Path) -> Iterator[SummaryRow]:
    """Yield, from `compared_variants.tsv`, the AUROC of other predictors and the differences of the model."""
    for row in read_table(path, COMPARED).to_dict("records"):
        if row["subset"] in (ALL, HELD_OUT):
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


def _object(values: dict[str, Any], key: str, path: Path) -> dict[str, Any]:
    value = values.get(key)
    if not isinstance(value, dict):
        raise DataError(f"{path}: {key!r} must be an object, found {value!r:.60}")
    return value


def _estimate(row: Any, name: str) -> tuple[float, float, float]:
    return row[name], row[f"{name}_low"], row[f"{name}_high"]


# Each metric of the model with the best baseline

# Metrics, with the sign of a better value.
METRICS = {"average precision": 1, "AUROC": 1, "bits per base": -1, "median AUROC": 1}
CALLS, CHANCE = "calls", "chance"
# Trainings on shuffled labels differ by about 0.1, more than the interval over test windows contains.
NEAR_CHANCE = 0.15


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
            by_predictor = {
                row.metric.removeprefix(f"{metric}, "): row
                for row in rows
                if row.metric.startswith(f"{metric}, ") and not math.isnan(row.value)
            }
            baselines = [
                (sign * row.value, name)
                for name, row in by_predictor.items()
                if name not in NO_BASELINES and not name.startswith(MINUS)
            ]
            if metric == "AUROC":
                by_predictor[CHANCE] = SummaryRow(str(section), CHANCE, 0.5)
            best = max(baselines, default=(0.0, CHANCE))[1]
            for name, title, other in (
                (MODEL, metric, best),
                (SHUFFLED, f"{metric}, {SHUFFLED}", CHANCE),
            ):
                if name in by_predictor and other in by_predictor:
                    row, reference = by_predictor[name], by_predictor[other]
                    difference = by_predictor.get(MINUS + other)
                    if difference is None:
                        difference = _difference(row, reference)
                    found.append(Headline(row, title, other, reference, difference))
    return found


def _difference(row: SummaryRow, other: SummaryRow) -> SummaryRow:
    """Return a difference without its note; only that to chance, a fixed value, has an interval."""
    low = high = math.nan
    if other.metric == CHANCE:
        low, high = row.low - other.value, row.high - other.value
    return SummaryRow(row.section, "", row.value - other.value, low, high)
