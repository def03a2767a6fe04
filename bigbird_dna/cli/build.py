"""Commands whose work a function of the package does, and what other commands have in common.

Such a command is declared by a signature and a docstring: its arguments have the function's names. Help texts
need nothing of the function, which is imported once the command runs.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import wraps
from importlib import import_module
from inspect import Parameter, Signature, signature
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from bigbird_dna.cli.options import read_run
from bigbird_dna.console import log
from bigbird_dna.disk.outputs import check_output
from bigbird_dna.errors import check_at_least_one, check_choice

if TYPE_CHECKING:
    from bigbird_dna.config import Config, RunPaths
    from bigbird_dna.training.distributed import World

Command = Callable[..., None]
Report = Callable[[Any, dict[str, Any]], Iterable[str]]
"""The lines about what a function returned, and what it was given."""


def runs(
    work: str,
    *,
    part: str = "",
    inputs: Sequence[str] = (),
    choices: Sequence[str] = (),
    also: Sequence[Parameter] = (),
    report: Report | None = None,
    say: Callable[[str], None] = log,
    **usual: "Callable[[Config], object]",
) -> Callable[[Command], Command]:
    """Make a command of its declaration: it calls `work`, a function by its module and name.

    The function gets the arguments by their names. What was not given is its default. `config` and
    `overrides` are read to settings, of which the function gets the `part`; a path that stands in RESULTS is
    then the run's, and `usual` has what others are. `workers` are CPU cores; `threads` are those of the whole
    call, unless the function has such an argument. The output may not be one of `inputs`, nor lie in one;
    `choices` are arguments whose values are the words of their help; `also` come last in the signature. Lines
    of `report` go to the log, or to `say`.
    """
    module, _, name = f"bigbird_dna.{work}".rpartition(".")

    def declare(declaration: Command) -> Command:
        hints = get_type_hints(declaration, include_extras=True) | {one.name: one.annotation for one in also}
        extras: dict[str, Any] = {key: getattr(hint, "__metadata__", [0])[0] for key, hint in hints.items()}

        @wraps(declaration)
        def command(**given: Any) -> None:
            for key in choices:
                check_choice(key, given[key], extras[key].metavar.split("|"))
            if "config" in given:
                settings = _run_files(given, extras, usual)
                given["config"] = attrgetter(part)(settings) if part else settings
            if inputs:
                check_output(given["output"], [path for key in inputs for path in _listed(given[key])])
            function = getattr(import_module(module), name)
            known = signature(function).parameters
            computing: AbstractContextManager[None] = nullcontext()
            if "threads" in given and "threads" not in known:
                computing = import_module("bigbird_dna.model.inference").cpu_threads(given.pop("threads"))
            if "workers" in given:
                given["workers"] = cores(given["workers"])
            needed = {key for key in known if known[key].default is Parameter.empty}
            words = {key: value for key, value in given.items() if value is not None or key in needed}
            with computing:
                result = function(**words)
            for line in report(result, given) if report is not None else ():
                say(line)

        whole = Signature([*signature(declaration).parameters.values(), *also])
        vars(command).update(work=(module, name), __signature__=whole)
        command.__annotations__ = hints
        return command

    return declare


def _run_files(
    given: dict[str, Any], extras: dict[str, Any], usual: "dict[str, Callable[[Config], object]]"
) -> "Config":
    """The settings of a command; arguments that were not given become what its run has."""
    settings, paths = read_run(given["config"], given.pop("overrides", None))
    for key in (key for key, value in given.items() if value is None):
        place: Any = getattr(extras[key], "run_path", None)
        if key in usual or place is not None:
            given[key] = usual[key](settings) if key in usual else paths.results / place
    return settings


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def cores(threads: int | None) -> int:
    """How many CPU cores to use: those asked for, or all that this process may have."""
    check_at_least_one({"threads": threads})
    return threads or len(os.sched_getaffinity(0))


@contextmanager
def training(
    config: Path, overrides: Sequence[str] | None, device: str, threads: int | None, time_limit: str | None
) -> "Iterator[tuple[Config, RunPaths, World]]":
    """The settings of a training, the names of the run's files, and the processes that train together."""
    from bigbird_dna.model.inference import cpu_threads
    from bigbird_dna.training.distributed import world
    from bigbird_dna.training.stopping import time_of_end

    ends = time_of_end(time_limit)
    settings, paths = read_run(config, overrides)
    with cpu_threads(threads), world(device, ends) as here:
        yield settings, paths, here
