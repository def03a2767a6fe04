"""The files of an ablation: costs of steps, and bits of hidden tokens."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.config import AblationConfig
from bigbird_dna.disk.atomic import reading
from bigbird_dna.disk.foreign import open_npz
from bigbird_dna.disk.tables import number, read_object, whole_number
from bigbird_dna.errors import DataError
from bigbird_dna.metrics.auroc import Floats
from bigbird_dna.papers.experiments.comparing import ModelComparison

FORMAT = 1
# Beyond these a file is damaged: they keep what is made of its figures finite.
_MOST = 2**31 - 1
_SECONDS, _RATE, _MIB = (1e-9, 1e9), (1e-9, 1e15), (0.0, 1e12)
_ROUNDING = 1e-3  # of bits, which are 0 at least

# Axes: M models, T hidden tokens.


class CostAt(NamedTuple):
    """A step of training on inputs of one length."""

    tokens: int  # of an input
    sequences: int
    seconds: float  # of a step
    tokens_per_second: float
    peak_mib: float  # NaN where it couldn't be measured


class Cost(NamedTuple):
    """What `experiment run --part cost` wrote."""

    attention: str
    clock: str  # processor, wall
    lengths: Mapping[int, CostAt]  # by tokens of an input
    attention_options: Mapping[str, Any]  # all that the mechanism has, with their defaults
    device: str  # as torch calls it
    threads: int

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


def read_cost(path: Path) -> Cost:
    """Read a measurement of steps; `DataError` where the file isn't one."""
    values = read_object(path)
    rows, options = values.get("lengths"), values.get("attention_options")
    texts = [values.get(key) for key in ("attention", "clock", "device")]
    if values.get("format") != FORMAT or not (isinstance(rows, list) and rows):
        raise DataError(f"{path}: is not what experiment profile-training writes")
    if not all(isinstance(text, str) for text in texts) or not isinstance(options, dict):
        raise DataError(f"{path}: doesn't say which attention was measured, and how")
    lengths: dict[int, CostAt] = {}
    for row in rows:
        found = _read_step(row, path)
        if lengths.setdefault(found.tokens, found) is not found:
            raise DataError(f"{path}: has two measurements of inputs of {found.tokens:,} tokens")
    threads = int(_within(values, "threads", path, (1, _MOST), whole=True))
    attention, clock, device = map(str, texts)
    return Cost(attention, clock, lengths, options, device, threads)


def _read_step(row: Any, path: Path) -> CostAt:
    tokens, sequences = (
        int(_within(row, key, path, (1, _MOST), whole=True)) for key in ("tokens", "sequences")
    )
    seconds = _within(row, "seconds", path, _SECONDS)
    rate = _within(row, "tokens_per_second", path, _RATE)
    # Null says that it couldn't be measured; a row without it is none.
    unknown = "peak_mib" in row and row["peak_mib"] is None
    peak = math.nan if unknown else _within(row, "peak_mib", path, _MIB)
    return CostAt(tokens, sequences, seconds, rate, peak)


def _within(values: Any, key: str, path: Path, bounds: tuple[float, float], *, whole: bool = False) -> float:
    value = (whole_number if whole else number)(values, key, path)
    if not bounds[0] <= value <= bounds[1]:
        raise DataError(f"{path}: {key!r} is {value:g}, not from {bounds[0]:g} to {bounds[1]:g}")
    return value


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

    def cost(self, name: str, tokens: int) -> CostAt:
        """What a step takes at a length; NaN where that wasn't measured."""
        unknown = CostAt(tokens, 0, math.nan, math.nan, math.nan)
        return self.costs[name].lengths.get(tokens, unknown)
