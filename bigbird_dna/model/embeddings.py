"""Vectors of sequences: of the last layer, and means over the tokens of each layer.

Vectors of an encoder: one a sequence, or one a base.

What every layer of an encoder makes of a sequence: the mean over its tokens, one vector a layer.
"""

import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bigbird_dna.config import EncoderConfig
from bigbird_dna.errors import ModelError, UsageError
from bigbird_dna.model.batching import Ids, Run, run_rows, window_rows
from bigbird_dna.model.encoder import Encoder
from bigbird_dna.model.heads import mean_over_tokens
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
                    f"{name}: {len(text):,} bp are more than the {self.config.max_length:,} tokens that the "
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
        return window_rows(self.tokenizer, given.texts, self.config.max_length, 0.5)

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


# Axes: N rows, B rows of a call, L tokens, D hidden width.


def layer_means(
    encoder: Encoder,
    rows: Sequence[Ids],
    *,
    pad_id: int,
    batch_size: int,
    device: torch.device,
    parts: npt.NDArray[np.integer] | None = None,
) -> npt.NDArray[np.float32]:
    """Means over the tokens of rows after the embeddings and after each layer, (N, 1 + layers, D).

    [CLS] and [SEP] count among the tokens, as in `Model.embed`, whose vectors the last are. Whole hidden
    states are held of one layer and call at a time. With `parts`, (N, 2), the first token of a part of each
    row and the one after its last, the means over these follow: (N, 1 + layers, 2 D). `ModelError`: the
    layers are reversible, whose streams aren't hidden states.
    """
    if encoder.config.reversible:
        raise ModelError(
            "encoder.reversible true: a reversible encoder has no hidden states of single layers"
        )
    here = threading.local()  # on a CPU rows run side by side
    extra, config = encoder.config.num_global_tokens, encoder.config

    def keep(_module: Any, _inputs: Any, hidden: Tensor) -> None:
        own = hidden[:, extra:]
        means = [mean_over_tokens(own, here.lengths)]
        if here.parts is not None:
            means.append(_mean_of_parts(own, here.parts))
        here.means.append(torch.cat(means, dim=1))

    def run(ids: Tensor, lengths: Tensor, chosen: npt.NDArray[np.intp]) -> Tensor:
        here.lengths, here.means = lengths, []
        here.parts = None if parts is None else parts[chosen].tolist()
        encoder(ids, lengths)
        return torch.stack(here.means, dim=1)

    hooks = [part.register_forward_hook(keep) for part in (encoder.embeddings, *encoder.layers)]
    try:
        return run_rows(
            encoder,
            rows,
            run,
            pad_id=pad_id,
            batch_size=batch_size,
            device=device,
            empty=(1 + config.layers, config.hidden * (1 if parts is None else 2)),
        )
    finally:
        for hook in hooks:
            hook.remove()


def _mean_of_parts(hidden: Tensor, parts: Sequence[Sequence[int]]) -> Tensor:
    """Means over tokens first … last of each row: (B, L, D) → (B, D)."""
    own = [row[first:last].float().mean(dim=0) for row, (first, last) in zip(hidden, parts, strict=True)]
    return torch.stack(own)
