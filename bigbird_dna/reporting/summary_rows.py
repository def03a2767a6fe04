"""Figures of a run's files as rows of its summary; a `DataError` names a file that lacks one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bigbird_dna.errors import DataError
from bigbird_dna.metrics.auroc import ENDS, UNDEFINED, Estimate
from bigbird_dna.reporting.language_model.reading import of_split, read_bits
from bigbird_dna.reporting.language_model.table import MODELS, SPLIT, TOLD
from bigbird_dna.reporting.promoters.predictions import ALL as EVERY
from bigbird_dna.reporting.promoters.predictions import CONTROL, KMER, MODEL, NONCODING, POSITION
from bigbird_dna.reporting.promoters.table import DIFFERENCES
from bigbird_dna.reporting.tables import check_columns, number, read_object, read_tsv, whole_number
from bigbird_dna.reporting.tracks.tables import PUBLISHED
from bigbird_dna.reporting.variants.table import ALL, COLUMNS, HELD_OUT

_UNEVEN = 0.05
_ERROR = "ece_debiased"
LISTED = 3  # tracks with the largest lead
_METRICS = {"auroc": "AUROC", "auprc": "AUPRC", "f1": "F1", "mcc": "MCC"}
_PREDICTORS = {"kmers": "k-mer regression"}
_COMPARED = {
    KMER: ("AUROC, k-mer regression", ""),
    POSITION: ("AUROC, position regression", ""),
    CONTROL: ("AUROC, shuffled labels", "chance is 0.5"),
}
_STRATA = {NONCODING: "less than half coding"}
_MEDIAN, _LEAD = "median_auroc_", "delta_"

Line = Mapping[Any, Any]


class Row(NamedTuple):
    """One figure of the summary; `low` and `high` are NaN where it has no interval."""

    section: str
    figure: str
    value: float
    low: float = math.nan
    high: float = math.nan
    note: str = ""


def token_rows(source: Path) -> list[Row]:
    """Figures of the tokenizer's `statistics.json`: vocabulary, bases a token by region, unknowns."""
    statistics = read_object(source)
    genome = _object(statistics, "genome", source)
    per_token = number(genome, "bases_per_token", source)
    bases = f"{whole_number(genome, 'bases', source):,} bp"
    rows = [
        Row("tokens", "vocabulary", number(statistics, "vocabulary", source)),
        Row("tokens", "bases a token, genome", per_token, note=bases),
    ]
    regions = _object(statistics, "regions", source)
    for name in regions:
        region = _object(regions, name, source)
        if region.get("bases_per_token") is not None:
            rows.append(Row("tokens", f"bases a token, {name}", number(region, "bases_per_token", source)))
    unknown = number(genome, "unknown_rate", source)
    return [*rows, Row("tokens", "unknown tokens", unknown, note="share")]


def locus_rows(source: Path) -> list[Row]:
    """Counts of `promoters.json`: promoters that are used, and those that were dropped, with the reasons."""
    counts = read_object(source)
    read, used = (whole_number(counts, key, source) for key in ("read", "promoters"))
    rows = [Row("data", "promoters", float(used), note=f"of {read:,} in the file")]
    reasons = {"unmapped": "not lifted", "off_reference": "not on the reference", "duplicates": "duplicates"}
    dropped = {
        why: whole_number(counts, key, source) for key, why in reasons.items() if counts.get(key) is not None
    }
    if any(dropped.values()):
        note = ", ".join(f"{count:,} {why}" for why, count in dropped.items() if count)
        rows.append(Row("data", "promoters dropped", float(sum(dropped.values())), note=note))
    return rows


def language_rows(source: Path) -> list[Row]:
    """Bits per base of the model and of the best simple predictor, and the model's minus its.

    First of those that see no hidden token, then of those that are told all but one, on the test contigs, or
    on the validation ones where there are no others.
    """
    table = of_split(read_bits(source), "test")
    split = str(table[SPLIT].iloc[0])
    rows: list[Row] = []
    told = table["predictor"].str.endswith(TOLD)
    for chosen, note in ((table[~told], f"held out ({split})"), (table[told], "one token hidden at a time")):
        own = chosen["predictor"].isin(MODELS)
        for line in chosen[own].to_dict("records"):
            rows.append(Row("pretraining", f"bits per base, {line['predictor']}", *_bits(line), note))
        if own.all():
            continue
        line = chosen[~own].sort_values("bits_per_base", kind="stable").to_dict("records")[0]
        name, said = f"bits per base, {line['predictor']}", str(line["note"])
        rows.append(Row("pretraining", name, *_bits(line), said))
        gap = Estimate(*(float(line[f"difference{end}"]) for end in ENDS))
        rows.append(Row("pretraining", "  model minus it", *gap, "over blocks of 10 kb"))
    return rows


def pretraining_rows(source: Path) -> list[Row]:
    """Figures of the pretrained model's `metrics.json`, but for its bits per base."""
    metrics = read_object(source)
    split = metrics.get("split")
    held_out = f"held out ({split})" if split else "held out"
    needed = {"masked_accuracy": ("masked tokens right", held_out)}
    if "next_token_accuracy" in metrics:  # of a causal model
        needed = {"next_token_accuracy": ("next tokens right", held_out)}
    others = {
        "next_sentence_accuracy": ("next sentences right", held_out),
        "steps": ("steps", ""),
        "tokens_seen": ("tokens seen", ""),
    }
    named = needed | {key: value for key, value in others.items() if key in metrics}
    return [
        Row("pretraining", figure, number(metrics, key, source), note=note)
        for key, (figure, note) in named.items()
    ]


def promoter_rows(source: Path) -> list[Row]:
    """For each negative set: the model's figures, the AUROC of the others, and what the model has more.

    Where the table has them, the AUROCs of the windows that are less than half coding follow, in a section
    of their own. Tables of earlier versions have one stratum, and no regression on positions.
    """
    columns = [f"{name}{end}" for name in (*_METRICS, DIFFERENCES[KMER]) for end in ENDS]
    table = read_tsv(source, ["negative_set", "model", "n", *columns])
    strata = table["stratum"].astype(str).tolist() if "stratum" in table else [EVERY] * len(table)
    groups: dict[tuple[str, str], list[Line]] = {}
    for line, stratum in zip(table.to_dict("records"), strata, strict=True):
        groups.setdefault((str(line["negative_set"]), stratum), []).append(line)
    return [row for key, lines in groups.items() for row in _stratum_rows(*key, lines, source)]


def _stratum_rows(negative_set: str, stratum: str, lines: Sequence[Line], source: Path) -> list[Row]:
    """The rows of one negative set and stratum; of a part of the windows their AUROCs alone."""
    section = f"promoters, {negative_set}"
    metrics = _METRICS
    if stratum != EVERY:
        section += f", {_STRATA.get(stratum, stratum)}"
        metrics = {"auroc": _METRICS["auroc"]}
    rows: list[Row] = []
    last: list[Row] = []
    for line in lines:
        if line["model"] == MODEL:
            note = f"{_cell(line, 'n', source):,.0f} test windows{_prevalence(line, source)}"
            for name, figure in metrics.items():
                rows.append(Row(section, f"{figure}, model", *_estimate(line, name, source), note))
            for baseline, column in DIFFERENCES.items():
                lead = _estimate(line, column, source) if column in line else UNDEFINED
                if not math.isnan(lead.value):
                    last.append(Row(section, f"AUROC, model minus {baseline}", *lead, "paired DeLong"))
        elif line["model"] in _COMPARED:
            figure, note = _COMPARED[line["model"]]
            rows.append(Row(section, figure, *_estimate(line, "auroc", source), note))
    return rows + last


def calibration_rows(source: Path) -> list[Row]:
    """For each negative set how far probabilities of test windows are off, as they are and calibrated."""
    columns = [f"{_ERROR}{end}" for end in ENDS]
    rows = []
    for line in read_tsv(source, ["negative_set", "probabilities", *columns]).to_dict("records"):
        figure, error = f"calibration error, {line['probabilities']}", _estimate(line, _ERROR, source)
        rows.append(Row(f"promoters, {line['negative_set']}", figure, *error, "beyond chance"))
    return rows


def group_rows(source: Path) -> list[Row]:
    """Median AUROC of each group of `groups.tsv`: the model's, and that of whatever it was compared with."""
    table = read_tsv(source, ["group", "tracks", "median_auroc"])
    others = [name.removeprefix(_MEDIAN) for name in table.columns if name.startswith(_MEDIAN)]
    rows = []
    for line in table.to_dict("records"):
        section = f"chromatin, {line['group']}"
        count = _cell(line, "tracks", source)
        note = f"{count:,.0f} {'track' if count == 1 else 'tracks'}"
        value = _cell(line, "median_auroc", source)
        rows.append(Row(section, "median AUROC, model", value, note=note))
        for name in others if count else []:
            value = _cell(line, f"{_MEDIAN}{name}", source)
            rows.append(Row(section, f"median AUROC, {_shown(name)}", value))
    return rows


def lead_rows(source: Path) -> list[Row]:
    """The tracks of `tracks.tsv` with the largest lead in AUROC over the first predictor compared with.

    With two windows that is the narrow one: these tracks depend most on what only the wide one sees. Being
    the largest of many, the leads are a little too large. Tracks that don't count in their group's
    figures are left out, and so is a lead over published figures, which are of other data.
    """
    table = read_tsv(source, ["track", "auroc", "note"])
    leads = [name for name in table.columns if name.startswith(_LEAD) and not name.endswith(ENDS[1:])]
    others = (lead.removeprefix(_LEAD) for lead in leads)
    name = next((other for other in others if other != PUBLISHED), None)
    if name is None:
        return []
    lead, other = f"{_LEAD}{name}", f"auroc_{name}"
    check_columns(source, table, [f"{lead}_low", f"{lead}_high", other])
    found = []
    for line in table.to_dict("records"):
        estimate = _estimate(line, lead, source)
        if not math.isnan(estimate.value) and "not in the group's figures" not in str(line["note"]):
            ours, theirs = (_cell(line, key, source) for key in ("auroc", other))
            note = f"{ours:.4f} against {theirs:.4f}"
            section = f"chromatin, AUROC above {_shown(name)}"
            found.append(Row(section, str(line["track"]), *estimate, note))
    return sorted(found, key=lambda row: -row.value)[:LISTED]


def variant_rows(source: Path) -> list[Row]:
    """AUROC and right signs of `variants.tsv`: of all variants, and of those on held-out contigs."""
    rows = []
    for line in read_tsv(source, COLUMNS).to_dict("records"):
        if line["subset"] not in (ALL, HELD_OUT):
            continue
        area = _estimate(line, "auroc", source)
        variants, effects = (_cell(line, key, source) for key in ("variants", "with_effect"))
        note = f"{variants:,.0f} variants, {effects:,.0f} with an effect"
        rows.append(Row("variants", f"AUROC, {line['subset']}", *area, note))
        right = _cell(line, "right_sign", source)
        if not math.isnan(right):
            rows.append(Row("variants", f"right sign, {line['subset']}", right, note="share"))
    return rows


def _prevalence(line: Line, source: Path) -> str:
    """The share of positives, where they are far from half of all: AUPRC and F1 depend on it."""
    if "positives" not in line:
        return ""
    share = _cell(line, "positives", source) / max(_cell(line, "n", source), 1)
    return f", {share:.0%} positive" if abs(share - 0.5) > _UNEVEN else ""


def _shown(name: str) -> str:
    return _PREDICTORS.get(name, name.replace("_", " "))


def _object(values: Mapping[str, Any], key: str, source: Path) -> Mapping[str, Any]:
    value = values.get(key)
    if not isinstance(value, Mapping):
        raise DataError(f"{source}: {key!r} is not an object but {value!r:.60}")
    return value


def _bits(line: Line) -> Estimate:
    return Estimate(*(float(line[name]) for name in ("bits_per_base", "low", "high")))


def _cell(line: Line, name: str, source: Path) -> float:
    """A cell that is a number or empty (NaN)."""
    try:
        return float(line[name])
    except (ValueError, TypeError, OverflowError):
        raise DataError(f"{source}: {name} {line[name]!r:.60} is not a number") from None


def _estimate(line: Line, name: str, source: Path) -> Estimate:
    return Estimate(*(_cell(line, f"{name}{end}", source) for end in ENDS))
