"""Fine-tuning and evaluation of the promoter classifier (App. F.2)."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bigbird_dna.baselines.kmer import KmerLogistic
from bigbird_dna.config import Config, PromoterConfig
from bigbird_dna.console import log
from bigbird_dna.errors import ConfigError
from bigbird_dna.files import atomic_path, checksum
from bigbird_dna.genome.reference import Reference
from bigbird_dna.model.checkpoint import Model, build_network, load_task, save
from bigbird_dna.model.heads import Classifier, PretrainingNetwork
from bigbird_dna.reporting.auroc import auroc
from bigbird_dna.reporting.metrics import binary_metrics
from bigbird_dna.tasks.inference import predict_windows, sigmoid_rows
from bigbird_dna.tasks.promoter_windows import WindowSet, read_windows, window_sequences
from bigbird_dna.tokens.tokenizer import DnaTokenizer
from bigbird_dna.training.batches import pad, window_rows
from bigbird_dna.training.distributed import World
from bigbird_dna.training.loop import Batch, train
from bigbird_dna.training.state import CheckpointStore

VALIDATION_WINDOWS = 2000


class PromoterObjective:
    """Binary cross-entropy of promoter against negative.

    In training a window loses up to `jitter` bp at each end, anew at each draw, and is tokenised after
    that: token boundaries move, so that the network can't learn windows by their tokens' phase.
    """

    def __init__(
        self,
        tokenizer: DnaTokenizer,
        train_windows: tuple[list[str], npt.NDArray[np.uint8]],
        valid_windows: tuple[list[str], npt.NDArray[np.uint8]],
        config: PromoterConfig,
        positions: int,
        world: World,
    ) -> None:
        self.tokenizer = tokenizer
        self.sequences, self.labels = train_windows
        self.valid_sequences, self.valid_labels = valid_windows
        self.config = config
        self.positions = positions
        self.world = world
        self._epoch: tuple[int, npt.NDArray[np.int64]] = (-1, np.empty(0, np.int64))

    def _order(self, epoch: int) -> npt.NDArray[np.int64]:
        if self._epoch[0] != epoch:
            rng = np.random.default_rng((self.config.seed, 2, epoch))
            self._epoch = (epoch, rng.permutation(len(self.sequences)))
        return self._epoch[1]

    def batch(self, step: int, first: int, count: int) -> Batch:
        """Windows of a training step, in an order drawn for each epoch."""
        begin = step * self.config.batch_size + first
        chosen = [
            int(self._order(position // len(self.sequences))[position % len(self.sequences)])
            for position in range(begin, begin + count)
        ]
        rng = np.random.default_rng((self.config.seed, 3, step, first))
        cuts = rng.integers(0, self.config.jitter + 1, (count, 2))
        sequences = [
            self.sequences[index][left : len(self.sequences[index]) - right]
            for index, (left, right) in zip(chosen, cuts, strict=True)
        ]
        ids, lengths = pad(self._rows(sequences), self.tokenizer.pad_id)
        return {
            "ids": ids,
            "lengths": lengths,
            "labels": torch.from_numpy(self.labels[chosen]).float(),
        }

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
            self._rows(self.valid_sequences[mine]),
            self.tokenizer.pad_id,
            min(64, self.config.batch_size),
            self.world.device,
        )
        parts = self.world.gather((probabilities, self.valid_labels[mine]))
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
    settings = config.promoters
    data = read_windows(windows, negative_set)
    if settings.initial == "pretrained" and pretrained is None:
        raise ConfigError("promoters.initial is 'pretrained', but no pretrained model was given")
    start = (
        load_task(pretrained, "pretraining")
        if pretrained and settings.initial == "pretrained"
        else None
    )
    tokenizer = start.tokenizer if start else DnaTokenizer.load(tokenizer_path)
    encoder = config.encoder.model_copy(update={"vocabulary": tokenizer.vocabulary})
    if start and _shapes(start.config) != _shapes(encoder):
        raise ConfigError(f"{pretrained}: its encoder has other shapes than the configuration's")
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
        "training": settings.model_dump(
            exclude={"evaluate_every", "checkpoint_every", "negative_sets"}
        ),
        "settings": task_settings,
        "tokenizer": tokenizer.sha256,
        "start": start.sha256 if start else None,
        "windows": checksum(windows / "windows.parquet"),
        "seed": config.seed,
        "processes": world.size,
    }
    store = CheckpointStore(checkpoints, identity)
    torch.manual_seed(settings.seed)
    network = build_network("promoter", encoder, task_settings)
    if start:
        assert isinstance(network, Classifier) and isinstance(start.network, PretrainingNetwork)
        network.encoder.load_state_dict(start.network.encoder.state_dict())
    sequences = window_sequences(reference, data.rows, config.seed)
    objective = PromoterObjective(
        tokenizer,
        _chosen(data, sequences, "train", shuffle_labels, settings.seed),
        _validation(data, sequences, settings.seed),
        settings,
        encoder.positions,
        world,
    )
    if world.is_first:
        log(
            f"{len(objective.sequences):,} training windows, negatives {negative_set!r}, {world.device}"
        )
    progress = train(network, objective, settings, store, world)
    if not world.is_first:
        return {}
    model = Model("promoter", network, tokenizer, encoder, task_settings)
    predictions = _held_out(data)
    kept = data.rows["split"].isin(["valid", "test"]).to_numpy().nonzero()[0]
    predictions["probability"] = predict_windows(
        model, [sequences[index] for index in kept], batch_size=64, device=world.device.type
    )
    metrics = {split: _figures(predictions, split) for split in ("valid", "test")}
    metrics["training"] = {"steps": progress.step, "tokens_seen": progress.tokens}
    provenance = {
        "configuration": config.model_dump(include={"encoder", "promoters", "genome", "seed"}),
        "pretrained_sha256": start.sha256 if start else None,
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
    training, labels = _chosen(data, sequences, "train", False, config.promoters.seed)
    model = KmerLogistic(config.promoters.baseline_kmer, config.promoters.seed)
    model.fit(training, labels)
    predictions = _held_out(data)
    kept = data.rows["split"].isin(["valid", "test"]).to_numpy().nonzero()[0]
    predictions["probability"] = model.predict([sequences[index] for index in kept])
    write_predictions(output, predictions)


def write_predictions(path: Path, predictions: pd.DataFrame) -> None:
    """Write window columns, label and probability as Parquet."""
    with atomic_path(path) as temporary:
        predictions.to_parquet(temporary, index=False)


def _shapes(config: Any) -> dict[str, Any]:
    """What must agree between a checkpoint's encoder and the one that takes its weights."""
    names = ("layers", "hidden", "heads", "intermediate", "positions", "vocabulary")
    return {name: getattr(config, name) for name in names}


def _chosen(
    data: WindowSet, sequences: list[str], split: str, shuffle: bool, seed: int
) -> tuple[list[str], npt.NDArray[np.uint8]]:
    members = np.flatnonzero(data.rows["split"].to_numpy() == split)
    labels = data.labels[members]
    if shuffle:
        labels = np.random.default_rng((seed, 4)).permutation(labels)
    return [sequences[index] for index in members], labels


def _validation(
    data: WindowSet, sequences: list[str], seed: int
) -> tuple[list[str], npt.NDArray[np.uint8]]:
    """Validation windows, a fixed sample of them where there are many."""
    chosen, labels = _chosen(data, sequences, "valid", False, seed)
    if len(chosen) > VALIDATION_WINDOWS:
        sample = np.random.default_rng((seed, 5)).choice(
            len(chosen), VALIDATION_WINDOWS, replace=False
        )
        return [chosen[index] for index in sample], labels[sample]
    return chosen, labels


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
