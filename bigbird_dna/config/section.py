"""The base class of configuration sections, and types of file, contig and assembly names."""

import os
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    model_validator,
)

LabelKind = Literal["binary", "multiclass", "multilabel", "regression"]
CalibrationMethod = Literal["auto", "platt", "isotonic"]


# Marks a monitoring key of a model or its training: its value has no effect on the weights.
MONITORING = "decides no weights"
# Marks a key of the computation: its value affects the weights only by rounding and dropout.
NOT_IN_FINGERPRINT = "decides how weights are computed"

# Limits on values that determine memory and time before weights are read, against damaged configurations.
LONGEST_WINDOW = 1_000_000  # bp; twice the longest input of published sequence models
MOST_VIEWS = 100


def field(default: Any, description: str, **bounds: Any) -> Any:
    """Return a key of a section with default, description, and bounds as in pydantic's `Field`."""
    return Field(default=default, description=description, **bounds)


class Section(BaseModel):
    """A frozen group of keys that rejects unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _null(cls, values: Any) -> Any:
        """Values of a section given by Snakemake's `--config` are text."""
        if not isinstance(values, Mapping):
            return values
        return {
            key: None if isinstance(value, str) and value == "null" else value
            for key, value in values.items()
        }

    def _faults(self) -> Iterator[str]:
        """Yield inconsistencies between individually valid keys; the first is reported."""
        yield from ()

    def _repeats(self, *keys: str) -> Iterator[str]:
        """Yield a fault for each key that contains a value more than once."""
        for key in keys:
            values = getattr(self, key) or ()
            if len(set(values)) < len(values):
                yield f"{key} contains a value twice"

    @model_validator(mode="after")
    def _without_faults(self) -> Self:
        for fault in self._faults():
            raise ValueError(fault)
        return self

    def deciding(self) -> dict[str, Any]:
        """Return the keys that determine the trained weights: all except those marked `MONITORING` or
        `NOT_IN_FINGERPRINT`."""
        fields = type(self).model_fields.items()
        return self.model_dump(
            exclude={
                key
                for key, field in fields
                if {MONITORING, NOT_IN_FINGERPRINT} & {*field.metadata}
            }
        )


ASSEMBLY_SYNONYMS = {"hg19": "GRCh37", "hg38": "GRCh38", "R64-1-1": "sacCer3"}
"""Synonym of a known assembly → its name in this software."""


FileName = str
"""An input file or directory, or the key of a file in sources.yaml."""


def _directory(text: str) -> str:
    """Return a directory that is separate and the same for Snakemake, the shell and Python; else `ValueError`."""
    is_root = os.path.normpath(text) in ("/", "//")
    if is_root or re.match(r"\s*$|~|.*://|.*[{}]", text):
        raise ValueError(
            "must be a separate directory, not empty or '/', without a leading '~', '://' or braces"
        )
    return text


DirectoryName = Annotated[str, AfterValidator(_directory)]
"""An output directory of a run."""

ContigName = str
"""A contig (its FASTA name up to the first space), a region of a contig, or a shell pattern."""
