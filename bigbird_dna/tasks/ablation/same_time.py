"""How many steps a training has time for, by what its steps and another's have been measured to take."""

import json
import math
from pathlib import Path

from bigbird_dna.config import Config, complete, parse_config, stage_text
from bigbird_dna.console import log
from bigbird_dna.disk.atomic import atomic_path
from bigbird_dna.errors import DataError
from bigbird_dna.reporting.ablation.reading import Cost, read_cost

MOST_STEPS = 100_000_000


def plan_same_time(
    config: Config, own: Path, output: Path, *, reference: Path | None = None, seconds: float | None = None
) -> int:
    """Write the configuration of a pretraining with as many steps as a time has; returns their number.

    The number is a function of the files: a training that is begun again has the same steps.

    Parameters
    ----------
    config
        Of the training, but for `pretraining.steps`.
    own
        What `measure_training` wrote of its steps.
    reference
        The same of another mechanism, whose `pretraining.steps` say the time.
    seconds
        The time; None: the reference's.

    Raises
    ------
    DataError
        A file isn't such a measurement, or has none at `pretraining.sequence_tokens`, of so many inputs;
        or `own` is of another attention than the configuration's, or was measured otherwise than `reference`.
    """
    settings = complete(config).pretraining
    length, count = settings.sequence_tokens, settings.batch_size
    cost = read_cost(own)
    _check_attention(config, cost, own)
    step = _of_step(cost, own, length, count)
    if seconds is None:
        if reference is None:
            raise ValueError("neither seconds nor a reference")
        other = read_cost(reference)
        _check_measured_alike(cost, own, other, reference)
        seconds = settings.steps * _of_step(other, reference, length, count)
    # A step is there by the clock, or it isn't: what is left of the time buys none.
    times = seconds / step * (1 + 1e-9)
    if times > MOST_STEPS:
        raise DataError(f"{own}: a step of {step:.3g} s fits {times:,.4g} times into {seconds:.3g} s")
    steps = max(1, math.floor(times))
    values = json.loads(stage_text(config, "pretraining"))
    values["pretraining"]["steps"] = steps
    text = stage_text(parse_config(values), "pretraining")
    with atomic_path(output) as temporary:
        temporary.write_text(f"{text}\n", encoding="utf-8")
    log(f"{seconds:,.1f} s have time for {steps:,} steps of {step:.3g} s")
    return steps


def _check_attention(config: Config, cost: Cost, path: Path) -> None:
    """`DataError` where a measurement is of another attention than the configuration's."""
    encoder = config.encoder
    if cost.attention != encoder.attention:
        raise DataError(
            f"{path}: is of attention {cost.attention!r:.60}, the configuration has {encoder.attention!r}"
        )
    options = encoder.attention_options
    for key in sorted({*options, *cost.attention_options}):
        there, wanted = cost.attention_options.get(key), options.get(key)
        if there != wanted:
            raise DataError(
                f"{path}: is of other options of {cost.attention}: {key!r:.60} is {there!r:.60}, "
                f"the configuration has {wanted!r}"
            )


def _check_measured_alike(cost: Cost, path: Path, other: Cost, reference: Path) -> None:
    """`DataError` where times of two measurements can't be compared: of processors and of a clock, say."""
    for key in ("clock", "device", "threads"):
        own, theirs = getattr(cost, key), getattr(other, key)
        if own != theirs:
            raise DataError(f"{path}: its {key} is {own!r:.60}, that of {reference} {theirs!r:.60}")


def _of_step(cost: Cost, path: Path, length: int, count: int) -> float:
    row = cost.at(length)
    if row is None:
        raise DataError(f"{path}: has no measurement of inputs of {length:,} tokens")
    if row.sequences != count:
        raise DataError(
            f"{path}: was measured with {row.sequences:,} inputs of {length:,} tokens a step, not {count:,}"
        )
    return row.seconds
