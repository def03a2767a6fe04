"""Freed memory is there for the next step."""

import ctypes
import resource

import pytest
import torch

from bigbird_dna.training.memory import freed_memory_kept

NUMBERS = 16 << 20  # of float32: 64 MiB


def faults_of_a_buffer() -> int:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(NUMBERS)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="another C library")
def test_freed_memory_is_kept_in_the_block() -> None:
    with freed_memory_kept():
        # Where in the heap a buffer comes to lie settles after a few.
        assert min(faults_of_a_buffer() for _ in range(10)) < 8
