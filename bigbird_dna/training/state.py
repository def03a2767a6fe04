"""Checkpoints of a running training: written whole, found again by the same configuration and data."""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bigbird_dna.console import log
from bigbird_dna.disk.atomic import atomic_path
from bigbird_dna.errors import ModelError, shortened
from bigbird_dna.training.checkpoint_file import UnusableCheckpoint, read_checkpoint, write_checkpoint
from bigbird_dna.training.lock import Lock
from bigbird_dna.training.optimizers import fresh_moments

Computed = str | int
_MOST_STEPS = 2**53  # beyond it Adam's count of steps, a float, skips whole numbers


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
    """The checkpoints of one training, in a directory named after its fingerprint: the last two.

    A changed configuration or data set has another fingerprint and so starts anew, without touching what
    the earlier one left. `lock` keeps a second process from the same training.

    Parameters
    ----------
    identity
        What decides the training's result.
    former
        What earlier versions had in its place, if that is something else.
    computed
        How the result is computed, which may be another way each time that the training goes on: the log then
        says so. Texts and numbers by name.
    """

    def __init__(
        self,
        directory: Path,
        identity: dict[str, Any],
        former: dict[str, Any] | None = None,
        computed: Mapping[str, Computed] | None = None,
    ) -> None:
        self.directory = Path(directory) / fingerprint(identity)
        self.computed = dict(computed or {})
        self.path = self.directory / "state.pt"
        self.previous = self.directory / "previous.pt"
        self.log_path = self.directory / "training.jsonl"
        self.lock = Lock(self.directory / "lock")
        self._former = Path(directory) / fingerprint(former) if former else self.directory
        self._good = False  # whether `path` is known to hold a good checkpoint

    @property
    def exists(self) -> bool:
        """Whether there are checkpoints, good or damaged: no training begins with fresh weights then."""
        return self.path.exists() or self.previous.exists()

    def claim(self, what: str) -> None:
        """Take the lock, and fetch the checkpoints that an earlier version left; errors as `Lock.take`."""
        self.lock.take(what)
        if self.path.exists() or self._former == self.directory:
            return
        # The last one comes last: what is broken off in between is gone on with.
        files = [self._former / path.name for path in (self.log_path, self.previous, self.path)]
        if not any(path.exists() for path in files[1:]):
            return
        theirs = Lock(self._former / "lock")
        try:
            theirs.take(what)
        except BaseException:
            self.lock.release()
            raise
        try:
            for path in files:
                if path.exists():
                    path.replace(self.directory / path.name)
        finally:
            theirs.release()

    def save(self, network: nn.Module, optimizer: torch.optim.Optimizer, progress: Progress) -> None:
        """Write a checkpoint and keep the one before it; a kill at any moment leaves one of them whole."""
        state = {
            "network": network.state_dict(),
            "optimizer": optimizer.state_dict(),
            "progress": vars(progress),
            "computed": self.computed,
        }
        with atomic_path(self.path) as temporary:
            write_checkpoint(temporary, state)
            if self._good:  # a damaged one mustn't take the place of a good one
                with suppress(FileNotFoundError):
                    self.path.replace(self.previous)
        self._good = True

    def withdraw(self) -> None:
        """Delete the last checkpoint, which has turned out to be of no use; the one before it stays."""
        self.path.unlink(missing_ok=True)
        self._good = False

    def restore(self, network: nn.Module, optimizer: torch.optim.Optimizer) -> Progress:
        """Load the last good checkpoint into `network` and `optimizer`; without any, progress is at step 0.

        Raises
        ------
        ModelError
            There are checkpoints, and none of them can be gone on from.
        """
        problems = []
        for path in (self.path, self.previous):
            if not path.exists():
                continue
            try:
                progress, computed = _take(read_checkpoint(path), network, optimizer)
            except UnusableCheckpoint as error:
                problems.append(f"{path}: {error}")
                continue
            for problem in problems:
                log(f"warning: {problem}; the checkpoint before it is taken")
            self._good = path == self.path
            log(f"resuming at step {progress.step} from {path}")
            self._say_changes(computed)
            return progress
        if problems:
            raise ModelError(f"{'; '.join(problems)}; delete {self.directory} to train from the start")
        return Progress()

    def _say_changes(self, before: Mapping[str, Computed]) -> None:
        changed = [
            f"{name} {shortened(str(value))} → {self.computed[name]}"
            for name, value in before.items()
            if self.computed.get(name, value) != value
        ]
        if changed:
            log(f"from here on computed otherwise: {', '.join(changed)}; data and their order stay the same")

    def remove(self, further: Iterable[Path] = ()) -> None:
        """Delete the checkpoints of a training whose model is published, and its `further` files beside them.

        What else is in the directory stays, and the directory with it. Frees the lock.
        """
        for path in (self.path, self.previous, self.log_path, *further):
            if path.parent == self.directory:
                path.unlink(missing_ok=True)
        self.lock.release()
        with suppress(OSError):
            self.directory.rmdir()


def _take(
    state: Any, network: nn.Module, optimizer: torch.optim.Optimizer
) -> tuple[Progress, dict[str, Computed]]:
    """Load what a checkpoint holds; `UnusableCheckpoint`, with nothing loaded, if it doesn't fit."""
    # Those of earlier versions don't say how they were computed.
    if not isinstance(state, dict) or set(state) - {"computed"} != {"network", "optimizer", "progress"}:
        raise UnusableCheckpoint("it holds no network, optimizer and progress")
    computed = state.get("computed", {})
    if not isinstance(computed, dict) or not all(
        isinstance(name, str) and isinstance(value, str | int) for name, value in computed.items()
    ):
        raise UnusableCheckpoint("it doesn't say how it was computed")
    _check_tensors(state["network"], network.state_dict(), "the network's")
    if not all(bool(state["network"][name].isfinite().all()) for name, _ in network.named_parameters()):
        # Of an earlier version, which saved whatever came of a step.
        raise UnusableCheckpoint("its weights are not finite numbers: that training had diverged")
    moments = _moments(state["optimizer"], optimizer)
    progress = _progress(state["progress"])
    network.load_state_dict(state["network"])
    # Its settings are those of the configuration, whatever the checkpoint says.
    optimizer.load_state_dict({"state": moments, "param_groups": optimizer.state_dict()["param_groups"]})
    return progress, computed


def _moments(state: Any, optimizer: torch.optim.Optimizer) -> dict[int, dict[str, Tensor]]:
    """The moments of each parameter by its number, of the shapes that the optimiser has."""
    own = optimizer.state_dict()["param_groups"]
    try:
        moments, groups = state["state"], [group["params"] for group in state["param_groups"]]
        numbers = set(moments)
    except (TypeError, LookupError):
        raise UnusableCheckpoint("it holds no optimizer") from None
    if not isinstance(moments, dict) or groups != [group["params"] for group in own]:
        raise UnusableCheckpoint("its optimizer is one of other parameters")
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    expected = dict(zip((number for group in groups for number in group), parameters, strict=True))
    if not numbers <= set(expected):
        raise UnusableCheckpoint("its optimizer is one of other parameters")
    for number, values in moments.items():
        like = fresh_moments(optimizer, expected[number])
        _check_tensors(values, like, f"parameter {number}'s moments")
        # The optimiser raises a number to this power, or the reverse.
        if not 0 <= float(values["step"]) < _MOST_STEPS:
            raise UnusableCheckpoint(f"parameter {number}'s moments are of no number of steps that can be")
    return moments


def _check_tensors(values: Any, expected: Mapping[str, Tensor], whose: str) -> None:
    if not isinstance(values, dict) or set(values) != set(expected):
        raise UnusableCheckpoint(f"it holds other tensors than {whose}")
    for name, like in expected.items():
        value = values[name]
        plain = isinstance(value, Tensor) and value.layout == torch.strided and value.device.type == "cpu"
        if not plain or not value.is_floating_point() or value.shape != like.shape:
            raise UnusableCheckpoint(f"{name!r}, of {whose}, is not a tensor of shape {tuple(like.shape)}")


def _progress(values: Any) -> Progress:
    types = {field.name: type(field.default) for field in fields(Progress)}
    if not isinstance(values, dict) or set(values) != set(types):
        raise UnusableCheckpoint("it doesn't say how far the training was")
    for name, kind in types.items():
        if (
            type(values[name]) is not kind
            or not math.isfinite(values[name])
            or (kind is int and values[name] < 0)
        ):
            raise UnusableCheckpoint(f"progress: {name} is not a number that it can be")
    return Progress(**values)
