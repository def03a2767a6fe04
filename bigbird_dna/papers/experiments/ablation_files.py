"""The files of an ablation: costs of steps, and bits of hidden tokens."""

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
# Beyond these a file is damaged: they keep what is made of its figures finite.
_MOST = 2**31 - 1
_Count = Annotated[int, Field(ge=1, le=_MOST)]
_ROUNDING = 1e-3  # of bits, which are 0 at least

# Axes: M models, T hidden tokens.


class CostAt(StoredValues):
    """A step of training on inputs of one length."""

    tokens: _Count  # of an input
    sequences: _Count
    seconds: float = Field(ge=1e-9, le=1e9)  # of a step
    tokens_per_second: float = Field(ge=1e-9, le=1e15)
    peak_mib: float | None = Field(ge=0, le=1e12)  # None: it couldn't be measured

    @property
    def peak(self) -> float:
        return math.nan if self.peak_mib is None else self.peak_mib


class Cost(StoredValues):
    """What `experiment run --part cost` wrote."""

    format: Literal[1]
    attention: str
    clock: str  # processor, wall
    lengths: tuple[CostAt, ...] = Field(min_length=1)  # each of other inputs
    attention_options: dict[str, Any]  # all that the mechanism has, with their defaults
    device: str  # as torch calls it
    threads: _Count

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        for number, row in enumerate(self.lengths):
            if any(row.tokens == other.tokens for other in self.lengths[:number]):
                raise ValueError(f"has two measurements of inputs of {row.tokens:,} tokens")
        return self

    def at(self, tokens: int) -> CostAt | None:
        """What a step takes on inputs of so many tokens; None: that wasn't measured."""
        return next((row for row in self.lengths if row.tokens == tokens), None)

    @property
    def has_own_options(self) -> bool:
        """Whether the mechanism was measured with other options than those it has when nothing is said."""
        if not self.attention_options:
            return False
        from bigbird_dna.config.mechanisms import find_mechanism

        try:
            mechanism = find_mechanism(self.attention)
            return bool(mechanism.checked(self.attention_options) != mechanism.checked({}))
        except ValueError:  # it isn't installed here, or has no such option any more
            return True


ModelFiles = Mapping[tuple[str, int], Path]
"""By mechanism and seed."""


class Bits(NamedTuple):
    """Models on the same hidden tokens, in the order of their files."""

    steps: NDArray[np.int64]  # (M,)
    seconds: Floats  # (M,) of their trainings, by the logs
    bits: Floats  # (M, T)
    bases: NDArray[np.int64]  # (T,)
    blocks: NDArray[np.int64]  # (T,)


def read_model_bits(files: ModelFiles, tokens: int) -> Bits:
    """What `experiment run --part predictions` wrote of models with inputs of `tokens` tokens; `DataError`
    where a file is of another model or length, or of other hidden tokens than the first one."""
    parts = [_read_model(path, f"{name}-{seed}", tokens) for (name, seed), path in files.items()]
    bases, blocks = parts[0]["bases"], parts[0]["blocks"]
    for path, one in zip(files.values(), parts, strict=True):
        if not (np.array_equal(one["bases"], bases) and np.array_equal(one["blocks"], blocks)):
            raise DataError(f"{path}: is of other hidden tokens than {next(iter(files.values()))}")
    steps, seconds, bits = (
        np.concatenate([one[key] for one in parts]) for key in ("steps", "seconds", "bits")
    )
    whole = (values.astype(np.int64) for values in (steps, bases, blocks))
    return Bits(next(whole), seconds, bits, *whole)


def _read_model(path: Path, name: str, length: int) -> dict[str, NDArray[Any]]:
    with (
        reading(path, "damaged, or not what experiment score-masked writes", Exception),
        open_npz(path) as file,
    ):
        keys = ("names", "bits", "seconds", "steps", "bases", "blocks", "sequence_tokens")
        found = {key: file.read(key) for key in keys}
    names, bits, bases = found["names"], found["bits"], found["bases"]
    if names.tolist() != [name]:
        raise DataError(f"{path}: is of {names.tolist()!r:.60}, not of the model {name!r}")
    for key in ("steps", "bases", "blocks", "sequence_tokens"):
        _check_row(path, key, found[key])
    _check_row(path, "seconds", found["seconds"], "f")
    if not len(found["steps"]) == len(found["seconds"]) == 1 or len(found["blocks"]) != len(bases):
        raise DataError(f"{path}: its arrays are of different lengths")
    if not bases.sum() > 0:
        raise DataError(f"{path}: is of no hidden token")
    right = bits.shape == (1, len(bases)) and bits.dtype == np.float64 and np.isfinite(bits).all()
    if not right or bits.min() < -_ROUNDING:
        raise DataError(f"{path}: its bits are not {len(bases)} numbers from 0 on")
    if found["sequence_tokens"].tolist() != [length]:
        tokens = ", ".join(f"{one:,}" for one in found["sequence_tokens"].tolist()[:3])
        raise DataError(f"{path}: is of inputs of {tokens or 'no'} tokens, not {length:,}")
    return found


def _check_row(path: Path, key: str, values: NDArray[Any], kinds: str = "iu") -> None:
    """Refuse what isn't a row of numbers from 0 to 2^31, whole ones unless `kinds` says otherwise."""
    if values.ndim != 1 or values.dtype.kind not in kinds or not ((values >= 0) & (values <= _MOST)).all():
        what = "whole numbers" if kinds == "iu" else "numbers"
        raise DataError(f"{path}: {key} is not a row of {what} from 0 to {_MOST:,}")


ByMechanism = Mapping[str, ModelComparison]


@dataclass(frozen=True)
class AblationResult:
    """All that is known of the mechanisms of a section, each by its name."""

    section: AblationConfig
    time: ByMechanism
    lengths: Mapping[int, ByMechanism]  # by tokens of an input, those of the same steps first
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
        """What a step takes at a length; NaN where that wasn't measured."""
        found = self.costs[name].at(tokens)
        values = (found.tokens_per_second, found.seconds, found.peak) if found else [math.nan] * 3
        return dict(zip(("tokens_per_second", "seconds_a_step", "peak_mib"), values, strict=True))
