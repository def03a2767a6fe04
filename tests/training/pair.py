"""Trainings of all kinds by the processes of `torchrun`: `-m tests.training.pair TINY CHROMATIN HOME`.

Each is done three times: undisturbed; stopped by a signal that its last process alone gets; and stopped
likewise, then gone on with by processes of which the first alone sees the checkpoints.
"""

import os
import signal
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bigbird_dna.errors import Stopped
from bigbird_dna.training import loop
from bigbird_dna.training.distributed import World, world
from tests.training.kinds import KINDS, train

LAST = 8  # the step after which one stops


class Staying(World):
    """Goes on with the others after a training."""

    def leave(self) -> None:
        self.wait()


class Watch:
    """Has every loss logged, compares figures between processes, and sends the signal."""

    def __init__(self, here: World) -> None:
        self.here, self.left = here, 0
        self.backward = loop.backward
        loop.LOG_STEPS, loop.check_figures, loop.backward = 1, self.compared, self.stepped

    def compared(self, figures: Mapping[str, float], step: int) -> None:
        assert self.here.gather(figures) == [figures] * self.here.size, "they differ between processes"

    def stepped(self, *given: Any) -> Any:
        self.left -= 1
        if self.left == 0 and self.here.rank == self.here.size - 1:
            os.kill(os.getpid(), signal.SIGTERM)
        return self.backward(*given)


def main(tiny: Path, chromatin: Path, home: Path) -> None:
    with world("cpu") as here:
        watch = Watch(here)

        def one(kind: str, name: str, stop: int = 0, checkpoints: Path | None = None) -> None:
            watch.left = stop
            with ExitStack() as at_end:
                own = Staying(here.rank, here.size, here.device, at_end=at_end)
                where = checkpoints or home / name / "checkpoints"
                try:
                    train(kind, tiny, chromatin, home / name, where, own)
                except Stopped as error:
                    assert stop and f"stopped after step {stop} of" in str(error), error
                    assert error.silent == (not here.is_first)
                    return
            assert not stop, "it didn't stop"

        for kind in KINDS:
            one(kind, "undisturbed")
            one(kind, "stopped", LAST)
            one(kind, "resumed", LAST)
            one(kind, "resumed", checkpoints=None if here.is_first else home / "elsewhere")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
