"""Where a network runs: the device, and the threads of a CPU."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from bigbird_dna.cards import take_card
from bigbird_dna.checks import check_at_least_one
from bigbird_dna.errors import UsageError


def choose_device(name: str = "auto") -> torch.device:
    """The device that `auto`, `cpu` or `cuda` stands for; asking for a missing GPU is a `UsageError`.

    A command's GPU is one that no other command of the machine has; it waits for one (`bigbird_dna.cards`).
    """
    if name not in ("auto", "cpu", "cuda"):
        raise UsageError(f"device {name!r}: choose auto, cpu or cuda")
    # Processes on one machine don't share a card: NCCL refuses, and `auto` falls back to CPUs.
    wanted, cards = int(os.environ.get("LOCAL_WORLD_SIZE", "1")), torch.cuda.device_count()
    if name == "cpu" or (name == "auto" and cards < wanted):
        return torch.device("cpu")
    if cards < wanted:
        raise UsageError(f"device cuda: {wanted} GPUs are needed, torch sees {cards}")
    card = take_card(cards, int(os.environ.get("LOCAL_RANK", "0")), together=wanted)
    if card:  # what names no card means the present one, which else is the first
        torch.cuda.set_device(card)
    return torch.device("cuda", card)


@contextmanager
def cpu_threads(threads: int | None) -> Iterator[None]:
    """Give torch so many CPU threads inside the block; None: as many as it has."""
    check_at_least_one({"threads": threads})
    before = torch.get_num_threads()
    if threads is not None:
        torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
