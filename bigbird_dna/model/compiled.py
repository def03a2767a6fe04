"""What layers do beside attention, compiled by torch: fewer and larger kernels on a GPU."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch._dynamo.exc import TorchDynamoException

from bigbird_dna.errors import ConfigError, error_text
from bigbird_dna.model.encoder import Encoder, Layer


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
        raise ConfigError(f"compile_layers: torch can't compile here: {error_text(error)}") from None
    finally:
        for layer in layers:
            layer.compiled = None
