"""What a step of pretraining takes: time and memory of a configuration, at several lengths of input.

A step is the one that training makes, by the same kernels and in the same micro-batches. Making batches,
measuring on held-out data and saving checkpoints are no part of it.

Time on a CPU is that of processors: what else the machine does counts little, and with one thread it is what
an idle machine's clock would show. On a GPU it is the clock's.
"""

import gc
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bigbird_dna.config import Config, EncoderConfig, PretrainingConfig, complete
from bigbird_dna.console import log
from bigbird_dna.disk.atomic import check_writable, write_json
from bigbird_dna.model.directory import build_network, encoder_for
from bigbird_dna.model.heads import PretrainingOutput
from bigbird_dna.model.inference import choose_device
from bigbird_dna.model.settings import PretrainingSettings
from bigbird_dna.tokens.text import load_tokenizer
from bigbird_dna.training.distributed import World, autocast
from bigbird_dna.training.measuring import begin_memory_peak, chosen_kernels, memory_peak
from bigbird_dna.training.optimizers import make_optimizer

FORMAT = 1
_FEWEST, _MOST, _SECONDS = 3, 30, 2.0  # steps that are measured: so many, or as many as this time has
_FIRST_TOKENS = 64  # of a step beforehand, which loads or compiles what all steps need
_MIB = 2**20


def measure_training(
    config: Config,
    tokenizer: Path,
    output: Path,
    *,
    tokens: Sequence[int] = (),
    batch_tokens: int | None = None,
    device: str = "auto",
) -> dict[str, Any]:
    """Write, as JSON, the time and memory of steps of pretraining on random tokens; returns what is written.

    `tokens` are lengths of inputs (none: the configuration's), a step has `batch_tokens` or one longer input.
    Each row has the median `seconds` of a step, `tokens_per_second` and `peak_mib`, the most memory above
    what was there before the network, null where the system can't say.
    """
    check_writable(output)
    settings = complete(config).pretraining
    lengths = sorted({*tokens} or {settings.sequence_tokens})
    positions = max(config.encoder.max_length, *lengths)
    encoder = encoder_for(
        config.encoder.model_copy(update={"max_length": positions}), load_tokenizer(tokenizer)
    )
    place = choose_device(device)
    _measure(encoder, settings, (1, _FIRST_TOKENS), place, steps=1)
    rows = []
    for length in lengths:
        count = settings.batch_size if batch_tokens is None else max(1, batch_tokens // length)
        rows.append(_measure(encoder, settings, (count, length), place))
        log(f"{length:,} tokens × {count:,}: {rows[-1]['tokens_per_second']:,.0f} tokens/s")
    found = {
        "format": FORMAT,
        "attention": encoder.attention,
        "attention_options": encoder.attention_options,
        "parameters": sum(p.numel() for p in _network(encoder, settings).parameters()),
        "device": place.type,
        "threads": torch.get_num_threads(),
        "clock": "processor" if place.type == "cpu" else "wall",
        "lengths": rows,
    }
    write_json(output, found)
    return found


def _network(encoder: EncoderConfig, settings: PretrainingConfig) -> nn.Module:
    return build_network(encoder, PretrainingSettings(next_sentence=settings.next_sentence))


def _measure(
    encoder: EncoderConfig,
    settings: PretrainingConfig,
    shape: tuple[int, int],
    device: torch.device,
    steps: int = _MOST,
) -> dict[str, Any]:
    """One length; `shape` (B, L) of a step's inputs."""
    before = begin_memory_peak(device)
    network = _network(encoder, settings).to(device).train()
    step = _step(network, encoder, settings, shape, device)
    seconds: list[float] = []
    with chosen_kernels(network, settings, World(0, 1, device)):
        while len(seconds) <= steps and (len(seconds) <= _FEWEST or sum(seconds) < _SECONDS):
            began = _clock(device)
            step()
            seconds.append(_clock(device) - began)
    highest = memory_peak(device)
    del step, network
    gc.collect()
    middle = float(np.median(seconds[1:] or seconds))  # the first one makes plans and moments
    return {
        "tokens": shape[1],
        "sequences": shape[0],
        "seconds": middle,
        "seconds_of_steps": seconds[1:],
        "tokens_per_second": shape[0] * shape[1] / middle,
        "peak_mib": None if before is None or highest is None else (highest - before) / _MIB,
    }


def _step(
    network: nn.Module,
    encoder: EncoderConfig,
    settings: PretrainingConfig,
    shape: tuple[int, int],
    device: torch.device,
) -> Callable[[], None]:
    """A function that trains a fresh network by one step on the same random tokens."""
    optimizer = make_optimizer(network, settings.optimizer)
    parts = _micro_batches(encoder, settings, shape, device)
    masked = sum(len(labels) for _, labels in parts)
    cast = autocast(device, settings.precision)

    def step() -> None:
        for inputs, labels in parts:
            with cast:
                made: PretrainingOutput = network(*inputs)
                loss = F.cross_entropy(made.tokens.float(), labels, reduction="sum") / masked
                if made.next_sentence is not None:
                    loss = loss + made.next_sentence.float().square().mean() / len(parts)
            loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(network.parameters(), settings.optimizer.clip_norm)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def _micro_batches(
    encoder: EncoderConfig, settings: PretrainingConfig, shape: tuple[int, int], device: torch.device
) -> list[tuple[tuple[Tensor, ...], Tensor]]:
    """The network's inputs and what is to be told of them, in as many parts as a step of training has."""
    generator = torch.Generator().manual_seed(settings.seed)
    ids = torch.randint(encoder.vocabulary, shape, generator=generator)
    # A causal model tells every token.
    share = 1.0 if encoder.causal else settings.mask_fraction
    hidden = torch.rand(shape, generator=generator) < share
    hidden[0, 0] = True
    # A step has no more micro-batches than inputs, which are divided as evenly as they can be.
    count = min(settings.grad_accumulation, shape[0])
    bounds = [shape[0] * part // count for part in range(count + 1)]
    parts = []
    for rows in (slice(first, end) for first, end in pairwise(bounds)):
        own, masked = ids[rows], hidden[rows].flatten().nonzero()[:, 0]
        lengths = torch.full(own.shape[:1], shape[1])
        inputs = (own, lengths, torch.zeros_like(own), masked)
        parts.append((tuple(value.to(device) for value in inputs), own.flatten()[masked].to(device)))
    return parts


def _clock(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        return time.perf_counter()
    return time.process_time()
