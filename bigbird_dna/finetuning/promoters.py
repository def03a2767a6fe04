"""Fine-tuning of the promoter classifier (App. F.2), and its ensemble with regressions."""

from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pandas as pd
from torch import nn

from bigbird_dna.config.promoters import PromoterConfig
from bigbird_dna.config.run import stage_values
from bigbird_dna.console import log
from bigbird_dna.data.predictions import NETWORK
from bigbird_dna.data.promoter_windows import (
    WindowSet,
    check_training_classes,
    read_windows,
    training_windows,
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
from bigbird_dna.finetuning.classifiers import ClassifierObjective, ClassifierWindows
from bigbird_dna.finetuning.ensembles import Members, add_promoter_members
from bigbird_dna.finetuning.evaluation import (
    held_out_predictions,
    shift_metrics,
    split_metrics,
    write_predictions,
)
from bigbird_dna.model.batching import truncated
from bigbird_dna.model.heads import Classifier
from bigbird_dna.model.promoter import LoadedPromoterModel
from bigbird_dna.model.settings import PromoterSettings
from bigbird_dna.training.checkpoints import Keep
from bigbird_dna.training.distributed import World
from bigbird_dna.training.initialization import GenomeTask
from bigbird_dna.training.task import TrainingResult

VALIDATION_WINDOWS = 2000
SHIFTED_PROMOTERS = 300  # maximum number of test promoters whose windows are moved


@dataclass(eq=False)
class PromoterTask(GenomeTask[tuple[pd.DataFrame, Members | None]]):
    """Fine-tuning of a promoter classifier on windows; also writes `predictions.parquet` to its directory.

    Predictions cover the validation and test windows. With `shuffle_labels`, training labels are random: a
    control, whose performance on the true labels of the held-out contigs must be near chance.
    """

    name: ClassVar = "promoters"
    negative_set: str
    shuffle_labels: bool

    @cached_property
    def section(self) -> PromoterConfig:
        """The run's promoter section."""
        section = self.run.promoters
        self.run.encoder.check_pooling(section.model.pooling, "promoters.model")
        return section

    @cached_property
    def windows(self) -> WindowSet:
        """All windows; extra negatives are included if the calibration uses them."""
        further = self.section.calibration.negatives > 0
        return read_windows(self.data, self.negative_set, further=further)

    @property
    def keep(self) -> Keep:
        """The configured weights, but those of the last step for the control, which must not use true labels,
        and if the validation windows are of one class: their loss is lowest for a network that calls every
        window so."""
        return (
            "last"
            if self.shuffle_labels or len(self._validation_classes) < 2
            else super().keep
        )

    @property
    def _validation_classes(self) -> set[int]:
        return {
            *self.windows.labels[
                self.windows.rows["split"].to_numpy() == "valid"
            ].tolist()
        }

    def check(self) -> None:
        super().check()
        check_training_classes(self.data, self.windows)
        classes = self._validation_classes
        if not classes:
            raise DataError(f"{self.data}: no window is in split 'valid'")
        if len(classes) == 1:
            missing = f"{self.negative_set} negatives" if 1 in classes else "promoters"
            log(
                f"warning: split 'valid' has no {missing}: its AUROC is not defined, and the weights of the "
                "last step are used"
            )
        if self.truncated:
            positions = self.encoder.max_length
            log(
                f"warning: {self.truncated:,} of {len(self.sequences):,} windows have more tokens than "
                f"encoder.max_length {positions:,} allows: the network reads the {positions - 2:,} around "
                "the TSS (regressions read all)"
            )

    @cached_property
    def learned(self) -> npt.NDArray[np.intp]:
        """The rows of the training windows."""
        return training_windows(
            self.windows, self.section.training.train_fraction, self.config.seed
        )

    @cached_property
    def sequences(self) -> list[str]:
        """Sequences of all windows."""
        return window_sequences(self.reference, self.windows.rows, self.run.seed)

    @cached_property
    def settings(self) -> PromoterSettings:
        model = self.section.model
        upstream, downstream = self.section.windows.sides
        return PromoterSettings(
            upstream=upstream,
            downstream=downstream,
            pooling=model.pooling,
            head=model.head,
            jitter=self.section.training.crop_jitter_bp,
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

    @property
    def held_out(self) -> pd.DataFrame:
        return self.windows.rows[self.windows.rows["split"] != "train"]

    @cached_property
    def truncated(self) -> int:
        """The number of windows of which the network reads only the tokens around the TSS."""
        return int(
            truncated(self.tokenizer, self.sequences, self.encoder.max_length).sum()
        )

    def identity(self) -> dict[str, Any]:
        """Return the settings, and the checksums of the windows and their source sequences."""
        identity = {
            "settings": self.settings.model_dump(exclude={"views"}),
            "windows": self.windows_sha256,
            "training_windows": len(self.learned),
            "seed": self.run.seed,
            "sequences": checksum(self.reference.path),
        }
        return identity | super().identity()

    def initialize(self, network: nn.Module) -> None:
        assert isinstance(network, Classifier)
        self.start.apply(network.encoder)

    def objective(self, network: nn.Module, world: World) -> ClassifierObjective:
        learned, held_out, seed = (
            self._windows().take(self.learned),
            self._windows("valid"),
            self.config.seed,
        )
        if self.shuffle_labels:
            # Labels are balanced over all windows, as in every epoch: promoters may have several negatives.
            dealt = np.random.default_rng((seed, 4)).permutation(
                np.arange(len(learned.labels)) % 2
            )
            learned = learned._replace(labels=dealt[:, None].astype(np.float32))
        count = len(held_out.labels)
        if count > VALIDATION_WINDOWS:
            sampled = np.random.default_rng((seed, 5)).choice(
                count, VALIDATION_WINDOWS, replace=False
            )
            held_out = held_out.take(sampled)
        positions = self.encoder.max_length
        return ClassifierObjective(
            self.tokenizer,
            learned,
            held_out,
            self.section.training,
            self.settings,
            positions,
            world,
        )

    def _windows(self, split: str | None = None) -> ClassifierWindows:
        """Return the windows of a split (None: of all splits) with their true labels."""
        labels, rows = self.windows.labels, self.windows.rows
        columns = labels[:, None].astype(np.float32), labels == 1, variants(rows)
        windows = ClassifierWindows(self.sequences, *columns)
        if split is None:
            return windows
        return windows.take(np.flatnonzero(rows["split"].to_numpy() == split))

    def describe(self, network: nn.Module) -> str:
        return f"{len(self.learned):,} training windows, {self.negative_set} negatives"

    def measure(
        self, trained: TrainingResult[nn.Module]
    ) -> tuple[pd.DataFrame, Members | None]:
        """Return predictions for the held-out windows, and the ensemble's weights if the model is one."""
        model, world = self.model(trained), trained.world
        assert isinstance(model, LoadedPromoterModel) and isinstance(
            trained.objective, ClassifierObjective
        )
        computing: Any = {"batch_size": 64, "device": world.device.type}
        texts = [
            self.sequences[row]
            for row in np.flatnonzero(self.windows.rows["split"] != "train")
        ]
        logits = world.divide(texts, partial(model.network_logits, **computing))
        predict = partial(model.window_probabilities, logits=logits, **computing)
        predictions = held_out_predictions(
            self.windows, self.sequences, predict
        )  # of the network alone
        assert isinstance(model.network, Classifier)
        if model.network.ensemble is None:
            return predictions, None
        alone = predictions["probability"]
        # The control must not use true labels.
        valid = None if self.shuffle_labels else self._windows("valid")
        rows = (predictions["split"] == "valid").to_numpy()
        members, members_logits = add_promoter_members(
            model.network.ensemble,
            trained.objective.windows,
            valid,
            alone[rows].to_numpy(),
            self.config.seed,
        )
        predictions = held_out_predictions(self.windows, self.sequences, predict)
        if valid is not None and rows.any():
            shipped = predictions[["probability"]][rows].to_numpy()
            members = members.measured(members_logits, shipped, valid.labels, "binary")
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
            "examples": int(self.windows.labels[self.learned].sum()),
        }
        metrics["truncated"] = self.truncated
        if members is not None:
            metrics["ensemble"] = members.stored()
        calibration = fit_predictions(predictions, self.section.calibration.method)
        if calibration is None:
            log(f"the model is not calibrated: {too_few(predictions)}")
        metrics["test"] |= calibration_metrics_of(predictions, calibration)
        if not self.shuffle_labels:
            model = self.model(trained)
            assert isinstance(model, LoadedPromoterModel)
            predict = partial(
                model.window_probabilities,
                batch_size=64,
                device=trained.world.device.type,
            )
            metrics["test"] |= shift_metrics(
                predictions, self.reference, predict, SHIFTED_PROMOTERS
            )
        write_predictions(directory / PREDICTIONS, predictions)
        provenance = {
            "configuration": stage_values(self.run, "promoters"),
            **self.start.provenance(self.leaked),
            "windows_sha256": self.windows_sha256,
            "reference": self.reference.path.name,
            "promoters": self.run.promoters.source,
        }
        self.write_model(directory, trained, provenance, metrics, calibration)
        return metrics
