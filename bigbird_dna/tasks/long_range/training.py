"""A classifier of long sequences with one of the attentions that are compared."""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bigbird_dna.checks import check_choice
from bigbird_dna.config import EncoderConfig, TrainingConfig
from bigbird_dna.config.long_range import LONG_RANGE_TASKS, LongRangeConfig, LongRangeTask
from bigbird_dna.console import log
from bigbird_dna.disk.atomic import checksum
from bigbird_dna.disk.directories import check_directory
from bigbird_dna.errors import UsageError
from bigbird_dna.model.heads import Classifier
from bigbird_dna.tasks.long_range import listops, pathfinder
from bigbird_dna.tasks.long_range.sequences import OFFSET, SPLITS, Sequences
from bigbird_dna.tasks.plain_networks import PlainRun
from bigbird_dna.training.distributed import World
from bigbird_dna.training.epochs import Epochs
from bigbird_dna.training.micro_batches import Batch, take_rows

# Axes: N sequences, B of a batch, L tokens, C classes.

JUDGED = 2_000
"""Validation sequences that are measured on while training, at most."""
_TOKENS_AT_ONCE = 1 << 15


class Data(NamedTuple):
    """A task's sequences, its classes and symbols, and what is right without reading them."""

    splits: Mapping[str, Sequences]
    classes: int
    symbols: int
    baseline: float
    baseline_name: str


def _listops(directory: Path) -> Data:
    splits = {split: listops.read_listops(directory / f"{split}.tsv.gz") for split in SPLITS}
    told = listops.root_baseline(splits["train"], splits["test"])
    return Data(splits, listops.VALUES, len(listops.TOKENS), told, "first operator alone")


def _pathfinder(directory: Path) -> Data:
    images = {split: pathfinder.read_pathfinder(directory / f"{split}.npz") for split in SPLITS}
    told = pathfinder.distance_baseline(images["train"], images["test"])
    pixels = {split: one.pixels for split, one in images.items()}
    return Data(pixels, pathfinder.VALUES, 256, told, "distance of the circles alone")


READERS: Mapping[LongRangeTask, Callable[[Path], Data]] = {"listops": _listops, "pathfinder": _pathfinder}
_FILES = {"listops": "{}.tsv.gz", "pathfinder": "{}.npz"}


def train_long_range(
    config: LongRangeConfig,
    task: LongRangeTask,
    attention: str,
    *,
    seed: int,
    data: Path,
    output: Path,
    checkpoints: Path,
    world: World,
) -> dict[str, Any]:
    """Train a classifier, or go on; judge it on the test sequences, and write the directory `output`.

    Returns the figures in `result.json`: test accuracy with a 95 % interval (Wilson), and beside it that of
    what needs no reading: `baseline`, and the most frequent class.

    Raises
    ------
    UsageError
        There is no such task or attention in the configuration, the seed is out of its range, or the output
        can't be written.
    DataError
        The data can't be read.
    """
    check_choice("task", task, LONG_RANGE_TASKS)
    check_choice("attention", attention, config.attentions)
    if not 0 <= seed < 2**32:
        raise UsageError(f"seed {seed}: must be from 0 to {2**32 - 1}")
    check_directory(output, [data, checkpoints])
    found = READERS[task](data)
    longest = max(one.longest for one in found.splits.values()) + 1
    encoder = config.encoder_of(attention, found.symbols + OFFSET, longest)
    settings: TrainingConfig = getattr(config, task).training.model_copy(update={"seed": seed})
    sums = {split: checksum(data / _FILES[task].format(split)) for split in SPLITS}

    def build(encoder: EncoderConfig) -> Classifier:
        return Classifier(encoder, found.classes, config.pooling)

    identity = {"task": task, "pooling": config.pooling, "data": sums}
    run = PlainRun.begin(build, encoder, settings, identity, checkpoints, world)
    objective = ClassObjective(found.splits["train"], found.splits["valid"], settings)
    progress = run.train(objective, f"{task} with {attention}, {len(found.splits['train']):,} sequences")
    with torch.inference_mode():
        test = found.splits["test"]
        right = predictions(run.network, test, world) == test.targets
    world.leave()
    low, high = wilson_interval(int(right.sum()), len(right))
    result = {
        **{"task": task, "attention": attention, "seed": seed, "accuracy": float(right.mean())},
        **{"accuracy_low": low, "accuracy_high": high, "test_sequences": len(right)},
        "baseline": found.baseline,
        "baseline_name": found.baseline_name,
        "most_frequent": _most_frequent(found.splits["train"], test),
        **{"longest": longest, "parameters": run.parameters, "steps": progress.step},
        "data": sums,
    }
    if world.is_first:
        run.publish(output, result)
        log(f"{task} with {attention}: accuracy {right.mean():.4f} ({low:.4f} to {high:.4f})")
    return result


class ClassObjective:
    """Cross-entropy over classes, epoch after epoch in a new order."""

    def __init__(self, learnt: Sequences, held_out: Sequences, config: TrainingConfig) -> None:
        self.learnt, self.held_out, self.config = learnt, held_out, config
        self.epochs = Epochs(config.seed, len(learnt), lambda _: np.arange(len(learnt)))

    def batch(self, step: int, first: int, count: int) -> Batch:
        """Sequences of a step."""
        return self.learnt.batch(self.epochs.indices(step * self.config.batch_size + first, count))

    def part(self, batch: Batch, rows: Tensor) -> Batch:
        """Some rows, as `take_rows`."""
        return take_rows(batch, rows)

    def counts(self, batch: Batch) -> dict[str, float]:
        """Sequences."""
        return {"sequences": float(len(batch["targets"]))}

    def loss(self, network: nn.Module, batch: Batch, totals: dict[str, float]) -> Tensor:
        """Mean cross-entropy, nats."""
        logits = network(batch["ids"], batch["lengths"]).float()
        return F.cross_entropy(logits, batch["targets"], reduction="sum") / totals["sequences"]

    def evaluate(self, network: nn.Module) -> dict[str, float]:
        """Loss and accuracy on held-out sequences, the first `JUDGED`."""
        device = next(network.parameters()).device
        loss, right, count = 0.0, 0, min(JUDGED, len(self.held_out))
        for rows in _parts(self.held_out, count):
            batch = self.held_out.batch(rows)
            logits = network(batch["ids"].to(device), batch["lengths"]).float().cpu()
            loss += float(F.cross_entropy(logits, batch["targets"], reduction="sum"))
            right += int((logits.argmax(1) == batch["targets"]).sum())
        return {"loss": loss / count, "accuracy": right / count}


def predictions(network: nn.Module, sequences: Sequences, world: World) -> Any:
    """The likeliest class of each sequence, (N,); each process does a part."""

    def work(rows: Any) -> Any:
        found = [np.zeros(0, np.int64)]
        for part in _parts(sequences, len(rows)):
            batch = sequences.batch([rows[one] for one in part])
            logits = network(batch["ids"].to(world.device), batch["lengths"])
            found.append(logits.float().argmax(1).cpu().numpy())
        return np.concatenate(found)

    return world.divide(range(len(sequences)), work)


def _parts(sequences: Sequences, count: int) -> list[range]:
    size = max(1, _TOKENS_AT_ONCE // (sequences.longest + 1))
    return [range(start, min(start + size, count)) for start in range(0, count, size)]


def _most_frequent(train: Sequences, test: Sequences) -> float:
    return float((test.targets == np.bincount(train.targets).argmax()).mean())


def wilson_interval(right: int, count: int) -> tuple[float, float]:
    """95 % interval of a share, Wilson's score interval.

    Examples
    --------
    >>> [round(one, 3) for one in wilson_interval(8, 10)]
    [0.49, 0.943]
    """
    z, share = 1.959964, right / count
    middle = share + z**2 / (2 * count)
    around = z * math.sqrt(share * (1 - share) / count + z**2 / (4 * count**2))
    scale = 1 + z**2 / count
    return max(0.0, (middle - around) / scale), min(1.0, (middle + around) / scale)
