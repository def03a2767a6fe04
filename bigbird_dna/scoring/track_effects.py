"""Effects of variants on tracks: changes of their probabilities.

The probability of a track for an allele is the mean over both strands and several offsets of the window,
which prevents positions of token boundaries from appearing as effects. The reported effect is the difference
of that mean between the alternative and the reference allele, as probability and as log-odds.

Axes: W windows of an allele (offsets x strands), T tracks.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.calibration.maps import Finish
from bigbird_dna.errors import UsageError
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import reverse_complement
from bigbird_dna.genome.variants import Change, Note, allele_windows, window_offsets
from bigbird_dna.model.chromatin import LoadedChromatinModel
from bigbird_dna.model.model import calibration_of
from bigbird_dna.scoring.variant_effects import (
    EffectKind,
    InfoKey,
    Place,
    check_offsets,
    decimal,
)

OFFSETS = 4
"""Number of window offsets over which effects on tracks are averaged."""

LOWEST = 1e-6
"""Probabilities are clipped to `LOWEST` … 1 − `LOWEST` before log-odds are computed."""

_RESERVED = re.compile(r'[\s;=,%"\\\x00-\x1f\x7f]')


class AlleleEffect(NamedTuple):
    """Effect of an alternative allele; arrays are (T,) float64, or None if the allele was not scored."""

    notes: tuple[str, ...]
    delta: (
        NDArray[np.float64] | None
    )  # change of probability, alternative minus reference
    log_odds: NDArray[np.float64] | None  # change of the natural log-odds
    ref: NDArray[np.float64] | None = None  # probability for the reference allele

    @property
    def largest(self) -> int:
        """Index of the track with the largest absolute change of probability; ties go to the first track."""
        assert self.delta is not None
        return int(np.abs(self.delta).argmax())


@dataclass(frozen=True)
class TrackEffects(EffectKind[tuple[list[int], list[int]], AlleleEffect]):
    """Effects on the tracks `names`: the largest change.

    `per_track` adds the values of every track, `top` the probabilities of the first tracks by change.

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
    top: int = 0
    reverse: Sequence[int] | None = None

    def __post_init__(self) -> None:
        if self.window < 1 or not self.offsets:
            raise ValueError(
                f"window {self.window} or offsets {self.offsets} is out of range"
            )

    def windows(
        self, change: Change, reference: Reference, max_n: float, place: Place
    ) -> tuple[tuple[str, ...], tuple[list[int], list[int]] | None]:
        windows = allele_windows(change, reference, self.window, self.offsets)
        if windows is None:
            return (Note.TOO_LONG,), None
        edge = (Note.CONTIG_EDGE,) if windows.reaches_beyond else ()
        if windows.largest_n_fraction > max_n:
            return (Note.TOO_MANY_N, *edge), None
        return edge, (
            place(_both_strands(windows.ref)),
            place(_both_strands(windows.alt)),
        )

    def values(self, predicted: NDArray[np.float32]) -> NDArray[np.float32]:
        assert predicted.ndim == 3 and predicted.shape[1] == 1, (
            f"{predicted.shape} predictions of a bin"
        )
        if self.reverse is not None:
            outputs = (
                range(predicted.shape[2]) if self.outputs is None else self.outputs
            )
            return predicted[:, 0, [*outputs, *self.reverse]]
        return (
            predicted[:, 0] if self.outputs is None else predicted[:, 0, self.outputs]
        )

    def _of_strands(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the tracks (W, T) of windows, of which every other one is a reverse complement."""
        if self.reverse is None:
            return values
        count = len(self.reverse)
        return np.stack([values[0::2, :count], values[1::2, count:]], axis=1).reshape(
            len(values), count
        )

    def effect(
        self,
        notes: tuple[str, ...],
        rows: tuple[list[int], list[int]] | None,
        values: NDArray[np.float32],
    ) -> AlleleEffect:
        if rows is None:
            return AlleleEffect(notes, None, None)
        strands = (self._of_strands(values[some]) for some in rows)
        ref, alt = (
            one.mean(axis=0, dtype=np.float64) for one in strands
        )  # (W, T) → (T,)
        if self.finish is not None:
            ref, alt = (self.finish(one).astype(np.float64) for one in (ref, alt))
        return AlleleEffect(notes, alt - ref, _log_odds(alt) - _log_odds(ref), ref)

    @property
    def columns(self) -> Sequence[str]:
        """Columns of a table; with `per_track`, each track adds `TRACK:delta` and `TRACK:logodds`."""
        more = [
            f"{name}:{value}" for name in self.names for value in ("delta", "logodds")
        ]
        return [
            "max_delta",
            "max_track",
            *(more if self.per_track else []),
            *(["top"] if self.top else []),
        ]

    @property
    def keys(self) -> Sequence[InfoKey]:
        """INFO keys with one value per ALT; in DELTA and LOGODDS, those of several tracks are joined by &."""
        number = len(self.names)
        order = f"joined by &, for the tracks {','.join(self._escaped)}"
        kind = "Float" if number == 1 else "String"
        keys = [
            InfoKey(
                "MAX",
                "A",
                "Float",
                f"Largest change of probability, ALT minus REF, of {number} tracks",
            ),
            InfoKey(
                "MAXTRACK", "A", "String", f"Track with the largest change, of {number}"
            ),
        ]
        if self.per_track:
            averaged = "mean over both strands and the windows' offsets"
            change = f"Change of probability, ALT minus REF, {averaged}: {order}"
            log_odds = f"Change of the natural log-odds, ALT minus REF: {order}"
            keys += [
                InfoKey("DELTA", "A", kind, change),
                InfoKey("LOGODDS", "A", kind, log_odds),
            ]
        if self.top:
            text = f"TRACK:REF:ALT, probabilities of the {self.top} tracks with the largest changes, joined by &"
            keys.append(InfoKey("TOP", "A", "String", text))
        return keys

    def row(self, effect: AlleleEffect, missing: str = "NA") -> Iterator[str]:
        if effect.delta is None or effect.log_odds is None:
            yield from [missing] * len(self.columns)
            return
        yield from (
            decimal(float(effect.delta[effect.largest])),
            self.names[effect.largest],
        )
        if self.per_track:
            yield from map(
                decimal,
                np.stack([effect.delta, effect.log_odds], axis=1).ravel().tolist(),
            )
        if self.top:
            yield self._top(effect)

    def info(self, effect: AlleleEffect) -> Iterator[str]:
        """Return the largest change and its track, then the changes and log-odds changes of all tracks."""
        if effect.delta is None or effect.log_odds is None:
            yield from "." * len(self.keys)
            return
        yield from (
            decimal(float(effect.delta[effect.largest])),
            self._escaped[effect.largest],
        )
        if self.per_track:
            yield from (
                "&".join(map(decimal, one.tolist()))
                for one in (effect.delta, effect.log_odds)
            )
        if self.top:
            yield self._top(effect)

    def _top(self, effect: AlleleEffect) -> str:
        """The tracks with the largest changes; ties go to the first track."""
        assert effect.delta is not None and effect.ref is not None
        chosen = np.argsort(-np.abs(effect.delta), kind="stable")[: self.top].tolist()
        both = zip(
            effect.ref.tolist(), (effect.ref + effect.delta).tolist(), strict=True
        )
        values = [f"{decimal(ref)}:{decimal(alt)}" for ref, alt in both]
        names = (
            self._escaped[track].replace("&", "%26").replace(":", "%3A")
            for track in chosen
        )
        return "&".join(
            f"{name}:{values[track]}" for name, track in zip(names, chosen, strict=True)
        )

    @cached_property
    def _escaped(self) -> list[str]:
        return [escape(name) for name in self.names]


def track_effects(
    model: LoadedChromatinModel,
    tracks: str | None,
    offsets: int,
    calibrated: bool,
    top: int = 0,
) -> TrackEffects:
    """Return the effects on the selected tracks; `UsageError` if no track matches or offsets do not fit."""
    columns, window = model.columns(tracks), model.settings.window
    check_offsets(offsets)
    places = window_offsets(offsets)
    if places[-1] > (window - 1) // 2:
        raise UsageError(
            f"offsets {offsets}: too many for the model's window of {window} bp; use fewer"
        )
    names = [model.tracks[column].name for column in columns]
    chosen = None if len(columns) == len(model.tracks) else columns
    finish = calibration_of(model).only(columns) if calibrated else None
    opposites = model.settings.opposites
    reverse = None if opposites is None else [opposites[column] for column in columns]
    return TrackEffects(
        window, places, names, tracks is not None, chosen, finish, top, reverse
    )


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
    return _RESERVED.sub(
        lambda match: "".join(f"%{byte:02X}" for byte in match[0].encode()), name
    )
