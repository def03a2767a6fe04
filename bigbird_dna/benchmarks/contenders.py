"""Those who compute attention: our routes, torch's fused attention, HuggingFace's block-sparse one.

Shapes: B batch, H heads, L tokens, K head width.
"""

import importlib
import importlib.util
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from bigbird_dna.attention import (
    Choice,
    Pattern,
    Route,
    RouteWarning,
    bigbird_attention,
    choose_route,
)
from bigbird_dna.benchmarks import counts
from bigbird_dna.benchmarks.settings import AttentionSettings, Case

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]

INSTALL_PEERS = "not installed; pip install 'bigbird-dna[hf]'"
LONGEST_DENSE = 2048  # tokens: the oracle is for tests
LONGEST_MASK = 8192  # tokens: a mask of 12 heads takes 0.8 GB there, and four times that as numbers


class Contender(ABC):
    """One way to compute attention."""

    name: str
    graph: str | None = None  # contenders of the same graph must agree
    order = 1  # the power of the length with which time grows

    def __init__(self, settings: AttentionSettings, device: torch.device) -> None:
        self.settings = settings
        self.device = device
        self.dtype = getattr(torch, settings.dtype)

    def unavailable(self, case: Case) -> str | None:
        """Why it doesn't take part; none if it does."""
        return None

    def bytes_a_pair(self, case: Case) -> float:
        """Bytes it is sure to need for each pair of tokens of a head."""
        return 0

    def route(self, case: Case) -> str | None:
        """Which of our routes computes a case; none if it isn't one of ours."""
        return None

    @abstractmethod
    def prepare(self, case: Case) -> Attend:
        """The function q, k, v (B, H, L, K) → (B, H, L, K), masks and modules made."""

    @abstractmethod
    def pairs(self, length: int) -> int:
        """Pairs of query and key over the heads of one sequence that its result needs."""


class RouteContender(Contender):
    """One of our routes."""

    graph = "pattern"

    def __init__(self, settings: AttentionSettings, device: torch.device, route: Route) -> None:
        super().__init__(settings, device)
        self.name = self.asked = route
        self.order = 2 if route == "dense" else 1
        self.pattern = pattern_of(settings)

    def unavailable(self, case: Case) -> str | None:
        if self.asked == "dense" and case.length > LONGEST_DENSE:
            return f"the oracle, above {LONGEST_DENSE:,} tokens"
        choice = self._choice(case)
        if self.asked in ("auto", choice.route):
            return None
        return choice.reason.removeprefix(f"{self.asked}: ")

    def route(self, case: Case) -> str | None:
        return self._choice(case).route

    def _choice(self, case: Case) -> Choice:
        of = self.settings
        q = torch.empty(
            of.batch, of.heads, case.length, of.width, dtype=self.dtype, device=self.device
        )
        return route_for(q, self.pattern, self.asked, case)

    def bytes_a_pair(self, case: Case) -> float:
        return 12.0 if self.asked == "dense" else 0

    def prepare(self, case: Case) -> Attend:
        checked = False

        def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            nonlocal checked
            if checked:
                return bigbird_attention(q, k, v, self.pattern, route=self.asked)
            with warnings.catch_warnings():
                # A route that steps aside says so in a warning: the time would be another one's.
                warnings.simplefilter("error", RouteWarning)
                out = bigbird_attention(q, k, v, self.pattern, route=self.asked)
            checked = True
            return out

        return attend

    def pairs(self, length: int) -> int:
        return counts.sparse_pairs(self.pattern, length, self.settings.heads)


class FullSdpa(Contender):
    """torch's fused full attention; on a GPU FlashAttention in types that it knows."""

    name, graph, order = "sdpa", "full", 2

    def prepare(self, case: Case) -> Attend:
        flash = self.device.type == "cuda" and self.dtype != torch.float32

        def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            with sdpa_kernel(SDPBackend.FLASH_ATTENTION) if flash else nullcontext():
                return scaled_dot_product_attention(q, k, v)

        return attend

    def pairs(self, length: int) -> int:
        return counts.full_pairs(length, self.settings.heads)


class MaskedSdpa(Contender):
    """torch's fused attention under the pattern's boolean mask, which is made beforehand."""

    name, graph, order = "sdpa-mask", "pattern", 2

    def unavailable(self, case: Case) -> str | None:
        if case.length > LONGEST_MASK:
            return f"its mask is quadratic: not above {LONGEST_MASK:,} tokens"
        return None

    def bytes_a_pair(self, case: Case) -> float:
        return 1 + torch.finfo(self.dtype).bits / 8  # the mask, and the same as numbers

    def prepare(self, case: Case) -> Attend:
        seen = pattern_of(self.settings).mask(case.length, self.settings.heads)
        mask = torch.from_numpy(seen)[None].to(self.device)
        return lambda q, k, v: scaled_dot_product_attention(q, k, v, attn_mask=mask)

    def pairs(self, length: int) -> int:
        return counts.sparse_pairs(pattern_of(self.settings), length, self.settings.heads)


class HuggingFace(Contender):
    """The core of HuggingFace's `BigBirdBlockSparseAttention` as shipped, projections left out.

    Called as its own forward pass does: in evaluation mode, or, with gradients, in training mode, where it
    draws its random blocks anew in every call. Its dense matrix of probabilities, which nobody reads, is part
    of it.
    """

    name, order = "huggingface", 2

    def unavailable(self, case: Case) -> str | None:
        return huggingface_unavailable(self.settings, case)

    def bytes_a_pair(self, case: Case) -> float:
        return torch.finfo(self.dtype).bits / 8  # its dense probabilities

    def prepare(self, case: Case) -> Attend:
        # By name, because it may not be installed and has few types.
        peer = importlib.import_module("transformers.models.big_bird.modeling_big_bird")
        of = self.settings
        config = peer.BigBirdConfig(
            hidden_size=of.heads * of.width,
            num_attention_heads=of.heads,
            block_size=of.block_size,
            num_random_blocks=of.random_blocks,
            max_position_embeddings=max(case.length, 4096),
        )
        module = peer.BigBirdBlockSparseAttention(config, seed=0).train(case.trains)
        present = torch.ones(of.batch, case.length, device=self.device)
        blocked, *masks = peer.BigBirdModel.create_masks_for_block_sparse_attn(
            present, of.block_size
        )
        band, from_, to = (mask.to(self.dtype) for mask in masks)  # as its BigBirdAttention does

        def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            out, _ = module.bigbird_block_sparse_attention(
                q,
                k,
                v,
                band,
                from_,
                to,
                blocked,
                blocked,
                of.heads,
                of.random_blocks,
                of.width,
                of.block_size,
                of.block_size,
                of.batch,
                case.length,
                case.length,
                seed=module.seed,
                plan_from_length=None,
                plan_num_rand_blocks=None,
            )
            context: Tensor = out.transpose(1, 2)  # (B, L, H, K) → (B, H, L, K)
            return context

        return attend

    def pairs(self, length: int) -> int:
        of = self.settings
        return counts.huggingface_pairs(length, of.heads, of.block_size, of.random_blocks)


CONTENDERS = ("native", "blocked", "flex", "dense", "sdpa", "sdpa-mask", "huggingface")
ALL_CONTENDERS = (*CONTENDERS, "auto")
_OTHERS: dict[str, type[Contender]] = {
    kind.name: kind for kind in (FullSdpa, MaskedSdpa, HuggingFace)
}


def make_contender(name: str, settings: AttentionSettings, device: torch.device) -> Contender:
    """The contender `name` (of `ALL_CONTENDERS`)."""
    if name in _OTHERS:
        return _OTHERS[name](settings, device)
    return RouteContender(settings, device, name)  # type: ignore[arg-type]


def pattern_of(settings: AttentionSettings) -> Pattern:
    """The pattern that all sparse contenders but HuggingFace's compute."""
    return Pattern(
        block_size=settings.block_size,
        global_blocks=settings.global_blocks,
        window_blocks=settings.window_blocks,
        random_blocks=settings.random_blocks,
        seed=settings.seed,
    )


def route_for(q: Tensor, pattern: Pattern, route: Route, case: Case) -> Choice:
    """The route that serves a case where `route` was asked for, q (B, H, L, K) standing for its inputs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RouteWarning)
        return choose_route(q, pattern, case.length, gradients=case.trains, route=route)


def huggingface_unavailable(settings: Any, case: Case) -> str | None:
    """Why HuggingFace's BigBird can't do a case with block-sparse attention; none if it can."""
    if importlib.util.find_spec("transformers") is None:
        return INSTALL_PEERS
    if (settings.global_blocks, settings.window_blocks) != (2, 3) or not settings.random_blocks:
        return "has 2 global, 3 window and at least 1 random block only"
    if case.length % settings.block_size:
        return f"needs a multiple of {settings.block_size} tokens"
    least = (5 + 2 * settings.random_blocks) * settings.block_size
    if case.length <= least:
        return f"takes full attention up to {least:,} tokens"
    return None
