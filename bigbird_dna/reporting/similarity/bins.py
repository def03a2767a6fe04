"""Figures of chromatin models on the test bins by how similar their windows are to the training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.disk.outputs import check_output
from bigbird_dna.errors import DataError
from bigbird_dna.genome.chromatin.tracks import read_tracks
from bigbird_dna.reporting.similarity.reading import read_similarities
from bigbird_dna.reporting.similarity.strata import BOUNDS, SIMILARITY, Strata
from bigbird_dna.reporting.tables import write_tsv
from bigbird_dna.reporting.tracks.arrays.array import TrackArray, Values
from bigbird_dna.reporting.tracks.arrays.opening import open_array
from bigbird_dna.reporting.tracks.judging import judge_tracks
from bigbird_dna.reporting.tracks.tables import groups_table, tracks_table

if TYPE_CHECKING:
    import pandas as pd

KEY = ("contig", "start", "end")


class _SomeRows(TrackArray):
    """Some rows of an array."""

    def __init__(self, array: TrackArray, chosen: NDArray[np.bool_]) -> None:
        super().__init__(array.path, array.dtype, (int(chosen.sum()), array.tracks))
        self.names, self._array, self._chosen = array.names, array, chosen

    def chunks(self, first: int, last: int) -> Iterator[Values]:
        row = 0
        for chunk in self._array.chunks(first, last):
            yield chunk[self._chosen[row : row + len(chunk)]]
            row += len(chunk)


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
    """Write medians of AUROC and AUPRC over tracks by stratum of similarity as TSV, and return that table.

    Parameters
    ----------
    predictions
        Predictor → probabilities of the bins (rows × tracks).
    labels, nearest
        Of the same bins in the same order; `nearest` is what `evaluate nearest-bins` wrote.
    tracks
        The table of tracks, with their groups.
    min_positives
        A track with fewer among the bins of a stratum takes no part in that one's medians.

    Returns
    -------
    A row a predictor, stratum and group: `similarity bins group model tracks median_auroc median_auprc
    left_out`, first of all bins. Medians are over the tracks that count in the stratum, the same for all.

    Raises
    ------
    DataError
        A file can't be used, or they aren't of the same bins and tracks.
    UsageError
        Bounds that make no strata, or an output that can't be written.
    """
    import pandas as pd

    strata = Strata(bounds)
    check_output(output, [labels, nearest, tracks, *predictions.values()])
    similarities = read_similarities(nearest, KEY)[SIMILARITY].to_numpy()
    truth, known = open_array(labels, "labels"), read_tracks(tracks)
    arrays = {name: open_array(path, "predictions") for name, path in predictions.items()}
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
            judged = judge_tracks(_SomeRows(array, chosen), _SomeRows(truth, chosen), {}, names, threads)
            groups = groups_table(tracks_table(known, judged, min_positives=min_positives))
            for group in groups.to_dict("records"):
                figures = {key: group[key] for key in ("tracks", "median_auroc", "median_auprc", "left_out")}
                place = {"similarity": name, "bins": int(chosen.sum()), "group": group["group"]}
                rows.append({**place, "model": model, **figures})
    table = pd.DataFrame(rows)
    write_tsv(output, table)
    return table
