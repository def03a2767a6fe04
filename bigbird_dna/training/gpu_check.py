"""Check the GPU of a process in the first seconds of a training, instead of failing after the data is read."""

import os
import shutil
import sysconfig
from importlib.util import find_spec
from pathlib import Path

import torch

from bigbird_dna.console import log
from bigbird_dna.errors import UsageError, error_text, shortened

LEAST_CAPABILITY = (7, 0)  # of FlexAttention's kernels
COMPILERS = ("gcc", "clang", "cc")


def check_gpu(device: torch.device) -> None:
    """Raise `UsageError`, which says what to do, if this GPU cannot train; nothing for another device.

    The first step on the GPU finds what no version number shows: a driver that is too old, or a build of
    PyTorch without code for this GPU.
    """
    if device.type != "cuda":
        return
    name = torch.cuda.get_device_name(device)
    capability = torch.cuda.get_device_capability(device)
    if capability < LEAST_CAPABILITY:
        needed = ".".join(map(str, LEAST_CAPABILITY))
        raise UsageError(
            f"{device} ({name}): compute capability {capability[0]}.{capability[1]}; {needed} is needed, use "
            "a newer GPU"
        )
    try:
        values = torch.ones(8, 8, device=device)
        (values @ values).sum().item()
    except RuntimeError as error:
        reason = shortened(error_text(error), 200)
        raise UsageError(
            f"{device} ({name}): PyTorch {torch.__version__} with CUDA {torch.version.cuda} cannot use it "
            f"({reason}): update the driver, or install another build of PyTorch"
        ) from None
    if reason := _missing_compiler():
        raise UsageError(f"{device} ({name}): attention needs Triton, and {reason}")
    free, total = torch.cuda.mem_get_info(device)
    if free < total / 2:
        log(
            f"warning: {device} ({name}): {free / 1e9:.0f} of {total / 1e9:.0f} GB are free; other programs "
            "use it"
        )


def _missing_compiler() -> str:
    """Return why Triton cannot compile kernels; "" if it can."""
    if find_spec("triton") is None:
        return "it is not installed"
    compiler = os.environ.get("CC") or next(filter(shutil.which, COMPILERS), None)
    if compiler is None or shutil.which(compiler) is None:
        return f"it needs a C compiler ({compiler or ', '.join(COMPILERS)}): install one, or set CC"
    header = Path(sysconfig.get_path("include")) / "Python.h"
    if not header.is_file():
        return f"it needs {header}: install Python's headers (python3-dev)"
    return ""
