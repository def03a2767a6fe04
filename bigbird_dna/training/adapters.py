"""Fine-tuning of few weights: a frozen encoder, or low-rank updates of its matrices (LoRA).

Low-rank updates (Hu et al. 2021, arXiv 2106.09685, section 4.1) leave a pretrained matrix W fixed and train
W + alpha / rank · B A, with B (outputs, rank), which begins at zero, and A (rank, inputs). After training
they are added to W, so a model directory contains an ordinary model.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from bigbird_dna.config.training import FinetuningConfig, LoraConfig
from bigbird_dna.model.encoder import Encoder


class LowRank(nn.Module):
    """The update of a matrix (outputs, inputs), added to its fixed values."""

    def __init__(self, matrix: Tensor, lora: LoraConfig) -> None:
        super().__init__()
        outputs, inputs = matrix.shape
        self.scale = lora.alpha / lora.rank
        self.a = nn.Parameter(torch.randn(lora.rank, inputs) / inputs**0.5)
        self.b = nn.Parameter(torch.zeros(outputs, lora.rank))

    def forward(self, matrix: Tensor) -> Tensor:
        return matrix + self.scale * (self.b @ self.a)


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


def adapt(network: nn.Module, config: FinetuningConfig) -> Adaptation | None:
    """Fix the encoders of a network as configured, with updates of their matrices; None: all is trained."""
    if config.adapt == "full":
        return None

    adaptation = Adaptation(network)
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
                adaptation.updates[f"{prefix}.layers.{number}.{matrix}.weight"] = update

    adaptation.trained = sum(
        one.numel() for one in network.parameters() if one.requires_grad
    )
    return adaptation


def _encoders(network: nn.Module) -> dict[str, Encoder]:
    return {
        name: part
        for name, part in network.named_modules()
        if isinstance(part, Encoder)
    }
