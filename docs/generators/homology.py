"""Intervals over blocks of the genome, and over blocks joined where test windows are similar.

`python -m docs.generators.homology results/yeast workflow/config/yeast.yaml NAME` aligns the test windows of
each negative set with each other, joins the blocks of windows with a similarity from a bound on, and stores
the widths of the intervals relative to those over the blocks themselves.
"""

import argparse
import datetime
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from bigbird_dna.config import Config, load_config
from bigbird_dna.config.paths import RunPaths
from bigbird_dna.data.predictions import KMER, MODEL, POSITION, AlignedPredictions, compare, read_predictions
from bigbird_dna.data.promoter_windows import window_sequences
from bigbird_dna.data.similar import BOUNDS
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.similarity import SequenceWindows, aligned_pairs
from bigbird_dna.metrics.auroc import Estimate, auroc, auroc_difference

from .collect import header, write_run


def joined(blocks: NDArray[np.int64], first: NDArray[np.intp], second: NDArray[np.intp]) -> NDArray[np.int64]:
    """Ids (N,) of blocks (N,), of which those of pairs of windows `first`, `second` (P,) are one block."""
    size = int(blocks.max()) + 1
    graph = coo_matrix((np.ones(len(first)), (blocks[first], blocks[second])), shape=(size, size))
    return np.asarray(connected_components(graph, directed=False)[1][blocks], np.int64)


def intervals(windows: AlignedPredictions, blocks: NDArray[np.int64]) -> Mapping[str, Estimate]:
    """The AUROC of the model, and its differences to baselines, with intervals over blocks."""
    own = windows.scores[MODEL]
    found = {MODEL: auroc(windows.labels, own, blocks)}
    for name in (KMER, POSITION):
        found[name] = auroc_difference(windows.labels, own, windows.scores[name], blocks).estimate
    return found


def rows(config: Config, results: Path, negative_set: str) -> Iterator[dict[str, Any]]:
    """One row per bound of similarity."""
    paths = RunPaths(results)
    files = {MODEL: paths.promoter_model(negative_set) / "predictions.parquet"}
    files |= {name: paths.promoter_baseline(name, negative_set) for name in (KMER, POSITION)}
    windows = compare(negative_set, files)
    frame = read_predictions(files[MODEL])  # in the same order
    texts = window_sequences(Reference(paths.reference), frame, config.seed)
    pairs = aligned_pairs(texts, SequenceWindows.of(texts), threshold=min(BOUNDS))
    alone = intervals(windows, windows.blocks)
    for bound in BOUNDS:
        near = (pairs.similarities >= bound) & (pairs.queries != pairs.others)
        blocks = joined(windows.blocks, pairs.queries[near], pairs.others[near])
        yield {
            "negative_set": negative_set,
            "bound": bound,
            "windows": len(blocks),
            "similar": len(np.unique(pairs.queries[near])),
            "blocks": len(np.unique(windows.blocks)),
            "joined": len(np.unique(blocks)),
            "largest": int(np.bincount(blocks).max()),
            **{
                f"{name}{end}": value
                for name, one in intervals(windows, blocks).items()
                for end, value in (
                    ("", (one.high - one.low) / (alone[name].high - alone[name].low)),
                    ("_value", one.value),
                    ("_value_low", one.low),
                    ("_value_high", one.high),
                )
            },
        }


def main() -> None:
    """Write `docs/results/data/NAME.json`."""
    parser = argparse.ArgumentParser(prog="python -m docs.generators.homology")
    parser.add_argument("results", type=Path, help="directory of the run, such as results/yeast")
    parser.add_argument("config", type=Path, help="configuration of the run")
    parser.add_argument("name", help="name of the JSON file")
    given = parser.parse_args()
    config = load_config(given.config)
    found = [
        row
        for negative_set in config.promoters.windows.negative_sets
        for row in rows(config, given.results, negative_set)
    ]
    command = f"python -m docs.generators.homology results/yeast workflow/config/yeast.yaml {given.name}"
    write_run(given.name, header(datetime.date.today(), command, None) | {"tables": {"promoters": found}})


if __name__ == "__main__":
    main()
