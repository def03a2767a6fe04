"""Commands that look at results: reports, figures and the summary; they read a run's files."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bigbird_dna.cli.naming import LOOK, add_command
from bigbird_dna.cli.options import (
    TRACK_TABLE,
    Config,
    Directory,
    Threads,
    argument,
    check_benchmarks,
    named_files,
    option,
    output,
)
from bigbird_dna.console import log
from bigbird_dna.errors import UsageError
from bigbird_dna.files import write_array
from bigbird_dna.outputs import check_output, command_line

if TYPE_CHECKING:  # slow to import: inside the commands
    from bigbird_dna.reporting.variants.report import VariantReport

Arrays = Annotated[
    str,
    argument(
        "Scores of any range, rows × tracks: .npy, .npz, .h5, .parquet, .tsv[.gz] or .csv[.gz]; FILE::NAME "
        "for one array of several."
    ),
]
Labels = Annotated[
    str,
    argument(
        "The same rows and tracks; 0 or 1, -1 or NaN where not measured. Also labels.npz of a data set."
    ),
]
Figure = Annotated[Path, output("FILE", "Figure: .svg, .png or .pdf.")]


def register(app: typer.Typer) -> None:
    """Add this group's commands to the application."""
    add_command(app, auc_report, LOOK)
    add_command(app, report_promoters, LOOK, formerly="promoter-report")
    add_command(app, report_variants, LOOK, formerly="variant-report")
    add_command(app, report_pretraining, LOOK, formerly="pretraining-report")
    add_command(app, draw_loss, LOOK, formerly="loss-figure")
    add_command(app, draw_scores, LOOK, formerly="score-figure")
    add_command(app, draw_attention, LOOK, formerly="attention-figure")
    add_command(app, summarize, LOOK, formerly="summary")
    add_command(app, report_run, LOOK)


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
    threads: Threads = None,
) -> None:
    """AUROC with DeLong's interval and AUPRC of each track, medians by group, and a page to look at.

    Writes tracks.tsv, groups.tsv and report.html. Tracks with one class only are left out and listed.
    """
    from bigbird_dna.reporting.tracks import report

    others = named_files("--compare", compare or ())
    options: dict[str, object] = {"--tracks": tracks, "--published": published, "--compare": compare}
    options |= {"--min-positives": min_positives, "--title": title}
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
    control: Annotated[
        Path | None, option("FILE", "Predictions of the model that was trained on shuffled labels.")
    ] = None,
    sets: Annotated[list[str] | None, typer.Option("--set", hidden=True)] = None,
) -> None:
    """Compare promoter models with their baselines on the test windows.

    Writes promoters.tsv (AUROC with DeLong's interval, AUPRC, F1 and MCC at 0.5 with bootstrap intervals,
    and the AUROC lead over the k-mers), roc.svg, precision_recall.svg and score_histograms.svg.
    """
    from bigbird_dna.reporting.promoters.table import promoter_report

    if sets:
        log("--set is called --predictions here; version 0.2 will not know the old name")
    given = [*(predictions or ()), *(sets or ())]
    if not given:
        raise UsageError("--predictions NAME=FILE: name the predictions of one negative set at least")
    table = promoter_report(
        named_files("--predictions", given),
        output,
        baselines=named_files("--baseline", baselines or ()),
        control=control,
    )
    for row in table.itertuples():
        log(f"{row.negative_set}: {row.model} AUROC {row.auroc:.4f} on {row.n:,} test windows")


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
    place_field: Annotated[str, option("KEY", "INFO key of the kind of variant; may be missing.")] = "PLACE",
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
    from bigbird_dna.reporting.variants.reading import Fields
    from bigbird_dna.reporting.variants.report import variant_report

    made = variant_report(
        scored,
        output,
        truth=truth,
        fields=Fields(effect_field, track_field, place_field),
        track=track,
        no_effect=no_effect,
        held_out=held_out or [],
    )
    _say(made, held_out or [])


def _say(made: "VariantReport", held_out: Sequence[str]) -> None:
    from bigbird_dna.reporting.style import interval
    from bigbird_dna.reporting.variants.table import ALL, HELD_OUT

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
    bits: Annotated[Path, option("TSV", "Table of evaluate-pretraining.", "", "--bits-per-base")],
    output: Directory,
) -> None:
    """Draw a pretraining: its loss, and its bits per base beside those of simpler predictors.

    Writes loss.svg, bits_per_base.svg and .tsv, and held_out.svg, the bits per base over training.
    """
    from bigbird_dna.reporting.language_model.report import pretraining_report

    pretraining_report(model_dir, bits, output)


def draw_loss(
    logs: Annotated[list[str], argument("Logs (training.jsonl).", "LABEL=FILE...")], output: Figure
) -> None:
    """Draw the loss of one or more runs over their steps, with what was measured on held-out data."""
    from bigbird_dna.reporting.training_figures import loss_figure
    from bigbird_dna.reporting.training_log import read_training_log

    named = named_files("LABEL=FILE", logs)
    loss_figure({label: read_training_log(path) for label, path in named.items()}, output)


def draw_scores(
    scores: Annotated[Path, argument("Table of score-promoters.")],
    output: Figure,
    promoters: Annotated[
        Path | None, option(None, "Known TSSs to mark: the TSV of prepare-promoters.")
    ] = None,
    contig: Annotated[str | None, option(None, "What is drawn.", "the table's first")] = None,
    start: Annotated[int | None, option(None, "First base, 0-based.", "all", least=0)] = None,
    end: Annotated[int | None, option(None, "Base after the last.", "all", least=1)] = None,
    upstream: Annotated[
        int | None,
        option("BP", "Bases before the TSS in the model's window: where a score is drawn.", "half", least=0),
    ] = None,
) -> None:
    """Draw scores along a contig, both strands, with known transcription start sites."""
    from bigbird_dna.genome.promoters import read_loci
    from bigbird_dna.reporting.promoters.score_figure import score_figure
    from bigbird_dna.reporting.promoters.score_track import read_score_track

    if start is not None and end is not None and end <= start:
        raise UsageError(f"--end {end} is not above --start {start}")
    track = read_score_track(scores, contig, start, end, upstream)
    score_figure(track, read_loci(promoters) if promoters is not None else [], output)


def draw_attention(
    source: Annotated[
        Path, argument("Configuration (YAML) or model directory that is drawn.", "CONFIG|MODEL_DIR")
    ],
    output: Figure,
    layer: Annotated[int, option(None, "Random blocks differ by layer and head.", least=0)] = 0,
    heads: Annotated[int, option(None, "Draw this many heads.", least=1)] = 3,
    tokens: Annotated[
        int | None, option(None, "Length of the input.", "the encoder's longest", least=1)
    ] = None,
    matrix: Annotated[
        Path | None,
        option(
            "FILE.npy",
            "Also write the graph of all heads: (heads, blocks, blocks) of 0 not seen, 1 global, "
            "2 window, 3 random.",
        ),
    ] = None,
) -> None:
    """Draw which key blocks each query block attends to."""
    from bigbird_dna.config import load_config
    from bigbird_dna.model.directory import read_encoder_config
    from bigbird_dna.model.graph import attention_graph
    from bigbird_dna.reporting.attention_figure import save_attention_figure
    from bigbird_dna.reporting.style import check_format

    check_format(output)
    if matrix is not None and matrix.suffix != ".npy":
        raise UsageError(f"--matrix {matrix}: its name must end in .npy")
    encoder = read_encoder_config(source) if source.is_dir() else load_config(source).encoder
    graph = attention_graph(encoder, layer, tokens)
    if matrix is not None:
        write_array(matrix, graph.kinds)
    # Under full attention all heads are alike.
    shown = graph.kinds[: 1 if encoder.attention == "full" else heads]
    save_attention_figure(shown, output, block_size=encoder.block_size, title=graph.title)


def summarize(
    pretraining: Annotated[Path | None, option(None, "metrics.json of the pretrained model.")] = None,
    bits: Annotated[
        Path | None, option("TSV", "Table of evaluate-pretraining.", "", "--bits-per-base")
    ] = None,
    promoters: Annotated[Path | None, option(None, "promoters.tsv of report-promoters.")] = None,
    loci: Annotated[Path | None, option(None, "promoters.json of prepare-promoters.")] = None,
    statistics: Annotated[Path | None, option(None, "statistics.json of describe-tokens.")] = None,
    groups: Annotated[Path | None, option(None, "groups.tsv of auc-report.")] = None,
    tracks: Annotated[Path | None, option(None, "tracks.tsv of auc-report.", "", *TRACK_TABLE)] = None,
    variants: Annotated[Path | None, option(None, "variants.tsv of report-variants.")] = None,
    report: Annotated[Path | None, option(None, "Where the report is; named in the last line.")] = None,
    output: Annotated[Path | None, output("FILE", "TSV of the same figures.")] = None,
) -> None:
    """Print the run's figures with their intervals as one table."""
    from bigbird_dna.reporting.summary import summarise

    text = summarise(
        loci=loci,
        statistics=statistics,
        pretraining=pretraining,
        bits=bits,
        promoters=promoters,
        groups=groups,
        tracks=tracks,
        variants=variants,
        report=report,
        output=output,
    )
    typer.echo(text)


def report_run(
    config: Config,
    files: Annotated[
        list[Path],
        argument(
            "Tables and figures of the other reports, known by their names: summary.tsv, roc.svg, …",
            "FILE...",
        ),
    ],
    output: Annotated[Path, output("FILE", "HTML page to write.")],
    benchmarks: Annotated[
        Path | None, option("DIR", "Snakemake's benchmark files: what each step took.", "not shown")
    ] = None,
) -> None:
    """Write the page of a whole run: one HTML file with its figures and tables."""
    from bigbird_dna.config import load_config
    from bigbird_dna.reporting.run.page import run_report

    check_output(output, [config, *files])
    check_benchmarks(benchmarks)
    steps = sorted(benchmarks.glob("*.tsv")) if benchmarks is not None else []
    run_report(load_config(config), files, output, benchmarks=steps)
