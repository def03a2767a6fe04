"""Compiled layers give what the layers give, where they serve, and leave the rest to them."""

import pytest
import torch

from bigbird_dna.attention import native
from bigbird_dna.config import EncoderConfig
from bigbird_dna.model.encoder import Encoder
from bigbird_dna.model.inference import cpu_threads
from bigbird_dna.model.packed_layers import prepared

SHAPE = EncoderConfig(vocabulary=40, layers=2, hidden=48, heads=3, positions=700, block_size=16)

needs_kernel = pytest.mark.skipif(
    native.pointwise(torch.zeros(1)) is None, reason="the kernel can't be had here"
)


def lively(config: EncoderConfig) -> Encoder:
    """An encoder none of whose biases and gains are trivial."""
    torch.manual_seed(0)
    encoder = Encoder(config).eval()
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.3 if parameter.dim() == 1 else 0.1)
    return encoder


@needs_kernel
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"position": "rotary"},
        {"attention": "full", "position": "rotary"},
        {"compatibility": "huggingface", "block_size": 8},
        {"hidden": 128, "heads": 4, "position": "rotary", "block_size": 32},
        {"hidden": 32, "heads": 1, "intermediate": 50},
        {"hidden": 64, "heads": 16, "intermediate": 16, "window_blocks": 1, "random_blocks": 0},
        {"convolution": 3, "rescale_embeddings": True},
    ],
    ids=str,
)
@pytest.mark.parametrize("tokens", [1, 2, 63, 64, 115, 613])
def test_compiled_layers_agree_with_the_layers(changes: dict[str, object], tokens: int) -> None:
    encoder = lively(SHAPE.model_copy(update=changes))
    ids = torch.randint(5, 40, (1, tokens))
    with cpu_threads(1), torch.inference_mode():
        expected = encoder(ids, torch.tensor([tokens]))
        with prepared(encoder, 4096):
            assert encoder.packed is not None and encoder.packed.take(expected, torch.tensor([tokens]))
            found = encoder(ids, torch.tensor([tokens]))
            assert torch.equal(encoder(ids), found)
        torch.testing.assert_close(found, expected, atol=2e-5, rtol=2e-5)
        assert encoder.packed is None and encoder.layers[0].joined is None
        assert torch.equal(encoder(ids), expected)


@needs_kernel
def test_what_compiled_layers_leave_to_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = lively(SHAPE)
    x = torch.randn(2, 20, 48)
    with prepared(encoder, 100), cpu_threads(1):
        packed = encoder.packed
        assert packed is not None
        with torch.no_grad():
            assert packed.take(x[:1], None)
            assert not packed.take(x, None)
            assert not packed.take(x[:1], torch.tensor([19]))
            assert not packed.take(x[:1].double(), None)
            assert not packed.take(torch.randn(1, 101, 48), None)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                assert not packed.take(x[:1], None)
        assert not packed.take(x[:1], None)  # gradients may be asked for
        with cpu_threads(2), torch.no_grad():
            assert not packed.take(x[:1], None)
    for changes in (
        {"activation": "relu"},
        {"num_global_tokens": 2},
        {"relative_max_distance": 3},
        {"hidden": 24, "heads": 3},
        {"hidden": 48, "heads": 16},
    ):
        other = Encoder(SHAPE.model_copy(update=changes))
        with prepared(other, 100):
            assert other.packed is None
    for strange in (lively(SHAPE).double(), lively(SHAPE)):
        strange.layers[1].register_forward_hook(lambda *_: None)
        with prepared(strange, 100):
            assert strange.packed is None
    monkeypatch.setenv("BIGBIRD_DNA_NATIVE", "0")
    with prepared(encoder, 100):
        assert encoder.packed is None


def test_changed_weights_are_seen_by_the_next_block() -> None:
    encoder, ids = lively(SHAPE), torch.randint(5, 40, (1, 50))
    with cpu_threads(1), torch.no_grad():
        with prepared(encoder, 4096):
            before = encoder(ids)
        for parameter in encoder.parameters():
            parameter.mul_(1.1)
        with prepared(encoder, 4096):
            after = encoder(ids)
        assert not torch.allclose(before, after, atol=1e-3)
        torch.testing.assert_close(after, encoder(ids), atol=2e-5, rtol=2e-5)
