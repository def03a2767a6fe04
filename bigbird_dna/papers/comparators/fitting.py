"""Fit comparators to promoter and chromatin data sets, and predict the same held-out data as the models.
Networks are trained like the models: on the same draws of the training examples, for as many steps. Other
comparators are fitted to all promoters, or to a sample of 60,000 bins."""

from importlib.metadata import version
from pathlib import Path
from shutil import copyfile
from typing import Any

import numpy as np
import numpy.typing as npt

from bigbird_dna.baselines.networks import DrawnTexts, NetworkSettings
from bigbird_dna.baselines.promoters import promoter_regression
from bigbird_dna.baselines.windows import LabeledWindows, TextWindows, blocks
from bigbird_dna.config.run import Config
from bigbird_dna.console import log, progress
from bigbird_dna.data.chromatin import BinWindows, sample
from bigbird_dna.data.promoter_windows import (
    WindowSet,
    read_windows,
    training_windows,
    variants,
    window_sequences,
)
from bigbird_dna.disk.atomic import checksum, write_array, write_json
from bigbird_dna.disk.directories import atomic_directory, check_directory
from bigbird_dna.errors import DataError, check_import
from bigbird_dna.finetuning.chromatin import BinDraws, config_for
from bigbird_dna.finetuning.evaluation import (
    BASELINE_BINS,
    held_out_predictions,
    held_out_rows,
    split_metrics,
    write_predictions,
)
from bigbird_dna.finetuning.promoters import VALIDATION_WINDOWS
from bigbird_dna.genome.chromatin.dataset import ChromatinData, read_dataset
from bigbird_dna.genome.chromatin.tracks import write_tracks
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import Interval
from bigbird_dna.model.settings import KMER_WINDOW
from bigbird_dna.papers.comparators.architectures import NETWORKS, NetworkComparator
from bigbird_dna.papers.comparators.gkm_svm import GkmSvm
from bigbird_dna.papers.comparators.interface import DESCRIPTION, Comparator
from bigbird_dna.papers.comparators.motifs import make_scan
from bigbird_dna.papers.comparators.simple import (
    GcContent,
    NearestWindow,
    PromoterLogistic,
    TrackKmers,
)
from bigbird_dna.training.draws import WindowDraws
from bigbird_dna.training.losses import LabelLoss

AT_ONCE = 4096  # bins whose sequences are in memory at a time
# Axes: n bins, T tracks.


def fit_promoters(
    config: Config,
    name: str,
    negative_set: str,
    windows: Path,
    reference: Reference,
    output: Path,
    checkpoints: Path,
    *,
    seed: int | None = None,
    device: str = "auto",
) -> dict[str, Any]:
    """Fit a comparator to the windows of a negative set, and write `predictions.parquet` of the held-out ones
    and `comparator.json` (returned). A killed training of a network resumes. `name` may be the user's
    MODULE:CLASS."""
    check_directory(output, [windows, reference.path, checkpoints])
    section, training = config.promoters, config.promoters.training
    seed = section.evaluation.seed if seed is None else seed
    data = read_windows(windows, negative_set)
    sequences = window_sequences(reference, data.rows, config.seed)
    learned, held_out = promoter_windows(config, name, windows, data, sequences)
    comparator: Comparator
    match name:
        case network if network in NETWORKS:
            identity = {
                "windows": checksum(windows / "windows.parquet"),
                "reference": checksum(reference.path),
                "negative_set": negative_set,
                "seed": config.seed,
                "examples": training.train_fraction,
                "examples_seed": training.seed,
            }
            settings = NetworkSettings(training, evaluated=VALIDATION_WINDOWS)
            comparator = NetworkComparator(
                NETWORKS[network],
                settings,
                name=network,
                checkpoints=checkpoints,
                windows=identity,
                device=device,
            )
        case "gc":
            comparator = GcContent((learned.length,), balanced=True)
        case "nearest":
            comparator = NearestWindow(balanced=True)
        case "gkm-svm":
            comparator = GkmSvm(seed=seed)
        case "k-mers" | "position" | "orf" | "composition":
            kmer = section.evaluation.baseline_kmer
            comparator = PromoterLogistic(promoter_regression(name, kmer, seed))
        case _:
            comparator = check_import("comparator", name)()
    comparator.fit(learned, held_out)

    predictions = held_out_predictions(
        data, sequences, lambda texts: comparator.predict(texts)[:, 0]
    )
    with atomic_directory(output) as directory:
        write_predictions(directory / "predictions.parquet", predictions)
        facts = {
            "negative_set": negative_set,
            "training_windows": learned.shape[0],
            "metrics": {
                split: split_metrics(predictions, split) for split in ("valid", "test")
            },
        }
        description = _describe(directory, name, comparator, facts, seed)
    if isinstance(comparator, NetworkComparator):
        comparator.finish()
    return description


def promoter_windows(
    config: Config, name: str, windows: Path, data: WindowSet, sequences: list[str]
) -> tuple[LabeledWindows, LabeledWindows]:
    """Return the training and validation windows of a comparator; `DataError` unless they have both classes and
    equal lengths. Networks draw them like the models."""
    training, network = config.promoters.training, name in NETWORKS
    fraction = training.train_fraction if network else 1
    learned = training_windows(data, fraction, training.seed)
    valid = np.flatnonzero(data.rows["split"] == "valid")
    for what, rows in (("training", learned), ("validation", valid)):
        if len(np.unique(data.labels[rows])) < 2:
            raise DataError(
                f"{windows}: the {what} windows must be of both classes, found only one"
            )
        lengths = {len(sequences[row]) for row in rows}
        if len(lengths) > 1:
            raise DataError(
                f"{windows}: {what} windows must have the same length, found {min(lengths):,} and "
                f"{max(lengths):,} bp"
            )
    tests = TextWindows([sequences[row] for row in valid], data.labels[valid])
    texts, labels = [sequences[row] for row in learned], data.labels[learned]
    if not network:
        return TextWindows(texts, labels), tests
    draws = WindowDraws(labels == 1, variants(data.rows)[learned], training)
    return DrawnTexts(texts, labels, draws, [0.5]), tests


class DrawnBins(BinWindows):
    """Windows around bins, drawn for networks as for the models: shifted, and from a random strand."""

    def __init__(
        self, data: ChromatinData, reference: Reference, length: int, draws: BinDraws
    ) -> None:
        super().__init__(data, reference, length, draws.training)
        self.draws = draws
        self.shares = data.labels.positives(draws.training) / len(draws.training)

    def draw(
        self, step: int, first: int, count: int
    ) -> tuple[list[str], npt.NDArray[np.uint8]]:
        rows, shifts, reverse = self.draws.at(step, first, count)
        chosen = np.array(rows, np.intp)
        windows = self.data.windows(self.length, self.rows[chosen])
        texts = []
        for bin, shift, minus in zip(windows, shifts.tolist(), reverse, strict=True):
            start, end = bin.start + shift, bin.end + shift
            window = Interval(bin.contig, start, end, "-" if minus else "+")
            texts.append(self.reference.fetch(window))
        return texts, self.labels(chosen)


def fit_tracks(
    config: Config,
    name: str,
    data: Path,
    reference: Path,
    output: Path,
    checkpoints: Path,
    *,
    seed: int | None = None,
    taxon: str | None = None,
    device: str = "auto",
) -> dict[str, Any]:
    """Fit a comparator to the bins of a data set, and write `predictions.npy` of the test bins with bins, labels
    and tracks, for the tracks that it can predict, and `comparator.json` (returned). It reads 1,000 bp around
    a bin, or the bin alone for gapped k-mers and for motifs, which are those of JASPAR for `taxon`."""
    check_directory(output, [data, reference, checkpoints])
    section, evaluation = config.chromatin, config.chromatin.evaluation
    seed = evaluation.seed if seed is None else seed
    bins = read_dataset(data)
    if not len(bins.rows("train")) or not len(bins.rows("valid")):
        missing = "validation" if len(bins.rows("train")) else "training"
        raise DataError(f"{data}: contains no {missing} bins")
    size, test = bins.bin_size, held_out_rows(bins, evaluation)
    length = size if name in ("motifs", "gkm-svm") else max(KMER_WINDOW, size)
    genome = Reference(reference)
    learned = bin_windows(config, name, bins, genome, length)
    held_out = BinWindows(bins, genome, length, bins.rows("valid"))
    count, tracks = learned.shape
    log(f"{name}: {count:,} training bins, {tracks:,} tracks, windows of {length:,} bp")
    sizes = (size, length) if length > size else (size,)
    kmer = evaluation.baseline_kmer
    comparator: Comparator
    match name:
        case network if network in NETWORKS:
            training = config_for(section, size).training
            identity = {
                "labels": checksum(data / "labels.npz"),
                "bins": checksum(data / "bins.parquet"),
                "examples": training.train_fraction,
                "examples_seed": training.seed,
                "shift": section.data.shift_bp,
            }
            loss = LabelLoss(positive_weight=training.positive_weight)
            settings = NetworkSettings(training, True, loss, training.evaluation_bins)
            comparator = NetworkComparator(
                NETWORKS[network],
                settings,
                name=network,
                checkpoints=checkpoints,
                windows=identity,
                device=device,
            )
        case "gc":
            comparator = GcContent(sizes)
        case "nearest":
            comparator = NearestWindow()
        case "gkm-svm":
            comparator = GkmSvm(both_strands=True, seed=seed)
        case "k-mers":
            comparator = TrackKmers(kmer, 0, sizes)
        case "dyads":
            comparator = TrackKmers(kmer, evaluation.baseline_dyads, sizes)
        case "motifs":
            factors = [track.target or track.name for track in bins.tracks]
            comparator = make_scan(factors, data / "tracks.tsv", taxon)
        case _:
            comparator = check_import("comparator", name)()
    comparator.fit(learned, held_out)
    windows = BinWindows(bins, genome, length, test)
    values = np.empty(windows.shape, np.float32)
    parts = blocks(len(test), AT_ONCE)
    for rows in progress(parts, "predicting", -(-len(test) // AT_ONCE), "parts"):
        values[rows] = comparator.predict(windows.sequences(rows))
    covered = comparator.covered(tracks)
    names = np.array([track.name for track in bins.tracks])
    with atomic_directory(output) as directory:
        predictions = np.ascontiguousarray(values[:, covered])
        write_array(directory / "predictions.npy", predictions)
        bins.bins.iloc[test].to_parquet(directory / "bins.parquet", index=False)
        columns = np.flatnonzero(covered)
        bins.labels.take(test).select(columns).save(directory / "labels.npz")
        known = [bins.tracks[column] for column in columns.tolist()]
        write_tracks(directory / "tracks.tsv", known)
        facts = {
            "window": length,
            "training_bins": count,
            "tracks": len(columns),
            "tracks_left_out": names[~covered].tolist(),
        }
        description = _describe(directory, name, comparator, facts, seed)
    if isinstance(comparator, NetworkComparator):
        comparator.finish()
    return description


def bin_windows(
    config: Config, name: str, bins: ChromatinData, reference: Reference, length: int
) -> BinWindows:
    """Return the training bins of a comparator with windows of `length` bp. Networks draw them like the models,
    as many per step as windows of the models have."""
    if name in NETWORKS:
        section = config_for(config.chromatin, bins.bin_size)
        return DrawnBins(bins, reference, length, BinDraws(bins, section))
    seed = config.chromatin.evaluation.seed
    rows = sample(bins.rows("train"), BASELINE_BINS, (seed, 8))
    return BinWindows(bins, reference, length, rows)


def _describe(
    directory: Path,
    name: str,
    comparator: Comparator,
    facts: dict[str, Any],
    seed: int,
) -> dict[str, Any]:
    """Write `comparator.json`, and the log of a network's training."""
    settings: dict[str, Any] = {"seed": seed}
    if isinstance(comparator, NetworkComparator):
        settings = comparator.config.model_dump(mode="json")
        assert comparator.trained is not None
        copyfile(comparator.trained.log, directory / "training.jsonl")
    description = {
        "comparator": name,
        "version": version("bigbird-dna"),
        **facts,
        "settings": settings,
        "chosen": comparator.chosen(),
    }
    write_json(directory / DESCRIPTION, description)
    return description
