"""Fit comparators to promoter and chromatin data sets, and predict the same held-out data as the models.

Comparators are predictors without a fine-tuned language model. Networks are trained like the models: on the
same draws of the training examples, for as many steps. Other comparators are fitted to all promoters, or to a
sample of 60,000 bins. A comparator of the user, MODULE:CLASS, has `fit(learned, held_out)` with
`LabeledWindows`, and `predict(sequences)`, which returns probabilities (n, T).
"""

from dataclasses import replace
from pathlib import Path
from shutil import copyfile
from typing import Any

import numpy as np
import numpy.typing as npt

from bigbird_dna.baselines.dyads import TrackWords
from bigbird_dna.baselines.networks import (
    DrawnTexts,
    NetworkBaseline,
)
from bigbird_dna.baselines.promoters import kmer_regression, promoter_regression
from bigbird_dna.baselines.windows import TextWindows
from bigbird_dna.config.run import Config
from bigbird_dna.console import log, progress
from bigbird_dna.data.chromatin import BinWindows, sample
from bigbird_dna.data.promoter_windows import (
    read_windows,
    variants,
    window_sequences,
)
from bigbird_dna.disk.atomic import checksum, write_array
from bigbird_dna.disk.directories import atomic_directory
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
from bigbird_dna.genome.reference import Reference
from bigbird_dna.papers.comparators.architectures import NETWORKS
from bigbird_dna.papers.comparators.gkm_svm import GkmSvm
from bigbird_dna.training.distributed import World
from bigbird_dna.training.draws import WindowDraws, variant_epochs
from bigbird_dna.training.losses import LabelLoss

AT_ONCE = 4096  # bins whose sequences are in memory at a time
# Axes: n windows, T tracks.


def fit_promoters(
    config: Config,
    name: str,
    seed: int,
    negative_set: str,
    windows: Path,
    reference: Path,
    output: Path,
    checkpoints: Path,
    world: World,
) -> dict[str, Any]:
    """Fit a comparator to the windows of a negative set, and predict the held-out ones; returns its metrics.

    `name` is that of a network, a regression or `gkm-svm`, or MODULE:CLASS. `windows` is the directory of the
    data set, `reference` the genome. `seed` is that of regressions and gkm-SVM; networks have that of the
    training. The directory `output` gets `predictions.parquet`, as for a promoter model, and the log of a
    network. A killed training of a network resumes.

    `DataError` unless there are training windows of both classes, `UsageError` for an unknown comparator.
    """
    if not world.is_first:
        return {}

    section, training = config.promoters, config.promoters.training
    data = read_windows(windows, negative_set)
    sequences = window_sequences(Reference(reference), data.rows, config.seed)
    rows = np.flatnonzero(data.rows["split"] == "train")
    valid = np.flatnonzero(data.rows["split"] == "valid")
    texts, labels = [sequences[row] for row in rows], data.labels[rows]
    held_out = TextWindows([sequences[row] for row in valid], data.labels[valid])
    model: Any
    if name in NETWORKS:
        model = NetworkBaseline(
            NETWORKS[name],
            training,
            evaluated=VALIDATION_WINDOWS,
            name=name,
            checkpoints=checkpoints,
            windows={
                "windows": checksum(windows / "windows.parquet"),
                "reference": checksum(reference),
                "negative_set": negative_set,
                "seed": config.seed,
            },
            device=world.device.type,
        )
        members = variant_epochs(labels == 1, variants(data.rows)[rows])
        draws = WindowDraws(members, training)
        model.fit(DrawnTexts(texts, labels, draws, [0.5]), held_out)
    elif name == "gc":
        model = kmer_regression(1, seed, both_strands=True).fit(texts, labels)
    elif name in ("k-mers", "position", "composition"):
        model = promoter_regression(name, section.evaluation.baseline_kmer, seed)
        model.fit(texts, labels)
    else:
        if name == "gkm-svm":
            model = GkmSvm(seed=seed)
        else:
            model = check_import("comparator", name)()

        model.fit(TextWindows(texts, labels), held_out)

    predictions = held_out_predictions(
        data, sequences, lambda texts: np.reshape(model.predict(texts), len(texts))
    )
    with atomic_directory(output) as directory:
        write_predictions(directory / "predictions.parquet", predictions)
        if name in NETWORKS:
            copyfile(model.trained.log, directory / "training.jsonl")
            model.finish()

    return {split: split_metrics(predictions, split) for split in ("valid", "test")}


def fit_tracks(
    config: Config,
    name: str,
    seed: int,
    data: Path,
    reference: Path,
    length: int,
    output: Path,
    checkpoints: Path,
    world: World,
) -> dict[str, Any]:
    """Fit a comparator to windows of `length` bp around the bins of a data set, and predict the test bins.

    `name` and `seed` are as in `fit_promoters`; `data` is the directory of the data set. The directory
    `output` gets `predictions.npy`, bins × tracks, and the log of a network. A killed training of a network
    resumes.

    `DataError` without training or validation bins, `UsageError` for an unknown comparator.
    """
    if not world.is_first:
        return {}

    evaluation, bins = config.chromatin.evaluation, read_dataset(data)
    for split in ("train", "valid"):
        if not len(bins.rows(split)):
            raise DataError(f"{data}: contains no bins of the split {split!r}")

    genome = Reference(reference)
    rows = sample(bins.rows("train"), BASELINE_BINS, (evaluation.seed, 8))
    learned = BinWindows(bins, genome, length, rows)
    held_out = BinWindows(bins, genome, length, bins.rows("valid"))
    model: Any
    if name in NETWORKS:
        # As many bins per step as windows of the models have.
        section = config_for(config.chromatin, bins.bin_size)
        training = section.training
        learned = DrawnBins(bins, genome, length, BinDraws(bins, section))
        loss = LabelLoss(positive_weight=training.positive_weight)
        model = NetworkBaseline(
            NETWORKS[name],
            training,
            loss=loss,
            both_strands=True,
            evaluated=training.evaluation_bins,
            name=name,
            checkpoints=checkpoints,
            windows={
                "labels": checksum(data / "labels.npz"),
                "bins": checksum(data / "bins.parquet"),
                "shift": config.chromatin.data.shift_bp,
            },
            device=world.device.type,
        )
    elif name in ("gc", "k-mers", "dyads"):
        dyads = evaluation.baseline_dyads if name == "dyads" else 0
        k = 1 if name == "gc" else evaluation.baseline_kmer
        model = TrackWords(k, dyads, sorted({bins.bin_size, length}))
    elif name == "gkm-svm":
        model = GkmSvm(both_strands=True, seed=seed)
    else:
        model = check_import("comparator", name)()

    log(f"{name}: {learned.shape[0]:,} training bins, windows of {length:,} bp")
    model.fit(learned, held_out)
    windows = BinWindows(bins, genome, length, held_out_rows(bins, evaluation))
    predictions = np.empty(windows.shape, np.float32)
    starts = range(0, len(predictions), AT_ONCE)
    for start in progress(starts, "predicting", len(starts), "parts"):
        rows = np.arange(start, min(start + AT_ONCE, len(predictions)))
        predictions[rows] = model.predict(windows.sequences(rows))

    with atomic_directory(output) as directory:
        write_array(directory / "predictions.npy", predictions)
        if name in NETWORKS:
            copyfile(model.trained.log, directory / "training.jsonl")
            model.finish()

    return {}


class DrawnBins(BinWindows):
    """Windows around bins, drawn for networks as for the models: shifted, and from a random strand.

    `shares` (T,) is the fraction of positive training bins of each track.
    """

    def __init__(
        self, data: ChromatinData, reference: Reference, length: int, draws: BinDraws
    ) -> None:
        super().__init__(data, reference, length, draws.training)
        self.draws = draws
        self.shares = data.labels.positives(self.rows) / len(self.rows)

    def draw(
        self, step: int, first: int, count: int
    ) -> tuple[list[str], npt.NDArray[np.uint8]]:
        """Return the windows `first … first + count` of a step, with their labels (n, T)."""
        indices, shifts, reverse = self.draws.at(step, first, count)
        rows = np.array(indices, np.intp)
        bins = self.data.windows(self.length, self.rows[rows])
        texts = []

        for bin, shift, minus in zip(bins, shifts.tolist(), reverse, strict=True):
            window = replace(
                bin,
                start=bin.start + shift,
                end=bin.end + shift,
                strand="-" if minus else "+",
            )
            texts.append(self.reference.fetch(window))

        return texts, self.labels(rows)
