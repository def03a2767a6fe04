"""`python -m tests.fuzz`: every reader its budget of damaged files; a table of what came of it."""

import argparse
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pandas as pd

from tests.fuzz.guidance import AVAILABLE
from tests.fuzz.hunting import Result, hunt
from tests.fuzz.readers import READERS


def main() -> int:
    """Exit status 1 where something was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument(
        "--seconds",
        type=float,
        default=600,
        help="of CPU, for each reader (default: 600)",
    )
    parser.add_argument(
        "--readers", default="", help="names with commas between them (default: all)"
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="the same damaged files for the same seed"
    )
    parser.add_argument("--jobs", type=int, default=1, help="readers at a time")
    parser.add_argument(
        "--plain",
        action="store_true",
        help="without atheris, even where it is installed",
    )
    parser.add_argument("--json", type=Path, help="write the table here")
    arguments = parser.parse_args()
    wanted = [
        name for name in arguments.readers.replace(",", " ").split() if name
    ] or list(READERS)
    unknown = sorted(set(wanted) - set(READERS))
    if unknown:
        parser.error(f"no reader {', '.join(unknown)}; there are {', '.join(READERS)}")
    guided = AVAILABLE and not arguments.plain
    how = (
        "atheris, by the code they reach"
        if guided
        else "mutation, by the lines they reach"
    )
    print(f"files chosen by {how}")
    with ThreadPoolExecutor(arguments.jobs) as pool:
        results = list(pool.map(lambda name: _hunted(name, arguments, guided), wanted))
    _show(results)
    if arguments.json:
        rows = [result.row() for result in results]
        arguments.json.write_text(
            json.dumps(
                {"seed": arguments.seed, "guided": guided, "readers": rows}, indent=2
            )
            + "\n"
        )
    return int(any(result.findings for result in results))


def _hunted(name: str, arguments: argparse.Namespace, guided: bool) -> Result:
    result = hunt(READERS[name], arguments.seconds, arguments.seed, guided=guided)
    print(
        f"{name}: {result.executions:,} inputs, {len(result.findings)} findings",
        flush=True,
    )
    return result


def _show(results: list[Result]) -> None:
    print(pd.DataFrame(result.row() for result in results).to_string(index=False))
    total = sum(result.executions for result in results)
    found = sum(len(result.findings) for result in results)
    print(f"{total:,} inputs of {len(results)} readers, {found} findings")


if __name__ == "__main__":
    sys.exit(main())
