"""Where a result goes: a file that appears whole or not at all, or standard output."""

import codecs
import shlex
import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Protocol

from bigbird_dna.disk.atomic import atomic_path, bgzip_writer, full_disk_reported, scratch_directory
from bigbird_dna.errors import DataError, UsageError, printable

_PAUSE = 1.0  # seconds that text waits at most while more is written
_WAITING = 1 << 16  # bytes that wait at most


class TextSink(Protocol):
    """What lines are written to."""

    def write(self, text: str, /) -> object:
        """Take up more text."""


class LiveText:
    """Text on its way to standard output, a pipe or a device, where it stays if an error comes later.

    It goes out by `flush`, and by itself within a second of writing. Nothing has gone out before the first
    of these, so that a command that fails before it has a result has written nothing.
    """

    def __init__(self, stream: IO[bytes] | None) -> None:
        """To a stream of bytes; None: standard output."""
        self.errors = "strict"
        self._stream = stream
        self._held: list[bytes] = []
        self._size = 0
        self._due = time.monotonic() + _PAUSE
        self._begun = False

    def write(self, text: str, /) -> None:
        """Take up more text."""
        data = text.encode("utf-8", self.errors)
        self._held.append(data)
        self._size += len(data)
        if self._size >= _WAITING or time.monotonic() >= self._due:
            self.flush()

    def flush(self) -> None:
        """Let everything go that was written."""
        data, self._held, self._size = b"".join(self._held), [], 0
        self._due = time.monotonic() + _PAUSE
        if not data:
            return
        self._begun = True
        stream = self._stream or getattr(sys.stdout, "buffer", None)
        if stream is not None:
            stream.write(data)
            stream.flush()
        else:  # a notebook's, which takes text alone
            sys.stdout.write(data.decode("utf-8", "replace"))

    def give_up(self) -> None:
        """After an error: what was begun is written up to the last whole row, what wasn't isn't."""
        with suppress(OSError):
            if self._begun:
                self.flush()


# Where a writer of text writes: a file of its own, or what is read while it writes.
Destination = Path | LiveText


def named_output(output: Path | str | None) -> Path | None:
    """The file that results go to; None, as "-", stands for standard output."""
    return None if output is None or str(output) == "-" else Path(output)


def format_for(output: Path | None, formats: Mapping[str, Sequence[str]], default: str) -> str:
    """The format whose endings, each with its dot, have that of `output`; `.gz` is looked past.

    A name without an ending, standard output, pipes and devices have the default; any other ending is a
    `UsageError`.
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
            f"{output}: {ending} is not the ending of a format: end the name in one of {known}, "
            "or choose the format with --format"
        )
    return default


def is_live(output: Path | None) -> bool:
    """Whether what is written goes out at once: standard output, a pipe or a device."""
    return output is None or is_special(output)


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
def text_destination(output: Path | None) -> Iterator[Destination]:
    """Where text is written to: a file that appears whole or not at all, or what is read meanwhile.

    Standard output (None), pipes and devices get it as it is made, and keep what they got.
    """
    if not is_live(output):
        with destination(output, "") as path:
            yield path
        return
    with _errors_named(output):
        stream = None if output is None else output.open("wb")
        live = LiveText(stream)
        try:
            yield live
            live.flush()
        except BrokenPipeError:
            raise
        except Exception:
            live.give_up()
            raise
        finally:
            if stream is not None:
                with suppress(OSError):  # was reported, or nobody reads it
                    stream.close()


@contextmanager
def destination(output: Path | None, format: str) -> Iterator[Path]:
    """A path to write to; what it holds in the end goes to `output` (none: standard output).

    After an error nothing does.
    """
    with _errors_named(output):
        if output is not None and not is_special(output):
            with atomic_path(output.resolve()) as temporary:
                yield temporary
            return
        with scratch_directory() as directory:
            spool = directory / f"scores.{format}"
            with full_disk_reported(spool, directory):
                yield spool
            with spool.open("rb") as complete:
                if output is None:
                    shutil.copyfileobj(complete, sys.stdout.buffer)
                    sys.stdout.buffer.flush()
                else:
                    with output.open("wb") as stream:
                        shutil.copyfileobj(complete, stream)


@contextmanager
def _errors_named(output: Path | None) -> Iterator[None]:
    """Name the output in errors of the system; that a reader has gone stays one of its own."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        name = output or "standard output"
        raise DataError(f"{name}: can't be written: {error.strerror or error}") from None


@contextmanager
def open_text(path: Destination, errors: str = "strict") -> Iterator[TextSink]:
    """A new file for UTF-8 text with `\\n` at the end of lines; bgzip if its name ends in `.gz`."""
    if isinstance(path, LiveText):
        path.errors = errors
        yield path
        return
    with (
        bgzip_writer(path) if path.suffix == ".gz" else path.open("wb") as opened,
        codecs.getwriter("utf-8")(opened, errors) as stream,
    ):
        yield stream


def command_line(
    command: str,
    arguments: Iterable[object],
    options: Mapping[str, object | None],
    flags: Mapping[str, bool] | None = None,
) -> str:
    """The command that a result states, on one line of UTF-8 whatever the names of files hold.

    `options` are those that decide the result and no others, so that the same result has the same bytes;
    one that is None was not given, and a list was given once for each of its values. `flags` have no value.
    """
    args = ["bigbird-dna", *command.split(), *arguments]
    for option, value in options.items():
        for one in value if isinstance(value, list) else [value]:
            args += [] if one is None else [option, one]
    args += [flag for flag, given in (flags or {}).items() if given]
    text = printable(shlex.join(map(str, args)))
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def provenance(model: str, command: str) -> dict[str, str]:
    """The origin that a result states, in this order; `model` is the checksum of the weights."""
    from importlib.metadata import version  # slow to import

    return {"bigbird-dna": version("bigbird-dna"), "model": model, "command": command}


def provenance_lines(origin: Mapping[str, str]) -> list[str]:
    """Provenance as the lines that tables begin with."""
    return [f"## {key} {value}" for key, value in origin.items()]
