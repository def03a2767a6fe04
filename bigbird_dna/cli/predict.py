"""Commands that apply a model: score sequences, regions and variants, and generate DNA."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bigbird_dna.cli import options as opt
from bigbird_dna.cli.options import argument, option, runs
from bigbird_dna.cli.options import output as result
from bigbird_dna.scoring.formats import (
    CALL_FORMATS,
    EMBEDDING_FORMATS,
    SCORE_FORMATS,
    SEQUENCE_FORMATS,
    STRANDS,
    TRACK_FORMATS,
)

if TYPE_CHECKING:
    from bigbird_dna.scoring.calls import CallCounts
    from bigbird_dna.scoring.embeddings import EmbeddingCounts
    from bigbird_dna.scoring.promoters import ScanCounts
    from bigbird_dna.scoring.sequences import SequenceCounts
    from bigbird_dna.scoring.tracks import PredictionCounts


def _scanned(counts: "ScanCounts", _: dict[str, Any]) -> Iterator[str]:
    text = f"{counts.scored:,} scores along {counts.records:,} records"
    if counts.not_scored:
        text += f"; {counts.not_scored:,} not scored (see their notes)"
    if counts.in_short_records:
        text += f"; {counts.in_short_records:,} of records that do not fill the window"
    yield text


@runs("scoring.promoters.score_promoters", report=_scanned, also=opt.scoring(32))
def score_promoters(
    model: Path = opt.MODEL_DIRECTORY,
    fasta: Path = argument("FASTA file, plain, gzip or bgzip; - reads standard input."),
    output: Path | None = opt.RESULT_FILE,
    format: str | None = option(
        None,
        "|".join(SCORE_FORMATS),
        "Output format.",
        "from the extension of -o, or tsv",
    ),
    stride: int | None = option(
        None, "BP", "Distance between windows.", "10, or the bins of a dense model"
    ),
    strand: str | None = option(
        None,
        "|".join(STRANDS),
        "Strands to score.",
        "both; with --tss-offset, +",
        "--strand",
    ),
    contigs: list[str] | None = opt.CONTIGS,
    regions: Path | None = opt.REGIONS,
    tss_offset: int | None = option(
        None,
        "N",
        "The TSS is base N, from 0, of each record: score one window, or bin, per record, with its TSS there "
        "and N where the record does not reach.",
        "records are scanned",
        "--tss-offset",
        least=0,
    ),
    pad: bool = option(
        False,
        None,
        "Score records shorter than the window in the center of a window of N, wherever their TSS is.",
        "",
        "--pad",
    ),
    per_record: bool = option(
        False,
        None,
        "Write one row per record: that of its highest score.",
        "",
        "--per-record",
    ),
) -> None:
    """Predict promoter scores of windows along every record of a FASTA file, on both strands.

    Windows have the model's length. Table columns: contig start end name score strand note tss; coordinates
    are 0-based and half-open. A score is the probability that a promoter has its TSS at the position tss, on
    the strand: the model's TSS position in the window. A chromatin model of start sites
    (chromatin.data.tracks tss) has a score for each bin and strand. bedGraph and bigWig contain the larger
    score of both strands there. Records shorter than the window are listed without a score, unless
    --tss-offset or --pad is given; bedGraph and bigWig omit them. With --regions, tables contain the windows
    that overlap a region, and bedGraph and bigWig only the signal inside the regions.

    Example: bigbird-dna score-promoters yeast-promoters genome.fa.gz -o scores.bed
    """


def _called(counts: "CallCounts", given: dict[str, Any]) -> Iterator[str]:
    yield f"{counts.calls:,} calls from {counts.scored:,} scores along {counts.records:,} records"


@runs(
    "scoring.calls.call_promoters",
    report=_called,
    also=opt.scoring(32, "calibrated", "prior"),
)
def call_promoters(
    model: Path = opt.MODEL_DIRECTORY,
    fasta: Path = argument("FASTA file, plain, gzip or bgzip; - reads standard input."),
    output: Path | None = opt.RESULT_FILE,
    format: str | None = option(
        None,
        "|".join(CALL_FORMATS),
        "Output format.",
        "from the extension of -o, or bed",
    ),
    fdr: float | None = option(
        None,
        "RATE",
        "Largest expected fraction of false calls among the calls; 1: all calls.",
        "that of the largest F1 on the validation contigs",
    ),
    strand: str = option("both", "|".join(STRANDS), "Strands to scan."),
    contigs: list[str] | None = opt.CONTIGS,
) -> None:
    """Call promoters along every record of a FASTA file: the TSS, its strand, and its expected precision.

    On each strand, the highest window score is a call and silences windows near it; then the highest that is
    left. Expected precision is the probability that an annotated TSS is near, fitted to whole validation
    contigs by model calibrate-calls. BED columns: #contig start end name score strand probability note
    precision_low precision_high model_score. The score is 1,000 times the expected precision (probability);
    low and high are its 95 % interval; model_score is the highest window score. Calls are one base long.

    Example: bigbird-dna call-promoters models/promoter-calls genome.fa.gz -o calls.bed
    """


def _scored(counts: "SequenceCounts", _: dict[str, Any]) -> Iterator[str]:
    text = f"{counts.sequences:,} sequences"
    if counts.not_scored:
        text += f"; {counts.not_scored:,} not scored"
    if counts.truncated:
        text += f"; {counts.truncated:,} too long for the network, which has read their central tokens"
    yield text


@runs(
    "scoring.sequences.score_sequences",
    report=_scored,
    also=opt.scoring(32, "calibrated", "prior"),
)
def score_sequences(
    model: Path = opt.MODEL_DIRECTORY,
    sequences: Path = argument(
        "FASTA file, or table (CSV, TSV, Parquet) with a column of sequences; each also .gz. - reads FASTA "
        "from standard input."
    ),
    output: Path | None = opt.RESULT_FILE,
    format: str | None = option(
        None,
        "|".join(SEQUENCE_FORMATS),
        "Output format.",
        "from the extension of -o, or tsv",
    ),
    sequence_column: str = opt.SEQUENCE_COLUMN,
    pad: bool = option(
        False,
        None,
        "Accept other lengths than the model's: add N on both sides, or crop.",
        "",
        "--pad",
    ),
) -> None:
    """Predict the labels of sequences with a model of finetune-sequences, in the order of the file.

    Table columns: #name, for several classes the most probable class, note, and then the score (probability)
    of a binary label, or one column per class or label. A sequence that cannot be scored has NA, and a note
    with the reason: other_length, too_many_n, empty, or invalid_letter (not DNA). The note truncated means
    that a sequence has more tokens than the model's maximum: the network has read the central ones.

    Example: bigbird-dna score-sequences model sequences.csv -o scores.tsv
    """


def _embedded(counts: "EmbeddingCounts", given: dict[str, Any]) -> Iterator[str]:
    text = f"{counts.sequences:,} sequences"
    if counts.rows != counts.sequences:
        text += f", {counts.rows:,} {given['pool']}s"
    yield (
        f"{text}; {counts.truncated:,} embedded by their central tokens"
        if counts.truncated
        else text
    )


@runs(
    "scoring.embeddings.embed",
    report=_embedded,
    also=opt.scoring(32, "max_n", "calibrated", "prior"),
)
def embed(
    model: Path = opt.MODEL_DIRECTORY,
    sequences: Path = argument(
        "FASTA file, or table (CSV, TSV, Parquet) with a column of sequences, or BED file of regions; each "
        "also .gz. - reads FASTA, or BED, from standard input."
    ),
    output: Path = result(
        ..., "FILE", "Output file, written atomically: .parquet, .npz or .h5ad."
    ),
    reference: Path | None = option(
        None, "FASTA", "Indexed genome of the regions, plain or bgzip.", "none"
    ),
    aliases: Path | None = opt.ALIASES,
    sequence_column: str = opt.SEQUENCE_COLUMN,
    layer: str | None = option(
        None,
        "N|all|mean-of-last-4",
        "Layer of the model: 0 is the input of the first layer; all gives each of them.",
        "the last",
        "--layer",
    ),
    pool: str = option(
        "mean",
        "mean|cls|max|token|base",
        "One vector per sequence: mean or maximum over the tokens, or that of the first (cls). Or one per "
        "token or base.",
    ),
    format: str | None = option(
        None,
        "|".join(EMBEDDING_FORMATS),
        "Output format.",
        "from the extension of -o, or parquet",
    ),
) -> None:
    """Write the model's embeddings of sequences or regions, in the order of the file.

    Parquet has the columns name, note and embedding, or layer_0, layer_1 and so on with --layer all; regions
    have contig, start, end, name and strand. With --pool token or base, each sequence has several rows, with
    token_start and token_end, or position, counted from 0. An .npz file has the array embeddings, and the
    other columns as arrays. An .h5ad file is for scanpy and needs pip install 'bigbird-dna[embeddings]'.
    Regions on strand - are read as the reverse complement. A sequence with too many tokens is embedded by its
    central ones, with the note truncated.

    Example: bigbird-dna embed yeast promoters.fa -o promoters.parquet
    """


def _predicted(counts: "PredictionCounts", _: dict[str, Any]) -> Iterator[str]:
    text = f"{counts.regions:,} regions, {counts.tracks:,} tracks"
    yield (
        f"{text}; {counts.not_scored:,} regions not scored"
        if counts.not_scored
        else text
    )


@runs("scoring.tracks.predict_tracks", report=_predicted, also=opt.scoring(16, "prior"))
def predict_tracks(
    model: Path = opt.MODEL_DIRECTORY,
    regions: Path = argument(
        "BED file of regions, plain or compressed; - reads standard input."
    ),
    reference: Path = opt.REFERENCE,
    aliases: Path | None = opt.ALIASES,
    tracks: str | None = opt.TRACKS,
    contigs: list[str] | None = opt.CONTIGS,
    output: Path | None = opt.RESULT_FILE,
    format: str | None = option(
        None,
        "|".join(TRACK_FORMATS),
        "Output format; bigWig: one track.",
        "from the extension of -o, or tsv",
    ),
    summary: str = option(
        "max", "max|mean", "Summary of the bins of a region longer than a bin."
    ),
    center_fraction: float = option(
        0.0,
        "FRACTION",
        "Predict all bins in this central fraction of a window at once: many times faster for nearby "
        "regions, but bins have less context on one side.",
        "each bin in the center of its own window",
        "--center-fraction",
    ),
) -> None:
    """Predict the probability that each region is in a peak of each track, as the mean of both strands.

    Table columns: #contig start end name note, then one per track; coordinates are 0-based and half-open. The
    score of BED is 1000 times the largest probability. A track must not have the name of another column. A
    region that cannot be predicted (its contig is not in the reference, or it ends beyond the contig) has no
    values, and a note with the reason.

    Example: bigbird-dna predict-tracks results/demo/models/chromatin-8000-0 regions.bed --reference
    genome.fa.gz -o tracks.tsv
    """


@runs("finetuning.calibrate.choose_threshold")
def choose_threshold(
    path: Path = opt.MODEL_DIRECTORY,
    rates: list[float] | None = option(
        None,
        "RATE",
        "False-discovery rate; repeatable.",
        "0.01, 0.05, 0.1, 0.2 and 0.5",
        "--fdr",
    ),
    prior: float | None = option(
        None,
        "FRACTION",
        "Fraction of promoters among the windows, as in score-promoters.",
        "the fraction among validation windows",
    ),
    predictions: Path | None = opt.MODEL_PREDICTIONS,
    output: Path | None = opt.RESULT_FILE,
) -> None:
    """Choose the calibrated score threshold for calling promoters at a given false-discovery rate.

    Scores are those of score-promoters with --calibrated and the same --prior. Table columns: #fdr prior
    threshold expected_fdr empirical_fdr empirical_fdr_low empirical_fdr_high recall promoters negatives note.
    expected_fdr follows from the calibrated probabilities; empirical_fdr is counted on the validation
    windows, with a 95 % interval. promoters and negatives count validation windows at or above the threshold.
    Rates are per window: several neighboring windows of a scan may be called for one promoter.

    Example: bigbird-dna evaluate promoter-threshold results/demo/models/promoter-genomic --fdr 0.1 --prior
    0.002
    """


@runs(
    "scoring.scorer.merge_shards",
    report=lambda counts, _: [
        f"{counts.shards:,} shards, {counts.rows:,} {counts.kind}"
    ],
)
def merge_shards(
    shards: list[Path] = argument(
        "All shard files of a job, in any order.", "SHARD..."
    ),
    output: Path | None = result(
        None, "FILE|DIR", "Merged result to write.", "standard output"
    ),
) -> None:
    """Merge the shards of a job run with --shard to the bytes that the whole job would have written.

    Shards are files of score-promoters, call-promoters, score-sequences, embed, predict-tracks,
    score-variants, evaluate test-bins and prepare chromatin, or directories of prepare tokens. The output has
    the format that the shards were made for (their --format). Shards of different jobs (another model,
    reference, option or number of shards) are an error, as are missing and repeated shards.

    Example: bigbird-dna merge-shards scores-1-of-2 scores-2-of-2 -o scores.bed
    """


@runs(
    "scoring.generation.generate_samples",
    report=lambda count, given: [f"{count:,} samples of {given['length']:,} bp"],
)
def generate(
    model: Path = opt.MODEL_DIRECTORY,
    output: Path | None = opt.RESULT_FILE,
    number: int = option(
        10,
        "N",
        "Number of samples, per flank record if there are several.",
        "",
        "--num-samples",
        least=1,
    ),
    length: int = option(1000, "BP", "Length of a sample.", least=1),
    left: Path | None = option(
        None, "FASTA", "Left flanks (5'), one per record.", "none", "--left-flank"
    ),
    right: Path | None = option(
        None,
        "FASTA",
        "Right flanks (3'), in pairs with the left flanks if both are given; not for causal models.",
        "none",
        "--right-flank",
    ),
    temperature: float = option(
        1.0,
        "T",
        "Sampling temperature; below 1 favors probable tokens, above 1 flattens probabilities.",
    ),
    top_k: int | None = option(
        None, "K", "Sample from the K most probable tokens only.", "all"
    ),
    top_p: float | None = option(
        None,
        "P",
        "Sample from the smallest set of tokens with total probability P.",
        "all",
    ),
    rounds: int = option(
        30,
        "N",
        "Number of infilling iterations; not for causal models.",
        "",
        "--iterations",
        least=1,
    ),
    seed: int = option(
        1, "N", "Random seed; the same seed gives the same samples.", least=0
    ),
    device: str = opt.DEVICE,
    threads: int | None = opt.THREADS,
) -> None:
    """Generate DNA sequences with a pretrained model and write them as FASTA.

    A causal model (pretrained with encoder.causal) continues each record of --left-flank, or starts without
    context. A masked language model fills a gap of --length between --left-flank and --right-flank. Samples
    do not include the flanks. Every sample has exactly --length bases: the last token is truncated. On a CPU,
    a sample depends neither on the number of samples nor on --threads.

    Example: bigbird-dna generate yeast --num-samples 10 --length 1000 -o samples.fa
    """


@runs("reporting.samples.report_samples")
def report_samples(
    samples: Path = argument("Samples (FASTA), as generate writes them."),
    reference: Path = opt.REFERENCE,
    contigs: list[str] = option(
        ...,
        "NAME",
        "Held-out contig to compare with, which the model was not trained on; repeatable.",
        "",
        "--contig",
    ),
    output: Path = opt.DIRECTORY,
    exclude: list[str] = option(
        [],
        "NAME",
        "Another contig on which Markov chains are not trained; repeatable.",
        "none",
    ),
    longest: int = option(
        6,
        "K",
        "Largest k; k-mers of length 1 to K are compared.",
        "",
        "--max-k",
        least=1,
    ),
    seed: int = option(
        1, "N", "Random seed of reference samples and Markov chains.", least=0
    ),
) -> None:
    """Compare samples with held-out contigs by k-mer frequencies and GC content.

    Writes samples.svg, samples.json and samples.tsv: the Jensen-Shannon divergence of k-mer frequencies from
    those of the contigs, in bits. Two references are included: an equal amount of sequence drawn from the
    contigs, and Markov chains of order 0 to 5 trained on the other contigs of the reference genome.

    Example: bigbird-dna evaluate samples samples.fa --reference genome.fa.gz --contig VII -o report
    """
