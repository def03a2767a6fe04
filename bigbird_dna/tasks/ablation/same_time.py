"""How many steps a training has time for, by what its steps and another's have been measured to take."""

import json
import math
from pathlib import Path

from bigbird_dna.config import Config, complete, parse_config, stage_text
from bigbird_dna.console import log
from bigbird_dna.errors import DataError
from bigbird_dna.files import atomic_path
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
        A file isn't such a measurement, or has none at `pretraining.sequence_tokens`, of so many inputs.
    """
    settings = complete(config).pretraining
    length, count = settings.sequence_tokens, settings.batch_size
    step = _of_step(own, length, count)
    if seconds is None:
        if reference is None:
            raise ValueError("neither seconds nor a reference")
        seconds = settings.steps * _of_step(reference, length, count)
    # A step is there by the clock, or it isn't: what is left of the time buys none.
    steps = max(1, math.floor(seconds / step * (1 + 1e-9)))
    if steps > MOST_STEPS:
        raise DataError(f"{own}: a step of {step:.3g} s fits {steps:,} times into {seconds:.3g} s")
    values = json.loads(stage_text(config, "pretraining"))
    values["pretraining"]["steps"] = steps
    text = stage_text(parse_config(values), "pretraining")
    with atomic_path(output) as temporary:
        temporary.write_text(f"{text}\n", encoding="utf-8")
    log(f"{seconds:,.1f} s have time for {steps:,} steps of {step:.3g} s")
    return steps


def _of_step(path: Path, length: int, count: int) -> float:
    found: Cost = read_cost(path)
    for row in found.lengths:
        if row.tokens == length:
            if row.sequences != count:
                raise DataError(
                    f"{path}: was measured with {row.sequences:,} inputs of {length:,} tokens a step, "
                    f"not {count:,}"
                )
            return row.seconds
    raise DataError(f"{path}: has no measurement of inputs of {length:,} tokens")
