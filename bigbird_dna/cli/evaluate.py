"""Commands that evaluate models on held-out data, and write tables, plots and the page of a run."""

from pathlib import Path
from typing import Annotated

import typer

from bigbird_dna.cli.options import (
    SHARE,
    BatchSize,
    Commands,
    Config,
    Device,
    Force,
    OutputDir,
    Overrides,
    Precision,
    RunBins,
    RunReference,
    Threads,
    WriteLabels,
    named_files,
    output_option,
    read_run,
)
from bigbird_dna.console import log
from bigbird_dna.errors import UsageError, check_choice

app = Commands(SHARE)
group = Commands(help="Evaluate models and baselines on held-out data.")
report = Commands(help="Write plots and the HTML report of a run.")

Promoters = Annotated[
    Path,
    typer.Option(
        metavar="TSV", help="Annotated TSSs, as written by prepare promoters."
    ),
]


@app.command(
    "auc-report",
    epilog="Example: bigbird-dna auc-report results/demo/chromatin/predictions-8000.npy "
    "results/demo/chromatin/held-out/labels.npz -o report",
)
def auc_report(
    predictions: Annotated[
        str,
        typer.Argument(
            metavar="PREDICTIONS",
            help="Scores in any range, rows × tracks: .npy, .npz, .h5, .parquet, .tsv or "
            ".csv (also .gz); FILE::NAME selects one array of a file. NaN is allowed "
            "where labels are missing.",
        ),
    ],
    labels: Annotated[
        str,
        typer.Argument(
            metavar="LABELS",
            help="Labels of the same rows and tracks: 0 or 1; -1 or NaN where not "
            "measured. Also labels.npz of a data set.",
        ),
    ],
    output: Annotated[
        Path,
        output_option("DIR", "Directory for the report; an existing one is replaced."),
    ],
    tracks: Annotated[
        Path | None,
        typer.Option(
            *("--track-table", "--tracks"),
            metavar="FILE",
            help="Table of tracks, in column order, with the columns track and group.",
            show_default="names of the columns, one group",
        ),
    ] = None,
    compare: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=FILE",
            help="Scores of another predictor, such as a baseline; repeatable.",
        ),
    ] = None,
    min_positives: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="Exclude tracks with fewer positives from group medians.",
            min=1,
        ),
    ] = 1,
    bins: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Positions of the rows, such as bins.parquet of a data set, for "
            "intervals over blocks of sequence.",
            show_default="columns contig and start of LABELS, if any",
        ),
    ] = None,
    threads: Threads = None,
    force: Force = False,
) -> None:
    """Report AUROC with confidence interval and AUPRC of each track, and medians per group of tracks.

    Writes tracks.tsv, groups.tsv and report.html. Tracks with only one class are excluded and listed. Intervals are over blocks of 10 kb of sequence; over
    rows (DeLong) if the positions of the rows are unknown.
    """
    from bigbird_dna.disk.outputs import command_line
    from bigbird_dna.reporting.tracks import auc_report

    others = named_files("--compare", compare)
    options: dict[str, object] = {
        "--tracks": tracks,
        "--compare": compare,
        "--min-positives": min_positives,
        "--bins": bins,
    }
    log(f"{predictions}: evaluating all tracks; results will be written to {output}")
    result = auc_report(
        predictions,
        labels,
        output,
        tracks=tracks,
        compare={name: str(path) for name, path in others.items()},
        min_positives=min_positives,
        threads=threads or 0,
        command=command_line("auc-report", [predictions, labels], options),
        bins=bins,
    )
    for row in result.groups.to_dict("records"):
        log(
            f"{row['group']}: median AUROC {row['median_auroc']:.4f}, AUPRC "
            f"{row['median_auprc']:.4f} of {row['tracks']:,} tracks; {row['n_excluded']:,} excluded"
        )


@group.command(
    "pretraining",
    epilog="Example: bigbird-dna evaluate pretraining results/demo/models/pretrained "
    "--tokens results/demo/tokens -o bits_per_base.tsv",
)
def evaluate_pretraining(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL_DIR", help="Pretrained model.")
    ],
    tokens: Annotated[
        Path,
        typer.Option(
            metavar="DIR",
            help="Token stores of its tokenizer, as written by prepare tokens.",
        ),
    ],
    output: Annotated[Path, output_option("FILE", "Table to write (TSV).")],
    sequences: Annotated[
        int,
        typer.Option(
            metavar="N", help="Maximum number of inputs to evaluate per split.", min=1
        ),
    ] = 1000,
    sequence_tokens: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Number of tokens per input.",
            show_default="512, or the model's maximum",
            min=16,
        ),
    ] = None,
    model_only: Annotated[
        bool,
        typer.Option("--model-only", help="Evaluate the model without baselines."),
    ] = False,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Evaluate a pretrained model and baselines on the same masked tokens of held-out contigs.

    Writes bits per base with 95 % intervals over 10-kb blocks, and differences between model and baselines.
    Baselines are an n-gram over tokens and a Markov model over bases, with context on both sides, fitted to
    the training tokens and selected on the validation contigs.
    """
    from bigbird_dna.disk.outputs import check_output
    from bigbird_dna.model.inference import cpu_threads
    from bigbird_dna.pretraining.evaluation import evaluate_pretraining

    check_output(output, [model, tokens])
    with cpu_threads(threads):
        evaluate_pretraining(
            model,
            tokens,
            output,
            sequences=sequences,
            sequence_tokens=sequence_tokens,
            alone=model_only,
            device=device,
        )


@group.command(
    "promoters",
    epilog="Example: bigbird-dna evaluate promoters --predictions "
    "genomic=results/demo/models/promoter-genomic/predictions.parquet -o report",
)
def evaluate_promoters(
    output: OutputDir,
    predictions: Annotated[
        list[str],
        typer.Option(
            metavar="SET=FILE",
            help="Model predictions (Parquet) for negative set SET; repeatable.",
        ),
    ],
    baselines: Annotated[
        list[str] | None,
        typer.Option(
            "--promoter-baseline",
            metavar="SET[/NAME]=FILE",
            help="Predictions of baseline NAME (k-mer, position or composition) "
            "on negative set SET; repeatable.",
            show_default="NAME: k-mer",
        ),
    ] = None,
    control: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Predictions of a model trained on shuffled labels."
        ),
    ] = None,
) -> None:
    """Compare promoter models with their baselines on the test windows.

    Writes promoters.tsv: AUROC and AUPRC with confidence intervals over blocks of 10 kb of sequence, joined
    where windows are similar (column homology), F1 and MCC at 0.5, and AUROC differences to each baseline. Also
    writes calibration.tsv, before and after calibration if calibration.json is next to the predictions, and
    figures for report run (roc, precision_recall and calibration, .plotly.json).
    """
    from bigbird_dna.data.predictions import KMER, PROMOTER_BASELINES
    from bigbird_dna.reporting.promoters import promoter_report

    sets: dict[str, dict[str, Path]] = {}
    for name, path in named_files("--promoter-baseline", baselines).items():
        negative_set, _, baseline = name.partition("/")
        baseline = baseline or KMER
        check_choice(
            f"--promoter-baseline {name}: baseline",
            baseline,
            PROMOTER_BASELINES,
        )
        if baseline in sets.setdefault(negative_set, {}):
            raise UsageError(
                f"--promoter-baseline: {baseline!r} of {negative_set!r} is given twice"
            )

        sets[negative_set][baseline] = path

    table = promoter_report(
        named_files("--predictions", predictions),
        output,
        baselines=sets,
        control=control,
    )
    for negative_set, found in sets.items():
        if missing := [name for name in PROMOTER_BASELINES if name not in found]:
            log(
                f"{negative_set}: compared without the baselines {', '.join(missing)} "
                "(--promoter-baseline)"
            )

    for row in table.itertuples():
        log(
            f"{row.negative_set}: {row.model} AUROC {row.auroc:.4f} on {row.n:,} test "
            "windows"
        )


@group.command(
    "test-bins",
    epilog="Example: bigbird-dna evaluate test-bins workflow/config/demo.yaml "
    "results/demo/models/chromatin-8000-0 -o predictions.npy",
)
def predict_test_bins(
    config: Config,
    models: Annotated[
        list[Path],
        typer.Argument(
            metavar="MODEL_DIR...",
            help="Chromatin models, whose probabilities are averaged.",
        ),
    ],
    output: Annotated[
        Path, output_option("FILE", "Probabilities to write, bins × tracks (.npy).")
    ],
    overrides: Overrides = None,
    data: RunBins = None,
    reference: RunReference = None,
    labels: WriteLabels = None,
    network: Annotated[
        Path | None,
        typer.Option(
            "--write-network",
            metavar="FILE",
            help="Also write predictions without the regressions of ensembles.",
        ),
    ] = None,
    precision: Precision = "auto",
    batch_size: BatchSize = 16,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Predict the test bins of the data set, for comparison with their labels by auc-report."""
    from bigbird_dna.finetuning.evaluation import evaluate_models
    from bigbird_dna.model.inference import cpu_threads

    run, paths = read_run(config, overrides)
    with cpu_threads(threads):
        evaluate_models(
            models,
            run.chromatin.evaluation,
            data=data or paths.chromatin_data,
            reference=reference or paths.reference,
            output=output,
            labels=labels,
            network=network,
            precision=precision,
            batch_size=batch_size,
            device=device,
        )


@group.command(
    "scan",
    epilog="Example: bigbird-dna evaluate scan "
    "--scores model=results/demo/scores/promoters.tsv "
    "--promoters results/demo/genome/promoters.tsv -o report",
)
def evaluate_scan(
    scores: Annotated[
        list[str],
        typer.Option(
            metavar="NAME=FILE",
            help="Table of score-promoters by predictor NAME; repeatable.",
        ),
    ],
    promoters: Promoters,
    output: OutputDir,
    within: Annotated[
        list[int] | None,
        typer.Option(
            metavar="BP",
            help="Largest distance of a correct call to its TSS; repeatable.",
            show_default="10, 50, 100 and 500",
            min=0,
        ),
    ] = None,
    other_promoters: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Further TSSs, such as those of CAGE, in the format of --promoters: calls near these only are "
            "counted separately.",
        ),
    ] = None,
    suppress: Annotated[
        int,
        typer.Option(
            metavar="BP", help="Calls of a strand are farther apart than this.", min=0
        ),
    ] = 100,
) -> None:
    """Evaluate a scan of whole contigs: calls against annotated transcription start sites (TSSs).

    On each strand, the highest score is a call and silences scores near it; then the next. A call is correct
    if a TSS of its strand that no better call took is within a distance. Writes scan.tsv and a figure:
    average precision, recall at precisions of 0.5 and 0.8 and the median distance of correct calls, with
    confidence intervals over blocks of 10 kb.
    """
    from bigbird_dna.calibration.calls import DISTANCES
    from bigbird_dna.reporting.scan import scan_report

    table = scan_report(
        named_files("--scores", scores),
        promoters,
        output,
        within=within or DISTANCES,
        suppress=suppress,
        others=other_promoters,
    )
    for row in table.to_dict("records"):
        result = "no annotated TSS on the scanned sequence"
        if row["tss"]:
            result = (
                f"average precision {row['average_precision']:.3f}, recall "
                f"{row['recall_at_precision_0.5']:.3f} at a precision of 0.5, median "
                f"distance of correct calls {row['median_distance']:.0f} bp"
            )
            if other_promoters is not None:
                result += (
                    f"; precision of {row['best_calls']:,} calls {row['best_precision']:.3f}, or "
                    f"{row['precision_with_others']:.3f} with the {row['other_calls']:,} near other TSSs only"
                )

        log(f"{row['predictor']}, within {row['within']:,} bp: {result}")


@group.command(
    "variants",
    epilog="Example: bigbird-dna evaluate variants "
    "results/demo/chromatin/variants.vcf.gz -o report",
)
def evaluate_variants(
    scored: Annotated[
        Path,
        typer.Argument(
            metavar="SCORED",
            help="VCF written by score-variants with --tracks '*', with the known "
            "effects in INFO: EFFECT, TRACK and, optionally, CATEGORY.",
        ),
    ],
    output: OutputDir,
    compare: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=FILE",
            help="The same variants scored by another predictor, such as kmers; "
            "repeatable.",
        ),
    ] = None,
    track: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Track affected by all variants; replaces TRACK of INFO.",
        ),
    ] = None,
) -> None:
    """Evaluate predicted variant effects against known effects (AUROC of |Δ|, sign accuracy).

    Writes a figure and variants.tsv: AUROC of the absolute probability change on the affected track, with
    confidence interval, and the fraction of correct signs; for all variants, by category and by track. EFFECT is none, gain, loss, or another word for an effect of unknown direction.
    Alleles without a score or with unknown effect are counted and excluded. With --compare, writes
    compared_variants.tsv: the metrics of other predictors, and AUROC differences.
    """
    from bigbird_dna.reporting.variants import variant_report

    variant_report(
        scored, output, compare=named_files("--compare", compare), track=track
    )


@report.command(
    "run",
    epilog="Example: bigbird-dna report run results/demo",
)
def report_run(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="RUN_DIR", help="Directory of a run, such as results/demo."
        ),
    ],
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Configuration of the run.",
            show_default="config/report.yaml in RUN_DIR",
        ),
    ] = None,
) -> None:
    """Write the report of a run from the files of its evaluations, and print its main results.

    Writes into RUN_DIR: report.html, with all plots and tables; report/summary.tsv and summary.txt, the
    metrics with 95 % intervals; and the figures of losses and bits per base of the trainings.
    """
    from bigbird_dna.reporting.run_page import report_run

    typer.echo(report_run(run, config), nl=False)


@report.command(
    "plot-scores",
    epilog="Example: bigbird-dna report plot-scores scores.tsv "
    "--promoters promoters.tsv --calls calls.bed -o scores.svg",
)
def plot_scores(
    scores: Annotated[
        Path, typer.Argument(metavar="SCORES", help="Table of score-promoters.")
    ],
    output: Annotated[
        Path, output_option("FILE", "Plot to write: .svg, .png or .pdf.")
    ],
    promoters: Annotated[
        Path | None,
        typer.Option(
            metavar="TSV", help="Known TSSs to mark: the TSV of prepare promoters."
        ),
    ] = None,
    annotation: Annotated[
        Path | None,
        typer.Option(
            metavar="GFF3|GTF", help="Genes to draw; contigs named as in the scores."
        ),
    ] = None,
    calls: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Calls to draw: the BED or TSV of call-promoters.",
        ),
    ] = None,
    contig: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Contig to plot.",
            show_default="the first of the table",
        ),
    ] = None,
    start: Annotated[
        int | None,
        typer.Option(
            metavar="BP",
            help="Start of the region, 0-based.",
            show_default="the first score",
            min=0,
        ),
    ] = None,
    end: Annotated[
        int | None,
        typer.Option(
            metavar="BP",
            help="End of the region, exclusive.",
            show_default="20,000 bp from its start",
            min=1,
        ),
    ] = None,
) -> None:
    """Plot scores along a contig, on both strands, with genes, known transcription start sites and calls.

    A score is plotted at the position of its TSS (column tss), not at the center of its window. Calls are
    arrow heads at their expected precision.
    """
    from bigbird_dna.genome.annotation import read_genes
    from bigbird_dna.genome.promoters import read_loci
    from bigbird_dna.reporting.score_track import plot_scores

    if start is not None and end is not None and end <= start:
        raise UsageError(f"--end {end} must be greater than --start {start}")

    plot_scores(
        scores,
        output,
        sites=[] if promoters is None else read_loci(promoters),
        genes=[] if annotation is None else read_genes(annotation),
        calls=calls,
        contig=contig,
        start=start,
        end=end,
    )
