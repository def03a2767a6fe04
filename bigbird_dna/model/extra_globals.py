"""Extra global tokens in front of a sequence (ETC): what they stand for, and what is made of them.

Axes: B batch, G extra globals, L tokens, D hidden width.
"""

from typing import NamedTuple

from torch import Tensor


class Globals(NamedTuple):
    """What the extra globals of each sequence stand for; without it all sequences have the same ones.

    `content` (B, G, D) is added to their learnt vectors. `owners` (B, L) says which of them stands for a
    token, -1 for none; relative labels alone look at it.
    """

    content: Tensor
    owners: Tensor


class Encoded(NamedTuple):
    """Hidden states of the extra globals (B, G, D) and of the tokens (B, L, D)."""

    globals: Tensor
    tokens: Tensor
