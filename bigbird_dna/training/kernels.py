"""By which kernels a training is computed: attention's route is said, and a slow one on a GPU refused."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from torch import nn

from bigbird_dna.attention import Choice, routes_logged
from bigbird_dna.config import TrainingConfig
from bigbird_dna.console import log
from bigbird_dna.errors import ConfigError
from bigbird_dna.model.packed_layers import compiled_layers
from bigbird_dna.training.distributed import World

STRICT = ("cuda",)
"""Devices where a training that goes by the slow route takes days in which a GPU has little to do."""


@contextmanager
def chosen_kernels(network: nn.Module, config: TrainingConfig, world: World) -> Iterator[None]:
    """In the block, say on the first process which routes attention takes, each once, and why.

    With `compile_layers` torch compiles the rest of the layers.

    Raises
    ------
    ConfigError
        On a GPU attention would give way to a slower route, and `attention_fallback` doesn't allow that; or
        torch can't compile.
    """

    def hear(choice: Choice) -> None:
        if choice.gave_way and world.device.type in STRICT and not config.attention_fallback:
            raise ConfigError(
                f"attention would be computed by the slower route {choice.route}, as {choice.reason}: "
                "attention_fallback: true in the section of this training allows it"
            )
        if world.is_first:
            log(str(choice))

    with ExitStack() as stack:
        stack.enter_context(routes_logged(hear))
        if config.compile_layers:
            stack.enter_context(compiled_layers(network))
        yield
