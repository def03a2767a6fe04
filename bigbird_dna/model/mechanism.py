"""What a layer attends by: a function of a block pattern, or a module of its own."""

from typing import cast

import torch
from torch import Tensor, nn

from bigbird_dna.attention.pattern import Pattern
from bigbird_dna.config import EncoderConfig, LayerShape, find_mechanism
from bigbird_dna.config.mechanisms import OF_PATTERNS


def attention_pattern(config: EncoderConfig) -> Pattern:
    """The block pattern that `config` describes; of what goes by none, that of the keys that stand there."""
    kinds = OF_PATTERNS.get(config.attention) or OF_PATTERNS["bigbird"]
    return Pattern(
        block_size=config.block_size,
        global_blocks=config.global_blocks if "global_blocks" in kinds else 0,
        window_blocks=config.window_blocks if "window_blocks" in kinds else 0,
        random_blocks=config.random_blocks if "random_blocks" in kinds else 0,
        seed=config.random_seed,
        causal=config.causal,
        num_global_tokens=config.num_global_tokens,
        huggingface=config.compatibility == "huggingface",
    )


def goes_by_pattern(config: EncoderConfig) -> bool:
    """Whether attention is one of the functions of a block pattern."""
    return config.attention in OF_PATTERNS


def build_mechanism(config: EncoderConfig, layer: int) -> nn.Module | None:
    """The module that attends in a layer, its parameters drawn; none: a function of a pattern does.

    `ValueError`: there is none of this name, or it hasn't such options.
    """
    if goes_by_pattern(config):
        return None
    shape = LayerShape(config.heads, config.hidden // config.heads, layer, config.causal)
    return cast(nn.Module, find_mechanism(config.attention).make(shape, config.attention_options))


def has_keys(config: EncoderConfig) -> bool:
    """Whether layers have a projection of keys; without one the queries are the keys."""
    return goes_by_pattern(config) or not find_mechanism(config.attention).shares_keys


def begin_pass(module: nn.Module) -> None:
    """Let every mechanism of a module in training that changes as it goes do so; see `config.mechanisms`."""
    for part in module.modules():
        change = getattr(part, "begin_pass", None)
        if part.training and callable(change):
            change()


def attend_by(
    mechanism: nn.Module,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    lengths: Tensor | None,
    dropout: float,
    hidden: Tensor,
) -> Tensor:
    """A mechanism's attention, (B, H, L, K), never a part of what torch compiles around it."""
    if torch.compiler.is_dynamo_compiling():
        mechanism = torch.compiler.disable(mechanism)  # type: ignore[no-untyped-call]
    return cast(Tensor, mechanism(q, k, v, lengths=lengths, dropout=dropout, hidden=hidden))
