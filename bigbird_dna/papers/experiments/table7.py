"""Table 7 of Zaheer et al. (2020): chromatin, the median AUROC over the tracks of a group."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from bigbird_dna.config.experiments import OWN_MODEL, PRETRAINED, RANDOM
from bigbird_dna.config.run import Config
from bigbird_dna.disk.atomic import read_object
from bigbird_dna.disk.directories import into_directory
from bigbird_dna.disk.tables import write_tsv
from bigbird_dna.errors import ConfigError, DataError
from bigbird_dna.genome.chromatin.tracks import read_tracks
from bigbird_dna.metrics.resampling import FEWEST_TRACKS
from bigbird_dna.papers.experiments.arms import Arm, Keys
from bigbird_dna.papers.experiments.comparing import (
    median_aurocs,
    panel_grid,
    track_aurocs,
)
from bigbird_dna.papers.experiments.predictors import (
    ROW,
    predictor_arms,
    read_trainings,
    train_predictor,
    trainings_figure,
)
from bigbird_dna.papers.experiments.table5 import PUBLISHED_NOTE
from bigbird_dna.reporting.arrays import open_array
from bigbird_dna.reporting.result import (
    GRAY,
    SERIES,
    ResultTable,
    add_legend,
    save_figure,
    show_text,
    write_result,
)

if TYPE_CHECKING:
    from bigbird_dna.training.distributed import World

FILES = tuple(
    f"tables/table7{end}"
    for end in (
        ".tsv",
        ".json",
        ".md",
        ".svg",
        "_training.tsv",
        "_training.svg",
        "_tracks.tsv",
    )
)
COLUMNS = [
    "group",
    "tracks",
    "predictor",
    "weights",
    "seeds",
    "window",
    "n_tracks",
    "n_tracks_in_median",
    "median_auroc",
    "median_auroc_low",
    "median_auroc_high",
    "published_median",
]
TRACKS = [
    "track",
    "group",
    "known_motif",
    "positives",
    "predictor",
    "weights",
    "seeds",
    "window",
    "auroc",
]
# Published median AUROC over DeepSEA's tracks.
PUBLISHED = {
    "gkm-svm": {"TF": 0.896},
    "deepsea": {"TF": 0.958, "HM": 0.856, "DHS": 0.923},
    "bigbird": {"TF": 0.961, "HM": 0.887, "DHS": 0.921},
}
KNOWN, UNKNOWN, EVERY = "with a known motif", "without one", "all"


def arms(run: Config) -> list[Arm]:
    if not run.has_chromatin:
        raise ConfigError("table7: needs tracks, but chromatin.data.tracks is null")
    size = run.chromatin.data.bin
    models = [model for model in run.tables.models if model.window]
    for model in models:
        if model.window < size or (model.window - size) % 2:  # type: ignore[operator]
            raise ConfigError(
                f"tables.models: {model.name}: window {model.window}: must be at least the bin size "
                f"({size} bp) and differ from it by an even number"
            )
    names = [OWN_MODEL, *(model.name for model in models)]
    return predictor_arms(run, "table7", "chromatin", names)


def train(arm: Arm, world: World) -> Keys:
    return train_predictor(arm, world)


def inputs(run: Config) -> list[Path]:
    labels = run.paths.held_out_bins / "labels.npz"
    return [labels, run.paths.chromatin_data / "tracks.tsv"]


def compare(run: Config, output: Path) -> list[str]:
    training, curves, chosen = read_trainings(arms(run))
    labels, tracks = inputs(run)
    least = run.chromatin.min_positives_report
    medians, each = chromatin_tables(chosen, labels, tracks, least)
    with into_directory(output, [arm.model for arm in chosen]) as directory:
        write_table7(medians, each, least, directory)
        write_tsv(directory / "table7_training.tsv", training)
        trainings_figure(training, curves, directory / "table7_training.svg")
    return [f"table7: {len(medians):,} rows"]


def chromatin_tables(
    arms: Sequence[Arm], labels: Path, tracks: Path, min_positives: int = 1
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the medians over the tracks of each group, and the AUROC of each track, means over seeds.

    A group has all its tracks, and those with and without a known motif, for which the comparator `motifs`
    has predictions. Tracks with fewer than `min_positives` positive test bins are not included in medians.
    `n_tracks` of a row have an AUROC for all its seeds, `n_tracks_in_median` one for some row.
    """
    known = read_tracks(tracks)
    names = [track.name for track in known]
    groups = np.array([track.group for track in known])
    aurocs, positives = _track_arrays(arms, labels, names)
    scanned = [arm.options.get("comparator") == "motifs" for arm in arms]
    has_motif = np.asarray(~np.isnan(aurocs[scanned]).all(axis=0))
    enough = positives.max(axis=0) >= min_positives
    parts = {EVERY: np.full(len(known), True)}
    if any(scanned):
        parts |= {KNOWN: has_motif, UNKNOWN: ~has_motif}
    models: dict[str, list[int]] = {}
    for number, arm in enumerate(arms):
        models.setdefault(arm.options["name"], []).append(number)
    medians, each = [], []
    for group, part in product(dict.fromkeys(groups.tolist()), parts):
        of_part = aurocs[:, (groups == group) & enough & parts[part]]
        for numbers in models.values():
            values = of_part[numbers]
            values = values[:, ~np.isnan(values).any(axis=0)]
            if not values.shape[1]:
                continue
            row = _predictor(arms[numbers[0]], len(numbers))
            seeds = {number: number for number in range(len(values))}
            value, low, high = median_aurocs(values).mean(seeds)
            row |= {
                "group": group,
                "tracks": part,
                "n_tracks": values.shape[1],
                "n_tracks_in_median": int((~np.isnan(of_part)).any(axis=0).sum()),
                "median_auroc": value,
                "median_auroc_low": low,
                "median_auroc_high": high,
            }
            if part == EVERY and row["weights"] != RANDOM:
                row["published_median"] = PUBLISHED.get(row["predictor"], {}).get(group)
            medians.append(row)
    if not medians:
        raise DataError(
            f"{labels}: no predicted track has negatives and {min_positives:,} positive bins"
        )
    for numbers in models.values():
        table = pd.DataFrame(
            {
                "track": names,
                "group": groups,
                "known_motif": np.where(has_motif, "yes", "no") if any(scanned) else "",
                "positives": positives[numbers[0]],
                "auroc": aurocs[numbers].mean(axis=0),
            }
        )
        row = _predictor(arms[numbers[0]], len(numbers))
        each.append(table.dropna().assign(**row))
    table = pd.DataFrame(medians, columns=COLUMNS)
    table = table.astype({"published_median": float})
    return table, pd.concat(each, ignore_index=True)[TRACKS]


def _predictor(arm: Arm, seeds: int) -> dict[str, Any]:
    """Return the columns that describe a predictor; `window` is the bp around a bin that it reads."""
    row = {key: arm.options[key] for key in ROW} | {"seeds": seeds}
    if "comparator" not in arm.options:
        return row | {"window": float(arm.options["window"])}
    path = arm.model / "comparator.json"  # comparators have chosen their windows
    return row | {"window": float(read_object(path)["window"])}


def _track_arrays(
    arms: Sequence[Arm], labels: Path, tracks: Sequence[str]
) -> tuple[Any, Any]:
    """Return AUROCs and numbers of positives (M, T) of M arms; NaN and 0 for tracks that an arm lacks."""
    bins = open_array(str(labels), "labels").rows
    aurocs = np.full((len(arms), len(tracks)), np.nan)
    positives = np.zeros(aurocs.shape, np.int64)
    for number, arm in enumerate(arms):
        names, truth = list(tracks), labels
        if "comparator" in arm.options:  # may lack tracks
            truth = arm.model / "labels.npz"
            names = [track.name for track in read_tracks(arm.model / "tracks.tsv")]
        for name in names:
            if name not in tracks:
                raise DataError(
                    f"{arm.model}: predicts track {name!r}, which is not in the data set"
                )
        array = open_array(str(truth), "labels")
        if (array.rows, array.tracks) != (bins, len(names)):
            raise DataError(
                f"{truth}: {array.rows:,} bins × {array.tracks:,} tracks, expected {bins:,} × {len(names):,}"
            )
        columns = [tracks.index(name) for name in names]
        predictions = arm.model / "predictions.npy"
        measured = track_aurocs(truth, predictions)
        aurocs[number, columns], positives[number, columns] = measured
    return aurocs, positives


def write_table7(
    medians: pd.DataFrame, each: pd.DataFrame, min_positives: int, directory: Path
) -> None:
    notes = [
        PUBLISHED_NOTE,
        f"Intervals are 95 %, over tracks and seeds; none for fewer than {FEWEST_TRACKS} tracks.",
    ]
    result = ResultTable("Table 7: chromatin", medians, notes)
    write_result(directory, "table7", result)
    write_tsv(directory / "table7_tracks.tsv", each)
    most = each.groupby("track")["positives"].transform("max")
    tracks_figure(each[most >= min_positives], directory / "table7.svg")


def tracks_figure(table: pd.DataFrame, path: Path) -> None:
    """Plot each track: the fine-tuned pretrained model against up to six other predictors; colors show the
    groups of tracks."""
    keys = [*ROW, "window"]
    table = table.fillna({"window": 0})  # missing windows must compare equal
    wide = table.pivot(index=["group", "track"], columns=keys, values="auroc")
    # Pretrained models come first, then those from random weights, then comparators.
    order = [PRETRAINED, RANDOM, ""]
    predictors = table[keys].drop_duplicates().itertuples(index=False, name=None)
    first, *others = sorted(predictors, key=lambda row: order.index(row[1]))
    others = others[:6]
    with panel_grid(len(others), 3.6, 3.6) as (figure, axes):
        for axis, other in zip(axes, others, strict=False):
            both = wide[[first, other]].dropna()
            low = min(0.5, both.min().min())
            for number, (group, tracks) in enumerate(both.groupby("group", sort=False)):
                axis.plot(
                    tracks[other],
                    tracks[first],
                    "o",
                    color=SERIES[number % len(SERIES)],
                    label=group,
                    markersize=3,
                    alpha=0.6,
                )
            axis.plot([low, 1], [low, 1], "-", color=GRAY, linewidth=0.8)
            above = int((both[first] > both[other]).sum())
            title = f"above on {above:,} of {len(both):,} tracks"
            axis.set(xlabel=" ".join(other[:2]).strip(), title=title)
        axes[0].set_ylabel(" ".join(first[:2]).strip())
        if not others:
            show_text(axes[0], "no other predictor to compare with")
        add_legend(axes[0])
        save_figure(figure, path)
