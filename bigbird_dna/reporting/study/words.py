"""A study's figures read out in plain sentences, also where pretraining buys nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from bigbird_dna.reporting.study.comparing import Cell, mean_curve
from bigbird_dna.reporting.study.models import LONGER, PRETRAINED, RANDOM
from bigbird_dna.reporting.study.times import logged_times, processor_times

_NUMBERS = ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
_WHERE = {"promoters": "on the test windows", "chromatin": "in the median over the tracks, on the test bins"}
_EXAMPLES = {"promoters": "promoters", "chromatin": "bins"}
_UNITS = {"promoters": "windows", "chromatin": "tracks"}  # that are resampled


def read_out(cells: Sequence[Cell], pretraining: float | None, benchmarks: Path | None = None) -> list[str]:
    """Sentences on every task of a study: what pretraining buys in all, then share by share, and the times.

    `pretraining` is its time in seconds by its log; `benchmarks` Snakemake's, for the time of processors.
    """
    paragraphs = []
    for task in dict.fromkeys(cell.task for cell in cells):
        own = [cell for cell in cells if cell.task == task]
        paragraphs.append(_verdict(task, own))
        for share in dict.fromkeys(cell.share for cell in own):
            paragraphs.append(_at_share(share, [cell for cell in own if cell.share == share]))
        paragraphs.append(
            logged_times(own, pretraining).said(
                "by the logs of the trainings, without measurements in between"
            )
        )
        if benchmarks is not None:
            paragraphs.append(
                processor_times(own, benchmarks).said("in the time of processors, of whole jobs")
            )
    return [paragraph for paragraph in paragraphs if paragraph]


def _verdict(task: str, cells: Sequence[Cell]) -> str:
    """What the shares have in common."""
    against = [cell for cell in cells if cell.start == RANDOM and not math.isnan(cell.gain.value)]
    if not against:
        return f"{task.capitalize()}: there are no models of both starts to compare."
    if all(_kind(cell) == "unknown" for cell in against):
        return (
            f"{task.capitalize()}: the test {_UNITS[task]} are too few, or too much alike, for an interval "
            "of the difference, so nothing is said of a gain."
        )
    kinds = {kind: [cell.share for cell in against if _kind(cell) == kind] for kind in _VERDICTS}
    said = [text.format(_shares(kinds[kind])) for kind, text in _VERDICTS.items() if kinds[kind]]
    if len(against) == len(kinds["open"]):
        said = [f"no gain is seen at {_shares(kinds['open'])} of the examples"]
    return f"{task.capitalize()}: {'; '.join(said)}."


_VERDICTS = {
    "gain": "pretrained weights do better at {} of the examples",
    "loss": "random weights do better at {}",
    "open": "at {} no difference is seen",
    "unknown": "at {} there is no interval of the difference",
}


def _kind(cell: Cell) -> str:
    if math.isnan(cell.gain.low):
        return "unknown"
    return "gain" if cell.gain.low > 0 else "loss" if cell.gain.high < 0 else "open"


def _at_share(share: float, cells: Sequence[Cell]) -> str:
    """The starts at one share beside each other."""
    starts = {cell.start: cell for cell in cells}
    first = starts.get(PRETRAINED)
    if first is None:
        return ""
    place = f"{_percent(share)} of the examples ({first.examples:,} {_EXAMPLES[first.task]})"
    text = f"At {place} pretrained weights reach an AUROC of {first.auroc:.3f} {_WHERE[first.task]}"
    random, longer = starts.get(RANDOM), starts.get(LONGER)
    if random is not None:
        text += f", random ones {random.auroc:.3f}: {_gain(random)}."
        text += _soon(first, random)
    else:
        text += "."
    if longer is not None:
        text += (
            f" Random weights that are trained for {longer.models[0].steps:,} steps instead of "
            f"{first.models[0].steps:,} reach {longer.auroc:.3f}: {_gain(longer)}."
        )
    return text


def _gain(cell: Cell) -> str:
    value, low, high = cell.gain
    if math.isnan(value):
        return "they have no seed in common, so there is no interval of the difference"
    if math.isnan(low):
        return f"a difference of {_signed(value)}, without an interval"
    seeds = f"over {_NUMBERS[cell.pairs] if cell.pairs < len(_NUMBERS) else cell.pairs} seeds"
    over = seeds if cell.pairs > 1 else "with one seed, over the test data alone"
    span = f"[{_signed(low)}, {_signed(high)}]"
    match _kind(cell):
        case "gain":
            return f"a gain of {value:.3f} {span} {over}"
        case "loss":
            return f"a loss of {-value:.3f} {over} (a gain of {_signed(value)} {span})"
    return f"no gain is seen {over}: the interval of the difference, {_signed(value)} {span}, holds 0"


def _soon(first: Cell, second: Cell) -> str:
    """How soon pretrained weights are, on validation data, where random ones end."""
    ours, theirs = mean_curve([m.valid for m in first.models]), mean_curve([m.valid for m in second.models])
    if not len(ours.steps) or not len(theirs.steps):
        return ""
    reached = ours.steps[ours.values >= theirs.values[-1]]
    if not len(reached) or reached[0] >= theirs.steps[-1]:
        return ""
    return (
        f" On validation data they are after {reached[0]:,} steps where random ones end after "
        f"{theirs.steps[-1]:,}."
    )


def _shares(shares: Sequence[float]) -> str:
    texts = [_percent(share) for share in shares]
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"


def _percent(share: float) -> str:
    return f"{100 * share:g} %"


def _signed(value: float) -> str:
    """With a minus sign; −0.000 is 0.000."""
    return f"{round(value, 3) + 0.0:.3f}".replace("-", "−")
