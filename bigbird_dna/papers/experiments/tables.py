"""Tables 5, 6 and 7 of Zaheer et al. (2020) for a run: one row per predictor, with means over seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bigbird_dna.config import PRETRAINED
from bigbird_dna.data.predictions import (
    ALL,
    MODEL,
    SPLIT,
    negative_set_of,
    of_split,
    read_bits,
    read_predictions,
)
from bigbird_dna.disk.atomic import read_object
from bigbird_dna.disk.directories import into_directory
from bigbird_dna.disk.tables import Schema, whole_number, write_table
from bigbird_dna.errors import DataError
from bigbird_dna.genome.chromatin.tracks import Track, read_tracks
from bigbird_dna.metrics.auroc import UNDEFINED, Floats
from bigbird_dna.metrics.resampling import BLOCK_BASES, FEWEST_TRACKS, THRESHOLD
from bigbird_dna.papers.experiments.comparing import (
    FINE_TUNED,
    FITTED,
    ArmModel,
    Arms,
    by_arm,
    evaluate_medians,
    evaluate_windows,
    open_test_bins,
    track_aurocs,
)
from bigbird_dna.papers.experiments.figures import (
    bits_figure,
    negative_windows,
    promoters_figure,
    tracks_figure,
    trainings_figure,
)
from bigbird_dna.papers.experiments.table_trainings import TRAININGS, Trainings
from bigbird_dna.reporting.arrays import open_array
from bigbird_dna.reporting.result import ResultTable, markdown, readable, write_result

# Published values, shown in separate columns.
# Zaheer et al. (2020), Table 5: bits per base of held-out sequence of GRCh37, by the corresponding row here.
BITS: Mapping[str, tuple[str, float]] = {
    "token n-gram, from the left": ("SRILM n-gram", 1.57),
    "model": ("BigBird, 4,096 tokens", 1.12),
}
# Table 6: F1 on human promoters of 8,000 bp, `substituted` negatives.
PROMOTERS: Mapping[str, float] = {
    "cnnprom": 0.697,
    "deepromoter": 0.956,
    "bigbird": 0.999,
}
# Table 7: median AUROC over DeepSEA's tracks, by group.
CHROMATIN: Mapping[str, Mapping[str, float]] = {
    "gkm-svm": {"TF": 0.896},
    "deepsea": {"TF": 0.958, "HM": 0.856, "DHS": 0.923},
    "bigbird": {"TF": 0.961, "HM": 0.887, "DHS": 0.921},
}
TABLES_NOTE = "Published values (Zaheer et al. 2020) are for human data, not for the genome of this run."

TITLES = {
    "table5": "Table 5: bits per base of held-out sequence",
    "table6": "Table 6: promoters",
    "table7": "Table 7: chromatin",
}
# Pivot table shown before the full table: a metric, and the keys of its columns.
_SIDES = {
    "table6": ("auroc", ("negative_set", "window")),
    "table7": ("median_auroc", ("group", "tracks")),
}
_PREDICTOR = ("predictor", "weights", "training", "window")
_ARM = "text predictor weights training; count seeds"
_BITS = "text split predictor; number bits_per_base; metric low high; text note"
TABLES = {
    "table5": Schema.of(_BITS, "metric published; text published_row"),
    "table6": Schema.of(
        f"count window; text negative_set stratum; {_ARM}; count windows",
        "estimate auroc difference; number f1; metric published_f1",
    ),
    "table7": Schema.of(
        f"text group tracks; {_ARM}; optional window; count n_tracks n_tracks_in_median",
        "estimate median_auroc; metric published_median",
    ),
}
TRACKS = Schema.of(
    f"text track group known_motif; count positives; {_ARM}; optional window; number auroc"
)
_INTERVALS = {
    "table5": f"over blocks of {BLOCK_BASES // 1000} kb of sequence",
    "table6": f"over blocks of {BLOCK_BASES // 1000} kb of sequence with their windows, and seeds",
    "table7": f"over tracks and seeds; none for fewer than {FEWEST_TRACKS} tracks",
}


class PredictorRow(NamedTuple):
    """A predictor, independent of its seed."""

    name: str  # name of the comparator, or attention mechanism of a language model
    weights: str  # of a language model: pretrained or random; "" for comparators
    training: str  # fine-tuned, probed, fitted
    window: int | None = (
        None  # bp around a bin used as input; None for promoters, where windows define it
    )


def table_report(
    name: str,
    models: Sequence[ArmModel],
    output: Path,
    *,
    labels: Path | None = None,
    tracks: Path | None = None,
    min_positives: int = 1,
    bits: Mapping[str, Path] | None = None,
    trainings: Trainings | None = None,
) -> pd.DataFrame:
    """Write `NAME.tsv`, `.json`, `.md` and `.svg` for table5, table6 or table7; for Table 7 also
    `table7_tracks.tsv`, the AUROC of each track; with `trainings`, also `NAME_training.tsv` and `.svg`. For
    Table 5, `bits` has the files of the run's own model (key "") and of further models. For the others, each
    of `models` has a `PredictorRow`; Table 7 also needs `labels` and `tracks` of the test bins."""
    inputs = [*(model.path for model in models), *(bits or {}).values()]
    chromatin: ChromatinTables | None = None
    if name == "table7":
        assert labels is not None and tracks is not None
        chromatin = chromatin_tables(models, labels, tracks, min_positives)
        table, draw = chromatin.medians, partial(tracks_figure, chromatin.counting)
    elif name == "table6":
        table = promoter_table(models)
        draw = partial(promoters_figure, table)
    else:
        table = bits_table(bits or {})
        draw = partial(bits_figure, table)
    notes = [TABLES_NOTE, f"Intervals are 95 %, {_INTERVALS[name]}."]
    result = ResultTable(TITLES[name], TABLES[name], table, notes)
    with into_directory(output, inputs) as files:
        write_result(
            files,
            name,
            result,
            lambda _, path: draw(path),
            page=lambda one: _page(name, one),
        )
        if chromatin is not None:
            write_table(files / f"{name}_tracks.tsv", chromatin.tracks, TRACKS)
        if trainings is not None:
            write_table(files / f"{name}_training.tsv", trainings.table, TRAININGS)
            trainings_figure(
                trainings.table, trainings.curves, files / f"{name}_training.svg"
            )
    return table


def _page(name: str, result: ResultTable) -> str:
    table = result.frame.rename(
        columns={"low": "bits_per_base_low", "high": "bits_per_base_high"}
    )
    shown = readable(table, "{:.3f}".format)
    if "window" in table:  # missing values make integers floats
        shown["window"] = [
            "" if size != size else f"{size:.0f}" for size in table["window"]
        ]
    parts = [f"# {result.title}"]
    if name in _SIDES:
        figure, sides = _SIDES[name]
        title = figure.replace("auroc", "AUROC").replace("_", " ")
        beside = shown
        if name == "table6":
            beside = shown.assign(negative_set=negative_windows(table))
        if (
            name == "table7"
        ):  # omit medians over fewer tracks than those of other predictors
            whole = (table["n_tracks"] == table["n_tracks_in_median"]).tolist()
            figures = [
                text if all_ else ""
                for text, all_ in zip(shown[figure], whole, strict=True)
            ]
            beside = shown.assign(**{figure: figures})
        parts += [
            f"{title}, compared:",
            markdown(_side_by_side(beside, figure, sides)),
            "All metrics:",
        ]
    parts += [markdown(shown), f"† {result.note}"]
    return "\n\n".join(parts) + "\n"


def _side_by_side(
    cells: pd.DataFrame, figure: str, sides: Sequence[str]
) -> pd.DataFrame:
    """Return a metric with one row per predictor and one column per value of `sides`; "" if missing."""
    own = [column for column in _PREDICTOR if column in cells and column not in sides]
    first, second = (
        cells[name] + (" bp" if name == "window" else "") for name in sides
    )
    table = cells.assign(side=first + ", " + second).set_index([*own, "side"])
    # pandas 2 assigns wrong rows with `sort=False`.
    rows, columns = (
        pd.MultiIndex.from_frame(cells[own].drop_duplicates()),
        table.index.unique("side"),
    )
    return (
        table[figure]
        .unstack("side", fill_value="")
        .reindex(rows)[columns]
        .reset_index()
    )


# Axes: S seeds, R resamples, T tracks.

KNOWN, UNKNOWN, EVERY = "with a known motif", "without one", "all"


def bits_table(files: Mapping[str, Path]) -> pd.DataFrame:
    """Return Table 5: bits per base of the split `test`, or of the first split, for the own model and its
    baselines. Other files contribute the model's row only; `DataError` if they have another split."""
    (_, bits), *others = files.items()
    columns = [SPLIT, "predictor", "bits_per_base", "low", "high", "note"]
    table = of_split(read_bits(bits), "test")[columns]
    split = table[SPLIT].iloc[0]
    further = []
    for name, path in others:
        own = of_split(read_bits(path), split)
        if (theirs := own[SPLIT].iloc[0]) != split:
            raise DataError(
                f"{path}: split {theirs!r:.60} cannot be compared with split {split!r:.60} of {bits}"
            )
        further.append(
            own[own["predictor"] == MODEL][columns].assign(predictor=f"{MODEL} {name}")
        )
    if further:
        place = int(np.flatnonzero(table["predictor"] == MODEL)[0]) + 1
        table = pd.concat([table[:place], *further, table[place:]], ignore_index=True)
    alike = [BITS.get(name, ("", np.nan)) for name in table["predictor"]]
    return table.assign(
        published=[value for _, value in alike],
        published_row=[name for name, _ in alike],
    )


def promoter_table(models: Sequence[ArmModel]) -> pd.DataFrame:
    """Return Table 6: AUROC and F1 on test windows, by window size, negative set and stratum, and the
    difference of the first fine-tuned model to each predictor."""
    groups: dict[tuple[int, str], list[ArmModel]] = {}
    for predictor in models:
        frame = read_predictions(predictor.predictions)
        size = int((frame["end"] - frame["start"]).iloc[0])
        groups.setdefault((size, negative_set_of(predictor.predictions)), []).append(
            predictor
        )
    rows = []
    parts = (
        (group, predictors, part)
        for group, predictors in groups.items()
        for part in evaluate_windows([one.predictions for one in predictors], group[1])
    )
    for (size, negative_set), predictors, (stratum, evaluated, labels, scores) in parts:
        true, called = labels == 1, scores >= THRESHOLD
        f1 = (
            2
            * (true & called).sum(axis=1)
            / np.maximum(called.sum(axis=1) + true.sum(), 1)
        )
        arms = _arms(predictors)
        first = next((arms[arm] for arm in arms if arm.training == FINE_TUNED), {})
        for arm, seeds in arms.items():
            numbers = list(seeds.values())
            # A predictor that is fitted once is compared with the language model of each seed.
            others = dict.fromkeys(first, numbers[0]) if len(numbers) == 1 else seeds
            common = [seed for seed in first if seed in others and seeds is not first]
            sides = ([own[seed] for seed in common] for own in (first, others))
            difference = evaluated.difference(*sides) if common else UNDEFINED
            alike = (negative_set, stratum) == ("substituted", ALL) and _as_published(
                arm
            )
            published = PROMOTERS.get(arm.name) if alike else None
            rows.append(
                (
                    *(size, negative_set, stratum, *arm[:3], len(seeds), len(labels)),
                    *(*evaluated.mean(numbers), *difference),
                    *(
                        float(f1[numbers].mean()),
                        np.nan if published is None else published,
                    ),
                )
            )
    return pd.DataFrame(rows, columns=TABLES["table6"].names)


class ChromatinTables(NamedTuple):
    """Table 7, and the AUROC of each track from which it is computed, means over seeds."""

    medians: pd.DataFrame
    tracks: pd.DataFrame
    counting: pd.DataFrame  # rows of `tracks` included in the medians


def chromatin_tables(
    models: Sequence[ArmModel], labels: Path, tracks: Path, min_positives: int = 1
) -> ChromatinTables:
    """Return Table 7: median AUROC over the tracks of a group: all tracks, and those with and without a known
    motif (comparator `motifs`). Tracks with fewer than `min_positives` positive test bins are excluded.
    `counting` is the number of tracks of a part, `number` that of tracks with an AUROC for all seeds."""
    predictors, known = [_with_window(model) for model in models], read_tracks(tracks)
    evaluated, arms = _evaluate(predictors, labels, known), _arms(predictors)
    areas = evaluated.areas
    scanned = [
        n for n, predictor in enumerate(predictors) if predictor.row.name == "motifs"
    ]
    has = np.asarray(~np.isnan(areas[scanned]).all(axis=0))
    enough = evaluated.positives.max(axis=0) >= min_positives
    parts = {
        EVERY: np.full(len(known), True),
        **({KNOWN: has, UNKNOWN: ~has} if scanned else {}),
    }
    rows = []
    for group in dict.fromkeys(track.group for track in known):
        members = np.array([track.group == group for track in known]) & enough
        for part, inside in parts.items():
            chosen = members & inside
            there = int((~np.isnan(areas[:, chosen])).any(axis=0).sum())
            for arm, seeds in arms.items():
                values = areas[list(seeds.values())][:, chosen]
                values = values[:, ~np.isnan(values).any(axis=0)]
                if not values.shape[1]:
                    continue
                median = evaluate_medians(values).mean(range(len(values)))
                published = (
                    CHROMATIN.get(arm.name, {}).get(group)
                    if _as_published(arm)
                    else None
                )
                rows.append(
                    (
                        *(
                            group,
                            part,
                            *arm[:3],
                            len(seeds),
                            np.nan if arm.window is None else arm.window,
                        ),
                        *(values.shape[1], there, *median),
                        np.nan if published is None or part != EVERY else published,
                    )
                )
    if not rows:
        raise DataError(
            f"{labels}: no predicted track has negatives and {min_positives:,} positive bins"
        )
    whole = _each_track(arms, evaluated, known, has if scanned else None)
    counting = [track.name for track, some in zip(known, enough, strict=True) if some]
    medians = pd.DataFrame(rows, columns=TABLES["table7"].names)
    return ChromatinTables(medians, whole, whole[whole["track"].isin(counting)])


class _Tracks(NamedTuple):
    """Results of M predictors for each of the data set's T tracks."""

    areas: Floats  # (M, T) AUROC; NaN if the predictor lacks the track, or the track has a single class
    positives: NDArray[
        np.int64
    ]  # (M, T) positive test bins; 0 if the predictor lacks the track


def _each_track(
    arms: Arms[PredictorRow],
    evaluated: _Tracks,
    tracks: Sequence[Track],
    has_motif: NDArray[np.bool_] | None,
) -> pd.DataFrame:
    """Return the AUROC of each track and arm, means over seeds; undefined values are omitted."""
    rows = []
    for arm, models in arms.items():
        numbers = list(models.values())
        means = evaluated.areas[numbers].mean(axis=0)
        for number in np.flatnonzero(~np.isnan(means)).tolist():
            track = tracks[number]
            motif = "" if has_motif is None else "yes" if has_motif[number] else "no"
            rows.append(
                (
                    *(
                        track.name,
                        track.group,
                        motif,
                        int(evaluated.positives[numbers[0], number]),
                    ),
                    *(
                        *arm[:3],
                        len(models),
                        np.nan if arm.window is None else arm.window,
                        means[number],
                    ),
                )
            )
    return pd.DataFrame(rows, columns=TRACKS.names)


def _as_published(arm: PredictorRow) -> bool:
    """Return whether a row was trained like the published model of its name."""
    return arm.training == FITTED or (
        arm.training == FINE_TUNED and arm.weights == PRETRAINED
    )


def _arms(models: Sequence[ArmModel]) -> dict[PredictorRow, dict[int, int]]:
    return by_arm(((one.row, one.seed) for one in models), [one.path for one in models])


def _with_window(model: ArmModel) -> ArmModel:
    """Return the model with the window chosen by a comparator, from its description."""
    if model.row.training == FINE_TUNED:
        return model
    path = model.path / "comparator.json"
    return model._replace(
        row=model.row._replace(window=whole_number(read_object(path), "window", path))
    )


def _evaluate(
    predictors: Sequence[ArmModel], labels: Path, tracks: Sequence[Track]
) -> _Tracks:
    bins = open_array(str(labels), "labels").rows
    place = {track.name: number for number, track in enumerate(tracks)}
    shape = (len(predictors), len(tracks))
    found = _Tracks(np.full(shape, np.nan), np.zeros(shape, np.int64))
    for number, predictor in enumerate(predictors):
        own, of_own = tracks, labels
        if predictor.row.training != FINE_TUNED:
            of_own, own = (
                predictor.path / "labels.npz",
                read_tracks(predictor.path / "tracks.tsv"),
            )
        if unknown := [track.name for track in own if track.name not in place]:
            raise DataError(
                f"{predictor.path}: predicts track {unknown[0]!r}, which is not in the data set"
            )
        truth, (array,) = open_test_bins(of_own, [predictor.predictions])
        if truth.rows != bins:
            raise DataError(
                f"{predictor.path}: predicts {truth.rows:,} bins, but {labels} has {bins:,}"
            )
        if truth.tracks != len(own):
            raise DataError(
                f"{of_own}: {truth.tracks} tracks, but the track table has {len(own)}"
            )
        names = [track.name for track in own]
        places = [place[name] for name in names]
        found.areas[number, places], found.positives[number, places] = track_aurocs(
            truth, array, names
        )
    return found
