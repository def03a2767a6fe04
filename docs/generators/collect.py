"""Store the tables of a run: `python -m docs.generators.collect results/demo NAME --command "make demo"`.

It is called on the machine that made the run, and writes `docs/results/data/NAME.json` for the result pages.
"""

import argparse
import datetime
import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from benchmarks.timing import describe_machine
from bigbird_dna.training.distributed import chosen_precision

from .results import DATA, Row

MAX_ROWS = 1000  # of a stored table
FACTS = ("genome/promoters", "tokens/statistics", "models/pretrained/metrics")


def collect(results: Path, command: str, minutes: float | None) -> Row:
    """The tables of a run's directory, with the machine that this is called on."""
    tables: dict[str, list[Row]] = {}
    paths = sorted((results / "report").rglob("*.tsv"))
    for path in paths:
        # Integers stay integers beside missing values.
        table = pd.read_csv(path, sep="\t", dtype_backend="numpy_nullable")
        # The summary has rows of the other tables.
        if path.stem != "summary" and len(table) <= MAX_ROWS:
            tables[path.stem] = [
                {key: value for key, value in row.items() if not pd.isna(value)}
                for row in table.to_dict("records")
            ]
    for name in FACTS:
        path = results / f"{name}.json"
        if path.is_file():
            facts = json.loads(path.read_text(encoding="utf-8"))
            tables[name.replace("/", "_")] = [facts]

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    described = describe_machine(device)
    machine = {key: described[key] for key in ("cpu", "instructions", "cores")}
    if described["gpu"]:
        machine["gpu"] = described["gpu"]
    machine["precision"] = chosen_precision(device, "auto")
    git = ["git", "rev-parse", "--short=8", "HEAD"]
    commit = subprocess.run(git, cwd=results, capture_output=True, text=True)
    ended = max(path.stat().st_mtime for path in paths)
    return {
        "date": f"{datetime.datetime.fromtimestamp(ended, datetime.UTC).date()}",
        "commit": commit.stdout.strip() or None,
        "machine": machine,
        "minutes": minutes,
        "command": f"$ {command}",
        "tables": tables,
    }


def dumped(document: Mapping[str, Any]) -> str:
    """A run as JSON with one row per line."""

    def line(value: Any) -> str:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)

    parts = [
        f"  {line(key)}: {line(value)}"
        for key, value in document.items()
        if key != "tables"
    ]
    tables = []
    for name, rows in document["tables"].items():
        lines = ",\n".join(f"      {line(row)}" for row in rows)
        tables.append(f"    {line(name)}: [\n{lines}\n    ]")
    parts.append('  "tables": {\n' + ",\n".join(tables) + "\n  }")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main() -> None:
    """Write the JSON file of a run."""
    parser = argparse.ArgumentParser(prog="python -m docs.generators.collect")
    parser.add_argument("results", type=Path, help="directory, such as results/demo")
    parser.add_argument("name", help="RUN of docs/results/data/RUN.json")
    parser.add_argument("--command", required=True, help="the command of the run")
    parser.add_argument("--minutes", type=float, help="duration of the run")
    args = parser.parse_args()
    document = collect(args.results, args.command, args.minutes)
    (DATA / f"{args.name}.json").write_text(dumped(document), encoding="utf-8")


if __name__ == "__main__":
    main()
