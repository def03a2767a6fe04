"""Configuration keys of each training of the ablation, and checks of these trainings."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from bigbird_dna.config import SIMULATED, Config, TrainingConfig, complete
from bigbird_dna.console import log
from bigbird_dna.errors import ConfigError, DataError, one_of
from bigbird_dna.papers.experiments.ablation import AblationTracks, ablation_report
from bigbird_dna.papers.experiments.ablation_files import Cost
from bigbird_dna.papers.experiments.experiment import Arm, ArmJob, Experiment, with_keys
from bigbird_dna.simulate.truth import TRACKS

Keys = dict[str, Any]

_WARMUP = 3
"""Warm-up takes at most a third of the steps; the run's warm-up may be longer than a short training."""


class Ablation(Experiment):
    """The same encoder with each mechanism in turn. Arms are named MECHANISM-PART; parts are trainings of
    equal `steps`, of equal `time`, on longer inputs (their tokens), and on tracks (`distance`)."""

    name: ClassVar[str] = "ablation"
    files: ClassVar[Sequence[str]] = [
        f"ablation/ablation.{end}" for end in ("tsv", "json", "md", "svg")
    ]

    def check(self, run: Config) -> None:
        """Check all trainings; this imports attention modules, and torch with them."""
        _check_data(run)
        causal = {one.name: _causal(run, one.name) for one in run.ablation.mechanisms}
        reference = run.ablation.reference
        for name, value in causal.items():
            if value != causal[reference]:
                one, other = (name, reference) if value else (reference, name)
                raise ConfigError(
                    f"ablation.mechanisms: cannot compare {one} (causal) with {other} (not causal)"
                )

    def arms(self, run: Config) -> Sequence[Arm]:
        ablation = run.ablation
        arms = []
        for mechanism in (one.name for one in ablation.mechanisms):
            # For the reference, the trainings of equal steps and of equal time are identical.
            one = mechanism == ablation.reference and ablation.time_budget_s is None
            trainings = [
                "steps",
                *([] if one else ["time"]),
                *map(str, ablation.lengths),
            ]
            for part in trainings:
                timed = part == "time"
                arms.append(
                    Arm(
                        f"{mechanism}-{part}",
                        "pretraining",
                        ablation.seeds,
                        pretraining_keys(run, mechanism, part),
                        options={
                            "mechanism": mechanism,
                            **({"seconds": ablation.time_budget_s} if timed else {}),
                        },
                        predictions="npz",
                        measured=(ablation.tokens, *ablation.lengths)
                        if part == "steps"
                        else (),
                        costs=self._costs(run, mechanism) if timed else (),
                        row=(part, "time") if one and part == "steps" else (part,),
                    )
                )
            if ablation.long_range_tracks and run.has_chromatin:
                arms.append(
                    Arm(
                        f"{mechanism}-distance",
                        "chromatin",
                        ablation.seeds,
                        distance_keys(run, mechanism),
                        options={
                            "mechanism": mechanism,
                            "tracks": ablation.long_range_tracks,
                        },
                        predictions="npy",
                        row=("distance",),
                    )
                )
        return arms

    def _costs(self, run: Config, mechanism: str) -> list[Path]:
        """Return the cost of a mechanism, and of the reference if it determines the time."""
        ablation = run.ablation
        names = [
            mechanism,
            *([ablation.reference] if ablation.time_budget_s is None else []),
        ]
        return [
            run.paths.experiment(self.name) / f"{name}-steps/cost.json"
            for name in names
        ]

    def inputs(self, run: Config) -> Sequence[Path]:
        if not (run.ablation.long_range_tracks and run.has_chromatin):
            return ()
        held_out = run.paths.held_out_bins
        return [
            held_out / "labels.npz",
            held_out / "bins.parquet",
            run.paths.chromatin_data / "tracks.tsv",
        ]

    def compare(
        self,
        run: Config,
        jobs: Sequence[ArmJob],
        output: Path,
        *,
        benchmarks: Path | None,
        device: str,
    ) -> list[str]:
        ablation = run.ablation
        files: dict[str, dict[tuple[str, int], Path]] = {}
        for job in jobs:
            for part in job.arm.row:
                files.setdefault(part, {})[job.arm.options["mechanism"], job.seed] = (
                    job.predictions
                )
        tracks = None
        if of_bins := self.inputs(run):
            labels, bins, known = of_bins
            least = run.chromatin.min_positives_report
            wanted = ablation.long_range_tracks
            tracks = AblationTracks(
                files["distance"], labels, bins, known, wanted, least
            )
        table = ablation_report(
            ablation,
            output,
            lengths={
                ablation.tokens: files["steps"],
                **{one: files[str(one)] for one in ablation.lengths},
            },
            time=files["time"],
            costs={
                name: self._costs(run, name)[0]
                for name in (one.name for one in ablation.mechanisms)
            },
            tracks=tracks,
        )
        return [f"ablation: {len(table):,} mechanisms"]


def encoder_keys(config: Config, mechanism: str) -> Keys:
    """Return a mechanism's encoder keys; the run's own mechanism keeps the run's options unless changed."""
    changes = config.ablation.changes(mechanism)
    if (
        changes["attention"] == config.encoder.attention
        and not changes["attention_options"]
    ):
        changes["attention_options"] = dict(config.encoder.attention_options)
    return {f"encoder.{key}": value for key, value in changes.items()}


def pretraining_keys(config: Config, mechanism: str, part: str) -> Keys:
    """Return the keys of a pretraining: `part` is `steps`, `time`, or an input length as text."""
    training = config.ablation.training(part, config.pretraining.grad_accumulation)
    return {
        **_shorter_warmup("pretraining", config.pretraining, training["steps"]),
        **_with_positions(config, mechanism, training["sequence_tokens"]),
        **{f"pretraining.{key}": value for key, value in training.items()},
    }


def distance_keys(config: Config, mechanism: str) -> Keys:
    """Return the keys of a training on tracks from random weights, without layers across bins, so that only
    attention can transfer long-range information."""
    ablation = config.ablation
    layers = (
        {"encoder.layers": ablation.long_range_layers}
        if ablation.long_range_layers
        else {}
    )
    steps: Keys = {}
    if ablation.long_range_steps:
        steps = {"chromatin.training.steps": ablation.long_range_steps}
        steps |= _shorter_warmup(
            "chromatin.training", config.chromatin.training, ablation.long_range_steps
        )
    return {
        **layers,
        **_with_positions(config, mechanism, ablation.tokens),
        "chromatin.model.initial": "random",
        "chromatin.model.bin_layers": 0,
        **steps,
    }


def _with_positions(config: Config, mechanism: str, tokens: int) -> Keys:
    """Return a mechanism's keys, with enough positions for inputs of `tokens` tokens."""
    keys = encoder_keys(config, mechanism)
    positions = keys.pop("encoder.max_length", config.encoder.max_length)
    if type(positions) is int:  # invalid values are kept and rejected in validation
        positions = max(positions, tokens)
    return {**keys, "encoder.max_length": positions}


def _shorter_warmup(section: str, training: TrainingConfig, steps: int) -> Keys:
    most = max(1, steps // _WARMUP)
    return (
        {f"{section}.optimizer.warmup_steps": most}
        if training.optimizer.warmup_steps > most
        else {}
    )


def _check_data(config: Config) -> None:
    if not config.has_genome:
        raise ConfigError("ablation: needs a genome.reference to pretrain on")
    for split in ("valid", "test"):
        # Regions held out for chromatin are also held out of pretraining.
        if not getattr(config.genome, split) and not getattr(
            config.chromatin.data, f"{split}_regions"
        ):
            raise ConfigError(
                f"genome.{split}: the ablation needs at least one contig or region"
            )
    wanted, tracks = config.ablation.long_range_tracks, config.chromatin.data.tracks
    if wanted and tracks is None:
        raise ConfigError(
            "ablation.long_range_tracks: needs tracks, but chromatin.data.tracks is null"
        )
    # Track names of other data are checked when the data set exists.
    if unknown := [
        name for name in wanted if tracks == SIMULATED and name not in TRACKS
    ]:
        raise ConfigError(
            f"ablation.long_range_tracks: {unknown[0]!r}: {one_of(unknown[0], TRACKS)}"
        )


def _causal(config: Config, mechanism: str) -> bool:
    """Return whether a mechanism's encoder is causal; `ConfigError` if one of its trainings is invalid."""
    source = f"ablation.mechanisms: {mechanism}"
    for part in ("steps", *map(str, config.ablation.lengths)):
        made = with_keys(
            config, "pretraining", pretraining_keys(config, mechanism, part), source
        )
    if config.ablation.long_range_tracks:
        far = with_keys(config, "chromatin", distance_keys(config, mechanism), source)
        try:
            far.encoder.check_pooling(far.chromatin.model.pooling, "chromatin.model")
        except ConfigError as error:
            raise ConfigError(f"{source}: {error}") from None
    return made.encoder.causal


MOST_STEPS = 100_000_000


def steps_in_time(
    config: Config, own: Path, *reference: Path, seconds: float | None = None
) -> int:
    """Return the number of training steps in `seconds`, or in the time of the reference's
    `pretraining.steps`, from measured costs. It depends on files only, so a resumed training has the same
    end. `DataError` if a file does not describe these steps, or was measured differently from the
    reference."""
    settings = complete(config).pretraining
    length, count = settings.sequence_tokens, settings.batch_size
    cost, encoder = Cost.read(own), config.encoder
    if cost.attention != encoder.attention:
        raise DataError(
            f"{own}: attention {cost.attention!r:.60}, but the configuration has {encoder.attention!r}"
        )
    for key in sorted({*encoder.attention_options, *cost.attention_options}):
        there, wanted = (
            cost.attention_options.get(key),
            encoder.attention_options.get(key),
        )
        if there != wanted:
            raise DataError(
                f"{own}: option {key!r:.60} of {cost.attention} is {there!r:.60}, "
                f"but the configuration has {wanted!r}"
            )
    step = _of_step(cost, own, length, count)
    if seconds is None:
        (path,) = reference
        other = Cost.read(path)
        for key in (
            "clock",
            "device",
            "threads",
        ):  # CPU and wall-clock times are not comparable
            value, expected = getattr(cost, key), getattr(other, key)
            if value != expected:
                raise DataError(
                    f"{own}: {key} is {value!r:.60}, but {path} has {expected!r:.60}"
                )
        seconds = settings.steps * _of_step(other, path, length, count)
    # Only complete steps count.
    times = seconds / step * (1 + 1e-9)
    if times > MOST_STEPS:
        raise DataError(
            f"{own}: {step:.3g} s per step give {times:,.4g} steps in {seconds:.3g} s: too many"
        )
    steps = max(1, math.floor(times))
    log(f"{seconds:,.1f} s are sufficient for {steps:,} steps of {step:.3g} s")
    return steps


def _of_step(cost: Cost, path: Path, length: int, count: int) -> float:
    row = cost.at(length)
    if row is None:
        raise DataError(f"{path}: no measurement for inputs of {length:,} tokens")
    if row.sequences != count:
        raise DataError(
            f"{path}: measured with {row.sequences:,} inputs of {length:,} tokens per step, not {count:,}"
        )
    return row.seconds
