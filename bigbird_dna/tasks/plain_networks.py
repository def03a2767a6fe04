"""Trainings of networks that are no models of DNA: the same loop and checkpoints, and a directory at the end.

The directory has `result.json`, the training's log, the encoder's keys and the weights. It is no model
directory: there is no tokenizer.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from safetensors.torch import save_file
from torch import nn

from bigbird_dna.config import EncoderConfig, TrainingConfig
from bigbird_dna.console import log
from bigbird_dna.disk.atomic import write_json
from bigbird_dna.disk.directories import atomic_directory
from bigbird_dna.tasks.run import claim
from bigbird_dna.training.distributed import World
from bigbird_dna.training.loop import Objective, train
from bigbird_dna.training.state import CheckpointStore, Progress

Network = TypeVar("Network", bound=nn.Module)

RESULT = "result.json"


@dataclass(frozen=True, eq=False)
class PlainRun(Generic[Network]):
    """A training of such a network: it learns in place, and a killed one goes on from its checkpoints."""

    network: Network
    encoder: EncoderConfig
    config: TrainingConfig
    store: CheckpointStore
    world: World

    @classmethod
    def begin(
        cls,
        build: Callable[[EncoderConfig], Network],
        encoder: EncoderConfig,
        config: TrainingConfig,
        identity: Mapping[str, Any],
        checkpoints: Path,
        world: World,
    ) -> "PlainRun[Network]":
        """A network with weights drawn from the training's seed.

        `identity` is what decides them beside encoder and training. The checkpoints are this training's until
        `publish`, or until `world` is left: `ModelError` if another of the same identity is running.
        """
        whole = {**identity, "encoder": encoder.deciding(), "training": config.deciding()}
        store = CheckpointStore(checkpoints, whole)
        world.first(lambda: claim(store, world))
        torch.manual_seed(config.seed)
        return cls(build(encoder), encoder, config, store, world)

    @property
    def parameters(self) -> int:
        """Numbers that are learnt."""
        return sum(parameter.numel() for parameter in self.network.parameters())

    def train(self, objective: Objective, what: str) -> Progress:
        """Train from the last checkpoint on; the log says `what`."""
        if self.world.is_first:
            log(f"{what}, {self.parameters:,} parameters, {self.world.device}")
        return train(self.network, objective, self.config, self.store, self.world)

    def publish(self, output: Path, result: Mapping[str, Any]) -> None:
        """Write the directory and delete the checkpoints."""
        with atomic_directory(output) as directory:
            weights = {name: value.cpu().contiguous() for name, value in self.network.state_dict().items()}
            save_file(weights, directory / "weights.safetensors")
            write_json(directory / "encoder.json", self.encoder.model_dump(mode="json"))
            write_json(directory / RESULT, dict(result))
            if self.store.log_path.exists():
                (directory / "training.jsonl").write_bytes(self.store.log_path.read_bytes())
        self.store.remove()
