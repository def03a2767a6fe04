"""Fine-tuning of the promoter classifier (App. F.2), and its ensemble with regressions."""

from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit
from torch import nn

from bigbird_dna.config.run import Config
from bigbird_dna.config.training import StartConfig
from bigbird_dna.console import log
from bigbird_dna.data.predictions import MODEL, NETWORK
from bigbird_dna.data.promoter_windows import (
    WindowSet,
    read_windows,
    variants,
    window_sequences,
)
from bigbird_dna.disk.atomic import checksum
from bigbird_dna.errors import DataError
from bigbird_dna.finetuning.calibrate import (
    PREDICTIONS,
    calibration_metrics_of,
    fit_predictions,
    too_few,
)
from bigbird_dna.finetuning.ensembles import Members, add_promoter_members
from bigbird_dna.finetuning.evaluation import (
    held_out_predictions,
    shift_metrics,
    split_metrics,
    write_predictions,
)
from bigbird_dna.finetuning.task import ClassifierTask, Windows
from bigbird_dna.genome.reference import Reference
from bigbird_dna.model.heads import Classifier
from bigbird_dna.model.settings import PromoterSettings
from bigbird_dna.training.draws import WindowDraws, variant_epochs
from bigbird_dna.training.task import TrainingResult, write_trained

VALIDATION_WINDOWS = 2000
SHIFTED_PROMOTERS = (
    300  # maximum number of validation promoters whose windows are moved
)


class PromoterTask(ClassifierTask[tuple[pd.DataFrame, Members | None]]):
    """Fine-tuning of a promoter classifier on the windows in the directory `data`; also writes
    `predictions.parquet` to the model's directory.

    Predictions cover the validation and test windows. With `shuffle_labels`, training labels are random: a
    control, whose performance on the true labels of the held-out contigs must be near chance.
    """

    name = "promoters"

    def __init__(
        self,
        run: Config,
        tokenizer_path: Path,
        pretrained: Path | None,
        data: Path,
        reference: Reference,
        negative_set: str,
        shuffle_labels: bool = False,
    ) -> None:
        self.run, self.data, self.reference = run, data, reference
        self.tokenizer_path, self.pretrained = tokenizer_path, pretrained
        self.negative_set, self.shuffle_labels = negative_set, shuffle_labels

    @property
    def initial(self) -> tuple[str, StartConfig]:
        return "promoters.classifier", self.section.classifier

    @property
    def shift_bp(self) -> int:  # type: ignore[override]
        return int(self.config.shift_bp)

    @cached_property
    def windows(self) -> WindowSet:
        """All windows."""
        return read_windows(self.data, self.negative_set)

    @cached_property
    def split(self) -> NDArray[Any]:
        """The split of each window."""
        return self.windows.rows["split"].to_numpy()

    @property
    def keeps_best(self) -> bool:
        """Not for the control, which must not use true labels, and not if the validation windows are of one
        class: their loss is lowest for a network that calls every window so."""
        classes = np.unique(self.windows.labels[self.split == "valid"])
        return not self.shuffle_labels and len(classes) == 2

    def check(self) -> None:
        """Check the windows, and record held-out contigs that the pretrained model has seen."""
        self.leaked = self.start.seen(self.windows.rows[self.split != "train"])
        classes = np.unique(self.windows.labels[self.split == "valid"])
        if not len(classes):
            raise DataError(f"{self.data}: no window is in split 'valid'")

        if len(classes) == 1:
            missing = f"{self.negative_set} negatives" if classes[0] else "promoters"
            log(
                f"warning: split 'valid' has no {missing}: its AUROC is not defined, and the weights of the "
                "last step are used"
            )

        self.warn_of_truncated(self.sequences, "windows")

    @cached_property
    def train_rows(self) -> NDArray[np.intp]:
        """The rows of the training windows."""
        return np.flatnonzero(self.split == "train")

    @cached_property
    def sequences(self) -> list[str]:
        """Sequences of all windows."""
        return window_sequences(self.reference, self.windows.rows, self.run.seed)

    @cached_property
    def settings(self) -> PromoterSettings:
        model = self.section.classifier
        upstream, downstream = self.section.windows.sides
        return PromoterSettings(
            upstream=upstream,
            downstream=downstream,
            pooling=model.pooling,
            head=model.head,
            jitter=self.config.crop_jitter_bp,
            views=model.views,
            negative_set=self.negative_set,
            shuffled_labels=self.shuffle_labels,
            base_positions=model.base_positions,
            ensemble="position" in model.ensemble,
            ensemble_kmers=self.section.evaluation.baseline_kmer
            if "kmers" in model.ensemble
            else 0,
        )

    @cached_property
    def windows_sha256(self) -> str:
        """SHA-256 checksum of `windows.parquet`."""
        return checksum(self.data / "windows.parquet")

    def identity(self) -> dict[str, Any]:
        """Return the settings, and the checksums of the windows and their source sequences."""
        return {
            **super().identity(),
            "windows": self.windows_sha256,
            "training_windows": len(self.train_rows),
            "seed": self.run.seed,
            "sequences": checksum(self.reference.path),
        }

    def initialize(self, network: nn.Module) -> None:
        assert isinstance(network, Classifier)
        self.start.apply(network.encoder)

    def _windows(self, rows: NDArray[np.integer]) -> Windows:
        """Return windows with their true labels."""
        labels = self.windows.labels[rows, None].astype(np.float32)
        return Windows([self.sequences[row] for row in rows.tolist()], labels)

    @cached_property
    def train_windows(self) -> Windows:
        windows = self._windows(self.train_rows)
        if self.shuffle_labels:
            # Labels are balanced over all windows, as in every epoch: promoters may have several negatives.
            rng = np.random.default_rng((self.config.seed, 4))
            labels = rng.permutation(np.arange(len(self.train_rows)) % 2)
            windows = windows._replace(labels=labels[:, None].astype(np.float32))
        return windows

    @cached_property
    def watched_windows(self) -> Windows:
        rows = np.flatnonzero(self.split == "valid")
        if len(rows) > VALIDATION_WINDOWS:
            rng = np.random.default_rng((self.config.seed, 5))
            rows = rows[rng.choice(len(rows), VALIDATION_WINDOWS, replace=False)]
        return self._windows(rows)

    @cached_property
    def draws(self) -> WindowDraws:
        rows = self.train_rows
        promoters = self.windows.labels[rows] == 1
        members = variant_epochs(promoters, variants(self.windows.rows)[rows])
        return WindowDraws(members, self.config)

    def measure(
        self, trained: TrainingResult[nn.Module]
    ) -> tuple[pd.DataFrame, Members | None]:
        """Return predictions for the held-out windows, and the ensemble's weights if the model is one."""
        model, world = self.model(trained.network), trained.world
        computing: Any = {"batch_size": 64, "device": world.device.type}
        texts = self._windows(np.flatnonzero(self.split != "train")).sequences
        logits = world.divide(texts, partial(model.network_logits, **computing))
        predict = partial(model.window_probabilities, logits=logits, **computing)
        predictions = held_out_predictions(
            self.windows, self.sequences, predict
        )  # of the network alone
        assert isinstance(model.network, Classifier)
        if model.network.ensemble is None:
            return predictions, None

        alone = predictions["probability"]
        rows = (predictions["split"] == "valid").to_numpy()
        valid = None
        if not self.shuffle_labels:  # the control must not use true labels
            valid = self._windows(np.flatnonzero(self.split == "valid"))

        members, logits_of = add_promoter_members(
            model.network.ensemble,
            self.train_windows,
            valid,
            alone[rows].to_numpy(),
            self.config.seed,
            self.shift_bp,
        )
        predictions = held_out_predictions(self.windows, self.sequences, predict)
        if valid is not None and rows.any():
            probs = predictions[["probability"]][rows].to_numpy()
            members = members.measured(logits_of, probs, valid.labels, "binary")

        return predictions.assign(**{NETWORK: alone}), members

    def write(
        self,
        directory: Path,
        trained: TrainingResult[nn.Module],
        measured: tuple[pd.DataFrame, Members | None],
    ) -> dict[str, Any]:
        """Write the model directory, predictions and the calibration fitted to them; return metrics."""
        predictions, members = measured
        metrics: dict[str, Any] = {
            split: split_metrics(predictions, split) for split in ("valid", "test")
        }
        metrics["training"] = {
            **trained.effort,
            "examples": int(self.windows.labels[self.train_rows].sum()),
        }
        if members is not None:
            metrics["ensemble"] = members.stored()

        calibration = fit_predictions(predictions, self.section.calibration.method)
        if calibration is None:
            log(f"the model is not calibrated: {too_few(predictions)}")

        metrics["test"] |= calibration_metrics_of(predictions, calibration)
        model = self.model(trained.network)
        if not self.shuffle_labels:
            computing: Any = {"batch_size": 64, "device": trained.world.device.type}

            def predict(texts: list[str]) -> dict[str, NDArray[np.floating]]:
                logits = model.network_logits(texts, **computing)
                probs = model.window_probabilities(texts, logits, **computing)
                if members is None:
                    return {MODEL: probs}

                return {MODEL: probs, NETWORK: expit(logits).mean(axis=1)[:, 0]}

            metrics["shifts"] = shift_metrics(
                predictions, self.reference, predict, SHIFTED_PROMOTERS
            )

        write_predictions(directory / PREDICTIONS, predictions)
        provenance = {
            **self.provenance(),
            "windows_sha256": self.windows_sha256,
            "reference": self.reference.path.name,
            "promoters": self.run.promoters.source,
        }
        write_trained(directory, model, trained, provenance, metrics, calibration)
        return metrics
