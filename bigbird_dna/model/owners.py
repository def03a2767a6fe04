"""Which of ETC's extra globals stands for which token."""

import torch
from torch import Tensor
from torch.nn import functional as F


def token_owners(lengths: Tensor | None, batch: int, tokens: int, extra: int) -> Tensor:
    """Which of `extra` globals stands for each token: (B, extra + L), -1 for extra globals and padding.

    As ETC has one for each sentence, a sequence is divided evenly among them, in order.
    """
    ends = torch.full((batch,), tokens) if lengths is None else lengths
    places = torch.arange(tokens).expand(batch, -1)
    owners = (places * extra // ends[:, None]).masked_fill(places >= ends[:, None], -1)
    return F.pad(owners, (extra, 0), value=-1)
