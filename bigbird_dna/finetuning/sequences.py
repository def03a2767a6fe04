"""Training of models of labeled sequences, with the baselines of their report."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import nn

from bigbird_dna.baselines.networks import (
    CnnProm,
    DrawnTexts,
    NetworkBaseline,
    NetworkSettings,
)
from bigbird_dna.baselines.sequences import SequenceRegression, sequence_regressions
from bigbird_dna.baselines.windows import TextWindows
from bigbird_dna.config.network import EncoderConfig
from bigbird_dna.config.run import stage_values
from bigbird_dna.config.section import LabelKind
from bigbird_dna.config.sequences import LABEL_KINDS, SequencesConfig
from bigbird_dna.console import log
from bigbird_dna.data.chromatin import draw_groups, sample
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
from bigbird_dna.finetuning.classifiers import ClassifierObjective, ClassifierWindows
from bigbird_dna.finetuning.ensembles import KMERS, Members, add_members, fit_members
from bigbird_dna.finetuning.evaluation import without_nan, write_predictions
from bigbird_dna.genome.sequence_tables import TableColumns
from bigbird_dna.genome.splits import Split
from bigbird_dna.model.batching import truncated
from bigbird_dna.model.heads import Classifier
from bigbird_dna.model.model import LoadedModel
from bigbird_dna.model.promoter import LoadedSequenceModel
from bigbird_dna.model.settings import SequenceSettings
from bigbird_dna.tokens.encode import tokenizer_of
from bigbird_dna.tokens.interface import Tokenizer
from bigbird_dna.training.checkpoints import CheckpointStore, Keep
from bigbird_dna.training.distributed import World
from bigbird_dna.training.draws import WindowDraws, balanced_turns
from bigbird_dna.training.initialization import FinetuningTask, Initialization
from bigbird_dna.training.losses import LabelLoss
from bigbird_dna.training.task import TrainingResult, fit

# Axes: N held-out sequences, T outputs.

VALIDATION_SEQUENCES = 2000

Predictions = npt.NDArray[np.float32]


class Measured(NamedTuple):
    """Predictions (N, T) of the validation and test sequences by predictor, and the ensemble's weights."""

    predictions: Mapping[str, npt.NDArray[np.floating]]
    members: Members | None


@dataclass(eq=False)
class LabeledSequenceTask(FinetuningTask[Measured]):
    """Training on labeled sequences: tables, or a FASTA file of positives and one of `negatives`.

    Also trains a control (`is_control`, on shuffled labels) and a convolutional network, and fits regressions; all
    predict the held-out sequences.
    """

    name: ClassVar = "sequences"
    data: Sequence[Path]
    negatives: Path | None = None
    splits: Path | None = None
    sequence_column: str = "sequence"
    label_columns: Sequence[str] = ()
    split_column: str = "split"
    task: LabelKind | None = None
    both_strands: bool = False
    is_control: bool = False
    of_model: "LabeledSequenceTask | None" = (
        None  # for a control, which has the same data and initialization
    )

    def __post_init__(self) -> None:
        self.finished: list[CheckpointStore] = []  # of further trainings
        if self.task is not None:
            check_choice("--task", self.task, LABEL_KINDS)

    @property
    def inputs(self) -> Sequence[Path]:
        more = (one for one in (self.negatives, self.splits) if one is not None)
        return [*self.data, *more, *super().inputs]

    @cached_property
    def sequences(self) -> LabeledSequences:
        """All sequences, with their splits."""
        if self.of_model is not None:
            return self.of_model.sequences
        return read_labeled_sequences(
            self.data,
            negatives=self.negatives,
            splits=self.splits,
            columns=TableColumns(
                self.sequence_column, tuple(self.label_columns), self.split_column
            ),
            task=self.task,
            similarity=self.run.sequences.min_shared_kmers,
            seed=self.run.seed,
        )

    @cached_property
    def section(self) -> SequencesConfig:
        """The run's section, adapted to the sequences and to the initialization."""
        section, changes = self.run.sequences, dict[str, Any]()
        self.run.encoder.check_pooling(section.model.pooling, "sequences.model")
        changes["initial"] = "pretrained" if self.pretrained else "random"
        if not self._aligned:
            changes["base_positions"] = False
        training = section.training
        shortest = min(map(len, self.sequences.sequences))
        if shortest <= 2 * training.crop_jitter_bp:
            jitter = max((shortest - 1) // 4, 0)
            log(
                f"the shortest sequence has {shortest} bp: sequences.training.crop_jitter_bp is {jitter}"
            )
            training = training.model_copy(update={"crop_jitter_bp": jitter})
        return section.model_copy(
            update={
                "model": section.model.model_copy(update=changes),
                "training": training,
            }
        )

    @property
    def keep(self) -> Keep:
        """A control must not use true labels."""
        return "last" if self.is_control else super().keep

    @property
    def _aligned(self) -> bool:
        """Whether a base's offset in the sequence can have a meaning."""
        return self.sequences.length is not None and not self._both_strands

    @property
    def _both_strands(self) -> bool:
        return self.both_strands or self.run.sequences.both_strands

    def new_tokenizer(self) -> Tokenizer:
        """The given tokenizer, or one trained on the training sequences, of both strands in turn."""
        if self.tokenizer_path is not None:
            return super().new_tokenizer()
        return tokenizer_of(self._texts(self.sequences.rows("train")), self.run.tokens)

    def configured_encoder(self, start: LoadedModel | None) -> EncoderConfig:
        """The configured encoder, or that of the pretrained model, which may be extended."""
        configured = self.run.encoder
        if start is None:
            return configured
        # How weights are computed is the configuration's, what determines them the model's.
        changes = configured.model_dump(exclude={*configured.deciding()})
        if self.run.sequences.model.extend_positions:
            changes["max_length"] = configured.max_length
        return start.config.model_copy(update=changes)

    @cached_property
    def start(self) -> Initialization:
        return super().start if self.of_model is None else self.of_model.start

    @cached_property
    def learned(self) -> npt.NDArray[np.intp]:
        """The rows of the training sequences."""
        rows, training = self.sequences.rows("train"), self.run.sequences.training
        if training.train_fraction < 1:
            groups = self.sequences.groups[rows]
            rows = rows[
                draw_groups(groups, training.train_fraction, (training.seed, 6))
            ]
        return rows

    @cached_property
    def losses(self) -> LabelLoss:
        """The loss, which standardizes labels or weights classes as in the training sequences."""
        labels, values = (
            self.sequences.labels,
            self.sequences.labels.values[self.learned],
        )
        for output, varied in zip(labels.outputs, different(values), strict=True):
            if not varied:
                raise DataError(
                    f"{self.data[0]}: all {len(values):,} training sequences have the same {output!r}"
                )
        always, variants = self._turns(values)
        labels_of_epoch = values[always | (variants == 0)]  # in an epoch
        return LabelLoss.of(labels.kind, labels_of_epoch, self._balanced)

    @property
    def _balanced(self) -> bool:
        return self.run.sequences.training.class_weights == "balanced"

    def _turns(
        self, labels: npt.NDArray[np.float32]
    ) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.int64]]:
        """Return which training sequences are drawn in which epoch, see `WindowDraws`."""
        if self.sequences.labels.kind == "binary" and self._balanced:
            return balanced_turns(labels[:, 0], self.run.sequences.training.seed)
        return np.ones(len(labels), bool), np.zeros(len(labels), np.int64)

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
            jitter=self.section.training.crop_jitter_bp,
            views=model.views,
            shuffled_labels=self.is_control,
            base_positions=model.base_positions,
            ensemble=POSITION in model.ensemble
            and self._aligned
            and labels.kind == "binary",
            ensemble_kmers=self.section.evaluation.baseline_kmer
            if KMERS in model.ensemble
            else 0,
            both_strands=self._both_strands,
        )

    @cached_property
    def truncated(self) -> dict[str, int]:
        """The number of sequences of which the network reads the central tokens alone, by split."""
        cut = truncated(
            self.tokenizer, self.sequences.sequences, self.encoder.max_length
        )
        rows = {
            "train": self.learned,
            **{split: self.sequences.rows(split) for split in ("valid", "test")},
        }
        return {split: int(cut[some].sum()) for split, some in rows.items()}

    def check(self) -> None:
        """Warn of sequences that are too long for the network."""
        super().check()
        if not self.is_control and (count := sum(self.truncated.values())):
            log(
                f"warning: {count:,} sequences have more tokens than encoder.max_length "
                f"{self.encoder.max_length:,} allows: the network reads the central "
                f"{self.encoder.max_length - 2:,} (regressions read all)"
            )

    def identity(self) -> dict[str, Any]:
        """Return the settings, and the checksum of the sequences with labels and splits."""
        identity = {
            "settings": self.settings.model_dump(exclude={"views"}),
            "sequences": self.sequences.sha256,
            "training_sequences": len(self.learned),
        }
        return identity | super().identity()

    def initialize(self, network: nn.Module) -> None:
        assert isinstance(network, Classifier)
        self.start.apply(network.encoder)
        shares = np.nanmean(self.sequences.labels.values[self.learned], axis=0)
        with torch.no_grad():
            network.output.bias.copy_(self.losses.constant(shares))

    def objective(self, network: nn.Module, world: World) -> ClassifierObjective:
        held_out = sample(
            self.sequences.rows("valid"), VALIDATION_SEQUENCES, (self.config.seed, 5)
        )
        windows = (
            self._windows(self.learned, shuffled=self.is_control),
            self._windows(held_out),
        )
        training, positions = self.section.training, self.encoder.max_length
        return ClassifierObjective(
            self.tokenizer,
            *windows,
            training,
            self.settings,
            positions,
            world,
            self.losses,
        )

    def _windows(
        self, rows: npt.NDArray[np.intp], shuffled: bool = False
    ) -> ClassifierWindows:
        """Return sequences with their labels, or those of other ones among them."""
        texts, labels = self._texts(rows), self.sequences.labels.values[rows]
        if shuffled:
            labels = labels[
                np.random.default_rng((self.config.seed, 4)).permutation(len(rows))
            ]
        return ClassifierWindows(texts, labels, *self._turns(labels))

    def _texts(self, rows: npt.NDArray[np.intp]) -> list[str]:
        return [self.sequences.sequences[row] for row in rows.tolist()]

    def describe(self, network: nn.Module) -> str:
        shuffled = ", labels shuffled" if self.is_control else ""
        return f"{len(self.learned):,} training sequences{shuffled}"

    @cached_property
    def held_out(self) -> npt.NDArray[np.intp]:
        """The rows of the validation and test sequences."""
        return self.sequences.rows("valid", "test")

    def measure(self, trained: TrainingResult[nn.Module]) -> Measured:
        """Return predictions of the model, the baselines and the control, and the ensemble's weights."""
        world, checkpoints = trained.world, trained.store.directory.parent
        regressions = self._fit_regressions(trained)
        predictions, members = self._predict(trained, regressions)
        texts = self._texts(self.held_out)
        for name, regression in regressions.items():
            predictions[name] = self.losses.predictions(regression.logits(texts))
        with torch.inference_mode(False), torch.enable_grad():  # further trainings
            if self.section.baselines.cnn and self.cnn_texts is not None:
                predictions[CNN] = world.first(lambda: self._cnn(checkpoints, world))
            if self.section.baselines.shuffled_labels:
                control = replace(self, is_control=True, of_model=self)
                result = fit(control, checkpoints, world)
                self.finished.append(result.store)
                with torch.inference_mode():
                    shuffled = control._fit_regressions(result)
                    preds, _ = control._predict(result, shuffled)
                predictions[CONTROL] = preds[MODEL]
        return Measured(predictions, members)

    def _fit_regressions(
        self, trained: TrainingResult[nn.Module]
    ) -> dict[str, SequenceRegression]:
        """Return regressions by name, fitted to the training sequences; a control has only those of the
        ensemble."""
        evaluation, objective = self.section.evaluation, trained.objective
        assert isinstance(objective, ClassifierObjective)
        valid = self._windows(self.sequences.rows("valid"), shuffled=self.is_control)
        regressions = sequence_regressions(
            self.losses,
            evaluation.baseline_kmer,
            evaluation.seed,
            aligned=self._aligned,
            both_strands=self._both_strands,
        )
        if self.is_control:
            regressions.pop(COMPOSITION)

        def fitted() -> dict[str, SequenceRegression]:
            for regression in regressions.values():
                regression.fit(objective.windows, valid)
            return regressions

        return trained.world.first(fitted)

    def _predict(
        self,
        trained: TrainingResult[nn.Module],
        regressions: Mapping[str, SequenceRegression],
    ) -> tuple[dict[str, npt.NDArray[np.floating]], Members | None]:
        """Return the model's predictions, and in an ensemble also the network's and the members' weights."""
        model, world, labels = self.model(trained), trained.world, self.sequences.labels
        assert isinstance(model, LoadedSequenceModel)
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
        if self.is_control:  # a control must not use true labels
            members = Members.equal((NETWORK, *fitted))
            add_members(ensemble, fitted, members)
            return {MODEL: predict(), NETWORK: alone}, members
        valid = np.isin(rows, self.sequences.rows("valid"))
        values = labels.values[rows[valid]]
        logits = {NETWORK: self.losses.logits(alone[valid].astype(np.float64))}
        for name, regression in fitted.items():
            logits[name] = regression.logits(self._texts(rows[valid]))
        standardized = self.losses.standardized(torch.from_numpy(values)).numpy()
        weight = 1.0 if labels.kind == "multilabel" else None
        members = fit_members(logits, standardized, weight, labels.kind)
        add_members(ensemble, fitted, members)
        shipped = predict()
        outputs = {
            name: self.losses.predictions(one).astype(np.float32)
            for name, one in logits.items()
        }
        outputs[NETWORK] = alone[valid]
        members = members.measured(outputs, shipped[valid], values, labels.kind)
        return {MODEL: shipped, NETWORK: alone}, members

    @cached_property
    def cnn_texts(self) -> list[str] | None:
        """All sequences in one length, with N on both sides; None: too short for the network."""
        longest = self.sequences.length or max(map(len, self.sequences.sequences))
        if longest < CnnProm.shortest:
            log(
                f"no convolutional network: it needs sequences of {CnnProm.shortest} bp"
            )
            return None
        return [text.center(longest, "N") for text in self.sequences.sequences]

    def _cnn(self, checkpoints: Path, world: World) -> npt.NDArray[np.floating]:
        """Return predictions of a convolutional network, trained on the draws of the model."""
        texts, labels = self.cnn_texts, self.sequences.labels.values
        training, both_strands = self.section.training, self._both_strands
        assert texts is not None

        def select(
            rows: npt.NDArray[np.intp],
        ) -> tuple[list[str], npt.NDArray[np.float32]]:
            return [texts[row] for row in rows.tolist()], labels[rows]

        draws = WindowDraws(*self._turns(labels[self.learned]), training)
        network = NetworkBaseline(
            CnnProm,
            NetworkSettings(training, both_strands, self.losses, VALIDATION_SEQUENCES),
            name=CNN,
            checkpoints=checkpoints,
            windows={
                "sequences": self.sequences.sha256,
                "training_sequences": len(self.learned),
                "both_strands": both_strands,
            },
            device=world.device.type,
        )
        learned = DrawnTexts(*select(self.learned), draws, both_strands=both_strands)
        network.fit(learned, TextWindows(*select(self.sequences.rows("valid"))))
        assert network.trained is not None
        world.at_end.callback(network.trained.store.unlock)
        self.finished.append(network.trained.store)
        return network.predict(select(self.held_out)[0])

    def write(
        self, directory: Path, trained: TrainingResult[nn.Module], measured: Measured
    ) -> dict[str, Any]:
        """Write the model directory with the predictions of all predictors; return metrics."""
        sequences, rows = self.sequences, self.held_out
        columns: dict[str, Any] = {
            "name": [sequences.names[row] for row in rows.tolist()],
            "split": sequences.splits[rows],
            "group": sequences.groups[rows],
        }
        labels = sequences.labels.values[rows]
        for predictor, values in {LABEL: labels, **measured.predictions}.items():
            for output, column in zip(sequences.labels.outputs, values.T, strict=True):
                columns[f"{predictor}/{output}"] = column.astype(np.float32)
        predictions = pd.DataFrame(columns)
        write_predictions(directory / PREDICTIONS, predictions)
        names = [*measured.predictions]
        metrics: dict[str, Any] = {
            split: self._metrics(predictions, names, split)
            for split in ("valid", "test")
        }
        metrics["training"] = {**trained.effort, "examples": len(self.learned)}
        metrics["truncated"] = self.truncated
        if measured.members is not None:
            metrics["ensemble"] = measured.members.stored()
        provenance = {
            "configuration": stage_values(self.run, "sequences"),
            # Sequences of a table have no contigs to compare with those of the pretraining.
            **self.start.provenance(() if self.start.path is None else None),
            "data": {
                path.name: checksum(path) for path in self.inputs if path.is_file()
            },
            "sequences_sha256": sequences.sha256,
            "rows_without_label": sequences.unlabeled,
            "missing_labels": int(np.isnan(sequences.labels.values).sum()),
        }
        self.write_model(directory, trained, provenance, metrics)
        for store in self.finished:
            store.remove()
        return metrics

    def _metrics(
        self, predictions: pd.DataFrame, names: Sequence[str], split: Split
    ) -> dict[str, Any]:
        """Return the number of sequences of a split, and the metrics of each predictor by what is written."""
        rows, outputs = (
            predictions[predictions["split"] == split],
            self.sequences.labels.outputs,
        )

        def values(name: str) -> npt.NDArray[np.float32]:
            return rows[[f"{name}/{output}" for output in outputs]].to_numpy()

        metrics: dict[str, Any] = {"sequences": len(rows)}
        for name in names:
            values_of_metrics = self.losses.prediction_metrics(
                values(name), values(LABEL)
            )
            metrics[name] = without_nan(values_of_metrics)
        return metrics
