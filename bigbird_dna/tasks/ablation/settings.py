"""What each training of the ablation has otherwise than the run's configuration, and whether it can be.

Keys are dotted, as `--set` has them.
"""

from typing import Any

from bigbird_dna.config import SIMULATED, Config, TrainingConfig, parse_config, stage_values
from bigbird_dna.errors import ConfigError
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
    training = config.ablation.training(part, config.pretraining.accumulate)
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
    layers = {"encoder.layers": ablation.distance_layers} if ablation.distance_layers else {}
    steps: Keys = {}
    if ablation.distance_steps:
        steps = {"chromatin.training.steps": ablation.distance_steps}
        steps |= _shorter_warmup("chromatin.training", config.chromatin.training, ablation.distance_steps)
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
    positions = keys.pop("encoder.positions", config.encoder.positions)
    if type(positions) is int:  # what isn't is left as it is, to be refused by its name
        positions = max(positions, tokens)
    return {**keys, "encoder.positions": positions}


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
    wanted, tracks = config.ablation.distance, config.chromatin.data.tracks
    if wanted and tracks is None:
        raise ConfigError("ablation.distance: chromatin.data.tracks is null: there are no tracks to tell")
    # Those of other data are known once the data set is there: a rule looks then.
    if unknown := [name for name in wanted if tracks == SIMULATED and name not in TRACKS]:
        raise ConfigError(f"ablation.distance: {unknown[0]!r} is not one of {', '.join(TRACKS)}")


def _causal(config: Config, mechanism: str) -> bool:
    """Whether a mechanism's encoder is causal; `ConfigError` where one of its trainings can't be."""
    source = f"ablation.mechanisms: {mechanism}"
    for part in ("steps", *map(str, config.ablation.lengths)):
        made = _with(config, "pretraining", pretraining_keys(config, mechanism, part), source)
    if config.ablation.distance:
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
