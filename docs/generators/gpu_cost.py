"""Hours of GPUs, calculated from the configurations: rows of docs/explanation/gpu-cost.md."""

from functools import cache
from pathlib import Path
from typing import Any

from bigbird_dna.config import Config, load_config

CONFIGURATIONS = Path(__file__).resolve().parent.parent.parent / "workflow/config"
NAMES = ("grch37", "grch37-short")

# Assumed: floating-point operations per second that training reaches, and bases per token.
REACHED = {"A100": 0.30 * 312e12, "H100": 0.25 * 989e12}
BASES = 7
WINDOW = 8000  # bp, of both tasks
GENOME = 2.6e9  # bases of the training chromosomes


def operations(config: Config, length: int, *, pretraining: bool) -> float:
    """Of training, per token of an input of this many tokens."""
    encoder = config.encoder
    width, block = encoder.hidden, encoder.block_size
    weights = encoder.layers * (4 + 2 * 4) * width**2
    if pretraining:
        weights += config.pretraining.mask_fraction * (config.tokens.vocabulary + width) * width
    few = (encoder.global_blocks + encoder.window_blocks + encoder.random_blocks) * block
    everything = encoder.global_blocks * block  # queries that see all tokens
    keys = (few * (length - everything) + length * everything) / length
    return 6 * weights + 12 * encoder.layers * width * keys


def trainings(config: Config) -> dict[str, tuple[float, float]]:
    """Tokens and operations of each kind of training."""
    block = config.encoder.block_size
    length = -(-WINDOW // BASES // block) * block  # in whole blocks
    promoters, chromatin, pretraining = (config.promoters, config.chromatin, config.pretraining)
    models = len(promoters.windows.negative_sets) + len(promoters.controls)
    rows = {
        "pretraining": (pretraining, pretraining.sequence_tokens, 1),
        "chromatin, two models": (chromatin.training, length, chromatin.models),
        "promoters, all models": (promoters.training, length, models),
    }
    return {
        name: (
            tokens := float(count * training.steps * training.batch_size * long),
            tokens * operations(config, long, pretraining=name == "pretraining"),
        )
        for name, (training, long, count) in rows.items()
    }


def _duration(hours: float) -> str:
    if hours < 1:
        return f"{60 * hours:.0f} minutes"
    return f"{hours:.1f} hours" if hours < 48 else f"{hours / 24:.1f} days"


def _power(value: float) -> str:
    digits, _, exponent = f"{value:.1e}".partition("e+")
    return f"{digits} × 10" + exponent.lstrip("0").translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))


def _plan(name: str) -> list[dict[str, Any]]:
    config = load_config(CONFIGURATIONS / f"{name}.yaml")
    rows, total = [], dict.fromkeys(REACHED, 0.0)
    for training, (tokens, work) in trainings(config).items():
        row = {"training": f"`{name}.yaml`, {training}", "tokens": _power(tokens), "operations": _power(work)}
        for gpu, rate in REACHED.items():
            hours = work / rate / 3600
            total[gpu] += hours
            row |= {
                gpu: f"{hours:,.1f}" if hours < 100 else f"{hours:,.0f}",
                f"8 {gpu}": _duration(hours / 8),
            }
        rows.append(row)
    sums = {gpu: f"**{hours:,.0f}**" for gpu, hours in total.items()}
    eight = {f"8 {gpu}": f"**{_duration(hours / 8)}**" for gpu, hours in total.items()}
    return [*rows, {"training": f"**`{name}.yaml`, all**", **sums, **eight}]


@cache
def tables() -> dict[str, list[dict[str, Any]]]:
    """Rows of the hours, and one row of single numbers: millions of operations, thousands of tokens."""
    long, short = (load_config(CONFIGURATIONS / f"{name}.yaml") for name in NAMES)
    per_token = {
        name: operations(config, config.pretraining.sequence_tokens, pretraining=True)
        for name, config in (("long", long), ("short", short))
    }
    passes = {
        f"passes_{name}": trainings(config)["pretraining"][0] * BASES / GENOME
        for name, config in (("long", long), ("short", short))
    }
    values = {
        **{f"pretraining_{name}": value / 1e6 for name, value in per_token.items()},
        "finetuning": operations(long, 1152, pretraining=False) / 1e6,
        **{gpu: rate / per_token["long"] / 1e3 for gpu, rate in REACHED.items()},
        **passes,
    }
    return {"hours": [row for name in NAMES for row in _plan(name)], "values": [values]}
