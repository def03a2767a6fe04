"""The arithmetic of docs/cluster.md, done again from the configurations."""

import re

import pytest

from bigbird_dna.config import Config, load_config
from tests.conftest import REPOSITORY

PAGE = (REPOSITORY / "docs/cluster.md").read_text(encoding="utf-8")

# What the page assumes: floating-point operations a second that training reaches, and bases a token.
REACHED = {"A100": 0.30 * 312e12, "H100": 0.25 * 989e12}
BASES = 7
WINDOW = 8000  # bp, of both tasks


def operations(config: Config, length: int, *, pretraining: bool) -> float:
    """Of training, a token of an input of so many."""
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
    models = len(promoters.windows.negative_sets) + 1
    rows = {
        "pretraining": (pretraining, pretraining.sequence_tokens, 1),
        "chromatin, two models": (chromatin.training, length, chromatin.models),
        "promoters, four models": (promoters.training, length, models),
    }
    return {
        name: (
            tokens := float(count * training.steps * training.batch_size * long),
            tokens * operations(config, long, pretraining=name == "pretraining"),
        )
        for name, (training, long, count) in rows.items()
    }


def duration(hours: float) -> str:
    """As the page has it: minutes, hours or days."""
    if hours < 1:
        return f"{60 * hours:.0f} minutes"
    return f"{hours:.1f} hours" if hours < 48 else f"{hours / 24:.1f} days"


def power(value: float) -> str:
    """As the page has it: 6.5 × 10²⁰."""
    digits, _, exponent = f"{value:.1e}".partition("e+")
    return f"{digits} × 10" + exponent.lstrip("0").translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))


def plan(name: str) -> list[str]:
    """The lines of the page's table for a configuration."""
    config = load_config(REPOSITORY / f"workflow/config/{name}.yaml")
    lines, total = [], dict.fromkeys(REACHED, 0.0)
    for training, (tokens, work) in trainings(config).items():
        cells = [f"`{name}.yaml`, {training}", power(tokens), power(work)]
        for card, rate in REACHED.items():
            hours = work / rate / 3600
            total[card] += hours
            cells += [f"{hours:,.1f}" if hours < 100 else f"{hours:,.0f}", duration(hours / 8)]
        lines.append(f"| {' | '.join(cells)} |")
    sums = [word for hours in total.values() for word in (f"**{hours:,.0f}**", f"**{duration(hours / 8)}**")]
    return [*lines, f"| **`{name}.yaml`, all** | | | {' | '.join(sums)} |"]


@pytest.mark.parametrize("name", ["grch37", "grch37-short"])
def test_the_hours_of_the_page_are_those_of_the_configuration(name: str) -> None:
    found = [
        line for line in PAGE.splitlines() if line.startswith((f"| `{name}.yaml`", f"| **`{name}.yaml`"))
    ]
    assert found == plan(name), "\n".join(plan(name))


def test_the_short_plan_takes_two_days_even_at_half_the_assumed_rate() -> None:
    config = load_config(REPOSITORY / "workflow/config/grch37-short.yaml")
    work = sum(work for _, work in trainings(config).values())
    assert 2 * work / REACHED["A100"] / 3600 / 8 < 46


def test_figures_in_the_text() -> None:
    config = load_config(REPOSITORY / "workflow/config/grch37.yaml")
    short = load_config(REPOSITORY / "workflow/config/grch37-short.yaml")
    long, brief = (operations(c, c.pretraining.sequence_tokens, pretraining=True) for c in (config, short))
    fine = operations(config, 1152, pretraining=False)
    assert (
        f"{long / 1e6:.0f} million for pretraining on 4,096 tokens, {brief / 1e6:.0f} million on 2,048"
        in PAGE
    )
    assert f"and {fine / 1e6:.0f} million for fine-tuning" in PAGE
    speeds = [f"{rate / long / 1e3:.0f},000" for rate in REACHED.values()]
    assert f"{speeds[0]} tokens a second on one A100 and {speeds[1]} on one H100" in PAGE
    genome = 2.6e9  # bases of the training chromosomes
    passes = [trainings(c)["pretraining"][0] * BASES / genome for c in (short, config)]
    said = re.search(r"some (\d+) times in\s+pretraining \(`grch37.yaml`: ([\d,]+) times\)", PAGE)
    assert said is not None
    assert [float(text.replace(",", "")) for text in said.groups()] == pytest.approx(passes, rel=0.03)
