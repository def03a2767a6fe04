"""Pretrained models of one tokenizer on the same hidden tokens of the test contigs."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from bigbird_dna.console import log
from bigbird_dna.disk.atomic import atomic_path, check_writable
from bigbird_dna.disk.tables import read_object, whole_number
from bigbird_dna.errors import DataError, UsageError
from bigbird_dna.model.directory import load_pretrained
from bigbird_dna.model.inference import choose_device
from bigbird_dna.model.model import LoadedModel
from bigbird_dna.model.settings import PretrainingSettings
from bigbird_dna.papers.experiments.ablation_files import split_name
from bigbird_dna.papers.experiments.comparing import check_comparable
from bigbird_dna.papers.experiments.trained_models import pretraining_seconds
from bigbird_dna.pretraining.held_out import HeldOut
from bigbird_dna.tokens.store import TokenStore


def score_masked_tokens(
    models: Mapping[str, Path],
    tokens: Path,
    output: Path,
    *,
    sequence_tokens: int,
    sequences: int = 1000,
    split: str = "test",
    device: str = "auto",
) -> None:
    """Write the bits of the same hidden tokens by models NAME-SEED (.npz), for a paired comparison.

    15 % of the tokens of at most so many `sequences`, spread evenly over the split, are hidden. The file has
    `names`, `steps` and `seconds` (M,) of the trainings, `bits` (M, T), `bases` and `blocks` (T,), and
    `sequence_tokens`. `UsageError` where inputs are longer than a model takes, or a name has no seed;
    `DataError` where models see other tokens.
    """
    for name in models:
        try:
            split_name(name, "a model's name")
        except DataError as error:
            raise UsageError(str(error)) from None
    check_writable(output)
    place = choose_device(device)
    held_out: HeldOut | None = None
    described: list[tuple[Path, Mapping[str, object]]] = []
    bits: list[NDArray[np.float64]] = []
    steps, seconds = [], []
    for name, path in models.items():
        model = load_pretrained(path)
        if sequence_tokens > model.config.positions:
            raise UsageError(f"{path}: takes {model.config.positions} tokens, not {sequence_tokens}")
        if held_out is None:
            held_out = _drawn(model, tokens / split, sequence_tokens, sequences)
        described.append((path, _settings(model)))
        check_comparable(described)
        model.network.to(place).eval()
        with torch.inference_mode():
            bits.append(held_out.bits(model.network, model.tokenizer, place).bits)
        steps.append(_steps(path))
        seconds.append(pretraining_seconds(path))
        log(f"{name}: {bits[-1].sum() / held_out.bases.sum():.4f} bits per base")
    assert held_out is not None
    arrays: dict[str, NDArray[np.generic]] = {
        "names": np.array(list(models)),
        "steps": np.array(steps, np.int64),
        "seconds": np.array(seconds, np.float64),
        "sequence_tokens": np.array([sequence_tokens], np.int64),
        "bits": np.stack(bits),
        "bases": held_out.bases,
        "blocks": held_out.blocks,
    }
    with atomic_path(output) as temporary, temporary.open("wb") as stream:
        np.savez_compressed(stream, **arrays)  # type: ignore[arg-type]


def _drawn(model: LoadedModel, store: Path, sequence_tokens: int, sequences: int) -> HeldOut:
    assert isinstance(model.settings, PretrainingSettings)
    return HeldOut.draw(
        TokenStore.open(store, model.tokenizer),
        model.tokenizer,
        sequence_tokens,
        sequences,
        pairs=model.settings.next_sentence,
        causal=model.config.causal,
    )


def _settings(model: LoadedModel) -> dict[str, object]:
    """What models must have in common to see the same inputs."""
    assert isinstance(model.settings, PretrainingSettings)
    return {
        "tokenizer": model.tokenizer.sha256,
        "pretraining.next_sentence": model.settings.next_sentence,
        "encoder.causal": model.config.causal,
    }


def _steps(path: Path) -> int:
    return whole_number(read_object(path / "metrics.json"), "steps", path / "metrics.json")
