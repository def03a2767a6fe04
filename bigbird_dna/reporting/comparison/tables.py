"""Tables 5, 6 and 7 of Zaheer et al. (2020) of a run: a row a predictor, means over its seeds.

Intervals are as `metrics.resampling` has them: over promoters with their negatives and seeds, and over tracks
and seeds; those of Table 5 are over blocks of sequence (`metrics.blocks`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.errors import DataError
from bigbird_dna.genome.chromatin.tracks import Track, read_tracks
from bigbird_dna.metrics.auroc import Estimate, auroc
from bigbird_dna.metrics.binary import THRESHOLD
from bigbird_dna.metrics.curves import Floats
from bigbird_dna.metrics.resampling import (
    mean_auroc,
    mean_over_seeds,
    resampled_aurocs,
    resampled_medians,
    with_width,
)
from bigbird_dna.reporting.comparison.entries import FINE_TUNED, FITTED, Entry, Row, read_entries
from bigbird_dna.reporting.comparison.published import BITS, CHROMATIN, PROMOTERS
from bigbird_dna.reporting.language_model.reading import of_split, read_bits
from bigbird_dna.reporting.language_model.table import MODEL, SPLIT
from bigbird_dna.reporting.promoters.predictions import Comparison, compare, negative_set_of, read_predictions
from bigbird_dna.reporting.study.models import PRETRAINED
from bigbird_dna.reporting.tracks.arrays.opening import open_array, open_predictions
from bigbird_dna.reporting.tracks.judging import judge_tracks

if TYPE_CHECKING:
    import pandas as pd

# Axes: S seeds, R resamples, T tracks.

KNOWN, UNKNOWN, EVERY = "with a known motif", "without one", "all"


def bits_table(bits: Path, others: Mapping[str, Path]) -> pd.DataFrame:
    """Table 5: bits per base of a split, of the model and of what it is compared with.

    The split is `test`, or the first one where there is no other. `others` are such tables of further models
    by name, of which the model's row alone is taken: each model was measured on inputs of its own length,
    drawn from the same sequence.

    Raises
    ------
    DataError
        A table can't be used, or is of another split than `bits`.
    """
    import pandas as pd

    columns = [SPLIT, "predictor", "bits_per_base", "low", "high", "note"]
    table = of_split(read_bits(bits), "test")[columns]
    split = table[SPLIT].iloc[0]
    further = []
    for name, path in others.items():
        own = of_split(read_bits(path), split)
        if (theirs := own[SPLIT].iloc[0]) != split:
            raise DataError(
                f"{path}: is of split {theirs!r:.60}, {bits} of {split!r:.60}: they can't be compared"
            )
        further.append(own[own["predictor"] == MODEL][columns].assign(predictor=f"{MODEL} {name}"))
    if further:
        place = int(np.flatnonzero(table["predictor"] == MODEL)[0]) + 1
        table = pd.concat([table[:place], *further, table[place:]], ignore_index=True)
    alike = [BITS.get(name, ("", np.nan)) for name in table["predictor"]]
    return table.assign(published=[value for _, value in alike], published_of=[name for name, _ in alike])


def promoter_table(directories: Sequence[Path]) -> pd.DataFrame:
    """Table 6: AUROC and F1 on test windows, by window size and negative set.

    Raises
    ------
    DataError
        As `read_entries`; predictors of one size and set have other windows.
    """
    import pandas as pd

    groups: dict[tuple[int, str], list[Entry]] = {}
    for entry in read_entries(directories, "promoters"):
        frame = read_predictions(entry.predictions)
        size = int((frame["end"] - frame["start"]).iloc[0])
        groups.setdefault((size, negative_set_of(entry.predictions)), []).append(entry)
    rows = []
    for (size, negative_set), entries in groups.items():
        lined = compare(negative_set, {str(n): entry.predictions for n, entry in enumerate(entries)})
        for row, own in _by_row(entries).items():
            scores = np.stack([lined.scores[str(place)] for place in own])
            alike = negative_set == "substituted" and _as_published(row)
            published = PROMOTERS.get(row.name) if alike else None
            rows.append(
                {
                    "window": size,
                    "negative_set": negative_set,
                    **_named(row, len(own)),
                    "windows": len(lined.labels),
                    **_area(lined, scores).columns("auroc"),
                    "f1": float(np.mean([_f1(lined.labels, one) for one in scores])),
                    "published_f1": np.nan if published is None else published,
                }
            )
    return pd.DataFrame(rows)


class ChromatinTables(NamedTuple):
    """Table 7, and what it sums up: AUROC of each track, means over seeds."""

    medians: pd.DataFrame
    tracks: pd.DataFrame
    counting: pd.DataFrame  # those rows of `tracks` that have a part in the medians


def chromatin_tables(
    directories: Sequence[Path], labels: Path, tracks: Path, min_positives: int = 1
) -> ChromatinTables:
    """Table 7: median AUROC over the tracks of a group; all, and those with and without a known motif.

    `labels` and `tracks` are those of the test bins that the models predict. A track has a known motif if the
    comparator `motifs` covers it; without that comparator all tracks are taken together. Tracks with fewer
    than `min_positives` positives among the test bins don't count in the medians. Of the `counting` tracks of
    a part a row has the `number` that each of its seeds has a figure of.

    Raises
    ------
    DataError
        As `read_entries`; predictions are of other bins, or of tracks that the data set hasn't got; no track
        counts.
    """
    import pandas as pd

    entries, known = read_entries(directories, "chromatin"), read_tracks(tracks)
    bins = open_array(str(labels), "labels").rows
    each = [_judge(entry, labels, known, bins) for entry in entries]
    judged = _Tracks(*(np.stack(part) for part in zip(*each, strict=True)))  # each (S…, T)
    areas = judged.areas
    scanned = [n for n, entry in enumerate(entries) if entry.name == "motifs"]
    has = np.asarray(~np.isnan(areas[scanned]).all(axis=0))
    enough = judged.positives.max(axis=0) >= min_positives
    parts = {EVERY: np.full(len(known), True), **({KNOWN: has, UNKNOWN: ~has} if scanned else {})}
    rows = []
    for group in dict.fromkeys(track.group for track in known):
        members = np.array([track.group == group for track in known]) & enough
        for part, inside in parts.items():
            chosen = members & inside
            there = int((~np.isnan(areas[:, chosen])).any(axis=0).sum())
            for row, own in _by_row(entries).items():
                values = areas[own][:, chosen]
                values = values[:, ~np.isnan(values).any(axis=0)]
                if not values.shape[1]:
                    continue
                moved = resampled_medians(values)
                published = CHROMATIN.get(row.name, {}).get(group) if _as_published(row) else None
                rows.append(
                    {
                        "group": group,
                        "tracks": part,
                        **_named(row, len(own)),
                        "window": np.nan if row.window is None else row.window,
                        "number": values.shape[1],
                        "counting": there,
                        **_median(np.median(values, axis=1), moved).columns("median_auroc"),
                        "published_median": np.nan if published is None or part != EVERY else published,
                    }
                )
    if not rows:
        raise DataError(f"{labels}: no predicted track has negatives and {min_positives:,} positive bins")
    whole = _each_track(entries, judged, known, has if scanned else None)
    counting = [track.name for track, some in zip(known, enough, strict=True) if some]
    return ChromatinTables(pd.DataFrame(rows), whole, whole[whole["track"].isin(counting)])


class _Tracks(NamedTuple):
    """Of one predictor, or several, on each of the data set's tracks, each (…, T)."""

    areas: Floats  # AUROC; NaN where it doesn't predict the track, or that has one class
    positives: NDArray[np.int64]  # test bins; 0 where it doesn't predict the track


def _each_track(
    entries: Sequence[Entry], judged: _Tracks, tracks: Sequence[Track], has_motif: NDArray[np.bool_] | None
) -> pd.DataFrame:
    """AUROC of each track and row, means over seeds; tracks of one class, or that a row lacks, are left
    out.
    """
    import pandas as pd

    rows = []
    for row, own in _by_row(entries).items():
        means = judged.areas[own].mean(axis=0)
        for number in np.flatnonzero(~np.isnan(means)).tolist():
            track = tracks[number]
            motif = "" if has_motif is None else "yes" if has_motif[number] else "no"
            rows.append(
                {
                    "track": track.name,
                    "group": track.group,
                    "known_motif": motif,
                    "positives": int(judged.positives[own[0], number]),
                    **_named(row, len(own)),
                    "window": np.nan if row.window is None else row.window,
                    "auroc": means[number],
                }
            )
    return pd.DataFrame(rows)


def _named(row: Row, seeds: int) -> dict[str, object]:
    return {"predictor": row.name, "weights": row.weights, "training": row.training, "seeds": seeds}


def _as_published(row: Row) -> bool:
    """Whether a row is trained as the published model of its name was."""
    return row.training == FITTED or (row.training == FINE_TUNED and row.weights == PRETRAINED)


def _by_row(entries: Iterable[Entry]) -> dict[Row, list[int]]:
    """The numbers of the entries of each row; `DataError` where two are of one seed."""
    found: dict[Row, list[int]] = {}
    seen: dict[tuple[object, ...], Entry] = {}
    for number, entry in enumerate(entries):
        other = seen.setdefault((*entry.row, entry.seed), entry)
        if other is not entry:
            raise DataError(f"{entry.path}: is the same predictor with the same seed as {other.path}")
        found.setdefault(entry.row, []).append(number)
    return found


def _area(lined: Comparison, scores: Floats) -> Estimate:
    areas = np.array([auroc(lined.labels, one).value for one in scores])
    apart = [len(np.unique(lined.pairs[lined.labels == label])) for label in (1, 0)]
    return mean_auroc(areas, resampled_aurocs(lined.labels, scores, lined.pairs), apart)


def _median(values: Floats, resampled: Floats) -> Estimate:
    """The mean of median AUROCs (S,) with its interval, from those of resampled tracks (S, R).

    Two seeds that differ widely have an interval beyond 0 or 1, which is cut there.
    """
    return with_width(mean_over_seeds(values, resampled, (0.0, 1.0)))


def _f1(labels: NDArray[np.int64], scores: Floats) -> float:
    called, true = scores >= THRESHOLD, labels == 1
    right = int((called & true).sum())
    return 2 * right / max(int(called.sum() + true.sum()), 1)


def _judge(entry: Entry, labels: Path, tracks: Sequence[Track], bins: int) -> _Tracks:
    own = tracks
    if entry.training != FINE_TUNED:
        labels, own = entry.path / "labels.npz", read_tracks(entry.path / "tracks.tsv")
    place = {track.name: number for number, track in enumerate(tracks)}
    unknown = [track.name for track in own if track.name not in place]
    if unknown:
        raise DataError(f"{entry.path}: predicts track {unknown[0]!r}, which the data set hasn't got")
    truth = open_array(str(labels), "labels")
    if truth.rows != bins:
        raise DataError(f"{entry.path}: predicts {truth.rows:,} bins, the others {bins:,}")
    array = open_predictions(entry.predictions, labels, (truth.rows, len(own)))
    found = _Tracks(np.full(len(tracks), np.nan), np.zeros(len(tracks), np.int64))
    judged = judge_tracks(array, truth, {}, tuple(track.name for track in own))
    places = [place[track.name] for track in own]
    found.areas[places] = [one.auroc.value for one in judged]
    found.positives[places] = [one.positives for one in judged]
    return found
