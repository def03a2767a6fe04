"""What a summariser is beside its encoder: its form, its decoder, and how summaries are searched for."""

from typing import Literal

from pydantic import Field

from bigbird_dna.config.section import Section

Form = Literal["base", "pegasus"]


class DecoderShape(Section):
    """A decoder of its own, of the Pegasus form."""

    layers: int = Field(ge=1, description="of the decoder")
    heads: int = Field(ge=1, description="attention heads of a layer")
    intermediate: int = Field(ge=1, description="width between the two feed-forward layers")


class SearchConfig(Section):
    """How a summary is found. Lengths count the token that summaries begin with."""

    beams: int = Field(default=5, ge=1, le=100, description="1: the likeliest token each time")
    length_penalty: float = Field(
        default=0.8, description="a summary's log-probability is divided by its length to this power"
    )
    early_stopping: bool | Literal["never"] = Field(
        default=True,
        description="true: end with as many whole summaries as beams; false: when none that is open scores "
        "better at its present length; never: when none can at any length",
    )
    min_length: int = Field(default=0, ge=0, description="tokens before a summary may end")
    max_length: int = Field(default=256, ge=2, description="tokens of the longest summary")
    no_repeat: int = Field(default=0, ge=0, description="no sequence of so many tokens occurs twice; 0: any")


class SpecialIds(Section):
    """Ids that mean something to a decoder."""

    start: int = Field(ge=0, description="what every summary begins with, and is not part of")
    end: int = Field(ge=0, description="what ends one")
    pad: int = Field(ge=0, description="what fills rows up")
    forced_first: int | None = Field(default=None, ge=0, description="what a summary's first token must be")
    forced_last: int | None = Field(
        default=None, ge=0, description="what the last token of a summary of max_length must be"
    )
