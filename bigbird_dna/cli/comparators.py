"""Commands of the comparators: simpler predictors on the same windows and bins as the models."""

from pathlib import Path
from typing import Annotated

from bigbird_dna.baselines.comparators.names import NAMES, TAXA, WEIGHTS
from bigbird_dna.cli.options import (
    Checkpoints,
    ChromatinData,
    Config,
    Device,
    NegativeSet,
    RunReference,
    Set,
    Threads,
    Windows,
    argument,
    option,
    output,
    promoter_reference,
    read_run,
)

Name = Annotated[str, argument(f"One of {', '.join(NAMES)}.", "NAME")]
Seed = Annotated[int | None, option("N", "Of weights, order and samples.", "the configuration's", least=0)]
Steps = Annotated[int | None, option("N", "Steps of a network's training.", 2000)]
StepWindows = Annotated[int | None, option("N", "Windows per training step.", 64)]
LearningRate = Annotated[float | None, option("RATE", "Of a network, after its warm-up.", 0.001)]
ProbedModel = Annotated[
    Path | None, option("MODEL_DIR", "The language model that the comparator probe reads.", "", "--model")
]
ProbedWeights = Annotated[
    str | None, option("NAME", f"Its weights: {', '.join(WEIGHTS)}.", WEIGHTS[0], "--weights")
]
Results = Annotated[Path, output("DIR", "Directory for the predictions and what is known of them.")]


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
    from bigbird_dna.tasks.comparators.options import Options
    from bigbird_dna.tasks.comparators.promoters import fit_promoter_comparator as fit

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
            options=Options(seed, steps, training_batch_size, learning_rate, model=model, weights=weights),
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
    from bigbird_dna.tasks.comparators.chromatin import fit_chromatin_comparator as fit
    from bigbird_dna.tasks.comparators.options import Options

    settings, paths = read_run(config, overrides)
    with cpu_threads(threads):
        fit(
            settings,
            name,
            data=data or paths.chromatin_data,
            reference=reference or paths.reference,
            output=output,
            checkpoints=checkpoints or paths.checkpoints,
            options=Options(seed, steps, training_batch_size, learning_rate, motifs, taxon, model, weights),
            window=window,
            device=device,
        )
