"""Question answering in long documents: network, windows of records, prediction and training (App. E.2).

A record is tokenized with character offsets and divided into windows, which the network scores. The scores of
all windows are combined to a prediction. Losses of the heads are in nats, each summed over the rows of a
batch. Axes: N tokens of the context; in batches, B rows, L tokens, G extra globals, D hidden width, S spans,
A anchors (sentences or candidates that are scored).
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
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
from bigbird_dna.papers.nlp.question_metrics import (
    ARTICLES,
    normalize_answer,
    official_metrics,
)
from bigbird_dna.papers.nlp.records import Prediction, QuestionRecord, Record
from bigbird_dna.papers.nlp.task import Lines, Metrics, RecordsObjective, TextTask
from bigbird_dna.tokens.interface import TextPieces, Tokenizer
from bigbird_dna.training.distributed import World
from bigbird_dna.training.loop import Batch, on_device, take_rows

TYPES: dict[AnswerForm, tuple[str, ...]] = {
    "hotpotqa": ("span", "yes", "no"),
    "natural_questions": ("null", "yes", "no", "short", "long"),
}
"""Answer types predicted by a head on [CLS]."""

UNUSED, CLS, QUESTION, PARAGRAPH, SENTENCE, CANDIDATE = range(6)
"""Kinds of extra globals; those of question tokens and [CLS] also have a token embedding."""


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
    unanswerable: bool = False

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
        has_long, has_anchors = (
            form == "natural_questions",
            form in ("hotpotqa", "wikihop"),
        )
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
        tokens = torch.arange(ids.shape[1], device=ids.device)
        in_header = tokens < header[:, None]  # (B, L)
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


Ids = NDArray[np.int32]
Column = NDArray[np.int64]
CANDIDATE_TOKENS = 16
TITLE = -1
"""Sentence number of a title's tokens, which contain no answer."""


class TokenSpan(NamedTuple):
    """Tokens `first … last` of the context, inclusive."""

    first: int
    last: int


class Window(NamedTuple):
    """Tokens `begin … end` of the context, excluding `end`."""

    begin: int
    end: int

    def contains(self, span: TokenSpan) -> bool:
        return self.begin <= span.first and span.last < self.end


@dataclass(frozen=True, eq=False)
class TokenizedRecord:
    """A tokenized record; offsets are characters in the paragraph of a token, or in its title."""

    record: QuestionRecord
    texts: list[str]  # one per paragraph
    question: Ids
    candidates: list[Ids]
    ids: Column  # (N,)
    paragraph: Column  # (N,)
    sentence: Column  # (N,) number within the paragraph, or `TITLE`
    start: Column  # (N,) without white space before a word
    end: Column  # (N,)
    first_word: (
        Column  # (N,) number of the word in which a token begins, in its paragraph
    )
    last_word: Column  # (N,)

    @property
    def header_tokens(self) -> int:
        """Tokens of [CLS], the question, the candidates, and a [SEP] after each."""
        return len(self.question) + 2 + sum(len(ids) + 1 for ids in self.candidates)

    def text(self, span: TokenSpan) -> str:
        """Return the text of a span, as in the source."""
        text = self.texts[int(self.paragraph[span.first])]
        return text[int(self.start[span.first]) : int(self.end[span.last])]

    def span(self, paragraph: int, start: int, end: int) -> TokenSpan | None:
        """Return the tokens that contain characters of a paragraph; None if there are none."""
        inside = (self.paragraph == paragraph) & (self.sentence != TITLE)
        tokens = np.flatnonzero(inside & (self.start < end) & (self.end > start))
        return TokenSpan(int(tokens[0]), int(tokens[-1])) if len(tokens) else None

    def sentences(self, window: Window) -> list[tuple[int, int, int, int]]:
        """Return paragraph, sentence (or `TITLE`), first token and end of each sentence in a window."""
        inside = slice(window.begin, window.end)
        names = np.stack([self.paragraph[inside], self.sentence[inside]], axis=1)
        changes = np.flatnonzero((np.diff(names, axis=0) != 0).any(axis=1)) + 1
        bounds = [0, *changes.tolist(), len(names)]
        return [
            (*names[first].tolist(), window.begin + first, window.begin + end)
            for first, end in pairwise(bounds)
            if first < end
        ]


class WindowInput:
    """A window as input of the network; extra globals are assigned to its parts in order."""

    def __init__(self, window: Window, ids: Ids, header: int, extra: int) -> None:
        self.window, self.ids, self.header = window, ids, header
        self.shift = header - window.begin  # from tokens of the context to those here
        self.anchors: list[int] = []  # positions among extra globals and tokens
        self.anchor_names: list[tuple[int, int]] = []
        """Paragraph and sentence, or candidate and 0."""
        self.global_ids = np.full(extra, -1)
        self.global_kinds = np.full(extra, UNUSED)
        self.owners = np.full(len(ids), -1)
        self.used = 0

    def add_global(
        self, kind: int, begin: int, end: int, token: int = -1
    ) -> int | None:
        """Assign the next extra global to the tokens `begin … end`; None: all are used."""
        if self.used == len(self.global_ids):
            return None
        slot = self.used
        self.used += 1
        self.global_ids[slot], self.global_kinds[slot] = token, kind
        self.owners[begin:end] = slot
        return slot

    def add_anchor(
        self, kind: int, begin: int, end: int, name: tuple[int, int]
    ) -> None:
        """Add an anchor: the next extra global, or the first token if there are no extra globals."""
        position: int | None = begin
        if len(self.global_ids):
            position = self.add_global(kind, begin, end)
        if position is not None:
            self.anchors.append(position)
            self.anchor_names.append(name)


@dataclass(frozen=True)
class AnswerReader:
    """Converts records to inputs, with a tokenizer, settings of inputs, and `extra` globals."""

    tokenizer: Tokenizer
    settings: LongAnswersSettings
    extra: int = 0

    def tokenize(self, record: QuestionRecord) -> TokenizedRecord:
        """Tokenize a record; a question or candidate that is too long is cut."""
        texts = record.paragraph_texts
        columns = []
        for number, (paragraph, text) in enumerate(
            zip(record.paragraphs, texts, strict=True)
        ):
            if paragraph.title:
                columns.append(self._columns(paragraph.title, number, None))
            ends = np.cumsum([len(sentence) for sentence in paragraph.sentences])
            columns.append(self._columns(text, number, ends))
        return TokenizedRecord(
            record, texts, *self._header(record), *np.concatenate(columns, axis=1)
        )

    def _encode(self, text: str) -> TextPieces:
        """Tokenize a text that begins with a word; a space is prepended, because tokenizers depend on it."""
        return self.tokenizer.text_pieces(text if text[:1].isspace() else " " + text)

    def _header(self, record: QuestionRecord) -> tuple[Ids, list[Ids]]:
        question = self._encode(record.question).ids[: self.settings.question_tokens]
        candidates = []
        if self.settings.form == "wikihop":
            for text in record.candidates:
                candidates.append(self._encode(text).ids[:CANDIDATE_TOKENS])
        return question, candidates

    def _columns(self, text: str, number: int, sentence_ends: Column | None) -> Column:
        """Return the columns (7, n) of the tokens of a paragraph's text, or of its title (no sentences)."""
        shift = 0 if text[:1].isspace() else 1
        ids, starts, ends = self._encode(text)
        starts = np.clip(starts - shift, 0, len(text))
        ends = np.clip(ends - shift, 0, len(text))
        space = np.array([letter.isspace() for letter in text], bool)
        # Position of the next character that is not white space, from each character on.
        following = np.where(space, len(text), np.arange(len(text)))
        following = np.minimum.accumulate(np.append(following, len(text))[::-1])[::-1]
        starts = np.minimum(following[starts], ends)
        visible = ends > starts  # drop tokens of white space only
        ids, starts, ends = ids[visible], starts[visible], ends[visible]
        words = np.cumsum(~space & np.append(True, space)[:-1]) - 1
        sentences = np.full(len(ids), TITLE)
        if sentence_ends is not None:
            sentences = np.searchsorted(sentence_ends, starts, side="right")
        paragraphs = np.full(len(ids), number)
        return np.stack(
            [ids, paragraphs, sentences, starts, ends, words[starts], words[ends - 1]]
        )

    def check_room(self, records: Iterable[QuestionRecord], source: Path | str) -> None:
        """`DataError` for the first record whose question and candidates leave no room for paragraphs.

        At least `LEAST_CONTEXT` tokens must be left; three of these are [CLS] and [SEP]. The configuration
        ensures it for questions without candidates.
        """
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

    def windows(self, document: TokenizedRecord) -> list[Window]:
        """Return the windows of a context, each with room for the header and a [SEP]; at least one.

        Windows begin every `stride` tokens, or at the end of the preceding window, up to the end of the
        context. `check_room` ensures that there is room.
        """
        room = self.settings.length - document.header_tokens - 1
        tokens, step = len(document.ids), min(self.settings.stride, room)
        begins = range(0, max(tokens - room, 0), step)
        windows = [Window(begin, begin + room) for begin in begins]
        return [*windows, Window(len(begins) * step, tokens)]

    def window_input(self, document: TokenizedRecord, window: Window) -> WindowInput:
        """Return a window after its header: [CLS], question, [SEP], and each candidate with a [SEP].

        Extra globals represent, in order, [CLS], the question's tokens, the candidates, and each paragraph of
        the window with, if supporting facts are predicted, each of its sentences; parts beyond the number
        `extra` have none.
        """
        cls, sep = [self.tokenizer.cls_id], [self.tokenizer.sep_id]
        sections: list[Any] = [cls, document.question, sep]
        for candidate in document.candidates:
            sections += [candidate, sep]
        sections += [document.ids[window.begin : window.end], sep]
        ids = np.concatenate(sections).astype(np.int32)
        row = WindowInput(window, ids, document.header_tokens, self.extra)
        row.add_global(CLS, 0, 1, cls[0])
        for position, token in enumerate(document.question.tolist(), 1):
            row.add_global(QUESTION, position, position + 1, token)
        begin = len(document.question) + 2
        for number, candidate in enumerate(document.candidates):
            end = begin + len(candidate) + 1
            row.add_anchor(CANDIDATE, begin, end, (number, 0))
            begin = end
        with_facts = self.settings.form == "hotpotqa"
        last = None
        for paragraph, sentence, first, end in document.sentences(window):
            begin, end = first + row.shift, end + row.shift
            if paragraph != last:  # the next paragraph takes over its tokens
                row.add_global(PARAGRAPH, begin, end if with_facts else len(ids) - 1)
                last = paragraph
            if sentence != TITLE and with_facts:
                row.add_anchor(SENTENCE, begin, end, (paragraph, sentence))
        return row

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
            batch["global_ids"] = torch.tensor(
                np.stack([row.global_ids for row in rows])
            )
            batch["global_kinds"] = torch.tensor(
                np.stack([row.global_kinds for row in rows])
            )
            batch["owners"] = pad([row.owners for row in rows], -1)[0]
        return batch


def pad_numbers(rows: Sequence[Sequence[int]]) -> Tensor:
    """Return rows of numbers (B, widest), padded with -1; at least one column."""
    width = max(1, *(len(row) for row in rows))
    return pad([np.array(row, np.int64) for row in rows], -1, width)[0]


def select_rows(batch: Batch, rows: Tensor) -> Batch:
    """Return rows of a batch, without their common padding."""
    selected = take_rows(batch, rows)
    if "owners" in selected:
        tokens = selected["ids"].shape[1]
        selected["owners"] = selected["owners"][:, :tokens].contiguous()
    return selected


INPUTS = (
    "ids",
    "lengths",
    "header",
    "anchors",
    "global_ids",
    "global_kinds",
    "owners",
)


def network_input(batch: Batch) -> Batch:
    """Return the network's inputs in a batch."""
    return {name: batch[name] for name in INPUTS if name in batch}


BEGINNINGS = 20
"""Number of best-scoring tokens of a window that are tried as the beginning of an answer."""

Scores = NDArray[np.float64]


@dataclass(eq=False)
class ScoredWindow:
    """A window with the network's outputs, without padding; outputs that the form lacks are empty."""

    input: WindowInput
    spans: Scores  # (L, 2 or 4)
    types: Scores  # (types,)
    anchors: Scores  # (A,)


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
        windows = reader.windows(document)
        scored = []
        for start in range(0, len(windows), batch_size):
            rows = [
                reader.window_input(document, window)
                for window in windows[start : start + batch_size]
            ]
            batch = on_device(reader.collate(rows), device)
            with torch.inference_mode():
                output = network(**network_input(batch))
            spans, types, anchors = (
                np.zeros((len(rows), 0))
                if part is None
                else part.float().cpu().double().numpy()
                for part in output
            )
            for number, row in enumerate(rows):
                scored.append(
                    ScoredWindow(
                        row,
                        spans[number, : len(row.ids)],
                        types[number],
                        anchors[number, : len(row.anchors)],
                    )
                )
        yield decode(document, scored, reader.settings)


def decode(
    document: TokenizedRecord,
    windows: Sequence[ScoredWindow],
    settings: LongAnswersSettings,
) -> dict[str, Any]:
    """Combine the windows of a document to its prediction: the best span, facts by their best score, etc.

    Scores of answers are sums of logits minus those of [CLS], which means no answer.
    """
    prediction: dict[str, Any] = {"id": document.record.id, "answer": ""}
    if settings.form == "natural_questions":
        return prediction | _decode_long(document, windows, settings)
    anchors: dict[tuple[int, int], list[float]] = defaultdict(list)
    for window in windows:
        for name, score in zip(window.input.anchor_names, window.anchors, strict=True):
            anchors[name].append(float(score))
    if settings.form == "wikihop":
        if anchors:
            best = max(anchors, key=lambda name: sum(anchors[name]))
            prediction["answer"] = document.record.candidates[best[0]]
        return prediction
    spans = [
        best_answer(document, window, window.input.window, settings.answer_words)
        for window in windows
    ]
    span, score = max(spans, key=lambda answer: answer[1])
    if span is not None and not (settings.unanswerable and score < 0):
        prediction |= _span_values(document, span, score)
    if settings.form == "hotpotqa":
        total = np.sum([window.types for window in windows], axis=0)
        kind = settings.types[int(total.argmax())]
        if kind != "span":
            prediction = {"id": document.record.id, "answer": kind}
        prediction["type"] = kind
        prediction["facts"] = sorted(
            list(name) for name, scores in anchors.items() if max(scores) > 0
        )
    return prediction


def _decode_long(
    document: TokenizedRecord,
    windows: Sequence[ScoredWindow],
    settings: LongAnswersSettings,
) -> dict[str, Any]:
    """Return the best long answer, with the type of its window and the best short answer in it.

    As in the data set, a short answer is inside the long answer.
    """
    best = -np.inf
    values: dict[str, Any] = {"type": "null", "long_answer": None, "long_score": None}
    for scored in windows:
        window, shift = scored.input.window, scored.input.shift
        nothing = scored.spans[0, 2:].sum()
        for paragraph in np.unique(document.paragraph[window.begin : window.end]):
            tokens = np.flatnonzero(
                (document.paragraph == paragraph) & (document.sentence != TITLE)
            )
            if not len(tokens) or not window.contains(TokenSpan(tokens[0], tokens[-1])):
                continue
            start = scored.spans[tokens[0] + shift, 2]
            end = scored.spans[tokens[-1] + shift, 3]
            score = float(start + end - nothing)
            if score > best:
                best = score
                inside = Window(int(tokens[0]), int(tokens[-1]) + 1)
                span, short_score = best_answer(
                    document, scored, inside, settings.answer_words
                )
                values = {}
                if span is not None:
                    values = _span_values(document, span, short_score)
                values["type"] = settings.types[int(scored.types.argmax())]
                values["long_answer"] = int(paragraph)
                values["long_score"] = score
    return values


def _span_values(
    document: TokenizedRecord, span: TokenSpan, score: float
) -> dict[str, Any]:
    return {
        "answer": document.text(span),
        "paragraph": int(document.paragraph[span.first]),
        "start": int(document.start[span.first]),
        "score": score,
    }


def best_answer(
    document: TokenizedRecord, scored: ScoredWindow, inside: Window, most_words: int
) -> tuple[TokenSpan | None, float]:
    """Return the best span `inside` a part of a window, and its score minus that of no answer.

    A span is within one paragraph and has at most `most_words` words; of equal scores, the first is best.
    None, -inf: there are only titles.
    """
    context = slice(inside.begin, inside.end)
    tokens = slice(inside.begin + scored.input.shift, inside.end + scored.input.shift)
    paragraph, last_word = document.paragraph[context], document.last_word[context]
    first_word = document.first_word[context]
    is_text = document.sentence[context] != TITLE
    starts = np.where(is_text, scored.spans[tokens, 0], -np.inf)
    ends = scored.spans[tokens, 1]
    best: TokenSpan | None = None
    best_score = -np.inf
    for first in np.argsort(-starts, kind="stable")[:BEGINNINGS]:
        too_far = (paragraph[first:] != paragraph[first]) | (
            last_word[first:] - first_word[first] >= most_words
        )
        length = int(too_far.argmax()) if too_far.any() else len(too_far)
        # A later token of a word with several tokens may have no span of so few words.
        if not is_text[first] or not length:
            continue
        last = first + int(ends[first : first + length].argmax())
        score = float(starts[first] + ends[last])
        if score > best_score:
            best = TokenSpan(inside.begin + int(first), inside.begin + last)
            best_score = score
    return best, best_score - float(scored.spans[0, :2].sum())


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
    text_words = _words(text)
    ranges = set()
    for number, (word, start, _) in enumerate(text_words):
        for words in sought.get(word, ()):
            match = text_words[number : number + len(words)]
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
        output = network(**network_input(batch))
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
