"""Files of an ablation: cost of training steps, and bits of masked tokens."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from bigbird_dna.config import AblationConfig
from bigbird_dna.disk.atomic import reading
from bigbird_dna.disk.foreign import open_npz
from bigbird_dna.errors import DataError
from bigbird_dna.metrics.auroc import Floats
from bigbird_dna.papers.experiments.comparing import ModelComparison
from bigbird_dna.papers.experiments.experiment import StoredValues

FORMAT = 1
# Values beyond these limits mean a damaged file; the limits keep derived values finite.
_MOST = 2**31 - 1
_Count = Annotated[int, Field(ge=1, le=_MOST)]
_ROUNDING = 1e-3  # tolerance of bits, which are at least 0

# Axes: M models, T masked tokens.


class CostAt(StoredValues):
    """Cost of a training step for inputs of one length."""

    tokens: _Count  # per input
    sequences: _Count
    seconds: float = Field(ge=1e-9, le=1e9)  # per step
    tokens_per_second: float = Field(ge=1e-9, le=1e15)
    peak_mib: float | None = Field(ge=0, le=1e12)  # None: could not be measured

    @property
    def peak(self) -> float:
        return math.nan if self.peak_mib is None else self.peak_mib


class Cost(StoredValues):
    """Content of the file written by `experiment run --part cost`."""

    format: Literal[1]
    attention: str
    clock: str  # processor, wall
    lengths: tuple[CostAt, ...] = Field(min_length=1)  # distinct input lengths
    attention_options: dict[
        str, Any
    ]  # all options of the mechanism, including defaults
    device: str  # torch device name
    threads: _Count

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        for number, row in enumerate(self.lengths):
            if any(row.tokens == other.tokens for other in self.lengths[:number]):
                raise ValueError(
                    f"contains two measurements for inputs of {row.tokens:,} tokens"
                )
        return self

    def at(self, tokens: int) -> CostAt | None:
        """Return the cost of a step for inputs of `tokens` tokens; None: not measured."""
        return next((row for row in self.lengths if row.tokens == tokens), None)

    @property
    def has_own_options(self) -> bool:
        """Whether the mechanism was measured with options other than its defaults."""
        if not self.attention_options:
            return False
        from bigbird_dna.config.mechanisms import find_mechanism

        try:
            mechanism = find_mechanism(self.attention)
            return bool(
                mechanism.checked(self.attention_options) != mechanism.checked({})
            )
        except (
            ValueError
        ):  # the mechanism is not installed here, or no longer has such an option
            return True


ModelFiles = Mapping[tuple[str, int], Path]
"""(mechanism, seed) → file."""


class Bits(NamedTuple):
    """Bits of models for the same masked tokens, in the order of their files."""

    steps: NDArray[np.int64]  # (M,)
    seconds: Floats  # (M,) training times from the logs
    bits: Floats  # (M, T)
    bases: NDArray[np.int64]  # (T,)
    blocks: NDArray[np.int64]  # (T,)


def read_model_bits(files: ModelFiles, tokens: int) -> Bits:
    """Read files of `experiment run --part predictions` for models with inputs of `tokens` tokens;
    `DataError` if a file has another model or length, or other masked tokens than the first file."""
    parts = [
        _read_model(path, f"{name}-{seed}", tokens)
        for (name, seed), path in files.items()
    ]
    bases, blocks = parts[0]["bases"], parts[0]["blocks"]
    for path, one in zip(files.values(), parts, strict=True):
        if not (
            np.array_equal(one["bases"], bases)
            and np.array_equal(one["blocks"], blocks)
        ):
            raise DataError(
                f"{path}: masked tokens differ from those of {next(iter(files.values()))}"
            )
    steps, seconds, bits = (
        np.concatenate([one[key] for one in parts])
        for key in ("steps", "seconds", "bits")
    )
    whole = (values.astype(np.int64) for values in (steps, bases, blocks))
    return Bits(next(whole), seconds, bits, *whole)


def _read_model(path: Path, name: str, length: int) -> dict[str, NDArray[Any]]:
    with (
        reading(path, "damaged, or not a file of experiment score-masked", Exception),
        open_npz(path) as file,
    ):
        keys = (
            "names",
            "bits",
            "seconds",
            "steps",
            "bases",
            "blocks",
            "sequence_tokens",
        )
        found = {key: file.read(key) for key in keys}
    names, bits, bases = found["names"], found["bits"], found["bases"]
    if names.tolist() != [name]:
        raise DataError(
            f"{path}: expected model {name!r}, found {names.tolist()!r:.60}"
        )
    for key in ("steps", "bases", "blocks", "sequence_tokens"):
        _check_row(path, key, found[key])
    _check_row(path, "seconds", found["seconds"], "f")
    if not len(found["steps"]) == len(found["seconds"]) == 1 or len(
        found["blocks"]
    ) != len(bases):
        raise DataError(f"{path}: arrays have different lengths")
    if not bases.sum() > 0:
        raise DataError(f"{path}: contains no masked tokens")
    right = (
        bits.shape == (1, len(bases))
        and bits.dtype == np.float64
        and np.isfinite(bits).all()
    )
    if not right or bits.min() < -_ROUNDING:
        raise DataError(
            f"{path}: bits must be {len(bases)} finite numbers of at least 0"
        )
    if found["sequence_tokens"].tolist() != [length]:
        tokens = ", ".join(f"{one:,}" for one in found["sequence_tokens"].tolist()[:3])
        raise DataError(
            f"{path}: inputs must have {length:,} tokens, found {tokens or 'none'}"
        )
    return found


def _check_row(path: Path, key: str, values: NDArray[Any], kinds: str = "iu") -> None:
    """Raise `DataError` unless values are 1-D and from 0 to 2^31 - 1, integers unless `kinds` differs."""
    if (
        values.ndim != 1
        or values.dtype.kind not in kinds
        or not ((values >= 0) & (values <= _MOST)).all()
    ):
        what = "whole numbers" if kinds == "iu" else "numbers"
        raise DataError(
            f"{path}: {key} must be a 1-D array of {what} from 0 to {_MOST:,}"
        )


ByMechanism = Mapping[str, ModelComparison]


@dataclass(frozen=True)
class AblationResult:
    """All results of the mechanisms of a section, by name."""

    section: AblationConfig
    time: ByMechanism
    lengths: Mapping[int, ByMechanism]  # by input tokens, that of equal steps first
    tracks: Mapping[str, ByMechanism]  # by track
    track_notes: Mapping[str, str]  # by track
    costs: Mapping[str, Cost]

    @property
    def steps(self) -> ByMechanism:
        return self.lengths[self.section.tokens]

    @property
    def names(self) -> list[str]:
        return [one.name for one in self.section.mechanisms]

    def cost(self, name: str, tokens: int) -> dict[str, float]:
        """Return the cost of a step at a length; NaN if not measured."""
        found = self.costs[name].at(tokens)
        values = (
            (found.tokens_per_second, found.seconds, found.peak)
            if found
            else [math.nan] * 3
        )
        return dict(
            zip(
                ("tokens_per_second", "seconds_per_step", "peak_mib"),
                values,
                strict=True,
            )
        )
