"""PyTorch data sets for `prepare chromatin` and `prepare promoter-windows`, for training with other code.

A data set can be pickled and sent to the workers of a `DataLoader`, which open the reference separately.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import Dataset

from bigbird_dna.config.promoters import DERIVED_SETS
from bigbird_dna.data.promoter_windows import read_windows, window_sequences
from bigbird_dna.errors import DataError, UsageError, check_at_least_one, check_choice
from bigbird_dna.genome.chromatin.dataset import read_dataset
from bigbird_dna.genome.chromatin.labels import PackedLabels
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import base_codes
from bigbird_dna.genome.splits import Split
from bigbird_dna.model.batching import pad, window_rows
from bigbird_dna.model.model import LoadedModel
from bigbird_dna.tokens.interface import Tokenizer

# Axes: L bp of a window, n tokens of a window, B items of a batch, T tracks.

Form = Literal["text", "one-hot", "tokens"]

Item = tuple[Any, Tensor]
"""A window in its form, and its labels."""

_LONGEST = 1 << 30
_ROWS = np.eye(5, 4, dtype=np.float32)  # the row of N is all zero


class _Windows(Dataset[Item]):
    """Windows in a form, with labels; subclasses define the source of the windows."""

    _targets: PackedLabels  # labels of each item

    def __init__(
        self, form: Form, tokenizer: LoadedModel | Tokenizer | None, split: Split | None
    ) -> None:
        check_choice("form", form, get_args(Form))
        if form == "tokens" and tokenizer is None:
            raise UsageError("form 'tokens' needs a tokenizer, or a model with one")
        if split is not None:
            check_choice("split", split, get_args(Split))
        self.form = form
        self.tokenizer = (
            tokenizer.tokenizer if isinstance(tokenizer, LoadedModel) else tokenizer
        )

    def sequence(self, number: int) -> str:
        """Return the window of an item (L bp) in A C G T N."""
        raise NotImplementedError

    def __len__(self) -> int:
        return len(self._targets)

    def __getitem__(self, number: int) -> Item:
        if not -len(self) <= number < len(self):
            raise IndexError(
                f"item {number} of {len(self)}"
            )  # ends a loop over the data set
        number %= len(self)
        text = self.sequence(number)
        labels = torch.from_numpy(self._targets.rows([number])[0].astype(np.float32))
        if self.form == "text":
            return text, labels
        if self.form == "one-hot":
            return torch.from_numpy(one_hot(text)), labels
        assert self.tokenizer is not None
        (row,) = window_rows(self.tokenizer, [text], _LONGEST, 0.5)
        return torch.from_numpy(row.astype(np.int64)), labels

    def collate(
        self, items: Sequence[Item]
    ) -> tuple[Any, Any, Tensor] | tuple[Any, Tensor]:
        """Collate items to a batch: the `collate_fn` of a `DataLoader`, required for tokens only.

        Tokens become ids (B, longest), padded with the tokenizer's padding, and their lengths (B,). One-hot
        windows become (B, 4, L), and texts a list. Labels (B, T) come last.
        """
        labels = torch.stack([own for _, own in items])
        windows = [window for window, _ in items]
        if self.form == "text":
            return windows, labels
        if self.form == "one-hot":
            return torch.stack(windows), labels
        assert self.tokenizer is not None
        return *pad(
            [window.numpy() for window in windows], self.tokenizer.pad_id
        ), labels


class TrackWindows(_Windows):
    """Windows around the bins of a data set of `prepare chromatin`, with the labels of the tracks.

    Item `i` is a window and its labels, float32 (T,), 1 where the bin is in a peak of the track. The window
    is

    * a text of L letters A C G T N (`form="text"`),
    * a float32 array (4, L), rows A C G T, a column of zeros for N (`"one-hot"`), or
    * int64 token ids (n,), with [CLS] and [SEP] (`"tokens"`); this form needs `collate`, since n varies.

    Parameters
    ----------
    data
        The data set's directory.
    reference
        FASTA file of the data set, plain or bgzip.
    window
        Length in bp, centered on the bin; positions beyond the contig are N.
    split
        train, valid or test; None selects all.
    form, tokenizer
        Form of the windows; "tokens" needs a tokenizer, or a model with one.

    Attributes
    ----------
    tracks
        Names of the labels, in order.
    intervals
        The window of each item on the reference, 0-based.

    Raises
    ------
    DataError, UsageError
        A file is missing or damaged; the data set lacks the split; an argument is out of range.
    """

    def __init__(
        self,
        data: Path | str,
        reference: Reference | str | os.PathLike[str],
        *,
        window: int,
        split: Split | None = "train",
        form: Form = "text",
        tokenizer: LoadedModel | Tokenizer | None = None,
    ) -> None:
        super().__init__(form, tokenizer, split)
        check_at_least_one({"window": window})
        found = read_dataset(Path(data))
        rows = np.arange(len(found)) if split is None else found.rows(split)
        self.tracks = [track.name for track in found.tracks]
        self.intervals = found.windows(window, rows)
        contigs = {interval.contig for interval in self.intervals}
        self.reference = _opened(data, reference, contigs, split)
        self._targets = found.labels.take(rows)

    def sequence(self, number: int) -> str:
        """Return the window of an item (L bp) in A C G T N."""
        return self.reference.fetch(self.intervals[number])


class PromoterWindows(_Windows):
    """Promoters and their negatives from a data set of `prepare promoter-windows`.

    Item `i` is a window in transcription order, in one of the forms of `TrackWindows`, and its label, float32
    (1,): 1 for a promoter.

    Parameters
    ----------
    negative_set
        A negative set of the data set, such as genomic, permuted or substituted.
    seed
        Seed of the configuration of the data set; required only for derived negatives.
    data, reference, split, form, tokenizer
        As in `TrackWindows`.

    Attributes
    ----------
    rows
        The windows, in the order of the items: contig, start, end, strand, split, negative_set, pair, name.

    Raises
    ------
    DataError, UsageError
        A file is missing or damaged; the data set lacks the negatives or split; an argument is out of range.
    """

    def __init__(
        self,
        data: Path | str,
        reference: Reference | str | os.PathLike[str],
        *,
        negative_set: str,
        seed: int | None = None,
        split: Split | None = "train",
        form: Form = "text",
        tokenizer: LoadedModel | Tokenizer | None = None,
    ) -> None:
        super().__init__(form, tokenizer, split)
        if seed is None and negative_set in DERIVED_SETS:
            raise UsageError(
                f"negative_set {negative_set!r} needs seed=, the seed of the configuration"
            )
        rows, labels = read_windows(Path(data), negative_set)
        kept = (
            np.full(len(rows), True)
            if split is None
            else (rows["split"] == split).to_numpy()
        )
        self.rows = rows[kept].reset_index(drop=True)
        self._targets = PackedLabels.from_dense(labels[kept, None])
        genome = _opened(data, reference, set(self.rows["contig"]), split)
        self._texts = window_sequences(genome, self.rows, seed or 0)

    def sequence(self, number: int) -> str:
        """Return the window of an item (L bp) in transcription order, in A C G T N."""
        return self._texts[number]


def one_hot(sequence: str) -> npt.NDArray[np.float32]:
    """Return the one-hot encoding (4, L): rows A C G T, a column of zeros for N."""
    return np.ascontiguousarray(_ROWS[base_codes(sequence)].T)


def _opened(
    data: Path | str,
    reference: Reference | str | os.PathLike[str],
    contigs: set[str],
    split: str | None,
) -> Reference:
    """Open the reference of a data set with windows on `contigs`; `DataError` if there are no windows."""
    if not contigs:
        raise DataError(
            f"{data}: no windows" + (f" of split {split!r}" if split else "")
        )
    genome = (
        reference if isinstance(reference, Reference) else Reference(Path(reference))
    )
    if missing := sorted(contigs - set(genome.contigs)):
        raise DataError(
            f"{data}: contig {missing[0]!r} is not in {genome.path}; check the reference"
        )
    return genome
