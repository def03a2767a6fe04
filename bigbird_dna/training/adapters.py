"""Fine-tuning of few weights: a frozen encoder, or low-rank updates of its matrices (LoRA).

Low-rank updates (Hu et al. 2021, arXiv 2106.09685, section 4.1) leave a pretrained matrix W fixed and train
W + alpha / rank · B A, with B (outputs, rank), which begins at zero, and A (rank, inputs). After training
they are added to W, so a model directory contains an ordinary model. The trained tensors are also stored
alone: together with the initial model they give the same model.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.utils import parametrize

from bigbird_dna.config import FinetuningConfig, LoraConfig
from bigbird_dna.errors import ModelError, error_text
from bigbird_dna.model.encoder import Encoder
from bigbird_dna.model.weights import check_finite

ADAPTER = "adapter.safetensors"
_ABOUT, _SCALE, _BASE, _A, _B = "adapter", "scale", "base_sha256", ".lora_a", ".lora_b"


class LowRank(nn.Module):
    """The update of a matrix (outputs, inputs), added to its fixed values."""

    def __init__(self, matrix: Tensor, lora: LoraConfig) -> None:
        super().__init__()
        outputs, inputs = matrix.shape
        self.scale = lora.alpha / lora.rank
        self.a = nn.Parameter(torch.randn(lora.rank, inputs) / inputs**0.5)
        self.b = nn.Parameter(torch.zeros(outputs, lora.rank))

    def forward(self, matrix: Tensor) -> Tensor:
        return updated(matrix, self.a, self.b, self.scale)


def updated(matrix: Tensor, a: Tensor, b: Tensor, scale: float) -> Tensor:
    """A matrix (outputs, inputs) with its low-rank update."""
    return matrix + scale * (b @ a)


@dataclass
class Adaptation:
    """The trained part of a network: everything outside its encoders, and updates of their matrices."""

    network: nn.Module
    updates: dict[str, LowRank] = field(default_factory=dict)  # by name of the matrix
    trained: int = 0  # number of trained parameters

    def merge(self) -> None:
        """Add the updates to their matrices, which become ordinary parameters again."""
        for name in self.updates:
            linear = self.network.get_submodule(name.rpartition(".")[0])
            parametrize.remove_parametrizations(
                linear, "weight", leave_parametrized=True
            )
        self.network.requires_grad_(True)

    def save(self, path: Path, base: str, *more: str) -> None:
        """Write the merged network's trained tensors, and encoder tensors whose names end in `more`.

        `base` is the SHA-256 of the initial model's weights, which is stored with them.
        """
        state = self.network.state_dict()
        fixed = tuple(f"{name}." for name in _encoders(self.network))
        kept = {
            name: t
            for name, t in state.items()
            if not name.startswith(fixed) or name.endswith(more)
        }
        for name, update in self.updates.items():
            kept |= {f"{name}{_A}": update.a.detach(), f"{name}{_B}": update.b.detach()}
        scale = next((update.scale for update in self.updates.values()), 0.0)
        save_file(
            {
                name: t.cpu().clone(memory_format=torch.contiguous_format)
                for name, t in kept.items()
            },
            path,
            # One entry: safetensors writes several in any order, and files of one seed shall be equal.
            metadata={_ABOUT: json.dumps({_SCALE: scale, _BASE: base})},
        )
        path.chmod(0o644)  # safetensors creates a private file


def adapt(network: nn.Module, config: FinetuningConfig) -> Adaptation | None:
    """Fix the encoders of a network as configured, with updates of their matrices; None: all is trained."""
    if config.adapt == "full":
        return None
    found = Adaptation(network)
    for prefix, encoder in _encoders(network).items():
        encoder.requires_grad_(False)
        for number, layer in enumerate(
            encoder.layers if config.adapt == "lora" else ()
        ):
            for matrix in config.lora.matrices:
                linear = getattr(layer, matrix)
                if linear is None:  # a mechanism whose keys are its queries
                    continue
                update = LowRank(linear.weight, config.lora)
                parametrize.register_parametrization(linear, "weight", update)
                found.updates[f"{prefix}.layers.{number}.{matrix}.weight"] = update
    found.trained = sum(
        one.numel() for one in network.parameters() if one.requires_grad
    )
    return found


def _encoders(network: nn.Module) -> dict[str, Encoder]:
    return {
        name: part
        for name, part in network.named_modules()
        if isinstance(part, Encoder)
    }


def base_of(path: Path) -> str:
    """Return the SHA-256 of the initial model of an adapter file; errors as in `apply_adapter`."""
    return _read(path)[2]


def apply_adapter(network: nn.Module, base: Mapping[str, Tensor], path: Path) -> None:
    """Fill a network with the tensors `base` of its initial encoder and those of an adapter file.

    `ModelError`: the file is missing or damaged, or its tensors are not those of this network and encoder.
    """
    tensors, scale, _ = _read(path)
    state = network.state_dict()
    for prefix in _encoders(network):
        for name, value in base.items():
            tensors.setdefault(f"{prefix}.{name}", value)
    for name in [name.removesuffix(_A) for name in tensors if name.endswith(_A)]:
        a, b = (tensors.pop(f"{name}{part}", None) for part in (_A, _B))
        matrix = tensors.get(name)
        if matrix is None or a is None or b is None or not _fits(matrix, a, b):
            raise ModelError(
                f"{path}: the update of {name!r} does not fit the initial model"
            )
        tensors[name] = updated(matrix, a, b, scale)
    for name in sorted(state.keys() ^ tensors.keys()):
        raise ModelError(
            f"{path}: tensor {name!r} is {'missing' if name in state else 'unexpected'}"
        )
    for name, value in tensors.items():
        if value.shape != state[name].shape:
            raise ModelError(
                f"{path}: tensor {name!r} does not have the shape of config.json"
            )
        check_finite(value, name, path)
    network.load_state_dict(tensors)


def _fits(matrix: Tensor, a: Tensor, b: Tensor) -> bool:
    """Whether b @ a has the shape of the matrix."""
    return (
        a.dim() == b.dim() == 2
        and len(a) == b.shape[1]
        and (len(b), a.shape[1]) == tuple(matrix.shape)
    )


def _read(path: Path) -> tuple[dict[str, Tensor], float, str]:
    """Return the tensors of an adapter file, the scale of updates, and the checksum of the initial model."""
    try:
        with safe_open(path, "pt") as stream:
            about = json.loads((stream.metadata() or {})[_ABOUT])
            tensors = {name: stream.get_tensor(name).float() for name in stream.keys()}  # noqa: SIM118
            return tensors, float(about[_SCALE]), about[_BASE]
    except FileNotFoundError:
        raise ModelError(
            f"{path}: file not found; training with adapt frozen or lora writes it"
        ) from None
    except Exception as error:
        raise ModelError(f"{path}: damaged: {error_text(error)}") from None
