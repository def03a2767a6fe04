"""Fine-tuning and evaluation of the promoter classifier (App. F.2)."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bigbird_dna.config import Config, PromoterConfig, PromoterTrainingConfig, stage_values
from bigbird_dna.console import log
from bigbird_dna.data.promoter_windows import (
    Origin,
    WindowSet,
    read_origin,
    read_windows,
    training_windows,
    variants,
    window_sequences,
)
from bigbird_dna.disk.atomic import atomic_path, checksum
from bigbird_dna.finetuning.calibrate import PREDICTIONS, calibration_figures, fit_predictions, too_few
from bigbird_dna.finetuning.ensemble import LabelledWindows, Members, add_position_member
from bigbird_dna.genome.reference import Reference
from bigbird_dna.metrics.auroc import auroc
from bigbird_dna.metrics.binary import binary_metrics
from bigbird_dna.model.base_positions import PaddedBases
from bigbird_dna.model.batching import pad
from bigbird_dna.model.heads import Classifier
from bigbird_dna.model.promoter import (
    LoadedPromoterModel,
    PromoterRows,
    promoter_probabilities,
    promoter_rows,
)
from bigbird_dna.model.settings import PromoterSettings
from bigbird_dna.tokens.interface import Tokenizer
from bigbird_dna.training.batches import Batch, Epochs, take_rows
from bigbird_dna.training.distributed import World
from bigbird_dna.training.initialization import FinetuningTask, Initialization, read_initialization
from bigbird_dna.training.task import TrainingResult

VALIDATION_WINDOWS = 2000


class PromoterObjective:
    """Binary cross-entropy of promoter against negative.

    In training a window loses up to `jitter` bp at each end, anew at each draw, and is tokenised after
    that: token boundaries move, so that the network can't learn windows by their tokens' phase.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        windows: LabelledWindows,
        held_out: LabelledWindows,
        config: PromoterTrainingConfig,
        settings: PromoterSettings,
        positions: int,
        world: World,
    ) -> None:
        self.tokenizer = tokenizer
        self.windows = windows
        self.held_out = held_out
        self.config = config
        self.settings = settings
        self.positions = positions
        self.world = world
        # The negatives of a promoter take turns; promoters (turn -1) are in every epoch.
        self.turns = np.where(windows.promoter, -1, windows.variants)
        sizes = np.bincount(self.turns[self.turns >= 0])
        epoch_size = int((self.turns < 0).sum()) + int(sizes.min() if len(sizes) else 0)
        self.epochs = Epochs(self.config.seed, epoch_size, self._epoch)

    def _epoch(self, number: int) -> npt.NDArray[np.intp]:
        """Indices of an epoch's windows: every promoter, and one of its negatives by turns."""
        return np.flatnonzero((self.turns < 0) | (self.turns == number % (self.turns.max() + 1)))

    def batch(self, step: int, first: int, count: int) -> Batch:
        """Windows of a training step, in an order drawn for each epoch."""
        chosen = self.epochs.indices(step * self.config.batch_size + first, count)
        rng = np.random.default_rng((self.config.seed, 3, step))
        cuts = rng.integers(0, self.config.crop_jitter_bp + 1, (self.config.batch_size, 2))[
            first : first + count
        ]
        rows = self._rows([self.windows.sequences[index] for index in chosen], cuts.tolist())
        ids, lengths = pad(rows.ids, self.tokenizer.pad_id)
        labels = torch.from_numpy(self.windows.labels[chosen]).float()
        batch = {"ids": ids, "lengths": lengths, "labels": labels}
        if rows.bases is not None:
            bases = rows.bases.padded(range(count), ids.shape[1])
            batch |= {"base_rows": bases.rows, "base_starts": bases.starts}
        return batch

    def _rows(self, windows: Sequence[str], cuts: Sequence[tuple[int, int]]) -> PromoterRows:
        return promoter_rows(self.tokenizer, windows, cuts, self.settings, self.positions)

    def part(self, batch: Batch, rows: Tensor) -> Batch:
        """Some windows of a batch."""
        return take_rows(batch, rows)

    def counts(self, batch: Batch) -> dict[str, float]:
        """Windows."""
        return {"windows": float(len(batch["labels"]))}

    def loss(self, network: nn.Module, batch: Batch, totals: dict[str, float]) -> Tensor:
        """Mean binary cross-entropy over the global batch, in nats."""
        bases = None
        if "base_rows" in batch:
            bases = PaddedBases(batch["base_rows"], batch["base_starts"]).batch()
        logits = network(batch["ids"], batch["lengths"], bases=bases)[:, 0].float()
        loss = F.binary_cross_entropy_with_logits(logits, batch["labels"], reduction="sum")
        return loss / totals["windows"]

    def evaluate(self, network: nn.Module) -> dict[str, float]:
        """Loss and AUROC on validation windows."""
        batch_size, device = min(64, self.config.batch_size), self.world.device

        def score(sequences: Sequence[str]) -> npt.NDArray[np.float32]:
            rows = self._rows(sequences, [(0, 0)] * len(sequences))
            return promoter_probabilities(network, rows, self.tokenizer.pad_id, batch_size, device)

        scores = self.world.divide(self.held_out.sequences, score)
        labels = self.held_out.labels
        right = np.where(labels == 1, scores, 1 - scores)
        loss = float(-np.log(np.clip(right, 1e-7, 1)).mean())
        if not math.isfinite(loss):
            return {"loss": loss, "auroc": math.nan}  # what isn't a number has no rank
        return {"loss": loss, "auroc": auroc(labels, scores).value}


@dataclass(eq=False)
class PromoterTask(FinetuningTask[tuple[pd.DataFrame, Members | None]]):
    """Fine-tuning of a promoter classifier on windows; its directory gets `predictions.parquet` as well.

    Predictions cover the validation and test windows. With `shuffle_labels` the training labels are dealt
    out at random: the control, which must end at chance on the true labels of the held-out contigs.
    """

    run: Config
    negative_set: str
    shuffle_labels: bool
    windows: Path
    reference: Reference
    tokenizer_path: Path
    pretrained: Path | None

    @cached_property
    def inputs(self) -> Sequence[Path]:
        """Windows, sequence, tokenizer and pretrained model."""
        read = [self.windows, self.reference.path, self.tokenizer_path]
        return [*read, self.pretrained] if self.pretrained else read

    @cached_property
    def config(self) -> PromoterTrainingConfig:
        """The run's."""
        return self.section.training

    @cached_property
    def origin(self) -> Origin | None:
        """Where the windows come from, if they are sequences of one's own."""
        return read_origin(self.windows)

    @cached_property
    def section(self) -> PromoterConfig:
        """The run's, as the windows are."""
        section = self.run.promoters
        self.run.encoder.check_pooling(section.model.pooling, "promoters.model")
        if self.origin is None:
            return section
        sides = self.origin.upstream, self.origin.downstream
        return _aligned(section.with_sides(*sides, str(self.windows)), self.origin)

    @cached_property
    def data(self) -> WindowSet:
        """All windows."""
        further = self.section.calibration.negatives > 0
        return read_windows(self.windows, self.negative_set, further=further)

    @cached_property
    def learnt(self) -> npt.NDArray[np.intp]:
        """The rows of the training windows."""
        return training_windows(self.data, self.config.train_fraction, self.config.seed)

    @cached_property
    def sequences(self) -> list[str]:
        """Of all windows."""
        return window_sequences(self.reference, self.data.rows, self.run.seed)

    @cached_property
    def start(self) -> Initialization:
        """The pretrained model, or fresh weights."""
        return read_initialization(
            self.run.encoder, self.section.model, self.pretrained, self.tokenizer_path, "promoters.model"
        )

    @cached_property
    def settings(self) -> PromoterSettings:
        """Of the model."""
        model = self.section.model
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
            ensemble=model.ensemble,
        )

    @cached_property
    def windows_sha256(self) -> str:
        """Checksum of the table of windows."""
        return checksum(self.windows / "windows.parquet")

    @property
    def held_out(self) -> pd.DataFrame:
        """Windows that aren't learnt from."""
        return self.data.rows[self.data.rows["split"] != "train"]

    def identity(self) -> dict[str, Any]:
        """Settings, windows and the sequence that they are places of."""
        own = {
            "settings": self.settings.model_dump(exclude={"views"}),
            "windows": self.windows_sha256,
            "training_windows": len(self.learnt),
            "seed": self.run.seed,
            "sequences": checksum(self.reference.path),
        }
        return own | super().identity()

    def initialize(self, network: nn.Module) -> None:
        """The pretrained encoder."""
        assert isinstance(network, Classifier)
        self.start.apply(network.encoder)

    def objective(self, network: nn.Module, world: World) -> PromoterObjective:
        """Promoters from negatives."""
        learnt, held_out = _learnt_and_held_out(
            self.data, self.sequences, self.learnt, self.config.seed, self.shuffle_labels
        )
        positions = self.encoder.max_length
        return PromoterObjective(
            self.tokenizer, learnt, held_out, self.config, self.settings, positions, world
        )

    def describe(self, network: nn.Module) -> str:
        """Windows and negatives."""
        return f"{len(self.learnt):,} training windows, {self.negative_set} negatives"

    def measure(self, trained: TrainingResult[nn.Module]) -> tuple[pd.DataFrame, Members | None]:
        """Predictions of the held-out windows, by the ensemble if the model is one."""
        model, world = self.model(trained), trained.world
        assert isinstance(model, LoadedPromoterModel) and isinstance(trained.objective, PromoterObjective)
        alone = partial(model.window_probabilities, batch_size=64, device=world.device.type)

        def predict(windows: list[str]) -> npt.NDArray[np.float32]:
            return world.divide(windows, alone)

        members = None
        if self.settings.ensemble:
            # The control never sees a true label.
            valid = None if self.shuffle_labels else _split(self.data, self.sequences, "valid")
            members = add_position_member(model, trained.objective.windows, valid, predict, self.config.seed)
        return held_out_predictions(self.data, self.sequences, predict), members

    def write(
        self,
        directory: Path,
        trained: TrainingResult[nn.Module],
        measured: tuple[pd.DataFrame, Members | None],
    ) -> dict[str, Any]:
        """The model directory, with predictions and the calibration that these ask for."""
        predictions, members = measured
        metrics: dict[str, Any] = {split: split_figures(predictions, split) for split in ("valid", "test")}
        metrics["training"] = {
            "steps": trained.progress.step,
            "tokens_seen": trained.progress.tokens,
            "train_fraction": int(self.data.labels[self.learnt].sum()),
        }
        if members is not None:
            metrics["ensemble"] = members._asdict()
        calibration = fit_predictions(predictions, self.section.calibration.method)
        if calibration is None:
            log(f"the model is not calibrated: {too_few(predictions)}")
        metrics["test"] |= calibration_figures(predictions, calibration)
        write_predictions(directory / PREDICTIONS, predictions)
        provenance = {
            "configuration": stage_values(self.run, "promoters"),
            **self.start.provenance(self.leaked),
            "windows_sha256": self.windows_sha256,
            "reference": self.reference.path.name,
            "promoters": self.run.promoters.source,
            **(_sequences(self.origin, self.start) if self.origin else {}),
        }
        self.write_model(directory, trained, provenance, metrics, calibration)
        return metrics


def _aligned(config: PromoterConfig, origin: Origin) -> PromoterConfig:
    """The section without base positions where the promoters' TSS is not at one offset."""
    model = config.model
    if origin.aligned or not (model.base_positions or model.ensemble):
        return config
    log("the promoter sequences differ in length, so the TSS is not at one offset: no base positions")
    model = model.model_copy(update={"base_positions": False, "ensemble": False})
    return config.model_copy(update={"model": model})


def _sequences(origin: Origin, start: Initialization) -> dict[str, Any]:
    """What provenance says of sequences: their files; and that their places on a genome aren't known."""
    if start.model is None:
        return {"sequences": origin.sources}
    log("whether the genome of the pretraining holds the held-out sequences is not known")
    return {"sequences": origin.sources, "held_out_contigs_seen_in_pretraining": None}


def write_predictions(path: Path, predictions: pd.DataFrame) -> None:
    """Write window columns, label and probability as Parquet."""
    with atomic_path(path) as temporary:
        predictions.to_parquet(temporary, index=False)


def _learnt_and_held_out(
    data: WindowSet, sequences: list[str], rows: npt.NDArray[np.intp], seed: int, shuffle_labels: bool
) -> tuple[LabelledWindows, LabelledWindows]:
    """The training windows `rows`, and those of validation that are measured on meanwhile."""
    learnt, held_out = _labelled(data, sequences).take(rows), _split(data, sequences, "valid")
    if shuffle_labels:
        # Half and half among all windows, as every epoch has it: promoters may have several negatives.
        dealt = np.random.default_rng((seed, 4)).permutation(np.arange(len(learnt.labels)) % 2)
        learnt = learnt._replace(labels=dealt.astype(np.uint8))
    count = len(held_out.labels)
    if count > VALIDATION_WINDOWS:
        kept = np.random.default_rng((seed, 5)).choice(count, VALIDATION_WINDOWS, replace=False)
        held_out = held_out.take(kept)
    return learnt, held_out


def _split(data: WindowSet, sequences: list[str], split: str) -> LabelledWindows:
    """The windows of a split, with their true labels."""
    rows = np.flatnonzero(data.rows["split"].to_numpy() == split)
    return _labelled(data, sequences).take(rows)


def _labelled(data: WindowSet, sequences: list[str]) -> LabelledWindows:
    return LabelledWindows(sequences, data.labels, data.labels == 1, variants(data.rows))


def held_out_predictions(
    data: WindowSet, sequences: list[str], predict: Callable[[list[str]], npt.NDArray[np.floating]]
) -> pd.DataFrame:
    """The validation and test windows with their labels and what `predict` gives their sequences.

    With them further negatives, if the data set was read with these.
    """
    kept = np.flatnonzero((data.rows["split"] != "train").to_numpy())
    rows = data.rows.drop(columns="name").assign(label=data.labels)
    probabilities = predict([sequences[index] for index in kept])
    return rows.iloc[kept].reset_index(drop=True).assign(probability=probabilities)


def split_figures(predictions: pd.DataFrame, split: str) -> dict[str, Any]:
    """The figures of a split's predictions, fit for JSON; {} where it has none."""
    rows = predictions[predictions["split"] == split]
    if rows.empty:
        return {}
    figures = binary_metrics(
        rows["label"].to_numpy(), rows["probability"].to_numpy(), groups=rows["pair"].to_numpy()
    )
    # JSON has no NaN: a figure that is not defined is null, and `note` says why.
    return {
        name: None if isinstance(value, float) and math.isnan(value) else value
        for name, value in figures._asdict().items()
    }
