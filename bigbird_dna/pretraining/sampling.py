"""Inputs of pretraining, drawn from a token store, and the hidden tokens that all models are measured on."""

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
    """Tokens of documents one after the other, as a `TokenStore` has them."""

    @property
    def directory(self) -> Path:
        """Names them in errors."""

    @property
    def tokens(self) -> Ids:
        """Token ids (N,)."""

    @property
    def sentences(self) -> NDArray[np.integer]:
        """Where sentences begin among the tokens, and the end, (S + 1,)."""

    @property
    def documents(self) -> NDArray[np.integer]:
        """Where documents begin among the sentences, and the end, (D + 1,)."""


class Example(NamedTuple):
    """An input of the network before tokens are hidden."""

    ids: NDArray[np.int32]  # [CLS] A [SEP], or [CLS] A [SEP] B [SEP]
    first: int  # tokens up to and with the first [SEP]
    follows: bool  # whether B follows A; true without B


class Sampler(Protocol):
    """Draws examples of a length."""

    def draw(self, rng: np.random.Generator) -> Example:
        """One example, a function of the generator's state."""


def joined(tokenizer: Tokenizer, a: Ids, b: Ids | None = None, follows: bool = True) -> Example:
    """[CLS] A [SEP], and B [SEP] behind it if there is one."""
    second = [] if b is None else [b, [tokenizer.sep_id]]
    row = np.concatenate([[tokenizer.cls_id], a, [tokenizer.sep_id], *second])
    return Example(row.astype(np.int32), len(a) + 2, follows)


class SegmentSampler:
    """Draws segments that fill `sequence_tokens` with [CLS] A [SEP], each place of the store as likely."""

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
    """Draws sentence pairs, [CLS] A [SEP] B [SEP], that fill `sequence_tokens` where documents have as much.

    A starts at a sentence drawn uniformly from those with an input's tokens ahead in their document, or half
    of a document that is shorter. It takes whole sentences up to about half of the room, B fills the rest:
    with what follows A, or (every second time) from a start in another document; in a store's only one, from
    a start that is as far from A's as an input is long, which is a quarter of the document at most. B is as
    long as both what follows A and the other place allow, so that its length doesn't tell which it is.
    `DataError`: the store is empty, or has no two such starts.
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
                f"{store.directory}: next sentences need a second document, or a longer one: "
                "pretraining.next_sentence: false does without"
            )
        ahead = ahead[self.starts]
        self.fewest = int(ahead.min())
        """Tokens that every start has ahead."""
        begins = store.sentences[self.starts]
        reached = np.minimum(begins + np.minimum(ahead, self.room), np.append(begins[1:], self.bounds[-1]))
        self.share = float((reached - begins).sum() / self.bounds[-1])
        """Of the store's tokens, those that an input can reach."""

    def draw(self, rng: np.random.Generator) -> Example:
        number = int(rng.integers(len(self.starts)))
        start, end = self._place(number)
        half = min(self.room, end - start) // 2
        middle = self._sentence_end_near(int(self.starts[number]), start + half, start + 2 * half)
        length = min(self.room - (middle - start), end - middle)
        follows = bool(rng.random() < 0.5)
        begin = middle
        if not follows or length > self.fewest:
            # Of what follows, too, no more is taken than the other place has.
            other, stop = self._place(self._elsewhere(number, rng))
            length = min(length, stop - other)
            begin = middle if follows else other
        tokens = self.store.tokens
        a, b = np.asarray(tokens[start:middle]), np.asarray(tokens[begin : begin + length])
        return joined(self.tokenizer, a, b, follows)

    def _place(self, number: int) -> tuple[int, int]:
        """The token that a start is at, and the end of its document."""
        sentence = self.starts[number]
        document = self.store.documents.searchsorted(sentence, side="right")
        return int(self.store.sentences[sentence]), int(self.bounds[document])

    def _elsewhere(self, number: int, rng: np.random.Generator) -> int:
        """A start that is not near one, each as likely."""
        other = int(rng.integers(len(self.starts)))
        (first,), (last,) = self._near(self.starts[number : number + 1])
        if not first <= other < last:
            return other
        other = int(rng.integers(len(self.starts) - (last - first)))
        return int(other + (last - first) * (other >= first))

    def _near(self, sentences: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """The starts near each of some sentences (n,): the number of the first (n,), and the end (n,)."""
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
        """The last sentence end at or before `target`, the first one after it, or `target` itself."""
        ends = self.store.sentences
        after = int(np.searchsorted(ends, target, side="right"))
        if after - 1 > sentence:
            return int(ends[after - 1])
        if after < len(ends) and int(ends[after]) < limit:
            return int(ends[after])
        return target


def document_bounds(store: Tokens) -> NDArray[np.int64]:
    """Where documents begin and end among the store's tokens, (D + 1,); `DataError` for an empty store."""
    bounds = np.asarray(store.sentences[store.documents])
    if len(bounds) < 2 or bounds[-1] < 1:
        raise DataError(f"{store.directory}: the token store holds no sentences")
    return bounds


def sampler(store: Tokens, tokenizer: Tokenizer, sequence_tokens: int, next_sentence: bool) -> Sampler:
    """Of pairs if next sentences are learnt, of segments if not."""
    return (PairSampler if next_sentence else SegmentSampler)(store, tokenizer, sequence_tokens)


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
