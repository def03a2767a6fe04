"""Comparators fitted to the data sets of promoters and chromatin, and their predictions of held-out data.

Promoters: the same held-out windows as those of the models, in the same file. Chromatin: arrays of the test
bins that `auc-report` reads, as those of the models.
"""

from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from shutil import copyfile
from typing import Any

import numpy as np
import numpy.typing as npt

from bigbird_dna.baselines.windows import Rows, TextWindows, blocks
from bigbird_dna.config import Config
from bigbird_dna.config.experiments import TABLE_STARTS
from bigbird_dna.console import log, progress
from bigbird_dna.data.chromatin import BinWindows, checked_window, sample, training_bins
from bigbird_dna.data.promoter_windows import (
    WindowSet,
    read_origin,
    read_windows,
    training_windows,
    window_sequences,
)
from bigbird_dna.disk.atomic import checksum, write_array, write_json
from bigbird_dna.disk.directories import atomic_directory, check_directory
from bigbird_dna.errors import DataError, UsageError, check_at_least_one
from bigbird_dna.finetuning.evaluation import BASELINE_BINS, BASELINE_WINDOW, held_out_rows
from bigbird_dna.finetuning.promoter_baselines import check_aligned
from bigbird_dna.finetuning.promoters import held_out_predictions, split_figures, write_predictions
from bigbird_dna.genome.chromatin.dataset import ChromatinData, read_dataset
from bigbird_dna.genome.chromatin.tracks import write_tracks
from bigbird_dna.genome.reference import Reference
from bigbird_dna.papers.comparators.interface import Comparator
from bigbird_dna.papers.comparators.networks import NetworkSettings
from bigbird_dna.papers.comparators.registry import (
    GKM,
    MOTIFS,
    NETWORK_NAMES,
    POSITION,
    PROBE,
    ComparatorRequest,
    check_name,
    make_comparator,
)

DESCRIPTION = "comparator.json"
_PROMOTER_PREDICTIONS, _CHROMATIN_PREDICTIONS = "predictions.parquet", "predictions.npy"
_AT_ONCE = 4096  # bins whose sequences are in memory
# Axes: n bins, T tracks.


@dataclass(frozen=True)
class ComparatorOptions:
    """What a user may say of a comparator; None: its default."""

    seed: int | None = None
    steps: int | None = None  # of networks, as the next two
    step_windows: int | None = None
    learning_rate: float | None = None
    motifs: Path | None = None  # of the scan with known motifs, as the next
    taxon: str | None = None
    model: Path | None = None  # that a probe reads, as the next
    weights: str | None = None

    @property
    def models(self) -> list[Path]:
        """The language models that are read: one at most."""
        return [] if self.model is None else [self.model]

    def check(self, name: str) -> None:
        """`UsageError` where no comparator has the name, or options don't fit it or aren't possible."""
        check_name(name)
        networks = {
            "--steps": self.steps,
            "--training-batch-size": self.step_windows,
            "--learning-rate": self.learning_rate,
        }
        scans = {"--motifs": self.motifs, "--taxon": self.taxon}
        probes = {"--model": self.model, "--weights": self.weights}
        for options, fitting, whose in (
            (networks, name in NETWORK_NAMES, "networks"),
            (scans, name == MOTIFS, f"the comparator {MOTIFS}"),
            (probes, name == PROBE, f"the comparator {PROBE}"),
        ):
            for option, value in options.items():
                if value is not None and not fitting:
                    raise UsageError(f"{option} {value}: is an option of {whose}, which {name} is not")
        if name == PROBE and self.model is None:
            raise UsageError(f"{name}: reads a language model, name its directory with --model")
        if self.weights not in (None, *TABLE_STARTS):
            raise UsageError(f"--weights {self.weights!r}: choose {' or '.join(TABLE_STARTS)}")
        check_at_least_one({"steps": self.steps, "training-batch-size": self.step_windows})
        if self.learning_rate is not None and not 0 < self.learning_rate <= 1:
            raise UsageError(f"--learning-rate {self.learning_rate:g}: must be above 0 and at most 1")
        if self.motifs is not None and self.taxon is not None:
            raise UsageError(f"--taxon {self.taxon}: chooses among JASPAR's matrices, not those of --motifs")

    def request(self, name: str, seed: int, *, directed: bool, **of_data: Any) -> ComparatorRequest:
        """What is asked for, of data that are described by the other keys; `seed` is the configuration's."""
        settings = self._settings(seed, directed=directed)
        weights = self.weights or TABLE_STARTS[0]
        return ComparatorRequest(
            name,
            directed,
            settings=settings,
            motifs=self.motifs,
            taxon=self.taxon,
            model=self.model,
            weights=weights,
            **of_data,
        )

    def _settings(self, seed: int, *, directed: bool) -> NetworkSettings:
        """How a network is trained; `seed` is the configuration's."""
        settings = NetworkSettings(
            seed=seed if self.seed is None else self.seed, both_strands=not directed, balanced=directed
        )
        given: dict[str, Any] = {
            "steps": self.steps,
            "batch_size": self.step_windows,
            "learning_rate": self.learning_rate,
        }
        return replace(settings, **{name: value for name, value in given.items() if value is not None})


def write_description(
    directory: Path, request: ComparatorRequest, comparator: Comparator, **values: Any
) -> None:
    """Write `comparator.json`, and the comparator's own files, into a directory."""
    settings = request.settings
    trained = asdict(settings) if request.name in NETWORK_NAMES else {"seed": settings.seed}
    description = {
        "comparator": request.name,
        "version": version("bigbird-dna"),
        **values,
        "settings": trained,
        "chosen": comparator.chosen(),
    }
    write_json(directory / DESCRIPTION, description)
    for file, path in comparator.files().items():
        copyfile(path, directory / file)


def fit_promoter_comparator(
    config: Config,
    name: str,
    negative_set: str,
    *,
    windows: Path,
    reference: Reference,
    output: Path,
    checkpoints: Path,
    options: ComparatorOptions,
    device: str = "auto",
) -> dict[str, Any]:
    """Fit a comparator to the training windows, and predict those of validation and test.

    Networks learn from the share `promoters.training.train_fraction` of the training promoters, others from all.
    Writes `predictions.parquet`, as fine-tuning does, `comparator.json`, and the training log of a network,
    to the directory `output`. Returns the metrics of both splits.

    Raises
    ------
    UsageError
        No such comparator, one for tracks alone, or options that don't fit it.
    DataError
        The data set can't be used, or a split has no windows of both classes.
    """
    _check_for_promoters(name, options, windows)
    check_directory(output, [windows, reference.path, checkpoints, *options.models])
    data, training = read_windows(windows, negative_set), config.promoters.training
    sequences, evaluation = window_sequences(reference, data.rows, config.seed), config.promoters.evaluation
    share = training.train_fraction if name in NETWORK_NAMES else 1  # the models' share
    learnt = _checked_windows(
        data, sequences, training_windows(data, share, training.seed), "training", windows
    )
    valid = np.flatnonzero(data.rows["split"] == "valid")
    held_out = _checked_windows(data, sequences, valid, "validation", windows)
    request = options.request(
        name,
        evaluation.seed,
        directed=True,
        sizes=(learnt.length,),
        kmer=evaluation.baseline_kmer,
        checkpoints=checkpoints,
        identity={
            **{"windows": checksum(windows / "windows.parquet"), "reference": checksum(reference.path)},
            **{"negative_set": negative_set, "seed": config.seed},
            **{"examples": share, "examples_seed": training.seed},
        },
        device=device,
        anchor=_anchor(config, windows),
    )
    comparator = make_comparator(request).fit(learnt, held_out)

    def predicted(texts: list[str]) -> npt.NDArray[np.float64]:
        return np.asarray(comparator.predict(texts)[:, 0], np.float64)

    predictions = held_out_predictions(data, sequences, predicted)
    metrics = {split: split_figures(predictions, split) for split in ("valid", "test")}
    described = {"negative_set": negative_set, "training_windows": learnt.shape[0], "metrics": metrics}
    with atomic_directory(output) as directory:
        write_predictions(directory / _PROMOTER_PREDICTIONS, predictions)
        write_description(directory, request, comparator, **described)
    comparator.finish()
    return metrics


def _check_for_promoters(name: str, options: ComparatorOptions, windows: Path) -> None:
    """`UsageError` for options that don't fit a comparator, and for one of tracks alone."""
    options.check(name)
    if name == MOTIFS:
        raise UsageError(f"{MOTIFS}: looks for the motif of a track's factor, which promoters don't have")
    if name == POSITION:
        check_aligned(windows)


def _anchor(config: Config, windows: Path) -> float:
    """Where the TSS lies in a window, as a fraction of its length."""
    upstream, downstream = config.promoters.windows.sides
    if origin := read_origin(windows):
        upstream, downstream = origin.upstream, origin.downstream
    return upstream / (upstream + downstream)


def _checked_windows(
    data: WindowSet, sequences: list[str], rows: npt.NDArray[np.intp], what: str, where: Path
) -> TextWindows:
    """Some windows; `DataError` unless they are of both classes, and of one length."""
    labels = data.labels[rows]
    if len(np.unique(labels)) < 2:
        raise DataError(f"{where}: the {what} windows are not of both classes, which are to be told apart")
    texts = [sequences[row] for row in rows]
    lengths = {len(text) for text in texts}
    if len(lengths) > 1:
        raise DataError(
            f"{where}: {what} windows of {min(lengths):,} and of {max(lengths):,} bp, which must be of one "
            "length"
        )
    return TextWindows(texts, labels)


# Axes: n bins, T tracks.


def fit_chromatin_comparator(
    config: Config,
    name: str,
    *,
    data: Path,
    reference: Path,
    output: Path,
    checkpoints: Path,
    options: ComparatorOptions,
    window: int | None = None,
    device: str = "auto",
) -> None:
    """Fit a comparator to the training bins, and predict the test bins.

    Writes to the directory `output` the probabilities `predictions.npy`, (n, T), with `bins.parquet`,
    `labels.npz` and `tracks.tsv` of the same bins and tracks, those that the comparator can predict;
    `comparator.json`; and the training log of a network. Networks learn from the share
    `chromatin.training.train_fraction` of the training bins, others from a sample of 60,000.

    Parameters
    ----------
    window
        bp around a bin's middle that are looked at; None: 1,000, and the bin alone for motifs and gapped
        k-mers.

    Raises
    ------
    UsageError
        No such comparator, one of promoters alone, options that don't fit it, or no matrices at hand.
    ConfigError
        The window doesn't hold a bin in its middle.
    DataError
        The data set can't be used; no track's factor has a matrix.
    """
    _check_for_chromatin(name, options)
    check_directory(output, [data, reference, checkpoints, *options.models])
    bins, genome = read_dataset(data), Reference(reference)
    evaluation, size = config.chromatin.evaluation, bins.bin_size
    length = _window(window, name, size)
    test = held_out_rows(bins, evaluation)
    _check_splits(data, bins)
    training = config.chromatin.training
    learnt = training_bins(bins, training) if name in NETWORK_NAMES else _sampled_bins(config, bins)
    request = options.request(
        name,
        evaluation.seed,
        directed=False,
        sizes=(size, length) if length > size else (size,),
        kmer=evaluation.baseline_kmer,
        checkpoints=checkpoints,
        identity={
            **{"labels": checksum(data / "labels.npz"), "bins": checksum(data / "bins.parquet")},
            **{"examples": training.train_fraction, "examples_seed": training.seed},
        },
        device=device,
        # A track's target, or where the table names none its name.
        factors=[track.target or track.name for track in bins.tracks],
        factors_in=data / "tracks.tsv",
    )
    comparator = make_comparator(request)
    log(f"{name}: {len(learnt):,} training bins, {len(bins.tracks):,} tracks, windows of {length:,} bp")
    comparator.fit(*(BinWindows(bins, genome, length, rows) for rows in (learnt, bins.rows("valid"))))
    values = _predicted(comparator, BinWindows(bins, genome, length, test))
    can = comparator.covered(len(bins.tracks))
    covered = np.flatnonzero(can)
    left_out = [bins.tracks[one].name for one in np.flatnonzero(~can).tolist()]
    counts = {"window": length, "training_bins": len(learnt), "tracks": len(covered)}
    with atomic_directory(output) as directory:
        _write_predicted_bins(directory, bins, test, covered, values)
        write_description(directory, request, comparator, **counts, tracks_left_out=left_out)
    comparator.finish()


def _sampled_bins(config: Config, bins: ChromatinData) -> Rows:
    return sample(bins.rows("train"), BASELINE_BINS, (config.chromatin.evaluation.seed, 8))


def _write_predicted_bins(
    directory: Path, bins: ChromatinData, rows: Rows, tracks: Rows, values: npt.NDArray[np.float32]
) -> None:
    """Probabilities of the tracks that are predicted, with these bins, labels and tracks."""
    write_array(directory / _CHROMATIN_PREDICTIONS, np.ascontiguousarray(values[:, tracks]))
    bins.bins.iloc[rows].to_parquet(directory / "bins.parquet", index=False)
    bins.labels.take(rows).select(tracks).save(directory / "labels.npz")
    write_tracks(directory / "tracks.tsv", [bins.tracks[one] for one in tracks.tolist()])


def _check_for_chromatin(name: str, options: ComparatorOptions) -> None:
    """`UsageError` for options that don't fit a comparator, and for one of promoters alone."""
    options.check(name)
    if name == POSITION:
        raise UsageError(f"{POSITION}: is for promoters alone: bins have no direction and no start site")


def _predicted(comparator: Comparator, windows: BinWindows) -> npt.NDArray[np.float32]:
    """Probabilities (n, T), some windows at a time."""
    count, tracks = windows.shape
    values = np.empty((count, tracks), np.float32)
    for rows in progress(blocks(count, _AT_ONCE), "predicting", -(-count // _AT_ONCE), "parts"):
        values[rows] = comparator.predict(windows.sequences(rows))
    return values


def _check_splits(data: Path, bins: ChromatinData) -> None:
    for name, rows in (("training", bins.rows("train")), ("validation", bins.rows("valid"))):
        if not len(rows):
            raise DataError(f"{data}: has no {name} bins")


def _window(window: int | None, name: str, size: int) -> int:
    if window is None:
        return size if name in (MOTIFS, GKM) else max(BASELINE_WINDOW, size)
    return checked_window(window, size)
