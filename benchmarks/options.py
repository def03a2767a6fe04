"""What a benchmark is asked to measure, checked when made."""

from collections.abc import Iterable
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    PositiveInt,
    ValidationError,
    model_validator,
)

from bigbird_dna.attention import Pattern, Route
from bigbird_dna.config import known_mechanisms
from bigbird_dna.errors import UsageError
from bigbird_dna.model.inference import choose_device

T = TypeVar("T")
BLOCKS = ("block_size", "global_blocks", "window_blocks", "random_blocks")


def chosen(option: str, text: str | None, known: Iterable[str]) -> list[str]:
    """The names of a comma-separated list, in the order of `known`; without a list all of them.

    `UsageError` for a name that is none of them.
    """
    names = [*known]
    listed = names if text is None else [name.strip() for name in text.split(",")]
    for name in listed:
        if name not in names:
            raise UsageError(f"{option}: {name!r} is not one of {', '.join(names)}")
    return [name for name in names if name in listed]


def _parts(text: object) -> object:
    return [part.strip() for part in text.split(",")] if isinstance(text, str) else text


def _different(values: tuple[T, ...]) -> tuple[T, ...]:
    for value in values:
        if values.count(value) > 1:
            raise ValueError(f"{value} is given twice")
    return values


Listed = Annotated[tuple[T, ...], BeforeValidator(_parts), AfterValidator(_different)]
ALL_MECHANISMS = "mechanisms"


def _with_mechanisms(names: tuple[str, ...]) -> tuple[str, ...]:
    """The word for all mechanisms stands for those that aren't named."""
    if ALL_MECHANISMS not in names:
        return names
    named = tuple(name for name in names if name != ALL_MECHANISMS)
    return (*named, *(name for name in sorted(known_mechanisms()) if name not in named))


Ascending = AfterValidator(lambda values: tuple(sorted(values)))
Device = Annotated[str, AfterValidator(lambda name: choose_device(name).type)]


class Options(BaseModel, frozen=True):
    """What both benchmarks are told; in `benchmark.json` they are the settings.

    Without a `reference` ratios refer to the first contender that is there. `max_seconds` is the longest that
    one call may take, by prediction from what was measured before. Growth with length is fitted to lengths of
    `growth_from` tokens on. Without `threads` torch has its choice,
    without `memory` no processes are started to measure its peak.
    """

    benchmark: ClassVar[str]

    lengths: Annotated[Listed[PositiveInt], Ascending]
    passes: Listed[str]
    contenders: Listed[str]
    reference: str | None = None
    batch: int = 1
    heads: int = 12
    block_size: int = 64
    global_blocks: int = 2
    window_blocks: int = 3
    random_blocks: int = 3
    device: Device = "cpu"
    threads: int | None = None
    repeats: int = 7
    max_seconds: float = Field(default=30.0, gt=0)
    memory: bool = True
    growth_from: int = 4096
    seed: int = 0

    @classmethod
    def of(cls, values: dict[str, Any]) -> Self:
        """The options that a command was given; `UsageError` names the first that can't be measured."""
        try:
            return cls.model_validate(
                values | dict(zip(BLOCKS, values.get("pattern", ()), strict=False))
            )
        except ValidationError as error:
            first = error.errors()[0]
        message = first["msg"].removeprefix("Value error, ")
        if first["loc"]:
            option = str(first["loc"][0]).replace("_", "-")
            message = f"--{option}: {first['input']!r}: {message}"
        raise UsageError(message)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.reference not in (None, *self.contenders):
            raise ValueError(
                f"--relative-to {self.reference}: is not one of --contenders"
            )
        try:
            _ = self.pattern
        except ValueError as error:
            raise ValueError(f"--pattern: {error}") from None
        return self

    @property
    def pattern(self) -> Pattern:
        """The pattern that all sparse contenders but HuggingFace's compute."""
        return Pattern(
            self.block_size,
            self.global_blocks,
            self.window_blocks,
            self.random_blocks,
            self.seed,
        )


class AttentionOptions(Options, frozen=True):
    """Attention alone, on random queries, keys and values (batch, heads, length, width)."""

    benchmark = "attention"

    contenders: Annotated[Listed[str], AfterValidator(_with_mechanisms)]
    width: int = 64
    dtype: Literal["float32", "bfloat16"] = "float32"


class EncoderOptions(Options, frozen=True):
    """The encoder with its masked-token head; `masked` is the share of positions predicted in training."""

    benchmark = "encoder"

    layers: int = 12
    hidden: int = 768
    vocabulary: int = 32_000
    masked: float = 0.15
    route: Route = "auto"

    @model_validator(mode="after")
    def _heads_fit(self) -> Self:
        if self.hidden % self.heads:
            raise ValueError(
                f"--hidden {self.hidden} is not a multiple of --heads {self.heads}"
            )
        return self

    @property
    def width(self) -> int:
        """Of a head."""
        return self.hidden // self.heads
