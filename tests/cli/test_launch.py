"""The command that starts a training in one or several processes, on one node or on more."""

import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bigbird_dna.cli.launch import command_line
from bigbird_dna.errors import UsageError
from bigbird_dna.workflow import launcher
from tests.cli.command import Result, refused
from tests.golden.messages import fails

WORDS = ["pretrain", "a b.yaml"]


def line(
    processes: int, nodes: int, job: str | None = None, inside: Sequence[str] = ()
) -> list[str]:
    environment = {} if job is None else {"SLURM_JOB_ID": job}
    given: dict[str, Any] = {"cpus": 32, "rendezvous": "n1:29000", "container": inside}
    made = command_line(WORDS, environment, processes=processes, nodes=nodes, **given)
    return ["python" if word == sys.executable else word for word in made]


@pytest.mark.parametrize(
    ("processes", "nodes", "outside", "command"),
    [
        (1, 1, "", "python -P"),
        (
            8,
            1,
            "",
            "python -P -m torch.distributed.run --standalone --nproc-per-node=8 --no-python python -u -P",
        ),
        (
            *(16, 2),
            "srun --nodes=2 --ntasks=2 --ntasks-per-node=1 --cpus-per-task=32 --kill-on-bad-exit=1",
            "python -P -m torch.distributed.run --nnodes=2 --rdzv-backend=c10d --rdzv-endpoint=n1:29000"
            " --rdzv-id=77 --nproc-per-node=8 --no-python python -u -P",
        ),
    ],
)
def test_one_torchrun_on_each_node_which_a_container_is_around(
    processes: int, nodes: int, outside: str, command: str
) -> None:
    """One process is the command itself; `srun` stays outside of the container."""
    for inside in ([], ["apptainer", "exec", "--home", "/a b", "image.sif"]):
        expected = [
            *outside.split(),
            *inside,
            *command.split(),
            "-m",
            "bigbird_dna.cli.main",
            *WORDS,
        ]
        assert line(processes, nodes, "77" if nodes > 1 else None, inside) == expected


@pytest.mark.parametrize(("processes", "nodes"), [(9, 2), (0, 1), (16, 2)])
def test_what_cannot_be_started_is_refused(processes: int, nodes: int) -> None:
    with fails(UsageError):
        line(processes, nodes)


def launch(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "bigbird_dna.cli.launch", *words],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize("processes", [1, 2])
def test_files_of_the_working_directory_are_not_run(
    tmp_path: Path, processes: int
) -> None:
    """Whatever their names: each process would leave its own, or stop."""
    for name in ("tokenize", "secrets", "torch", "random", "bigbird_dna"):
        (tmp_path / f"{name}.py").write_text(
            "import os; open(f'ran-{os.getpid()}', 'w'); os._exit(9)"
        )
    environment = {
        key: value for key, value in os.environ.items() if key != "PYTHONSAFEPATH"
    }
    given = [f"--processes={processes}", "--", "check-config", "none.yaml"]
    command = launcher("")({}, 1, SimpleNamespace(processes=2, get=lambda *_: 1))[:-4]
    command[0] = sys.executable
    done = subprocess.run(
        [*command, *given],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert not [*tmp_path.glob("ran-*")] and "none.yaml" in done.stderr, done.stderr
    # torchrun may stop the others before they say it too
    assert 1 <= done.stderr.count("bigbird-dna: error: ") <= processes


def test_words_that_lead_into_a_container_are_read_as_a_shell_reads_them(
    tmp_path: Path,
) -> None:
    place = tmp_path / "to hold"
    place.mkdir()
    shown = [sys.executable, "-c", "import sys; print(sys.argv[1:])"]
    inside = f"{shlex.join(shown)} --bind '$PLACE' \"a  b\" image.sif"
    done = launch(
        "--container-command", inside, "--", "pretrain", "$PLACE", PLACE=str(place)
    )
    told = [
        "--bind",
        str(place),
        "a  b",
        "image.sif",
        "python",
        "-P",
        "-m",
        "bigbird_dna.cli.main",
    ]
    assert (done.returncode, done.stdout) == (
        0,
        f"{[*told, 'pretrain', '$PLACE']}\n",
    ), done.stderr


@pytest.mark.parametrize(
    ("words", "code", "named"),
    [
        (
            ("--container-command", "apptainer 'exec", "--", "pretrain"),
            2,
            '"apptainer \'exec"',
        ),
        (("--container-command", "{here}", "--", "pretrain"), 1, "{here}"),
        (("--processes", "3", "--nodes", "2", "--", "pretrain"), 2, "--processes 3"),
        (("--processes", "2", "--nodes", "2", "--", "pretrain"), 1, "srun: "),
        (
            ("--", "pretrain", "{here}/no such.yaml"),
            2,
            "{here}/no such.yaml",
        ),  # the command's own
    ],
)
def test_what_cannot_be_started_is_one_line(
    tmp_path: Path, words: tuple[str, ...], code: int, named: str
) -> None:
    given = [word.format(here=tmp_path) for word in words]
    path = {"PATH": str(tmp_path)} if "srun" in named else {}
    done = launch(*given, SLURM_JOB_ID="1", **path)
    refused(
        Result(done.returncode, done.stdout, done.stderr),
        code,
        named.format(here=tmp_path),
    )
