"""The section `ablation`: the same encoder trained with one attention mechanism after the other."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, GetJsonSchemaHandler, field_validator, model_validator

from bigbird_dna.config.mechanisms import Option
from bigbird_dna.config.section import Section

# At most: a wrong list would start thousands of trainings.
_MOST, _MOST_MECHANISMS = 20, 100


class AblationMechanism(Section):
    """One that takes part: a name alone, or a name and what its encoder has otherwise than `encoder` says."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_]{0,39}$", description="what tables call it")
    attention: str | None = Field(default=None, description="of the encoder; none: its name")
    attention_options: dict[str, Option] = Field(default={}, description="of the mechanism, by name")
    encoder: dict[str, Option] = Field(default={}, description="other keys of `encoder`, as extra_globals")

    @model_validator(mode="after")
    def _attention_is_said_once(self) -> Self:
        for key in ("attention", "attention_options"):
            if key in self.encoder:
                raise ValueError(f"{self.name}: {key} stands beside the name, not under encoder")
        return self

    @classmethod
    def __get_pydantic_json_schema__(cls, core: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"anyOf": [{"type": "string"}, handler(core)]}

    @property
    def changes(self) -> dict[str, Any]:
        """Keys of the section `encoder` with this mechanism's values."""
        own = {"attention": self.attention or self.name, "attention_options": self.attention_options}
        return {**own, **self.encoder}


def _named(*names: str) -> tuple[AblationMechanism, ...]:
    return tuple(AblationMechanism(name=name) for name in names)


class AblationConfig(Section):
    """What the target `ablation` trains and compares; without that target nothing of it is run."""

    mechanisms: tuple[AblationMechanism, ...] = Field(
        default=_named(
            *("full", "bigbird", "random", "window", "random_window", "longformer", "performer", "reformer"),
            *("sparse_fixed", "logsparse", "axial", "routing"),
            *("combiner_fixed", "combiner_logsparse", "combiner_axial_vertical", "combiner_axial_horizontal"),
            *("combiner_axial_rowmajor", "combiner_routing", "combiner_mixture"),
        ),
        min_length=1,
        max_length=_MOST_MECHANISMS,
        description="a name, or {name, attention, attention_options, encoder}",
    )
    initial_heads: Literal["neighbours", "random"] | None = Field(
        default=None, description="of all of them, as encoder.initial_heads; none: the encoder's"
    )
    reference: str = Field(
        default="bigbird", description="the mechanism that others are compared with, and whose time they have"
    )
    seeds: tuple[Annotated[int, Field(ge=0, lt=2**32)], ...] = Field(
        default=(1,),
        min_length=1,
        max_length=_MOST,
        description="each mechanism is trained with each of them",
    )
    tokens: int = Field(default=512, ge=16, description="of an input")
    batch_tokens: int = Field(
        default=8192, ge=16, description="of a step; a longer input is a step by itself"
    )
    steps: int = Field(default=300, ge=1, description="of each training of the same steps")
    seconds: float | None = Field(
        default=None,
        gt=0,
        description="of each training of the same time; none: what the steps take with the reference",
    )
    lengths: tuple[Annotated[int, Field(ge=16)], ...] = Field(
        default=(2048, 8192), max_length=_MOST, description="tokens of longer inputs that are trained on too"
    )
    length_steps: int = Field(
        default=30,
        ge=1,
        description="on these, after as many tokens of short inputs as `steps` have, in the same training",
    )
    distance: tuple[str, ...] = Field(
        default=(), max_length=_MOST, description="tracks that are told from far away; none: no such task"
    )
    distance_steps: int | None = Field(
        default=None, ge=1, description="of that training; none: those of chromatin.training"
    )
    distance_layers: int | None = Field(
        default=None, ge=1, description="of the encoder that learns these tracks; none: encoder.layers"
    )

    @field_validator("mechanisms", mode="before")
    @classmethod
    def _a_name_is_enough(cls, values: Any) -> Any:
        if not isinstance(values, tuple):
            return values
        return tuple({"name": value} if isinstance(value, str) else value for value in values)

    @model_validator(mode="after")
    def _nothing_is_named_twice(self) -> Self:
        names = tuple(mechanism.name for mechanism in self.mechanisms)
        for key, values in (
            *(("mechanisms", names), ("seeds", self.seeds)),
            *(("lengths", self.lengths), ("distance", self.distance)),
        ):
            if len(set(values)) < len(values):
                raise ValueError(f"{key} names one twice")
        if self.reference not in names:
            raise ValueError(f"reference {self.reference!r} is not one of the mechanisms")
        if any(length <= self.tokens for length in self.lengths):
            raise ValueError(f"lengths must be above tokens, which is {self.tokens}")
        return self

    def changes(self, name: str) -> dict[str, Any]:
        """Keys of the section `encoder` with the values of a mechanism; its own go before those of all."""
        found = next(mechanism for mechanism in self.mechanisms if mechanism.name == name)
        heads = {"initial_heads": self.initial_heads} if self.initial_heads else {}
        return {**heads, **found.changes}

    def batch_size(self, tokens: int) -> int:
        """Inputs of a step."""
        return max(1, self.batch_tokens // tokens)

    def training(self, part: str, accumulate: int = 1) -> dict[str, Any]:
        """Keys of the section `pretraining` for a training: of `steps`, `time`, or a length as text.

        Longer inputs come last, so that they cost few steps: before them come as many tokens on short inputs
        as the training of the same steps has. `accumulate` are the run's own micro-batches, of which a step
        has no more than inputs.
        """
        if part in ("steps", "time"):
            tokens, steps, shorter = self.tokens, self.steps, []
        else:
            tokens = int(part)
            short = self.steps * self.batch_size(self.tokens) * self.tokens
            # Of a length that isn't a multiple, short inputs don't fill a step: training rounds down.
            step = self.batch_size(tokens) * (tokens // self.tokens) * self.tokens
            before = max(1, round(short / step))
            steps, shorter = before + self.length_steps, [{"steps": before, "tokens": self.tokens}]
        return {
            "steps": steps,
            "sequence_tokens": tokens,
            "batch_size": self.batch_size(tokens),
            "accumulate": min(accumulate, self.batch_size(tokens)),
            "shorter_first": shorter,
        }
