"""The encoder and its heads: shapes, padding, checkpointing, and agreement of the attention routes."""

import pytest
import torch

from bigbird_dna.config import EncoderConfig
from bigbird_dna.model.encoder import Encoder
from bigbird_dna.model.heads import Classifier, PretrainingNetwork

SMALL = EncoderConfig(
    vocabulary=40,
    layers=2,
    hidden=16,
    heads=2,
    positions=96,
    block_size=4,
    random_blocks=1,
    dropout=0.0,
)


def _rows(*lengths: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(5, 40, (len(lengths), max(lengths)), generator=generator)
    for row, length in enumerate(lengths):
        ids[row, length:] = 0
    return ids, torch.tensor(lengths)


def test_hidden_states_of_a_row_depend_neither_on_padding_nor_on_the_batch() -> None:
    torch.manual_seed(0)
    encoder = Encoder(SMALL).eval()
    ids, lengths = _rows(61, 90, 33)
    with torch.inference_mode():
        together = encoder(ids, lengths)
        for row, length in enumerate(lengths.tolist()):
            alone = encoder(ids[row : row + 1, :length], lengths[row : row + 1])
            torch.testing.assert_close(together[row, :length], alone[0], atol=1e-5, rtol=0)


@pytest.mark.parametrize("route", ["dense", "blocked"])
def test_routes_give_the_same_hidden_states_and_gradients(route: str) -> None:
    ids, lengths = _rows(90, 61)
    results = []
    for choice in ("auto", route):
        torch.manual_seed(0)
        encoder = Encoder(SMALL.model_copy(update={"route": choice})).double()
        hidden = encoder(ids, lengths)
        present = torch.arange(90) < lengths[:, None]
        hidden[present].square().sum().backward()
        results.append((hidden[present], encoder.embeddings.token.weight.grad))
    for first, second in zip(*results, strict=True):
        torch.testing.assert_close(first, second, atol=1e-10, rtol=1e-10)


def test_gradient_checkpointing_changes_no_gradient() -> None:
    ids, lengths = _rows(50, 50)
    gradients = []
    for checkpointing in (False, True):
        torch.manual_seed(0)
        config = SMALL.model_copy(update={"gradient_checkpointing": checkpointing, "dropout": 0.2})
        encoder = Encoder(config).train()
        torch.manual_seed(3)
        encoder(ids, lengths).square().sum().backward()
        gradients.append([parameter.grad for parameter in encoder.parameters()])
    for plain, recomputed in zip(*gradients, strict=True):
        torch.testing.assert_close(plain, recomputed)


def test_full_attention_sees_what_a_sparse_pattern_does_not() -> None:
    """A change far away reaches a row in one layer of full attention, and not in one of a window alone."""
    window = SMALL.model_copy(update={"layers": 1, "global_blocks": 0, "random_blocks": 0})
    ids, lengths = _rows(96)
    changed = ids.clone()
    changed[0, 90] = 5 if ids[0, 90] != 5 else 6
    for config, reached in (
        (window, False),
        (window.model_copy(update={"attention": "full"}), True),
    ):
        torch.manual_seed(0)
        encoder = Encoder(config).eval()
        with torch.inference_mode():
            difference = (
                (encoder(ids, lengths) - encoder(changed, lengths))[0, 0].abs().max().item()
            )
        assert (difference > 0) == reached


def test_too_many_tokens_are_refused() -> None:
    with pytest.raises(ValueError, match="97 tokens are more than the encoder's 96 positions"):
        Encoder(SMALL)(torch.zeros(1, 97, dtype=torch.long))


def test_pretraining_head_runs_on_masked_positions_only() -> None:
    network = PretrainingNetwork(SMALL).eval()
    ids, lengths = _rows(20, 12)
    segments = torch.zeros_like(ids)
    every = torch.arange(40)
    some = torch.tensor([3, 25])
    with torch.inference_mode():
        whole = network(ids, lengths, segments, every)
        part = network(ids, lengths, segments, some)
    assert part.tokens.shape == (2, 40) and part.next_sentence.shape == (2, 2)
    torch.testing.assert_close(part.tokens, whole.tokens[some])


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_classifier_ignores_padding(pooling: str) -> None:
    torch.manual_seed(0)
    network = Classifier(SMALL, outputs=3, pooling=pooling).eval()  # type: ignore[arg-type]
    ids, lengths = _rows(40, 21)
    with torch.inference_mode():
        together = network(ids, lengths)
        alone = network(ids[1:, :21], lengths[1:])
    assert together.shape == (2, 3)
    torch.testing.assert_close(together[1:], alone, atol=1e-6, rtol=0)
