"""Metrics on the test windows and bins, stratified by their similarity to the training data.

A promoter and its negatives are in one stratum, determined by the most similar of them. Every stratum
therefore has similar numbers of both classes, and the least similar stratum has no window similar to the
training data in either class.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bigbird_dna.data.predictions import KEY, compare, read_predictions
from bigbird_dna.data.similar import BOUNDS, NEAREST, SIMILARITY, Strata
from bigbird_dna.disk.directories import into_directory
from bigbird_dna.disk.outputs import check_output
from bigbird_dna.disk.tables import Schema, read_table, write_table
from bigbird_dna.errors import DataError, UsageError
from bigbird_dna.genome.chromatin.tracks import read_tracks
from bigbird_dna.metrics.resampling import binary_metrics
from bigbird_dna.reporting.arrays import open_array
from bigbird_dna.reporting.result import (
    GRAY,
    PALE,
    SERIES,
    legend_label,
    panels,
    save_figure,
)
from bigbird_dna.reporting.track_array import TrackArray, Values
from bigbird_dna.reporting.track_evaluation import (
    evaluate_tracks,
    groups_table,
    tracks_table,
)

TABLE, FIGURE = "similarity.tsv", "similarity.svg"
SCHEMA = Schema.of(
    "text negative_set similarity model; count n positives; estimate auroc auprc; text note",
    key=["negative_set", "similarity", "model"],
)
BIN_SCHEMA = Schema.of(
    "text similarity; count bins; text group model; count tracks; metric median_auroc median_auprc",
    "count n_excluded",
    key=["similarity", "group", "model"],
)
BIN_KEY = ("contig", "start", "end")
_APART = 0.13  # distance of two predictors, relative to the distance of two strata


def promoter_similarity_report(
    predictions: Mapping[str, Mapping[str, Path]],
    nearest: Mapping[str, Path],
    output: Path,
    *,
    bounds: Sequence[float] = BOUNDS,
) -> pd.DataFrame:
    """Write `similarity.tsv` and `similarity.svg` to the directory `output`, and return the table.

    The table has one row per negative set, stratum (between `bounds`, and all windows) and predictor.
    Predictions (Parquet) are given by set and predictor, for the same windows within a set; `nearest` are the
    tables of `evaluate nearest-promoters` by set. `UsageError`: one of the two is missing for a set.
    """
    strata = Strata(bounds)
    if not predictions:
        raise UsageError("give the predictions of at least one negative set")
    for name in (*predictions, *nearest):
        if name not in nearest or name not in predictions:
            what = "nearest windows" if name not in nearest else "predictions"
            raise UsageError(f"set {name!r}: {what} missing")
    table = _promoter_table(predictions, nearest, strata)
    with into_directory(output) as files:
        write_table(files / TABLE, table, SCHEMA)
        similarity_figure(table, strata, files / FIGURE)
    return table


def _promoter_table(
    predictions: Mapping[str, Mapping[str, Path]],
    nearest: Mapping[str, Path],
    strata: Strata,
) -> pd.DataFrame:
    rows = []
    for negative_set, files in predictions.items():
        compared = compare(negative_set, files)
        where = next(iter(files.values()))
        # In the order of `compared`: both are sorted by the same columns.
        windows = read_predictions(where)
        similarities = similarities_of(nearest[negative_set], windows, KEY, where)
        names, codes = np.unique(compared.pairs, return_inverse=True)
        largest = np.zeros(len(names))  # per pair
        np.maximum.at(largest, codes, similarities)
        for name, chosen in strata.parts(largest[codes]):
            for model, scores in compared.scores.items():
                metrics = binary_metrics(
                    compared.labels[chosen],
                    scores[chosen],
                    blocks=compared.blocks[chosen],
                )._asdict()
                rows.append(
                    {
                        "negative_set": negative_set,
                        "similarity": name,
                        "model": model,
                        **metrics,
                    }
                )
    return pd.DataFrame(rows)[SCHEMA.names]


def _some_rows(array: TrackArray, chosen: NDArray[np.bool_]) -> TrackArray:
    def chunks(first: int, last: int) -> Iterator[Values]:
        row = 0
        for chunk in array.chunks(first, last):
            yield chunk[chosen[row : row + len(chunk)]]
            row += len(chunk)

    return TrackArray(
        array.path, array.dtype, (int(chosen.sum()), array.tracks), chunks, array.names
    )


def bin_similarity_report(
    predictions: Mapping[str, Path],
    labels: Path,
    nearest: Path,
    output: Path,
    *,
    tracks: Path,
    bounds: Sequence[float] = BOUNDS,
    min_positives: int = 1,
    threads: int = 0,
) -> pd.DataFrame:
    """Write medians of AUROC and AUPRC over tracks by stratum of similarity as TSV, and return the table.

    The table has one row per stratum, predictor and group of `tracks`. Predictions, labels (rows × tracks)
    and `nearest`, the table of `evaluate nearest-bins`, must have the same bins in the same order
    (`DataError` otherwise). Medians are over tracks with at least `min_positives` positives in the bins of a
    stratum, which are the same tracks for all predictors.
    """
    strata = Strata(bounds)
    check_output(output, [labels, nearest, tracks, *predictions.values()])
    similarities = read_similarities(nearest, BIN_KEY)[SIMILARITY].to_numpy()
    truth, known = open_array(labels, "labels"), read_tracks(tracks)
    arrays = {
        name: open_array(path, "predictions") for name, path in predictions.items()
    }
    for array in (truth, *arrays.values()):
        if (array.rows, array.tracks) != (len(similarities), len(known)):
            raise DataError(
                f"{array.path}: {array.rows:,} rows × {array.tracks:,} tracks, but {nearest} has "
                f"{len(similarities):,} bins and {tracks} {len(known):,} tracks"
            )
    names = tuple(track.name for track in known)
    rows = []
    for name, chosen in strata.parts(similarities):
        if not chosen.any():
            continue
        for model, array in arrays.items():
            evaluated = evaluate_tracks(
                _some_rows(array, chosen), _some_rows(truth, chosen), {}, names, threads
            )
            groups = groups_table(
                tracks_table(known, evaluated, min_positives=min_positives)
            )
            for group in groups.to_dict("records"):
                rows.append(
                    {
                        "similarity": name,
                        "bins": int(chosen.sum()),
                        "model": model,
                        **group,
                    }
                )
    table = pd.DataFrame(rows)[BIN_SCHEMA.names]
    write_table(output, table, BIN_SCHEMA)
    return table


def read_similarities(path: Path, key: Sequence[str]) -> pd.DataFrame:
    """Read the columns `key`, which identify windows, and `similarity` from a table of nearest windows."""
    needed = NEAREST["promoters"].part(*key, SIMILARITY)
    return read_table(path, Schema(needed.columns, key))[[*key, SIMILARITY]]


def similarities_of(
    path: Path, windows: pd.DataFrame, key: Sequence[str], where: Path
) -> NDArray[np.float64]:
    """Return the similarity (N,) of each of the `windows` of the file `where`.

    `DataError` if the table lacks a window.
    """
    table = read_similarities(path, key)
    windows = windows[[*key]].astype({name: table[name].dtype for name in key})
    found = windows.merge(table, how="left", on=[*key])[SIMILARITY].to_numpy(np.float64)
    missing = np.isnan(found)
    if missing.any():
        row = windows.iloc[int(missing.argmax())]
        window = f"{row['contig']}:{row['start']}-{row['end']}"
        raise DataError(
            f"{path}: window {window} of {where} is missing ({int(missing.sum()):,} in total); use files of "
            "the same windows"
        )
    return found


def similarity_figure(table: pd.DataFrame, strata: Strata, path: Path) -> None:
    """Draw the AUROC of each predictor with its interval; labels show each stratum's windows by class."""
    sets = list(dict.fromkeys(table["negative_set"]))
    models = list(dict.fromkeys(table["model"]))
    with panels(1, len(sets), 4.4, 3.8, sharey=True) as (figure, axes):
        for axis, negative_set in zip(axes, sets, strict=True):
            of_set = table[table["negative_set"] == negative_set]
            counts = of_set.drop_duplicates("similarity").set_index("similarity")
            axis.axhline(0.5, color=PALE, linewidth=1.2, zorder=1)
            for number, model in enumerate(models):
                own = of_set[of_set["model"] == model].set_index("similarity")
                if own.empty:
                    continue
                rows = own.reindex(strata.names)
                area, low, high = (
                    rows[f"auroc{end}"].to_numpy(float) for end in ("", "_low", "_high")
                )
                x = np.arange(len(area)) + _APART * (number - (len(models) - 1) / 2)
                color = SERIES[number % len(SERIES)]
                has = ~np.isnan(low)
                axis.vlines(
                    x[has], low[has], high[has], color=color, linewidth=1.4, alpha=0.7
                )
                axis.plot(
                    x, area, "o", color=color, markersize=5, label=legend_label(model)
                )
            labels = []
            for name in strata.names:
                n, positives = (
                    int(counts.loc[name, "n"]),
                    int(counts.loc[name, "positives"]),
                )
                labels.append(f"{name}\n{positives:,} + {n - positives:,}")
            axis.set_xticks(np.arange(len(labels)), labels, fontsize=8)
            axis.set(xlim=(-0.6, len(labels) - 0.4), ylim=(-0.02, 1.02))
            axis.set_title(f"{negative_set} negatives")
            axis.set_xlabel(
                "similarity of the nearest training window; promoters + negatives"
            )
            axis.xaxis.label.set(color=GRAY, fontsize=8.5)
        axes[0].set_ylabel("AUROC")
        axes[0].legend(loc="lower left")
        save_figure(figure, path)
