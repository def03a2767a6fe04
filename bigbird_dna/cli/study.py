"""Commands of the study of what pretraining buys: its report, and linear probes."""

from pathlib import Path
from typing import Annotated

from bigbird_dna.cli.options import (
    RESULTS,
    BatchSize,
    Config,
    Device,
    Directory,
    NegativeSet,
    RunReference,
    Set,
    Threads,
    Windows,
    argument,
    check_benchmarks,
    option,
    promoter_reference,
    read_run,
)
from bigbird_dna.console import log


def report_study(
    models: Annotated[
        list[Path],
        argument(
            "Fine-tuned models, of several starts, shares of the examples (promoters.training.examples, "
            "chromatin.training.examples) and seeds.",
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
    from bigbird_dna.reporting.study.report import study_report

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
    from bigbird_dna.reporting.style import interval
    from bigbird_dna.tasks.promoters.probing import probe_promoters as probe

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
