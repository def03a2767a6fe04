"""What a checkpoint's tensors must be, compared before any of them is read or a network is built."""

from collections.abc import Mapping
from pathlib import Path

import torch

from bigbird_dna.config import EncoderConfig
from bigbird_dna.errors import ModelError, shortened
from bigbird_dna.huggingface.names import Architecture, huggingface_name, is_attention_bias, pooler_names
from bigbird_dna.huggingface.tensor_files import StoredTensor
from bigbird_dna.model.directory import build_network
from bigbird_dna.model.settings import Settings

Shapes = dict[str, tuple[int, ...]]


def check_sizes(
    tensors: Mapping[str, StoredTensor], config: EncoderConfig, architecture: Architecture, directory: Path
) -> None:
    """`ModelError` unless the encoder's sizes are those of its embeddings and its layers are there."""
    for part, rows in (
        *(("token", config.vocabulary), ("position", config.positions)),
        ("segment", config.segments),
    ):
        theirs = _theirs(f"encoder.embeddings.{part}.weight", architecture)
        check_tensor(tensors, theirs, (rows, config.hidden), directory)
    for layer in range(config.layers):
        theirs = _theirs(f"encoder.layers.{layer}.query.weight", architecture)
        check_tensor(tensors, theirs, (config.hidden, config.hidden), directory)


def expected_tensors(config: EncoderConfig, settings: Settings, architecture: Architecture) -> Shapes:
    """Shapes by the names there of the tensors of a network, which is not built for it."""
    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        weights = build_network(config, settings).state_dict()
    return {_theirs(name, architecture): tuple(like.shape) for name, like in weights.items()}


def check_tensors(
    tensors: Mapping[str, StoredTensor],
    expected: Mapping[str, tuple[int, ...]],
    architecture: Architecture,
    directory: Path,
    *,
    biases: bool,
) -> None:
    """`ModelError` for a tensor that is missing, unexpected, of another shape or not floating point.

    Without `biases` those of attention may be missing.
    """
    for name, shape in expected.items():
        if biases or name in tensors or not is_attention_bias(name):
            check_tensor(tensors, name, shape, directory)
    hidden = expected[_theirs("encoder.embeddings.norm.weight", architecture)]
    unused = dict(zip(pooler_names(architecture), (hidden * 2, hidden), strict=True))
    for name in sorted(tensors.keys() - expected.keys()):
        if name not in unused:
            found = shortened(repr(name))
            raise ModelError(f"{directory}: unexpected tensor {found}: {architecture.name} has no such part")
        check_tensor(tensors, name, unused[name], directory)


def _theirs(name: str, architecture: Architecture) -> str:
    theirs = huggingface_name(name, architecture)
    assert theirs is not None, name
    return theirs


def check_tensor(
    tensors: Mapping[str, StoredTensor], name: str, shape: tuple[int, ...], directory: Path
) -> None:
    """`ModelError` unless a checkpoint has a tensor of this name and shape, of floating point."""
    if name not in tensors:
        raise ModelError(f"{directory}: tensor {name!r} is missing")
    found = tensors[name]
    if found.shape != shape:
        raise ModelError(
            f"{directory}: tensor {name!r} has shape {shortened(str(found.shape))}, "
            f"config.json asks for {shape}"
        )
    if found.dtype is None:
        raise ModelError(f"{directory}: tensor {name!r} is not floating point, or of a type that is not read")
