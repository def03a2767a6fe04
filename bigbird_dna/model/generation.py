"""DNA generation with a pretrained model: causal models continue a flank, masked language models fill a gap.

A causal model continues token by token:

* Samples run in full groups of `GROUP` rows, each group separately on one thread, and every sample has its
  own random numbers. A sample thus depends only on model, flank, sample number and seed, not on the number of
  samples or threads.
* With knowledge of the following bases, a tokenizer might split the flank's end differently. The flank's last
  token is therefore removed, and only tokens that agree with its bases are sampled until these are restored.
* The model reads at most as many tokens as its training inputs had. At this limit it continues from the last
  half of them.
* Samples have the requested length; the last token is truncated.

A masked language model fills a gap between two unchanged flanks. The gap is initialized with uniformly random
bases. In each round, the whole sequence (flank + gap + flank) is tokenized again. Some of the gap's tokens,
chosen uniformly, are masked, and each is replaced by a token with the same number of bases, sampled from the
model's prediction given all other tokens. The gap thus keeps its length. The first round masks all tokens of
the gap; the fraction then decreases until, halfway through the rounds, it is 15 %, as in training. Tokens
that extend into a flank are replaced only by tokens with the flank's bases.

This is Gibbs sampling of several tokens at a time (Wang & Cho 2019, arXiv 1902.04094, for such models), with
predictions as conditional probabilities. These need not belong to one joint distribution: samples come from
the limit of many rounds, not from a model of the gap's probability.

Axes: G rows of a group, or masked tokens of a gap; P tokens that consist of bases.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bigbird_dna.attention.fast_paths import is_plain
from bigbird_dna.console import progress
from bigbird_dna.errors import ModelError, UsageError, check_at_least_one
from bigbird_dna.genome.sequence import clean
from bigbird_dna.model.batching import LONG, each_alone, run_rows
from bigbird_dna.model.decoding import (
    CachedDecoder,
    Floats,
    RecomputingDecoder,
    Sampling,
    keeps_keys,
)
from bigbird_dna.model.encoder import Encoder, Layer
from bigbird_dna.model.heads import PretrainingNetwork, PretrainingOutput
from bigbird_dna.model.inference import prepared
from bigbird_dna.model.model import MADE_FOR, LoadedModel
from bigbird_dna.model.settings import PretrainingSettings
from bigbird_dna.tokens.interface import BASES, require_dna

GROUP = 16
LEAST_MASKED = 0.15
"""Fraction of a gap's tokens masked in each of the later rounds."""
LONGEST = 10_000_000
"""Maximum bp per sample; a sample's tokens are a list in memory."""
_TOGETHER = 64  # gap samples processed together, with all their rows in memory


class Flanks(NamedTuple):
    """The sequences on both sides of samples, A C G T N; either may be empty."""

    left: str = ""
    right: str = ""

    @classmethod
    def read(cls, left: str, right: str) -> Self:
        """Read user-supplied flanks: lower case is accepted, IUPAC codes become N.

        `UsageError` for anything but text, `DataError` for a letter that is not DNA.
        """
        given = {"left": left, "right": right}
        for side, text in given.items():
            if not isinstance(text, str):
                raise UsageError(
                    f"{side} {text!r:.60}: the flank must be a string of bases"
                )
        return cls(*(clean(text, side) for side, text in given.items()))


def check_generating(model: LoadedModel, *, right: bool) -> None:
    """`ModelError` or `UsageError` if a model cannot generate, or cannot use a right flank."""
    if model.task != "pretraining":
        raise ModelError(
            f"{model.name}: this model is for {MADE_FOR[model.task]}; `generate` needs a pretrained model"
        )
    if right and model.config.causal:
        raise UsageError(
            f"{model.name}: a causal model reads from left to right and cannot use a right flank; "
            "use a masked language model to fill a gap"
        )


def generate(
    model: LoadedModel,
    flanks: Sequence[Flanks],
    number: int,
    length: int,
    sampling: Sampling,
    *,
    rounds: int = 30,
    seed: int = 1,
    device: torch.device,
) -> Iterator[str]:
    """Yield `number` samples of `length` bp for each pair of flanks, pair by pair.

    Errors are those of `Model.generate`; arguments are checked before any computation.
    """
    check_generating(model, right=any(one.right for one in flanks))
    check_at_least_one({"number": number, "length": length, "rounds": rounds})
    if length > LONGEST:
        raise UsageError(f"length {length}: must be at most {LONGEST:,}")
    if not 0 <= seed < 2**32:
        raise UsageError(f"seed {seed}: must be from 0 to {2**32 - 1}")
    generator = (_Continuing if model.config.causal else _Infilling)(
        model, sampling.checked(), length, rounds, seed, device
    )
    samples = generator.samples(flanks, number)
    return progress(
        samples, f"{model.name}: generating", len(flanks) * number, "samples"
    )


def describe_method(model: LoadedModel, rounds: int) -> str:
    """Short description of a model's generation method and the cost per token."""
    name = model.config.attention
    if not model.config.causal:
        return f"by filling gaps in {rounds:,} rounds"
    if keeps_keys(model.config):
        return f"from left to right; attention {name}: keys and values are cached, only new tokens are computed"
    return f"from left to right; attention {name}: all earlier tokens are recomputed for each new token"


def most_read(model: LoadedModel) -> int:
    """Maximum number of tokens, including [CLS], from which a causal model predicts the next one."""
    assert isinstance(model.settings, PretrainingSettings)
    learned = model.settings.context
    # Training inputs were [CLS] tokens [SEP]: the last DNA token was predicted from all tokens before it.
    return (
        model.config.max_length
        if learned is None
        else min(learned, model.config.max_length) - 2
    )


def masked_fraction(done: int, rounds: int) -> float:
    """Fraction of a gap's tokens masked in round `done`, from 0: decreases from 1 to `LEAST_MASKED`."""
    falling = max(1, rounds // 2)
    return max(LEAST_MASKED, 1 - (1 - LEAST_MASKED) * done / falling)


def fitting(tokens: Sequence[str], fixed: str) -> NDArray[np.bool_]:
    """Which tokens have the length of `fixed` and the same bases, except where `fixed` has a dot."""
    fits: NDArray[np.bool_] = np.fromiter(
        map(len, tokens), np.int64, len(tokens)
    ) == len(fixed)
    if fixed.strip("."):
        for number in np.flatnonzero(fits).tolist():
            pairs = zip(tokens[number], fixed, strict=True)
            fits[number] = all(wanted in (".", base) for base, wanted in pairs)
    return fits


class _Generating:
    """Common state of all samples; `ModelError` if the tokenizer is not for DNA, or lacks a base."""

    def __init__(
        self,
        model: LoadedModel,
        sampling: Sampling,
        length: int,
        rounds: int,
        seed: int,
        device: torch.device,
    ) -> None:
        require_dna(model.tokenizer)
        assert isinstance(model.network, PretrainingNetwork)
        self.model, self.tokenizer, self.sampling = model, model.tokenizer, sampling
        self.network = model.network.to(device).eval()
        self.length, self.rounds, self.seed, self.device = length, rounds, seed, device
        self.ids = np.asarray(self.tokenizer.base_ids, np.int64)
        self.tokens = [self.tokenizer.decode([one]) for one in self.ids]
        if not {*BASES} <= {*self.tokens}:
            raise ModelError(
                f"{self.tokenizer.source}: the vocabulary lacks a token for a single base"
            )

    def samples(self, flanks: Sequence[Flanks], number: int) -> Iterator[str]:
        raise NotImplementedError

    def draw(
        self,
        scores: Tensor,
        allowed: Sequence[NDArray[np.bool_] | None],
        numbers: Floats,
    ) -> NDArray[np.int64]:
        """Sample a token (G,) per row of scores, among the allowed ones (None: all)."""
        chosen: Floats = scores.cpu().double().numpy()[:, self.ids]
        self.model.check_predictions(chosen)
        for row, possible in enumerate(allowed):
            if possible is not None:
                chosen[row, ~possible] = -np.inf
        return self.sampling.draw(chosen, numbers)


class _SampleGroup(NamedTuple):
    number: int  # number of the flank
    left: str
    first: int  # number of the first sample
    wanted: int  # samples; the other rows only complete the group


class _Continuing(_Generating):
    """Samples of a causal model."""

    def samples(self, flanks: Sequence[Flanks], number: int) -> Iterator[str]:
        groups = [
            _SampleGroup(place, one.left, first, min(number - first, GROUP))
            for place, one in enumerate(flanks)
            for first in range(0, number, GROUP)
        ]
        with prepared(self.network, LONG):
            for found in each_alone(self._written, groups, len(groups), self.device):
                yield from found

    @torch.inference_mode()
    def _written(self, group: _SampleGroup) -> list[str]:
        limit = most_read(self.model)
        randoms = [
            np.random.default_rng((self.seed, group.number, group.first + row))
            for row in range(GROUP)
        ]
        prompt, again = self._prompt(group.left, limit // 2)
        rows = np.tile(prompt, (GROUP, 1))
        decoder, scores = self._begun(rows[:1], limit)
        decoder.repeat(GROUP)
        scores = scores.expand(GROUP, -1)
        texts, size = [""] * GROUP, len(again) + self.length
        while True:
            allowed = [self._agreeing(again[len(text) :]) for text in texts]
            drawn = self.draw(
                scores, allowed, np.array([random.random() for random in randoms])
            )
            texts = [
                text + self.tokens[one]
                for text, one in zip(texts, drawn.tolist(), strict=True)
            ]
            if min(map(len, texts[: group.wanted])) >= size:
                return [text[len(again) : size] for text in texts[: group.wanted]]
            rows = np.concatenate([rows, self.ids[drawn][:, None]], 1)
            if rows.shape[1] > limit:
                kept = rows[:, -(limit // 2) :]
                rows = np.concatenate(
                    [np.full((GROUP, 1), self.tokenizer.cls_id), kept], 1
                )
                decoder, scores = self._begun(rows, limit)
            else:
                scores = decoder.read(self._sent(rows[:, -1:]))

    def _prompt(self, flank: str, room: int) -> tuple[NDArray[np.int64], str]:
        """[CLS] and the flank's tokens except the last, at most `room`, and the bases of the last token."""
        ids = (
            self.tokenizer.encode(flank).astype(np.int64)
            if flank
            else np.zeros(0, np.int64)
        )
        again = ""
        if len(ids) and ids[-1] in self.ids:
            again = self.tokenizer.decode(ids[-1:])
            ids = ids[:-1]
        return np.concatenate(
            [[self.tokenizer.cls_id], ids[max(0, len(ids) - room) :]]
        ), again

    def _begun(
        self, rows: NDArray[np.int64], limit: int
    ) -> tuple[CachedDecoder | RecomputingDecoder, Tensor]:
        # A cache goes around the encoder and its layers, and their hooks.
        encoder = self.network.encoder
        plain = is_plain(encoder, Encoder) and all(
            is_plain(layer, Layer) for layer in encoder.layers
        )
        cached = plain and keeps_keys(self.model.config)
        decoder = (
            CachedDecoder(self.network, limit)
            if cached
            else RecomputingDecoder(self.network)
        )
        return decoder, decoder.read(self._sent(rows))

    def _sent(self, rows: NDArray[np.int64]) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(rows)).to(self.device)

    def _agreeing(self, rest: str) -> NDArray[np.bool_] | None:
        """Which tokens agree with the bases to be restored."""
        if not rest:
            return None
        return np.array(
            [token.startswith(rest) or rest.startswith(token) for token in self.tokens]
        )


class _GapSample:
    """A sample in progress, between flanks."""

    def __init__(self, flanks: Flanks, length: int, seed: tuple[int, int, int]) -> None:
        self.flanks = flanks
        self.random = np.random.default_rng(seed)
        self.text = "".join(self.random.choice([*BASES], length))


class _MaskedRow(NamedTuple):
    """A row with masked tokens."""

    ids: NDArray[np.int32]  # [CLS] tokens [SEP]
    places: NDArray[np.int64]  # (G,) of masked tokens, ascending
    starts: NDArray[np.int64]  # (G,) start of each, bp from the gap's start
    fixed: list[str]  # bases of each, "." for those to be sampled
    numbers: Floats  # (G,) random, from 0 to 1


class _Infilling(_Generating):
    """Samples of a masked language model; `UsageError` for a gap with more tokens than the model accepts."""

    def samples(self, flanks: Sequence[Flanks], number: int) -> Iterator[str]:
        # Use no more of the flanks than the model could read.
        most = self.model.config.max_length * max(map(len, self.tokens))
        near = [Flanks(one.left[-most:], one.right[:most]) for one in flanks]
        wanted = [
            (place, sample) for place in range(len(flanks)) for sample in range(number)
        ]
        for first in range(0, len(wanted), _TOGETHER):
            states = [
                _GapSample(near[place], self.length, (self.seed, place, sample))
                for place, sample in wanted[first : first + _TOGETHER]
            ]
            for done in range(self.rounds):
                rows = [
                    self._masked(state, masked_fraction(done, self.rounds))
                    for state in states
                ]
                for state, row, tokens in zip(
                    states, rows, self._predicted(rows), strict=True
                ):
                    state.text = self._replaced(state.text, row, tokens)
            yield from (state.text for state in states)

    def _masked(self, state: _GapSample, fraction: float) -> _MaskedRow:
        """Mask some of a gap's tokens, surrounded by as many flank tokens as the model has room for."""
        left, right = state.flanks
        whole = left + state.text + right
        ids, offsets = self.tokenizer.encode_with_offsets(whole)
        starts, ends = offsets[:-1] - len(left), offsets[1:] - len(left)
        own = np.flatnonzero(
            (ends > 0) & (starts < self.length) & np.isin(ids, self.ids)
        )
        room = self.model.config.max_length - 2
        first, last = int(own[0]), int(own[-1]) + 1
        if last - first > room:
            raise UsageError(
                f"length {self.length}: the gap has about {last - first:,} tokens, but "
                f"{self.model.name} can fill at most {room:,}; use a shorter gap"
            )
        spare = room - (last - first)
        before = min(first, max(spare // 2, spare - (len(ids) - last)))
        after = min(len(ids) - last, spare - before)
        count = max(1, round(fraction * len(own)))
        masked = np.sort(state.random.choice(own, count, replace=False))
        fixed = []
        for token in masked.tolist():
            places = enumerate(
                whole[offsets[token] : offsets[token + 1]], start=int(starts[token])
            )
            fixed.append(
                "".join(
                    "." if 0 <= place < self.length else base for place, base in places
                )
            )
        row = ids[first - before : last + after].copy()
        row[masked - (first - before)] = self.tokenizer.mask_id
        row = np.concatenate(
            [[self.tokenizer.cls_id], row, [self.tokenizer.sep_id]]
        ).astype(np.int32)
        numbers = state.random.random(count)
        return _MaskedRow(
            row, masked - (first - before) + 1, starts[masked], fixed, numbers
        )

    def _predicted(self, rows: list[_MaskedRow]) -> list[NDArray[np.int64]]:
        """The tokens (G,) that replace the masked tokens of each row."""
        most = max(len(row.places) for row in rows)

        def run(ids: Tensor, lengths: Tensor, chosen: NDArray[np.intp]) -> Tensor:
            # Sampled here because storing the scores of all rows would need much memory.
            own = [rows[number] for number in chosen.tolist()]
            places = [
                row.places + number * ids.shape[1] for number, row in enumerate(own)
            ]
            flat = torch.from_numpy(np.concatenate(places)).to(ids.device)
            output: PretrainingOutput = self.network(ids, lengths, None, flat)
            parts = torch.split(output.tokens, [len(row.places) for row in own])
            found = np.zeros((len(own), most), np.float32)
            for number, (row, scores) in enumerate(zip(own, parts, strict=True)):
                allowed = [fitting(self.tokens, fixed) for fixed in row.fixed]
                found[number, : len(row.places)] = self.draw(
                    scores, allowed, row.numbers
                )
            return torch.from_numpy(found)

        found = run_rows(
            self.network,
            [row.ids for row in rows],
            run,
            pad_id=self.tokenizer.pad_id,
            batch_size=len(rows),
            device=self.device,
        )
        return [
            tokens[: len(row.places)].astype(np.int64)
            for tokens, row in zip(found, rows, strict=True)
        ]

    def _replaced(self, text: str, row: _MaskedRow, tokens: NDArray[np.int64]) -> str:
        letters = [*text]
        for start, token in zip(row.starts.tolist(), tokens.tolist(), strict=True):
            for place, base in enumerate(self.tokens[token], start=start):
                if 0 <= place < self.length:
                    letters[place] = base
        return "".join(letters)
