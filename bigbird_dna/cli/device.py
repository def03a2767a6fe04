"""Where a command runs its model: the device and its memory, and CPU threads."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from bigbird_dna.errors import UsageError

DEVICE = typer.Option("auto", metavar="auto|cpu|cuda", help="Where the model runs.")
THREADS = typer.Option(None, help="CPU threads (default: all cores).")


def use_device(device: str, threads: int | None) -> None:
    """Set the number of CPU threads; `UsageError` if there is no such device."""
    import torch

    from bigbird_dna.training.distributed import choose_device

    choose_device(device)
    if threads is not None:
        torch.set_num_threads(threads)


@contextmanager
def batch_in_memory(batch_size: int) -> Iterator[None]:
    """`UsageError` with the option to change, if the device's memory is too small for the block."""
    import torch

    try:
        yield
    except torch.OutOfMemoryError:
        raise UsageError(
            f"--batch-size {batch_size}: the device's memory is too small for it"
        ) from None
