"""Pretraining inputs drawn from a token store, and the hidden tokens that all models are evaluated on."""

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional as F

from bigbird_dna.errors import DataError
from bigbird_dna.metrics.resampling import BLOCK_BASES
from bigbird_dna.model.batching import pad
from bigbird_dna.model.heads import PretrainingOutput
from bigbird_dna.tokens.interface import NOT_MASKED, Tokenizer, mask_tokens

Ids = NDArray[np.integer]


class Tokens(Protocol):
    """Concatenated tokens of documents, as in a `TokenStore`."""

    @property
    def directory(self) -> Path:
        """Path for error messages."""

    @property
    def tokens(self) -> Ids:
        """Token ids (N,)."""

    @property
    def sentences(self) -> NDArray[np.integer]:
        """Token offsets of the sentences' starts, and the end, (S + 1,)."""

    @property
    def documents(self) -> NDArray[np.integer]:
        """Sentence offsets of the documents' starts, and the end, (D + 1,)."""


class Example(NamedTuple):
    """A network input before masking."""

    ids: NDArray[np.int32]  # [CLS] A [SEP], or [CLS] A [SEP] B [SEP]
    first: int  # number of tokens up to and including the first [SEP]
    follows: bool  # whether B follows A; true without B


class Sampler(Protocol):
    """Draws examples of one maximum length."""

    def draw(self, rng: np.random.Generator) -> Example:
        """Return one example, determined by the generator's state."""


def joined(tokenizer: Tokenizer, a: Ids, b: Ids | None = None, follows: bool = True) -> Example:
    """Return [CLS] A [SEP], followed by B [SEP] if `b` is given."""
    second = [] if b is None else [b, [tokenizer.sep_id]]
    row = np.concatenate([[tokenizer.cls_id], a, [tokenizer.sep_id], *second])
    return Example(row.astype(np.int32), len(a) + 2, follows)


class SegmentSampler:
    """Draws segments that fill `sequence_tokens` as [CLS] A [SEP], uniformly over positions of the store."""

    def __init__(self, store: Tokens, tokenizer: Tokenizer, sequence_tokens: int) -> None:
        self.store, self.tokenizer = store, tokenizer
        self.room = sequence_tokens - 2
        self.bounds = document_bounds(store)

    def draw(self, rng: np.random.Generator) -> Example:
        place = int(rng.integers(len(self.store.tokens)))
        document = int(np.searchsorted(self.bounds, place, side="right")) - 1
        low, high = int(self.bounds[document]), int(self.bounds[document + 1])
        start = max(low, min(place, high - self.room))
        return joined(self.tokenizer, np.asarray(self.store.tokens[start : min(high, start + self.room)]))


class PairSampler:
    """Draws sentence pairs, [CLS] A [SEP] B [SEP], that fill `sequence_tokens` if documents are long enough.

    A starts at a sentence drawn uniformly from those followed by at least one input's tokens in the document,
    or by half of a shorter document. A takes whole sentences up to about half of the input. B fills the rest,
    with equal probability by the tokens after A or by tokens from a start in another document. In a store of
    one document, that start is at least an input's length from A's; inputs are at most a quarter of the
    document. Both sources limit B's length, so that the length does not reveal the source.
    Raises `DataError` if the store is empty or lacks two such starts.
    """

    def __init__(self, store: Tokens, tokenizer: Tokenizer, sequence_tokens: int) -> None:
        self.store, self.tokenizer = store, tokenizer
        self.room = sequence_tokens - 3
        self.bounds = document_bounds(store)
        lengths = np.diff(self.bounds)
        self.only_one = int((lengths > 1).sum()) == 1
        if self.only_one:
            self.room = min(self.room, int(lengths.max()) // 4)
        least = np.where(lengths >= self.room, self.room, np.maximum((lengths + 1) // 2, 2))
        sizes = np.diff(store.documents)
        ahead = np.repeat(self.bounds[1:], sizes) - store.sentences[:-1]
        self.starts = np.flatnonzero(ahead >= np.repeat(least, sizes))  # sentences
        if self.only_one:
            first, last = self._near(self.starts)
            self.starts = self.starts[last - first < len(self.starts)]
        if not len(self.starts) or self.room < 2:
            raise DataError(
                f"{store.directory}: next-sentence prediction needs a second document, or a longer one; "
                "set pretraining.next_sentence: false"
            )
        ahead = ahead[self.starts]
        self.fewest = int(ahead.min())
        """Minimum number of tokens from a start to the end of its document."""
        begins = store.sentences[self.starts]
        reached = np.minimum(begins + np.minimum(ahead, self.room), np.append(begins[1:], self.bounds[-1]))
        self.share = float((reached - begins).sum() / self.bounds[-1])
        """Fraction of the store's tokens that can occur in an input."""

    def draw(self, rng: np.random.Generator) -> Example:
        number = int(rng.integers(len(self.starts)))
        start, end = self._place(number)
        half = min(self.room, end - start) // 2
        middle = self._sentence_end_near(int(self.starts[number]), start + half, start + 2 * half)
        length = min(self.room - (middle - start), end - middle)
        follows = bool(rng.random() < 0.5)
        begin = middle
        if not follows or length > self.fewest:
            # The tokens after A are cut to the other start's length as well.
            other, stop = self._place(self._elsewhere(number, rng))
            length = min(length, stop - other)
            begin = middle if follows else other
        tokens = self.store.tokens
        a, b = np.asarray(tokens[start:middle]), np.asarray(tokens[begin : begin + length])
        return joined(self.tokenizer, a, b, follows)

    def _place(self, number: int) -> tuple[int, int]:
        """Return the token offset of a start, and the end of its document."""
        sentence = self.starts[number]
        document = self.store.documents.searchsorted(sentence, side="right")
        return int(self.store.sentences[sentence]), int(self.bounds[document])

    def _elsewhere(self, number: int, rng: np.random.Generator) -> int:
        """Draw uniformly from the starts that are not near start `number`."""
        other = int(rng.integers(len(self.starts)))
        (first,), (last,) = self._near(self.starts[number : number + 1])
        if not first <= other < last:
            return other
        other = int(rng.integers(len(self.starts) - (last - first)))
        return int(other + (last - first) * (other >= first))

    def _near(self, sentences: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return the range of starts near each sentence (n,): first indices (n,) and end indices (n,)."""
        store = self.store
        first: Ids
        last: Ids
        if self.only_one:
            places = store.sentences[sentences]
            first = store.sentences.searchsorted(places - self.room, side="right")
            last = store.sentences.searchsorted(places + self.room)
        else:
            document = store.documents.searchsorted(sentences, side="right")
            first, last = store.documents[document - 1], store.documents[document]
        return self.starts.searchsorted(first), self.starts.searchsorted(last)

    def _sentence_end_near(self, sentence: int, target: int, limit: int) -> int:
        """Return the last sentence end up to `target`, else the first one after it, else `target`."""
        ends = self.store.sentences
        after = int(np.searchsorted(ends, target, side="right"))
        if after - 1 > sentence:
            return int(ends[after - 1])
        if after < len(ends) and int(ends[after]) < limit:
            return int(ends[after])
        return target


def document_bounds(store: Tokens) -> NDArray[np.int64]:
    """Return the token offsets of document boundaries, (D + 1,); `DataError` for an empty store."""
    bounds = np.asarray(store.sentences[store.documents])
    if len(bounds) < 2 or bounds[-1] < 1:
        raise DataError(f"{store.directory}: the token store contains no sentences")
    return bounds


def sampler(store: Tokens, tokenizer: Tokenizer, sequence_tokens: int, next_sentence: bool) -> Sampler:
    """Return a sampler of sentence pairs for next-sentence prediction, else of segments."""
    return (PairSampler if next_sentence else SegmentSampler)(store, tokenizer, sequence_tokens)


MASKED = 0.15  # fraction of hidden tokens in evaluation, the same for all training settings
_SEED = 20_200_728  # for the masks, independent of training: all models are evaluated on the same tokens
_ROWS = 16  # inputs per network call


class HeldOut(NamedTuple):
    """Inputs with hidden tokens, and the tokens' positions in the store. M hidden tokens, N inputs.

    Every hidden token is [MASK]; training leaves 10% unchanged, which would bias the evaluation upward. A
    causal model has no [MASK]: it predicts the base tokens of an input's second half from preceding tokens.
    """

    inputs: tuple[Example, ...]  # ids with [MASK]
    places: tuple[NDArray[np.int64], ...]  # per input, the positions at which hidden tokens are predicted
    tokens: NDArray[np.int64]  # (M,) positions in the store, ascending
    labels: NDArray[np.int64]  # (M,) true token ids
    bases: NDArray[np.int64]  # (M,) bp per token
    blocks: NDArray[np.int64]  # (M,) index of the block of `BLOCK_BASES` bp in which the token begins

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
        """Return at most `count` inputs, evenly spaced over a one-pass store; determined by the arguments.

        An input without predictable tokens, e.g. only N, is replaced by the nearest input with some;
        `DataError` if there is none. With `pairs`, inputs are [CLS] A [SEP] B [SEP], where B follows A.
        `widths` (N,) are the bases or characters per token of the store; None: bases from the tokenizer.
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
                f"{store.directory}: no input of {sequence_tokens} tokens contains a token to predict; N and "
                "special tokens are not predicted"
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
                places.append(own)  # shifted by [CLS]: the position of the preceding token
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
        """Return inputs that hide one token each, and the ascending indices (C,) of these tokens. They are
        evenly spaced, as many as fit into `tokens` input tokens in total."""
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
        """Return bits and correctness of the hidden tokens in this process's inputs."""
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
            nats = F.cross_entropy(logits, labels, reduction="none").cpu().double()
            bits[own] = nats.numpy() / np.log(2)
            right[own] = (logits.argmax(-1) == labels).cpu().numpy()
            mine[own] = True
        return Predicted(bits, right, mine)


class Predicted(NamedTuple):
    """A model's predictions for hidden tokens; values are valid only where `own` is true."""

    bits: NDArray[np.float64]  # (M,) -log2 of the true token's probability
    right: NDArray[np.bool_]  # (M,) whether the true token is the most probable one
    own: NDArray[np.bool_]  # (M,) whether this process evaluated the token


def _nearest(wanted: NDArray[np.int_], good: Callable[[int], bool], count: int) -> NDArray[np.int_]:
    """Return the `wanted` numbers below `count`, each bad one replaced by the nearest unused good one."""
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
    """Yield document segments of `room` tokens; remainders are dropped, shorter documents are kept whole."""
    for start, end in pairwise(bounds.tolist()):
        whole = (end - start) // room
        if not whole and end > start:
            yield start, end
        for number in range(whole):
            yield start + number * room, start + (number + 1) * room
