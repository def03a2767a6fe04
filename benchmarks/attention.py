"""`bigbird-dna benchmark attention`: attention, and encoders with the same weights.

Shapes: B batch, H heads, L tokens, K head dimension, V vocabulary.
"""

import math
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

from benchmarks.timing import Call, Row, compare
from bigbird_dna import ATTENTIONS, bigbird_attention
from bigbird_dna.attention import Pattern, Route, RouteWarning
from bigbird_dna.config.mechanisms import LayerShape, find_mechanism
from bigbird_dna.config.network import EncoderConfig
from bigbird_dna.config.training import OptimizerConfig
from bigbird_dna.errors import UsageError
from bigbird_dna.huggingface.configuration import huggingface_config
from bigbird_dna.huggingface.exchange import ARCHITECTURES, TIED, huggingface_name
from bigbird_dna.model.heads import PretrainingNetwork
from bigbird_dna.training.loop import make_optimizer

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]

BACKENDS = ("native", "blocked", "flex", "dense", "auto")
PEERS = ("sdpa", "huggingface")
PATTERN = Pattern(block_size=64, global_blocks=2, window_blocks=3, random_blocks=3)
HEADS, HEAD_DIM = 12, 64
VOCABULARY = 4096
MASKED = 0.15  # fraction of the tokens that a training step predicts
FIRST_ORDINARY_ID = 5
# Of attention with the same pattern: relative to the largest absolute value.
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 5e-2}


def run(
    *,
    lengths: Sequence[int] = (512, 4096),
    implementations: Sequence[str] = ("native", "flex", "sdpa", "huggingface"),
    layers: int = 4,
    dtype: str = "float32",
    device: str = "cpu",
    repeats: int = 5,
) -> list[Row]:
    """Time attention and, with `layers` above 0, encoders: forward, and a training step."""
    # A backend that steps aside for another one is a row with a note.
    warnings.simplefilter("error", RouteWarning)
    networks: dict[str, nn.Module] = {}
    if layers > 0:
        peer = "huggingface" in implementations
        networks = make_encoders(max(lengths), layers, peer=peer)
    rows: list[Row] = []
    timing: dict[str, Any] = {"unit": "tokens", "device": device}
    for training in (False, True):
        kind = "forward and backward" if training else "forward"
        for length in sorted(lengths):
            timing["amount"] = length
            generator = torch.Generator(device).manual_seed(0)
            shape = (4, 1, HEADS, length, HEAD_DIM)
            inputs = torch.randn(shape, generator=generator, device=device)
            q, k, v, grad = inputs.to(getattr(torch, dtype)).unbind()
            calls = {
                name: attention_call(name, q, k, v, grad if training else None)
                for name in implementations
            }
            if not training:
                check_agreement(calls, q.dtype)
            work = f"attention, {kind}, {length:,} tokens"
            rows += compare(work, calls, repeats, **timing)

            ids, labels = masked_tokens(length)
            calls = {
                name: encoder_call(
                    network.to(device).train(training),
                    ids.to(device),
                    labels.to(device),
                    dtype,
                )
                for name, network in networks.items()
            }
            kind_of_step = "training step" if training else "inference"
            work = f"encoder, {kind_of_step}, {length:,} tokens"
            rows += compare(work, calls, repeats, **timing)
    return rows


# Attention.


def attention_call(name: str, q: Tensor, k: Tensor, v: Tensor, grad: Any) -> Call:
    """A call of an implementation by name, and of its backward pass if there is a gradient of the output."""
    attend = attention_by_name(name, q, training=grad is not None)
    if grad is None:

        def forward() -> Tensor:
            with torch.no_grad():
                return attend(q, k, v)

        return forward
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]
    # Mechanisms whose keys are the queries make no use of k.
    return lambda: torch.autograd.grad(
        attend(*leaves), leaves, grad, allow_unused=True, materialize_grads=True
    )


def attention_by_name(name: str, q: Tensor, training: bool) -> Attend:
    """The function (q, k, v) → output, all (B, H, L, K), with its masks or modules made for inputs like `q`."""
    _, heads, length, dim = q.shape
    if name in BACKENDS:
        route = cast(Route, name)
        return lambda q, k, v: bigbird_attention(q, k, v, PATTERN, route=route)
    if name == "sdpa":
        return lambda q, k, v: scaled_dot_product_attention(q, k, v)
    if name == "huggingface":
        return huggingface_attention(q, training)
    if name not in ATTENTIONS:
        known = ", ".join((*BACKENDS, *PEERS, *ATTENTIONS))
        raise UsageError(f"--implementations: {name!r} is not one of {known}")

    # A mechanism without a block pattern: spans, columns and clusters of √L tokens, random weights.
    mechanism = find_mechanism(name)
    known_sizes = {"span", "columns", "clusters"} & set(mechanism.options.model_fields)
    sizes = dict.fromkeys(known_sizes, math.isqrt(length - 1) + 1)
    module = mechanism.make(LayerShape(heads, dim), sizes).to(q.device, q.dtype).eval()
    hidden = torch.zeros(len(q), length, heads * dim, dtype=q.dtype, device=q.device)
    return lambda q, k, v: module(q, k, v, lengths=None, dropout=0.0, hidden=hidden)


def huggingface_attention(q: Tensor, training: bool) -> Attend:
    """The core of HuggingFace's `BigBirdBlockSparseAttention`, without its projections.

    In training mode it draws its random blocks anew in every call, as released.
    """
    from transformers.models.big_bird import modeling_big_bird as big_bird

    batch, heads, length, dim = q.shape
    size, random_blocks = PATTERN.block_size, PATTERN.random_blocks
    config = big_bird.BigBirdConfig(
        hidden_size=heads * dim,
        num_attention_heads=heads,
        block_size=size,
        num_random_blocks=random_blocks,
        max_position_embeddings=max(length, 4096),
    )
    module = big_bird.BigBirdBlockSparseAttention(config, seed=0).train(training)
    present = torch.ones(batch, length, device=q.device)
    blocked, *masks = big_bird.BigBirdModel.create_masks_for_block_sparse_attn(
        present, size
    )
    masks = [mask.to(q.dtype) for mask in masks]
    sizes = (heads, random_blocks, dim, size, size, batch, length, length)
    plan = {"plan_from_length": None, "plan_num_rand_blocks": None}

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out, _ = module.bigbird_block_sparse_attention(
            q, k, v, *masks, blocked, blocked, *sizes, seed=module.seed, **plan
        )
        return cast(Tensor, out.transpose(1, 2))  # (B, L, H, K) → (B, H, L, K)

    return attend


def check_agreement(calls: dict[str, Call], dtype: torch.dtype) -> None:
    """Raise RuntimeError unless all implementations of the same pattern give the same output."""
    names = [name for name in calls if name in BACKENDS]
    outputs = {name: cast(Tensor, calls[name]()).float() for name in names}
    for name in names[1:]:
        first = outputs[names[0]]
        error = float((outputs[name] - first).abs().max() / first.abs().max())
        if error > TOLERANCE[dtype]:
            raise RuntimeError(f"{name} differs from {names[0]} by {error:.2g}")


# Encoders.


def make_encoders(max_length: int, layers: int, *, peer: bool) -> dict[str, nn.Module]:
    """This package's network with random weights, and HuggingFace's BigBird with the same."""
    config = EncoderConfig(
        vocabulary=VOCABULARY,
        layers=layers,
        hidden=HEADS * HEAD_DIM,
        heads=HEADS,
        max_length=max_length,
        block_size=PATTERN.block_size,
        global_blocks=PATTERN.global_blocks,
        window_blocks=PATTERN.window_blocks,
        random_blocks=PATTERN.random_blocks,
    )
    torch.manual_seed(0)
    network = PretrainingNetwork(config, next_sentence=False)
    if not peer:
        return {"bigbird-dna": network}

    import transformers

    transformers.logging.set_verbosity_error()
    values = huggingface_config(config, "benchmark")
    theirs = transformers.BigBirdForMaskedLM(transformers.BigBirdConfig(**values))
    copy_weights(network, theirs)
    return {"bigbird-dna": network, "BigBirdForMaskedLM": theirs}


def copy_weights(network: nn.Module, peer: nn.Module) -> None:
    """Load the network's weights into HuggingFace's `BigBirdForMaskedLM`, whose pooler is not used."""
    architecture = ARCHITECTURES["BigBirdForMaskedLM"]
    weights = {
        huggingface_name(name, architecture): tensor
        for name, tensor in network.state_dict().items()
    }
    for name, same in TIED:
        if name in weights:
            weights[same] = weights[name]
    missing, unexpected = peer.load_state_dict(weights, strict=False)
    if unexpected or any("pooler" not in name for name in missing):
        raise RuntimeError(f"weights differ: {[*unexpected, *missing]}")


def masked_tokens(length: int) -> tuple[Tensor, Tensor]:
    """Random ids, and labels that are -100 where a token is not masked, (1, L) each."""
    generator = torch.Generator().manual_seed(0)
    shape = (1, length)
    ids = torch.randint(FIRST_ORDINARY_ID, VOCABULARY, shape, generator=generator)
    masked = torch.rand(shape, generator=generator) < MASKED
    return ids, ids.masked_fill(~masked, -100)


def encoder_call(network: Any, ids: Tensor, labels: Tensor, dtype: str) -> Call:
    """Logits of all positions, or in training mode a step: forward, backward and AdamW."""
    ours = not hasattr(network, "bert")
    masked = (labels.flatten() != -100).nonzero().squeeze(1)  # (M,)
    lengths = torch.full((len(ids),), ids.shape[1])

    def precision() -> AbstractContextManager[Any]:
        if dtype == "bfloat16":
            return torch.autocast(ids.device.type, dtype=torch.bfloat16)
        return nullcontext()

    def infer() -> Tensor:
        with torch.no_grad(), precision():
            if not ours:
                return cast(Tensor, network(ids).logits)
            hidden = network.encoder(ids)
            embedding = network.encoder.embeddings.token.weight
            return cast(Tensor, network.masked_tokens(hidden, embedding))

    if not network.training:
        return infer
    optimizer = make_optimizer(network, OptimizerConfig())

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with precision():
            if ours:  # this package computes logits at masked positions only
                logits = network(ids, lengths, None, masked).tokens  # (M, V)
                loss = cross_entropy(logits.float(), labels.flatten()[masked])
            else:
                loss = network(ids, labels=labels).loss
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return step
