"""Combiner (Ren et al. 2021, arXiv 2107.05768) by its plans; see `attention.combiner` for what they are."""

from collections.abc import Callable
from typing import Any, Literal

from pydantic import Field

from bigbird_dna.attention.combiner.module import Combiner, Mixture, RoutingCombiner
from bigbird_dna.attention.combiner.plans import axial, fixed, logsparse, rowmajor
from bigbird_dna.attention.combiner.pooling import Pooling
from bigbird_dna.attention.planned import Plan
from bigbird_dna.config import LayerShape, Mechanism, Section

Part = Literal["fixed", "logsparse", "axial_vertical", "axial_horizontal", "axial_rowmajor"]


class CombinerOptions(Section):
    """What all plans have."""

    pooling: Pooling = Field(
        default="max",
        description="how a span's tokens become one key and query; deepsets: of learnt features of them",
    )


class FixedOptions(CombinerOptions):
    """Of blocks."""

    span: int = Field(default=64, ge=1, description="tokens of a block")


class AxialOptions(CombinerOptions):
    """Of rows and columns."""

    columns: int = Field(default=64, ge=1, description="tokens of a row")


class RoutingOptions(CombinerOptions):
    """Of clusters."""

    clusters: int = Field(default=32, ge=1, description="directions that tokens are sorted by, for each head")
    span: int = Field(default=128, ge=1, description="tokens; a larger cluster is cut into several")
    decay: float = Field(
        default=0.999, ge=0, le=1, description="share of a cluster's direction that a training step keeps"
    )


class MixtureOptions(FixedOptions, AxialOptions):
    """Of two plans."""

    first: Part = Field(default="axial_vertical", description="a plan")
    second: Part = Field(default="axial_horizontal", description="the other one")


def plan(part: Part, options: Any) -> Plan:
    """A plan without parameters, of the options that it has."""
    match part:
        case "fixed":
            return fixed(options.span)
        case "logsparse":
            return logsparse()
        case "axial_vertical":
            return axial(options.columns, vertical=True)
        case "axial_horizontal":
            return axial(options.columns, vertical=False)
        case "axial_rowmajor":
            return rowmajor(options.columns)


def _building(part: Part) -> Callable[[LayerShape, Any], Combiner]:
    return lambda shape, options: Combiner(shape, plan(part, options), options.pooling)


def _mixture(shape: LayerShape, options: MixtureOptions) -> Mixture:
    parts = (options.first, options.second)
    return Mixture(shape, [Combiner(shape, plan(part, options), options.pooling) for part in parts])


def _routing(shape: LayerShape, options: RoutingOptions) -> RoutingCombiner:
    return RoutingCombiner(shape, options.pooling, options.clusters, options.span, options.decay)


_ROUTING_COST = "(L + clusters · span) · (K + span + clusters + L / span)"
_AXIAL_COST = "L · (K + columns + L / columns)"
MECHANISMS = (
    Mechanism("combiner_fixed", FixedOptions, _building("fixed"), "L · (K + span + L / span)"),
    Mechanism("combiner_logsparse", CombinerOptions, _building("logsparse"), "L · K · log L"),
    Mechanism("combiner_axial_vertical", AxialOptions, _building("axial_vertical"), _AXIAL_COST),
    Mechanism("combiner_axial_horizontal", AxialOptions, _building("axial_horizontal"), _AXIAL_COST),
    Mechanism("combiner_axial_rowmajor", AxialOptions, _building("axial_rowmajor"), _AXIAL_COST),
    Mechanism("combiner_routing", RoutingOptions, _routing, _ROUTING_COST),
    Mechanism("combiner_mixture", MixtureOptions, _mixture, "of both plans"),
)
