"""Commands that train, calibrate and evaluate: pretraining, promoters, chromatin, and their baselines."""

from pathlib import Path
from typing import TYPE_CHECKING

from bigbird_dna.cli import options as opt
from bigbird_dna.cli.options import argument, option, output, runs, trains

if TYPE_CHECKING:
    from bigbird_dna.config import Config as RunConfig

TOKEN_STORES = option(None, "DIR", "Directory of the token stores.", opt.RESULTS.tokens, "--tokens")


def _tokenizer_of(settings: "RunConfig", given: opt.Given) -> Path:
    """The tokenizer lies with the tokens that it has made."""
    tokens: Path = given["tokens"]
    return tokens / settings.paths.tokenizer.name


@trains("pretraining.task.PretrainingTask", tokenizer_path=_tokenizer_of)
def pretrain(
    config: Path = opt.CONFIG,
    overrides: list[str] | None = opt.OVERRIDES,
    tokens: Path | None = TOKEN_STORES,
    tokenizer_path: Path | None = opt.RUN_TOKENIZER,
    output: Path | None = output(None, "MODEL_DIR", "Model directory to write.", opt.RESULTS.pretrained),
) -> None:
    """Pretrain the encoder on masked tokens, and on next sentences if the configuration asks for them.

    With encoder.causal it learns the next token instead, and the model can continue sequences (generate).

    A killed run goes on from its last checkpoint when started again with the same configuration; on SIGTERM
    it saves one first and exits with 75. Under `torchrun --nproc-per-node N -m bigbird_dna.cli.main
    pretrain …` N processes train together.

    Example: bigbird-dna pretrain workflow/config/demo.yaml
    """


@runs("pretraining.evaluation.fit_baselines", inputs=("tokens",), tokenizer_path=_tokenizer_of)
def fit_pretraining_baseline(
    config: Path = opt.CONFIG,
    overrides: list[str] | None = opt.OVERRIDES,
    tokens: Path | None = TOKEN_STORES,
    tokenizer_path: Path | None = opt.RUN_TOKENIZER,
    sequences: int = option(1000, "N", "Inputs of each split that are evaluated, at most.", least=1),
    output: Path | None = output(None, "FILE", "File to write (.npz).", opt.RESULTS.pretraining_baselines),
) -> None:
    """Fit n-grams and Markov models, and let them tell the hidden tokens that a model is evaluated on.

    evaluate pretraining does the same by itself, but takes hours for it on large genomes, in which a GPU
    would have nothing to do.

    Example: bigbird-dna train baseline-language workflow/config/demo.yaml
    """


@runs("pretraining.evaluation.evaluate_pretraining", inputs=("path", "tokens", "baselines"))
def evaluate_pretraining(
    path: Path = argument("Pretrained model.", "MODEL_DIR"),
    tokens: Path = option(
        ..., "DIR", "Token stores of its tokenizer, as tokenize writes them.", "", "--tokens"
    ),
    output: Path = output(..., "FILE", "Table to write (TSV)."),
    sequences: int = option(1000, "N", "Inputs of each split that are evaluated, at most.", least=1),
    sequence_tokens: int | None = option(
        None, "N", "Tokens of an input.", "512, or as many as the model takes", least=16
    ),
    token_order: int = option(
        6, "N", "The longest n-gram over tokens that is tried.", "", "--ngram-order", least=1
    ),
    baselines: Path | None = option(
        None, "FILE", "What train baseline-language wrote, for the same inputs.", "fitted here", "--baselines"
    ),
    alone: bool = option(False, None, "Evaluate the model without the predictors.", "", "--model-only"),
    device: str = opt.DEVICE,
    threads: int | None = opt.THREADS,
) -> None:
    """Evaluate a pretrained model and simple predictors on the same hidden tokens of held-out contigs.

    Writes bits per base with 95 % intervals over blocks of 10 kb, and the model's minus each predictor's:
    n-grams over tokens and Markov models over bases, from the left and from both sides, fitted to the
    training tokens and chosen on the validation contigs. A causal model is evaluated on the tokens of the
    second half of each input, beside predictors from the left.

    Example: bigbird-dna evaluate pretraining results/demo/models/pretrained --tokens results/demo/tokens -o
    bits_per_base.npz
    """


@runs("pretraining.spans.compare_pretraining", inputs=("models", "reference"))
def compare_pretraining(
    models: list[Path] = argument("Pretrained models.", "MODEL_DIR..."),
    reference: Path = opt.REFERENCE,
    contigs: list[str] = option(
        ...,
        "NAME",
        "Contig to compare on, which no model should have learnt from; repeatable.",
        "",
        "--contig",
    ),
    output: Path = output(..., "FILE", "Table to write (TSV)."),
    exclude: list[str] = option([], "NAME", "Contig that nothing is learnt from either; repeatable.", "none"),
    spans: int = option(1000, "N", "How many short stretches are hidden, each by itself.", least=1),
    span: int = option(3, "BP", "Length of one, up to 5; one base more takes four times as long.", least=1),
    context: int = option(100, "BP", "What is known on both sides.", least=1),
    seed: int = option(1, "N", "Of the places.", least=0),
    device: str = opt.DEVICE,
    threads: int | None = opt.THREADS,
) -> None:
    """Compare pretrained models of any tokenizers of DNA on the same hidden bases.

    Writes bits per base with 95 % intervals over blocks of 10 kb, and each row's minus the first model's.
    A model's probability of a span given both sides is its share among all spans of that length. Beside the
    models stand Markov models over bases, from the left and from both sides, which learn from the
    reference's other contigs and are chosen there. What evaluate pretraining hides depends on the tokenizer.

    Example: bigbird-dna evaluate across-tokenizers model-1 model-2 --reference genome.fa.gz --contig VII -o
    compared
    """


def _promoter_model(settings: "RunConfig", given: opt.Given) -> Path:
    return settings.paths.promoter_model("control" if given["shuffle_labels"] else given["negative_set"])


@trains("finetuning.promoters.PromoterTask", reference=opt.promoter_reference, output=_promoter_model)
def finetune_promoter(
    config: Path = opt.CONFIG,
    negative_set: str = opt.NEGATIVE_SET,
    overrides: list[str] | None = opt.OVERRIDES,
    shuffle_labels: bool = option(False, None, "The control: labels at random.", "", "--shuffle-labels"),
    data: Path | None = opt.WINDOWS,
    reference: Path | None = opt.RUN_REFERENCE,
    tokenizer_path: Path | None = opt.RUN_TOKENIZER,
    pretrained: Path | None = opt.PRETRAINED,
    output: Path | None = output(
        None, "MODEL_DIR", "Model directory to write.", opt.RESULTS.promoter_model("SET")
    ),
) -> None:
    """Fine-tune a promoter classifier, predict its held-out windows; resumes and stops as pretrain does.

    Example: bigbird-dna finetune-promoter workflow/config/demo.yaml --negative-set genomic
    """


@runs("finetuning.calibrate.calibrate_promoter", choices=("method",))
def calibrate_promoter(
    path: Path = opt.MODEL_DIRECTORY,
    output: Path | None = opt.CALIBRATED_MODEL,
    predictions: Path | None = opt.MODEL_PREDICTIONS,
    method: str = option(
        "auto",
        "auto|platt|isotonic",
        "A line on log-odds, or any rising curve; auto: the curve from 1,000 promoters and as many "
        "negatives on.",
    ),
) -> None:
    """Fit what makes a promoter model's probabilities hold, on its validation windows, and store it with it.

    finetune-promoter does the same by itself; this is for models of before, or another method. Commands that
    score give the corrected probabilities with --calibrated.

    Example: bigbird-dna model calibrate-promoter results/demo/models/promoter-genomic
    """


def _promoter_baseline(settings: "RunConfig", given: opt.Given) -> Path:
    return settings.paths.promoter_baseline(given["baseline"], given["negative_set"])


@runs(
    "finetuning.evaluation.promoter_baseline",
    choices=("baseline",),
    reference=opt.promoter_reference,
    output=_promoter_baseline,
)
def fit_promoter_baseline(
    config: Path = opt.CONFIG,
    negative_set: str = opt.NEGATIVE_SET,
    overrides: list[str] | None = opt.OVERRIDES,
    windows: Path | None = opt.WINDOWS,
    reference: Path | None = opt.RUN_REFERENCE,
    output: Path | None = output(
        None,
        "FILE",
        "Predictions to write (Parquet).",
        f"{opt.RESULTS.promoter_baseline('k-mer', 'SET')}, or position-SET.parquet",
    ),
    baseline: str = option(
        "k-mer",
        "k-mer|position",
        "What the regression sees: the frequencies of k-mers, wherever they are in the window, or the "
        "base at each position relative to the transcription start site.",
    ),
) -> None:
    """Fit a logistic regression, the baseline of promoter models, and predict the same held-out windows.

    Example: bigbird-dna train baseline-promoter workflow/config/demo.yaml --negative-set genomic --baseline
    position
    """


ARRAY = output(..., "FILE", "Probabilities to write, bins × tracks (.npy).")
HELD_OUT = option(
    None, "DIR", "Also write the bins and their labels to this directory.", "", "--write-labels"
)


@trains("finetuning.chromatin.ChromatinTask", window=lambda settings, _: settings.chromatin.data.window)
def finetune_chromatin(
    config: Path = opt.CONFIG,
    overrides: list[str] | None = opt.OVERRIDES,
    window: int | None = option(None, "BP", "Sequence that the model sees.", "chromatin.data.window"),
    member: int = option(
        0, None, "Number in an ensemble: another seed for each.", "", "--ensemble-index", least=0
    ),
    data: Path | None = opt.CHROMATIN_DATA,
    reference: Path | None = opt.RUN_REFERENCE,
    tokenizer_path: Path | None = opt.RUN_TOKENIZER,
    pretrained: Path | None = opt.PRETRAINED,
    output: Path | None = output(
        None, "MODEL_DIR", "Model directory to write.", opt.RESULTS.combined_chromatin
    ),
) -> None:
    """Train a chromatin model; resumes and stops as pretrain does.

    Example: bigbird-dna finetune-chromatin workflow/config/demo.yaml --window 8000
    """


@runs("finetuning.calibrate.calibrate_chromatin", part="chromatin")
def calibrate_chromatin(
    config: Path = opt.CONFIG,
    path: Path = opt.MODEL_DIRECTORY,
    output: Path | None = opt.CALIBRATED_MODEL,
    overrides: list[str] | None = opt.OVERRIDES,
    data: Path | None = opt.CHROMATIN_DATA,
    reference: Path | None = opt.RUN_REFERENCE,
    batch_size: int = opt.batch_size(16),
    device: str = opt.DEVICE,
    threads: int | None = opt.THREADS,
) -> None:
    """Fit what makes a chromatin model's probabilities hold, track by track on validation bins.

    Commands that predict give the corrected probabilities with --calibrated. chromatin.calibration says how
    many bins, and how; chromatin.evaluation.middle whether neighbours share a window.

    Example: bigbird-dna model calibrate-chromatin workflow/config/demo.yaml
    results/demo/models/chromatin-8000-0
    """


@runs(
    "finetuning.evaluation.evaluate_models",
    part="chromatin.evaluation",
    also=opt.scoring(16, "max_n", "calibrated", "prior"),
)
def predict_bins(
    config: Path = opt.CONFIG,
    models: list[Path] = argument("Chromatin models; their mean predicts.", "MODEL_DIR..."),
    output: Path = ARRAY,
    overrides: list[str] | None = opt.OVERRIDES,
    data: Path | None = opt.CHROMATIN_DATA,
    reference: Path | None = opt.RUN_REFERENCE,
    labels: Path | None = HELD_OUT,
) -> None:
    """Predict the test bins of the data set: what auc-report compares with their labels.

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
    threads: int | None = opt.THREADS,
) -> None:
    """Fit a logistic regression on k-mers to every track and predict the same test bins.

    Example: bigbird-dna train baseline-chromatin workflow/config/demo.yaml -o kmers.npy
    """
