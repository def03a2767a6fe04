"""Time of a configuration's trainings on GPUs, calculated before any of them runs.

The operations are counted from the configuration. How fast a GPU computes them is an assumption, stated with
the result, as are the length of a token and the gain of compiled layers.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from bigbird_dna.config import (
    DEEPSEA,
    Config,
    EncoderConfig,
    FinetuningConfig,
    TrainingConfig,
)
from bigbird_dna.errors import check_at_least_one, check_choice
from bigbird_dna.model.input_embeddings import expected_bases
from bigbird_dna.training.memory import (
    TrainingMemory,
    plan_memory,
    planned_encoder,
    window_tokens,
)

HOUR = 3600.0  # seconds


class Gpu(NamedTuple):
    """A type of GPU: published peak of bfloat16 products, operations per second, and memory, bytes."""

    name: str
    peak: float
    reached: float  # fraction of the peak that a training reaches
    basis: str
    memory: float


GPUS = {
    "a100": Gpu("A100", 312e12, 0.30, "assumed, was not run", 80e9),
    "h100": Gpu(
        "H100", 989e12, 0.25, "measured on one H200, which computes as fast", 80e9
    ),
    "h200": Gpu("H200", 989e12, 0.25, "measured on one H200", 141e9),
}
COMPILED = 0.13
"""Assumed fraction of a step's time that compiled layers save (`torch_compile`); it was not measured."""

ACTIVATIONS = 0.63
"""Activations in bfloat16 relative to those that `plan_memory` counts in float32: measured on one H200."""

NODE = 8  # GPUs
LOST_BETWEEN_NODES = 0.1
"""Assumed fraction of the time that several nodes need to add up gradients; it was not measured."""

DEEPSEA_TEST_BINS = 227_512
STRANDS = 2


@dataclass(frozen=True)
class Work:
    """What a stage computes: its tokens and floating-point operations, in training or prediction."""

    stage: str
    tokens: float
    operations: float
    compiled: bool = False
    training: str = ""  # of `TrainingMemory`; empty: predictions

    def hours(self, gpu: Gpu, count: int) -> float:
        """Hours on `count` GPUs, all of them busy."""
        seconds = self.operations / (gpu.peak * gpu.reached * count)
        seconds *= 1 - COMPILED * self.compiled
        return seconds / HOUR / (1 if count <= NODE else 1 - LOST_BETWEEN_NODES)


@dataclass(frozen=True)
class GpuPlan:
    """Time and memory of a configuration on GPUs of one type; memory in bytes per GPU, by stage."""

    gpu: Gpu
    count: int
    work: list[Work]
    memory: dict[str, float]
    assumptions: list[str]

    @property
    def hours(self) -> float:
        """Hours of all stages, one after another."""
        return sum(one.hours(self.gpu, self.count) for one in self.work)


def plan(
    config: Config, length: int | None = None, gpu: str | None = None, count: int = NODE
) -> list[TrainingMemory] | GpuPlan:
    """The memory of each training (`plan_memory`), or with `gpu` the time and memory of all on GPUs.

    `UsageError`: unknown type of GPU, or `count` below 1.
    """
    check_at_least_one({"count": count})
    if gpu is None:
        return [*plan_memory(config, length)]
    check_choice("gpu", gpu, GPUS)
    kind, work = GPUS[gpu], planned_work(config)
    found = {
        (one.training, one.adapt, one.gradient_checkpointing): one
        for one in plan_memory(config)
    }
    recomputes = config.encoder.gradient_checkpointing
    memory = {}
    for one in work:
        if one.training:
            own = getattr(config, one.training)
            own = own if isinstance(own, TrainingConfig) else own.training
            adapt = own.adapt if isinstance(own, FinetuningConfig) else "full"
            needed = found[one.training, adapt, recomputes]
            memory[one.stage] = needed.total - (1 - ACTIVATIONS) * needed.activations
    return GpuPlan(kind, count, work, memory, _assumptions(config, work, kind, count))


def planned_work(config: Config) -> list[Work]:
    """The stages of a configuration that compute on GPUs, in their order."""
    return [*_pretraining(config), *_promoters(config), *_chromatin(config)]


def _assumptions(config: Config, work: list[Work], gpu: Gpu, count: int) -> list[str]:
    found = [
        f"{gpu.name}: {gpu.reached:.0%} of the published peak of {gpu.peak / 1e12:.0f} teraflops in bfloat16 "
        f"({gpu.basis})",
        f"tokens have {expected_bases(planned_encoder(config).vocabulary):.1f} bp on average",
        f"all {count} GPUs are busy: trainings on fewer GPUs run at the same time",
        "memory is that of a process with num_gpus of the configuration",
        f"activations in bfloat16 take {ACTIVATIONS} of those in float32 (measured on one H200)",
        "evaluations, starts of jobs, compilation and steps on CPUs are not included",
    ]
    if any(stage.compiled for stage in work):
        found.append(
            f"compiled layers (torch_compile) save {COMPILED:.0%} of the time (was not measured)"
        )
    if count > NODE:
        found.append(
            f"several nodes lose {LOST_BETWEEN_NODES:.0%} of the time to sums of gradients (was not run)"
        )
    return found


def operations_per_token(
    encoder: EncoderConfig, length: int, *, predicted: float | None = None
) -> float:
    """Floating-point operations of a training, per token of an input of `length` tokens.

    6 per weight, forward and backward, and 12 per layer, width and key that a query attends to; a third more
    in layers that are computed again (`gradient_checkpointing`). `predicted` is the fraction of tokens for
    which the head predicts a token of `encoder.vocabulary`: after its attention, the last layer computes no
    others; None: no head, and all tokens are computed. Other mechanisms than `bigbird` are counted as full
    attention.
    """
    width, layers = encoder.hidden, encoder.layers
    inner = encoder.intermediate or 4 * width
    gated = 3 if encoder.feed_forward == "gated" else 2
    after_attention = width**2 + gated * width * inner
    needed = 1.0 if predicted is None or encoder.reversible else predicted
    weights = layers * (3 * width**2 + after_attention) - (1 - needed) * after_attention
    passes = 4 if encoder.gradient_checkpointing else 3  # of two operations each
    in_layers = (
        2 * passes * (weights + 2 * layers * width * _mean_keys(encoder, length))
    )
    return in_layers + 6 * (predicted or 0) * (encoder.vocabulary + width) * width


def _mean_keys(encoder: EncoderConfig, length: int) -> float:
    """Keys that a query attends to, on average; global queries attend to all."""
    block = encoder.block_size
    few = (
        encoder.global_blocks + encoder.window_blocks + encoder.random_blocks
    ) * block
    if encoder.attention != "bigbird" or few >= length:
        return float(length)
    everything = encoder.global_blocks * block
    return (few * (length - everything) + length * everything) / length


def _window(config: Config, bases: int) -> int:
    """Tokens of a window, in whole blocks."""
    block = config.encoder.block_size
    return min(
        config.encoder.max_length,
        math.ceil(window_tokens(config, bases) / block) * block,
    )


def _trained(
    name: str,
    training: TrainingConfig,
    encoder: EncoderConfig,
    length: int,
    models: int,
) -> Work:
    tokens = float(models * training.steps * training.batch_size * length)
    operations = tokens * operations_per_token(encoder, length)
    return Work(
        name,
        tokens,
        operations,
        training.torch_compile,
        name.partition("-")[0].partition(",")[0],
    )


def _pretraining(config: Config) -> Iterator[Work]:
    if not config.has_pretraining:
        return
    own, encoder = config.pretraining, planned_encoder(config)
    predicted = 1.0 if encoder.causal else own.mask_fraction
    sequences = (
        own.batch_size * own.sequence_tokens
    )  # per step; shorter inputs are more
    tokens = operations = 0.0
    done = 0
    for length, steps in [
        *((one.tokens, one.steps) for one in own.length_curriculum),
        (own.sequence_tokens, 0),
    ]:
        count = (steps or own.steps - done) * sequences
        done += steps
        tokens += count
        operations += count * operations_per_token(encoder, length, predicted=predicted)
    yield Work("pretraining", tokens, operations, own.torch_compile, "pretraining")


def _promoters(config: Config) -> Iterator[Work]:
    if not config.has_promoters:
        return
    own = config.promoters
    models = len(own.windows.negative_sets) + len(own.controls)
    length = _window(config, sum(own.windows.sides))
    yield _trained(
        f"promoters, {models} models",
        own.training,
        planned_encoder(config),
        length,
        models,
    )


def _chromatin(config: Config) -> Iterator[Work]:
    if not config.has_chromatin:
        return
    own, encoder = config.chromatin, planned_encoder(config)
    for window in own.data.windows:
        length, name = _window(config, window), f"chromatin-{window}"
        yield _trained(
            f"{name}, {own.models} models", own.training, encoder, length, own.models
        )
        bins = own.evaluation.test_bins
        if bins := bins or DEEPSEA_TEST_BINS * (own.data.tracks == DEEPSEA):
            tokens = float(STRANDS * own.models * bins * length)
            once = encoder.model_copy(update={"gradient_checkpointing": False})
            forward = operations_per_token(once, length) / 3
            yield Work(
                f"{name}, predictions of {bins:,} test bins", tokens, tokens * forward
            )
