"""Dependencies between bases under a masked-token model: how a substitution changes other predictions.

After Tomaz da Silva et al. 2025 ("Nucleotide dependency analysis of genomic language models detects
functional elements"). The dependency of base j on base i is

    e(i, j) = max over substitutions x at i, and bases b, of |logit P(j = b | x at i) − logit P(j = b)|

with natural logarithms, and e(i, i) = 0. P(j = b) is a marginal of the token that covers j: only this token
is masked, and the probabilities of all tokens of the same length that have b at this place are added, as a
fraction of those of all tokens of this length. A sequence with a substitution is tokenized as a whole. Logits
are means over both strands and several offsets of the window.

A substitution also changes token boundaries, near it and in the masked token, inside which it is masked as
well. Within the reach of a few tokens, this is most of what a map shows.

Shapes: L bases of a region, H = 1 + 3 L sequences (the region's own first), S longest token in bp.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bigbird_dna.console import progress
from bigbird_dna.disk.atomic import atomic_path
from bigbird_dna.disk.outputs import file_names
from bigbird_dna.errors import DataError, UsageError, check_at_least_one, check_whole
from bigbird_dna.genome.fasta import stream_fasta
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import (
    Interval,
    base_codes,
    reverse_complement,
    substitutions,
)
from bigbird_dna.genome.variants import window_offsets
from bigbird_dna.model.batching import Ids, run_rows
from bigbird_dna.model.heads import PretrainingOutput
from bigbird_dna.model.inference import choose_device
from bigbird_dna.model.model import LoadedModel
from bigbird_dna.scoring.masked_likelihood import check_masked
from bigbird_dna.scoring.regions import placed_regions
from bigbird_dna.scoring.track_effects import LOWEST
from bigbird_dna.scoring.variant_effects import check_offsets
from bigbird_dna.tokens.interface import BASES, Tokenizer

LONGEST = 300
"""Maximum bp of a region: time grows with the square."""
_ROWS = 2048  # approximate number of inputs in memory

Logits = NDArray[np.float64]


class DependencyMap(NamedTuple):
    """The dependencies of a region, or of a sequence (`contig` its name, `start` 0)."""

    name: str
    contig: str
    start: int  # 0-based
    sequence: str
    matrix: NDArray[
        np.float32
    ]  # (L, L): row i, the substituted base; column j, the predicted base
    file_name: str  # without a suffix, different for each map

    def save(self, path: Path) -> None:
        """Write the map as `.npz`, atomically."""
        with atomic_path(path) as temporary, temporary.open("wb") as file:
            np.savez_compressed(
                file,
                matrix=self.matrix,
                sequence=self.sequence,
                contig=self.contig,
                start=self.start,
            )


class _Given(NamedTuple):
    name: str
    contig: str
    start: int
    before: str
    sequence: str
    after: str


def dependency_maps(
    model: LoadedModel,
    regions: Path,
    reference: Path | None = None,
    *,
    aliases: Path | None = None,
    context: int = 100,
    offsets: int = 2,
    batch_size: int = 32,
    device: str = "auto",
) -> Iterator[DependencyMap]:
    """Yield the map of each region of a BED file, or without `reference` of each record of a FASTA file.

    `context` is the number of bp on both sides of a region that the model also reads, shifted by `offsets`
    offsets; records of a FASTA have no context and no offsets. All inputs are checked before the first map.

    `ModelError`: not a masked-token model of DNA. `UsageError`, `DataError`: an argument is out of range; a
    region is too long, not in the reference, or has an N; a file cannot be read.
    """
    check_masked(model)
    check_offsets(offsets)
    check_whole("context", context)
    check_at_least_one({"batch_size": batch_size})
    places = window_offsets(offsets) if reference is not None else (0,)
    if reference is not None and context <= places[-1]:
        raise UsageError(
            f"context {context}: must be more than {places[-1]} bp with {offsets} offsets"
        )
    given = list(
        _records(regions)
        if reference is None
        else _places(regions, reference, aliases, context)
    )
    for one in given:
        where = f"{regions}: {one.name}"
        if not 2 <= len(one.sequence) <= LONGEST:
            size = f"{len(one.sequence):,} bp"
            raise DataError(
                f"{where}: {size}; a dependency map needs 2 to {LONGEST} bp"
            )
        if "N" in one.sequence:
            raise DataError(
                f"{where}: contains N or another IUPAC code; a dependency map needs known bases"
            )
    files = file_names(
        f"{one.contig}_{one.start}-{one.start + len(one.sequence)}" for one in given
    )
    if len(files) < len(given):
        raise DataError(f"{regions}: a region or record occurs twice")
    computing = _Predicted(model, batch_size, choose_device(device))
    for one, file in progress(
        zip(given, files.values(), strict=True),
        "mapping dependencies",
        len(given),
        "regions",
    ):
        matrix = dependencies(computing.logits(one, places))
        yield DependencyMap(one.name, one.contig, one.start, one.sequence, matrix, file)


def dependencies(logits: Logits) -> NDArray[np.float32]:
    """Return e (L, L) from logits (H, L, 4) of the sequence, and of its substitutions base by base."""
    changes = np.abs(logits[1:] - logits[0]).max(axis=2)  # (3 L, L)
    matrix: NDArray[np.float32] = (
        changes.reshape(-1, 3, logits.shape[1]).max(axis=1).astype(np.float32)
    )
    np.fill_diagonal(matrix, 0)
    return matrix


def _records(path: Path) -> Iterator[_Given]:
    for chunk in stream_fasta(path, LONGEST + 1):
        if chunk.start:
            raise DataError(f"{path}: {chunk.contig}: longer than {LONGEST} bp")
        yield _Given(chunk.contig, chunk.contig, 0, "", chunk.sequence, "")


def _places(
    path: Path, reference: Path, aliases: Path | None, context: int
) -> Iterator[_Given]:
    with Reference(reference, aliases) as genome:
        for one in placed_regions(path, genome, LONGEST):
            first, last = one.start - 2 * context, one.end + 2 * context
            text = genome.fetch(Interval(one.contig, first, last))
            own = text[2 * context : len(text) - 2 * context]
            sides = text[: 2 * context], text[len(text) - 2 * context :]
            yield _Given(one.name, one.contig, one.start, sides[0], own, sides[1])


class _Predicted:
    """Probabilities of bases under a model."""

    def __init__(
        self, model: LoadedModel, batch_size: int, device: torch.device
    ) -> None:
        self.model, self.tokenizer, self.device = model, model.tokenizer, device
        self.network, self.batch_size = model.network.to(device).eval(), batch_size
        self.longest = int(self.tokenizer.piece_lengths[self.tokenizer.base_ids].max())
        self._pieces = {
            size: _pieces_of(self.tokenizer, size)
            for size in {
                *self.tokenizer.piece_lengths[self.tokenizer.base_ids].tolist()
            }
        }

    def logits(self, given: _Given, offsets: Sequence[int]) -> Logits:
        """Return the logits (H, L, 4) of the bases of all sequences, means over strands and offsets."""
        texts = [
            given.sequence,
            *(
                text
                for *_, text in substitutions(
                    given.sequence, range(len(given.sequence))
                )
            ),
        ]
        total: Logits = np.zeros((len(texts), len(given.sequence), len(BASES)))
        reach = len(given.before) // 2
        for offset in offsets:
            before = (
                given.before[len(given.before) - reach - offset :]
                if given.before
                else ""
            )
            after = given.after[: reach - offset]
            forward = self._of_windows(
                [before + text + after for text in texts], len(before), len(texts[0])
            )
            turned = [reverse_complement(before + text + after) for text in texts]
            back = self._of_windows(turned, len(after), len(texts[0]))
            total = (
                total + forward + back[:, ::-1, ::-1]
            )  # the complement of base b is 3 − b
        return total / (2 * len(offsets))

    def _of_windows(self, windows: Sequence[str], first: int, size: int) -> Logits:
        """Logits (H, L, 4) of the bases from `first` on of windows of the same length."""
        logits = np.empty((len(windows), size, len(BASES)))
        rows: list[Ids] = []
        masked: list[
            tuple[int, int, int]
        ] = []  # sequence, token's first base in the region, token's length
        for number, window in enumerate(windows):
            ids, starts = self.tokenizer.encode_with_offsets(window)
            if len(ids) + 2 > self.model.config.max_length:
                raise UsageError(
                    f"a window of {len(window)} bp has {len(ids)} tokens, more than {self.model.name} reads "
                    f"({self.model.config.max_length:,}); use less context or shorter regions"
                )
            for token in np.flatnonzero(
                (starts[1:] > first) & (starts[:-1] < first + size)
            ).tolist():
                row = np.array(
                    [self.tokenizer.cls_id, *ids, self.tokenizer.sep_id], np.int32
                )
                row[token + 1] = self.tokenizer.mask_id
                rows.append(row)
                masked.append(
                    (
                        number,
                        int(starts[token]) - first,
                        int(starts[token + 1] - starts[token]),
                    )
                )
            if len(rows) >= _ROWS or number == len(windows) - 1:
                for (own, start, length), found in zip(
                    masked, self._rows(rows, masked), strict=True
                ):
                    low, high = max(start, 0), min(start + length, size)
                    logits[own, low:high] = found[low - start : high - start]
                rows, masked = [], []
        return logits

    def _rows(
        self, rows: Sequence[Ids], masked: Sequence[tuple[int, int, int]]
    ) -> NDArray[np.float32]:
        """Logits (rows, S, 4) of the bases of the masked token of each row."""
        places = [int(np.flatnonzero(row == self.tokenizer.mask_id)[0]) for row in rows]

        def run(ids: Tensor, lengths: Tensor, chosen: NDArray[np.intp]) -> Tensor:
            flat = [
                row * ids.shape[1] + places[number]
                for row, number in enumerate(chosen.tolist())
            ]
            output: PretrainingOutput = self.network(
                ids, lengths, None, torch.tensor(flat, device=ids.device)
            )
            logits = output.tokens.cpu().double()
            found = logits.new_zeros((len(chosen), self.longest, len(BASES)))
            for row, number in enumerate(chosen.tolist()):
                pieces, letters = self._pieces[masked[number][2]]
                summed = (logits[row, pieces].softmax(0) @ letters).view(-1, len(BASES))
                found[row, : len(summed)] = summed.clamp(LOWEST, 1 - LOWEST).logit()
            return found

        options = {
            "pad_id": self.tokenizer.pad_id,
            "batch_size": self.batch_size,
            "device": self.device,
        }
        values = run_rows(self.network, rows, run, **options)  # type: ignore[arg-type]
        self.model.check_predictions(values)
        return values


def _pieces_of(tokenizer: Tokenizer, size: int) -> tuple[Tensor, Tensor]:
    """The ids (P,) of the tokens of `size` bases, and their bases as (P, 4 size) of 0 and 1."""
    ids = [
        one
        for one in tokenizer.base_ids.tolist()
        if tokenizer.piece_lengths[one] == size
    ]
    codes = np.array([base_codes(tokenizer.letters[one]) for one in ids])  # (P, size)
    letters = np.eye(len(BASES))[codes].reshape(len(ids), -1)
    return torch.tensor(ids, device="cpu"), torch.from_numpy(letters)
