"""What modules of attention have in common: the call of `config.mechanisms` around what each one computes."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from bigbird_dna.attention.call import checked_call, real_positions
from bigbird_dna.attention.pattern import Pattern


class AttentionLayer(nn.Module):
    """Checks a call and takes away its padding; what is left is `attended`, which is a subclass's."""

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        lengths: Tensor | Sequence[int] | None = None,
        dropout: float = 0.0,
        hidden: Tensor | None = None,
    ) -> Tensor:
        """Attention of q, k, v (B, H, L, K) → (B, H, L, K), zero at padding; as `config.mechanisms` says.

        `hidden` is of no use here. `ValueError`: shapes, types, lengths or dropout are not as there.
        """
        call = checked_call(q, k, v, Pattern(), lengths, 0, dropout)
        if not call.lengths:
            return torch.zeros_like(call.v)
        cut = call.cut()
        there = real_positions(call.lengths, cut.q.shape[2], q.device)[:, None]
        return call.uncut(self.attended(cut.q, cut.k, cut.v, there, dropout))

    def attended(self, q: Tensor, k: Tensor, v: Tensor, there: Tensor, dropout: float) -> Tensor:
        """The same of valid arguments; `there` (B, 1, L) is false at padding, where any content is right."""
        raise NotImplementedError
