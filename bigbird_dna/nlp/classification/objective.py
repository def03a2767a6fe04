"""What a classifier of text learns, and the rows that it reads."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from bigbird_dna.model.batching import pad, run_rows
from bigbird_dna.nlp.classification.metrics import Figures, class_figures, score_figures
from bigbird_dna.nlp.records import ClassificationRecord
from bigbird_dna.nlp.sections import TextTrainingConfig
from bigbird_dna.tokens.interface import Tokenizer
from bigbird_dna.training.distributed import World
from bigbird_dna.training.epochs import Epochs
from bigbird_dna.training.loop import Batch
from bigbird_dna.training.micro_batches import take_rows

Ids = NDArray[np.int32]


class Rows(NamedTuple):
    """Token ids of records, and how many of each row's tokens belong to the first text."""

    ids: list[Ids]
    firsts: NDArray[np.int64]  # (N,)

    def segments(self, chosen: NDArray[np.integer], width: int) -> Tensor:
        """0 for the first text, 1 for the second, of some rows (n, width)."""
        return (torch.arange(width)[None] >= torch.from_numpy(self.firsts[chosen])[:, None]).long()


def text_rows(tokenizer: Tokenizer, records: Sequence[ClassificationRecord], length: int) -> Rows:
    """[CLS] text [SEP], or [CLS] text [SEP] pair [SEP], of at most `length` tokens.

    What is too long loses its end: of a pair the longer one, token by token.
    """
    rows, firsts = [], []
    specials = tokenizer.specials
    for record in records:
        a = tokenizer.encode(record.text)
        if record.pair is None:
            body = a[: length - 2]
            rows.append(np.concatenate([[specials.cls], body, [specials.sep]]).astype(np.int32))
            firsts.append(len(body) + 2)
            continue
        b = tokenizer.encode(record.pair)
        short, room = min(len(a), len(b)), length - 3
        most = max(room - short, room - room // 2)  # what the longer one may keep
        kept_a, kept_b = (a[: min(len(a), most)], b[: min(len(b), most)])
        kept_b = kept_b[: room - len(kept_a)]
        rows.append(
            np.concatenate([[specials.cls], kept_a, [specials.sep], kept_b, [specials.sep]]).astype(np.int32)
        )
        firsts.append(len(kept_a) + 2)
    return Rows(rows, np.array(firsts, np.int64))


def outputs_of(
    network: nn.Module, rows: Rows, tokenizer: Tokenizer, device: torch.device, batch_size: int
) -> NDArray[np.float32]:
    """Logits (N, T) of rows; of each its own, whatever stands beside it."""

    def run(ids: Tensor, lengths: Tensor, chosen: NDArray[np.intp]) -> Tensor:
        segments = rows.segments(chosen, ids.shape[1]).to(ids.device)
        return network(ids, lengths, segments)  # type: ignore[no-any-return]

    return run_rows(
        network, rows.ids, run, pad_id=tokenizer.pad_id, batch_size=batch_size, device=device, empty=(1,)
    )


class ClassificationObjective:
    """Cross-entropy of classes, or squared error of scores, as means over the global batch."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        train: Sequence[ClassificationRecord],
        valid: Sequence[ClassificationRecord],
        labels: Sequence[str],
        positive: str | None,
        length: int,
        config: TextTrainingConfig,
        world: World,
    ) -> None:
        self.tokenizer, self.train, self.labels, self.positive = tokenizer, train, labels, positive
        self.length, self.config, self.world = length, config, world
        self.targets = targets(train, labels)
        self.valid = valid
        self.rows = text_rows(tokenizer, valid, length)
        self.epochs = Epochs(config.seed, len(train), lambda _: np.arange(len(train)))

    def batch(self, step: int, first: int, count: int) -> Batch:
        """Records of a training step, in an order drawn for each epoch."""
        chosen = self.epochs.indices(step * self.config.batch_size + first, count)
        rows = text_rows(self.tokenizer, [self.train[index] for index in chosen], self.length)
        ids, lengths = pad(rows.ids, self.tokenizer.pad_id)
        segments = rows.segments(np.arange(len(chosen)), ids.shape[1])
        return {
            "ids": ids,
            "lengths": lengths,
            "segments": segments,
            "targets": torch.from_numpy(self.targets[chosen]),
        }

    def part(self, batch: Batch, rows: Tensor) -> Batch:
        """Some records of a batch."""
        return take_rows(batch, rows)

    def counts(self, batch: Batch) -> dict[str, float]:
        """Records."""
        return {"records": float(len(batch["targets"]))}

    def loss(self, network: nn.Module, batch: Batch, totals: dict[str, float]) -> Tensor:
        """Mean loss over the global batch; of classes in nats."""
        outputs = network(batch["ids"], batch["lengths"], batch["segments"]).float()
        if self.labels:
            loss = F.cross_entropy(outputs, batch["targets"], reduction="sum")
        else:
            loss = F.mse_loss(outputs[:, 0], batch["targets"].float(), reduction="sum")
        return loss / totals["records"]

    def evaluate(self, network: nn.Module) -> dict[str, float]:
        """Figures on records to watch; those that have no value are left out."""
        found = self.figures(network)
        return {name: value for name, value in found.items() if value is not None}

    def figures(self, network: nn.Module) -> Figures:
        """All figures on records to watch."""
        outputs = outputs_of(network, self.rows, self.tokenizer, self.world.device, self.config.batch_size)
        if not self.labels:
            return score_figures(targets(self.valid, ()).tolist(), outputs[:, 0].tolist())
        predicted = [self.labels[index] for index in outputs.argmax(1)]
        return class_figures([str(record.label) for record in self.valid], predicted, self.positive)


def targets(records: Sequence[ClassificationRecord], labels: Sequence[str]) -> NDArray[np.generic]:
    """Numbers of the records' classes (N,), or where there are no classes their scores."""
    if not labels:
        return np.array([record.score for record in records], np.float64)
    numbers = {label: number for number, label in enumerate(labels)}
    return np.array([numbers[str(record.label)] for record in records], np.int64)
