"""Commands that train, calibrate and evaluate: pretraining, promoters, chromatin, and their baselines."""

from pathlib import Path
from typing import Annotated

from bigbird_dna.cli import options as opt
from bigbird_dna.cli.options import argument, option, output, runs, training
from bigbird_dna.errors import ConfigError

TokenStores = Annotated[
    Path | None, option("DIR", "Directory of the token stores.", opt.RESULTS.tokens, "--tokens")
]


def pretrain(
    config: opt.Config,
    overrides: opt.Set = None,
    tokens: TokenStores = None,
    tokenizer: opt.RunTokenizer = None,
    output: Annotated[
        Path | None, output("MODEL_DIR", "Model directory to write.", opt.RESULTS.pretrained)
    ] = None,
    checkpoints: opt.Checkpoints = None,
    time_limit: opt.TimeLimit = None,
    device: opt.Device = "auto",
    threads: opt.Threads = None,
) -> None:
    """Pretrain the encoder on masked tokens, and on next sentences if the configuration asks for them.

    With encoder.causal it learns the next token instead, and the model can continue sequences (generate).

    A killed run goes on from its last checkpoint when started again with the same configuration; on SIGTERM
    it saves one first and exits with 75. Under `torchrun --nproc-per-node N -m bigbird_dna.cli.main
    pretrain …` N processes train together.
    """
    from bigbird_dna.pretraining.task import PretrainingTask
    from bigbird_dna.training.task import train

    with training(config, overrides, device, threads, time_limit) as (settings, paths, here):
        tokens = tokens or paths.tokens
        task = PretrainingTask(settings, tokens, tokenizer or tokens / paths.tokenizer.name)
        train(task, output or paths.pretrained, checkpoints or paths.checkpoints, here)


def fit_pretraining_baseline(
    config: opt.Config,
    overrides: opt.Set = None,
    tokens: TokenStores = None,
    tokenizer: opt.RunTokenizer = None,
    sequences: Annotated[int, option("N", "Inputs of each split that are judged, at most.", least=1)] = 1000,
    output: Annotated[
        Path | None, output("FILE", "File to write (.npz).", opt.RESULTS.pretraining_baselines)
    ] = None,
) -> None:
    """Fit n-grams and Markov models, and let them tell the hidden tokens that a model is judged on.

    evaluate pretraining does the same by itself, but takes hours for it on large genomes, in which a GPU
    would have nothing to do.
    """
    from bigbird_dna.disk.outputs import check_output
    from bigbird_dna.pretraining.evaluation import fit_baselines

    settings, paths = opt.read_run(config, overrides)
    tokens, output = tokens or paths.tokens, output or paths.pretraining_baselines
    check_output(output, [tokens])
    fit_baselines(
        settings.pretraining,
        tokens,
        tokenizer or tokens / paths.tokenizer.name,
        output,
        sequences=sequences,
        causal=settings.encoder.causal,
    )


@runs("pretraining.evaluation.evaluate_pretraining", inputs=("path", "tokens", "baselines"))
def evaluate_pretraining(
    path: Annotated[Path, argument("Pretrained model.", "MODEL_DIR")],
    tokens: Annotated[
        Path, option("DIR", "Token stores of its tokenizer, as tokenize writes them.", "", "--tokens")
    ],
    output: Annotated[Path, output("FILE", "Table to write (TSV).")],
    sequences: Annotated[int, option("N", "Inputs of each split that are judged, at most.", least=1)] = 1000,
    sequence_tokens: Annotated[
        int | None, option("N", "Tokens of an input.", "512, or as many as the model takes", least=16)
    ] = None,
    token_order: Annotated[
        int, option("N", "The longest n-gram over tokens that is tried.", "", "--ngram-order", least=1)
    ] = 6,
    baselines: Annotated[
        Path | None,
        option(
            "FILE", "What train baseline-language wrote, for the same inputs.", "fitted here", "--baselines"
        ),
    ] = None,
    alone: Annotated[
        bool, option(None, "Judge the model without the predictors.", "", "--model-only")
    ] = False,
    device: opt.Device = "auto",
    threads: opt.Threads = None,
) -> None:
    """Judge a pretrained model and simple predictors on the same hidden tokens of held-out contigs.

    Writes bits per base with 95 % intervals over blocks of 10 kb, and the model's minus each predictor's:
    n-grams over tokens and Markov models over bases, from the left and from both sides, fitted to the
    training tokens and chosen on the validation contigs. A causal model is judged on the tokens of the second
    half of each input, beside predictors from the left.
    """


@runs("pretraining.spans.compare_pretraining", inputs=("models", "reference"))
def compare_pretraining(
    models: Annotated[list[Path], argument("Pretrained models.", "MODEL_DIR...")],
    reference: opt.Reference,
    contigs: Annotated[
        list[str],
        option(
            "NAME",
            "Contig to compare on, which no model should have learnt from; repeatable.",
            "",
            "--contig",
        ),
    ],
    output: Annotated[Path, output("FILE", "Table to write (TSV).")],
    exclude: Annotated[
        list[str], option("NAME", "Contig that nothing is learnt from either; repeatable.", "none")
    ] = [],  # noqa: B006
    spans: Annotated[
        int, option("N", "How many short stretches are hidden, each by itself.", least=1)
    ] = 1000,
    span: Annotated[
        int, option("BP", "Length of one, up to 5; one base more takes four times as long.", least=1)
    ] = 3,
    context: Annotated[int, option("BP", "What is known on both sides.", least=1)] = 100,
    seed: Annotated[int, option("N", "Of the places.", least=0)] = 1,
    device: opt.Device = "auto",
    threads: opt.Threads = None,
) -> None:
    """Compare pretrained models of any tokenizers of DNA on the same hidden bases.

    Writes bits per base with 95 % intervals over blocks of 10 kb, and each row's minus the first model's.
    A model's probability of a span given both sides is its share among all spans of that length. Beside the
    models stand Markov models over bases, from the left and from both sides, which learn from the
    reference's other contigs and are chosen there. What evaluate pretraining hides depends on the tokenizer.
    """


def finetune_promoter(
    config: opt.Config,
    negative_set: opt.NegativeSet,
    overrides: opt.Set = None,
    shuffle_labels: Annotated[
        bool, option(None, "The control: labels at random.", "", "--shuffle-labels")
    ] = False,
    windows: opt.Windows = None,
    reference: opt.RunReference = None,
    tokenizer: opt.RunTokenizer = None,
    pretrained: opt.Pretrained = None,
    output: Annotated[
        Path | None, output("MODEL_DIR", "Model directory to write.", opt.RESULTS.promoter_model("SET"))
    ] = None,
    checkpoints: opt.Checkpoints = None,
    time_limit: opt.TimeLimit = None,
    device: opt.Device = "auto",
    threads: opt.Threads = None,
) -> None:
    """Fine-tune a promoter classifier, predict its held-out windows; resumes and stops as pretrain does."""
    from bigbird_dna.finetuning.promoters import PromoterTask
    from bigbird_dna.genome.reference import Reference
    from bigbird_dna.training.task import train

    with training(config, overrides, device, threads, time_limit) as (settings, paths, here):
        task = PromoterTask(
            settings,
            windows or paths.windows,
            Reference(reference or opt.promoter_reference(settings)),
            tokenizer or paths.tokenizer,
            pretrained or paths.pretrained,
            negative_set,
            shuffle_labels,
        )
        usual = paths.promoter_model("control" if shuffle_labels else negative_set)
        train(task, output or usual, checkpoints or paths.checkpoints, here)


@runs("finetuning.calibrate.calibrate_promoter", choices=("method",))
def calibrate_promoter(
    path: opt.ModelDirectory,
    output: opt.CalibratedModel = None,
    predictions: opt.ModelPredictions = None,
    method: Annotated[
        str,
        option(
            "auto|platt|isotonic",
            "A line on log-odds, or any rising curve; auto: the curve from 1,000 promoters and as many "
            "negatives on.",
        ),
    ] = "auto",
) -> None:
    """Fit what makes a promoter model's probabilities hold, on its validation windows, and store it with it.

    finetune-promoter does the same by itself; this is for models of before, or another method. Commands that
    score give the corrected probabilities with --calibrated.
    """


def fit_promoter_baseline(
    config: opt.Config,
    negative_set: opt.NegativeSet,
    overrides: opt.Set = None,
    windows: opt.Windows = None,
    reference: opt.RunReference = None,
    output: Annotated[
        Path | None,
        output(
            "FILE",
            "Predictions to write (Parquet).",
            f"{opt.RESULTS.promoter_baseline('k-mer', 'SET')}, or position-SET.parquet",
        ),
    ] = None,
    baseline: Annotated[
        str,
        option(
            "k-mer|position",
            "What the regression sees: the frequencies of k-mers, wherever they are in the window, or the "
            "base at each position relative to the transcription start site.",
        ),
    ] = "k-mer",
) -> None:
    """Fit a logistic regression, the baseline of promoter models, and predict the same held-out windows."""
    from bigbird_dna.errors import check_choice
    from bigbird_dna.finetuning.evaluation import BASELINES, promoter_baseline
    from bigbird_dna.genome.reference import Reference

    check_choice("baseline", baseline, BASELINES)
    settings, paths = opt.read_run(config, overrides)
    promoter_baseline(
        settings,
        negative_set,
        baseline=baseline,
        windows=windows or paths.windows,
        reference=Reference(reference or opt.promoter_reference(settings)),
        output=output or paths.promoter_baseline(baseline, negative_set),
    )


Array = Annotated[Path, output("FILE", "Probabilities to write, bins × tracks (.npy).")]
HeldOut = Annotated[
    Path | None, option("DIR", "Also write the bins and their labels to this directory.", "", "--labels")
]


def finetune_chromatin(
    config: opt.Config,
    overrides: opt.Set = None,
    window: Annotated[
        int | None, option("BP", "Sequence that the model sees.", "chromatin.data.window")
    ] = None,
    ensemble_index: Annotated[
        int, option(None, "Number in an ensemble: another seed for each.", least=0)
    ] = 0,
    data: opt.ChromatinData = None,
    reference: opt.RunReference = None,
    tokenizer: opt.RunTokenizer = None,
    pretrained: opt.Pretrained = None,
    output: Annotated[
        Path | None, output("MODEL_DIR", "Model directory to write.", opt.RESULTS.combined_chromatin)
    ] = None,
    checkpoints: opt.Checkpoints = None,
    time_limit: opt.TimeLimit = None,
    device: opt.Device = "auto",
    threads: opt.Threads = None,
) -> None:
    """Train a chromatin model; resumes and stops as pretrain does."""
    from bigbird_dna.finetuning.chromatin import ChromatinTask
    from bigbird_dna.genome.reference import Reference
    from bigbird_dna.training.task import train

    with training(config, overrides, device, threads, time_limit) as (settings, paths, here):
        bin_size = settings.chromatin.data.bin
        size = settings.chromatin.data.window if window is None else window
        if size < bin_size or (size - bin_size) % 2:
            raise ConfigError(f"--window {size}: doesn't hold the bin of {bin_size} bp in its middle")
        task = ChromatinTask(
            settings,
            data or paths.chromatin_data,
            Reference(reference or paths.reference),
            tokenizer or paths.tokenizer,
            pretrained or paths.pretrained,
            size,
            ensemble_index,
        )
        train(task, output or paths.combined_chromatin, checkpoints or paths.checkpoints, here)


@runs("finetuning.calibrate.calibrate_chromatin", part="chromatin")
def calibrate_chromatin(
    config: opt.Config,
    path: opt.ModelDirectory,
    output: opt.CalibratedModel = None,
    overrides: opt.Set = None,
    data: opt.ChromatinData = None,
    reference: opt.RunReference = None,
    batch_size: opt.BatchSize = 16,
    device: opt.Device = "auto",
    threads: opt.Threads = None,
) -> None:
    """Fit what makes a chromatin model's probabilities hold, track by track on validation bins.

    Commands that predict give the corrected probabilities with --calibrated. chromatin.calibration says how
    many bins, and how; chromatin.evaluation.middle whether neighbours share a window.
    """


@runs(
    "finetuning.evaluation.evaluate_models",
    part="chromatin.evaluation",
    also=opt.scoring(16, "max_n", "calibrated", "prior"),
)
def predict_bins(
    config: opt.Config,
    models: Annotated[list[Path], argument("Chromatin models; their mean predicts.", "MODEL_DIR...")],
    output: Array,
    overrides: opt.Set = None,
    data: opt.ChromatinData = None,
    reference: opt.RunReference = None,
    labels: HeldOut = None,
) -> None:
    """Predict the test bins of the data set: what auc-report compares with their labels."""


@runs("finetuning.evaluation.evaluate_baseline", part="chromatin.evaluation")
def fit_chromatin_baseline(
    config: opt.Config,
    output: Array,
    overrides: opt.Set = None,
    data: opt.ChromatinData = None,
    reference: opt.RunReference = None,
    labels: HeldOut = None,
    threads: opt.Threads = None,
) -> None:
    """Fit a logistic regression on k-mers to every track and predict the same test bins."""
