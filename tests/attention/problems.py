"""Random attention problems, and what a route makes of them."""

from collections.abc import Callable
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from bigbird_dna.attention.call import Call
from bigbird_dna.attention.pattern import Pattern

Made = tuple[Tensor, Tensor, Tensor, Tensor]  # q, k, v, and the gradient of a loss by the output
VARIANTS = ("plain", "causal", "extra", "huggingface")


def inputs(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Made:
    """q, k, v that want gradients, and the gradient of a loss with respect to the output."""
    generator = torch.Generator().manual_seed(seed)
    made = [torch.randn(*shape, generator=generator, dtype=torch.float64) for _ in range(4)]
    q, k, v, upper = (x.to(dtype) for x in made)
    return q.requires_grad_(), k.requires_grad_(), v.requires_grad_(), upper


def value_and_gradients(attend: Callable[[Tensor, Tensor, Tensor], Tensor], made: Made) -> list[Tensor]:
    q, k, v, upper = made
    out = attend(q, k, v)
    return [out.detach(), *torch.autograd.grad(out, (q, k, v), upper)]


def results(route: Callable[[Call], Tensor], made: Made, *rest: Any) -> list[Tensor]:
    """`value_and_gradients` of a call's route; `rest` are the arguments of `Call` from the pattern on."""
    return value_and_gradients(lambda q, k, v: route(Call(q, k, v, *rest)), made)


@st.composite
def patterns(
    draw: st.DrawFn, block_sizes: st.SearchStrategy[int], variants: tuple[str, ...] = VARIANTS
) -> Pattern:
    """Patterns of all kinds of blocks; "extra" has up to 20 tokens in front."""
    variant = draw(st.sampled_from(variants))
    size, seed = draw(block_sizes), draw(st.integers(0, 2**40))
    if variant == "huggingface":
        return Pattern(size, 2, 3, draw(st.integers(0, 3)), seed, huggingface=True)
    counts = st.tuples(st.integers(0, 5), st.sampled_from([0, 1, 3, 5]), st.integers(0, 4))
    extra = draw(st.integers(1, 20)) if variant == "extra" else 0
    return Pattern(size, *draw(counts.filter(any)), seed, causal=variant == "causal", num_global_tokens=extra)
