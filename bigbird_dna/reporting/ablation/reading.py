"""The files of an ablation: costs of steps, and bits of hidden tokens."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.arrays import open_npz
from bigbird_dna.errors import DataError
from bigbird_dna.files import reading
from bigbird_dna.reporting.metrics.steps import Floats
from bigbird_dna.reporting.tables import number, read_object, whole_number

FORMAT = 1

# Axes: M models, T hidden tokens.


class CostAt(NamedTuple):
    """A step of training on inputs of one length."""

    tokens: int  # of an input
    sequences: int
    seconds: float  # of a step
    tokens_per_second: float
    peak_mib: float  # NaN where it couldn't be measured


class Cost(NamedTuple):
    """What `measure-training` wrote."""

    attention: str
    clock: str  # processor, wall
    lengths: tuple[CostAt, ...]

    def at(self, tokens: int) -> CostAt | None:
        """That of a length, if it was measured."""
        return next((row for row in self.lengths if row.tokens == tokens), None)


class Bits(NamedTuple):
    """What `judge-models` wrote: models on the same hidden tokens."""

    path: Path
    sequence_tokens: int  # of an input
    names: tuple[str, ...]  # (M,) NAME-SEED
    steps: NDArray[np.int64]  # (M,)
    seconds: Floats  # (M,) of their trainings, by the logs
    bits: Floats  # (M, T)
    bases: NDArray[np.int64]  # (T,)
    blocks: NDArray[np.int64]  # (T,)


def read_cost(path: Path) -> Cost:
    """Read a measurement of steps; `DataError` where the file isn't one."""
    values = read_object(path)
    rows = values.get("lengths")
    told = [values.get(key) for key in ("attention", "clock")]
    if values.get("format") != FORMAT or not (isinstance(rows, list) and rows):
        raise DataError(f"{path}: is not what measure-training writes")
    if not all(isinstance(text, str) for text in told):
        raise DataError(f"{path}: doesn't say which attention was measured")
    lengths = []
    for row in rows:
        tokens, sequences = (whole_number(row, key, path) for key in ("tokens", "sequences"))
        seconds, rate = (number(row, key, path) for key in ("seconds", "tokens_per_second"))
        peak = float("nan") if row["peak_mib"] is None else number(row, "peak_mib", path)
        if not (tokens > 0 and sequences > 0 and seconds > 0):
            raise DataError(f"{path}: a step of {sequences} × {tokens} tokens in {seconds} s")
        lengths.append(CostAt(tokens, sequences, seconds, rate, peak))
    return Cost(str(told[0]), str(told[1]), tuple(lengths))


def read_models_bits(path: Path) -> Bits:
    """Read what models make of hidden tokens; `DataError` where the file isn't such a one."""
    with reading(path, "damaged, or not what judge-models writes", Exception), open_npz(path) as file:
        names = tuple(map(str, file.read("names")))
        steps, seconds, bits = (file.read(key) for key in ("steps", "seconds", "bits"))
        bases, blocks = file.read("bases"), file.read("blocks")
        tokens = int(file.read("sequence_tokens")[0])
    shape = (len(names), len(bases))
    if bits.shape != shape or bits.dtype != np.float64 or not np.isfinite(bits).all():
        raise DataError(f"{path}: its bits are not {shape[0]} × {shape[1]} numbers")
    if steps.shape != shape[:1] or seconds.shape != shape[:1] or blocks.shape != shape[1:]:
        raise DataError(f"{path}: its arrays are of different lengths")
    if not (len(names) and bases.sum() > 0):
        raise DataError(f"{path}: is of no model, or of no hidden token")
    for name in names:
        split_name(name, path)
    if len(set(names)) < len(names):
        raise DataError(f"{path}: two of its models have one name")
    return Bits(path, tokens, names, steps, seconds, bits, bases, blocks)


def split_name(name: str, where: object) -> tuple[str, int]:
    """A model's mechanism and seed, of NAME-SEED; `DataError` names `where` it is not such."""
    mechanism, dash, seed = name.rpartition("-")
    if not (dash and mechanism and seed.isdecimal() and seed.isascii()):
        raise DataError(f"{where}: {name!r:.60} is not a mechanism and a seed, as bigbird-1")
    return mechanism, int(seed)


def by_mechanism(names: Sequence[str], where: object) -> dict[str, dict[int, int]]:
    """The places of the models of each mechanism, by seed, in their order."""
    found: dict[str, dict[int, int]] = {}
    for place, name in enumerate(names):
        mechanism, seed = split_name(name, where)
        found.setdefault(mechanism, {})[seed] = place
    return found
