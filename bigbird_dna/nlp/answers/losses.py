"""Losses of the heads, each in nats and summed over the rows of a batch.

Axes: B rows, L tokens, S spans, A anchors.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from bigbird_dna.nlp.answers.labels import unpacked


def span_loss(start: Tensor, end: Tensor, spans: Tensor, allowed: Tensor) -> Tensor:
    """-ln Σ P(start) P(end) over the spans of each row (B, S; packed, -1: none), summed over rows.

    With one span a row that is the cross-entropy of its start and of its end; with several, any of them may
    be the one that is meant (the noisy span loss of TriviaQA). `allowed` (B, L) are the tokens that an
    answer may begin or end at.
    """
    starts, ends = (
        scores.float().masked_fill(~allowed, float("-inf")).log_softmax(-1) for scores in (start, end)
    )
    first, last = unpacked(spans)
    each = starts.gather(1, first) + ends.gather(1, last)  # (B, S)
    return -each.masked_fill(spans < 0, float("-inf")).logsumexp(1).sum()


def type_loss(scores: Tensor, types: Tensor) -> Tensor:
    """Cross-entropy of the answers' types (B,); -1: not known."""
    return F.cross_entropy(scores.float(), types, ignore_index=-1, reduction="sum")


def facts_loss(scores: Tensor, labels: Tensor) -> Tensor:
    """Binary cross-entropy of sentences (B, A) against whether they support the answer; -1: none there."""
    loss = F.binary_cross_entropy_with_logits(scores.float(), labels.clamp(min=0).float(), reduction="none")
    return loss.masked_fill(labels < 0, 0).sum()


def candidate_loss(scores: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy of the right one among candidates (B, A); rows where none is right count nothing."""
    there = (labels == 1).any(1)
    chances = scores.float().masked_fill(labels < 0, float("-inf"))[there].log_softmax(-1)
    return -chances[labels[there] == 1].sum() if there.any() else scores.sum() * 0


def allowed_tokens(lengths: Tensor, asked: Tensor, tokens: int) -> Tensor:
    """Where an answer may stand (B, L): [CLS], which says that there is none, and the context."""
    places = torch.arange(tokens, device=asked.device)
    context = (places >= asked[:, None]) & (places < (lengths.to(asked.device) - 1)[:, None])
    return context | (places == 0)
