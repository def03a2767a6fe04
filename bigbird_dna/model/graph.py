"""The graph of an encoder's attention, block by block, for figures and comparisons."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bigbird_dna.attention.pattern import GLOBAL
from bigbird_dna.config import EncoderConfig
from bigbird_dna.errors import UsageError
from bigbird_dna.model.encoder import attention_pattern


class AttentionGraph(NamedTuple):
    """Which key blocks each query block sees, and what to call it.

    `kinds` is (H, Q, Q) int8: 0 not seen, 1 global, 2 window, 3 random; with extra globals the blocks that
    these fill stand in front.
    """

    kinds: npt.NDArray[np.int8]
    title: str


def attention_graph(encoder: EncoderConfig, layer: int = 0, tokens: int | None = None) -> AttentionGraph:
    """The graph of one layer for an input of `tokens` tokens (None: the encoder's longest).

    Raises
    ------
    UsageError
        The encoder has no such layer.
    """
    if not 0 <= layer < encoder.layers:
        raise UsageError(f"layer {layer}: the encoder has layers 0 to {encoder.layers - 1}")
    tokens = tokens or encoder.positions
    pattern = attention_pattern(encoder)
    blocks = pattern.blocks(tokens + encoder.extra_globals)
    front = -(-encoder.extra_globals // encoder.block_size)
    kinds = np.full((encoder.heads, front + blocks, front + blocks), GLOBAL, dtype=np.int8)
    if encoder.attention != "full":
        kinds[:, front:, front:] = pattern.kinds(blocks, encoder.heads, layer)
    name = "Full" if encoder.attention == "full" else "BigBird"
    return AttentionGraph(kinds, f"{name} attention, layer {layer}, {tokens:,} tokens")
