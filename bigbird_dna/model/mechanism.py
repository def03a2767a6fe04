"""Attention of a layer: a function of a block pattern or a separate module, and the pairs it connects."""

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from bigbird_dna.attention.pattern import Pattern
from bigbird_dna.config.mechanisms import (
    OF_PATTERNS,
    LayerShape,
    Mechanism,
    find_mechanism,
)
from bigbird_dna.config.network import EncoderConfig
from bigbird_dna.errors import ModelError


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

    `ValueError`: unknown name or options. `ModelError`: see `check_mechanism`, which is called for the first
    layer unless the network is built without values.
    """
    shape = LayerShape(
        config.heads, config.hidden // config.heads, layer, config.causal
    )
    if config.is_local(layer):
        window = {"window": config.local_window, "dilation": 1, "global_tokens": 0}
        return cast(nn.Module, find_mechanism("longformer").make(shape, window))
    if goes_by_pattern(config):
        return None
    named = find_mechanism(config.attention)
    mechanism = cast(nn.Module, named.make(shape, config.attention_options))
    if layer == 0 and torch.get_default_device().type != "meta":
        check_mechanism(mechanism, named, shape)
    return mechanism


def check_mechanism(mechanism: nn.Module, named: Mechanism, shape: LayerShape) -> None:
    """`ModelError` if a new module does not meet the requirements of `config.mechanisms` for random inputs.

    Neither torch's generator nor the module is changed.
    """

    def wrong(reason: str) -> ModelError:
        return ModelError(f"encoder.attention {named.name}: {reason}")

    stored = mechanism.state_dict()
    for name, value in [*mechanism.named_parameters(), *mechanism.named_buffers()]:
        if not value.is_floating_point() or name not in stored:
            raise wrong(
                f"{name} must be floating-point and persistent: it would be lost in a stored model"
            )
    tokens, length, training = 24, 15, mechanism.training

    def call(values: Sequence[Tensor], lengths: Tensor | None) -> Tensor:
        q, k, v, hidden = values
        k = q if named.shares_keys else k
        out: Tensor = mechanism(q, k, v, lengths=lengths, dropout=0.0, hidden=hidden)
        if out.shape != v.shape or out.dtype != v.dtype:
            found, wanted = (
                f"{str(x.dtype).removeprefix('torch.')} {tuple(x.shape)}"
                for x in (out, v)
            )
            raise wrong(
                f"the output is {found}; it must be like v, {wanted} (batch, heads, tokens, width)"
            )
        if not (out[0].isfinite().all() and out[1, :, :length].isfinite().all()):
            raise wrong("the output contains NaN or infinite values for random inputs")
        return out

    def changed(*, rows: int) -> list[Tensor]:
        """The inputs with other values from `length` on, and everywhere in the first `rows` rows."""
        kept = (torch.arange(tokens) < length) & (torch.arange(2) >= rows)[:, None]
        masks = [kept[:, None, :, None]] * 3 + [kept[..., None]]
        return [
            torch.where(mask, x, torch.randn_like(x))
            for mask, x in zip(masks, inputs, strict=True)
        ]

    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        inputs = [
            *torch.randn(3, 2, shape.heads, tokens, shape.width),
            torch.randn(2, tokens, shape.hidden),
        ]
        lengths, mechanism = torch.tensor([tokens, length]), mechanism.eval()
        own, other = (
            call(x, lengths)[1, :, :length] for x in (inputs, changed(rows=1))
        )
        if not torch.allclose(own, other, rtol=1e-3, atol=1e-3):
            raise wrong(
                "the output of a row depends on its padding or on other rows; use lengths"
            )
        own, later = (call(x, None)[:, :, :length] for x in (inputs, changed(rows=0)))
        if shape.causal and not torch.allclose(own, later, rtol=1e-3, atol=1e-3):
            raise wrong(
                "the output depends on later tokens although encoder.causal is true; hide these tokens"
            )
    mechanism.train(training)


def has_keys(config: EncoderConfig) -> bool:
    """Whether layers have a key projection; otherwise queries are used as keys."""
    return goes_by_pattern(config) or not find_mechanism(config.attention).shares_keys
