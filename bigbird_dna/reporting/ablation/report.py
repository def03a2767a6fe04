"""The report of an ablation: tables for programs and to be read, and figures."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bigbird_dna.disk.atomic import write_json
from bigbird_dna.disk.directories import into_directory
from bigbird_dna.errors import DataError, UsageError
from bigbird_dna.reporting.ablation.comparing import compare_bits
from bigbird_dna.reporting.ablation.figures import length_figure, mechanism_figure
from bigbird_dna.reporting.ablation.published import NOTE
from bigbird_dna.reporting.ablation.reading import (
    Bits,
    Cost,
    by_mechanism,
    is_attention,
    read_cost,
    read_models_bits,
    split_name,
)
from bigbird_dna.reporting.ablation.table import Found, ablation_table, length_table, seed_table
from bigbird_dna.reporting.ablation.tracks import JudgedTracks, Tracks, compare_tracks
from bigbird_dna.reporting.readable import markdown, readable
from bigbird_dna.reporting.tables import json_rows, write_tsv

if TYPE_CHECKING:
    import pandas as pd

TITLE, SEEDS, LENGTHS = "Attention mechanisms on the same DNA", "Each seed", "Longer inputs"


def ablation_report(
    steps: Path,
    output: Path,
    *,
    reference: str,
    time: Path | None = None,
    lengths: Sequence[Path] = (),
    costs: Mapping[str, Path] | None = None,
    tracks: Tracks | None = None,
    altered: Sequence[str] = (),
) -> pd.DataFrame:
    """Write `ablation.tsv`, `.json`, `.md` and `.svg`.

    With several seeds also `ablation_seeds.tsv`, with lengths `ablation_lengths.tsv` and `.svg`.

    Parameters
    ----------
    steps, time, lengths
        What `experiment score-masked` wrote of trainings of the same steps, of the same time, and on longer
        inputs.
    reference
        The mechanism that others are compared with.
    costs
        By mechanism what `experiment profile-training` wrote.
    altered
        Mechanisms whose encoders differ by more than their attention: no published figures stand beside them.

    Raises
    ------
    UsageError
        `reference`, or what costs, predictions or `altered` name, is not among the mechanisms; or a file of
        costs is another mechanism's.
    DataError
        A file can't be used, two are of the same length of input, or costs are of different clocks.
    """
    first = read_models_bits(steps)
    for name in altered:
        _check_name(f"--no-published {name}", name, first, by_mechanism(first.names, steps))
    found = replace(_found(first, reference, time, lengths, costs or {}, tracks), altered=altered)
    table, longer = ablation_table(found), length_table(found)
    inputs = [steps, *([time] if time else []), *lengths, *(costs or {}).values()]
    inputs += tracks.files if tracks else []
    with into_directory(output, inputs) as files:
        write_tsv(files / "ablation.tsv", table)
        pages = [_page(TITLE, table)]
        content: dict[str, Any] = {
            "title": TITLE,
            "reference": reference,
            "note": NOTE,
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


def _found(
    first: Bits,
    reference: str,
    time: Path | None,
    lengths: Sequence[Path],
    costs: Mapping[str, Path],
    tracks: Tracks | None,
) -> Found:
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
    for path in lengths:
        bits = _read_further(path, first, steps)
        other = longer.setdefault(bits.sequence_tokens, bits)
        if other is not bits or bits.sequence_tokens == first.sequence_tokens:
            raise DataError(f"{path}: another file is of inputs of {bits.sequence_tokens:,} tokens too")
    for name in tracks.predictions if tracks else ():
        _check_name(f"--predictions {name}", split_name(name, "--predictions")[0], first, steps)
    judged = compare_tracks(tracks, reference) if tracks else JudgedTracks({}, {})
    return Found(
        reference=reference,
        tokens=first.sequence_tokens,
        steps=steps,
        time=compare_bits(timed, reference) if timed else {},
        lengths={tokens: compare_bits(longer[tokens], reference) for tokens in sorted(longer)},
        tracks=judged.reached,
        track_notes=judged.notes,
        costs=measured,
    )


def _check_name(option: str, name: str, first: Bits, steps: Container[str]) -> None:
    if name not in steps:
        raise UsageError(f"{option}: there is no such mechanism in {first.path}")


def _read_further(path: Path, first: Bits, steps: Container[str]) -> Bits:
    """Models of other trainings; `DataError` where a mechanism has none of the same steps: it has no row."""
    bits = read_models_bits(path)
    for name in by_mechanism(bits.names, path):
        if name not in steps:
            raise DataError(f"{path}: has a mechanism {name!r:.60}, {first.path} has not")
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


def _notes(found: Found) -> str:
    clock = {cost.clock for cost in found.costs.values()}
    time = "of processors" if clock == {"processor"} else "by the clock"
    tracks = "".join(f"{name}: {note}.\n\n" for name, note in found.track_notes.items())
    return tracks + (
        f"Trainings of the same steps and of the same time have inputs of {found.tokens:,} tokens. Bits per "
        f"base are of hidden tokens of the test contigs; a difference is to {found.reference}, below 0 in a "
        "mechanism's favour, a gain is of AUROC. Intervals are of 95 %, over test data and seeds. Time and "
        f"memory of a step were measured by themselves, time {time}; `seconds` are those of the trainings by "
        f"their logs, whatever else the machine did.\n\n† {NOTE}\n"
    )


def _shown(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
