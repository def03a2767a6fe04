"""A row a mechanism: what its models reach, and what their training takes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bigbird_dna.metrics.auroc import UNDEFINED
from bigbird_dna.reporting.ablation.comparing import Reached
from bigbird_dna.reporting.ablation.published import BUILDING_BLOCKS, MASKED_ACCURACY, PERPLEXITY, PUBLISHED
from bigbird_dna.reporting.ablation.reading import Cost

if TYPE_CHECKING:
    import pandas as pd

_NOTHING = Reached(UNDEFINED, UNDEFINED, {}, 0, math.nan)


@dataclass(frozen=True)
class Found:
    """All that is known of the mechanisms, each by its name."""

    reference: str
    tokens: int  # of an input of the trainings of the same steps and time
    steps: Mapping[str, Reached]
    time: Mapping[str, Reached] = field(default_factory=dict)
    lengths: Mapping[int, Mapping[str, Reached]] = field(default_factory=dict)  # by tokens of an input
    tracks: Mapping[str, Mapping[str, Reached]] = field(default_factory=dict)  # by track
    track_notes: Mapping[str, str] = field(default_factory=dict)  # by track
    costs: Mapping[str, Cost] = field(default_factory=dict)
    altered: Sequence[str] = ()  # whose encoders differ by more than the attention

    @property
    def names(self) -> list[str]:
        """Of the mechanisms, in the order of the trainings of the same steps."""
        return list(self.steps)

    def attention(self, name: str) -> str:
        """What a mechanism computes, whatever it is called; its name where nobody says it."""
        return self.costs[name].attention if name in self.costs else name


def ablation_table(found: Found) -> pd.DataFrame:
    """A row a mechanism; `difference` is its bits per base minus the reference's, below 0 in its favour."""
    import pandas as pd

    return pd.DataFrame([_row(found, name) for name in found.names])


def length_table(found: Found) -> pd.DataFrame:
    """A row a mechanism and length of input, the short ones of the same steps among them."""
    import pandas as pd

    rows = []
    for tokens, reached in {found.tokens: found.steps, **found.lengths}.items():
        for name in found.names:
            if name not in reached:
                continue
            published = PERPLEXITY.get(_alike(found, name), {}).get(tokens, math.nan)
            rows.append(
                {
                    "tokens": tokens,
                    "mechanism": name,
                    "steps": reached[name].steps,
                    **_bits(reached[name], ""),
                    **_cost(found, name, tokens),
                    "published_perplexity": published,
                }
            )
    return pd.DataFrame(rows)


def seed_table(found: Found) -> pd.DataFrame:
    """A row a mechanism and seed: what a mean over seeds hides, as of two that learnt and one that didn't."""
    import pandas as pd

    parts = {"bits_per_base": found.steps, **({"time_bits_per_base": found.time} if found.time else {})}
    parts |= {f"auroc_{track}": reached for track, reached in found.tracks.items()}
    rows: list[dict[str, object]] = []
    for name in found.names:
        own = {part: reached.get(name, _NOTHING).by_seed for part, reached in parts.items()}
        for seed in sorted({seed for values in own.values() for seed in values}):
            row = {part: values.get(seed, math.nan) for part, values in own.items()}
            rows.append({"mechanism": name, "seed": seed, **row})
    return pd.DataFrame(rows)


def _row(found: Found, name: str) -> dict[str, object]:
    steps, time = found.steps[name], found.time.get(name, _NOTHING)
    alike = _alike(found, name)
    row: dict[str, object] = {
        "mechanism": name,
        "attention": found.attention(name),
        "building_block": BUILDING_BLOCKS.get(alike, ""),
        "seeds": len(steps.by_seed),
        "steps": steps.steps,
        **_bits(steps, ""),
        "seconds": steps.seconds,
    }
    if found.time:
        row |= {"time_steps": time.steps, **_bits(time, "time_"), "time_seconds": time.seconds}
    row |= _cost(found, name, found.tokens)
    for track, reached in found.tracks.items():
        own = reached.get(name, _NOTHING)
        row |= {**own.value.columns(f"auroc_{track}"), **own.difference.columns(f"gain_{track}")}
    return row | {"published_masked_accuracy": MASKED_ACCURACY.get(alike, math.nan)}


def _bits(reached: Reached, prefix: str) -> dict[str, float]:
    return {
        **reached.value.columns(f"{prefix}bits_per_base"),
        **reached.difference.columns(f"{prefix}difference"),
    }


def _cost(found: Found, name: str, tokens: int) -> dict[str, float]:
    cost = found.costs[name].at(tokens) if name in found.costs else None
    values: Sequence[float] = (math.nan,) * 3
    if cost is not None:
        values = (cost.tokens_per_second, cost.seconds, cost.peak_mib)
    return dict(zip(("tokens_per_second", "seconds_a_step", "peak_mib"), values, strict=True))


def _alike(found: Found, name: str) -> str:
    """Whose published figures stand beside a row: with options of its own a mechanism is another one."""
    if name in found.altered or found.attention(name) != name or name not in PUBLISHED:
        return ""
    cost = found.costs.get(name)
    return "" if cost is not None and cost.has_own_options else name
