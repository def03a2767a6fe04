"""Warm-up, decay, and which weights decay."""

from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from bigbird_dna.config import OptimizerConfig
from bigbird_dna.training.schedule import learning_rate, make_optimizer


@given(st.integers(1, 400), st.integers(0, 500))
def test_rate_rises_to_its_peak_and_falls_to_almost_zero(steps: int, warmup: int) -> None:
    config = OptimizerConfig(learning_rate=2.0, warmup_steps=warmup)
    rates = [learning_rate(step, steps, config) for step in range(steps)]
    peak = min(warmup, steps)
    assert all(0 < rate <= 2.0 for rate in rates)
    assert max(rates) == 2.0
    assert rates[:peak] == sorted(rates[:peak]) and rates[peak:] == sorted(rates[peak:], reverse=True)
    if steps > peak:
        assert rates[-1] <= 2.0 / (steps - peak) + 1e-12


def test_only_matrices_decay() -> None:
    network = nn.Sequential(nn.Linear(3, 2), nn.LayerNorm(2))
    decayed, others = make_optimizer(network, OptimizerConfig(weight_decay=0.1)).param_groups
    assert (decayed["weight_decay"], others["weight_decay"]) == (0.1, 0.0)
    assert [p.dim() for p in decayed["params"]] == [2] and {p.dim() for p in others["params"]} == {1}
