"""Tasks of each kind that are learnt in seconds, and the commands that carry them out."""

import json
from pathlib import Path
from typing import Any

from tests.cli.command import Run, refused
from tests.golden.messages import message

TINY: dict[str, Any] = {"layers": 1, "hidden": 16, "heads": 2, "max_length": 128, "block_size": 16}
STEPS: dict[str, Any] = {"batch_size": 4, "steps": 4, "evaluate_every": 2, "checkpoint_every": 2}
FAR: dict[str, Any] = {
    "kind": "classification",
    "data": {"generated": {"train": 12, "valid": 4, "test": 8, "words": 40}},
    "start": {"vocabulary": 300},
    "length": 96,
    "encoder": {**TINY, "random_blocks": 1},
    "training": STEPS,
    "published": {"accuracy": 0.5, "f1": 0.25},
}
ITC: dict[str, Any] = {**TINY, "block_size": 8, "random_blocks": 1}
ETC: dict[str, Any] = {
    **{**ITC, "attention": "bigbird_etc", "global_blocks": 0, "random_blocks": 0},
    **{"num_global_tokens": 40, "relative_max_distance": 2},
}
QUESTIONS: dict[str, Any] = {
    "kind": "qa",
    "data": {"generated": {"train": 8, "valid": 3, "test": 4, "words": 90}},
    "start": {"vocabulary": 400},
    "encoder": ITC,
    "length": 64,  # several windows
    "stride": 24,
    "question_tokens": 6,
    "training": {"batch_size": 4, "steps": 2, "evaluate_every": 2, "checkpoint_every": 1},
}
SUMMARIES: dict[str, Any] = {
    "kind": "summaries",
    "data": {"generated": {"train": 6, "valid": 2, "test": 3, "words": 30}},
    "start": {"vocabulary": 320},
    "encoder": TINY,
    "document_tokens": 96,
    "search": {"beams": 2, "max_length": 12},
    "training": {"batch_size": 2, "steps": 3, "length_curriculum": [{"steps": 1, "tokens": 32}]},
}


def write_lines(path: Path, *values: object) -> Path:
    """Write JSON lines."""
    path.write_text("".join(json.dumps(value) + "\n" for value in values))
    return path


def read_lines(path: Path) -> list[dict[str, Any]]:
    """What a file of JSON lines holds."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def figures(home: Path) -> dict[str, Any]:
    """What a task was evaluated to, by the directory of its files."""
    found: dict[str, Any] = json.loads((home / "evaluation.json").read_text())["figures"]
    return found


def mistake(
    run: Run, code: int, command: str, config: Path, task: str, *named: object, key: str = ""
) -> None:
    """A command of a task, with a `key=value` of its section, fails with one sentence that names these."""
    words = ["--set", f"tasks.{task}.{key}"] if key else []
    message(refused(run("nlp", command, config, "--task", task, *words), code), *named)


def done(run: Run, config: Path, task: str, *commands: str, more: tuple[object, ...] = ()) -> str:
    """Carry out commands of a task, each of which must succeed; what the last one logged."""
    result = None
    for command in commands:
        threads = [] if command == "prepare" else ["--threads", 1]
        result = run("nlp", command, config, "--task", task, *threads, *more)
        assert (result.code, result.out) == (0, ""), result.err
    assert result is not None
    return result.err
