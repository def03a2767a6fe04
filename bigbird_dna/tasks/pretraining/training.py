"""Pretraining of an encoder, and the n-gram that it is measured beside (App. F.1)."""

import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from bigbird_dna.baselines.ngram import KneserNey
from bigbird_dna.config import Config, PretrainingConfig, complete, stage_values
from bigbird_dna.console import log
from bigbird_dna.directories import check_directory
from bigbird_dna.files import checksum
from bigbird_dna.model.directory import encoder_for
from bigbird_dna.model.settings import PretrainingSettings
from bigbird_dna.tasks.pretraining.held_out import HeldOut
from bigbird_dna.tasks.pretraining.objective import PretrainingObjective
from bigbird_dna.tasks.pretraining.sampling import document_bounds
from bigbird_dna.tasks.run import Run
from bigbird_dna.tokens.interface import Tokenizer
from bigbird_dna.tokens.opening import load_tokenizer
from bigbird_dna.tokens.store import TokenStore
from bigbird_dna.training.distributed import World

NGRAM_TOKENS = 5_000_000


class NgramBaseline(NamedTuple):
    """The best n-gram and its bits per base."""

    bits_per_base: float
    order: int


def ngram_baseline(
    train_store: TokenStore,
    valid_store: TokenStore,
    tokenizer: Tokenizer,
    config: PretrainingConfig,
    held_out: HeldOut,
) -> NgramBaseline:
    """Bits per base of interpolated Kneser–Ney n-grams on the hidden tokens, and the order that does best.

    They are fitted on the tokens of one pass over the training contigs, or of documents spread over it that
    hold 5 M, and predict each token from those before it, the masked-token model from both sides: the
    comparison is the paper's (SRILM against BERT). All orders up to `config.ngram_order` are tried on the
    held-out tokens themselves, so the choice favours the baseline.
    """
    training = _training_tokens(train_store, NGRAM_TOKENS)
    bounds = document_bounds(valid_store)
    # Tokens in a document of those that are hidden there.
    hidden = {
        int(document): held_out.tokens[own] - bounds[document]
        for document, own in _groups(np.searchsorted(bounds, held_out.tokens, side="right") - 1)
    }
    documents = {
        document: np.asarray(valid_store.tokens[bounds[document] : bounds[document + 1]])
        for document in hidden
    }
    found = []
    for order in range(1, config.ngram_order + 1):
        model = KneserNey(order, tokenizer.vocabulary)
        model.fit(training)
        bits = -sum(
            float(model.log2_probabilities(documents[document])[own].sum())
            for document, own in hidden.items()
        )
        found.append(NgramBaseline(bits / float(held_out.bases.sum()), order))
    return min(found)


def _groups(numbers: npt.NDArray[np.integer]) -> list[tuple[int, npt.NDArray[np.intp]]]:
    """Each number of an ascending array, and where it stands."""
    values, starts = np.unique(numbers, return_index=True)
    parts = np.split(np.arange(len(numbers)), starts[1:])
    return [(int(value), part) for value, part in zip(values, parts, strict=True)]


def _training_tokens(store: TokenStore, limit: int) -> list[npt.NDArray[np.integer]]:
    """Tokens of documents of the store's first pass, all of them or evenly spread ones with about `limit`.

    Of a store of both strands the first two. Later passes cut the same sequence at other places: an n-gram
    model must not count it again.
    """
    bounds = document_bounds(store)
    strands = 2 if store.info.get("strands") == "both" and store.info["passes"] > 1 else 1
    count = math.ceil(store.info["documents"] * strands / max(store.info["passes"], 1))
    share = min(1.0, limit / max(int(bounds[count]), 1))
    chosen = np.unique(np.linspace(0, count - 1, max(1, round(count * share))).round().astype(int))
    return [np.asarray(store.tokens[bounds[index] : bounds[index + 1]]) for index in chosen]


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
    train_store, valid_store = (  # one process looks for damage
        TokenStore.open(tokens / split, tokenizer, verify=world.is_first) for split in ("train", "valid")
    )
    run = Run.begin(
        encoder_for(config.encoder, tokenizer),
        tokenizer,
        PretrainingSettings(next_sentence=settings.next_sentence),
        settings,
        {"data": [train_store.info, valid_store.info]},
        checkpoints,
        world,
    )
    parameters = sum(p.numel() for p in run.model.network.parameters())
    objective = PretrainingObjective(tokenizer, train_store, valid_store, settings, world)
    what = f"{parameters:,} parameters, {len(train_store.tokens):,} training tokens"
    progress = run.train(objective, what)
    with torch.inference_mode():
        # In float32, whatever the training's precision was.
        figures = objective.evaluate(run.model.network)
    world.leave()
    if not world.is_first:
        return figures
    log("fitting the n-gram baseline")
    ngram = ngram_baseline(train_store, valid_store, tokenizer, settings, objective.held_out)
    metrics = {
        **figures,
        "ngram_bits_per_base": ngram.bits_per_base,
        "ngram_order": ngram.order,
        "uniform_bits_per_base": 2.0,  # what knowing nothing costs
        "split": "valid",
        "steps": progress.step,
        "tokens_seen": progress.tokens,
        "parameters": parameters,
    }
    provenance = {
        "configuration": stage_values(config, "pretraining"),
        "data": {"train": train_store.info, "valid": valid_store.info},
        "tokenizer_sha256": checksum(tokenizer_path),
        "contigs": train_store.info["contigs"],
    }
    run.publish(output, provenance, metrics)
    bits, theirs = figures["bits_per_base"], ngram.bits_per_base
    log(f"held out: {bits:.4f} bits per base, n-gram {theirs:.4f}")
    return metrics
