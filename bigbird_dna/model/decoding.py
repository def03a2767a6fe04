"""Autoregressive continuation with cached keys, and sampling.

One of several choices, drawn by scores: temperature, the best k, the likeliest share.

Axes: G rows, P choices.

Scores of the next token of a causal model, while a sequence grows.

Of attention by a block pattern (full, bigbird, random, window, random_window) what a token sees doesn't
change when others follow: keys and values of every layer are kept, and a new token is one row of work. Of the
others (mechanisms of their own, relative positions, reversible layers) the whole sequence is computed again
for each token. Both give the same scores, up to rounding.

Axes: B rows, L tokens, H heads, K head width, D hidden width, S keys that a token sees, V vocabulary.

A causal model writes on: samples of DNA behind a flank, piece by piece.

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
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from bigbird_dna.config import EncoderConfig
from bigbird_dna.console import progress
from bigbird_dna.errors import ModelError, UsageError
from bigbird_dna.model.batching import LONG, each_alone
from bigbird_dna.model.encoder import Layer
from bigbird_dna.model.heads import PretrainingNetwork
from bigbird_dna.model.mechanism import goes_by_pattern
from bigbird_dna.model.model import LoadedModel
from bigbird_dna.model.packed_layers import prepared
from bigbird_dna.model.rotary import Rotation
from bigbird_dna.model.settings import PretrainingSettings
from bigbird_dna.tokens.interface import BASES, require_dna

Floats = NDArray[np.float64]


class Sampling(NamedTuple):
    """How what comes next is drawn from a model's scores; `UsageError` from `checked`."""

    temperature: float = 1.0  # scores are divided by it
    top_k: int | None = None  # only so many of the likeliest; None: all
    top_p: float | None = None  # only the fewest likeliest that have this share together; None: all

    def checked(self) -> "Sampling":
        """Itself, if its numbers are in their ranges."""
        if not 0 < self.temperature <= 100:
            raise UsageError(f"temperature {self.temperature}: must be above 0 and at most 100")
        if self.top_k is not None and self.top_k < 1:
            raise UsageError(f"top_k {self.top_k}: must be at least 1")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise UsageError(f"top_p {self.top_p}: must be a share above 0 and at most 1")
        return self

    def probabilities(self, scores: Floats) -> Floats:
        """Of scores (G, P), -inf where a choice is ruled out, each row's sum is 1.

        The temperature comes first, then `top_k`, then `top_p`; of choices alike the first ones count.
        """
        scaled = scores / self.temperature
        chances = np.exp(scaled - scaled.max(1, keepdims=True))
        if self.top_k is not None or self.top_p is not None:
            order = np.argsort(-chances, axis=1, kind="stable")
            ranked = np.take_along_axis(chances, order, 1)
            if self.top_k is not None:
                ranked[:, self.top_k :] = 0
            if self.top_p is not None:
                before = np.cumsum(ranked, 1) - ranked
                ranked[before >= self.top_p * ranked.sum(1, keepdims=True)] = 0
            np.put_along_axis(chances, order, ranked, 1)
        total: Floats = chances / chances.sum(1, keepdims=True)
        return total

    def draw(self, scores: Floats, numbers: Floats) -> NDArray[np.int64]:
        """A choice (G,) of each row of scores (G, P), by random numbers (G,) from 0 to 1."""
        sums = np.cumsum(self.probabilities(scores), 1)
        # The last sum may be a little below 1: what lies above it belongs to the last choice that can be.
        found: NDArray[np.int64] = (sums <= (numbers * sums[:, -1])[:, None]).sum(1)
        return found


class StepDecoder(Protocol):
    """A sequence that grows, in several rows of the same length."""

    def read(self, ids: Tensor) -> Tensor:
        """Take up tokens (B, L) behind those that were read before; scores (B, V) of the next one.

        Only the first call may have more than one token.
        """

    def repeat(self, rows: int) -> None:
        """Go on with so many rows, each as the only one until now."""


def keeps_keys(config: EncoderConfig) -> bool:
    """Whether keys and values of a causal encoder can be kept while a sequence grows."""
    return goes_by_pattern(config) and not config.relative_max_distance and not config.reversible


def make_decoder(network: PretrainingNetwork, longest: int, *, cache: bool = True) -> StepDecoder:
    """A decoder for at most `longest` tokens, of a causal network in evaluation.

    Without `cache` everything is computed again for each token, whatever the attention: for comparison.
    """
    if cache and keeps_keys(network.encoder.config):
        return CachedDecoder(network, longest)
    return RecomputingDecoder(network)


class RecomputingDecoder:
    """All tokens go through the network for each new one."""

    def __init__(self, network: PretrainingNetwork) -> None:
        self.network = network
        self._ids: Tensor | None = None

    def read(self, ids: Tensor) -> Tensor:
        self._ids = ids if self._ids is None else torch.cat([self._ids, ids], 1)
        return _next_scores(self.network, self.network.encoder(self._ids))

    def repeat(self, rows: int) -> None:
        assert self._ids is not None
        self._ids = self._ids.expand(rows, -1)


class CachedDecoder:
    """Keys and values of every layer are kept."""

    def __init__(self, network: PretrainingNetwork, longest: int) -> None:
        self.network = network
        self.longest = longest
        self.tokens = 0  # read until now
        layers = (layer for layer in network.encoder.layers if isinstance(layer, Layer))
        self._layers = [_KeptLayer(layer, longest) for layer in layers]
        self._turns: Rotation | None = None  # of all positions

    def read(self, ids: Tensor) -> Tensor:
        if not 0 < ids.shape[1] <= self.longest - self.tokens:
            raise ValueError(f"{ids.shape[1]} tokens behind {self.tokens}, at most {self.longest} in all")
        if self.tokens and ids.shape[1] > 1:
            raise ValueError("only the first call may have more than one token")
        encoder, first = self.network.encoder, self.tokens
        x = encoder.embeddings(ids, None, first=first)  # (B, L, D)
        if self._turns is None:
            self._turns = encoder.turns(self.longest, x.device)
        turns = self._turns
        if turns is not None:
            turns = Rotation(*(part[first : first + ids.shape[1]] for part in turns))
        for layer in self._layers:
            x = layer.read(x, turns, first)
        self.tokens += ids.shape[1]
        return _next_scores(self.network, x)

    def repeat(self, rows: int) -> None:
        for layer in self._layers:
            layer.repeat(rows, self.tokens)


class _KeptLayer:
    """A layer, and the keys and values (B, H, `longest`, K) that it has made."""

    def __init__(self, layer: Layer, longest: int) -> None:
        self.layer, self.longest = layer, longest
        self._keys = self._values = torch.empty(0)
        self._full = layer.attends_to_all
        self._further: tuple[int, Tensor | None] = (-1, None)  # keys before the own block, by its number

    def read(self, x: Tensor, turns: Rotation | None, first: int) -> Tensor:
        """Hidden states (B, L, D) behind `first` others → (B, L, D)."""
        q, k, v, _ = self.layer.queries_keys_values(x, turns)  # (B, H, L, K)
        if not first:
            self._keys, self._values = (part.new_empty(self._shape(part)) for part in (k, v))
        end = first + x.shape[1]
        self._keys[:, :, first:end], self._values[:, :, first:end] = k, v
        if not first:
            context = self.layer.attend_by_pattern(q, k, v, None)
        else:
            context = scaled_dot_product_attention(q, *self._seen(first))
        return self.layer.after_attention(x, context)

    def repeat(self, rows: int, tokens: int) -> None:
        """Go on with so many rows."""
        for name in ("_keys", "_values"):
            before = getattr(self, name)
            after = before.new_empty((rows, *before.shape[1:]))
            after[:, :, :tokens] = before[:, :, :tokens]
            setattr(self, name, after)

    def _shape(self, part: Tensor) -> tuple[int, ...]:
        batch, heads, _, width = part.shape
        return batch, heads, self.longest, width

    def _seen(self, place: int) -> tuple[Tensor, Tensor]:
        """Keys and values (B, H, S, K) that the token at `place` sees, its own the last."""
        size = self.layer.pattern.block_size
        block = place // size
        if not self._full and self._further[0] != block:
            self._further = block, self._blocks_before(block)
        further = None if self._full else self._further[1]
        if further is None:
            return self._keys[:, :, : place + 1], self._values[:, :, : place + 1]
        own = torch.arange(block * size, place + 1, device=further.device).expand(len(further), -1)
        places = torch.cat([further, own], 1)  # (H, S)
        head = torch.arange(len(places), device=places.device)[:, None]
        return self._keys[:, head, places], self._values[:, head, places]

    def _blocks_before(self, block: int) -> Tensor | None:
        """Places (H, …) in blocks before the own one that its tokens see; None: all there are."""
        pattern, heads = self.layer.pattern, self.layer.heads
        blocks = pattern.key_blocks(pattern.blocks(self.longest), heads, self.layer.index)[:, block]
        seen = [[number for number in row if 0 <= number < block] for row in blocks.tolist()]
        if len(seen[0]) == block:
            return None
        rows = [sorted(row) for row in seen]
        # Of a window of one block there are none, and numbers of nothing would be floating point.
        first = torch.tensor(rows, dtype=torch.long, device=self._keys.device)  # (H, blocks)
        inside = torch.arange(pattern.block_size, device=first.device)
        return (first[..., None] * pattern.block_size + inside).flatten(1)


def _next_scores(network: PretrainingNetwork, hidden: Tensor) -> Tensor:
    """Scores (B, V) of the token behind hidden states (B, L, D)."""
    scores: Tensor = network.masked_tokens(hidden[:, -1], network.encoder.embeddings.token.weight)
    return scores


GROUP = 16


class Flank(NamedTuple):
    """What stands before samples, and its number, which their random numbers go by."""

    sequence: str  # A C G T N, may be empty
    number: int = 0


def continued(
    model: LoadedModel,
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
        _SampleGroup(flank, first, min(number - first, GROUP))
        for flank in flanks
        for first in range(0, number, GROUP)
    ]
    with prepared(network, LONG):
        samples = (
            sample for found in each_alone(writer.written, groups, len(groups), device) for sample in found
        )
        yield from progress(samples, f"{model.name}: generating", len(flanks) * number, "samples")


def reads_at_most(model: LoadedModel) -> int:
    """Tokens that a causal model can tell the next one from, [CLS] among them."""
    assert isinstance(model.settings, PretrainingSettings)
    learnt = model.settings.context
    # [CLS] tokens [SEP] were its inputs: what comes behind the last token but one it has been told of.
    return model.config.max_length if learnt is None else min(learnt, model.config.max_length) - 2


def said_cost(model: LoadedModel) -> str:
    """What a new token costs a causal model, in one clause."""
    name = model.config.attention
    if keeps_keys(model.config):
        return f"attention {name}: keys and values are kept, a new token is computed alone"
    return f"attention {name}: all tokens before are computed again for each new one"


class _SampleGroup(NamedTuple):
    flank: Flank
    first: int  # number of the first sample
    wanted: int  # samples; the other rows are there to make the group full


class _Writer:
    """What the samples of all groups have in common."""

    def __init__(self, model: LoadedModel, sampling: Sampling, length: int, seed: int, cache: bool) -> None:
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
    def written(self, group: _SampleGroup) -> list[str]:
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

    def _begun(self, rows: NDArray[np.int64]) -> tuple[StepDecoder, Tensor]:
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
