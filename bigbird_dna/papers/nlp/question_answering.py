"""Question answering in long documents: training, prediction and the official metrics (App. E.2).

Losses of the heads are in nats, each summed over the rows of a batch. Axes: B rows, L tokens, S spans, A
anchors (sentences or candidates that are scored).
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bigbird_dna.papers.nlp.config import AnswersTaskConfig, GeneratedConfig
from bigbird_dna.papers.nlp.data import generate_questions
from bigbird_dna.papers.nlp.public import public_record, read_public
from bigbird_dna.papers.nlp.question_answers import predict_answers
from bigbird_dna.papers.nlp.question_metrics import (
    ARTICLES,
    normalize_answer,
    official_metrics,
)
from bigbird_dna.papers.nlp.question_network import AnswerOutput, LongAnswersSettings
from bigbird_dna.papers.nlp.question_windows import (
    AnswerReader,
    TokenizedRecord,
    TokenSpan,
    Window,
    WindowInput,
    network_input,
    pad_numbers,
    select_rows,
)
from bigbird_dna.papers.nlp.records import Prediction, QuestionRecord, Record
from bigbird_dna.papers.nlp.task import Lines, Metrics, RecordsObjective, TextTask
from bigbird_dna.training.distributed import World
from bigbird_dna.training.loop import Batch

NO_ANSWER = TokenSpan(0, 0)
"""[CLS]: the window contains no answer."""


def find_answers(
    answers: Iterable[str], text: str, most_words: int
) -> list[tuple[int, int]]:
    """Return the distinct character ranges of answers of at most `most_words` words, in text order.

    Words are compared in lower case, by letters and digits only; articles are ignored. A range begins and
    ends at compared characters, without surrounding punctuation.
    """
    sought: dict[str, set[tuple[str, ...]]] = {}
    for answer in answers:
        words = tuple(word for word, _, _ in _words(answer))
        if words and len(words) <= most_words:
            sought.setdefault(words[0], set()).add(words)
    found = _words(text)
    ranges = set()
    for number, (word, start, _) in enumerate(found):
        for words in sought.get(word, ()):
            match = found[number : number + len(words)]
            if tuple(other for other, _, _ in match) == words:
                ranges.add((start, match[-1][2]))
    return sorted(ranges)


def _words(text: str) -> list[tuple[str, int, int]]:
    """Return words in the form for comparison, with start and end in characters."""
    words = []
    for match in re.finditer(r"\S+", text):
        letters = [i for i in range(*match.span()) if text[i].isalnum()]
        word = "".join(text[i] for i in letters).lower()
        if word and word not in ARTICLES:
            words.append((word, letters[0], letters[-1] + 1))
    return words


@dataclass(frozen=True, eq=False)
class TrueLabels:
    """True answer of a document's record, in tokens of the context."""

    spans: list[TokenSpan]
    long: TokenSpan | None
    type: str | None
    facts: set[tuple[int, int]]
    candidate: int | None


def true_labels(document: TokenizedRecord, settings: LongAnswersSettings) -> TrueLabels:
    """Return the positions of all answers; answers without a position match all occurrences (TriviaQA)."""
    record = document.record
    spans, candidate = [], None
    if settings.form == "wikihop":
        answers = {normalize_answer(answer.text) for answer in record.answers}
        for number, text in enumerate(record.candidates):
            if candidate is None and normalize_answer(text) in answers:
                candidate = number
    elif record.type not in ("yes", "no"):
        for answer in record.answers:
            if answer.paragraph is not None and answer.start is not None:
                end = answer.start + len(answer.text)
                spans.append(document.span(answer.paragraph, answer.start, end))
        if not spans:
            texts = [answer.text for answer in record.answers]
            for number, text in enumerate(document.texts):
                for start, end in find_answers(texts, text, settings.answer_words):
                    spans.append(document.span(number, start, end))
    long = record.long_answer
    return TrueLabels(
        sorted({span for span in spans if span is not None}),
        None if long is None else document.span(long, 0, len(document.texts[long])),
        record.type,
        {(fact.paragraph, fact.sentence) for fact in record.facts},
        candidate,
    )


def contains_answer(
    labels: TrueLabels, document: TokenizedRecord, window: Window
) -> bool:
    """Return whether a window contains any part of the true answer."""
    spans = labels.spans if labels.long is None else [*labels.spans, labels.long]
    if spans:
        return any(window.contains(span) for span in spans)
    sentences = {sentence[:2] for sentence in document.sentences(window)}
    return not labels.facts or not labels.facts.isdisjoint(sentences)


def choose_window(
    windows: Sequence[Window],
    labels: TrueLabels,
    document: TokenizedRecord,
    rng: np.random.Generator,
) -> Window:
    """Choose a window of a document: with probability 0.5, one with part of the answer, if there is any."""
    if len(windows) == 1:
        return windows[0]
    answered = [
        window for window in windows if contains_answer(labels, document, window)
    ]
    if answered and rng.random() < 0.5:
        windows = answered
    return windows[int(rng.integers(len(windows)))]


def window_labels(
    rows: Sequence[tuple[WindowInput, TrueLabels]], settings: LongAnswersSettings
) -> Batch:
    """Return the labels of windows: `spans` and `long_spans` (B, S, 2), `types` (B,), `anchor_labels` (B, A).

    -1 means missing: no further span, an unknown type, or an anchor that does not exist.
    """
    spans, longs, types, anchors = [], [], [], []
    for row, labels in rows:
        long = [] if labels.long is None else [labels.long]
        spans.append(_span_labels(labels.spans, row))
        longs.append(_span_labels(long, row))
        kind = -1
        if labels.type in settings.types:
            kind = settings.types.index(labels.type)
            outside = long and not row.window.contains(long[0])
            if settings.form == "natural_questions" and outside:
                kind = settings.types.index("null")
        types.append(kind)
        if labels.candidate is None:
            anchors.append([int(name in labels.facts) for name in row.anchor_names])
        else:
            anchors.append(
                [int(name[0] == labels.candidate) for name in row.anchor_names]
            )
    return {
        "spans": pad_numbers(spans).view(len(rows), -1, 2),
        "long_spans": pad_numbers(longs).view(len(rows), -1, 2),
        "types": torch.tensor(types),
        "anchor_labels": pad_numbers(anchors),
    }


def _span_labels(spans: Sequence[TokenSpan], row: WindowInput) -> list[int]:
    """Return first and last token in the input of each span that the window contains, one after the other."""
    numbers = []
    for span in spans:
        if row.window.contains(span):
            numbers += [span.first + row.shift, span.last + row.shift]
    return numbers or [*NO_ANSWER]


def span_loss(start: Tensor, end: Tensor, spans: Tensor, allowed: Tensor) -> Tensor:
    """Return -ln Σ P(start) P(end) over the spans of each row (B, S, 2; -1: none), summed over rows.

    With one span per row, this is the cross-entropy of its start and of its end. With several, any of them
    may be the correct one (noisy span loss of TriviaQA). `allowed` (B, L) marks tokens at which an answer may
    begin or end.
    """
    start = start.float().masked_fill(~allowed, -torch.inf).log_softmax(-1)
    end = end.float().masked_fill(~allowed, -torch.inf).log_softmax(-1)
    first, last = spans.clamp(min=0).unbind(-1)
    each = start.gather(1, first) + end.gather(1, last)  # (B, S)
    return -each.masked_fill(spans[..., 0] < 0, -torch.inf).logsumexp(1).sum()


def facts_loss(scores: Tensor, labels: Tensor) -> Tensor:
    """Return the binary cross-entropy of sentences (B, A) as supporting facts; label -1: no sentence."""
    loss = F.binary_cross_entropy_with_logits(
        scores.float(), labels.clamp(min=0).float(), reduction="none"
    )
    return loss.masked_fill(labels < 0, 0).sum()


def candidate_loss(scores: Tensor, labels: Tensor) -> Tensor:
    """Return the cross-entropy of the correct candidate (B, A); rows without a correct one are ignored."""
    answered = (labels == 1).any(1)
    if not answered.any():
        return scores.sum() * 0
    probs = scores.float().masked_fill(labels < 0, -torch.inf)[answered].log_softmax(-1)
    return -probs[labels[answered] == 1].sum()


def allowed_tokens(lengths: Tensor, header: Tensor, tokens: int) -> Tensor:
    """Return the tokens at which an answer may be (B, L): [CLS], which means no answer, and the context."""
    positions = torch.arange(tokens, device=header.device)
    last = lengths.to(header.device) - 1
    context = (positions >= header[:, None]) & (positions < last[:, None])
    return context | (positions == 0)


class AnswersObjective(RecordsObjective):
    """The sum of the heads' losses, as a mean over the windows of the global batch.

    A record contributes one window per epoch, drawn with probability 0.5 from those with part of the answer.
    """

    def __init__(self, task: "QuestionAnswering", world: World) -> None:
        super().__init__(task, world)
        self.settings, self.reader = task.settings, task.reader

    def batch(self, step: int, first: int, count: int) -> Batch:
        """Return windows of records of a training step, in an order drawn per epoch."""
        start = step * self.config.batch_size + first
        rows = []
        for offset, record in enumerate(self.examples(step, first, count)):
            rng = np.random.default_rng((self.config.seed, 3, start + offset))
            document = self.reader.tokenize(record)
            labels = true_labels(document, self.settings)
            window = choose_window(self.reader.windows(document), labels, document, rng)
            rows.append((self.reader.window_input(document, window), labels))
        batch = self.reader.collate([row for row, _ in rows])
        return {**batch, **window_labels(rows, self.settings)}

    def part(self, batch: Batch, rows: Tensor) -> Batch:
        return select_rows(batch, rows)

    def counts(self, batch: Batch) -> dict[str, float]:
        return {"windows": float(len(batch["ids"]))}

    def loss(
        self, network: nn.Module, batch: Batch, totals: dict[str, float]
    ) -> Tensor:
        """Return the mean of all losses over the global batch, in nats per window."""
        output = network(*network_input(batch))
        assert isinstance(output, AnswerOutput)
        if self.settings.form == "wikihop":
            assert output.anchors is not None
            # The unused scores take part, so that every weight has a gradient.
            total = candidate_loss(output.anchors, batch["anchor_labels"])
            return (total + output.spans.sum() * 0) / totals["windows"]
        tokens = batch["ids"].shape[1]
        allowed = allowed_tokens(batch["lengths"], batch["header"], tokens)
        start, end, *long = output.spans.unbind(-1)
        total = span_loss(start, end, batch["spans"], allowed)
        if long:
            total = total + span_loss(long[0], long[1], batch["long_spans"], allowed)
        if output.types is not None:
            total = total + F.cross_entropy(
                output.types.float(), batch["types"], ignore_index=-1, reduction="sum"
            )
        if output.anchors is not None:
            facts = facts_loss(output.anchors, batch["anchor_labels"])
            total = total + self.task.section.facts_weight * facts
        return total / totals["windows"]

    def metrics(self, network: Any) -> dict[str, float]:
        rank, size = self.world.rank, self.world.size
        batch_size = min(64, self.config.batch_size)
        lines = list(
            predict_answers(
                network,
                self.valid[rank::size],
                self.reader,
                self.world.device,
                batch_size,
            )
        )
        predictions = {
            line["id"]: line for part in self.world.gather(lines) for line in part
        }
        pairs = [(record, predictions[record.id]) for record in self.valid]
        return official_metrics(self.settings.form, pairs)


class Answer(Prediction):
    """A line of a file of predictions; keys not used by the record's form are omitted."""

    answer: str
    paragraph: int | None = None
    start: int | None = None
    score: float | None = None
    type: str | None = None
    facts: tuple[tuple[int, int], ...] = ()
    long_answer: int | None = None
    long_score: float | None = None


class QuestionAnswering(TextTask):
    """Predicts an answer to each question, its position in the source, and other outputs of the form."""

    kind = "qa"
    section: AnswersTaskConfig
    record_type = QuestionRecord
    prediction_type = Answer
    settings_type = LongAnswersSettings
    objective_type = AnswersObjective

    @property
    def settings(self) -> LongAnswersSettings:
        keys = {*LongAnswersSettings.model_fields}
        return LongAnswersSettings(**self.section.model_dump(include=keys))

    @property
    def reader(self) -> AnswerReader:
        """Converter of records to inputs of the network."""
        return AnswerReader(
            self.tokenizer, self.settings, self.encoder.num_global_tokens
        )

    def identity(self) -> dict[str, Any]:
        return {
            **super().identity(),
            "settings": self.settings.as_json(),
            "facts_weight": self.section.facts_weight,
        }

    def check(self) -> None:
        super().check()
        self.reader.check_room(self.records, self.files["train"])
        self.reader.check_room(self.watched, self.files["valid"])

    def describe(self, network: nn.Module) -> str:
        return f"{len(self.records):,} questions of form {self.section.form}"

    def convert(self, row: Mapping[str, Any]) -> dict[str, Any] | None:
        """Convert a row of HotpotQA, Natural Questions, TriviaQA or WikiHop, by the section's `form`."""
        return public_record(self.section.form, row)

    def generate(self, generated: GeneratedConfig, split: str) -> Lines:
        """Generate documents with facts on several names; the question is one of the names."""
        return generate_questions(generated, split, self.section)

    def read(self, path: Path) -> Iterator[Record]:
        """Read records, or, if `public` is set, the records of the data set's own file."""
        if self.section.public:
            return read_public(self.section.form, path)
        return super().read(path)

    def missing(self, record: QuestionRecord) -> str | None:
        form = self.section.form
        if form == "hotpotqa":
            may_lack = record.type in ("yes", "no")
        else:
            may_lack = self.section.unanswerable or form == "natural_questions"
        if not record.answers and not may_lack:
            return "answer"
        if form == "wikihop" and len(record.candidates) < 2:
            return "two candidates to choose from"
        return None

    def predictions(
        self, model: Any, records: Any, source: Path, device: Any, batch_size: int
    ) -> Lines:
        """Yield each record's answer; records without room for their paragraphs raise an error in advance."""
        extra = model.config.num_global_tokens
        reader = AnswerReader(model.tokenizer, model.settings, extra)
        reader.check_room(records, source)
        yield from predict_answers(model.network, records, reader, device, batch_size)

    def metrics(
        self, records: Sequence[QuestionRecord], predictions: Sequence[Answer]
    ) -> Metrics:
        """Return the official metrics of the data set of the section's `form`."""
        lines = [prediction.model_dump() for prediction in predictions]
        pairs = list(zip(records, lines, strict=True))
        return official_metrics(self.section.form, pairs)
