"""Commands that train and evaluate language, promoter and chromatin models and their baselines."""

from pathlib import Path
from typing import TYPE_CHECKING

from bigbird_dna.cli import options as opt
from bigbird_dna.cli.options import option, output, runs

if TYPE_CHECKING:
    from bigbird_dna.config import Config as RunConfig

TOKEN_STORES = option(
    None, "DIR", "Directory of the token stores.", opt.RESULTS.tokens, "--tokens"
)


def _tokenizer_of(settings: "RunConfig", given: opt.Given) -> Path:
    """Return the path of the tokenizer, which is stored with its token stores."""
    tokens: Path = given["tokens"]
    return tokens / settings.paths.tokenizer.name


@runs(
    "pretraining.evaluation.fit_baselines",
    inputs=("tokens",),
    tokenizer_path=_tokenizer_of,
)
def fit_pretraining_baseline(
    config: Path = opt.CONFIG,
    overrides: list[str] | None = opt.OVERRIDES,
    tokens: Path | None = TOKEN_STORES,
    tokenizer_path: Path | None = opt.RUN_TOKENIZER,
    sequences: int = option(
        1000, "N", "Maximum number of inputs to evaluate per split.", least=1
    ),
    output: Path | None = output(
        None, "FILE", "File to write (.npz).", opt.RESULTS.pretraining_baselines
    ),
) -> None:
    """Fit n-gram and Markov models and evaluate them on the masked tokens of evaluate pretraining.

    evaluate pretraining includes this step, but on large genomes it takes hours in which a GPU would be idle.

    Example: bigbird-dna train baseline-language workflow/config/demo.yaml
    """


def _promoter_baselines(settings: "RunConfig", given: opt.Given) -> Path:
    return settings.paths.promoter_baselines(given["negative_set"])


@runs(
    "finetuning.evaluation.promoter_baselines",
    reference=opt.promoter_reference,
    output=_promoter_baselines,
)
def fit_promoter_baseline(
    config: Path = opt.CONFIG,
    negative_set: str = opt.NEGATIVE_SET,
    overrides: list[str] | None = opt.OVERRIDES,
    windows: Path | None = opt.WINDOWS,
    reference: Path | None = opt.RUN_REFERENCE,
    output: Path | None = output(
        None,
        "DIR",
        "Directory for the predictions: kmer.parquet, position.parquet, orf.parquet, composition.parquet.",
        str(opt.RESULTS.promoter_baselines("SET")),
    ),
    scan: Path | None = option(
        None,
        "FASTA",
        "Indexed FASTA to score as well, with k-mer and position, into kmer.scan.tsv and position.scan.tsv, "
        "tables of score-promoters.",
        "none",
        "--scan",
    ),
    stride: int = option(10, "BP", "With --scan: distance between windows.", least=1),
    baselines: list[str] | None = option(
        None,
        "k-mer|position|orf|composition",
        "Features of a regression: k-mer frequencies anywhere in the window; the base at each position "
        "relative to the transcription start site; the length of the longest open reading frame on either "
        "strand; or GC content, CpG and the longest run of A and T; repeatable.",
        "all",
        "--baseline",
    ),
) -> None:
    """Fit logistic regressions as promoter baselines, and predict the same held-out windows.

    Example: bigbird-dna train baseline-promoter workflow/config/demo.yaml --negative-set genomic
    """


ARRAY = output(..., "FILE", "Probabilities to write, bins × tracks (.npy).")
HELD_OUT = option(
    None,
    "DIR",
    "Also write the bins and their labels to this directory.",
    "",
    "--write-labels",
)


@runs("finetuning.evaluation.evaluate_baseline", part="chromatin.evaluation")
def fit_chromatin_baseline(
    config: Path = opt.CONFIG,
    output: Path = ARRAY,
    overrides: list[str] | None = opt.OVERRIDES,
    data: Path | None = opt.CHROMATIN_DATA,
    reference: Path | None = opt.RUN_REFERENCE,
    labels: Path | None = HELD_OUT,
    dyads: Path | None = option(
        None,
        "FILE",
        "Also write predictions with spaced dyads (.npy).",
        "",
        "--write-dyads",
    ),
    model: Path | None = option(
        None,
        "FILE",
        "Also write the baseline (.npz), as a model for score-variants.",
        "",
        "--write-model",
    ),
    threads: int | None = opt.THREADS,
) -> None:
    """Fit a logistic regression on k-mers and then dyads for every track, and predict the same bins.

    Example: bigbird-dna train baseline-chromatin workflow/config/demo.yaml -o kmers.npy
    """
