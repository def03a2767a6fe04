"""The command that several processes are started by, on one node and on more."""

import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bigbird_dna.cli.launch import command_line
from bigbird_dna.errors import UsageError
from tests.golden.messages import fails

WORDS = ["pretrain", "a b.yaml"]


def line(processes: int, nodes: int, job: str | None = None, inside: Sequence[str] = ()) -> list[str]:
    environment = {} if job is None else {"SLURM_JOB_ID": job}
    given: dict[str, Any] = {"cpus": 32, "meeting": "n1:29000", "inside": inside}
    made = command_line(WORDS, environment, processes=processes, nodes=nodes, **given)
    return ["python" if word == sys.executable else word for word in made]


def test_one_process_is_the_command_itself() -> None:
    assert line(1, 1) == ["python", "-m", "bigbird_dna.cli.main", *WORDS]


def test_several_on_a_node_are_torchrun_s() -> None:
    command = "python -m torch.distributed.run --standalone --nproc-per-node=8 -m bigbird_dna.cli.main"
    assert line(8, 1) == [*command.split(), *WORDS]


def test_on_several_nodes_srun_starts_one_torchrun_each_which_meet() -> None:
    srun = (
        "srun --nodes=2 --ntasks=2 --ntasks-per-node=1 --cpus-per-task=32 --kill-on-bad-exit=1 python -m"
        " torch.distributed.run --nnodes=2 --rdzv-backend=c10d --rdzv-endpoint=n1:29000 --rdzv-id=77"
        " --nproc-per-node=8 -m bigbird_dna.cli.main"
    )
    assert line(16, 2, job="77") == [*srun.split(), *WORDS]


@pytest.mark.parametrize(("processes", "nodes"), [(1, 1), (8, 1), (16, 2)])
def test_in_a_container_is_what_srun_starts_and_not_srun(processes: int, nodes: int) -> None:
    inside = ["apptainer", "exec", "--home", "/a b", "image.sif"]
    outside = line(processes, nodes, job="77")
    place = outside.index("python")
    expected = [*outside[:place], *inside, *outside[place:]]
    assert line(processes, nodes, job="77", inside=inside) == expected
    assert ("srun" in expected) == (nodes > 1)


@pytest.mark.parametrize(("processes", "nodes"), [(9, 2), (0, 1), (16, 2)])
def test_what_cannot_be_started_is_refused(processes: int, nodes: int) -> None:
    with fails(UsageError):
        line(processes, nodes)


def launch(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bigbird_dna.cli.launch", *words],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )


def test_words_that_lead_into_a_container_are_read_as_a_shell_reads_them(tmp_path: Path) -> None:
    place = tmp_path / "to hold"
    place.mkdir()
    shown = [sys.executable, "-c", "import sys; print(sys.argv[1:])"]
    inside = f"{shlex.join(shown)} --bind '$PLACE' \"a  b\" image.sif"
    done = launch("--container-command", inside, "--", "pretrain", "$PLACE", PLACE=str(place))
    told = ["--bind", str(place), "a  b", "image.sif", "python", "-m", "bigbird_dna.cli.main"]
    assert (done.returncode, done.stdout) == (0, f"{[*told, 'pretrain', '$PLACE']}\n"), done.stderr
    done = launch("--container-command", "apptainer 'exec", "--", "pretrain")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert '--container-command "apptainer \'exec": not words as in a shell' in done.stderr
    done = launch("--container-command", str(place), "--", "pretrain")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)


def test_the_command_takes_its_place_with_its_words_and_exit_code(tmp_path: Path) -> None:
    missing = tmp_path / "no such.yaml"
    done = launch("--", "pretrain", str(missing))
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith("bigbird-dna: error: ") and str(missing) in done.stderr
    done = launch("--processes", "3", "--nodes", "2", "--", "pretrain")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    done = launch("--processes", "2", "--nodes", "2", "--", "pretrain", SLURM_JOB_ID="1", PATH=str(tmp_path))
    assert done.returncode == 1 and "srun: can't be started" in done.stderr
