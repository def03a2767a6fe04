"""The nearest training window of each held-out promoter window, and the baseline that goes by it."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from bigbird_dna.baselines.comparators.nearest import NearestWindow
from bigbird_dna.config import Config
from bigbird_dna.errors import DataError
from bigbird_dna.files import check_writable
from bigbird_dna.genome.reference import Reference
from bigbird_dna.outputs import check_output
from bigbird_dna.reporting.tables import write_tsv
from bigbird_dna.tasks.homology.tables import nearest_table, say_similarities
from bigbird_dna.tasks.promoters.finetuning import write_predictions
from bigbird_dna.tasks.promoters.windows import WindowSet, read_windows, window_sequences

Rows = npt.NDArray[np.intp]

_NEAREST = {
    "contig": "nearest_contig",
    "start": "nearest_start",
    "end": "nearest_end",
    "strand": "nearest_strand",
    "negative_set": "nearest_set",
    "label": "nearest_label",
}


class LabelledPromoters:
    """Some windows of a promoter data set with their one label."""

    def __init__(self, sequences: list[str], labels: npt.NDArray[np.uint8], rows: Rows) -> None:
        self._sequences, self._labels, self._rows = sequences, labels, rows

    @property
    def shape(self) -> tuple[int, int]:
        """(N, 1)."""
        return len(self._rows), 1

    @property
    def length(self) -> int:
        """bp of a window."""
        return max((len(self._sequences[row]) for row in self._rows.tolist()), default=0)

    def sequences(self, rows: Rows) -> list[str]:
        """The sequences of some windows."""
        return [self._sequences[row] for row in self._rows[rows].tolist()]

    def labels(self, rows: Rows) -> npt.NDArray[np.uint8]:
        """Their labels, (n, 1)."""
        return self._labels[self._rows[rows], None]


def find_nearest_promoters(
    config: Config,
    negative_set: str,
    *,
    windows: Path,
    reference: Path,
    output: Path,
    predictions: Path | None = None,
) -> pd.DataFrame:
    """Write the nearest training window of each window of validation and test, and return that table.

    Compared with are the training promoters and their negatives of the same set. Columns are those of the
    predictions files but for the probability, then `similarity`, the nearest window's place, set and label,
    and `orientation`.

    Parameters
    ----------
    predictions
        Where the predictions of the nearest-window baseline go, as those of a model; None: nowhere.

    Raises
    ------
    UsageError
        An output can't be written, or is an input.
    DataError
        The data set can't be used, or has no training window.
    """
    for path in (output, predictions):
        if path is not None:
            check_writable(path)
            check_output(path, [reference, *(windows / name for name in ("windows.parquet", "labels.npz"))])
    data = read_windows(windows, negative_set)
    sequences = window_sequences(Reference(reference), data.rows, config.seed)
    held_out, training = split_rows(data)
    if not len(training):
        raise DataError(f"{windows / 'windows.parquet'}: has no training window")
    baseline = NearestWindow(balanced=True).fit(LabelledPromoters(sequences, data.labels, training))
    pairs = baseline.pairs([sequences[row] for row in held_out.tolist()])
    rows = data.rows.drop(columns="name").assign(label=data.labels)
    queries = rows.iloc[held_out].reset_index(drop=True)
    others = {name: rows[column].to_numpy()[training] for column, name in _NEAREST.items()}
    table = nearest_table(queries, others, pairs.nearest(len(held_out)))
    write_tsv(output, table)
    if predictions is not None:
        probabilities = baseline.predict_pairs(pairs, len(held_out))[:, 0]
        write_predictions(predictions, queries.assign(probability=probabilities))
    for split in ("valid", "test"):
        say_similarities(f"{split} windows ({negative_set})", table[table["split"] == split])
    return table


def split_rows(data: WindowSet) -> tuple[Rows, Rows]:
    """The rows of validation and test, and those of training."""
    training = (data.rows["split"] == "train").to_numpy()
    return np.flatnonzero(data.rows["split"].isin(["valid", "test"]).to_numpy()), np.flatnonzero(training)
