"""Commands that evaluate from files, and that show a run.

The latter give single figures, the summary and the page; they read a run's files.
"""

from collections import Counter
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from bigbird_dna.cli import options as opt
from bigbird_dna.cli.options import argument, option, output, runs
from bigbird_dna.console import log
from bigbird_dna.disk.atomic import write_array
from bigbird_dna.disk.outputs import check_output, command_line
from bigbird_dna.errors import UsageError

if TYPE_CHECKING:
    from bigbird_dna.reporting.variants import VariantReport

ARRAYS = argument(
    "Scores of any range, rows × tracks: .npy, .npz, .h5, .parquet, .tsv[.gz] or .csv[.gz], also of "
    "predict-tracks; FILE::NAME for one array of several. They may be missing where nothing was measured."
)
LABELS = argument(
    "The same rows and tracks; 0 or 1, -1 or NaN where not measured. Also labels.npz of a data set."
)
PUBLISHED = option(
    None, "FILE", "Table with AUROCs to compare with, by track or in order.", "published_auroc of --tracks"
)


def auc_report(
    predictions: str = ARRAYS,
    labels: str = LABELS,
    output: Path = output(..., "DIR", "A directory of its own: it gets replaced."),
    tracks: Path | None = option(
        None,
        "FILE",
        "Table of tracks in the columns' order: track, group, and more.",
        "the columns' names, one group",
        "--track-table",
        "--tracks",
    ),
    published: Path | None = PUBLISHED,
    compare: list[str] | None = option(
        None, "NAME=FILE", "Another predictor's array, such as a baseline's; repeatable."
    ),
    min_positives: int = option(1, None, "Tracks with fewer take no part in their group's figures.", least=1),
    title: str = option("AUROC by track", None, "Of the page."),
    calibration: Path | None = option(
        None, "FILE", "calibration.json of the model: also evaluate its probabilities, before and after it."
    ),
    threads: int | None = opt.THREADS,
) -> None:
    """AUROC with DeLong's interval and AUPRC of each track, medians by group, and a page to look at.

    Writes tracks.tsv, groups.tsv and report.html, with --calibration also track_calibration.tsv and .svg.
    Tracks with one class only are left out and listed.

    Example: bigbird-dna auc-report results/demo/chromatin/predictions-8000.npy
    results/demo/chromatin/held-out/labels.npz -o report
    """
    from bigbird_dna.reporting import tracks as report

    others = opt.named_files("--compare", compare or ())
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
        log(_medians(row))


def _medians(row: dict[Hashable, Any]) -> str:
    medians = f"median AUROC {row['median_auroc']:.4f}, AUPRC {row['median_auprc']:.4f} of "
    out = f", {row['left_out']:,} left out" if row["left_out"] else ""
    return f"{row['group']}: {medians if row['tracks'] else ''}{row['tracks']:,} tracks{out}"


def report_promoters(
    output: Path = opt.DIRECTORY,
    predictions: list[str] | None = option(
        None, "NAME=FILE", "Negative set and the model's predictions (Parquet); repeatable."
    ),
    baselines: list[str] | None = option(
        None, "NAME=FILE", "The k-mer baseline's predictions for a set.", "", "--promoter-baseline"
    ),
    positions: list[str] | None = option(
        None, "NAME=FILE", "Predictions of the baseline position for a set.", "", "--position"
    ),
    control: Path | None = option(
        None, "FILE", "Predictions of the model that was trained on shuffled labels."
    ),
) -> None:
    """Compare promoter models with their baselines on the test windows.

    Writes promoters.tsv (AUROC with DeLong's interval, AUPRC, F1 and MCC at 0.5 with bootstrap intervals,
    and AUROC minus that of each baseline), roc.svg, precision_recall.svg and score_histograms.svg; and
    calibration.tsv and .svg, whether the models' probabilities hold, also as calibration.json beside the
    predictions corrects them. Where the predictions have the column `coding`, the fraction of a window's
    bases in protein-coding sequence, promoters.tsv also has rows of the pairs in which the promoter and its
    negative are both less than half coding.

    Example: bigbird-dna evaluate promoters --predictions
    genomic=results/demo/models/promoter-genomic/predictions.parquet -o report
    """
    from bigbird_dna.data.predictions import ALL
    from bigbird_dna.reporting.promoters import promoter_report

    if not predictions:
        raise UsageError("--predictions NAME=FILE: name the predictions of one negative set at least")
    files = opt.named_files("--predictions", predictions)
    others = {
        name: opt.named_files(name, values or ())
        for name, values in (("--promoter-baseline", baselines), ("--position", positions))
    }
    missing = [name for name in others["--promoter-baseline"] if name not in others["--position"]]
    if missing:
        log(f"{', '.join(missing)}: compared without the baseline position (--position)")
    table = promoter_report(
        files,
        output,
        baselines=others["--promoter-baseline"],
        positions=others["--position"],
        control=control,
    )
    for row in table.itertuples():
        part = "" if row.stratum == ALL else f" that are {row.stratum}"
        log(f"{row.negative_set}: {row.model} AUROC {row.auroc:.4f} on {row.n:,} test windows{part}")


def report_variants(
    scored: Path = argument(
        "VCF or table that score-variants wrote, with --tracks '*'; FILTER doesn't count."
    ),
    output: Path = opt.DIRECTORY,
    truth: Path | None = option(None, "VCF", "VCF with the known effects.", "INFO of the scored VCF"),
    effect_field: str = option("EFFECT", "KEY", "INFO key of the effect: gain, loss, none, or another word."),
    track_field: str = option("TRACK", "KEY", "INFO key of the track that the effect is on."),
    category_field: str = option("PLACE", "KEY", "INFO key of the kind of variant; may be missing."),
    track: str | None = option(None, "NAME", "The track that all effects are on, in place of --track-field."),
    no_effect: str = option("none", "WORD", "What the effect's key says of variants without effect."),
    held_out: list[str] | None = option(
        None, "CONTIG", "Contig that the model has not seen; repeatable. Adds rows for these alone."
    ),
) -> None:
    """Evaluate predicted effects of variants by known ones: how well their size tells who has one.

    Writes variants.svg and variants.tsv: AUROC of the size of the change of probability on the variant's own
    track, with DeLong's interval, and of log-odds, and the share of right signs; for all variants, by place
    and by track. Alleles that were not scored, or whose effect is unknown, are counted and left out.

    Example: bigbird-dna evaluate variants results/demo/chromatin/variants.vcf.gz -o report
    """
    from bigbird_dna.reporting.variants import Fields, variant_report

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
    from bigbird_dna.reporting.result import interval
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


@runs("reporting.training.pretraining_report")
def report_pretraining(
    model_dir: Path = argument("Pretrained model: training.jsonl is read."),
    bits: Path = option(..., "TSV", "Table of evaluate pretraining.", "", "--bits-per-base"),
    output: Path = opt.DIRECTORY,
) -> None:
    """Draw a pretraining: its loss, and its bits per base beside those of simpler predictors.

    Writes loss.svg, bits_per_base.svg and .tsv, and held_out.svg, the bits per base over training.

    Example: bigbird-dna report pretraining results/demo/models/pretrained --bits-per-base
    results/demo/pretraining/bits_per_base.tsv -o report
    """


FIGURE = output(..., "FILE", "Figure: .svg, .png or .pdf.")


def draw_loss(
    logs: list[str] = argument("Logs (training.jsonl).", "LABEL=FILE..."), output: Path = FIGURE
) -> None:
    """Draw the loss of one or more runs over their steps, with what was measured on held-out data.

    Example: bigbird-dna report plot-loss pretrained=results/demo/models/pretrained/training.jsonl -o loss.svg
    """
    from bigbird_dna.reporting.training import loss_figure, read_training_log

    named = opt.named_files("LABEL=FILE", logs)
    loss_figure({label: read_training_log(path) for label, path in named.items()}, output)


def draw_scores(
    scores: Path = argument("Table of score-promoters."),
    output: Path = FIGURE,
    promoters: Path | None = option(None, None, "Known TSSs to mark: the TSV of prepare promoters."),
    annotation: Path | None = option(None, "GFF3|GTF", "Genes to draw; contigs named as in the scores."),
    contig: str | None = option(None, None, "What is drawn.", "the table's first"),
    start: int | None = option(None, None, "First base, 0-based.", "all", least=0),
    end: int | None = option(None, None, "Base after the last.", "all", least=1),
    upstream: int | None = option(
        None, "BP", "Bases before the TSS in the model's window: where a score is drawn.", "half", least=0
    ),
) -> None:
    """Draw scores along a contig, both strands, with known transcription start sites and genes.

    Example: bigbird-dna report plot-scores scores.tsv --promoters promoters.tsv -o scores.svg
    """
    from bigbird_dna.genome.annotation import read_genes
    from bigbird_dna.genome.promoters import read_loci
    from bigbird_dna.reporting.promoters import read_score_track, score_figure

    if start is not None and end is not None and end <= start:
        raise UsageError(f"--end {end} is not above --start {start}")
    track = read_score_track(scores, contig, start, end, upstream)
    sites = read_loci(promoters) if promoters is not None else []
    score_figure(track, sites, output, read_genes(annotation) if annotation is not None else [])


def draw_attention(
    source: Path = argument("Configuration (YAML) or model directory that is drawn.", "CONFIG|MODEL_DIR"),
    output: Path = FIGURE,
    layer: int = option(0, None, "Random blocks differ by layer and head.", least=0),
    heads: int = option(3, None, "Draw this many heads.", least=1),
    tokens: int | None = option(
        None,
        "N",
        "Length of the input.",
        "the encoder's longest, of weights at most 256",
        "--seq-len",
        least=1,
    ),
    matrix: Path | None = option(
        None,
        "FILE.npy",
        "Also write what is drawn, of all heads: (heads, blocks, blocks) of 0 not seen, 1 global, "
        "2 window, 3 random; or (heads, tokens, tokens) of weights.",
    ),
) -> None:
    """Draw which key blocks each query block attends to; of other mechanisms the weights, token by token.

    These are of random queries and keys, and of weights as before training.

    Example: bigbird-dna report plot-attention results/demo/models/pretrained -o attention.svg
    """
    from bigbird_dna.config import load_config
    from bigbird_dna.config.mechanisms import OF_PATTERNS
    from bigbird_dna.model.directory import read_encoder_config
    from bigbird_dna.model.mechanism import attention_graph, attention_weights
    from bigbird_dna.reporting.attention import save_attention_figure, save_weights_figure
    from bigbird_dna.reporting.result import check_format

    check_format(output)
    if matrix is not None and matrix.suffix != ".npy":
        raise UsageError(f"--matrix {matrix}: its name must end in .npy")
    encoder = read_encoder_config(source) if source.is_dir() else load_config(source).encoder
    if encoder.attention not in OF_PATTERNS:
        weights, title = attention_weights(encoder, layer, tokens)
        if matrix is not None:
            write_array(matrix, weights)
        save_weights_figure(weights[:heads], output, title=title)
        return
    kinds, title = attention_graph(encoder, layer, tokens)
    if matrix is not None:
        write_array(matrix, kinds)
    # Under full attention all heads are alike.
    shown = kinds[: 1 if encoder.attention == "full" else heads]
    save_attention_figure(shown, output, block_size=encoder.block_size, title=title)


@runs("reporting.summary.summarize", report=lambda text, _: [text], say=typer.echo)
def summarize(
    pretraining: Path | None = option(None, None, "metrics.json of the pretrained model."),
    bits: Path | None = option(None, "TSV", "Table of evaluate pretraining.", "", "--bits-per-base"),
    promoters: Path | None = option(
        None, None, "promoters.tsv of evaluate promoters.", "", "--promoter-table"
    ),
    loci: Path | None = option(None, None, "promoters.json of prepare promoters.", "", "--promoter-counts"),
    statistics: Path | None = option(None, None, "statistics.json of prepare token-stats."),
    groups: Path | None = option(None, None, "groups.tsv of auc-report."),
    tracks: Path | None = option(None, None, "tracks.tsv of auc-report.", "", "--auc-tracks"),
    variants: Path | None = option(None, None, "variants.tsv of evaluate variants."),
    calibration: Path | None = option(
        None, None, "calibration.tsv of evaluate promoters.", "", "--calibration-table"
    ),
    report: Path | None = option(None, None, "Where the report is; named in the last line."),
    output: Path | None = output(None, "FILE", "TSV of the same figures."),
) -> None:
    """Print the run's figures with their intervals as one table.

    Example: bigbird-dna report summary --promoter-table results/demo/report/promoters.tsv
    """


def report_run(
    config: Path = opt.CONFIG,
    files: list[Path] = argument(
        "Tables and figures of the other reports, known by their names: summary.tsv, roc.svg, …", "FILE..."
    ),
    output: Path = output(..., "FILE", "HTML page to write."),
    benchmarks: Path | None = option(
        None, "DIR", "Snakemake's benchmark files: what each step took.", "not shown"
    ),
) -> None:
    """Write the page of a whole run: one HTML file with its figures and tables.

    Example: bigbird-dna report run workflow/config/demo.yaml results/demo/report/summary.tsv
    results/demo/report/roc.svg -o report.html
    """
    from bigbird_dna.config import load_config
    from bigbird_dna.reporting.run_page import run_report

    check_output(output, [config, *files])
    opt.check_benchmarks(benchmarks)
    steps = sorted(benchmarks.glob("*.tsv")) if benchmarks is not None else []
    run_report(load_config(config), files, output, benchmarks=steps)
