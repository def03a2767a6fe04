"""Generated sequence: infilling and continuation.

A model of masked tokens fills a gap between two flanks, which stay as they are.

The gap begins as bases drawn evenly. In each of some rounds the whole, flank + gap + flank, is cut into
tokens anew; some of the gap's tokens, drawn evenly, are hidden; and each of these is replaced by a piece of
as many bases, drawn from what the model says of it given all others. So the gap keeps its length. In the
first round all of the gap's tokens are hidden, then fewer from round to round, and from the middle on 15 %,
as a masked-token model has learnt it. A token that reaches into a flank takes only pieces with its bases.

This is Gibbs sampling of several tokens at a time (Wang & Cho 2019, arXiv 1902.04094, for such models), with
what the model says as conditional probabilities. They needn't be those of one distribution: what samples are
drawn from is what many rounds lead to, and no model of the gap's probability.

Axes: G tokens of a gap that are hidden, P pieces.

New DNA from a pretrained model: a causal one continues, one of masked tokens fills in.
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
from bigbird_dna.model.batching import run_rows
from bigbird_dna.model.decoding import Flank, Sampling, continued, said_cost
from bigbird_dna.model.heads import PretrainingNetwork, PretrainingOutput
from bigbird_dna.model.model import MADE_FOR, LoadedModel
from bigbird_dna.tokens.interface import BASES, require_dna

LEAST_HIDDEN = 0.15
"""Of a gap's tokens, in each of the later rounds."""
_TOGETHER = 64  # samples: their rows are held at once


class Gap(NamedTuple):
    """The flanks of samples, and their number, which random numbers go by."""

    left: str  # A C G T N, may be empty
    right: str
    number: int = 0


def filled(
    model: LoadedModel,
    gaps: list[Gap],
    *,
    number: int,
    length: int,
    sampling: Sampling,
    rounds: int,
    seed: int,
    device: torch.device,
) -> Iterator[str]:
    """`number` samples of `length` bp for each gap, one gap after the other.

    A sample is a function of model, flanks, its number, the seed, `rounds` and `sampling`. Of flanks that
    don't fit beside the gap into the model's positions the nearest bases are read.

    Raises
    ------
    UsageError
        The gap alone has more tokens than the model takes.
    ModelError
        The tokenizer isn't one of DNA or has no piece for some base, or predictions are not finite.
    """
    filler = _Filler(model, sampling, length, rounds, seed, device)
    wanted = [(gap, sample) for gap in gaps for sample in range(number)]

    def samples() -> Iterator[str]:
        for first in range(0, len(wanted), _TOGETHER):
            yield from filler.samples(wanted[first : first + _TOGETHER])

    yield from progress(samples(), f"{model.name}: generating", len(wanted), "samples")


def hidden_share(done: int, rounds: int) -> float:
    """Share of a gap's tokens that are hidden in a round, counted from 0: from 1 down to `LEAST_HIDDEN`."""
    falling = max(1, rounds // 2)
    return max(LEAST_HIDDEN, 1 - (1 - LEAST_HIDDEN) * done / falling)


class _State:
    """A sample on its way."""

    def __init__(self, gap: Gap, length: int, seed: int, sample: int) -> None:
        self.gap = gap
        self.random = np.random.default_rng((seed, gap.number, sample))
        self.text = "".join(self.random.choice([*BASES], length))


class _MaskedRow(NamedTuple):
    """A row with hidden tokens."""

    ids: NDArray[np.int32]  # [CLS] tokens [SEP]
    places: NDArray[np.int64]  # (G,) of hidden tokens, ascending
    starts: NDArray[np.int64]  # (G,) where each begins, bp from the gap's start
    fixed: list[str]  # of each its bases, "." for one that is to be drawn
    numbers: NDArray[np.float64]  # (G,) random, from 0 to 1


class _Filler:
    """What all samples have in common."""

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
        self.pieces = [self.tokenizer.decode([one]) for one in self.ids]
        if not {*BASES} <= {*self.pieces}:
            raise ModelError(f"{self.tokenizer.source}: has no piece for some base")
        self.sizes = np.array([len(piece) for piece in self.pieces])

    def samples(self, wanted: list[tuple[Gap, int]]) -> list[str]:
        """Some samples, in their order."""
        states = [_State(self._near(gap), self.length, self.seed, sample) for gap, sample in wanted]
        for done in range(self.rounds):
            share = hidden_share(done, self.rounds)
            questions = [self._ask(state, share) for state in states]
            for state, question, chosen in zip(states, questions, self._answers(questions), strict=True):
                state.text = self._replaced(state.text, question, chosen)
        return [state.text for state in states]

    def _near(self, gap: Gap) -> Gap:
        """The gap with no more of its flanks than the model could read."""
        most = self.model.config.max_length * int(self.sizes.max())
        return gap._replace(left=gap.left[-most:], right=gap.right[:most])

    def _ask(self, state: _State, share: float) -> _MaskedRow:
        """Some of a gap's tokens hidden, among as many of the flanks' as the model has room for."""
        left, right = state.gap.left, state.gap.right
        ids, offsets = self.tokenizer.encode_with_offsets(left + state.text + right)
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
        behind = min(len(ids) - last, spare - before)
        count = max(1, round(share * len(own)))
        hidden = np.sort(state.random.choice(own, count, replace=False))
        whole = left + state.text + right
        fixed = []
        for token in hidden.tolist():
            text = whole[offsets[token] : offsets[token + 1]]
            inside = range(int(starts[token]), int(ends[token]))
            fixed.append(
                "".join("." if 0 <= i < self.length else base for i, base in zip(inside, text, strict=True))
            )
        row = ids[first - before : last + behind].copy()
        row[hidden - (first - before)] = self.tokenizer.mask_id
        row = np.concatenate([[self.tokenizer.cls_id], row, [self.tokenizer.sep_id]]).astype(np.int32)
        numbers = state.random.random(count)
        return _MaskedRow(row, hidden - (first - before) + 1, starts[hidden], fixed, numbers)

    def _answers(self, questions: list[_MaskedRow]) -> list[NDArray[np.int64]]:
        """For each question the pieces (G,) that its hidden tokens become."""
        most = max(len(question.places) for question in questions)

        def run(ids: Tensor, lengths: Tensor, chosen: NDArray[np.intp]) -> Tensor:
            # Drawn here, where a row's scores are at hand: of all rows they'd take much room.
            asked = [questions[number] for number in chosen.tolist()]
            places = [one.places + row * ids.shape[1] for row, one in enumerate(asked)]
            flat = torch.from_numpy(np.concatenate(places)).to(ids.device)
            output: PretrainingOutput = self.network(ids, lengths, None, flat)
            parts = torch.split(output.tokens, [len(one.places) for one in asked])
            found = np.zeros((len(asked), most), np.float32)
            for row, (one, scores) in enumerate(zip(asked, parts, strict=True)):
                found[row, : len(one.places)] = self._drawn(scores, one)
            return torch.from_numpy(found)

        answers = run_rows(
            self.network,
            [question.ids for question in questions],
            run,
            pad_id=self.tokenizer.pad_id,
            batch_size=len(questions),
            device=self.device,
        )
        return [
            row[: len(question.places)].astype(np.int64)
            for row, question in zip(answers, questions, strict=True)
        ]

    def _drawn(self, scores: Tensor, question: _MaskedRow) -> NDArray[np.int64]:
        chosen = scores.double().cpu().numpy()[:, self.ids]
        self.model.check_predictions(chosen)
        for row, fixed in enumerate(question.fixed):
            chosen[row, ~self._fitting(fixed)] = -np.inf
        return self.sampling.draw(chosen, question.numbers)

    def _fitting(self, fixed: str) -> NDArray[np.bool_]:
        """Which pieces have as many bases, and those that are fixed."""
        fits: NDArray[np.bool_] = self.sizes == len(fixed)
        if fixed.strip("."):
            for number in np.flatnonzero(fits).tolist():
                pairs = zip(self.pieces[number], fixed, strict=True)
                fits[number] = all(wanted in (".", base) for base, wanted in pairs)
        return fits

    def _replaced(self, text: str, question: _MaskedRow, chosen: NDArray[np.int64]) -> str:
        letters = [*text]
        for start, piece in zip(question.starts.tolist(), chosen.tolist(), strict=True):
            for place, base in enumerate(self.pieces[piece], start=start):
                if 0 <= place < self.length:
                    letters[place] = base
        return "".join(letters)


LONGEST = 10_000_000
"""bp of a sample; the pieces of one are a list in memory."""


class Flanks(NamedTuple):
    """What stands on both sides of samples, A C G T N; either may be empty."""

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

    Errors as of `LoadedModel.generate`; those of arguments come before anything is computed.
    """
    check_generating(model, right=any(one.right for one in flanks))
    check_at_least_one({"number": number, "length": length, "rounds": rounds})
    if length > LONGEST:
        raise UsageError(f"length {length}: must be at most {LONGEST:,}")
    if not 0 <= seed < 2**32:
        raise UsageError(f"seed {seed}: must be from 0 to {2**32 - 1}")
    sampling.checked()
    if model.config.causal:
        prompts = [Flank(one.left, place) for place, one in enumerate(flanks)]
        return continued(
            model, prompts, number=number, length=length, sampling=sampling, seed=seed, device=device
        )
    gaps = [Gap(one.left, one.right, place) for place, one in enumerate(flanks)]
    return filled(
        model, gaps, number=number, length=length, sampling=sampling, rounds=rounds, seed=seed, device=device
    )


def said_method(model: LoadedModel, rounds: int) -> str:
    """How a model generates, in a few words."""
    if model.config.causal:
        return f"from left to right; {said_cost(model)}"
    return f"by filling gaps in {rounds:,} rounds"
