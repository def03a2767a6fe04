"""What the commands ask of a task on text; each kind's package has one, and is imported when it is asked for.

The files of a task lie in one directory (`sections.TextPaths`). `data` writes its splits as records
(`records`), `train` a model directory, `predict` a JSON object a record with the record's `id`, `evaluate` a
mapping of figures. Only `data` may use the network.
"""

from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, TypeVar

from bigbird_dna.errors import UsageError
from bigbird_dna.nlp.records import Kind
from bigbird_dna.nlp.sections import GeneratedConfig, TextTask
from bigbird_dna.training.distributed import World

S = TypeVar("S", bound=TextTask, contravariant=True)

_PLACES: Mapping[str, str] = {
    "pretraining": "bigbird_dna.nlp.pretraining.task",
    "classification": "bigbird_dna.nlp.classification.task",
    "qa": "bigbird_dna.nlp.answers.task",
    "summaries": "bigbird_dna.nlp.summaries.task",
}


class Task(Protocol[S]):
    """Training, prediction and judgement of one kind of task; a module's `TASK` is one."""

    kind: Kind

    def record(self, settings: S, row: Mapping[str, Any]) -> dict[str, Any] | None:
        """A row of a public data set (`settings.data.hub`) as a record; none: the row is of no use.

        `DataError` if it isn't a row of that data set.
        """

    def generate(self, settings: S, generated: GeneratedConfig, split: str) -> Iterator[dict[str, Any]]:
        """The generated records of a split, a function of `generated.seed` and `split`."""

    def train(
        self, settings: S, train: Path, valid: Path, output: Path, checkpoints: Path, world: World
    ) -> dict[str, Any]:
        """Train, or go on training, and publish the model directory `output`; its figures on `valid`.

        By `tasks.run.Run`, so that a killed training goes on from its checkpoints. Every process of `world`
        calls it.
        """

    def predict(
        self, settings: S, model: Path, records: Path, output: Path, device: str, batch_size: int
    ) -> None:
        """Write the predictions of a model for a file of records, whole or not at all.

        For masked tokens, `UsageError`: nothing is predicted there.
        """

    def evaluate(self, settings: S, records: Path, predictions: Path) -> dict[str, Any]:
        """Figures by metric of predictions, by the official definitions; they need no model.

        `DataError` if a record has no prediction, or a prediction no record (`read_predictions`).
        """


def find_task(kind: str) -> Task[Any]:
    """The task of a kind; `UsageError` if there is none."""
    if kind not in _PLACES:
        raise UsageError(f"task {kind!r} is not one of {', '.join(_PLACES)}")
    return import_module(_PLACES[kind]).TASK  # type: ignore[no-any-return]
