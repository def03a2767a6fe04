"""Linear probes on promoters: what the layers of a frozen encoder represent, without fine-tuning.

A probe is a logistic regression on the mean over the tokens of a window, fitted to at most 8,000 training
windows, with a penalty chosen on validation windows. Each layer of the run's pretrained encoder is compared
with the same layer of random weights, and with k-mers.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bigbird_dna.config.experiments import PRETRAINED, RANDOM
from bigbird_dna.config.run import Config
from bigbird_dna.console import progress
from bigbird_dna.data.predictions import ALL, CODING, AlignedPredictions, blocks_of
from bigbird_dna.data.promoter_windows import (
    read_origin,
    read_windows,
    training_windows,
    window_sequences,
)
from bigbird_dna.disk.directories import into_directory
from bigbird_dna.disk.tables import Schema, write_table
from bigbird_dna.errors import ConfigError, DataError
from bigbird_dna.genome.reference import Reference
from bigbird_dna.metrics.auroc import UNDEFINED, auroc, auroc_difference
from bigbird_dna.papers.experiments.arms import Arm, reference_of, training_inputs
from bigbird_dna.papers.experiments.comparing import start_intervals
from bigbird_dna.reporting.result import GRAY, PALE, interval, panels, save_figure

Array = NDArray[Any]

FILES = ("probes.svg", "probes.tsv")
COLUMNS = Schema.of(
    "text weights; optional layer; text stratum; estimate auroc delta_auroc; number inverse_penalty"
)
KMERS = "k-mers"
AT_ONCE = 4096  # windows


def arms(run: Config) -> list[Arm]:
    """Return nothing: no model is trained."""
    if not run.has_promoters:
        raise ConfigError("layer_probes: needs promoter models in this run")
    return []


def inputs(run: Config) -> list[Path]:
    return [*training_inputs(run, "promoters"), run.paths.pretrained]


def compare(run: Config, output: Path, device: str) -> list[str]:
    table = probe_promoters(run, run.paths.pretrained, device=device)
    with into_directory(output) as directory:
        write_table(directory / "probes.tsv", table, COLUMNS)
        probe_figure(table[table["stratum"] == ALL], directory / "probes.svg")
    lines = []
    for row in table[table["stratum"] == ALL].to_dict("records"):
        layer = "" if row["weights"] == KMERS else f" layer {row['layer']}"
        area = interval(row["auroc"], row["auroc_low"], row["auroc_high"])
        lines.append(f"{row['weights']}{layer}: AUROC {area}")
    return lines


def probe_promoters(
    run: Config, model: Path, *, random_seed: int = 1, device: str = "auto"
) -> pd.DataFrame:
    """Return the AUROC of probes of all layers of a model and of random weights, and of k-mers, on test
    windows."""
    from bigbird_dna.baselines.kmers import fit_probe
    from bigbird_dna.baselines.promoters import KmerLogistic
    from bigbird_dna.data.chromatin import sample
    from bigbird_dna.papers.comparators.simple import MOST_WINDOWS, FrozenEncoder

    settings, training = run.promoters, run.promoters.training
    if origin := read_origin(run.paths.windows):
        settings = settings.with_sides(
            origin.upstream, origin.downstream, str(run.paths.windows)
        )
    negative_set = run.example_scan.negative_set
    if run.pretraining_study:
        negative_set = run.pretraining_study.negative_set
    data = read_windows(run.paths.windows, negative_set)
    learned = training_windows(data, training.train_fraction, training.seed)
    split = data.rows["split"].to_numpy()
    rows = {
        "train": sample(learned, MOST_WINDOWS, (run.seed, len(learned))),
        "valid": np.flatnonzero(split == "valid"),
        "test": np.flatnonzero(split == "test"),
    }
    reference = Reference(reference_of(run, "promoters"))
    labels, sequences = {}, {}
    for name, numbers in rows.items():
        labels[name] = data.labels[numbers]
        if len(np.unique(labels[name])) < 2:
            raise DataError(
                f"{run.paths.windows}: the {name} windows must be of both classes, found only one"
            )
        windows = data.rows.iloc[numbers]
        sequences[name] = window_sequences(reference, windows, run.seed)
    upstream, downstream = settings.windows.sides
    anchor = upstream / (upstream + downstream)
    probes: list[tuple[str, int | None, float, Array]] = []
    for weights, fresh in ((PRETRAINED, None), (RANDOM, random_seed)):
        encoder = FrozenEncoder(model, fresh=fresh, anchor=anchor, device=device)
        vectors = {}
        for name, texts in sequences.items():
            starts = range(0, len(texts), AT_ONCE)
            parts = progress(starts, f"{weights} weights, {name}", len(starts), "parts")
            features = [encoder.features(texts[at : at + AT_ONCE]) for at in parts]
            vectors[name] = np.concatenate(features).astype(
                np.float32
            )  # (N, layers, D)
        for layer in range(encoder.layers):
            x = {name: of_layers[:, layer] for name, of_layers in vectors.items()}
            probe = fit_probe(x["train"], labels["train"], x["valid"], labels["valid"])
            probes.append((weights, layer, probe.penalty, probe.predict(x["test"])))
    kmers = KmerLogistic(settings.evaluation.baseline_kmer, settings.evaluation.seed)
    kmers.fit(sequences["train"], labels["train"])
    probes.append((KMERS, None, kmers.penalty, kmers.predict(sequences["test"])))
    tests = AlignedPredictions(
        negative_set,
        labels["test"].astype(np.int64),
        windows["pair"].to_numpy(np.int64),
        blocks_of(windows),
        {},
        windows[CODING].to_numpy(np.float64) if CODING in windows else None,
    )
    return probe_table(tests, probes)


def probe_table(
    tests: AlignedPredictions,
    probes: list[tuple[str, int | None, float, Array]],
) -> pd.DataFrame:
    """Return the AUROC of probes (weights, layer, inverse penalty, scores (N,)) in each stratum of the test
    windows. `delta_auroc` is that of pretrained weights minus that of the same layer with random weights."""
    scores = {
        str(number): np.asarray(scores, np.float64)
        for number, (*_, scores) in enumerate(probes)
    }
    rows = []
    for stratum, part in replace(tests, scores=scores).strata():
        if len(np.unique(part.labels)) < 2:
            continue
        random = {}
        for number, (weights, layer, *_) in enumerate(probes):
            if weights == RANDOM:
                random[layer] = part.scores[str(number)]
        for number, (weights, layer, penalty, _) in enumerate(probes):
            values, gain = part.scores[str(number)], UNDEFINED
            if weights == PRETRAINED and layer in random:
                difference = auroc_difference(
                    part.labels, values, random[layer], part.blocks
                )
                gain = difference.estimate
            area = auroc(part.labels, values, part.blocks)
            rows.append((weights, layer, stratum, *area, *gain, penalty))
    table = pd.DataFrame(rows, columns=COLUMNS.names)
    return table.astype({"layer": "Int64"})  # k-mers have no layer


def probe_figure(table: pd.DataFrame, path: Path) -> None:
    ends = ["auroc", "auroc_low", "auroc_high"]
    with panels(1, 1, 6.4, 4.2) as (figure, (axis,)):
        for value, low, high in table[table["weights"] == KMERS][ends].to_numpy():
            text = f"{KMERS} {interval(value, low, high)}"
            axis.axhspan(low, high, color=PALE, alpha=0.5, linewidth=0)
            axis.axhline(value, color=GRAY, linestyle=(0, (5, 2)), label=text)
        for shift, weights in ((-0.06, PRETRAINED), (0.06, RANDOM)):
            rows = table[table["weights"] == weights]
            x = rows["layer"].to_numpy(dtype=float) + shift
            start_intervals(axis, weights, x, *rows[ends].to_numpy(dtype=float).T)
        axis.set(
            xlabel="layer (0: embeddings)",
            ylabel="AUROC, test",
            title="Linear probes of frozen encoders",
        )
        axis.legend(loc="best")
        save_figure(figure, path)
