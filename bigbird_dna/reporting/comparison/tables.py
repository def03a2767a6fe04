"""Tables 5, 6 and 7 of Zaheer et al. (2020) of a run: a row a predictor, means over its seeds.

Intervals are over test data and seeds, as `metrics.resampling` has them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.errors import DataError
from bigbird_dna.genome.chromatin.tracks import Track, read_tracks
from bigbird_dna.reporting.comparison.entries import Entry, read_entries
from bigbird_dna.reporting.comparison.published import BITS, CHROMATIN, PROMOTERS
from bigbird_dna.reporting.language_model.reading import of_split, read_bits
from bigbird_dna.reporting.metrics.auroc import Estimate, auroc
from bigbird_dna.reporting.metrics.binary import THRESHOLD
from bigbird_dna.reporting.metrics.resampling import gain, resampled_aurocs, resampled_medians
from bigbird_dna.reporting.metrics.steps import Floats
from bigbird_dna.reporting.promoters.predictions import Comparison, compare, negative_set_of, read_predictions
from bigbird_dna.reporting.tracks.arrays.opening import open_array, open_predictions
from bigbird_dna.reporting.tracks.judging import judge_tracks

if TYPE_CHECKING:
    import pandas as pd

# Axes: S seeds, R resamples, T tracks.

KNOWN, UNKNOWN, EVERY = "with a known motif", "without one", "all"


def bits_table(bits: Path) -> pd.DataFrame:
    """Table 5: bits per base of the test split, of the model and of what it is compared with."""
    table = of_split(read_bits(bits), "test")
    columns = ["predictor", "bits_per_base", "low", "high", "note"]
    alike = [BITS.get(name, ("", np.nan)) for name in table["predictor"]]
    return table[columns].assign(
        published=[value for _, value in alike], published_of=[name for name, _ in alike]
    )


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
            alike = negative_set == "substituted" and row[1] != "random"
            published = PROMOTERS.get(row[0]) if alike else None
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


def chromatin_table(directories: Sequence[Path], labels: Path, tracks: Path) -> pd.DataFrame:
    """Table 7: median AUROC over the tracks of a group; all, and those with and without a known motif.

    `labels` and `tracks` are those of the test bins that the models predict. A track has a known motif if the
    comparator `motifs` covers it; without that comparator all tracks are taken together.

    Raises
    ------
    DataError
        As `read_entries`; predictions are of other bins, or of tracks that the data set hasn't got.
    """
    import pandas as pd

    entries, known = read_entries(directories, "chromatin"), read_tracks(tracks)
    bins = open_array(str(labels), "labels").rows
    areas = np.stack([_track_areas(entry, labels, known, bins) for entry in entries])  # (S…, T)
    scanned = [n for n, entry in enumerate(entries) if entry.name == "motifs"]
    has = ~np.isnan(areas[scanned]).all(axis=0)
    parts = {EVERY: np.full(len(known), True), **({KNOWN: has, UNKNOWN: ~has} if scanned else {})}
    rows = []
    for group in dict.fromkeys(track.group for track in known):
        members = np.array([track.group == group for track in known])
        for part, inside in parts.items():
            for row, own in _by_row(entries).items():
                values = areas[own][:, members & inside]
                values = values[:, ~np.isnan(values).any(axis=0)]
                if not values.shape[1]:
                    continue
                moved = resampled_medians(values)
                published = CHROMATIN.get(row[0], {}).get(group) if row[1] != "random" else None
                rows.append(
                    {
                        "group": group,
                        "tracks": part,
                        **_named(row, len(own)),
                        "number": values.shape[1],
                        **_over_seeds(np.median(values, axis=1), moved).columns("median_auroc"),
                        "published_median": np.nan if published is None or part != EVERY else published,
                    }
                )
    return pd.DataFrame(rows)


def _named(row: tuple[str, str, str], seeds: int) -> dict[str, object]:
    name, weights, training = row
    return {"predictor": name, "weights": weights, "training": training, "seeds": seeds}


def _by_row(entries: Iterable[Entry]) -> dict[tuple[str, str, str], list[int]]:
    """The numbers of the entries of each row; `DataError` where two are of one seed."""
    found: dict[tuple[str, str, str], list[int]] = {}
    seen: dict[tuple[object, ...], Entry] = {}
    for number, entry in enumerate(entries):
        other = seen.setdefault((*entry.row, entry.seed), entry)
        if other is not entry:
            raise DataError(f"{entry.path}: is the same predictor with the same seed as {other.path}")
        found.setdefault(entry.row, []).append(number)
    return found


def _area(lined: Comparison, scores: Floats) -> Estimate:
    areas = np.array([auroc(lined.labels, one).value for one in scores])
    return _over_seeds(areas, resampled_aurocs(lined.labels, scores, lined.pairs))


def _over_seeds(values: Floats, resampled: Floats) -> Estimate:
    """The mean of figures (S,) with its interval, from those on resampled test data (S, R)."""
    return gain(values, np.zeros(len(values)), resampled, np.zeros((len(values), 1)))


def _f1(labels: NDArray[np.int64], scores: Floats) -> float:
    called, true = scores >= THRESHOLD, labels == 1
    right = int((called & true).sum())
    return 2 * right / max(int(called.sum() + true.sum()), 1)


def _track_areas(entry: Entry, labels: Path, tracks: Sequence[Track], bins: int) -> Floats:
    """AUROC of each of the data set's tracks, (T,); NaN where it isn't predicted or has one class."""
    own = tracks
    if not entry.weights:
        labels, own = entry.path / "labels.npz", read_tracks(entry.path / "tracks.tsv")
    place = {track.name: number for number, track in enumerate(tracks)}
    unknown = [track.name for track in own if track.name not in place]
    if unknown:
        raise DataError(f"{entry.path}: predicts track {unknown[0]!r}, which the data set hasn't got")
    truth = open_array(str(labels), "labels")
    if truth.rows != bins:
        raise DataError(f"{entry.path}: predicts {truth.rows:,} bins, the others {bins:,}")
    array = open_predictions(entry.predictions, labels, (truth.rows, len(own)))
    found = np.full(len(tracks), np.nan)
    judged = judge_tracks(array, truth, {}, tuple(track.name for track in own))
    found[[place[track.name] for track in own]] = [one.auroc.value for one in judged]
    return found
