"""Intervals over blocks of the genome joined where test windows are similar, and over the blocks alone.

`python -m docs.generators.homology results/yeast NAME` stores, for each negative set of a run's predictions,
the widths of the intervals relative to those over the blocks alone.
"""

import argparse
import datetime
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bigbird_dna.config.paths import RunPaths
from bigbird_dna.data.predictions import (
    HOMOLOGY,
    KMER,
    MODEL,
    POSITION,
    AlignedPredictions,
    blocks_of,
    compare,
    negative_set_of,
    read_predictions,
)
from bigbird_dna.metrics.auroc import Estimate, auroc, auroc_difference

from .collect import header, write_run


def intervals(windows: AlignedPredictions) -> Mapping[str, Estimate]:
    """The AUROC of the model, and its differences to baselines."""
    own, blocks = windows.scores[MODEL], windows.blocks
    found = {MODEL: auroc(windows.labels, own, blocks)}
    for name in (KMER, POSITION):
        found[name] = auroc_difference(
            windows.labels, own, windows.scores[name], blocks
        ).estimate
    return found


def row(results: Path, negative_set: str) -> dict[str, Any]:
    """The row of a negative set."""
    paths = RunPaths(results)
    files = {MODEL: paths.promoter_model(negative_set) / "predictions.parquet"}
    files |= {
        name: paths.promoter_baseline(name, negative_set) for name in (KMER, POSITION)
    }
    windows, frame = (
        compare(negative_set, files),
        read_predictions(files[MODEL]),
    )  # in the same order
    alone = replace(windows, blocks=blocks_of(frame.drop(columns=HOMOLOGY)))
    found: dict[str, Any] = {
        "negative_set": negative_set,
        "windows": len(frame),
        "similar": int(frame[HOMOLOGY].duplicated(keep=False).sum()),
        "blocks": len(np.unique(alone.blocks)),
        "joined": len(np.unique(windows.blocks)),
        "largest": int(np.bincount(windows.blocks).max()),
    }
    before = intervals(alone)
    for name, one in intervals(windows).items():
        found[name] = (one.high - one.low) / (before[name].high - before[name].low)
        found |= {
            f"{name}_value": one.value,
            f"{name}_value_low": one.low,
            f"{name}_value_high": one.high,
        }
    return found


def main() -> None:
    """Write `docs/results/data/NAME.json`."""
    parser = argparse.ArgumentParser(prog="python -m docs.generators.homology")
    parser.add_argument(
        "results", type=Path, help="directory of the run, such as results/yeast"
    )
    parser.add_argument("name", help="name of the JSON file")
    given = parser.parse_args()
    models = sorted((given.results / "models").glob("promoter-*/predictions.parquet"))
    found = [row(given.results, negative_set_of(path)) for path in models]
    command = f"python -m docs.generators.homology results/yeast {given.name}"
    write_run(
        given.name,
        header(datetime.date.today(), command, None) | {"tables": {"promoters": found}},
    )


if __name__ == "__main__":
    main()
