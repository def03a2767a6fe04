"""How a variant changes what a chromatin model, or a model of start sites, predicts.

There is a class per kind of effect: changes of tracks, of the start sites around a variant, and of
likelihoods (`scoring.masked_likelihood`). Each lists the inputs that a model needs for an allele, predicts
them, and makes the cells of a table, and of INFO, from the predictions. `scoring.variants` uses them for
batches of alleles.

Axes: N inputs, K bins, T tracks.
"""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.errors import ModelError
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import (
    STRANDS,
    Interval,
    Strand,
    fraction_n,
    reverse_complement,
)
from bigbird_dna.genome.variants import (
    Change,
    Note,
    allele_windows,
    right_shift,
    window_offsets,
)
from bigbird_dna.model.chromatin import LoadedChromatinModel
from bigbird_dna.model.model import calibration_of
from bigbird_dna.model.start_sites import LoadedStartSiteModel

OFFSETS = 4
"""Number of window offsets over which effects on tracks and likelihoods are averaged."""

LOWEST = 1e-6
"""Probabilities are clipped to `LOWEST` … 1 − `LOWEST` before log-odds are computed."""

_RESERVED = re.compile(r'[\s;=,%"\\\x00-\x1f\x7f]')

InfoKey = tuple[str, str, str]
"""Name without prefix, type and description of an INFO key, which has one value per ALT."""

Inputs = tuple[tuple[str, ...], Sequence[Any], Any]
"""What a model must read to score an allele: the allele's notes, the inputs, of which there are none if the allele
cannot be scored, and whatever the effect needs to know besides the predictions."""


def decimal(value: Any) -> str:
    """Format a value of an effect: a float with six significant digits, without a sign of zero."""
    return f"{value + 0.0:.6g}" if isinstance(value, float) else str(value)


def check_probabilities(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the values; `ModelError` if they are not probabilities."""
    if not ((values >= 0) & (values <= 1)).all():  # also for NaN
        raise ModelError(
            "the model predicts values that are not probabilities: its weights are damaged"
        )
    return values


class TrackEffects:
    """Changes of the tracks of a chromatin model, in the bin at the center of its window.

    The probability of a track for an allele is the mean over both strands and several offsets of the window,
    so that positions of token boundaries do not appear as effects. The largest change is reported, and the
    values of each track that was chosen by name. An allele is not scored if any window of it or of the
    reference is not.
    """

    def __init__(
        self,
        model: LoadedChromatinModel,
        tracks: str | None = None,
        offsets: int = OFFSETS,
        calibrated: bool = False,
        **computing: Any,
    ) -> None:
        """Choose tracks by name, group or pattern; `UsageError` if none matches."""
        self.model = model
        self.computing = computing
        self.offsets = window_offsets(offsets)
        self.outputs = model.columns(tracks)
        self.names = [model.tracks[column].name for column in self.outputs]
        self.per_track = tracks is not None
        self.finish = calibration_of(model).only(self.outputs) if calibrated else None
        self.reverse_outputs = self.outputs
        if (opposites := model.settings.opposites) is not None:
            self.reverse_outputs = [opposites[column] for column in self.outputs]

        # With several tracks, the values of each are joined by & in INFO.
        change = "change of probability, ALT minus REF"
        count = len(self.names)
        self.columns = ["max_delta", "max_track"]
        self.info_keys: list[InfoKey] = [
            ("MAX", "Float", f"Largest {change}, of {count} tracks"),
            ("MAXTRACK", "String", f"Track with the largest change, of {count}"),
        ]
        if self.per_track:
            for name in self.names:
                self.columns += [f"{name}:delta", f"{name}:logodds"]

            kind = "Float" if count == 1 else "String"
            order = f"joined by &, for the tracks {','.join(map(escape, self.names))}"
            averaged = "mean over both strands and the windows' offsets"
            delta = f"Change of probability, ALT minus REF, {averaged}: {order}"
            log_odds = f"Change of the natural log-odds, ALT minus REF: {order}"
            self.info_keys += [("DELTA", kind, delta), ("LOGODDS", kind, log_odds)]

    def inputs(self, change: Change, reference: Reference, max_n: float) -> Inputs:
        """Return the windows of REF, then of ALT, by offset, each on both strands."""
        size = self.model.settings.window
        windows = allele_windows(change, reference, size, self.offsets)
        if windows is None:
            return (Note.TOO_LONG,), (), None

        edge = (Note.CONTIG_EDGE,) if windows.reaches_beyond else ()
        if windows.largest_n_fraction > max_n:
            return (Note.TOO_MANY_N, *edge), (), None

        texts = []
        for window in (*windows.ref, *windows.alt):
            texts += [window, reverse_complement(window)]

        return edge, texts, None

    def predict(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the probabilities (N, 1, T) of windows, each on its own strand."""
        return check_probabilities(
            self.model.window_probabilities(texts, both_strands=False, **self.computing)
        )

    def row(self, _about: object, values: NDArray[np.float32]) -> list[Any]:
        """Return the cells of `columns`: changes of the means over offsets and strands.

        Of tracks with equal changes, the first is that with the largest.
        """
        bins = values[:, 0].reshape(2, -1, 2, values.shape[2])  # allele, offset, strand
        forward = bins[:, :, 0][..., self.outputs]
        reverse = bins[:, :, 1][..., self.reverse_outputs]
        windows = np.stack([forward, reverse], axis=2)
        windows = windows.reshape(2, -1, len(self.outputs))
        # A calibration is of single alleles.
        means = [window.mean(axis=0, dtype=np.float64) for window in windows]
        if self.finish is not None:
            means = [self.finish(mean).astype(np.float64) for mean in means]

        delta = means[1] - means[0]
        largest = int(np.abs(delta).argmax())
        row = [float(delta[largest]), self.names[largest]]
        if self.per_track:
            clipped = np.clip(means, LOWEST, 1 - LOWEST)
            ref, alt = np.log(clipped / (1 - clipped))
            row += np.stack([delta, alt - ref], axis=1).ravel().tolist()

        return row

    def info(self, row: Sequence[Any]) -> list[str]:
        """Return the values of `info_keys` for the cells of a row."""
        info = [decimal(row[0]), escape(row[1])]
        if self.per_track:
            info.append("&".join(map(decimal, row[2::2])))
            info.append("&".join(map(decimal, row[3::2])))
        return info


def escape(name: str) -> str:
    """Escape a track name for INFO: each byte of a reserved character becomes `%` and two hex digits."""
    if name == ".":
        return "%2E"
    return _RESERVED.sub(
        lambda match: "".join(f"%{byte:02X}" for byte in match[0].encode()), name
    )


class SiteEffect(NamedTuple):
    """The start site with the largest change; `position` is 0-based, in the reference."""

    position: int
    strand: Strand
    ref: float
    alt: float
    place: int  # of its base, from the start of the longer allele on


class AlleleBases(NamedTuple):
    """The bases around an allele (K,) whose start sites are compared."""

    places: NDArray[np.int64]  # from the start of the longer allele on
    longer: int  # bp
    on_contig: NDArray[np.bool_]
    positions: NDArray[
        np.int64
    ]  # (2, K), in the reference, of a start site on either strand


_AT = "at the TSS position with the largest change either way"


class StartSiteEffects:
    """Changes of the start sites that a model predicts around a variant, on both strands.

    A base is compared with the base at the same distance from the variant when ALT is in place: left of the
    variant, both windows begin at the same base; right of it, they end at the same base. Bases that do not change are therefore at the same place in both
    windows, and the longer allele is at the center of its window. An insertion or deletion extends from the
    leftmost to the rightmost position at which it can be written.
    """

    offsets = None
    columns = (
        "ref_score",
        "alt_score",
        "delta",
        "site",
        "strand",
        "sum_plus",
        "sum_minus",
    )
    info_keys: tuple[InfoKey, ...] = (
        ("PROMOTER_REF", "Float", f"Promoter score of the reference {_AT}"),
        ("PROMOTER_ALT", "Float", f"Promoter score with ALT in place {_AT}"),
        (
            "PROMOTER_DELTA",
            "Float",
            f"Change of the promoter score, ALT minus REF, {_AT}",
        ),
        ("PROMOTER_SITE", "Integer", "This TSS position in the reference, 1-based"),
        ("PROMOTER_STRAND", "String", "Strand of this TSS, + or -"),
        (
            "PROMOTER_SUM_PLUS",
            "Float",
            "Sum of the changes of all bases around ALT on +",
        ),
        (
            "PROMOTER_SUM_MINUS",
            "Float",
            "Sum of the changes of all bases around ALT on -",
        ),
    )

    def __init__(self, model: LoadedStartSiteModel, **computing: Any) -> None:
        self.model = model
        self.computing = computing
        margin = model.settings.margin
        self.scored = slice(margin, model.settings.window - margin)

    def inputs(self, change: Change, reference: Reference, max_n: float) -> Inputs:
        """Return the windows of REF and ALT that begin, and those that end, at the same base."""
        contig, start, *alleles = extended(change, reference)
        end = start + len(alleles[0])
        length = reference.contigs[contig]
        longer, shorter = max(map(len, alleles)), min(map(len, alleles))
        window = self.model.settings.window
        if longer > len(range(window)[self.scored]):
            return (Note.TOO_LONG,), (), None

        before = reference.fetch(Interval(contig, start - window, start))
        behind = reference.fetch(Interval(contig, end, end + window))
        # If the longer allele cannot be exactly at the center, the bases around it decide, on either strand.
        room = window - longer
        is_reverse = reverse_complement(before) < behind
        left = (room + room % 2 * is_reverse) // 2
        right = room - left
        texts = []
        for allele in alleles:
            after = behind[: window - left - len(allele)]
            texts.append(before[window - left :] + allele + after)

        for allele in alleles:
            texts.append(before[right + len(allele) :] + allele + behind[:right])

        edge: tuple[str, ...] = ()
        if start + shorter < window - right or end + window - left - shorter > length:
            edge = (Note.CONTIG_EDGE,)

        # As in a scan, what is beyond the ends of the contig is not read.
        if max(fraction_n(text.strip("N") or text) for text in texts) > max_n:
            return (Note.TOO_MANY_N, *edge), (), None

        places = np.arange(window)[self.scored] - left
        on_contig = (start + places >= 0) & (places + 1 - longer <= length - end)
        if not on_contig.any():
            return (Note.NO_SITE, *edge), (), None

        positions = np.array(
            [
                [
                    start + moved(place, strand, longer, len(alleles[0]))
                    for place in places.tolist()
                ]
                for strand in STRANDS
            ]
        )
        return edge, texts, AlleleBases(places, longer, on_contig, positions)

    def predict(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the probabilities (N, 2, K) at the bases of windows, means over both strands."""
        values = self.model.window_probabilities(texts, **self.computing)
        return check_probabilities(values[..., self.scored])

    def row(self, bases: AlleleBases, values: NDArray[np.float32]) -> list[Any]:
        """Return the cells of `columns`; the position of the site is 1-based."""
        position, strand, site_ref, site_alt, _ = self.largest(bases, values)
        ref, alt = self.compared(bases, values)
        sums = (alt - ref)[:, bases.on_contig].sum(1).tolist()
        return [site_ref, site_alt, site_alt - site_ref, position + 1, strand, *sums]

    def info(self, row: Sequence[Any]) -> list[str]:
        """Return the values of `info_keys` for the cells of a row."""
        return [decimal(cell) for cell in row]

    def largest(self, bases: AlleleBases, values: NDArray[np.float32]) -> SiteEffect:
        """Return the site with the largest change; ties go to the leftmost, then to the forward strand."""
        ref, alt = self.compared(bases, values)
        change = np.where(bases.on_contig, np.abs(alt - ref), -1)
        rows, columns = np.nonzero(change == change.max())
        first = np.lexsort((rows, bases.positions[rows, columns]))[0]
        at = int(rows[first]), int(columns[first])
        return SiteEffect(
            int(bases.positions[at]),
            STRANDS[at[0]],
            float(ref[at]),
            float(alt[at]),
            int(bases.places[at[1]]),
        )

    def compared(
        self, bases: AlleleBases, values: NDArray[np.float32]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the probabilities (2, K) of both alleles; the base at their center has the mean of both."""
        side = np.sign(2 * bases.places + 1 - bases.longer)  # −1 left, 1 right
        left, right = values.astype(np.float64).reshape(2, 2, *values.shape[1:])
        ref, alt = left * (1 - side) / 2 + right * (1 + side) / 2
        return ref, alt

    def place(self, bases: AlleleBases, effect: SiteEffect, allele: int) -> int:
        """Return where the start site of an effect is, from the start of an allele of `allele` bp on."""
        if 2 * effect.place + 1 > bases.longer:
            # At the same distance from the allele's end.
            return effect.place + allele - bases.longer
        return effect.place


def extended(change: Change, reference: Reference) -> Change:
    """Return a change in normal form with all bases over which an insertion or deletion can be moved."""
    contig, start, ref, alt = change
    end = start + len(ref)
    shift = right_shift(change, reference)
    behind = reference.fetch(Interval(contig, end, end + shift))
    return Change(contig, start, ref + behind, alt + behind)


def moved(place: int, strand: Strand, before: int, after: int) -> int:
    """Return the new position of a base when the `before` bases from 0 on are replaced by `after` bases.

    A replaced base keeps its distance, in transcription order, from the first replaced base. If the
    replacement is too short, the result is its last base, or the next base downstream if it is empty.
    """
    if place < 0:
        return place

    if place >= before:
        return place + after - before

    if strand == "+":
        return min(place, max(after - 1, 0))

    return max(place + after - before, 0 if after else -1)
