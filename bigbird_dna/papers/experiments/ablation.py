"""Attention mechanisms side by side: what their trainings reach, and what they take."""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bigbird_dna.disk.atomic import write_json
from bigbird_dna.disk.directories import into_directory
from bigbird_dna.disk.tables import json_rows, write_tsv
from bigbird_dna.errors import DataError, UsageError
from bigbird_dna.metrics.auroc import UNDEFINED
from bigbird_dna.metrics.resampling import resampled_rates
from bigbird_dna.papers.experiments.ablation_files import (
    AblationResult,
    Bits,
    Cost,
    by_mechanism,
    compare_to,
    is_attention,
    read_cost,
    read_models_bits,
    split_name,
)
from bigbird_dna.papers.experiments.ablation_tracks import AblationTracks, ComparedTracks, compare_tracks
from bigbird_dna.papers.experiments.comparing import BITS_PER_BASE, EvaluatedModels, ModelComparison
from bigbird_dna.papers.experiments.figures import length_figure, mechanism_figure
from bigbird_dna.papers.experiments.published import (
    ABLATION_NOTE,
    BUILDING_BLOCKS,
    MASKED_ACCURACY,
    PERPLEXITY,
    PUBLISHED,
)
from bigbird_dna.reporting.result import markdown, readable

if TYPE_CHECKING:
    import pandas as pd

TITLE, SEEDS, LENGTHS = "Attention mechanisms on the same DNA", "Each seed", "Longer inputs"


def ablation_report(
    steps: Sequence[Path],
    output: Path,
    *,
    reference: str,
    time: Sequence[Path] = (),
    lengths: Sequence[Sequence[Path]] = (),
    costs: Mapping[str, Path] | None = None,
    tracks: AblationTracks | None = None,
    altered: Sequence[str] = (),
) -> pd.DataFrame:
    """Write `ablation.tsv`, `.json`, `.md` and `.svg`; with several seeds also `ablation_seeds.tsv`, with
    `lengths` `ablation_lengths.tsv` and `.svg`.

    `steps`, `time` and `lengths` are files of bits of trainings of the same steps, of the same time, and on
    longer inputs; `costs` are measured steps by mechanism; `altered` are mechanisms whose encoders differ by
    more than their attention, which have no published values. `UsageError` where one that is named isn't
    among the mechanisms, or a cost is another's; `DataError` where files can't be used, or don't go together.
    """
    first = read_models_bits(steps)
    for name in altered:
        _check_name(f"--no-published {name}", name, first, by_mechanism(first.names, first.path))
    found = replace(_read_result(first, reference, time, lengths, costs or {}, tracks), altered=altered)
    table, longer = ablation_table(found), length_table(found)
    inputs = [path for paths in (steps, time, *lengths, (costs or {}).values()) for path in paths]
    inputs += tracks.files if tracks else []
    with into_directory(output, inputs) as files:
        write_tsv(files / "ablation.tsv", table)
        pages = [_page(TITLE, table)]
        content: dict[str, Any] = {
            "title": TITLE,
            "reference": reference,
            "note": ABLATION_NOTE,
            "rows": json_rows(table),
        }
        if tracks:
            content["track_notes"] = dict(found.track_notes)
        mechanism_figure(found, files / "ablation.svg")
        if table["seeds"].max() > 1:
            seeds = seed_table(found)
            write_tsv(files / "ablation_seeds.tsv", seeds)
            pages.append(_page(SEEDS, seeds))
            content["seeds"] = json_rows(seeds)
        if found.lengths:
            write_tsv(files / "ablation_lengths.tsv", longer)
            length_figure(found, files / "ablation_lengths.svg")
            pages.append(_page(LENGTHS, longer))
            content["lengths"] = json_rows(longer)
        write_json(files / "ablation.json", content)
        text = "\n".join([*pages, _notes(found)])
        (files / "ablation.md").write_text(text, encoding="utf-8")
    return table


def _read_result(
    first: Bits,
    reference: str,
    time: Sequence[Path],
    lengths: Sequence[Sequence[Path]],
    costs: Mapping[str, Path],
    tracks: AblationTracks | None,
) -> AblationResult:
    steps = compare_bits(first, reference)
    if reference not in steps:
        raise UsageError(f"--reference {reference!r}: is not one of {', '.join(steps)}")
    measured = _read_costs(costs, first, steps)
    timed = _read_further(time, first, steps) if time else None
    if timed and timed.sequence_tokens != first.sequence_tokens:
        raise DataError(
            f"{timed.path}: is of inputs of {timed.sequence_tokens:,} tokens, {first.path} of "
            f"{first.sequence_tokens:,}"
        )
    longer: dict[int, Bits] = {}
    for paths in lengths:
        bits = _read_further(paths, first, steps)
        other = longer.setdefault(bits.sequence_tokens, bits)
        if other is not bits or bits.sequence_tokens == first.sequence_tokens:
            raise DataError(f"{bits.path}: another file is of inputs of {bits.sequence_tokens:,} tokens too")
    for name in tracks.predictions if tracks else ():
        _check_name(f"--predictions {name}", split_name(name, "--predictions")[0], first, steps)
    compared_tracks = compare_tracks(tracks, reference) if tracks else ComparedTracks({}, {})
    return AblationResult(
        reference=reference,
        tokens=first.sequence_tokens,
        steps=steps,
        time=compare_bits(timed, reference) if timed else {},
        lengths={tokens: compare_bits(longer[tokens], reference) for tokens in sorted(longer)},
        tracks=compared_tracks.reached,
        track_notes=compared_tracks.notes,
        costs=measured,
    )


def _check_name(option: str, name: str, first: Bits, steps: Container[str]) -> None:
    if name not in steps:
        raise UsageError(f"{option}: there is no such mechanism in {first.path}")


def _read_further(paths: Sequence[Path], first: Bits, steps: Container[str]) -> Bits:
    """Models of other trainings; `DataError` where a mechanism has none of the same steps: it has no row."""
    bits = read_models_bits(paths)
    for name in by_mechanism(bits.names, bits.path):
        if name not in steps:
            raise DataError(f"{bits.path}: has a mechanism {name!r:.60}, {first.path} has not")
    return bits


def _read_costs(costs: Mapping[str, Path], first: Bits, steps: Container[str]) -> dict[str, Cost]:
    """Measurements by mechanism; an error where they are mixed up, or can't stand side by side."""
    found: dict[str, Cost] = {}
    owners: dict[bytes, str] = {}
    for name, path in costs.items():
        _check_name(f"--cost {name}", name, first, steps)
        cost = found[name] = read_cost(path)
        # No two measurements have the same times to the last digit.
        owner = owners.setdefault(path.read_bytes(), name)
        if owner != name:
            raise UsageError(f"--cost {name}: is the same measurement as {owner}'s")
        # A name of one's own may stand for any attention, one of a known attention for no other in the table.
        if cost.attention != name and cost.attention in steps and is_attention(name):
            raise UsageError(f"--cost {name}: {path} is of attention {cost.attention!r:.60}")
        other = next(iter(found))
        if cost.clock != found[other].clock:
            raise DataError(
                f"{path}: its clock is {cost.clock!r:.60}, that of {costs[other]} {found[other].clock!r:.60}"
            )
    return found


def _page(title: str, table: pd.DataFrame) -> str:
    return f"# {title}\n\n{markdown(readable(table, _shown))}\n"


def _notes(found: AblationResult) -> str:
    clock = {cost.clock for cost in found.costs.values()}
    time = "of processors" if clock == {"processor"} else "by the clock"
    tracks = "".join(f"{name}: {note}.\n\n" for name, note in found.track_notes.items())
    return tracks + (
        f"Trainings of the same steps and of the same time have inputs of {found.tokens:,} tokens. Bits per "
        f"base are of hidden tokens of the test contigs; a difference is to {found.reference}, below 0 in a "
        "mechanism's favour, a gain is of AUROC. Intervals are of 95 %, over test data and seeds. Time and "
        f"memory of a step were measured by themselves, time {time}; `seconds` are those of the trainings by "
        f"their logs, whatever else the machine did.\n\n† {ABLATION_NOTE}\n"
    )


def _shown(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


_NOTHING = ModelComparison(UNDEFINED, UNDEFINED, {})


def ablation_table(found: AblationResult) -> pd.DataFrame:
    """A row a mechanism; `difference` is its bits per base minus the reference's, below 0 in its favour."""
    import pandas as pd

    return pd.DataFrame([_row(found, name) for name in found.names])


def length_table(found: AblationResult) -> pd.DataFrame:
    """A row a mechanism and length of input, the short ones of the same steps among them."""
    import pandas as pd

    rows = []
    for tokens, reached in {found.tokens: found.steps, **found.lengths}.items():
        for name in found.names:
            if name not in reached:
                continue
            published = PERPLEXITY.get(_alike(found, name), {}).get(tokens, math.nan)
            rows.append(
                {
                    "tokens": tokens,
                    "mechanism": name,
                    "steps": reached[name].steps,
                    **_bits(reached[name], ""),
                    **_cost(found, name, tokens),
                    "published_perplexity": published,
                }
            )
    return pd.DataFrame(rows)


def seed_table(found: AblationResult) -> pd.DataFrame:
    """A row a mechanism and seed: what a mean over seeds hides, as of two that learnt and one that didn't."""
    import pandas as pd

    parts = {"bits_per_base": found.steps, **({"time_bits_per_base": found.time} if found.time else {})}
    parts |= {f"auroc_{track}": reached for track, reached in found.tracks.items()}
    rows: list[dict[str, object]] = []
    for name in found.names:
        own = {part: reached.get(name, _NOTHING).by_seed for part, reached in parts.items()}
        for seed in sorted({seed for values in own.values() for seed in values}):
            row = {part: values.get(seed, math.nan) for part, values in own.items()}
            rows.append({"mechanism": name, "seed": seed, **row})
    return pd.DataFrame(rows)


def _row(found: AblationResult, name: str) -> dict[str, object]:
    steps, time = found.steps[name], found.time.get(name, _NOTHING)
    alike = _alike(found, name)
    row: dict[str, object] = {
        "mechanism": name,
        "attention": found.attention(name),
        "building_block": BUILDING_BLOCKS.get(alike, ""),
        "seeds": len(steps.by_seed),
        "steps": steps.steps,
        **_bits(steps, ""),
        "seconds": steps.seconds,
    }
    if found.time:
        row |= {"time_steps": time.steps, **_bits(time, "time_"), "time_seconds": time.seconds}
    row |= _cost(found, name, found.tokens)
    for track, reached in found.tracks.items():
        own = reached.get(name, _NOTHING)
        row |= {**own.value.columns(f"auroc_{track}"), **own.difference.columns(f"gain_{track}")}
    return row | {"published_masked_accuracy": MASKED_ACCURACY.get(alike, math.nan)}


def _bits(reached: ModelComparison, prefix: str) -> dict[str, float]:
    return {
        **reached.value.columns(f"{prefix}bits_per_base"),
        **reached.difference.columns(f"{prefix}difference"),
    }


def _cost(found: AblationResult, name: str, tokens: int) -> dict[str, float]:
    cost = found.costs[name].at(tokens) if name in found.costs else None
    values: Sequence[float] = (math.nan,) * 3
    if cost is not None:
        values = (cost.tokens_per_second, cost.seconds, cost.peak_mib)
    return dict(zip(("tokens_per_second", "seconds_a_step", "peak_mib"), values, strict=True))


def _alike(found: AblationResult, name: str) -> str:
    """Whose published figures stand beside a row: with options of its own a mechanism is another one."""
    if name in found.altered or found.attention(name) != name or name not in PUBLISHED:
        return ""
    cost = found.costs.get(name)
    return "" if cost is not None and cost.has_own_options else name


def compare_bits(bits: Bits, reference: str) -> dict[str, ModelComparison]:
    """Bits per base of each mechanism of a file, in its order."""
    rates, drawn = resampled_rates(list(bits.bits), bits.bases, bits.blocks)
    arms = by_mechanism(bits.names, bits.path)
    found = compare_to(reference, EvaluatedModels(BITS_PER_BASE, rates, drawn.T), arms)
    for name, one in found.items():
        models = list(arms[name].values())
        steps = set(bits.steps[models].tolist())
        seconds = float(bits.seconds[models].mean())
        found[name] = replace(one, steps=steps.pop() if len(steps) == 1 else 0, seconds=seconds)
    return found
