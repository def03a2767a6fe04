"""Effects of variants on tracks, record by record as a VCF streams by.

An allele's probability of a track is the mean over both strands and several offsets of the window, so that
the places where tokens happen to begin don't pass for effects. What is reported is the difference of that
mean between the alternative and the reference allele, as it is and as log-odds. Memory does not grow with
the number of records.

Axes: W windows of an allele (offsets x strands), T tracks.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.calibration.stored import Finish
from bigbird_dna.checks import check_whole
from bigbird_dna.errors import ModelError, UsageError
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import reverse_complement
from bigbird_dna.genome.variants import (
    OFFSET_SPAN,
    Note,
    allele_windows,
    contig_finder,
    find_change,
    window_offsets,
)
from bigbird_dna.genome.vcf import VcfRecord
from bigbird_dna.tasks.predictor import Predictor

LOWEST = 1e-6
"""Log-odds are those of a probability from here to 1 less this."""

_FIRST_BATCH = 64  # sequences
_RECORDS = 512  # held at once, when few of them need a prediction


class AlleleEffect(NamedTuple):
    """What an alternative allele does; both arrays are (T,) float64, None if it was not scored."""

    notes: tuple[Note, ...]
    delta: NDArray[np.float64] | None  # probability, alternative minus reference
    log_odds: NDArray[np.float64] | None  # natural logarithm of the odds' ratio

    @property
    def largest(self) -> int:
        """Index of the track with the largest change of probability either way, the first of equals."""
        assert self.delta is not None
        return int(np.abs(self.delta).argmax())


class ScoredRecord(NamedTuple):
    """A record with one effect for each of its `alts`."""

    record: VcfRecord
    effects: tuple[AlleleEffect, ...]


class _Allele(NamedTuple):
    """An alternative allele before it is scored: rows of the batch, none if it stays unscored."""

    notes: tuple[Note, ...]
    ref: list[int]
    alt: list[int]


class _Batch:
    """Records whose sequences are predicted together; one that occurs again is predicted once."""

    def __init__(self, reference: Reference, window: int, offsets: Sequence[int], max_n: float) -> None:
        self.reference, self.window, self.offsets, self.max_n = reference, window, offsets, max_n
        self.records: list[tuple[VcfRecord, list[_Allele]]] = []
        self.rows: dict[str, int] = {}

    def add(self, record: VcfRecord, contig: str | None) -> None:
        """A record whose contig the reference calls `contig`, None if it hasn't got it."""
        self.records.append((record, [self._allele(record, contig, alt) for alt in record.alts]))

    def _allele(self, record: VcfRecord, contig: str | None, alt: str) -> _Allele:
        change = find_change(contig, record.start, record.ref, alt, self.reference)
        if isinstance(change, Note):
            return _Allele((change,), [], [])
        windows = allele_windows(change, self.reference, self.window, self.offsets)
        if windows is None:
            return _Allele((Note.TOO_LONG,), [], [])
        edge = (Note.CONTIG_EDGE,) if windows.reaches_beyond else ()
        if windows.largest_n_fraction > self.max_n:
            return _Allele((Note.TOO_MANY_N, *edge), [], [])
        return _Allele(edge, self._place(windows.ref), self._place(windows.alt))

    def score(
        self, predict: Predictor, columns: Sequence[int] | None, size: int, finish: Finish | None
    ) -> Iterator[ScoredRecord]:
        """Predict `size` sequences a call, then give the records in the order they came in."""
        texts = list(self.rows)
        parts = [
            _predicted(predict, columns, texts[start : start + size]) for start in range(0, len(texts), size)
        ]
        values = np.concatenate(parts) if parts else np.empty((0, 0), np.float32)
        for record, alleles in self.records:
            yield ScoredRecord(record, tuple(_effect(allele, values, finish) for allele in alleles))

    def _place(self, windows: Sequence[str]) -> list[int]:
        both = (text for window in windows for text in (window, reverse_complement(window)))
        return [self.rows.setdefault(text, len(self.rows)) for text in both]


def variant_effects(
    records: Iterable[VcfRecord],
    reference: Reference,
    *,
    window: int,
    predict: Predictor,
    offsets: Sequence[int],
    columns: Sequence[int] | None = None,
    max_n: float = 0.25,
    batch_sequences: int = 512,
    finish: Finish | None = None,
) -> Iterator[ScoredRecord]:
    """Score every alternative allele of every record, in the records' order; none is left out.

    An effect depends on the allele and the reference alone. Exchanging REF and ALT, with a reference that has
    ALT in place, gives the negative effect. A window that reaches beyond its contig is filled up with N and
    noted.

    Parameters
    ----------
    window
        Size of the model's input, bp, at least 1.
    predict
        Gives (N, 1, T) probabilities of the bin in the middle of each window.
    offsets
        How far the windows lie from the centred one, bp; see `window_offsets`.
    columns
        The tracks that effects have values of; None: all T.
    max_n
        An allele stays unscored if any of its windows, or of the reference's, has a larger fraction of N.
        What lies beyond the contig counts.
    batch_sequences
        Most sequences in one call of `predict`; the first calls have fewer, so that they come soon.
    finish
        Calibrates the probabilities of an allele (T,), or of the tracks of `columns`; None: they stay.

    Raises
    ------
    DataError
        A record is malformed, or the reference can't be read.
    ModelError
        A prediction is no probability.
    ValueError
        `window`, `offsets` or `max_n` is out of its range.
    """
    if window < 1 or not offsets or not 0 <= max_n <= 1 or batch_sequences < 1:
        raise ValueError(f"window {window}, offsets {offsets} or max_n {max_n} is out of its range")
    find_contig = contig_finder(reference.contigs, reference.names)
    new_batch = partial(_Batch, reference, window, offsets, max_n)
    batch = new_batch()
    enough = min(_FIRST_BATCH, batch_sequences)
    for record in records:
        batch.add(record, find_contig(record.contig))
        if len(batch.rows) >= enough or len(batch.records) >= _RECORDS:
            yield from batch.score(predict, columns, batch_sequences, finish)
            batch = new_batch()
            enough = min(2 * enough, batch_sequences)
    yield from batch.score(predict, columns, batch_sequences, finish)


def offsets_for(count: int, window: int) -> tuple[int, ...]:
    """The offsets of `count` windows of `window` bp; `UsageError` if there can't be so many."""
    check_whole("offsets", count)
    if not 1 <= count <= OFFSET_SPAN + 1:
        raise UsageError(f"offsets {count}: must be from 1 to {OFFSET_SPAN + 1}")
    offsets = window_offsets(count)
    if offsets[-1] > (window - 1) // 2:
        raise UsageError(f"offsets {count}: the model's window of {window} bp is too small for them")
    return offsets


def _effect(allele: _Allele, values: NDArray[np.float32], finish: Finish | None) -> AlleleEffect:
    if not allele.ref:
        return AlleleEffect(allele.notes, None, None)
    ref, alt = (  # (W, T) → (T,)
        values[rows].mean(axis=0, dtype=np.float64) for rows in (allele.ref, allele.alt)
    )
    if finish is not None:
        ref, alt = (finish(one).astype(np.float64) for one in (ref, alt))
    return AlleleEffect(allele.notes, alt - ref, _log_odds(alt) - _log_odds(ref))


def _predicted(
    predict: Predictor, columns: Sequence[int] | None, sequences: Sequence[str]
) -> NDArray[np.float32]:
    values = predict(sequences)
    assert values.ndim == 3 and values.shape[:2] == (len(sequences), 1), (
        f"{values.shape} predictions for {len(sequences)} sequences"
    )
    if not ((values >= 0) & (values <= 1)).all():  # false for NaN too
        raise ModelError("the model gives values that are not probabilities: its weights are damaged")
    return values[:, 0] if columns is None else values[:, 0, columns]


def _log_odds(probability: NDArray[np.float64]) -> NDArray[np.float64]:
    clipped = np.clip(probability, LOWEST, 1 - LOWEST)
    odds: NDArray[np.float64] = np.log(clipped / (1 - clipped))
    return odds
