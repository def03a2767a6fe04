"""Commands that train and evaluate language, promoter and chromatin models and their baselines."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from bigbird_dna.cli import options as opt
from bigbird_dna.cli.options import argument, option, output, runs, trains

if TYPE_CHECKING:
    from bigbird_dna.config import Config as RunConfig

TOKEN_STORES = option(
    None, "DIR", "Directory of the token stores.", opt.RESULTS.tokens, "--tokens"
)
LABELED_FILES = argument(
    "Tables (CSV, TSV, Parquet) of sequences and labels, or a FASTA of positives; each also .gz.",
    "DATA...",
)
NEGATIVES = option(None, "FASTA", "Negatives of a FASTA of positives.")
TASK = option(
    None,
    "binary|multiclass|multilabel|regression",
    "Kind of the labels.",
    "found from the labels",
)


def _tokenizer_of(settings: "RunConfig", given: opt.Given) -> Path:
    """Return the path of the tokenizer, which is stored with its token stores."""
    tokens: Path = given["tokens"]
    return tokens / settings.paths.tokenizer.name


@trains("pretraining.task.PretrainingTask", tokenizer_path=_tokenizer_of)
def pretrain(
    config: Path = opt.CONFIG,
    overrides: list[str] | None = opt.OVERRIDES,
    tokens: Path | None = TOKEN_STORES,
    tokenizer_path: Path | None = opt.RUN_TOKENIZER,
    output: Path | None = output(
        None, "MODEL_DIR", "Model directory to write.", opt.RESULTS.pretrained
    ),
) -> None:
    """Pretrain the encoder on masked-token prediction, and on next-sentence prediction if configured.

    With encoder.causal, it is trained on next-token prediction, and the model can continue sequences
    (generate).

    An interrupted run resumes from its last checkpoint when started again with the same configuration. On
    SIGTERM it saves a checkpoint and exits with code 75. To train with N processes, run
    `torchrun --nproc-per-node N -m bigbird_dna.cli.main pretrain …`.

    Example: bigbird-dna pretrain workflow/config/demo.yaml
    """


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


def _promoter_model(settings: "RunConfig", given: opt.Given) -> Path:
    return settings.paths.promoter_model(
        "control" if given["shuffle_labels"] else given["negative_set"]
    )


@trains(
    "finetuning.promoters.PromoterTask",
    reference=opt.promoter_reference,
    tokenizer_path=opt.model_tokenizer,
    output=_promoter_model,
)
def finetune_promoter(
    config: Path = opt.CONFIG,
    negative_set: str = opt.NEGATIVE_SET,
    overrides: list[str] | None = opt.OVERRIDES,
    shuffle_labels: bool = option(
        False, None, "Train the shuffled-label control.", "", "--shuffle-labels"
    ),
    data: Path | None = opt.WINDOWS,
    reference: Path | None = opt.RUN_REFERENCE,
    tokenizer_path: Path | None = opt.RUN_TOKENIZER,
    pretrained: Path | None = opt.PRETRAINED,
    output: Path | None = output(
        None,
        "MODEL_DIR",
        "Model directory to write.",
        opt.RESULTS.promoter_model("SET"),
    ),
) -> None:
    """Fine-tune a promoter classifier and predict the held-out windows; resumes and stops like pretrain.

    Example: bigbird-dna finetune-promoter workflow/config/demo.yaml --negative-set genomic
    """


def _checkpoints_beside(_: "RunConfig", given: opt.Given) -> Path:
    output: Path = given["output"]
    return output.with_name(f"{output.name}.checkpoints")


@trains(
    "finetuning.sequences.LabeledSequenceTask",
    then="reporting.sequences.report_model",
    checkpoints=_checkpoints_beside,
)
def finetune_sequences(
    data: list[Path] = LABELED_FILES,
    output: Path = output(..., "MODEL_DIR", "Model directory to write."),
    negatives: Path | None = NEGATIVES,
    splits: Path | None = option(
        None,
        "TSV",
        "Record and split (train, valid or test) of FASTA records.",
        "by similar sequences",
    ),
    task: str | None = TASK,
    both_strands: bool = option(
        False,
        None,
        "The sequences have no direction: read both strands.",
        "",
        "--both-strands",
    ),
    sequence_column: str = opt.SEQUENCE_COLUMN,
    label_columns: list[str] = opt.LABEL_COLUMNS,
    split_column: str = opt.SPLIT_COLUMN,
    tokenizer_path: Path | None = option(
        None,
        "FILE",
        "DNA tokenizer.",
        "trained on the training sequences",
        "--tokenizer",
    ),
    pretrained: Path | None = option(
        None,
        "MODEL_DIR",
        "Pretrained model to fine-tune.",
        "random weights",
        "--pretrained",
    ),
    config: Path | None = option(
        None,
        "CONFIG",
        "Configuration (YAML), of which the sections sequences, encoder and tokens are read.",
        "a small model",
    ),
    overrides: list[str] | None = opt.OVERRIDES,
) -> None:
    """Train a model of labeled sequences, and compare it with baselines on held-out sequences.

    Tables have a row per sequence, with columns sequence and label, or label_0, label_1 and so on. Labels are
    0 and 1, names of classes, or numbers. A table can have a column split; or each table is a split by its
    name, such as train.csv, dev.csv and test.csv. Otherwise, similar sequences are in the same split.

    MODEL_DIR contains the model for score-sequences, report.html and metrics.tsv with the test results of the
    model, regressions on k-mers and on composition, a convolutional network, and a control trained on
    shuffled labels. Resumes and stops like pretrain.

    Example: bigbird-dna finetune-sequences train.csv dev.csv test.csv -o model
    """


@runs(
    "reporting.audit.audit_dataset",
    report=lambda conclusions, _: conclusions,
    say=typer.echo,
)
def audit_dataset(
    data: list[Path] = LABELED_FILES,
    output: Path = output(..., "DIR", "Tables and page to write."),
    negatives: Path | None = NEGATIVES,
    splits: Path | None = option(
        None, "TSV", "Record and split (train, valid or test) of FASTA records.", "none"
    ),
    task: str | None = TASK,
    sequence_column: str = opt.SEQUENCE_COLUMN,
    label_columns: list[str] = opt.LABEL_COLUMNS,
    split_column: str = opt.SPLIT_COLUMN,
    seed: int = option(1, None, "Random seed of the folds."),
) -> None:
    """Check labeled sequences before training: labels, copies, similar sequences, and shortcuts.

    Reads the files of finetune-sequences, with any kind of label. Counts labels, and copies and similar
    sequences (20 % common 16-mers, on either strand), also with other labels and in several splits. Fits a
    regression to each of: length, GC content, N, lower-case letters, the first and the last 10 bases, and
    4-mers, and evaluates it on sequences that are not similar. Writes tables and the page audit.html, and
    prints what is wrong.

    Example: bigbird-dna audit-dataset train.csv dev.csv test.csv -o audit
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


@trains(
    "finetuning.chromatin.ChromatinTask",
    window=lambda settings, _: settings.chromatin.data.window,
    tokenizer_path=opt.model_tokenizer,
)
def finetune_chromatin(
    config: Path = opt.CONFIG,
    overrides: list[str] | None = opt.OVERRIDES,
    window: int | None = option(
        None, "BP", "Length of the model's window.", "chromatin.data.window"
    ),
    member: int = option(
        0,
        None,
        "Index of the model in an ensemble, which sets its seed.",
        "",
        "--ensemble-index",
        least=0,
    ),
    data: Path | None = opt.CHROMATIN_DATA,
    reference: Path | None = opt.RUN_REFERENCE,
    tokenizer_path: Path | None = opt.RUN_TOKENIZER,
    pretrained: Path | None = opt.PRETRAINED,
    kmers: Path | None = option(
        None,
        "FILE",
        "K-mer regressions of the ensemble, from train baseline-chromatin --write-model.",
        "fitted after the training",
        "--kmers",
    ),
    output: Path | None = output(
        None, "MODEL_DIR", "Model directory to write.", opt.RESULTS.combined_chromatin
    ),
) -> None:
    """Train a chromatin model; resumes and stops like pretrain.

    Example: bigbird-dna finetune-chromatin workflow/config/demo.yaml --window 8000
    """


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
