"""What all trainings have in common: checkpoints that know what they belong to, and a model at the end."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch

from bigbird_dna.calibration.stored import Calibration
from bigbird_dna.config import EncoderConfig, TrainingConfig
from bigbird_dna.console import log
from bigbird_dna.model.directory import build_network, make_model, save
from bigbird_dna.model.model import Model
from bigbird_dna.model.settings import Settings
from bigbird_dna.tokens.interface import Tokenizer
from bigbird_dna.training.distributed import World, chosen_precision
from bigbird_dna.training.loop import Objective, train
from bigbird_dna.training.state import CheckpointStore, Computed, Progress


@dataclass(frozen=True, eq=False)
class Run:
    """A training: the model that learns, and the checkpoints that a killed one goes on from."""

    model: Model
    config: TrainingConfig
    store: CheckpointStore
    world: World

    @classmethod
    def begin(
        cls,
        encoder: EncoderConfig,
        tokenizer: Tokenizer,
        settings: Settings,
        config: TrainingConfig,
        identity: Mapping[str, Any],
        checkpoints: Path,
        world: World,
    ) -> Self:
        """A model with fresh weights, drawn from the training's seed, and the directory of its checkpoints.

        The directory is this training's until `publish`, or until `world` is left: `ModelError` on every
        process if another training of the same identity is running.

        `identity` is what decides the weights beside encoder, tokenizer and training: the data, what was
        pretrained, and the keys of the task. A training of another identity has other checkpoints; one that
        is computed otherwise, by more processes or in another precision, goes on from them.
        """
        whole = {
            "task": settings.task,
            "encoder": encoder.deciding(),
            "training": config.deciding(),
            "tokenizer": tokenizer.sha256,
            **identity,
        }
        former = {
            **whole,
            "encoder": encoder.model_dump(),
            "training": config.deciding_formerly(),
            "processes": world.size,
        }
        store = CheckpointStore(checkpoints, whole, former, _computed(encoder, config, world))
        world.first(lambda: claim(store, world))
        torch.manual_seed(config.seed)
        network = build_network(encoder, settings)
        return cls(make_model(network, tokenizer, encoder, settings), config, store, world)

    def train(self, objective: Objective, what: str) -> Progress:
        """Train the model in place, from its last checkpoint on; the log says `what` it learns from."""
        if self.world.is_first:
            log(f"{what}, {self.world.device}")
        return train(self.model.network, objective, self.config, self.store, self.world)

    def publish(
        self,
        output: Path,
        provenance: dict[str, Any],
        metrics: dict[str, Any],
        files: Mapping[str, Path] | None = None,
        calibration: Calibration | None = None,
    ) -> None:
        """Write the model directory with the training's log and further `files`; delete the checkpoints.

        With `calibration` it can say calibrated probabilities.

        Of `files` those are deleted too that stand beside the checkpoints.
        """
        further = {"training.jsonl": self.store.log_path, **(files or {})}
        save(output, self.model, provenance, metrics, further, calibration=calibration)
        self.store.remove(further.values())


def claim(store: CheckpointStore, world: World) -> None:
    """Keep other trainings from these checkpoints until `world` is left; `ModelError` if one has them."""
    store.claim("this training")
    world.at_end.callback(store.lock.release)


def _computed(encoder: EncoderConfig, config: TrainingConfig, world: World) -> dict[str, Computed]:
    """How a training is computed, which doesn't decide what it ends in."""
    here: dict[str, Computed] = {
        "processes": world.size,
        "accumulate": config.accumulate,
        "precision": chosen_precision(world.device, config.precision),
        "compile_layers": str(config.compile_layers).lower(),
        "gradient_checkpointing": str(encoder.gradient_checkpointing).lower(),
        "route": encoder.route,
        "device": world.device.type,
    }
    if world.device.type == "cpu":
        here["threads"] = torch.get_num_threads()
    return here
