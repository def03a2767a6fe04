"""Output of a result: a file that is written atomically, or standard output."""

import hashlib
import re
import shlex
import sys
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from bigbird_dna.disk.atomic import (
    atomic_path,
    bgzip_writer,
    is_special,
    link_target,
    open_special,
    scratch_directory,
)
from bigbird_dna.errors import DataError, UsageError, printable


def named_output(output: Path | str | None) -> Path | None:
    """Return the output file; None or "-" means standard output."""
    return None if output is None or str(output) == "-" else Path(output)


def format_for(
    output: Path | None, formats: Mapping[str, Sequence[str]], default: str
) -> str:
    """Return the format whose suffixes (with the dot) include that of `output`, ignoring `.gz`.

    Names without a suffix, standard output, pipes and devices have the default; `UsageError` for others.
    """
    if output is None:
        return default
    ending = output.with_suffix("").suffix if output.suffix == ".gz" else output.suffix
    for name, endings in formats.items():
        if ending.lower() in endings:
            return name
    if ending and not is_special(output):
        known = ", ".join(one for endings in formats.values() for one in endings)
        raise UsageError(
            f"{output}: {ending} is not the suffix of a known format; use one of {known}, "
            "or specify the format with --format"
        )
    return default


def check_output(output: Path | None, inputs: Iterable[object]) -> None:
    """Raise `UsageError` before any computation if the output is not writable, is an input or is inside one.

    Inputs that are not paths, such as a model in memory, are ignored.
    """
    if output is None or is_special(output):
        return
    if output.is_dir():
        raise UsageError(f"{output}: must be a file, not a directory")
    target = link_target(output).absolute()
    if not target.parent.is_dir():
        raise UsageError(
            f"{output}: directory {target.parent if output.is_symlink() else output.parent} does not exist"
        )
    paths = [Path(one) for one in inputs if isinstance(one, (str, Path))]
    check_not_input(output, paths)
    for path in paths:
        if path.is_dir() and path.resolve() in target.resolve().parents:
            raise UsageError(f"{output}: must not be inside the input {path}")
    with scratch_directory(target.parent, output):
        pass


def check_not_input(output: Path, inputs: Iterable[Path]) -> None:
    """Raise `UsageError` if an output would replace an input, or is inside an input that is a model."""
    if is_special(output):
        return
    for path in inputs:
        if output.exists() and path.exists() and output.samefile(path):
            raise UsageError(f"{output}: would overwrite the input")
        if (path / "config.json").is_file() and path.resolve() in link_target(
            output
        ).resolve().parents:
            raise UsageError(f"{output}: must not be inside the model {path}")


@contextmanager
def open_text(output: Path | None, errors: str = "strict") -> Iterator["TextOutput"]:
    """Open UTF-8 text with `\\n` line ends, which is bgzip if the name ends in `.gz`; None: standard output.

    A file is written atomically; standard output, pipes and devices receive every call of `write` at once.
    """
    with naming_errors(output):
        if output is None:
            yield TextOutput(None, errors)
        elif is_special(output):
            stream = open_special(output)
            try:
                yield TextOutput(stream, errors)
            finally:
                with suppress(OSError):  # already reported, or the reader has gone
                    stream.close()
        else:
            with atomic_path(output) as path:
                opened = bgzip_writer(path) if path.suffix == ".gz" else path.open("wb")
                with opened as file:
                    yield TextOutput(file, errors, flushes=False)


class TextOutput:
    """Text that is written to a stream of bytes, or to standard output (None)."""

    def __init__(
        self, stream: IO[bytes] | None, errors: str = "strict", flushes: bool = True
    ) -> None:
        self._stream = stream
        self._errors = errors
        self._flushes = flushes

    def write(self, text: str, /) -> None:
        """Write text."""
        stream = self._stream or getattr(sys.stdout, "buffer", None)
        if stream is None:  # standard output of a notebook, which accepts only text
            sys.stdout.write(text)
            return
        stream.write(text.encode("utf-8", self._errors))
        if self._flushes:
            stream.flush()


@contextmanager
def naming_errors(output: Path | None) -> Iterator[None]:
    """Name the output in system errors; `BrokenPipeError` is passed on unchanged."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        name = output or "standard output"
        raise DataError(
            f"{name}: cannot write the output: {error.strerror or error}"
        ) from None


_LONGEST_NAME = 60  # characters


def file_names(names: Iterable[str]) -> dict[str, str]:
    """Return names of files, without a suffix, for different names of tracks, outputs or regions.

    A short name of ASCII letters, digits, `.`, `-` and `_` is used as it is. Others are shortened and their
    other characters replaced by `_`; part of their SHA-256 is added, so that no two are equal. So it is to
    names that differ only in case, which some file systems ignore.
    """
    listed = list(names)
    folded = Counter(name.casefold() for name in listed)
    made = {}
    for name in listed:
        text = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
        text = re.sub(r"[^A-Za-z0-9._-]+", "_", text).lstrip(".-")[:_LONGEST_NAME]
        if (
            text != name
            or not name
            or folded[name.casefold()] > 1
            or re.search(r"(^|-)[0-9a-f]{12}$", name)
        ):
            digest = hashlib.sha256(
                name.encode("utf-8", "surrogateescape")
            ).hexdigest()[:12]
            text = f"{text}-{digest}" if text else digest
        made[name] = text
    return made


def command_line(
    command: str,
    arguments: Iterable[object],
    options: Mapping[str, object | None],
    flags: Mapping[str, bool] | None = None,
) -> str:
    """Return the command to store with a result, on one line of UTF-8 for any file names.

    `options` should contain only options that affect the result, so that equal results have equal bytes. An
    option with value None is omitted, and a list is repeated per value. `flags` have no value.
    """
    args = ["bigbird-dna", *command.split(), *arguments]
    for option, value in options.items():
        for one in value if isinstance(value, list) else [value]:
            args += [] if one is None else [option, one]
    args += [flag for flag, given in (flags or {}).items() if given]
    text = printable(shlex.join(map(str, args)))
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def provenance(model: str, command: str) -> dict[str, str]:
    """Return the origin to store with a result, in this order; `model` is the checksum of the weights."""
    from importlib.metadata import version  # slow to import

    return {"bigbird-dna": version("bigbird-dna"), "model": model, "command": command}


def provenance_lines(origin: Mapping[str, str]) -> list[str]:
    """Format provenance as the first lines of a table."""
    return [f"## {key} {value}" for key, value in origin.items()]
