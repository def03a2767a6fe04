"""What is to be learnt from a window: where answers stand, the answer's type, facts or the candidate."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from bigbird_dna.nlp.answers.documents import Document, Span, Window
from bigbird_dna.nlp.answers.inputs import Row, filled
from bigbird_dna.nlp.answers.matching import places_of
from bigbird_dna.nlp.answers.settings import LongAnswersSettings
from bigbird_dna.nlp.answers.text_metrics import normalised
from bigbird_dna.training.micro_batches import Batch

NULL = Span(0, 0)
"""[CLS]: no answer stands in the window."""


@dataclass(frozen=True, eq=False)
class Known:
    """What a document's record says of the answer, by tokens of the context."""

    spans: tuple[Span, ...]
    long: Span | None
    type: str | None
    facts: frozenset[tuple[int, int]]
    candidate: int | None


def known_of(document: Document, settings: LongAnswersSettings) -> Known:
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
    return Known(
        tuple(sorted({span for span in spans if span is not None})),
        None if long is None else document.span(long, 0, len(document.texts[long])),
        record.type,
        frozenset((fact.paragraph, fact.sentence) for fact in record.facts),
        _candidate(document) if settings.form == "wikihop" else None,
    )


def _candidate(document: Document) -> int | None:
    answers = {normalised(answer.text) for answer in document.record.answers}
    names = [normalised(text) for text in document.record.candidates]
    return next((number for number, name in enumerate(names) if name in answers), None)


def tells(known: Known, document: Document, window: Window) -> bool:
    """Whether anything of what is asked for stands in a window."""
    if known.spans or known.long:
        return any(_inside(span, window) for span in (*known.spans, *filter(None, [known.long])))
    facts = ((paragraph, sentence) for paragraph, sentence, _ in document.sentences(window))
    return not known.facts or not known.facts.isdisjoint(facts)


def labels_of(rows: Sequence[tuple[Row, Known, Window]], settings: LongAnswersSettings) -> Batch:
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


def _inside(span: Span, window: Window) -> bool:
    return window.begin <= span.first and span.last < window.end


def _targets(spans: Sequence[Span], window: Window, shift: int) -> list[int]:
    found = [Span(one.first + shift, one.last + shift) for one in spans if _inside(one, window)]
    return [packed(one) for one in found or [NULL]]


def packed(span: Span) -> int:
    """A span as one number, so that rows of them are padded as other numbers are."""
    return (span.first << 20) + span.last


def unpacked(spans: Tensor) -> tuple[Tensor, Tensor]:
    """First and last tokens of packed spans; 0 of what is -1."""
    kept = spans.clamp(min=0)
    return kept >> 20, kept & ((1 << 20) - 1)


def _type(known: Known, window: Window, settings: LongAnswersSettings) -> int:
    if known.type not in settings.types:
        return -1
    there = known.long is None or _inside(known.long, window)
    if settings.form == "natural_questions" and not there:
        return settings.types.index("null")
    return settings.types.index(known.type)


def choose_window(
    windows: Sequence[Window], known: Known, document: Document, rng: np.random.Generator
) -> Window:
    """One window of a document: half of the time one of those that tell something, if there are any."""
    if len(windows) == 1:
        return windows[0]
    telling = [window for window in windows if tells(known, document, window)]
    drawn = telling if telling and rng.random() < 0.5 else windows
    return drawn[int(rng.integers(len(drawn)))]
