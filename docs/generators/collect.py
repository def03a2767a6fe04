"""Store the tables of a run: `python -m docs.generators.collect results/demo NAME --command "make demo"`.

It is called on the machine that made the run, and writes `docs/results/data/NAME.json` for the result pages.
"""

import argparse
import csv
import datetime
import json
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from benchmarks.timing import describe_machine
from bigbird_dna.training.distributed import chosen_precision

from .results import DATA, ROOT, Row

MOST_ROWS = 1000  # of a stored table


def _number(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _tables(results: Path) -> Iterator[tuple[str, list[Row]]]:
    for path in sorted((results / "report").rglob("*.tsv")):
        with path.open(encoding="utf-8", newline="") as file:
            rows = [
                {key: _number(text) for key, text in row.items() if text}
                for row in csv.DictReader(file, delimiter="\t")
            ]
        if (
            path.stem != "summary" and len(rows) <= MOST_ROWS
        ):  # the summary has rows of the other tables
            yield path.stem, rows
    for place in ("genome/promoters", "tokens/statistics", "models/pretrained/metrics"):
        path = results / f"{place}.json"
        if path.is_file():
            yield (
                place.replace("/", "_"),
                [json.loads(path.read_text(encoding="utf-8"))],
            )


def header(
    date: datetime.date, command: str, minutes: float | None, where: Path = ROOT
) -> Row:
    """Properties of a run: the machine that this is called on, and the commit of the checkout `where`."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    kept = ("cpu", "instructions", "cores", "gpu")
    machine = {
        key: value
        for key, value in describe_machine(device).items()
        if key in kept and value
    }
    machine["precision"] = chosen_precision(device, "auto")
    commit = subprocess.run(
        ["git", "rev-parse", "--short=8", "HEAD"],
        cwd=where,
        capture_output=True,
        text=True,
    )
    header = {
        "date": f"{date}",
        "commit": commit.stdout.strip() or None,
        "machine": machine,
    }
    return header | {"minutes": minutes, "command": f"$ {command}"}


def collect(results: Path, command: str, minutes: float | None) -> Row:
    """The tables of a run's directory, with the machine that this is called on."""
    ended = max(path.stat().st_mtime for path in (results / "report").rglob("*.tsv"))
    date = datetime.datetime.fromtimestamp(ended, datetime.UTC).date()
    return header(date, command, minutes, results) | {"tables": dict(_tables(results))}


def dumped(document: Mapping[str, Any]) -> str:
    """A run as JSON with one row per line."""

    def line(value: Any) -> str:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)

    parts = [
        f"  {line(key)}: {line(value)}"
        for key, value in document.items()
        if key != "tables"
    ]
    tables = [
        f"    {line(name)}: [\n"
        + ",\n".join(f"      {line(row)}" for row in rows)
        + "\n    ]"
        for name, rows in document["tables"].items()
    ]
    parts.append('  "tables": {\n' + ",\n".join(tables) + "\n  }")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def write_run(name: str, document: Mapping[str, Any]) -> None:
    """Write the JSON file of a run."""
    (DATA / f"{name}.json").write_text(dumped(document), encoding="utf-8")


def main() -> None:
    """Write the JSON file of a run."""
    parser = argparse.ArgumentParser(prog="python -m docs.generators.collect")
    parser.add_argument(
        "results", type=Path, help="directory of the run, such as results/demo"
    )
    parser.add_argument(
        "name", help="RUN of docs/results/data/RUN.json, such as demo-avx2-seed1"
    )
    parser.add_argument("--command", required=True, help="the command of the run")
    parser.add_argument("--minutes", type=float, help="duration of the run")
    given = parser.parse_args()
    document = collect(given.results, given.command, given.minutes)
    write_run(given.name, document)


if __name__ == "__main__":
    main()
