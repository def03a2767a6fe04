"""How a variant changes what a chromatin or promoter model predicts.

There is a class per kind of effect: changes of tracks, of the start sites around a variant, of TSS positions
that are tested one window at a time, and of likelihoods (`scoring.masked_likelihood`). Each lists the inputs
that a model needs for an allele, predicts them, compares the predictions, and formats the result.
`score_alleles` uses them for a batch of alleles.

Axes: N inputs, K bins, T tracks.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.errors import ModelError, UsageError, check_whole
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import (
    OPPOSITE,
    Interval,
    Strand,
    centered_tiles,
    fraction_n,
    reverse_complement,
    tss_position,
)
from bigbird_dna.genome.variants import (
    OFFSET_SPAN,
    Change,
    Note,
    allele_windows,
    right_shift,
    window_offsets,
)
from bigbird_dna.model.batching import centered_bins
from bigbird_dna.model.chromatin import LoadedChromatinModel
from bigbird_dna.model.model import LoadedModel, calibration_of, finish_of
from bigbird_dna.model.promoter import LoadedPromoterModel

OFFSETS = 4
"""Number of window offsets over which effects on tracks and likelihoods are averaged."""

STRIDE = 20
"""Distance in bp between the tested TSS positions if none are given."""

LOWEST = 1e-6
"""Probabilities are clipped to `LOWEST` … 1 − `LOWEST` before log-odds are computed."""

NO_SITE = "NO_SITE"
"""Note of an allele without a start site to score."""

_RESERVED = re.compile(r'[\s;=,%"\\\x00-\x1f\x7f]')


class InfoKey(NamedTuple):
    """An INFO key as described in the VCF header, without the prefix."""

    name: str
    number: str
    kind: str
    text: str


class Inputs(NamedTuple):
    """What a model must read to score an allele; `texts` is None if the allele cannot be scored.

    `about` is whatever the effect needs to know besides the predictions.
    """

    notes: tuple[str, ...]
    texts: Sequence[Any] | None = None
    about: Any = None


class Effects(Protocol):
    """One kind of effect."""

    notes: Mapping[str, str]
    """Meanings of the notes of this kind, in addition to those in `Note`."""

    @property
    def columns(self) -> Sequence[str]:
        """Columns of a table, after those that identify the allele."""

    @property
    def keys(self) -> Sequence[InfoKey]:
        """INFO keys, in addition to the notes."""

    def inputs(self, change: Change, reference: Reference, max_n: float) -> Inputs:
        """Return what the model reads for an allele in normal form."""

    def predict(self, texts: Sequence[Any]) -> NDArray[np.float32]:
        """Return the predictions (N, …) of inputs; `ModelError` if they are impossible."""

    def effect(self, about: Any, values: NDArray[np.float32]) -> Any:
        """Return the effect of an allele, with its `delta`, from the predictions of its inputs."""

    def row(self, effect: Any) -> Sequence[str]:
        """Return the fields of `columns`."""

    def info(self, effect: Any) -> Sequence[str]:
        """Return the values of `keys`."""


class ScoredAllele(NamedTuple):
    """The effect of an allele, None if it was not scored, and its notes."""

    notes: tuple[str, ...]
    effect: Any = None


def score_alleles(
    changes: Sequence[Change | Note],
    reference: Reference,
    effects: Effects,
    max_n: float,
) -> list[ScoredAllele]:
    """Return the effects of alleles, given in normal form or by the reason why they have none.

    All inputs are predicted together, each once. Alleles with a larger fraction of N in a window than `max_n`
    are not scored (bases beyond the contig are N).
    """
    rows: dict[Any, int] = {}  # input → its row among the predictions
    alleles = []
    for change in changes:
        if isinstance(change, Note):
            inputs = Inputs((change,))
        else:
            inputs = effects.inputs(change, reference, max_n)
        own = [rows.setdefault(text, len(rows)) for text in inputs.texts or ()]
        alleles.append((inputs, own))

    values = effects.predict(list(rows)) if rows else np.empty(0, np.float32)
    scored = []
    for inputs, own in alleles:
        effect = None
        if inputs.texts is not None:
            effect = effects.effect(inputs.about, values[own])
        scored.append(ScoredAllele(inputs.notes, effect))
    return scored


def check_probabilities(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the values; `ModelError` if they are not probabilities."""
    if not ((values >= 0) & (values <= 1)).all():  # also for NaN
        raise ModelError(
            "the model predicts values that are not probabilities: its weights are damaged"
        )
    return values


def check_offsets(count: int) -> None:
    """Raise `UsageError` if the number of offsets is out of range."""
    check_whole("offsets", count)
    if not 1 <= count <= OFFSET_SPAN + 1:
        raise UsageError(f"offsets {count}: must be from 1 to {OFFSET_SPAN + 1}")


def refuse(model: LoadedModel, kind: str, options: Mapping[str, object]) -> None:
    """Raise `UsageError` for an option that is given, but does not apply to this kind of model."""
    for name, value in options.items():
        if value is not None:
            raise UsageError(
                f"{name} {value}: does not apply to {model.name}, which is {kind}"
            )


def decimal(value: float) -> str:
    """Format a value of an effect with six significant digits."""
    return f"{value + 0.0:.6g}"  # no -0


# Changes of the probabilities of tracks.


class TrackEffect(NamedTuple):
    """Changes of the probability and of its natural log-odds, and the reference's probability, each (T,)."""

    delta: NDArray[np.float64]
    log_odds: NDArray[np.float64]
    ref: NDArray[np.float64]

    @property
    def largest(self) -> int:
        """Index of the track with the largest absolute change; ties go to the first track."""
        return int(np.abs(self.delta).argmax())


class TrackEffects:
    """Changes of the tracks of a chromatin model, in the bin at the center of its window.

    The probability of a track for an allele is the mean over both strands and several offsets of the window,
    so that positions of token boundaries do not appear as effects. The largest change is reported;
    `per_track` adds the values of every track, `top` the probabilities of the tracks with the largest
    changes. An allele is not scored if any window of it or of the reference is not.
    """

    notes: Mapping[str, str] = {}

    def __init__(
        self,
        model: LoadedChromatinModel,
        tracks: str | None = None,
        offsets: int = OFFSETS,
        *,
        calibrated: bool = False,
        top: int = 0,
        batch_size: int = 32,
        device: str = "auto",
    ) -> None:
        """Choose tracks by name, group or pattern; `UsageError` if none matches or offsets do not fit."""
        check_offsets(offsets)
        self.model = model
        self.window = model.settings.window
        self.offsets = window_offsets(offsets)
        if self.offsets[-1] > (self.window - 1) // 2:
            raise UsageError(
                f"offsets {offsets}: too many for the model's window of {self.window} bp; use fewer"
            )
        self.outputs = model.columns(tracks)
        self.names = [model.tracks[column].name for column in self.outputs]
        self.per_track = tracks is not None
        self.top = top
        self.finish = calibration_of(model).only(self.outputs) if calibrated else None
        opposites = model.settings.opposites
        self.reverse_outputs = self.outputs
        if opposites is not None:
            self.reverse_outputs = [opposites[column] for column in self.outputs]
        self.computing: dict[str, Any] = {"batch_size": batch_size, "device": device}
        self._escaped = [escape(name) for name in self.names]

    def inputs(self, change: Change, reference: Reference, max_n: float) -> Inputs:
        """Return the windows of REF, then of ALT, by offset, each on both strands."""
        windows = allele_windows(change, reference, self.window, self.offsets)
        if windows is None:
            return Inputs((Note.TOO_LONG,))
        edge = (Note.CONTIG_EDGE,) if windows.reaches_beyond else ()
        if windows.largest_n_fraction > max_n:
            return Inputs((Note.TOO_MANY_N, *edge))
        texts = []
        for window in (*windows.ref, *windows.alt):
            texts += [window, reverse_complement(window)]
        return Inputs(edge, texts)

    def predict(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the probabilities (N, 1, T) of windows, each on its own strand."""
        return check_probabilities(
            self.model.window_probabilities(texts, both_strands=False, **self.computing)
        )

    def effect(self, _about: object, values: NDArray[np.float32]) -> TrackEffect:
        """Compare the means over offsets and strands."""
        bins = values[:, 0].reshape(2, -1, 2, values.shape[2])  # allele, offset, strand
        forward = bins[:, :, 0][..., self.outputs]
        reverse = bins[:, :, 1][..., self.reverse_outputs]
        windows = np.stack([forward, reverse], axis=2)
        count = 2 * len(self.offsets)
        windows = windows.reshape(2, count, len(self.outputs))
        ref = windows[0].mean(axis=0, dtype=np.float64)
        alt = windows[1].mean(axis=0, dtype=np.float64)
        if self.finish is not None:
            ref = self.finish(ref).astype(np.float64)
            alt = self.finish(alt).astype(np.float64)
        return TrackEffect(alt - ref, _log_odds(alt) - _log_odds(ref), ref)

    @property
    def columns(self) -> Sequence[str]:
        """Columns of a table; with `per_track`, each track adds `TRACK:delta` and `TRACK:logodds`."""
        columns = ["max_delta", "max_track"]
        if self.per_track:
            for name in self.names:
                columns += [f"{name}:delta", f"{name}:logodds"]
        if self.top:
            columns.append("top")
        return columns

    @property
    def keys(self) -> Sequence[InfoKey]:
        """INFO keys with one value per ALT; in DELTA and LOGODDS, those of several tracks are joined by &."""
        number = len(self.names)
        change = "change of probability, ALT minus REF"
        keys = [
            InfoKey("MAX", "A", "Float", f"Largest {change}, of {number} tracks"),
            InfoKey(
                "MAXTRACK", "A", "String", f"Track with the largest change, of {number}"
            ),
        ]
        if self.per_track:
            kind = "Float" if number == 1 else "String"
            order = f"joined by &, for the tracks {','.join(self._escaped)}"
            averaged = "mean over both strands and the windows' offsets"
            delta = f"Change of probability, ALT minus REF, {averaged}: {order}"
            log_odds = f"Change of the natural log-odds, ALT minus REF: {order}"
            keys.append(InfoKey("DELTA", "A", kind, delta))
            keys.append(InfoKey("LOGODDS", "A", kind, log_odds))
        if self.top:
            text = f"TRACK:REF:ALT, probabilities of the {self.top} tracks with the largest changes, joined by &"
            keys.append(InfoKey("TOP", "A", "String", text))
        return keys

    def row(self, effect: TrackEffect) -> list[str]:
        """Return the largest change and its track, then the changes of each track."""
        largest = effect.largest
        row = [decimal(effect.delta[largest]), self.names[largest]]
        if self.per_track:
            both = np.stack([effect.delta, effect.log_odds], axis=1)
            row += [decimal(value) for value in both.ravel().tolist()]
        if self.top:
            row.append(self._top(effect))
        return row

    def info(self, effect: TrackEffect) -> list[str]:
        """Return the largest change and its track, then the changes and log-odds changes of all tracks."""
        largest = effect.largest
        info = [decimal(effect.delta[largest]), self._escaped[largest]]
        if self.per_track:
            for values in (effect.delta, effect.log_odds):
                info.append("&".join(decimal(value) for value in values.tolist()))
        if self.top:
            info.append(self._top(effect))
        return info

    def _top(self, effect: TrackEffect) -> str:
        """The tracks with the largest changes; ties go to the first track."""
        order = np.argsort(-np.abs(effect.delta), kind="stable")[: self.top]
        parts = []
        for track in order.tolist():
            ref = effect.ref[track]
            name = self._escaped[track].replace("&", "%26").replace(":", "%3A")
            parts.append(f"{name}:{decimal(ref)}:{decimal(ref + effect.delta[track])}")
        return "&".join(parts)


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


# Changes of the score of TSS positions.


class TssSites:
    """TSS positions to test, by contig name of the reference."""

    def __init__(self, sites: Mapping[str, Iterable[tuple[int, Strand]]]) -> None:
        self._sorted = {contig: sorted(set(places)) for contig, places in sites.items()}

    def __len__(self) -> int:
        return sum(map(len, self._sorted.values()))

    def within(self, contig: str, start: int, end: int) -> list[tuple[int, Strand]]:
        """Return the positions from `start` to `end` (exclusive), ascending."""
        places = self._sorted.get(contig, [])
        return places[bisect_left(places, (start, "")) : bisect_left(places, (end, ""))]


class SiteEffect(NamedTuple):
    """The TSS position with the largest change; `position` is 0-based, in the reference."""

    position: int
    strand: Strand
    ref: float
    alt: float
    sums: tuple[float, float] = (0.0, 0.0)  # of the changes of all bins, on + and -
    bin: int = 0  # number of the bin with the largest change

    @property
    def delta(self) -> float:
        """Score of the alternative allele minus score of the reference."""
        return self.alt - self.ref


_AT = "at the TSS position with the largest change either way"
SITE_KEYS = (
    InfoKey("PROMOTER_REF", "A", "Float", f"Promoter score of the reference {_AT}"),
    InfoKey("PROMOTER_ALT", "A", "Float", f"Promoter score with ALT in place {_AT}"),
    InfoKey(
        "PROMOTER_DELTA",
        "A",
        "Float",
        f"Change of the promoter score, ALT minus REF, {_AT}",
    ),
    InfoKey(
        "PROMOTER_SITE", "A", "Integer", "This TSS position in the reference, 1-based"
    ),
    InfoKey("PROMOTER_STRAND", "A", "String", "Strand of this TSS, + or -"),
)
SITE_COLUMNS = ("ref_score", "alt_score", "delta", "site", "strand")


def _site_row(effect: SiteEffect) -> list[str]:
    scores = [decimal(value) for value in (effect.ref, effect.alt, effect.delta)]
    return [*scores, str(effect.position + 1), effect.strand]


def _largest(sites: Iterable[SiteEffect]) -> SiteEffect:
    """Return the site with the largest change; ties go to the leftmost, then to the forward strand."""
    return min(sites, key=lambda site: (-abs(site.delta), site.position, site.strand))


class SiteEffects:
    """Changes of the score of a promoter model at the TSS positions around a variant.

    A site is a TSS position on a strand whose window, of `upstream` bp before it and `downstream` bp from it
    on, covers a changed base. The reference's window is compared with the one around the same base once ALT
    is in place. Sites are either given, or placed every `stride` bp from the changed bases to both sides: the
    sites of a variant then do not depend on its coordinates, and the reverse variant has the opposite effect.
    A site is skipped if one of its two windows has too many N.
    """

    notes: Mapping[str, str] = {NO_SITE: "no site's window covers a changed base"}
    columns = SITE_COLUMNS
    keys = SITE_KEYS

    def __init__(
        self,
        model: LoadedPromoterModel,
        stride: int = STRIDE,
        sites: TssSites | None = None,
        *,
        calibrated: bool = False,
        prior: float | None = None,
        batch_size: int = 32,
        device: str = "auto",
    ) -> None:
        self.model = model
        self.upstream = model.settings.upstream
        self.downstream = model.settings.downstream
        self.stride = stride
        self.sites = sites
        self.finish = finish_of(model, calibrated, prior)
        self.computing: dict[str, Any] = {"batch_size": batch_size, "device": device}

    def inputs(self, change: Change, reference: Reference, max_n: float) -> Inputs:
        """Return the windows of REF and ALT of each site on both contigs, in transcription order."""
        contig, start, ref, alt = change
        size = self.upstream + self.downstream
        if max(len(ref), len(alt)) > size:
            return Inputs((Note.TOO_LONG,))
        end = start + len(ref)
        length = reference.contigs[contig]
        left = reference.fetch(Interval(contig, start - size, start))
        right = reference.fetch(Interval(contig, end, end + size))
        ref_text = left + ref + right
        alt_text = left + alt + right
        alt_length = length - len(ref) + len(alt)

        edge: tuple[str, ...] = ()
        sites: list[tuple[int, Strand]] = []
        texts: list[str] = []
        no_site = True
        for ref_at, alt_at, strand in self._sites(change, size):
            on_ref = 0 <= start + ref_at < length
            if not on_ref or not 0 <= start + alt_at < alt_length:
                continue
            no_site = False
            before, after = self._reach(strand)
            if (
                not before <= start + ref_at <= length - after
                or not before <= start + alt_at <= alt_length - after
            ):
                edge = (Note.CONTIG_EDGE,)
            first = ref_text[size + ref_at - before : size + ref_at + after]
            second = alt_text[size + alt_at - before : size + alt_at + after]
            if max(fraction_n(first), fraction_n(second)) > max_n:
                continue
            if strand == "-":
                first, second = reverse_complement(first), reverse_complement(second)
            sites.append((start + ref_at, strand))
            texts += [first, second]
        if no_site:
            return Inputs((NO_SITE,))
        if not sites:
            return Inputs((Note.TOO_MANY_N, *edge))
        return Inputs(edge, texts, sites)

    def predict(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the scores (N,) of windows."""
        values = self.model.window_probabilities(texts, **self.computing)
        return check_probabilities(
            values if self.finish is None else self.finish(values)
        )

    def effect(
        self, sites: list[tuple[int, Strand]], values: NDArray[np.float32]
    ) -> SiteEffect:
        """Return the largest change."""
        scores = values.reshape(-1, 2).tolist()
        return _largest(
            SiteEffect(position, strand, ref, alt)
            for (position, strand), (ref, alt) in zip(sites, scores, strict=True)
        )

    def row(self, effect: SiteEffect) -> list[str]:
        """Return scores, change, 1-based position and strand of the site."""
        return _site_row(effect)

    info = row

    def _reach(self, strand: Strand) -> tuple[int, int]:
        """Extent in bp of a window left of its TSS, and from the TSS to the right, on the forward strand."""
        if strand == "+":
            return self.upstream, self.downstream
        return self.downstream - 1, self.upstream + 1

    def _sites(self, change: Change, size: int) -> Iterator[tuple[int, int, Strand]]:
        """Yield the sites whose window covers a changed base.

        A site is its place in the reference and in the alternative contig, from the change's start on, and
        its strand.
        """
        ref, alt = len(change.ref), len(change.alt)
        if self.sites is not None:
            begin, end = change.start - size, change.start + ref + size
            for position, strand in self.sites.within(change.contig, begin, end):
                at = position - change.start
                left, right = self._reach(strand)
                if -right < at < ref + left:
                    yield at, moved(at, strand, ref, alt), strand
            return
        for strand in OPPOSITE:
            left, right = self._reach(strand)
            for at in range(-1, -right, -self.stride):
                yield at, at, strand
            for at in range(0, left, self.stride):
                yield ref + at, alt + at, strand
            for at in centered_tiles(max(ref, alt), 1, self.stride):
                there = moved(at, strand, max(ref, alt), min(ref, alt))
                yield (at, there, strand) if ref >= alt else (there, at, strand)


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


# Changes of all start sites in the window around a variant.


class AlleleBins(NamedTuple):
    """The bins of an allele: `begins` (K,) are their starts, from the start of the longer allele on."""

    begins: NDArray[np.int64]
    longer: int  # bp
    on_contig: NDArray[np.bool_]  # (K,)
    sites: list[tuple[int, Strand, int]]  # position in the reference, strand, bin


class StartSiteEffects:
    """Changes of the bins of a chromatin model whose tracks are the start sites on both strands.

    One window around the variant has many bins on both strands. A bin is compared with the bin at the same
    distance from the variant when ALT is in place: left of the variant, both windows begin at the same base;
    right of it, they end at the same base. Bases that do not change are therefore at the same place in both
    windows, and the longer allele is at the center of its window. An insertion or deletion extends from the
    leftmost to the rightmost position at which it can be written. If `sites` are given, only the bins that
    contain one can be the largest change.
    """

    notes: Mapping[str, str] = {
        NO_SITE: "no start site, or no bin on the contig, is scored"
    }
    columns = (*SITE_COLUMNS, "sum_plus", "sum_minus")
    keys = (
        *SITE_KEYS,
        InfoKey(
            "PROMOTER_SUM_PLUS",
            "A",
            "Float",
            "Sum of the changes of all bins around ALT on +",
        ),
        InfoKey(
            "PROMOTER_SUM_MINUS",
            "A",
            "Float",
            "Sum of the changes of all bins around ALT on -",
        ),
    )

    def __init__(
        self,
        model: LoadedChromatinModel,
        sites: TssSites | None = None,
        *,
        calibrated: bool = False,
        batch_size: int = 32,
        device: str = "auto",
    ) -> None:
        self.model = model
        self.window = model.settings.window
        self.size = model.settings.bin
        self.center = model.scored_center
        self.count = model.bins_together(self.center)
        self.tracks = model.tss_columns
        self.sites = sites
        self.finish = finish_of(model, calibrated)
        self.computing: dict[str, Any] = {"batch_size": batch_size, "device": device}

    def inputs(self, change: Change, reference: Reference, max_n: float) -> Inputs:
        """Return the windows of REF and ALT that begin, and those that end, at the same base."""
        contig, start, *alleles = extended(change, reference)
        end = start + len(alleles[0])
        length = reference.contigs[contig]
        longer, shorter = max(map(len, alleles)), min(map(len, alleles))
        if longer > self.count * self.size:
            return Inputs((Note.TOO_LONG,))
        before = reference.fetch(Interval(contig, start - self.window, start))
        behind = reference.fetch(Interval(contig, end, end + self.window))
        # If the longer allele cannot be exactly at the center, the bases around it decide, on either strand.
        room = self.window - longer
        turned = reverse_complement(before) < behind
        left = (room + room % 2 * turned) // 2
        right = room - left
        texts = []
        for allele in alleles:
            after = behind[: self.window - left - len(allele)]
            texts.append(before[self.window - left :] + allele + after)
        for allele in alleles:
            texts.append(before[right + len(allele) :] + allele + behind[:right])

        edge: tuple[str, ...] = ()
        if (
            start < self.window - right - shorter
            or end + self.window - left - shorter > length
        ):
            edge = (Note.CONTIG_EDGE,)
        if max(map(fraction_n, texts)) > max_n:
            return Inputs((Note.TOO_MANY_N, *edge))
        begins = centered_bins(self.window, self.size, self.count) - left
        on_contig = start + begins >= 0
        on_contig &= begins + self.size - longer <= length - end
        sites = [
            site
            for site in self._sites(contig, start, len(alleles[0]), longer, begins)
            if on_contig[site[2]]
        ]
        if not sites:
            return Inputs((NO_SITE, *edge))
        return Inputs(edge, texts, AlleleBins(begins, longer, on_contig, sites))

    def _sites(
        self, contig: str, start: int, ref: int, longer: int, begins: NDArray[np.int64]
    ) -> Iterator[tuple[int, Strand, int]]:
        """Yield position in the reference, strand and bin of the start sites around an allele."""
        if self.sites is None:
            half = self.size // 2
            for number, begin in enumerate(begins.tolist()):
                for strand in self.tracks:
                    center = tss_position(begin, begin + self.size, strand, half)
                    yield start + moved(center, strand, longer, ref), strand, number
            return
        last = start + ref + self.window
        for position, strand in self.sites.within(contig, start - self.window, last):
            at = moved(position - start, strand, ref, longer)
            number = (at - int(begins[0])) // self.size
            if 0 <= number < self.count:
                yield position, strand, number

    def predict(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the probabilities (N, K, T) of the bins of windows, means over both strands."""
        values = self.model.window_probabilities(
            texts, center_fraction=self.center, **self.computing
        )
        return check_probabilities(
            values if self.finish is None else self.finish(values)
        )

    def effect(self, bins: AlleleBins, values: NDArray[np.float32]) -> SiteEffect:
        """Return the largest change of a bin, and the sums of all changes."""
        ref, alt = self.compared(bins, values)
        changes = (alt - ref)[bins.on_contig].sum(0).tolist()
        sums = changes[self.tracks["+"]], changes[self.tracks["-"]]
        sites = []
        for position, strand, number in bins.sites:
            at = number, self.tracks[strand]
            sites.append(SiteEffect(position, strand, ref[at], alt[at], sums, number))
        return _largest(sites)

    def compared(
        self, bins: AlleleBins, values: NDArray[np.float32]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the probabilities (K, T) of both alleles; the bin at their center has the mean of both."""
        side = np.sign(2 * bins.begins + self.size - bins.longer)  # −1 left, 1 right
        left, right = values.astype(np.float64).reshape(2, 2, *values.shape[1:])
        weight = side[:, None]
        ref, alt = left * (1 - weight) / 2 + right * (1 + weight) / 2
        return ref, alt

    def place(self, bins: AlleleBins, effect: SiteEffect, allele: int) -> int:
        """Return where the start site of an effect is, from the start of an allele of `allele` bp on."""
        begin = int(bins.begins[effect.bin])
        if 2 * begin + self.size > bins.longer:
            begin += allele - bins.longer  # at the same distance from the allele's end
        return tss_position(begin, begin + self.size, effect.strand, self.size // 2)

    def row(self, effect: SiteEffect) -> list[str]:
        """Return scores, change, 1-based position and strand of the site, and the sums on + and -."""
        return [*_site_row(effect), *map(decimal, effect.sums)]

    info = row


def extended(change: Change, reference: Reference) -> Change:
    """Return a change in normal form with all bases over which an insertion or deletion can be moved."""
    contig, start, ref, alt = change
    end = start + len(ref)
    shift = right_shift(change, reference)
    behind = reference.fetch(Interval(contig, end, end + shift))
    return Change(contig, start, ref + behind, alt + behind)
