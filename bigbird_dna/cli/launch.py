"""Start a training on several processes, each with a card of its own where it runs on GPUs.

    python -m bigbird_dna.cli.launch --processes 16 --nodes 2 --cpus 32 -- pretrain CONFIG …

One process is the command itself. Several on one node are started by `torchrun`. For several nodes, in a job
of Slurm that has them, `srun` starts one `torchrun` on each, and these meet on the node of the first. What is
started takes the place of this process: it gets the signals, and its exit code is the job's.

With `--container-command "apptainer exec IMAGE"` this process stays outside, where `srun` is, and the
training is inside the container: on several nodes each of them enters it for itself.
"""

import argparse
import os
import shlex
import socket
import sys
from collections.abc import Mapping, Sequence
from typing import NoReturn

from bigbird_dna.errors import UsageError

COMMAND = ("-m", "bigbird_dna.cli.main")
TORCHRUN = ("-m", "torch.distributed.run")


def command_line(
    words: Sequence[str],
    environment: Mapping[str, str],
    *,
    processes: int,
    nodes: int,
    cpus: int,
    meeting: str,
    inside: Sequence[str] = (),
) -> list[str]:
    """The command that runs `bigbird-dna` with these words as `processes` processes on `nodes` nodes.

    `cpus` are the job's on each of several nodes, which find each other at `meeting`, HOST:PORT. `inside` are
    words before a command that run it in a container, which has a `python` of its own. `UsageError` if nodes
    can't have the same number of processes, or several nodes are no job of Slurm's.
    """
    if processes < 1 or nodes < 1 or processes % nodes:
        raise UsageError(
            f"processes {processes}, nodes {nodes}: each node must get the same number of processes"
        )
    here = processes // nodes
    python = [*inside, "python"] if inside else [sys.executable]
    training = [*COMMAND, *words]
    if processes == 1:
        return [*python, *training]
    many = [f"--nproc-per-node={here}"]
    if nodes == 1:
        return [*python, *TORCHRUN, "--standalone", *many, *training]
    job = environment.get("SLURM_JOB_ID")
    if job is None:
        raise UsageError(f"nodes {nodes}: several nodes need a job of Slurm, and $SLURM_JOB_ID isn't set")
    step = ["srun", f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1"]
    step += [f"--cpus-per-task={cpus}", "--kill-on-bad-exit=1"]
    meet = [f"--nnodes={nodes}", "--rdzv-backend=c10d", f"--rdzv-endpoint={meeting}", f"--rdzv-id={job}"]
    return [*step, *python, *TORCHRUN, *meet, *many, *training]


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Become the command that the arguments ask for."""
    parser = argparse.ArgumentParser(
        prog="python -m bigbird_dna.cli.launch", description="Start a training on several processes."
    )
    parser.add_argument("--processes", type=int, default=1, help="over all nodes, on GPUs one for each")
    parser.add_argument("--nodes", type=int, default=1, help="of the Slurm job that this runs in")
    parser.add_argument("--cpus", type=int, default=1, help="CPUs of the job on each of several nodes")
    parser.add_argument(
        "--container-command",
        default="",
        help='a container: the words before a command that run it there, as in "apptainer exec --nv IMAGE"',
        metavar="WORDS",
    )
    parser.add_argument("words", nargs="+", help="words of bigbird-dna, after --", metavar="WORD")
    given = parser.parse_args(arguments)
    try:
        line = command_line(
            given.words,
            os.environ,
            processes=given.processes,
            nodes=given.nodes,
            cpus=given.cpus,
            meeting=f"{os.uname().nodename}:{_free_port()}" if given.nodes > 1 else "",
            inside=_split(given.container_command),
        )
        os.execvp(line[0], line)
    except UsageError as error:
        print(f"bigbird-dna: error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except OSError as error:
        print(f"bigbird-dna: error: {line[0]}: can't be started: {error.strerror}", file=sys.stderr)
        sys.exit(1)


def _split(text: str) -> list[str]:
    """The words of a text as a shell has them, with the values of environment variables."""
    try:
        return [os.path.expandvars(word) for word in shlex.split(text)]
    except ValueError as error:
        raise UsageError(f"--container-command {text!r}: not words as in a shell: {error}") from error


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("", 0))
        return int(listener.getsockname()[1])


if __name__ == "__main__":
    main()
