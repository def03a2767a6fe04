"""Tables of regions and of alleles, as the methods of models give them."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import pandas as pd

from bigbird_dna.api.places import Region

R = TypeVar("R")


def each_in_place(regions: Iterable[Region], faulty: Callable[[str], R], found: Iterator[R]) -> list[R]:
    """What was found for each region that is on the reference, and what `faulty` makes of the others."""
    return [faulty(region.fault) if region.fault else next(found) for region in regions]


def place_table(rows: Iterable[Any], labels: "pd.Index[Any]") -> pd.DataFrame:
    """Where regions lie, a row for each, with an index of their own."""
    columns = [(one.contig, one.start, one.end, one.name) for one in rows]
    return pd.DataFrame(columns, index=labels, columns=["contig", "start", "end", "name"])


def allele_table(found: Iterable[Any], labels: "pd.Index[Any] | None") -> tuple[pd.DataFrame, list[Any]]:
    """The first columns of a table of effects, a row for each alternative allele, and the effects."""
    rows, owners, effects = [], [], []
    for number, (record, own) in enumerate(found):
        for alt, effect in zip(record.alts, own, strict=True):
            note = "&".join(effect.notes) or "."
            rows.append((record.contig, record.start + 1, record.ref, alt, note))
            owners.append(number)
            effects.append(effect)
    index = pd.RangeIndex(len(rows)) if labels is None else labels.take(owners)
    return pd.DataFrame(rows, index=index, columns=["contig", "position", "ref", "alt", "note"]), effects
