"""Checkpoints of a running training: written whole, found again by the same configuration and data."""

import hashlib
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from torch import nn

from bigbird_dna.console import log
from bigbird_dna.errors import ModelError
from bigbird_dna.files import atomic_path


def fingerprint(identity: dict[str, Any]) -> str:
    """Twelve hexadecimal digits of all that determines a training's result."""
    text = json.dumps(identity, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


@dataclass
class Progress:
    """How far a training is: steps done, tokens seen, and the sums behind the next line of its log."""

    step: int = 0
    tokens: int = 0
    loss_sum: float = 0.0
    loss_steps: int = 0


class CheckpointStore:
    """The checkpoint of one training, in a directory named after its fingerprint.

    A changed configuration or data set has another fingerprint and so starts anew, without touching what
    the earlier one left.
    """

    def __init__(self, directory: Path, identity: dict[str, Any]) -> None:
        self.directory = Path(directory) / fingerprint(identity)
        self.path = self.directory / "state.pt"
        self.log_path = self.directory / "training.jsonl"

    def save(self, network: nn.Module, optimizer: torch.optim.Optimizer, progress: Progress) -> None:
        """Replace the checkpoint; a kill at any moment leaves the old one or the new one whole."""
        with atomic_path(self.path) as temporary, temporary.open("wb") as stream:
            torch.save(
                {
                    "network": network.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "progress": vars(progress),
                },
                stream,
            )
            stream.flush()
            os.fsync(stream.fileno())

    def restore(self, network: nn.Module, optimizer: torch.optim.Optimizer) -> Progress:
        """Load the checkpoint into `network` and `optimizer`; without one, progress is at step 0."""
        if not self.path.exists():
            return Progress()
        # weights_only: tensors and plain containers, never code.
        try:
            state = torch.load(self.path, map_location="cpu", weights_only=True)
        except (OSError, RuntimeError, EOFError, UnpicklingError):
            raise ModelError(f"{self.path}: damaged; delete it to train from the start") from None
        network.load_state_dict(state["network"])
        optimizer.load_state_dict(state["optimizer"])
        progress = Progress(**state["progress"])
        log(f"resuming at step {progress.step} from {self.path}")
        return progress

    def remove(self) -> None:
        """Delete the checkpoint of a training whose model is published."""
        shutil.rmtree(self.directory, ignore_errors=True)
