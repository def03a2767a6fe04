"""What each training of the ablation has otherwise than the run's configuration, and whether it can be.

Keys are dotted, as `--set` has them. Of a training of equal time also its number of steps, by what its steps
and the reference's have been measured to take.
"""

import json
import math
from pathlib import Path
from typing import Any

from bigbird_dna.config import (
    SIMULATED,
    Config,
    TrainingConfig,
    complete,
    parse_config,
    stage_text,
    stage_values,
)
from bigbird_dna.console import log
from bigbird_dna.disk.atomic import atomic_path
from bigbird_dna.errors import ConfigError, DataError
from bigbird_dna.papers.experiments.ablation_files import Cost, read_cost
from bigbird_dna.simulate.tracks import TRACKS

Keys = dict[str, Any]

_WARMUP = 3
"""A learning rate rises in a third of the steps at most; a run's own may rise longer than these last."""


def encoder_keys(config: Config, mechanism: str) -> Keys:
    """Of a mechanism's encoder; the run's own mechanism keeps the run's options, unless it has others."""
    changes = config.ablation.changes(mechanism)
    if changes["attention"] == config.encoder.attention and not changes["attention_options"]:
        changes["attention_options"] = dict(config.encoder.attention_options)
    return {f"encoder.{key}": value for key, value in changes.items()}


def pretraining_keys(config: Config, mechanism: str, part: str) -> Keys:
    """Of a training of `steps`, `time`, or a length as text."""
    training = config.ablation.training(part, config.pretraining.grad_accumulation)
    return {
        **_shorter_warmup("pretraining", config.pretraining, training["steps"]),
        **_with_positions(config, mechanism, training["sequence_tokens"]),
        **{f"pretraining.{key}": value for key, value in training.items()},
    }


def distance_keys(config: Config, mechanism: str) -> Keys:
    """Of a training on tracks, from fresh weights.

    What is far comes by attention alone, without layers across bins.
    """
    ablation = config.ablation
    layers = {"encoder.layers": ablation.long_range_layers} if ablation.long_range_layers else {}
    steps: Keys = {}
    if ablation.long_range_steps:
        steps = {"chromatin.training.steps": ablation.long_range_steps}
        steps |= _shorter_warmup("chromatin.training", config.chromatin.training, ablation.long_range_steps)
    return {
        **layers,
        **_with_positions(config, mechanism, ablation.tokens),
        "chromatin.model.initial": "random",
        "chromatin.model.bin_layers": 0,
        **steps,
    }


def _with_positions(config: Config, mechanism: str, tokens: int) -> Keys:
    """A mechanism's own, and as many positions as inputs of so many tokens need."""
    keys = encoder_keys(config, mechanism)
    positions = keys.pop("encoder.max_length", config.encoder.max_length)
    if type(positions) is int:  # what isn't is left as it is, to be refused by its name
        positions = max(positions, tokens)
    return {**keys, "encoder.max_length": positions}


def _shorter_warmup(section: str, training: TrainingConfig, steps: int) -> Keys:
    most = max(1, steps // _WARMUP)
    return {f"{section}.optimizer.warmup_steps": most} if training.optimizer.warmup_steps > most else {}


def check_ablation(config: Config) -> None:
    """Look at all trainings before the first; modules of attention are loaded for it, and torch with them.

    Raises
    ------
    ConfigError
        There is no genome to pretrain on, or nothing of it is held out; a mechanism's encoder can't be, or
        one is causal and another isn't; or a track for `distance` isn't among those of the simulation.
    """
    _check_data(config)
    causal = {one.name: _causal(config, one.name) for one in config.ablation.mechanisms}
    reference = config.ablation.reference
    for name, value in causal.items():
        if value != causal[reference]:
            one, other = (name, reference) if value else (reference, name)
            raise ConfigError(
                f"ablation.mechanisms: {one} is causal and {other} is not: they can't be compared"
            )


def _check_data(config: Config) -> None:
    if not config.has_genome:
        raise ConfigError("ablation: needs a genome.reference to pretrain on")
    for split in ("valid", "test"):
        # What is held out for chromatin is held out of pretraining.
        if not getattr(config.genome, split) and not getattr(config.chromatin.data, f"{split}_regions"):
            raise ConfigError(f"genome.{split}: name at least one contig or region: the ablation needs it")
    wanted, tracks = config.ablation.long_range_tracks, config.chromatin.data.tracks
    if wanted and tracks is None:
        raise ConfigError(
            "ablation.long_range_tracks: chromatin.data.tracks is null: there are no tracks to tell"
        )
    # Those of other data are known once the data set is there: a rule looks then.
    if unknown := [name for name in wanted if tracks == SIMULATED and name not in TRACKS]:
        raise ConfigError(f"ablation.long_range_tracks: {unknown[0]!r} is not one of {', '.join(TRACKS)}")


def _causal(config: Config, mechanism: str) -> bool:
    """Whether a mechanism's encoder is causal; `ConfigError` where one of its trainings can't be."""
    source = f"ablation.mechanisms: {mechanism}"
    for part in ("steps", *map(str, config.ablation.lengths)):
        made = _with(config, "pretraining", pretraining_keys(config, mechanism, part), source)
    if config.ablation.long_range_tracks:
        far = _with(config, "chromatin", distance_keys(config, mechanism), source)
        try:
            far.encoder.check_pooling(far.chromatin.model.pooling, "chromatin.model")
        except ConfigError as error:
            raise ConfigError(f"{source}: {error}") from None
    return made.encoder.causal


def _with(config: Config, stage: str, keys: Keys, source: str) -> Config:
    """A stage's configuration with other values, as a command would read it."""
    values = stage_values(config, stage)
    for key, value in keys.items():
        *sections, last = key.split(".")
        here = values
        for section in sections:
            here = here.setdefault(section, {})
        here[last] = value
    return parse_config(values, source)


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
