"""Fit comparators to promoter and chromatin data sets, and predict the same held-out data as the models.
Networks are trained like the models: on the same draws of the training examples, for as many steps. Other
comparators are fitted to all promoters, or to a sample of 60,000 bins."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from shutil import copyfile
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from bigbird_dna.baselines.networks import DrawnTexts, NetworkSettings
from bigbird_dna.baselines.windows import LabeledWindows, Rows, TextWindows, blocks
from bigbird_dna.config import ChromatinConfig, Config
from bigbird_dna.console import log, progress
from bigbird_dna.data.chromatin import BinWindows, checked_window, sample
from bigbird_dna.data.promoter_windows import (
    WindowSet,
    read_origin,
    read_windows,
    training_windows,
    variants,
    window_sequences,
)
from bigbird_dna.disk.atomic import checksum, write_array, write_json
from bigbird_dna.disk.directories import atomic_directory, check_directory
from bigbird_dna.errors import DataError
from bigbird_dna.finetuning.chromatin import BinDraws, config_for
from bigbird_dna.finetuning.evaluation import (
    BASELINE_BINS,
    check_aligned,
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
from bigbird_dna.papers.comparators.interface import (
    DESCRIPTION,
    GKM,
    MOTIFS,
    NETWORK_NAMES,
    POSITION,
    Comparator,
    ComparatorRequest,
    make_comparator,
)
from bigbird_dna.training.draws import WindowDraws
from bigbird_dna.training.losses import LabelLoss

_AT_ONCE = 4096  # bins whose sequences are in memory at a time
# Axes: n bins, T tracks.


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
        rows, shifts, turned = self.draws.at(step, first, count)
        chosen = np.array(rows, np.intp)
        windows = self.data.windows(self.length, self.rows[chosen])
        texts = []
        for one, shift, reverse in zip(windows, shifts.tolist(), turned, strict=True):
            moved = Interval(
                one.contig, one.start + shift, one.end + shift, "-" if reverse else "+"
            )
            texts.append(self.reference.fetch(moved))
        return texts, self.labels(chosen)


@dataclass(frozen=True)
class PromoterData:
    """The windows of a negative set, which have a direction and one label."""

    config: Config
    name: str  # name of the comparator
    negative_set: str
    windows: Path
    reference: Reference

    @property
    def inputs(self) -> Sequence[Path]:
        return [self.windows, self.reference.path]

    @property
    def settings(self) -> NetworkSettings:
        """Training settings of a network."""
        return NetworkSettings(
            self.config.promoters.training, evaluated=VALIDATION_WINDOWS
        )

    @property
    def share(self) -> float:
        """Fraction of the training promoters used for fitting."""
        return (
            self.config.promoters.training.train_fraction
            if self.name in NETWORK_NAMES
            else 1
        )

    @cached_property
    def data(self) -> WindowSet:
        if self.name == POSITION:
            check_aligned(self.windows)
        return read_windows(self.windows, self.negative_set)

    @cached_property
    def sequences(self) -> list[str]:
        return window_sequences(self.reference, self.data.rows, self.config.seed)

    @cached_property
    def learned(self) -> LabeledWindows:
        """Training windows; `DataError` unless they have both classes and equal lengths."""
        training = self.config.promoters.training
        rows = training_windows(self.data, self.share, training.seed)
        windows = self._checked(rows, "training")
        if self.name not in NETWORK_NAMES:
            return windows
        labels = self.data.labels[rows]
        draws = WindowDraws(labels == 1, variants(self.data.rows)[rows], training)
        return DrawnTexts(windows.sequences(np.arange(len(rows))), labels, draws, [0.5])

    @cached_property
    def held_out(self) -> LabeledWindows:
        return self._checked(
            np.flatnonzero(self.data.rows["split"] == "valid"), "validation"
        )

    def _checked(self, rows: npt.NDArray[np.intp], what: str) -> TextWindows:
        labels = self.data.labels[rows]
        if len(np.unique(labels)) < 2:
            raise DataError(
                f"{self.windows}: the {what} windows must be of both classes, found only one"
            )
        texts = [self.sequences[row] for row in rows]
        lengths = {len(text) for text in texts}
        if len(lengths) > 1:
            raise DataError(
                f"{self.windows}: {what} windows must have the same length, found {min(lengths):,} and "
                f"{max(lengths):,} bp"
            )
        return TextWindows(texts, labels)

    def request(self) -> dict[str, Any]:
        """Return the keys of a `ComparatorRequest` that depend on the data."""
        # Position of the TSS in a window, as a fraction of its length.
        origin = read_origin(self.windows)
        sides = (
            (origin.upstream, origin.downstream)
            if origin
            else self.config.promoters.windows.sides
        )
        return {
            "directed": True,
            "seed": self.config.promoters.evaluation.seed,
            "sizes": (self.learned.length,),
            "kmer": self.config.promoters.evaluation.baseline_kmer,
            "dyads": 0,
            "identity": {
                "windows": checksum(self.windows / "windows.parquet"),
                "reference": checksum(self.reference.path),
                **{"negative_set": self.negative_set, "seed": self.config.seed},
                **{
                    "examples": self.share,
                    "examples_seed": self.config.promoters.training.seed,
                },
            },
            "anchor": sides[0] / sum(sides),
        }

    def predict(self, comparator: Comparator) -> pd.DataFrame:
        def predicted(texts: list[str]) -> npt.NDArray[np.float64]:
            return np.asarray(comparator.predict(texts)[:, 0], np.float64)

        return held_out_predictions(self.data, self.sequences, predicted)

    def write(
        self, directory: Path, predictions: pd.DataFrame, comparator: Comparator
    ) -> dict[str, Any]:
        """Write `predictions.parquet` as in fine-tuning, and return further facts for the description."""
        write_predictions(directory / "predictions.parquet", predictions)
        metrics = {
            split: split_metrics(predictions, split) for split in ("valid", "test")
        }
        shape = {
            "negative_set": self.negative_set,
            "training_windows": self.learned.shape[0],
        }
        return {**shape, "metrics": metrics}


@dataclass(frozen=True)
class TrackData:
    """Bins with the labels of all tracks; windows around them have no direction."""

    config: Config
    name: str  # name of the comparator
    data: Path
    path: Path  # path of the reference
    window: int | None = (
        None  # bp around a bin; None: 1,000, or the bin alone for motifs and gapped k-mers
    )

    @property
    def inputs(self) -> Sequence[Path]:
        return [self.data, self.path]

    @property
    def section(self) -> ChromatinConfig:
        """The chromatin section for windows with one bin: a step learns from as many bins as the models'."""
        return config_for(self.config.chromatin, self.bins.bin_size)

    @property
    def settings(self) -> NetworkSettings:
        """Training settings of a network."""
        training = self.section.training
        loss = LabelLoss(positive_weight=training.positive_weight)
        return NetworkSettings(training, True, loss, training.evaluation_bins)

    @cached_property
    def bins(self) -> ChromatinData:
        bins = read_dataset(self.data)
        for name, rows in (
            ("training", bins.rows("train")),
            ("validation", bins.rows("valid")),
        ):
            if not len(rows):
                raise DataError(f"{self.data}: contains no {name} bins")
        return bins

    @cached_property
    def length(self) -> int:
        """Window length in bp; `ConfigError` if the window cannot be centered on a bin."""
        size = self.bins.bin_size
        if self.window is None:
            return size if self.name in (MOTIFS, GKM) else max(KMER_WINDOW, size)
        return checked_window(self.window, size)

    def _windows(self, rows: Rows) -> BinWindows:
        return BinWindows(self.bins, Reference(self.path), self.length, rows)

    @cached_property
    def learned(self) -> LabeledWindows:
        evaluation = self.config.chromatin.evaluation
        if self.name in NETWORK_NAMES:
            draws = BinDraws(self.bins, self.section)
            return DrawnBins(self.bins, Reference(self.path), self.length, draws)
        return self._windows(
            sample(self.bins.rows("train"), BASELINE_BINS, (evaluation.seed, 8))
        )

    @cached_property
    def held_out(self) -> LabeledWindows:
        return self._windows(self.bins.rows("valid"))

    def request(self) -> dict[str, Any]:
        """Return the keys of a `ComparatorRequest` that depend on the data."""
        size, training = self.bins.bin_size, self.config.chromatin.training
        count, tracks = self.learned.shape
        log(
            f"{self.name}: {count:,} training bins, {tracks:,} tracks, windows of {self.length:,} bp"
        )
        return {
            "directed": False,
            "seed": self.config.chromatin.evaluation.seed,
            "sizes": (size, self.length) if self.length > size else (size,),
            "kmer": self.config.chromatin.evaluation.baseline_kmer,
            "dyads": self.config.chromatin.evaluation.baseline_dyads,
            "identity": {
                "labels": checksum(self.data / "labels.npz"),
                "bins": checksum(self.data / "bins.parquet"),
                **{"examples": training.train_fraction, "examples_seed": training.seed},
                "shift": self.config.chromatin.data.shift_bp,
            },
            # The target of a track, or its name if the table has no target.
            "factors": [track.target or track.name for track in self.bins.tracks],
            "factors_in": self.data / "tracks.tsv",
        }

    @cached_property
    def test(self) -> Rows:
        return held_out_rows(self.bins, self.config.chromatin.evaluation)

    def predict(self, comparator: Comparator) -> npt.NDArray[np.float32]:
        """Return probabilities of the test bins (n, T), computed in batches of windows."""
        windows = self._windows(self.test)
        values = np.empty(windows.shape, np.float32)
        count = len(values)
        for rows in progress(
            blocks(count, _AT_ONCE), "predicting", -(-count // _AT_ONCE), "parts"
        ):
            values[rows] = comparator.predict(windows.sequences(rows))
        return values

    def write(
        self, directory: Path, values: npt.NDArray[np.float32], comparator: Comparator
    ) -> dict[str, Any]:
        """Write `predictions.npy` of the predictable tracks, with bins, labels and tracks."""
        bins, can = self.bins, comparator.covered(len(self.bins.tracks))
        covered = np.flatnonzero(can)
        write_array(
            directory / "predictions.npy", np.ascontiguousarray(values[:, covered])
        )
        bins.bins.iloc[self.test].to_parquet(directory / "bins.parquet", index=False)
        bins.labels.take(self.test).select(covered).save(directory / "labels.npz")
        write_tracks(
            directory / "tracks.tsv", [bins.tracks[one] for one in covered.tolist()]
        )
        return {
            **{
                "window": self.length,
                "training_bins": self.learned.shape[0],
                "tracks": len(covered),
            },
            "tracks_left_out": [
                bins.tracks[one].name for one in np.flatnonzero(~can).tolist()
            ],
        }


def fit_comparator(
    data: PromoterData | TrackData,
    output: Path,
    checkpoints: Path,
    options: Mapping[str, Any],
    device: str = "auto",
) -> Mapping[str, Any]:
    """Fit a comparator and write predictions of held-out data to `output`, with `comparator.json` (returned).
    `options` are keys of a `ComparatorRequest`. A killed training resumes from its last checkpoint."""
    models = [options["model"]] if options.get("model") else []
    check_directory(output, [*data.inputs, checkpoints, *models])
    if isinstance(data, TrackData):
        _ = data.length, data.test  # check the configuration before any computation
    learned, held_out = data.learned, data.held_out
    request = ComparatorRequest(
        data.name,
        settings=data.settings,
        checkpoints=checkpoints,
        device=device,
        **{**data.request(), **options},
    )
    comparator = make_comparator(request).fit(learned, held_out)
    predictions: Any = data.predict(comparator)
    with atomic_directory(output) as directory:
        written = data.write(directory, predictions, comparator)
        description = {
            "comparator": request.name,
            "version": version("bigbird-dna"),
            **written,
            "settings": data.settings.training.model_dump(mode="json")
            if data.name in NETWORK_NAMES
            else {"seed": request.seed},
            "chosen": comparator.chosen(),
        }
        write_json(directory / DESCRIPTION, description)
        for file, path in comparator.files().items():
            copyfile(path, directory / file)
    comparator.finish()
    return description
