"""Table 7 of Zaheer et al. (2020): chromatin, the median AUROC over the tracks of a group."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from bigbird_dna.config.experiments import OWN_MODEL, RANDOM
from bigbird_dna.config.run import Config
from bigbird_dna.disk.directories import into_directory
from bigbird_dna.errors import ConfigError, DataError
from bigbird_dna.genome.chromatin.track import Track
from bigbird_dna.genome.chromatin.tracks import read_tracks
from bigbird_dna.metrics.resampling import (
    FEWEST_TRACKS,
    SampledMetrics,
    resampled_medians,
)
from bigbird_dna.papers.experiments.predictors import (
    ROW,
    TRAINING,
    choose_rates,
    train_predictors,
)
from bigbird_dna.papers.experiments.shared import (
    PUBLISHED_NOTE,
    Trainings,
    compare_seeds,
)
from bigbird_dna.reporting.arrays import open_array
from bigbird_dna.reporting.result import write_result
from bigbird_dna.reporting.track_evaluation import evaluate_tracks

# Published median AUROC over DeepSEA's tracks.
PUBLISHED = {
    "gkm-svm": {"TF": 0.896},
    "deepsea": {"TF": 0.958, "HM": 0.856, "DHS": 0.923},
    "bigbird": {"TF": 0.961, "HM": 0.887, "DHS": 0.921},
}


def run(config: Config, trainings: Trainings, output: Path) -> list[str]:
    """Train all predictors of the run's tracks, and compare them.

    Writes `table7.tsv`, `.json` and `.md` into the directory `output`. `ConfigError` if a window of
    `tables.models` cannot have a bin at its center.
    """
    if not config.has_chromatin:
        raise ConfigError("table7: needs tracks, but chromatin.data.tracks is null")

    size = config.chromatin.data.bin
    names = [OWN_MODEL]

    for model in config.tables.models:
        if not model.window:
            continue

        if model.window < size or (model.window - size) % 2:
            raise ConfigError(
                f"tables.models: {model.name}: window {model.window}: must be at least the bin size "
                f"({size} bp) and differ from it by an even number"
            )

        names.append(model.name)

    data = config.paths.chromatin_data
    models = train_predictors(config, trainings, "chromatin", names, data)
    if not trainings.complete():
        return []

    chosen = choose_rates(models)
    labels = config.paths.held_out_bins / "labels.npz"
    tracks = read_tracks(data / "tracks.tsv")
    least = config.chromatin.min_positives_report
    medians = chromatin_table(chosen, labels, tracks, least)
    notes = [
        PUBLISHED_NOTE,
        f"Intervals are 95 %, over tracks and seeds; none for fewer than {FEWEST_TRACKS} tracks.",
    ]
    with into_directory(output, [*chosen["model"]]) as directory:
        write_result(directory, "table7", "Table 7: chromatin", medians, notes)

    return [f"table7: {len(medians):,} rows"]


def chromatin_table(
    models: pd.DataFrame, labels: Path, tracks: Sequence[Track], min_positives: int = 1
) -> pd.DataFrame:
    """Return the median AUROC over the tracks of each group, as means over seeds.

    `models` has the columns of `choose_rates`; `labels` are those of the test bins that they predicted.

    Tracks with fewer than `min_positives` positive test bins, or without negative ones, are not included in
    medians. Differences are the first fine-tuned model's median minus that of the row.
    """
    models = models.reset_index(drop=True)
    truth = open_array(labels, "labels")
    names = tuple(track.name for track in tracks)
    scores = []

    for model in models["model"]:
        predicted = open_array(model / "predictions.npy", "predictions")
        evaluated, _ = evaluate_tracks(predicted, truth, {}, names)
        scores.append(evaluated["auroc"].to_numpy(np.float64))

    aurocs, positives = np.stack(scores), evaluated["positives"].to_numpy()
    enough = (positives >= min_positives) & ~np.isnan(aurocs).any(axis=0)
    if not enough.any():
        raise DataError(
            f"{labels}: no track has negatives and {min_positives:,} positive bins"
        )

    groups = np.array([track.group for track in tracks])
    first = models.loc[0, ROW].to_dict()
    tables = []

    for group in dict.fromkeys(groups[enough].tolist()):
        chosen = aurocs[:, enough & (groups == group)]
        count = chosen.shape[1]
        metrics = SampledMetrics.of_resamples(
            np.median(chosen, axis=1), resampled_medians(chosen), max(count - 1, 1)
        )
        table = compare_seeds("median_auroc", metrics, models, ROW, first, sign=-1)
        table = table.merge(models.groupby(ROW, as_index=False)[TRAINING].mean())
        published = {name: values.get(group) for name, values in PUBLISHED.items()}
        medians = table["predictor"].map(published).astype(float)
        table["published_median"] = medians.where(table["weights"] != RANDOM)
        table.insert(0, "group", group)
        table.insert(5, "n_tracks", count)
        tables.append(table)

    return pd.concat(tables, ignore_index=True)
