"""Effects of random variants by type: the background that gives the effect of a variant its quantile.

The type of a substitution of one base is the pair of bases, on the strand where REF is C or T: models read
both strands, so that A>C and T>G are one type. Insertions, deletions and substitutions of several bases are
grouped by their length.

`variant_background.json` in a model's directory is bound to the weights like `calibration.json`.
"""

from bisect import bisect_left
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from bigbird_dna.calibration.maps import CalibrationPart, read_part
from bigbird_dna.genome.assembly import shown
from bigbird_dna.genome.sequence import reverse_complement
from bigbird_dna.genome.variants import Change

FILE = "variant_background.json"
MOST_TRACKS = 20
"""Most tracks of a model for which the effects on each of them are stored, and not only the largest."""
LEAST = 20
"""Fewest random variants of a type that give quantiles."""

Shape = tuple[Literal["substitution", "insertion", "deletion"], int, int]
"""What a change does, and its smallest and largest number of bases."""

TYPES: Mapping[Shape, tuple[str, ...]] = {
    ("substitution", 1, 1): ("C>A", "C>G", "C>T", "T>A", "T>C", "T>G"),
    ("substitution", 2, 5): ("MNV_2-5",),
    ("insertion", 1, 1): ("INS_1",),
    ("insertion", 2, 5): ("INS_2-5",),
    ("insertion", 6, 20): ("INS_6-20",),
    ("deletion", 1, 1): ("DEL_1",),
    ("deletion", 2, 5): ("DEL_2-5",),
    ("deletion", 6, 20): ("DEL_6-20",),
}
"""Types of variants by shape; others, such as longer ones, have no background."""

_Sizes = tuple[Annotated[float, Field(ge=0)], ...]


def variant_type(change: Change) -> str | None:
    """Return the type of a variant in normal form; None: it has no background."""
    ref, alt = change.ref, change.alt
    if ref and alt and len(ref) != len(alt):
        return None
    action = "substitution" if ref and alt else "deletion" if ref else "insertion"
    size = max(len(ref), len(alt))
    names = [
        own
        for (one, low, high), own in TYPES.items()
        if one == action and low <= size <= high
    ]
    if not names:
        return None
    if len(names[0]) == 1:
        return names[0][0]
    pair = (
        (ref, alt)
        if ref in "CT"
        else (reverse_complement(ref), reverse_complement(alt))
    )
    return ">".join(pair)


def effect_size(effect: float) -> float:
    """Return the absolute value of an effect with six digits, as results have, for comparisons."""
    return float(f"{abs(effect):.6g}")


class VariantBackground(CalibrationPart):
    """Sorted absolute effects of random variants of each type, and how these were drawn and scored."""

    remedy: ClassVar[str] = "run `bigbird-dna model add-background` for this model"

    format: Literal[1] = 1
    fitted_on: Mapping[str, Any]  # reference, contigs, per_type, seed
    options: Mapping[str, str]  # of score-variants, those that change effects
    largest: Mapping[
        str, _Sizes
    ]  # type → (N,) the largest effect of each random variant on any output
    tracks: Mapping[str, Mapping[str, _Sizes]] = {}  # type → track → (N,)

    @model_validator(mode="after")
    def _is_sorted(self) -> "VariantBackground":
        known = {name for names in TYPES.values() for name in names}
        if not self.largest or not self.largest.keys() | self.tracks.keys() <= known:
            raise ValueError(f"types must be of {', '.join(sorted(known))}")
        own = (sizes for tracks in self.tracks.values() for sizes in tracks.values())
        for sizes in (*self.largest.values(), *own):
            if any(first > second for first, second in pairwise(sizes)):
                raise ValueError("effects must not decrease")
        return self

    @property
    def variants(self) -> int:
        """Number of random variants of all types."""
        return sum(map(len, self.largest.values()))

    def __str__(self) -> str:
        contigs = shown(self.fitted_on.get("contigs", ()))
        return (
            f"{self.variants:,} random variants of {len(self.largest)} types on {contigs} of "
            f"{self.fitted_on.get('reference')}, seed {self.fitted_on.get('seed')}"
        )

    def quantile(
        self, type: str | None, effect: float, track: str | None = None
    ) -> float | None:
        """Return the fraction of random variants of a type with a smaller absolute effect.

        The effect is the largest on any output, or that on `track`. None: `LEAST` variants are not available.
        """
        own = (
            self.largest
            if track is None
            else {name: of.get(track, ()) for name, of in self.tracks.items()}
        )
        sizes = own.get(type or "", ())
        if len(sizes) < LEAST:
            return None
        return bisect_left(sizes, effect_size(effect)) / len(sizes)


def read_background(path: Path, weights_sha256: str | None = None) -> VariantBackground:
    """Read `variant_background.json`, which must match the weights; `ModelError` names the fault."""
    return read_part(path, VariantBackground, weights_sha256)
