"""A record as tokens that know what characters they stand for, and the windows that it is read in.

Axes: N tokens of the context; of batches B rows, L tokens, G extra globals, A anchors.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bigbird_dna.errors import DataError
from bigbird_dna.papers.nlp.answers.network import (
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
from bigbird_dna.papers.nlp.sections import LEAST_CONTEXT
from bigbird_dna.tokens.interface import TextPieces, Tokenizer
from bigbird_dna.training.batches import Batch, take_rows

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


def read_document(record: QuestionRecord, tokenizer: Tokenizer, question_tokens: int) -> TokenizedRecord:
    """Tokenize a record; a question longer than `question_tokens` is cut."""
    texts = tuple("".join(paragraph.sentences) for paragraph in record.paragraphs)
    parts = []
    for number, (paragraph, text) in enumerate(zip(record.paragraphs, texts, strict=True)):
        if paragraph.title:
            parts.append(_columns(number, paragraph.title, None, tokenizer))
        parts.append(_columns(number, text, paragraph.sentences, tokenizer))
    columns = [np.concatenate([part[column] for part in parts]) for column in range(7)]
    # Words are counted over the whole context.
    counted, before = [], 0
    for part in parts:
        counted.append(np.full(len(part[0]), before))
        before += int(part[6].max(initial=-1)) + 1
    shift = np.concatenate(counted).astype(np.int64)
    ids, owner, sentence, start, end, first_word, last_word = columns
    places = owner, sentence, start, end, first_word + shift, last_word + shift
    question, candidates = _asked(record, tokenizer, question_tokens)
    return TokenizedRecord(record, texts, question, candidates, ids.astype(np.int32), *places)


def _asked(record: QuestionRecord, tokenizer: Tokenizer, question_tokens: int) -> tuple[Ids, tuple[Ids, ...]]:
    """Tokens of the question and of each candidate, cut."""
    candidates = (_pieces(tokenizer, text).ids[:CANDIDATE_TOKENS] for text in record.candidates)
    return _pieces(tokenizer, record.question).ids[:question_tokens], tuple(candidates)


def check_room(
    records: Iterable[QuestionRecord],
    tokenizer: Tokenizer,
    question_tokens: int,
    length: int,
    source: Path | str,
) -> None:
    """See that inputs of `length` tokens have room for paragraphs behind their headers.

    `DataError` names `source` and the first record whose question and candidates leave less than
    `LEAST_CONTEXT` tokens.
    """
    for record in records:
        if not record.candidates:  # nothing but the question, which the configuration has room for
            continue
        question, candidates = _asked(record, tokenizer, question_tokens)
        taken = len(question) + 2 + sum(len(one) + 1 for one in candidates)
        if taken + _BEHIND > length:
            raise DataError(f"{source}: {_too_long(record, taken, length)}")


def _too_long(record: QuestionRecord, taken: int, length: int) -> str:
    return (
        f"record {record.id!r}: its question and {len(record.candidates)} candidates take {taken} tokens, of "
        f"length {length} too few are left for its paragraphs: {taken + _BEHIND} are needed"
    )


def header(document: TokenizedRecord, tokenizer: Tokenizer) -> tuple[Ids, list[int], list[int]]:
    """[CLS], question, [SEP], each candidate with a [SEP]; the candidates' first tokens and their ends."""
    cls, sep = np.array([tokenizer.cls_id], np.int32), np.array([tokenizer.sep_id], np.int32)
    parts, firsts, ends = [cls, document.question, sep], [], []
    length = len(document.question) + 2
    for candidate in document.candidates:
        parts += [candidate, sep]
        firsts.append(length)
        length += len(candidate) + 1
        ends.append(length)
    return np.concatenate(parts), firsts, ends


def windows(document: TokenizedRecord, length: int, stride: int, header_tokens: int) -> list[Window]:
    """The windows of a context, each with room for the header and a [SEP]; at least one.

    One begins every `stride` tokens, or where the one before it ends, until the end is read. `DataError` if
    the header leaves no token, which `check_room` tells of all records beforehand.
    """
    room = length - header_tokens - 1
    if room < 1:
        raise DataError(_too_long(document.record, header_tokens, length))
    tokens, step = len(document.ids), min(stride, room)
    begins = range(0, max(tokens - room, 0), step)
    whole = [Window(begin, begin + room) for begin in begins]
    return [*whole, Window(len(begins) * step, tokens)]


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


@dataclass(eq=False)
class WindowInput:
    """A window as the network reads it; `anchor_of` says what each anchor is."""

    ids: NDArray[np.int32]
    asked: int
    anchors: list[int]
    anchor_of: list[tuple[int, int]]  # paragraph and sentence, or candidate and 0
    global_ids: NDArray[np.int64]
    global_kinds: NDArray[np.int64]
    owners: NDArray[np.int64]


def make_row(
    document: TokenizedRecord, window: Window, tokenizer: Tokenizer, settings: LongAnswersSettings, extra: int
) -> WindowInput:
    """A window behind its header, with `extra` extra globals.

    These stand, in order, for [CLS], the question's tokens, the candidates, and for each paragraph of the
    window and, where supporting facts are asked for, each of its sentences; those beyond `extra` have none.
    """
    front, firsts, ends = header(document, tokenizer)
    asked = len(front)
    ids = np.concatenate([front, document.ids[window.begin : window.end], [tokenizer.sep_id]])
    slots = _Slots(extra, len(ids))
    slots.take(CLS, 0, 1, int(front[0]))
    for place, token in enumerate(document.question, 1):
        slots.take(QUESTION, place, place + 1, int(token))
    anchors, names = [], []
    for number, (first, end) in enumerate(zip(firsts, ends, strict=True)):
        slot = slots.take(CANDIDATE, first, end)
        anchors.append(_anchor(slot, first, extra))
        names.append((number, 0))
    begun = document.sentences(window)
    bounds = [place for *_, place in begun[1:]] + [window.end]
    last = None
    for (paragraph, sentence, place), end in zip(begun, bounds, strict=True):
        here, there = asked + place - window.begin, asked + end - window.begin
        if paragraph != last:
            to = there if sentence == TITLE or settings.form == "hotpotqa" else len(ids) - 1
            slots.take(PARAGRAPH, here, to)
            last = paragraph
        if sentence == TITLE or settings.form != "hotpotqa":
            continue
        slot = slots.take(SENTENCE, here, there)
        anchors.append(_anchor(slot, here, extra))
        names.append((paragraph, sentence))
    kept = [place for place, anchor in enumerate(anchors) if anchor >= 0][:MOST_ANCHORS]
    return WindowInput(
        ids.astype(np.int32),
        asked,
        [anchors[place] for place in kept],
        [names[place] for place in kept],
        slots.ids,
        slots.kinds,
        slots.owners,
    )


class _Slots:
    """The extra globals of a row, taken one after the other."""

    def __init__(self, extra: int, tokens: int) -> None:
        self.ids = np.full(extra, -1)
        self.kinds = np.full(extra, UNUSED)
        self.owners = np.full(tokens, -1)
        self._taken = 0

    def take(self, kind: int, begin: int, end: int, token: int = -1) -> int | None:
        """The next one, for the row's tokens `begin … end`; none: there are no more."""
        if self._taken == len(self.ids):
            return None
        slot, self._taken = self._taken, self._taken + 1
        self.ids[slot], self.kinds[slot] = token, kind
        self.owners[begin:end] = slot
        return slot


def _anchor(slot: int | None, token: int, extra: int) -> int:
    """The place of an anchor among extra globals and tokens; -1: there is no extra global left for it."""
    if not extra:
        return token
    return -1 if slot is None else slot


def collate(rows: Sequence[WindowInput], pad_id: int) -> Batch:
    """Rows as tensors, padded."""
    longest = max(len(row.ids) for row in rows)
    ids = np.full((len(rows), longest), pad_id, np.int64)
    owners = np.full((len(rows), longest), -1, np.int64)
    for number, row in enumerate(rows):
        ids[number, : len(row.ids)] = row.ids
        owners[number, : len(row.ids)] = row.owners
    batch = {
        "ids": torch.from_numpy(ids),
        "lengths": torch.tensor([len(row.ids) for row in rows]),
        "asked": torch.tensor([row.asked for row in rows]),
        "anchors": filled([row.anchors for row in rows]),
    }
    if len(rows[0].global_ids):
        batch["global_ids"] = torch.from_numpy(np.stack([row.global_ids for row in rows]))
        batch["global_kinds"] = torch.from_numpy(np.stack([row.global_kinds for row in rows]))
        batch["owners"] = torch.from_numpy(owners)
    return batch


def filled(rows: Sequence[Sequence[int]]) -> Tensor:
    """Rows of numbers (B, widest), filled up by -1; at least one column."""
    width = max(1, *map(len, rows)) if rows else 1
    table = torch.full((len(rows), width), -1)
    for number, row in enumerate(rows):
        table[number, : len(row)] = torch.tensor(row, dtype=torch.long)
    return table


def some_rows(batch: Batch, rows: Tensor) -> Batch:
    """Some rows of a batch, without the padding that all of these have."""
    part = take_rows(batch, rows)
    if "owners" in part:
        part["owners"] = part["owners"][:, : part["ids"].shape[1]].contiguous()
    return part


def network_input(batch: Batch) -> AnswerInput:
    """What of a batch the network reads."""
    return AnswerInput(**{name: batch[name] for name in AnswerInput._fields if name in batch})
