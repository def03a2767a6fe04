"""Performer's random features: what they are, when they are drawn, and how near they come to softmax."""

import math
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from bigbird_dna.config import LayerShape, find_mechanism
from tests.attention.problems import inputs


def build(causal: bool = False, layer: int = 0, **options: Any) -> nn.Module:
    module: nn.Module = find_mechanism("performer").make(LayerShape(2, 8, layer, causal), options)
    return module


def test_directions_are_orthogonal_and_as_long_as_normal_vectors() -> None:
    drawn = build(features=2000).directions.drawn.double()
    for group in drawn[:, :1992].unflatten(1, (-1, 8)).flatten(0, 1):
        products = group @ group.T
        assert (products - products.diag().diag()).abs().max() < 1e-5
    squares = drawn.square().sum(-1)
    assert abs(squares.mean() - 8) < 0.3 and abs(squares.var() - 16) < 3  # of a χ² of 8 degrees of freedom
    assert drawn.mean((0, 1)).abs().max() < 0.08, "no direction is preferred"
    assert not torch.equal(drawn[0], drawn[1])


def test_the_error_falls_with_the_root_of_the_number_of_features() -> None:
    """Both forms; the mean over draws of the relative error of the output, 16 to 4,096 features.

    Queries and keys are half as long as normal vectors: the features' variance grows with exp |q + k|².
    """
    q, k, v, _ = (x.detach() for x in inputs(1, 2, 64, 8))
    q, k = q / 2, k / 2
    for causal in (False, True):
        full = scaled_dot_product_attention(q, k, v, is_causal=causal)
        errors = []
        for features in (16, 64, 256, 1024, 4096):
            draws = (build(causal, features=features, seed=seed).double().eval() for seed in range(8))
            off = [(module(q, k, v) - full).norm() / full.norm() for module in draws]
            errors.append(float(torch.stack(off).mean()))
        assert errors == sorted(errors, reverse=True) and errors[-1] < 0.05, errors
        slope = math.log(errors[-1] / errors[1]) / math.log(4096 / 64)
        assert -0.65 < slope < -0.35, errors


def test_features_are_drawn_anew_only_in_training_and_when_it_is_time() -> None:
    module = build(features=16, redraw=3)
    seen = [module.directions.drawn.clone()]
    for _ in range(7):
        module.directions.begin_pass()
        seen.append(module.directions.drawn.clone())
    changed = [not torch.equal(a, b) for a, b in pairwise(seen)]
    assert changed == [False, False, True, False, False, True, False]
    torch.manual_seed(1)
    again = build(features=16, redraw=3)
    again.load_state_dict(build(features=16, redraw=3).state_dict())
    for _ in range(6):
        again.directions.begin_pass()
    assert torch.equal(again.directions.drawn, seen[6]), "a function of seed, layer and number of passes"
    assert not torch.equal(build(features=16, layer=1).directions.drawn, seen[0])
    assert not torch.equal(build(features=16, seed=1).directions.drawn, seen[0])
    never = build(features=16, redraw=0)
    for _ in range(5):
        never.directions.begin_pass()
    assert torch.equal(never.directions.drawn, seen[0])


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("narrow", [torch.bfloat16, torch.float16])
def test_autocast_narrows_what_comes_in_and_nothing_else(narrow: torch.dtype, causal: bool) -> None:
    """Exponentials of what was rounded once more are off, or infinite."""
    module = build(causal, features=64).eval()
    q, k, v, _ = (x.detach() for x in inputs(1, 2, 300, 8, dtype=torch.float32))
    with torch.autocast("cpu", dtype=narrow):
        out = module(q * 4, k * 4, v)
    assert torch.equal(out, module((q * 4).to(narrow), (k * 4).to(narrow), v.to(narrow)))
    assert out.isfinite().all()


def test_large_vectors_give_numbers() -> None:
    """Exponents of hundreds, where plain features are 0 / 0 in single precision."""
    for causal in (False, True):
        module = build(causal, features=64).eval()
        q, k, v, upper = inputs(1, 2, 300, 8, dtype=torch.float32)
        out = module(q * 12, k * 12, v)
        assert out.isfinite().all() and out.abs().max() <= v.abs().max() * 1.001
        assert all(grad.isfinite().all() for grad in torch.autograd.grad(out, (q, k, v), upper))
