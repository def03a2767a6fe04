"""The Triton kernels that torch generates for the route "flex", interpreted and compiled without a GPU."""

import json
import shutil
import subprocess
import sys
from importlib.util import find_spec
from typing import Any

import pytest

from tests.attention.simulated_gpu import Case
from tests.conftest import REPOSITORY

pytestmark = [
    pytest.mark.triton,
    pytest.mark.skipif(
        find_spec("triton") is None or shutil.which("g++") is None,
        reason="needs triton and g++",
    ),
]
SHARED = {(8, 0): 163 << 10, (9, 0): 227 << 10}
"""Bytes of shared memory per block, by compute capability."""


def simulated(case: Case) -> dict[str, Any]:
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "tests.attention.simulated_gpu",
        json.dumps(case._asdict()),
    ]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize(
    ("pattern", "lengths"),
    [
        ({}, (570, 565)),
        ({}, (640,)),
        ({"causal": True}, (450, 440, 300)),
        ({"block_size": 32, "global_blocks": 3}, (311, 310)),
        ({"huggingface": True}, (450, 440)),
        ({"block_size": 16, "num_global_tokens": 32}, (330, 329)),
    ],
    ids=["two rows", "one row", "causal", "blocks of 32", "huggingface", "etc"],
)
def test_interpreted_kernels_have_the_values_and_gradients_of_dense_attention(
    pattern: dict[str, Any], lengths: tuple[int, ...]
) -> None:
    found = simulated(Case(pattern, lengths))
    assert set(found) == {"output", "q", "k", "v"}
    assert max(found.values()) < 1e-5, found


@pytest.mark.parametrize("capability", SHARED)
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("width", [64, 128])
def test_kernels_compile_for_a_gpu_and_fit_its_shared_memory(
    capability: tuple[int, int], dtype: str, width: int
) -> None:
    # For blocks of 64 tokens torch finds gradient kernels of Hopper only by measuring many on the GPU.
    gradients = (capability, dtype) != ((9, 0), "bfloat16")
    found = simulated(Case({}, (1300, 1290), 4, width, dtype, gradients, capability))
    assert len(found) == 1 + gradients, found
    assert all(0 < shared <= SHARED[capability] for shared in found.values()), found
