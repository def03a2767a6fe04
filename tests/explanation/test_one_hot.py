"""One-hot models: values are those of the model; gradients against slow references and other backends."""

from typing import Any

import numpy as np
import pytest
import torch

from bigbird_dna.errors import ModelError
from bigbird_dna.explanation.mutagenesis import saturation_mutagenesis, views_of
from bigbird_dna.explanation.one_hot import OneHotModel, gradient_mutations, letters
from bigbird_dna.genome.sequence import base_codes
from bigbird_dna.model.batching import View
from tests.explanation.models import SETTINGS, example, largest, small_model
from tests.golden.messages import fails
from tests.toys import random_dna


def one_hot(*texts: str) -> torch.Tensor:
    codes = np.stack([base_codes(text) for text in texts])
    return torch.from_numpy(
        (codes[:, None] == np.arange(4)[:, None]).astype(np.float32)
    )


@pytest.mark.parametrize("kind", SETTINGS)
def test_values_are_those_of_the_model_with_and_without_gradients(kind: str) -> None:
    model = small_model(kind)
    texts = [example(model, seed).window for seed in range(2)]
    assert [letters(row) for row in one_hot(*texts).numpy()] == texts
    for view in views_of(model, 70, 1, 1):
        expected = model.view_scores(texts, [view])[0]
        adapter = OneHotModel(model, view=view, span=slice(40, 52))
        np.testing.assert_allclose(
            adapter(one_hot(*texts)).numpy(), expected, atol=1e-6
        )
        x = one_hot(*texts).requires_grad_()
        found = adapter(x)
        np.testing.assert_allclose(
            found.detach().numpy(), expected, rtol=2e-5, atol=5e-5
        )
        (slopes,) = torch.autograd.grad(found[0, 0], x)
        assert largest(slopes[0, :, 40:52].numpy()) > 1e-3
        assert not slopes[1:].any() and not slopes[..., :40].any()
    chosen = OneHotModel(model, [0])(one_hot(*texts))
    assert chosen.shape == (2, 1)


def test_bases_that_a_view_leaves_out_have_no_gradient() -> None:
    model = small_model("start-sites")
    text = random_dna(120, 3)
    for turned in (False, True):
        view = View(turned, (7, 9))
        x = one_hot(text).requires_grad_()
        (slopes,) = torch.autograd.grad(OneHotModel(model, view=view)(x)[0, 0], x)
        left, right = (9, 7) if turned else (7, 9)
        assert not slopes[..., :left].any() and not slopes[..., 120 - right :].any()
        # Each base as if it were explained alone.
        for start in (0, left, 50, 115 - right, 110):
            span = slice(start, start + 10)
            alone = OneHotModel(model, view=view, span=span)(x)[0, 0]
            (part,) = torch.autograd.grad(alone, x)
            np.testing.assert_allclose(part[..., span], slopes[..., span], atol=1e-5)


@pytest.mark.parametrize("kind", ["promoter", "chromatin"])
def test_gradients_of_regressions_are_their_changes(kind: str) -> None:
    model = small_model(kind)
    with torch.no_grad():
        for part in model.network.modules():
            if getattr(part, "ensemble", None) is not None:
                part.ensemble.weight.zero_()
        if kind == "chromatin":  # the mean of two members' probabilities is not a sum
            first, second = model.network.members
            second.load_state_dict(first.state_dict())
    target, views = example(model), views_of(model, 100, 1, 0)
    found, expected = (
        work(model, target, [0], views)
        for work in (gradient_mutations, saturation_mutagenesis)
    )
    np.testing.assert_allclose(found.substitutions, expected.substitutions, atol=1e-4)
    assert largest(found.substitutions) > 1e-2


def vectors(model: Any, text: str) -> tuple[np.ndarray, np.ndarray]:
    """The embeddings of the tokens of a text, (L, D), and the token of each base."""
    tokenizer = model.tokenizer
    ids = tokenizer.encode(text)
    row = torch.tensor([[tokenizer.cls_id, *ids, tokenizer.sep_id]])
    with torch.no_grad():
        embedded = model.network.encoder.embeddings(row, None)[0].numpy()
    return embedded, 1 + np.repeat(np.arange(len(ids)), tokenizer.piece_lengths[ids])


def test_gradients_of_tokens_are_those_of_a_slow_reference() -> None:
    """The change of a score to first order, by the embeddings of the tokens that cover each base."""
    model = small_model("numbers")
    text, kept = random_dna(70, 5), []

    def keep(_module: Any, _inputs: Any, output: torch.Tensor) -> Any:
        if not torch.is_grad_enabled():
            return None
        kept.append(output.detach().requires_grad_())
        return kept[0] + (output - output.detach())

    handle = model.network.encoder.embeddings.register_forward_hook(keep)
    x = one_hot(text).requires_grad_()
    score = OneHotModel(model)(x)[0, 0]
    handle.remove()
    found, slope = (part.numpy() for part in torch.autograd.grad(score, [x, kept[0]]))
    before, slots = vectors(model, text)
    for place in (0, 7, 33, 69):
        for number, letter in enumerate("ACGT"):
            after, others = vectors(model, f"{text[:place]}{letter}{text[place + 1 :]}")
            changes = after[others] - before[slots]
            means = [changes[slots == slot].mean(0) for slot in range(1, slots[-1] + 1)]
            expected = float((np.stack(means) * slope[0, 1:-1]).sum())
            assert float(found[0, number, place]) == pytest.approx(expected, abs=1e-4)
    assert largest(found) > 1e-3


@pytest.mark.parametrize("kind", ["promoter", "chromatin"])
def test_gradients_by_every_backend_are_those_of_the_dense_reference(kind: str) -> None:
    found = {}
    for route in ("dense", "blocked", "native", "auto"):
        model = small_model(
            kind, attention="bigbird", attention_backend=route, max_length=256
        )
        window = example(model)._replace(first=40, last=52)
        found[route] = gradient_mutations(
            model, window, [0], views_of(model, 100, 1, 1)
        ).substitutions
    for route, values in found.items():
        np.testing.assert_allclose(
            values, found["dense"], rtol=1e-4, atol=1e-4, err_msg=route
        )
    assert largest(found["dense"]) > 1e-3


def test_gradients_of_a_window_with_too_many_tokens_are_refused() -> None:
    model = small_model("numbers", max_length=16)
    with fails(ModelError):
        OneHotModel(model)(one_hot(random_dna(200, 1)).requires_grad_())
    assert OneHotModel(model, view=View())(one_hot(random_dna(200, 1))).shape == (1, 1)
