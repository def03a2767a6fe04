"""`bigbird-dna benchmark against`: whether this checkout is slower than another commit.

Processes of both take turns, A B B A …, each with the same script (`stopwatch`), seed and threads; the ratios
are those of neighbors. The other commit is in a git worktree of its own, which is removed afterwards.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from benchmarks.machine import describe_machine, describe_software
from benchmarks.page import seconds, table
from benchmarks.runner import FORMAT
from benchmarks.stopwatch import TIMINGS
from benchmarks.timing import describe
from bigbird_dna.console import log
from bigbird_dna.disk.atomic import scratch_directory
from bigbird_dna.errors import DataError, UsageError, check_at_least_one

SCRIPT = Path(__file__).with_name("stopwatch.py")
MODEL = "resources/models/yeast-promoters-window"  # of this checkout, for both
LONGEST = 600  # seconds of a process

Row = dict[str, Any]


class Comparison(NamedTuple):
    """What is compared, and how; `seconds` are those of a timing in a process, at the least."""

    root: Path
    commit: str
    parts: Sequence[str] = tuple(TIMINGS)
    threshold: float = 10.0
    rounds: int = 6
    threads: int = 1
    seconds: float = 1.0


def against(of: Comparison) -> dict[str, Any]:
    """Time both; what `benchmark.json` holds. `UsageError` without git, a repository, or the commit."""
    check_at_least_one({"rounds": of.rounds, "threads": of.threads})
    if not of.threshold >= 0 or not of.seconds > 0:
        raise UsageError("--threshold must be 0 or more, and --seconds more than 0")
    commit = _commit(of.root, of.commit)
    changed = bool(_git(of.root, "status", "--porcelain", "--untracked-files=no"))
    if changed:
        log(
            f"warning: {of.root}: has changes that are not committed; they are part of what is measured"
        )
    result: dict[str, Any] = {
        "format": FORMAT,
        "benchmark": "against",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": describe_machine(torch.device("cpu")) | {"threads": of.threads},
        "software": describe_software(),
        "settings": {
            name: value for name, value in of._asdict().items() if name != "root"
        },
        "commit": commit,
        "checkout": _commit(of.root, "HEAD"),
        "uncommitted": changed,
    }
    with worktree(of.root, commit) as other:
        runs = _rounds(of, other)
        rows = [_row(name, runs, of.threshold) for name in of.parts]
        doubtful = [row["timing"] for row in rows if row["status"] == "slower"]
        if doubtful:
            log(f"{', '.join(doubtful)}: slower so far, and measured again")
            more = _rounds(of._replace(parts=doubtful), other)
            runs = {side: runs[side] + more[side] for side in runs}
    again = {name: _row(name, runs, of.threshold) for name in doubtful}
    return {**result, "results": [again.get(row["timing"], row) for row in rows]}


def _rounds(of: Comparison, other: Path) -> dict[str, list[Row]]:
    """What the processes of both measure in all rounds."""
    roots = {"commit": other, "checkout": of.root}
    runs: dict[str, list[Row]] = {side: [] for side in roots}
    for number in range(of.rounds):
        for side in sorted(roots, reverse=number % 2 == 0):
            runs[side].append(time_commit(roots[side], of))
        log(f"round {number + 1} of {of.rounds}")
    return runs


def _row(name: str, sides: Mapping[str, Sequence[Row]], threshold: float) -> Row:
    """The times of a timing, and the ratios of this checkout's to the commit's in each round."""
    row: Row = {"timing": name, "status": "not slower", "reason": None, "ratio": None}
    lacking = {
        side: next(
            (run["missing"][name] for run in runs if name in run["missing"]), None
        )
        for side, runs in sides.items()
    }
    for side, runs in sides.items():
        row[side] = (
            None if lacking[side] else describe([run["seconds"][name] for run in runs])
        )
    if lacking["checkout"]:
        return row | {"status": "failed", "reason": lacking["checkout"]}
    if lacking["commit"]:
        return row | {"status": "new", "reason": lacking["commit"]}
    ratios = np.divide(row["checkout"]["seconds"], row["commit"]["seconds"])
    row["ratio"] = {
        "paired": float(np.median(ratios)),
        "range": [float(ratios.min()), float(ratios.max())],
    }
    if row["ratio"]["paired"] > 1 + threshold / 100:
        row["status"] = "slower"
    return row


def faults(result: Mapping[str, Any]) -> list[str]:
    """A sentence for each timing that is slower in this checkout, or fails in it."""
    found = []
    for row in result["results"]:
        if row["status"] == "failed":
            found.append(f"{row['timing']}: fails in this checkout: {row['reason']}")
        elif row["status"] == "slower":
            ratio, (low, high) = row["ratio"]["paired"], row["ratio"]["range"]
            found.append(
                f"{row['timing']}: takes {ratio:.2f} times as long as in {result['commit'][:10]} "
                f"({low:.2f} to {high:.2f} in {len(row['commit']['seconds'])} rounds)"
            )
    return found


def time_commit(root: Path, of: Comparison) -> Row:
    """What `stopwatch` prints in a process that imports the package from `root`; `DataError` if it fails."""
    paths = [str(root), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(paths),
        "OMP_NUM_THREADS": str(of.threads),
        "PYTHONHASHSEED": "0",
    }
    words = (str(of.root / MODEL), str(of.seconds), str(of.threads), *of.parts)
    command = [sys.executable, "-P", str(SCRIPT), *words]
    limit = LONGEST + 20 * of.seconds * len(of.parts)
    options: dict[str, Any] = {"capture_output": True, "text": True, "check": False}
    try:
        ended = subprocess.run(
            command, env=environment, cwd=root, timeout=limit, **options
        )
    except subprocess.TimeoutExpired:
        raise DataError(
            f"{root}: the process that measures it took more than {limit:.0f} s"
        ) from None
    if ended.returncode:
        last = (ended.stderr.strip().splitlines() or ["no message"])[-1]
        raise DataError(
            f"{root}: the process that measures it ended with code {ended.returncode}: {last}"
        )
    row: Row = json.loads(ended.stdout.splitlines()[-1])
    if not Path(row["package"]).resolve().is_relative_to(root.resolve()):
        raise DataError(f"{root}: another package was measured, {row['package']}")
    return row


# Git.


@contextmanager
def worktree(root: Path, commit: str) -> Iterator[Path]:
    """A temporary worktree of a commit."""
    with scratch_directory() as home:
        path = home / "commit"
        try:
            _git(root, "worktree", "add", "--detach", "--quiet", str(path), commit)
            yield path
        finally:
            _git(root, "worktree", "remove", "--force", str(path), check=False)


def _commit(root: Path, name: str) -> str:
    """The full name of a commit; `UsageError` if there is none."""
    top = _git(root, "rev-parse", "--show-toplevel", check=False)
    if not top or Path(top).resolve() != root.resolve():
        raise UsageError(
            f"{root}: is not a git repository, so there is no commit to compare with"
        )
    found = _git(
        root, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}", check=False
    )
    if not found:
        raise UsageError(f"{name!r} is not a commit of {root}")
    return found


def _git(root: Path, *words: str, check: bool = True) -> str:
    """What git prints; `UsageError` if it isn't there, or if it fails and that is checked."""
    # In a group of its own: another Ctrl-C must not end what removes the worktree.
    options: dict[str, Any] = {
        "capture_output": True,
        "text": True,
        "check": False,
        "process_group": 0,
    }
    try:
        ended = subprocess.run(["git", "-C", str(root), *words], **options)
    except FileNotFoundError:
        raise UsageError(
            "benchmark against: needs git, which is not on the PATH"
        ) from None
    if check and ended.returncode:
        last = (ended.stderr.strip().splitlines() or ["no message"])[-1]
        raise UsageError(f"{root}: git {words[0]} failed: {last}")
    return str(ended.stdout).strip()


def against_page(result: Mapping[str, Any]) -> str:
    """The results as a Markdown page."""
    machine, of, commit = result["machine"], result["settings"], result["commit"][:10]
    more = " with uncommitted changes" if result["uncommitted"] else ""
    rows = []
    for row in result["results"]:
        before, after = (
            row[side] and seconds(row[side]["median"])
            for side in ("commit", "checkout")
        )
        ratio = row["ratio"]
        reason = f": {row['reason']}" if row["reason"] else ""
        cells = {
            "work": row["timing"],
            commit: before or "–",
            "this checkout": after or "–",
        }
        cells["ratio"] = f"{ratio['paired']:.3f}" if ratio else "–"
        cells["range"] = (
            " – ".join(f"{end:.3f}" for end in ratio["range"]) if ratio else "–"
        )
        rows.append({**cells, "result": row["status"] + reason})
    return (
        "\n\n".join(
            [
                f"{result['checkout'][:10]}{more}, this checkout, against {of['commit']} ({commit}).\n"
                f"{machine['cpu']}, {machine['instructions']}; threads: {machine['threads']} on "
                f"{machine['cores']} cores; torch {result['software']['torch']}; {result['date'][:10]}.",
                table(rows),
                "Fastest call of a process, median over the processes of each commit. ratio: time of this "
                "checkout relative to the commit, median and range over pairs of neighboring processes; "
                f"above {1 + of['threshold'] / 100:.2f} it is slower. What seems slower has twice the "
                "rounds.",
            ]
        )
        + "\n"
    )
