"""The hidden tokens that all models are evaluated on."""

from collections.abc import Callable, Iterator
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
from bigbird_dna.pretraining.sampling import (
    Example,
    Ids,
    Tokens,
    document_bounds,
    joined,
)
from bigbird_dna.tokens.interface import NOT_MASKED, Tokenizer, mask_tokens

MASKED = (
    0.15  # fraction of hidden tokens in evaluation, the same for all training settings
)
_SEED = 20_200_728  # for the masks, independent of training: all models are evaluated on the same tokens
_ROWS = 16  # inputs per network call
_AT_ONCE = 1 << 20  # tokens that are read at a time


class HeldOut(NamedTuple):
    """Inputs with hidden tokens, and the tokens' positions in the store. M hidden tokens, N inputs.

    Every hidden token is [MASK]; training leaves 10% unchanged, which would bias the evaluation upward. A
    causal model has no [MASK]: it predicts the base tokens of an input's second half from preceding tokens.
    """

    inputs: tuple[Example, ...]  # ids with [MASK]
    places: tuple[
        NDArray[np.int64], ...
    ]  # per input, the positions at which hidden tokens are predicted
    tokens: NDArray[np.int64]  # (M,) positions in the store, ascending
    labels: NDArray[np.int64]  # (M,) true token ids
    bases: NDArray[np.int64]  # (M,) bp per token
    blocks: NDArray[
        np.int64
    ]  # (M,) index of the block of `BLOCK_BASES` bp in which the token begins

    @classmethod
    def draw(
        cls,
        store: Tokens,
        tokenizer: Tokenizer,
        sequence_tokens: int,
        count: int,
        *,
        pairs: bool,
        fraction: float = MASKED,
        causal: bool = False,
    ) -> Self:
        """Return at most `count` inputs, evenly spaced over a one-pass store; determined by the arguments.

        An input without predictable tokens, e.g. only N, is replaced by the nearest input with some;
        `DataError` if there is none. With `pairs`, inputs are [CLS] A [SEP] B [SEP], where B follows A.
        """
        segments = list(
            _segments(document_bounds(store), sequence_tokens - (3 if pairs else 2))
        )
        evenly = np.unique(
            np.linspace(0, len(segments) - 1, min(count, len(segments)))
            .round()
            .astype(int)
        )
        predicted = tokenizer.base_ids if causal else tokenizer.hidden_ids

        def good(number: int) -> bool:
            ids = store.tokens[slice(*segments[number])]
            return bool(np.isin(ids[len(ids) // 2 if causal else 0 :], predicted).any())

        chosen = _nearest(evenly, good, len(segments))
        if not len(chosen):
            raise DataError(
                f"{store.directory}: no input of {sequence_tokens} tokens contains a token to predict; N and "
                "special tokens are not predicted"
            )
        inputs, positions, tokens, labels = [], [], [], []
        for start, stop in (segments[index] for index in chosen.tolist()):
            ids = np.asarray(store.tokens[start:stop]).astype(np.int32)
            middle = len(ids) // 2
            masked_ids: Ids
            if causal:
                masked_ids, hidden = (
                    ids,
                    middle + np.flatnonzero(np.isin(ids[middle:], predicted)),
                )
                positions.append(
                    hidden
                )  # shifted by [CLS]: the position of the preceding token
            else:
                rng = np.random.default_rng((_SEED, start))
                masked_ids, targets = mask_tokens(
                    ids, rng, fraction, tokenizer, hide_all=True
                )
                hidden = np.flatnonzero(targets != NOT_MASKED)
                positions.append(hidden + 1 + (pairs & (hidden >= middle)))
            two = pairs and not causal
            inputs.append(
                joined(
                    tokenizer,
                    *(
                        (masked_ids[:middle], masked_ids[middle:])
                        if two
                        else (masked_ids,)
                    ),
                )
            )
            tokens.append(start + hidden)
            labels.append(ids[hidden].astype(np.int64))
        at = np.concatenate(tokens).astype(np.int64)
        bases, before = _widths(store, tokenizer, at)
        blocks = before // BLOCK_BASES
        return cls(
            tuple(inputs), tuple(positions), at, np.concatenate(labels), bases, blocks
        )

    def one_at_a_time(self, tokens: int) -> tuple[Self, NDArray[np.int64]]:
        """Return inputs that hide one token each, and the ascending indices (C,) of these tokens. They are
        evenly spaced, as many as fit into `tokens` input tokens in total."""
        longest = max(len(example.ids) for example in self.inputs)
        count = min(len(self.labels), max(tokens // longest, 1))
        chosen = np.unique(
            np.linspace(0, len(self.labels) - 1, count).round().astype(np.int64)
        )
        first = np.concatenate(
            [[0], np.cumsum([len(positions) for positions in self.places])]
        )
        inputs, positions = [], []
        for row, hidden in enumerate(self.inputs):
            ids_of_row = hidden.ids.copy()
            ids_of_row[self.places[row]] = self.labels[first[row] : first[row + 1]]
            for number in (
                chosen[(chosen >= first[row]) & (chosen < first[row + 1])] - first[row]
            ):
                position = self.places[row][number : number + 1]
                ids = ids_of_row.copy()
                ids[position] = hidden.ids[position]
                inputs.append(hidden._replace(ids=ids))
                positions.append(position)
        of = (
            values[chosen]
            for values in (self.tokens, self.labels, self.bases, self.blocks)
        )
        return type(self)(tuple(inputs), tuple(positions), *of), chosen

    def bits(
        self,
        network: nn.Module,
        tokenizer: Tokenizer,
        device: torch.device,
        rank: int = 0,
        size: int = 1,
    ) -> "Predicted":
        """Return bits and correctness of the hidden tokens in this process's inputs."""
        counts = [len(positions) for positions in self.places]
        first = np.concatenate([[0], np.cumsum(counts)])
        bits = np.full(len(self.labels), np.nan)
        right, mine = (np.zeros(len(self.labels), bool) for _ in range(2))
        for start in range(rank * _ROWS, len(self.inputs), size * _ROWS):
            rows = range(start, min(start + _ROWS, len(self.inputs)))
            ids, lengths = pad([self.inputs[row].ids for row in rows], tokenizer.pad_id)
            firsts = torch.tensor([self.inputs[row].first for row in rows])
            segments = (torch.arange(ids.shape[1])[None] >= firsts[:, None]).long()
            masked = [
                self.places[row] + index * ids.shape[1]
                for index, row in enumerate(rows)
            ]
            network_inputs = (
                ids,
                lengths,
                segments,
                torch.from_numpy(np.concatenate(masked)),
            )
            output: PretrainingOutput = network(
                *(value.to(device) for value in network_inputs)
            )
            in_batch = slice(first[rows.start], first[rows.stop])
            labels = torch.from_numpy(self.labels[in_batch]).to(device)
            logits = output.tokens.float()
            nats = F.cross_entropy(logits, labels, reduction="none").cpu().double()
            bits[in_batch] = nats.numpy() / np.log(2)
            right[in_batch] = (logits.argmax(-1) == labels).cpu().numpy()
            mine[in_batch] = True
        return Predicted(bits, right, mine)


def _widths(
    store: Tokens, tokenizer: Tokenizer, at: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the bases of the tokens at ascending positions (M,), and the bases before each, both (M,)."""
    widths_at, before = np.empty_like(at), np.empty_like(at)
    total = 0
    for start in range(0, int(at[-1]) + 1, _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        block = tokenizer.piece_lengths[store.tokens[part]]
        ends = total + np.cumsum(block, dtype=np.int64)
        here = slice(*np.searchsorted(at, [start, start + len(block)]))
        widths_at[here] = block[at[here] - start]
        before[here] = ends[at[here] - start] - widths_at[here]
        total = int(ends[-1])
    return widths_at, before


class Predicted(NamedTuple):
    """A model's predictions for hidden tokens; values are valid only where `own` is true."""

    bits: NDArray[np.float64]  # (M,) -log2 of the true token's probability
    right: NDArray[np.bool_]  # (M,) whether the true token is the most probable one
    own: NDArray[np.bool_]  # (M,) whether this process evaluated the token


def _nearest(
    numbers: NDArray[np.int_], good: Callable[[int], bool], count: int
) -> NDArray[np.int_]:
    """Return the `wanted` numbers below `count`, each bad one replaced by the nearest unused good one."""
    bad = [number for number in numbers.tolist() if not good(number)]
    if not bad:
        return numbers
    chosen = np.setdiff1d(numbers, bad)
    free = np.array([good(number) for number in range(count)])
    free[chosen] = False
    for number in bad:
        candidates = np.flatnonzero(free)
        if len(candidates):
            taken = candidates[np.abs(candidates - number).argmin()]
            free[taken] = False
            chosen = np.append(chosen, taken)
    return np.sort(chosen)


def _segments(bounds: NDArray[np.int64], room: int) -> Iterator[tuple[int, int]]:
    """Yield document segments of `room` tokens; remainders are dropped, shorter documents are kept whole."""
    for start, end in pairwise(bounds.tolist()):
        segments = (end - start) // room
        if not segments and end > start:
            yield start, end
        for number in range(segments):
            yield start + number * room, start + (number + 1) * room
