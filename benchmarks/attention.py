"""`bigbird-dna benchmark attention`: attention alone, on random queries, keys and values.

Contenders are our routes, torch's fused attention, HuggingFace's block-sparse one, the mechanisms that go by
no block pattern, under their names, and a gated long convolution in place of attention. Shapes: B batch, H
heads, L tokens, K head width, D channels (H K).
"""

import importlib
import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from benchmarks.contenders import (
    Benchmark,
    Call,
    Case,
    Contender,
    Outputs,
    relative_difference,
)
from benchmarks.counts import BACKWARD, attention_bytes, convolution_operations
from benchmarks.formulas import sizes_at, stated_exponent
from benchmarks.options import AttentionOptions
from bigbird_dna.attention import Route, bigbird_attention
from bigbird_dna.config import LayerShape, find_mechanism, known_mechanisms

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]


class AttentionBenchmark(Benchmark):
    """Attention in one pass over (B, H, L, K)."""

    options: AttentionOptions
    known: ClassVar = {
        "native": Contender("pattern", 1, routed=True),
        "blocked": Contender("pattern", 1, routed=True),
        "flex": Contender("pattern", 1, routed=True),
        # The oracle, for tests; a mask of 12 heads takes 0.8 GB at its longest, four times that as numbers.
        "dense": Contender("pattern", 2, 2, longest=2048, routed=True),
        "sdpa": Contender("full", 2),
        "sdpa-mask": Contender("pattern", 2, 2, longest=8192),
        "huggingface": Contender("huggingface", 2, 2),
        "auto": Contender("pattern", 1, routed=True),
        "convolution": Contender("own", 1),
        **{name: Contender("own", 2) for name in known_mechanisms()},
    }
    passes = ("forward", "training")

    def dtype(self, case: Case) -> torch.dtype:
        return getattr(torch, self.options.dtype)  # type: ignore[no-any-return]

    def asked(self, case: Case) -> Route:
        return cast(Route, case.contender)

    def inputs(self, case: Case) -> list[Tensor]:
        """Queries, keys, values, and the gradient of the output, (B, H, L, K) each."""
        return _random_inputs(self.options, case.length, self.dtype(case))

    def prepare(self, case: Case, inputs: list[Tensor]) -> Call:
        attend, (q, k, v, grad) = self.attend(case), inputs

        def forward() -> Outputs:
            with torch.no_grad():
                return (attend(q, k, v),)

        if not case.trains:
            return forward
        leaves = [x.detach().requires_grad_() for x in (q, k, v)]
        # Mechanisms whose keys are the queries make no use of keys.
        unused: dict[str, Any] = {"allow_unused": True, "materialize_grads": True}
        return lambda: torch.autograd.grad(attend(*leaves), leaves, grad, **unused)

    def attend(self, case: Case) -> Attend:
        """A contender's function q, k, v (B, H, L, K) → (B, H, L, K), masks and modules made."""
        pattern = self.options.pattern
        if case.contender == "huggingface":
            return _huggingface(self.options, case, self.dtype(case))
        if case.contender == "convolution":
            channels = self.options.heads * self.options.width
            module = (
                GatedConvolution(channels, self.options.seed).to(self.device).eval()
            )
            return lambda q, k, v: module(q, k, v)
        if self.known[case.contender].graph == "own":
            return _mechanism(self.options, case, self.dtype(case))
        if case.contender == "sdpa":
            return lambda q, k, v: scaled_dot_product_attention(q, k, v)
        if case.contender == "sdpa-mask":
            seen = pattern.mask(case.length, self.options.heads)
            mask = torch.from_numpy(seen)[None].to(self.device)
            return lambda q, k, v: scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return lambda q, k, v: bigbird_attention(
            q, k, v, pattern, route=self.asked(case)
        )

    def operations(self, case: Case) -> int:
        of = self.options
        if case.contender == "convolution":
            forward = of.batch * convolution_operations(
                case.length, of.heads * of.width
            )
        else:
            forward = 4 * of.width * self.pairs(case)
        return forward * (1 + BACKWARD * case.trains)

    def bytes(self, case: Case) -> int:
        of = self.options
        numbers = of.batch * of.heads * case.length * of.width
        return attention_bytes(numbers, case.trains, self.dtype(case).itemsize)

    def stated(self, contender: str, lengths: Sequence[int]) -> float | None:
        """Of a mechanism by its formula, with the sizes that it is measured with; of others their order."""
        kind = self.known[contender]
        if kind.graph == "own" and contender in known_mechanisms():
            return stated_exponent(
                find_mechanism(contender), self.options.width, lengths
            )
        return float(kind.order)

    def difference(
        self, case: Case, outputs: Outputs, kept: dict[str, Outputs]
    ) -> float | None:
        """Of the output, or of the gradients, to the first contender that computes the same graph."""
        if self.known[case.contender].graph == "own":
            return None
        first = kept.setdefault(self.known[case.contender].graph, outputs)
        return None if first is outputs else relative_difference(outputs, first)


class GatedConvolution(nn.Module):
    """A gated long convolution as in HyenaDNA's layers, with random weights; not the released model.

    As in Poli et al. 2023, arXiv 2302.10866, of order 2, projections and their short convolutions left out:
    q ⊙ (h ∗ (k ⊙ v) + b ⊙ k ⊙ v), causal, with filters h (D, L) as long as the input. A small network makes
    them from the position in every call, with HyenaDNA's sizes: five features, two inner layers of 64 with
    sines, and an exponential decay by channel. Fourier transforms of twice the length convolve in float32.
    """

    def __init__(self, channels: int, seed: int = 0) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.layers = nn.ModuleList(
                [nn.Linear(5, 64), nn.Linear(64, 64), nn.Linear(64, 64)]
            )
            self.last = nn.Linear(64, channels, bias=False)
            self.bias = nn.Parameter(torch.randn(channels))
        slow, fast = (
            math.log(100) / 1.5,
            math.log(100) / 0.3,
        )  # one hundredth is left after 1.5 and 0.3 L
        self.register_buffer("decay", torch.linspace(slow, fast, channels))

    def filters(self, tokens: int) -> Tensor:
        """The filters (D, L)."""
        place = torch.linspace(0, 1, tokens, device=self.bias.device)[:, None]
        turn = (
            2
            * math.pi
            * torch.arange(tokens, device=self.bias.device)[:, None]
            / tokens
        )
        bands = turn * torch.linspace(1e-4, 1, 2, device=self.bias.device)
        found = torch.cat([place, bands.cos(), -bands.sin()], dim=1)
        for layer in self.layers:
            found = layer(found).sin()
        filters: Tensor = self.last(found) * torch.exp(
            -place * self.get_buffer("decay")
        )
        return filters.T

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """(B, H, L, K) each → (B, H, L, K)."""
        batch, heads, tokens, width = q.shape
        gate, keys, values = (
            x.transpose(2, 3).reshape(batch, -1, tokens).float() for x in (q, k, v)
        )
        signal = keys * values  # (B, D, L)
        spectrum = torch.fft.rfft(self.filters(tokens), 2 * tokens) * torch.fft.rfft(
            signal, 2 * tokens
        )
        convolved = torch.fft.irfft(spectrum, 2 * tokens)[..., :tokens]
        out: Tensor = gate * (convolved + self.bias[:, None] * signal)
        return out.view(batch, heads, width, tokens).transpose(2, 3).to(q.dtype)


@lru_cache(maxsize=1)  # all contenders of a case share them
def _random_inputs(
    options: AttentionOptions, length: int, dtype: torch.dtype
) -> list[Tensor]:
    generator = torch.Generator(options.device).manual_seed(options.seed)
    shape = (options.batch, options.heads, length, options.width)
    draw: dict[str, Any] = {
        "generator": generator,
        "device": options.device,
        "dtype": dtype,
    }
    return [torch.randn(shape, **draw) for _ in range(4)]


def _mechanism(of: AttentionOptions, case: Case, dtype: torch.dtype) -> Attend:
    """A mechanism with fresh weights, its spans, columns and clusters √L each, in evaluation mode."""
    mechanism = find_mechanism(case.contender)
    shape = LayerShape(of.heads, of.width)
    module = (
        mechanism.make(shape, sizes_at(mechanism, case.length))
        .to(of.device, dtype)
        .eval()
    )
    hidden = torch.zeros(
        of.batch, case.length, shape.hidden, dtype=dtype, device=of.device
    )
    return lambda q, k, v: module(q, k, v, lengths=None, dropout=0.0, hidden=hidden)


def _huggingface(of: AttentionOptions, case: Case, dtype: torch.dtype) -> Attend:
    """The core of HuggingFace's `BigBirdBlockSparseAttention` as shipped, projections left out.

    Called as its own forward pass does: in evaluation mode, or, with gradients, in training mode, where it
    draws its random blocks anew in every call. Its dense matrix of probabilities, which nobody reads, is part
    of it.
    """
    # By name, because it may not be installed and has few types.
    peer = importlib.import_module("transformers.models.big_bird.modeling_big_bird")
    config = peer.BigBirdConfig(
        hidden_size=of.heads * of.width,
        num_attention_heads=of.heads,
        block_size=of.block_size,
        num_random_blocks=of.random_blocks,
        max_position_embeddings=max(case.length, 4096),
    )
    module = peer.BigBirdBlockSparseAttention(config, seed=0).train(case.trains)
    present = torch.ones(of.batch, case.length, device=of.device)
    blocked, *masks = peer.BigBirdModel.create_masks_for_block_sparse_attn(
        present, of.block_size
    )
    masks = [mask.to(dtype) for mask in masks]  # as its BigBirdAttention does
    sizes = (
        of.heads,
        of.random_blocks,
        of.width,
        of.block_size,
        of.block_size,
        of.batch,
    )
    lengths = (case.length, case.length)
    plan: dict[str, Any] = {"plan_from_length": None, "plan_num_rand_blocks": None}

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out, _ = module.bigbird_block_sparse_attention(
            q,
            k,
            v,
            *masks,
            blocked,
            blocked,
            *sizes,
            *lengths,
            seed=module.seed,
            **plan,
        )
        return out.transpose(1, 2)  # type: ignore[no-any-return] # (B, L, H, K) → (B, H, L, K)

    return attend
