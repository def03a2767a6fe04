"""Batches of chromatin training made as plainly as can be, window by window: the measure of other ways."""

from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import numpy.typing as npt
import torch

from bigbird_dna.finetuning.chromatin import ChromatinTask
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import Interval, reverse_complement
from bigbird_dna.model.batching import BinRows, pad
from bigbird_dna.tokens.dna import encode_rows, open_sentencepiece
from bigbird_dna.tokens.interface import Tokenizer
from bigbird_dna.training.loop import Batch

# Axes: N windows, K bins of a window.

Encode = Callable[[str], npt.NDArray[np.int32]]


def sentencepiece_of(tokenizer: Tokenizer) -> Encode:
    """SentencePiece itself with the model of a tokenizer: one text after the other, by one thread."""
    with TemporaryDirectory() as home:
        tokenizer.save(Path(home) / "tokenizer.model")
        content = (Path(home) / "tokenizer.model").read_bytes()
        processor = open_sentencepiece(content, tokenizer.source)
    return lambda text: encode_rows(processor, [text])[0]


class PlainBatches:
    """The batches of a task: every window read from its file, and encoded by SentencePiece."""

    def __init__(self, task: ChromatinTask, reference: Reference) -> None:
        self.task, self.reference = task, reference
        self.encode = sentencepiece_of(task.tokenizer)

    def batch(self, step: int, first: int, count: int) -> Batch:
        """What `ChromatinTask.batch` makes."""
        made, size = self.task, self.task.bins.bin_size
        chosen, shifts, turned = made.draws.at(step, first, count)
        rows, sequences = made.neighbors[chosen], []
        bins = np.empty(rows.shape, np.int64)
        for number, (row, shift, turn) in enumerate(
            zip(made.draws.training[chosen], shifts, turned, strict=True)
        ):
            start = int(made.starts[row]) - (made.window - size) // 2 + int(shift)
            sequence = self.reference.fetch(
                Interval(made.contigs[row], start, start + made.window)
            )
            sides = np.arange(rows.shape[1]) - rows.shape[1] // 2
            begins = int(made.starts[row]) + sides * size - start
            if turn:
                sequence = reverse_complement(sequence)
                begins = (made.window - begins - size)[::-1]
                rows[number] = rows[number, ::-1]
            sequences.append(sequence)
            bins[number] = begins
        encoded = plain_bin_rows(
            made.tokenizer, self.encode, sequences, bins, size, made.encoder.max_length
        )
        ids, lengths = pad(encoded.ids, made.tokenizer.pad_id)
        labels = made.bins.labels.rows(np.maximum(rows, 0).ravel()).reshape(
            *rows.shape, -1
        )
        names = [track.name for track in made.bins.tracks]
        places = [
            names.index(track.opposite or track.name) for track in made.bins.tracks
        ]
        labels[turned] = labels[turned][..., places]
        return {
            "ids": ids,
            "lengths": lengths,
            "spans": torch.from_numpy(encoded.spans),
            "labels": torch.from_numpy(labels),
            "present": torch.from_numpy(rows >= 0),
        }


def plain_bin_rows(
    tokenizer: Tokenizer,
    encode: Encode,
    sequences: Sequence[str],
    bins: npt.NDArray[np.integer],
    bin_size: int,
    positions: int,
) -> BinRows:
    """What `bin_rows` makes, a window at a time."""
    room = positions - 2
    rows = []
    spans = np.empty((*bins.shape, 2), dtype=np.int64)
    for number, sequence in enumerate(sequences):
        ids = encode(sequence)
        offsets = tokenizer.offsets(ids)
        middles = (offsets[:-1] + offsets[1:]) / 2
        if len(ids) > room:
            middle = int(np.searchsorted(middles, len(sequence) / 2))
            start = min(max(middle - room // 2, 0), len(ids) - room)
            ids, middles = ids[start : start + room], middles[start : start + room]
        first = np.minimum(np.searchsorted(middles, bins[number]), len(ids) - 1)
        last = np.searchsorted(middles, bins[number] + bin_size)
        spans[number, :, 0] = 1 + first  # [CLS] comes before
        spans[number, :, 1] = 1 + np.maximum(last, first + 1)
        rows.append(np.array([tokenizer.cls_id, *ids, tokenizer.sep_id], np.int32))
    return BinRows(rows, spans)
