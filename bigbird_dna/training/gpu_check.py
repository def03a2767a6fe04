"""Check a machine's GPUs before trainings use them for days: each fault is one sentence with what to do.

The last check runs the real training loop for a few steps of a configuration, with random tokens, in a
process per GPU. It finds what no version number shows: blocked NCCL, kernels that do not compile, too little
memory. `python -P -m bigbird_dna.training.gpu_check` is one of these processes.
"""

import json
import math
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bigbird_dna.config import Config, EncoderConfig, TrainingConfig, parse_config
from bigbird_dna.disk.atomic import atomic_path
from bigbird_dna.errors import BigBirdDnaError, error_text, shortened
from bigbird_dna.model.heads import PretrainingNetwork
from bigbird_dna.training.checkpoints import CheckpointStore
from bigbird_dna.training.distributed import World, world
from bigbird_dna.training.gpu_time import GPUS, GpuPlan, plan
from bigbird_dna.training.log import available_memory, begin_memory_peak, memory_peak
from bigbird_dna.training.loop import Batch, Objective, train_network
from bigbird_dna.training.memory import planned_encoder, window_tokens

MEASURED = ("cuda",)  # devices whose memory is measured
STEPS = 4  # the first compiles, and is not timed
MASKED = 0.15
FILLED = 0.9  # fraction of a GPU's free memory that a suggested micro-batch takes
LONGEST = 1800.0  # seconds until processes that train together must have finished
LEAST_CAPABILITY, BFLOAT16_CAPABILITY = (7, 0), (8, 0)  # of FlexAttention's kernels
COMPILERS = ("gcc", "clang", "cc")


class GpuCheck(NamedTuple):
    """A check's result: what was found, and if wrong a sentence with what to do."""

    name: str
    found: str
    fault: str = ""


def check_gpu(
    config: Config,
    count: int | None = None,
    device: str = "auto",
    output: Path | None = None,
) -> Iterator[GpuCheck]:
    """Yield the result of each check, in order; none follows a fault that it depends on.

    `count` is the number of GPUs that train together, by default that of the configuration. On the devices
    `cpu` and `mps` nothing is checked. The results are written to `output` if there is no fault.
    """
    done, name = [], config.largest_training
    own: Any = config if name == "pretraining" else getattr(config, name)
    count = own.num_gpus if count is None else count
    own = own.model_copy(
        update={"num_gpus": count}
    )  # a stage's file may not have the number
    config = own if name == "pretraining" else config.model_copy(update={name: own})
    for check in _checks(config, count, device):
        done.append(check)
        yield check
    if output is not None and not any(check.fault for check in done):
        with atomic_path(output) as temporary:
            temporary.write_text(
                "".join(f"{check.name}\t{check.found}\n" for check in done),
                encoding="utf-8",
            )


def _checks(config: Config, count: int, device: str) -> Iterator[GpuCheck]:
    if device in ("cpu", "mps"):
        yield GpuCheck("device", f"{device}: no NVIDIA GPU is used")
        return
    for step in (_torch, _driver, lambda: _gpus(count)):
        check = step()
        yield check
        if check.fault:
            return
    checks = [_architecture(count), _memory(config, count), _compiler()]
    yield from checks
    if not any(check.fault for check in checks):
        yield check_training(config, count, "cuda")


def _torch() -> GpuCheck:
    found = f"{torch.__version__}, CUDA {torch.version.cuda}"
    if torch.version.cuda is None:
        todo = "install a build with CUDA, as make install does where there is a driver"
        return GpuCheck(
            "PyTorch", found, f"this PyTorch was built without CUDA: {todo}"
        )
    return GpuCheck("PyTorch", found)


def driver_version() -> int:
    """The CUDA version that the driver supports, 12080 for 12.8; 0 without a driver."""
    return int(torch._C._cuda_getDriverVersion())  # type: ignore[attr-defined]  # builds with CUDA have it


def _driver() -> GpuCheck:
    number = driver_version()
    driver, built = (number // 1000, number % 1000 // 10), str(torch.version.cuda)
    found = f"CUDA {driver[0]}.{driver[1]}"
    if not number:
        todo = "run on a node with GPUs (in Slurm, with --gpus), or install the driver"
        return GpuCheck("driver", "none", f"there is no NVIDIA driver: {todo}")
    if driver[0] < int(built.partition(".")[0]):
        todo = f"update the driver, or install a build of PyTorch for CUDA {driver[0]}"
        return GpuCheck(
            "driver",
            found,
            f"the driver supports {found}, PyTorch needs CUDA {built}: {todo}",
        )
    return GpuCheck("driver", found)


def _gpus(count: int) -> GpuCheck:
    try:
        torch.cuda.init()  # type: ignore[no-untyped-call]
        visible = torch.cuda.device_count()
        names = [torch.cuda.get_device_name(number) for number in range(visible)]
    except Exception as error:  # torch raises many classes
        todo = "see the output of nvidia-smi, or restart the machine"
        return GpuCheck(
            "GPUs",
            "",
            f"CUDA does not start ({shortened(error_text(error), 200)}): {todo}",
        )
    found = ", ".join(f"{names.count(name)} × {name}" for name in dict.fromkeys(names))
    if visible < count:
        todo = "request more from the scheduler, check CUDA_VISIBLE_DEVICES, or lower num_gpus"
        return GpuCheck(
            "GPUs", found, f"{count} GPUs are needed, visible: {visible}; {todo}"
        )
    return GpuCheck("GPUs", found)


def _architecture(count: int) -> GpuCheck:
    capabilities = [torch.cuda.get_device_capability(number) for number in range(count)]
    low = min(capabilities)
    text = f"{low[0]}.{low[1]}"
    built = [_capability(name) for name in torch.cuda.get_arch_list()]
    if low < LEAST_CAPABILITY:
        needed = ".".join(map(str, LEAST_CAPABILITY))
        return GpuCheck(
            "architecture",
            text,
            f"compute capability {text}: {needed} is needed, use a newer GPU",
        )
    # Code runs on GPUs of the same generation with the same or a higher minor number.
    if not any(major == low[0] and minor <= low[1] for major, minor in built):
        fault = f"this build of PyTorch has no code for compute capability {text}: install another build"
        return GpuCheck("architecture", text, fault)
    return GpuCheck(
        "architecture",
        f"{text}, {'bfloat16' if low >= BFLOAT16_CAPABILITY else 'float32'}",
    )


def _capability(name: str) -> tuple[int, int]:
    """Major and minor number of `sm_90` or `sm_90a`."""
    digits = "".join(one for one in name.partition("_")[2] if one.isdigit())
    return (int(digits[:-1]), int(digits[-1])) if len(digits) > 1 else (0, 0)


def _memory(config: Config, count: int) -> GpuCheck:
    found = plan(config, gpu=next(iter(GPUS)), count=count)
    assert isinstance(found, GpuPlan)
    stage, needed = max(
        found.memory.items(), key=lambda item: item[1], default=("", 0.0)
    )
    free, gpu = min(
        (torch.cuda.mem_get_info(number)[0], number) for number in range(count)
    )
    text = f"{free / 1e9:.1f} GB free, about {needed / 1e9:.1f} GB needed"
    if free < needed:
        todo = "end other programs on it, or raise grad_accumulation"
        return GpuCheck("memory", text, f"GPU {gpu} has {text} for {stage}: {todo}")
    return GpuCheck("memory", text)


def _compiler() -> GpuCheck:
    compiler = os.environ.get("CC") or next(
        (one for one in COMPILERS if shutil.which(one)), None
    )
    header = Path(sysconfig.get_path("include")) / "Python.h"
    if find_spec("triton") is None:
        return GpuCheck(
            "compiler",
            "",
            "Triton is not installed, without which attention is slow: install it",
        )
    if compiler is None or shutil.which(compiler) is None:
        fault = f"Triton needs a C compiler ({compiler or ', '.join(COMPILERS)}): install one, or set CC"
        return GpuCheck("compiler", "", fault)
    if not header.is_file():
        return GpuCheck(
            "compiler",
            compiler,
            f"Triton needs {header}: install Python's headers (python3-dev)",
        )
    return GpuCheck("compiler", f"{compiler}, {header}")


# The training


def _training(config: Config) -> tuple[str, TrainingConfig, int]:
    """Name, section and tokens per input of the largest training."""
    name = config.largest_training
    if name == "pretraining":
        return name, config.pretraining, config.pretraining.sequence_tokens
    if name == "chromatin":
        return (
            name,
            config.chromatin.training,
            window_tokens(config, config.chromatin.data.window),
        )
    if name == "promoters":
        bases = sum(config.promoters.windows.sides)
        return name, config.promoters.training, window_tokens(config, bases)
    return name, config.sequences.training, planned_encoder(config).max_length


def check_training(config: Config, count: int, device: str) -> GpuCheck:
    """Train for a few steps in `count` processes that sum gradients, and state speed and memory."""
    name, _, _ = _training(config)
    process = [sys.executable, "-P", "-m", "bigbird_dna.training.gpu_check"]
    if count > 1:
        torchrun = [
            "-m",
            "torch.distributed.run",
            "--standalone",
            f"--nproc-per-node={count}",
        ]
        process = [sys.executable, "-P", *torchrun, "--no-python", *process]
    with tempfile.TemporaryDirectory() as home:
        given, result = Path(home) / "config.json", Path(home) / "result.json"
        given.write_text(json.dumps(config.model_dump(mode="json")), encoding="utf-8")
        try:
            words = [*process, str(given), str(result), device]
            ended = subprocess.run(
                words, capture_output=True, text=True, timeout=LONGEST, check=False
            )
        except subprocess.TimeoutExpired:
            todo = "set NCCL_DEBUG=INFO and NCCL_P2P_DISABLE=1 to find the reason"
            late = f"{count} processes did not finish {STEPS} steps within {LONGEST / 60:.0f} minutes"
            return GpuCheck("training", "", f"{late}: {todo}")
        if ended.returncode or not result.exists():
            return GpuCheck(
                "training",
                "",
                f"{STEPS} steps of {name} failed: {_reason(ended.stderr)}",
            )
        measured = json.loads(result.read_text(encoding="utf-8"))
    return described(name, measured)


def described(name: str, measured: dict[str, Any]) -> GpuCheck:
    """The check of a training, given its name and the results of `Measurement`."""
    speed, hours = measured["tokens_per_second"], measured["hours"]
    memory = (
        f", {measured['peak'] / 1e9:.1f} GB per process" if measured["peak"] else ""
    )
    text = f"{name}: {speed:,.0f} tokens/s{memory}; all steps take {hours:,.1f} hours"
    if measured["fits"]:
        parts, inputs, needed = measured["fits"]
        key = "pretraining" if name == "pretraining" else f"{name}.training"
        free = measured["free"] / 1e9
        text += f"; {key}.grad_accumulation: {parts} would fit ({inputs} sequences at a time, about "
        text += f"{needed / 1e9:.1f} of {free:.1f} GB)"
    return GpuCheck("training", text)


class FittingParts(NamedTuple):
    """The least number of micro-batches that fits, its sequences, and the bytes that these take."""

    parts: int
    sequences: int
    needed: float


def fitting_parts(
    rows: int, parts: int, measure: Callable[[int], float], free: float
) -> FittingParts | None:
    """Find the least number of micro-batches into which the `rows` sequences of a process can be divided.

    `measure` returns the peak memory of a training for a number of sequences per micro-batch. It is called
    for the configured `parts` and for half as many sequences, or for one and two, if two fit for certain.
    Memory beyond is extrapolated. None: nothing fits, or memory does not grow between the two.
    """
    many = -(-rows // parts)
    few = many // 2
    if not few:
        if rows < 2 or 2 * measure(1) > free:
            return None
        few, many = 1, 2
    low, high = measure(few), measure(many)
    each = (high - low) / (many - few)
    if each <= 0:
        return None
    fits = (
        FittingParts(number, rows // number, high + each * (rows // number - many))
        for number in range(1, rows + 1)
        if rows % number == 0
    )
    return next((one for one in fits if one.needed <= FILLED * free), None)


def _reason(errors: str) -> str:
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    of_error = [line for line in lines if "rror" in line and "ChildFailed" not in line]
    return shortened((of_error or lines or ["no message"])[0], 300)


class RandomTokensObjective(Objective):
    """Random tokens, some of which are predicted; the time at which each step begins."""

    def __init__(self, encoder: EncoderConfig, tokens: int) -> None:
        self.encoder, self.tokens = encoder, tokens
        self.begun: list[float] = []

    def batch(self, step: int, first: int, count: int) -> Batch:
        generator = torch.Generator().manual_seed(step * 1_000_003 + first)
        ids = torch.randint(
            self.encoder.vocabulary, (count, self.tokens), generator=generator
        )
        return {"ids": ids, "lengths": torch.full((count,), self.tokens)}

    def counts(self, batch: Batch) -> dict[str, float]:
        self.begun.append(time.monotonic())
        return {"rows": float(len(batch["ids"]))}

    def loss(
        self, network: nn.Module, batch: Batch, totals: dict[str, float]
    ) -> Tensor:
        ids = batch["ids"]
        masked = torch.arange(math.ceil(ids.numel() * MASKED), device=ids.device)
        logits = network(ids, batch["lengths"], None, masked).tokens
        return (
            F.cross_entropy(logits.float(), ids.flatten()[masked])
            * len(ids)
            / totals["rows"]
        )

    def evaluate(self, network: nn.Module) -> dict[str, float]:
        return {}


class _Unsaved(CheckpointStore):
    """Saves nothing."""

    def save(self, *_: object) -> None:
        pass


class Measurement:
    """Trains the network of a configuration for a few steps, and measures its peak memory."""

    def __init__(self, config: Config, here: World, directory: Path) -> None:
        _, self.training, self.tokens = _training(config)
        self.here, self.directory = here, directory
        self.encoder = planned_encoder(config)
        self.rows = -(-self.training.batch_size // here.size)  # sequences of a process
        self._on_gpu = here.device.type in MEASURED
        self.free = (
            min(here.gather(available_memory(here.device) or 0)) if self._on_gpu else 0
        )
        torch.manual_seed(self.training.seed)
        self._network = PretrainingNetwork(self.encoder, next_sentence=False)
        self._peaks: dict[int, int] = {}

    def train(self, batch_size: int) -> RandomTokensObjective:
        """Train with a batch size; returns the times of the steps."""
        objective = RandomTokensObjective(self.encoder, self.tokens)
        changes = {"steps": STEPS, "evaluate_every": STEPS, "batch_size": batch_size}
        store = _Unsaved(
            self.directory / f"checkpoints-{self.here.rank}-{batch_size}", {}, {}
        )
        begin_memory_peak(self.here.device)
        train_network(
            self._network,
            objective,
            self.training.model_copy(update=changes),
            store,
            self.here,
        )
        peak = memory_peak(self.here.device) if self._on_gpu else None
        sequences = -(-batch_size // (self.here.size * self.training.grad_accumulation))
        self._peaks[sequences] = max(self.here.gather(peak or 0))
        return objective

    def peak(self, sequences: int) -> int:
        """The largest peak of all processes for a number of sequences per micro-batch; 0 without a GPU."""
        if sequences not in self._peaks:
            self.train(sequences * self.here.size * self.training.grad_accumulation)
        return self._peaks[sequences]

    def results(self) -> dict[str, Any]:
        """Speed, memory, and the micro-batches that would fit."""
        training = self.training
        begun = self.train(training.batch_size).begun
        each = (
            training.grad_accumulation
        )  # micro-batches of a step, of which each is counted
        seconds = (time.monotonic() - begun[each]) / (STEPS - 1)
        return {
            "tokens_per_second": training.batch_size * self.tokens / seconds,
            "hours": training.steps * seconds / 3600,
            "peak": self.peak(-(-self.rows // each)),
            "fits": fitting_parts(self.rows, each, self.peak, self.free)
            if self._on_gpu
            else None,
            "free": self.free,
        }


def main() -> None:
    """One of the processes: writes speed and memory as JSON."""
    config, result, device = sys.argv[1:]
    try:
        with world(device) as here:
            given = parse_config(
                json.loads(Path(config).read_text(encoding="utf-8")), config
            )
            found = Measurement(given, here, Path(result).parent).results()
            if here.is_first:
                Path(result).write_text(json.dumps(found), encoding="utf-8")
    except BigBirdDnaError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
