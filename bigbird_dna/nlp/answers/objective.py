"""What a question answerer learns: marks, types, facts and candidates of windows."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bigbird_dna.nlp.answers.documents import header, read_document, windows
from bigbird_dna.nlp.answers.figures import figures_of
from bigbird_dna.nlp.answers.inputs import collate, make_row, network_input, some_rows
from bigbird_dna.nlp.answers.labels import choose_window, known_of, labels_of
from bigbird_dna.nlp.answers.losses import allowed_tokens, candidate_loss, facts_loss, span_loss, type_loss
from bigbird_dna.nlp.answers.network import AnswerOutput
from bigbird_dna.nlp.answers.reading import predictions
from bigbird_dna.nlp.answers.settings import LongAnswersSettings
from bigbird_dna.nlp.records import QuestionRecord
from bigbird_dna.nlp.sections import TextTrainingConfig
from bigbird_dna.tokens.interface import Tokenizer
from bigbird_dna.training.distributed import World
from bigbird_dna.training.epochs import Epochs
from bigbird_dna.training.loop import Batch


class AnswersObjective:
    """The sum of the heads' losses, a mean over the windows of the global batch.

    A record gives one window a time, which is drawn: half of the time one that holds what is asked for.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        train: Sequence[QuestionRecord],
        valid: Sequence[QuestionRecord],
        settings: LongAnswersSettings,
        config: TextTrainingConfig,
        facts_weight: float,
        extra_globals: int,
        world: World,
    ) -> None:
        self.tokenizer, self.train, self.valid = tokenizer, train, valid
        self.settings, self.config, self.world = settings, config, world
        self.facts_weight, self.extra = facts_weight, extra_globals
        self.epochs = Epochs(config.seed, len(train), lambda _: np.arange(len(train)))

    def batch(self, step: int, first: int, count: int) -> Batch:
        """Windows of records of a training step, in an order drawn for each epoch."""
        place = step * self.config.batch_size + first
        chosen = []
        for offset, index in enumerate(self.epochs.indices(place, count)):
            rng = np.random.default_rng((self.config.seed, 3, place + offset))
            document = read_document(self.train[index], self.tokenizer, self.settings.question_tokens)
            known = known_of(document, self.settings)
            taken = len(header(document, self.tokenizer)[0])
            cut = windows(document, self.settings.length, self.settings.stride, taken)
            window = choose_window(cut, known, document, rng)
            row = make_row(document, window, self.tokenizer, self.settings, self.extra)
            chosen.append((row, known, window))
        batch = collate([row for row, *_ in chosen], self.tokenizer.pad_id)
        return {**batch, **labels_of(chosen, self.settings)}

    def part(self, batch: Batch, rows: Tensor) -> Batch:
        """Some windows of a batch."""
        return some_rows(batch, rows)

    def counts(self, batch: Batch) -> dict[str, float]:
        """Windows."""
        return {"windows": float(len(batch["ids"]))}

    def loss(self, network: nn.Module, batch: Batch, totals: dict[str, float]) -> Tensor:
        """The mean of all losses over the global batch, in nats a window."""
        output = network(*network_input(batch))
        assert isinstance(output, AnswerOutput)
        total = torch.zeros((), device=batch["ids"].device)
        if self.settings.form == "wikihop":
            assert output.anchors is not None
            total = total + candidate_loss(output.anchors, batch["anchor_labels"]) + output.marks.sum() * 0
            return total / totals["windows"]
        allowed = allowed_tokens(batch["lengths"], batch["asked"], batch["ids"].shape[1])
        start, end, *long = output.marks.unbind(-1)
        total = total + span_loss(start, end, batch["spans"], allowed)
        if long:
            total = total + span_loss(long[0], long[1], batch["long_spans"], allowed)
        if output.types is not None:
            total = total + type_loss(output.types, batch["types"])
        if output.anchors is not None:
            total = total + self.facts_weight * facts_loss(output.anchors, batch["anchor_labels"])
        return total / totals["windows"]

    def figures(self, network: Any) -> dict[str, float]:
        """The official figures on records to watch, equal on every process."""
        own = self.valid[self.world.rank :: self.world.size]
        batch_size = min(64, self.config.batch_size)
        lines = [*predictions(network, own, self.tokenizer, self.settings, self.world.device, batch_size)]
        said = {line["id"]: line for part in self.world.gather(lines) for line in part}
        return figures_of(self.settings.form, {record.id: record for record in self.valid}, said)

    def evaluate(self, network: nn.Module) -> dict[str, float]:
        """See `figures`."""
        return self.figures(network)
