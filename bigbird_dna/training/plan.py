"""Memory of a configuration's trainings, calculated before any of them runs.

Activations that a forward pass keeps for the backward pass grow linearly with layers and rows. They are
measured on the CPU in float32, for one row and one or two layers.
"""

import math
from operator import attrgetter

import pandas as pd
import torch
from torch import Tensor, nn
from torch.nn import functional as F

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

FLOAT = 4  # bytes
SPECIAL_TOKENS = 2  # [CLS] and [SEP]
BFLOAT16 = 0.63
"""Activations in bfloat16 relative to those in float32: measured on one H200."""
GPU_BYTES = {"a100": 80e9, "h100": 80e9, "h200": 141e9}


def plan_memory(
    config: Config,
    length: int | None = None,
    gpu: str | None = None,
    processes: int | None = None,
) -> pd.DataFrame:
    """Return the memory of a process for each training of a configuration, each way to train fewer weights
    (`adapt`), and with and without recomputed activations.

    Columns in GB: `weights`, `gradients`, `moments`, `activations` and `total`; with `gpu`, activations are
    those in bfloat16, and `fits` says whether the total is below the memory of a GPU of this type. `length`
    is that of labeled sequences in bp, which the configuration does not contain; `processes` is the number of
    GPUs of each training, by default that of the configuration.
    """
    trainings: list[tuple[str, TrainingConfig, int, int]] = []
    if config.has_pretraining:
        section = config.pretraining
        tokens = min(section.sequence_tokens, config.encoder.max_length)
        trainings.append(("pretraining", section, config.num_gpus, tokens))

    windows: dict[str, int | None] = {"sequences": length}
    if config.has_promoter_windows:
        windows["promoters"] = sum(config.promoters.windows.sides)

    if config.has_dense:
        windows["promoters.dense"] = config.promoters.dense.window

    if config.has_chromatin:
        windows["chromatin"] = config.chromatin.data.window

    vocabulary = config.encoder.vocabulary or config.tokens.vocabulary
    encoder = config.encoder.model_copy(
        update={"vocabulary": vocabulary, "kmers": 0, "gradient_checkpointing": False}
    )
    for name, bases in windows.items():
        if bases:
            task = attrgetter(name)(config)
            tokens = math.ceil(bases / expected_bases(vocabulary)) + SPECIAL_TOKENS
            tokens = min(encoder.max_length, tokens)
            trainings.append((name, task.training, task.num_gpus, tokens))

    rows = []
    for name, training, num_gpus, tokens in trainings:
        micro_batches = (processes or num_gpus) * training.grad_accumulation
        batch = math.ceil(training.batch_size / micro_batches)
        ways = ("full", "lora", "frozen")
        for way in ways if isinstance(training, FinetuningConfig) else ("full",):
            adapted = training.model_copy(update={"adapt": way})
            with shapes_only():
                parameters = [*_network(encoder, adapted).parameters()]

            trained = [p for p in parameters if p.requires_grad]
            weights = sum(p.numel() for p in parameters)
            gradients = sum(p.numel() for p in trained)
            one_layer, two_layers = (
                batch
                * _saved_bytes(
                    encoder.model_copy(update={"layers": layers}), adapted, tokens
                )
                for layers in (1, 2)
            )
            layer = two_layers - one_layer
            outside = one_layer - layer
            for recomputes in (False, True) if layer else (False,):
                activations = outside + encoder.layers * layer
                if recomputes:  # inputs of all layers, and one layer at a time
                    inputs = batch * tokens * encoder.hidden * FLOAT
                    activations = outside + encoder.layers * min(inputs, layer) + layer

                sizes = {
                    "weights": FLOAT * weights / 1e9,
                    "gradients": FLOAT * gradients / 1e9,
                    "moments": 2 * FLOAT * gradients / 1e9,
                    "activations": activations / 1e9 * (BFLOAT16 if gpu else 1),
                }
                total = sum(sizes.values())
                row = {
                    "training": name,
                    "adapt": way,
                    "gradient_checkpointing": recomputes,
                    "rows": batch,
                    "tokens": tokens,
                    "trained_parameters": gradients,
                    **sizes,
                    "total": total,
                }
                if gpu:
                    row["fits"] = total * 1e9 < GPU_BYTES[gpu]

                rows.append(row)

    return pd.DataFrame(rows)


def _network(encoder: EncoderConfig, training: TrainingConfig) -> nn.Module:
    if not isinstance(training, FinetuningConfig):
        return PretrainingNetwork(encoder)
    network = nn.ModuleDict({"encoder": Encoder(encoder)})
    adapt(network, training)
    return network


def _saved_bytes(encoder: EncoderConfig, training: TrainingConfig, tokens: int) -> int:
    """Return the bytes that a forward pass on one row keeps for the backward pass, without the weights."""
    saved: dict[int, Tensor] = {}  # by address
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = _network(encoder, training).train()
        weights = {p.untyped_storage().data_ptr() for p in network.parameters()}

        def save(tensor: Tensor) -> Tensor:
            address = tensor.untyped_storage().data_ptr()
            if address not in weights:
                saved[address] = tensor
            return tensor

        ids = torch.full((1, tokens), encoder.vocabulary - 1)
        lengths = torch.full((1,), tokens)
        with torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor):
            if isinstance(training, PretrainingConfig):
                masked = torch.arange(math.ceil(tokens * training.mask_fraction))
                logits = network(ids, lengths, None, masked).tokens
                F.cross_entropy(logits, ids.flatten()[masked])
            else:
                network["encoder"](ids, lengths)  # type: ignore[index]

    return sum(tensor.untyped_storage().nbytes() for tensor in saved.values())
