"""What language models and their baselines are measured on: the same hidden tokens of held-out contigs."""

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
from bigbird_dna.pretraining.sampling import Example, Ids, Tokens, document_bounds, joined
from bigbird_dna.tokens.interface import Tokenizer
from bigbird_dna.tokens.masking import NOT_MASKED, mask_tokens

MASKED = 0.15  # of an input's tokens, hidden: whatever training hides, so that all are measured on the same
_SEED = 20_200_728  # of the masks: no training's, so that all are measured on the same tokens
_ROWS = 16  # run at a time


class HeldOut(NamedTuple):
    """Inputs with hidden tokens, and where these are in the store. M hidden tokens, N inputs.

    Every hidden token is [MASK]: in training a tenth stays as it is, which would flatter the model. For a
    causal model none is: pieces of bases in an input's second half are predicted, each at the place before.
    """

    inputs: tuple[Example, ...]  # ids with [MASK]
    places: tuple[NDArray[np.int64], ...]  # in each input, where its hidden tokens are predicted
    tokens: NDArray[np.int64]  # (M,) places in the store's tokens, ascending
    labels: NDArray[np.int64]  # (M,) what is hidden there
    bases: NDArray[np.int64]  # (M,) bp of each
    blocks: NDArray[np.int64]  # (M,) number of the block of `BLOCK_BASES` bp that the token begins in

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
        widths: NDArray[np.int64] | None = None,
    ) -> Self:
        """At most `count` inputs, spread evenly over a store of one pass; a function of store and arguments.

        In place of one that has nothing to predict, as of N alone, the nearest that has is taken; `DataError`
        if none has. `pairs` are [CLS] A [SEP] B [SEP], where B follows A. `widths` (N,) are the bases, or
        characters, of the store's tokens; none: bases, by the tokenizer.
        """
        segments = list(_segments(document_bounds(store), sequence_tokens - (3 if pairs else 2)))
        evenly = np.unique(np.linspace(0, len(segments) - 1, min(count, len(segments))).round().astype(int))
        predicted = tokenizer.base_ids if causal else tokenizer.hidden_ids

        def good(number: int) -> bool:
            ids = store.tokens[slice(*segments[number])]
            return bool(np.isin(ids[len(ids) // 2 if causal else 0 :], predicted).any())

        chosen = _nearest(evenly, good, len(segments))
        if not len(chosen):
            raise DataError(
                f"{store.directory}: no input of {sequence_tokens} tokens has anything to predict: N and "
                "special tokens are not"
            )
        if widths is None:
            widths = tokenizer.piece_lengths[np.asarray(store.tokens)].astype(np.int64)
        ends = np.concatenate([[0], np.cumsum(widths)])
        inputs, places, tokens, labels = [], [], [], []
        for start, stop in (segments[index] for index in chosen.tolist()):
            ids = np.asarray(store.tokens[start:stop]).astype(np.int32)
            middle = len(ids) // 2
            shown: Ids
            if causal:
                shown, own = ids, middle + np.flatnonzero(np.isin(ids[middle:], predicted))
                places.append(own)  # [CLS] stands in front: that of the token before
            else:
                rng = np.random.default_rng((_SEED, start))
                shown, targets = mask_tokens(ids, rng, fraction, tokenizer, hide_all=True)
                own = np.flatnonzero(targets != NOT_MASKED)
                places.append(own + 1 + (pairs & (own >= middle)))
            two = pairs and not causal
            inputs.append(joined(tokenizer, *((shown[:middle], shown[middle:]) if two else (shown,))))
            tokens.append(start + own)
            labels.append(ids[own].astype(np.int64))
        at = np.concatenate(tokens).astype(np.int64)
        blocks = ends[at] // BLOCK_BASES
        return cls(tuple(inputs), tuple(places), at, np.concatenate(labels), widths[at], blocks)

    def one_at_a_time(self, tokens: int) -> tuple[Self, NDArray[np.int64]]:
        """Hidden tokens each in an input where all others are shown, as many, evenly spread, as fit into
        `tokens` of input, and which of them these are (C,), ascending."""
        longest = max(len(example.ids) for example in self.inputs)
        count = min(len(self.labels), max(tokens // longest, 1))
        chosen = np.unique(np.linspace(0, len(self.labels) - 1, count).round().astype(np.int64))
        first = np.concatenate([[0], np.cumsum([len(places) for places in self.places])])
        inputs, places = [], []
        for row, hidden in enumerate(self.inputs):
            shown = hidden.ids.copy()
            shown[self.places[row]] = self.labels[first[row] : first[row + 1]]
            for number in chosen[(chosen >= first[row]) & (chosen < first[row + 1])] - first[row]:
                place = self.places[row][number : number + 1]
                ids = shown.copy()
                ids[place] = hidden.ids[place]
                inputs.append(hidden._replace(ids=ids))
                places.append(place)
        of = (values[chosen] for values in (self.tokens, self.labels, self.bases, self.blocks))
        return type(self)(tuple(inputs), tuple(places), *of), chosen

    def bits(
        self, network: nn.Module, tokenizer: Tokenizer, device: torch.device, rank: int = 0, size: int = 1
    ) -> "Predicted":
        """Bits of every hidden token, and whether it has the highest score, of this process's inputs."""
        counts = [len(places) for places in self.places]
        first = np.concatenate([[0], np.cumsum(counts)])
        bits = np.full(len(self.labels), np.nan)
        right, mine = (np.zeros(len(self.labels), bool) for _ in range(2))
        for start in range(rank * _ROWS, len(self.inputs), size * _ROWS):
            rows = range(start, min(start + _ROWS, len(self.inputs)))
            ids, lengths = pad([self.inputs[row].ids for row in rows], tokenizer.pad_id)
            firsts = torch.tensor([self.inputs[row].first for row in rows])
            segments = (torch.arange(ids.shape[1])[None] >= firsts[:, None]).long()
            masked = [self.places[row] + index * ids.shape[1] for index, row in enumerate(rows)]
            given = (ids, lengths, segments, torch.from_numpy(np.concatenate(masked)))
            output: PretrainingOutput = network(*(value.to(device) for value in given))
            own = slice(first[rows.start], first[rows.stop])
            labels = torch.from_numpy(self.labels[own]).to(device)
            logits = output.tokens.float()
            nats = F.cross_entropy(logits, labels, reduction="none").double()
            bits[own] = nats.cpu().numpy() / np.log(2)
            right[own] = (logits.argmax(-1) == labels).cpu().numpy()
            mine[own] = True
        return Predicted(bits, right, mine)


class Predicted(NamedTuple):
    """What a model makes of hidden tokens."""

    bits: NDArray[np.float64]  # (M,) -log2 of the token's probability, where it is `own`
    right: NDArray[np.bool_]  # (M,) whether it is the likeliest, likewise
    own: NDArray[np.bool_]  # (M,) whether this process ran it


def _nearest(wanted: NDArray[np.int_], good: Callable[[int], bool], count: int) -> NDArray[np.int_]:
    """The numbers below `count` that are `wanted`; where one isn't good the nearest other that is, if any."""
    bad = [number for number in wanted.tolist() if not good(number)]
    if not bad:
        return wanted
    kept = np.setdiff1d(wanted, bad)
    free = np.array([good(number) for number in range(count)])
    free[kept] = False
    for number in bad:
        others = np.flatnonzero(free)
        if len(others):
            taken = others[np.abs(others - number).argmin()]
            free[taken] = False
            kept = np.append(kept, taken)
    return np.sort(kept)


def _segments(bounds: NDArray[np.int64], room: int) -> Iterator[tuple[int, int]]:
    """Documents cut into segments of `room` tokens; the rest of a document is left out, unless it is all."""
    for start, end in pairwise(bounds.tolist()):
        whole = (end - start) // room
        if not whole and end > start:
            yield start, end
        for number in range(whole):
            yield start + number * room, start + (number + 1) * room
