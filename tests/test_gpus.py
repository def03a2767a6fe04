"""Commands on one machine run on different GPUs; in place of GPUs there are numbers of them."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
import typer.main
import yaml

from bigbird_dna import gpus
from bigbird_dna.errors import UsageError
from bigbird_dna.gpus import acquire_gpu, lease_gpus, release_gpu, visible_gpus
from bigbird_dna.model.inference import choose_device
from tests.cli.command import Run
from tests.conftest import REPOSITORY
from tests.golden.messages import fails, message
from tests.workflow.dry_runs import snakemake

# A command of its own: prints which of so many GPUs it has, and keeps it until it is ended.
COMMAND = """
import sys, time
from bigbird_dna import gpus
gpus.PAUSE = 0.1
gpus.lease_gpus()
print(gpus.acquire_gpu(int(sys.argv[1])), flush=True)
time.sleep(100)
"""

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Locks in a directory of the test's own, no scheduler, and nothing leased before and after."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    for name in (
        "CUDA_VISIBLE_DEVICES",
        gpus.SHARED,
        *gpus.JOBS,
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(gpus, "PAUSE", 0.01)
    release_gpu()
    yield
    release_gpu()


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a command that takes one of `count` GPUs."""
    started = []

    def call(count: int, **environment: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", COMMAND, str(count)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )
        started.append(process)
        return process

    yield call
    for process in started:
        with suppress(ProcessLookupError):
            process.kill()
        process.communicate()


def number_of(process: subprocess.Popen[str]) -> str:
    """The GPU that a command prints."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_commands_side_by_side_have_different_gpus_and_a_killed_one_s_is_free_again(
    start: Start,
) -> None:
    commands = [start(3) for _ in range(3)]
    assert sorted(map(number_of, commands)) == ["0", "1", "2"]
    late = start(3)
    assert late.stderr is not None
    line = late.stderr.readline()
    assert (
        all(f" {command.pid} since 20" in line for command in commands)
        and late.poll() is None
    )
    commands[1].send_signal(signal.SIGKILL)
    commands[1].wait()
    assert number_of(late) in ("0", "1", "2")


def test_a_gpu_is_taken_once_and_kept(start: Start) -> None:
    assert number_of(start(8)) == "0"
    lease_gpus()
    assert acquire_gpu(8) == acquire_gpu(8) == 1


def test_without_leases_nothing_is_kept_apart(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a notebook, and where somebody asks for it."""
    assert number_of(start(8)) == "0"
    assert (acquire_gpu(8), acquire_gpu(8, local_rank=3)) == (0, 3)
    monkeypatch.setenv(gpus.SHARED, "shared")
    lease_gpus()
    assert acquire_gpu(8) == 0


@pytest.mark.parametrize(
    ("value", "count", "names"),
    [
        (None, 3, ["0", "1", "2"]),
        ("5, 2", 2, ["5", "2"]),
        ("GPU-1a,GPU-2b", 2, ["GPU-1a", "GPU-2b"]),
        ("3,9,4", 1, ["3"]),  # CUDA stops at the first that there isn't
        ("", 2, ["0", "1"]),
    ],
)
def test_the_gpus_that_a_user_names_are_the_ones(
    value: str | None, count: int, names: list[str]
) -> None:
    assert (
        visible_gpus({} if value is None else {"CUDA_VISIBLE_DEVICES": value}, count)
        == names
    )


def test_only_the_named_gpus_are_leased_and_are_the_same_under_every_name(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert number_of(start(1, CUDA_VISIBLE_DEVICES="5")) == "0"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,2")
    lease_gpus()
    assert acquire_gpu(2) == 1, "GPU 5 is taken, GPU 2 is not"
    assert number_of(start(8)) == "0", "GPUs 2 and 5 of all are taken, GPU 0 is not"


def test_processes_that_train_together_get_a_gpu_each_or_are_refused(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = start(2)
    number_of(first)
    monkeypatch.setattr(gpus, "TOGETHER", 0.05)
    lease_gpus()
    assert acquire_gpu(2, local_rank=0, together=2) == 1
    release_gpu()
    lease_gpus()
    assert acquire_gpu(8, local_rank=5, together=8) == 5, (
        "a rank's own, where that is free"
    )
    release_gpu()
    lease_gpus()
    number_of(start(2))
    began = time.monotonic()
    with fails(UsageError) as caught:
        acquire_gpu(2, local_rank=1, together=2)
    assert (
        time.monotonic() - began < 5
        and f"GPU 0 by process {first.pid} since" in str(caught.value)
    )


def test_in_a_scheduler_s_job_its_processes_are_kept_apart_but_not_from_other_jobs(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two jobs of one GPU each both call it 0, and it is another one."""
    assert number_of(start(1)) == "0"
    assert number_of(start(1, SLURM_JOB_ID="7")) == "0"
    assert number_of(start(1, SLURM_JOB_ID="8")) == "0"
    monkeypatch.setenv("SLURM_JOB_ID", "8")
    lease_gpus()
    assert acquire_gpu(2) == 1


def test_where_nothing_can_be_locked_a_line_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bigbird-dna-cards").write_text("not a directory")
    lease_gpus()
    assert acquire_gpu(4) == 0
    message(capsys.readouterr().err.partition("  ")[2], tmp_path / "bigbird-dna-cards")


def test_locks_are_for_all_users(tmp_path: Path) -> None:
    lease_gpus()
    acquire_gpu(1)
    (lock,) = (tmp_path / "bigbird-dna-cards").iterdir()
    assert lock.stat().st_mode & 0o777 == 0o666
    assert lock.parent.stat().st_mode & 0o7777 == 0o1777
    assert lock.read_text().startswith(f"process {os.getpid()} since 20")


def test_the_device_is_the_leased_gpu(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what names no GPU means that one as well."""
    present: list[int] = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)
    monkeypatch.setattr(torch.cuda, "set_device", present.append)
    assert number_of(start(8)) == "0"
    assert choose_device("cpu").type == "cpu"
    assert choose_device("auto") == torch.device("cuda", 0)
    lease_gpus()
    assert choose_device("auto") == choose_device("cuda") == torch.device("cuda", 1)
    assert set(present) == {1}


def test_every_command_leases_and_gives_back(
    run: Run, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    taken: list[torch.device] = []

    def command(*_: Any) -> Callable[[], None]:
        return lambda: taken.append(choose_device("cuda"))

    monkeypatch.setattr(typer.main, "get_command", command)
    assert run("anything").code == 0
    assert taken == [torch.device("cuda", 0)]
    assert number_of(start(2)) == "0" and acquire_gpu(2) == 0


JOBS = """
rule all:
    input: "0.txt", "1.txt"
rule one:
    output: "{number}.txt"
    resources: gpu=1
    shell: "python command.py {output} {wildcards.number}"
"""
JOB = """
import sys, time
from pathlib import Path
from bigbird_dna.gpus import lease_gpus, acquire_gpu
lease_gpus()
Path(f"began-{sys.argv[2]}").write_text(str(acquire_gpu(8)))
while not Path(f"began-{1 - int(sys.argv[2])}").exists():
    time.sleep(0.02)
Path(sys.argv[1]).write_text(Path(f"began-{sys.argv[2]}").read_text())
"""


def test_two_jobs_that_snakemake_starts_side_by_side_have_different_gpus(
    tmp_path: Path,
) -> None:
    (tmp_path / "Snakefile").write_text(JOBS)
    (tmp_path / "command.py").write_text(JOB)
    done = snakemake(tmp_path, "--resources", "gpu=8", snakefile=tmp_path / "Snakefile")
    assert done.code == 0, done.err
    assert {(tmp_path / f"{number}.txt").read_text() for number in range(2)} == {
        "0",
        "1",
    }


@pytest.mark.parametrize(
    ("nvidia", "apple", "processes"),
    [(0, True, 1), (0, False, 1), (0, True, 2), (1, True, 1)],
)
def test_apple_s_gpu_serves_one_process_that_asks_for_it(
    monkeypatch: pytest.MonkeyPatch, nvidia: int, apple: bool, processes: int
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: nvidia)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: apple)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(processes))
    serves = apple and processes == 1
    assert choose_device("auto").type == ("cuda" if nvidia else "cpu")
    assert choose_device("cpu").type == "cpu"
    if serves:
        assert choose_device("mps").type == "mps"
    else:
        with fails(UsageError, "mps", str(processes)):
            choose_device("mps")


def test_a_command_asked_for_a_missing_apple_gpu_writes_nothing(
    monkeypatch: pytest.MonkeyPatch, run: Run, tmp_path: Path
) -> None:
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    output = tmp_path / "scores.tsv"
    example = REPOSITORY / "resources/examples/yeast_VII_20kb.fa.gz"
    result = run(
        "score-promoters",
        "yeast-promoters-window",
        example,
        "--device",
        "mps",
        "-o",
        output,
    )
    assert result.code == 2 and not output.exists()
    message(result.err, "mps")


KERNELS = {"TORCHINDUCTOR_CACHE_DIR": "torch", "TRITON_CACHE_DIR": "triton"}


@pytest.mark.parametrize("own", [{}, {"TRITON_CACHE_DIR": "mine"}], ids=str)
def test_kernels_are_kept_in_the_configured_directory_unless_the_environment_names_one(
    own: dict[str, str], tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = {
        key: str(tmp_path / "kernels" / name) for key, name in KERNELS.items()
    } | own
    for key in KERNELS:
        monkeypatch.setenv(key, own.get(key, ""))
        if key not in own:
            monkeypatch.delenv(key)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.yaml").write_text("kernel_cache: kernels\n")
    assert run("pretrain", "run.yaml", "--device", "cpu").code == 1, (
        "there are no tokens"
    )
    assert {key: os.environ[key] for key in KERNELS} == expected
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    choose_device("cuda")
    assert {key: os.environ[key] for key in KERNELS} == expected


def test_jobs_of_a_workflow_keep_kernels_in_the_configured_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in KERNELS:  # set by a test before
        monkeypatch.delenv(name, raising=False)
    values = yaml.safe_load((REPOSITORY / "workflow/config/demo.yaml").read_text())
    (tmp_path / "config.json").write_text(
        json.dumps(values | {"kernel_cache": "kernels"})
    )
    (tmp_path / "Snakefile").write_text(
        f"""
import json
rule show:
    output: "shown.txt"
    shell: "printenv {" ".join(KERNELS)} > {{output}}"
module main:
    snakefile: {str(REPOSITORY / "workflow/Snakefile")!r}
    config: json.load(open("config.json"))
use rule * from main as main_*
"""
    )
    done = snakemake(tmp_path, "show", snakefile=tmp_path / "Snakefile")
    assert done.code == 0, done.err
    shown = (tmp_path / "shown.txt").read_text().split()
    assert shown == [str(tmp_path / "kernels" / name) for name in KERNELS.values()]
