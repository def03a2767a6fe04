"""Whether DeepSEA's windows agree with the reference, and its labels with the list of tracks."""

import numpy as np
import numpy.typing as npt
import pandas as pd

from bigbird_dna.console import log
from bigbird_dna.errors import DataError
from bigbird_dna.genome.chromatin.bins import window_start
from bigbird_dna.genome.chromatin.dataset import ChromatinData
from bigbird_dna.genome.chromatin.labels import Bytes
from bigbird_dna.genome.deepsea.bundle import BIN, CHANNELS, WINDOW, BundleBins
from bigbird_dna.genome.deepsea.matlab import MatArray
from bigbird_dna.genome.intervals import Interval
from bigbird_dna.genome.reference import Reference

_RUN = 16  # consecutive rows that are checked together
_SEARCH = 1000  # bp to either side in which a shifted window is looked for

_ONE_HOT = np.zeros((256, len(CHANNELS)), np.uint8)
_ONE_HOT[np.frombuffer(CHANNELS.encode(), np.uint8), np.arange(len(CHANNELS))] = 1


def check_rows(
    windows: MatArray,
    labels: MatArray,
    samples: int,
    bins: BundleBins,
    rows: npt.NDArray[np.intp],
    reference: Reference,
) -> int:
    """Compare sampled rows with their reverse complements and with the reference.

    Parameters
    ----------
    windows, labels
        (2 n, 4, 1000) and (2 n, tracks): n forward rows, then their reverse complements.
    rows
        Which bin each forward row is, (n,).

    Returns
    -------
    int
        How many rows were compared.

    Raises
    ------
    DataError
        A row differs; the text has the row, the place and the first base.
    """
    half = len(rows)
    chosen = _sample(half, samples)
    forward, backward = np.split(windows.pick(np.concatenate([chosen, chosen + half])), 2)
    first, second = np.split(labels.pick(np.concatenate([chosen, chosen + half])), 2)
    for what, one, other in ((windows, forward, backward[:, ::-1, ::-1]), (labels, first, second)):
        unequal = np.flatnonzero((one != other).reshape(len(chosen), -1).any(axis=1))
        if len(unequal):
            row = int(chosen[unequal[0]])
            raise DataError(
                f"{what.path}: {what.name}: row {row + half + 1} is not the reverse complement of row "
                f"{row + 1}: the forward strand must come first, then all reverse complements"
            )
    for row, found in zip(chosen.tolist(), forward, strict=True):
        contig = bins.contigs[bins.codes[rows[row]]]
        start = int(window_start(bins.starts[rows[row : row + 1]], BIN, WINDOW)[0])
        place = Interval(contig, start, start + WINDOW)
        expected = reference.fetch(place)
        if not np.array_equal(one_hot(expected), found.T):
            raise DataError(
                f"{windows.path}: {windows.name}: row {row + 1} "
                f"{_describe_difference(found, expected, place, reference)}"
            )
    return len(chosen)


def check_prevalence(data: ChromatinData) -> None:
    """Warn of tracks whose share of positive test bins isn't the one that the list of tracks gives.

    Labels have no names: this is how a list in another order than the labels' is noticed. Tracks without
    a `published_prevalence` are not looked at; published figures have three digits.
    """
    test = data.rows("test")
    found = data.labels.positives(test) / max(len(test), 1)
    listed = pd.to_numeric(
        pd.Series([track.extra.get("published_prevalence") for track in data.tracks]), "coerce"
    ).to_numpy(np.float64)
    unlike = np.flatnonzero(np.abs(found - listed) > 0.01 * listed)  # False where none is listed
    if len(unlike):
        first = int(unlike[0])
        log(
            f"warning: {len(unlike):,} of {np.count_nonzero(~np.isnan(listed)):,} tracks have another share "
            f"of positive test bins than the list says (the first is {data.tracks[first].name}: "
            f"{found[first]:.3g} and {listed[first]:.3g}): is the list in the order of the labels?"
        )


def one_hot(sequence: str) -> Bytes:
    """A clean sequence as the bundle codes it: (L, 4) for A, G, C, T; N all zero."""
    return _ONE_HOT[np.frombuffer(sequence.encode(), np.uint8)]


def _sample(rows: int, samples: int) -> npt.NDArray[np.intp]:
    """Numbers of about `samples` rows in runs of neighbours, first and last row among them."""
    runs = max(1, -(-min(samples, rows) // _RUN))
    starts = np.linspace(0, max(0, rows - _RUN), runs).astype(np.intp)
    found = np.unique(starts[:, None] + np.arange(_RUN))
    return found[found < rows]


def _describe_difference(found: Bytes, expected: str, place: Interval, reference: Reference) -> str:
    """How a window (4, L) of the bundle differs from the reference's sequence of its place."""
    if (found.sum(axis=0) > 1).any():
        return "is not one-hot: a base has several channels"
    letters = np.frombuffer(("N" + CHANNELS).encode(), np.uint8)
    sequence = letters[(found * np.arange(1, 5, dtype=np.uint8)[:, None]).sum(axis=0)]
    text = sequence.tobytes().decode()
    differences = [base for base in range(len(text)) if text[base] != expected[base]]
    base = differences[0]
    around = Interval(place.contig, place.start - _SEARCH, place.end + _SEARCH)
    shift = reference.fetch(around).find(text) - _SEARCH
    hint = (
        f"the bundle's window lies {shift:+d} bp from there: shifted coordinates"
        if shift >= -_SEARCH
        else "another assembly or shifted coordinates"
    )
    return (
        f"({place.contig}:{place.start}-{place.end}, 0-based): base {base + 1}, at {place.contig}:"
        f"{place.start + base}, is {text[base]} in the bundle and {expected[base]} in {reference.path} "
        f"({len(differences)} of {len(text)} bases differ): {hint}"
    )
