"""Commands that show a run: single figures, the summary and the page; they read a run's files."""

from pathlib import Path
from typing import Annotated

import typer

from bigbird_dna.cli.options import (
    TRACK_TABLE,
    Config,
    argument,
    check_benchmarks,
    named_files,
    option,
    output,
)
from bigbird_dna.disk.atomic import write_array
from bigbird_dna.disk.outputs import check_output
from bigbird_dna.errors import UsageError

Figure = Annotated[Path, output("FILE", "Figure: .svg, .png or .pdf.")]


def draw_loss(
    logs: Annotated[list[str], argument("Logs (training.jsonl).", "LABEL=FILE...")], output: Figure
) -> None:
    """Draw the loss of one or more runs over their steps, with what was measured on held-out data."""
    from bigbird_dna.reporting.training_log import loss_figure, read_training_log

    named = named_files("LABEL=FILE", logs)
    loss_figure({label: read_training_log(path) for label, path in named.items()}, output)


def draw_scores(
    scores: Annotated[Path, argument("Table of score-promoters.")],
    output: Figure,
    promoters: Annotated[
        Path | None, option(None, "Known TSSs to mark: the TSV of prepare promoters.")
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
    from bigbird_dna.reporting.score_track import read_score_track, score_figure

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
        int | None,
        option(None, "Length of the input.", "the encoder's longest, of weights at most 256", least=1),
    ] = None,
    matrix: Annotated[
        Path | None,
        option(
            "FILE.npy",
            "Also write what is drawn, of all heads: (heads, blocks, blocks) of 0 not seen, 1 global, "
            "2 window, 3 random; or (heads, tokens, tokens) of weights.",
        ),
    ] = None,
) -> None:
    """Draw which key blocks each query block attends to; of other mechanisms the weights, token by token.

    These are of random queries and keys, and of weights as before training.
    """
    from bigbird_dna.config import load_config
    from bigbird_dna.config.mechanisms import OF_PATTERNS
    from bigbird_dna.model.directory import read_encoder_config
    from bigbird_dna.model.graph import attention_graph, attention_weights
    from bigbird_dna.reporting.attention import save_attention_figure, save_weights_figure
    from bigbird_dna.reporting.style import check_format

    check_format(output)
    if matrix is not None and matrix.suffix != ".npy":
        raise UsageError(f"--matrix {matrix}: its name must end in .npy")
    encoder = read_encoder_config(source) if source.is_dir() else load_config(source).encoder
    if encoder.attention not in OF_PATTERNS:
        found = attention_weights(encoder, layer, tokens)
        if matrix is not None:
            write_array(matrix, found.weights)
        save_weights_figure(found.weights[:heads], output, title=found.title)
        return
    graph = attention_graph(encoder, layer, tokens)
    if matrix is not None:
        write_array(matrix, graph.kinds)
    # Under full attention all heads are alike.
    shown = graph.kinds[: 1 if encoder.attention == "full" else heads]
    save_attention_figure(shown, output, block_size=encoder.block_size, title=graph.title)


def summarize(
    pretraining: Annotated[Path | None, option(None, "metrics.json of the pretrained model.")] = None,
    bits: Annotated[
        Path | None, option("TSV", "Table of evaluate pretraining.", "", "--bits-per-base")
    ] = None,
    promoters: Annotated[Path | None, option(None, "promoters.tsv of evaluate promoters.")] = None,
    promoter_counts: Annotated[Path | None, option(None, "promoters.json of prepare promoters.")] = None,
    statistics: Annotated[Path | None, option(None, "statistics.json of prepare token-stats.")] = None,
    groups: Annotated[Path | None, option(None, "groups.tsv of auc-report.")] = None,
    tracks: Annotated[Path | None, option(None, "tracks.tsv of auc-report.", "", *TRACK_TABLE)] = None,
    variants: Annotated[Path | None, option(None, "variants.tsv of evaluate variants.")] = None,
    calibration: Annotated[
        Path | None, option(None, "calibration.tsv of evaluate promoters.", "", "--calibration")
    ] = None,
    report: Annotated[Path | None, option(None, "Where the report is; named in the last line.")] = None,
    output: Annotated[Path | None, output("FILE", "TSV of the same figures.")] = None,
) -> None:
    """Print the run's figures with their intervals as one table."""
    from bigbird_dna.reporting.summary import summarize

    text = summarize(
        loci=promoter_counts,
        statistics=statistics,
        pretraining=pretraining,
        bits=bits,
        promoters=promoters,
        groups=groups,
        tracks=tracks,
        variants=variants,
        calibration=calibration,
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
    from bigbird_dna.reporting.run_page import run_report

    check_output(output, [config, *files])
    check_benchmarks(benchmarks)
    steps = sorted(benchmarks.glob("*.tsv")) if benchmarks is not None else []
    run_report(load_config(config), files, output, benchmarks=steps)
