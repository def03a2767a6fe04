"""Effects of variants on the start sites around them, by a chromatin model whose tracks are the start sites.

One window around the variant has many bins on both strands. A bin is compared with the bin at the same
distance from the variant when the alternative allele is inserted: left of the variant, both windows begin at
the same base; right of it, they end at the same base. Bases that do not change are therefore at the same
place in both windows, and the longer allele is at the center of its window. An insertion or deletion extends
from the leftmost to the rightmost position at which it can be written.

Axes: K bins, T tracks.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import (
    Interval,
    Strand,
    fraction_n,
    reverse_complement,
    tss_position,
)
from bigbird_dna.genome.variants import Change, Note, right_shift
from bigbird_dna.model.batching import centered_bins
from bigbird_dna.model.chromatin import LoadedChromatinModel
from bigbird_dna.scoring.variant_effects import EffectKind, InfoKey, Place, decimal
from bigbird_dna.scoring.variant_sites import (
    NO_SITE,
    SiteEffects,
    SiteScores,
    TssSites,
    moved,
)
from bigbird_dna.scoring.window_source import scored_center


class StartSiteEffect(NamedTuple):
    """Effect of an alternative allele; `largest` is None if it was not scored."""

    notes: tuple[str, ...]
    largest: SiteScores | None  # the start site with the largest change
    sums: Mapping[Strand, float]  # of the changes of all bins on a strand
    bin: int = 0  # number of the bin of the largest change

    @property
    def delta(self) -> float | None:
        """The largest change; None if the allele was not scored."""
        return None if self.largest is None else self.largest.delta


class AlleleBins(NamedTuple):
    """The bins of an allele: `begins` (K,) are their starts, from the start of the longer allele on.

    `rows` are those of the windows of REF and ALT that begin, and of those that end, at the same base.
    """

    begins: NDArray[np.int64]
    longer: int  # bp
    on_contig: NDArray[np.bool_]  # (K,)
    sites: list[tuple[int, Strand, int]]  # position in the reference, strand, bin
    rows: list[int]


@dataclass(frozen=True)
class StartSiteEffects(EffectKind[AlleleBins, StartSiteEffect]):
    """Changes of the `count` (K, odd) bins of `size` bp in the center of windows of `window` bp.

    Predictions are (N, K, T) for windows on the forward strand; `columns` has the track of each strand. If
    `sites` is given, only the bins that contain one can be the largest change.
    """

    batches = (16, 256)
    notes: ClassVar[Mapping[str, str]] = {
        NO_SITE: "no start site, or no bin on the contig, is scored"
    }
    columns: ClassVar[Sequence[str]] = (*SiteEffects.columns, "sum_plus", "sum_minus")
    keys: ClassVar[Sequence[InfoKey]] = (
        *SiteEffects.keys,
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

    window: int
    size: int
    count: int
    tracks: Mapping[Strand, int]
    sites: TssSites | None = None

    @classmethod
    def of(
        cls, model: LoadedChromatinModel, sites: TssSites | None = None
    ) -> "StartSiteEffects":
        """Return the effects on the bins that a scan with the model scores."""
        count = model.bins_together(scored_center(model))
        return cls(
            model.settings.window, model.settings.bin, count, model.tss_columns, sites
        )

    def windows(
        self, change: Change, reference: Reference, max_n: float, place: Place
    ) -> tuple[tuple[str, ...], AlleleBins | None]:
        contig, start, *alleles = extended(change, reference)
        end, length = start + len(alleles[0]), reference.contigs[contig]
        longer, shorter = max(map(len, alleles)), min(map(len, alleles))
        if longer > self.count * self.size:
            return (Note.TOO_LONG,), None
        before = reference.fetch(Interval(contig, start - self.window, start))
        behind = reference.fetch(Interval(contig, end, end + self.window))
        # If the longer allele cannot be exactly at the center, the bases around it decide, on either strand.
        room, turned = self.window - longer, reverse_complement(before) < behind
        left = (room + room % 2 * turned) // 2
        right = room - left
        texts = [
            *(
                before[self.window - left :]
                + one
                + behind[: self.window - left - len(one)]
                for one in alleles
            ),
            *(before[right + len(one) :] + one + behind[:right] for one in alleles),
        ]
        beyond = (
            start < self.window - right - shorter
            or end + self.window - left - shorter > length
        )
        edge = (Note.CONTIG_EDGE,) if beyond else ()
        if max(map(fraction_n, texts)) > max_n:
            return (Note.TOO_MANY_N, *edge), None
        begins = centered_bins(self.window, self.size, self.count) - left
        on_contig = (start + begins >= 0) & (
            begins + self.size - longer <= length - end
        )
        sites = [
            (position, strand, number)
            for position, strand, number in self._sites(
                contig, start, len(alleles[0]), longer, begins
            )
            if on_contig[number]
        ]
        if not sites:
            return (NO_SITE, *edge), None
        return edge, AlleleBins(begins, longer, on_contig, sites, place(texts))

    def _sites(
        self, contig: str, start: int, ref: int, longer: int, begins: NDArray[np.int64]
    ) -> Iterator[tuple[int, Strand, int]]:
        """Yield position in the reference, strand and bin of the start sites around an allele."""
        if self.sites is None:
            for number, begin in enumerate(begins.tolist()):
                for strand in self.tracks:
                    center = tss_position(
                        begin, begin + self.size, strand, self.size // 2
                    )
                    yield start + moved(center, strand, longer, ref), strand, number
            return
        for position, strand in self.sites.within(
            contig, start - self.window, start + ref + self.window
        ):
            number = (
                moved(position - start, strand, ref, longer) - int(begins[0])
            ) // self.size
            if 0 <= number < self.count:
                yield position, strand, number

    def effect(
        self,
        notes: tuple[str, ...],
        rows: AlleleBins | None,
        values: NDArray[np.float32],
    ) -> StartSiteEffect:
        """Return the largest change; ties go to the leftmost site, then to the forward strand."""
        if rows is None:
            return StartSiteEffect(notes, None, {})
        ref, alt = self.compared(rows, values)
        sites = [
            SiteScores(
                position,
                strand,
                ref[number, self.tracks[strand]],
                alt[number, self.tracks[strand]],
            )
            for position, strand, number in rows.sites
        ]
        first = min(
            range(len(sites)),
            key=lambda at: (
                -abs(sites[at].delta),
                sites[at].position,
                sites[at].strand,
            ),
        )
        changes = (alt - ref)[rows.on_contig].sum(0).tolist()
        sums = {strand: changes[track] for strand, track in self.tracks.items()}
        return StartSiteEffect(notes, sites[first], sums, rows.sites[first][2])

    def place(self, rows: AlleleBins, effect: StartSiteEffect, allele: int) -> int:
        """Return where the start site of an effect is, from the start of an allele of `allele` bp on."""
        assert effect.largest is not None
        begin = int(rows.begins[effect.bin])
        if (
            2 * begin + self.size > rows.longer
        ):  # at the same distance from the allele's end
            begin += allele - rows.longer
        return tss_position(
            begin, begin + self.size, effect.largest.strand, self.size // 2
        )

    def compared(
        self, rows: AlleleBins, values: NDArray[np.float32]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the probabilities (K, T) of both alleles; the bin at their center has the mean of both."""
        side = np.sign(2 * rows.begins + self.size - rows.longer)[
            :, None
        ]  # −1 left, 1 right
        left, right = (
            values[rows.rows[:2]].astype(np.float64),
            values[rows.rows[2:]].astype(np.float64),
        )
        ref, alt = left * (1 - side) / 2 + right * (1 + side) / 2
        return ref, alt

    def row(self, effect: StartSiteEffect, missing: str = "NA") -> Sequence[str]:
        largest = effect.largest
        if largest is None:
            return [missing] * len(self.columns)
        scores = map(decimal, (largest.ref, largest.alt, largest.delta))
        sums = (decimal(effect.sums["+"]), decimal(effect.sums["-"]))
        return [*scores, str(largest.position + 1), largest.strand, *sums]


def extended(change: Change, reference: Reference) -> Change:
    """Return a change in normal form with all bases over which an insertion or deletion can be moved."""
    contig, start, ref, alt = change
    end = start + len(ref)
    behind = reference.fetch(
        Interval(contig, end, end + right_shift(change, reference))
    )
    return Change(contig, start, ref + behind, alt + behind)
