"""What decoders of both forms share: attention over what came before, and over the document.

Shapes: B documents, R rows of summaries (as many for each document, one document's side by side), L tokens of
a document, T tokens of a summary, D hidden width, H heads, K head width.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

KeysValues = tuple[Tensor, Tensor]


class Attention(nn.Module):
    """The projections of full attention: of a decoder's layer to the document, or to its own past."""

    def __init__(self, hidden: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.query = nn.Linear(hidden, hidden)
        self.key = nn.Linear(hidden, hidden)
        self.value = nn.Linear(hidden, hidden)
        self.output = nn.Linear(hidden, hidden)

    def keys_values(self, states: Tensor) -> KeysValues:
        """What is attended to, (…, D) → (B, H, L, K) each."""
        return split(self.key(states), self.heads), split(self.value(states), self.heads)

    def to_document(self, x: Tensor, memory: KeysValues, present: Tensor | None) -> Tensor:
        """Attend from rows x (R, T, D) to their documents; `present` (B, 1, 1, L) says what isn't padding.

        Rows of one document share its keys and values: they are taken as that many more queries.
        """
        documents, each = len(memory[0]), len(x) // len(memory[0])
        q = split(self.query(x), self.heads)  # (R, H, T, K)
        q = q.view(documents, each, *q.shape[1:]).transpose(1, 2).flatten(2, 3)  # (B, H, R / B · T, K)
        dropout = self.dropout if self.training else 0.0
        out = scaled_dot_product_attention(q, *memory, attn_mask=present, dropout_p=dropout)
        out = out.view(documents, self.heads, each, x.shape[1], -1).permute(
            0, 2, 3, 1, 4
        )  # (B, R / B, T, H, K)
        return self.output(out.reshape(x.shape))  # type: ignore[no-any-return]

    def to_past(self, x: Tensor, cache: "Cache", layer: int) -> Tensor:
        """Attend from x (R, T, D) to all tokens up to their own, those in `cache` included."""
        q = split(self.query(x), self.heads)
        out = cache.attend(layer, q, *self.keys_values(x), self.dropout if self.training else 0.0)
        return self.output(out)  # type: ignore[no-any-return]


@dataclass
class Cache:
    """What has been computed of documents, and of the summaries so far.

    `memory` holds each layer's keys and values of the documents (B, H, L, K), `present` what of them isn't
    padding (B, 1, 1, L), None for all; `past` each layer's of the `tokens` tokens before (R, H, T, K).
    """

    memory: list[KeysValues]
    present: Tensor | None
    past: dict[int, KeysValues] = field(default_factory=dict)
    tokens: int = 0

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, dropout: float) -> Tensor:
        """Causal attention of new tokens (R, H, T, K) to themselves and the past → (R, T, D); keeps them."""
        before = 0
        if layer in self.past:
            past_k, past_v = self.past[layer]
            before = past_k.shape[2]
            k, v = torch.cat([past_k, k], 2), torch.cat([past_v, v], 2)
        self.past[layer] = k, v
        new, mask = q.shape[2], None
        if new > 1 and before:
            mask = torch.ones(new, before + new, dtype=torch.bool, device=q.device).tril(before)
        out = scaled_dot_product_attention(
            q, k, v, attn_mask=mask, dropout_p=dropout, is_causal=new > 1 and not before
        )
        return out.transpose(1, 2).flatten(2)  # (R, T, D)

    def reorder(self, rows: Tensor) -> None:
        """Go on from these rows (R,), each one of the same document's."""
        self.past = {layer: (k[rows], v[rows]) for layer, (k, v) in self.past.items()}


def split(x: Tensor, heads: int) -> Tensor:
    """(B, L, D) → (B, H, L, K)."""
    return x.view(*x.shape[:-1], heads, -1).transpose(1, 2)


def presence(lengths: Tensor | None, hidden: Tensor) -> Tensor | None:
    """Which tokens of documents (B, L, D) of these lengths (B,) aren't padding, (B, 1, 1, L); None: all."""
    tokens = hidden.shape[1]
    if lengths is None or bool((lengths == tokens).all()):
        return None
    places = torch.arange(tokens, device=hidden.device)
    return (places < lengths.to(hidden.device)[:, None])[:, None, None]
