"""`bigbird-dna benchmark attention`: attention alone, on random queries, keys and values.

Shapes: B batch, H heads, L tokens, K head width.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bigbird_dna.benchmarks import counts
from bigbird_dna.benchmarks.contenders import ALL_CONTENDERS, Contender, make_contender
from bigbird_dna.benchmarks.measure import Call, Outputs, matrix_product, product_size
from bigbird_dna.benchmarks.settings import AttentionSettings, Case, from_json
from bigbird_dna.errors import UsageError

PROBE_BLOCKS = 16  # more than HuggingFace needs for its sparse attention


class Inputs(NamedTuple):
    """Queries, keys, values, and the gradient of the output if there is one, (B, H, L, K) each."""

    q: Tensor
    k: Tensor
    v: Tensor
    grad: Tensor | None


class AttentionBenchmark:
    """Contenders, inputs and counts of attention alone; see `alone.Benchmark`."""

    name = "attention"

    def __init__(self, settings: AttentionSettings) -> None:
        for contender in settings.contenders:
            if contender not in ALL_CONTENDERS:
                raise UsageError(
                    f"--contenders: {contender!r} is none of {', '.join(ALL_CONTENDERS)}"
                )
        self.settings = settings
        self.device = torch.device(settings.device)
        self.dtype: torch.dtype = getattr(torch, settings.dtype)
        self.contenders: dict[str, Contender] = {
            name: make_contender(name, settings, self.device) for name in settings.contenders
        }
        self._latest: tuple[Any, Inputs] | None = None

    def unavailable(self, case: Case) -> str | None:
        return self.contenders[case.contender].unavailable(case)

    def route(self, case: Case) -> str | None:
        return self.contenders[case.contender].route(case)

    def order(self, case: Case) -> int:
        return self.contenders[case.contender].order

    def least_bytes(self, case: Case) -> int:
        pairs = self.settings.batch * self.settings.heads * case.length**2
        return int(pairs * self.contenders[case.contender].bytes_a_pair(case))

    def probe(self, case: Case) -> Case:
        return case._replace(length=min(case.length, PROBE_BLOCKS * self.settings.block_size))

    def inputs(self, case: Case) -> Inputs:
        """The same numbers for every contender."""
        of = self.settings
        key = (case.length, case.trains)
        if self._latest is None or self._latest[0] != key:
            self._latest = None  # the former ones go first
            generator = torch.Generator(self.device).manual_seed(of.seed)
            shape = (of.batch, of.heads, case.length, of.width)
            q, k, v, grad = (
                torch.randn(shape, generator=generator, device=self.device, dtype=self.dtype)
                for _ in range(4)
            )
            for x in (q, k, v):
                x.requires_grad_(case.trains)
            self._latest = (key, Inputs(q, k, v, grad if case.trains else None))
        return self._latest[1]

    def prepare(self, case: Case, inputs: Inputs) -> Call:
        q, k, v, grad = inputs
        attend = self.contenders[case.contender].prepare(case)

        def forward() -> Outputs:
            with torch.no_grad():
                return (attend(q, k, v),)

        def both() -> Outputs:
            return torch.autograd.grad(attend(q, k, v), (q, k, v), grad)

        return both if case.trains else forward

    def operations(self, case: Case) -> int:
        pairs = self.settings.batch * self._pairs(case.contender, case.length)
        return counts.attention_operations(pairs, self.settings.width, trains=case.trains)

    def product(self, case: Case) -> tuple[Call, int, dict[str, Any]]:
        size = _product_size(self.dtype, self.device)
        call = matrix_product(size, size, size, self.dtype, self.device)
        return call, 2 * size**3, {"shape": [size, size, size], "dtype": self.settings.dtype}

    def difference(self, case: Case, outputs: Outputs, kept: dict[str, Outputs]) -> float | None:
        """Of the output, or of the gradients, to the first contender that computes the same graph."""
        graph = self.contenders[case.contender].graph
        if graph is None:
            return None
        if graph not in kept:
            kept[graph] = outputs
            return None
        return relative_difference(outputs, kept[graph])

    def _pairs(self, contender: str, length: int) -> int:
        return self.contenders[contender].pairs(length)


def relative_difference(outputs: Outputs, expected: Outputs) -> float:
    """Largest difference over the largest magnitude, the worst of all tensors."""
    worst = 0.0
    for ours, theirs in zip(outputs, expected, strict=True):
        largest = theirs.abs().max().item()
        worst = max(worst, (ours.float() - theirs.float()).abs().max().item() / (largest or 1.0))
    return worst


def from_settings(values: dict[str, Any]) -> AttentionBenchmark:
    """The benchmark with settings as JSON holds them."""
    return AttentionBenchmark(from_json(AttentionSettings, values))


_product_size: Callable[[torch.dtype, torch.device], int] = lru_cache(product_size)
