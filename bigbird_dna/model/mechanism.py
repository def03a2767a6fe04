"""Attention of a layer: a function of a block pattern or a separate module, and the pairs it connects."""

from typing import cast

from torch import nn

from bigbird_dna.attention.pattern import Pattern
from bigbird_dna.config.mechanisms import (
    OF_PATTERNS,
    LayerShape,
    find_mechanism,
)
from bigbird_dna.config.network import EncoderConfig


def attention_pattern(config: EncoderConfig) -> Pattern:
    """The block pattern of `config`; for attention without a pattern, that of its pattern keys."""
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
    """Whether attention is a function of a block pattern."""
    return config.attention in OF_PATTERNS


def build_mechanism(config: EncoderConfig, layer: int) -> nn.Module | None:
    """The attention module of a layer, with initialized parameters; None for a block pattern.

    `ValueError`: unknown name or options.
    """
    if goes_by_pattern(config):
        return None
    width = config.hidden // config.heads
    shape = LayerShape(config.heads, width, layer, config.causal)
    mechanism = find_mechanism(config.attention)
    return cast(nn.Module, mechanism.make(shape, config.attention_options))


def has_keys(config: EncoderConfig) -> bool:
    """Whether layers have a key projection; otherwise queries are used as keys."""
    return goes_by_pattern(config) or not find_mechanism(config.attention).shares_keys
