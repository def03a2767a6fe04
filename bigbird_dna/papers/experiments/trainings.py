"""Trainings and measurements that several experiments compare, each with its predictions of test data."""

from __future__ import annotations

import gc
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from bigbird_dna.config.network import EncoderConfig
from bigbird_dna.config.reading import complete
from bigbird_dna.config.run import Config
from bigbird_dna.config.training import PretrainingConfig
from bigbird_dna.console import log
from bigbird_dna.finetuning.chromatin import ChromatinTask
from bigbird_dna.finetuning.evaluation import evaluate_models
from bigbird_dna.finetuning.promoters import PromoterTask
from bigbird_dna.genome.reference import Reference
from bigbird_dna.model.directory import build_network, encoder_for, load_pretrained
from bigbird_dna.model.settings import PretrainingSettings
from bigbird_dna.papers.experiments.arms import Arm, reference_of
from bigbird_dna.pretraining.held_out import HeldOut
from bigbird_dna.pretraining.task import PretrainingObjective
from bigbird_dna.tokens.interface import Tokenizer
from bigbird_dna.tokens.store import TokenStore
from bigbird_dna.tokens.text import load_tokenizer
from bigbird_dna.training.distributed import World, autocast
from bigbird_dna.training.log import begin_memory_peak, chosen_kernels, memory_peak
from bigbird_dna.training.loop import Batch, backward, make_optimizer, prefetched
from bigbird_dna.training.task import train


def finetune_promoter(
    arm: Arm, world: World, negative_set: str, windows: Path | None = None
) -> dict[str, Any]:
    """Fine-tune a promoter model; its directory has `predictions.parquet`."""
    run = arm.run
    task = PromoterTask(
        arm.config,
        run.model_tokenizer,
        arm.initialization,
        windows or run.paths.windows,
        Reference(reference_of(run, "promoters")),
        negative_set,
        False,
    )
    return train(task, arm.model, arm.checkpoints, world)


def finetune_chromatin(
    arm: Arm, world: World, window: int | None = None
) -> dict[str, Any]:
    """Fine-tune a chromatin model, and predict the test bins into `predictions.npy` of its directory."""
    run = arm.run
    data, reference = run.paths.chromatin_data, run.paths.reference
    task = ChromatinTask(
        arm.config,
        run.model_tokenizer,
        arm.initialization,
        data,
        Reference(reference),
        window or arm.config.chromatin.data.window,
        0,
    )

    def predict(model: Path) -> None:
        evaluate_models(
            [model],
            run.chromatin.evaluation,
            data=data,
            reference=reference,
            output=model / "predictions.npy",
            device=world.device.type,
        )

    return train(task, arm.model, arm.checkpoints, world, predict)


# The cost of a pretraining step, and bits of masked tokens

LEAST_STEPS, MOST_STEPS, SECONDS = 3, 30, 2.0  # of a measurement


def measure_cost(
    config: Config,
    tokenizer: Path,
    lengths: Sequence[int],
    batch_tokens: int,
    device: torch.device,
) -> dict[str, Any]:
    """Return time and memory of pretraining steps on random tokens, for each input length in tokens; a step
    has `batch_tokens` tokens, or one longer input. `peak_mib` is the peak memory minus that before the
    network was built, None if the system does not report it.

    A measured step is equal to a training step, with the same kernels and micro-batches, but without making
    batches, evaluation on held-out data and checkpoints. On a CPU, the CPU time is measured, which is hardly
    affected by other processes; on a GPU, the wall-clock time.
    """
    settings, reader = complete(config).pretraining, load_tokenizer(tokenizer)
    positions = max(config.encoder.max_length, *lengths)
    encoder = config.encoder.model_copy(update={"max_length": positions})
    encoder = encoder_for(encoder, reader)
    # The first step loads or compiles what all steps need.
    _measure(encoder, reader, settings, 1, 64, device, most_steps=1)
    rows = []
    for length in sorted(set(lengths)):
        count = max(1, batch_tokens // length)
        rows.append(_measure(encoder, reader, settings, count, length, device))
        speed = rows[-1]["tokens_per_second"]
        log(f"{length:,} tokens × {count:,}: {speed:,.0f} tokens/s")
    return {
        "attention": encoder.attention,
        "attention_options": dict(encoder.attention_options),
        "device": device.type,
        "threads": torch.get_num_threads(),
        "clock": "processor" if device.type == "cpu" else "wall",
        "lengths": rows,
    }


def _measure(
    encoder: EncoderConfig,
    tokenizer: Tokenizer,
    settings: PretrainingConfig,
    sequences: int,
    tokens: int,
    device: torch.device,
    most_steps: int = MOST_STEPS,
) -> dict[str, Any]:
    """Return the cost of steps with this number of inputs, and of tokens per input."""
    before = begin_memory_peak(device)
    task = PretrainingSettings(next_sentence=settings.next_sentence)
    network = build_network(encoder, task, tokenizer).to(device).train()
    world = World(0, 1, device)
    objective = RandomTokens(encoder, settings, (sequences, tokens))
    # Each micro-batch needs at least one input.
    accumulation = min(settings.grad_accumulation, sequences)
    sizes = {"batch_size": sequences, "grad_accumulation": accumulation}
    training = settings.model_copy(update=sizes)
    _, batches = next(prefetched(objective, training, world, 0))
    counts = [objective.counts(batch) for batch in batches]
    totals = {key: sum(count[key] for count in counts) for key in counts[0]}
    optimizer = make_optimizer(network, settings.optimizer)
    cast = autocast(device, settings.precision)
    seconds: list[float] = []
    with chosen_kernels(network, settings, world):
        while len(seconds) <= most_steps and (
            len(seconds) <= LEAST_STEPS or sum(seconds) < SECONDS
        ):
            start = _clock(device)
            backward(network, objective, batches, totals, world, cast)
            nn.utils.clip_grad_norm_(network.parameters(), settings.optimizer.clip_norm)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            seconds.append(_clock(device) - start)
    peak = memory_peak(device)
    del batches, objective, optimizer, network
    gc.collect()
    step = float(np.median(seconds[1:] or seconds))  # the first one initializes
    memory = None if before is None or peak is None else (peak - before) / 2**20
    return {
        "tokens": tokens,
        "sequences": sequences,
        "seconds": step,
        "tokens_per_second": sequences * tokens / step,
        "peak_mib": memory,
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
        fraction = 1.0 if encoder.causal else settings.mask_fraction
        hidden = torch.rand(shape, generator=generator) < fraction
        hidden[0, 0] = True
        masked = hidden.flatten().nonzero()[:, 0]
        self.tokens = {
            "ids": ids,
            "segments": torch.zeros_like(ids),
            "lengths": torch.full(shape[:1], shape[1]),
            "masked": masked,
            "labels": ids.flatten()[masked],
            "next_sentence": torch.zeros_like(ids[:, 0]),
        }

    def batch(self, step: int, first: int, count: int) -> Batch:
        return self.tokens


def _clock(device: torch.device) -> float:
    if device.type == "cpu":
        return time.process_time()
    torch.get_device_module(device).synchronize()
    return time.perf_counter()


def score_masked_tokens(
    path: Path, tokens: Path, sequence_tokens: int, device: torch.device
) -> None:
    """Write `predictions.npz` of a pretrained model: the bits of masked test tokens, 15 % of the tokens of at
    most 1,000 inputs, the same for models with equal tokenizer and task. The file has `bits`, `bases` and
    `blocks` (T,) of T masked tokens."""
    model = load_pretrained(path)
    assert isinstance(model.settings, PretrainingSettings)
    held_out = HeldOut.draw(
        TokenStore(tokens / "test", model.tokenizer),
        model.tokenizer,
        sequence_tokens,
        1000,
        pairs=model.settings.next_sentence,
        causal=model.config.causal,
    )
    model.network.to(device).eval()
    with torch.inference_mode():
        bits = held_out.bits(model.network, model.tokenizer, device).bits
    np.savez_compressed(
        path / "predictions.npz",
        bits=bits,
        bases=held_out.bases,
        blocks=held_out.blocks,
    )
