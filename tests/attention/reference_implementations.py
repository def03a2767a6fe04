"""Every mechanism by its definition: which keys a query sees, and the dense matrix of weights.

Combiner is given by sets of keys for each query, and its effective matrix by explicit sums.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from bigbird_dna.attention.call import Call
from bigbird_dna.attention.pattern import Pattern
from bigbird_dna.config.mechanisms import LayerShape, find_mechanism, known_mechanisms

# Axes: H heads, L queries or keys, R spans of a query, K components, D hidden width.

HEADS, WIDTH = 2, 4
SMALL: dict[str, dict[str, Any]] = {
    "sparse_fixed": {"span": 4, "last": 1},
    "axial": {"columns": 5},
    "longformer": {"window": 3, "dilation": 2, "global_tokens": 2},
    "routing": {"clusters": 3, "span": 4},
    "performer": {"features": 6},
    "reformer": {"buckets": 4, "chunk": 3, "rounds": 3},
    "combiner_fixed": {"span": 4},
    "combiner_axial_horizontal": {"columns": 4},
    "combiner_axial_rowmajor": {"columns": 4},
    "combiner_axial_vertical": {"columns": 4},
    "combiner_mixture": {"columns": 4, "span": 4},
    "combiner_routing": {"clusters": 3, "span": 4},
}
"""Sizes for short sequences."""
FIRST, SECOND = "axial_vertical", "axial_horizontal"  # of a mixture, by default
LOCAL_ROWS = (
    "longformer",
)  # whose global tokens have values of their own: `matrix` has the other rows
CASES = [
    (name, causal)
    for name in known_mechanisms()
    for causal in (False, True)
    if name != "reformer" or not causal
]
"""Every mechanism in every form that it has."""

Options = Mapping[str, Any]


def quick(names: Iterable[str], *kept: str) -> list[Any]:
    """Names as parameters of a test, all but `kept` of which are for the slow suite."""
    return [
        name if name in kept else pytest.param(name, marks=pytest.mark.slow)
        for name in names
    ]


def build(
    name: str,
    causal: bool = False,
    heads: int = HEADS,
    width: int = WIDTH,
    layer: int = 0,
    **options: Any,
) -> Any:
    """A mechanism's module in double precision, in evaluation."""
    torch.manual_seed(0)
    module: nn.Module = find_mechanism(name).make(
        LayerShape(heads, width, layer, causal), options
    )
    return module.double().eval()


def small(name: str, causal: bool = False, **changes: Any) -> Any:
    """`build` with sizes for short sequences."""
    return build(name, causal, **{**SMALL.get(name, {}), **changes})


def up_to(tokens: int, causal: bool) -> Tensor:
    """(L, L): which keys are not of the future, where that counts."""
    seen = torch.ones(tokens, tokens, dtype=torch.bool)
    return seen.tril() if causal else seen


def masked_softmax(scores: Tensor, seen: Tensor) -> Tensor:
    return scores.masked_fill(~seen, -torch.inf).softmax(-1)


def effective_matrix(attend: Callable[..., Tensor], q: Tensor, k: Tensor) -> Tensor:
    """The matrix A with out = A v, (B, H, L, K) twice → (B, H, L, L), for an attention that is linear in v."""
    tokens, width = q.shape[2:]
    columns = []
    for start in range(0, tokens, width):
        v = torch.zeros_like(q)
        count = min(width, tokens - start)
        column = torch.arange(count)
        v[:, :, start + column, column] = 1
        columns.append(attend(q, k, v)[..., :count])
    return torch.cat(columns, -1)


def longformer_matrix(module: Any, q: Tensor, k: Tensor, hidden: Tensor) -> Tensor:
    """The effective matrix (B, H, L, L); rows of global tokens refer to their separate values."""
    local = effective_matrix(partial(module, hidden=hidden), q, k)
    query, key = (
        projection(hidden.to(q.dtype)).unflatten(2, (q.shape[1], -1)).transpose(1, 2)
        for projection in (module.query, module.key)
    )
    scores = query[:, :, : module.options.global_tokens] @ key.mT / q.shape[3] ** 0.5
    seen = up_to(q.shape[2], module.shape.causal)[: scores.shape[2]] > 0
    first = masked_softmax(scores, seen)
    return torch.cat([first, local[:, :, first.shape[2] :]], 2)


def cluster_numbers(module: Any, q: Tensor, k: Tensor) -> list[list[int]]:
    """The cluster of each token, by head; q and k (H, L, K)."""
    there = torch.ones(1, 1, q.shape[1], dtype=torch.bool)
    numbers: list[list[int]] = module.centroids(q[None], k[None], there)[0].tolist()
    return numbers


def chunks_of(clusters: list[int], size: int) -> list[tuple[int, int]]:
    """Cluster and number of the chunk of `size` that each token is in."""
    return [
        (own, sum(other == own for other in clusters[:i]) // size)
        for i, own in enumerate(clusters)
    ]


# Which keys query i sees by a graph that is always the same, apart from what causality hides.


def _logsparse(of: Options, i: int, j: int) -> bool:
    size = 1 << max(0, (i ^ j).bit_length() - 1)  # of the dyadic blocks that part them
    return i == j or (j % size == size - 1 if j < i else j % size == 0)


def _longformer(of: Options, i: int, j: int) -> bool:
    near = (
        abs(i - j) <= of["window"] * of["dilation"] and abs(i - j) % of["dilation"] == 0
    )
    return near or j < of["global_tokens"]


GRAPHS: dict[str, Callable[[Options, int, int], bool]] = {
    "sparse_fixed": lambda of, i, j: (
        i // of["span"] == j // of["span"] or j % of["span"] >= of["span"] - of["last"]
    ),
    "axial": lambda of, i, j: (
        i // of["columns"] == j // of["columns"]
        or i % of["columns"] == j % of["columns"]
    ),
    "logsparse": _logsparse,
    "longformer": _longformer,
}


def graph_matrix(
    name: str, module: Any, of: Options, q: Tensor, k: Tensor, causal: bool
) -> Tensor:
    tokens, width = q.shape[1:]
    seen = torch.tensor(
        [[GRAPHS[name](of, i, j) for j in range(tokens)] for i in range(tokens)]
    )
    return masked_softmax(q @ k.mT / width**0.5, seen & up_to(tokens, causal))


def routing_matrix(
    module: Any, of: Options, q: Tensor, k: Tensor, causal: bool
) -> Tensor:
    """Tokens see those of their cluster in the same chunk, or in the one before."""
    seen = []
    for numbers in cluster_numbers(module, q, k):
        chunks = chunks_of(numbers, of["span"])
        seen.append(
            [
                [own == its and one - other in (0, 1) for its, other in chunks]
                for own, one in chunks
            ]
        )
    scores = q @ k.mT / q.shape[2] ** 0.5
    return masked_softmax(scores, torch.tensor(seen) & up_to(q.shape[1], causal))


def reformer_matrix(
    module: Any, of: Options, q: Tensor, k: Tensor, causal: bool
) -> Tensor:
    """A token sees what any round lets it see; keys are the queries, of length √K."""
    tokens, rows = q.shape[1], []
    for query, rotations in zip(q, module.rotations.drawn.to(q.dtype), strict=True):
        seen = torch.zeros(tokens, tokens, dtype=torch.bool)
        for rotation in rotations:
            bucket = (
                torch.cat([query @ rotation, -query @ rotation], 1).argmax(1).tolist()
            )
            ranked = sorted(range(tokens), key=lambda i: (bucket[i], i))
            chunk = {i: rank // of["chunk"] for rank, i in enumerate(ranked)}
            for i in range(tokens):
                for j in range(tokens):
                    seen[i, j] |= bucket[i] == bucket[j] and chunk[i] - chunk[j] in (
                        0,
                        1,
                    )
        scores = query @ (query / query.norm(dim=1, keepdim=True)).T
        rows.append(
            masked_softmax(
                scores.masked_fill(torch.eye(tokens, dtype=torch.bool), -1e5), seen
            )
        )
    return torch.stack(rows)


def performer_matrix(
    module: Any, of: Options, q: Tensor, k: Tensor, causal: bool
) -> Tensor:
    """Products of positive features, each row divided by its sum."""
    directions = module.directions.drawn.to(q.dtype)  # (H, F, K)

    def features(x: Tensor) -> Tensor:
        x = x / x.shape[2] ** 0.25
        return (x @ directions.mT - (x * x).sum(2, keepdim=True) / 2).exp()

    products = (features(q) @ features(k).mT) * up_to(q.shape[1], causal)
    return products / products.sum(2, keepdim=True)


def global_rows(module: Any, hidden: Tensor, count: int, causal: bool) -> Tensor:
    """What Longformer's global tokens of one sequence get, hidden (L, D): (H, G, K)."""
    parts = (part(hidden) for part in (module.query, module.key, module.value))
    q, k, v = (x.unflatten(1, (HEADS, -1)).transpose(0, 1) for x in parts)
    return (
        masked_softmax(
            q[:, :count] @ k.mT / WIDTH**0.5, up_to(len(hidden), causal)[:count]
        )
        @ v
    )


class Parts(NamedTuple):
    """What one query sees."""

    direct: set[int]
    spans: list[set[int]]


def _fixed(i: int, tokens: int, size: int) -> Parts:
    blocks = [
        {j for j in range(tokens) if j // size == b} for b in range(-(-tokens // size))
    ]
    return Parts(
        blocks[i // size], [block for b, block in enumerate(blocks) if b != i // size]
    )


def _halves(i: int, tokens: int, size: int) -> Parts:
    spans = [
        {j for j in range(tokens) if j >> level == (i >> level) ^ 1}
        for level in range(1, 12)
    ]
    return Parts({i, i ^ 1} & set(range(tokens)), spans)


def _axial(vertical: bool, i: int, tokens: int, size: int) -> Parts:
    row, column = i // size, i % size
    own = {j for j in range(tokens) if j // size == row or j % size == column}
    rest = set(range(tokens)) - own
    if vertical:
        return Parts(own, [{j for j in rest if j % size == c} for c in range(size)])
    return Parts(own, [{j for j in rest if j // size == r} for r in range(tokens)])


SPANS: dict[str, Callable[[int, int, int], Parts]] = {  # of query, tokens and size
    "fixed": _fixed,
    "logsparse": _halves,
    "axial_vertical": partial(_axial, True),
    "axial_horizontal": partial(_axial, False),
    "axial_rowmajor": _fixed,
}


@cache
def parts(plan: str, tokens: int, size: int, causal: bool) -> list[Parts]:
    """What every query sees.

    Causal spans of axial-vertical are cut before the query's row; of the other plans' spans those that hold a
    later token are left out.
    """
    found = []
    for i in range(tokens):
        direct, spans = SPANS[plan](i, tokens, size)
        if causal:
            direct = {j for j in direct if j <= i}
            if plan == "axial_vertical":
                spans = [{j for j in span if j // size < i // size} for span in spans]
            else:
                spans = [span for span in spans if all(j <= i for j in span)]
        found.append(Parts(direct, [span for span in spans if span]))
    return found


def cluster_parts(clusters: list[int], size: int, causal: bool) -> list[Parts]:
    """Of routing: clusters, cut in the order of their tokens into chunks of `size`."""
    chunks = chunks_of(clusters, size)
    members = {
        chunk: {j for j, other in enumerate(chunks) if other == chunk}
        for chunk in chunks
    }
    found = []
    for i, own in enumerate(chunks):
        seen = set(range(i + 1 if causal else len(clusters)))
        spans = [tokens & seen for chunk, tokens in members.items() if chunk != own]
        found.append(Parts(members[own] & seen, [span for span in spans if span]))
    return found


def matrix_of_parts(
    q: Tensor,
    k: Tensor,
    of: list[Parts],
    largest: bool,
    features: tuple[Tensor, Tensor] | None = None,
    columns: int = 0,
) -> Tensor:
    """The effective matrix (L, L) of one head, q and k (L, K).

    `features` are DeepSets' weights of queries and keys. With `columns` the query of a span is that of its
    token in the own column, if there is one (rowmajor).
    """
    tokens, width = q.shape
    most = max(len(one.spans) for one in of)
    direct = torch.zeros(tokens, tokens, dtype=torch.bool)
    member = torch.zeros(tokens, most, tokens, dtype=torch.bool)
    for i, one in enumerate(of):
        direct[i, sorted(one.direct)] = True
        for r, span in enumerate(one.spans):
            member[i, r, sorted(span)] = True
    there = member.any(-1)

    def pooled(x: Tensor) -> Tensor:
        x = x.expand(tokens, most, tokens, width)
        if largest:
            return (
                x.masked_fill(~member[..., None], -torch.inf)
                .amax(2)
                .masked_fill(~there[..., None], 0)
            )
        return (x * member[..., None]).sum(2) / member.sum(-1, keepdim=True).clamp(
            min=1
        )

    of_q, of_k = q, k
    if features is not None:
        of_q, of_k = ((x @ w.T).relu() for x, w in zip((q, k), features, strict=True))
    span_q, span_k = pooled(of_q), pooled(of_k)
    if columns:
        for i, one in enumerate(of):
            for r, span in enumerate(one.spans):
                own = [j for j in span if j % columns == i % columns]
                if own:
                    span_q = span_q.index_put(
                        (torch.tensor(i), torch.tensor(r)), q[own[0]]
                    )

    def e(a: Tensor, b: Tensor) -> Tensor:
        return ((a * b).sum(-1) / width**0.5).exp()

    near = e(q[:, None], k) * direct
    far = e(q[:, None], span_k) * there
    total = near.sum(1) + far.sum(1)
    local = e(span_q[:, :, None], k) * member  # (L, R, L)
    local = local / local.sum(-1, keepdim=True).masked_fill(~there[..., None], 1)
    return near / total[:, None] + torch.einsum(
        "ir,irj->ij", far / total[:, None], local
    )


def combiner_matrix(
    plan: str, module: Any, of: Options, q: Tensor, k: Tensor, causal: bool
) -> Tensor:
    if plan == "mixture":
        both = zip((FIRST, SECOND), module.plans, strict=True)
        return (
            sum(combiner_matrix(name, part, of, q, k, causal) for name, part in both)
            / 2
        )  # type: ignore[return-value]
    size = of.get("span" if plan in ("fixed", "routing") else "columns", 0)
    if plan == "routing":
        heads = [
            cluster_parts(numbers, size, causal)
            for numbers in cluster_numbers(module, q, k)
        ]
    else:
        heads = [parts(plan, q.shape[1], size, causal)] * len(q)
    features = tuple(module.features) if module.learned else None
    columns = size if plan == "axial_rowmajor" else 0
    rows = zip(q, k, heads, strict=True)
    return torch.stack(
        [matrix_of_parts(*row, module.largest, features, columns) for row in rows]
    )


MATRICES: dict[str, Callable[[Any, Options, Tensor, Tensor, bool], Tensor]] = {
    **{name: partial(graph_matrix, name) for name in GRAPHS},
    "routing": routing_matrix,
    "performer": performer_matrix,
    "reformer": reformer_matrix,
    **{
        f"combiner_{plan}": partial(combiner_matrix, plan)
        for plan in (*SPANS, "routing", "mixture")
    },
}
"""By mechanism, the effective matrix (H, L, L) of one sequence, q and k (H, L, K)."""


def matrix(
    name: str, module: Any, options: Options, q: Tensor, k: Tensor, causal: bool
) -> Tensor:
    """The effective matrix (H, L, L) of a module that `small` has made with `options`."""
    return MATRICES[name](module, {**SMALL.get(name, {}), **options}, q, k, causal)


def expected(
    name: str,
    module: Any,
    options: Options,
    made: tuple[Tensor, ...],
    lengths: list[int],
    causal: bool,
) -> Tensor:
    """The output (B, H, L, K) by the definition; `made` are q, k, v (B, H, L, K) and the input (B, L, D)."""
    rows = []
    for row, length in enumerate(lengths):
        q, k, v = (x[row, :, :length] for x in made[:3])
        out = matrix(name, module, options, q, k, causal) @ v
        if name in LOCAL_ROWS:
            count = min({**SMALL[name], **options}["global_tokens"], length)
            if count:
                first = global_rows(module, made[3][row, :length], count, causal)
                out = torch.cat([first, out[:, count:]], 1)
        rows.append(nn.functional.pad(out, (0, 0, 0, made[0].shape[2] - length)))
    return torch.stack(rows)


# Random attention problems, and what a route makes of them


Made = tuple[
    Tensor, Tensor, Tensor, Tensor
]  # q, k, v, and the gradient of a loss by the output
VARIANTS = ("plain", "causal", "extra", "huggingface")


def inputs(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Made:
    """q, k, v that want gradients, and the gradient of a loss with respect to the output."""
    generator = torch.Generator().manual_seed(seed)
    made = [
        torch.randn(*shape, generator=generator, dtype=torch.float64) for _ in range(4)
    ]
    q, k, v, upper = (x.to(dtype) for x in made)
    return q.requires_grad_(), k.requires_grad_(), v.requires_grad_(), upper


def vectors(*shape: int, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """Queries, keys and values without gradients."""
    return [x.detach() for x in inputs(*shape, dtype=dtype)[:3]]


def value_and_gradients(
    attend: Callable[[Tensor, Tensor, Tensor], Tensor], made: Made
) -> list[Tensor]:
    q, k, v, upper = made
    out = attend(q, k, v)
    return [out.detach(), *torch.autograd.grad(out, (q, k, v), upper)]


def results(route: Callable[[Call], Tensor], made: Made, *rest: Any) -> list[Tensor]:
    """`value_and_gradients` of a call's route; `rest` are the arguments of `Call` from the pattern on."""
    return value_and_gradients(lambda q, k, v: route(Call(q, k, v, *rest)), made)


@st.composite
def patterns(
    draw: st.DrawFn,
    block_sizes: st.SearchStrategy[int],
    variants: tuple[str, ...] = VARIANTS,
) -> Pattern:
    """Patterns of all kinds of blocks; "extra" has up to 20 tokens in front."""
    variant = draw(st.sampled_from(variants))
    size, seed = draw(block_sizes), draw(st.integers(0, 2**40))
    if variant == "huggingface":
        return Pattern(size, 2, 3, draw(st.integers(0, 3)), seed, huggingface=True)
    counts = st.tuples(
        st.integers(0, 5), st.sampled_from([0, 1, 3, 5]), st.integers(0, 4)
    )
    extra = draw(st.integers(1, 20)) if variant == "extra" else 0
    return Pattern(
        size,
        *draw(counts.filter(any)),
        seed,
        causal=variant == "causal",
        num_global_tokens=extra,
    )


class Problem(NamedTuple):
    """A pattern, the shape (B, H, L, K) of queries, true lengths, and the layer."""

    pattern: Pattern
    shape: tuple[int, int, int, int]
    lengths: tuple[int, ...]
    layer: int


@st.composite
def problems(
    draw: st.DrawFn,
    block_sizes: st.SearchStrategy[int],
    variants: tuple[str, ...] = VARIANTS,
    *,
    most: int,
    widths: tuple[int, ...] = (1, 4, 5),
    one_graph: bool = False,
) -> Problem:
    """Problems of up to `most` tokens, whose rows have one graph or mostly different ones."""
    pattern = draw(patterns(block_sizes, variants))
    least = 1 + pattern.num_global_tokens
    tokens = draw(st.integers(least, most))
    longest = draw(st.integers(least, tokens))
    graph = pattern.graph_blocks(longest, tokens)
    others = [
        n
        for n in range(least, longest + 1)
        if not one_graph or pattern.graph_blocks(n, tokens) == graph
    ]
    lengths = (*draw(st.lists(st.sampled_from(others), max_size=2)), longest)
    shape = (
        len(lengths),
        draw(st.integers(1, 3)),
        tokens,
        draw(st.sampled_from(widths)),
    )
    return Problem(pattern, shape, lengths, draw(st.integers(0, 4)))
