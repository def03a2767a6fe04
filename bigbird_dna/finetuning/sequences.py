"""Training of models of labeled sequences, with the baselines of their report."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import nn

from bigbird_dna.baselines.networks import (
    CnnProm,
    DrawnTexts,
    NetworkBaseline,
)
from bigbird_dna.baselines.sequences import SequenceRegression, sequence_regressions
from bigbird_dna.baselines.windows import TextWindows
from bigbird_dna.config.run import Config
from bigbird_dna.config.section import LabelKind
from bigbird_dna.config.sequences import (
    LABEL_KINDS,
    SequencesConfig,
)
from bigbird_dna.console import log
from bigbird_dna.data.chromatin import sample
from bigbird_dna.data.labeled_sequences import (
    LABEL,
    LabeledSequences,
    different,
    read_labeled_sequences,
)
from bigbird_dna.data.predictions import (
    CNN,
    COMPOSITION,
    CONTROL,
    KMER,
    MODEL,
    NETWORK,
    POSITION,
)
from bigbird_dna.disk.atomic import checksum
from bigbird_dna.errors import DataError, check_choice
from bigbird_dna.finetuning.calibrate import PREDICTIONS
from bigbird_dna.finetuning.ensembles import KMERS, Members, add_members, fit_members
from bigbird_dna.finetuning.evaluation import without_nan, write_predictions
from bigbird_dna.finetuning.task import ClassifierTask, Windows
from bigbird_dna.genome.sequence_tables import TableColumns
from bigbird_dna.model.heads import Classifier
from bigbird_dna.model.settings import SequenceSettings
from bigbird_dna.tokens.encode import tokenizer_of
from bigbird_dna.tokens.interface import Tokenizer
from bigbird_dna.tokens.load import load_tokenizer
from bigbird_dna.training.distributed import World
from bigbird_dna.training.draws import WindowDraws, balanced_epochs
from bigbird_dna.training.initialization import (
    Initialization,
    initialization,
    load_start,
)
from bigbird_dna.training.losses import LabelLoss
from bigbird_dna.training.task import TrainingResult, fit, write_trained

# Axes: N held-out sequences, T outputs.

VALIDATION_SEQUENCES = 2000

Predictions = Mapping[str, NDArray[np.floating]]
"""Predictions (N, T) of the validation and test sequences by predictor."""


@dataclass(eq=False)
class LabeledSequenceTask(ClassifierTask[tuple[Predictions, Members | None]]):
    """Training on labeled sequences: tables, or a FASTA file of positives and one of `negatives`.

    Also trains a control (`is_control`, on shuffled labels) and a convolutional network, and fits
    regressions; all predict the held-out sequences.
    """

    name: ClassVar[str] = "sequences"

    run: Config
    tokenizer_path: Path | None
    pretrained: Path | None
    data: Sequence[Path]
    negatives: Path | None = None
    sequence_column: str = "sequence"
    label_columns: Sequence[str] = ()
    split_column: str = "split"
    task: LabelKind | None = None
    both_strands: bool = False
    is_control: bool = False
    # Further trainings, whose checkpoints are removed at the end.
    trainings: list[TrainingResult[Any]] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        if self.task is not None:
            check_choice("--task", self.task, LABEL_KINDS)
        self.both_strands = self.both_strands or self.run.sequences.both_strands

    @cached_property
    def sequences(self) -> LabeledSequences:
        """All sequences, with their splits."""
        return read_labeled_sequences(
            self.data,
            negatives=self.negatives,
            columns=TableColumns(
                self.sequence_column, tuple(self.label_columns), self.split_column
            ),
            task=self.task,
            similarity=self.run.sequences.min_shared_kmers,
            seed=self.run.seed,
        )

    @property
    def aligned(self) -> bool:
        """Whether a base's offset in the sequence can have a meaning."""
        return self.sequences.length is not None and not self.both_strands

    @cached_property
    def section(self) -> SequencesConfig:
        """The run's section, adapted to the sequences and to the initialization."""
        section, changes = self.run.sequences, dict[str, Any]()
        changes["initial"] = "pretrained" if self.pretrained else "random"
        if not self.aligned:
            changes["base_positions"] = False

        training = section.training
        shortest = min(map(len, self.sequences.sequences))
        if shortest <= 2 * training.crop_jitter_bp:
            jitter = max((shortest - 1) // 4, 0)
            log(
                f"the shortest sequence has {shortest} bp: sequences.training.crop_jitter_bp is {jitter}"
            )
            training = training.model_copy(update={"crop_jitter_bp": jitter})

        model = section.model.model_copy(update=changes)
        return section.model_copy(update={"model": model, "training": training})

    @property
    def keeps_best(self) -> bool:
        """Not for a control, which must not use true labels."""
        return not self.is_control

    @cached_property
    def start(self) -> Initialization:
        """The encoder: that of the pretrained model, which may be extended, or the configured one."""
        encoder, section = self.run.encoder, self.section
        if self.pretrained is not None:
            # How weights are computed is the configuration's, what determines them the model's.
            changes = encoder.model_dump(exclude={*encoder.deciding()})
            if section.model.extend_positions:
                changes["max_length"] = encoder.max_length

            encoder = load_start(self.pretrained).config.model_copy(update=changes)

        def new_tokenizer() -> Tokenizer:
            """The given tokenizer, or one trained on the training sequences, of both strands in turn."""
            if self.tokenizer_path is not None:
                return load_tokenizer(self.tokenizer_path)
            texts = self._texts(self.sequences.rows("train"))
            return tokenizer_of(texts, self.run.tokens)

        return initialization(
            "sequences.model", section.model, encoder, new_tokenizer, self.pretrained
        )

    @cached_property
    def train_rows(self) -> NDArray[np.intp]:
        """The rows of the training sequences."""
        return self.sequences.rows("train")

    @cached_property
    def losses(self) -> LabelLoss:  # type: ignore[override]
        """The loss, which standardizes labels or weights classes as in an epoch of training sequences."""
        labels = self.sequences.labels
        values = labels.values[self.train_rows]
        for output, varied in zip(labels.outputs, different(values), strict=True):
            if not varied:
                raise DataError(
                    f"{self.data[0]}: all {len(values):,} training sequences have the same {output!r}"
                )
        balanced = self.config.class_weights == "balanced"
        return LabelLoss.of(labels.kind, values[self._epochs(values)[0]], balanced)

    def _epochs(self, labels: NDArray[np.float32]) -> list[NDArray[np.integer]]:
        """Return which training sequences are drawn in which epoch, see `Epochs`."""
        balanced = self.config.class_weights == "balanced"
        if self.sequences.labels.kind == "binary" and balanced:
            return balanced_epochs(labels[:, 0], self.config.seed)
        return [np.arange(len(labels))]

    @cached_property
    def draws(self) -> WindowDraws:
        return WindowDraws(self._epochs(self.train_windows.labels), self.config)

    @cached_property
    def settings(self) -> SequenceSettings:
        model, labels = self.section.model, self.sequences.labels
        return SequenceSettings(
            kind=labels.kind,
            outputs=labels.outputs,
            length=self.sequences.length,
            means=self.losses.means,
            deviations=self.losses.deviations,
            pooling=model.pooling,
            head=model.head,
            jitter=self.config.crop_jitter_bp,
            views=model.views,
            shuffled_labels=self.is_control,
            base_positions=model.base_positions,
            ensemble=POSITION in model.ensemble
            and self.aligned
            and labels.kind == "binary",
            ensemble_kmers=self.section.evaluation.baseline_kmer
            if KMERS in model.ensemble
            else 0,
            both_strands=self.both_strands,
        )

    def check(self) -> None:
        """Warn of sequences that are too long for the network."""
        if not self.is_control:
            self.warn_of_truncated(self.sequences.sequences, "sequences")
        # Sequences of a table have no contigs to compare with those of the pretraining.
        self.leaked = () if self.start.path is None else None

    def identity(self) -> dict[str, Any]:
        """Return the settings, and the checksum of the sequences with labels and splits."""
        return {
            **super().identity(),
            "sequences": self.sequences.sha256,
            "training_sequences": len(self.train_rows),
        }

    def initialize(self, network: nn.Module) -> None:
        assert isinstance(network, Classifier)
        self.start.apply(network.encoder)
        shares = np.nanmean(self.sequences.labels.values[self.train_rows], axis=0)
        with torch.no_grad():
            network.output.bias.copy_(self.losses.constant(shares))

    def _texts(self, rows: NDArray[np.intp]) -> list[str]:
        return [self.sequences.sequences[row] for row in rows.tolist()]

    def _windows(self, rows: NDArray[np.intp], shuffled: bool = False) -> Windows:
        """Return sequences with their labels, or those of other ones among them."""
        labels = self.sequences.labels.values[rows]
        if shuffled:
            rng = np.random.default_rng((self.config.seed, 4))
            labels = labels[rng.permutation(len(rows))]
        return Windows(self._texts(rows), labels)

    @cached_property
    def train_windows(self) -> Windows:
        return self._windows(self.train_rows, shuffled=self.is_control)

    @cached_property
    def watched_windows(self) -> Windows:
        rows = self.sequences.rows("valid")
        return self._windows(sample(rows, VALIDATION_SEQUENCES, (self.config.seed, 5)))

    @cached_property
    def held_out(self) -> NDArray[np.intp]:
        """The rows of the validation and test sequences."""
        return self.sequences.rows("valid", "test")

    def measure(
        self, trained: TrainingResult[nn.Module]
    ) -> tuple[Predictions, Members | None]:
        """Return predictions of the model, the baselines and the control, and the ensemble's weights."""
        world, checkpoints = trained.world, trained.directory.parent
        regressions = self._fit_regressions(world)
        predictions, members = self._predict(trained, regressions)
        texts = self._texts(self.held_out)
        for name, regression in regressions.items():
            predictions[name] = self.losses.predictions(regression.logits(texts))

        with torch.inference_mode(False), torch.enable_grad():  # further trainings
            if self.section.baselines.cnn:
                longest = self.sequences.length or max(
                    map(len, self.sequences.sequences)
                )
                if longest < CnnProm.shortest:
                    log(
                        f"no convolutional network: it needs sequences of {CnnProm.shortest} bp"
                    )
                else:
                    predictions[CNN] = world.first(
                        lambda: self._cnn(checkpoints, longest, world)
                    )

            if self.section.baselines.shuffled_labels:
                control = replace(self, is_control=True)
                control.sequences, control.start = self.sequences, self.start
                result = fit(control, checkpoints, world)
                self.trainings.append(result)
                with torch.inference_mode():
                    shuffled = control._fit_regressions(world)
                    preds, _ = control._predict(result, shuffled)

                predictions[CONTROL] = preds[MODEL]

        return predictions, members

    def _fit_regressions(self, world: World) -> dict[str, SequenceRegression]:
        """Return regressions by name, fitted to the training sequences; a control has only those of the
        ensemble."""
        valid = self._windows(self.sequences.rows("valid"), shuffled=self.is_control)
        regressions = sequence_regressions(
            self.losses,
            self.section.evaluation.baseline_kmer,
            self.section.evaluation.seed,
            aligned=self.aligned,
            both_strands=self.both_strands,
        )
        if self.is_control:
            regressions.pop(COMPOSITION)

        def fitted() -> dict[str, SequenceRegression]:
            for regression in regressions.values():
                regression.fit(self.train_windows, valid)
            return regressions

        return world.first(fitted)

    def _predict(
        self,
        trained: TrainingResult[nn.Module],
        regressions: Mapping[str, SequenceRegression],
    ) -> tuple[dict[str, NDArray[np.floating]], Members | None]:
        """Return the model's predictions, and in an ensemble also the network's and the members' weights."""
        world, labels = trained.world, self.sequences.labels
        model = self.model(trained.network)
        rows = self.held_out
        texts = self._texts(rows)
        computing: Any = {"batch_size": 64, "device": world.device.type}
        views = world.divide(texts, partial(model.network_logits, **computing))
        predict = partial(model.window_predictions, texts, logits=views, **computing)
        alone = predict()
        ensemble = model.network.ensemble
        if ensemble is None:
            return {MODEL: alone}, None

        fitted = {}
        if ensemble.position is not None:
            fitted[POSITION] = regressions[POSITION]

        if ensemble.kmers is not None:
            fitted[KMERS] = regressions[KMER]

        parts = {name: one.coefficients() for name, one in fitted.items()}
        if self.is_control:  # a control must not use true labels
            members = Members.equal((NETWORK, *fitted))
            add_members(ensemble, parts, members)
            return {MODEL: predict(), NETWORK: alone}, members

        valid = np.isin(rows, self.sequences.rows("valid"))
        values = labels.values[rows[valid]]
        logits = {NETWORK: self.losses.logits(alone[valid].astype(np.float64))}
        for name, regression in fitted.items():
            logits[name] = regression.logits(self._texts(rows[valid]))

        standardized = self.losses.standardized(torch.from_numpy(values)).numpy()
        weight = 1.0 if labels.kind == "multilabel" else None
        members = fit_members(logits, standardized, weight, labels.kind)
        add_members(ensemble, parts, members)
        predictions = predict()
        outputs = {
            name: self.losses.predictions(values_of_member).astype(np.float32)
            for name, values_of_member in logits.items()
        }
        outputs[NETWORK] = alone[valid]
        members = members.measured(outputs, predictions[valid], values, labels.kind)
        return {MODEL: predictions, NETWORK: alone}, members

    def _cnn(
        self, checkpoints: Path, length: int, world: World
    ) -> NDArray[np.floating]:
        """Return predictions of a convolutional network, trained on the draws of the model.

        Sequences have N on both sides up to the length of the longest.
        """
        labels, training = self.sequences.labels.values, self.config

        def texts(rows: NDArray[np.intp]) -> list[str]:
            return [text.center(length, "N") for text in self._texts(rows)]

        network = NetworkBaseline(
            CnnProm,
            training,
            loss=self.losses,
            both_strands=self.both_strands,
            evaluated=VALIDATION_SEQUENCES,
            name=CNN,
            checkpoints=checkpoints,
            windows={
                "sequences": self.sequences.sha256,
                "training_sequences": len(self.train_rows),
                "both_strands": self.both_strands,
            },
            device=world.device.type,
        )
        train, valid = self.train_rows, self.sequences.rows("valid")
        draws = WindowDraws(self._epochs(labels[train]), training)
        network.fit(
            DrawnTexts(
                texts(train), labels[train], draws, both_strands=self.both_strands
            ),
            TextWindows(texts(valid), labels[valid]),
        )
        assert network.trained is not None
        self.trainings.append(network.trained)
        return network.predict(texts(self.held_out))

    def write(
        self,
        directory: Path,
        trained: TrainingResult[nn.Module],
        measured: tuple[Predictions, Members | None],
    ) -> dict[str, Any]:
        """Write the model directory with the predictions of all predictors; return metrics."""
        preds, members = measured
        sequences, rows, outputs = (
            self.sequences,
            self.held_out,
            self.sequences.labels.outputs,
        )
        columns: dict[str, Any] = {
            "name": [sequences.names[row] for row in rows.tolist()],
            "split": sequences.splits[rows],
            "group": sequences.groups[rows],
        }
        for name, values in {LABEL: sequences.labels.values[rows], **preds}.items():
            for output, column in zip(outputs, values.T, strict=True):
                columns[f"{name}/{output}"] = column.astype(np.float32)

        predictions = pd.DataFrame(columns)
        write_predictions(directory / PREDICTIONS, predictions)
        metrics: dict[str, Any] = {}
        for split in ("valid", "test"):
            of_split = predictions[predictions["split"] == split]
            metrics[split] = {"sequences": len(of_split)}
            labels = of_split[[f"{LABEL}/{output}" for output in outputs]].to_numpy()
            for name in preds:
                values = of_split[[f"{name}/{output}" for output in outputs]].to_numpy()
                metrics[split][name] = without_nan(
                    self.losses.prediction_metrics(values, labels)
                )

        metrics["training"] = {**trained.effort, "examples": len(self.train_rows)}
        if members is not None:
            metrics["ensemble"] = members.stored()

        optional = (self.negatives, self.tokenizer_path, self.pretrained)
        files = [*self.data, *(path for path in optional if path is not None)]
        provenance = {
            **self.provenance(),
            "data": {path.name: checksum(path) for path in files if path.is_file()},
            "sequences_sha256": sequences.sha256,
            "rows_without_label": sequences.unlabeled,
            "missing_labels": int(np.isnan(sequences.labels.values).sum()),
        }
        model = self.model(trained.network)
        write_trained(directory, model, trained, provenance, metrics)
        for training in self.trainings:
            training.remove_checkpoint()

        return metrics
