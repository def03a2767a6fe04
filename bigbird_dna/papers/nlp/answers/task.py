"""Question answering in long documents: training, prediction and the official figures (App. E.2).

The words of an answer are found in a text whatever its case, punctuation and articles are: distant
supervision of TriviaQA goes by all places of all aliases. Losses of the heads are in nats, each summed over
the rows of a batch. Axes: B rows, L tokens, S spans, A anchors.
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
from bigbird_dna.papers.nlp.answers.metrics import ARTICLES, normalized, official_metrics
from bigbird_dna.papers.nlp.answers.public import public_record, read_public
from bigbird_dna.papers.nlp.answers.reading import read_answers
from bigbird_dna.papers.nlp.config import AnswersTaskConfig, GeneratedConfig
from bigbird_dna.papers.nlp.loading import generate_questions
from bigbird_dna.papers.nlp.records import QuestionRecord, Record
from bigbird_dna.papers.nlp.task import Lines, Metrics, RecordsObjective, TextTask
from bigbird_dna.training.distributed import World
from bigbird_dna.training.loop import Batch

_WORD = re.compile(r"\S+")


def places_of(answers: Iterable[str], text: str, most_words: int) -> list[tuple[int, int]]:
    """Characters `start … end` of answers of at most `most_words` words, in the text's order, each once.

    Words are compared in lower case, by their letters and digits alone; articles count nowhere. A place
    begins and ends at letters that were compared: marks around it are left out.
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
    """Words as they are compared, with the characters that they were made of."""
    for match in _WORD.finditer(text):
        letters = [place for place, one in enumerate(match.group()) if one.isalnum()]
        bare = "".join(match.group()[place] for place in letters).lower()
        if not bare or bare in ARTICLES:
            continue
        yield bare, (match.start() + letters[0], match.start() + letters[-1] + 1)


NULL = TokenSpan(0, 0)
"""[CLS]: no answer stands in the window."""


@dataclass(frozen=True, eq=False)
class TrueLabels:
    """What a document's record says of the answer, by tokens of the context."""

    spans: tuple[TokenSpan, ...]
    long: TokenSpan | None
    type: str | None
    facts: frozenset[tuple[int, int]]
    candidate: int | None


def known_of(document: TokenizedRecord, settings: LongAnswersSettings) -> TrueLabels:
    """The places of all answers; those without a place stand wherever their words do (TriviaQA)."""
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
    """Whether anything of what is asked for stands in a window."""
    if known.spans or known.long:
        return any(_inside(span, window) for span in (*known.spans, *filter(None, [known.long])))
    facts = ((paragraph, sentence) for paragraph, sentence, _ in document.sentences(window))
    return not known.facts or not known.facts.isdisjoint(facts)


def labels_of(rows: Sequence[tuple[WindowInput, TrueLabels, Window]], settings: LongAnswersSettings) -> Batch:
    """What is to be learnt from rows: `spans` (B, S) as start · 2^20 + end, `types` (B,) and so on.

    -1 stands for nothing: no further span, an unknown type, an anchor that isn't there.
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
    found = [TokenSpan(one.first + shift, one.last + shift) for one in spans if _inside(one, window)]
    return [packed(one) for one in found or [NULL]]


def packed(span: TokenSpan) -> int:
    """A span as one number, so that rows of them are padded as other numbers are."""
    return (span.first << 20) + span.last


def unpacked(spans: Tensor) -> tuple[Tensor, Tensor]:
    """First and last tokens of packed spans; 0 of what is -1."""
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
    windows: Sequence[Window], known: TrueLabels, document: TokenizedRecord, rng: np.random.Generator
) -> Window:
    """One window of a document: half of the time one of those that tell something, if there are any."""
    if len(windows) == 1:
        return windows[0]
    holding = [window for window in windows if holds_answer(known, document, window)]
    drawn = holding if holding and rng.random() < 0.5 else windows
    return drawn[int(rng.integers(len(drawn)))]


def span_loss(start: Tensor, end: Tensor, spans: Tensor, allowed: Tensor) -> Tensor:
    """-ln Σ P(start) P(end) over the spans of each row (B, S; packed, -1: none), summed over rows.

    With one span a row that is the cross-entropy of its start and of its end; with several, any of them may
    be the one that is meant (the noisy span loss of TriviaQA). `allowed` (B, L) are the tokens that an
    answer may begin or end at.
    """
    starts, ends = (
        scores.float().masked_fill(~allowed, float("-inf")).log_softmax(-1) for scores in (start, end)
    )
    first, last = unpacked(spans)
    each = starts.gather(1, first) + ends.gather(1, last)  # (B, S)
    return -each.masked_fill(spans < 0, float("-inf")).logsumexp(1).sum()


def facts_loss(scores: Tensor, labels: Tensor) -> Tensor:
    """Binary cross-entropy of sentences (B, A) against whether they support the answer; -1: none there."""
    loss = F.binary_cross_entropy_with_logits(scores.float(), labels.clamp(min=0).float(), reduction="none")
    return loss.masked_fill(labels < 0, 0).sum()


def candidate_loss(scores: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy of the right one among candidates (B, A); rows where none is right count nothing."""
    there = (labels == 1).any(1)
    chances = scores.float().masked_fill(labels < 0, float("-inf"))[there].log_softmax(-1)
    return -chances[labels[there] == 1].sum() if there.any() else scores.sum() * 0


def allowed_tokens(lengths: Tensor, asked: Tensor, tokens: int) -> Tensor:
    """Where an answer may stand (B, L): [CLS], which says that there is none, and the context."""
    places = torch.arange(tokens, device=asked.device)
    context = (places >= asked[:, None]) & (places < (lengths.to(asked.device) - 1)[:, None])
    return context | (places == 0)


class AnswersObjective(RecordsObjective["QuestionAnswering"]):
    """The sum of the heads' losses, a mean over the windows of the global batch.

    A record gives one window a time, which is drawn: half of the time one that holds what is asked for.
    """

    def __init__(self, task: "QuestionAnswering", world: World) -> None:
        super().__init__(task, world)
        self.settings, self.reader = task.settings, task.reader

    def batch(self, step: int, first: int, count: int) -> Batch:
        """Windows of records of a training step, in an order drawn for each epoch."""
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
            types = output.types.float()
            total = total + F.cross_entropy(types, batch["types"], ignore_index=-1, reduction="sum")
        if output.anchors is not None:
            total = total + self.task.section.facts_weight * facts_loss(
                output.anchors, batch["anchor_labels"]
            )
        return total / totals["windows"]

    def metrics(self, network: Any) -> dict[str, float]:
        own = self.valid[self.world.rank :: self.world.size]
        batch_size = min(64, self.config.batch_size)
        lines = [*read_answers(network, own, self.reader, self.world.device, batch_size)]
        predicted = {line["id"]: line for part in self.world.gather(lines) for line in part}
        return official_metrics(self.settings.form, [(record, predicted[record.id]) for record in self.valid])


class Answer(Record):
    """A line of a file of predictions; what a record's form doesn't ask for is left out."""

    answer: str
    paragraph: int | None = None
    start: int | None = None
    score: float | None = None
    type: str | None = None
    facts: tuple[tuple[int, int], ...] = ()
    long_answer: int | None = None
    long_score: float | None = None


class QuestionAnswering(TextTask[AnswersTaskConfig, QuestionRecord, Answer]):
    """An answer to each question, its place in the source, and what else the form asks for."""

    kind = "qa"
    record_type = QuestionRecord
    prediction_type = Answer
    predicted_key = "answer"
    settings_type = LongAnswersSettings
    model_name = "a model of long answers"
    objective_type = AnswersObjective

    @property
    def settings(self) -> LongAnswersSettings:
        keys = ("form", "length", "stride", "question_tokens", "answer_words", "unanswerable")
        return LongAnswersSettings(**{key: getattr(self.section, key) for key in keys})

    @property
    def reader(self) -> AnswerReader:
        """How records become rows of the network."""
        return AnswerReader(self.tokenizer, self.settings, self.encoder.num_global_tokens)

    def identity(self) -> dict[str, Any]:
        own = {"settings": self.settings.as_json(), "facts_weight": self.section.facts_weight}
        return {**super().identity(), **own}

    def check(self) -> None:
        super().check()
        for records, path in zip((self.records, self.watched), self.inputs, strict=True):
            self.reader.check_room(records, path)

    def describe(self, network: nn.Module) -> str:
        return f"{len(self.records):,} questions of form {self.section.form}"

    def record(self, row: Mapping[str, Any]) -> dict[str, Any] | None:
        """A row of HotpotQA, the Natural Questions, TriviaQA or WikiHop, as the section's `form` says."""
        return public_record(self.section.form, row)

    def generate(self, generated: GeneratedConfig, split: str) -> Lines:
        """Documents that tell of several names; the question is one of them."""
        section = self.section
        return generate_questions(generated, split, section.form, section.hops, section.unanswerable)

    def read(self, path: Path) -> Iterator[Record]:
        """Records, or where the section says so those of the data set's own file."""
        return read_public(self.section.form, path) if self.section.public else super().read(path)

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

    def predictions(self, model: Any, records: Any, source: Path, device: Any, batch_size: int) -> Lines:
        """Each record's answer; records without room for their paragraphs are told beforehand."""
        reader = AnswerReader(model.tokenizer, model.settings, model.config.num_global_tokens)
        reader.check_room(records, source)
        yield from read_answers(model.network, records, reader, device, batch_size)

    def metrics(self, records: Sequence[QuestionRecord], predictions: Sequence[Answer]) -> Metrics:
        """The official metrics of the data set that the section's `form` names."""
        predicted = (one.model_dump() for one in predictions)
        return official_metrics(self.section.form, [*zip(records, predicted, strict=True)])


TASK = QuestionAnswering
