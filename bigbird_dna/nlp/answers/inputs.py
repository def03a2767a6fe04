"""Windows of documents as rows of a batch, with what is to be learnt from them.

Axes: B rows, L tokens, G extra globals, A anchors, S spans.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bigbird_dna.nlp.answers.documents import TITLE, Document, Window, header
from bigbird_dna.nlp.answers.network import CANDIDATE, CLS, PARAGRAPH, QUESTION, SENTENCE, UNUSED, AnswerInput
from bigbird_dna.nlp.answers.settings import LongAnswersSettings
from bigbird_dna.tokens.interface import Tokenizer
from bigbird_dna.training.micro_batches import Batch, take_rows

MOST_ANCHORS = 4096


@dataclass(eq=False)
class Row:
    """A window as the network reads it; `anchor_of` says what each anchor is."""

    ids: NDArray[np.int32]
    asked: int
    anchors: list[int]
    anchor_of: list[tuple[int, int]]  # paragraph and sentence, or candidate and 0
    global_ids: NDArray[np.int64]
    global_kinds: NDArray[np.int64]
    owners: NDArray[np.int64]


def make_row(
    document: Document, window: Window, tokenizer: Tokenizer, settings: LongAnswersSettings, extra: int
) -> Row:
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
    return Row(
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


def collate(rows: Sequence[Row], pad_id: int) -> Batch:
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
    return AnswerInput(
        batch["ids"],
        batch["lengths"],
        batch["asked"],
        batch["anchors"],
        batch.get("global_ids"),
        batch.get("global_kinds"),
        batch.get("owners"),
    )
