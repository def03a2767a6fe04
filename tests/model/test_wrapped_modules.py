"""Modules that a user wraps, hooks or replaces are called, in training and in inference."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from bigbird_dna.model.encoder import Encoder, Layer
from bigbird_dna.model.inference import cpu_threads
from bigbird_dna.model.promoter import LoadedSequenceModel
from bigbird_dna.model.settings import SequenceSettings
from bigbird_dna.tokens.dna import DnaTokenizer
from tests.toys import random_dna, random_model, small_encoder

SEQUENCES = [random_dna(150, seed) for seed in range(3)]
LABELED = SequenceSettings(
    kind="multilabel", outputs=("a", "b"), pooling="mean", jitter=0, views=1
)
ENCODERS: dict[str, dict[str, Any]] = {
    "bigbird": {"attention": "bigbird"},
    "full, rotary": {"attention": "full", "position_encoding": "rotary"},
    "global tokens": {
        "attention": "bigbird_etc",
        "num_global_tokens": 3,
        "relative_max_distance": 4,
    },
    "longformer": {"attention": "longformer"},
    "reformer": {"attention": "reformer"},  # has no keys
}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """With which predictions use whole compiled layers."""
    with cpu_threads(1):
        yield


def labeled_model(tokenizer: DnaTokenizer, **encoder: Any) -> LoadedSequenceModel:
    sizes = {"layers": 2, "hidden": 32, **encoder}
    model = random_model(
        tokenizer, small_encoder(tokenizer.vocabulary, **sizes), LABELED, scale=3.0
    )
    assert isinstance(model, LoadedSequenceModel)
    return model


def predicted(model: LoadedSequenceModel) -> np.ndarray[Any, Any]:
    return np.asarray(model.predict(SEQUENCES, device="cpu"))


def ids_of(model: LoadedSequenceModel) -> Tensor:
    rows = [model.tokenizer.encode(one)[:30] for one in SEQUENCES]
    return torch.from_numpy(np.stack(rows)).long()


def layers_of(model: LoadedSequenceModel) -> list[Layer]:
    return [part for part in model.network.modules() if isinstance(part, Layer)]


@pytest.mark.parametrize("name", ENCODERS)
def test_every_module_with_weights_calls_its_hooks(
    tokenizer: DnaTokenizer, name: str
) -> None:
    model = labeled_model(tokenizer, **ENCODERS[name])
    parts = {
        key: part
        for key, part in model.network.named_modules()
        if "weight" in part._parameters
    }
    parts |= {
        key: part
        for key, part in model.network.named_modules()
        if isinstance(part, Encoder)
    }
    called: list[str] = []
    for key, part in parts.items():
        part.register_forward_hook(lambda *_, key=key: called.append(key))
    predicted(model)
    assert {*called} == {*parts}
    called.clear()
    ids = ids_of(model)
    model.network.train()(ids, torch.tensor([30, 30, 30])).sum().backward()
    assert {*called} == {*parts}


@pytest.mark.parametrize("name", ENCODERS)
def test_predictions_are_those_of_the_wrapped_module(
    tokenizer: DnaTokenizer, name: str
) -> None:
    """A hook, a parametrization and a module in its place, which triple an output, are as tripled weights."""
    model = labeled_model(tokenizer, **ENCODERS[name])
    before = predicted(model)

    def tripled(wrap: Callable[[Layer, str], Any]) -> np.ndarray[Any, Any]:
        undo = [
            wrap(layer, part)
            for layer in layers_of(model)
            for part in ("query", "value", "intermediate")
        ]
        found = predicted(model)
        for one in undo:
            one()
        assert np.abs(predicted(model) - before).max() < 1e-6
        return found

    def weights(layer: Layer, part: str) -> Any:
        linear = getattr(layer, part)
        kept = [x.detach().clone() for x in linear.parameters()]
        for x in linear.parameters():
            x.data *= 3
        return lambda: [
            x.data.copy_(y) for x, y in zip(linear.parameters(), kept, strict=True)
        ]

    def hook(layer: Layer, part: str) -> Any:
        return (
            getattr(layer, part)
            .register_forward_hook(lambda _module, _given, out: 3 * out)
            .remove
        )

    def in_its_place(layer: Layer, part: str) -> Any:
        linear = getattr(layer, part)
        setattr(layer, part, nn.Sequential(linear, Triple()))
        return lambda: setattr(layer, part, linear)

    def forward(layer: Layer, part: str) -> Any:
        linear = getattr(layer, part)
        plain = linear.forward
        linear.forward = lambda x: 3 * plain(x)
        return lambda: delattr(linear, "forward")

    def parametrized(layer: Layer, part: str) -> Any:
        linear = getattr(layer, part)
        for key in ("weight", "bias"):
            parametrize.register_parametrization(linear, key, Triple())

        def undo() -> None:
            for key in ("weight", "bias"):
                parametrize.remove_parametrizations(
                    linear, key, leave_parametrized=False
                )

        return undo

    wanted = tripled(weights)  # in place, after a prediction
    assert np.abs(wanted - before).max() > 0.01
    for wrap in (hook, in_its_place, forward, parametrized):
        assert np.abs(tripled(wrap) - wanted).max() < 1e-5, wrap


class Triple(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return 3 * x


@pytest.mark.parametrize("name", ENCODERS)
def test_adapters_of_peft_are_trained_and_used(
    tokenizer: DnaTokenizer, name: str
) -> None:
    """All their matrices have gradients, and a merged model predicts what the unmerged one does."""
    peft = pytest.importorskip("peft")
    model = labeled_model(tokenizer, **ENCODERS[name])
    before = predicted(model)
    config = peft.LoraConfig(
        r=4, target_modules=["query", "key", "value"], init_lora_weights=False
    )
    torch.manual_seed(1)
    wrapped = peft.inject_adapter_in_model(config, model.network)
    model.network.train()(
        ids_of(model), torch.tensor([30, 30, 30])
    ).square().sum().backward()
    adapters = {key: x for key, x in wrapped.named_parameters() if "lora_" in key}
    parts = [
        part
        for part in model.network.modules()
        if isinstance(part, peft.tuners.lora.Linear)
    ]
    assert len(adapters) == 2 * len(parts) >= 2 * 2 * 2
    for key, x in adapters.items():
        assert x.grad is not None and x.grad.abs().max() > 0, key
    model.network.eval()
    unmerged = predicted(model)
    assert np.abs(unmerged - before).max() > 0.01
    for part in parts:
        part.merge()
    # Sums are rounded in another order: up to 1.1e-5 was seen.
    assert np.abs(predicted(model) - unmerged).max() < 1e-4
