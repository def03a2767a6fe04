"""Pretraining of an encoder, from token stores to a model directory (App. F.1)."""

from pathlib import Path
from typing import Any

import torch

from bigbird_dna.config import Config, PretrainingConfig, complete, stage_values
from bigbird_dna.console import log
from bigbird_dna.disk.atomic import checksum
from bigbird_dna.disk.directories import check_directory
from bigbird_dna.model.directory import encoder_for
from bigbird_dna.model.heads import PretrainingNetwork
from bigbird_dna.model.settings import PretrainingSettings
from bigbird_dna.tasks.pretraining.beginning import begin_with_counts
from bigbird_dna.tasks.pretraining.objective import PretrainingObjective
from bigbird_dna.tasks.run import Run
from bigbird_dna.tokens.store import TokenStore
from bigbird_dna.tokens.text import load_tokenizer
from bigbird_dna.training.distributed import World


def pretrain(
    config: Config, tokens: Path, tokenizer_path: Path, output: Path, checkpoints: Path, world: World
) -> dict[str, Any]:
    """Train or go on training, then publish the model directory `output`; returns its metrics.

    Every process of `world` calls this; the first one writes.

    Raises
    ------
    ConfigError
        Inputs are longer than the encoder's positions, or a batch can't be divided among processes.
    """
    check_directory(output, [tokens, tokenizer_path, checkpoints])
    settings, tokenizer = complete(config).pretraining, load_tokenizer(tokenizer_path)
    causal = config.encoder.causal
    train_store, valid_store = (  # one process looks for damage
        TokenStore.open(tokens / split, tokenizer, verify=world.is_first) for split in ("train", "valid")
    )
    run = Run.begin(
        encoder_for(config.encoder, tokenizer),
        tokenizer,
        _settings(settings, causal),
        settings,
        {"data": [train_store.info, valid_store.info]},
        checkpoints,
        world,
    )
    assert isinstance(run.model.network, PretrainingNetwork)
    if settings.initial_embeddings == "neighbours" and world.is_first and not run.store.exists:
        # All processes begin with the first one's weights.
        begin_with_counts(run.model.network, train_store)
    parameters = sum(p.numel() for p in run.model.network.parameters())
    objective = PretrainingObjective(tokenizer, train_store, valid_store, settings, world, causal=causal)
    what = f"{parameters:,} parameters, {len(train_store.tokens):,} training tokens"
    progress = run.train(objective, what)
    with torch.inference_mode():
        # In float32, whatever the training's precision was.
        figures = objective.evaluate(run.model.network)
    world.leave()
    if not world.is_first:
        return figures
    metrics = {
        **figures,
        "split": "valid",
        "steps": progress.step,
        "tokens_seen": progress.tokens,
        "parameters": parameters,
    }
    provenance = {
        "configuration": stage_values(config, "pretraining"),
        "data": {"train": train_store.info, "valid": valid_store.info},
        "tokenizer_sha256": checksum(tokenizer_path),
        # What fine-tuning looks up, which may hold out something else.
        **{key: value for key, value in train_store.info.items() if key in ("contigs", "stretches")},
    }
    run.publish(output, provenance, metrics)
    log(f"held out: {figures['bits_per_base']:.4f} bits per base")
    return metrics


def _settings(config: PretrainingConfig, causal: bool) -> PretrainingSettings:
    """Of the model; only a causal one says how much it reads."""
    if causal:
        return PretrainingSettings(next_sentence=False, context=config.sequence_tokens)
    return PretrainingSettings(next_sentence=config.next_sentence)
