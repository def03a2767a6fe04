"""Commands that judge predictions and models: their reports."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from bigbird_dna.cli.options import TRACK_TABLE, Directory, Threads, argument, named_files, option, output
from bigbird_dna.console import log
from bigbird_dna.disk.outputs import command_line
from bigbird_dna.errors import UsageError

if TYPE_CHECKING:  # slow to import: inside the commands
    from bigbird_dna.reporting.variants import VariantReport

Arrays = Annotated[
    str,
    argument(
        "Scores of any range, rows × tracks: .npy, .npz, .h5, .parquet, .tsv[.gz] or .csv[.gz], also of "
        "predict-tracks; FILE::NAME for one array of several. They may be missing where nothing was measured."
    ),
]
Labels = Annotated[
    str,
    argument(
        "The same rows and tracks; 0 or 1, -1 or NaN where not measured. Also labels.npz of a data set."
    ),
]


def auc_report(
    predictions: Arrays,
    labels: Labels,
    output: Annotated[Path, output("DIR", "A directory of its own: it gets replaced.")],
    tracks: Annotated[
        Path | None,
        option(
            "FILE",
            "Table of tracks in the columns' order: track, group, and more.",
            "the columns' names, one group",
            *TRACK_TABLE,
        ),
    ] = None,
    published: Annotated[
        Path | None,
        option(
            "FILE", "Table with AUROCs to compare with, by track or in order.", "published_auroc of --tracks"
        ),
    ] = None,
    compare: Annotated[
        list[str] | None, option("NAME=FILE", "Another predictor's array, such as a baseline's; repeatable.")
    ] = None,
    min_positives: Annotated[
        int, option(None, "Tracks with fewer take no part in their group's figures.", least=1)
    ] = 1,
    title: Annotated[str, option(None, "Of the page.")] = "AUROC by track",
    calibration: Annotated[
        Path | None,
        option("FILE", "calibration.json of the model: also judge its probabilities, before and after it."),
    ] = None,
    threads: Threads = None,
) -> None:
    """AUROC with DeLong's interval and AUPRC of each track, medians by group, and a page to look at.

    Writes tracks.tsv, groups.tsv and report.html, with --calibration also track_calibration.tsv and .svg.
    Tracks with one class only are left out and listed.
    """
    from bigbird_dna.reporting import tracks as report

    others = named_files("--compare", compare or ())
    options: dict[str, object] = {"--tracks": tracks, "--published": published, "--compare": compare}
    options |= {"--min-positives": min_positives, "--title": title, "--calibration": calibration}
    log(f"{predictions}: judging every track; figures appear in {output}")
    made = report.auc_report(
        predictions,
        labels,
        output,
        tracks=tracks,
        published=published,
        compare={name: str(path) for name, path in others.items()},
        min_positives=min_positives,
        title=title,
        threads=threads or 0,
        command=command_line("auc-report", [predictions, labels], options),
        calibration=calibration,
    )
    for row in made.groups.to_dict("records"):
        out, count = row["left_out"], row["tracks"]
        medians = f"median AUROC {row['median_auroc']:.4f}, AUPRC {row['median_auprc']:.4f} of "
        log(
            f"{row['group']}: {medians if count else ''}{count:,} tracks"
            + (f", {out:,} left out" if out else "")
        )


def report_promoters(
    output: Directory,
    predictions: Annotated[
        list[str] | None,
        option("NAME=FILE", "Negative set and the model's predictions (Parquet); repeatable."),
    ] = None,
    baselines: Annotated[
        list[str] | None, option("NAME=FILE", "The k-mer baseline's predictions for a set.", "", "--baseline")
    ] = None,
    positions: Annotated[
        list[str] | None,
        option("NAME=FILE", "Predictions of the baseline position for a set.", "", "--position"),
    ] = None,
    control: Annotated[
        Path | None, option("FILE", "Predictions of the model that was trained on shuffled labels.")
    ] = None,
) -> None:
    """Compare promoter models with their baselines on the test windows.

    Writes promoters.tsv (AUROC with DeLong's interval, AUPRC, F1 and MCC at 0.5 with bootstrap intervals,
    and AUROC minus that of each baseline), roc.svg, precision_recall.svg and score_histograms.svg; and
    calibration.tsv and .svg, whether the models' probabilities hold, also as calibration.json beside the
    predictions corrects them. Where the predictions have the column `coding`, the fraction of a window's
    bases in protein-coding sequence, promoters.tsv also has rows of the pairs in which the promoter and its
    negative are both less than half coding.
    """
    from bigbird_dna.data.predictions import ALL
    from bigbird_dna.reporting.promoters import promoter_report

    if not predictions:
        raise UsageError("--predictions NAME=FILE: name the predictions of one negative set at least")
    files = named_files("--predictions", predictions)
    others = {
        name: named_files(name, values or ())
        for name, values in (("--baseline", baselines), ("--position", positions))
    }
    missing = [name for name in others["--baseline"] if name not in others["--position"]]
    if missing:
        log(f"{', '.join(missing)}: compared without the baseline position (--position)")
    table = promoter_report(
        files, output, baselines=others["--baseline"], positions=others["--position"], control=control
    )
    for row in table.itertuples():
        part = "" if row.stratum == ALL else f" that are {row.stratum}"
        log(f"{row.negative_set}: {row.model} AUROC {row.auroc:.4f} on {row.n:,} test windows{part}")


def report_variants(
    scored: Annotated[
        Path, argument("VCF or table that score-variants wrote, with --tracks '*'; FILTER doesn't count.")
    ],
    output: Directory,
    truth: Annotated[
        Path | None, option("VCF", "VCF with the known effects.", "INFO of the scored VCF")
    ] = None,
    effect_field: Annotated[
        str, option("KEY", "INFO key of the effect: gain, loss, none, or another word.")
    ] = "EFFECT",
    track_field: Annotated[str, option("KEY", "INFO key of the track that the effect is on.")] = "TRACK",
    category_field: Annotated[
        str, option("KEY", "INFO key of the kind of variant; may be missing.")
    ] = "PLACE",
    track: Annotated[
        str | None, option("NAME", "The track that all effects are on, in place of --track-field.")
    ] = None,
    no_effect: Annotated[
        str, option("WORD", "What the effect's key says of variants without effect.")
    ] = "none",
    held_out: Annotated[
        list[str] | None,
        option("CONTIG", "Contig that the model has not seen; repeatable. Adds rows for these alone."),
    ] = None,
) -> None:
    """Judge predicted effects of variants by known ones: how well their size tells who has one.

    Writes variants.svg and variants.tsv: AUROC of the size of the change of probability on the variant's own
    track, with DeLong's interval, and of log-odds, and the share of right signs; for all variants, by place
    and by track. Alleles that were not scored, or whose effect is unknown, are counted and left out.
    """
    from bigbird_dna.reporting.known_effects import Fields
    from bigbird_dna.reporting.variants import variant_report

    made = variant_report(
        scored,
        output,
        truth=truth,
        fields=Fields(effect_field, track_field, category_field),
        track=track,
        no_effect=no_effect,
        held_out=held_out or [],
    )
    _say(made, held_out or [])


def _say(made: "VariantReport", held_out: Sequence[str]) -> None:
    from bigbird_dna.reporting.style import interval
    from bigbird_dna.reporting.variants import ALL, HELD_OUT

    effects = Counter(variant.effect for variant in made.variants)
    counts = ", ".join(f"{count:,} {effect}" for effect, count in effects.most_common(6))
    log(f"{len(made.variants):,} variants judged: {counts}")
    if made.left_out:
        reasons = ", ".join(f"{count:,} {why}" for why, count in made.left_out.most_common(5))
        log(f"{made.left_out.total():,} left out: {reasons}")
    contigs = dict.fromkeys(variant.contig for variant in made.variants)
    for contig in held_out:
        if contig not in contigs:
            log(f"warning: no variant on {contig} (they are on {', '.join([*contigs][:8])})")
    for row in made.table[made.table["subset"].isin([ALL, HELD_OUT])].to_dict("records"):
        area = interval(row["auroc"], row["auroc_low"], row["auroc_high"])
        signs = f", {row['right_sign']:.1%} of the signs right" if row["right_sign"] >= 0 else ""
        log(f"{row['subset']}: AUROC {area} of {row['variants']:,} variants{signs}")


def report_pretraining(
    model_dir: Annotated[Path, argument("Pretrained model: training.jsonl is read.")],
    bits: Annotated[Path, option("TSV", "Table of evaluate pretraining.", "", "--bits-per-base")],
    output: Directory,
) -> None:
    """Draw a pretraining: its loss, and its bits per base beside those of simpler predictors.

    Writes loss.svg, bits_per_base.svg and .tsv, and held_out.svg, the bits per base over training.
    """
    from bigbird_dna.reporting.language_model import pretraining_report

    pretraining_report(model_dir, bits, output)
