"""Effects of variants, computed record by record while a VCF is read, for any kind of effect and for tracks.

The probability of a track for an allele is the mean over both strands and several offsets of the window,
which prevents positions of token boundaries from appearing as effects. The reported effect is the difference
of that mean between the alternative and the reference allele, as probability and as log-odds. Memory does not
grow with the number of records.

Axes: W windows of an allele (offsets x strands), T tracks.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.calibration.maps import Finish
from bigbird_dna.disk.outputs import provenance_lines
from bigbird_dna.errors import ModelError, UsageError, check_whole
from bigbird_dna.genome.assembly import contig_finder
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import reverse_complement
from bigbird_dna.genome.variants import (
    OFFSET_SPAN,
    PREFIX,
    Allele,
    Change,
    Note,
    VcfFile,
    VcfRecord,
    allele_windows,
    find_change,
    window_offsets,
)
from bigbird_dna.model.chromatin import LoadedChromatinModel
from bigbird_dna.model.model import calibration_of
from bigbird_dna.scoring.scan import growing_batches

LOWEST = 1e-6
"""Probabilities are clipped to `LOWEST` … 1 − `LOWEST` before log-odds are computed."""

_META = "##bigbird_dna_"
_RECORDS = 512  # most records per batch, when few of them need a prediction
_RESERVED = re.compile(r'[\s;=,%"\\\x00-\x1f\x7f]')

E = TypeVar("E")
R = TypeVar("R")

Place = Callable[[Iterable[Any]], list[int]]
"""Takes sequences to predict, or other inputs of a kind, and returns the rows of their predictions."""


class ScoredRecord(NamedTuple, Generic[E]):
    """A record with one effect per alternative allele in `alts`."""

    record: VcfRecord
    effects: tuple[E, ...]


class InfoKey(NamedTuple):
    """An INFO key as described in the VCF header, without the prefix."""

    name: str
    number: str
    kind: str
    text: str


class EffectKind(Protocol[R, E]):
    """How alternative alleles are scored from the surrounding sequence, and how their effects are written.

    Every effect has `notes`, and a `delta` that is None if the allele was not scored.
    """

    batches: ClassVar[tuple[int, int]]
    """Number of sequences predicted together: approximate size of the first batch, and maximum."""
    notes: ClassVar[Mapping[str, str]] = {}
    """Meanings of the notes specific to this kind, in addition to those in `Note`."""

    @property
    def columns(self) -> Sequence[str]:
        """Columns of a TSV table, after the columns that identify the allele."""

    @property
    def keys(self) -> Sequence[InfoKey]:
        """INFO keys described in the VCF header, in addition to the notes."""

    def windows(
        self, change: Change, reference: Reference, max_n: float, place: Place
    ) -> tuple[tuple[str, ...], R | None]:
        """Return the notes of an allele, and the rows for `effect`; None: the allele is not scored."""

    def is_valid(self, predicted: NDArray[np.float32]) -> bool:
        """Return whether all predictions are possible: by default, whether they are probabilities."""
        return bool(((predicted >= 0) & (predicted <= 1)).all())  # false for NaN too

    def values(self, predicted: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the part of the predictions that `effect` uses."""
        return predicted

    def effect(self, notes: tuple[str, ...], rows: R | None, values: NDArray[np.float32]) -> E:
        """Return the effect of the allele."""

    def row(self, effect: E, missing: str = "NA") -> Iterable[str]:
        """Return the fields of `columns`; `missing` if the allele was not scored."""

    def info(self, effect: E) -> Iterable[str]:
        """Return the values of `keys` in INFO; `.` if the allele was not scored."""
        return self.row(effect, ".")


def score_records(
    records: Iterable[VcfRecord],
    reference: Reference,
    kind: EffectKind[R, E],
    predict: Callable[[Sequence[Any]], NDArray[np.float32]],
    *,
    max_n: float = 0.25,
    batch_sequences: int | None = None,
) -> Iterator[ScoredRecord[E]]:
    """Yield the effects of every alternative allele of every record, in the order of the records.

    Windows whose fraction of N exceeds `max_n` (bases beyond the contig are N) are not scored. A call of
    `predict` has at most `batch_sequences` distinct sequences. `ModelError` for invalid probabilities.
    """
    if not 0 <= max_n <= 1 or (batch_sequences is not None and batch_sequences < 1):
        raise ValueError(f"max_n {max_n} or batch_sequences {batch_sequences} is out of range")
    first, most = kind.batches
    most = batch_sequences or most
    find_contig = contig_finder(reference.contigs, reference.names)
    rows: dict[Any, int] = {}  # sequence → its row among the sequences predicted together

    def place(sequences: Iterable[Any]) -> list[int]:
        return [rows.setdefault(sequence, len(rows)) for sequence in sequences]

    def windows(change: Change) -> tuple[tuple[str, ...], R | None]:
        return kind.windows(change, reference, max_n, place)

    def allele(record: VcfRecord, alt: str) -> tuple[tuple[str, ...], R | None]:
        joint = record.joint.get(alt)
        one = joint or Allele(record.start, record.ref, alt)
        change = find_change(find_contig(record.contig), *one, reference)
        notes, rows = ((change,), None) if isinstance(change, Note) else windows(change)
        return (Note.PHASED, *notes) if joint else notes, rows

    def placed() -> Iterator[tuple[VcfRecord, list[tuple[tuple[str, ...], R | None]], int]]:
        for record in records:
            before = len(rows)
            alleles = [allele(record, alt) for alt in record.alts]
            yield record, alleles, len(rows) - before

    for batch in growing_batches(placed(), itemgetter(2), first, most, _RECORDS):
        texts = list(rows)
        calls = (texts[start : start + most] for start in range(0, len(texts), most))
        parts = [kind.values(_predicted(kind, predict, sequences)) for sequences in calls]
        values = np.concatenate(parts) if parts else np.empty((0, 0), np.float32)
        for record, alleles, _ in batch:
            yield ScoredRecord(record, tuple(kind.effect(notes, found, values) for notes, found in alleles))
        rows.clear()


def _predicted(
    kind: EffectKind[Any, Any],
    predict: Callable[[Sequence[Any]], NDArray[np.float32]],
    sequences: Sequence[Any],
) -> NDArray[np.float32]:
    values = predict(sequences)
    assert len(values) == len(sequences), f"{values.shape} predictions for {len(sequences)} sequences"
    if not kind.is_valid(values):
        raise ModelError("the model predicts values that are not probabilities: its weights are damaged")
    return values


def decimal(value: float) -> str:
    """Format a value of an effect with six significant digits."""
    return f"{value + 0.0:.6g}"  # no -0


class AlleleEffect(NamedTuple):
    """Effect of an alternative allele; both arrays are (T,) float64, or None if the allele was not scored."""

    notes: tuple[str, ...]
    delta: NDArray[np.float64] | None  # change of probability, alternative minus reference
    log_odds: NDArray[np.float64] | None  # change of the natural log-odds

    @property
    def largest(self) -> int:
        """Index of the track with the largest absolute change of probability; ties go to the first track."""
        assert self.delta is not None
        return int(np.abs(self.delta).argmax())


@dataclass(frozen=True)
class TrackEffects(EffectKind[tuple[list[int], list[int]], AlleleEffect]):
    """Effects on the tracks `names`; `per_track` adds the values of every track to the largest change.

    Predictions are (N, 1, T), for the bin in the center of windows of `window` bp; `offsets` are shifts in bp
    from the centered window. `outputs` are the model outputs of `names` (None: all). `finish` calibrates the
    probabilities of an allele. `reverse` are the outputs of `names` on the reverse complement, if they are
    others. An allele is not scored if any window of it or of the reference is not scored.
    """

    batches = (64, 512)

    window: int
    offsets: Sequence[int]
    names: Sequence[str] = ()
    per_track: bool = False
    outputs: Sequence[int] | None = None
    finish: Finish | None = None
    reverse: Sequence[int] | None = None

    def __post_init__(self) -> None:
        if self.window < 1 or not self.offsets:
            raise ValueError(f"window {self.window} or offsets {self.offsets} is out of range")

    def windows(
        self, change: Change, reference: Reference, max_n: float, place: Place
    ) -> tuple[tuple[str, ...], tuple[list[int], list[int]] | None]:
        windows = allele_windows(change, reference, self.window, self.offsets)
        if windows is None:
            return (Note.TOO_LONG,), None
        edge = (Note.CONTIG_EDGE,) if windows.reaches_beyond else ()
        if windows.largest_n_fraction > max_n:
            return (Note.TOO_MANY_N, *edge), None
        return edge, (place(_both_strands(windows.ref)), place(_both_strands(windows.alt)))

    def values(self, predicted: NDArray[np.float32]) -> NDArray[np.float32]:
        assert predicted.ndim == 3 and predicted.shape[1] == 1, f"{predicted.shape} predictions of a bin"
        if self.reverse is not None:
            outputs = range(predicted.shape[2]) if self.outputs is None else self.outputs
            return predicted[:, 0, [*outputs, *self.reverse]]
        return predicted[:, 0] if self.outputs is None else predicted[:, 0, self.outputs]

    def _of_strands(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the tracks (W, T) of windows, of which every other one is a reverse complement."""
        if self.reverse is None:
            return values
        count = len(self.reverse)
        return np.stack([values[0::2, :count], values[1::2, count:]], axis=1).reshape(len(values), count)

    def effect(
        self, notes: tuple[str, ...], rows: tuple[list[int], list[int]] | None, values: NDArray[np.float32]
    ) -> AlleleEffect:
        if rows is None:
            return AlleleEffect(notes, None, None)
        ref, alt = (
            self._of_strands(values[some]).mean(axis=0, dtype=np.float64) for some in rows
        )  # (W, T) → (T,)
        if self.finish is not None:
            ref, alt = (self.finish(one).astype(np.float64) for one in (ref, alt))
        return AlleleEffect(notes, alt - ref, _log_odds(alt) - _log_odds(ref))

    @property
    def columns(self) -> Sequence[str]:
        """Columns of a table; with `per_track`, each track adds `TRACK:delta` and `TRACK:logodds`."""
        more = [f"{name}:{value}" for name in self.names for value in ("delta", "logodds")]
        return ["max_delta", "max_track", *(more if self.per_track else [])]

    @property
    def keys(self) -> Sequence[InfoKey]:
        """INFO keys with one value per ALT; DELTA and LOGODDS have one per ALT and track, ordered by ALT."""
        number, order = len(self.names), f"for each ALT the tracks {','.join(self._escaped)}"
        keys = [
            InfoKey("MAX", "A", "Float", f"Largest change of probability, ALT minus REF, of {number} tracks"),
            InfoKey("MAXTRACK", "A", "String", f"Track with the largest change, of {number}"),
        ]
        if self.per_track:
            averaged = "mean over both strands and the windows' offsets"
            change = f"Change of probability, ALT minus REF, {averaged}: {order}"
            log_odds = f"Change of the natural log-odds, ALT minus REF: {order}"
            keys += [InfoKey("DELTA", ".", "Float", change), InfoKey("LOGODDS", ".", "Float", log_odds)]
        return keys

    def row(self, effect: AlleleEffect, missing: str = "NA") -> Iterator[str]:
        if effect.delta is None or effect.log_odds is None:
            yield from [missing] * len(self.columns)
            return
        yield from (decimal(float(effect.delta[effect.largest])), self.names[effect.largest])
        if self.per_track:
            yield from map(decimal, np.stack([effect.delta, effect.log_odds], axis=1).ravel().tolist())

    def info(self, effect: AlleleEffect) -> Iterator[str]:
        """Return the largest change and its track, then the changes and log-odds changes of all tracks."""
        if effect.delta is None or effect.log_odds is None:
            yield from (".", ".", *([",".join("." * len(self.names))] * 2 if self.per_track else []))
            return
        yield from (decimal(float(effect.delta[effect.largest])), self._escaped[effect.largest])
        if self.per_track:
            yield from (",".join(map(decimal, one.tolist())) for one in (effect.delta, effect.log_odds))

    @cached_property
    def _escaped(self) -> list[str]:
        return [escape(name) for name in self.names]


def check_offsets(count: int) -> None:
    """Raise `UsageError` if the number of offsets is out of range."""
    check_whole("offsets", count)
    if not 1 <= count <= OFFSET_SPAN + 1:
        raise UsageError(f"offsets {count}: must be from 1 to {OFFSET_SPAN + 1}")


def track_effects(
    model: LoadedChromatinModel, tracks: str | None, offsets: int, calibrated: bool
) -> TrackEffects:
    """Return the effects on the selected tracks; `UsageError` if no track matches or offsets do not fit."""
    columns, window = model.columns(tracks), model.settings.window
    check_offsets(offsets)
    places = window_offsets(offsets)
    if places[-1] > (window - 1) // 2:
        raise UsageError(f"offsets {offsets}: too many for the model's window of {window} bp; use fewer")
    names = [model.tracks[column].name for column in columns]
    chosen = None if len(columns) == len(model.tracks) else columns
    finish = calibration_of(model).only(columns) if calibrated else None
    opposites = model.settings.opposites
    reverse = None if opposites is None else [opposites[column] for column in columns]
    return TrackEffects(window, places, names, tracks is not None, chosen, finish, reverse)


def _both_strands(windows: Iterable[str]) -> Iterator[str]:
    return (text for window in windows for text in (window, reverse_complement(window)))


def _log_odds(probability: NDArray[np.float64]) -> NDArray[np.float64]:
    clipped = np.clip(probability, LOWEST, 1 - LOWEST)
    odds: NDArray[np.float64] = np.log(clipped / (1 - clipped))
    return odds


def escape(name: str) -> str:
    """Escape a track name for INFO: each byte of a reserved character becomes `%` and two hex digits."""
    if name == ".":
        return "%2E"
    return _RESERVED.sub(lambda match: "".join(f"%{byte:02X}" for byte in match[0].encode()), name)


def _vcf_header(
    kind: EffectKind[Any, Any], origin: Mapping[str, str], vcf: VcfFile, contigs: Sequence[str]
) -> Iterator[str]:
    """Yield the input's header lines, missing `##contig` lines, and the header lines of this result."""
    own = (_META, f"##INFO=<ID={PREFIX}")
    yield from (line for line in vcf.meta if not line.startswith(own))
    yield from contigs
    version, model, command = origin.values()
    yield from (f"{_META}version={version}", f"{_META}model={model}", f"{_META}command={command}")
    meanings = [(str(note), note.meaning) for note in Note] + [*kind.notes.items()]
    notes = "; ".join(map(" ".join, meanings))
    note = InfoKey("NOTE", ".", "String", f"Notes for each ALT, joined by &: {notes}")
    for key, count, value, text in (*kind.keys, note):
        yield (
            f'##INFO=<ID={PREFIX}{key},Number={count},Type={value},Description="{text}",'
            f'Source="bigbird-dna",Version="{version}">'
        )
    yield vcf.column_line


def _vcf_lines(scored: ScoredRecord[Any], kind: EffectKind[Any, Any]) -> Sequence[str]:
    """Return the input line with `BBD_…` keys in INFO; FILTER and all other columns are unchanged.

    Keys have one value per ALT, `.` if it was not scored, and are omitted if no ALT was scored.
    """
    record, effects = scored
    *columns, old = record.columns
    info = [] if old == "." else [part for part in old.split(";") if not part.startswith(PREFIX)]
    if any(effect.delta is not None for effect in effects):
        values = zip(*map(kind.info, effects), strict=True)
        info += [
            f"{PREFIX}{key.name}={','.join(texts)}" for key, texts in zip(kind.keys, values, strict=True)
        ]
    if any(effect.notes for effect in effects):
        info.append(f"{PREFIX}NOTE={','.join('&'.join(effect.notes) or '.' for effect in effects)}")
    line = [*columns, ";".join(info)]
    return ("\t".join([*line, record.rest] if record.rest else line),)


ALLELE = ("contig", "position", "ref", "alt", "id", "note")  # first columns of a table


def _tsv_header(kind: EffectKind[Any, Any], origin: Mapping[str, str], *_: object) -> Iterator[str]:
    yield from (*provenance_lines(origin), "#" + "\t".join([*ALLELE, *kind.columns]))


def _tsv_lines(scored: ScoredRecord[Any], kind: EffectKind[Any, Any]) -> Sequence[str]:
    """Return one row per ALT; `position` is 1-based as in VCF, and the note is `.` if there is none."""
    contig, position, name, ref = scored.record.columns[:4]
    return [
        "\t".join([contig, position, ref, alt, name, "&".join(effect.notes) or ".", *kind.row(effect)])
        for alt, effect in zip(scored.record.alts, scored.effects, strict=True)
    ]


Layout = tuple[Callable[..., Iterator[str]], Callable[[ScoredRecord[Any], Any], Sequence[str]]]

LAYOUTS: Mapping[str, Layout] = {"vcf": (_vcf_header, _vcf_lines), "tsv": (_tsv_header, _tsv_lines)}
"""Format → functions that yield the lines, without line ends, of the header and of a record."""
