"""Commands that say how like held-out windows are to the training, and figures by that."""

from pathlib import Path

from bigbird_dna.cli import options as opt
from bigbird_dna.cli.options import argument, option, output, runs
from bigbird_dna.console import log
from bigbird_dna.errors import UsageError

BIN_WINDOW = option(
    None, "BP", "Sequence around a bin that is compared.", "1000, or the bin if larger", "--window"
)
BOUNDS = option("", "S,S,…", "Between the strata of similarity, rising.", "0.3,0.5,0.8", "--similarity-bins")
TABLE = output(..., "FILE", "Table to write (TSV).")


@runs("finetuning.similar.find_nearest")
def find_nearest(
    held_out: Path = argument("FASTA of windows: plain, gzip or bgzip.", "HELD_OUT"),
    training: Path = argument("FASTA of the windows that they are compared with.", "TRAINING"),
    output: Path = TABLE,
) -> None:
    """Find the most similar training window of each held-out one, on either strand.

    Writes name, similarity, nearest and orientation. Similarity is the score of the best local alignment
    (equal bases +1, others -1, a base without a partner -2) as a share of the held-out window: 1 for a copy,
    0.5 where half of it is one, or where three quarters of its bases are the same.

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
        "Also write predictions that go by the nearest window (Parquet).",
        "",
        "--write-predictions",
    ),
) -> None:
    """Find the most similar training window of each promoter window of validation and test.

    Compared with are the training promoters and their negatives of the set; similarity is as of
    evaluate nearest-fasta. The predictions are a baseline: the label of the nearest window, as surely as that
    is similar.

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
        "Also write predictions that go by the nearest window (.npy).",
        "",
        "--write-predictions",
    ),
) -> None:
    """Find the most similar training window of the window around each test bin.

    The test bins are those of evaluate test-bins, in their order; similarity is as of evaluate nearest-fasta.
    The predictions are a baseline: the labels of the nearest window, as surely as that is similar.

    Example: bigbird-dna evaluate nearest-bins workflow/config/demo.yaml -o nearest.tsv
    """


@runs("finetuning.similar.drop_similar_bins")
def drop_similar_bins(
    data: Path = argument("Data set of prepare chromatin.", "DATA"),
    reference: Path = opt.REFERENCE,
    similarity: float = option(
        ..., "FRACTION", "Training bins to which a held-out one is so similar are left out."
    ),
    output: Path = output(..., "DIR", "Data set to write."),
    window: int | None = BIN_WINDOW,
) -> None:
    """Write a chromatin data set without the training bins that are like a held-out one.

    Similarity is as of evaluate nearest-bins. Tracks and held-out bins stay as they are, so that figures can
    be compared. In the workflow the key splits.max_train_test_similarity does this.

    Example: bigbird-dna prepare filter-bins results/demo/chromatin/data --reference
    results/demo/genome/reference.fa.gz --similarity 0.5 -o filtered
    """


def report_promoter_similarity(
    output: Path = opt.DIRECTORY,
    predictions: list[str] = option(
        ..., "SET/NAME=FILE", "Predictions (Parquet) of a predictor on a negative set; repeatable."
    ),
    nearest: list[str] = option(
        ..., "SET=FILE", "What evaluate nearest-promoters wrote of the set; repeatable."
    ),
    bounds: str = BOUNDS,
) -> None:
    """Evaluate promoter models on the test windows by how similar these are to a training window.

    Writes similarity.tsv (AUROC with DeLong's interval and AUPRC of each predictor on all windows and in
    each stratum) and similarity.svg.

    Example: bigbird-dna evaluate promoters-by-similarity --predictions genomic/model=predictions.parquet
    --nearest genomic=nearest.tsv -o report
    """
    from bigbird_dna.reporting.similarity import promoter_similarity_report

    sets: dict[str, dict[str, Path]] = {}
    for name, path in opt.named_files("--predictions", predictions).items():
        negative_set, slash, predictor = name.partition("/")
        if not (negative_set and slash and predictor):
            raise UsageError(f"--predictions {name}={path}: expected SET/NAME=FILE")
        sets.setdefault(negative_set, {})[predictor] = path
    table = promoter_similarity_report(
        sets, opt.named_files("--nearest", nearest), output, bounds=_bounds(bounds)
    )
    extremes = table[table["similarity"].isin(table["similarity"].unique()[:2])]
    for row in extremes[extremes["auroc"].notna()].itertuples():
        log(f"{row.negative_set}, {row.similarity}: {row.model} AUROC {row.auroc:.4f} of {row.n:,} windows")


def report_bin_similarity(
    nearest: Path = argument("What evaluate nearest-bins wrote.", "NEAREST"),
    labels: Path = option(..., "FILE", "Labels of the same bins.", "", "--labels"),
    predictions: list[str] = option(
        ..., "NAME=FILE", "A predictor's array of the same bins, bins × tracks; repeatable."
    ),
    tracks: Path = option(..., "FILE", "Table of tracks: track, group.", "", "--track-table"),
    output: Path = TABLE,
    min_positives: int = option(
        1, None, "Tracks with fewer in a stratum take no part in its figures.", least=1
    ),
    bounds: str = BOUNDS,
    threads: int | None = opt.THREADS,
) -> None:
    """Evaluate chromatin models on the test bins by how similar these are to the training.

    Writes median AUROC and AUPRC over the tracks of each group, of all bins and of each stratum.

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
        log(f"{where}: {row.model} median AUROC {row.median_auroc:.4f} of {row.tracks:,} tracks")


def _bounds(text: str) -> tuple[float, ...]:
    from bigbird_dna.data.similar import BOUNDS

    if not text:
        return BOUNDS
    try:
        return tuple(float(cell) for cell in text.split(","))
    except ValueError:
        raise UsageError(
            f"--similarity-bins {text!r:.60}: expected numbers with commas between, as 0.3,0.5"
        ) from None
