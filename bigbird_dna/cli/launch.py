"""Start training with several processes, one GPU per process if it runs on GPUs.

    python -P -m bigbird_dna.cli.launch --processes 16 --nodes 2 --cpus 32 -- pretrain CONFIG …

A single process runs the command itself. `torchrun` starts several processes on one node. For several nodes
of a Slurm job, `srun` starts one `torchrun` per node; all connect to the node of this process. The started
command replaces this process: it receives the signals, and its exit code is the exit code of the job.

Without `-P`, Python would run a file of the working directory that has the name of one of its own modules,
such as `tokenize.py`. All processes are started with it.

With `--container-command "apptainer exec IMAGE"` this process stays outside the container, where `srun` is
available, and the training runs inside: on several nodes, each node enters the container separately.
"""

import argparse
import os
import shlex
import socket
import sys
from collections.abc import Mapping, Sequence
from typing import NoReturn

from bigbird_dna.errors import UsageError

COMMAND = ["-P", "-m", "bigbird_dna.cli.main"]
TORCHRUN = ["-P", "-m", "torch.distributed.run"]


def command_line(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    *,
    processes: int,
    nodes: int,
    cpus: int,
    rendezvous: str,
    container: Sequence[str] = (),
) -> list[str]:
    """Return the command that runs `bigbird-dna` with these arguments in `processes` processes.

    Processes are distributed evenly over `nodes`. `cpus` is the number of CPUs of the job per node,
    `rendezvous` the HOST:PORT where several nodes meet. `container` is the command prefix that enters a
    container with its own `python`. `UsageError`: uneven distribution, or several nodes outside a Slurm job.
    """
    if processes < 1 or nodes < 1 or processes % nodes:
        raise UsageError(
            f"--processes {processes} must be a positive multiple of --nodes {nodes}"
        )
    python = "python" if container else sys.executable
    if processes == 1:
        return [*container, python, *COMMAND, *arguments]
    torchrun = [*container, python, *TORCHRUN]
    # torchrun itself would start Python without -P.
    training = [
        f"--nproc-per-node={processes // nodes}",
        *("--no-python", python, "-u", *COMMAND, *arguments),
    ]
    if nodes == 1:
        return [*torchrun, "--standalone", *training]
    job = environment.get("SLURM_JOB_ID")
    if job is None:
        raise UsageError(f"--nodes {nodes} needs a Slurm job: $SLURM_JOB_ID is not set")
    return [
        "srun",
        f"--nodes={nodes}",
        f"--ntasks={nodes}",
        "--ntasks-per-node=1",
        f"--cpus-per-task={cpus}",
        "--kill-on-bad-exit=1",
        *torchrun,
        f"--nnodes={nodes}",
        "--rdzv-backend=c10d",
        f"--rdzv-endpoint={rendezvous}",
        f"--rdzv-id={job}",
        *training,
    ]


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Replace this process by the command that the arguments define."""
    parser = argparse.ArgumentParser(
        prog="python -P -m bigbird_dna.cli.launch",
        description="Start training with several processes.",
    )
    parser.add_argument(
        "--processes",
        type=int,
        default=1,
        help="total number of processes, one per GPU",
    )
    parser.add_argument(
        "--nodes", type=int, default=1, help="number of nodes of the current Slurm job"
    )
    parser.add_argument(
        "--cpus", type=int, default=1, help="CPUs per node, if there are several nodes"
    )
    parser.add_argument(
        "--container-command",
        default="",
        help="command prefix that runs a command in a container, such as "
        '"apptainer exec --nv IMAGE"',
        metavar="WORDS",
    )
    parser.add_argument(
        "words", nargs="+", help="arguments of bigbird-dna, after --", metavar="WORD"
    )
    options = parser.parse_args(arguments)
    try:
        command = command_line(
            options.words,
            os.environ,
            processes=options.processes,
            nodes=options.nodes,
            cpus=options.cpus,
            rendezvous=f"{os.uname().nodename}:{free_port()}",
            container=split_words(options.container_command),
        )
    except UsageError as error:
        print(f"bigbird-dna: error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        reason = f"{command[0]}: cannot be started: {error.strerror}"
        print(f"bigbird-dna: error: {reason}", file=sys.stderr)
        sys.exit(1)


def split_words(text: str) -> list[str]:
    """Split a text into words as a shell does, and expand environment variables."""
    try:
        return [os.path.expandvars(word) for word in shlex.split(text)]
    except ValueError as error:
        raise UsageError(
            f"--container-command {text!r}: invalid shell syntax: {error}"
        ) from error


def free_port() -> int:
    """Return a TCP port that is free now."""
    with socket.socket() as listener:
        listener.bind(("", 0))
        return int(listener.getsockname()[1])


if __name__ == "__main__":
    main()
