"""`variant-report`: scored variants against their known effects."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from bigbird_dna.console import log
from bigbird_dna.files import check_writable

if TYPE_CHECKING:  # slow to import: inside the command
    import pandas as pd

    from bigbird_dna.reporting.variants.table import KnownEffect


def register(app: typer.Typer) -> None:
    """Add this command to the application."""
    app.command()(variant_report)


def variant_report(
    scored: Path = typer.Argument(
        help="VCF or table that score-variants wrote, with --tracks '*'; FILTER doesn't count."
    ),
    output: Path = typer.Option(
        ..., "-o", "--output", metavar="DIR", help="Directory for the table and the figure."
    ),
    truth: Path | None = typer.Option(
        None, metavar="VCF", help="VCF with the known effects. [default: INFO of the scored VCF]"
    ),
    effect_field: str = typer.Option(
        "EFFECT", metavar="KEY", help="INFO key of the effect: gain, loss, none, or another word."
    ),
    track_field: str = typer.Option(
        "TRACK", metavar="KEY", help="INFO key of the track that the effect is on."
    ),
    place_field: str = typer.Option(
        "PLACE", metavar="KEY", help="INFO key of the kind of variant; it may be missing."
    ),
    track: str | None = typer.Option(
        None,
        metavar="NAME",
        help="The track that all effects are on, in the place of --track-field.",
    ),
    no_effect: str = typer.Option(
        "none", metavar="WORD", help="What the effect's key says of variants without effect."
    ),
    held_out: list[str] = typer.Option(
        [],
        metavar="CONTIG",
        help="Contig that the model has not seen; repeatable. Adds rows for these alone.",
    ),
) -> None:
    """Judge predicted effects of variants by known ones: how well their size tells who has one.

    Writes variants.svg and variants.tsv: AUROC of the size of the change of probability on the variant's own
    track, with DeLong's interval, and of log-odds, and the share of right signs; for all variants, by place
    and by track. Alleles that were not scored, or whose effect is unknown, are counted and left out.
    """
    check_writable(output, directory=True)

    from bigbird_dna.reporting.tables import write_tsv
    from bigbird_dna.reporting.variants.figure import variant_figure
    from bigbird_dna.reporting.variants.reading import Fields, read_known_effects
    from bigbird_dna.reporting.variants.table import variant_table

    fields = Fields(effect_field, track_field, place_field)
    variants, left_out = read_known_effects(scored, truth, fields, track)
    none = no_effect.lower()
    table = variant_table(variants, held_out, none)
    write_tsv(output / "variants.tsv", table)
    variant_figure(variants, output / "variants.svg", none)
    _say(variants, left_out, held_out, table)


def _say(
    variants: "list[KnownEffect]",
    left_out: Counter[str],
    held_out: list[str],
    table: "pd.DataFrame",
) -> None:
    effects = Counter(variant.effect for variant in variants)
    counts = ", ".join(f"{count:,} {effect}" for effect, count in effects.most_common(6))
    log(f"{len(variants):,} variants judged: {counts}")
    if left_out:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in left_out.most_common(5))
        log(f"{left_out.total():,} left out: {reasons}")
    contigs = dict.fromkeys(variant.contig for variant in variants)
    for contig in held_out:
        if contig not in contigs:
            log(f"warning: no variant on {contig} (they are on {', '.join([*contigs][:8])})")
    from bigbird_dna.reporting.style import interval
    from bigbird_dna.reporting.variants.table import ALL, HELD_OUT

    for row in table[table["subset"].isin([ALL, HELD_OUT])].to_dict("records"):
        area = interval(row["auroc"], row["auroc_low"], row["auroc_high"])
        signs = f", {row['right_sign']:.1%} of the signs right" if row["right_sign"] >= 0 else ""
        log(f"{row['subset']}: AUROC {area} of {row['variants']:,} variants{signs}")
