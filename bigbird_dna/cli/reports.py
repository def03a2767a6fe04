"""Commands that evaluate predictions or write plots, summary and report of a run, all from existing files."""

import math
from collections import Counter
from collections.abc import Hashable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from bigbird_dna.cli import options as opt
from bigbird_dna.cli.homology import files_of_sets
from bigbird_dna.cli.options import argument, option, output, runs
from bigbird_dna.console import log
from bigbird_dna.disk.outputs import command_line
from bigbird_dna.errors import UsageError, check_choice

if TYPE_CHECKING:
    from bigbird_dna.reporting.variants import VariantReport

ARRAYS = argument(
    "Scores in any range, rows × tracks: .npy, .npz, .h5, .parquet, .tsv[.gz] or .csv[.gz], also from "
    "predict-tracks; FILE::NAME selects one array of a file. NaN is allowed where labels are missing."
)
LABELS = argument(
    "Labels of the same rows and tracks: 0 or 1; -1 or NaN where not measured. Also labels.npz of a data set."
)
PUBLISHED = option(
    None,
    "FILE",
    "Table of AUROCs to compare with, by track or in order.",
    "published_auroc of --track-table",
)
BINS = option(
    None,
    "FILE",
    "Positions of the rows, such as bins.parquet of a data set, for intervals over blocks of sequence.",
    "columns contig and start of LABELS, if any",
)


def auc_report(
    predictions: str = ARRAYS,
    labels: str = LABELS,
    output: Path = output(
        ..., "DIR", "Directory for the report; an existing report is replaced."
    ),
    tracks: Path | None = option(
        None,
        "FILE",
        "Table of tracks, in column order, with the columns track, group and more.",
        "names of the columns, one group",
        "--track-table",
        "--tracks",
    ),
    published: Path | None = PUBLISHED,
    compare: list[str] | None = option(
        None,
        "NAME=FILE",
        "Scores of another predictor, such as a baseline; repeatable.",
    ),
    min_positives: int = option(
        1, None, "Exclude tracks with fewer positives from group medians.", least=1
    ),
    title: str = option("AUROC by track", None, "Title of the HTML report."),
    calibration: Path | None = option(
        None,
        "FILE",
        "calibration.json of the model, to evaluate probabilities before and after calibration.",
    ),
    bins: Path | None = BINS,
    threads: int | None = opt.THREADS,
) -> None:
    """Report AUROC with confidence interval and AUPRC of each track, and medians per group of tracks.

    Writes tracks.tsv, groups.tsv and report.html, with --calibration also track_calibration.tsv and .svg.
    Tracks with only one class are excluded and listed. Intervals are over blocks of 10 kb of sequence; over
    rows (DeLong) if the positions of the rows are unknown.

    Example: bigbird-dna auc-report results/demo/chromatin/predictions-8000.npy
    results/demo/chromatin/held-out/labels.npz --bins results/demo/chromatin/held-out/bins.parquet -o report
    """
    from bigbird_dna.reporting import tracks as report

    others = opt.named_files("--compare", compare or ())
    options: dict[str, object] = {
        "--tracks": tracks,
        "--published": published,
        "--compare": compare,
    }
    options |= {
        "--min-positives": min_positives,
        "--title": title,
        "--calibration": calibration,
    }
    options |= {"--bins": bins}
    log(f"{predictions}: evaluating all tracks; results will be written to {output}")
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
        bins=bins,
    )
    for row in made.groups.to_dict("records"):
        log(_medians(row))


def _medians(row: dict[Hashable, Any]) -> str:
    medians = (
        f"median AUROC {row['median_auroc']:.4f}, AUPRC {row['median_auprc']:.4f} of "
    )
    out = f", {row['n_excluded']:,} excluded" if row["n_excluded"] else ""
    return f"{row['group']}: {medians if row['tracks'] else ''}{row['tracks']:,} tracks{out}"


def report_promoters(
    output: Path = opt.DIRECTORY,
    predictions: list[str] | None = option(
        None,
        "NAME=FILE",
        "Model predictions (Parquet) for negative set NAME; repeatable.",
    ),
    baselines: list[str] | None = option(
        None,
        "SET[/NAME]=FILE",
        "Predictions of baseline NAME (k-mer, position, orf or composition) on negative set SET; repeatable.",
        "k-mer",
        "--promoter-baseline",
    ),
    controls: list[Path] | None = option(
        None,
        "FILE",
        "Predictions of a model trained on shuffled labels; repeatable.",
        "",
        "--control",
    ),
    similarity_strata: str = option(
        "",
        "S,S,…",
        "Rising bounds of similarity to training windows, such as 0.3,0.5,0.8, for separate metrics.",
        "none",
    ),
) -> None:
    """Compare promoter models with their baselines on the test windows.

    Writes promoters.tsv: AUROC, AUPRC, F1 and MCC at 0.5 with confidence intervals over blocks of 10 kb of
    sequence, joined where windows are similar (column `homology`), and AUROC differences to each baseline.
    Also writes roc.svg, precision_recall.svg and score_histograms.svg, and the calibration of the
    probabilities as calibration.tsv and .svg, before and after calibration if calibration.json is next to the
    predictions. If the predictions have the column `coding` (fraction of coding bases of a window),
    promoters.tsv also has rows for pairs whose promoter and negative are both less than half coding. --similarity-strata
    needs the predictions of the baseline nearest. Models trained on shuffled labels have one row: the mean, and the lowest and highest values.

    Example: bigbird-dna evaluate promoters --predictions
    genomic=results/demo/models/promoter-genomic/predictions.parquet -o report
    """
    from bigbird_dna.data.predictions import ALL, KMER, NEAREST, PROMOTER_BASELINES
    from bigbird_dna.reporting.promoters import promoter_report

    if not predictions:
        raise UsageError(
            "evaluate promoters needs --predictions NAME=FILE for at least one negative set"
        )
    files = opt.named_files("--predictions", predictions)
    others = files_of_sets("--promoter-baseline", baselines or (), KMER)
    for name, found in others.items():
        for baseline in found:
            check_choice(
                f"--promoter-baseline {name}/{baseline}: baseline",
                baseline,
                (*PROMOTER_BASELINES, NEAREST),
            )
    table = promoter_report(
        files,
        output,
        baselines=others,
        controls=controls or (),
        similarity_strata=_bounds(similarity_strata),
    )
    for name, found in others.items():
        if missing := [
            baseline for baseline in PROMOTER_BASELINES if baseline not in found
        ]:
            log(
                f"{name}: compared without the baselines {', '.join(missing)} (--promoter-baseline)"
            )
    for row in table.itertuples():
        part = "" if row.stratum == ALL else f" that are {row.stratum}"
        log(
            f"{row.negative_set}: {row.model} AUROC {row.auroc:.4f} on {row.n:,} test windows{part}"
        )


def _bounds(text: str) -> list[float]:
    from itertools import pairwise

    try:
        bounds = [float(cell) for cell in text.split(",") if cell]
    except ValueError:
        bounds = [math.nan]
    if not all(0 < bound <= 1 for bound in bounds) or any(
        low >= high for low, high in pairwise(bounds)
    ):
        raise UsageError(
            f"--similarity-strata {text!r:.60}: expected rising numbers above 0, up to 1, such as 0.3,0.5"
        )
    return bounds


def report_scan(
    scans: list[str] = option(
        ...,
        "NAME=FILE",
        "Table of score-promoters by predictor NAME; repeatable.",
        "",
        "--scores",
    ),
    promoters: Path = option(
        ..., None, "Annotated TSSs: the TSV of prepare promoters."
    ),
    output: Path = opt.DIRECTORY,
    within: list[int] | None = option(
        None,
        "BP",
        "Largest distance of a correct call to its TSS; repeatable.",
        "50, 100 and 500",
        least=0,
    ),
    suppress: int = option(
        100, "BP", "Calls of a strand are farther apart than this.", least=0
    ),
    fits: list[str] | None = option(
        None,
        "NAME=FILE",
        "Table of score-promoters of validation contigs, to check the expected precision of calls; repeatable.",
        "none",
        "--fit",
    ),
) -> None:
    """Evaluate a scan of whole contigs: calls against annotated transcription start sites (TSSs).

    On each strand, the highest score is a call and silences windows near it; then the next. A call is correct
    if a TSS of its strand that no better call took is within a distance. Writes scan.tsv and scan.svg:
    precision and recall, calls per Mb, and the realized false-discovery rate at nominal rates, with
    confidence intervals over blocks of 10 kb. Nominal rates follow from the scores as probabilities: score
    with --calibrated and the --prior of the scan. chance_fdr is that of random calls. With --fit, the
    expected precision of calls is fitted to the validation contigs, and calls.tsv and calls.svg compare it
    with the realized one.

    Example: bigbird-dna evaluate scan --scores model=results/demo/scores/promoters.tsv --promoters
    results/demo/genome/promoters.tsv -o report
    """
    from bigbird_dna.calibration.calls import DISTANCES
    from bigbird_dna.reporting.scan import BEST_F1, scan_report

    named = opt.named_files("--scores", scans)
    distances = within or DISTANCES
    table = scan_report(
        named,
        promoters,
        output,
        within=distances,
        suppress=suppress,
        fits=opt.named_files("--fit", fits or ()),
    )
    for row in table[table["selection"] == BEST_F1].to_dict("records"):
        found = (
            f"average precision {row['average_precision']:.3f}; best F1 with {row['calls']:,} calls, "
            f"precision {1 - row['realized_fdr']:.3f}, recall {row['recall']:.3f}"
        )
        result = found if row["tss"] else "no annotated TSS on the scanned sequence"
        log(f"{row['predictor']}, within {row['within']:,} bp: {result}")


def _evaluated(made: "VariantReport", given: dict[str, Any]) -> Iterator[str]:
    from bigbird_dna.reporting.result import interval
    from bigbird_dna.reporting.variants import ALL, HELD_OUT

    effects = Counter(variant.effect for variant in made.variants)
    counts = ", ".join(
        f"{count:,} {effect}" for effect, count in effects.most_common(6)
    )
    yield f"{len(made.variants):,} variants evaluated: {counts}"
    if made.left_out:
        reasons = ", ".join(
            f"{count:,} {why}" for why, count in made.left_out.most_common(5)
        )
        yield f"{made.left_out.total():,} excluded: {reasons}"
    contigs = dict.fromkeys(variant.contig for variant in made.variants)
    for contig in given["held_out"] or ():
        if contig not in contigs:
            yield f"warning: no variant on {contig} (contigs with variants: {', '.join([*contigs][:8])})"
    for row in made.table[made.table["subset"].isin([ALL, HELD_OUT])].to_dict(
        "records"
    ):
        area = interval(row["auroc"], row["auroc_low"], row["auroc_high"])
        signs = (
            f", {row['sign_accuracy']:.1%} of the signs correct"
            if row["sign_accuracy"] >= 0
            else ""
        )
        yield f"{row['subset']}: AUROC {area} of {row['variants']:,} variants{signs}"
    for row in (
        []
        if made.compared is None
        else made.compared.query("subset == @ALL").to_dict("records")
    ):
        area = interval(
            row["difference"],
            row["difference_low"],
            row["difference_high"],
            form="+.3f",
        )
        yield f"{row['subset']}: AUROC {row['auroc']:.3f} of {row['predictor']}, difference {area}"
    for row in [] if made.random is None else made.random[:1].to_dict("records"):
        area = interval(row["auroc"], row["auroc_low"], row["auroc_high"])
        yield f"{row['variants']:,} variants and {row['random']:,} random variants: AUROC {area}"


@runs("reporting.variants.variant_report", named=("compare",), report=_evaluated)
def report_variants(
    scored: Path = argument(
        "VCF or table written by score-variants with --tracks '*'; FILTER is ignored."
    ),
    output: Path = opt.DIRECTORY,
    truth: Path | None = option(
        None, "VCF", "VCF with the known effects.", "INFO of the scored VCF"
    ),
    null: Path | None = option(
        None, "FILE", "Scored random variants, drawn by prepare random-variants."
    ),
    compare: list[str] | None = option(
        None,
        "NAME=FILE",
        "The same variants scored by another predictor, such as kmers; repeatable.",
    ),
    effect_field: str = option(
        "EFFECT", "KEY", "INFO key of the effect: gain, loss, none, or another word."
    ),
    track_field: str = option("TRACK", "KEY", "INFO key of the affected track."),
    category_field: str = option(
        "CATEGORY", "KEY", "INFO key of the variant category; may be missing."
    ),
    track: str | None = option(
        None, "NAME", "Track affected by all variants; replaces --track-field."
    ),
    no_effect: str = option(
        "none", "WORD", "Value of --effect-field for variants without effect."
    ),
    held_out: list[str] | None = option(
        None,
        "CONTIG",
        "Held-out contig of the model; adds rows for the variants on these. Repeatable.",
    ),
) -> None:
    """Evaluate predicted variant effects against known effects (AUROC of |Δ|, sign accuracy).

    Writes variants.svg and variants.tsv: AUROC of the absolute probability change on the affected track, with
    confidence interval, AUROC of the log-odds, and the fraction of correct signs; for all variants, by
    category and by track. Alleles without a score or with unknown effect are counted and excluded. With
    --null, writes random_variants.tsv, AUROC of variants with an effect against random variants drawn near
    them, and variant_p_values.tsv: how often random variants have an effect as large on the same track.
    With --compare, writes compared_variants.tsv: the metrics of other predictors, and AUROC differences.

    Example: bigbird-dna evaluate variants results/demo/chromatin/variants.vcf.gz -o report
    """


def draw_scores(
    scores: Path = argument("Table of score-promoters."),
    output: Path = opt.FIGURE,
    promoters: Path | None = option(
        None, None, "Known TSSs to mark: the TSV of prepare promoters."
    ),
    annotation: Path | None = option(
        None, "GFF3|GTF", "Genes to draw; contigs named as in the scores."
    ),
    calls: Path | None = option(
        None, None, "Calls to draw: the BED, TSV or Parquet of call-promoters."
    ),
    contig: str | None = option(
        None, None, "Contig to plot.", "the first of the table"
    ),
    start: int | None = option(
        None, None, "Start of the region, 0-based.", "all", least=0
    ),
    end: int | None = option(
        None, None, "End of the region, exclusive.", "all", least=1
    ),
    megabases: float | None = option(
        None,
        "F",
        "Plot at most F Mb, from the start of the region, or the first score.",
        "all",
    ),
) -> None:
    """Plot scores along a contig, on both strands, with genes, known transcription start sites and calls.

    A score is plotted at the position of its TSS (column tss), not at the center of its window. Calls point
    in the direction of transcription; their number and opacity are the expected precision. Calls without a
    known TSS within 100 bp, and known TSSs without a call, are hollow.

    Example: bigbird-dna report plot-scores scores.tsv --promoters promoters.tsv --calls calls.bed
    -o scores.svg
    """
    from bigbird_dna.genome.annotation import read_genes
    from bigbird_dna.genome.promoters import read_loci
    from bigbird_dna.reporting.score_track import (
        read_calls,
        read_score_track,
        score_figure,
    )

    if start is not None and end is not None and end <= start:
        raise UsageError(f"--end {end} must be greater than --start {start}")
    if megabases is not None and not 0 < megabases < math.inf:
        raise UsageError(f"--megabases {megabases:g}: must be above 0")
    longest = None if megabases is None else max(1, round(megabases * 1e6))
    track = read_score_track(scores, contig, start, end, longest)
    sites = read_loci(promoters) if promoters is not None else []
    genes = read_genes(annotation) if annotation is not None else []
    called = None if calls is None else read_calls(calls, track)
    score_figure(track, sites, output, genes, called)


def report_run(
    run: Path = argument("Directory of a run, such as results/demo.", "RUN_DIR"),
    config: Path | None = option(
        None,
        "FILE",
        "Configuration of the run.",
        "config/report.yaml in RUN_DIR",
        "--config",
    ),
) -> None:
    """Write the report of a run from the files of its evaluations, and print its main results.

    Writes into RUN_DIR: report.html, with all plots and tables; report/summary.tsv and summary.txt, the
    metrics with 95 % intervals; and the plots of losses and bits per base of the trainings.

    Example: bigbird-dna report run results/demo
    """
    from bigbird_dna.reporting.run_page import report_run

    typer.echo(report_run(run, config), nl=False)
