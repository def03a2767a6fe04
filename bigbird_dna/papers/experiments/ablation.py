"""The same encoder with one attention mechanism after the other, pretrained for equal steps: bits per base."""

from __future__ import annotations

import math
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from bigbird_dna.config.run import Config
from bigbird_dna.disk.directories import into_directory
from bigbird_dna.errors import ConfigError, DataError
from bigbird_dna.metrics.resampling import sampled_rates
from bigbird_dna.model.directory import load_pretrained
from bigbird_dna.papers.experiments.shared import (
    Trainings,
    changed,
    compare_seeds,
    read_arrays,
)
from bigbird_dna.pretraining.held_out import HeldOut
from bigbird_dna.pretraining.task import PretrainingTask
from bigbird_dna.reporting.result import write_result
from bigbird_dna.reporting.training import read_training_log
from bigbird_dna.tokens.store import TokenStore
from bigbird_dna.training.distributed import World
from bigbird_dna.training.task import train

# Accuracy on masked tokens of text, %, at 512 tokens (Zaheer et al. 2020, Table 1), which has no row of all
# three kinds of blocks.
PUBLISHED = {"full": 64.2, "random": 60.1, "window": 58.3, "random_window": 62.7}
MASKED_INPUTS = 1000  # most test inputs whose masked tokens are scored


def run(config: Config, trainings: Trainings, output: Path) -> list[str]:
    """Pretrain a model per mechanism and seed, all configurations checked first, and compare them.

    All models have as many tokens per step and as many steps. Writes `ablation.tsv`, `.json` and `.md` into
    the directory `output`.
    """
    if not config.has_genome:
        raise ConfigError("ablation: needs a genome.reference to pretrain on")

    ablation, pretraining = config.ablation, config.pretraining
    batch_size = max(1, ablation.batch_tokens // ablation.tokens)
    warmup = min(pretraining.optimizer.warmup_steps, max(1, ablation.steps // 3))
    configs = {}

    for mechanism, seed in product(ablation.mechanisms, ablation.seeds):
        same = mechanism == config.encoder.attention
        options = config.encoder.attention_options if same else {}
        keys = {
            "encoder.attention": mechanism,
            "encoder.attention_options": options,
            "encoder.head_init": ablation.head_init or config.encoder.head_init,
            "encoder.max_length": max(config.encoder.max_length, ablation.tokens),
            "pretraining.steps": ablation.steps,
            "pretraining.sequence_tokens": ablation.tokens,
            "pretraining.batch_size": batch_size,
            "pretraining.grad_accumulation": min(
                pretraining.grad_accumulation, batch_size
            ),
            "pretraining.optimizer.warmup_steps": warmup,
            "pretraining.seed": seed,
        }
        name = f"{mechanism}-seed{seed}"
        configs[mechanism, seed] = changed(config, keys, f"ablation: {name}")

    inputs = [config.paths.token_store("train"), config.paths.tokenizer]
    models = []

    for (mechanism, seed), run in configs.items():
        name = f"{mechanism}-seed{seed}"
        work = partial(pretrain_and_score, run)
        trainings.run(name, run, "pretraining", work, inputs)
        model = trainings.model(name)
        models.append({"mechanism": mechanism, "seed": seed, "model": model})

    if not trainings.complete():
        return []

    table = mechanism_table(config, pd.DataFrame(models))
    table["tokens_per_second"] = (
        ablation.steps * batch_size * ablation.tokens / table["seconds"]
    )
    notes = [
        "Published accuracy on masked tokens, in percent, is for English text (Zaheer et al. 2020, Table 1, "
        "512 tokens), not for the genome of this run.",
        f"Inputs have {ablation.tokens:,} tokens. Bits per base are for masked tokens in test contigs. A "
        f"difference is to {ablation.reference}; below 0, the mechanism is better. Intervals are 95 %, "
        "over test data and seeds. `seconds` are from the logs, and depend on the load of the machine.",
    ]
    title = "Attention mechanisms on the same DNA"
    with into_directory(output) as directory:
        write_result(directory, "ablation", title, table, notes)

    return [f"ablation: {len(table):,} mechanisms"]


def pretrain_and_score(
    config: Config, model: Path, checkpoints: Path, world: World
) -> dict[str, Any]:
    """Pretrain a model, and predict masked test tokens.

    Its directory also gets `predictions.npz` with arrays (T,) of T masked test tokens, which are the same for
    models with equal tokenizer and inputs: `bits` of the model, `bases` that a token covers, and the number
    of its block of sequence in `blocks`.
    """
    pretraining, tokens = config.pretraining, config.paths.tokens

    def score(path: Path) -> None:
        loaded = load_pretrained(path)
        held_out = HeldOut.draw(
            TokenStore(tokens / "test", loaded.tokenizer),
            loaded.tokenizer,
            pretraining.sequence_tokens,
            MASKED_INPUTS,
            pairs=pretraining.next_sentence,
        )
        loaded.network.to(world.device).eval()
        alone = World(0, 1, world.device)
        with torch.inference_mode():
            bits, _ = held_out.predict(loaded.network, loaded.tokenizer, alone)

        np.savez_compressed(
            path / "predictions.npz",
            bits=bits,
            bases=held_out.bases,
            blocks=held_out.blocks,
        )

    task = PretrainingTask(config, tokens, config.paths.tokenizer)

    return train(task, model, checkpoints, world, score)


def mechanism_table(config: Config, models: pd.DataFrame) -> pd.DataFrame:
    """Return bits per base by mechanism, as means over seeds, and the differences to the reference.

    `models` has the columns `mechanism`, `seed` and `model`, the directory of the pretrained model. `seconds`
    are the mean time of the training steps. `DataError` if models had other masked tokens.
    """
    bits: list[Any] = []

    for model in models["model"]:
        path = model / "predictions.npz"
        values, bases, blocks = read_arrays(path, "bits", "bases", "blocks")
        if not bits:
            tokens = bases, blocks

        if not all(map(np.array_equal, tokens, (bases, blocks))):
            raise DataError(
                f"{path}: masked tokens differ from those of {models['model'].iloc[0]}"
            )

        bits.append(values)

    ablation = config.ablation
    table = compare_seeds(
        "bits_per_base",
        sampled_rates(bits, *tokens),
        models,
        ["mechanism"],
        {"mechanism": ablation.reference},
        largest=math.inf,
    )
    table["steps"] = ablation.steps
    logs = models["model"].map(lambda path: read_training_log(path / "training.jsonl"))
    seconds = logs.map(lambda log: log["seconds"].max()).groupby(models["mechanism"])
    table["seconds"] = table["mechanism"].map(seconds.mean())
    table["published_masked_accuracy"] = table["mechanism"].map(PUBLISHED)

    return table
