"""Commands that train and evaluate language, promoter and chromatin models and their baselines."""

from pathlib import Path
from typing import TYPE_CHECKING

from bigbird_dna.cli import options as opt
from bigbird_dna.cli.options import argument, option, output, runs

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


@runs(
    "pretraining.evaluation.evaluate_pretraining",
    inputs=("path", "tokens", "baselines"),
)
def evaluate_pretraining(
    path: Path = argument("Pretrained model.", "MODEL_DIR"),
    tokens: Path = option(
        ...,
        "DIR",
        "Token stores of its tokenizer, as written by prepare tokens.",
        "",
        "--tokens",
    ),
    output: Path = output(..., "FILE", "Table to write (TSV)."),
    sequences: int = option(
        1000, "N", "Maximum number of inputs to evaluate per split.", least=1
    ),
    sequence_tokens: int | None = option(
        None,
        "N",
        "Number of tokens per input.",
        "512, or the model's maximum",
        least=16,
    ),
    token_order: int = option(
        6,
        "N",
        "Largest n of n-grams over tokens, of which the best is chosen.",
        "",
        "--ngram-order",
        least=1,
    ),
    baselines: Path | None = option(
        None,
        "FILE",
        "File of train baseline-language, for the same inputs.",
        "fitted here",
        "--baselines",
    ),
    alone: bool = option(
        False, None, "Evaluate the model without baselines.", "", "--model-only"
    ),
    device: str = opt.DEVICE,
    threads: int | None = opt.THREADS,
) -> None:
    """Evaluate a pretrained model and baselines on the same masked tokens of held-out contigs.

    Writes bits per base with 95 % intervals over 10-kb blocks, and differences between model and baselines.
    Baselines are n-grams over tokens and Markov models over bases, with left or two-sided context, fitted to
    the training tokens and selected on the validation contigs. A causal model is evaluated on the tokens of
    the second half of each input, and compared with left-context baselines.

    Example: bigbird-dna evaluate pretraining results/demo/models/pretrained --tokens results/demo/tokens -o
    bits_per_base.tsv
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


@runs(
    "finetuning.evaluation.evaluate_models",
    part="chromatin.evaluation",
    also=opt.scoring(16, "max_n", "calibrated", "prior"),
)
def predict_bins(
    config: Path = opt.CONFIG,
    models: list[Path] = argument(
        "Chromatin models, whose probabilities are averaged.", "MODEL_DIR..."
    ),
    output: Path = ARRAY,
    overrides: list[str] | None = opt.OVERRIDES,
    data: Path | None = opt.CHROMATIN_DATA,
    reference: Path | None = opt.RUN_REFERENCE,
    labels: Path | None = HELD_OUT,
    network: Path | None = option(
        None,
        "FILE",
        "Also write predictions without the regressions of ensembles.",
        "",
        "--write-network",
    ),
) -> None:
    """Predict the test bins of the data set, for comparison with their labels by auc-report.

    Example: bigbird-dna evaluate test-bins workflow/config/demo.yaml results/demo/models/chromatin-8000-0 -o
    predictions.npy
    """


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
