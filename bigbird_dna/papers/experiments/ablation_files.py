"""The files of an ablation: costs of steps, and bits of hidden tokens."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.disk.atomic import reading
from bigbird_dna.disk.foreign import open_npz
from bigbird_dna.disk.tables import number, read_object, whole_number
from bigbird_dna.errors import DataError
from bigbird_dna.metrics.auroc import Floats
from bigbird_dna.papers.experiments.comparing import EvaluatedModels, ModelComparison, by_arm, compare_arms

FORMAT = 1
_SEED_DIGITS = 10  # of 2^32 - 1
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
    """What `experiment profile-training` wrote."""

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


class Bits(NamedTuple):
    """What `experiment score-masked` wrote: models on the same hidden tokens."""

    path: Path
    sequence_tokens: int  # of an input
    names: tuple[str, ...]  # (M,) NAME-SEED
    steps: NDArray[np.int64]  # (M,)
    seconds: Floats  # (M,) of their trainings, by the logs
    bits: Floats  # (M, T)
    bases: NDArray[np.int64]  # (T,)
    blocks: NDArray[np.int64]  # (T,)


def is_attention(name: str) -> bool:
    """Whether `encoder.attention` takes this name."""
    from bigbird_dna.config.mechanisms import OF_PATTERNS, find_mechanism

    with suppress(ValueError):
        return name in OF_PATTERNS or bool(find_mechanism(name))
    return False


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


def read_models_bits(paths: Sequence[Path]) -> Bits:
    """What models make of the same hidden tokens, from one or several files; `DataError` where these are of
    other tokens, or two models have one name."""
    parts = [_read_bits(path) for path in paths]
    first = parts[0]
    for one in parts[1:]:
        same = (
            one.sequence_tokens == first.sequence_tokens
            and np.array_equal(one.bases, first.bases)
            and np.array_equal(one.blocks, first.blocks)
        )
        if not same:
            raise DataError(f"{one.path}: is of other hidden tokens than {first.path}")
    names = tuple(name for one in parts for name in one.names)
    if len(set(names)) < len(names):
        raise DataError(f"{first.path}: two models have one name")
    steps, seconds, bits = (
        np.concatenate([getattr(one, key) for one in parts]) for key in ("steps", "seconds", "bits")
    )
    return first._replace(names=names, steps=steps, seconds=seconds, bits=bits)


def _read_bits(path: Path) -> Bits:
    with (
        reading(path, "damaged, or not what experiment score-masked writes", Exception),
        open_npz(path) as file,
    ):
        keys = ("names", "bits", "seconds", "steps", "bases", "blocks", "sequence_tokens")
        texts, bits, seconds, steps, bases, blocks, tokens = map(file.read, keys)
    if texts.dtype.kind != "U" or texts.ndim != 1:
        raise DataError(f"{path}: names is not a row of texts")
    names = tuple(map(str, texts))
    for key, values in (("steps", steps), ("bases", bases), ("blocks", blocks)):
        _check_row(path, key, values)
    _check_row(path, "seconds", seconds, "f")
    _check_row(path, "sequence_tokens", tokens)
    shape = (len(names), len(bases))
    if steps.shape != shape[:1] or seconds.shape != shape[:1] or blocks.shape != shape[1:]:
        raise DataError(f"{path}: its arrays are of different lengths")
    if not (len(names) and bases.sum() > 0):
        raise DataError(f"{path}: is of no model, or of no hidden token")
    right = bits.shape == shape and bits.dtype == np.float64 and np.isfinite(bits).all()
    if not right or bits.min() < -_ROUNDING:
        raise DataError(f"{path}: its bits are not {shape[0]} × {shape[1]} numbers from 0 on")
    if len(tokens) != 1 or tokens[0] < 1:
        raise DataError(f"{path}: sequence_tokens is not one number above 0")
    for name in names:
        split_name(name, path)
    own = [values.astype(np.int64) for values in (steps, bases, blocks)]
    return Bits(path, int(tokens[0]), names, own[0], seconds, bits, own[1], own[2])


def _check_row(path: Path, key: str, values: NDArray[Any], kinds: str = "iu") -> None:
    """Refuse what isn't a row of numbers from 0 to 2^31, whole ones unless `kinds` says otherwise."""
    if values.ndim != 1 or values.dtype.kind not in kinds or not ((values >= 0) & (values <= _MOST)).all():
        what = "whole numbers" if kinds == "iu" else "numbers"
        raise DataError(f"{path}: {key} is not a row of {what} from 0 to {_MOST:,}")


def split_name(name: str, where: object) -> tuple[str, int]:
    """A model's mechanism and seed, of NAME-SEED; `DataError` names `where` it is not such.

    A seed is written in one way alone: of bigbird-1 and bigbird-01 one would take the other's place.
    """
    mechanism, dash, seed = name.rpartition("-")
    digits = seed.isdecimal() and seed.isascii() and len(seed) <= _SEED_DIGITS
    if not (dash and mechanism and digits and str(int(seed)) == seed):
        raise DataError(f"{where}: {name!r:.60} is not a mechanism and a seed, as bigbird-1")
    return mechanism, int(seed)


def by_mechanism(names: Sequence[str], where: object) -> dict[str, dict[int, int]]:
    """The numbers of the models of each mechanism, by seed, in their order."""
    return by_arm((split_name(name, where) for name in names), names)


def compare_to(
    reference: str, evaluated: EvaluatedModels, arms: Mapping[str, Mapping[int, int]]
) -> dict[str, ModelComparison]:
    """Each mechanism's mean over seeds, and its difference from that of the reference."""
    return compare_arms(evaluated, arms, lambda name: None if name == reference else reference)


ByMechanism = Mapping[str, ModelComparison]


@dataclass(frozen=True)
class AblationResult:
    """All that is known of the mechanisms, each by its name."""

    reference: str
    tokens: int  # of an input of the trainings of the same steps and time
    time: ByMechanism
    lengths: Mapping[int, ByMechanism]  # by tokens of an input, those of the same steps first
    tracks: Mapping[str, ByMechanism]  # by track
    track_notes: Mapping[str, str]  # by track
    costs: Mapping[str, Cost]
    altered: Sequence[str] = ()  # whose encoders differ by more than the attention

    @property
    def steps(self) -> ByMechanism:
        return self.lengths[self.tokens]

    @property
    def names(self) -> list[str]:
        """Of the mechanisms, in the order of the trainings of the same steps."""
        return list(self.steps)

    def attention(self, name: str) -> str:
        """What a mechanism computes, whatever it is called; its name where nobody says it."""
        return self.costs[name].attention if name in self.costs else name

    def cost(self, name: str, tokens: int) -> CostAt:
        """What a step takes at a length; NaN where that wasn't measured."""
        unknown = CostAt(tokens, 0, math.nan, math.nan, math.nan)
        return self.costs[name].lengths.get(tokens, unknown) if name in self.costs else unknown
