"""Where the negatives of promoters lie: each set's windows on a genome, by promoter."""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import get_args

import numpy as np
import numpy.typing as npt
import pandas as pd

from bigbird_dna.config import PromoterWindowsConfig
from bigbird_dna.data.coding import CodingRegions
from bigbird_dna.data.negatives import (
    CANDIDATES_PER_NEGATIVE,
    FreeStarts,
    NegativeRegions,
    draw_candidates,
    find_free_starts,
    find_upstream,
    gc_fraction,
    match_gc,
    room,
)
from bigbird_dna.errors import ConfigError
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import Interval, Locus, fraction_n, inside, window_around
from bigbird_dna.genome.splits import Split, Splits

MAX_N = 0.1
"""Share of a window's letters that may be N."""


@dataclass(frozen=True)
class PromoterGenome:
    """A genome with its promoters, for whose windows negatives are found.

    Parameters
    ----------
    loci
        All promoters, those without a window too: no genomic or intergenic negative is near one.
    windows, owner_splits
        The window of each promoter that has one, and the split that all of it belongs to.
    coding
        The coding bases; None: nobody knows them, and there are no intergenic negatives.
    """

    reference: Reference
    loci: Sequence[Locus]
    windows: Sequence[Interval]
    owner_splits: Sequence[Split]
    splits: Splits
    coding: CodingRegions | None = None

    def find(
        self,
        negative_set: str,
        owners: Sequence[int],
        config: PromoterWindowsConfig,
        seed: tuple[int, int],
        taken: Collection[Interval | None] = (),
    ) -> list[Interval | None]:
        """For each owner, an index of `windows`, the window of a negative; None where there is none.

        Sets that are made of a promoter's own sequence have its window. Genomic and intergenic windows are
        none of `taken`; of intergenic ones neither are the same bases read on the other strand.

        Raises
        ------
        ConfigError
            The set is `intergenic`, and nobody knows the coding bases.
        """
        if negative_set == "genomic":
            used = {*taken}
            return self._elsewhere(owners, config, seed, lambda window: window in used)
        if negative_set == "intergenic":
            coding = check_coding(self.coding)
            places = {(window.contig, window.start) for window in taken if window is not None}
            return self._elsewhere(
                owners, config, seed, lambda window: (window.contig, window.start) in places, coding
            )
        if negative_set == "upstream":
            return self._upstream(owners, config.sides)
        return [self.windows[pair] for pair in owners]

    def _elsewhere(
        self,
        owners: Sequence[int],
        config: PromoterWindowsConfig,
        seed: tuple[int, int],
        is_taken: Callable[[Interval], bool],
        coding: CodingRegions | None = None,
    ) -> list[Interval | None]:
        """A window of like GC elsewhere in the owner's split; none is used twice, and none that is taken.

        With `coding` it is intergenic.
        """
        found: list[Interval | None] = [None] * len(owners)
        reference = self.reference
        for number, split in enumerate(get_args(Split)):
            rng = np.random.default_rng((*seed, number))
            members = [place for place, pair in enumerate(owners) if self.owner_splits[pair] == split]
            # Read here and once more below: all are measured first, and no genome is held to save 20 s.
            shares = {
                stretch: self._room(stretch, config, coding) for stretch in self.splits.intervals(split)
            }
            together = sum(shares.values()) or 1  # a split without promoters may be all N
            offers = [
                self._offer(
                    stretch,
                    config,
                    coding,
                    count=math.ceil(len(members) * CANDIDATES_PER_NEGATIVE * share / together),
                    rng=rng,
                )
                for stretch, share in shares.items()
            ]
            windows = [window for offer in offers for window in offer.windows]
            gc = {
                pair: gc_fraction(reference.fetch(self.windows[pair]))
                for pair in {owners[place] for place in members}
            }
            wanted = np.array([gc[owners[place]] for place in members])
            offered = np.concatenate([offer.gc for offer in offers]) if offers else np.empty(0)
            used = np.array([is_taken(window) for window in windows], bool)
            for place, choice in zip(members, _match(wanted, offered, used, rng), strict=True):
                if choice >= 0:
                    found[place] = windows[choice]
        return found

    def _room(self, stretch: Interval, config: PromoterWindowsConfig, coding: CodingRegions | None) -> int:
        """How many of the candidates are drawn in a stretch, as a share of those of all stretches."""
        sequence = self.reference.fetch(stretch)
        free = self._free(stretch, sequence, config, coding)
        return room(sequence) if free is None else len(free)

    def _free(
        self, stretch: Interval, sequence: str, config: PromoterWindowsConfig, coding: CodingRegions | None
    ) -> FreeStarts | None:
        """Where intergenic windows can start in a stretch; None: they needn't be intergenic."""
        if coding is None:
            return None
        return find_free_starts(
            sequence,
            coding.within(stretch),
            self._positions(stretch) - stretch.start,
            size=config.length,
            distance=config.min_tss_distance,
        )

    def _positions(self, stretch: Interval) -> npt.NDArray[np.int64]:
        """TSS positions on the contig of a stretch."""
        positions = [locus.position for locus in self.loci if locus.contig == stretch.contig]
        return np.array(positions, np.int64)

    def _offer(
        self,
        stretch: Interval,
        config: PromoterWindowsConfig,
        coding: CodingRegions | None,
        *,
        count: int,
        rng: np.random.Generator,
    ) -> NegativeRegions:
        """Windows of a stretch that may serve as negatives."""
        upstream, downstream = config.sides
        sequence = self.reference.fetch(stretch)
        return draw_candidates(
            stretch.contig,
            sequence,
            self._positions(stretch),
            start=stretch.start,
            upstream=upstream,
            downstream=downstream,
            distance=config.min_tss_distance,
            count=count,
            rng=rng,
            free=self._free(stretch, sequence, config, coding),
        )

    def _upstream(self, owners: Sequence[int], sides: tuple[int, int]) -> list[Interval | None]:
        """A window upstream of the owner in its split; none is used twice."""
        reference, splits = self.reference, self.splits

        def usable(owner: Interval, negative: Interval) -> bool:
            whole = inside(negative, reference.contigs) and splits.over(negative) == splits.over(owner)
            return whole and fraction_n(reference.fetch(negative)) <= MAX_N

        around = [window_around(locus, *sides) for locus in self.loci]
        # In rounds: nobody's second negative takes the place of a neighbour's first.
        turns = pd.DataFrame({"pair": owners}).groupby("pair").cumcount()
        order = np.argsort(turns, kind="stable")
        chosen = find_upstream([self.windows[owners[place]] for place in order], around, usable)
        found: list[Interval | None] = [None] * len(owners)
        for place, negative in zip(order.tolist(), chosen, strict=True):
            found[place] = negative
        return found


def check_coding(coding: CodingRegions | None) -> CodingRegions:
    """The coding bases, which intergenic negatives need; a `ConfigError` says how to give them."""
    if coding is None:
        raise ConfigError(
            "promoters.windows.negative_sets: 'intergenic' needs the coding sequences of the genome: name a "
            "GFF3 or GTF file in promoters.annotation, or with prepare promoter-windows --annotation FILE"
        )
    return coding


def _match(
    wanted: npt.NDArray[np.float64],
    offered: npt.NDArray[np.float64],
    used: npt.NDArray[np.bool_],
    rng: np.random.Generator,
) -> npt.NDArray[np.int64]:
    """As `match_gc`; but who would get a `used` one gets one that nobody has got. No other choice changes."""
    chosen = match_gc(wanted, offered, rng)
    if not used.any():
        return chosen
    again = np.flatnonzero((chosen >= 0) & used[chosen])
    left = np.setdiff1d(np.flatnonzero(~used), chosen)
    instead = match_gc(wanted[again], offered[left], rng)
    chosen[again] = np.append(left, -1)[instead]
    return chosen
