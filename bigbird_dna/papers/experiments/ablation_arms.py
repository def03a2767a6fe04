"""What each training of the ablation has otherwise than the run's configuration, and whether it can be."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from bigbird_dna.config import SIMULATED, Config, TrainingConfig, complete
from bigbird_dna.console import log
from bigbird_dna.errors import ConfigError, DataError
from bigbird_dna.papers.experiments.ablation import AblationTracks, ablation_report
from bigbird_dna.papers.experiments.ablation_files import Cost
from bigbird_dna.papers.experiments.experiment import Arm, ArmJob, Experiment, with_keys
from bigbird_dna.simulate.truth import TRACKS

Keys = dict[str, Any]

_WARMUP = 3
"""A learning rate rises in a third of the steps at most; a run's own may rise longer than these last."""


class Ablation(Experiment):
    """The same encoder with one mechanism after the other: arms are called MECHANISM-PART, trainings of the
    same `steps`, of the same `time`, on longer inputs (their tokens), and on tracks (`distance`)."""

    name: ClassVar[str] = "ablation"
    files: ClassVar[Sequence[str]] = [f"ablation/ablation.{end}" for end in ("tsv", "json", "md", "svg")]

    def check(self, run: Config) -> None:
        """Looks at all trainings; modules of attention are loaded for it, and torch with them."""
        _check_data(run)
        causal = {one.name: _causal(run, one.name) for one in run.ablation.mechanisms}
        reference = run.ablation.reference
        for name, value in causal.items():
            if value != causal[reference]:
                one, other = (name, reference) if value else (reference, name)
                raise ConfigError(
                    f"ablation.mechanisms: {one} is causal and {other} is not: they can't be compared"
                )

    def arms(self, run: Config) -> Sequence[Arm]:
        ablation = run.ablation
        arms = []
        for mechanism in (one.name for one in ablation.mechanisms):
            # The reference's training of the same steps is that of the same time too.
            one = mechanism == ablation.reference and ablation.time_budget_s is None
            trainings = ["steps", *([] if one else ["time"]), *map(str, ablation.lengths)]
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
                        measured=(ablation.tokens, *ablation.lengths) if part == "steps" else (),
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
                        options={"mechanism": mechanism, "tracks": ablation.long_range_tracks},
                        predictions="npy",
                        row=("distance",),
                    )
                )
        return arms

    def _costs(self, run: Config, mechanism: str) -> list[Path]:
        """A mechanism's measurement, and the reference's if it says the time."""
        ablation = run.ablation
        names = [mechanism, *([ablation.reference] if ablation.time_budget_s is None else [])]
        return [run.paths.experiment(self.name) / f"{name}-steps/cost.json" for name in names]

    def inputs(self, run: Config) -> Sequence[Path]:
        if not (run.ablation.long_range_tracks and run.has_chromatin):
            return ()
        held_out = run.paths.held_out_bins
        return [held_out / "labels.npz", held_out / "bins.parquet", run.paths.chromatin_data / "tracks.tsv"]

    def compare(
        self, run: Config, jobs: Sequence[ArmJob], output: Path, *, benchmarks: Path | None, device: str
    ) -> list[str]:
        ablation = run.ablation
        files: dict[str, dict[tuple[str, int], Path]] = {}
        for job in jobs:
            for part in job.arm.row:
                files.setdefault(part, {})[job.arm.options["mechanism"], job.seed] = job.predictions
        tracks = None
        if of_bins := self.inputs(run):
            labels, bins, known = of_bins
            least = run.chromatin.min_positives_report
            wanted = ablation.long_range_tracks
            tracks = AblationTracks(files["distance"], labels, bins, known, wanted, least)
        table = ablation_report(
            ablation,
            output,
            lengths={ablation.tokens: files["steps"], **{one: files[str(one)] for one in ablation.lengths}},
            time=files["time"],
            costs={name: self._costs(run, name)[0] for name in (one.name for one in ablation.mechanisms)},
            tracks=tracks,
        )
        return [f"ablation: {len(table):,} mechanisms"]


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
    """Of a training on tracks, from fresh weights; what is far comes by attention alone, without layers
    across bins."""
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
        made = with_keys(config, "pretraining", pretraining_keys(config, mechanism, part), source)
    if config.ablation.long_range_tracks:
        far = with_keys(config, "chromatin", distance_keys(config, mechanism), source)
        try:
            far.encoder.check_pooling(far.chromatin.model.pooling, "chromatin.model")
        except ConfigError as error:
            raise ConfigError(f"{source}: {error}") from None
    return made.encoder.causal


MOST_STEPS = 100_000_000


def steps_in_time(config: Config, own: Path, *reference: Path, seconds: float | None = None) -> int:
    """How many steps of a training `seconds` have, or the reference's `pretraining.steps`, by measurements: a
    function of files, so that a killed training goes on to the same end. `DataError` where a file is none of
    these steps, or was measured otherwise than the reference."""
    settings = complete(config).pretraining
    length, count = settings.sequence_tokens, settings.batch_size
    cost, encoder = Cost.read(own), config.encoder
    if cost.attention != encoder.attention:
        raise DataError(
            f"{own}: is of attention {cost.attention!r:.60}, the configuration has {encoder.attention!r}"
        )
    for key in sorted({*encoder.attention_options, *cost.attention_options}):
        there, wanted = cost.attention_options.get(key), encoder.attention_options.get(key)
        if there != wanted:
            raise DataError(
                f"{own}: is of other options of {cost.attention}: {key!r:.60} is {there!r:.60}, "
                f"the configuration has {wanted!r}"
            )
    step = _of_step(cost, own, length, count)
    if seconds is None:
        (path,) = reference
        other = Cost.read(path)
        for key in ("clock", "device", "threads"):  # times of processors and of a clock can't be compared
            value, expected = getattr(cost, key), getattr(other, key)
            if value != expected:
                raise DataError(f"{own}: its {key} is {value!r:.60}, that of {path} {expected!r:.60}")
        seconds = settings.steps * _of_step(other, path, length, count)
    # A step is there by the clock, or it isn't: what is left of the time buys none.
    times = seconds / step * (1 + 1e-9)
    if times > MOST_STEPS:
        raise DataError(f"{own}: a step of {step:.3g} s fits {times:,.4g} times into {seconds:.3g} s")
    steps = max(1, math.floor(times))
    log(f"{seconds:,.1f} s have time for {steps:,} steps of {step:.3g} s")
    return steps


def _of_step(cost: Cost, path: Path, length: int, count: int) -> float:
    row = cost.at(length)
    if row is None:
        raise DataError(f"{path}: has no measurement of inputs of {length:,} tokens")
    if row.sequences != count:
        raise DataError(
            f"{path}: was measured with {row.sequences:,} inputs of {length:,} tokens a step, not {count:,}"
        )
    return row.seconds
