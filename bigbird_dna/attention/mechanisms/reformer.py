"""Reformer's attention (Kitaev et al. 2020, arXiv 2001.04451); see `attention.hashing`."""

from typing import Self

from pydantic import Field, model_validator

from bigbird_dna.attention.reformer import Reformer
from bigbird_dna.config import LayerShape, Mechanism, Section


class ReformerOptions(Section):
    """Of the hashes."""

    buckets: int = Field(default=64, ge=2, description="that tokens are sorted into; even")
    chunk: int = Field(default=64, ge=1, description="tokens; each sees those of its bucket in two chunks")
    rounds: int = Field(default=2, ge=1, le=16, description="times that all tokens are sorted")
    redraw: int = Field(default=1, ge=0, description="training passes until others are drawn; 0: never")
    seed: int = Field(default=0, ge=0, description="of the hashes")

    @model_validator(mode="after")
    def _buckets_come_in_pairs(self) -> Self:
        if self.buckets % 2:
            raise ValueError(f"buckets must be even, got {self.buckets}")
        return self


def _build(shape: LayerShape, options: ReformerOptions) -> Reformer:
    return Reformer(shape, options.buckets, options.chunk, options.rounds, options.redraw, options.seed)


_COST = "L · rounds · (K + chunk · rounds + buckets)"
MECHANISMS = (Mechanism("reformer", ReformerOptions, _build, _COST, causal=False, shares_keys=True),)
