"""The network for question answering, and records as tokens with character offsets, divided into windows.

Axes: N tokens of the context; in batches, B rows, L tokens, G extra globals, D hidden width, A anchors.
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
"""Answer types predicted by a head on [CLS]."""


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

    @property
    def marks(self) -> int:
        """Number of scores per token: start and end of the answer, and of the long answer if there is one."""
        return 4 if self.form == "natural_questions" else 2

    @property
    def anchored(self) -> bool:
        """Whether sentences (supporting facts) or candidates are scored."""
        return self.form in ("hotpotqa", "wikihop")

    def build(self, config: EncoderConfig) -> Any:
        return AnswerNetwork(config, self.marks, len(self.types), self.anchored)


register_settings(LongAnswersSettings)


UNUSED, CLS, QUESTION, PARAGRAPH, SENTENCE, CANDIDATE = range(6)
"""Kinds of extra globals; those of question tokens and [CLS] also have a token embedding."""


class AnswerInput(NamedTuple):
    """Inputs of the network; `global_ids`, `global_kinds` and `owners` are set if there are extra globals."""

    ids: Tensor  # (B, L)
    lengths: Tensor  # (B,)
    asked: Tensor  # (B,) number of tokens of [CLS], question, [SEP] and candidates, which contain no answer
    anchors: Tensor | None = (
        None  # (B, A) positions among extra globals and tokens, -1: none
    )
    global_ids: Tensor | None = (
        None  # (B, G) tokens of [CLS] and question, -1 elsewhere
    )
    global_kinds: Tensor | None = None  # (B, G)
    owners: Tensor | None = None  # (B, L) as `Globals.owners`


class AnswerOutput(NamedTuple):
    """Unnormalized scores; None if the network has no such head."""

    marks: Tensor  # (B, L, 2 or 4): start and end, and those of the long answer
    types: Tensor | None  # (B, types)
    anchors: Tensor | None  # (B, A)


class AnswerNetwork(QuestionAnswerer):
    """`QuestionAnswerer` with additional heads, and extra globals that represent parts of the input.

    The two scores of a token are those of HuggingFace's BigBirdForQuestionAnswering, with compatible weights.
    The type is predicted from [CLS]. With extra globals, [CLS] and the anchors (sentences and candidates) are
    among them; without, an anchor is the first token of its sentence or candidate.
    """

    def __init__(
        self,
        config: EncoderConfig,
        marks: int = 2,
        types: int = 0,
        anchored: bool = False,
    ) -> None:
        super().__init__(config)
        self.long_spans = nn.Linear(config.hidden, marks - 2) if marks > 2 else None
        self.types = nn.Linear(config.hidden, types) if types else None
        self.anchors = nn.Linear(config.hidden, 1) if anchored else None
        self.kinds = (
            nn.Embedding(CANDIDATE + 1, config.hidden)
            if config.num_global_tokens
            else None
        )
        for part in (self.long_spans, self.types, self.anchors, self.kinds):
            if part is not None:
                initialize(part, config.hidden)

    def forward(self, *given: Any) -> AnswerOutput:  # type: ignore[override]
        """Return the scores; the arguments are the fields of `AnswerInput`."""
        own = AnswerInput(*given)
        ids, globals_ = own.ids, None
        question = (
            torch.arange(ids.shape[1], device=ids.device) < own.asked[:, None]
        )  # (B, L)
        if (
            self.kinds is not None
            and own.global_ids is not None
            and own.owners is not None
        ):
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
            marks = torch.cat(
                [marks, self.long_spans(self.dropout(encoded.tokens))], dim=-1
            )
        return AnswerOutput(
            marks, None if self.types is None else self.types(first), found
        )


Ids = NDArray[np.int32]
Places = NDArray[np.int64]
CANDIDATE_TOKENS = 16
_BEHIND = LEAST_CONTEXT - 2  # tokens after the header: paragraphs and the last [SEP]
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


@dataclass(frozen=True, eq=False)
class TokenizedRecord:
    """A tokenized record; offsets are characters in the paragraph of a token."""

    record: QuestionRecord
    texts: tuple[str, ...]  # one per paragraph
    question: Ids
    candidates: tuple[Ids, ...]
    ids: Ids  # (N,)
    paragraph: Places  # (N,)
    sentence: Places  # (N,) number within the paragraph, or `TITLE`
    start: Places  # (N,) without white space before a word
    end: Places  # (N,)
    first_word: Places  # (N,) number of the word in which a token begins, within the whole context
    last_word: Places  # (N,)

    def text(self, span: TokenSpan) -> str:
        """Return the text of a span, as in the source."""
        text = self.texts[int(self.paragraph[span.first])]
        return text[int(self.start[span.first]) : int(self.end[span.last])]

    def span(self, paragraph: int, start: int, end: int) -> TokenSpan | None:
        """Return the tokens that contain characters of a paragraph; None if there are none."""
        inside = (self.paragraph == paragraph) & (self.sentence != TITLE)
        found = np.flatnonzero(inside & (self.start < end) & (self.end > start))
        return TokenSpan(int(found[0]), int(found[-1])) if len(found) else None

    def sentences(self, window: Window) -> list[tuple[int, int, int]]:
        """Return paragraph, sentence (or `TITLE`) and first token of each sentence in a window."""
        parts = (
            self.paragraph[window.begin : window.end],
            self.sentence[window.begin : window.end],
        )
        if not len(parts[0]):
            return []
        changes = np.append(True, (np.diff(parts[0]) != 0) | (np.diff(parts[1]) != 0))
        return [
            (int(parts[0][place]), int(parts[1][place]), window.begin + int(place))
            for place in np.flatnonzero(changes)
        ]


def _pieces(tokenizer: Tokenizer, text: str) -> TextPieces:
    """Tokenize a text that begins with a word; a space is prepended, because tokenizers depend on it."""
    return tokenizer.text_pieces(text if text[:1].isspace() else " " + text)


def _columns(
    number: int, text: str, sentences: tuple[str, ...] | None, tokenizer: Tokenizer
) -> tuple[NDArray[np.integer], ...]:
    """Return the columns of the tokens of a paragraph's sentences, or of its title (`sentences` is None)."""
    shift = 0 if text[:1].isspace() else 1
    ids, starts, ends = _pieces(tokenizer, text)
    space = np.array([letter.isspace() for letter in text], bool)
    starts, ends = (
        np.clip(starts - shift, 0, len(text)),
        np.clip(ends - shift, 0, len(text)),
    )
    # Position of the next character that is not white space, from each character on.
    following = np.append(np.where(space, len(text), np.arange(len(text))), len(text))
    following = np.minimum.accumulate(following[::-1])[::-1]
    starts = np.minimum(following[starts], ends)
    kept = ends > starts  # drop tokens of white space only
    ids, starts, ends = ids[kept], starts[kept], ends[kept]
    words = (
        np.cumsum(~space & np.append(True, space[:-1])) - 1
        if len(text)
        else np.zeros(0, np.int64)
    )
    if sentences is None:
        sentence = np.full(len(ids), TITLE)
    else:
        borders = np.cumsum([len(one) for one in sentences])
        sentence = np.searchsorted(borders, starts, side="right")
    return (
        ids,
        np.full(len(ids), number),
        sentence,
        starts,
        ends,
        words[starts],
        words[ends - 1],
    )


MOST_ANCHORS = 4096


class WindowInput:
    """A window as input of the network; extra globals are assigned to its parts in order."""

    def __init__(self, ids: Ids, asked: int, extra: int) -> None:
        self.ids, self.asked = ids, asked
        self.anchors: list[int] = []  # positions among extra globals and tokens
        self.anchor_of: list[
            tuple[int, int]
        ] = []  # paragraph and sentence, or candidate and 0
        self.global_ids, self.global_kinds = np.full(extra, -1), np.full(extra, UNUSED)
        self.owners = np.full(len(ids), -1)
        self._taken = 0

    def take(self, kind: int, begin: int, end: int, token: int = -1) -> int | None:
        """Assign the next extra global to the tokens `begin … end`; None: all are used."""
        if self._taken == len(self.global_ids):
            return None
        slot, self._taken = self._taken, self._taken + 1
        self.global_ids[slot], self.global_kinds[slot] = token, kind
        self.owners[begin:end] = slot
        return slot

    def add_anchor(
        self, kind: int, begin: int, end: int, name: tuple[int, int]
    ) -> None:
        """Add an anchor: the next extra global, or the first token if there are no extra globals."""
        place = self.take(kind, begin, end) if len(self.global_ids) else begin
        if place is not None and len(self.anchors) < MOST_ANCHORS:
            self.anchors.append(place)
            self.anchor_of.append(name)


@dataclass(frozen=True)
class AnswerReader:
    """Converts records to rows, with a tokenizer, settings of inputs, and `extra` globals."""

    tokenizer: Tokenizer
    settings: LongAnswersSettings
    extra: int = 0

    def document(self, record: QuestionRecord) -> TokenizedRecord:
        """Tokenize a record; a question that is too long is cut."""
        texts = tuple("".join(paragraph.sentences) for paragraph in record.paragraphs)
        parts = []
        for number, (paragraph, text) in enumerate(
            zip(record.paragraphs, texts, strict=True)
        ):
            if paragraph.title:
                parts.append(_columns(number, paragraph.title, None, self.tokenizer))
            parts.append(_columns(number, text, paragraph.sentences, self.tokenizer))
        columns = [
            np.concatenate([part[column] for part in parts]) for column in range(7)
        ]
        # Words are numbered over the whole context.
        words = [int(part[6].max(initial=-1)) + 1 for part in parts]
        shift = np.repeat(np.cumsum([0, *words[:-1]]), [len(part[0]) for part in parts])
        ids, owner, sentence, start, end, first_word, last_word = columns
        places = owner, sentence, start, end, first_word + shift, last_word + shift
        return TokenizedRecord(
            record, texts, *self._asked(record), ids.astype(np.int32), *places
        )

    def _asked(self, record: QuestionRecord) -> tuple[Ids, tuple[Ids, ...]]:
        """Return the tokens of the question and of each candidate, cut to their maximum lengths."""
        question = _pieces(self.tokenizer, record.question).ids[
            : self.settings.question_tokens
        ]
        candidates = (
            _pieces(self.tokenizer, text).ids[:CANDIDATE_TOKENS]
            for text in record.candidates
        )
        return question, tuple(candidates)

    def check_room(self, records: Iterable[QuestionRecord], source: Path | str) -> None:
        """Check that inputs have room for paragraphs after their headers.

        `DataError` names `source` and the first record whose question and candidates leave less than
        `LEAST_CONTEXT` tokens.
        """
        for record in records:
            # The configuration ensures room for a question without candidates.
            taken = _header_tokens(*self._asked(record)) if record.candidates else 0
            if taken + _BEHIND > self.settings.length:
                raise DataError(f"{source}: {self._too_long(record, taken)}")

    def _too_long(self, record: QuestionRecord, taken: int) -> str:
        asked = f"question and {len(record.candidates)} candidates have {taken} tokens"
        left = f"length {self.settings.length} leaves too few tokens for the paragraphs"
        return (
            f"record {record.id!r}: {asked}; {left}: at least {taken + _BEHIND} needed"
        )

    def windows(self, document: TokenizedRecord) -> list[Window]:
        """Return the windows of a context, each with room for the header and a [SEP]; at least one.

        Windows begin every `stride` tokens, or at the end of the preceding window, up to the end of the
        context. `DataError` if the header leaves no token; `check_room` finds such records in advance.
        """
        taken = _header_tokens(document.question, document.candidates)
        room = self.settings.length - taken - 1
        if room < 1:
            raise DataError(self._too_long(document.record, taken))
        tokens, step = len(document.ids), min(self.settings.stride, room)
        begins = range(0, max(tokens - room, 0), step)
        return [
            *(Window(begin, begin + room) for begin in begins),
            Window(len(begins) * step, tokens),
        ]

    def row(self, document: TokenizedRecord, window: Window) -> WindowInput:
        """Return a window after its header: [CLS], question, [SEP], and each candidate with a [SEP].

        Extra globals represent, in order, [CLS], the question's tokens, the candidates, and each paragraph of
        the window with, if supporting facts are predicted, each of its sentences; parts beyond the number
        `extra` have none.
        """
        cls, sep = np.array(
            [[self.tokenizer.cls_id], [self.tokenizer.sep_id]], np.int32
        )
        asked = _header_tokens(document.question, document.candidates)
        front = [
            cls,
            document.question,
            sep,
            *(part for one in document.candidates for part in (one, sep)),
        ]
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
                row.take(
                    PARAGRAPH,
                    here,
                    there if sentence == TITLE or facts else len(ids) - 1,
                )
                last = paragraph
            if sentence != TITLE and facts:
                row.add_anchor(SENTENCE, here, there, (paragraph, sentence))
        return row

    def collate(self, rows: Sequence[WindowInput]) -> Batch:
        """Return rows as padded tensors."""
        ids, lengths = pad([row.ids for row in rows], self.tokenizer.pad_id)
        batch = {
            **{
                "ids": ids,
                "lengths": lengths,
                "asked": torch.tensor([row.asked for row in rows]),
            },
            "anchors": filled([row.anchors for row in rows]),
        }
        if self.extra:
            batch["global_ids"] = torch.from_numpy(
                np.stack([row.global_ids for row in rows])
            )
            batch["global_kinds"] = torch.from_numpy(
                np.stack([row.global_kinds for row in rows])
            )
            batch["owners"] = pad([row.owners for row in rows], -1)[0]
        return batch


def _header_tokens(question: Ids, candidates: Sequence[Ids]) -> int:
    return len(question) + 2 + sum(len(one) + 1 for one in candidates)


def filled(rows: Sequence[Sequence[int]]) -> Tensor:
    """Return rows of numbers (B, widest), padded with -1; at least one column."""
    return pad([np.array(row, np.int64) for row in rows], -1, max(1, *map(len, rows)))[
        0
    ]


def some_rows(batch: Batch, rows: Tensor) -> Batch:
    """Return rows of a batch, without their common padding."""
    part = take_rows(batch, rows)
    if "owners" in part:
        part["owners"] = part["owners"][:, : part["ids"].shape[1]].contiguous()
    return part


def network_input(batch: Batch) -> AnswerInput:
    """Return the network's inputs from a batch."""
    return AnswerInput(
        **{name: batch[name] for name in AnswerInput._fields if name in batch}
    )
