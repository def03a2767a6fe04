"""Question answering in long documents: network, windows of records, prediction and training (App. E.2).

A record is tokenized with character offsets and divided into windows, which the network scores. The scores of
all windows are combined to a prediction. Axes: N tokens of the context; in batches, B rows, L tokens, G extra
globals, D hidden width, S spans, A anchors (sentences or candidates that are scored).
"""

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from bigbird_dna.config.network import EncoderConfig
from bigbird_dna.errors import DataError
from bigbird_dna.model.batching import pad
from bigbird_dna.model.heads import QuestionAnswerer
from bigbird_dna.model.input_embeddings import Globals, initialize
from bigbird_dna.model.settings import OtherSettings, Task, register_settings
from bigbird_dna.papers.nlp.config import (
    LEAST_CONTEXT,
    AnswerForm,
    AnswersTaskConfig,
    GeneratedConfig,
)
from bigbird_dna.papers.nlp.data import generate_questions
from bigbird_dna.papers.nlp.public import public_record, read_public
from bigbird_dna.papers.nlp.question_metrics import normalize_answer, official_metrics
from bigbird_dna.papers.nlp.records import Prediction, QuestionRecord, Record
from bigbird_dna.papers.nlp.task import Lines, Metrics, RecordsObjective, TextTask
from bigbird_dna.tokens.interface import Tokenizer
from bigbird_dna.training.distributed import World
from bigbird_dna.training.loop import Batch, on_device, take_rows

TYPES: dict[AnswerForm, tuple[str, ...]] = {
    "hotpotqa": ("span", "yes", "no"),
    "natural_questions": ("null", "yes", "no", "short", "long"),
}
"""Answer types predicted by a head on [CLS]."""

UNUSED, CLS, QUESTION, PARAGRAPH, SENTENCE, CANDIDATE = range(6)
"""Kinds of extra globals; those of question tokens and [CLS] also have a token embedding."""

CANDIDATE_TOKENS = 16
TITLE = -1
"""Sentence number of a title's tokens, which contain no answer."""
BEGINNINGS = 20
"""Number of best-scoring tokens of a window that are tried as the beginning of an answer."""

Span = tuple[int, int]
"""First and last token of the context."""
Scores = NDArray[np.float64]


class LongAnswersSettings(OtherSettings):
    """Settings of a model that answers questions in long documents."""

    task: ClassVar[Task] = "long-answers"
    form: AnswerForm
    length: int = Field(ge=32, description="tokens per input")
    stride: int = Field(
        ge=1, description="distance in tokens between consecutive inputs"
    )
    question_tokens: int = Field(ge=1)
    answer_words: int = Field(ge=1)

    @property
    def types(self) -> tuple[str, ...]:
        """Answer types, in the order of the head's outputs."""
        return TYPES.get(self.form, ())

    def build(self, config: EncoderConfig) -> Any:
        return AnswerNetwork(config, self.form)


register_settings(LongAnswersSettings)


class AnswerOutput(NamedTuple):
    """Unnormalized scores; None if the network has no such head."""

    spans: Tensor  # (B, L, 2 or 4): start and end, and those of the long answer
    types: Tensor | None  # (B, types)
    anchors: Tensor | None  # (B, A)


class AnswerNetwork(QuestionAnswerer):
    """`QuestionAnswerer` with additional heads, and extra globals that represent parts of the input.

    The two scores of a token are those of HuggingFace's BigBirdForQuestionAnswering, with compatible weights.
    Natural Questions have two more for long answers. The type is predicted from [CLS]. With extra globals,
    [CLS] and the anchors (HotpotQA: sentences, WikiHop: candidates) are among them; without, an anchor is the
    first token of its sentence or candidate.
    """

    def __init__(self, config: EncoderConfig, form: AnswerForm) -> None:
        super().__init__(config)
        hidden, types = config.hidden, len(TYPES.get(form, ()))
        has_long = form == "natural_questions"
        has_anchors = form in ("hotpotqa", "wikihop")
        self.long_spans = nn.Linear(hidden, 2) if has_long else None
        self.types = nn.Linear(hidden, types) if types else None
        self.anchors = nn.Linear(hidden, 1) if has_anchors else None
        self.kinds = None
        if config.num_global_tokens:
            self.kinds = nn.Embedding(CANDIDATE + 1, hidden)
        for head in (self.long_spans, self.types, self.anchors, self.kinds):
            if head is not None:
                initialize(head, hidden)

    def forward(  # type: ignore[override]
        self,
        ids: Tensor,
        lengths: Tensor,
        header: Tensor,
        anchors: Tensor,
        global_ids: Tensor | None = None,
        global_kinds: Tensor | None = None,
        owners: Tensor | None = None,
    ) -> AnswerOutput:
        """Return the scores of ids (B, L) with true lengths (B,).

        `header` (B,) are the tokens of [CLS], question, [SEP] and candidates, which contain no answer.
        `anchors` (B, A) are positions among extra globals and tokens, -1: none. With extra globals,
        `global_ids` (B, G) are tokens of [CLS] and question, -1: none; `global_kinds` (B, G) their kinds, and
        `owners` (B, L) as in `Globals.owners`.
        """
        in_header = torch.arange(ids.shape[1], device=ids.device) < header[:, None]
        extra = None
        if self.kinds is not None:
            assert global_ids is not None and owners is not None
            content = self.encoder.embeddings.token(global_ids.clamp(min=0))
            content = content * (global_ids >= 0)[..., None]
            extra = Globals(content + self.kinds(global_kinds), owners)
        encoded = self.encoder.encode(ids, lengths, (~in_header).long(), extra)
        hidden = torch.cat(encoded, dim=1)  # (B, G + L, D)
        first = self.dropout(hidden[:, 0])
        anchor_scores = None
        if self.anchors is not None:
            positions = anchors.clamp(min=0)[..., None]
            chosen = hidden.gather(1, positions.expand(-1, -1, hidden.shape[2]))
            anchor_scores = self.anchors(self.dropout(chosen))[..., 0]
        spans = self.scores(encoded.tokens, in_header)
        if self.long_spans is not None:
            long = self.long_spans(self.dropout(encoded.tokens))
            spans = torch.cat([spans, long], dim=-1)
        types = None if self.types is None else self.types(first)
        return AnswerOutput(spans, types, anchor_scores)


@dataclass(frozen=True, eq=False)
class Document:
    """A tokenized record; offsets are characters in the paragraph of a token, or in its title."""

    record: QuestionRecord
    question: list[int]
    candidates: list[list[int]]
    ids: NDArray[np.int64]  # (N,)
    paragraph: NDArray[np.int64]  # (N,)
    sentence: NDArray[np.int64]  # (N,) number within the paragraph, or `TITLE`
    start: NDArray[np.int64]  # (N,) without white space before a word
    end: NDArray[np.int64]  # (N,)
    word: NDArray[np.int64]  # (N,) number of its word in the paragraph

    @property
    def header(self) -> int:
        """Tokens of [CLS], the question, the candidates, and a [SEP] after each."""
        return len(self.question) + 2 + sum(len(ids) + 1 for ids in self.candidates)

    def span(self, paragraph: int, start: int, end: int) -> Span | None:
        """Return the tokens that contain characters of a paragraph; None if there are none."""
        inside = (self.paragraph == paragraph) & (self.sentence != TITLE)
        tokens = np.flatnonzero(inside & (self.start < end) & (self.end > start))
        return (int(tokens[0]), int(tokens[-1])) if len(tokens) else None

    def answer(self, span: Span, score: float) -> dict[str, Any]:
        """Return the text of a span, as in the source, its position and its score."""
        first, last = span
        paragraph, start = int(self.paragraph[first]), int(self.start[first])
        text = self.record.paragraph_texts[paragraph][start : int(self.end[last])]
        return {"answer": text, "paragraph": paragraph, "start": start, "score": score}


@dataclass(frozen=True, eq=False)
class WindowInput:
    """Tokens `begin … end` of a context after the header, as input of the network."""

    begin: int
    end: int
    ids: NDArray[np.int64]
    header: int
    anchors: list[int]  # positions among extra globals and tokens
    anchor_names: list[tuple[int, int]]  # paragraph and sentence, or candidate and 0
    global_ids: NDArray[np.int64]
    global_kinds: NDArray[np.int64]
    owners: NDArray[np.int64]

    @property
    def shift(self) -> int:
        """From tokens of the context to those of the input."""
        return self.header - self.begin

    def contains(self, span: Span) -> bool:
        return self.begin <= span[0] and span[1] < self.end


@dataclass(frozen=True)
class AnswerReader:
    """Converts records to inputs, with a tokenizer, settings of inputs, and `extra` globals."""

    tokenizer: Tokenizer
    settings: LongAnswersSettings
    extra: int = 0

    def tokenize(self, record: QuestionRecord) -> Document:
        """Tokenize a record; a question or candidate that is too long is cut."""
        rows: list[tuple[int, ...]] = []
        for number, paragraph in enumerate(record.paragraphs):
            ends = [*accumulate(map(len, paragraph.sentences))]
            for text, is_title in (
                (paragraph.title, True),
                ("".join(paragraph.sentences), False),
            ):
                words = [match.start() for match in re.finditer(r"\S+", text)]
                for token, start, end in self._pieces(text):
                    piece = text[start:end]
                    start += len(piece) - len(piece.lstrip())
                    if start == end:  # only white space
                        continue
                    sentence = TITLE if is_title else bisect_right(ends, start)
                    word = bisect_right(words, start)
                    rows.append((token, number, sentence, start, end, word))
        question, candidates = self._header(record)
        columns = np.array(rows, np.int64).reshape(-1, 6).T
        return Document(record, question, candidates, *columns)

    def _pieces(self, text: str) -> list[tuple[int, int, int]]:
        """Return tokens with their character offsets. A text begins with a word: tokenizers that depend on
        the space before it get one."""
        shift = 0 if text[:1].isspace() else 1
        ids, starts, ends = self.tokenizer.text_pieces(" " * shift + text)
        starts = np.clip(starts - shift, 0, len(text))
        ends = np.clip(ends - shift, 0, len(text))
        return [*zip(ids.tolist(), starts.tolist(), ends.tolist(), strict=True)]

    def _header(self, record: QuestionRecord) -> tuple[list[int], list[list[int]]]:
        def tokens(text: str, most: int) -> list[int]:
            return [token for token, _, _ in self._pieces(text)[:most]]

        candidates = record.candidates if self.settings.form == "wikihop" else ()
        return (
            tokens(record.question, self.settings.question_tokens),
            [tokens(text, CANDIDATE_TOKENS) for text in candidates],
        )

    def check_room(self, records: Iterable[QuestionRecord], source: Path | str) -> None:
        """`DataError` for the first record whose question and candidates leave fewer than `LEAST_CONTEXT`
        tokens, of which three are [CLS] and [SEP], for paragraphs."""
        for record in records:
            question, candidates = self._header(record)
            header = len(question) + 2 + sum(len(ids) + 1 for ids in candidates)
            needed = header + LEAST_CONTEXT - 2
            if needed > self.settings.length:
                raise DataError(
                    f"{source}: record {record.id!r}: question and {len(candidates)} candidates have {header} "
                    f"tokens; length {self.settings.length} leaves too few tokens for the paragraphs: at least "
                    f"{needed} needed"
                )

    def windows(self, document: Document) -> list[tuple[int, int]]:
        """Return the first token and end of each window of a context; at least one.

        Windows begin every `stride` tokens, or at the end of the preceding window, and leave room for the
        header and a [SEP].
        """
        room = self.settings.length - document.header - 1
        tokens, step = len(document.ids), min(self.settings.stride, room)
        begins = range(0, max(tokens - room, 0), step)
        windows = [(begin, begin + room) for begin in begins]
        return [*windows, (len(begins) * step, tokens)]

    def window_input(self, document: Document, begin: int, end: int) -> WindowInput:
        """Return a window after its header: [CLS], question, [SEP], and each candidate with a [SEP].

        Extra globals represent, in order, [CLS], the question's tokens, the candidates, and each paragraph of
        the window with, if supporting facts are predicted, each of its sentences; parts beyond the number
        `extra` have none.
        """
        cls, sep = self.tokenizer.cls_id, self.tokenizer.sep_id
        ids = [cls, *document.question, sep]
        # Kind, first token, end, token, and name of an anchor.
        parts: list[tuple[int, int, int, int, tuple[int, int] | None]] = []
        for position, token in enumerate(ids[:-1]):
            kind = QUESTION if position else CLS
            parts.append((kind, position, position + 1, token, None))
        for number, candidate in enumerate(document.candidates):
            first = len(ids)
            ids += [*candidate, sep]
            parts.append((CANDIDATE, first, len(ids), -1, (number, 0)))
        header = len(ids)
        shift = header - begin
        ids += [*document.ids[begin:end].tolist(), sep]
        paragraphs, sentences = document.paragraph.tolist(), document.sentence.tolist()
        for paragraph, group in groupby(range(begin, end), paragraphs.__getitem__):
            tokens = [*group]
            bounds = tokens[0] + shift, tokens[-1] + shift + 1
            parts.append((PARAGRAPH, *bounds, -1, None))
            if self.settings.form != "hotpotqa":
                continue
            for sentence, some in groupby(tokens, sentences.__getitem__):
                inside = [*some]
                bounds = inside[0] + shift, inside[-1] + shift + 1
                if sentence != TITLE:
                    parts.append((SENTENCE, *bounds, -1, (paragraph, sentence)))
        anchors, names = [], []
        global_ids, kinds = np.full((2, self.extra), -1)
        kinds[:] = UNUSED
        owners = np.full(len(ids), -1)
        if self.extra:
            parts = parts[: self.extra]
        for slot, (kind, first, last, token, name) in enumerate(parts):
            if self.extra:
                global_ids[slot], kinds[slot] = token, kind
                owners[first:last] = slot
            if name is not None:
                anchors.append(slot if self.extra else first)
                names.append(name)
        return WindowInput(
            begin,
            end,
            np.array(ids),
            header,
            anchors,
            names,
            global_ids,
            kinds,
            owners,
        )

    def collate(self, rows: Sequence[WindowInput]) -> Batch:
        """Return inputs as padded tensors."""
        ids, lengths = pad([row.ids for row in rows], self.tokenizer.pad_id)
        batch = {
            "ids": ids,
            "lengths": lengths,
            "header": torch.tensor([row.header for row in rows]),
            "anchors": pad_numbers([row.anchors for row in rows]),
        }
        if self.extra:
            for name in ("global_ids", "global_kinds"):
                batch[name] = torch.tensor(
                    np.stack([getattr(row, name) for row in rows])
                )
            batch["owners"] = pad([row.owners for row in rows], -1)[0]
        return batch


def pad_numbers(rows: Sequence[Sequence[int]]) -> Tensor:
    """Return rows of numbers (B, widest), padded with -1; at least one column."""
    width = max(1, *(len(row) for row in rows))
    return pad([np.array(row, np.int64) for row in rows], -1, width)[0]


# Prediction


def predict_answers(
    network: AnswerNetwork,
    records: Sequence[QuestionRecord],
    reader: AnswerReader,
    device: torch.device,
    batch_size: int,
) -> Iterator[dict[str, Any]]:
    """Yield the prediction of each record, as lines of a file."""
    for record in records:
        document = reader.tokenize(record)
        rows = [reader.window_input(document, *one) for one in reader.windows(document)]
        scored: list[Any] = []
        for first in range(0, len(rows), batch_size):
            some = rows[first : first + batch_size]
            with torch.inference_mode():
                output = network(**on_device(reader.collate(some), device))
            outputs = [
                [None] * len(some) if part is None else part.double().cpu().numpy()
                for part in output
            ]
            scored += zip(some, *outputs, strict=True)
        yield decode(document, scored, reader.settings)


def decode(
    document: Document,
    windows: Sequence[tuple[WindowInput, Scores, Any, Any]],
    settings: LongAnswersSettings,
) -> dict[str, Any]:
    """Combine the windows of a document, each with its scores of spans, types and anchors, to its prediction.

    Scores of answers are sums of logits minus those of [CLS], which means no answer. Of Natural Questions,
    the paragraph with the best long answer is predicted, with the type of its window, and, as in the data
    set, the best short answer in it.
    """
    prediction: dict[str, Any] = {"id": document.record.id, "answer": ""}
    most_words, best = settings.answer_words, -np.inf
    if settings.form == "natural_questions":
        prediction |= {"type": "null", "long_answer": None, "long_score": None}
        values: dict[str, Any] = {}
        for row, spans, types, _ in windows:
            for paragraph in np.unique(document.paragraph[row.begin : row.end]):
                whole = document.span(paragraph, 0, np.iinfo(np.int64).max)
                if whole is None or not row.contains(whole):
                    continue
                first, last = whole
                score = spans[first + row.shift, 2] + spans[last + row.shift, 3]
                score = float(score - spans[0, 2:].sum())
                if score > best:
                    best = score
                    short = best_span(document, row, spans, (first, last), most_words)
                    values = document.answer(*short) if short else {}
                    values["type"] = settings.types[int(types.argmax())]
                    values["long_answer"] = int(paragraph)
                    values["long_score"] = score
        return prediction | values
    anchors: dict[tuple[int, int], list[float]] = defaultdict(list)
    for row, _, _, scores in windows:
        for number, name in enumerate(row.anchor_names):
            anchors[name].append(float(scores[number]))
    if settings.form == "wikihop":
        if anchors:
            candidate, _ = max(anchors, key=lambda name: sum(anchors[name]))
            prediction["answer"] = document.record.candidates[candidate]
        return prediction
    for row, spans, _, _ in windows:
        inside = row.begin, row.end - 1
        found = best_span(document, row, spans, inside, most_words)
        if found and found[1] > best:
            best = found[1]
            prediction |= document.answer(*found)
    if settings.form == "hotpotqa":
        total = np.sum([types for _, _, types, _ in windows], axis=0)
        kind = settings.types[int(total.argmax())]
        if kind != "span":
            prediction = {"id": document.record.id, "answer": kind}
        prediction["type"] = kind
        facts = [list(name) for name, scores in anchors.items() if max(scores) > 0]
        prediction["facts"] = sorted(facts)
    return prediction


def best_span(
    document: Document, row: WindowInput, spans: Scores, inside: Span, most_words: int
) -> tuple[Span, float] | None:
    """Return the best span among the tokens `inside`, and its score minus that of no answer.

    A span is within one paragraph and has at most `most_words` words; of equal scores, the first is best.
    None: there are only titles.
    """
    tokens = np.arange(inside[0], inside[1] + 1)
    paragraph, word = document.paragraph[tokens], document.word[tokens]
    is_text = document.sentence[tokens] != TITLE
    starts = np.where(is_text, spans[tokens + row.shift, 0], -np.inf)
    ends = spans[tokens + row.shift, 1]
    best, best_score = None, -np.inf
    for first in np.argsort(-starts, kind="stable")[:BEGINNINGS]:
        if not is_text[first]:
            continue
        fits = (paragraph[first:] == paragraph[first]) & (
            word[first:] - word[first] < most_words
        )
        length = len(fits) if fits.all() else int(fits.argmin())
        last = first + int(ends[first : first + length].argmax())
        score = float(starts[first] + ends[last])
        if score > best_score:
            best, best_score = (int(tokens[first]), int(tokens[last])), score
    return best and (best, best_score - float(spans[0, :2].sum()))


# Training


@dataclass(frozen=True, eq=False)
class TrueLabels:
    """True answer of a document's record, in tokens of the context."""

    spans: list[Span]
    long: Span | None
    facts: set[tuple[int, int]]
    candidate: int | None


def true_labels(document: Document, settings: LongAnswersSettings) -> TrueLabels:
    """Return the positions of all answers; answers without a position match all occurrences (TriviaQA)."""
    record, spans, candidate = document.record, [], None
    texts = record.paragraph_texts
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
            answers = {answer.text for answer in record.answers}
            for number, text in enumerate(texts):
                for start, end in find_answers(answers, text, settings.answer_words):
                    spans.append(document.span(number, start, end))
    long = record.long_answer
    return TrueLabels(
        sorted({span for span in spans if span is not None}),
        None if long is None else document.span(long, 0, len(texts[long])),
        {(fact.paragraph, fact.sentence) for fact in record.facts},
        candidate,
    )


def find_answers(answers: Iterable[str], text: str, most_words: int) -> list[Span]:
    """Return the distinct character ranges of answers of at most `most_words` words, in text order.

    Words are compared in lower case, by letters and digits only; articles at the beginning are ignored.
    """
    ranges = set()
    for answer in answers:
        words = re.findall(r"\w+", answer.lower())
        while words and words[0] in ("a", "an", "the"):
            words = words[1:]
        if 0 < len(words) <= most_words:
            pattern = r"\b" + r"\W+".join(words) + r"\b"
            ranges |= {match.span() for match in re.finditer(pattern, text.lower())}
    return sorted(ranges)


def choose_window(
    rows: Sequence[WindowInput], labels: TrueLabels, rng: np.random.Generator
) -> WindowInput:
    """Choose a window of a document: with probability 0.5, one with part of the answer, if there is any."""
    if len(rows) == 1:
        return rows[0]
    spans = labels.spans if labels.long is None else [*labels.spans, labels.long]
    if spans:
        answered = [row for row in rows if any(map(row.contains, spans))]
    else:
        answered = [
            row for row in rows if not labels.facts.isdisjoint(row.anchor_names)
        ]
    if answered and rng.random() < 0.5:
        rows = answered
    return rows[int(rng.integers(len(rows)))]


def window_labels(
    rows: Sequence[tuple[WindowInput, Document, TrueLabels]],
    settings: LongAnswersSettings,
) -> Batch:
    """Return the labels of windows: `spans` and `long_spans` (B, S, 2), `types` and `candidates` (B,),
    `facts` (B, A).

    -1 means missing: no further span, an unknown type, or an anchor that does not exist. A window without an
    answer has the span of [CLS].
    """
    spans: list[list[int]] = []
    longs: list[list[int]] = []
    types, candidates, facts = [], [], []
    for row, document, labels in rows:
        long = [] if labels.long is None else [labels.long]
        for every, known in ((spans, labels.spans), (longs, long)):
            inside = [span for span in known if row.contains(span)]
            numbers = [token + row.shift for span in inside for token in span]
            every.append(numbers or [0, 0])
        kind = document.record.type
        if long and not row.contains(long[0]):
            kind = "null"
        types.append(settings.types.index(kind) if kind in settings.types else -1)
        name = (labels.candidate, 0)
        is_there = name in row.anchor_names
        candidates.append(row.anchor_names.index(name) if is_there else -1)  # type: ignore[arg-type]
        facts.append([int(name in labels.facts) for name in row.anchor_names])
    return {
        "spans": pad_numbers(spans).view(len(rows), -1, 2),
        "long_spans": pad_numbers(longs).view(len(rows), -1, 2),
        "types": torch.tensor(types),
        "candidates": torch.tensor(candidates),
        "facts": pad_numbers(facts),
    }


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
            windows = [
                self.reader.window_input(document, *one)
                for one in self.reader.windows(document)
            ]
            rows.append((choose_window(windows, labels, rng), document, labels))
        batch = self.reader.collate([row for row, _, _ in rows])
        return {**batch, **window_labels(rows, self.settings)}

    def part(self, batch: Batch, rows: Tensor) -> Batch:
        selected = take_rows(batch, rows)
        if "owners" in selected:
            tokens = selected["ids"].shape[1]
            selected["owners"] = selected["owners"][:, :tokens].contiguous()
        return selected

    def counts(self, batch: Batch) -> dict[str, float]:
        return {"windows": float(len(batch["ids"]))}

    def loss(
        self, network: nn.Module, batch: Batch, totals: dict[str, float]
    ) -> Tensor:
        """Return the mean of all losses over the global batch, in nats per window."""
        labels = ("spans", "long_spans", "types", "candidates", "facts")
        inputs = {name: value for name, value in batch.items() if name not in labels}
        output: AnswerOutput = network(**inputs)
        if self.settings.form == "wikihop":
            assert output.anchors is not None
            scores = output.anchors.float().masked_fill(
                batch["anchors"] < 0, -torch.inf
            )
            total = F.cross_entropy(
                scores, batch["candidates"], ignore_index=-1, reduction="sum"
            )
            # The unused scores take part, so that every weight has a gradient.
            return (total + output.spans.sum() * 0) / totals["windows"]
        # An answer may be in the context, or [CLS], which means no answer.
        header = batch["header"]
        positions = torch.arange(batch["ids"].shape[1], device=header.device)
        end = batch["lengths"].to(header.device)[:, None] - 1
        context = (positions >= header[:, None]) & (positions < end)
        allowed = context | (positions == 0)
        start, end, *long = output.spans.unbind(-1)
        total = span_loss(start, end, batch["spans"], allowed)
        if long:
            total = total + span_loss(long[0], long[1], batch["long_spans"], allowed)
        if output.types is not None:
            total = total + F.cross_entropy(
                output.types.float(), batch["types"], ignore_index=-1, reduction="sum"
            )
        if output.anchors is not None:
            facts = batch["facts"]
            total = total + F.binary_cross_entropy_with_logits(
                output.anchors.float(),
                facts.clamp(min=0).float(),
                weight=(facts >= 0).float(),
                reduction="sum",
            )
        return total / totals["windows"]

    def metrics(self, network: Any) -> dict[str, float]:
        rank, size = self.world.rank, self.world.size
        batch_size = min(64, self.config.batch_size)
        records, device = self.valid[rank::size], self.world.device
        lines = [*predict_answers(network, records, self.reader, device, batch_size)]
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
        return {**super().identity(), "settings": self.settings.as_json()}

    def check(self) -> None:
        super().check()
        self.reader.check_room(self.records, self.files["train"])
        self.reader.check_room(self.watched, self.files["valid"])

    def describe(self, network: nn.Module) -> str:
        return f"{len(self.records):,} questions of form {self.section.form}"

    def convert(self, row: Mapping[str, Any]) -> dict[str, Any] | None:
        """Convert a row of HotpotQA or TriviaQA, by the section's `form`."""
        return public_record(self.section.form, row)

    def generate(self, generated: GeneratedConfig, split: str) -> Lines:
        """Generate documents with facts on several names; the question is one of the names."""
        return generate_questions(generated, split, self.section.form)

    def read(self, path: Path) -> Iterator[Record]:
        """Read records, or, if `public` is set, the records of the data set's own file."""
        if self.section.public:
            return read_public(self.section.form, path)
        return super().read(path)

    def missing(self, record: QuestionRecord) -> str | None:
        form = self.section.form
        may_lack = form == "natural_questions" or record.type in ("yes", "no")
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
