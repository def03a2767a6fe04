"""Checkpoints of a running training: written atomically, found again by configuration and data."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import torch
from filelock import FileLock, Timeout
from torch import Tensor, nn

from bigbird_dna.console import log
from bigbird_dna.disk.atomic import atomic_path, make_parent
from bigbird_dna.errors import BigBirdDnaError, ModelError, UsageError
from bigbird_dna.training.log import LOG, Progress

Keep = Literal["last", "best"]


def fingerprint(identity: dict[str, Any]) -> str:
    """Twelve hexadecimal digits that identify everything that determines a training's result."""
    text = json.dumps(identity, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


class CheckpointStore:
    """The checkpoint of one training, in a directory named by the fingerprint of `identity`. With `keep`
    "best", also the weights with the lowest held-out loss so far."""

    def __init__(
        self,
        directory: Path,
        identity: dict[str, Any],
        keep: Keep = "last",
    ) -> None:
        self.directory = Path(directory) / fingerprint(identity)
        self.path = self.directory / "state.pt"
        self.log_path = self.directory / LOG
        self.best = self.directory / "best.pt" if keep == "best" else None
        self._lock = FileLock(self.directory / "lock", timeout=0)
        self._writer = ThreadPoolExecutor(1, "checkpoint")
        self._writing: Future[None] | None = None

    @property
    def exists(self) -> bool:
        """Whether there is a checkpoint: if so, no training begins with initial weights."""
        return self.path.exists()

    def lock(self) -> None:
        """Exclude other processes from this training until `unlock` or exit; `ModelError` if one runs it."""
        make_parent(self.directory / "lock")
        try:
            self._lock.acquire()
        except Timeout:
            raise ModelError(
                f"{self.directory}: this training is already running. Wait until it ends"
            ) from None
        except OSError as error:
            raise UsageError(
                f"{self._lock.lock_file}: cannot be written: {error.strerror}"
            ) from None

    def unlock(self) -> None:
        """Release the lock, and remove the directory if it is empty."""
        if self._lock.is_locked:
            Path(self._lock.lock_file).unlink(missing_ok=True)
            self._lock.release()
        with suppress(OSError):
            self.directory.rmdir()

    def save(
        self, network: nn.Module, optimizer: torch.optim.Optimizer, progress: Progress
    ) -> None:
        """Write a checkpoint in the background, from a copy; if killed at any time, it or the one before is
        intact.

        Waits for the writing of the one before, whose error is raised here.
        """
        self.wait()
        state = {
            "network": network.state_dict(),
            "optimizer": optimizer.state_dict(),
            "progress": dict(vars(progress)),
        }
        self._writing = self._writer.submit(self._write, _host_copy(state))

    def wait(self) -> None:
        """Wait until the last checkpoint is on disk; an error of its writing is raised here."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    @contextmanager
    def written(self) -> Iterator[None]:
        """At the end of the context the last checkpoint is on disk, also after an error, which is raised."""
        try:
            yield
        except BaseException:
            with suppress(OSError, BigBirdDnaError):
                self.wait()
            raise
        self.wait()

    def _write(self, state: dict[str, Any]) -> None:
        with atomic_path(self.path) as temporary:
            _save(state, temporary)

    def restore(self, network: nn.Module, optimizer: torch.optim.Optimizer) -> Progress:
        """Load the checkpoint; without one, progress is at step 0. `ModelError`: it is damaged."""
        if not self.exists:
            return Progress()
        state = self._read(self.path)
        try:
            network.load_state_dict(state["network"])
            # Optimizer settings come from the configuration, regardless of the checkpoint.
            groups = optimizer.state_dict()["param_groups"]
            moments = state["optimizer"]["state"]
            optimizer.load_state_dict({"state": moments, "param_groups": groups})
            progress = Progress(**state["progress"])
        except (LookupError, RuntimeError, TypeError, ValueError) as error:
            raise self._damaged(self.path) from error
        if self.best is not None and progress.best_step:
            self._read(self.best)  # an error now rather than at the end
        log(f"resuming at step {progress.step} from {self.path}")
        return progress

    def keep_best(self, network: nn.Module) -> None:
        """Store the weights with the lowest held-out loss so far."""
        assert self.best is not None
        with atomic_path(self.best) as temporary:
            _save(_host_copy(network.state_dict()), temporary)

    def load_best(self, network: nn.Module) -> None:
        """Load the weights with the lowest held-out loss into a network; `ModelError` if they are damaged."""
        assert self.best is not None
        network.load_state_dict(self._read(self.best))

    def _read(self, path: Path) -> Any:
        """The content of a file, on the CPU: tensors and plain containers, never code."""
        try:
            return torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:  # damaged files raise errors of any type
            raise self._damaged(path) from error

    def _damaged(self, path: Path) -> ModelError:
        return ModelError(
            f"{path}: damaged, or not a checkpoint; delete {self.directory} to train from the start"
        )

    def remove(self) -> None:
        """Delete the checkpoints of a training whose results are written, and release the lock."""
        for path in (self.path, self.log_path):
            path.unlink(missing_ok=True)
        if self.best is not None:
            self.best.unlink(missing_ok=True)
        self.unlock()


def _host_copy(value: Any) -> Any:
    """The containers of a state with copies of its tensors in memory of the host."""
    if isinstance(value, Mapping):
        return {key: _host_copy(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_host_copy(item) for item in value]
    if isinstance(value, Tensor):
        return value.detach().to("cpu", copy=True)
    return value


def _save(state: dict[str, Any], path: Path) -> None:
    with path.open("wb") as stream:  # a full disk then raises an `OSError`
        torch.save(state, stream)


def fresh_moments(
    optimizer: torch.optim.Optimizer, parameter: Tensor
) -> dict[str, Tensor]:
    """Initial optimizer state of a parameter, before the first step, on the parameter's device."""
    step = torch.zeros((), device=parameter.device)
    if not isinstance(optimizer, torch.optim.Adafactor):
        first, second = torch.zeros_like(parameter), torch.zeros_like(parameter)
        return {"step": step, "exp_avg": first, "exp_avg_sq": second}
    if parameter.dim() < 2:
        return {"step": step, "variance": torch.zeros_like(parameter)}
    rows, columns = parameter[..., :1], parameter[..., :1, :]
    return {
        "step": step,
        "row_var": torch.zeros_like(rows),
        "col_var": torch.zeros_like(columns),
    }
