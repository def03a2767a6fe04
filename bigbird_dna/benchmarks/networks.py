"""Encoders with a masked-token head: ours with sparse or with full attention, and HuggingFace's BigBird.

Shapes: B batch, L tokens, M predicted positions, V vocabulary.
"""

import importlib
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from bigbird_dna.benchmarks.settings import EncoderSettings
from bigbird_dna.config import EncoderConfig
from bigbird_dna.huggingface.names import ARCHITECTURES, TIED, huggingface_name
from bigbird_dna.model.encoder import Encoder, initialise
from bigbird_dna.model.heads import MaskedTokenHead

IGNORED = -100  # the label of a position that isn't masked, as HuggingFace has it


class MaskedLanguageModel(Protocol):
    """What the benchmark asks of a network."""

    def logits(self, ids: Tensor) -> Tensor:
        """Token ids (B, L) → logits of every position (B, L, V)."""

    def loss(self, ids: Tensor, labels: Tensor) -> Tensor:
        """Mean cross-entropy (nats) of the labels (B, L) that aren't `IGNORED`."""


class OurModel(nn.Module):
    """Our encoder and masked-token head; in training the head is computed on masked positions only."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.encoder = Encoder(config)
        self.masked_tokens = MaskedTokenHead(config)
        initialise(self.masked_tokens, config.hidden)

    def logits(self, ids: Tensor) -> Tensor:
        hidden = self.encoder(ids)
        scores: Tensor = self.masked_tokens(hidden, self.encoder.embeddings.token.weight)
        return scores

    def loss(self, ids: Tensor, labels: Tensor) -> Tensor:
        masked = (labels.flatten() != IGNORED).nonzero().squeeze(1)  # (M,)
        hidden = self.encoder(ids).flatten(0, 1).index_select(0, masked)
        scores = self.masked_tokens(hidden, self.encoder.embeddings.token.weight)  # (M, V)
        return cross_entropy(scores.float(), labels.flatten().index_select(0, masked))


class HuggingFaceModel(nn.Module):
    """`BigBirdForMaskedLM` as shipped: the head over every position, in training too."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        # By name, because it may not be installed and has few types.
        peer: Any = importlib.import_module("transformers")
        peer.utils.logging.set_verbosity_error()
        self.model: Any = peer.BigBirdForMaskedLM(
            peer.BigBirdConfig(
                vocab_size=config.vocabulary,
                hidden_size=config.hidden,
                num_hidden_layers=config.layers,
                num_attention_heads=config.heads,
                intermediate_size=config.intermediate or 4 * config.hidden,
                max_position_embeddings=config.positions,
                hidden_dropout_prob=config.dropout,
                attention_probs_dropout_prob=config.attention_dropout,
                block_size=config.block_size,
                num_random_blocks=config.random_blocks,
                attention_type="block_sparse",
            )
        )

    def logits(self, ids: Tensor) -> Tensor:
        logits: Tensor = self.model(ids).logits
        return logits

    def loss(self, ids: Tensor, labels: Tensor) -> Tensor:
        loss: Tensor = self.model(ids, labels=labels).loss
        return loss


def copy_weights(ours: OurModel, theirs: HuggingFaceModel) -> None:
    """Copy all weights; HuggingFace's pooler, which isn't used, keeps its own."""
    renamed: dict[str, Tensor] = {}
    for name, weight in ours.state_dict().items():
        there = huggingface_name(name, ARCHITECTURES["BigBirdForMaskedLM"])
        if there is not None:
            renamed[there] = weight
    renamed |= {second: renamed[first] for first, second in TIED}
    missing, unknown = theirs.model.load_state_dict(renamed, strict=False)
    if unknown or any("pooler" not in name for name in missing):
        raise ValueError(f"weights don't fit: {[*unknown, *missing][:3]}")


def make_network(
    contender: str, settings: EncoderSettings, length: int, device: torch.device
) -> nn.Module:
    """The network of a contender, weights in float32; all contenders have the same ones."""
    config = encoder_config(contender, settings, length)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        ours = OurModel(config)
        if contender != "huggingface":
            return ours.to(device)
        theirs = HuggingFaceModel(config)
    copy_weights(ours, theirs)
    return theirs.to(device)


def encoder_config(contender: str, settings: EncoderSettings, length: int) -> EncoderConfig:
    """The encoder's configuration, with as many positions as the input has tokens."""
    values: dict[str, Any] = {
        "vocabulary": settings.vocabulary,
        "layers": settings.layers,
        "hidden": settings.hidden,
        "heads": settings.heads,
        "positions": max(length, 16),
        "attention": "full" if contender == "full" else "bigbird",
        "block_size": settings.block_size,
        "global_blocks": settings.global_blocks,
        "window_blocks": settings.window_blocks,
        "random_blocks": settings.random_blocks,
        "random_seed": settings.seed,
        "route": settings.route,
    }
    return EncoderConfig.model_validate(values)
