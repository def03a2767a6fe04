"""Vectors of an encoder: one a sequence, or one a base."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bigbird_dna.config import EncoderConfig
from bigbird_dna.errors import UsageError
from bigbird_dna.model.encoder import Encoder
from bigbird_dna.model.heads import mean_over_tokens
from bigbird_dna.model.rows import Ids, Run, run_rows, window_rows
from bigbird_dna.model.sequences import GivenSequences
from bigbird_dna.model.settings import Pooling
from bigbird_dna.tokens.interface import Tokenizer

# Axes: N sequences, B sequences of a call, L tokens, S bp of a sequence, D hidden width.

Vectors = npt.NDArray[np.float32]


class EmbeddingRun(NamedTuple):
    """An encoder on its device, with what it takes to run sequences through it."""

    encoder: Encoder
    tokenizer: Tokenizer
    config: EncoderConfig
    batch_size: int
    device: torch.device

    def of_sequences(self, given: GivenSequences, pooling: Pooling) -> Vectors:
        """A vector a sequence, (N, D); of those with too many tokens the ones around the middle count."""

        def run(ids: Tensor, lengths: Tensor, _: npt.NDArray[np.intp]) -> Tensor:
            hidden: Tensor = self.encoder(ids, lengths)  # (B, L, D)
            return hidden[:, 0] if pooling == "cls" else mean_over_tokens(hidden, lengths)

        return self._run(self._rows(given), run)

    def of_bases(self, given: GivenSequences) -> list[Vectors]:
        """For each sequence the vectors (S, D) of its bases: each has that of the token which covers it.

        Raises
        ------
        UsageError
            A sequence has more tokens than the encoder takes.
        """
        rows = self._rows(given)
        covered = [self.tokenizer.piece_lengths[row[1:-1]] for row in rows]
        for text, name, lengths in zip(given.texts, given.names, covered, strict=True):
            if lengths.sum() != len(text):
                raise UsageError(
                    f"{name}: {len(text):,} bp are more than the {self.config.positions:,} tokens that the "
                    "encoder takes: give shorter pieces for a vector a base"
                )
        vectors: dict[int, Vectors] = {}

        def run(ids: Tensor, lengths: Tensor, chosen: npt.NDArray[np.intp]) -> Tensor:
            hidden = self.encoder(ids, lengths).float().cpu().numpy()  # (B, L, D)
            for number, row in zip(chosen.tolist(), hidden, strict=True):
                own = covered[number]
                vectors[number] = np.repeat(row[1 : 1 + len(own)], own, axis=0)
            return ids[:, :0]  # rows differ in length: nothing that one array could hold

        self._run(rows, run)
        return [vectors[number] for number in range(len(rows))]

    def _rows(self, given: GivenSequences) -> list[Ids]:
        return window_rows(self.tokenizer, given.texts, self.config.positions, 0.5)

    def _run(self, rows: list[Ids], run: Run) -> Vectors:
        return run_rows(
            self.encoder,
            rows,
            run,
            pad_id=self.tokenizer.pad_id,
            batch_size=self.batch_size,
            device=self.device,
            empty=(self.config.hidden,),
        )
