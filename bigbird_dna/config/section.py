"""What all sections of the configuration have in common."""

from collections.abc import Iterator
from typing import Any, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

# Marks a key of a model or its training that looks on: another value leaves the weights as they are.
WATCHING = "decides no weights"
# Marks a key of how weights are computed: another value leaves them as they are, up to rounding and dropout.
COMPUTING = "decides how weights are computed"
# Marks a key that was added later and says nothing at its default: what was made without it isn't made again.
UNSAID = "is left out at its default"

# Bounds of what sizes memory and time before a weight is read: a damaged description must cost neither.
LONGEST_WINDOW = 1_000_000  # bp; twice the longest input of published models of sequences
MOST_VIEWS = 100


def field(default: Any, description: str, **bounds: Any) -> Any:
    """A key of a section: its default, what it means, and bounds as of pydantic's `Field`."""
    return Field(default=default, description=description, **bounds)


class Section(BaseModel):
    """A frozen group of keys that refuses keys it doesn't know."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    def _faults(self) -> Iterator[str]:
        """What is wrong with keys that are valid each by itself; the first is reported."""
        yield from ()

    def _repeats(self, *keys: str) -> Iterator[str]:
        """A fault for each of the keys whose values are not all different."""
        for key in keys:
            values = getattr(self, key) or ()
            if len(set(values)) < len(values):
                yield f"{key} names one twice"

    @model_validator(mode="after")
    def _without_faults(self) -> Self:
        for fault in self._faults():
            raise ValueError(fault)
        return self

    def deciding(self) -> dict[str, Any]:
        """The keys that decide what a training ends in: all but those marked `WATCHING` or `COMPUTING`."""
        fields = type(self).model_fields.items()
        return self.model_dump(
            exclude={key for key, field in fields if {WATCHING, COMPUTING} & {*field.metadata}}
        )

    @model_serializer(mode="wrap")
    def _said(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """The keys but those marked `UNSAID` that are at their default."""
        fields = type(self).model_fields
        values: dict[str, Any] = dump(self)
        return {
            key: value
            for key, value in values.items()
            if UNSAID not in fields[key].metadata or getattr(self, key) != fields[key].default
        }
