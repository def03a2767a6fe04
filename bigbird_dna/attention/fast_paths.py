"""When a fast path may take the place of a module's call.

Fast paths read a module's weights. What a user puts around a module (adapters of PEFT, hooks) exists only in
the call.
"""

import torch
from torch import Tensor, nn
from torch.nn.modules import module as modules
from torch.nn.utils.parametrize import type_before_parametrizations


def is_plain(module: nn.Module, *kinds: type[nn.Module]) -> bool:
    """Whether a call of `module` computes what its class does, from its attribute `weight`, and nothing else.

    Its class must be one of `kinds`: a subclass may compute something else. The `weight` of a parametrized
    module is the result of its parametrization.
    """
    return (
        (type(module) in kinds or type_before_parametrizations(module) in kinds)
        and type(module._parameters.get("weight")) in (nn.Parameter, Tensor, type(None))
        and "forward" not in module.__dict__
        and not module._forward_hooks
        and not module._forward_pre_hooks
        and not module._backward_hooks
        and not module._backward_pre_hooks
        and not modules._has_any_global_hook()  # type: ignore[no-untyped-call]
    )


def check_first_derivative() -> None:
    """`RuntimeError` in a backward pass whose gradients are to be differentiated again (`create_graph=True`)."""
    if torch.is_grad_enabled():
        raise RuntimeError("the fast layers have no second derivatives")
