"""Where a result goes: a file that appears whole or not at all, or standard output."""

import codecs
import shlex
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bigbird_dna.errors import DataError, UsageError, printable
from bigbird_dna.files import atomic_path, full_disk_told
from bigbird_dna.scratch import scratch_directory


def named_output(output: Path | str | None) -> Path | None:
    """The file that results go to; None, as "-", stands for standard output."""
    return None if output is None or str(output) == "-" else Path(output)


def format_for(output: Path | None, formats: Mapping[str, Sequence[str]], default: str) -> str:
    """The format whose endings, each with its dot, have that of `output`; `.gz` is looked past."""
    if output is not None:
        ending = output.with_suffix("").suffix if output.suffix == ".gz" else output.suffix
        for name, endings in formats.items():
            if ending.lower() in endings:
                return name
    return default


def check_output(output: Path | None, inputs: Iterable[object]) -> None:
    """Refuse, before anything is computed, an output that can't be written, is an input or lies in one.

    Inputs that are no paths, as a model in memory, are passed over.
    """
    if output is None:
        return
    if output.is_dir():
        raise UsageError(f"{output}: is a directory, -o needs a file")
    if not output.parent.is_dir():
        raise UsageError(f"{output}: there is no directory {output.parent}")
    for path in (Path(one) for one in inputs if isinstance(one, (str, Path))):
        if output.exists() and path.exists() and output.samefile(path):
            raise UsageError(f"{output}: is the input")
        if path.is_dir() and path.resolve() in output.resolve().parents:
            raise UsageError(f"{output}: lies in the input {path}; name a file elsewhere")
    if not is_special(output):
        with scratch_directory(output.resolve().parent, output):
            pass


def is_special(output: Path) -> bool:
    """Whether it is a pipe or a device, to be written into and never to be replaced."""
    return output.exists() and not output.is_file()


@contextmanager
def destination(output: Path | None, format: str) -> Iterator[Path]:
    """A path to write to; what it holds in the end goes to `output` (none: standard output).

    After an error nothing does.
    """
    try:
        if output is not None and not is_special(output):
            with atomic_path(output.resolve()) as temporary:
                yield temporary
            return
        with scratch_directory() as directory:
            spool = directory / f"scores.{format}"
            with full_disk_told(spool, directory):
                yield spool
            with spool.open("rb") as complete:
                if output is None:
                    shutil.copyfileobj(complete, sys.stdout.buffer)
                    sys.stdout.buffer.flush()
                else:
                    with output.open("wb") as stream:
                        shutil.copyfileobj(complete, stream)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise DataError(
            f"{output or 'standard output'}: can't be written: {error.strerror or error}"
        ) from None


def open_text(path: Path, errors: str = "strict") -> codecs.StreamWriter:
    """A new file for UTF-8 text with `\\n` at the end of lines; bgzip if its name ends in `.gz`."""
    if path.suffix == ".gz":
        import pysam

        opened: Any = pysam.BGZFile(str(path), "w", None)
    else:
        opened = path.open("wb")
    return codecs.getwriter("utf-8")(opened, errors)


def command_line(command: str, arguments: Iterable[object], options: Mapping[str, object | None]) -> str:
    """The command that a result states, on one line of UTF-8 whatever the names of files hold.

    `options` are those that decide the result and no others, so that the same result has the same bytes;
    one that is None was not given, and a list was given once for each of its values.
    """
    words = ["bigbird-dna", command, *arguments]
    for option, value in options.items():
        for one in value if isinstance(value, list) else [value]:
            words += [] if one is None else [option, one]
    text = printable(shlex.join(map(str, words)))
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def provenance(model: str, command: str) -> dict[str, str]:
    """What a result says of its origin, in this order; `model` is the checksum of the weights."""
    return {"bigbird-dna": version("bigbird-dna"), "model": model, "command": command}


def provenance_lines(origin: Mapping[str, str]) -> list[str]:
    """Provenance as the lines that tables begin with."""
    return [f"## {key} {value}" for key, value in origin.items()]
