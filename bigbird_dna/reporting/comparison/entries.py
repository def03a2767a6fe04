"""What a table compares, as the directories of models and comparators say what they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from bigbird_dna.errors import DataError
from bigbird_dna.reporting.study.models import read_model
from bigbird_dna.reporting.tables import read_object, whole_number

PROBE = "probe"
PREDICTIONS = {"promoters": "predictions.parquet", "chromatin": "predictions.npy"}


FINE_TUNED, PROBED, FITTED = "fine-tuned", "probed", "fitted"


class Row(NamedTuple):
    """A row of a table: a predictor, whatever its seed."""

    name: str
    weights: str
    training: str
    window: int | None


@dataclass(frozen=True)
class Entry:
    """A predictor of one seed: a fine-tuned language model, or a fitted comparator."""

    path: Path
    task: str  # promoters, chromatin
    name: str  # of the comparator; of a language model its attention
    weights: (
        str  # of a language model: pretrained, random; "": a comparator, whose weights are always its own
    )
    training: str  # fine-tuned, probed, fitted
    window: int | None  # bp around a bin that are looked at; None: of promoters, whose windows say it
    seed: int

    @property
    def row(self) -> Row:
        """What entries of one row have in common."""
        return Row(self.name, self.weights, self.training, self.window)

    @property
    def predictions(self) -> Path:
        """Those of the test data; of a chromatin model they lie beside its directory."""
        beside = self.task == "chromatin" and self.training == FINE_TUNED
        return (self.path.parent if beside else self.path) / PREDICTIONS[self.task]


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
        return _comparator(path, description)
    model = read_model(path)
    attention = str(model.settings.get("encoder.attention", "bigbird"))
    window = model.settings.get("chromatin.data.window") if model.task == "chromatin" else None
    return Entry(path, model.task, attention, model.start, FINE_TUNED, window, model.seed)


def _comparator(path: Path, description: Path) -> Entry:
    told = read_object(description)
    settings, name, chosen = told.get("settings"), told.get("comparator"), told.get("chosen", {})
    if not isinstance(name, str) or not isinstance(settings, dict) or not isinstance(chosen, dict):
        raise DataError(f"{description}: is not a description of a comparator")
    promoters = (path / PREDICTIONS["promoters"]).is_file()
    task = "promoters" if promoters else "chromatin"
    window = None if promoters or "window" not in told else whole_number(told, "window", description)
    seed = whole_number(settings, "seed", description)
    if name != PROBE:
        return Entry(path, task, name, "", FITTED, window, seed)
    attention, weights = (_text(chosen, key, description) for key in ("attention", "weights"))
    return Entry(path, task, attention, weights, PROBED, window, seed)


def _text(values: dict[str, Any], key: str, where: Path) -> str:
    if not isinstance(value := values.get(key), str):
        raise DataError(f"{where}: is not a description of a probe: {key!r} is missing")
    return value
