"""What all sections of the configuration have in common."""

from typing import Any

from pydantic import BaseModel, ConfigDict

# Marks a key of a model or its training that looks on: another value leaves the weights as they are.
WATCHING = "decides no weights"
# Marks a key of how weights are computed: another value leaves them as they are, up to rounding and dropout.
COMPUTING = "decides how weights are computed"
# Marks a key that was added after checkpoints had got names without those keys: no former name has it.
LATER = "is in no former name of a checkpoint"
# Marks a key that was added later and says nothing at its default: what was made without it isn't made again.
UNSAID = "is left out at its default"


class Section(BaseModel):
    """A frozen group of keys that refuses keys it doesn't know."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    def deciding(self) -> dict[str, Any]:
        """The keys that decide what a training ends in: all but those marked `WATCHING` or `COMPUTING`."""
        return self._without(WATCHING, COMPUTING)

    def deciding_formerly(self) -> dict[str, Any]:
        """What earlier versions named a training's checkpoints by: with those keys marked `COMPUTING` that
        they had."""
        return self._without(WATCHING, LATER)

    def unsaid(self) -> set[str]:
        """The keys marked `UNSAID` that are at their default."""
        fields = type(self).model_fields.items()
        return {
            key for key, field in fields if UNSAID in field.metadata and getattr(self, key) == field.default
        }

    def _without(self, *marks: str) -> dict[str, Any]:
        fields = type(self).model_fields.items()
        marked = {key for key, field in fields if {*marks} & {*field.metadata}}
        return self.model_dump(exclude=marked | self.unsaid())
