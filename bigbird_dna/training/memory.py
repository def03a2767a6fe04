"""Memory of trainings, before they run: weights, gradients, moments, and what the backward pass needs.

Bytes that a forward pass keeps grow linearly with layers and with rows, apart from a part that neither
changes. They are therefore measured on the CPU with one and two layers and rows of the configured size, in
float32. Left out are the head, temporary results, and what Python and its libraries occupy.
"""

import math
from collections.abc import Iterator
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bigbird_dna.config import (
    Config,
    EncoderConfig,
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

_FLOAT = 4  # bytes
SPECIAL_TOKENS = 2  # [CLS] and [SEP]


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


def plan_memory(config: Config, length: int | None = None) -> Iterator[TrainingMemory]:
    """Yield the memory of each training of a configuration, with every way to train less or to keep less.

    `length` is that of labeled sequences in bp, which the configuration does not contain.
    """
    encoder = planned_encoder(config).model_copy(
        update={"gradient_checkpointing": False}
    )
    if config.has_pretraining:
        own = config.pretraining
        yield from _ways(
            "pretraining",
            encoder,
            own,
            _rows(own, config.num_gpus),
            own.sequence_tokens,
        )
    if config.has_promoters:
        promoters = config.promoters
        size = window_tokens(config, sum(promoters.windows.sides))
        rows = _rows(promoters.training, promoters.num_gpus)
        yield from _ways("promoters", encoder, promoters.training, rows, size)
    if config.has_chromatin:
        chromatin, size = (
            config.chromatin,
            window_tokens(config, config.chromatin.data.window),
        )
        rows = _rows(chromatin.training, chromatin.num_gpus)
        yield from _ways("chromatin", encoder, chromatin.training, rows, size)
    if length is not None:
        sequences = config.sequences
        rows = _rows(sequences.training, sequences.num_gpus)
        yield from _ways(
            "sequences",
            encoder,
            sequences.training,
            rows,
            window_tokens(config, length),
        )


def planned_encoder(config: Config) -> EncoderConfig:
    """The encoder of a configuration as far as time and memory depend on it, without a tokenizer's parts."""
    vocabulary = config.encoder.vocabulary or config.tokens.vocabulary
    # The bases of tokens do not matter here, and positions by bases need no more memory.
    changes: dict[str, Any] = {"vocabulary": vocabulary, "kmers": 0}
    if config.encoder.position_encoding == "rotary_bp":
        changes["position_encoding"] = "rotary"
    return config.encoder.model_copy(update=changes)


def window_tokens(config: Config, bases: int) -> int:
    """Expected tokens of a window of `bases` bp, with [CLS] and [SEP]."""
    encoder = planned_encoder(config)
    tokens = math.ceil(bases / expected_bases(encoder.vocabulary)) + SPECIAL_TOKENS
    return min(encoder.max_length, tokens)


def _rows(training: TrainingConfig, processes: int) -> int:
    return math.ceil(training.batch_size / (processes * training.grad_accumulation))


def _ways(
    name: str, encoder: EncoderConfig, training: TrainingConfig, rows: int, tokens: int
) -> Iterator[TrainingMemory]:
    ways = (
        ("full", "lora", "frozen")
        if isinstance(training, FinetuningConfig)
        else ("full",)
    )
    for way in ways:
        own = training.model_copy(update={"adapt": way} if len(ways) > 1 else {})
        with shapes_only():
            network = _network(encoder, own)
        weights = _FLOAT * sum(one.numel() for one in network.parameters())
        trained = sum(one.numel() for one in network.parameters() if one.requires_grad)
        outside, layer = _kept(encoder, own, rows, tokens)
        for recomputes in (False, True) if layer else (False,):
            kept = outside + encoder.layers * layer
            if recomputes:  # inputs of all layers, and one layer at a time
                held = rows * tokens * encoder.hidden * _FLOAT
                kept = outside + encoder.layers * min(held, layer) + layer
            sizes = weights, _FLOAT * trained, _FLOAT * _moments(network, own), kept
            yield TrainingMemory(name, way, recomputes, rows, tokens, trained, *sizes)


def _network(encoder: EncoderConfig, training: TrainingConfig) -> nn.Module:
    if not isinstance(training, FinetuningConfig):
        return PretrainingNetwork(encoder)
    network = nn.ModuleDict({"encoder": Encoder(encoder)})
    adapt(network, training)
    return network


def _moments(network: nn.Module, training: TrainingConfig) -> int:
    """Numbers in the optimizer's state, without its step counts; the network may have no values."""
    optimizer = make_optimizer(network, training.optimizer)
    states = (
        fresh_moments(optimizer, one).values()
        for one in network.parameters()
        if one.requires_grad
    )
    return sum(state.numel() for state in chain(*states) if state.dim())


def _kept(
    encoder: EncoderConfig, training: TrainingConfig, rows: int, tokens: int
) -> tuple[int, int]:
    """Bytes that a forward pass keeps for the backward pass: outside the layers, and of each layer."""
    found = {
        (layers, number): _measured(
            encoder.model_copy(update={"layers": layers}), training, number, tokens
        )
        for layers in (1, 2)
        for number in (1, 2)
    }
    of_layer = {number: found[2, number] - found[1, number] for number in (1, 2)}
    outside = {number: found[1, number] - of_layer[number] for number in (1, 2)}
    each, rest = ((part[1], part[2] - part[1]) for part in (of_layer, outside))
    return rest[0] + (rows - 1) * rest[1], each[0] + (rows - 1) * each[1]


def _measured(
    encoder: EncoderConfig, training: TrainingConfig, rows: int, tokens: int
) -> int:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = _network(encoder, training).train()
        ids, lengths = (
            torch.full((rows, tokens), encoder.vocabulary - 1),
            torch.full((rows,), tokens),
        )
        weights = {one.untyped_storage().data_ptr() for one in network.parameters()}
        kept: dict[int, Tensor] = {}

        def keep(t: Tensor) -> Tensor:
            if (place := t.untyped_storage().data_ptr()) not in weights:
                kept[place] = t
            return t

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
            if isinstance(training, PretrainingConfig):
                masked = torch.arange(math.ceil(rows * tokens * training.mask_fraction))
                logits = network(ids, lengths, None, masked).tokens
                F.cross_entropy(logits, ids.flatten()[masked])
            else:
                network["encoder"](ids, lengths)  # type: ignore[index]
        return sum(t.untyped_storage().nbytes() for t in kept.values())
