"""When a fast path may take the place of a module's call, or of torch's own operations.

Fast paths read a module's weights, or the memory of tensors. What a user puts around a module (adapters of
PEFT, hooks), and derivatives other than a first backward pass, exist only in the call and in torch's
operations.
"""

import torch
from torch import Tensor, nn
from torch.autograd.forward_ad import unpack_dual
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


def is_transformed(*tensors: Tensor | None) -> bool:
    """Whether a transform of `torch.func` is active, or a tensor has a forward-mode derivative.

    Custom operators would ignore these, and return derivatives of zero without an error.
    """
    if torch._C._are_functorch_transforms_active():
        return True
    return any(x is not None and unpack_dual(x).tangent is not None for x in tensors)  # type: ignore[no-untyped-call]
