"""Reversible layers: their inputs are computed from their outputs, and needn't be kept for the backward pass.

Gomez et al. 2017, arXiv 1707.04585; Kitaev et al. 2020, arXiv 2001.04451, section 3. Hidden states are two
streams, which both begin as the embeddings. With F the attention of a layer and G its feed-forward part, each
behind its LayerNorm and in front of its dropout,

    y1 = x1 + F(x2),  y2 = x2 + G(y1)          forwards
    x2 = y2 - G(y1),  x1 = y1 - F(x2)          backwards

and what comes out is the mean of the last two. Of all layers two tensors (B, L, D) are kept, with the state
of the random generators for each part, by which dropout is the same again, and the choices that a mechanism
makes by comparing numbers (see `attention.recompute`): inputs come back with other rounding.

Axes: B batch, L tokens, D model width.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from bigbird_dna.attention.recompute import Choices, Circumstances

Arguments = tuple[Any, ...]  # that all layers are given beside their input


class _HalfLayer(NamedTuple):
    """Half a layer: a stream's change by the other stream."""

    change: Callable[[Tensor], Tensor]
    parameters: list[nn.Parameter]  # of the whole layer


class _Kept(NamedTuple):
    """What a part's second computation needs to be the first one's."""

    circumstances: Circumstances
    choices: list[Tensor]


def reversible_layers(layers: Iterable[nn.Module], x: Tensor, arguments: Arguments) -> Tensor:
    """Hidden states (B, L, D) after all layers, from embeddings (B, L, D).

    `layers` are an encoder's (`model.encoder.Layer`), `arguments` what their `attended` takes behind x.
    """
    parts = [part for layer in layers for part in halves(layer, arguments)]
    if torch.is_grad_enabled():
        parameters = {parameter: None for part in parts for parameter in part.parameters}
        first, second = _Reversible.apply(parts, x, *parameters)  # type: ignore[no-untyped-call]
    else:
        first, second = _forwards(parts, x, [])
    return (first + second) / 2  # type: ignore[no-any-return]


def halves(layer: Any, arguments: Arguments) -> tuple[_HalfLayer, _HalfLayer]:
    def attention(x: Tensor) -> Tensor:
        context = layer.attended(layer.attention_norm(x), *arguments).transpose(1, 2).flatten(2)
        return layer.dropout(layer.attention_output(context))  # type: ignore[no-any-return]

    def feed_forward(x: Tensor) -> Tensor:
        return layer.dropout(layer.inner(layer.output_norm(x)))  # type: ignore[no-any-return]

    parameters = list(layer.parameters())
    return _HalfLayer(attention, parameters), _HalfLayer(feed_forward, parameters)


def _forwards(parts: Sequence[_HalfLayer], x: Tensor, kept: list[_Kept]) -> tuple[Tensor, Tensor]:
    """Both streams after all parts; fills `kept`."""
    read, other = x, x
    for part in parts:
        now = Circumstances.now(x.device)
        choices: list[Tensor] = []
        with Choices(choices):
            read, other = other + part.change(read), read
        kept.append(_Kept(now, choices))
    return read, other


class _Reversible(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, parts: Sequence[_HalfLayer], x: Tensor, *parameters: Tensor
    ) -> tuple[Tensor, Tensor]:
        ctx.parts, ctx.parameters, ctx.kept = parts, parameters, []
        read, other = _forwards(parts, x, ctx.kept)
        ctx.save_for_backward(read, other)
        return read, other

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_read: Tensor, of_other: Tensor) -> tuple[Tensor | None, ...]:
        read, other = ctx.saved_tensors  # a part made them of (x, y): y + change(x), x
        sums: dict[Tensor, Tensor] = {}
        for part, kept in zip(reversed(ctx.parts), reversed(ctx.kept), strict=True):
            x = other.detach().requires_grad_()
            with kept.circumstances.again(), Choices(kept.choices, again=True):
                change = part.change(x)
            wanted = [parameter for parameter in part.parameters if parameter.requires_grad]
            upper = of_read.to(change.dtype)
            gradient, *others = torch.autograd.grad(change, [x, *wanted], upper, allow_unused=True)
            for parameter, more in zip(wanted, others, strict=True):
                if more is not None:
                    sums[parameter] = sums[parameter] + more if parameter in sums else more
            read, other = x.detach(), read - change.detach()
            of_read, of_other = of_other + gradient, of_read
        return None, of_read + of_other, *(sums.get(parameter) for parameter in ctx.parameters)
