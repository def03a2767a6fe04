"""Warm-up, decay, which weights decay, and what the optimisers keep of each."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from bigbird_dna.config import OptimizerConfig
from bigbird_dna.training.batches import fresh_moments, learning_rate, make_optimizer


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


@pytest.mark.parametrize("method", ["adamw", "adafactor"])
def test_moments_are_what_the_optimiser_makes_of_itself(method: str) -> None:
    network = nn.Sequential(nn.Embedding(4, 3), nn.Conv1d(3, 2, 5), nn.Linear(7, 2))
    optimizer = make_optimizer(network, OptimizerConfig.model_validate({"method": method}))
    for parameter in network.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    for parameter in network.parameters():
        made, expected = optimizer.state[parameter], fresh_moments(optimizer, parameter)
        assert {name: value.shape for name, value in made.items()} == {
            name: value.shape for name, value in expected.items()
        }


def test_adafactor_takes_steps_as_its_paper_says() -> None:
    """Shazeer and Stern 2018, algorithm 4: relative steps, no first moment, updates clipped at 1."""
    torch.manual_seed(1)
    weights = nn.Parameter(torch.randn(4, 3, dtype=torch.float64))
    expected = weights.detach().clone()
    network = nn.ParameterList([weights])
    config = OptimizerConfig(method="adafactor", learning_rate=0.05, weight_decay=0.0)
    optimizer = make_optimizer(network, config)
    rows, columns = torch.zeros(4, dtype=torch.float64), torch.zeros(3, dtype=torch.float64)
    for step in range(1, 6):
        gradient = torch.randn(4, 3, dtype=torch.float64)
        weights.grad = gradient.clone()
        optimizer.step()
        kept = 1 - step**-0.8
        squares = gradient.square()
        rows = kept * rows + (1 - kept) * squares.mean(1)
        columns = kept * columns + (1 - kept) * squares.mean(0)
        update = gradient / (rows[:, None] * columns / rows.mean()).sqrt()
        update /= max(1.0, float(update.square().mean().sqrt()))
        expected -= 0.05 * max(1e-3, float(expected.square().mean().sqrt())) * update
    torch.testing.assert_close(weights.detach(), expected, rtol=1e-6, atol=1e-9)
