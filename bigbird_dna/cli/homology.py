"""Commands that measure the similarity of held-out windows to training windows, and metrics by similarity."""

from collections.abc import Sequence
from pathlib import Path

import typer

from bigbird_dna.cli import options as opt
from bigbird_dna.cli.options import argument, option, output, runs
from bigbird_dna.console import log
from bigbird_dna.errors import UsageError

BIN_WINDOW = option(
    None,
    "BP",
    "Length of the compared sequence around a bin.",
    "1000, or the bin if larger",
    "--window",
)
BOUNDS = option(
    "",
    "S,S,…",
    "Boundaries of similarity strata, rising.",
    "0.3,0.5,0.8",
    "--similarity-bins",
)
TABLE = output(..., "FILE", "Table to write (TSV).")


def files_of_sets(
    option: str, values: Sequence[str], default: str = ""
) -> dict[str, dict[str, Path]]:
    """Return the files of an option's `SET/NAME=FILE` values by negative set and predictor, in order.

    `SET=FILE` has the predictor `default`, if there is one. `UsageError` as in `options.named_files`.
    """
    sets: dict[str, dict[str, Path]] = {}
    for name, path in opt.named_files(option, values).items():
        negative_set, _, predictor = name.partition("/")
        predictor = predictor or default
        if not (negative_set and predictor):
            raise UsageError(f"{option} {name}={path}: expected SET/NAME=FILE")
        if predictor in sets.setdefault(negative_set, {}):
            raise UsageError(
                f"{option}: {predictor!r} of {negative_set!r} is given twice"
            )
        sets[negative_set][predictor] = path
    return sets


@runs(
    "reporting.promoter_check.check_promoters",
    report=lambda conclusions, _: conclusions,
    say=typer.echo,
)
def check_promoters(
    promoters: Path = argument(
        "EPDnew .sga, .fps or .bed; other .bed, .gff3 or .gtf; each also .gz."
    ),
    reference: Path = argument("Indexed reference genome, plain or bgzip.", "FASTA"),
    output: Path | None = opt.output(
        None, "FILE", "Also write all comparisons to this table (TSV)."
    ),
    assembly: str = opt.ASSEMBLY,
    aliases: Path | None = opt.ALIASES,
) -> None:
    """Check that start sites of promoters are on the right strand and not off by one or two bases.

    Compares the bases from 60 bp before to 40 bp after the start sites of one strand with those of the other,
    also shifted by up to 2 bp and read on the opposite strand, and prints what is wrong. A list whose
    positions on one strand are off by one, as in some releases of RegulonDB, is found. It also states how
    many start with A or G after C or T, as most transcripts do.

    Example: bigbird-dna check-promoters promoters.bed genome.fa.gz
    """


@runs("finetuning.similar.find_nearest")
def find_nearest(
    held_out: Path = argument(
        "FASTA of held-out windows: plain, gzip or bgzip.", "HELD_OUT"
    ),
    training: Path = argument(
        "FASTA of training windows: plain, gzip or bgzip.", "TRAINING"
    ),
    output: Path = TABLE,
) -> None:
    """Find the most similar training window of each held-out window, on either strand.

    Writes name, similarity, nearest and orientation. Similarity is the score of the best local alignment
    (match +1, mismatch -1, gap -2 per base) divided by the length of the held-out window: 1 for an identical
    window, 0.5 if half of the window is identical, or if three quarters of its bases match.

    Example: bigbird-dna evaluate nearest-fasta test.fa train.fa -o nearest.tsv
    """


@runs("finetuning.similar.find_nearest_promoters", reference=opt.promoter_reference)
def find_nearest_promoters(
    config: Path = opt.CONFIG,
    negative_set: str = opt.NEGATIVE_SET,
    output: Path = TABLE,
    overrides: list[str] | None = opt.OVERRIDES,
    windows: Path | None = opt.WINDOWS,
    reference: Path | None = opt.RUN_REFERENCE,
    predictions: Path | None = option(
        None,
        "FILE",
        "Also write predictions of the nearest-window baseline (Parquet).",
        "",
        "--write-predictions",
    ),
) -> None:
    """Find the most similar training window of each validation and test window of a promoter data set.

    Training windows are the training promoters and their negatives of the set. evaluate nearest-fasta defines
    similarity. The baseline predicts the label of the nearest window, weighted by its similarity.

    Example: bigbird-dna evaluate nearest-promoters workflow/config/demo.yaml --negative-set genomic -o
    nearest.tsv
    """


@runs("finetuning.similar.find_nearest_bins")
def find_nearest_bins(
    config: Path = opt.CONFIG,
    output: Path = TABLE,
    overrides: list[str] | None = opt.OVERRIDES,
    data: Path | None = opt.CHROMATIN_DATA,
    reference: Path | None = opt.RUN_REFERENCE,
    window: int | None = BIN_WINDOW,
    predictions: Path | None = option(
        None,
        "FILE",
        "Also write predictions of the nearest-window baseline (.npy).",
        "",
        "--write-predictions",
    ),
) -> None:
    """Find the most similar training window of the window around each test bin.

    The test bins are those of evaluate test-bins, in the same order. evaluate nearest-fasta defines
    similarity. The baseline predicts the labels of the nearest window, weighted by its similarity.

    Example: bigbird-dna evaluate nearest-bins workflow/config/demo.yaml -o nearest.tsv
    """


@runs("finetuning.similar.drop_similar_bins")
def drop_similar_bins(
    data: Path = argument("Data set of prepare chromatin.", "DATA"),
    reference: Path = opt.REFERENCE,
    similarity: float = option(
        ...,
        "FRACTION",
        "Exclude training bins with at least this similarity to a held-out bin.",
    ),
    output: Path = output(..., "DIR", "Data set to write."),
    window: int | None = BIN_WINDOW,
) -> None:
    """Write a chromatin data set without the training bins that are similar to a held-out bin.

    Similarity is defined as in evaluate nearest-bins. Tracks and held-out bins are unchanged, so that metrics
    remain comparable. In the workflow, the key splits.max_train_test_similarity applies this filter.

    Example: bigbird-dna prepare filter-bins results/demo/chromatin/data --reference
    results/demo/genome/reference.fa.gz --similarity 0.5 -o filtered
    """


def report_promoter_similarity(
    output: Path = opt.DIRECTORY,
    predictions: list[str] = option(
        ...,
        "SET/NAME=FILE",
        "Predictions (Parquet) of predictor NAME on negative set SET; repeatable.",
    ),
    nearest: list[str] = option(
        ..., "SET=FILE", "Table of evaluate nearest-promoters for the set; repeatable."
    ),
    bounds: str = BOUNDS,
) -> None:
    """Evaluate promoter models on test windows, stratified by similarity to the nearest training window.

    Writes similarity.svg and similarity.tsv: AUROC with confidence interval and AUPRC of each
    predictor, on all windows and in each stratum.

    Example: bigbird-dna evaluate promoters-by-similarity --predictions genomic/model=predictions.parquet
    --nearest genomic=nearest.tsv -o report
    """
    from bigbird_dna.reporting.similarity import promoter_similarity_report

    sets = files_of_sets("--predictions", predictions)
    table = promoter_similarity_report(
        sets, opt.named_files("--nearest", nearest), output, bounds=_bounds(bounds)
    )
    extremes = table[table["similarity"].isin(table["similarity"].unique()[:2])]
    for row in extremes[extremes["auroc"].notna()].itertuples():
        log(
            f"{row.negative_set}, {row.similarity}: {row.model} AUROC {row.auroc:.4f} of {row.n:,} windows"
        )


def report_bin_similarity(
    nearest: Path = argument("Table of evaluate nearest-bins.", "NEAREST"),
    labels: Path = option(..., "FILE", "Labels of the same bins.", "", "--labels"),
    predictions: list[str] = option(
        ...,
        "NAME=FILE",
        "Predictions of predictor NAME for the same bins, bins × tracks; repeatable.",
    ),
    tracks: Path = option(
        ..., "FILE", "Table with the columns track and group.", "", "--track-table"
    ),
    output: Path = TABLE,
    min_positives: int = option(
        1,
        None,
        "Exclude tracks with fewer positive bins in a stratum from its medians.",
        least=1,
    ),
    bounds: str = BOUNDS,
    threads: int | None = opt.THREADS,
) -> None:
    """Evaluate chromatin models on test bins, stratified by similarity to the nearest training window.

    Writes median AUROC and AUPRC over the tracks of each group, for all bins and for each stratum.

    Example: bigbird-dna evaluate bins-by-similarity nearest.tsv --labels labels.npz --predictions
    model=predictions.npy --track-table tracks.tsv -o report
    """
    from bigbird_dna.reporting.similarity import bin_similarity_report

    table = bin_similarity_report(
        opt.named_files("--predictions", predictions),
        labels,
        nearest,
        output,
        tracks=tracks,
        bounds=_bounds(bounds),
        min_positives=min_positives,
        threads=threads or 0,
    )
    for row in table[table["median_auroc"].notna()].itertuples():
        where = f"{row.group}, {row.similarity} ({row.bins:,} bins)"
        log(
            f"{where}: {row.model} median AUROC {row.median_auroc:.4f} of {row.tracks:,} tracks"
        )


def _bounds(text: str) -> tuple[float, ...]:
    from bigbird_dna.data.similar import BOUNDS

    if not text:
        return BOUNDS
    try:
        return tuple(float(cell) for cell in text.split(","))
    except ValueError:
        raise UsageError(
            f"--similarity-bins {text!r:.60}: expected comma-separated numbers such as 0.3,0.5"
        ) from None
