"""A causal model writes on: samples of DNA behind a flank, piece by piece.

* Samples run in groups of `GROUP` rows that are always full, each group by itself and on one thread, and
  every sample has random numbers of its own. So a sample is a function of model, flank, its number and the
  seed: not of how many are asked for, nor of the threads.
* A tokenizer would have cut the flank's end in another way, had it known what follows. The flank's last piece
  is taken back, and pieces are drawn that agree with its bases until these are written again.
* The model reads as many tokens as the inputs that it learnt from had. When there are so many, it goes on
  from the last half of them.
* A sample is as long as asked for: the last piece is cut.

Axes: G rows of a group, P pieces made of bases.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bigbird_dna.console import progress
from bigbird_dna.errors import ModelError
from bigbird_dna.model.decoding import Decoder, keeps_keys, make_decoder
from bigbird_dna.model.heads import PretrainingNetwork
from bigbird_dna.model.model import Model
from bigbird_dna.model.prepared import prepared
from bigbird_dna.model.rows import LONG, each_alone
from bigbird_dna.model.sampling import Floats, Sampling
from bigbird_dna.model.settings import PretrainingSettings
from bigbird_dna.tokens.interface import BASES, require_dna

GROUP = 16


class Flank(NamedTuple):
    """What stands before samples, and its number, which their random numbers go by."""

    sequence: str  # A C G T N, may be empty
    number: int = 0


def continued(
    model: Model,
    flanks: Sequence[Flank],
    *,
    number: int,
    length: int,
    sampling: Sampling,
    seed: int,
    device: torch.device,
    cache: bool = True,
) -> Iterator[str]:
    """`number` samples of `length` bp behind each flank, one flank after the other.

    Parameters
    ----------
    model
        A causal model with the head of pretraining.
    cache
        Keep keys and values where attention allows it; without, it takes longer.

    Raises
    ------
    ModelError
        The tokenizer isn't one of DNA or has no piece for some base, or scores are not finite.
    """
    writer = _Writer(model, sampling, length, seed, cache)
    network = model.network.to(device).eval()
    groups = [
        _Group(flank, first, min(number - first, GROUP))
        for flank in flanks
        for first in range(0, number, GROUP)
    ]
    with prepared(network, LONG):
        samples = (
            sample for found in each_alone(writer.written, groups, len(groups), device) for sample in found
        )
        yield from progress(samples, f"{model.name}: generating", len(flanks) * number, "samples")


def reads_at_most(model: Model) -> int:
    """Tokens that a causal model can tell the next one from, [CLS] among them."""
    assert isinstance(model.settings, PretrainingSettings)
    learnt = model.settings.context
    # [CLS] tokens [SEP] were its inputs: what comes behind the last token but one it has been told of.
    return model.config.positions if learnt is None else min(learnt, model.config.positions) - 2


def said_cost(model: Model) -> str:
    """What a new token costs a causal model, in one clause."""
    name = model.config.attention
    if keeps_keys(model.config):
        return f"attention {name}: keys and values are kept, a new token is computed alone"
    return f"attention {name}: all tokens before are computed again for each new one"


class _Group(NamedTuple):
    flank: Flank
    first: int  # number of the first sample
    wanted: int  # samples; the other rows are there to make the group full


class _Writer:
    """What the samples of all groups have in common."""

    def __init__(self, model: Model, sampling: Sampling, length: int, seed: int, cache: bool) -> None:
        require_dna(model.tokenizer)
        assert isinstance(model.network, PretrainingNetwork)
        self.model, self.network, self.tokenizer = model, model.network, model.tokenizer
        self.sampling, self.length, self.seed, self.cache = sampling, length, seed, cache
        self.limit = reads_at_most(model)
        self.ids = np.asarray(self.tokenizer.base_ids, np.int64)
        self.pieces = [self.tokenizer.decode([one]) for one in self.ids]
        if not {*BASES} <= {*self.pieces}:
            raise ModelError(f"{self.tokenizer.source}: has no piece for some base")

    @torch.inference_mode()
    def written(self, group: _Group) -> list[str]:
        """The wanted samples of a group."""
        randoms = [
            np.random.default_rng((self.seed, group.flank.number, group.first + row)) for row in range(GROUP)
        ]
        prompt, again = self._prompt(group.flank.sequence)
        rows = np.tile(prompt, (GROUP, 1))
        decoder, scores = self._begun(rows[:1])
        decoder.repeat(GROUP)
        scores = scores.expand(GROUP, -1)
        texts, size = [""] * GROUP, len(again) + self.length
        while True:
            drawn = self._drawn(scores, [again[len(text) :] for text in texts], randoms)
            texts = [text + self.pieces[one] for text, one in zip(texts, drawn.tolist(), strict=True)]
            if min(map(len, texts[: group.wanted])) >= size:
                return [text[len(again) : size] for text in texts[: group.wanted]]
            rows = np.concatenate([rows, self.ids[drawn][:, None]], 1)
            if rows.shape[1] > self.limit:
                kept = rows[:, -(self.limit // 2) :]
                rows = np.concatenate([np.full((GROUP, 1), self.tokenizer.cls_id), kept], 1)
                decoder, scores = self._begun(rows)
            else:
                scores = decoder.read(self._sent(rows[:, -1:]))

    def _prompt(self, flank: str) -> tuple[NDArray[np.int64], str]:
        """[CLS] and the flank's tokens without the last one, and the bases of that."""
        ids = self.tokenizer.encode(flank).astype(np.int64) if flank else np.zeros(0, np.int64)
        again = ""
        if len(ids) and ids[-1] in self.ids:
            again = self.tokenizer.decode(ids[-1:])
            ids = ids[:-1]
        room = self.limit // 2
        return np.concatenate([[self.tokenizer.cls_id], ids[max(0, len(ids) - room) :]]), again

    def _begun(self, rows: NDArray[np.int64]) -> tuple[Decoder, Tensor]:
        decoder = make_decoder(self.network, self.limit, cache=self.cache)
        return decoder, decoder.read(self._sent(rows))

    def _sent(self, rows: NDArray[np.int64]) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(rows)).to(self.network.masked_tokens.bias.device)

    def _drawn(
        self, scores: Tensor, again: Sequence[str], randoms: Sequence[np.random.Generator]
    ) -> NDArray[np.int64]:
        """A piece (G,) for each row, that agrees with what is to be written `again`."""
        chosen: Floats = scores.double().cpu().numpy()[:, self.ids]
        self.model.check_predictions(chosen)
        for row, rest in enumerate(again):
            if rest:
                agree = [piece.startswith(rest) or rest.startswith(piece) for piece in self.pieces]
                chosen[row, ~np.array(agree)] = -np.inf
        return self.sampling.draw(chosen, np.array([random.random() for random in randoms]))
