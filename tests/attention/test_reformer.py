"""Reformer's rounds: what more of them see, and when they are drawn."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bigbird_dna.attention.dense import effective_matrix
from bigbird_dna.attention.mechanisms.reformer import ITSELF
from bigbird_dna.config import LayerShape, find_mechanism
from tests.attention.problems import inputs


def build(**options: Any) -> nn.Module:
    module: nn.Module = find_mechanism("reformer").make(LayerShape(2, 8), options)
    return module.double().eval()


def shared_attention(q: Tensor, v: Tensor) -> Tensor:
    """Every token sees every other: what Reformer's nears; keys are the queries, of length √K."""
    scores = q @ (q / q.norm(dim=-1, keepdim=True)).mT
    return scores.masked_fill(torch.eye(q.shape[2], dtype=torch.bool), ITSELF).softmax(-1) @ v


def test_it_nears_attention_to_all_as_rounds_grow() -> None:
    q, _, v, _ = (x.detach() for x in inputs(1, 2, 96, 8))
    full = shared_attention(q, v)
    errors = []
    for rounds in (1, 2, 4, 8, 16):
        draws = (build(rounds=rounds, buckets=4, chunk=24, seed=seed) for seed in range(4))
        off = [(module(q, q, v) - full).norm() / full.norm() for module in draws]
        errors.append(float(torch.stack(off).mean()))
    assert errors == sorted(errors, reverse=True) and errors[-1] < errors[0] / 10, errors


def test_two_buckets_in_one_chunk_and_enough_rounds_are_attention_to_all() -> None:
    """Of 16 rounds one at least, for these numbers, has each pair of tokens on one side."""
    q, _, v, _ = (x.detach() for x in inputs(1, 2, 9, 8))
    module = build(rounds=16, buckets=2, chunk=9, seed=3)
    assert (effective_matrix(module, q, q)[..., ~torch.eye(9, dtype=torch.bool)] > 0).all()
    torch.testing.assert_close(module(q, q, v), shared_attention(q, v), rtol=0, atol=1e-10)


def test_a_token_sees_itself_only_where_it_is_alone() -> None:
    q, _, v, _ = (x.detach() for x in inputs(1, 2, 40, 8))
    matrix = effective_matrix(build(rounds=1, buckets=16, chunk=40), q, q)[0]
    own = matrix.diagonal(dim1=1, dim2=2)
    assert (((own - 1).abs() < 1e-12) | (own == 0)).all() and (own > 0).any() and (own == 0).any()
    one = build()(q[:, :, :1], q[:, :, :1], v[:, :, :1])
    torch.testing.assert_close(one, v[:, :, :1])


@pytest.mark.parametrize(("redraw", "changes"), [(1, True), (0, False)])
def test_other_hashes_are_drawn_at_each_pass_in_training(redraw: int, changes: bool) -> None:
    module = build(redraw=redraw)
    q, _, v, _ = (x.detach() for x in inputs(1, 2, 200, 8))
    first = module(q, q, v)
    assert torch.equal(module(q, q, v), first)
    module.rotations.begin_pass()
    assert torch.equal(module(q, q, v), first) != changes
