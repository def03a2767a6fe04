"""Checkpoints of a running training: written atomically, found again by configuration and data."""

import hashlib
import json
import math
import os
import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from bigbird_dna.console import log
from bigbird_dna.disk.atomic import (
    atomic_path,
    lock_file,
    make_parent,
    read_json,
    write_json,
)
from bigbird_dna.errors import (
    BigBirdDnaError,
    DataError,
    ModelError,
    UsageError,
    shortened,
)
from bigbird_dna.training.checkpoint_file import (
    HostCopy,
    UnusableCheckpoint,
    read_checkpoint,
    write_checkpoint,
)
from bigbird_dna.training.log import LOG, Progress

_ATTEMPTS = 100
FAILED_SECONDS = (
    150.0  # a server gives up the locks of a machine that failed after about 90
)
Computed = str | int
Keep = Literal["last", "best"]
_MOST_STEPS = 2**53  # above this, Adam's floating-point step count skips integers


def fingerprint(identity: dict[str, Any]) -> str:
    """Twelve hexadecimal digits that identify everything that determines a training's result."""
    text = json.dumps(identity, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


class CheckpointStore:
    """The last two checkpoints of one training, in a directory named by the fingerprint of `identity`. With
    `keep` "best", also the weights with the lowest held-out loss so far.

    `computed` describes how the result is computed; changes since a checkpoint are logged.
    """

    def __init__(
        self,
        directory: Path,
        identity: dict[str, Any],
        computed: Mapping[str, Computed] | None = None,
        keep: Keep = "last",
    ) -> None:
        self.directory = Path(directory) / fingerprint(identity)
        self.computed = dict(computed or {})
        self.path = self.directory / "state.pt"
        self.previous = self.directory / "previous.pt"
        self.log_path = self.directory / LOG
        self.lock = Lock(self.directory / "lock")
        self.divergence = self.directory / "diverged.json"
        self.best = self.directory / "best.pt" if keep == "best" else None
        self._good = False  # whether `path` is known to be a valid checkpoint
        self._copy = HostCopy()
        self._writer = ThreadPoolExecutor(1, "checkpoint")
        self._writing: Future[None] | None = None

    @property
    def exists(self) -> bool:
        """Whether checkpoints exist, valid or damaged: if so, no training begins with initial weights."""
        return self.path.exists() or self.previous.exists()

    def save(
        self, network: nn.Module, optimizer: torch.optim.Optimizer, progress: Progress
    ) -> None:
        """Write a checkpoint in the background, from a copy, and keep the previous one.

        If killed at any time, one of them is intact. Waits for the writing of the one before, whose error is
        raised here.
        """
        self.wait()
        state = {
            "network": network.state_dict(),
            "optimizer": optimizer.state_dict(),
            "progress": dict(vars(progress)),
            "computed": self.computed,
        }
        copy = self._copy.take(state)
        self._writing = self._writer.submit(self._write, copy, self._copy.ready())

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
        self._copy = HostCopy()  # frees the memory

    def _write(self, state: dict[str, Any], ready: Callable[[], None]) -> None:
        ready()
        with atomic_path(self.path) as temporary:
            write_checkpoint(temporary, state)
            if self._good:  # a damaged checkpoint must not replace a valid one
                with suppress(FileNotFoundError):
                    self.path.replace(self.previous)
        self._good = True

    def withdraw(self) -> None:
        """Delete the last checkpoint, which is unusable; the previous one is kept."""
        self.wait()
        self.path.unlink(missing_ok=True)
        self._good = False

    def record_divergence(self, message: str) -> None:
        """Make `check_divergence` fail with this message, as long as the computation stays the same."""
        write_json(self.divergence, {"message": message, "computed": self.computed})

    def check_divergence(self) -> None:
        """`DataError` if this training has diverged before: a job that is submitted again ends at once."""
        if not self.divergence.exists():
            return
        known = read_json(self.divergence)
        if isinstance(known, dict) and known.get("computed") == self.computed:
            raise DataError(
                f"{known.get('message')}; delete {self.divergence} to try the same again"
            )

    def restore(self, network: nn.Module, optimizer: torch.optim.Optimizer) -> Progress:
        """Load the last valid checkpoint; without checkpoints, progress is at step 0. `ModelError`: all of
        them are damaged."""
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
                log(f"warning: {problem}; using the previous checkpoint")
            self._good = path == self.path
            self._read_best()  # an error now rather than at the end
            log(f"resuming at step {progress.step} from {path}")
            changed = [
                f"{name} {shortened(str(value))} → {self.computed[name]}"
                for name, value in computed.items()
                if self.computed.get(name, value) != value
            ]
            if changed:
                how = ", ".join(changed)
                log(
                    f"computed differently from here on: {how}; data and their order stay the same"
                )
            return progress
        if problems:
            raise ModelError(
                f"{'; '.join(problems)}; delete {self.directory} to train from the start"
            )
        return Progress()

    def keep_best(self, network: nn.Module, loss: float) -> None:
        """Store the weights with the lowest held-out loss so far."""
        assert self.best is not None
        weights = {name: value.cpu() for name, value in network.state_dict().items()}
        with atomic_path(self.best) as temporary:
            write_checkpoint(temporary, {"loss": loss, "weights": weights})

    def load_best(self, network: nn.Module) -> None:
        """Load the weights with the lowest held-out loss into a network; `ModelError` if they are damaged."""
        _, weights = self._read_best()
        if not weights:
            raise ModelError(
                f"{self.best}: file not found; delete {self.directory} to train from the start"
            )
        network.load_state_dict(weights)

    def _read_best(self) -> tuple[float, dict[str, Tensor]]:
        if self.best is None or not self.best.exists():
            return math.inf, {}
        try:
            found = read_checkpoint(self.best)
            return float(found["loss"]), dict(found["weights"])
        except (UnusableCheckpoint, TypeError, LookupError, ValueError) as error:
            raise ModelError(
                f"{self.best}: {error}; delete {self.directory} to train from the start"
            ) from None

    def remove(self) -> None:
        """Delete only the checkpoints of a training whose results are written, and release the lock."""
        for path in (
            self.path,
            self.previous,
            self.log_path,
            self.divergence,
            self.best,
        ):
            if path is not None:
                path.unlink(missing_ok=True)
        self.lock.release()
        with suppress(OSError):
            self.directory.rmdir()


def _take(
    state: Any, network: nn.Module, optimizer: torch.optim.Optimizer
) -> tuple[Progress, dict[str, Computed]]:
    """Load a checkpoint's content; `UnusableCheckpoint`, without loading anything, if it does not match."""
    if not isinstance(state, dict) or set(state) != {
        "network",
        "optimizer",
        "progress",
        "computed",
    }:
        raise UnusableCheckpoint("it does not contain network, optimizer and progress")
    computed = state["computed"]
    if not isinstance(computed, dict) or not all(
        isinstance(name, str) and isinstance(value, str | int)
        for name, value in computed.items()
    ):
        raise UnusableCheckpoint("it does not specify how it was computed")
    _check_tensors(state["network"], network.state_dict(), "the network's")
    if not all(
        bool(state["network"][name].isfinite().all())
        for name, _ in network.named_parameters()
    ):
        raise UnusableCheckpoint(
            "its weights are not finite: the training had diverged"
        )
    moments = _moments(state["optimizer"], optimizer)
    progress = _progress(state["progress"])
    network.load_state_dict(state["network"])
    # Optimizer settings come from the configuration, regardless of the checkpoint.
    optimizer.load_state_dict(
        {"state": moments, "param_groups": optimizer.state_dict()["param_groups"]}
    )
    return progress, computed


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


def _moments(
    state: Any, optimizer: torch.optim.Optimizer
) -> dict[int, dict[str, Tensor]]:
    """The moments of each parameter by its number, with the shapes expected by the optimizer."""
    own = optimizer.state_dict()["param_groups"]
    try:
        moments, groups = (
            state["state"],
            [group["params"] for group in state["param_groups"]],
        )
        numbers = set(moments)
    except (TypeError, LookupError):
        raise UnusableCheckpoint("it contains no optimizer") from None
    if not isinstance(moments, dict) or groups != [group["params"] for group in own]:
        raise UnusableCheckpoint("its optimizer has other parameters")
    parameters = [
        parameter for group in optimizer.param_groups for parameter in group["params"]
    ]
    expected = dict(
        zip((number for group in groups for number in group), parameters, strict=True)
    )
    if not numbers <= set(expected):
        raise UnusableCheckpoint("its optimizer has other parameters")
    for number, values in moments.items():
        like = fresh_moments(optimizer, expected[number])
        _check_tensors(values, like, f"parameter {number}'s moments")
        # The optimizer uses the step count as an exponent, or as the base of a power.
        if not 0 <= float(values["step"]) < _MOST_STEPS:
            raise UnusableCheckpoint(
                f"the step count of parameter {number}'s moments is invalid"
            )
    return moments


def _check_tensors(values: Any, expected: Mapping[str, Tensor], whose: str) -> None:
    if not isinstance(values, dict) or set(values) != set(expected):
        raise UnusableCheckpoint(f"its tensors differ from {whose}")
    for name, like in expected.items():
        value = values[name]
        plain = (
            isinstance(value, Tensor)
            and value.layout == torch.strided
            and value.device.type == "cpu"
        )
        if not plain or not value.is_floating_point() or value.shape != like.shape:
            raise UnusableCheckpoint(
                f"{name!r}, of {whose}, is not a tensor of shape {tuple(like.shape)}"
            )


def _progress(values: Any) -> Progress:
    types = {field.name: type(field.default) for field in fields(Progress)}
    if not isinstance(values, dict) or set(values) != set(types):
        raise UnusableCheckpoint("it does not specify the training's progress")
    for name, kind in types.items():
        if (
            type(values[name]) is not kind
            or (kind is not str and not math.isfinite(values[name]))
            or (kind is int and values[name] < 0)
        ):
            raise UnusableCheckpoint(f"progress: {name} has an invalid value")
    return Progress(**values)


class Lock:
    """A lock on the file `path`, which is created with its directory and removed on release."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handle: int | None = None

    def take(self, what: str) -> None:
        """Take the lock until `release` or exit; `ModelError` names the process that holds it, running
        `what`.

        The lock of another machine is waited for, since it remains for a while if that machine has failed.
        If the file system does not support locks, this is logged and no process is excluded.
        """
        for _ in range(_ATTEMPTS):
            handle = self._opened()
            if handle is None:
                continue
            holder = shortened(
                os.pread(handle, 300, 0).decode(errors="replace").strip(), 200
            )
            machine = re.match(r"process \d+ on (\S+) since ", holder)
            elsewhere = machine is not None and machine[1] != socket.gethostname()
            seconds = FAILED_SECONDS if elsewhere else 0.0
            if not lock_file(handle, self.path, f"{what} may run twice", seconds):
                os.close(handle)
                gone = (
                    f", or delete {self.path} if that machine has failed"
                    if elsewhere
                    else ""
                )
                raise ModelError(
                    f"{self.path.parent}: {what} is already running ({holder}). Wait until it ends{gone}"
                )
            if self._is_there(handle):
                self._handle = handle
                since = time.strftime("%Y-%m-%d %H:%M:%S%z")
                text = (
                    f"process {os.getpid()} on {socket.gethostname()} since {since}\n"
                )
                with suppress(OSError):  # a full disk: the lock works without this text
                    os.ftruncate(handle, 0)
                    os.pwrite(handle, text.encode(), 0)
                return
            os.close(handle)
        raise UsageError(f"{self.path}: cannot be written: it is removed repeatedly")

    def release(self) -> None:
        """Release the lock and remove its file, and its directory if empty."""
        if self._handle is None:
            return
        with suppress(OSError):
            self.path.unlink()
        os.close(self._handle)
        self._handle = None
        with suppress(OSError):
            self.path.parent.rmdir()

    def _opened(self) -> int | None:
        make_parent(self.path)
        try:
            return os.open(
                self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644
            )
        except FileNotFoundError:  # the previous holder has just removed the directory
            return None
        except OSError as error:
            raise UsageError(
                f"{self.path}: cannot be written: {error.strerror}"
            ) from None

    def _is_there(self, handle: int) -> bool:
        """Whether the locked file is still at its path: the previous holder may just have removed it."""
        try:
            return os.path.samestat(os.fstat(handle), self.path.lstat())
        except FileNotFoundError:
            return False
