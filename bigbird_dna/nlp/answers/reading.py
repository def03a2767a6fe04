"""A network reads records: every window, and what they say together."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
import torch

from bigbird_dna.nlp.answers.decoding import Said, WindowScores, answer
from bigbird_dna.nlp.answers.documents import Document, header, read_document, windows
from bigbird_dna.nlp.answers.inputs import collate, make_row, network_input
from bigbird_dna.nlp.answers.network import AnswerNetwork
from bigbird_dna.nlp.answers.settings import LongAnswersSettings
from bigbird_dna.nlp.records import QuestionRecord
from bigbird_dna.tokens.interface import Tokenizer
from bigbird_dna.training.micro_batches import on_device

_NONE = np.zeros((0,), np.float32)


def predictions(
    network: AnswerNetwork,
    records: Sequence[QuestionRecord],
    tokenizer: Tokenizer,
    settings: LongAnswersSettings,
    device: torch.device,
    batch_size: int,
) -> Iterator[dict[str, Any]]:
    """What is predicted for each record, as lines of a file have it."""
    for record in records:
        document = read_document(record, tokenizer, settings.question_tokens)
        with torch.inference_mode():
            scored = [*_scored(network, document, tokenizer, settings, device, batch_size)]
        yield _line(document, answer(document, scored, settings), settings)


def _scored(
    network: AnswerNetwork,
    document: Document,
    tokenizer: Tokenizer,
    settings: LongAnswersSettings,
    device: torch.device,
    batch_size: int,
) -> Iterator[WindowScores]:
    taken = len(header(document, tokenizer)[0])
    extra = network.encoder.config.extra_globals
    each = iter(windows(document, settings.length, settings.stride, taken))
    while some := [*islice(each, batch_size)]:
        rows = [make_row(document, window, tokenizer, settings, extra) for window in some]
        batch = on_device(collate(rows, tokenizer.pad_id), device)
        found = [
            None if part is None else part.float().cpu().numpy()
            for part in network.read(network_input(batch))
        ]
        marks, types, anchors = found
        assert marks is not None
        for number, (window, row) in enumerate(zip(some, rows, strict=True)):
            yield WindowScores(
                window,
                row,
                marks[number, : len(row.ids)],
                _NONE if types is None else types[number],
                _NONE if anchors is None else anchors[number, : len(row.anchors)],
            )


def _line(document: Document, said: Said, settings: LongAnswersSettings) -> dict[str, Any]:
    found: dict[str, Any] = {"id": document.record.id, "answer": ""}
    if settings.form == "wikihop":
        if said.candidate is not None:
            found["answer"] = document.record.candidates[said.candidate]
        return found
    if said.span is not None:
        place = said.span.first
        found |= {
            "answer": document.text(said.span),
            "paragraph": int(document.paragraph[place]),
            "start": int(document.start[place]),
            "score": said.score,
        }
    if settings.form == "hotpotqa":
        if said.type in ("yes", "no"):
            found = {"id": document.record.id, "answer": said.type}
        found |= {"type": said.type, "facts": [list(fact) for fact in said.facts]}
    if settings.form == "natural_questions":
        found |= {"type": said.type or "null", "long_answer": said.long}
        found["long_score"] = said.long_score if said.long is not None else None
    return found
