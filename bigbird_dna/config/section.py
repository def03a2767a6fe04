"""What all sections of the configuration have in common, and names of files and contigs in them."""

import os
import re
from collections.abc import Iterator
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

# Marks a key of a model or its training that looks on: another value leaves the weights as they are.
MONITORING = "decides no weights"
# Marks a key of how weights are computed: another value leaves them as they are, up to rounding and dropout.
NOT_IN_FINGERPRINT = "decides how weights are computed"
# Marks a key that was added later and says nothing at its default: what was made without it isn't made again.
DEFAULT_OMITTED = "is left out at its default"

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
        """The keys that decide what a training ends in: all but those marked `MONITORING` or
        `NOT_IN_FINGERPRINT`."""
        fields = type(self).model_fields.items()
        return self.model_dump(
            exclude={key for key, field in fields if {MONITORING, NOT_IN_FINGERPRINT} & {*field.metadata}}
        )

    @model_serializer(mode="wrap")
    def _stored(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """The keys but those marked `DEFAULT_OMITTED` that are at their default."""
        fields = type(self).model_fields
        values: dict[str, Any] = dump(self)
        return {
            key: value
            for key, value in values.items()
            if DEFAULT_OMITTED not in fields[key].metadata or getattr(self, key) != fields[key].default
        }


# The longest name that file systems take, and what is left of the longest path for a run's own names.
_LONGEST_NAME, _LONGEST_PATH = 255, 3000
# htslib opens what starts with http:, s3: or data: from there.
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")

ASSEMBLY_SYNONYMS = {"hg19": "GRCh37", "hg38": "GRCh38", "R64-1-1": "sacCer3"}
"""Other names of known assemblies, and the names that everything else knows them by."""


def _file(text: str) -> str:
    if not text.strip():
        raise ValueError("a name can't be empty")
    if text != text.strip():
        raise ValueError("a name can't start or end with a space")
    if text.startswith(("-", "~")):
        raise ValueError(f"a name can't start with {text[0]!r}: write the whole path, from '/' on")
    if found := _ADDRESS.match(text):
        raise ValueError(f"a name can't start with {found[0]!r}, which marks an address, no file")
    if found := re.search("[{}<>]", text):
        raise ValueError(f"a name can't hold {found[0]!r}, which marks placeholders of Snakemake")
    size = len(os.fsencode(text))
    if size > _LONGEST_PATH or any(len(os.fsencode(part)) > _LONGEST_NAME for part in text.split("/")):
        raise ValueError("longer than names of files can be")
    return text


def _directory(text: str) -> str:
    _file(text)
    if text.startswith("//") or os.path.normpath(text) == "/":
        raise ValueError("a run needs a directory of its own")
    return text


def _contig(text: str) -> str:
    if not text or text.startswith("-") or any(character.isspace() or character == "`" for character in text):
        raise ValueError(
            "a contig's name has at least one letter, no spaces or backquotes, and no '-' in front"
        )
    return text


def _assembly(text: str) -> str:
    if not re.fullmatch("[A-Za-z0-9][A-Za-z0-9._-]{0,99}", text):
        raise ValueError(
            "an assembly's name has letters, digits, '.', '_' and '-', at most 100 of them, and begins "
            "with a letter or digit"
        )
    return text


FileName = Annotated[str, AfterValidator(_file)]
"""A file or folder that a run reads, or the key of one in sources.yaml."""

DirectoryName = Annotated[str, AfterValidator(_directory)]
"""A directory that a run fills."""

ContigName = Annotated[str, AfterValidator(_contig)]
"""A contig, as FASTA files name theirs: up to the first space; or a region of one, or a shell pattern."""

AssemblyName = Annotated[str, AfterValidator(_assembly)]
"""What a user calls the genome that no table knows."""
