"""Fine-tuning and evaluation of the promoter classifier (App. F.2)."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bigbird_dna.config import CalibrationMethod, Config, PromoterConfig, PromoterTrainingConfig, stage_values
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
from bigbird_dna.disk.directories import check_directory
from bigbird_dna.finetuning.calibrate import PREDICTIONS, calibration_figures, fit_predictions, too_few
from bigbird_dna.genome.reference import Reference
from bigbird_dna.metrics.auroc import auroc
from bigbird_dna.metrics.binary import binary_metrics
from bigbird_dna.model.base_positions import PaddedBases
from bigbird_dna.model.batching import pad
from bigbird_dna.model.heads import Classifier
from bigbird_dna.model.promoter import PromoterModel, PromoterRows, promoter_probabilities, promoter_rows
from bigbird_dna.model.settings import PromoterSettings
from bigbird_dna.tasks.initial import Start, make_start
from bigbird_dna.tasks.promoters.ensemble import LabelledWindows, Members, add_position_member
from bigbird_dna.tasks.run import Run
from bigbird_dna.tokens.interface import Tokenizer
from bigbird_dna.training.distributed import World
from bigbird_dna.training.epochs import Epochs
from bigbird_dna.training.loop import Batch
from bigbird_dna.training.micro_batches import take_rows

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
        cuts = rng.integers(0, self.config.jitter + 1, (self.config.batch_size, 2))[first : first + count]
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


def finetune_promoter(
    config: Config,
    negative_set: str,
    *,
    shuffle_labels: bool,
    windows: Path,
    reference: Reference,
    tokenizer_path: Path,
    pretrained: Path | None,
    output: Path,
    checkpoints: Path,
    world: World,
) -> dict[str, Any]:
    """Fine-tune (or go on), publish the model directory with `predictions.parquet`, return its metrics.

    Predictions cover the validation and test windows. With `shuffle_labels` the training labels are dealt
    out at random: the control, which must end at chance on the true labels of the held-out contigs.
    """
    used = [windows, reference.path, tokenizer_path, checkpoints]
    check_directory(output, [*used, pretrained] if pretrained else used)
    settings, training = config.promoters, config.promoters.training
    config.encoder.check_pooling(settings.model.pooling, "promoters.model")
    if origin := read_origin(windows):
        settings = settings.with_sides(origin.upstream, origin.downstream, str(windows))
        settings = _aligned(settings, origin)
    data = read_windows(windows, negative_set, further=settings.calibration.negatives > 0)
    learnt = training_windows(data, training.examples, training.seed)
    start = make_start(config.encoder, settings.model, pretrained, tokenizer_path, "promoters.model")
    leaked = start.seen(data.rows[data.rows["split"] != "train"]) if world.is_first else []
    task = _settings(settings, negative_set, shuffle_labels)
    identity = {
        "settings": task.model_dump(exclude={"views"}),
        "windows": checksum(windows / "windows.parquet"),
        "seed": config.seed,
        "sequences": checksum(reference.path),  # windows are places: what is learnt from stands there
    }
    run = start.begin(task, training, identity, checkpoints, world)
    model = run.model
    assert isinstance(model, PromoterModel) and isinstance(model.network, Classifier)
    start.initialise(model.network.encoder)
    sequences = window_sequences(reference, data.rows, config.seed)
    splits = _learnt_and_held_out(data, sequences, learnt, training.seed, shuffle_labels)
    positions = start.config.positions
    objective = PromoterObjective(start.tokenizer, *splits, training, task, positions, world)
    what = f"{len(objective.windows.labels):,} training windows, {negative_set} negatives"
    progress = run.train(objective, what)
    predictions, members = _predict(model, objective.windows, data, sequences, training.seed, world)
    world.leave()
    if not world.is_first:
        return {}
    promoters = int(data.labels[learnt].sum())
    trained = {"steps": progress.step, "tokens_seen": progress.tokens, "examples": promoters}
    figures = {"training": trained} | ({} if members is None else {"ensemble": members._asdict()})
    provenance = {
        "configuration": stage_values(config, "promoters"),
        **start.provenance(leaked),
        "windows_sha256": identity["windows"],
        "reference": reference.path.name,
        "promoters": config.promoters.source,
        **(_sequences(origin, start) if origin else {}),
    }
    return _publish(run, predictions, output, provenance, figures, settings.calibration.method)


def _predict(
    model: PromoterModel,
    learned: LabelledWindows,
    data: WindowSet,
    sequences: list[str],
    seed: int,
    world: World,
) -> tuple[pd.DataFrame, Members | None]:
    """Predictions of the held-out windows, by the ensemble if the model is one."""
    alone = partial(model.window_probabilities, batch_size=64, device=world.device.type)

    def predict(windows: list[str]) -> npt.NDArray[np.float32]:
        return world.divide(windows, alone)

    members = None
    if model.settings.ensemble:
        # The control never sees a true label.
        valid = None if model.settings.shuffled_labels else _split(data, sequences, "valid")
        members = add_position_member(model, learned, valid, predict, seed)
    return held_out_predictions(data, sequences, predict), members


def _publish(
    run: Run,
    predictions: pd.DataFrame,
    output: Path,
    provenance: dict[str, Any],
    figures: dict[str, Any],
    method: CalibrationMethod,
) -> dict[str, Any]:
    """Write the trained model's directory, with its predictions of the held-out windows, and the calibration
    that these ask for; returns metrics.
    """
    held_out = {split: split_figures(predictions, split) for split in ("valid", "test")}
    metrics: dict[str, Any] = {**held_out, **figures}
    calibration = fit_predictions(predictions, method)
    if calibration is None:
        log(f"the model is not calibrated: {too_few(predictions)}")
    metrics["test"] |= calibration_figures(predictions, calibration)
    path = run.store.directory / PREDICTIONS
    write_predictions(path, predictions)
    run.publish(output, provenance, metrics, {path.name: path}, calibration)
    return metrics


def _aligned(config: PromoterConfig, origin: Origin) -> PromoterConfig:
    """The section without base positions where the promoters' TSS is not at one offset."""
    model = config.model
    if origin.aligned or not (model.base_positions or model.ensemble):
        return config
    log("the promoter sequences differ in length, so the TSS is not at one offset: no base positions")
    model = model.model_copy(update={"base_positions": False, "ensemble": False})
    return config.model_copy(update={"model": model})


def _sequences(origin: Origin, start: Start) -> dict[str, Any]:
    """What provenance says of sequences: their files; and that their places on a genome aren't known."""
    if start.model is None:
        return {"sequences": origin.sources}
    log("whether the genome of the pretraining holds the held-out sequences is not known")
    return {"sequences": origin.sources, "held_out_contigs_seen_in_pretraining": None}


def _settings(config: PromoterConfig, negative_set: str, shuffle_labels: bool) -> PromoterSettings:
    upstream, downstream = config.windows.sides
    return PromoterSettings(
        upstream=upstream,
        downstream=downstream,
        pooling=config.model.pooling,
        head=config.model.head,
        jitter=config.training.jitter,
        views=config.model.views,
        negative_set=negative_set,
        shuffled_labels=shuffle_labels,
        base_positions=config.model.base_positions,
        ensemble=config.model.ensemble,
    )


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
