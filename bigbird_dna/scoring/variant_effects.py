"""Effects of variants on tracks, record by record as a VCF streams by.

An allele's probability of a track is the mean over both strands and several offsets of the window, so that
the places where tokens happen to begin don't pass for effects. What is reported is the difference of that
mean between the alternative and the reference allele, as it is and as log-odds. Memory does not grow with
the number of records.

Axes: W windows of an allele (offsets x strands), T tracks.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.calibration.stored import Calibration, Finish
from bigbird_dna.errors import UsageError, check_whole
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import reverse_complement
from bigbird_dna.genome.variants import OFFSET_SPAN, Note, allele_windows, find_change, window_offsets
from bigbird_dna.genome.vcf import PREFIX, VcfRecord
from bigbird_dna.model.chromatin import LoadedChromatinModel
from bigbird_dna.model.shared_windows import Predictor
from bigbird_dna.scoring.alleles import InfoKey, ScoredRecord, decimal, note_info, score_records

LOWEST = 1e-6
"""Log-odds are those of a probability from here to 1 less this."""

_FIRST_BATCH = 64  # sequences
_RESERVED = re.compile(r'[\s;=,%"\\\x00-\x1f\x7f]')


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


class _AlleleWindows(NamedTuple):
    """An alternative allele before it is scored: rows of its windows, none if it stays unscored."""

    notes: tuple[Note, ...]
    ref: list[int]
    alt: list[int]


@dataclass(frozen=True)
class _TrackScorer:
    reference: Reference
    window: int
    offsets: Sequence[int]
    columns: Sequence[int] | None
    max_n: float
    finish: Finish | None

    def allele(
        self, record: VcfRecord, contig: str | None, alt: str, place: Callable[[Iterable[str]], list[int]]
    ) -> _AlleleWindows:
        change = find_change(contig, record.start, record.ref, alt, self.reference)
        if isinstance(change, Note):
            return _AlleleWindows((change,), [], [])
        windows = allele_windows(change, self.reference, self.window, self.offsets)
        if windows is None:
            return _AlleleWindows((Note.TOO_LONG,), [], [])
        edge = (Note.CONTIG_EDGE,) if windows.reaches_beyond else ()
        if windows.largest_n_fraction > self.max_n:
            return _AlleleWindows((Note.TOO_MANY_N, *edge), [], [])
        return _AlleleWindows(edge, place(_both_strands(windows.ref)), place(_both_strands(windows.alt)))

    def values(self, predicted: NDArray[np.float32]) -> NDArray[np.float32]:
        assert predicted.ndim == 3 and predicted.shape[1] == 1, f"{predicted.shape} predictions of a bin"
        return predicted[:, 0] if self.columns is None else predicted[:, 0, self.columns]

    def effect(self, allele: _AlleleWindows, values: NDArray[np.float32]) -> AlleleEffect:
        if not allele.ref:
            return AlleleEffect(allele.notes, None, None)
        ref, alt = (  # (W, T) → (T,)
            values[rows].mean(axis=0, dtype=np.float64) for rows in (allele.ref, allele.alt)
        )
        if self.finish is not None:
            ref, alt = (self.finish(one).astype(np.float64) for one in (ref, alt))
        return AlleleEffect(allele.notes, alt - ref, _log_odds(alt) - _log_odds(ref))


def _both_strands(windows: Iterable[str]) -> Iterator[str]:
    return (text for window in windows for text in (window, reverse_complement(window)))


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
) -> Iterator[ScoredRecord[AlleleEffect]]:
    """Score every alternative allele of every record, in the records' order; none is left out.

    An effect depends on the allele and the reference alone. Exchanging REF and ALT, with a reference that has
    ALT in place, gives the negative effect. A window that reaches beyond its contig is filled up with N and
    noted.

    `predict` gives (N, 1, T) probabilities of the bin in the middle of windows of `window` bp; `offsets` (see
    `window_offsets`) are bp from the centred window. Effects have values of the tracks of `columns`, None:
    all T. An allele stays unscored if any of its windows, or of the reference's, has a larger fraction of N
    than `max_n`; what is beyond the contig counts. `finish` calibrates the probabilities of an allele. Errors
    are those of `score_records`, of the records and the reference, and `ValueError` for a number out of its
    range.
    """
    if window < 1 or not offsets or not 0 <= max_n <= 1 or batch_sequences < 1:
        raise ValueError(f"window {window}, offsets {offsets} or max_n {max_n} is out of its range")
    scorer = _TrackScorer(reference, window, offsets, columns, max_n, finish)
    yield from score_records(
        records, reference, scorer, predict, first_batch=_FIRST_BATCH, batch_sequences=batch_sequences
    )


def offsets_for(count: int, window: int) -> tuple[int, ...]:
    """The offsets of `count` windows of `window` bp; `UsageError` if there can't be so many."""
    check_whole("offsets", count)
    if not 1 <= count <= OFFSET_SPAN + 1:
        raise UsageError(f"offsets {count}: must be from 1 to {OFFSET_SPAN + 1}")
    offsets = window_offsets(count)
    if offsets[-1] > (window - 1) // 2:
        raise UsageError(f"offsets {count}: the model's window of {window} bp is too small for them")
    return offsets


def _log_odds(probability: NDArray[np.float64]) -> NDArray[np.float64]:
    clipped = np.clip(probability, LOWEST, 1 - LOWEST)
    odds: NDArray[np.float64] = np.log(clipped / (1 - clipped))
    return odds


@dataclass(frozen=True)
class TrackFields:
    """Effects on the tracks `names`; with `per_track` the values of each are written beside the largest."""

    names: Sequence[str]
    per_track: bool

    @property
    def columns(self) -> Sequence[str]:
        """Of a table: with `per_track` each track has the columns `TRACK:delta` and `TRACK:logodds`."""
        more = [f"{name}:{value}" for name in self.names for value in ("delta", "logodds")]
        return ["max_delta", "max_track", *(more if self.per_track else [])]

    @property
    def keys(self) -> Sequence[InfoKey]:
        """Keys with a value for each ALT, DELTA and LOGODDS one for each ALT and track, ALT by ALT."""
        number = len(self.names)
        averaged = "mean over both strands and the windows' offsets"
        order = f"for each ALT the tracks {','.join(self._escaped)}"
        keys = [
            InfoKey("MAX", "A", "Float", f"Largest change of probability, ALT minus REF, of {number} tracks"),
            InfoKey("MAXTRACK", "A", "String", f"Track with the largest change, of {number}"),
        ]
        if self.per_track:
            change = f"Change of probability, ALT minus REF, {averaged}: {order}"
            log_odds = f"Change of the natural log-odds, ALT minus REF: {order}"
            keys += [InfoKey("DELTA", ".", "Float", change), InfoKey("LOGODDS", ".", "Float", log_odds)]
        notes = "; ".join(f"{note} {note.meaning}" for note in Note)
        keys.append(InfoKey("NOTE", ".", "String", f"For each ALT what is to be said, joined by &: {notes}"))
        return keys

    def row(self, effect: AlleleEffect) -> Iterator[str]:
        """The fields of `columns`; NA where the allele was not scored."""
        yield from self._largest(effect, self.names, "NA")
        if not self.per_track:
            return
        if effect.delta is None or effect.log_odds is None:
            yield from ["NA"] * (2 * len(self.names))
            return
        pairs = np.stack([effect.delta, effect.log_odds], axis=1)  # (T, 2)
        yield from map(decimal, pairs.ravel().tolist())

    def info(self, effects: Sequence[AlleleEffect]) -> Iterator[str]:
        """The parts of INFO, a value for each ALT, `.` where it was not scored; none where no ALT has any."""
        scored = [effect for effect in effects if effect.delta is not None]
        if scored:
            largest = [self._largest(effect, self._escaped, ".") for effect in effects]
            yield f"{PREFIX}MAX={','.join(value for value, _ in largest)}"
            yield f"{PREFIX}MAXTRACK={','.join(name for _, name in largest)}"
        if scored and self.per_track:
            for key, field in (("DELTA", "delta"), ("LOGODDS", "log_odds")):
                values = (getattr(effect, field) for effect in effects)
                missing = ["."] * len(self.names)
                texts = (missing if row is None else map(decimal, row.tolist()) for row in values)
                yield f"{PREFIX}{key}={','.join(map(','.join, texts))}"
        yield from note_info([effect.notes for effect in effects])

    @cached_property
    def _escaped(self) -> list[str]:
        return [escape(name) for name in self.names]

    @staticmethod
    def _largest(effect: AlleleEffect, names: Sequence[str], missing: str) -> tuple[str, str]:
        if effect.delta is None:
            return missing, missing
        return decimal(float(effect.delta[effect.largest])), names[effect.largest]


def escape(name: str) -> str:
    """A track's name as INFO may hold it: what the format reserves becomes `%` and two digits."""
    if name == ".":
        return "%2E"
    return _RESERVED.sub(lambda match: "".join(f"%{byte:02X}" for byte in match[0].encode()), name)


@dataclass(frozen=True)
class TrackEngine:
    """A chromatin model, and which of its tracks (`columns`) effects have values of."""

    model: LoadedChromatinModel
    columns: list[int]
    offsets: tuple[int, ...]
    per_track: bool
    calibration: Calibration | None

    @property
    def options(self) -> Mapping[str, object]:
        """Of the command line."""
        return {"--offsets": len(self.offsets)}

    @property
    def fields(self) -> TrackFields:
        """How its effects are written."""
        return TrackFields([self.model.tracks[column].name for column in self.columns], self.per_track)

    @property
    def files(self) -> Sequence[Path | None]:
        """No further files decide effects."""
        return ()

    def predictor(self, batch_size: int, device: str) -> Predictor:
        """The model's probabilities of windows, of one strand each."""
        predict = self.model.window_probabilities
        return partial(predict, both_strands=False, batch_size=batch_size, device=device)

    def effects(
        self, records: Iterable[VcfRecord], reference: Reference, predict: Predictor, max_n: float
    ) -> Iterator[ScoredRecord[AlleleEffect]]:
        """Effects of every record, in their order."""
        return variant_effects(
            records,
            reference,
            window=self.model.settings.window,
            predict=predict,
            offsets=self.offsets,
            columns=None if len(self.columns) == len(self.model.tracks) else self.columns,
            max_n=max_n,
            finish=self.calibration and self.calibration.only(self.columns),
        )
