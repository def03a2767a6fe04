"""Output of a result: a file that is written atomically, or standard output."""

import io
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from bigbird_dna.disk.atomic import (
    atomic_path,
    bgzip_writer,
    check_writable,
    is_special,
)
from bigbird_dna.errors import DataError, UsageError, printable


def check_output(output: Path | None, inputs: Iterable[object]) -> None:
    """Raise `UsageError` before any computation if the output is not writable, is an input or is inside one.

    Inputs that are not paths, such as a model in memory, are ignored.
    """
    if output is None or is_special(output):
        return

    real = output.resolve()
    for source in inputs:
        if isinstance(source, (str, Path)) and Path(source).exists():
            path = Path(source).resolve()
            if path == real or (path.is_dir() and path in real.parents):
                raise UsageError(f"{output}: must not be or be inside the input {path}")

    check_writable(output)


@contextmanager
def naming_errors(output: Path | None) -> Iterator[None]:
    """Name the output in system errors; `BrokenPipeError` is passed on unchanged."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise DataError(
            f"{output or 'standard output'}: cannot write the output: {error.strerror or error}"
        ) from None


@contextmanager
def open_text(output: Path | None, errors: str = "strict") -> Iterator[IO[str]]:
    """Open UTF-8 text with `\\n` line ends, which is bgzip if the name ends in `.gz`; None: standard output.

    A file is written atomically; standard output, pipes and devices receive the text as it is written.
    """
    with naming_errors(output):
        if output is None:
            if isinstance(sys.stdout, io.TextIOWrapper):  # it is not in a notebook
                sys.stdout.reconfigure(
                    encoding="utf-8", errors=errors, newline="\n", line_buffering=True
                )

            yield sys.stdout
            sys.stdout.flush()
        elif is_special(output):
            with output.open("w", 1, encoding="utf-8", errors=errors) as stream:
                yield stream
        else:
            with atomic_path(output) as path:
                opened = bgzip_writer(path) if path.suffix == ".gz" else path.open("wb")
                with opened as file:
                    text = io.TextIOWrapper(file, "utf-8", errors, "\n")
                    yield text
                    text.flush()
                    text.detach()


def file_names(names: Iterable[str]) -> dict[str, str]:
    """Return names of files, without a suffix, for different names of tracks, outputs or regions.

    Letters outside of ASCII and signs but `.`, `-` and `_` become `_`; names that would be equal, or differ
    only in case, are numbered.
    """
    files: dict[str, str] = {}
    used = set()
    for number, name in enumerate(names, start=1):
        text = re.sub(r"[^A-Za-z0-9._-]+", "_", name)[:60].lstrip(".-")
        while not text or text.casefold() in used:
            text = f"{text}_{number}"

        used.add(text.casefold())
        files[name] = text

    return files


def command_line(
    command: str, arguments: Iterable[object], options: Mapping[str, object]
) -> str:
    """Return the command to store with a result, on one line of UTF-8 for any file names.

    `options` should contain only options that affect the result, so that equal results have equal bytes. An
    option with value None or False is omitted, one with True has no value, and a list is repeated per value.
    """
    args = ["bigbird-dna", command, *arguments]
    for option, value in options.items():
        if value is True:
            args.append(option)
        elif value is not None and value is not False:
            for item in value if isinstance(value, list) else [value]:
                args += [option, item]

    text = printable(shlex.join(map(str, args)))
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def provenance(model: str, command: str) -> dict[str, str]:
    """Return the origin to store with a result, in this order; `model` is the checksum of the weights."""
    from importlib.metadata import version  # slow to import

    return {"bigbird-dna": version("bigbird-dna"), "model": model, "command": command}


def provenance_lines(origin: Mapping[str, str]) -> list[str]:
    """Format provenance as the first lines of a table."""
    return [f"## {key} {value}" for key, value in origin.items()]
