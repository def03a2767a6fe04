"""Commands of the chromatin models: data set, training, evaluation, and predictions of regions."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from bigbird_dna.cli.training import (
    CHECKPOINTS,
    CONFIG,
    DEVICE,
    REFERENCE,
    SET,
    THREADS,
    use_threads,
)
from bigbird_dna.errors import ConfigError, DataError, UsageError
from bigbird_dna.files import check_writable

if TYPE_CHECKING:  # slow to import: inside the commands
    from bigbird_dna.config import Config

DATA = typer.Option(None, help="Directory of chromatin-data. [default: RESULTS/chromatin/data]")
ARRAY = typer.Option(..., "-o", "--output", help="Probabilities, bins × tracks (.npy).")
LABELS = typer.Option(None, help="Also write the bins and their labels to this directory.")
BUNDLE = typer.Option(
    None,
    metavar="FILE|DIR",
    help="DeepSEA's training bundle, the archive or unpacked: bins and labels are taken from it. "
    "[default, with chromatin.tracks deepsea: RESULTS/downloads/deepsea_train_bundle.v0.9.tar.gz]",
)
BINS = typer.Option(
    None,
    "--bed",
    metavar="FILE",
    help="The bundle's bins, also compressed. [default: RESULTS/downloads/allTFs.pos.bed.tar.gz]",
)
BATCH_SIZE = typer.Option(16, min=1, help="Windows run together; changes speed and memory only.")


def register(app: typer.Typer) -> None:
    """Add this group's commands to the application."""
    for command in (
        unpack_deepsea,
        chromatin_data,
        finetune_chromatin,
        combine_models,
        chromatin_predictions,
        chromatin_baseline,
    ):
        app.command(command.__name__.replace("_", "-"))(command)


def unpack_deepsea(
    bundle: Path = typer.Argument(help="DeepSEA's training bundle (.tar.gz)."),
    output: Path = typer.Option(..., "-o", "--output", metavar="DIR", help="For the three files."),
) -> None:
    """Unpack train.mat, valid.mat and test.mat of DeepSEA's bundle; chromatin-data reads them."""
    from bigbird_dna.genome.deepsea.bundle import unpack_bundle

    unpack_bundle(bundle, output)


def chromatin_data(
    config: Path = CONFIG,
    overrides: list[str] = SET,
    tracks: Path | None = typer.Option(
        None, help="Track table or folder of peak files. [default: chromatin.tracks]"
    ),
    bundle: Path | None = BUNDLE,
    bins: Path | None = BINS,
    blacklist: Path | None = typer.Option(
        None, metavar="BED", help="Regions whose bins are left out. [default: chromatin.blacklist]"
    ),
    reference: Path | None = REFERENCE,
    output: Path | None = typer.Option(
        None, "-o", "--output", help="[default: RESULTS/chromatin/data]"
    ),
) -> None:
    """Label the bins of the reference with the peaks of every track, and divide them into splits.

    With chromatin.tracks deepsea, or --bundle, bins, labels and splits are those that DeepSEA
    published; sampled windows of the bundle are compared with the reference.
    """
    from bigbird_dna.config import DEEPSEA, load_config
    from bigbird_dna.genome.assembly import load_assembly
    from bigbird_dna.genome.chromatin.building import build_dataset
    from bigbird_dna.genome.chromatin.region_splits import RegionSplits
    from bigbird_dna.genome.chromatin.track_folder import tracks_from_folder
    from bigbird_dna.genome.chromatin.tracks import read_tracks
    from bigbird_dna.genome.reference import Reference

    if bundle is not None:
        overrides = [*overrides, f"chromatin.tracks={DEEPSEA}"]
    settings = load_config(config, overrides)
    results, chromatin = Path(settings.results), settings.chromatin
    if chromatin.tracks == DEEPSEA:
        if blacklist is not None:
            raise UsageError(f"--blacklist {blacklist}: DeepSEA's bins are taken as published")
        _published_data(settings, tracks, bundle, bins, reference, output)
        return
    if bins is not None:
        raise UsageError(f"--bed {bins}: goes with --bundle only")
    genome = Reference(reference or results / "genome/reference.fa.gz")
    assembly = load_assembly(settings.genome.assembly)
    source = tracks or _tracks_of(settings)
    if source.is_dir():
        table = tracks_from_folder(source, chromatin.group, chromatin.track_names)
    else:
        table = read_tracks(source)
    splits = RegionSplits.from_names(
        genome.contigs,
        assembly,
        valid=(*settings.genome.valid, *chromatin.valid_regions),
        test=(*settings.genome.test, *chromatin.test_regions),
        exclude=settings.genome.exclude,
    )
    widest = max(chromatin.window, chromatin.compare_window or 0) + 2 * chromatin.shift
    build_dataset(
        output or results / "chromatin/data",
        genome,
        assembly,
        table,
        splits,
        window=widest,
        bin_size=chromatin.bin,
        rule=chromatin.label,
        widen=chromatin.widen,
        blacklist=blacklist or _blacklist_of(settings),
        max_n=chromatin.max_n,
        negative_fraction=chromatin.negative_fraction,
        min_positives=chromatin.minimum_positives,
        min_held_out=chromatin.minimum_held_out,
        seed=settings.seed,
    )


def _published_data(
    settings: "Config",
    tracks: Path | None,
    bundle: Path | None,
    bins: Path | None,
    reference: Path | None,
    output: Path | None,
) -> None:
    """The data set of DeepSEA's bundle; what isn't given is looked for among the run's downloads."""
    from bigbird_dna.genome.assembly import load_assembly
    from bigbird_dna.genome.chromatin.tracks import read_tracks
    from bigbird_dna.genome.deepsea.dataset import build_deepsea
    from bigbird_dna.genome.reference import Reference
    from bigbird_dna.genome.sources.public import deepsea_sources

    results = Path(settings.results)
    files = {"bundle": bundle, "bins": bins, "tracks": tracks}
    found: dict[str, Path] = {}
    for role, source in deepsea_sources(settings.genome.assembly).items():
        path = files[role] or results / "downloads" / source.file
        if not path.exists():
            raise DataError(
                f"{path}: no such file; `bigbird-dna fetch {source.key} -o {path}` gets it"
            )
        found[role] = path
    build_deepsea(
        output or results / "chromatin/data",
        found["bundle"],
        found["bins"],
        Reference(reference or results / "genome/reference.fa.gz"),
        load_assembly(settings.genome.assembly),
        read_tracks(found["tracks"]),
    )


def _tracks_of(settings: "Config") -> Path:
    from bigbird_dna.config import SIMULATED
    from bigbird_dna.genome.sources.local import locate

    named = settings.chromatin.tracks
    if named is None:
        raise ConfigError("chromatin.tracks: name a track table or a folder of peak files")
    if named == SIMULATED:
        return Path(settings.results) / "simulated/tracks.tsv"
    return locate(named, settings.local_data)


def _blacklist_of(settings: "Config") -> Path | None:
    from bigbird_dna.genome.sources.local import locate

    named = settings.chromatin.blacklist
    return None if named is None else locate(named, settings.local_data)


def finetune_chromatin(
    config: Path = CONFIG,
    overrides: list[str] = SET,
    window: int | None = typer.Option(
        None, metavar="BP", help="Sequence that the model sees. [default: chromatin.window]"
    ),
    member: int = typer.Option(0, min=0, help="Number in an ensemble: another seed for each."),
    data: Path | None = DATA,
    reference: Path | None = REFERENCE,
    tokenizer: Path | None = typer.Option(None, help="[default: RESULTS/tokens/tokenizer.model]"),
    pretrained: Path | None = typer.Option(None, help="[default: RESULTS/models/pretrained]"),
    output: Path | None = typer.Option(
        None, "-o", "--output", help="Model directory. [default: RESULTS/models/chromatin]"
    ),
    checkpoints: Path | None = CHECKPOINTS,
    device: str = DEVICE,
    threads: int = THREADS,
) -> None:
    """Train a model of chromatin profiles; resumes by itself."""
    from bigbird_dna.config import load_config
    from bigbird_dna.genome.reference import Reference
    from bigbird_dna.tasks.chromatin.finetuning import finetune_chromatin as run
    from bigbird_dna.training.distributed import world

    settings = load_config(config, overrides)
    results, chromatin = Path(settings.results), settings.chromatin
    use_threads(threads)
    size = chromatin.window if window is None else window
    if size < chromatin.bin or (size - chromatin.bin) % 2:
        raise ConfigError(
            f"--window {size}: doesn't hold the bin of {chromatin.bin} bp in its middle"
        )
    starts_pretrained = chromatin.initial == "pretrained"
    with world(device) as here:
        run(
            settings,
            window=size,
            member=member,
            data=data or results / "chromatin/data",
            reference=Reference(reference or results / "genome/reference.fa.gz"),
            tokenizer_path=tokenizer or results / "tokens/tokenizer.model",
            pretrained=(pretrained or results / "models/pretrained") if starts_pretrained else None,
            output=output or results / "models/chromatin",
            checkpoints=checkpoints or results / "checkpoints",
            world=here,
        )


def combine_models(
    models: list[Path] = typer.Argument(help="Directories of chromatin models."),
    output: Path = typer.Option(..., "-o", "--output", help="Model directory to write."),
) -> None:
    """Make one model of several that were trained independently: it predicts their mean."""
    from bigbird_dna.tasks.chromatin.ensemble import combine_models as run

    run(models, output)


def chromatin_predictions(
    config: Path = CONFIG,
    models: list[Path] = typer.Argument(help="Model directories; their mean predicts."),
    overrides: list[str] = SET,
    data: Path | None = DATA,
    reference: Path | None = REFERENCE,
    output: Path = ARRAY,
    labels: Path | None = LABELS,
    batch_size: int = BATCH_SIZE,
    device: str = DEVICE,
    threads: int = THREADS,
) -> None:
    """Predict the test bins of the data set: what auc-report compares with their labels."""
    from bigbird_dna.config import load_config
    from bigbird_dna.genome.chromatin.dataset import read_dataset
    from bigbird_dna.genome.reference import Reference
    from bigbird_dna.model.directory import load_task
    from bigbird_dna.tasks.chromatin import evaluation as evaluation

    check_writable(output)
    if labels is not None:
        check_writable(labels, directory=True)
    settings = load_config(config, overrides)
    results = Path(settings.results)
    use_threads(threads)
    bins = read_dataset(data or results / "chromatin/data")
    rows = evaluation.held_out_rows(bins, settings.chromatin)
    values = evaluation.predict_bins(
        [load_task(path, "chromatin") for path in models],
        bins,
        Reference(reference or results / "genome/reference.fa.gz"),
        rows,
        middle=settings.chromatin.middle,
        batch_size=batch_size,
        device=device,
    )
    if labels is not None:
        evaluation.write_held_out(labels, bins, rows)
    evaluation.write_array(output, values)


def chromatin_baseline(
    config: Path = CONFIG,
    overrides: list[str] = SET,
    data: Path | None = DATA,
    reference: Path | None = REFERENCE,
    output: Path = ARRAY,
    labels: Path | None = LABELS,
    threads: int = THREADS,
) -> None:
    """Fit a logistic regression on k-mers to every track and predict the same test bins."""
    from bigbird_dna.config import load_config
    from bigbird_dna.genome.chromatin.dataset import read_dataset
    from bigbird_dna.genome.reference import Reference
    from bigbird_dna.tasks.chromatin import evaluation as evaluation

    check_writable(output)
    if labels is not None:
        check_writable(labels, directory=True)
    settings = load_config(config, overrides)
    results = Path(settings.results)
    use_threads(threads)
    bins = read_dataset(data or results / "chromatin/data")
    rows = evaluation.held_out_rows(bins, settings.chromatin)
    genome = Reference(reference or results / "genome/reference.fa.gz")
    values = evaluation.baseline_bins(settings.chromatin, bins, genome, rows)
    if labels is not None:
        evaluation.write_held_out(labels, bins, rows)
    evaluation.write_array(output, values)
