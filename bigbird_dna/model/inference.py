"""Device, threads and precision of predictions, and preparation of data while a GPU computes."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from threading import RLock
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from bigbird_dna.attention import Choice, routes_logged
from bigbird_dna.attention.call import copied
from bigbird_dna.attention.fast_paths import is_plain
from bigbird_dna.attention.native import pointwise
from bigbird_dna.attention.native_kernel import PackedLayer, PackedLayers, can_pack
from bigbird_dna.console import log
from bigbird_dna.disk.user_cache import cache_directory
from bigbird_dna.errors import (
    ConfigError,
    UsageError,
    check_at_least_one,
    check_choice,
    error_text,
)
from bigbird_dna.gpus import available_cores
from bigbird_dna.model.encoder import Encoder, Layer
from bigbird_dna.model.kernels import Dropout, Linear
from bigbird_dna.model.mechanism import goes_by_pattern

T = TypeVar("T")
R = TypeVar("R")

MOST_COMPILERS = 32  # as torch's own limit


def choose_device(name: str = "auto") -> torch.device:
    """The device for `auto`, `cpu` or `cuda`; `UsageError` if a requested GPU is missing.

    `auto` is an NVIDIA GPU, else the CPU. Of several visible GPUs, a process takes the one of its local rank
    under torchrun, by default the first.
    """
    if name not in ("auto", "cpu", "cuda"):
        raise UsageError(f"device {name!r}: must be auto, cpu or cuda")

    # Processes on one machine need separate GPUs: otherwise NCCL fails, and `auto` falls back to CPUs.
    processes = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    visible = torch.cuda.device_count()
    if name == "cpu" or (name == "auto" and visible < processes):
        return torch.device("cpu")

    if visible < processes:
        raise UsageError(
            f"device {name}: {processes} GPUs are needed, but torch finds {visible}"
        )

    _share_compiled_kernels(processes)
    gpu = int(os.environ.get("LOCAL_RANK", "0"))
    if gpu:  # code that names no GPU uses the current one, by default the first
        torch.cuda.set_device(gpu)

    return torch.device("cuda", gpu)


def _share_compiled_kernels(processes: int) -> None:
    """Let torch keep kernels in this user's cache, and compile with this process's part of the CPU cores.

    By default every job on another node compiles for minutes, and each process on a node starts a compiler
    per core. Values of the environment are kept, and torch's own directories where the cache cannot be used.
    """
    cache = cache_directory()
    try:
        cache.mkdir(parents=True, exist_ok=True)
        usable = os.access(cache, os.W_OK)
    except OSError:
        usable = False

    cores = max(1, min(MOST_COMPILERS, available_cores() // processes))
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", str(cores))
    if usable:
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cache / "torch"))
        os.environ.setdefault("TRITON_CACHE_DIR", str(cache / "triton"))


prediction_lock = RLock()
"""Held by predictions: they set the network's device and packed weights, and torch's number of threads, which
another thread's prediction would see."""


@contextmanager
def cpu_threads(threads: int | None) -> Iterator[None]:
    """Set torch's number of CPU threads in the context; None: unchanged."""
    check_at_least_one({"threads": threads})
    before = torch.get_num_threads()
    if threads is not None:
        torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


PRECISIONS = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
NO_BFLOAT16 = "this GPU does not support it (its compute capability is below 8.0)"
AHEAD_OF = ("cuda",)
"""Devices that compute while the CPU is idle; on a CPU, all cores are busy with rows."""

_computing: ContextVar[torch.dtype] = ContextVar("_computing", default=torch.float32)


@contextmanager
def inference(precision: str, device: torch.device) -> Iterator[None]:
    """Predict in this precision within the context, and on a GPU log it and each attention route once.

    bfloat16 and float16 use torch's autocast: products and attention use the narrow type, sums and
    normalization float32. `UsageError` as in `supported_precision`.
    """
    precision = supported_precision(precision, device)
    if device.type != "cpu":
        log(f"precision: {precision}")

    def hear(choice: Choice) -> None:
        if device.type != "cpu":
            log(str(choice))

    token = _computing.set(PRECISIONS[precision])
    try:
        with routes_logged(hear):
            yield
    finally:
        _computing.reset(token)


def has_bfloat16(device: torch.device) -> bool:
    """Whether a device is an NVIDIA GPU with bfloat16 instructions: compute capability 8.0 or later."""
    return device.type == "cuda" and torch.cuda.is_bf16_supported(
        including_emulation=False
    )


def supported_precision(
    precision: str, device: torch.device, narrow: bool = True
) -> str:
    """A precision of predictions on a device; `auto` is bfloat16 if it `has_bfloat16` and results may be
    `narrow`, else float32.

    `UsageError`: unknown precision, or not supported on this device.
    """
    check_choice("precision", precision, ("auto", *PRECISIONS))
    if precision == "auto":
        return "bfloat16" if narrow and has_bfloat16(device) else "float32"

    if precision == "float16" and device.type == "cpu":
        raise UsageError(
            "precision float16: supported on GPUs only; on a CPU use float32 or bfloat16"
        )

    if precision == "bfloat16" and device.type == "cuda" and not has_bfloat16(device):
        raise UsageError(f"precision bfloat16: {NO_BFLOAT16}; use float32 or float16")

    return precision


@contextmanager
def computation(
    precision: str, device: str, threads: int | None, narrow: bool = True
) -> Iterator[str | None]:
    """Predict in a precision with a number of threads in the context; `narrow` as in `supported_precision`.

    Yields the precision as a result's command states it: float32 is stated (not None) only if it is not the
    default on this device. `UsageError`: a precision or device that is not available.
    """
    torch_device = choose_device(device)
    chosen = supported_precision(precision, torch_device, narrow)
    usual = supported_precision("auto", torch_device, narrow)
    with cpu_threads(threads), inference(chosen, torch_device):
        yield None if chosen == usual == "float32" else chosen


def narrowed(device: torch.device) -> Callable[[], Any]:
    """A function that creates autocast contexts with the current `inference` precision, in any thread."""
    dtype = _computing.get()
    if dtype == torch.float32:
        return nullcontext
    return lambda: torch.autocast(device.type, dtype=dtype)


def ahead(
    make: Callable[[T], R], items: Iterable[T], device: torch.device | None
) -> Iterator[R]:
    """Results of `make` per item, in order; on a GPU, or without a device, a thread computes the next result
    in advance.

    An error is raised where its result would be returned.
    """
    if device is not None and device.type not in AHEAD_OF:
        yield from map(make, items)
        return

    upcoming: deque[Future[R]] = deque()
    with ThreadPoolExecutor(max_workers=1) as pool:
        try:
            for item in items:
                upcoming.append(pool.submit(make, item))
                if len(upcoming) > 1:
                    yield upcoming.popleft().result()

            while upcoming:
                yield upcoming.popleft().result()
        finally:
            for future in upcoming:
                future.cancel()


def sent(x: Tensor, device: torch.device) -> Tensor:
    """Move a CPU tensor to a device without waiting for the GPU."""
    if device.type == "cuda":
        x = x.pin_memory()
    return copied(x, device)


# Layers for training, compiled by torch, and for inference, with weights packed for many calls.


@contextmanager
def compiled_layers(network: nn.Module, backend: str = "inductor") -> Iterator[None]:
    """Compile the computations before and after attention, for training within the context.

    All encoder layers and lengths use the same compiled code. Results are equal up to rounding, and dropout
    draws other numbers on a CPU. Attention is excluded, as it has its own kernels. `ConfigError`: torch
    cannot compile on this machine.
    """
    from torch._dynamo.exc import TorchDynamoException  # takes seconds

    layers = [module for module in network.modules() if isinstance(module, Layer)]
    options: dict[str, Any] = {"dynamic": True, "backend": backend}
    for layer in layers:
        layer.compiled = (
            torch.compile(layer.queries_keys_values, **options),
            torch.compile(layer.after_attention, **options),
        )

    try:
        # With several processes torch would divide these small graphs by the sizes of DDP's buckets.
        with torch._dynamo.config.patch(optimize_ddp=False):
            yield
    except TorchDynamoException as error:
        raise ConfigError(
            f"torch_compile: torch cannot compile: {error_text(error)}"
        ) from None
    finally:
        for layer in layers:
            layer.compiled = None


@contextmanager
def prepared(network: nn.Module, longest: int) -> Iterator[bool]:
    """Pack the layers' weights for calls in the context, which must not change any weight.

    Yields whether all encoders have compiled layers for the current precision.

    On a CPU, sequences of at most `longest` tokens without padding use compiled layers, if a compiler exists
    and this thread's torch has one thread: equal up to rounding, in half the time.
    """
    # Encoders, and the layers across bins of a chromatin network.
    stacks: list[Any] = [part for part in network.modules() if hasattr(part, "packed")]
    layers = [module for module in network.modules() if isinstance(module, Layer)]
    with prediction_lock:
        with torch.no_grad():
            for layer in layers:
                layer.joined = layer.join() if layer.joinable() else None

            for stack in stacks:
                stack.packed = _packed(stack, longest)

        try:
            packed = all(
                stack.packed is not None
                for stack in stacks
                if isinstance(stack, Encoder)
            )
            yield _computing.get() == torch.float32 and packed
        finally:
            for layer in layers:
                layer.joined = None

            for stack in stacks:
                stack.packed = None


def _packed(stack: Any, longest: int) -> PackedLayers | None:
    """Packed layers; None if the kernel is missing or does not support some part of a layer."""
    config = stack.config
    kernel = pointwise(*stack.parameters())
    plain = (
        goes_by_pattern(config)
        and config.activation == "gelu_tanh"
        and not config.causal
        and not config.num_global_tokens
        and not config.relative_max_distance
        and config.random_seed < 1 << 63
        and can_pack(config.hidden, config.heads)
        and all(parameter.dtype == torch.float32 for parameter in stack.parameters())
    )
    if kernel is None or not plain:
        return None

    packed = []
    for layer in stack.layers:
        if not all(
            is_plain(part, Layer, Linear, nn.LayerNorm, Dropout)
            for part in layer.modules()
        ):
            return None

        pattern = None if config.attention == "full" else layer.pattern
        packed.append(PackedLayer(kernel, layer, pattern))

    return PackedLayers(packed, longest)
