"""The application `bigbird-dna`, whose errors and signals end it with one line and an exit code."""

import io
import os
import signal
import sys
from types import FrameType
from typing import Annotated, NoReturn

try:
    import typer
    from typer.main import get_command

    from bigbird_dna.cli import (
        benchmark,
        evaluate,
        model,
        papers,
        predict,
        prepare,
        train,
    )
    from bigbird_dna.cli.options import GROUPS
    from bigbird_dna.errors import BigBirdDnaError, Stopped, error_text, printable
except KeyboardInterrupt:  # before `main` handles it
    sys.exit(130)

IMPORTING = 0.05  # seconds after which a signal that arrived during an import is obeyed

app = typer.Typer(
    name="bigbird-dna",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def show_version(wanted: bool) -> None:
    """Print the version and end the command, if this is wanted."""
    if wanted:
        from importlib.metadata import version

        typer.echo(f"bigbird-dna {version('bigbird-dna')}")
        raise typer.Exit


@app.callback()
def bigbird_dna(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=show_version,
            is_eager=True,
            help="Show the version and exit.",
        ),
    ] = False,
) -> None:
    """Sparse-attention DNA language models: from a reference genome to promoter scores."""


for module in (predict, prepare, train, evaluate, model, benchmark):
    app.add_typer(module.app)
for name, group in {
    "prepare": prepare.group,
    "train": train.group,
    "evaluate": evaluate.group,
    "report": evaluate.report,
    "model": model.group,
    "experiment": papers.experiment,
    "nlp": papers.nlp,
}.items():
    app.add_typer(group, name=name, rich_help_panel=GROUPS)


def main() -> NoReturn:
    """Run the command line and exit with its code.

    Exit codes: 0 success, 1 invalid data, 2 invalid usage, 75 training stopped before its end (the same
    command resumes it), 128 + N ended by signal N: 130 Ctrl-C, 143 SIGTERM.
    """
    received: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        """End the command by an exception, so that it removes its unfinished files."""
        if number != signal.SIGALRM:
            received.append(number)
        if is_import(frame):  # C++ libraries abort if an exception passes them
            signal.setitimer(signal.ITIMER_REAL, IMPORTING)
        else:
            raise SystemExit(128 + received[0])

    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    handled = [one for one in signals if signal.getsignal(one) is not signal.SIG_IGN]
    for number in (*handled, signal.SIGALRM):
        signal.signal(number, stop)

    for stream in (sys.stdout, sys.stderr):
        # Messages have characters such as × and →, which a terminal's encoding may lack.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")

    # Python processes that a command starts don't run files of the working directory, such as `tokenize.py`.
    os.environ["PYTHONSAFEPATH"] = "1"

    code = 0
    try:
        try:
            # Calling the application itself would install Typer's hook for tracebacks.
            get_command(app)()
        except SystemExit as end:
            sys.stdout.flush()  # here, for a full disk; at the end Python would print a traceback
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException as error:
        code = 128 + received[0] if received else report(error)

    for number in handled:
        signal.signal(number, signal.SIG_DFL)

    sys.exit(code)


def report(error: BaseException) -> int:
    """Print an error as one line and return the exit code; a defect of this software has its traceback."""
    if isinstance(error, BigBirdDnaError):
        if not (isinstance(error, Stopped) and error.silent):
            kind = "" if isinstance(error, Stopped) else "error: "
            print(f"bigbird-dna: {kind}{error}", file=sys.stderr)

        return error.exit_code

    if isinstance(error, OSError):
        if not isinstance(error, BrokenPipeError):
            files = [error.filename, error.filename2]
            names = " → ".join(str(name) for name in files if name is not None)
            reason = error.strerror or error_text(error)
            text = printable(f"{names}: {reason}" if names else reason)
            print(f"bigbird-dna: error: {text}", file=sys.stderr)

        # If standard output can't be written, Python would print a traceback at its end.
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123
    elif isinstance(error, MemoryError):
        text = f"there is not enough memory ({error_text(error)})"
        print(f"bigbird-dna: error: {text}", file=sys.stderr)
    else:
        sys.__excepthook__(type(error), error, error.__traceback__)

    return 1


def is_import(frame: FrameType | None) -> bool:
    """Return whether a frame is part of an import."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


if __name__ == "__main__":
    main()
