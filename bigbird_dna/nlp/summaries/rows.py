"""Documents and summaries as token ids, and back as text."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bigbird_dna.errors import DataError
from bigbird_dna.nlp.records import SummaryRecord, read_records
from bigbird_dna.nlp.summaries.settings import Form, SpecialIds
from bigbird_dna.tokens.interface import Tokenizer

Ids = NDArray[np.int32]
IGNORED = -100
"""The label of padding, which torch's cross-entropy leaves out."""


class Reader(NamedTuple):
    """How documents and summaries become rows of ids."""

    tokenizer: Tokenizer
    special: SpecialIds
    form: Form
    keep: Literal["first", "last"]  # of a document that is too long

    def document(self, text: str, tokens: int) -> Ids:
        """Ids of a document, at most `tokens`: in the base form between start and end, else before an end."""
        ids = self.tokenizer.encode(text)
        first = [self.special.start] if self.form == "base" else []
        room = tokens - len(first) - 1
        if len(ids) > room:
            ids = ids[:room] if self.keep == "first" else ids[len(ids) - room :]
        return np.concatenate([first, ids, [self.special.end]]).astype(np.int32)

    def summary(self, text: str, tokens: int) -> Ids:
        """Ids of a summary with its end, at most `tokens` with the start that isn't among them."""
        return np.append(self.tokenizer.encode(text)[: tokens - 2], self.special.end).astype(np.int32)

    def text(self, ids: Iterable[int]) -> str:
        """The text of a summary."""
        special = {self.special.start, self.special.end, self.special.pad, *self.tokenizer.specials}
        return self.tokenizer.decode(index for index in ids if index not in special).strip()


def labels(summaries: Sequence[Ids]) -> Tensor:
    """Summaries with their ends, padded with `IGNORED`: what a decoder is to say, (B, T)."""
    rows = torch.full((len(summaries), max(map(len, summaries))), IGNORED)
    for row, ids in zip(rows, summaries, strict=True):
        row[: len(ids)] = torch.from_numpy(ids)
    return rows


def said_before(labels: Tensor, special: SpecialIds) -> Tensor:
    """What a decoder reads while it says `labels` (B, T): the start, and each token but the last."""
    before = labels.roll(1, 1).masked_fill(labels.roll(1, 1) == IGNORED, special.pad)
    before[:, 0] = special.start
    return before


def read_summarised(path: Path) -> list[SummaryRecord]:
    """Records with their summaries; `DataError` names the first that has none, or stands twice."""
    found: dict[str, SummaryRecord] = {}
    for record in read_records(path, SummaryRecord):
        if not record.summary or not record.summary.strip():
            raise DataError(f"{path}: record {record.id!r} has no summary")
        if record.id in found:
            raise DataError(f"{path}: record {record.id!r} stands twice")
        found[record.id] = record
    return [*found.values()]
