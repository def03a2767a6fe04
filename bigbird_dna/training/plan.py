"""Memory and time of a configuration's trainings, calculated before any of them runs.

Activations that a forward pass keeps grow linearly with layers and rows, apart from a part that neither
changes. They are measured on the CPU in float32, with one and two layers and rows. Operations are counted
from the configuration; how fast a GPU computes them is an assumption, which is printed with the result.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bigbird_dna.config.chromatin import DEEPSEA
from bigbird_dna.config.network import EncoderConfig
from bigbird_dna.config.run import Config
from bigbird_dna.config.training import (
    FinetuningConfig,
    PretrainingConfig,
    TrainingConfig,
)
from bigbird_dna.model.encoder import Encoder
from bigbird_dna.model.heads import PretrainingNetwork
from bigbird_dna.model.input_embeddings import expected_bases
from bigbird_dna.model.weights import shapes_only
from bigbird_dna.training.adapters import adapt
from bigbird_dna.training.checkpoints import fresh_moments
from bigbird_dna.training.loop import make_optimizer

FLOAT = 4  # bytes
SPECIAL_TOKENS = 2  # [CLS] and [SEP]
STRANDS = 2
DEEPSEA_TEST_BINS = 227_512

ACTIVATIONS = 0.63
"""Activations in bfloat16 relative to those in float32: measured on one H200."""


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


class TrainingMemory(NamedTuple):
    """Memory of a process in bytes; `rows` of `tokens` tokens are a micro-batch."""

    training: str
    adapt: str
    gradient_checkpointing: bool
    rows: int
    tokens: int
    trained: int  # parameters
    weights: int
    gradients: int
    moments: int
    activations: int

    @property
    def total(self) -> int:
        """Sum of the parts."""
        return self.weights + self.gradients + self.moments + self.activations


class Work(NamedTuple):
    """Tokens and floating-point operations of a stage, in training or prediction."""

    stage: str
    tokens: float
    operations: float
    training: str = ""  # of `TrainingMemory`; "" for predictions

    def hours(self, gpu: Gpu, count: int) -> float:
        """Hours on `count` GPUs, all of them busy."""
        return self.operations / (gpu.peak * gpu.reached * count) / 3600


def plan_memory(config: Config, length: int | None = None) -> Iterator[TrainingMemory]:
    """Yield the memory of each training of a configuration, for each way to train fewer weights.

    `length` is that of labeled sequences in bp, which the configuration does not contain.
    """
    trainings: list[tuple[str, TrainingConfig, int, int]] = []
    if config.has_pretraining:
        section = config.pretraining
        tokens = section.sequence_tokens
        trainings.append(("pretraining", section, config.num_gpus, tokens))
    windows: dict[str, int | None] = {}
    if config.has_promoters:
        windows["promoters"] = sum(config.promoters.windows.sides)
    if config.has_chromatin:
        windows["chromatin"] = config.chromatin.data.window
    windows["sequences"] = length
    for name, bases in windows.items():
        if bases:
            part = getattr(config, name)
            tokens = window_tokens(config, bases)
            trainings.append((name, part.training, part.num_gpus, tokens))

    encoder = planned_encoder(config)
    encoder = encoder.model_copy(update={"gradient_checkpointing": False})
    for name, training, processes, tokens in trainings:
        rows = math.ceil(training.batch_size / (processes * training.grad_accumulation))
        if not isinstance(training, FinetuningConfig):
            yield from _memory(name, "full", encoder, training, rows, tokens)
            continue
        for way in ("full", "lora", "frozen"):
            adapted = training.model_copy(update={"adapt": way})
            yield from _memory(name, way, encoder, adapted, rows, tokens)


def _memory(
    name: str,
    way: str,
    encoder: EncoderConfig,
    training: TrainingConfig,
    rows: int,
    tokens: int,
) -> Iterator[TrainingMemory]:
    """Yield the memory without and with recomputed activations."""
    with shapes_only():
        network = _network(encoder, training)
    optimizer = make_optimizer(network, training.optimizer)
    weights = trained = moments = 0
    for parameter in network.parameters():
        weights += parameter.numel()
        if parameter.requires_grad:
            trained += parameter.numel()
            states = fresh_moments(optimizer, parameter).values()
            moments += sum(state.numel() for state in states if state.dim())

    def measure(layers: int, count: int) -> int:
        few = encoder.model_copy(update={"layers": layers})
        return _kept_bytes(few, training, count, tokens)

    def of_rows(one: int, two: int) -> int:
        """Bytes of all rows, from those of one and two."""
        return one + (rows - 1) * (two - one)

    one_layer = of_rows(measure(1, 1), measure(1, 2))
    layer = of_rows(measure(2, 1), measure(2, 2)) - one_layer
    outside = one_layer - layer
    for recomputes in (False, True) if layer else (False,):
        activations = outside + encoder.layers * layer
        if recomputes:  # inputs of all layers, and one layer at a time
            inputs = rows * tokens * encoder.hidden * FLOAT
            activations = outside + encoder.layers * min(inputs, layer) + layer
        yield TrainingMemory(
            training=name,
            adapt=way,
            gradient_checkpointing=recomputes,
            rows=rows,
            tokens=tokens,
            trained=trained,
            weights=FLOAT * weights,
            gradients=FLOAT * trained,
            moments=FLOAT * moments,
            activations=activations,
        )


def _network(encoder: EncoderConfig, training: TrainingConfig) -> nn.Module:
    if not isinstance(training, FinetuningConfig):
        return PretrainingNetwork(encoder)
    network = nn.ModuleDict({"encoder": Encoder(encoder)})
    adapt(network, training)
    return network


def _kept_bytes(
    encoder: EncoderConfig, training: TrainingConfig, rows: int, tokens: int
) -> int:
    """Return the bytes that a forward pass keeps for the backward pass, without the weights."""
    saved: dict[int, Tensor] = {}  # by address
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = _network(encoder, training).train()
        weights = {p.untyped_storage().data_ptr() for p in network.parameters()}

        def save(tensor: Tensor) -> Tensor:
            if (address := tensor.untyped_storage().data_ptr()) not in weights:
                saved[address] = tensor
            return tensor

        ids = torch.full((rows, tokens), encoder.vocabulary - 1)
        lengths = torch.full((rows,), tokens)
        with torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor):
            if isinstance(training, PretrainingConfig):
                masked = torch.arange(math.ceil(rows * tokens * training.mask_fraction))
                logits = network(ids, lengths, None, masked).tokens
                F.cross_entropy(logits, ids.flatten()[masked])
            else:
                network["encoder"](ids, lengths)  # type: ignore[index]
    return sum(tensor.untyped_storage().nbytes() for tensor in saved.values())


def memory_on_gpu(config: Config, work: list[Work]) -> dict[str, float]:
    """Return the bytes per GPU of each stage that trains, as configured and in bfloat16."""
    plan = {
        (one.training, one.adapt, one.gradient_checkpointing): one
        for one in plan_memory(config)
    }
    memory = {}
    for stage in work:
        if not stage.training:
            continue
        section = getattr(config, stage.training)
        training = section if isinstance(section, TrainingConfig) else section.training
        way = training.adapt if isinstance(training, FinetuningConfig) else "full"
        needed = plan[stage.training, way, config.encoder.gradient_checkpointing]
        memory[stage.stage] = needed.total - (1 - ACTIVATIONS) * needed.activations
    return memory


def planned_encoder(config: Config) -> EncoderConfig:
    """The encoder of a configuration as far as time and memory depend on it, without a tokenizer's parts."""
    vocabulary = config.encoder.vocabulary or config.tokens.vocabulary
    return config.encoder.model_copy(update={"vocabulary": vocabulary, "kmers": 0})


def window_tokens(config: Config, bases: int) -> int:
    """Expected tokens of a window of `bases` bp, with [CLS] and [SEP]."""
    encoder = planned_encoder(config)
    tokens = math.ceil(bases / expected_bases(encoder.vocabulary)) + SPECIAL_TOKENS
    return min(encoder.max_length, tokens)


def planned_work(config: Config) -> list[Work]:
    """Return the stages of a configuration that compute on GPUs, in their order."""
    encoder, block = planned_encoder(config), config.encoder.block_size
    work = []

    def length_of(bases: int) -> int:
        """Tokens of a window, in whole blocks."""
        blocks = math.ceil(window_tokens(config, bases) / block)
        return min(encoder.max_length, blocks * block)

    def add(name: str, training: TrainingConfig, length: int, models: int) -> None:
        tokens = float(models * training.steps * training.batch_size * length)
        operations = tokens * operations_per_token(encoder, length)
        kind = name.partition("-")[0]
        work.append(Work(f"{name}, {models} models", tokens, operations, kind))

    if config.has_pretraining:
        pretraining = config.pretraining
        predicted = 1.0 if encoder.causal else pretraining.mask_fraction
        curriculum = [(one.tokens, one.steps) for one in pretraining.length_curriculum]
        rest = pretraining.steps - sum(steps for _, steps in curriculum)
        tokens = operations = 0.0
        for length, steps in [*curriculum, (pretraining.sequence_tokens, rest)]:
            # Shorter inputs are more of them.
            count = steps * pretraining.batch_size * pretraining.sequence_tokens
            tokens += count
            operations += count * operations_per_token(
                encoder, length, predicted=predicted
            )
        work.append(Work("pretraining", tokens, operations, "pretraining"))
    if config.has_promoters:
        promoters = config.promoters
        models = len(promoters.windows.negative_sets)
        models += promoters.shuffled_label_control is not None
        length = length_of(sum(promoters.windows.sides))
        add("promoters", promoters.training, length, models)
    if config.has_chromatin:
        chromatin = config.chromatin
        bins = chromatin.evaluation.test_bins
        if not bins and chromatin.data.tracks == DEEPSEA:
            bins = DEEPSEA_TEST_BINS
        predicting = encoder.model_copy(update={"gradient_checkpointing": False})
        for window in chromatin.data.windows:
            name, length = f"chromatin-{window}", length_of(window)
            add(name, chromatin.training, length, chromatin.models)
            if bins:
                tokens = float(STRANDS * chromatin.models * bins * length)
                operations = tokens * operations_per_token(predicting, length) / 3
                stage = f"{name}, predictions of {bins:,} test bins"
                work.append(Work(stage, tokens, operations))
    return work


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
    width, layers, block = encoder.hidden, encoder.layers, encoder.block_size
    inner = encoder.intermediate or 4 * width
    gated = 3 if encoder.feed_forward == "gated" else 2
    after_attention = width**2 + gated * width * inner
    needed = 1.0 if predicted is None else predicted
    weights = layers * (3 * width**2 + after_attention) - (1 - needed) * after_attention

    # Mean number of keys of a query; global queries attend to all.
    everything = encoder.global_blocks * block
    few = everything + (encoder.window_blocks + encoder.random_blocks) * block
    keys = float(length)
    if encoder.attention == "bigbird" and few < length:
        keys = (few * (length - everything) + length * everything) / length

    passes = 4 if encoder.gradient_checkpointing else 3  # of two operations each
    in_layers = 2 * passes * (weights + 2 * layers * width * keys)
    return in_layers + 6 * (predicted or 0) * (encoder.vocabulary + width) * width


def assumptions(config: Config, gpu: Gpu, count: int) -> list[str]:
    """Return what the hours of `planned_work` assume."""
    bases = expected_bases(planned_encoder(config).vocabulary)
    return [
        f"{gpu.name}: {gpu.reached:.0%} of the published peak of {gpu.peak / 1e12:.0f} teraflops in bfloat16 "
        f"({gpu.basis})",
        f"tokens have {bases:.1f} bp on average",
        f"all {count} GPUs are busy: trainings on fewer GPUs run at the same time, and sums of gradients over "
        "nodes take no time",
        "memory is that of a process with num_gpus of the configuration",
        f"activations in bfloat16 take {ACTIVATIONS} of those in float32 (measured on one H200)",
        "layers are not compiled (torch_compile)",
        "evaluations, starts of jobs, compilation and steps on CPUs are not included",
    ]
