"""Run one job of an experiment: its training or comparator, predictions, and cost of training steps.

A measured step is equal to a training step, with the same kernels and micro-batches, but without making
batches, evaluation on held-out data and checkpoints. On a CPU, the CPU time is measured, which is hardly
affected by other processes; on a GPU, the wall-clock time.
"""

import gc
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from bigbird_dna.config import (
    Config,
    EncoderConfig,
    LongRangeConfig,
    PretrainingConfig,
    complete,
)
from bigbird_dna.console import log
from bigbird_dna.disk.atomic import atomic_path, check_writable, read_object, write_json
from bigbird_dna.disk.tables import whole_number
from bigbird_dna.errors import ConfigError, UsageError, one_of
from bigbird_dna.finetuning.chromatin import ChromatinTask
from bigbird_dna.finetuning.evaluation import evaluate_models
from bigbird_dna.finetuning.promoters import PromoterTask
from bigbird_dna.genome.chromatin.tracks import read_tracks
from bigbird_dna.genome.reference import Reference
from bigbird_dna.model.directory import build_network, encoder_for, load_pretrained
from bigbird_dna.model.inference import choose_device
from bigbird_dna.model.settings import PretrainingSettings
from bigbird_dna.papers.comparators.fitting import (
    PromoterData,
    TrackData,
    fit_comparator,
)
from bigbird_dna.papers.experiments.ablation_arms import steps_in_time
from bigbird_dna.papers.experiments.ablation_files import FORMAT
from bigbird_dna.papers.experiments.byte_lm_training import BytesTask
from bigbird_dna.papers.experiments.comparing import pretraining_seconds
from bigbird_dna.papers.experiments.experiment import (
    ArmJob,
    find_experiment,
    plan,
    with_keys,
)
from bigbird_dna.papers.experiments.long_range_training import SequenceTask
from bigbird_dna.pretraining.evaluation import evaluate_pretraining
from bigbird_dna.pretraining.held_out import HeldOut
from bigbird_dna.pretraining.task import PretrainingObjective, PretrainingTask
from bigbird_dna.tokens.store import TokenStore
from bigbird_dna.tokens.text import load_tokenizer
from bigbird_dna.training.distributed import World, autocast
from bigbird_dna.training.log import begin_memory_peak, chosen_kernels, memory_peak
from bigbird_dna.training.loop import Batch, backward, make_optimizer, prefetched
from bigbird_dna.training.task import Task, train

ARM = "arm.json"
_FEWEST, _MOST, _SECONDS = (
    3,
    30,
    2.0,
)  # limits of the number of measured steps, and of their total time
_FIRST_TOKENS = (
    64  # input length of a warm-up step, which loads or compiles what all steps need
)
_MIB = 2**20


def find_job(run: Config, experiment: str, arm: str, seed: int | None) -> ArmJob:
    """Return a job of an experiment's plan (default: the arm's first seed); `UsageError` if unknown."""
    planned = plan(find_experiment(experiment), run)
    jobs = [job for job in planned if job.arm.name == arm]
    if not jobs:
        known = dict.fromkeys(job.arm.name for job in planned)
        raise UsageError(f"arm {arm!r}: {one_of(arm, known)}")
    for job in jobs:
        if seed in (None, job.seed):
            return job
    raise UsageError(
        f"seed {seed}: arm {arm} has the seeds {', '.join(str(job.seed) for job in jobs)}"
    )


def check_part(job: ArmJob, part: str) -> None:
    """Raise `UsageError` if an arm has no such part, before any output is made."""
    parts = {
        "data": (job.arm.data, "it uses the run's data set"),
        "cost": (job.arm.measured, "its training steps are not measured"),
        "predictions": (job.arm.predictions, "it has no separate predictions"),
    }
    there, reason = parts.get(part, (True, ""))
    if not there:
        raise UsageError(f"arm {job.arm.name}: {reason}")


def run_job(job: ArmJob, output: Path, checkpoints: Path, world: World) -> None:
    """Train an arm's model, or fit its comparator, into `output`; write `arm.json` next to it, with
    experiment, arm, seed, changed configuration keys and metrics."""
    if job.is_model:
        found = train(_task(job), output, checkpoints, world)
    else:
        found = _fit(job, output, checkpoints, world.device.type)
    if world.is_first:
        identity = {"experiment": job.experiment, "arm": job.arm.name, "seed": job.seed}
        write_json(
            output.parent / ARM,
            {**identity, "set": dict(job.arm.set), "metrics": found},
        )


def _task(job: ArmJob) -> Task[Any, Any]:
    arm, paths, config = job.arm, job.run.paths, job.config
    match arm.task:
        case "pretraining":
            if arm.costs:  # the number of steps follows from the arm's time
                steps = steps_in_time(
                    config, *arm.costs, seconds=arm.options.get("seconds")
                )
                config = with_keys(
                    config, "pretraining", {"pretraining.steps": steps}, arm.name
                )
            return PretrainingTask(config, job.data, paths.tokenizer)
        case "promoters":
            read = (
                job.run.model_tokenizer,
                arm.initialization,
                job.data,
                Reference(job.reference),
            )
            return PromoterTask(config, *read, arm.options["negative_set"], False)
        case "chromatin":
            path = job.data / "tracks.tsv"
            known = [track.name for track in read_tracks(path)]
            for name in arm.options.get("tracks", ()):  # check before training
                if name not in known:
                    raise ConfigError(
                        f"{path}: no track {name!r}: {one_of(name, known)}"
                    )
            window = arm.options.get("window") or config.chromatin.data.window
            read = (
                job.run.model_tokenizer,
                arm.initialization,
                job.data,
                Reference(job.reference),
            )
            return ChromatinTask(config, *read, window, 0)
        case "sequences":
            section = config.long_range_arena or LongRangeConfig()
            return SequenceTask(
                section,
                arm.options["task"],
                arm.options["attention"],
                job.seed,
                job.data,
            )
        case "bytes":
            assert config.byte_lm is not None
            return BytesTask(config.byte_lm)


def _fit(job: ArmJob, output: Path, checkpoints: Path, device: str) -> Any:
    arm, given = job.arm, dict(job.arm.options)
    window, negative_set = given.pop("window", None), given.pop("negative_set", "")
    data = (
        PromoterData(
            job.config, arm.predictor, negative_set, job.data, Reference(job.reference)
        )
        if arm.task == "promoters"
        else TrackData(job.config, arm.predictor, job.data, job.reference, window)
    )
    options = {"seed": job.seed, "model": arm.initialization, **given}
    return fit_comparator(data, output, checkpoints, options, device).get("metrics")


def predict(job: ArmJob, output: Path, device: str = "auto") -> None:
    """Write the predictions of an arm's model for held-out data: probabilities of test bins (.npy), bits of
    masked tokens (.npz) or bits per base (.tsv)."""
    arm, paths, length = job.arm, job.run.paths, job.config.pretraining.sequence_tokens
    match arm.predictions:
        case "npy":
            evaluate_models(
                [job.model],
                job.run.chromatin.evaluation,
                data=job.data,
                reference=job.reference,
                output=output,
                device=device,
            )
        case "npz":
            name = f"{arm.options['mechanism']}-{job.seed}"
            score_masked_tokens(
                name,
                job.model,
                paths.tokens,
                output,
                sequence_tokens=length,
                device=device,
            )
        case "tsv":
            evaluate_pretraining(
                job.model,
                paths.tokens,
                output,
                sequence_tokens=length,
                alone=True,
                device=device,
            )


def measure_cost(job: ArmJob, output: Path, device: str = "auto") -> None:
    """Measure the cost of a training step of an arm, at the input lengths of the experiment."""
    measure_training(
        job.config,
        job.run.paths.tokenizer,
        output,
        tokens=job.arm.measured,
        batch_tokens=job.run.ablation.batch_tokens,
        device=device,
    )


def make_data(job: ArmJob, output: Path) -> None:
    """Write the data set of an arm that has a separate one."""
    find_experiment(job.experiment).make_data(job.run, job.arm.data, output)


def score_masked_tokens(
    name: str,
    path: Path,
    tokens: Path,
    output: Path,
    *,
    sequence_tokens: int,
    sequences: int = 1000,
    device: str = "auto",
) -> None:
    """Write the bits of masked test tokens by a model NAME-SEED (.npz): 15 % of the tokens of at most
    `sequences` inputs, the same for models with equal tokenizer and task. The file has `names`, `steps` and
    `seconds` (M,) of the training, `bits` (M, T), `bases` and `blocks` (T,), `sequence_tokens`; here, M = 1.
    """
    check_writable(output)
    place, model = choose_device(device), load_pretrained(path)
    if sequence_tokens > model.config.max_length:
        raise UsageError(
            f"{path}: accepts at most {model.config.max_length} tokens, not {sequence_tokens}"
        )
    assert isinstance(model.settings, PretrainingSettings)
    held_out = HeldOut.draw(
        TokenStore.open(tokens / "test", model.tokenizer),
        model.tokenizer,
        sequence_tokens,
        sequences,
        pairs=model.settings.next_sentence,
        causal=model.config.causal,
    )
    model.network.to(place).eval()
    with torch.inference_mode():
        bits = held_out.bits(model.network, model.tokenizer, place).bits
    metrics = path / "metrics.json"
    arrays: dict[str, NDArray[np.generic]] = {
        "names": np.array([name]),
        "steps": np.array(
            [whole_number(read_object(metrics), "steps", metrics)], np.int64
        ),
        "seconds": np.array([pretraining_seconds(path)], np.float64),
        "sequence_tokens": np.array([sequence_tokens], np.int64),
        "bits": bits[None],
        "bases": held_out.bases,
        "blocks": held_out.blocks,
    }
    log(f"{name}: {bits.sum() / held_out.bases.sum():.4f} bits per base")
    with atomic_path(output) as temporary, temporary.open("wb") as stream:
        np.savez_compressed(stream, **arrays)  # type: ignore[arg-type]


def measure_training(
    config: Config,
    tokenizer: Path,
    output: Path,
    *,
    tokens: Sequence[int],
    batch_tokens: int,
    device: str = "auto",
) -> dict[str, Any]:
    """Write time and memory of pretraining steps on random tokens, for the input lengths in `tokens`; a step
    has `batch_tokens` tokens, or one longer input. `peak_mib` is the peak memory minus that before the
    network was made, or null if the system does not report it."""
    check_writable(output)
    settings = complete(config).pretraining
    lengths = sorted({*tokens})
    positions = max(config.encoder.max_length, *lengths)
    reader = load_tokenizer(tokenizer)
    encoder = encoder_for(
        config.encoder.model_copy(update={"max_length": positions}), reader
    )
    place, task = (
        choose_device(device),
        PretrainingSettings(next_sentence=settings.next_sentence),
    )
    build = partial(build_network, encoder, task, reader)
    _measure(build, encoder, settings, (1, _FIRST_TOKENS), place, steps=1)
    rows = []
    for length in lengths:
        count = max(1, batch_tokens // length)
        rows.append(_measure(build, encoder, settings, (count, length), place))
        log(
            f"{length:,} tokens × {count:,}: {rows[-1]['tokens_per_second']:,.0f} tokens/s"
        )
    found = {
        "format": FORMAT,
        "attention": encoder.attention,
        "attention_options": encoder.attention_options,
        "parameters": sum(p.numel() for p in build().parameters()),
        "device": place.type,
        "threads": torch.get_num_threads(),
        "clock": "processor" if place.type == "cpu" else "wall",
        "lengths": rows,
    }
    write_json(output, found)
    return found


def _measure(
    build: Callable[[], nn.Module],
    encoder: EncoderConfig,
    settings: PretrainingConfig,
    shape: tuple[int, int],
    device: torch.device,
    steps: int = _MOST,
) -> dict[str, Any]:
    """Measure one input length; `shape` (B, L) is that of a step's inputs."""
    before = begin_memory_peak(device)
    network = build().to(device).train()
    objective, world = RandomTokens(encoder, settings, shape), World(0, 1, device)
    # Each micro-batch needs at least one input.
    sizes = {
        "batch_size": shape[0],
        "grad_accumulation": min(settings.grad_accumulation, shape[0]),
    }
    _, batches = next(
        prefetched(objective, settings.model_copy(update=sizes), world, 0)
    )
    counts = [objective.counts(batch) for batch in batches]
    totals = {key: sum(one[key] for one in counts) for key in counts[0]}
    optimizer = make_optimizer(network, settings.optimizer)
    cast = autocast(device, settings.precision)
    seconds: list[float] = []
    with chosen_kernels(network, settings, world):
        while len(seconds) <= steps and (
            len(seconds) <= _FEWEST or sum(seconds) < _SECONDS
        ):
            began = _clock(device)
            backward(network, objective, batches, totals, world, cast)
            nn.utils.clip_grad_norm_(network.parameters(), settings.optimizer.clip_norm)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            seconds.append(_clock(device) - began)
    highest = memory_peak(device)
    del batches, objective, optimizer, network
    gc.collect()
    middle = float(
        np.median(seconds[1:] or seconds)
    )  # the first step includes initialization
    return {
        "tokens": shape[1],
        "sequences": shape[0],
        "seconds": middle,
        "seconds_of_steps": seconds[1:],
        "tokens_per_second": shape[0] * shape[1] / middle,
        "peak_mib": None
        if before is None or highest is None
        else (highest - before) / _MIB,
    }


class RandomTokens(PretrainingObjective):
    """Pretraining on the same random tokens (B, L) in each step."""

    def __init__(
        self,
        encoder: EncoderConfig,
        settings: PretrainingConfig,
        shape: tuple[int, int],
    ) -> None:
        generator = torch.Generator().manual_seed(settings.seed)
        ids = torch.randint(encoder.vocabulary, shape, generator=generator)
        # A causal model predicts every token.
        share = 1.0 if encoder.causal else settings.mask_fraction
        hidden = torch.rand(shape, generator=generator) < share
        hidden[0, 0] = True
        masked = hidden.flatten().nonzero()[:, 0]
        self.tokens = {
            **{
                "ids": ids,
                "segments": torch.zeros_like(ids),
                "lengths": torch.full(shape[:1], shape[1]),
            },
            **{
                "masked": masked,
                "labels": ids.flatten()[masked],
                "next_sentence": torch.zeros_like(ids[:, 0]),
            },
        }

    def batch(self, step: int, first: int, count: int) -> Batch:
        return self.tokens


def _clock(device: torch.device) -> float:
    if device.type != "cpu":
        torch.get_device_module(device).synchronize()
        return time.perf_counter()
    return time.process_time()
