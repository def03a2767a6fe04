"""New DNA from a pretrained model: a causal one continues a flank, one of masked tokens fills a gap.

A causal model continues token by token:

* Samples run in groups of `GROUP` rows that are always full, each group by itself and on one thread, and
  every sample has random numbers of its own. So a sample is a function of model, flank, its number and the
  seed: not of how many are asked for, nor of the threads.
* A tokenizer would have cut the flank's end in another way, had it known what follows. The flank's last token
  is taken back, and tokens are drawn that agree with its bases until these are written again.
* The model reads as many tokens as the inputs that it learned from had. When there are so many, it goes on
  from the last half of them.
* A sample is as long as asked for: the last token is cut.

A model of masked tokens fills a gap between two flanks, which stay as they are. The gap begins as bases drawn
evenly. In each of some rounds the whole, flank + gap + flank, is tokenized again; some of the gap's tokens,
drawn evenly, are masked; and each of these is replaced by a token of as many bases, drawn from the model's
prediction for it given all others. So the gap keeps its length. In the first round all of the gap's tokens
are masked, then fewer from round to round, and from the middle on 15 %, as in training. A token that reaches
into a flank is replaced only by tokens with the flank's bases.

This is Gibbs sampling of several tokens at a time (Wang & Cho 2019, arXiv 1902.04094, for such models), with
the predictions as conditional probabilities. They needn't be those of one distribution: what samples are
drawn from is what many rounds lead to, and no model of the gap's probability.

Axes: G rows of a group, or masked tokens of a gap; P tokens made of bases.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bigbird_dna.console import progress
from bigbird_dna.errors import ModelError, UsageError, check_at_least_one
from bigbird_dna.genome.sequence import clean
from bigbird_dna.model.batching import LONG, each_alone, run_rows
from bigbird_dna.model.decoding import CachedDecoder, Floats, RecomputingDecoder, Sampling, keeps_keys
from bigbird_dna.model.heads import PretrainingNetwork, PretrainingOutput
from bigbird_dna.model.inference import prepared
from bigbird_dna.model.model import MADE_FOR, LoadedModel
from bigbird_dna.model.settings import PretrainingSettings
from bigbird_dna.tokens.interface import BASES, require_dna

GROUP = 16
LEAST_MASKED = 0.15
"""Of a gap's tokens, in each of the later rounds."""
LONGEST = 10_000_000
"""bp of a sample; the tokens of one are a list in memory."""
_TOGETHER = 64  # samples of gaps: their rows are held at once


class Flanks(NamedTuple):
    """What is on both sides of samples, A C G T N; either may be empty."""

    left: str = ""
    right: str = ""

    @classmethod
    def read(cls, left: str, right: str) -> Self:
        """Flanks as a user gives them: lower case is read, IUPAC codes are N.

        `UsageError` for what is no text, `DataError` for a letter that isn't of DNA.
        """
        given = {"left": left, "right": right}
        for side, text in given.items():
            if not isinstance(text, str):
                raise UsageError(f"{side} {text!r:.60}: give the bases of a flank as text")
        return cls(*(clean(text, side) for side, text in given.items()))


def check_generating(model: LoadedModel, *, right: bool) -> None:
    """`ModelError` or `UsageError` where a model can't generate, or not before something on the right."""
    if model.task != "pretraining":
        raise ModelError(
            f"{model.name}: this model was made for {MADE_FOR[model.task]}; `generate` needs a pretrained "
            "model"
        )
    if right and model.config.causal:
        raise UsageError(
            f"{model.name}: a causal model reads from left to right and knows nothing of a flank on the "
            "right; a model of masked tokens fills a gap between two"
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
    """`number` samples of `length` bp for each pair of flanks, one pair after the other.

    Errors as of `Model.generate`; those of arguments come before anything is computed.
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
    return progress(samples, f"{model.name}: generating", len(flanks) * number, "samples")


def describe_method(model: LoadedModel, rounds: int) -> str:
    """How a model generates, and what a token costs, in a few words."""
    name = model.config.attention
    if not model.config.causal:
        return f"by filling gaps in {rounds:,} rounds"
    if keeps_keys(model.config):
        return (
            f"from left to right; attention {name}: keys and values are kept, a new token is computed alone"
        )
    return f"from left to right; attention {name}: all tokens before are computed again for each new one"


def most_read(model: LoadedModel) -> int:
    """Tokens from which a causal model can predict the next one, [CLS] among them."""
    assert isinstance(model.settings, PretrainingSettings)
    learned = model.settings.context
    # [CLS] tokens [SEP] were its inputs: what follows the last token but one was in its training.
    return model.config.max_length if learned is None else min(learned, model.config.max_length) - 2


def masked_fraction(done: int, rounds: int) -> float:
    """Fraction of a gap's tokens masked in a round, counted from 0: from 1 down to `LEAST_MASKED`."""
    falling = max(1, rounds // 2)
    return max(LEAST_MASKED, 1 - (1 - LEAST_MASKED) * done / falling)


def fitting(tokens: Sequence[str], fixed: str) -> NDArray[np.bool_]:
    """Which tokens have as many bases as `fixed`, and the same ones but where that has a dot."""
    fits: NDArray[np.bool_] = np.fromiter(map(len, tokens), np.int64, len(tokens)) == len(fixed)
    if fixed.strip("."):
        for number in np.flatnonzero(fits).tolist():
            pairs = zip(tokens[number], fixed, strict=True)
            fits[number] = all(wanted in (".", base) for base, wanted in pairs)
    return fits


class _Generating:
    """What all samples have in common; `ModelError` if the tokenizer isn't of DNA, or lacks a base."""

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
            raise ModelError(f"{self.tokenizer.source}: has no piece for some base")

    def samples(self, flanks: Sequence[Flanks], number: int) -> Iterator[str]:
        raise NotImplementedError

    def draw(
        self, scores: Tensor, allowed: Sequence[NDArray[np.bool_] | None], numbers: Floats
    ) -> NDArray[np.int64]:
        """A token (G,) of each row of scores, of those that are allowed there (None: all)."""
        chosen: Floats = scores.double().cpu().numpy()[:, self.ids]
        self.model.check_predictions(chosen)
        for row, possible in enumerate(allowed):
            if possible is not None:
                chosen[row, ~possible] = -np.inf
        return self.sampling.draw(chosen, numbers)


class _SampleGroup(NamedTuple):
    number: int  # of the flank
    left: str
    first: int  # number of the first sample
    wanted: int  # samples; the other rows are there to make the group full


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
            np.random.default_rng((self.seed, group.number, group.first + row)) for row in range(GROUP)
        ]
        prompt, again = self._prompt(group.left, limit // 2)
        rows = np.tile(prompt, (GROUP, 1))
        decoder, scores = self._begun(rows[:1], limit)
        decoder.repeat(GROUP)
        scores = scores.expand(GROUP, -1)
        texts, size = [""] * GROUP, len(again) + self.length
        while True:
            allowed = [self._agreeing(again[len(text) :]) for text in texts]
            drawn = self.draw(scores, allowed, np.array([random.random() for random in randoms]))
            texts = [text + self.tokens[one] for text, one in zip(texts, drawn.tolist(), strict=True)]
            if min(map(len, texts[: group.wanted])) >= size:
                return [text[len(again) : size] for text in texts[: group.wanted]]
            rows = np.concatenate([rows, self.ids[drawn][:, None]], 1)
            if rows.shape[1] > limit:
                kept = rows[:, -(limit // 2) :]
                rows = np.concatenate([np.full((GROUP, 1), self.tokenizer.cls_id), kept], 1)
                decoder, scores = self._begun(rows, limit)
            else:
                scores = decoder.read(self._sent(rows[:, -1:]))

    def _prompt(self, flank: str, room: int) -> tuple[NDArray[np.int64], str]:
        """[CLS] and the flank's tokens without the last one, at most `room`, and the bases of that."""
        ids = self.tokenizer.encode(flank).astype(np.int64) if flank else np.zeros(0, np.int64)
        again = ""
        if len(ids) and ids[-1] in self.ids:
            again = self.tokenizer.decode(ids[-1:])
            ids = ids[:-1]
        return np.concatenate([[self.tokenizer.cls_id], ids[max(0, len(ids) - room) :]]), again

    def _begun(
        self, rows: NDArray[np.int64], limit: int
    ) -> tuple[CachedDecoder | RecomputingDecoder, Tensor]:
        cached = keeps_keys(self.model.config)
        decoder = CachedDecoder(self.network, limit) if cached else RecomputingDecoder(self.network)
        return decoder, decoder.read(self._sent(rows))

    def _sent(self, rows: NDArray[np.int64]) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(rows)).to(self.device)

    def _agreeing(self, rest: str) -> NDArray[np.bool_] | None:
        """Which tokens agree with bases that are to be written again."""
        if not rest:
            return None
        return np.array([token.startswith(rest) or rest.startswith(token) for token in self.tokens])


class _GapSample:
    """A sample on its way, between flanks."""

    def __init__(self, flanks: Flanks, length: int, seed: tuple[int, int, int]) -> None:
        self.flanks = flanks
        self.random = np.random.default_rng(seed)
        self.text = "".join(self.random.choice([*BASES], length))


class _MaskedRow(NamedTuple):
    """A row with masked tokens."""

    ids: NDArray[np.int32]  # [CLS] tokens [SEP]
    places: NDArray[np.int64]  # (G,) of masked tokens, ascending
    starts: NDArray[np.int64]  # (G,) where each begins, bp from the gap's start
    fixed: list[str]  # of each its bases, "." for one that is to be drawn
    numbers: Floats  # (G,) random, from 0 to 1


class _Infilling(_Generating):
    """Samples of a model of masked tokens; `UsageError` for a gap of more tokens than it reads."""

    def samples(self, flanks: Sequence[Flanks], number: int) -> Iterator[str]:
        # No more of the flanks than the model could read.
        most = self.model.config.max_length * max(map(len, self.tokens))
        near = [Flanks(one.left[-most:], one.right[:most]) for one in flanks]
        wanted = [(place, sample) for place in range(len(flanks)) for sample in range(number)]
        for first in range(0, len(wanted), _TOGETHER):
            states = [
                _GapSample(near[place], self.length, (self.seed, place, sample))
                for place, sample in wanted[first : first + _TOGETHER]
            ]
            for done in range(self.rounds):
                rows = [self._masked(state, masked_fraction(done, self.rounds)) for state in states]
                for state, row, tokens in zip(states, rows, self._predicted(rows), strict=True):
                    state.text = self._replaced(state.text, row, tokens)
            yield from (state.text for state in states)

    def _masked(self, state: _GapSample, fraction: float) -> _MaskedRow:
        """Some of a gap's tokens masked, among as many of the flanks' as the model has room for."""
        left, right = state.flanks
        whole = left + state.text + right
        ids, offsets = self.tokenizer.encode_with_offsets(whole)
        starts, ends = offsets[:-1] - len(left), offsets[1:] - len(left)
        own = np.flatnonzero((ends > 0) & (starts < self.length) & np.isin(ids, self.ids))
        room = self.model.config.max_length - 2
        first, last = int(own[0]), int(own[-1]) + 1
        if last - first > room:
            raise UsageError(
                f"length {self.length}: such a gap has about {last - first:,} tokens, "
                f"{self.model.name} takes {room:,} beside [CLS] and [SEP]"
            )
        spare = room - (last - first)
        before = min(first, max(spare // 2, spare - (len(ids) - last)))
        after = min(len(ids) - last, spare - before)
        count = max(1, round(fraction * len(own)))
        masked = np.sort(state.random.choice(own, count, replace=False))
        fixed = []
        for token in masked.tolist():
            places = enumerate(whole[offsets[token] : offsets[token + 1]], start=int(starts[token]))
            fixed.append("".join("." if 0 <= place < self.length else base for place, base in places))
        row = ids[first - before : last + after].copy()
        row[masked - (first - before)] = self.tokenizer.mask_id
        row = np.concatenate([[self.tokenizer.cls_id], row, [self.tokenizer.sep_id]]).astype(np.int32)
        numbers = state.random.random(count)
        return _MaskedRow(row, masked - (first - before) + 1, starts[masked], fixed, numbers)

    def _predicted(self, rows: list[_MaskedRow]) -> list[NDArray[np.int64]]:
        """For each row the tokens (G,) that its masked ones become."""
        most = max(len(row.places) for row in rows)

        def run(ids: Tensor, lengths: Tensor, chosen: NDArray[np.intp]) -> Tensor:
            # Drawn here, where a row's scores are at hand: of all rows they'd take much room.
            own = [rows[number] for number in chosen.tolist()]
            places = [row.places + number * ids.shape[1] for number, row in enumerate(own)]
            flat = torch.from_numpy(np.concatenate(places)).to(ids.device)
            output: PretrainingOutput = self.network(ids, lengths, None, flat)
            parts = torch.split(output.tokens, [len(row.places) for row in own])
            found = np.zeros((len(own), most), np.float32)
            for number, (row, scores) in enumerate(zip(own, parts, strict=True)):
                allowed = [fitting(self.tokens, fixed) for fixed in row.fixed]
                found[number, : len(row.places)] = self.draw(scores, allowed, row.numbers)
            return torch.from_numpy(found)

        found = run_rows(
            self.network,
            [row.ids for row in rows],
            run,
            pad_id=self.tokenizer.pad_id,
            batch_size=len(rows),
            device=self.device,
        )
        return [tokens[: len(row.places)].astype(np.int64) for tokens, row in zip(found, rows, strict=True)]

    def _replaced(self, text: str, row: _MaskedRow, tokens: NDArray[np.int64]) -> str:
        letters = [*text]
        for start, token in zip(row.starts.tolist(), tokens.tolist(), strict=True):
            for place, base in enumerate(self.tokens[token], start=start):
                if 0 <= place < self.length:
                    letters[place] = base
        return "".join(letters)
