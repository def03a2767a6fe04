"""The activation functions that a configuration can name."""

from collections.abc import Callable
from functools import partial
from typing import Literal

from torch import Tensor
from torch.nn import functional as F

from bigbird_dna.attention.native import gelu_tanh_

Activation = Literal["gelu_tanh", "gelu", "relu"]


# The fused tanh GELU differs from the one HuggingFace spells out as "gelu_new" by rounding alone, and takes
# a sixth of its time.
ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "gelu": F.gelu,
    "relu": F.relu,
}


WHOLE = 64
"""Elements that fill the vector registers of any machine, several times."""


def row_sigmoid(logits: Tensor) -> Tensor:
    """Sigmoid of (B, …), where an element's bits don't depend on its place.

    torch computes what is left over of a vector register in another way, which rounds otherwise: here nothing
    is left over of any row.
    """
    flat = logits.flatten(1)
    count = flat.shape[1]
    return F.pad(flat, (0, -count % WHOLE)).sigmoid()[:, :count].reshape(logits.shape)


def infer_activation(name: Activation, x: Tensor) -> Tensor:
    """An activation where no gradient is asked for; it may overwrite `x`."""
    if name == "gelu_tanh":
        return gelu_tanh_(x)
    return ACTIVATIONS[name](x)
