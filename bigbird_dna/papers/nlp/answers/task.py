"""Question answering in long documents: training, prediction and the official metrics (App. E.2).

Words of an answer are found in a text independent of case, punctuation and articles: distant supervision of
TriviaQA uses all occurrences of all aliases. Losses of the heads are in nats, each summed over the rows of a
batch. Axes: B rows, L tokens, S spans, A anchors.
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

from bigbird_dna.papers.nlp.answers.documents import (
    AnswerOutput,
    AnswerReader,
    LongAnswersSettings,
    TokenizedRecord,
    TokenSpan,
    Window,
    WindowInput,
    filled,
    network_input,
    some_rows,
)
from bigbird_dna.papers.nlp.answers.metrics import (
    ARTICLES,
    normalized,
    official_metrics,
)
from bigbird_dna.papers.nlp.answers.public import public_record, read_public
from bigbird_dna.papers.nlp.answers.reading import read_answers
from bigbird_dna.papers.nlp.config import AnswersTaskConfig, GeneratedConfig
from bigbird_dna.papers.nlp.loading import generate_questions
from bigbird_dna.papers.nlp.records import QuestionRecord, Record
from bigbird_dna.papers.nlp.task import Lines, Metrics, RecordsObjective, TextTask
from bigbird_dna.training.distributed import World
from bigbird_dna.training.loop import Batch

_WORD = re.compile(r"\S+")


def places_of(
    answers: Iterable[str], text: str, most_words: int
) -> list[tuple[int, int]]:
    """Return the distinct character ranges of answers of at most `most_words` words, in text order.

    Words are compared in lower case, by letters and digits only; articles are ignored. A range begins and
    ends at compared characters, without surrounding punctuation.
    """
    sought: dict[str, set[tuple[str, ...]]] = {}
    for answer in answers:
        words = tuple(word for word, _ in _words(answer))
        if words and len(words) <= most_words:
            sought.setdefault(words[0], set()).add(words)
    found = [*_words(text)]
    places = set()
    for number, (word, place) in enumerate(found):
        for words in sought.get(word, ()):
            there = found[number : number + len(words)]
            if tuple(one for one, _ in there) == words:
                places.add((place[0], there[-1][1][1]))
    return sorted(places)


def _words(text: str) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield words in the form for comparison, with their character ranges."""
    for match in _WORD.finditer(text):
        letters = [place for place, one in enumerate(match.group()) if one.isalnum()]
        bare = "".join(match.group()[place] for place in letters).lower()
        if not bare or bare in ARTICLES:
            continue
        yield bare, (match.start() + letters[0], match.start() + letters[-1] + 1)


NULL = TokenSpan(0, 0)
"""[CLS]: the window contains no answer."""


@dataclass(frozen=True, eq=False)
class TrueLabels:
    """True answer of a document's record, in tokens of the context."""

    spans: tuple[TokenSpan, ...]
    long: TokenSpan | None
    type: str | None
    facts: frozenset[tuple[int, int]]
    candidate: int | None


def known_of(document: TokenizedRecord, settings: LongAnswersSettings) -> TrueLabels:
    """Return the positions of all answers; answers without a position match all occurrences (TriviaQA)."""
    record, spans = document.record, []
    if settings.form != "wikihop" and record.type not in ("yes", "no"):
        for answer in record.answers:
            if answer.paragraph is not None and answer.start is not None:
                end = answer.start + len(answer.text)
                spans.append(document.span(answer.paragraph, answer.start, end))
        if not spans:
            texts = [answer.text for answer in record.answers]
            for number, text in enumerate(document.texts):
                places = places_of(texts, text, settings.answer_words)
                spans += [document.span(number, *place) for place in places]
    long = record.long_answer
    answers = {normalized(answer.text) for answer in record.answers}
    names = map(normalized, record.candidates if settings.form == "wikihop" else ())
    return TrueLabels(
        tuple(sorted({span for span in spans if span is not None})),
        None if long is None else document.span(long, 0, len(document.texts[long])),
        record.type,
        frozenset((fact.paragraph, fact.sentence) for fact in record.facts),
        next((number for number, name in enumerate(names) if name in answers), None),
    )


def holds_answer(known: TrueLabels, document: TokenizedRecord, window: Window) -> bool:
    """Return whether a window contains any part of the true answer."""
    if known.spans or known.long:
        return any(
            _inside(span, window)
            for span in (*known.spans, *filter(None, [known.long]))
        )
    facts = (
        (paragraph, sentence) for paragraph, sentence, _ in document.sentences(window)
    )
    return not known.facts or not known.facts.isdisjoint(facts)


def labels_of(
    rows: Sequence[tuple[WindowInput, TrueLabels, Window]],
    settings: LongAnswersSettings,
) -> Batch:
    """Return the labels of rows: `spans` (B, S) as start · 2^20 + end, `types` (B,), and so on.

    -1 means missing: no further span, an unknown type, or an anchor that does not exist.
    """
    spans, longs, types, anchors = [], [], [], []
    for row, known, window in rows:
        shift = row.asked - window.begin
        spans.append(_targets(known.spans, window, shift))
        longs.append(_targets([known.long] if known.long else [], window, shift))
        types.append(_type(known, window, settings))
        if known.candidate is None:
            anchors.append([int(name in known.facts) for name in row.anchor_of])
        else:
            anchors.append([int(name[0] == known.candidate) for name in row.anchor_of])
    return {
        "spans": filled(spans),
        "long_spans": filled(longs),
        "types": torch.tensor(types),
        "anchor_labels": filled(anchors),
    }


def _inside(span: TokenSpan, window: Window) -> bool:
    return window.begin <= span.first and span.last < window.end


def _targets(spans: Sequence[TokenSpan], window: Window, shift: int) -> list[int]:
    found = [
        TokenSpan(one.first + shift, one.last + shift)
        for one in spans
        if _inside(one, window)
    ]
    return [packed(one) for one in found or [NULL]]


def packed(span: TokenSpan) -> int:
    """Pack a span into one number, so that rows of spans are padded like other numbers."""
    return (span.first << 20) + span.last


def unpacked(spans: Tensor) -> tuple[Tensor, Tensor]:
    """Return first and last tokens of packed spans; 0 for -1."""
    kept = spans.clamp(min=0)
    return kept >> 20, kept & ((1 << 20) - 1)


def _type(known: TrueLabels, window: Window, settings: LongAnswersSettings) -> int:
    if known.type not in settings.types:
        return -1
    there = known.long is None or _inside(known.long, window)
    if settings.form == "natural_questions" and not there:
        return settings.types.index("null")
    return settings.types.index(known.type)


def choose_window(
    windows: Sequence[Window],
    known: TrueLabels,
    document: TokenizedRecord,
    rng: np.random.Generator,
) -> Window:
    """Choose a window of a document: with probability 0.5, one with part of the answer, if there is any."""
    if len(windows) == 1:
        return windows[0]
    holding = [window for window in windows if holds_answer(known, document, window)]
    drawn = holding if holding and rng.random() < 0.5 else windows
    return drawn[int(rng.integers(len(drawn)))]


def span_loss(start: Tensor, end: Tensor, spans: Tensor, allowed: Tensor) -> Tensor:
    """Return -ln Σ P(start) P(end) over the spans of each row (B, S; packed, -1: none), summed over rows.

    With one span per row, this is the cross-entropy of its start and of its end. With several, any of them
    may be the correct one (noisy span loss of TriviaQA). `allowed` (B, L) marks tokens at which an answer may
    begin or end.
    """
    starts, ends = (
        scores.float().masked_fill(~allowed, float("-inf")).log_softmax(-1)
        for scores in (start, end)
    )
    first, last = unpacked(spans)
    each = starts.gather(1, first) + ends.gather(1, last)  # (B, S)
    return -each.masked_fill(spans < 0, float("-inf")).logsumexp(1).sum()


def facts_loss(scores: Tensor, labels: Tensor) -> Tensor:
    """Return the binary cross-entropy of sentences (B, A) as supporting facts; label -1: no sentence."""
    loss = F.binary_cross_entropy_with_logits(
        scores.float(), labels.clamp(min=0).float(), reduction="none"
    )
    return loss.masked_fill(labels < 0, 0).sum()


def candidate_loss(scores: Tensor, labels: Tensor) -> Tensor:
    """Return the cross-entropy of the correct candidate (B, A); rows without a correct one are ignored."""
    there = (labels == 1).any(1)
    chances = (
        scores.float().masked_fill(labels < 0, float("-inf"))[there].log_softmax(-1)
    )
    return -chances[labels[there] == 1].sum() if there.any() else scores.sum() * 0


def allowed_tokens(lengths: Tensor, asked: Tensor, tokens: int) -> Tensor:
    """Return the tokens at which an answer may be (B, L): [CLS], which means no answer, and the context."""
    places = torch.arange(tokens, device=asked.device)
    context = (places >= asked[:, None]) & (
        places < (lengths.to(asked.device) - 1)[:, None]
    )
    return context | (places == 0)


class AnswersObjective(RecordsObjective["QuestionAnswering"]):
    """The sum of the heads' losses, as a mean over the windows of the global batch.

    A record contributes one window per epoch, drawn with probability 0.5 from those with part of the answer.
    """

    def __init__(self, task: "QuestionAnswering", world: World) -> None:
        super().__init__(task, world)
        self.settings, self.reader = task.settings, task.reader

    def batch(self, step: int, first: int, count: int) -> Batch:
        """Return windows of records of a training step, in an order drawn per epoch."""
        place = step * self.config.batch_size + first
        chosen = []
        for offset, index in enumerate(self.drawn(step, first, count)):
            rng = np.random.default_rng((self.config.seed, 3, place + offset))
            document = self.reader.document(self.train[index])
            known = known_of(document, self.settings)
            window = choose_window(self.reader.windows(document), known, document, rng)
            chosen.append((self.reader.row(document, window), known, window))
        batch = self.reader.collate([row for row, *_ in chosen])
        return {**batch, **labels_of(chosen, self.settings)}

    def part(self, batch: Batch, rows: Tensor) -> Batch:
        return some_rows(batch, rows)

    def counts(self, batch: Batch) -> dict[str, float]:
        return {"windows": float(len(batch["ids"]))}

    def loss(
        self, network: nn.Module, batch: Batch, totals: dict[str, float]
    ) -> Tensor:
        """Return the mean of all losses over the global batch, in nats per window."""
        output = network(*network_input(batch))
        assert isinstance(output, AnswerOutput)
        total = torch.zeros((), device=batch["ids"].device)
        if self.settings.form == "wikihop":
            assert output.anchors is not None
            total = (
                total
                + candidate_loss(output.anchors, batch["anchor_labels"])
                + output.marks.sum() * 0
            )
            return total / totals["windows"]
        allowed = allowed_tokens(
            batch["lengths"], batch["asked"], batch["ids"].shape[1]
        )
        start, end, *long = output.marks.unbind(-1)
        total = total + span_loss(start, end, batch["spans"], allowed)
        if long:
            total = total + span_loss(long[0], long[1], batch["long_spans"], allowed)
        if output.types is not None:
            types = output.types.float()
            total = total + F.cross_entropy(
                types, batch["types"], ignore_index=-1, reduction="sum"
            )
        if output.anchors is not None:
            total = total + self.task.section.facts_weight * facts_loss(
                output.anchors, batch["anchor_labels"]
            )
        return total / totals["windows"]

    def metrics(self, network: Any) -> dict[str, float]:
        own = self.valid[self.world.rank :: self.world.size]
        batch_size = min(64, self.config.batch_size)
        lines = [
            *read_answers(network, own, self.reader, self.world.device, batch_size)
        ]
        predicted = {
            line["id"]: line for part in self.world.gather(lines) for line in part
        }
        return official_metrics(
            self.settings.form,
            [(record, predicted[record.id]) for record in self.valid],
        )


class Answer(Record):
    """A line of a file of predictions; keys not used by the record's form are omitted."""

    answer: str
    paragraph: int | None = None
    start: int | None = None
    score: float | None = None
    type: str | None = None
    facts: tuple[tuple[int, int], ...] = ()
    long_answer: int | None = None
    long_score: float | None = None


class QuestionAnswering(TextTask[AnswersTaskConfig, QuestionRecord, Answer]):
    """Predicts an answer to each question, its position in the source, and other outputs of the form."""

    kind = "qa"
    record_type = QuestionRecord
    prediction_type = Answer
    predicted_key = "answer"
    settings_type = LongAnswersSettings
    model_name = "a question-answering model"
    objective_type = AnswersObjective

    @property
    def settings(self) -> LongAnswersSettings:
        keys = (
            "form",
            "length",
            "stride",
            "question_tokens",
            "answer_words",
            "unanswerable",
        )
        return LongAnswersSettings(**{key: getattr(self.section, key) for key in keys})

    @property
    def reader(self) -> AnswerReader:
        """Converter of records to rows of the network."""
        return AnswerReader(
            self.tokenizer, self.settings, self.encoder.num_global_tokens
        )

    def identity(self) -> dict[str, Any]:
        own = {
            "settings": self.settings.as_json(),
            "facts_weight": self.section.facts_weight,
        }
        return {**super().identity(), **own}

    def check(self) -> None:
        super().check()
        for records, path in zip(
            (self.records, self.watched), self.inputs, strict=True
        ):
            self.reader.check_room(records, path)

    def describe(self, network: nn.Module) -> str:
        return f"{len(self.records):,} questions of form {self.section.form}"

    def record(self, row: Mapping[str, Any]) -> dict[str, Any] | None:
        """Convert a row of HotpotQA, Natural Questions, TriviaQA or WikiHop, by the section's `form`."""
        return public_record(self.section.form, row)

    def generate(self, generated: GeneratedConfig, split: str) -> Lines:
        """Generate documents with facts on several names; the question is one of the names."""
        section = self.section
        return generate_questions(
            generated, split, section.form, section.hops, section.unanswerable
        )

    def read(self, path: Path) -> Iterator[Record]:
        """Read records, or, if `public` is set, the records of the data set's own file."""
        return (
            read_public(self.section.form, path)
            if self.section.public
            else super().read(path)
        )

    def lacking(self, record: QuestionRecord) -> str | None:
        form = self.section.form
        if form == "hotpotqa":
            answerless = record.type in ("yes", "no")
        else:
            answerless = self.section.unanswerable or form == "natural_questions"
        if not record.answers and not answerless:
            return "answer"
        if form == "wikihop" and len(record.candidates) < 2:
            return "two candidates to choose from"
        return None

    def predictions(
        self, model: Any, records: Any, source: Path, device: Any, batch_size: int
    ) -> Lines:
        """Yield each record's answer; records without room for their paragraphs raise an error in advance."""
        reader = AnswerReader(
            model.tokenizer, model.settings, model.config.num_global_tokens
        )
        reader.check_room(records, source)
        yield from read_answers(model.network, records, reader, device, batch_size)

    def metrics(
        self, records: Sequence[QuestionRecord], predictions: Sequence[Answer]
    ) -> Metrics:
        """Return the official metrics of the data set of the section's `form`."""
        predicted = (one.model_dump() for one in predictions)
        return official_metrics(
            self.section.form, [*zip(records, predicted, strict=True)]
        )


TASK = QuestionAnswering
