"""The report of an ablation: tables for programs and to be read, and figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bigbird_dna.directories import into_directory
from bigbird_dna.errors import DataError, UsageError
from bigbird_dna.files import write_json
from bigbird_dna.reporting.ablation.comparing import compare_bits, compare_tracks
from bigbird_dna.reporting.ablation.figures import length_figure, mechanism_figure
from bigbird_dna.reporting.ablation.published import NOTE
from bigbird_dna.reporting.ablation.reading import Bits, read_cost, read_models_bits
from bigbird_dna.reporting.ablation.table import Found, ablation_table, length_table
from bigbird_dna.reporting.readable import markdown, readable
from bigbird_dna.reporting.tables import json_rows, write_tsv

if TYPE_CHECKING:
    import pandas as pd

TITLE, LENGTHS = "Attention mechanisms on the same DNA", "Longer inputs"


class Tracks(NamedTuple):
    """Predictions of tracks: of each model NAME-SEED, the labels of the bins, all tracks and those wanted."""

    predictions: Mapping[str, Path]
    labels: Path
    table: Path
    names: Sequence[str]


def ablation_report(
    steps: Path,
    output: Path,
    *,
    reference: str,
    time: Path | None = None,
    lengths: Sequence[Path] = (),
    costs: Mapping[str, Path] | None = None,
    tracks: Tracks | None = None,
) -> pd.DataFrame:
    """Write `ablation.tsv`, `.json`, `.md` and `.svg`, with lengths also `ablation_lengths.tsv` and `.svg`.

    Parameters
    ----------
    steps, time, lengths
        What `judge-models` wrote of trainings of the same steps, of the same time, and on longer inputs.
    reference
        The mechanism that others are compared with.
    costs
        By mechanism what `measure-training` wrote.

    Raises
    ------
    UsageError
        `reference` is not among the mechanisms, or a file of costs names another one.
    DataError
        A file can't be used, or two are of the same length of input.
    """
    found = _found(read_models_bits(steps), reference, time, lengths, costs or {}, tracks)
    table, longer = ablation_table(found), length_table(found)
    inputs = [steps, *([time] if time else []), *lengths, *(costs or {}).values()]
    inputs += [*tracks.predictions.values(), tracks.labels, tracks.table] if tracks else []
    with into_directory(output, inputs) as files:
        write_tsv(files / "ablation.tsv", table)
        pages = [_page(TITLE, table)]
        content: dict[str, Any] = {
            "title": TITLE,
            "reference": reference,
            "note": NOTE,
            "rows": json_rows(table),
        }
        mechanism_figure(found, files / "ablation.svg")
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
    for name in costs:
        if name not in steps:
            raise UsageError(f"--cost {name}: there is no such mechanism in {first.path}")
    timed = read_models_bits(time) if time else None
    if timed and timed.sequence_tokens != first.sequence_tokens:
        raise DataError(
            f"{timed.path}: is of inputs of {timed.sequence_tokens:,} tokens, {first.path} of "
            f"{first.sequence_tokens:,}"
        )
    longer: dict[int, Bits] = {}
    for path in lengths:
        bits = read_models_bits(path)
        other = longer.setdefault(bits.sequence_tokens, bits)
        if other is not bits or bits.sequence_tokens == first.sequence_tokens:
            raise DataError(f"{path}: another file is of inputs of {bits.sequence_tokens:,} tokens too")
    return Found(
        reference=reference,
        tokens=first.sequence_tokens,
        steps=steps,
        time=compare_bits(timed, reference) if timed else {},
        lengths={tokens: compare_bits(longer[tokens], reference) for tokens in sorted(longer)},
        tracks=compare_tracks(*tracks, reference) if tracks else {},
        costs={name: read_cost(path) for name, path in costs.items()},
    )


def _page(title: str, table: pd.DataFrame) -> str:
    return f"# {title}\n\n{markdown(readable(table, _shown))}\n"


def _notes(found: Found) -> str:
    clock = {cost.clock for cost in found.costs.values()}
    time = "of processors" if clock == {"processor"} else "by the clock"
    return (
        f"Trainings of the same steps and of the same time have inputs of {found.tokens:,} tokens. Bits per "
        f"base are of hidden tokens of the test contigs; a difference is to {found.reference}, below 0 in a "
        "mechanism's favour, a gain is of AUROC. Intervals are of 95 %, over test data and seeds. Time and "
        f"memory of a step were measured by themselves, time {time}; `seconds` are those of the trainings by "
        f"their logs, whatever else the machine did.\n\n† {NOTE}\n"
    )


def _shown(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
