"""Fine-tuning and evaluation of the promoter classifier (App. F.2)."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bigbird_dna.baselines.kmer import KmerLogistic
from bigbird_dna.config import Config, PromoterConfig
from bigbird_dna.console import log
from bigbird_dna.files import atomic_path, check_writable, checksum
from bigbird_dna.genome.reference import Reference
from bigbird_dna.model.directory import Model, build_network, save
from bigbird_dna.model.heads import Classifier
from bigbird_dna.reporting.metrics.auroc import auroc
from bigbird_dna.reporting.metrics.binary import binary_metrics
from bigbird_dna.tasks.initial import make_start
from bigbird_dna.tasks.promoters.inference import predict_windows, sigmoid_rows
from bigbird_dna.tasks.promoters.windows import (
    WindowSet,
    read_windows,
    variants,
    window_sequences,
)
from bigbird_dna.tokens.interface import Tokenizer
from bigbird_dna.training.batches import pad, window_rows
from bigbird_dna.training.distributed import World
from bigbird_dna.training.loop import Batch, train
from bigbird_dna.training.state import CheckpointStore

VALIDATION_WINDOWS = 2000
# Keys that decide other things than the weights, or decide them through the windows' checksum.
NOT_TRAINING = {
    *("evaluate_every", "checkpoint_every", "baseline_kmer", "control", "views"),
    *("negative_sets", "negatives", "distance"),
}


class LabelledWindows(NamedTuple):
    """Windows of one split, in file order."""

    sequences: list[str]
    labels: npt.NDArray[np.uint8]  # (N,), what is learnt: dealt out at random in the control
    promoter: npt.NDArray[np.bool_]  # (N,), what the window is
    variants: npt.NDArray[np.int64]  # (N,), number among the negatives of one promoter


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
        config: PromoterConfig,
        positions: int,
        world: World,
    ) -> None:
        self.tokenizer = tokenizer
        self.windows = windows
        self.held_out = held_out
        self.config = config
        self.positions = positions
        self.world = world
        # The negatives of a promoter take turns; promoters (turn -1) are in every epoch.
        self.turns = np.where(windows.promoter, -1, windows.variants)
        sizes = np.bincount(self.turns[self.turns >= 0])
        self.epoch_size = int((self.turns < 0).sum()) + int(sizes.min() if len(sizes) else 0)
        self._shuffled: tuple[int, npt.NDArray[np.int64]] = (-1, np.empty(0, np.int64))

    def _epoch(self, number: int) -> npt.NDArray[np.int64]:
        """Indices of an epoch's windows, shuffled: every promoter, and one of its negatives by turns."""
        if self._shuffled[0] != number:
            members = np.flatnonzero(
                (self.turns < 0) | (self.turns == number % (self.turns.max() + 1))
            )
            rng = np.random.default_rng((self.config.seed, 2, number))
            self._shuffled = (number, rng.permutation(members)[: self.epoch_size])
        return self._shuffled[1]

    def batch(self, step: int, first: int, count: int) -> Batch:
        """Windows of a training step, in an order drawn for each epoch."""
        begin = step * self.config.batch_size + first
        chosen = []
        for position in range(begin, begin + count):
            epoch, place = divmod(position, self.epoch_size)
            chosen.append(int(self._epoch(epoch)[place]))
        rng = np.random.default_rng((self.config.seed, 3, step))
        cuts = rng.integers(0, self.config.jitter + 1, (self.config.batch_size, 2))
        cuts = cuts[first : first + count]
        sequences = [
            self.windows.sequences[index][left : len(self.windows.sequences[index]) - right]
            for index, (left, right) in zip(chosen, cuts, strict=True)
        ]
        ids, lengths = pad(self._rows(sequences), self.tokenizer.pad_id)
        labels = torch.from_numpy(self.windows.labels[chosen]).float()
        return {"ids": ids, "lengths": lengths, "labels": labels}

    def _rows(self, sequences: Sequence[str]) -> list[npt.NDArray[np.int32]]:
        anchor = self.config.upstream / (self.config.upstream + self.config.downstream)
        return window_rows(self.tokenizer, sequences, self.positions, anchor)

    def counts(self, batch: Batch) -> dict[str, float]:
        """Windows."""
        return {"windows": float(len(batch["labels"]))}

    def loss(self, network: nn.Module, batch: Batch, totals: dict[str, float]) -> Tensor:
        """Mean binary cross-entropy over the global batch, in nats."""
        logits = network(batch["ids"], batch["lengths"])[:, 0].float()
        loss = F.binary_cross_entropy_with_logits(logits, batch["labels"], reduction="sum")
        return loss / totals["windows"]

    def evaluate(self, network: nn.Module) -> dict[str, float]:
        """Loss and AUROC on validation windows."""
        mine = slice(self.world.rank, None, self.world.size)
        probabilities = sigmoid_rows(
            network,
            self._rows(self.held_out.sequences[mine]),
            self.tokenizer.pad_id,
            min(64, self.config.batch_size),
            self.world.device,
        )
        parts = self.world.gather((probabilities, self.held_out.labels[mine]))
        scores, labels = (np.concatenate(column) for column in zip(*parts, strict=True))
        right = np.where(labels == 1, scores, 1 - scores)
        loss = float(-np.log(np.clip(right, 1e-7, 1)).mean())
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
    check_writable(output, directory=True)
    settings = config.promoters
    data = read_windows(windows, negative_set)
    start = make_start(config.encoder, settings, pretrained, tokenizer_path, "promoters")
    encoder = start.config
    task_settings = {
        "upstream": settings.upstream,
        "downstream": settings.downstream,
        "pooling": settings.pooling,
        "jitter": settings.jitter,
        "views": settings.views,
        "negative_set": negative_set,
        "shuffled_labels": shuffle_labels,
    }
    identity = {
        "task": "promoter",
        "encoder": encoder.model_dump(),
        "training": settings.model_dump(exclude=NOT_TRAINING),
        "negative_set": negative_set,
        "shuffled_labels": shuffle_labels,
        "tokenizer": start.tokenizer.sha256,
        "start": start.sha256,
        "windows": checksum(windows / "windows.parquet"),
        "seed": config.seed,
        "processes": world.size,
    }
    held_out = data.rows.loc[data.rows["split"] != "train", "contig"]
    leaked = start.seen(held_out) if world.is_first else []
    store = CheckpointStore(checkpoints, identity)
    torch.manual_seed(settings.seed)
    network = build_network("promoter", encoder, task_settings)
    assert isinstance(network, Classifier)
    start.initialise(network.encoder)
    sequences = window_sequences(reference, data.rows, config.seed)
    objective = PromoterObjective(
        start.tokenizer,
        _split(data, sequences, "train", shuffle=settings.seed if shuffle_labels else None),
        _sample(_split(data, sequences, "valid"), VALIDATION_WINDOWS, settings.seed),
        settings,
        encoder.positions,
        world,
    )
    if world.is_first:
        log(
            f"{len(objective.windows.labels):,} training windows, {negative_set} negatives, {world.device}"
        )
    progress = train(network, objective, settings, store, world)
    world.leave()
    if not world.is_first:
        return {}
    model = Model("promoter", network, start.tokenizer, encoder, task_settings)
    predictions = _held_out(data)
    kept = data.rows["split"].isin(["valid", "test"]).to_numpy().nonzero()[0]
    predictions["probability"] = predict_windows(
        model, [sequences[index] for index in kept], batch_size=64, device=world.device.type
    )
    metrics = {split: _figures(predictions, split) for split in ("valid", "test")}
    metrics["training"] = {"steps": progress.step, "tokens_seen": progress.tokens}
    provenance = {
        "configuration": config.model_dump(include={"encoder", "promoters", "genome", "seed"}),
        "pretrained_sha256": start.sha256,
        "held_out_contigs_seen_in_pretraining": leaked,
        "windows_sha256": identity["windows"],
        "reference": str(reference.path.name),
    }
    predictions_path = store.directory / "predictions.parquet"
    write_predictions(predictions_path, predictions)
    save(
        output,
        model,
        provenance,
        metrics,
        {"training.jsonl": store.log_path, "predictions.parquet": predictions_path},
    )
    store.remove()
    return metrics


def kmer_baseline(
    config: Config, negative_set: str, *, windows: Path, reference: Reference, output: Path
) -> None:
    """Predictions of a logistic regression on k-mer counts, in the same file format."""
    data = read_windows(windows, negative_set)
    sequences = window_sequences(reference, data.rows, config.seed)
    training = _split(data, sequences, "train")
    model = KmerLogistic(config.promoters.baseline_kmer, config.promoters.seed)
    model.fit(training.sequences, training.labels)
    predictions = _held_out(data)
    kept = data.rows["split"].isin(["valid", "test"]).to_numpy().nonzero()[0]
    predictions["probability"] = model.predict([sequences[index] for index in kept])
    write_predictions(output, predictions)


def write_predictions(path: Path, predictions: pd.DataFrame) -> None:
    """Write window columns, label and probability as Parquet."""
    with atomic_path(path) as temporary:
        predictions.to_parquet(temporary, index=False)


def _split(
    data: WindowSet, sequences: list[str], split: str, *, shuffle: int | None = None
) -> LabelledWindows:
    """The windows of a split; `shuffle`, a seed, deals their labels out at random."""
    members = np.flatnonzero(data.rows["split"].to_numpy() == split)
    labels = data.labels[members]
    learnt = labels
    if shuffle is not None:
        # Half and half among all windows, as every epoch has it: promoters may have several negatives.
        learnt = np.random.default_rng((shuffle, 4)).permutation(np.arange(len(labels)) % 2)
        learnt = learnt.astype(np.uint8)
    return LabelledWindows(
        [sequences[index] for index in members], learnt, labels == 1, variants(data.rows)[members]
    )


def _sample(windows: LabelledWindows, count: int, seed: int) -> LabelledWindows:
    """All windows, or a fixed sample of `count` of them where there are more."""
    if len(windows.sequences) <= count:
        return windows
    kept = np.random.default_rng((seed, 5)).choice(len(windows.sequences), count, replace=False)
    return LabelledWindows(
        [windows.sequences[index] for index in kept],
        windows.labels[kept],
        windows.promoter[kept],
        windows.variants[kept],
    )


def _held_out(data: WindowSet) -> pd.DataFrame:
    rows = data.rows.drop(columns="name").assign(label=data.labels)
    return rows[rows["split"].isin(["valid", "test"])].reset_index(drop=True)


def _figures(predictions: pd.DataFrame, split: str) -> dict[str, Any]:
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
