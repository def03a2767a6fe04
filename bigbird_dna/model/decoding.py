"""Drawing tokens by their scores, and scores of the next token of a causal model while a sequence grows.

Of attention by a block pattern (full, bigbird, random, window, random_window) what a token sees doesn't
change when others follow: keys and values of every layer are kept, and a new token is one row of work. Of the
others (mechanisms of their own, relative positions, reversible layers) the whole sequence is computed again
for each token. Both give the same scores, up to rounding.

Axes: G rows, P choices; B rows, L tokens, H heads, K head width, D hidden width, S keys that a token sees, V
vocabulary.
"""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from bigbird_dna.config import EncoderConfig
from bigbird_dna.errors import UsageError
from bigbird_dna.model.encoder import Layer
from bigbird_dna.model.heads import PretrainingNetwork
from bigbird_dna.model.input_embeddings import Rotation
from bigbird_dna.model.mechanism import goes_by_pattern

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


def keeps_keys(config: EncoderConfig) -> bool:
    """Whether keys and values of a causal encoder can be kept while a sequence grows."""
    return goes_by_pattern(config) and not config.relative_max_distance and not config.reversible


class RecomputingDecoder:
    """A causal sequence that grows, in several rows of one length: all is computed again for each token."""

    def __init__(self, network: PretrainingNetwork) -> None:
        self.network = network
        self._ids: Tensor | None = None

    def read(self, ids: Tensor) -> Tensor:
        """Append tokens (B, L), more than one only in the first call; scores (B, V) of the next one."""
        self._ids = ids if self._ids is None else torch.cat([self._ids, ids], 1)
        return _next_scores(self.network, self.network.encoder(self._ids))

    def repeat(self, rows: int) -> None:
        """Go on with so many rows, each as the only one until now."""
        assert self._ids is not None
        self._ids = self._ids.expand(rows, -1)


class CachedDecoder:
    """As `RecomputingDecoder`, of at most `longest` tokens: keys and values of every layer are kept."""

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
            batch, heads, _, width = k.shape
            self._keys, self._values = (x.new_empty((batch, heads, self.longest, width)) for x in (k, v))
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
