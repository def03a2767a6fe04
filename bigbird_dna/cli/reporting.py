"""Commands that turn a run's files into tables, figures and a summary."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from bigbird_dna.cli.checks import named_files
from bigbird_dna.console import log
from bigbird_dna.errors import UsageError

if TYPE_CHECKING:
    from bigbird_dna.reporting.promoters.predictions import Comparison

FIGURE_OUT = typer.Option(..., "-o", "--output", help="Figure: .svg, .png or .pdf.")
DIRECTORY_OUT = typer.Option(..., "-o", "--output", help="Directory for the tables and figures.")


def register(app: typer.Typer) -> None:
    """Add this group's commands to the application."""
    app.command()(promoter_report)
    app.command()(pretraining_report)
    app.command()(loss_figure)
    app.command()(score_figure)
    app.command()(attention_figure)
    app.command()(summary)


def promoter_report(
    sets: list[str] = typer.Option(
        ...,
        "--set",
        metavar="NAME=FILE",
        help="Negative set and the model's predictions (Parquet).",
    ),
    baselines: list[str] = typer.Option(
        [], "--baseline", metavar="NAME=FILE", help="The k-mer baseline's predictions for a set."
    ),
    control: Path | None = typer.Option(
        None, metavar="FILE", help="Predictions of the model that was trained on shuffled labels."
    ),
    output: Path = DIRECTORY_OUT,
) -> None:
    """Compare promoter models with their baselines on the test windows.

    Writes promoters.tsv (AUROC with DeLong's interval, AUPRC, F1 and MCC at 0.5 with bootstrap intervals,
    and the AUROC lead over the k-mers), roc.svg, precision_recall.svg and score_histograms.svg.
    """
    from bigbird_dna.reporting.promoters.figures import (
        histogram_figure,
        precision_recall_figure,
        roc_figure,
    )
    from bigbird_dna.reporting.tables import promoter_table, write_tsv

    comparisons = _comparisons(_paths("--set", sets), _paths("--baseline", baselines), control)
    table = promoter_table(comparisons)
    write_tsv(output / "promoters.tsv", table)
    roc_figure(comparisons, table, output / "roc.svg")
    precision_recall_figure(comparisons, table, output / "precision_recall.svg")
    histogram_figure(comparisons, output / "score_histograms.svg")
    for row in table.itertuples():
        log(f"{row.negative_set}: {row.model} AUROC {row.auroc:.4f} on {row.n:,} test windows")


def pretraining_report(
    model_dir: Path = typer.Argument(help="Pretrained model: metrics.json and training.jsonl."),
    output: Path = DIRECTORY_OUT,
) -> None:
    """Draw pretraining's loss and its bits per base: loss.svg, bits_per_base.svg, bits_per_base.tsv."""
    from bigbird_dna.reporting import training_figures as figures
    from bigbird_dna.reporting.tables import bits_per_base_table, read_object, write_tsv
    from bigbird_dna.reporting.training_log import read_training_log

    metrics = model_dir / "metrics.json"
    table = bits_per_base_table(read_object(metrics), metrics)
    run = read_training_log(model_dir / "training.jsonl")
    figures.loss_figure({"pretraining": run}, output / "loss.svg")
    figures.bits_per_base_figure(table, output / "bits_per_base.svg")
    write_tsv(output / "bits_per_base.tsv", table)


def loss_figure(
    logs: list[str] = typer.Argument(metavar="LABEL=FILE...", help="Logs (training.jsonl)."),
    output: Path = FIGURE_OUT,
) -> None:
    """Draw the loss of one or more runs over their steps, with what was measured on held-out data."""
    from bigbird_dna.reporting import training_figures as figures
    from bigbird_dna.reporting.training_log import read_training_log

    runs = {label: read_training_log(path) for label, path in _paths("LABEL=FILE", logs).items()}
    figures.loss_figure(runs, output)


def score_figure(
    scores: Path = typer.Argument(help="Table of score-promoters."),
    output: Path = FIGURE_OUT,
    promoters: Path | None = typer.Option(
        None, help="Known TSSs to mark: the TSV of prepare-promoters."
    ),
    contig: str | None = typer.Option(None, help="[default: the table's first]"),
    start: int | None = typer.Option(None, min=0, help="First base, 0-based. [default: all]"),
    end: int | None = typer.Option(None, min=1, help="Base after the last. [default: all]"),
    upstream: int | None = typer.Option(
        None,
        min=0,
        metavar="BP",
        help="Bases before the TSS in the model's window: where a score is drawn. [default: half]",
    ),
) -> None:
    """Draw scores along a contig, both strands, with known transcription start sites."""
    from bigbird_dna.genome.promoters import read_loci
    from bigbird_dna.reporting.promoters import score_figure as figure
    from bigbird_dna.reporting.promoters.score_track import Tss, read_score_track

    if start is not None and end is not None and end <= start:
        raise UsageError(f"--end {end} is not above --start {start}")
    track = read_score_track(scores, contig, start, end, upstream)
    loci = read_loci(promoters) if promoters is not None else []
    sites = [Tss(locus.position, locus.strand) for locus in loci if locus.contig == track.contig]
    figure.score_figure(track, sites, output)


def attention_figure(
    source: Path = typer.Argument(
        metavar="CONFIG|MODEL_DIR", help="Configuration (YAML) or model directory that is drawn."
    ),
    output: Path = FIGURE_OUT,
    layer: int = typer.Option(0, min=0, help="Random blocks differ by layer and head."),
    heads: int = typer.Option(3, min=1, help="Draw this many heads."),
    tokens: int | None = typer.Option(
        None, min=1, help="Length of the input. [default: the encoder's longest]"
    ),
    matrix: Path | None = typer.Option(
        None,
        metavar="FILE.npy",
        help="Also write the graph of all heads: (heads, blocks, blocks) of 0 not seen, 1 global, "
        "2 window, 3 random.",
    ),
) -> None:
    """Draw which key blocks each query block attends to."""
    import numpy as np

    from bigbird_dna.attention.pattern import GLOBAL
    from bigbird_dna.config import load_config
    from bigbird_dna.files import atomic_path
    from bigbird_dna.model.directory import read_encoder_config
    from bigbird_dna.model.encoder import attention_pattern
    from bigbird_dna.reporting.attention_figure import save_attention_figure
    from bigbird_dna.reporting.style import check_format

    check_format(output)
    if matrix is not None and matrix.suffix != ".npy":
        raise UsageError(f"--matrix {matrix}: its name must end in .npy")
    encoder = read_encoder_config(source) if source.is_dir() else load_config(source).encoder
    if layer >= encoder.layers:
        raise UsageError(f"--layer {layer}: the encoder has layers 0 to {encoder.layers - 1}")
    tokens = tokens or encoder.positions
    pattern = attention_pattern(encoder)
    blocks = pattern.blocks(tokens + encoder.extra_globals)
    front = -(-encoder.extra_globals // encoder.block_size)  # blocks of extra globals
    kinds = np.full((encoder.heads, front + blocks, front + blocks), GLOBAL, dtype=np.int8)
    name = "Full attention"
    if encoder.attention != "full":
        name = "BigBird attention"
        kinds[:, front:, front:] = pattern.kinds(blocks, encoder.heads, layer)
    if matrix is not None:
        with atomic_path(matrix) as temporary, temporary.open("wb") as stream:
            np.save(stream, kinds)
    shown = kinds[:1] if encoder.attention == "full" else kinds[:heads]
    title = f"{name}, layer {layer}, {tokens:,} tokens"
    save_attention_figure(shown, output, block_size=encoder.block_size, title=title)


def summary(
    pretraining: Path | None = typer.Option(None, help="metrics.json of the pretrained model."),
    promoters: Path | None = typer.Option(None, help="promoters.tsv of promoter-report."),
    statistics: Path | None = typer.Option(None, help="statistics.json of tokenizer-statistics."),
    groups: Path | None = typer.Option(None, help="groups.tsv of auc-report."),
    tracks: Path | None = typer.Option(None, help="tracks.tsv of auc-report."),
    variants: Path | None = typer.Option(None, help="variants.tsv of variant-report."),
    report: Path | None = typer.Option(None, help="Where the report is; named in the last line."),
    output: Path | None = typer.Option(None, "-o", "--output", help="TSV of the same figures."),
) -> None:
    """Print the run's figures with their intervals as one table."""
    from bigbird_dna.reporting import chromatin_summary as chromatin
    from bigbird_dna.reporting import summary as page
    from bigbird_dna.reporting.tables import read_object, read_tsv, write_tsv

    rows: list[page.Row] = []
    if statistics is not None:
        rows += page.token_rows(read_object(statistics), statistics)
    if pretraining is not None:
        rows += page.pretraining_rows(read_object(pretraining), pretraining)
    if promoters is not None:
        rows += page.promoter_rows(read_tsv(promoters, page.PROMOTER_COLUMNS))
    if groups is not None:
        rows += chromatin.group_rows(read_tsv(groups, chromatin.GROUP_COLUMNS), groups)
    if tracks is not None:
        rows += chromatin.lead_rows(read_tsv(tracks, chromatin.TRACK_COLUMNS), tracks)
    if variants is not None:
        rows += chromatin.variant_rows(read_tsv(variants, chromatin.VARIANT_COLUMNS), variants)
    if not rows:
        raise UsageError("nothing to sum up: give --pretraining, --promoters, --groups or another")
    if output is not None:
        write_tsv(output, page.summary_table(rows))
    typer.echo(page.summary_text(rows, report))


def _comparisons(
    sets: dict[str, Path], baselines: dict[str, Path], control: Path | None
) -> "list[Comparison]":
    from bigbird_dna.reporting.promoters.predictions import (
        CONTROL,
        KMER,
        MODEL,
        compare,
        negative_set_of,
    )

    for name in baselines:
        if name not in sets:
            raise UsageError(f"--baseline {name}={baselines[name]}: there is no --set {name}=…")
    control_set = negative_set_of(control) if control is not None else None
    if control_set is not None and control_set not in sets:
        raise UsageError(f"--control {control}: there is no --set {control_set}=…")
    comparisons = []
    for name, path in sets.items():
        files = {MODEL: path}
        if name in baselines:
            files[KMER] = baselines[name]
        if control is not None and name == control_set:
            files[CONTROL] = control
        comparisons.append(compare(name, files))
    return comparisons


def _paths(option: str, values: Sequence[str]) -> dict[str, Path]:
    return {name: Path(path) for name, path in named_files(option, values).items()}
