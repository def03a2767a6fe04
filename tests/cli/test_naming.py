"""Commands and options: their names, and what the help says of all of them."""

import inspect
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import pytest
import typer

from bigbird_dna.cli.app import BELOW, TOP, app
from bigbird_dna.cli.app import GROUPS as GROUPS_PANEL
from bigbird_dna.cli.launch import command_line
from bigbird_dna.errors import UsageError
from tests.cli.command import Run
from tests.golden.messages import fails

COMMANDS = typer.main.get_command(app).commands
GROUPS = {name: list(one.commands.items()) for name, one in COMMANDS.items() if hasattr(one, "commands")}
ALL = [*COMMANDS.items(), *(pair for pairs in GROUPS.values() for pair in pairs)]


def test_the_help_has_panels_by_purpose_in_their_order(run: Run) -> None:
    text = run("--help").out
    panels = re.findall(r"^╭─ (.*?) ─+╮", text, re.MULTILINE)
    assert panels == ["Options", *TOP, GROUPS_PANEL]
    assert all(f"│ {name} " in text for name in COMMANDS)
    assert {*COMMANDS} == {name for panel in TOP.values() for name in panel} | {*BELOW}


@pytest.mark.parametrize("words", ["", *BELOW, "prepare tokens", "evaluate pretraining"])
def test_help_imports_neither_libraries_nor_the_configuration(words: str) -> None:
    """It is there at once. In groups Typer itself needs pydantic, and `experiment` reads configurations."""
    code = """if True:
        import contextlib, io, json, sys
        from bigbird_dna.cli.main import main
        sys.argv[0] = "bigbird-dna"
        with contextlib.redirect_stdout(io.StringIO()) as shown, contextlib.suppress(SystemExit):
            main()
        print(json.dumps([shown.getvalue(), list(sys.modules)]))
    """
    done = subprocess.run([sys.executable, "-c", code, *words.split(), "--help"], stdout=-1, check=True)
    shown, modules = json.loads(done.stdout)
    heavy = {"torch", "numpy", "pandas", "scipy", "sentencepiece", "pysam", "matplotlib", "sklearn", "h5py"}
    heavy |= set() if words else {"pydantic", "importlib.metadata"}
    heavy |= set() if words == "experiment" else {"yaml", "bigbird_dna.config.run"}
    assert "Usage:" in shown and heavy & {*modules} == set()


@pytest.mark.parametrize(("name", "command"), ALL, ids=[name for name, _ in ALL])
def test_every_option_says_what_it_does_and_nothing_is_swallowed(
    run: Run, name: str, command: click.Command
) -> None:
    """Words in brackets are markup to the help's renderer: what stands in them vanishes."""
    assert command.help, name
    for parameter in command.params:
        text = getattr(parameter, "help", None)
        if parameter.name not in ("help", "context") and not getattr(parameter, "hidden", False):
            assert text, (name, parameter.name)
            assert "[default" not in text, (name, parameter.name, text)


@pytest.mark.parametrize("command", [one for _, one in ALL if hasattr(one.callback, "work")])
def test_a_command_declares_arguments_of_its_function(command: click.Command) -> None:
    """All that it needs, and no others; what both say holds without a word is the same."""
    module, name = command.callback.work
    known = inspect.signature(getattr(import_module(module), name)).parameters
    declared = {one.name: one.default for one in command.params if one.name not in ("help", "overrides")}
    assert {*declared} - {*known} <= {"threads"}
    assert {key for key, one in known.items() if one.default is one.empty} <= {*declared}
    for key, value in declared.items():
        if value not in (None, []) and known[key].default is not inspect.Parameter.empty:
            assert (name, key) == ("generate_samples", "number") or known[key].default == value, key


def test_a_genome_of_no_named_assembly_is_ones_own() -> None:
    assert {p.default for _, command in ALL for p in command.params if "--assembly" in p.opts} == {"custom"}


def test_options_of_one_name_mean_one_thing() -> None:
    """The same text wherever they are; `--tracks` chooses tracks, or is short for `--track-table`."""
    shared = {"--device": set(), "--threads": set(), "--max-n": set(), "--batch-size": set()}
    for name, command in ALL:
        for parameter in command.params:
            for option in parameter.opts:
                if option in shared:
                    shared[option].add((parameter.metavar, parameter.help))
            if "--set" in parameter.opts and not getattr(parameter, "hidden", False):
                assert parameter.metavar == "KEY=VALUE", name
            if "--tracks" in parameter.opts:
                assert "--track-table" in parameter.opts or parameter.metavar == "PATTERN", name
            assert ("-o" in parameter.opts) == ("--output" in parameter.opts), name
    assert all(len(meanings) == 1 for meanings in shared.values()), shared


# The command that several processes are started by, on one node and on more


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
