"""Commands that compare attention mechanisms: what a step takes, trainings of the same time, their report."""

from pathlib import Path
from typing import Annotated

from bigbird_dna.cli.options import (
    TRACK_TABLE,
    Config,
    Device,
    Directory,
    RunTokenizer,
    Set,
    Threads,
    argument,
    named_files,
    option,
    output,
    read_run,
)
from bigbird_dna.console import log

Altered = Annotated[
    list[str] | None,
    option(
        "NAME",
        "Mechanism whose encoder differs by more than its attention: no published figures; repeatable.",
        "none",
        "--no-published",
    ),
]


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
    from bigbird_dna.tasks.ablation.costs import measure_training as measure

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
    from bigbird_dna.tasks.ablation.same_time import plan_same_time as plan

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
    from bigbird_dna.tasks.ablation.judging import judge_models as judge

    named = named_files("experiment score-masked", models)
    check_output(output, [*named.values(), tokens])
    with cpu_threads(threads):
        judge(named, tokens, output, sequence_tokens=sequence_tokens, sequences=sequences, device=device)


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
    predictions: Annotated[
        list[str] | None,
        option(
            "NAME-SEED=FILE",
            "Of a model, what evaluate test-bins wrote; repeatable.",
            "none",
            "--predictions",
        ),
    ] = None,
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
    from bigbird_dna.reporting.ablation.report import ablation_report
    from bigbird_dna.reporting.ablation.tracks import Tracks

    judged = None
    if predictions or track or labels or bins or tracks:
        if not (predictions and track and labels and bins and tracks):
            raise UsageError(
                "name --predictions, --track, --labels, --bins and --track-table together, or none"
            )
        named = named_files("--predictions", predictions)
        judged = Tracks(named, labels, bins, tracks, track, min_positives)
    table = ablation_report(
        steps,
        output,
        reference=reference,
        time=time,
        lengths=length or (),
        costs=named_files("--cost", cost or ()),
        tracks=judged,
        altered=altered or (),
    )
    log(f"ablation: {len(table):,} mechanisms")
