"""What a summariser learns: the next token of the true summary, all before it being known.

Shapes: B documents, L tokens of a document, T tokens of a summary, V vocabulary.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bigbird_dna.model.batching import pad
from bigbird_dna.nlp.records import SummaryRecord
from bigbird_dna.nlp.summaries.rows import IGNORED, Reader, labels, said_before
from bigbird_dna.nlp.summaries.sections import SummariesTrainingConfig
from bigbird_dna.training.distributed import World
from bigbird_dna.training.epochs import Epochs
from bigbird_dna.training.loop import Batch
from bigbird_dna.training.micro_batches import take_rows


class Lengths(NamedTuple):
    """The longest inputs and outputs, in tokens."""

    document: int
    summary: int


class SummariesObjective:
    """Cross-entropy of the summaries' tokens, as a mean over those of the global batch."""

    def __init__(
        self,
        reader: Reader,
        train: Sequence[SummaryRecord],
        valid: Sequence[SummaryRecord],
        lengths: Lengths,
        config: SummariesTrainingConfig,
        world: World,
    ) -> None:
        self.reader, self.train, self.valid = reader, train, valid
        self.lengths, self.config, self.world = lengths, config, world
        self.epochs = Epochs(config.seed, len(train), lambda _: np.arange(len(train)))

    def batch(self, step: int, first: int, count: int) -> Batch:
        """Records of a training step, in an order drawn for each epoch."""
        chosen = self.epochs.indices(step * self.config.batch_size + first, count)
        tokens = self.config.tokens_at(step, self.lengths.document)
        return self._rows([self.train[index] for index in chosen], tokens)

    def _rows(self, records: Sequence[SummaryRecord], tokens: int) -> Batch:
        documents = [self.reader.document(record.document, tokens) for record in records]
        ids, lengths = pad(documents, self.reader.special.pad)
        summaries = [self.reader.summary(str(record.summary), self.lengths.summary) for record in records]
        return {"ids": ids, "lengths": lengths, "labels": labels(summaries)}

    def part(self, batch: Batch, rows: Tensor) -> Batch:
        """Some records of a batch."""
        return take_rows(batch, rows)

    def counts(self, batch: Batch) -> dict[str, float]:
        """Tokens of summaries."""
        return {"tokens": float((batch["labels"] != IGNORED).sum())}

    def loss(self, network: nn.Module, batch: Batch, totals: dict[str, float]) -> Tensor:
        """Mean cross-entropy of the global batch's tokens, in nats, with label smoothing."""
        return self._loss(network, batch, self.config.label_smoothing)[0] / totals["tokens"]

    def _loss(self, network: nn.Module, batch: Batch, smoothing: float) -> tuple[Tensor, Tensor]:
        """The sum over tokens, and how many of them are the likeliest."""
        wanted = batch["labels"]
        logits = network(batch["ids"], batch["lengths"], said_before(wanted, self.reader.special)).float()
        loss = F.cross_entropy(
            logits.flatten(0, 1),
            wanted.flatten(),
            ignore_index=IGNORED,
            reduction="sum",
            label_smoothing=smoothing,
        )
        return loss, ((logits.argmax(-1) == wanted) & (wanted != IGNORED)).sum()

    def evaluate(self, network: nn.Module) -> dict[str, float]:
        """Of held-out summaries the cross-entropy in nats a token, and the share of the likeliest tokens.

        Each document is a call of its own.
        """
        device = self.world.device

        def judge(records: Sequence[SummaryRecord]) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
            figures = np.zeros((len(records), 3))
            for row, record in zip(figures, records, strict=True):
                batch = self._rows([record], self.lengths.document)
                moved = {name: value.to(device) for name, value in batch.items()}
                loss, right = self._loss(network, {**moved, "lengths": batch["lengths"]}, 0.0)
                row[:] = float(loss), float(right), self.counts(batch)["tokens"]
            return figures

        with torch.inference_mode():
            loss, right, tokens = self.world.divide(self.valid, judge).sum(0).tolist()
        return {"loss": loss / tokens, "token_accuracy": right / tokens}
