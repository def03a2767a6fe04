"""The hidden tokens that all models are evaluated on."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional as F

from bigbird_dna.errors import DataError
from bigbird_dna.metrics.resampling import BLOCK_BASES
from bigbird_dna.model.batching import pad
from bigbird_dna.model.heads import PretrainingOutput
from bigbird_dna.pretraining.sampling import Example, document_bounds, joined
from bigbird_dna.tokens.interface import NOT_MASKED, Tokenizer, mask_tokens
from bigbird_dna.tokens.store import TokenStore
from bigbird_dna.training.distributed import World

MASKED = (
    0.15  # fraction of hidden tokens in evaluation, the same for all training settings
)
_SEED = 20_200_728  # for the masks, independent of training: all models are evaluated on the same tokens
_ROWS = 16  # inputs per network call


class HeldOut(NamedTuple):
    """Inputs with hidden tokens, and the tokens' positions in the store. M hidden tokens, N inputs.

    Every hidden token is [MASK]; training leaves 10% unchanged, which would bias the evaluation upward.
    """

    inputs: list[Example]  # ids with [MASK]
    positions: list[NDArray[np.int64]]  # per input, those of its hidden tokens
    tokens: NDArray[np.int64]  # (M,) positions in the store, ascending
    labels: NDArray[np.int64]  # (M,) true token ids
    bases: NDArray[np.int64]  # (M,) bp per token
    blocks: NDArray[
        np.int64
    ]  # (M,) index of the block of `BLOCK_BASES` bp in which the token begins

    @classmethod
    def draw(
        cls,
        store: TokenStore,
        tokenizer: Tokenizer,
        sequence_tokens: int,
        count: int,
        *,
        pairs: bool,
    ) -> Self:
        """Return at most `count` inputs, evenly spaced over a one-pass store; determined by the arguments.

        Inputs without predictable tokens, e.g. only N, are left out; `DataError` if there are no others. With
        `pairs`, inputs are [CLS] A [SEP] B [SEP], where B follows A.
        """
        room = sequence_tokens - (3 if pairs else 2)
        segments: list[tuple[int, int]] = []
        for start, end in pairwise(document_bounds(store).tolist()):
            # Remainders are dropped, shorter documents are kept.
            starts = range(start, end - room + 1, room) or [start]
            segments += [
                (first, min(first + room, end)) for first in starts if end > start
            ]

        def has_target(number: int) -> bool:
            ids = store.tokens[slice(*segments[number])]
            return bool(np.isin(ids, tokenizer.base_ids).any())

        chosen = _evenly_spaced(np.arange(len(segments)), count)
        if not all(map(has_target, chosen)):
            usable = [number for number in range(len(segments)) if has_target(number)]
            chosen = _evenly_spaced(np.array(usable, np.int64), count)

        if not len(chosen):
            raise DataError(
                f"{store.directory}: no input of {sequence_tokens} tokens contains a token to predict; N and "
                "special tokens are not predicted"
            )

        inputs, positions, tokens, labels = [], [], [], []
        for start, stop in (segments[number] for number in chosen.tolist()):
            ids = np.asarray(store.tokens[start:stop]).astype(np.int32)
            middle = len(ids) // 2
            rng = np.random.default_rng((_SEED, start))
            masked, targets = mask_tokens(ids, rng, MASKED, tokenizer, hide_all=True)
            hidden = np.flatnonzero(targets != NOT_MASKED)
            if pairs:
                inputs.append(joined(tokenizer, masked[:middle], masked[middle:]))
            else:
                inputs.append(joined(tokenizer, masked))

            positions.append(hidden + 1 + (pairs & (hidden >= middle)))
            tokens.append(start + hidden)
            labels.append(ids[hidden].astype(np.int64))

        at = np.concatenate(tokens).astype(np.int64)
        widths = tokenizer.piece_lengths[store.tokens[: at[-1] + 1]].astype(np.int64)
        bases = widths[at]
        blocks = (np.cumsum(widths)[at] - bases) // BLOCK_BASES
        return cls(inputs, positions, at, np.concatenate(labels), bases, blocks)

    def predict(
        self, network: nn.Module, tokenizer: Tokenizer, world: World
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Return -log2 of the probability of each hidden token (M,), and whether it is the most probable one;
        processes share the work."""
        first = np.cumsum([0, *map(len, self.positions)])

        def predict_rows(numbers: Sequence[int]) -> NDArray[np.float64]:
            results = []
            for number in numbers:
                rows = range(number, min(number + _ROWS, len(self.inputs)))
                ids, lengths = pad(
                    [self.inputs[row].ids for row in rows], tokenizer.pad_id
                )
                firsts = torch.tensor([self.inputs[row].first for row in rows])
                segments = (torch.arange(ids.shape[1])[None] >= firsts[:, None]).long()
                masked = np.concatenate(
                    [
                        self.positions[row] + index * ids.shape[1]
                        for index, row in enumerate(rows)
                    ]
                )
                inputs = (ids, lengths, segments, torch.from_numpy(masked))
                output: PretrainingOutput = network(
                    *(value.to(world.device) for value in inputs)
                )
                labels = self.labels[first[rows.start] : first[rows.stop]]
                targets = torch.from_numpy(labels).to(world.device)
                logits = output.tokens.float()
                nats = F.cross_entropy(logits, targets, reduction="none").cpu().double()
                correct = (logits.argmax(-1) == targets).cpu()
                results.append(np.stack([nats.numpy() / np.log(2), correct], axis=1))

            return np.concatenate([np.zeros((0, 2)), *results])

        rows = world.divide(range(0, len(self.inputs), _ROWS), predict_rows)
        return rows[:, 0], rows[:, 1] == 1


def _evenly_spaced(numbers: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Return at most `count` of the numbers."""
    indices = np.linspace(0, len(numbers) - 1, min(count, len(numbers)))
    return numbers[np.unique(indices.round().astype(np.int64))]
