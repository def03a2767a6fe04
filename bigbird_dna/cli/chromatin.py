"""Commands of the chromatin models: data set, training, and predictions of the test bins."""

from pathlib import Path
from typing import Annotated

from bigbird_dna.cli import options as opt
from bigbird_dna.cli.build import runs, training
from bigbird_dna.cli.options import argument, option, output
from bigbird_dna.errors import ConfigError, UsageError

Array = Annotated[Path, output("FILE", "Probabilities to write, bins × tracks (.npy).")]
HeldOut = Annotated[
    Path | None, option("DIR", "Also write the bins and their labels to this directory.", "", "--labels")
]


@runs("genome.chromatin.deepsea.unpack_bundle")
def unpack_deepsea(
    archive: Annotated[Path, argument("DeepSEA's training bundle (.tar.gz).", "bundle")],
    directory: Annotated[Path, output("DIR", "For the three files.")],
) -> None:
    """Unpack train.mat, valid.mat and test.mat of DeepSEA's bundle; prepare chromatin reads them."""


def prepare_chromatin(
    config: opt.Config,
    overrides: opt.Set = None,
    tracks: Annotated[
        Path | None,
        option("FILE|DIR", "Track table or folder of peak files.", "chromatin.data.tracks", *opt.TRACK_TABLE),
    ] = None,
    bundle: Annotated[
        Path | None,
        option(
            "FILE|DIR",
            "DeepSEA's training bundle, the archive or unpacked: bins and labels are taken from it.",
            opt.RESULTS.download("deepsea_train_bundle.v0.9.tar.gz"),
            "--deepsea-bundle",
        ),
    ] = None,
    bins: Annotated[
        Path | None,
        option(
            "FILE",
            "The bundle's bins, also compressed.",
            opt.RESULTS.download("allTFs.pos.bed.tar.gz"),
            "--deepsea-bins",
        ),
    ] = None,
    blacklist: Annotated[
        Path | None, option("BED", "Regions whose bins are left out.", "chromatin.data.blacklist")
    ] = None,
    reference: opt.RunReference = None,
    piece: opt.PieceOption = None,
    output: Annotated[Path | None, output("DIR", "Data set to write.", opt.RESULTS.chromatin_data)] = None,
) -> None:
    """Label the bins of the reference with the peaks of every track, and divide them into splits.

    With chromatin.data.tracks deepsea, or --deepsea-bundle, bins, labels and splits are those that DeepSEA
    published; sampled windows of the bundle are compared with the reference.
    """
    from bigbird_dna.config import DEEPSEA
    from bigbird_dna.data.chromatin import prepare_data

    published = [] if bundle is None else [f"chromatin.data.tracks={DEEPSEA}"]
    settings, paths = opt.read_run(config, [*(overrides or ()), *published])
    if piece is not None and output is None:
        raise UsageError("--shard: name a file for it with -o")
    prepare_data(
        settings,
        reference or paths.reference,
        output or paths.chromatin_data,
        tracks=tracks,
        blacklist=blacklist,
        bundle=bundle,
        bins=bins,
        piece=piece,
    )


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
            size,
            ensemble_index,
            data or paths.chromatin_data,
            Reference(reference or paths.reference),
            tokenizer or paths.tokenizer,
            pretrained or paths.pretrained,
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
