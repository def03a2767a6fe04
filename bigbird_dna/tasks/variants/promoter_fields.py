"""Effects on promoters as fields of a VCF's INFO and as columns of a table."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from bigbird_dna.genome.variants import Note
from bigbird_dna.tasks.variants.promoter_effects import NO_SITE, PromoterEffect, SiteScores

COLUMNS = ("ref_score", "alt_score", "delta", "site", "strand")
"""Of a table, after those that say which allele a row is of."""


class InfoKey(NamedTuple):
    """A key of INFO as the header describes it."""

    name: str
    number: str
    kind: str
    text: str


_AT = "at the TSS position with the largest change either way"
_NOTES = "; ".join(
    [*(f"{note} {note.meaning}" for note in Note), f"{NO_SITE} no site's window covers a changed base"]
)

KEYS = (
    InfoKey("PROMOTER_REF", "A", "Float", f"Promoter score of the reference {_AT}"),
    InfoKey("PROMOTER_ALT", "A", "Float", f"Promoter score with ALT in place {_AT}"),
    InfoKey("PROMOTER_DELTA", "A", "Float", f"Change of the promoter score, ALT minus REF, {_AT}"),
    InfoKey("PROMOTER_SITE", "A", "Integer", "That TSS position in the reference, from 1 on"),
    InfoKey("PROMOTER_STRAND", "A", "String", "Its strand, + or -"),
    InfoKey("NOTE", ".", "String", f"For each ALT what is to be said, joined by &: {_NOTES}"),
)
"""What a VCF's header describes, without the prefix."""


def info(effects: Sequence[PromoterEffect], prefix: str) -> Iterator[str]:
    """The parts of INFO, a value for each ALT, `.` where it was not scored; none where no ALT has any."""
    if any(effect.largest is not None for effect in effects):
        columns = zip(*(row(effect, ".") for effect in effects), strict=True)
        for key, values in zip(KEYS, columns, strict=False):
            yield f"{prefix}{key.name}={','.join(values)}"
    if any(effect.notes for effect in effects):
        yield f"{prefix}NOTE={','.join('&'.join(effect.notes) or '.' for effect in effects)}"


def row(effect: PromoterEffect, missing: str) -> Sequence[str]:
    """The fields of `COLUMNS`; `missing` where the allele was not scored."""
    largest: SiteScores | None = effect.largest
    if largest is None:
        return [missing] * len(COLUMNS)
    scores = (f"{value + 0.0:.6g}" for value in (largest.ref, largest.alt, largest.delta))  # no -0
    return [*scores, str(largest.position + 1), largest.strand]
