"""What all sections of the configuration have in common."""

from typing import Any

from pydantic import BaseModel, ConfigDict

# Marks a key of a model or its training that looks on: another value leaves the weights as they are.
WATCHING = "decides no weights"


class Section(BaseModel):
    """A frozen group of keys that refuses keys it doesn't know."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    def deciding(self) -> dict[str, Any]:
        """The keys that can change what a training ends in: all but those marked `WATCHING`."""
        fields = type(self).model_fields.items()
        return self.model_dump(exclude={key for key, field in fields if WATCHING in field.metadata})
