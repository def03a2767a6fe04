"""The network that answers, and a record as tokens that know what characters they stand for, in windows.

Axes: N tokens of the context; of batches B rows, L tokens, G extra globals, D hidden width, A anchors.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from bigbird_dna.config import EncoderConfig
from bigbird_dna.errors import DataError
from bigbird_dna.model.batching import pad
from bigbird_dna.model.heads import QuestionAnswerer
from bigbird_dna.model.input_embeddings import Globals, initialize
from bigbird_dna.model.settings import OtherSettings, Task, register_settings
from bigbird_dna.papers.nlp.config import LEAST_CONTEXT, AnswerForm
from bigbird_dna.papers.nlp.records import QuestionRecord
from bigbird_dna.tokens.interface import TextPieces, Tokenizer
from bigbird_dna.training.loop import Batch, take_rows

TYPES: dict[AnswerForm, tuple[str, ...]] = {
    "hotpotqa": ("span", "yes", "no"),
    "natural_questions": ("null", "yes", "no", "short", "long"),
}
"""Types of answers that a head on [CLS] tells apart."""


class LongAnswersSettings(OtherSettings):
    """Of a model that answers questions in long documents."""

    task: ClassVar[Task] = "long-answers"
    form: AnswerForm
    length: int = Field(ge=32, description="tokens of an input")
    stride: int = Field(ge=1, description="tokens from an input to the next")
    question_tokens: int = Field(ge=1)
    answer_words: int = Field(ge=1)
    unanswerable: bool = False

    @property
    def types(self) -> tuple[str, ...]:
        """The types of answers, in the order of the head's outputs."""
        return TYPES.get(self.form, ())

    @property
    def marks(self) -> int:
        """Scores of a token: start and end, of the answer, and of the long answer if there is one."""
        return 4 if self.form == "natural_questions" else 2

    @property
    def anchored(self) -> bool:
        """Whether sentences (supporting facts) or candidates are scored."""
        return self.form in ("hotpotqa", "wikihop")

    def build(self, config: EncoderConfig) -> Any:
        return AnswerNetwork(config, self.marks, len(self.types), self.anchored)


register_settings(LongAnswersSettings)


UNUSED, CLS, QUESTION, PARAGRAPH, SENTENCE, CANDIDATE = range(6)
"""What an extra global stands for; those of a question's tokens, and of [CLS], have a token besides."""


class AnswerInput(NamedTuple):
    """Inputs of the network; `global_ids`, `global_kinds` and `owners` where there are extra globals."""

    ids: Tensor  # (B, L)
    lengths: Tensor  # (B,)
    asked: Tensor  # (B,) tokens of [CLS], question, [SEP] and candidates: no answer stands there
    anchors: Tensor | None = None  # (B, A) places among extra globals and tokens, -1: none
    global_ids: Tensor | None = None  # (B, G) tokens of [CLS] and question, -1 elsewhere
    global_kinds: Tensor | None = None  # (B, G)
    owners: Tensor | None = None  # (B, L) as `Globals.owners`


class AnswerOutput(NamedTuple):
    """Scores, not normalized; none: the network has no such head."""

    marks: Tensor  # (B, L, 2 or 4): start and end, and of the long answer
    types: Tensor | None  # (B, types)
    anchors: Tensor | None  # (B, A)


class AnswerNetwork(QuestionAnswerer):
    """`QuestionAnswerer` with further heads, and with extra globals that stand for parts of the input.

    A token's two scores are those of HuggingFace's BigBirdForQuestionAnswering, whose weights fit. The type
    is read from [CLS], which is an extra global where there are any, and so are anchors: sentences, and
    candidates. Without extra globals, an anchor is the first token of what it stands for.
    """

    def __init__(self, config: EncoderConfig, marks: int = 2, types: int = 0, anchored: bool = False) -> None:
        super().__init__(config)
        self.long_spans = nn.Linear(config.hidden, marks - 2) if marks > 2 else None
        self.types = nn.Linear(config.hidden, types) if types else None
        self.anchors = nn.Linear(config.hidden, 1) if anchored else None
        self.kinds = nn.Embedding(CANDIDATE + 1, config.hidden) if config.num_global_tokens else None
        for part in (self.long_spans, self.types, self.anchors, self.kinds):
            if part is not None:
                initialize(part, config.hidden)

    def forward(self, *given: Any) -> AnswerOutput:  # type: ignore[override]
        """Scores; the arguments are those of `AnswerInput`."""
        own = AnswerInput(*given)
        ids, globals_ = own.ids, None
        question = torch.arange(ids.shape[1], device=ids.device) < own.asked[:, None]  # (B, L)
        if self.kinds is not None and own.global_ids is not None and own.owners is not None:
            tokens = self.encoder.embeddings.token(own.global_ids.clamp(min=0))
            tokens = tokens * (own.global_ids >= 0)[..., None]
            globals_ = Globals(tokens + self.kinds(own.global_kinds), own.owners)
        encoded = self.encoder.encode(ids, own.lengths, (~question).long(), globals_)
        whole = torch.cat(encoded, dim=1)  # (B, G + L, D)
        first = self.dropout(whole[:, 0])
        found = None
        if self.anchors is not None:
            assert own.anchors is not None
            places = own.anchors.clamp(min=0)[..., None].expand(-1, -1, whole.shape[2])
            found = self.anchors(self.dropout(whole.gather(1, places)))[..., 0]
        marks = self.scores(encoded.tokens, question)
        if self.long_spans is not None:
            marks = torch.cat([marks, self.long_spans(self.dropout(encoded.tokens))], dim=-1)
        return AnswerOutput(marks, None if self.types is None else self.types(first), found)


Ids = NDArray[np.int32]
Places = NDArray[np.int64]
CANDIDATE_TOKENS = 16
_BEHIND = LEAST_CONTEXT - 2  # behind the header: the paragraphs' and the last [SEP]
TITLE = -1
"""Sentence of a title's tokens; no answer stands there."""


class TokenSpan(NamedTuple):
    """Tokens `first … last` of the context, both included."""

    first: int
    last: int


class Window(NamedTuple):
    """Tokens `begin … end` of the context, without `end`."""

    begin: int
    end: int


@dataclass(frozen=True, eq=False)
class TokenizedRecord:
    """A tokenized record; offsets are characters of the paragraph that a token belongs to."""

    record: QuestionRecord
    texts: tuple[str, ...]  # of the paragraphs
    question: Ids
    candidates: tuple[Ids, ...]
    ids: Ids  # (N,)
    paragraph: Places  # (N,)
    sentence: Places  # (N,) of its paragraph, or `TITLE`
    start: Places  # (N,) white space before a word is left out
    end: Places  # (N,)
    first_word: Places  # (N,) number of the word that a token begins in, counted over the whole context
    last_word: Places  # (N,)

    def text(self, span: TokenSpan) -> str:
        """What stands at a span, as the source has it."""
        text = self.texts[int(self.paragraph[span.first])]
        return text[int(self.start[span.first]) : int(self.end[span.last])]

    def span(self, paragraph: int, start: int, end: int) -> TokenSpan | None:
        """The tokens that hold characters of a paragraph; none if there are none."""
        inside = (self.paragraph == paragraph) & (self.sentence != TITLE)
        found = np.flatnonzero(inside & (self.start < end) & (self.end > start))
        return TokenSpan(int(found[0]), int(found[-1])) if len(found) else None

    def sentences(self, window: Window) -> list[tuple[int, int, int]]:
        """Paragraph, sentence (or `TITLE`) and first token of all that begins in, or runs into, a window."""
        parts = self.paragraph[window.begin : window.end], self.sentence[window.begin : window.end]
        if not len(parts[0]):
            return []
        changes = np.append(True, (np.diff(parts[0]) != 0) | (np.diff(parts[1]) != 0))
        return [
            (int(parts[0][place]), int(parts[1][place]), window.begin + int(place))
            for place in np.flatnonzero(changes)
        ]


def _pieces(tokenizer: Tokenizer, text: str) -> TextPieces:
    """Pieces of a text that begins with a word, which tokenizers know by the white space before it."""
    return tokenizer.text_pieces(text if text[:1].isspace() else " " + text)


def _columns(
    number: int, text: str, sentences: tuple[str, ...] | None, tokenizer: Tokenizer
) -> tuple[NDArray[np.integer], ...]:
    """Columns of the tokens of a paragraph's sentences, or of its title, which has none."""
    shift = 0 if text[:1].isspace() else 1
    ids, starts, ends = _pieces(tokenizer, text)
    space = np.array([letter.isspace() for letter in text], bool)
    starts, ends = np.clip(starts - shift, 0, len(text)), np.clip(ends - shift, 0, len(text))
    # The next character, from each on, that is no white space.
    following = np.append(np.where(space, len(text), np.arange(len(text))), len(text))
    following = np.minimum.accumulate(following[::-1])[::-1]
    starts = np.minimum(following[starts], ends)
    kept = ends > starts  # a piece of white space alone is nobody's answer
    ids, starts, ends = ids[kept], starts[kept], ends[kept]
    words = np.cumsum(~space & np.append(True, space[:-1])) - 1 if len(text) else np.zeros(0, np.int64)
    if sentences is None:
        sentence = np.full(len(ids), TITLE)
    else:
        borders = np.cumsum([len(one) for one in sentences])
        sentence = np.searchsorted(borders, starts, side="right")
    return ids, np.full(len(ids), number), sentence, starts, ends, words[starts], words[ends - 1]


MOST_ANCHORS = 4096


class WindowInput:
    """A window as the network reads it; extra globals, which stand for parts of it, are taken in turn."""

    def __init__(self, ids: Ids, asked: int, extra: int) -> None:
        self.ids, self.asked = ids, asked
        self.anchors: list[int] = []  # places among extra globals and tokens
        self.anchor_of: list[tuple[int, int]] = []  # paragraph and sentence, or candidate and 0
        self.global_ids, self.global_kinds = np.full(extra, -1), np.full(extra, UNUSED)
        self.owners = np.full(len(ids), -1)
        self._taken = 0

    def take(self, kind: int, begin: int, end: int, token: int = -1) -> int | None:
        """The next extra global, for the tokens `begin … end`; none: there are no more."""
        if self._taken == len(self.global_ids):
            return None
        slot, self._taken = self._taken, self._taken + 1
        self.global_ids[slot], self.global_kinds[slot] = token, kind
        self.owners[begin:end] = slot
        return slot

    def add_anchor(self, kind: int, begin: int, end: int, name: tuple[int, int]) -> None:
        """Take the next one as an anchor, or where there are none at all the first token."""
        place = self.take(kind, begin, end) if len(self.global_ids) else begin
        if place is not None and len(self.anchors) < MOST_ANCHORS:
            self.anchors.append(place)
            self.anchor_of.append(name)


@dataclass(frozen=True)
class AnswerReader:
    """How records become rows: by a tokenizer, the settings of inputs, and so many `extra` globals."""

    tokenizer: Tokenizer
    settings: LongAnswersSettings
    extra: int = 0

    def document(self, record: QuestionRecord) -> TokenizedRecord:
        """Tokenize a record; a question that is too long is cut."""
        texts = tuple("".join(paragraph.sentences) for paragraph in record.paragraphs)
        parts = []
        for number, (paragraph, text) in enumerate(zip(record.paragraphs, texts, strict=True)):
            if paragraph.title:
                parts.append(_columns(number, paragraph.title, None, self.tokenizer))
            parts.append(_columns(number, text, paragraph.sentences, self.tokenizer))
        columns = [np.concatenate([part[column] for part in parts]) for column in range(7)]
        # Words are counted over the whole context.
        words = [int(part[6].max(initial=-1)) + 1 for part in parts]
        shift = np.repeat(np.cumsum([0, *words[:-1]]), [len(part[0]) for part in parts])
        ids, owner, sentence, start, end, first_word, last_word = columns
        places = owner, sentence, start, end, first_word + shift, last_word + shift
        return TokenizedRecord(record, texts, *self._asked(record), ids.astype(np.int32), *places)

    def _asked(self, record: QuestionRecord) -> tuple[Ids, tuple[Ids, ...]]:
        """Tokens of the question and of each candidate, cut."""
        question = _pieces(self.tokenizer, record.question).ids[: self.settings.question_tokens]
        candidates = (_pieces(self.tokenizer, text).ids[:CANDIDATE_TOKENS] for text in record.candidates)
        return question, tuple(candidates)

    def check_room(self, records: Iterable[QuestionRecord], source: Path | str) -> None:
        """See that inputs have room for paragraphs behind their headers.

        `DataError` names `source` and the first record whose question and candidates leave less than
        `LEAST_CONTEXT` tokens.
        """
        for record in records:
            # A question alone has room by the configuration.
            taken = _header_tokens(*self._asked(record)) if record.candidates else 0
            if taken + _BEHIND > self.settings.length:
                raise DataError(f"{source}: {self._too_long(record, taken)}")

    def _too_long(self, record: QuestionRecord, taken: int) -> str:
        asked = f"its question and {len(record.candidates)} candidates take {taken} tokens"
        left = f"of length {self.settings.length} too few are left for its paragraphs"
        return f"record {record.id!r}: {asked}, {left}: {taken + _BEHIND} are needed"

    def windows(self, document: TokenizedRecord) -> list[Window]:
        """The windows of a context, each with room for the header and a [SEP]; at least one.

        One begins every `stride` tokens, or where the one before it ends, until the end is read. `DataError`
        if the header leaves no token, which `check_room` tells of all records beforehand.
        """
        taken = _header_tokens(document.question, document.candidates)
        room = self.settings.length - taken - 1
        if room < 1:
            raise DataError(self._too_long(document.record, taken))
        tokens, step = len(document.ids), min(self.settings.stride, room)
        begins = range(0, max(tokens - room, 0), step)
        return [*(Window(begin, begin + room) for begin in begins), Window(len(begins) * step, tokens)]

    def row(self, document: TokenizedRecord, window: Window) -> WindowInput:
        """A window behind its header: [CLS], question, [SEP], each candidate with a [SEP].

        Extra globals stand, in order, for [CLS], the question's tokens, the candidates, and for each
        paragraph of the window and, where supporting facts are asked for, each of its sentences; those beyond
        `extra` have none.
        """
        cls, sep = np.array([[self.tokenizer.cls_id], [self.tokenizer.sep_id]], np.int32)
        asked = _header_tokens(document.question, document.candidates)
        front = [cls, document.question, sep, *(part for one in document.candidates for part in (one, sep))]
        ids = np.concatenate([*front, document.ids[window.begin : window.end], sep])
        row = WindowInput(ids.astype(np.int32), asked, self.extra)
        row.take(CLS, 0, 1, self.tokenizer.cls_id)
        for place, token in enumerate(document.question, 1):
            row.take(QUESTION, place, place + 1, int(token))
        place = len(document.question) + 2
        for number, candidate in enumerate(document.candidates):
            end = place + len(candidate) + 1
            row.add_anchor(CANDIDATE, place, end, (number, 0))
            place = end
        facts = self.settings.form == "hotpotqa"
        begun, last = document.sentences(window), None
        bounds = [place for *_, place in begun[1:]] + [window.end]
        for (paragraph, sentence, place), end in zip(begun, bounds, strict=True):
            here, there = asked + place - window.begin, asked + end - window.begin
            if paragraph != last:
                row.take(PARAGRAPH, here, there if sentence == TITLE or facts else len(ids) - 1)
                last = paragraph
            if sentence != TITLE and facts:
                row.add_anchor(SENTENCE, here, there, (paragraph, sentence))
        return row

    def collate(self, rows: Sequence[WindowInput]) -> Batch:
        """Rows as tensors, padded."""
        ids, lengths = pad([row.ids for row in rows], self.tokenizer.pad_id)
        batch = {
            **{"ids": ids, "lengths": lengths, "asked": torch.tensor([row.asked for row in rows])},
            "anchors": filled([row.anchors for row in rows]),
        }
        if self.extra:
            batch["global_ids"] = torch.from_numpy(np.stack([row.global_ids for row in rows]))
            batch["global_kinds"] = torch.from_numpy(np.stack([row.global_kinds for row in rows]))
            batch["owners"] = pad([row.owners for row in rows], -1)[0]
        return batch


def _header_tokens(question: Ids, candidates: Sequence[Ids]) -> int:
    return len(question) + 2 + sum(len(one) + 1 for one in candidates)


def filled(rows: Sequence[Sequence[int]]) -> Tensor:
    """Rows of numbers (B, widest), filled up by -1; at least one column."""
    return pad([np.array(row, np.int64) for row in rows], -1, max(1, *map(len, rows)))[0]


def some_rows(batch: Batch, rows: Tensor) -> Batch:
    """Some rows of a batch, without the padding that all of these have."""
    part = take_rows(batch, rows)
    if "owners" in part:
        part["owners"] = part["owners"][:, : part["ids"].shape[1]].contiguous()
    return part


def network_input(batch: Batch) -> AnswerInput:
    """What of a batch the network reads."""
    return AnswerInput(**{name: batch[name] for name in AnswerInput._fields if name in batch})
