"""Questions with their documents as tokens with character offsets, divided into windows of a fixed length.

Axes: N tokens of the context; in batches, B rows, L tokens, G extra globals, A anchors.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bigbird_dna.errors import DataError
from bigbird_dna.model.batching import pad
from bigbird_dna.papers.nlp.config import LEAST_CONTEXT
from bigbird_dna.papers.nlp.question_network import (
    CANDIDATE,
    CLS,
    PARAGRAPH,
    QUESTION,
    SENTENCE,
    UNUSED,
    AnswerInput,
    LongAnswersSettings,
)
from bigbird_dna.papers.nlp.records import QuestionRecord
from bigbird_dna.tokens.interface import TextPieces, Tokenizer
from bigbird_dna.training.loop import Batch, take_rows

Ids = NDArray[np.int32]
Column = NDArray[np.int64]
CANDIDATE_TOKENS = 16
MOST_ANCHORS = 4096
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
        if position is not None and len(self.anchors) < MOST_ANCHORS:
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

    def _pieces(self, text: str) -> TextPieces:
        """Tokenize a text that begins with a word; a space is prepended, because tokenizers depend on it."""
        return self.tokenizer.text_pieces(text if text[:1].isspace() else " " + text)

    def _header(self, record: QuestionRecord) -> tuple[Ids, list[Ids]]:
        question = self._pieces(record.question).ids[: self.settings.question_tokens]
        candidates = []
        if self.settings.form == "wikihop":
            for text in record.candidates:
                candidates.append(self._pieces(text).ids[:CANDIDATE_TOKENS])
        return question, candidates

    def _columns(self, text: str, number: int, sentence_ends: Column | None) -> Column:
        """Return the columns (7, n) of the tokens of a paragraph's text, or of its title (no sentences)."""
        shift = 0 if text[:1].isspace() else 1
        ids, starts, ends = self._pieces(text)
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


def network_input(batch: Batch) -> AnswerInput:
    """Return the network's inputs from a batch."""
    names = [name for name in AnswerInput._fields if name in batch]
    return AnswerInput(**{name: batch[name] for name in names})
