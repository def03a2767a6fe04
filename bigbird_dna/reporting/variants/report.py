"""The report of scored variants against their known effects: `variants.tsv` and `variants.svg`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bigbird_dna.disk.directories import into_directory
from bigbird_dna.reporting.tables import write_tsv
from bigbird_dna.reporting.variants.figure import variant_figure
from bigbird_dna.reporting.variants.reading import DEFAULT_FIELDS, Fields, read_known_effects
from bigbird_dna.reporting.variants.table import KnownEffect, variant_table

if TYPE_CHECKING:
    import pandas as pd


class VariantReport(NamedTuple):
    """The table as written, the alleles that it judges, and how many were left out, by reason."""

    table: pd.DataFrame
    variants: list[KnownEffect]
    left_out: Counter[str]


def variant_report(
    scored: Path,
    output: Path,
    *,
    truth: Path | None = None,
    fields: Fields = DEFAULT_FIELDS,
    track: str | None = None,
    no_effect: str = "none",
    held_out: Collection[str] = (),
) -> VariantReport:
    """Judge predicted effects of variants by known ones: how well their size tells who has one.

    Writes the table of `variant_table` and the figure of `variant_figure` to the directory `output`.

    Parameters
    ----------
    scored, truth, fields, track
        As in `read_known_effects`.
    no_effect
        What the effect's key says of variants without effect; upper and lower case count as the same.
    held_out
        Contigs that the model has not seen: further rows are for these alone.

    Raises
    ------
    DataError, UsageError
        As `read_known_effects`; or `output` can't be written.
    """
    variants, left_out = read_known_effects(scored, truth, fields, track)
    none = no_effect.lower()
    table = variant_table(variants, held_out, none)
    with into_directory(output) as files:
        write_tsv(files / "variants.tsv", table)
        variant_figure(variants, files / "variants.svg", none)
    return VariantReport(table, variants, left_out)
