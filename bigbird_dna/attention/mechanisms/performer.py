"""Performer (Choromanski et al. 2021, arXiv 2009.14794); see `attention.performer`."""

from pydantic import Field

from bigbird_dna.attention.performer import Performer
from bigbird_dna.config import LayerShape, Mechanism, Section


class PerformerOptions(Section):
    """Of the random features."""

    features: int = Field(default=256, ge=1, description="random features of a head")
    redraw: int = Field(default=1000, ge=0, description="training passes until others are drawn; 0: never")
    seed: int = Field(default=0, ge=0, description="of the random features")


def _build(shape: LayerShape, options: PerformerOptions) -> Performer:
    return Performer(shape, options.features, options.redraw, options.seed)


MECHANISMS = (Mechanism("performer", PerformerOptions, _build, "L · (K + features)", drops=False),)
