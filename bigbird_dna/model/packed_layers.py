"""Layers as inference runs them: compiled, and with packed weights.

What layers do beside attention, compiled by torch: fewer and larger kernels on a GPU.

Weights laid out once for many calls without gradients.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch._dynamo.exc import TorchDynamoException

from bigbird_dna.attention.native import pointwise
from bigbird_dna.attention.native_kernel import PackedLayer, can_pack, run_layers
from bigbird_dna.errors import ConfigError, error_text
from bigbird_dna.model.encoder import Encoder, Layer
from bigbird_dna.model.mechanism import goes_by_pattern
from bigbird_dna.model.rotary import Rotation


@contextmanager
def compiled_layers(network: nn.Module, backend: str = "inductor") -> Iterator[None]:
    """In the block, let layers in training run what comes before and after attention as torch compiles it.

    All layers of an encoder, and all lengths, share what is compiled. Results are the same up to rounding,
    and dropout draws other numbers on a CPU. Attention stays outside: it has kernels of its own. Reversible
    layers stay as they are: what is computed twice must not differ.

    Raises
    ------
    ConfigError
        torch can't compile here.
    """
    reversible = [one for one in network.modules() if isinstance(one, Encoder) and one.config.reversible]
    left = {layer for encoder in reversible for layer in encoder.layers}
    layers = [one for one in network.modules() if isinstance(one, Layer) and one not in left]
    options: dict[str, Any] = {"dynamic": True, "backend": backend}
    for layer in layers:
        layer.compiled = (
            torch.compile(layer.queries_keys_values, **options),
            torch.compile(layer.after_attention, **options),
        )
    try:
        yield
    except TorchDynamoException as error:
        raise ConfigError(f"torch_compile: torch can't compile here: {error_text(error)}") from None
    finally:
        for layer in layers:
            layer.compiled = None


class PackedLayers:
    """All layers of an encoder for single sequences of at most `longest` tokens, on one thread.

    Axes: L tokens, D hidden width.
    """

    def __init__(self, layers: list[PackedLayer], longest: int) -> None:
        self._layers, self._longest = layers, longest

    def take(self, x: Tensor, lengths: Tensor | None) -> bool:
        """Whether these are: embeddings (1, L, D) without padding, where no gradient is asked for."""
        batch, tokens, _ = x.shape
        return (
            batch == 1
            and tokens <= self._longest
            and (lengths is None or int(lengths[0]) == tokens)
            and x.dtype == torch.float32
            and torch.get_num_threads() == 1
            and not torch.is_grad_enabled()
            and not torch.is_autocast_enabled("cpu")
        )

    def run(self, x: Tensor, turns: Rotation | None) -> Tensor:
        """Hidden states (1, L, D) after all layers; `x` may be overwritten."""
        return run_layers(self._layers, x, turns)


@contextmanager
def prepared(network: nn.Module, longest: int) -> Iterator[None]:
    """Lay out the weights that layers multiply by, for calls in the block.

    On a CPU single sequences of at most `longest` tokens then go through compiled layers, where there is a
    compiler, if this thread's torch has but one thread: the same up to rounding, in half of the time. Nobody
    may change a weight in the block. Several threads may be in such blocks of one network at once.
    """
    encoders = [module for module in network.modules() if isinstance(module, Encoder)]
    layers = [module for module in network.modules() if isinstance(module, Layer)]
    with torch.no_grad():
        joined = {layer: layer.join() for layer in layers}
        for layer in layers:
            layer.joined = joined[layer]
        for encoder in encoders:
            encoder.packed = _packed(encoder, joined, longest)
    try:
        yield
    finally:
        for layer in layers:
            layer.joined = None
        for encoder in encoders:
            encoder.packed = None


def _packed(
    encoder: Encoder, joined: Mapping[Layer, tuple[Tensor, Tensor]], longest: int
) -> PackedLayers | None:
    """None: a layer has a part that the kernel has not, or there is no kernel."""
    config = encoder.config
    kernel = pointwise(*encoder.parameters())
    plain = (
        goes_by_pattern(config)
        and config.activation == "gelu_tanh"
        and not config.reversible
        and not config.causal
        and not config.num_global_tokens
        and not config.relative_max_distance
        and config.random_seed < 1 << 63
        and can_pack(config.hidden, config.heads)
        and all(parameter.dtype == torch.float32 for parameter in encoder.parameters())
    )
    if kernel is None or not plain:
        return None
    packed = []
    for layer in encoder.layers:
        if not isinstance(layer, Layer) or layer._forward_hooks or layer._forward_pre_hooks:
            return None
        linears = (layer.attention_output, layer.intermediate, layer.output)
        norms = (layer.attention_norm, layer.output_norm)
        pattern = None if config.attention == "full" else layer.pattern
        packed.append(PackedLayer(kernel, joined[layer], linears, norms, layer.heads, pattern, layer.index))
    return PackedLayers(packed, longest)
