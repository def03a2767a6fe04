"""Token sampling, and next-token scores of a causal model for a growing sequence.

With a block pattern (full, bigbird, random, window, random_window), later tokens do not change a token's
attention: keys and values of every layer are cached, and a new token costs one row of work. Otherwise
(separate mechanisms, relative positions, reversible layers) the whole sequence is recomputed for each token.
Both give the same scores, up to rounding.

Axes: G rows, P choices; B rows, L tokens, H heads, K head width, D hidden width, S keys that a token attends
to, V vocabulary.
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
    """How the next token is sampled from a model's scores; `checked` raises `UsageError`."""

    temperature: float = 1.0  # divides the scores
    top_k: int | None = None  # number of most likely tokens to sample from; None: all
    top_p: float | None = (
        None  # fewest most likely tokens with this total probability; None: all
    )

    def checked(self) -> "Sampling":
        """Return itself if all values are in range."""
        if not 0 < self.temperature <= 100:
            raise UsageError(
                f"temperature {self.temperature}: must be above 0 and at most 100"
            )
        if self.top_k is not None and self.top_k < 1:
            raise UsageError(f"top_k {self.top_k}: must be at least 1")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise UsageError(f"top_p {self.top_p}: must be above 0 and at most 1")
        return self

    def probabilities(self, scores: Floats) -> Floats:
        """Probabilities for scores (G, P), -inf for excluded choices; each row sums to 1.

        The temperature is applied first, then `top_k`, then `top_p`; ties favor the first choices.
        """
        scaled = scores / self.temperature
        chances = np.exp(scaled - scaled.max(1, keepdims=True))
        if self.top_k is not None or self.top_p is not None:
            order = np.argsort(-scaled, axis=1, kind="stable")
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
        """Sample a choice (G,) from each row of scores (G, P), with random numbers (G,) from 0 to 1."""
        sums = np.cumsum(self.probabilities(scores), 1)
        # The last sum may be slightly below 1; the remainder belongs to the last possible choice.
        found: NDArray[np.int64] = (sums <= (numbers * sums[:, -1])[:, None]).sum(1)
        return found


def keeps_keys(config: EncoderConfig) -> bool:
    """Whether keys and values of a causal encoder can be cached for a growing sequence."""
    own = (
        goes_by_pattern(config)
        and not config.relative_max_distance
        and not config.reversible
    )
    return own and config.position_encoding != "rotary_bp"


class RecomputingDecoder:
    """A growing causal sequence, in several rows of equal length; recomputed for each token."""

    def __init__(self, network: PretrainingNetwork) -> None:
        self.network = network
        self._ids: Tensor | None = None

    def read(self, ids: Tensor) -> Tensor:
        """Append tokens (B, L), several only in the first call; return the next token's scores (B, V)."""
        self._ids = ids if self._ids is None else torch.cat([self._ids, ids], 1)
        return _next_scores(self.network, self.network.encoder(self._ids))

    def repeat(self, rows: int) -> None:
        """Continue with `rows` copies of the only row."""
        assert self._ids is not None
        self._ids = self._ids.expand(rows, -1)


class CachedDecoder:
    """Like `RecomputingDecoder`, for at most `longest` tokens, with cached keys and values of every layer."""

    def __init__(self, network: PretrainingNetwork, longest: int) -> None:
        self.network = network
        self.longest = longest
        self.tokens = 0  # number of tokens read
        layers = (layer for layer in network.encoder.layers if isinstance(layer, Layer))
        self._layers = [_KeptLayer(layer, longest) for layer in layers]
        self._turns: Rotation | None = None  # for all positions

    def read(self, ids: Tensor) -> Tensor:
        if not 0 < ids.shape[1] <= self.longest - self.tokens:
            raise ValueError(
                f"{ids.shape[1]} tokens after {self.tokens} exceed the limit {self.longest}"
            )
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
    """A layer with its cached keys and values (B, H, `longest`, K)."""

    def __init__(self, layer: Layer, longest: int) -> None:
        self.layer, self.longest = layer, longest
        self._keys = self._values = torch.empty(0, device="cpu")
        self._full = layer.attends_to_all
        self._further: tuple[int, Tensor | None] = (
            -1,
            None,
        )  # keys before the own block, by its number

    def read(self, x: Tensor, turns: Rotation | None, first: int) -> Tensor:
        """Hidden states (B, L, D) after `first` earlier tokens → (B, L, D)."""
        q, k, v, _ = self.layer.queries_keys_values(x, turns)  # (B, H, L, K)
        if not first:
            batch, heads, _, width = k.shape
            self._keys, self._values = (
                x.new_empty((batch, heads, self.longest, width)) for x in (k, v)
            )
        end = first + x.shape[1]
        self._keys[:, :, first:end], self._values[:, :, first:end] = k, v
        if not first:
            context = self.layer.attend_by_pattern(q, k, v, None)
        else:
            context = scaled_dot_product_attention(q, *self._seen(first))
        return self.layer.after_attention(x, context)

    def repeat(self, rows: int, tokens: int) -> None:
        """Continue with `rows` rows."""
        for name in ("_keys", "_values"):
            before = getattr(self, name)
            after = before.new_empty((rows, *before.shape[1:]))
            after[:, :, :tokens] = before[:, :, :tokens]
            setattr(self, name, after)

    def _seen(self, place: int) -> tuple[Tensor, Tensor]:
        """Keys and values (B, H, S, K) that the token at `place` attends to, its own last."""
        size = self.layer.pattern.block_size
        block = place // size
        if not self._full and self._further[0] != block:
            self._further = block, self._blocks_before(block)
        further = None if self._full else self._further[1]
        if further is None:
            return self._keys[:, :, : place + 1], self._values[:, :, : place + 1]
        own = torch.arange(block * size, place + 1, device=further.device).expand(
            len(further), -1
        )
        places = torch.cat([further, own], 1)  # (H, S)
        head = torch.arange(len(places), device=places.device)[:, None]
        return self._keys[:, head, places], self._values[:, head, places]

    def _blocks_before(self, block: int) -> Tensor | None:
        """Positions (H, …) in earlier blocks that the block's tokens attend to; None: all of them."""
        pattern, heads = self.layer.pattern, self.layer.heads
        blocks = pattern.key_blocks(
            pattern.blocks(self.longest), heads, self.layer.index
        )[:, block]
        seen = [
            [number for number in row if 0 <= number < block] for row in blocks.tolist()
        ]
        if len(seen[0]) == block:
            return None
        rows = [sorted(row) for row in seen]
        # A window of one block has no earlier blocks; without dtype, an empty tensor would be floating point.
        first = torch.tensor(
            rows, dtype=torch.long, device=self._keys.device
        )  # (H, blocks)
        inside = torch.arange(pattern.block_size, device=first.device)
        return (first[..., None] * pattern.block_size + inside).flatten(1)


def _next_scores(network: PretrainingNetwork, hidden: Tensor) -> Tensor:
    """Scores (B, V) of the token after hidden states (B, L, D)."""
    scores: Tensor = network.masked_tokens(
        hidden[:, -1], network.encoder.embeddings.token.weight
    )
    return scores
