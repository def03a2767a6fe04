"""Commands that train models and baselines."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from bigbird_dna.cli.options import (
    RESULTS,
    TRAIN,
    Checkpoints,
    Commands,
    Config,
    Device,
    Force,
    NewModel,
    Overrides,
    Pretrained,
    RunBins,
    RunPromoters,
    RunReference,
    RunTokenizer,
    RunTokens,
    RunWindows,
    SequenceColumn,
    Threads,
    WriteLabels,
    output_option,
    read_run,
    training,
)
from bigbird_dna.errors import UsageError

app = Commands(TRAIN)
group = Commands(help="Train baselines. Models are trained by pretrain and finetune-….")

LabeledFiles = Annotated[
    list[Path],
    typer.Argument(
        metavar="DATA",
        help="Tables (CSV, TSV, Parquet) of sequences and labels, or a FASTA of "
        "positives; each also .gz.",
    ),
]
Negatives = Annotated[
    Path | None,
    typer.Option(metavar="FASTA", help="Negatives of a FASTA of positives."),
]
LabelKind = Annotated[
    Literal["binary", "multiclass", "multilabel", "regression"] | None,
    typer.Option(help="Kind of the labels.", show_default="found from the labels"),
]
LabelColumns = Annotated[
    list[str] | None,
    typer.Option(
        "--label-column",
        metavar="NAME",
        help="Column of a table with labels, or a pattern such as 'track_*'; repeatable.",
        show_default="label, or label_0, label_1 …",
    ),
]
Ignore = Annotated[
    Path | None,
    typer.Option(
        metavar="BED",
        help="Intervals whose bases are not learned, such as those around start sites that the table lacks; "
        "column 6: strand.",
    ),
]
SplitColumn = Annotated[
    str,
    typer.Option(
        metavar="NAME", help="Column of a table with the splits, if it has one."
    ),
]


@app.command(
    "pretrain",
    epilog="Example: bigbird-dna pretrain workflow/config/demo.yaml",
)
def pretrain(
    config: Config,
    overrides: Overrides = None,
    tokens: RunTokens = None,
    tokenizer: RunTokenizer = None,
    output: Annotated[
        Path | None,
        output_option("MODEL_DIR", "Model directory to write.", RESULTS.pretrained),
    ] = None,
    checkpoints: Checkpoints = None,
    device: Device = "auto",
    threads: Threads = None,
    force: Force = False,
) -> None:
    """Pretrain the encoder on masked-token prediction, and on next-sentence prediction if configured.

    An interrupted run resumes from its last checkpoint when started again with the same configuration. On
    SIGTERM it saves a checkpoint and exits with code 75. To train with N processes, run
    `torchrun --nproc-per-node N -m bigbird_dna.cli.main pretrain …`.
    """
    from bigbird_dna.pretraining.task import PretrainingTask
    from bigbird_dna.training.task import train

    run, paths = read_run(config, overrides)
    tokens = tokens or paths.tokens
    task = PretrainingTask(
        run=run,
        tokens=tokens,
        tokenizer_path=tokenizer or tokens / paths.tokenizer.name,
    )
    with training(device, threads) as world:
        train(
            task,
            output or paths.pretrained,
            checkpoints or paths.checkpoints,
            world,
        )


@app.command(
    "finetune-promoter",
    epilog="Example: bigbird-dna finetune-promoter workflow/config/demo.yaml",
)
def finetune_promoter(
    config: Config,
    overrides: Overrides = None,
    negative_set: Annotated[
        str | None,
        typer.Option(
            metavar="SET",
            help="Train a classifier of aligned windows against negatives: substituted, "
            "permuted or genomic.",
            show_default="a model of start sites at every base",
        ),
    ] = None,
    shuffle_labels: Annotated[
        bool,
        typer.Option(
            "--shuffle-labels",
            help="Train the shuffled-label control of a classifier.",
        ),
    ] = False,
    windows: RunWindows = None,
    promoters: RunPromoters = None,
    ignore: Ignore = None,
    reference: RunReference = None,
    tokenizer: RunTokenizer = None,
    pretrained: Pretrained = None,
    output: Annotated[
        Path | None,
        output_option(
            "MODEL_DIR",
            "Model directory to write.",
            f"{RESULTS.trained_start_sites} or {RESULTS.promoter_model('SET')}",
        ),
    ] = None,
    checkpoints: Checkpoints = None,
    device: Device = "auto",
    threads: Threads = None,
    force: Force = False,
) -> None:
    """Train a model of the start sites of promoters at every base of a genome; resumes and stops like pretrain.

    With --negative-set, train a classifier of aligned windows instead, as in the paper, and predict the
    held-out windows.
    """
    from bigbird_dna.finetuning.promoters import PromoterTask
    from bigbird_dna.finetuning.start_sites import StartSiteTask
    from bigbird_dna.genome.reference import Reference
    from bigbird_dna.training.task import train

    if shuffle_labels and negative_set is None:
        raise UsageError("--shuffle-labels needs --negative-set")

    run, paths = read_run(config, overrides)
    with training(device, threads) as world:
        genome = Reference(reference or paths.reference)
        tokenizer = tokenizer or run.model_tokenizer
        pretrained = pretrained or paths.pretrained
        checkpoints = checkpoints or paths.checkpoints
        if negative_set is None:
            dense = StartSiteTask(
                run=run,
                promoters=promoters or paths.promoters,
                reference=genome,
                tokenizer_path=tokenizer,
                pretrained=pretrained,
                ignore=ignore,
            )
            train(dense, output or paths.trained_start_sites, checkpoints, world)
        else:
            windowed = PromoterTask(
                run=run,
                negative_set=negative_set,
                shuffle_labels=shuffle_labels,
                data=windows or paths.windows,
                reference=genome,
                tokenizer_path=tokenizer,
                pretrained=pretrained,
            )
            name = "control" if shuffle_labels else negative_set
            train(windowed, output or paths.promoter_model(name), checkpoints, world)


@app.command(
    "finetune-chromatin",
    epilog="Example: bigbird-dna finetune-chromatin workflow/config/demo.yaml "
    "--window 8000",
)
def finetune_chromatin(
    config: Config,
    overrides: Overrides = None,
    window: Annotated[
        int | None,
        typer.Option(
            metavar="BP",
            help="Length of the model's window.",
            show_default="chromatin.data.window",
        ),
    ] = None,
    member: Annotated[
        int,
        typer.Option(
            "--ensemble-index",
            metavar="N",
            help="Index of the model in an ensemble, which sets its seed.",
            min=0,
        ),
    ] = 0,
    data: RunBins = None,
    reference: RunReference = None,
    tokenizer: RunTokenizer = None,
    pretrained: Pretrained = None,
    output: Annotated[
        Path | None,
        output_option(
            "MODEL_DIR", "Model directory to write.", RESULTS.combined_chromatin
        ),
    ] = None,
    checkpoints: Checkpoints = None,
    device: Device = "auto",
    threads: Threads = None,
    force: Force = False,
) -> None:
    """Train a chromatin model; resumes and stops like pretrain."""
    from bigbird_dna.finetuning.chromatin import ChromatinTask
    from bigbird_dna.genome.reference import Reference
    from bigbird_dna.training.task import train

    run, paths = read_run(config, overrides)
    with training(device, threads) as world:
        task = ChromatinTask(
            run=run,
            window=run.chromatin.data.window if window is None else window,
            member=member,
            data=data or paths.chromatin_data,
            reference=Reference(reference or paths.reference),
            tokenizer_path=tokenizer or run.model_tokenizer,
            pretrained=pretrained or paths.pretrained,
        )
        train(
            task,
            output or paths.combined_chromatin,
            checkpoints or paths.checkpoints,
            world,
        )


@app.command(
    "finetune-sequences",
    epilog="Example: bigbird-dna finetune-sequences train.csv dev.csv test.csv -o model",
)
def finetune_sequences(
    data: LabeledFiles,
    output: NewModel,
    negatives: Negatives = None,
    task: LabelKind = None,
    both_strands: Annotated[
        bool,
        typer.Option(
            "--both-strands",
            help="The sequences have no direction: read both strands.",
        ),
    ] = False,
    sequence_column: SequenceColumn = "sequence",
    label_columns: LabelColumns = None,
    split_column: SplitColumn = "split",
    tokenizer: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="DNA tokenizer.",
            show_default="trained on the training sequences",
        ),
    ] = None,
    pretrained: Annotated[
        Path | None,
        typer.Option(
            metavar="MODEL_DIR",
            help="Pretrained model to fine-tune.",
            show_default="random weights",
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="CONFIG",
            help="Configuration (YAML), of which the sections sequences, encoder and "
            "tokens are read.",
            show_default="a small model",
        ),
    ] = None,
    overrides: Overrides = None,
    checkpoints: Annotated[
        Path | None,
        typer.Option(
            "--checkpoint-dir",
            metavar="DIR",
            help="Directory for checkpoints.",
            show_default="MODEL_DIR.checkpoints",
        ),
    ] = None,
    device: Device = "auto",
    threads: Threads = None,
    force: Force = False,
) -> None:
    """Train a model of labeled sequences, and compare it with baselines on held-out sequences.

    Tables have a row per sequence, with columns sequence and label, or label_0, label_1 and so on. Labels are
    0 and 1, names of classes, or numbers. A table can have a column split; or each table is a split by its
    name, such as train.csv, dev.csv and test.csv. Otherwise, similar sequences are in the same split.

    MODEL_DIR contains the model for score-sequences, report.md and metrics.tsv with the test results of the
    model and its baselines. Resumes and stops like pretrain.
    """
    from bigbird_dna.finetuning.sequences import LabeledSequenceTask
    from bigbird_dna.reporting.sequences import report_model
    from bigbird_dna.training.task import train

    run, _ = read_run(config, overrides)
    with training(device, threads) as world:
        labeled = LabeledSequenceTask(
            run=run,
            data=data,
            negatives=negatives,
            task=task,
            both_strands=both_strands,
            sequence_column=sequence_column,
            label_columns=label_columns or (),
            split_column=split_column,
            tokenizer_path=tokenizer,
            pretrained=pretrained,
        )
        train(
            labeled,
            output,
            checkpoints or output.with_name(f"{output.name}.checkpoints"),
            world,
            report_model,
        )


@app.command(
    "audit-dataset",
    epilog="Example: bigbird-dna audit-dataset train.csv dev.csv test.csv -o audit",
)
def audit_dataset(
    data: LabeledFiles,
    output: Annotated[
        Path,
        output_option("DIR", "Tables to write."),
    ],
    negatives: Negatives = None,
    task: LabelKind = None,
    sequence_column: SequenceColumn = "sequence",
    label_columns: LabelColumns = None,
    split_column: SplitColumn = "split",
) -> None:
    """Check labeled sequences before training: labels, copies, similar sequences, and shortcuts.

    Reads the files of finetune-sequences, with any kind of label. Counts the sequences of each label and
    split, copies with other labels, and copies and similar sequences (20 % common 16-mers, on either strand)
    in several splits. Fits a regression to each of length, GC content, N and lower-case letters, and
    evaluates it on sequences that are not similar. Writes two tables, and prints what is wrong.
    """
    from bigbird_dna.reporting.audit import audit_dataset

    conclusions = audit_dataset(
        data,
        output,
        negatives=negatives,
        task=task,
        sequence_column=sequence_column,
        label_columns=label_columns or (),
        split_column=split_column,
    )
    for line in conclusions:
        typer.echo(line)


@group.command(
    "baseline",
    epilog="Example: bigbird-dna train baseline promoter workflow/config/demo.yaml "
    "--negative-set genomic",
)
def train_baseline(
    task: Annotated[
        Literal["promoter", "chromatin"],
        typer.Argument(metavar="TASK", help="promoter or chromatin."),
    ],
    config: Config,
    overrides: Overrides = None,
    output: Annotated[
        Path | None,
        output_option(
            "PATH",
            "promoter: directory; chromatin: probabilities of the test bins (.npy).",
            "a file of the run in RESULTS",
        ),
    ] = None,
    reference: RunReference = None,
    negative_set: Annotated[
        str | None,
        typer.Option(metavar="SET", help="promoter: negative set, required."),
    ] = None,
    windows: RunWindows = None,
    features: Annotated[
        list[str] | None,
        typer.Option(
            "--baseline",
            metavar="FEATURES",
            help="promoter: k-mer (anywhere in the window), position (the base at each) or "
            "composition (GC content and CpG); repeatable.",
            show_default="all",
        ),
    ] = None,
    scan: Annotated[
        Path | None,
        typer.Option(
            metavar="FASTA",
            help="promoter: also score this indexed FASTA, by k-mer and position, into "
            "kmer.scan.tsv and position.scan.tsv, and by density of CpG, into cpg.scan.tsv.",
        ),
    ] = None,
    stride: Annotated[
        int,
        typer.Option(
            metavar="BP",
            help="With --scan: bins, of whose bases the best is written.",
            min=1,
        ),
    ] = 10,
    data: RunBins = None,
    labels: WriteLabels = None,
    dyads: Annotated[
        Path | None,
        typer.Option(
            "--write-dyads",
            metavar="FILE",
            help="chromatin: also write predictions with spaced dyads (.npy).",
        ),
    ] = None,
    threads: Threads = None,
) -> None:
    """Fit a baseline, and predict the same held-out data as the models of the task.

    promoter: logistic regressions, one file of predictions for each kind of features. chromatin: a
    logistic regression on k-mers, and then dyads, for every track.
    """
    from bigbird_dna.finetuning.evaluation import evaluate_baseline, promoter_baselines
    from bigbird_dna.model.inference import cpu_threads

    run, paths = read_run(config, overrides)
    with cpu_threads(threads):
        if task == "promoter":
            if negative_set is None:
                raise UsageError("train baseline promoter needs --negative-set")

            promoter_baselines(
                run,
                negative_set,
                baselines=features or (),
                windows=windows or paths.windows,
                reference=reference or paths.reference,
                output=output or paths.promoter_baselines(negative_set),
                scan=scan,
                stride=stride,
            )
        else:
            evaluate_baseline(
                run.chromatin.evaluation,
                data=data or paths.chromatin_data,
                reference=reference or paths.reference,
                output=output or paths.chromatin_kmers,
                labels=labels,
                dyads=dyads,
            )


@group.command(
    "cnn-scan",
    epilog="Example: bigbird-dna train cnn-scan workflow/config/yeast.yaml --minutes 10 "
    "--scan results/yeast/genome/test.fa.gz -o cnn.scan.tsv",
)
def train_cnn_scan(
    config: Config,
    scan: Annotated[
        Path, typer.Option(metavar="FASTA", help="Indexed FASTA to score.")
    ],
    output: Annotated[Path, output_option("FILE", "Table of scores to write.")],
    overrides: Overrides = None,
    reference: RunReference = None,
    promoters: RunPromoters = None,
    ignore: Ignore = None,
    minutes: Annotated[
        float, typer.Option(metavar="N", help="CPU time of the training.", min=0.01)
    ] = 10,
    seed: Annotated[int, typer.Option(metavar="N", help="Random seed.", min=0)] = 1,
    stride: Annotated[
        int,
        typer.Option(
            metavar="BP", help="Bins, of whose bases the best is written.", min=1
        ),
    ] = 10,
    threads: Threads = None,
) -> None:
    """Train a convolutional network on start sites at every base, and scan contigs with it.

    A baseline of dense promoter models at equal CPU time, on the same windows and labels: 64 channels, a
    convolution of 19 bp and nine of width 5 with dilations from 1 to 128. Writes a table for evaluate scan.
    """
    from bigbird_dna.baselines.cnn_scan import cnn_scan
    from bigbird_dna.model.inference import cpu_threads

    run, paths = read_run(config, overrides)
    with cpu_threads(threads):
        cnn_scan(
            run,
            output,
            reference=reference or paths.reference,
            promoters=promoters or paths.promoters,
            ignore=ignore,
            scan=scan,
            minutes=minutes,
            seed=seed,
            stride=stride,
        )
