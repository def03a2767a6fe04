"""Predict answers: the network scores every window of a record, and the scores are combined."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bigbird_dna.papers.nlp.question_network import AnswerNetwork, LongAnswersSettings
from bigbird_dna.papers.nlp.question_windows import (
    TITLE,
    AnswerReader,
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
                output = network(*network_input(batch))
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
