"""Make tables of labeled sequences from the data sets of two runs, to train on them with finetune-sequences.

    python -m docs.generators.labeled_tables results/yeast results/yeast_factors tables

writes promoters.csv (windows with `genomic` negatives: binary), factors.parquet (400 bp around bins, and the
tracks with 100 positive test bins: multilabel), and bound.csv (logarithm of 1 + number of tracks with a peak:
regression), with the splits of the runs.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

from bigbird_dna.config import RunPaths
from bigbird_dna.data.promoter_windows import read_windows, window_sequences
from bigbird_dna.genome.chromatin.dataset import read_dataset
from bigbird_dna.genome.reference import Reference

WINDOW = 400  # bp around a bin
LEAST = 100  # positive test bins of a track


def promoters(run: RunPaths) -> pd.DataFrame:
    """Windows of promoters and their `genomic` negatives."""
    data = read_windows(run.windows, "genomic")
    texts = window_sequences(Reference(run.reference), data.rows, 1)
    return pd.DataFrame(
        {"sequence": texts, "label": data.labels, "split": data.rows["split"]}
    )


def bins(run: RunPaths) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Windows around bins with the labels of tracks, and with the number of tracks that have a peak."""
    data, reference = read_dataset(run.chromatin_data), Reference(run.reference)
    used = np.flatnonzero(data.labels.rows(data.rows("test")).sum(axis=0) >= LEAST)
    labels, numbers = [], []
    for split in ("train", "valid", "test"):
        rows = data.rows(split)
        own = data.labels.rows(rows)
        texts = [reference.fetch(window) for window in data.windows(WINDOW, rows)]
        shared = {"sequence": texts, "split": split}
        labels.append(
            pd.DataFrame(
                {
                    **shared,
                    **{data.tracks[one].name: own[:, one] for one in used.tolist()},
                }
            )
        )
        numbers.append(
            pd.DataFrame({**shared, "label": np.log1p(own.sum(axis=1)).round(4)})
        )
    return pd.concat(labels), pd.concat(numbers)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("promoters", type=Path)
    parser.add_argument("factors", type=Path)
    parser.add_argument("output", type=Path)
    given = parser.parse_args()
    given.output.mkdir(parents=True, exist_ok=True)
    promoters(RunPaths(given.promoters)).to_csv(
        given.output / "promoters.csv", index=False
    )
    labels, numbers = bins(RunPaths(given.factors))
    labels.to_parquet(given.output / "factors.parquet", index=False)
    numbers.to_csv(given.output / "bound.csv", index=False)


if __name__ == "__main__":
    main()
