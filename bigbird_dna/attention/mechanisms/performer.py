"""Performer: softmax attention by random features, linear in the length (FAVOR+).

Choromanski et al. 2021, arXiv 2009.14794. With x = K^(-1/4) q or K^(-1/4) k and F random directions ω,

    φ(x) = exp(ω x - |x|² / 2) / √F,      E φ(q) · φ(k) = exp(q · k / √K)
    A_ij = φ(q_i) · φ(k_j) / Σ_l φ(q_i) · φ(k_l)

so rows sum to 1, every entry is positive, and (φ(Q) (φ(K)ᵀ V)) never makes A. The directions are orthogonal
in groups of K, have lengths of normal random vectors (their section 2.4), and differ between heads.

A stabilizer, which cancels in A, is subtracted from exponents. Without causality it is the largest exponent
of a feature over all keys. Causal attention uses each key's largest exponent μ_j, and for a query the largest
μ_j up to it. A token's result thus does not depend on later tokens, unlike with one stabilizer per sequence.
No ε is added, so A equals the formula above; a zero denominator becomes the smallest normal number.

Axes: B batch, H heads, L tokens, K head width, F features, N chunks, C tokens of a chunk. Time is L K F.
"""

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import pad

from bigbird_dna.attention.mechanism import AttentionLayer, Redrawn, triangle
from bigbird_dna.config.mechanisms import LayerShape, Mechanism
from bigbird_dna.config.section import Section

CHUNK = 128
"""Tokens whose sums over earlier tokens are computed together; causal only."""


class Directions(Redrawn):
    """ω (H, F, K): orthogonal in groups of K, with the lengths of normal random vectors."""

    def draw(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        heads, features, width = shape
        size = heads, -(-features // width), width, width
        square, others = (
            torch.randn(size, generator=generator, device="cpu").double()
            for _ in range(2)
        )
        orthogonal, triangular = torch.linalg.qr(square)
        signs = triangular.diagonal(dim1=-2, dim2=-1).sign()
        orthogonal = orthogonal * signs[..., None, :]  # uniformly distributed
        directions: Tensor = orthogonal.mT * others.norm(dim=-1, keepdim=True)
        return directions.flatten(1, 2)[:, :features].float()


class PerformerOptions(Section):
    """Options of the random features."""

    features: int = Field(
        default=256, ge=1, description="number of random features per head"
    )
    redraw: int = Field(
        default=1000,
        ge=0,
        description="training passes between redraws; 0: never redraw",
    )
    seed: int = Field(default=0, ge=0, description="seed of the random features")


class Performer(AttentionLayer):
    """FAVOR+; its error decreases with the root of the number of features. Dropout has no effect."""

    def __init__(self, shape: LayerShape, options: PerformerOptions) -> None:
        super().__init__(shape, options)
        drawn = (shape.heads, options.features, shape.width)
        self.directions = Directions(drawn, options.seed, shape.layer, options.redraw)

    def compute(
        self, q: Tensor, k: Tensor, v: Tensor, present: Tensor, dropout: float
    ) -> Tensor:
        """Attention by the current features; `dropout` is ignored because no weights are computed."""
        wide = torch.promote_types(v.dtype, torch.float32)
        directions = self.directions.drawn.to(wide)
        # Autocast would compute every product in half precision, making exponentials inaccurate or infinite.
        with torch.autocast(q.device.type, enabled=False):
            if self.shape.causal:
                out = prefix_attention(q.to(wide), k.to(wide), v.to(wide), directions)
                return out.to(v.dtype)

            a = exponents(q.to(wide), directions)
            b = exponents(k.to(wide), directions)
            b = b.masked_fill(~present[..., None], torch.finfo(wide).min)
            largest = b.detach().amax(2, keepdim=True)  # (B, H, 1, F)
            # (B, H, F, K + 1): the denominator is the last component
            sums = (b - largest).exp().mT @ pad(v.to(wide), (0, 1), value=1)
            a = a + largest
            out = (a - a.detach().amax(-1, keepdim=True)).exp() @ sums
            # Each query has a feature with exponent 0, as does some key, so no denominator is below 1.
            return (out[..., :-1] / out[..., -1:]).to(v.dtype)


def exponents(x: Tensor, directions: Tensor) -> Tensor:
    """ω x - |x|² / 2 of queries or keys (B, H, L, K), given unscaled, (B, H, L, F)."""
    x = x * x.shape[3] ** -0.25
    return x @ directions.mT - x.square().sum(-1, keepdim=True) / 2


def prefix_attention(q: Tensor, k: Tensor, v: Tensor, directions: Tensor) -> Tensor:
    """Attention to the keys up to each query: (B, H, L, K); `directions` (H, F, K). Only padding attends to padding."""
    a = exponents(q, directions)
    b = exponents(k, directions)
    peaks = b.detach().amax(-1)  # μ (B, H, L)
    largest = peaks.cummax(2).values
    keys = (b - peaks[..., None]).exp()
    queries = (a - a.detach().amax(-1, keepdim=True)).exp()

    # (B, H, L, K + 1): the denominator is the last component
    counted = pad(v, (0, 1), value=1)

    later = ~triangle(CHUNK, v)
    outs = []
    # The sum over earlier chunks, (B, H, F, K + 1), and its stabilizer.
    total = keys[:, :, :0].mT @ counted[:, :, :0]
    end = largest[..., :1]

    for first in range(0, v.shape[2], CHUNK):
        chunk = slice(first, first + CHUNK)
        query, key, value = (x[:, :, chunk] for x in (queries, keys, counted))
        peak = peaks[:, :, chunk]
        most = largest[:, :, chunk]
        size = peak.shape[2]
        last = most[..., -1:]
        scale = peak[..., None, :] - most[..., None]
        scale = scale.masked_fill(later[:size, :size], -torch.inf).exp()
        earlier = (query @ total) * (end - most).exp()[..., None]
        outs.append(((query @ key.mT) * scale) @ value + earlier)
        sums = key.mT @ (value * (peak - last).exp()[..., None])
        total = total * (end - last).exp()[..., None] + sums
        end = last

    out = torch.cat(outs, 2)
    return out[..., :-1] / out[..., -1:].clamp(min=torch.finfo(out.dtype).tiny)


MECHANISMS = (
    Mechanism(
        "performer", PerformerOptions, Performer, "L · (K + features)", drops=False
    ),
)
