"""What single mechanisms promise beyond their definitions, and what other packages make of the same."""

import math
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.functional import normalize, scaled_dot_product_attention

from bigbird_dna.attention import Pattern, bigbird_attention
from bigbird_dna.attention.mechanism import make_chunks
from tests.attention.reference_implementations import (
    HEADS,
    WIDTH,
    build,
    inputs,
    value_and_gradients,
    vectors,
)

both_forms = pytest.mark.parametrize("causal", [False, True])


# Clusters


@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=40),
    st.integers(1, 9),
    st.integers(0, 5),
)
@settings(max_examples=50, deadline=None)
def test_chunks_hold_every_token_once_and_a_prefix_has_the_same(
    numbers: list[int], size: int, padding: int
) -> None:
    clusters = torch.tensor(numbers + [0] * padding)[None, None]
    there = torch.arange(clusters.shape[2])[None, None] < len(numbers)
    chunks = make_chunks(clusters, there, 5, size, causal=True)
    slots = chunks.slots[0, 0, : len(numbers), 0].tolist()
    assert len(set(slots)) == len(numbers) and max(slots) < chunks.total * size
    placed = list(
        zip(chunks.number[0, 0].tolist(), chunks.place[0, 0].tolist(), strict=True)
    )[: len(numbers)]
    for j, (number, place) in enumerate(placed):
        chunk = [i for i in range(len(numbers)) if placed[i][0] == number]
        assert [numbers[i] for i in chunk] == [numbers[j]] * len(chunk) and chunk.index(
            j
        ) == place < size
    half = len(numbers) // 2
    if half:
        short = make_chunks(clusters[..., :half], there[..., :half], 5, size, True)
        assert torch.equal(short.number[0, 0], chunks.number[0, 0, :half])
        assert torch.equal(short.place[0, 0], chunks.place[0, 0, :half])


def test_directions_follow_their_tokens_only_between_passes() -> None:
    module = build("combiner_routing", heads=1, width=3, clusters=2, decay=0.5)
    module.centroids.directions.copy_(torch.eye(3)[None, :2])
    before = module.centroids.directions.clone()
    q = torch.tensor([[1.0, 0, 0], [0.9, 0, 0.2], [0, 1, 0]]).double()[None, None]
    module(q, q, q)
    module.centroids.begin_pass()
    assert torch.equal(module.centroids.directions, before), (
        "evaluation changes nothing"
    )
    module.train()
    module(q, q, q, lengths=[2])
    assert torch.equal(module.centroids.directions, before), "a pass changes nothing"
    module.centroids.begin_pass()
    mean = normalize(q[0, 0, :2], dim=1).sum(0)
    moved = normalize(before[0, 0] + mean / mean.norm(), dim=0)
    torch.testing.assert_close(module.centroids.directions[0, 0], moved)
    assert torch.equal(module.centroids.directions[0, 1], before[0, 1]), (
        "no token, no change"
    )
    again = module.centroids.directions.clone()
    module.centroids.begin_pass()
    assert torch.equal(module.centroids.directions, again), "a pass counts once"


# Performer


def test_directions_are_orthogonal_and_as_long_as_normal_vectors() -> None:
    drawn = build("performer", width=8, features=2000).directions.drawn.double()
    for group in drawn[:, :1992].unflatten(1, (-1, 8)).flatten(0, 1):
        products = group @ group.T
        assert (products - products.diag().diag()).abs().max() < 1e-5
    squares = drawn.square().sum(-1)
    assert (
        abs(squares.mean() - 8) < 0.3 and abs(squares.var() - 16) < 3
    )  # of a χ² of 8 degrees of freedom
    assert drawn.mean((0, 1)).abs().max() < 0.08, "no direction is preferred"
    assert not torch.equal(drawn[0], drawn[1])


@both_forms
def test_performers_error_falls_with_the_root_of_the_number_of_features(
    causal: bool,
) -> None:
    """Queries and keys are half as long as normal vectors: the features' variance grows with exp |q + k|²."""
    q, k, v = vectors(1, 2, 64, 8)
    q, k = q / 2, k / 2
    full = scaled_dot_product_attention(q, k, v, is_causal=causal)

    found = []
    for features in (16, 64, 256, 1024, 4096):
        draws = [
            build("performer", causal, width=8, features=features, seed=seed)
            for seed in range(8)
        ]
        found.append(
            float(
                sum((module(q, k, v) - full).norm() for module in draws)
                / full.norm()
                / 8
            )
        )
    assert found == sorted(found, reverse=True) and found[-1] < 0.05, found
    slope = math.log(found[-1] / found[1]) / math.log(4096 / 64)
    assert -0.65 < slope < -0.35, found


@pytest.mark.parametrize(
    ("name", "part"), [("performer", "directions"), ("reformer", "rotations")]
)
def test_random_numbers_are_drawn_anew_only_in_training_and_when_it_is_time(
    name: str, part: str
) -> None:
    def features(layer: int = 0, **options: int) -> Any:
        return getattr(build(name, layer=layer, **options).float(), part)

    module = features(redraw=3)
    seen = [module.drawn.clone()]
    for _ in range(7):
        module.begin_pass()
        seen.append(module.drawn.clone())
    changed = [not torch.equal(a, b) for a, b in pairwise(seen)]
    assert changed == [False, False, True, False, False, True, False]
    torch.manual_seed(1)
    again = features(redraw=3)
    again.load_state_dict(features(redraw=3).state_dict())
    for _ in range(6):
        again.begin_pass()
    assert torch.equal(again.drawn, seen[6]), (
        "a function of seed, layer and number of passes"
    )
    assert not torch.equal(features(layer=1).drawn, seen[0])
    assert not torch.equal(features(seed=1).drawn, seen[0])
    never = features(redraw=0)
    for _ in range(5):
        never.begin_pass()
    assert torch.equal(never.drawn, seen[0])


@both_forms
@pytest.mark.parametrize("narrow", [torch.bfloat16, torch.float16])
def test_autocast_narrows_what_comes_in_and_nothing_else(
    narrow: torch.dtype, causal: bool
) -> None:
    """Exponentials of what was rounded once more are off, or infinite."""
    module = build("performer", causal, width=8, features=64).float()
    q, k, v = vectors(1, 2, 300, 8, dtype=torch.float32)
    with torch.autocast("cpu", dtype=narrow):
        out = module(q * 4, k * 4, v)
    assert torch.equal(
        out, module((q * 4).to(narrow), (k * 4).to(narrow), v.to(narrow))
    )
    assert out.isfinite().all()


@both_forms
def test_large_vectors_give_numbers(causal: bool) -> None:
    """Exponents of hundreds, where plain features are 0 / 0 in single precision."""
    module = build("performer", causal, width=8, features=64).float()
    q, k, v, upper = inputs(1, 2, 300, 8, dtype=torch.float32)
    out = module(q * 12, k * 12, v)
    assert out.isfinite().all() and out.abs().max() <= v.abs().max() * 1.001
    assert all(
        grad.isfinite().all() for grad in torch.autograd.grad(out, (q, k, v), upper)
    )


# Other packages


@pytest.mark.parametrize("globals_", [0, 1, 3])
def test_longformer_agrees_with_huggingface(globals_: int) -> None:
    """Their layer and ours with the same weights, and a padded row, in single precision."""
    theirs = pytest.importorskip("transformers.models.longformer.modeling_longformer")
    configuration = pytest.importorskip("transformers").LongformerConfig(
        hidden_size=HEADS * WIDTH,
        num_attention_heads=HEADS,
        attention_window=[8],
        attention_probs_dropout_prob=0.0,
        num_hidden_layers=1,
    )
    module = build("longformer", window=4, global_tokens=globals_).float()
    layer = theirs.LongformerSelfAttention(configuration, 0).eval()
    x = torch.randn(2, 48, HEADS * WIDTH)
    lengths = torch.tensor([48, 37])
    mask = torch.zeros(2, 48)
    mask[:, :globals_] = 10000
    mask[1, 37:] = -10000

    def split(part: nn.Linear) -> Tensor:
        return part(x).unflatten(2, (HEADS, -1)).transpose(1, 2)

    with torch.no_grad():
        if globals_:
            for name in ("query", "key", "value"):
                getattr(module, name).load_state_dict(
                    getattr(layer, f"{name}_global").state_dict()
                )
        q, k, v = (split(part) for part in (layer.query, layer.key, layer.value))
        out = module(q, k, v, lengths=lengths, hidden=x).transpose(1, 2).flatten(2)
        masks = {"is_index_masked": mask < 0, "is_index_global_attn": mask > 0}
        expected = layer(
            x, attention_mask=mask, **masks, is_global_attn=bool(globals_)
        )[0]
    for row, length in enumerate(lengths):
        torch.testing.assert_close(
            out[row, :length], expected[row, :length], atol=2e-6, rtol=2e-5
        )


@both_forms
@pytest.mark.parametrize(
    ("tokens", "size", "sides", "exact"),
    [
        *((48, 8, 1, False), (45, 8, 2, False), (40, 5, 1, False), (7, 8, 1, False)),
        *((tokens, size, 1, True) for tokens, size in ((48, 8), (43, 8), (20, 3))),
    ],
)
def test_windows_are_those_of_local_attention(
    tokens: int, size: int, sides: int, exact: bool, causal: bool
) -> None:
    """The package of Phil Wang: buckets beside the own one, or exactly so many tokens on each side.

    Also where the last block is partial: what they pad with is hidden from all.
    """
    theirs = pytest.importorskip("local_attention").LocalAttention(
        window_size=size,
        look_backward=sides,
        look_forward=0 if causal else sides,
        causal=causal,
        exact_windowsize=exact,
        autopad=True,
        use_rotary_pos_emb=False,
    )
    pattern, module = Pattern(size, 0, 1 + 2 * sides, 0, causal=causal), None
    if exact:
        module = build("longformer", causal, width=8, window=size, global_tokens=0)

    def ours(*x: Tensor) -> Tensor:
        if module is not None:
            return module(*x, hidden=x[0])  # type: ignore[no-any-return]
        return bigbird_attention(*x, pattern, route="blocked")

    made, mask = inputs(2, HEADS, tokens, 8), torch.ones(2, tokens, dtype=torch.bool)
    expected = value_and_gradients(lambda *x: theirs.double()(*x, mask=mask), made)
    for one, other in zip(value_and_gradients(ours, made), expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-9, rtol=0)
