"""Table 7 of Zaheer et al. (2020): chromatin, the median AUROC over the tracks of a group."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from bigbird_dna.config import PRETRAINED, Config
from bigbird_dna.config.experiments import OWN_MODEL
from bigbird_dna.disk.atomic import read_object
from bigbird_dna.disk.directories import into_directory
from bigbird_dna.disk.tables import Schema, whole_number, write_table
from bigbird_dna.errors import ConfigError, DataError
from bigbird_dna.genome.chromatin.tracks import read_tracks
from bigbird_dna.metrics.resampling import FEWEST_TRACKS
from bigbird_dna.papers.experiments.arms import Arm, Keys
from bigbird_dna.papers.experiments.comparing import median_aurocs, track_aurocs
from bigbird_dna.papers.experiments.figures import grid_shape
from bigbird_dna.papers.experiments.predictors import (
    FINE_TUNED,
    FITTED,
    PROBED,
    ROW,
    TRAININGS,
    label,
    predictor_arms,
    read_trainings,
    side_by_side,
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
    markdown,
    panels,
    readable,
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
COLUMNS = Schema.of(
    "text group tracks predictor weights training; count seeds; optional window",
    "count n_tracks n_tracks_in_median; estimate median_auroc; metric published_median",
)
TRACKS = Schema.of(
    "text track group known_motif; count positives; text predictor weights training; count seeds",
    "optional window; number auroc",
)
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
    return list(predictor_arms(run, "table7", "chromatin", names))


def train(arm: Arm, world: World) -> Keys:
    return train_predictor(arm, world)


def inputs(run: Config) -> list[Path]:
    labels = run.paths.held_out_bins / "labels.npz"
    return [labels, run.paths.chromatin_data / "tracks.tsv"]


def compare(run: Config, output: Path, device: str) -> list[str]:
    training, curves, chosen = read_trainings(arms(run))
    labels, tracks = inputs(run)
    least = run.chromatin.min_positives_report
    medians, each = chromatin_tables(chosen, labels, tracks, least)
    with into_directory(output, [arm.model for arm in chosen]) as directory:
        write_table7(medians, each, least, directory)
        write_table(directory / "table7_training.tsv", training, TRAININGS)
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
    aurocs, positives = _track_arrays(arms, labels, names)
    scanned = [arm.options.get("comparator") == "motifs" for arm in arms]
    has_motif = np.asarray(~np.isnan(aurocs[scanned]).all(axis=0))
    enough = positives.max(axis=0) >= min_positives
    parts = {EVERY: np.full(len(known), True)}
    if any(scanned):
        parts |= {KNOWN: has_motif, UNKNOWN: ~has_motif}
    kinds = pd.DataFrame(
        [{key: arm.options[key] for key in ("name", *ROW)} for arm in arms]
    )
    kinds["window"] = [_window(arm) for arm in arms]
    kinds["seeds"] = kinds.groupby("name")["name"].transform("size")
    tables = []
    for group in dict.fromkeys(track.group for track in known):
        members = np.array([track.group == group for track in known]) & enough
        for part, inside in parts.items():
            of_part = aurocs[:, members & inside]
            for _, models in kinds.groupby("name", sort=False):
                values = of_part[models.index]
                values = values[:, ~np.isnan(values).any(axis=0)]
                if not values.shape[1]:
                    continue
                seeds = {number: number for number in range(len(models))}
                value, low, high = median_aurocs(values).mean(seeds)
                first = models.iloc[0]
                as_published = part == EVERY and (
                    first["training"] == FITTED
                    or (first["training"], first["weights"]) == (FINE_TUNED, PRETRAINED)
                )
                published = PUBLISHED.get(first["predictor"], {}).get(group, np.nan)
                tables.append(
                    {
                        **first,
                        "group": group,
                        "tracks": part,
                        "n_tracks": values.shape[1],
                        "n_tracks_in_median": int(
                            (~np.isnan(of_part)).any(axis=0).sum()
                        ),
                        "median_auroc": value,
                        "median_auroc_low": low,
                        "median_auroc_high": high,
                        "published_median": published if as_published else np.nan,
                    }
                )
    if not tables:
        raise DataError(
            f"{labels}: no predicted track has negatives and {min_positives:,} positive bins"
        )
    medians = pd.DataFrame(tables)[COLUMNS.names]
    each = []
    for _, models in kinds.groupby("name", sort=False):
        table = pd.DataFrame(
            {
                "track": names,
                "group": [track.group for track in known],
                "known_motif": np.where(has_motif, "yes", "no") if any(scanned) else "",
                "positives": positives[models.index[0]],
                "auroc": aurocs[models.index].mean(axis=0),
            }
        )
        each.append(table.dropna().merge(models.iloc[[0]], how="cross"))
    return medians, pd.concat(each, ignore_index=True)[TRACKS.names]


def _window(arm: Arm) -> float:
    """Return the bp around a bin that an arm reads; comparators have chosen them."""
    if arm.options["training"] == FINE_TUNED:
        return float(arm.options["window"])
    path = arm.model / "comparator.json"
    return whole_number(read_object(path), "window", path)


def _track_arrays(
    arms: Sequence[Arm], labels: Path, tracks: Sequence[str]
) -> tuple[Any, Any]:
    """Return AUROCs and numbers of positives (M, T) of M arms; NaN and 0 for tracks that an arm lacks."""
    bins = open_array(str(labels), "labels").rows
    aurocs = np.full((len(arms), len(tracks)), np.nan)
    positives = np.zeros(aurocs.shape, np.int64)
    for number, arm in enumerate(arms):
        own, truth = list(tracks), labels
        if arm.options["training"] != FINE_TUNED:  # may lack tracks
            truth = arm.model / "labels.npz"
            own = [track.name for track in read_tracks(arm.model / "tracks.tsv")]
        for name in own:
            if name not in tracks:
                raise DataError(
                    f"{arm.model}: predicts track {name!r}, which is not in the data set"
                )
        array = open_array(str(truth), "labels")
        if (array.rows, array.tracks) != (bins, len(own)):
            raise DataError(
                f"{truth}: {array.rows:,} bins × {array.tracks:,} tracks, expected {bins:,} × {len(own):,}"
            )
        columns = [tracks.index(name) for name in own]
        aurocs[number, columns], positives[number, columns] = track_aurocs(
            truth, arm.model / "predictions.npy"
        )
    return aurocs, positives


def write_table7(
    medians: pd.DataFrame, each: pd.DataFrame, min_positives: int, directory: Path
) -> None:
    notes = [
        PUBLISHED_NOTE,
        f"Intervals are 95 %, over tracks and seeds; none for fewer than {FEWEST_TRACKS} tracks.",
    ]
    result = ResultTable("Table 7: chromatin", COLUMNS, medians, notes)

    def page(_: ResultTable) -> str:
        shown = readable(medians, "{:.3f}".format)
        # Missing values make integers floats.
        shown["window"] = [
            "" if size != size else f"{size:.0f}" for size in medians["window"]
        ]
        # Medians over fewer tracks than those of other predictors do not stand beside them.
        whole = medians["n_tracks"] == medians["n_tracks_in_median"]
        beside = shown.assign(median_auroc=shown["median_auroc"].where(whole, ""))
        parts = [
            "# Table 7: chromatin",
            "median AUROC, compared:",
            markdown(side_by_side(beside, "median_auroc", ("group", "tracks"))),
            "All metrics:",
            markdown(shown),
            f"† {result.note}",
        ]
        return "\n\n".join(parts) + "\n"

    write_result(directory, "table7", result, page=page)
    write_table(directory / "table7_tracks.tsv", each, TRACKS)
    most = each.groupby("track")["positives"].transform("max")
    tracks_figure(each[most >= min_positives], directory / "table7.svg")


def tracks_figure(table: pd.DataFrame, path: Path) -> None:
    """Plot each track: the fine-tuned pretrained model against up to six other predictors; colors show the
    groups of tracks."""
    rows = [*ROW, "window"]
    table = table.fillna({"window": 0})  # missing windows must compare equal
    wide = table.pivot(index=["group", "track"], columns=rows, values="auroc")
    predictors = list(table[rows].drop_duplicates().itertuples(index=False, name=None))
    tuned = (row for row in predictors if row[1:3] == (PRETRAINED, FINE_TUNED))
    own = next(tuned, predictors[0])
    # Other fine-tuned models come first, then comparators, then probes.
    order = [FINE_TUNED, FITTED, PROBED]
    others = [row for row in predictors if row != own]
    others = sorted(others, key=lambda row: order.index(row[2]))[:6]
    with panels(*grid_shape(len(others)), 3.6, 3.6) as (figure, axes):
        for axis in axes[max(1, len(others)) :]:
            axis.set_visible(False)
        for axis, other in zip(axes, others, strict=False):
            both = wide[[own, other]].dropna()
            low = min(0.5, both.min().min())
            for number, (group, tracks) in enumerate(both.groupby("group", sort=False)):
                axis.plot(
                    tracks[other],
                    tracks[own],
                    "o",
                    color=SERIES[number % len(SERIES)],
                    label=group,
                    markersize=3,
                    alpha=0.6,
                )
            axis.plot([low, 1], [low, 1], "-", color=GRAY, linewidth=0.8)
            won = int((both[own] > both[other]).sum())
            axis.set(
                xlabel=label(*other[:3]),
                title=f"above on {won:,} of {len(both):,} tracks",
            )
        axes[0].set_ylabel(label(*own[:3]))
        if not others:
            show_text(axes[0], "no other predictor to compare with")
        add_legend(axes[0])
        save_figure(figure, path)
