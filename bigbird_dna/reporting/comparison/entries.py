"""What a table compares, as the directories of models and comparators say what they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bigbird_dna.errors import DataError
from bigbird_dna.reporting.study.models import read_model
from bigbird_dna.reporting.tables import read_object, whole_number

PREDICTIONS = {"promoters": "predictions.parquet", "chromatin": "predictions.npy"}


@dataclass(frozen=True)
class Entry:
    """A predictor of one seed: a fine-tuned language model, or a fitted comparator."""

    path: Path
    task: str  # promoters, chromatin
    name: str  # of the comparator; of a language model its attention
    weights: str  # pretrained, random; "": a comparator, whose weights are always its own
    training: str  # fine-tuned, fitted
    seed: int

    @property
    def row(self) -> tuple[str, str, str]:
        """What entries of one row have in common."""
        return self.name, self.weights, self.training

    @property
    def predictions(self) -> Path:
        """Those of the test data; of a chromatin model they lie beside its directory."""
        model = self.task == "chromatin" and bool(self.weights)
        return (self.path.parent if model else self.path) / PREDICTIONS[self.task]


def read_entries(paths: Sequence[Path], task: str) -> list[Entry]:
    """The entries of a table in the order of `paths`.

    Raises
    ------
    DataError
        A directory holds neither a comparator nor a fine-tuned model, or one of another task.
    """
    found = [_read(Path(path)) for path in paths]
    for entry in found:
        if entry.task != task:
            raise DataError(f"{entry.path}: is of {entry.task}, the table is of {task}")
    return found


def _read(path: Path) -> Entry:
    description = path / "comparator.json"
    if description.is_file():
        told = read_object(description)
        settings, name = told.get("settings"), told.get("comparator")
        if not isinstance(name, str) or not isinstance(settings, dict):
            raise DataError(f"{description}: is not a description of a comparator")
        task = "promoters" if (path / PREDICTIONS["promoters"]).is_file() else "chromatin"
        seed = whole_number(settings, "seed", description)
        return Entry(path, task, name, "", "fitted", seed)
    model = read_model(path)
    attention = str(model.settings.get("encoder.attention", "bigbird"))
    return Entry(path, model.task, attention, model.start, "fine-tuned", model.seed)
