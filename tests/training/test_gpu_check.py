"""Checks of GPUs: each fault is a sentence; the training is a real one, here on CPUs."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bigbird_dna.config import load_config, parse_config
from bigbird_dna.training import gpu_check
from bigbird_dna.training.distributed import World
from bigbird_dna.training.gpu_check import (
    FILLED,
    GpuCheck,
    Measurement,
    check_gpu,
    check_training,
    described,
    fitting_parts,
)
from bigbird_dna.training.gpu_time import GpuPlan, plan
from tests.cli.command import Run, refused
from tests.golden.messages import message

Patch = Callable[[pytest.MonkeyPatch], None]
GB = 10**9
LARGE = "pretraining.batch_size=64"


def without_gpu(_: object = None) -> None:
    raise RuntimeError("CUDA unknown error")


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Two GPUs that are as they should be, as torch describes them."""
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(gpu_check, "driver_version", lambda: 13010)
    for name, value in {
        "init": lambda: None,
        "device_count": lambda: 2,
        "get_device_name": lambda number: "NVIDIA H100",
        "get_device_capability": lambda number: (9, 0),
        "get_arch_list": lambda: ["sm_80", "sm_90a", "compute_120"],
        "mem_get_info": lambda number: (60 * GB, 80 * GB),
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(gpu_check, "find_spec", lambda name: name)
    monkeypatch.setattr(
        gpu_check, "check_training", lambda *_: GpuCheck("training", "done")
    )
    monkeypatch.setattr(gpu_check, "sysconfig", Headers(Path(__file__).parent))
    return monkeypatch


class Headers:
    """Where Python's headers are said to be."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def get_path(self, _: str) -> str:
        return str(self.place)


def checked(config: Path, count: int = 2, **options: Any) -> list[GpuCheck]:
    return [*check_gpu(load_config(config), count, **options)]


def test_a_machine_without_faults_is_described(
    machine: pytest.MonkeyPatch, tiny_config: Path, tmp_path: Path
) -> None:
    (tmp_path / "Python.h").touch()
    machine.setattr(gpu_check, "sysconfig", Headers(tmp_path))
    found = checked(tiny_config, output=tmp_path / "gpu.tsv")
    names = [
        "PyTorch",
        "driver",
        "GPUs",
        "architecture",
        "memory",
        "compiler",
        "training",
    ]
    assert [check.name for check in found] == names and not any(
        check.fault for check in found
    )
    assert found[2].found == "2 × NVIDIA H100"
    rows = [
        line.split("\t") for line in (tmp_path / "gpu.tsv").read_text().splitlines()
    ]
    assert rows == [[check.name, check.found] for check in found]


FAULTS: dict[str, tuple[str, Patch]] = {
    "build": ("PyTorch", lambda patch: patch.setattr(torch.version, "cuda", None)),
    "no driver": (
        "driver",
        lambda patch: patch.setattr(gpu_check, "driver_version", lambda: 0),
    ),
    "old driver": (
        "driver",
        lambda patch: patch.setattr(gpu_check, "driver_version", lambda: 12020),
    ),
    "broken driver": (
        "GPUs",
        lambda patch: patch.setattr(torch.cuda, "init", without_gpu),
    ),
    "few": ("GPUs", lambda patch: patch.setattr(torch.cuda, "device_count", lambda: 1)),
    "old GPU": (
        "architecture",
        lambda patch: patch.setattr(
            torch.cuda, "get_device_capability", lambda number: (9 - 3 * number, 1)
        ),
    ),
    "no code": (
        "architecture",
        lambda patch: patch.setattr(torch.cuda, "get_arch_list", lambda: ["sm_80"]),
    ),
    "memory": (
        "memory",
        lambda patch: patch.setattr(
            torch.cuda, "mem_get_info", lambda number: (GB >> (20 * number), GB)
        ),
    ),
    "Triton": (
        "compiler",
        lambda patch: patch.setattr(gpu_check, "find_spec", lambda name: None),
    ),
    "compiler": (
        "compiler",
        lambda patch: patch.setattr(shutil, "which", lambda name: None),
    ),
    "headers": ("compiler", lambda patch: None),
    "training": (
        "training",
        lambda patch: patch.setattr(
            gpu_check, "check_training", lambda *_: GpuCheck("training", "", "late")
        ),
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_a_sentence_and_what_depends_on_it_is_not_checked(
    machine: pytest.MonkeyPatch, tiny_config: Path, tmp_path: Path, name: str
) -> None:
    if name != "headers":
        (tmp_path / "Python.h").touch()
    machine.setattr(gpu_check, "sysconfig", Headers(tmp_path))
    machine.delenv("CC", raising=False)
    of, break_it = FAULTS[name]
    break_it(machine)
    found = checked(tiny_config, output=tmp_path / "gpu.tsv")
    (fault,) = [check for check in found if check.fault]
    assert fault.name == of and not (tmp_path / "gpu.tsv").exists()
    assert (found[-1].name == "training") == (name == "training")
    message(fault.fault.replace(str(tmp_path), "HERE"))


def test_the_training_is_that_of_the_configuration_in_a_process_per_gpu(
    tiny_config: Path,
) -> None:
    check = check_training(load_config(tiny_config), 2, "cpu")
    assert (
        not check.fault and "pretraining: " in check.found and "tokens/s" in check.found
    )
    # An error of the training is the fault's reason.
    few = load_config(
        tiny_config, ["pretraining.batch_size=2", "pretraining.grad_accumulation=2"]
    )
    message(check_training(few, 2, "cpu").fault, "batch_size 2")


def test_memory_is_that_of_as_many_processes(
    machine: pytest.MonkeyPatch, tiny_config: Path
) -> None:
    """The file of a stage, which the workflow gives, has no number of GPUs."""
    needed = []
    for count in (1, 2):
        found = plan(load_config(tiny_config, [f"num_gpus={count}", LARGE]), gpu="a100")
        assert isinstance(found, GpuPlan)
        needed.append(max(found.memory.values()))
    assert needed[0] > 1.2 * needed[1]
    machine.setattr(torch.cuda, "mem_get_info", lambda number: (sum(needed) / 2, GB))
    for count, fault in ((1, True), (2, False)):
        given = load_config(tiny_config, ["num_gpus=1", LARGE])
        (memory,) = (
            check for check in check_gpu(given, count) if check.name == "memory"
        )
        assert bool(memory.fault) == fault


def test_the_largest_training_is_checked(tiny_config: Path) -> None:
    assert load_config(tiny_config).largest_training == "pretraining"
    genome = {"assembly": "custom", "name": "own", "reference": "x.fa", "test": ["a"]}
    random = {
        "promoters": {"model": {"initial": "random"}},
        "chromatin": {"model": {"initial": "random"}},
    }
    for values, name in (
        (
            {"chromatin": {"data": {"tracks": "tracks.tsv"}} | random["chromatin"]},
            "chromatin",
        ),
        ({"sequences": {"data": "x.csv", "model": {"initial": "random"}}}, "sequences"),
    ):
        assert (
            parse_config({"genome": genome, **random, **values}).largest_training
            == name
        )


def test_the_command_ends_with_an_error_or_writes_what_it_found(
    run: Run, tiny_config: Path, tmp_path: Path
) -> None:
    output = tmp_path / "gpu.tsv"
    if torch.version.cuda is None:
        result = run("check-gpu", tiny_config, "-o", output)
        assert result.out.startswith("FAULT\tPyTorch\t") and not output.exists()
        refused(result._replace(out=""), 1, "PyTorch")
    assert run(
        "check-gpu", tiny_config, "--device", "cpu", "-o", output
    ).out.startswith("ok\tdevice\tcpu")
    assert output.read_text().startswith("device\tcpu")


@given(
    rows=st.integers(1, 96),
    parts=st.integers(1, 96),
    fixed=st.integers(0, 50),
    each=st.integers(0, 20),
    free=st.integers(1, 400),
)
def test_the_least_number_of_micro_batches_that_fits_is_found(
    rows: int, parts: int, fixed: int, each: int, free: int
) -> None:
    """Nothing is measured that is larger than what is configured, unless it fits for certain."""
    parts = min(rows, parts)
    measured: list[int] = []

    def peak(sequences: int) -> float:
        measured.append(sequences)
        return fixed + each * sequences

    found = fitting_parts(rows, parts, peak, free)
    configured = -(-rows // parts)
    assert all(one <= configured or peak(one) <= free for one in [*measured])
    if each == 0 or rows == 1 or (configured == 1 and 2 * (fixed + each) > free):
        assert found is None
        return
    fit = [
        n
        for n in range(1, rows + 1)
        if rows % n == 0 and fixed + each * (rows // n) <= FILLED * free
    ]
    assert (found.parts if found else None) == (fit[0] if fit else None)
    if found:
        assert found.sequences * found.parts == rows
        assert found.needed == pytest.approx(fixed + each * found.sequences)


def test_memory_is_measured_with_two_sizes_of_micro_batches(
    tiny_config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A CPU in place of the GPU: trainings are real, and memory grows with the tokens of a micro-batch."""
    config = load_config(
        tiny_config, ["pretraining.batch_size=8", "pretraining.grad_accumulation=2"]
    )
    largest: list[int] = []

    class Objective(gpu_check.RandomTokensObjective):
        def loss(self, network: Any, batch: Any, totals: dict[str, float]) -> Any:
            largest[-1] = max(largest[-1], len(batch["ids"]))
            return super().loss(network, batch, totals)

    monkeypatch.setattr(gpu_check, "RandomTokensObjective", Objective)
    monkeypatch.setattr(gpu_check, "MEASURED", ("cpu",))
    monkeypatch.setattr(gpu_check, "available_memory", lambda _: 100 * GB)
    monkeypatch.setattr(gpu_check, "begin_memory_peak", lambda _: largest.append(0))
    monkeypatch.setattr(
        gpu_check, "memory_peak", lambda _: (10 + 10 * largest[-1]) * GB
    )
    measured = Measurement(config, World(0, 1, torch.device("cpu")), tmp_path).results()
    assert largest == [4, 2] and measured["peak"] == 50 * GB
    assert measured["fits"] == (1, 8, 90 * GB) and measured["free"] == 100 * GB
    check = described("pretraining", measured)
    assert "pretraining.grad_accumulation: 1 would fit" in check.found
