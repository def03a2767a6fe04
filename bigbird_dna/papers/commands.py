"""Commands of the experiments: the study of pretraining, tables, the ablation, receptive fields."""

from pathlib import Path
from typing import Annotated

from bigbird_dna.cli.options import (
    RESULTS,
    TRACK_TABLE,
    BatchSize,
    Config,
    Device,
    Directory,
    NegativeSet,
    ResultFile,
    RunReference,
    RunTokenizer,
    Set,
    Threads,
    Windows,
    argument,
    check_benchmarks,
    named_files,
    option,
    output,
    promoter_reference,
    read_run,
)
from bigbird_dna.console import log
from bigbird_dna.disk.outputs import check_output, named_output, open_text, text_destination

BinPredictions = Annotated[
    list[str] | None,
    option(
        "NAME-SEED=FILE", "Of a model, what evaluate test-bins wrote; repeatable.", "none", "--predictions"
    ),
]
Altered = Annotated[
    list[str] | None,
    option(
        "NAME",
        "Mechanism whose encoder differs by more than its attention: no published figures; repeatable.",
        "none",
        "--no-published",
    ),
]


def report_study(
    models: Annotated[
        list[Path],
        argument(
            "Fine-tuned models, of several starts, shares of the examples (promoters.training.train_fraction, "
            "chromatin.training.train_fraction) and seeds.",
            "MODEL_DIR...",
        ),
    ],
    output: Directory,
    labels: Annotated[
        Path | None,
        option(
            "FILE",
            "Labels of the test bins, for chromatin models. What evaluate test-bins wrote has to be "
            "beside each model's directory, as predictions.npy.",
            "",
            "--labels",
        ),
    ] = None,
    pretrained: Annotated[
        Path | None,
        option("MODEL_DIR", "The pretrained model, whose log says what it took.", "", "--pretrained"),
    ] = None,
    benchmarks: Annotated[
        Path | None, option("DIR", "Snakemake's benchmark files: what the jobs took.", "not said")
    ] = None,
    min_positives: Annotated[
        int, option("N", "Test positives that a track needs to count.", "", "--min-positives", least=1)
    ] = 1,
) -> None:
    """Compare models that were fine-tuned from pretrained and from random weights.

    Writes study.tsv (AUROC by share of the examples and start, and what pretrained weights gain, with a
    paired interval over seeds and promoters with their negatives, or tracks), study.svg, study_steps.svg and
    study.txt, the same in words. Of fewer than five tracks there is no interval, and no gain is claimed.
    """
    from bigbird_dna.papers.experiments.pretraining_study import study_report

    check_benchmarks(benchmarks)
    made = study_report(
        models,
        output,
        labels=labels,
        pretrained=pretrained,
        benchmarks=benchmarks,
        min_positives=min_positives,
    )
    for sentence in made.sentences:
        log(sentence)


def probe_promoters(
    config: Config,
    negative_set: NegativeSet,
    output: Directory,
    overrides: Set = None,
    model: Annotated[
        Path | None, option("MODEL_DIR", "Whose encoder is probed.", RESULTS.pretrained, "--pretrained")
    ] = None,
    random_seed: Annotated[int, option(None, "Of the fresh weights that it is compared with.", least=0)] = 1,
    windows: Windows = None,
    reference: RunReference = None,
    batch_size: BatchSize = 32,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Probe the layers of a frozen encoder on promoters, beside fresh weights and k-mers.

    A logistic regression on the mean over tokens of each layer's hidden states (0: the embeddings) learns
    from the training windows, and chooses its penalty on the validation windows. Writes probes.tsv (AUROC on
    the test windows with DeLong's interval) and probes.svg.
    """
    from bigbird_dna.genome.reference import Reference
    from bigbird_dna.model.inference import cpu_threads
    from bigbird_dna.papers.experiments.layer_probes import probe_promoters as probe
    from bigbird_dna.reporting.style import interval

    settings, paths = read_run(config, overrides)
    with cpu_threads(threads):
        table = probe(
            settings,
            negative_set,
            windows=windows or paths.windows,
            reference=Reference(reference or promoter_reference(settings)),
            model=model or paths.pretrained,
            random_seed=random_seed,
            output=output,
            batch_size=batch_size,
            device=device,
        )
    for row in table.astype({"layer": object}).fillna({"layer": ""}).to_dict("records"):
        where = " layer ".join(filter(None, (row["weights"], str(row["layer"]))))
        log(f"{where}: AUROC {interval(row['auroc'], row['auroc_low'], row['auroc_high'])}")


def report_table(
    name: Annotated[
        str, argument("table5 (bits per base), table6 (promoters) or table7 (chromatin).", "NAME")
    ],
    inputs: Annotated[
        list[Path],
        argument(
            "table5: what evaluate pretraining wrote. Others: directories of fine-tuned models and of "
            "comparators; a chromatin model's predictions of the test bins, predictions.npy, lie beside its "
            "directory.",
            "FILE_OR_DIR...",
        ),
    ],
    output: Directory,
    labels: Annotated[
        Path | None, option("FILE", "Labels of the test bins that chromatin models predict.", "", "--labels")
    ] = None,
    tracks: Annotated[Path | None, option("TSV", "Tracks of these labels.", "", *TRACK_TABLE)] = None,
    min_positives: Annotated[
        int,
        option("N", "table7: test positives that a track needs to count.", "", "--min-positives", least=1),
    ] = 1,
    bits: Annotated[
        list[str] | None,
        option(
            "NAME=FILE",
            "table5: what evaluate pretraining wrote of a further model; repeatable.",
            "",
            "--bits",
        ),
    ] = None,
) -> None:
    """Put models and comparators side by side, as the tables of the BigBird paper do.

    Writes NAME.tsv, NAME.json, NAME.md and NAME.svg: a row a predictor and its weights, means over seeds with
    intervals (over blocks of sequence; promoters and seeds; tracks and seeds), and published figures in a
    column of their own; of table7 also table7_tracks.tsv, the AUROC of each track.
    """
    from bigbird_dna.papers.experiments.tables import table_report

    further = named_files("--bits", bits or ())
    table = table_report(
        name, inputs, output, labels=labels, tracks=tracks, min_positives=min_positives, bits=further
    )
    log(f"{name}: {len(table):,} rows")


def measure_training(
    config: Config,
    output: Annotated[Path, output("FILE", "File to write (JSON).")],
    overrides: Set = None,
    tokenizer: RunTokenizer = None,
    tokens: Annotated[
        list[int] | None,
        option("N", "Tokens of an input; repeatable.", "pretraining.sequence_tokens", "--tokens", least=16),
    ] = None,
    batch_tokens: Annotated[
        int | None, option("N", "Tokens of a step at most.", "pretraining.batch_size inputs", least=16)
    ] = None,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Measure what a step of pretraining takes, on random tokens: seconds, tokens a second, memory.

    Time on a CPU is that of processors, which other work on the machine changes little.
    """
    from bigbird_dna.disk.outputs import check_output
    from bigbird_dna.model.inference import cpu_threads
    from bigbird_dna.papers.experiments.training_cost import measure_training as measure

    settings, paths = read_run(config, overrides)
    source = tokenizer or paths.tokenizer
    check_output(output, [config, source])
    with cpu_threads(threads):
        measure(settings, source, output, tokens=tokens or (), batch_tokens=batch_tokens, device=device)


def plan_same_time(
    config: Config,
    cost: Annotated[Path, argument("What experiment profile-training wrote of this configuration.", "COST")],
    output: Annotated[Path, output("FILE", "Configuration of the pretraining to write.")],
    overrides: Set = None,
    reference: Annotated[
        Path | None,
        option("COST", "The same of another one, whose pretraining.steps say the time.", "", "--reference"),
    ] = None,
    seconds: Annotated[
        float | None, option("S", "The time of all steps.", "the reference's", "--seconds")
    ] = None,
) -> None:
    """Give a pretraining as many steps as a time has: that of another one's steps, or so many seconds.

    Steps are counted by measurements and not while they are made, so that a killed training goes on to the
    same end, and whatever else the machine does takes no steps away.
    """
    from bigbird_dna.disk.outputs import check_output
    from bigbird_dna.errors import UsageError
    from bigbird_dna.papers.experiments.ablation_arms import plan_same_time as plan

    if (reference is None) == (seconds is None):
        raise UsageError("name either --reference or --seconds")
    if seconds is not None and not 0 < seconds < float("inf"):
        raise UsageError(f"--seconds {seconds:g}: is not a time above 0")
    check_output(output, [config, cost, *([reference] if reference else [])])
    settings, _ = read_run(config, overrides)
    plan(settings, cost, output, reference=reference, seconds=seconds)


def judge_models(
    models: Annotated[
        list[str],
        argument("Pretrained models of one tokenizer, by mechanism and seed.", "NAME-SEED=MODEL_DIR..."),
    ],
    tokens: Annotated[
        Path, option("DIR", "Token stores of their tokenizer, as tokenize writes them.", "", "--tokens")
    ],
    sequence_tokens: Annotated[int, option("N", "Tokens of an input.", least=16)],
    output: Annotated[Path, output("FILE", "File to write (.npz).")],
    sequences: Annotated[int, option("N", "Test inputs that are judged, at most.", least=1)] = 1000,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Let pretrained models of one tokenizer tell the same hidden tokens of the test contigs.

    Writes the bits of each token, which experiment ablation-report compares pair by pair.
    """
    from bigbird_dna.disk.outputs import check_output
    from bigbird_dna.model.inference import cpu_threads
    from bigbird_dna.papers.experiments.masked_tokens import score_masked_tokens

    named = named_files("experiment score-masked", models)
    check_output(output, [*named.values(), tokens])
    with cpu_threads(threads):
        score_masked_tokens(
            named, tokens, output, sequence_tokens=sequence_tokens, sequences=sequences, device=device
        )


def report_ablation(
    steps: Annotated[
        Path, option("FILE", "Trainings of the same steps, as experiment score-masked wrote.", "", "--steps")
    ],
    output: Directory,
    time: Annotated[Path | None, option("FILE", "Trainings of the same time.", "none", "--time")] = None,
    length: Annotated[
        list[Path] | None, option("FILE", "Trainings on longer inputs; repeatable.", "none", "--length")
    ] = None,
    cost: Annotated[
        list[str] | None,
        option(
            "NAME=FILE",
            "Of a mechanism, what experiment profile-training wrote; repeatable.",
            "none",
            "--cost",
        ),
    ] = None,
    predictions: BinPredictions = None,
    labels: Annotated[Path | None, option("FILE", "Labels of these bins.", "", "--labels")] = None,
    bins: Annotated[
        Path | None,
        option("PARQUET", "Where these bins lie: the bins.parquet beside their labels.", "", "--bins"),
    ] = None,
    tracks: Annotated[Path | None, option("TSV", "Tracks of these labels.", "", *TRACK_TABLE)] = None,
    track: Annotated[
        list[str] | None, option("NAME", "Track whose AUROC is wanted; repeatable.", "none", "--track")
    ] = None,
    min_positives: Annotated[
        int, option("N", "Tracks with fewer test positives have no AUROC.", "", "--min-positives", least=1)
    ] = 1,
    altered: Altered = None,
    reference: Annotated[str, option("NAME", "The mechanism that others are compared with.")] = "bigbird",
) -> None:
    """Put attention mechanisms side by side: bits per base, tokens a second, memory, AUROC of tracks.

    Writes ablation.tsv, ablation.json, ablation.md and ablation.svg; with several seeds also
    ablation_seeds.tsv, with longer inputs ablation_lengths.tsv and ablation_lengths.svg. Models are called
    NAME-SEED, by mechanism and seed.
    Intervals are over stretches of 10 kb of test sequence, for tracks by the places in --bins, and seeds.
    """
    from bigbird_dna.errors import UsageError
    from bigbird_dna.papers.experiments.ablation import ablation_report
    from bigbird_dna.papers.experiments.ablation_tracks import AblationTracks

    evaluated = None
    if predictions and track and labels and bins and tracks:
        named = named_files("--predictions", predictions)
        evaluated = AblationTracks(named, labels, bins, tracks, track, min_positives)
    elif predictions or track or labels or bins or tracks:
        raise UsageError("name --predictions, --track, --labels, --bins and --track-table together, or none")
    table = ablation_report(
        steps,
        output,
        reference=reference,
        time=time,
        lengths=length or (),
        costs=named_files("--cost", cost or ()),
        tracks=evaluated,
        altered=altered or (),
    )
    log(f"ablation: {len(table):,} mechanisms")


def show_reach(
    source: Annotated[
        Path, argument("Configuration (YAML) or model directory whose encoder it is.", "CONFIG|MODEL_DIR")
    ],
    output: ResultFile = None,
    tokens: Annotated[
        int | None, option("N", "Length of the input.", "the encoder's longest, at most 1024", least=1)
    ] = None,
    layers: Annotated[int | None, option("N", "At most so many.", "the encoder's", least=1)] = None,
) -> None:
    """Show how many layers it takes until every token can know of every other.

    A table of layers and the share of pairs of tokens that they reach, up to the layer that reaches all. Of a
    mechanism in which vectors decide who sees whom it is that of random ones.
    """
    from bigbird_dna.config import load_config
    from bigbird_dna.model.directory import read_encoder_config
    from bigbird_dna.papers.experiments.receptive_field import MOST_TOKENS, receptive_field

    destination = named_output(output)
    check_output(destination, [source])
    encoder = read_encoder_config(source) if source.is_dir() else load_config(source).encoder
    length = tokens or min(encoder.max_length, MOST_TOKENS)
    with text_destination(destination) as target, open_text(target) as stream:
        stream.write("#layers\treached\tall\n")
        for one in receptive_field(encoder, length, layers):
            stream.write(f"{one.layers}\t{one.share:.6g}\t{'yes' if one.complete else 'no'}\n")
