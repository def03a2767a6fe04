"""Compare attention mechanisms: metrics of their trainings, and their cost."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from bigbird_dna.config import AblationConfig
from bigbird_dna.console import log
from bigbird_dna.disk.atomic import write_json
from bigbird_dna.disk.directories import into_directory
from bigbird_dna.disk.tables import Column, Schema, json_rows, write_table
from bigbird_dna.errors import DataError, one_of
from bigbird_dna.genome.chromatin.tracks import read_tracks
from bigbird_dna.metrics.auroc import FEWEST_UNITS, UNDEFINED, Estimate, auroc_note
from bigbird_dna.metrics.resampling import BLOCK_BASES, sampled_rates
from bigbird_dna.papers.experiments.ablation_files import (
    AblationResult,
    ByMechanism,
    Cost,
    ModelFiles,
    read_model_bits,
)
from bigbird_dna.papers.experiments.comparing import (
    BITS_PER_BASE,
    Arms,
    EvaluatedModels,
    ModelComparison,
    by_arm,
    compare_arms,
    evaluate_rows,
    open_test_bins,
)
from bigbird_dna.papers.experiments.figures import length_figure, mechanism_figure
from bigbird_dna.reporting.arrays import read_blocks
from bigbird_dna.reporting.result import markdown, readable
from bigbird_dna.reporting.track_evaluation import UNMEASURED, read_slice

BUILDING_BLOCKS: Mapping[str, str] = {
    "full": "BERT",
    "random": "R",
    "window": "W",
    "random_window": "R + W",
    "bigbird": "",
}
"""Mechanism → its name in Table 1 of Zaheer et al. (2020), which has no row of all three kinds."""
# Table 1: accuracy on masked tokens of text, %, at 512 tokens.
MASKED_ACCURACY: Mapping[str, float] = {
    "full": 64.2,
    "random": 60.1,
    "window": 58.3,
    "random_window": 62.7,
}
# Ren et al. (2021): perplexity of masked tokens on C4, by input length in tokens.
PERPLEXITY: Mapping[str, Mapping[int, float]] = {
    "full": {2048: 4.552},
    "bigbird": {2048: 4.696, 8192: 4.542},
    "combiner_fixed": {8192: 4.139},
}
PUBLISHED = {*BUILDING_BLOCKS, *MASKED_ACCURACY, *PERPLEXITY}
ABLATION_NOTE = (
    "Published values are for English text, not for the genome of this run: accuracy on masked tokens in "
    "percent (Zaheer et al. 2020, Table 1, 512 tokens; BERT means full attention), and perplexity of masked "
    "tokens on C4 (Ren et al. 2021; with axial spans, 8,192 tokens: 4.190)."
)

TITLE, SEEDS, LENGTHS = (
    "Attention mechanisms on the same DNA",
    "Each seed",
    "Longer inputs",
)


def ablation_report(
    section: AblationConfig,
    output: Path,
    *,
    lengths: Mapping[int, ModelFiles],
    time: ModelFiles,
    costs: Mapping[str, Path],
    tracks: AblationTracks | None = None,
) -> pd.DataFrame:
    """Write `ablation.tsv`, `.json`, `.md` and `.svg`; for several seeds also `ablation_seeds.tsv`, for
    longer inputs `ablation_lengths.tsv` and `.svg`. `lengths` has files of bits by input tokens, for equal
    steps and for longer inputs; `time` for equal training time; `costs` are measured steps. `DataError` if
    files are invalid or do not match."""
    reference = section.reference
    reached, notes = compare_tracks(tracks, reference) if tracks else ({}, {})
    found = AblationResult(
        section,
        compare_bits(time, section.tokens, reference),
        {
            tokens: compare_bits(files, tokens, reference)
            for tokens, files in sorted(lengths.items())
        },
        reached,
        notes,
        _read_costs(section, costs),
    )
    schemas = ablation_schemas([*found.tracks])
    table = pd.DataFrame(
        [_row(found, name) for name in found.names], columns=schemas["mechanisms"].names
    )
    further = {"seeds": (SEEDS, seed_table(found))} if table["seeds"].max() > 1 else {}
    further |= {"lengths": (LENGTHS, length_table(found))} if len(lengths) > 1 else {}
    bits = [path for files in (*lengths.values(), time) for path in files.values()]
    with into_directory(
        output, [*bits, *costs.values(), *(tracks.files if tracks else ())]
    ) as files:
        write_table(files / "ablation.tsv", table, schemas["mechanisms"])
        content: dict[str, Any] = {
            "title": TITLE,
            "reference": reference,
            "note": ABLATION_NOTE,
            "rows": json_rows(table),
        }
        content |= {"track_notes": dict(found.track_notes)} if tracks else {}
        pages = [_page(TITLE, table)]
        mechanism_figure(found, files / "ablation.svg")
        for key, (title, rows) in further.items():
            write_table(files / f"ablation_{key}.tsv", rows, schemas[key])
            pages.append(_page(title, rows))
            content[key] = json_rows(rows)
        if "lengths" in further:
            length_figure(found, files / "ablation_lengths.svg")
        write_json(files / "ablation.json", content)
        (files / "ablation.md").write_text(
            "\n".join([*pages, _notes(found)]), encoding="utf-8"
        )
    return table


def ablation_schemas(tracks: Sequence[str]) -> dict[str, Schema]:
    """Return the schemas of `ablation.tsv` ("mechanisms") and of the tables of seeds and lengths."""
    bits, cost = (
        "estimate bits_per_base difference",
        "metric tokens_per_second seconds_per_step peak_mib",
    )
    names = [
        f"{of}auroc_{track}" for track in tracks for of in ("", "delta_")
    ]  # may contain spaces
    mechanisms = Schema.of(
        f"text mechanism attention paper_table1_row; count seeds steps; {bits}; number seconds",
        "count matched_time_steps; estimate matched_time_bits_per_base matched_time_difference",
        f"number matched_time_seconds; {cost}",
        *(Column(name, "estimate", missing=True) for name in names),
        "metric published_masked_accuracy",
    )
    seeds = Schema.of(
        "text mechanism; count seed; metric bits_per_base matched_time_bits_per_base",
        *(Column(name, missing=True) for name in names[::2]),
    )
    lengths = f"count tokens; text mechanism; count steps; {bits}; {cost}; metric published_perplexity"
    return {"mechanisms": mechanisms, "seeds": seeds, "lengths": Schema.of(lengths)}


def _read_costs(section: AblationConfig, costs: Mapping[str, Path]) -> dict[str, Cost]:
    """Read measurements by mechanism; `DataError` if attention or clock differ from those expected."""
    found: dict[str, Cost] = {}
    for name, path in costs.items():
        cost = found[name] = Cost.read(path)
        attention, other = section.changes(name)["attention"], next(iter(found))
        if cost.attention != attention:
            raise DataError(
                f"{path}: attention must be {attention!r}, found {cost.attention!r:.60}"
            )
        if cost.clock != found[other].clock:
            raise DataError(
                f"{path}: clock is {cost.clock!r:.60}, but {costs[other]} has {found[other].clock!r:.60}"
            )
    return found


def _page(title: str, table: pd.DataFrame) -> str:
    return f"# {title}\n\n{markdown(readable(table, _shown))}\n"


def _notes(found: AblationResult) -> str:
    clock = {cost.clock for cost in found.costs.values()}
    time = "CPU time" if clock == {"processor"} else "wall-clock time"
    tracks = "".join(f"{name}: {note}.\n\n" for name, note in found.track_notes.items())
    own = found.section
    return tracks + (
        f"Trainings of equal steps and of equal time have inputs of {own.tokens:,} tokens. Bits per base are "
        f"for masked tokens in test contigs. A difference is to {own.reference}; below 0, the mechanism is "
        "better. A gain is of AUROC. Intervals are 95 %, over test data and seeds. Time and memory per step "
        f"were measured separately, as {time}; `seconds` are from the logs of the trainings and depend on "
        f"the load of the machine.\n\n† {ABLATION_NOTE}\n"
    )


def _shown(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


_NOTHING = ModelComparison(UNDEFINED, UNDEFINED, {})


def length_table(found: AblationResult) -> pd.DataFrame:
    """Return one row per mechanism and input length, including the trainings of equal steps."""
    rows = []
    for tokens, reached in found.lengths.items():
        for name in found.names:
            published = PERPLEXITY.get(_alike(found, name), {}).get(tokens, math.nan)
            rows.append(
                (
                    *(
                        tokens,
                        name,
                        reached[name].steps,
                        *reached[name].value,
                        *reached[name].difference,
                    ),
                    *(*found.cost(name, tokens).values(), published),
                )
            )
    return pd.DataFrame(rows, columns=ablation_schemas(())["lengths"].names)


def seed_table(found: AblationResult) -> pd.DataFrame:
    """Return one row per mechanism and seed, to show failed trainings that a mean over seeds conceals."""
    parts, rows = (found.steps, found.time, *found.tracks.values()), []
    for name in found.names:
        own = [reached.get(name, _NOTHING).by_seed for reached in parts]
        for seed in sorted({seed for values in own for seed in values}):
            rows.append((name, seed, *(values.get(seed, math.nan) for values in own)))
    return pd.DataFrame(rows, columns=ablation_schemas([*found.tracks])["seeds"].names)


def _row(found: AblationResult, name: str) -> tuple[object, ...]:
    """Return the row of a mechanism; `difference` is bits per base minus the reference's (less is better)."""
    steps, time = found.steps[name], found.time[name]
    alike = _alike(found, name)
    tracks = [reached.get(name, _NOTHING) for reached in found.tracks.values()]
    return (
        *(
            name,
            found.costs[name].attention,
            BUILDING_BLOCKS.get(alike, ""),
            len(steps.by_seed),
            steps.steps,
        ),
        *(*steps.value, *steps.difference, steps.seconds),
        *(time.steps, *time.value, *time.difference, time.seconds),
        *found.cost(name, found.section.tokens).values(),
        *(value for own in tracks for value in (*own.value, *own.difference)),
        MASKED_ACCURACY.get(alike, math.nan),
    )


def _alike(found: AblationResult, name: str) -> str:
    """Return the published mechanism equal to a row, "" if it has other options or encoder keys."""
    cost, altered = (
        found.costs[name],
        {one.name for one in found.section.mechanisms if one.encoder},
    )
    own = cost.attention != name or cost.has_own_options or name in altered
    return "" if own or name not in PUBLISHED else name


def compare_bits(
    files: ModelFiles, tokens: int, reference: str
) -> dict[str, ModelComparison]:
    """Return bits per base of each mechanism, in the order of its files."""
    bits, arms = read_model_bits(files, tokens), by_arm(files, [*files.values()])
    rates = sampled_rates(list(bits.bits), bits.bases, bits.blocks)
    evaluated = EvaluatedModels(BITS_PER_BASE, rates)
    found = _compare(reference, evaluated, arms)
    for name, one in found.items():
        models = list(arms[name].values())
        steps = set(bits.steps[models].tolist())
        seconds = float(bits.seconds[models].mean())
        found[name] = replace(
            one, steps=steps.pop() if len(steps) == 1 else 0, seconds=seconds
        )
    return found


def _compare(
    reference: str, evaluated: EvaluatedModels, arms: Arms[str]
) -> dict[str, ModelComparison]:
    return compare_arms(
        evaluated, arms, lambda name: None if name == reference else reference
    )


# Axes: M models, N bins.


class AblationTracks(NamedTuple):
    """Inputs of the evaluation of tracks: predictions of the same bins by each model (mechanism and seed)."""

    predictions: ModelFiles
    labels: Path
    bins: Path  # table of the bins
    table: Path  # table of all tracks
    names: Sequence[str]  # tracks to evaluate
    min_positives: int = 1  # tracks with fewer are excluded

    @property
    def files(self) -> list[Path]:
        return [*self.predictions.values(), self.labels, self.bins, self.table]


def compare_tracks(
    tracks: AblationTracks, reference: str
) -> tuple[dict[str, ByMechanism], dict[str, str]]:
    """Return the AUROC of each mechanism on test bins, and notes, by track; `DataError` if files have
    different bins. Neighboring bins are correlated: intervals are over blocks of 10 kb. A track of one class,
    or with too few positives, is excluded and logged."""
    known = [track.name for track in read_tracks(tracks.table)]
    for name in tracks.names:
        if name not in known:
            raise DataError(f"{tracks.table}: no track {name!r}: {one_of(name, known)}")
    truth, arrays = open_test_bins(tracks.labels, list(tracks.predictions.values()))
    if truth.tracks != len(known):
        raise DataError(
            f"{tracks.labels}: {truth.tracks} tracks, but {tracks.table} has {len(known)}"
        )
    blocks = read_blocks(tracks.bins, truth)
    assert blocks is not None  # the table of bins has their positions
    arms = by_arm(tracks.predictions, [*tracks.predictions])
    reached: dict[str, ByMechanism] = {}
    notes: dict[str, str] = {}
    for name in tracks.names:
        column = known.index(name)
        part = read_slice(arrays, truth, column, column + 1, tuple(known))
        there = part.labels[0] != UNMEASURED
        target = part.labels[0][there]
        positives, negatives = int(target.sum()), int((1 - target).sum())
        note = (
            auroc_note(positives, negatives, UNDEFINED)
            if not positives or not negatives
            else ""
        )
        if not note and positives < tracks.min_positives:
            note = f"{positives:,} positives, fewer than {tracks.min_positives:,}"
        reached[name] = {}
        if note:
            log(f"{tracks.labels}: track {name} is excluded: {note}")
        else:
            scores = np.stack([row[0][there] for row in part.scores]).astype(np.float64)
            evaluated = evaluate_rows(target, scores, blocks[there])
            if min(evaluated.class_blocks) < FEWEST_UNITS:
                kind = (
                    "positives"
                    if evaluated.class_blocks[0] < FEWEST_UNITS
                    else "negatives"
                )
                note = auroc_note(positives, negatives, Estimate(0.5, 0.0, 1.0)) or (
                    f"all {kind} are within one segment of {BLOCK_BASES:,} bp: no interval of AUROC"
                )
            reached[name] = _compare(reference, evaluated, arms)
        notes.update({name: note} if note else {})
    return reached, notes
