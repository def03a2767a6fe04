"""Longformer (Beltagy et al. 2020, arXiv 2004.05150); see `attention.longformer`."""

from pydantic import Field

from bigbird_dna.attention.longformer import Longformer
from bigbird_dna.config import LayerShape, Mechanism, Section


class LongformerOptions(Section):
    """Of the window and the global tokens."""

    window: int = Field(default=64, ge=1, description="tokens seen on each side")
    dilation: int = Field(default=1, ge=1, description="tokens from one key of the window to the next")
    global_tokens: int = Field(default=1, ge=0, description="first tokens that see all and are seen by all")


def _build(shape: LayerShape, options: LongformerOptions) -> Longformer:
    return Longformer(shape, options.window, options.dilation, options.global_tokens)


MECHANISMS = (Mechanism("longformer", LongformerOptions, _build, "L · (K + window + global_tokens)"),)
