"""Commands that train what is compared: Long-Range Arena's tasks, models of bytes, and comparators."""

from pathlib import Path
from typing import Annotated

from bigbird_dna.cli.options import (
    RESULTS,
    Checkpoints,
    ChromatinData,
    Config,
    Device,
    Directory,
    NegativeSet,
    RunReference,
    Set,
    Threads,
    TimeLimit,
    Windows,
    argument,
    option,
    output,
    promoter_reference,
    read_run,
)
from bigbird_dna.config.experiments import TABLE_STARTS, TAXA
from bigbird_dna.console import log
from bigbird_dna.errors import ConfigError
from bigbird_dna.papers.comparators.registry import NAMES

_TASKS = "listops or pathfinder."


Name = Annotated[str, argument(f"One of {', '.join(NAMES)}.", "NAME")]
Seed = Annotated[int | None, option("N", "Of weights, order and samples.", "the configuration's", least=0)]
Steps = Annotated[int | None, option("N", "Steps of a network's training.", 2000)]
StepWindows = Annotated[int | None, option("N", "Windows per training step.", 64)]
LearningRate = Annotated[float | None, option("RATE", "Of a network, after its warm-up.", 0.001)]
ProbedModel = Annotated[
    Path | None, option("MODEL_DIR", "The language model that the comparator probe reads.", "", "--model")
]
ProbedWeights = Annotated[
    str | None, option("NAME", f"Its weights: {', '.join(TABLE_STARTS)}.", TABLE_STARTS[0], "--weights")
]
Results = Annotated[Path, output("DIR", "Directory for the predictions and what is known of them.")]


def make_long_range(
    config: Config,
    task: Annotated[str, argument(_TASKS, "TASK")],
    output: Annotated[
        Path | None, output("DIR", "Directory for the sequences.", RESULTS.long_range_data("TASK"))
    ] = None,
    overrides: Set = None,
) -> None:
    """Generate ListOps' expressions, or draw Pathfinder's images, as `long_range` in CONFIG says.

    The same configuration makes the same files; no expression of ListOps stands twice.
    """
    from bigbird_dna.config import LONG_RANGE_TASKS, LongRangeConfig
    from bigbird_dna.disk.directories import atomic_directory
    from bigbird_dna.errors import check_choice
    from bigbird_dna.papers.experiments.listops import write_listops
    from bigbird_dna.papers.experiments.pathfinder import write_pathfinder

    check_choice("task", task, LONG_RANGE_TASKS)
    run, paths = read_run(config, overrides)
    settings = run.long_range_arena or LongRangeConfig()
    with atomic_directory(output or paths.long_range_data(task)) as directory:
        if task == "listops":
            write_listops(directory, settings.listops, settings.data_seed)
        else:
            write_pathfinder(directory, settings.pathfinder, settings.data_seed)


def train_long_range(
    config: Config,
    task: Annotated[str, argument(_TASKS, "TASK")],
    attention: Annotated[str, argument("A name in long_range_arena.attentions.", "ATTENTION")],
    output: Annotated[
        Path | None,
        output("DIR", "Directory for the result.", RESULTS.long_range_model("TASK", "ATTENTION", "SEED")),
    ] = None,
    overrides: Set = None,
    data: Annotated[
        Path | None,
        option("DIR", "What experiment lra-data wrote.", RESULTS.long_range_data("TASK"), "--data"),
    ] = None,
    seed: Annotated[
        int | None,
        option("N", "Of weights and order.", "the first of long_range_arena.seeds", "--seed", least=0),
    ] = None,
    checkpoints: Checkpoints = None,
    time_limit: TimeLimit = None,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Train a classifier of long sequences with one of the attentions that are compared, and judge it.

    Writes result.json (test accuracy, and that of what needs no reading), the log and the weights. A killed
    run goes on from its last checkpoint when started again.
    """
    from bigbird_dna.config import LONG_RANGE_TASKS, LongRangeConfig
    from bigbird_dna.errors import check_choice
    from bigbird_dna.model.inference import cpu_threads
    from bigbird_dna.papers.experiments.long_range_training import SequenceTask
    from bigbird_dna.training.distributed import world
    from bigbird_dna.training.stopping import time_of_end
    from bigbird_dna.training.task import train

    ends = time_of_end(time_limit)
    check_choice("task", task, LONG_RANGE_TASKS)
    run, paths = read_run(config, overrides)
    settings = run.long_range_arena or LongRangeConfig()
    drawn = settings.seeds[0] if seed is None else seed
    with cpu_threads(threads), world(device, ends) as here:
        training = SequenceTask(
            settings,
            task,  # type: ignore[arg-type]
            attention,
            drawn,
            data or paths.long_range_data(task),
        )
        usual = paths.long_range_model(task, attention, drawn)
        train(training, output or usual, checkpoints or paths.checkpoints / "long_range", here)


def report_long_range(
    results: Annotated[list[Path], argument("What experiment lra-train wrote.", "DIR...")], output: Directory
) -> None:
    """Put classifiers of long sequences side by side.

    Writes long_range.tsv and long_range.md: mean accuracy over seeds with a 95 % interval over the test
    sequences, what needs no reading beside it, and the published averages of all five tasks.
    """
    from bigbird_dna.papers.experiments.long_range_arena import write_report

    for sentence in write_report(results, output):
        log(sentence)


def train_density(
    config: Config,
    output: Annotated[Path | None, output("DIR", "Directory for the result.", RESULTS.density)] = None,
    overrides: Set = None,
    checkpoints: Checkpoints = None,
    time_limit: TimeLimit = None,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Train a causal model of images or text, byte after byte, as `density` in CONFIG says, and judge it.

    Writes result.json (bits per byte of the test files, which of images is bits per dim), the log and the
    weights. A killed run goes on from its last checkpoint when started again.
    """
    from bigbird_dna.model.inference import cpu_threads
    from bigbird_dna.papers.experiments.byte_lm import BytesTask
    from bigbird_dna.training.distributed import world
    from bigbird_dna.training.stopping import time_of_end
    from bigbird_dna.training.task import train

    ends = time_of_end(time_limit)
    run, paths = read_run(config, overrides)
    if run.byte_lm is None:
        raise ConfigError(f"{config}: density: is missing: it names format and files")
    with cpu_threads(threads), world(device, ends) as here:
        task = BytesTask(run.byte_lm)
        train(task, output or paths.density, checkpoints or paths.checkpoints / "density", here)


def fit_promoter_comparator(
    config: Config,
    name: Name,
    negative_set: NegativeSet,
    output: Results,
    overrides: Set = None,
    windows: Windows = None,
    reference: RunReference = None,
    seed: Seed = None,
    steps: Steps = None,
    training_batch_size: StepWindows = None,
    learning_rate: LearningRate = None,
    model: ProbedModel = None,
    weights: ProbedWeights = None,
    checkpoints: Checkpoints = None,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Fit a comparator of promoter models, and predict the same held-out windows.

    A network that was killed goes on from its last checkpoint when started again with the same options.
    """
    from bigbird_dna.genome.reference import Reference
    from bigbird_dna.model.inference import cpu_threads
    from bigbird_dna.papers.comparators.fitting import ComparatorOptions
    from bigbird_dna.papers.comparators.fitting import fit_promoter_comparator as fit

    settings, paths = read_run(config, overrides)
    with cpu_threads(threads):
        fit(
            settings,
            name,
            negative_set,
            windows=windows or paths.windows,
            reference=Reference(reference or promoter_reference(settings)),
            output=output,
            checkpoints=checkpoints or paths.checkpoints,
            options=ComparatorOptions(
                seed, steps, training_batch_size, learning_rate, model=model, weights=weights
            ),
            device=device,
        )


def fit_chromatin_comparator(
    config: Config,
    name: Name,
    output: Results,
    overrides: Set = None,
    data: ChromatinData = None,
    reference: RunReference = None,
    window: Annotated[
        int | None,
        option("BP", "Around a bin's middle.", "1000; the bin alone for motifs and gkm-svm", "--window"),
    ] = None,
    motifs: Annotated[
        Path | None,
        option("FILE", "Known matrices, in JASPAR's format.", "JASPAR's, by pyjaspar", "--motifs"),
    ] = None,
    taxon: Annotated[
        str | None, option("NAME", f"Whose matrices of JASPAR: {', '.join(TAXA)}.", "vertebrates", "--taxon")
    ] = None,
    seed: Seed = None,
    steps: Steps = None,
    training_batch_size: StepWindows = None,
    learning_rate: LearningRate = None,
    model: ProbedModel = None,
    weights: ProbedWeights = None,
    checkpoints: Checkpoints = None,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Fit a comparator of chromatin models, and predict the same test bins: what auc-report judges.

    The tracks that it can predict are all; of motifs those whose factor has a known matrix. A network that
    was killed goes on from its last checkpoint when started again with the same options.
    """
    from bigbird_dna.model.inference import cpu_threads
    from bigbird_dna.papers.comparators.fitting import ComparatorOptions
    from bigbird_dna.papers.comparators.fitting import fit_chromatin_comparator as fit

    settings, paths = read_run(config, overrides)
    with cpu_threads(threads):
        fit(
            settings,
            name,
            data=data or paths.chromatin_data,
            reference=reference or paths.reference,
            output=output,
            checkpoints=checkpoints or paths.checkpoints,
            options=ComparatorOptions(
                seed, steps, training_batch_size, learning_rate, motifs, taxon, model, weights
            ),
            window=window,
            device=device,
        )
