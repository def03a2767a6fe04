"""Combiner against its definition, in value and gradient, and what each plan promises."""

from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from bigbird_dna.attention import mechanism as shared
from bigbird_dna.attention.clusters import make_chunks
from bigbird_dna.attention.dense import effective_matrix
from bigbird_dna.attention.mechanisms import combiner_routing as routing
from bigbird_dna.config import LayerShape, find_mechanism
from tests.attention import reference_implementations as reference
from tests.attention.problems import inputs
from tests.attention.reference_implementations import FIRST, PLANS, SECOND, quick
from tests.attention.sizes import Largest
from tests.golden.messages import fails

POOLINGS = ("max", "mean", "deepsets_max", "deepsets_mean")
HEADS, WIDTH = 2, 3


def build(plan: str, causal: bool = False, size: int = 4, seed: int = 0, **options: Any) -> nn.Module:
    """A plan's module in double precision; `size` are tokens of a block, row or piece."""
    mechanism = find_mechanism(f"combiner_{plan}")
    sizes = {key: size for key in ("span", "columns") if key in mechanism.options.model_fields}
    if plan == "routing":
        options = {"clusters": 3, **options}
    torch.manual_seed(seed)
    shape = LayerShape(options.pop("heads", HEADS), options.pop("width", WIDTH), causal=causal)
    module: nn.Module = mechanism.build(shape, mechanism.checked({**sizes, **options}))
    return module.double().eval()


def expected(
    module: nn.Module, plan: str, q: Tensor, k: Tensor, v: Tensor, lengths: list[int], size: int
) -> Tensor:
    rows = []
    for row, length in enumerate(lengths):
        weights = reference.combiner_matrix(module, plan, q[row, :, :length], k[row, :, :length], size)
        out = weights @ v[row, :, :length]
        rows.append(nn.functional.pad(out, (0, 0, 0, q.shape[2] - length)))
    return torch.stack(rows)


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("causal", [False, True])
@given(
    pooling=st.sampled_from(POOLINGS),
    lengths=st.lists(st.integers(1, 21), min_size=1, max_size=2),
    size=st.integers(1, 7),
    elements=st.sampled_from([1, 2000, 1 << 22]),
)
@example(pooling="max", lengths=[17, 9], size=4, elements=1 << 22)
@example(pooling="deepsets_mean", lengths=[12], size=4, elements=1)
@settings(max_examples=3, deadline=None)
def test_output_and_gradients_are_those_of_the_effective_matrix(
    plan: str, causal: bool, pooling: str, lengths: list[int], size: int, elements: int
) -> None:
    """Any length, padded rows, in one part or many, which are computed again for the gradients."""
    module = build(plan, causal, size, pooling=pooling)
    *leaves, upper = inputs(len(lengths), HEADS, max(lengths) + 2, WIDTH)
    wanted = [*leaves, *module.parameters()]
    reference_out = expected(module, plan, *leaves, lengths, size)
    whole: dict[str, Any] = {"allow_unused": True, "materialize_grads": True}
    reference_gradients = torch.autograd.grad(reference_out, wanted, upper, **whole)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(shared.ELEMENTS, "cpu", elements)
        patch.setattr(routing, "QUERIES", 5)
        out = module(*leaves, lengths=lengths)
        gradients = torch.autograd.grad(out, wanted, upper, **whole)
    for mine, theirs in zip((out, *gradients), (reference_out, *reference_gradients), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-9)


@pytest.mark.parametrize("plan", reference.SPANS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("tokens", [1, 2, 3, 5, 9, 16, 17, 33])
def test_the_definition_parts_what_a_query_may_see(plan: str, causal: bool, tokens: int) -> None:
    for size in (1, 3, 4, 50):
        for i, (direct, spans) in enumerate(reference.parts(plan, tokens, size, causal)):
            seen = sorted([*direct, *(j for span in spans for j in span)])
            assert seen == list(range(i + 1 if causal else tokens)) and i in direct


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("causal", [False, True])
def test_rows_of_the_matrix_sum_to_one_with_full_support(plan: str, causal: bool) -> None:
    """Lengths of one more than a power of two, a block or a row among them."""
    for tokens in (1, 2, 5, 9, 17, 33, 40):
        module = build(plan, causal)
        q, k, *_ = (x.detach() for x in inputs(1, HEADS, tokens, WIDTH))
        matrix = effective_matrix(module, q, k)
        torch.testing.assert_close(matrix.sum(-1), torch.ones(1, HEADS, tokens).double())
        seen = torch.ones(tokens, tokens, dtype=torch.bool)
        seen = seen.tril() if causal else seen
        assert (matrix[..., seen] > 0).all() and (matrix[..., ~seen] == 0).all()


FULL: list[tuple[str, dict[str, Any]]] = [
    *((plan, {"size": size}) for plan in ("fixed", FIRST, SECOND, "axial_rowmajor") for size in (1, 23, 40)),
    ("mixture", {"size": 1}),
    ("mixture", {"size": 23}),
    ("routing", {"size": 1}),
    ("routing", {"size": 23, "clusters": 1}),
]


@pytest.mark.parametrize(("plan", "options"), FULL, ids=str)
@pytest.mark.parametrize("pooling", ["max", "mean"])
@pytest.mark.parametrize("causal", [False, True])
def test_at_the_ends_of_its_range_it_is_full_attention(
    plan: str, options: dict[str, Any], pooling: str, causal: bool
) -> None:
    module = build(plan, causal, pooling=pooling, **options)
    q, k, v, _ = inputs(2, HEADS, 23, WIDTH)
    full = scaled_dot_product_attention(q, k, v, is_causal=causal)
    torch.testing.assert_close(module(q, k, v), full, rtol=0, atol=1e-12)


def test_two_tokens_of_logsparse_see_each_other_in_full() -> None:
    q, k, v, _ = inputs(1, HEADS, 2, WIDTH)
    torch.testing.assert_close(build("logsparse")(q, k, v), scaled_dot_product_attention(q, k, v))


@pytest.mark.parametrize("causal", [False, True])
def test_blocks_off_the_diagonal_have_rank_one(causal: bool) -> None:
    q, k, *_ = (x.detach() for x in inputs(1, HEADS, 22, WIDTH))
    matrix = effective_matrix(build("fixed", causal, 5), q, k)
    for i in range(0, 22, 5):
        for j in range(0, 22, 5):
            values = torch.linalg.svdvals(matrix[0, :, i : i + 5, j : j + 5])
            if i != j and not (causal and j > i):
                assert (values[:, 1:] < 1e-12).all() and (values[:, 0] > 1e-6).all()
            elif i == j:
                assert (values[:, 1] > 1e-6).all()


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("causal", [False, True])
def test_a_row_depends_on_neither_padding_nor_company(plan: str, causal: bool) -> None:
    module = build(plan, causal, 7, pooling="deepsets_max")
    *made, upper = inputs(3, HEADS, 60, WIDTH)
    with torch.no_grad():
        for x in (*made, upper):
            x[1, :, 30:] = 1e3  # finite rubbish
    alone = [x[1:2, :, :30].detach().clone().requires_grad_() for x in made]
    together, single = module(*made, lengths=[60, 30, 44]), module(*alone)
    torch.testing.assert_close(together[1:2, :, :30], single, rtol=0, atol=1e-12)
    assert (together[1, :, 30:] == 0).all()
    grads = torch.autograd.grad(together, made, upper)
    for grad, other in zip(grads, torch.autograd.grad(single, alone, upper[1:2, :, :30]), strict=True):
        torch.testing.assert_close(grad[1:2, :, :30], other, rtol=0, atol=1e-12)
        assert (grad[1, :, 30:] == 0).all()


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_no_bit_of_the_past_depends_on_the_future(plan: str, pooling: str, dtype: torch.dtype) -> None:
    module = build(plan, True, 9, pooling=pooling, width=8).to(dtype)
    q, k, v, _ = inputs(2, HEADS, 150, 8, dtype=dtype)
    out = module(q, k, v)
    for now in (1, 40, 71, 149):
        changed = [x.detach().clone() for x in (q, k, v)]
        generator = torch.Generator().manual_seed(now)
        for x in changed:
            x[:, :, now:] = 300 * torch.randn(x[:, :, now:].shape, generator=generator, dtype=dtype)
        assert torch.equal(module(*changed)[:, :, :now], out[:, :, :now])
        grads = torch.autograd.grad(out[:, :, :now].square().sum(), (q, k, v), retain_graph=True)
        assert all((grad[:, :, now:] == 0).all() for grad in grads)
        assert all((grad[:, :, 0] != 0).any() for grad in grads[2:])


@pytest.mark.parametrize("plan", quick(PLANS, "axial_vertical", "routing"))
def test_dropout_is_reproducible_and_unbiased_with_exact_gradients(
    plan: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = build(plan)
    q, k, v, _ = inputs(1, HEADS, 11, WIDTH)

    def dropped(*x: Tensor, seed: int = 5) -> Tensor:
        torch.manual_seed(seed)
        return module(*x, lengths=[10] * len(x[0]), dropout=0.3)

    first = dropped(q, k, v)
    assert torch.equal(first, dropped(q, k, v)) and not torch.equal(first, dropped(q, k, v, seed=6))
    many = dropped(*(x.detach().expand(1500, -1, -1, -1) for x in (q, k, v)))
    error = many.mean(0) - module(q, k, v, lengths=[10])[0].detach()
    sigma = many.std(0) / len(many) ** 0.5
    assert (many[:, :, 10] == 0).all() and (error.abs() < 5.5 * sigma + 1e-12).all()
    monkeypatch.setitem(shared.ELEMENTS, "cpu", 1)
    assert torch.autograd.gradcheck(dropped, (q, k, v), fast_mode=True)


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("causal", [False, True])
def test_nothing_is_as_large_as_all_pairs(plan: str, causal: bool) -> None:
    tokens, size = 4096, 64
    options = {"clusters": size} if plan == "routing" else {}
    module = build(plan, causal, size, width=8, heads=1, **options).float()
    q, k, v, upper = inputs(1, 1, tokens, 8, dtype=torch.float32)
    with Largest() as largest:
        torch.autograd.grad(module(q, k, v), (q, k, v), upper)
    assert largest.numbers <= 6 * tokens * size, f"{largest.numbers / tokens:.0f} numbers a token"


# Routing


def test_a_cluster_that_holds_everything_costs_no_more_and_drops_nothing() -> None:
    """All tokens nearest to one direction: chunks of `span`, each seen by all."""
    module = build("routing", size=8, clusters=4, heads=1)
    q, k, v, _ = inputs(1, 1, 30, WIDTH)
    module.centroids.directions.zero_()
    module.centroids.directions[:, 2] = 1
    q, k = q.abs(), k.abs()
    assert (module.clusters(q, k, torch.ones(1, 1, 30, dtype=torch.bool)) == 2).all()
    chunks = make_chunks(torch.full((1, 1, 30), 2), torch.ones(1, 1, 30, dtype=torch.bool), 4, 8)
    assert chunks.number.flatten().tolist() == [j // 8 for j in range(30)] and chunks.total == 4 + 3
    fixed = build("fixed", size=8, heads=1)
    torch.testing.assert_close(module(q, k, v), fixed(q, k, v), rtol=0, atol=1e-12)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=40), st.integers(1, 9), st.integers(0, 5))
@settings(max_examples=50, deadline=None)
def test_pieces_hold_every_token_once_and_a_prefix_has_the_same(
    numbers: list[int], size: int, padding: int
) -> None:
    clusters = torch.tensor(numbers + [0] * padding)[None, None]
    there = torch.arange(clusters.shape[2])[None, None] < len(numbers)
    chunks = make_chunks(clusters, there, 5, size)
    slots = chunks.slots[0, 0, : len(numbers), 0].tolist()
    assert len(set(slots)) == len(numbers) and max(slots) < chunks.total * size
    placed = list(zip(chunks.number[0, 0].tolist(), chunks.place[0, 0].tolist(), strict=True))[: len(numbers)]
    for j, (number, place) in enumerate(placed):
        piece = [i for i in range(len(numbers)) if placed[i][0] == number]
        assert [numbers[i] for i in piece] == [numbers[j]] * len(piece) and piece.index(j) == place < size
    half = len(numbers) // 2
    if half:
        short = make_chunks(clusters[..., :half], there[..., :half], 5, size)
        assert torch.equal(short.number[0, 0], chunks.number[0, 0, :half])
        assert torch.equal(short.place[0, 0], chunks.place[0, 0, :half])


def test_directions_follow_their_tokens_only_between_passes() -> None:
    module = build("routing", clusters=2, heads=1, decay=0.5)
    module.centroids.directions.copy_(torch.eye(WIDTH)[None, :2])
    before = module.centroids.directions.clone()
    q = torch.tensor([[1.0, 0, 0], [0.9, 0, 0.2], [0, 1, 0]]).double()[None, None]
    module(q, q, q)
    module.centroids.begin_pass()
    assert torch.equal(module.centroids.directions, before), "evaluation changes nothing"
    module.train()
    module(q, q, q, lengths=[2])
    assert torch.equal(module.centroids.directions, before), "a pass changes nothing"
    module.centroids.begin_pass()
    mean = nn.functional.normalize(q[0, 0, :2], dim=1).sum(0)
    moved = nn.functional.normalize(before[0, 0] + mean / mean.norm(), dim=0)
    torch.testing.assert_close(module.centroids.directions[0, 0], moved)
    assert torch.equal(module.centroids.directions[0, 1], before[0, 1]), "no token, no change"
    again = module.centroids.directions.clone()
    module.centroids.begin_pass()
    assert torch.equal(module.centroids.directions, again), "a pass counts once"


def test_refusals_name_what_is_wrong() -> None:
    module = build("fixed")
    q, k, v, _ = inputs(1, HEADS, 5, WIDTH)
    with fails(ValueError):
        module(q, k, v, lengths=[6])
    with fails(ValueError):
        module(q, k[:, :, :3], v)


@pytest.mark.parametrize("plan", PLANS)
def test_bfloat16_and_autocast_stay_near_single_precision(plan: str) -> None:
    module = build(plan, size=8, width=8).float()
    q, k, v, _ = (x.detach() for x in inputs(2, HEADS, 50, 8, dtype=torch.float32))
    lengths = [50, 33]
    clean = module(q, k, v, lengths=lengths)
    narrow = module(*(x.bfloat16() for x in (q, k, v)), lengths=lengths)
    with torch.autocast("cpu"):
        automatic = module(q, k, v, lengths=lengths)
    assert narrow.dtype == automatic.dtype == torch.bfloat16
    if plan != "routing":  # a token between two directions may go to the other
        assert (narrow.float() - clean).abs().max() < 0.08
        assert (automatic.float() - clean).abs().max() < 0.08
