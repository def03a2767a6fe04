"""Predict answers: the network scores every window of a record, and the scores are combined."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bigbird_dna.papers.nlp.answers.documents import (
    TITLE,
    AnswerNetwork,
    AnswerReader,
    LongAnswersSettings,
    TokenizedRecord,
    TokenSpan,
    Window,
    WindowInput,
    network_input,
)
from bigbird_dna.papers.nlp.records import QuestionRecord
from bigbird_dna.training.loop import on_device

BEGINNINGS = 20
"""Number of best-scoring tokens of a window that are tried as the beginning of an answer."""

Scores = NDArray[np.floating]


@dataclass(eq=False)
class WindowScores:
    """Network outputs of a window, without padding."""

    window: Window
    row: WindowInput
    marks: Scores  # (L, 2 or 4)
    types: Scores  # (types,)
    anchors: Scores  # (A,)


@dataclass(eq=False)
class DecodedAnswer:
    """A predicted answer; scores are sums of logits minus those of [CLS], which means no answer.

    If there are long answers, `span` and `type` belong to `long`.
    """

    span: TokenSpan | None = None
    score: float = -np.inf
    long: int | None = None
    long_score: float = -np.inf
    type: str | None = None
    facts: list[tuple[int, int]] = field(default_factory=list)
    candidate: int | None = None


def best_span(
    document: TokenizedRecord,
    window: Window,
    start: Scores,
    end: Scores,
    most_words: int,
) -> tuple[TokenSpan, float] | None:
    """Return the best span of a window's context within one paragraph and `most_words` words, and its score.

    `start` and `end` are scores of the context's tokens; ties go to the first. None: the window has only
    titles.
    """
    here = slice(window.begin, window.end)
    paragraph, words = document.paragraph[here], document.last_word[here]
    first_word = document.first_word[here]
    open_ = document.sentence[here] != TITLE
    if not open_.any():
        return None
    starts = np.where(open_, start, -np.inf)
    best: tuple[TokenSpan, float] | None = None
    for first in np.argsort(-starts, kind="stable")[:BEGINNINGS]:
        if not open_[first]:
            break
        far = np.flatnonzero(
            (paragraph[first:] != paragraph[first])
            | (words[first:] - first_word[first] >= most_words)
        )
        stop = first + int(far[0]) if len(far) else len(starts)
        if stop == first:  # a later token of a word with several tokens
            continue
        last = first + int(end[first:stop].argmax())
        score = float(starts[first] + end[last])
        if best is None or score > best[1]:
            best = TokenSpan(window.begin + int(first), window.begin + last), score
    return best


def answer(
    document: TokenizedRecord, scored: list[WindowScores], settings: LongAnswersSettings
) -> DecodedAnswer:
    """Combine the windows of a document: the best span, facts by their best score, and so on."""
    decoded = DecodedAnswer()
    sums: dict[tuple[int, int], list[float]] = {}
    types = np.zeros(len(settings.types))
    for one in scored:
        for name, value in zip(one.row.anchor_of, one.anchors, strict=True):
            sums.setdefault(name, []).append(float(value))
        if settings.form == "hotpotqa":
            types += one.types
        if settings.form == "natural_questions":
            _long(document, one, settings, decoded)
        elif settings.form != "wikihop":
            found = _span(document, one, one.window, settings)
            if found is not None and found[1] > decoded.score:
                decoded.span, decoded.score = found
    if settings.form == "hotpotqa":
        decoded.type = settings.types[int(types.argmax())]
        decoded.facts = sorted(name for name, values in sums.items() if max(values) > 0)
    if settings.form == "wikihop" and sums:
        decoded.candidate = max(sums, key=lambda name: sum(sums[name]))[0]
    if settings.unanswerable and decoded.score < 0:
        decoded.span = None
    return decoded


def _long(
    document: TokenizedRecord,
    one: WindowScores,
    settings: LongAnswersSettings,
    decoded: DecodedAnswer,
) -> None:
    """Update the best long answer from a window, with the window's type and best span for it.

    As in the data set, a short answer is inside the long answer.
    """
    nothing = float(one.marks[0, 2:].astype(np.float64).sum())
    shift = one.row.asked - one.window.begin
    for paragraph in np.unique(document.paragraph[one.window.begin : one.window.end]):
        tokens = np.flatnonzero(
            (document.paragraph == paragraph) & (document.sentence != TITLE)
        )
        if (
            not len(tokens)
            or tokens[0] < one.window.begin
            or tokens[-1] >= one.window.end
        ):
            continue
        part = Window(int(tokens[0]), int(tokens[-1]) + 1)
        ends = np.array(
            [one.marks[part.begin + shift, 2], one.marks[part.end - 1 + shift, 3]],
            np.float64,
        )
        score = float(ends.sum()) - nothing
        if score > decoded.long_score:
            decoded.long, decoded.long_score = int(paragraph), score
            decoded.type = settings.types[int(one.types.argmax())]
            decoded.span, decoded.score = _span(document, one, part, settings) or (
                None,
                -np.inf,
            )


def _span(
    document: TokenizedRecord,
    one: WindowScores,
    part: Window,
    settings: LongAnswersSettings,
) -> tuple[TokenSpan, float] | None:
    """Return the best span of a part of a window, and its score minus that of no answer."""
    shift = one.row.asked - one.window.begin
    marks = one.marks[part.begin + shift : part.end + shift, :2].astype(np.float64)
    found = best_span(document, part, marks[:, 0], marks[:, 1], settings.answer_words)
    nothing = one.marks[0].astype(np.float64)
    return found and (found[0], found[1] - float(nothing[0] + nothing[1]))


def read_answers(
    network: AnswerNetwork,
    records: Sequence[QuestionRecord],
    reader: AnswerReader,
    device: torch.device,
    batch_size: int,
) -> Iterator[dict[str, Any]]:
    """Yield the prediction of each record, as lines of a file."""
    for record in records:
        document, scored = reader.document(record), []
        each = iter(reader.windows(document))
        while some := [*islice(each, batch_size)]:
            rows = [reader.row(document, window) for window in some]
            with torch.inference_mode():
                found = network(*network_input(on_device(reader.collate(rows), device)))
            none = np.zeros((len(rows), 0), np.float32)
            scores = [
                none if part is None else part.float().cpu().numpy() for part in found
            ]
            for window, row, marks, types, anchors in zip(
                some, rows, *scores, strict=True
            ):
                scored.append(
                    WindowScores(
                        window,
                        row,
                        marks[: len(row.ids)],
                        types,
                        anchors[: len(row.anchors)],
                    )
                )
        yield _line(
            document, answer(document, scored, reader.settings), reader.settings
        )


def _line(
    document: TokenizedRecord, decoded: DecodedAnswer, settings: LongAnswersSettings
) -> dict[str, Any]:
    found: dict[str, Any] = {"id": document.record.id, "answer": ""}
    if settings.form == "wikihop":
        if decoded.candidate is not None:
            found["answer"] = document.record.candidates[decoded.candidate]
        return found
    if decoded.span is not None:
        place = decoded.span.first
        found |= {
            "answer": document.text(decoded.span),
            "paragraph": int(document.paragraph[place]),
            "start": int(document.start[place]),
            "score": decoded.score,
        }
    if settings.form == "hotpotqa":
        if decoded.type in ("yes", "no"):
            found = {"id": document.record.id, "answer": decoded.type}
        found |= {"type": decoded.type, "facts": [list(fact) for fact in decoded.facts]}
    if settings.form == "natural_questions":
        found |= {"type": decoded.type or "null", "long_answer": decoded.long}
        found["long_score"] = decoded.long_score if decoded.long is not None else None
    return found
