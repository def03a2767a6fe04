"""Quantiles of effects among those of random variants of the same type, for any kind of effect.

The random variants are those of `variant_background.json` in the model's directory (`calibration`), which
`add_background` writes.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.calibration.variant_background import (
    FILE,
    VariantBackground,
    read_background,
    variant_type,
)
from bigbird_dna.console import log
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.variants import Change
from bigbird_dna.model.model import LoadedModel
from bigbird_dna.scoring.track_effects import TrackEffects
from bigbird_dna.scoring.variant_effects import EffectKind, InfoKey, Place, decimal


class RankedEffect(NamedTuple):
    """An effect, and the fraction of random variants with a smaller one; None: unknown."""

    effect: Any
    quantile: float | None

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes of the effect."""
        return tuple(self.effect.notes)

    @property
    def delta(self) -> Any:
        """The effect's change; None if the allele was not scored."""
        return self.effect.delta


@dataclass(frozen=True)
class RankedEffects(EffectKind[tuple[str | None, Any], RankedEffect]):
    """Effects of another kind with their quantiles, on `track` alone or the largest of all outputs."""

    kind: EffectKind[Any, Any]
    background: VariantBackground
    track: str | None = None

    @property
    def batches(self) -> tuple[int, int]:
        return self.kind.batches

    @property
    def notes(self) -> Mapping[str, str]:
        return self.kind.notes

    @property
    def origin(self) -> Mapping[str, str]:
        return {**self.kind.origin, "background": str(self.background)}

    @property
    def columns(self) -> Sequence[str]:
        return [*self.kind.columns, "quantile"]

    @property
    def keys(self) -> Sequence[InfoKey]:
        text = f"Fraction of random variants of the same type with a smaller absolute effect: {self.background}"
        return [*self.kind.keys, InfoKey("QUANTILE", "A", "Float", text)]

    def windows(
        self, change: Change, reference: Reference, max_n: float, place: Place
    ) -> tuple[tuple[str, ...], tuple[str | None, Any] | None]:
        notes, rows = self.kind.windows(change, reference, max_n, place)
        return notes, None if rows is None else (variant_type(change), rows)

    def is_valid(self, predicted: NDArray[np.float32]) -> bool:
        return self.kind.is_valid(predicted)

    def values(self, predicted: NDArray[np.float32]) -> NDArray[np.float32]:
        return self.kind.values(predicted)

    def effect(
        self,
        notes: tuple[str, ...],
        rows: tuple[str | None, Any] | None,
        values: NDArray[np.float32],
    ) -> RankedEffect:
        type, own = rows or (None, None)
        effect = self.kind.effect(notes, own, values)
        if effect.delta is None:
            return RankedEffect(effect, None)
        largest = float(np.abs(effect.delta).max())
        return RankedEffect(effect, self.background.quantile(type, largest, self.track))

    def row(self, effect: RankedEffect, missing: str = "NA") -> Iterable[str]:
        yield from self.kind.row(effect.effect, missing)
        yield missing if effect.quantile is None else decimal(effect.quantile)

    def info(self, effect: RankedEffect) -> Iterable[str]:
        yield from self.kind.info(effect.effect)
        yield "." if effect.quantile is None else decimal(effect.quantile)


def background_file(model: LoadedModel) -> Path | None:
    """`variant_background.json` of a model's directory; None if missing, or if the model was never saved."""
    path = None if model.path is None else model.path / FILE
    return path if path is not None and path.is_file() else None


def stored_options(options: Mapping[str, object | None]) -> dict[str, str]:
    """Return the options that change effects as they are stored with a background."""
    return {
        name: str(value)
        for name, value in options.items()
        if value not in (None, False)
    }


def with_quantiles(
    model: LoadedModel, kind: EffectKind[Any, Any], options: Mapping[str, object | None]
) -> EffectKind[Any, Any]:
    """Return the kind of effects with quantiles if the model has a background of such effects.

    Otherwise, log why quantiles are missing, and return the kind. `ModelError`: the background is
    damaged, or of other weights.
    """
    path = background_file(model)
    if path is None:
        return kind
    background, track = read_background(path, model.sha256), None
    if background.options != (used := stored_options(options)):
        needed, found = (
            " ".join(f"{k} {v}" for k, v in own.items())
            for own in (background.options, used)
        )
        log(
            f"warning: no quantiles: the effects in {path} are those of {needed}, not of {found}"
        )
        return kind
    if isinstance(kind, TrackEffects) and kind.outputs is not None:
        track = kind.names[0]
        if len(kind.names) > 1 or not any(
            track in own for own in background.tracks.values()
        ):
            log(f"warning: no quantiles: {path} has no effects of the chosen tracks")
            return kind
    return RankedEffects(kind, background, track)
