"""Commands that apply a trained model: score sequences, regions and variants, and explain scores."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from bigbird_dna.cli.options import (
    PREDICT,
    Aliases,
    BatchSize,
    Calibrated,
    Commands,
    Contigs,
    Device,
    FastaInput,
    MaxN,
    ModelDir,
    OptionalReference,
    OutputDir,
    Precision,
    Reference,
    Regions,
    ResultFile,
    SequenceColumn,
    Threads,
    Tracks,
    output_option,
)
from bigbird_dna.console import log

app = Commands(PREDICT)

Strand = Literal["both", "+", "-"]


@app.command(
    "score-promoters",
    epilog="Example: bigbird-dna score-promoters yeast-promoters genome.fa.gz "
    "-o scores.bed",
)
def score_promoters(
    model: ModelDir,
    fasta: FastaInput,
    output: ResultFile = None,
    format: Annotated[
        Literal["tsv", "bed", "bedgraph", "bigwig", "parquet"] | None,
        typer.Option(help="Output format.", show_default="by -o, or tsv"),
    ] = None,
    stride: Annotated[
        int | None,
        typer.Option(
            metavar="BP",
            help="Length of the intervals of a model of start sites, of which each row "
            "has the highest score; distance of a promoter model's windows.",
            show_default="10",
            min=1,
        ),
    ] = None,
    strand: Annotated[Strand, typer.Option(help="Strands to score.")] = "both",
    contigs: Contigs = None,
    regions: Regions = None,
    per_record: Annotated[
        bool,
        typer.Option(
            "--per-record", help="Write one row per record: that of its highest score."
        ),
    ] = False,
    max_n: MaxN = 0.25,
    calibrated: Calibrated = False,
    precision: Precision = "auto",
    batch_size: BatchSize = 32,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Predict promoter scores along every record of a FASTA file, on both strands.

    Table columns: contig start end name score strand note tss; coordinates are 0-based and half-open. A score
    is the probability that a promoter has its TSS at the position tss, on the strand. A model of start sites
    scores every base, and a row has the highest score of an interval; other models score windows. bedGraph
    and bigWig contain the larger score of both strands at each position. Records shorter than 60 bp, or than
    the window of other models, are listed without a score. With --regions, tables contain the rows that
    overlap a region, and bedGraph and bigWig only the signal inside the regions.
    """
    from bigbird_dna.scoring.promoters import score_promoters

    counts = score_promoters(
        model,
        fasta,
        output,
        format=format,
        stride=stride,
        strand=strand,
        contigs=contigs or (),
        regions=regions,
        per_record=per_record,
        max_n=max_n,
        calibrated=calibrated,
        precision=precision,
        batch_size=batch_size,
        device=device,
        threads=threads,
    )
    log(
        f"{counts.scored:,} scores along {counts.records:,} records; "
        f"{counts.not_scored:,} not scored (see their notes)"
    )


@app.command(
    "call-promoters",
    epilog="Example: bigbird-dna call-promoters models/promoter-calls genome.fa.gz "
    "-o calls.bed",
)
def call_promoters(
    model: ModelDir,
    fasta: FastaInput,
    output: ResultFile = None,
    format: Annotated[
        Literal["bed", "tsv", "parquet"] | None,
        typer.Option(help="Output format.", show_default="by -o, or bed"),
    ] = None,
    fdr: Annotated[
        float | None,
        typer.Option(
            metavar="RATE",
            help="Largest expected fraction of false calls; 1: all calls.",
            show_default="that of the largest F1 on the validation contigs",
        ),
    ] = None,
    strand: Annotated[Strand, typer.Option(help="Strands to scan.")] = "both",
    contigs: Contigs = None,
    max_n: MaxN = 0.25,
    precision: Precision = "auto",
    batch_size: BatchSize = 32,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Call promoters along every record of a FASTA file: the TSS, its strand, and its expected precision.

    On each strand, the highest score is a call and silences scores near it; then the highest that is left.
    Expected precision is the probability that an annotated TSS is near, fitted to validation contigs by model
    calibrate. BED columns: #contig start end name score strand probability note precision_low precision_high
    model_score. The score is 1,000 times the expected precision (probability); low and high are its 95 %
    interval; model_score is the model's score. Calls are one base long.
    """
    from bigbird_dna.scoring.calls import call_promoters

    counts = call_promoters(
        model,
        fasta,
        output,
        format=format,
        fdr=fdr,
        strand=strand,
        contigs=contigs or (),
        max_n=max_n,
        precision=precision,
        batch_size=batch_size,
        device=device,
        threads=threads,
    )
    log(
        f"{counts.calls:,} calls from {counts.scored:,} scores along "
        f"{counts.records:,} records"
    )


@app.command(
    "score-sequences",
    epilog="Example: bigbird-dna score-sequences model sequences.csv -o scores.tsv",
)
def score_sequences(
    model: ModelDir,
    sequences: Annotated[
        Path,
        typer.Argument(
            metavar="SEQUENCES",
            help="FASTA file, or table (CSV, TSV, Parquet) with a column of sequences; "
            "each also .gz. - reads FASTA from standard input.",
        ),
    ],
    output: ResultFile = None,
    format: Annotated[
        Literal["tsv", "parquet"] | None,
        typer.Option(help="Output format.", show_default="by -o, or tsv"),
    ] = None,
    sequence_column: SequenceColumn = "sequence",
    pad: Annotated[
        bool,
        typer.Option(
            "--pad",
            help="Accept other lengths than the model's: add N on both sides, or crop.",
        ),
    ] = False,
    max_n: MaxN = 0.25,
    precision: Precision = "auto",
    batch_size: BatchSize = 32,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Predict the labels of sequences with a model of finetune-sequences, in the order of the file.

    Table columns: #name, for several classes the most probable class, note, and then the score (probability)
    of a binary label, or one column per class or label. A sequence that cannot be scored has NA, and a note
    with the reason: other_length, too_many_n, empty, or invalid_letter (not DNA). The note truncated means
    that a sequence has more tokens than the model's maximum: the network has read the central ones.
    """
    from bigbird_dna.scoring.sequences import score_sequences

    counts = score_sequences(
        model,
        sequences,
        output,
        format=format,
        sequence_column=sequence_column,
        pad=pad,
        max_n=max_n,
        precision=precision,
        batch_size=batch_size,
        device=device,
        threads=threads,
    )
    log(
        f"{counts.sequences:,} sequences; {counts.not_scored:,} not scored; "
        f"{counts.truncated:,} scored by their central tokens"
    )


@app.command(
    "embed",
    epilog="Example: bigbird-dna embed yeast promoters.fa -o promoters.parquet",
)
def embed(
    model: ModelDir,
    sequences: Annotated[
        Path,
        typer.Argument(
            metavar="SEQUENCES",
            help="FASTA file, or table (CSV, TSV, Parquet) with a column of sequences, "
            "or BED file of regions; each also .gz. - reads FASTA, or BED, from "
            "standard input.",
        ),
    ],
    output: Annotated[
        Path,
        output_option("FILE", "Parquet file, written atomically."),
    ],
    reference: OptionalReference = None,
    aliases: Aliases = None,
    sequence_column: SequenceColumn = "sequence",
    layer: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Layer of the model: 0 is the input of the first layer.",
            show_default="the last",
        ),
    ] = None,
    pool: Annotated[
        Literal["mean", "cls", "token", "base"],
        typer.Option(
            help="One vector per sequence: the mean over the tokens, or that of "
            "the first (cls). Or one per token or base."
        ),
    ] = "mean",
    precision: Precision = "auto",
    batch_size: BatchSize = 32,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Write the model's embeddings of sequences or regions, in the order of the file.

    Parquet has the columns name, note and embedding; regions have contig, start, end, name and strand. With --pool token or base, each sequence has several rows, with
    token_start and token_end, or position, counted from 0.
    Regions on strand - are read as the reverse complement. A sequence with too many tokens is embedded by its
    central ones, with the note truncated.
    """
    from bigbird_dna.scoring.embeddings import embed

    counts = embed(
        model,
        sequences,
        output,
        reference=reference,
        aliases=aliases,
        sequence_column=sequence_column,
        pool=pool,
        layer=layer,
        precision=precision,
        batch_size=batch_size,
        device=device,
        threads=threads,
    )
    log(
        f"{counts.sequences:,} sequences, {counts.rows:,} vectors; "
        f"{counts.truncated:,} embedded by their central tokens"
    )


@app.command(
    "predict-tracks",
    epilog="Example: bigbird-dna predict-tracks results/demo/models/chromatin-8000-0 "
    "regions.bed --reference genome.fa.gz -o tracks.tsv",
)
def predict_tracks(
    model: ModelDir,
    regions: Annotated[
        Path,
        typer.Argument(
            metavar="REGIONS",
            help="BED file of regions, plain or compressed; - reads standard input.",
        ),
    ],
    reference: Reference,
    aliases: Aliases = None,
    tracks: Tracks = None,
    contigs: Contigs = None,
    output: ResultFile = None,
    format: Annotated[
        Literal["tsv", "bed", "bigwig", "parquet"] | None,
        typer.Option(
            help="Output format; bigwig: one track.",
            show_default="by -o, or tsv",
        ),
    ] = None,
    summary: Annotated[
        Literal["max", "mean"],
        typer.Option(help="Summary of the bins of a region longer than a bin."),
    ] = "max",
    center_fraction: Annotated[
        float,
        typer.Option(
            metavar="FRACTION",
            help="Predict all bins in this central fraction of a window at once: many "
            "times faster for nearby regions, but bins have less context on one side.",
            show_default="each bin in the center of its own window",
            min=0,
            max=1,
        ),
    ] = 0.0,
    max_n: MaxN = 0.25,
    calibrated: Calibrated = False,
    precision: Precision = "auto",
    batch_size: BatchSize = 16,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Predict the probability that each region is in a peak of each track, as the mean of both strands.

    Table columns: #contig start end name note, then one per track; coordinates are 0-based and half-open. The
    score of BED is 1000 times the largest probability. A track must not have the name of another column. A
    region that cannot be predicted (its contig is not in the reference, or it ends beyond the contig) has no
    values, and a note with the reason.
    """
    from bigbird_dna.scoring.tracks import predict_tracks

    counts = predict_tracks(
        model,
        regions,
        reference,
        output,
        aliases=aliases,
        tracks=tracks,
        summary=summary,
        center_fraction=center_fraction,
        contigs=contigs or (),
        format=format,
        max_n=max_n,
        calibrated=calibrated,
        precision=precision,
        batch_size=batch_size,
        device=device,
        threads=threads,
    )
    log(
        f"{counts.regions:,} regions, {counts.tracks:,} tracks; "
        f"{counts.not_scored:,} regions not scored"
    )


@app.command(
    "score-variants",
    epilog="Example: bigbird-dna score-variants yeast-promoters calls.vcf.gz "
    "--reference genome.fa.gz -o effects.vcf.gz",
)
def score_variants(
    model: ModelDir,
    vcf: Annotated[
        Path,
        typer.Argument(
            metavar="VCF",
            help="VCF or BCF file, plain, gzip or bgzip; - reads standard input.",
        ),
    ],
    reference: Reference,
    aliases: Aliases = None,
    tracks: Tracks = None,
    contigs: Contigs = None,
    regions: Regions = None,
    output: ResultFile = None,
    format: Annotated[
        Literal["vcf", "tsv"] | None,
        typer.Option(help="Output format.", show_default="by -o, or vcf"),
    ] = None,
    offsets: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Window offsets to average; not for models of start sites.",
            show_default="4",
            min=1,
            max=41,
        ),
    ] = None,
    max_n: MaxN = 0.25,
    calibrated: Calibrated = False,
    precision: Precision = "auto",
    batch_size: BatchSize = 32,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Predict effects of the variants of a VCF on tracks or promoter scores, or their likelihood.

    Effects are the probability of ALT minus that of REF, each the mean over both strands and several window
    offsets. Models of start sites: the largest change of a site around the variant. Pretrained models: the
    natural log-likelihood of ALT minus that of REF. A VCF keeps its lines and gets keys BBD_… in INFO,
    explained in its header; a table has one row per ALT. With --tracks, only the chosen tracks count, and
    each has its values ('*': all). Outputs that end in .gz are bgzip, with an index if the input is sorted.
    """
    from bigbird_dna.scoring.variants import score_variants

    counts = score_variants(
        model,
        vcf,
        reference,
        output,
        tracks=tracks,
        contigs=contigs or (),
        regions=regions,
        aliases=aliases,
        format=format,
        offsets=offsets,
        max_n=max_n,
        calibrated=calibrated,
        precision=precision,
        batch_size=batch_size,
        device=device,
        threads=threads,
    )
    notes = ", ".join(f"{note} {count:,}" for note, count in counts.notes.items())
    log(
        f"{counts.records:,} records: {counts.scored:,} alternative alleles scored, "
        f"{counts.not_scored:,} not scored" + (f" ({notes})" if notes else "")
    )


@app.command(
    "explain",
    epilog="Example: bigbird-dna explain yeast-promoters promoters.bed "
    "--reference genome.fa.gz -o explained",
)
def explain(
    model: ModelDir,
    targets: Annotated[
        Path,
        typer.Argument(
            metavar="TARGETS",
            help="BED file of regions, or VCF, which need --reference; FASTA, or a table "
            "(CSV, TSV, Parquet) with a column of sequences; each also .gz.",
        ),
    ],
    output: Annotated[
        Path,
        output_option("DIR", "Directory for logos, tables, arrays and tracks."),
    ],
    reference: OptionalReference = None,
    aliases: Aliases = None,
    method: Annotated[
        Literal["mutagenesis", "gradient"],
        typer.Option(
            help="Score every substitution, or approximate them by gradients, which is "
            "faster."
        ),
    ] = "mutagenesis",
    tracks: Tracks = None,
    flank: Annotated[
        int,
        typer.Option(
            metavar="BP", help="Bases on both sides of a variant that are explained."
        ),
    ] = 50,
    views: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Crops of a window, and divisions into other tokens, over which scores "
            "are averaged.",
            show_default="4; 1 for models of start sites",
            min=1,
        ),
    ] = None,
    sequence_column: SequenceColumn = "sequence",
    batch_size: BatchSize = 32,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Explain a model's scores: the contribution of each base of regions, variants or sequences.

    For models of start sites, promoter windows, tracks and labeled sequences. A contribution is how much
    lower the score is on average with the other bases in the place of a base. Its noise is the standard
    deviation over divisions of the sequence into tokens. Files: logos/*.svg, bases.tsv, scores.tsv,
    contributions.bw, and ohe.npz and shap.npz for TF-MoDISco. With a model of start sites, such as
    yeast-promoters, a region of a single base is a start site, and 150 bp before it and 50 bp from it on are
    explained; in longer regions and in sequences it is the strongest one, and around a variant the one that
    it changes most. With other models, a region is in the center of the window; one of a single base is a TSS
    for a model of promoter windows, whose whole window is explained.
    """
    from bigbird_dna.explanation.explain import explain

    bases = explain(
        model,
        targets,
        output,
        reference=reference,
        aliases=aliases,
        method=method,
        tracks=tracks,
        flank=flank,
        views=views,
        sequence_column=sequence_column,
        batch_size=batch_size,
        device=device,
        threads=threads,
    )
    log(f"{output}: contributions of {len(bases):,} bases")


@app.command(
    "motifs",
    epilog="Example: bigbird-dna motifs explained --taxon fungi -o motifs",
)
def find_motifs(
    explained: Annotated[
        Path,
        typer.Argument(metavar="EXPLAINED", help="Directory that explain wrote."),
    ],
    output: OutputDir,
    matrices: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Matrices of known binding sites, in JASPAR format.",
            show_default="JASPAR's for --taxon",
        ),
    ] = None,
    taxon: Annotated[
        Literal[
            "vertebrates", "plants", "insects", "nematodes", "fungi", "urochordates"
        ],
        typer.Option(help="Taxonomic group of JASPAR's core matrices."),
    ] = "vertebrates",
    max_q: Annotated[
        float,
        typer.Option(
            metavar="Q", help="Largest q-value of a match between a motif and a matrix."
        ),
    ] = 0.05,
    threads: Threads = None,
) -> None:
    """Find recurring motifs in explanations, and compare them with matrices of known binding sites.

    Seqlets with similar contributions are clustered by TF-MoDISco, and each cluster is compared with all
    matrices by Tomtom. Files: motifs.tsv, motifs.meme. Needs the extra "explain" of the package,
    which is compiled in the first run.
    """
    from bigbird_dna.explanation.motifs import find_motifs

    motifs = find_motifs(
        explained,
        output,
        matrices=matrices,
        taxon=taxon,
        max_q=max_q,
        threads=threads,
    )
    log(f"{output}/motifs.tsv: {len(motifs):,} motifs")
