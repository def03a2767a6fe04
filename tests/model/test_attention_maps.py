"""Attention weights of trained layers against dense softmax, their products, and the plot of them."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from bigbird_dna.errors import ModelError, UsageError
from bigbird_dna.model.attention_maps import (
    LONGEST,
    attention_maps,
    layer_weights,
    rollout,
)
from bigbird_dna.model.directory import save
from bigbird_dna.model.encoder import Encoder
from bigbird_dna.model.settings import PretrainingSettings
from tests.cli.command import Run, refused
from tests.explanation.models import example, small_model
from tests.golden.messages import fails
from tests.toys import random_dna, random_model, small_encoder, small_tokenizer

SETTINGS = PretrainingSettings(next_sentence=False)
SPARSE: dict[str, Any] = {"block_size": 4, "random_blocks": 1, "layers": 2}
CASES: list[dict[str, Any]] = [
    SPARSE,
    SPARSE | {"position_encoding": "rotary", "norm": "pre"},
    SPARSE | {"causal": True},
    SPARSE | {"num_global_tokens": 5, "relative_max_distance": 3},
    {"attention": "full", "layers": 2},
    {"attention": "performer"},
    {"attention": "combiner_fixed"},
    {"attention": "reformer"},
    {
        "attention": "full",
        "layers": 2,
        "local_window": 6,
        "global_every": 2,
        "position_encoding": "rotary",
    },
]


def passes(encoder: Encoder, tokens: int) -> list[tuple[Any, tuple[Any, ...]]]:
    """Each layer with the arguments that it is called with, for random ids."""
    found: list[tuple[Any, tuple[Any, ...]]] = []
    for layer in encoder.layers:
        layer.register_forward_pre_hook(
            lambda layer, arguments: found.append((layer, arguments))
        )
    encoder(
        torch.randint(5, 40, (1, tokens), generator=torch.Generator().manual_seed(1))
    )
    return found


@pytest.mark.parametrize("changes", CASES, ids=str)
@torch.no_grad()
def test_weights_times_values_are_the_output_of_attention(
    changes: dict[str, Any],
) -> None:
    torch.manual_seed(0)
    encoder = Encoder(small_encoder(**changes)).double().eval()
    for layer, (x, lengths, turns, owners) in passes(encoder, 61):
        weights = layer_weights(layer, x, lengths, turns, owners)
        given = layer.attention_norm(x) if layer.pre_norm else x
        q, k, v, _ = layer.queries_keys_values(given, turns)
        torch.testing.assert_close(
            weights @ v, layer.attended(given, lengths, turns, owners)
        )
        torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))
        if layer.mechanism is None:
            mask = torch.from_numpy(
                layer.pattern.mask(x.shape[1], layer.heads, layer.index)
            )
            if changes.get("attention") == "full":
                mask = torch.ones_like(mask)
            assert not weights[0, ~mask].any() and weights[0, mask].all()
            if layer.relative is None:
                scores = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(
                    ~mask, -torch.inf
                )
                torch.testing.assert_close(weights, scores.softmax(-1))


def test_rollout_is_the_product_of_halves_of_layers() -> None:
    weights = (
        np.random.default_rng(0).dirichlet(np.ones(5), (3, 2, 5)).astype(np.float32)
    )
    first, *_ = mixed = [np.eye(5) / 2 + (heads[0] + heads[1]) / 4 for heads in weights]
    np.testing.assert_allclose(rollout(weights[:1]), first, atol=1e-6)
    np.testing.assert_allclose(
        rollout(weights), mixed[2] @ mixed[1] @ mixed[0], atol=1e-6
    )
    np.testing.assert_allclose(rollout(weights).sum(1), 1, atol=1e-6)


def pretrained(**sizes: Any) -> Any:
    encoder = small_encoder(small_tokenizer().vocabulary, **sizes)
    return random_model(small_tokenizer(), encoder, SETTINGS, scale=3)


def test_maps_are_those_of_the_pass_that_predicts() -> None:
    """With what the model adds to embeddings; global tokens have a label, and an ensemble has members."""
    model = small_model("promoter", layers=2)
    window = example(model).window
    found = attention_maps(model, window)
    assert "".join(found.labels) == f"[CLS]{window}[SEP]"
    assert all(
        window[start:].startswith(one)
        for start, one in zip(found.starts, found.labels, strict=True)
        if "[" not in one
    )
    assert found.weights.shape == (2, 2, len(found.labels), len(found.labels))

    def first_layer(added: Tensor | None) -> Any:
        ids = torch.tensor(
            [
                [
                    model.tokenizer.cls_id,
                    *model.tokenizer.encode(window),
                    model.tokenizer.sep_id,
                ]
            ]
        )
        encoder = model.network.encoder
        with torch.no_grad():
            x = encoder.embeddings(ids, None, None, None, added=added)
            return layer_weights(
                encoder.layers[0], x, None, encoder.turns(ids.shape[1], x.device, ids)
            )[0]

    with torch.no_grad():
        assert np.abs(found.weights[0] - first_layer(None).numpy()).max() > 1e-3
        model.network.base_positions.weight.zero_()
    found = attention_maps(model, window)
    np.testing.assert_allclose(found.weights[0], first_layer(None), atol=1e-5)
    extended = attention_maps(pretrained(num_global_tokens=2), window[:30])
    assert extended.labels[:3] == ["global 0", "global 1", "[CLS]"]
    chromatin = small_model("chromatin")
    members = [
        attention_maps(chromatin, random_dna(120, 1), member).weights
        for member in (0, 1)
    ]
    assert (
        members[0].shape == members[1].shape
        and np.abs(members[0] - members[1]).max() > 1e-3
    )
    with fails(UsageError):
        attention_maps(chromatin, random_dna(120, 1), 2)
    with fails(ModelError):
        attention_maps(pretrained(layers=2, reversible=True), window)


def test_the_weights_of_a_sequence_are_plotted(tmp_path: Path, run: Run) -> None:
    save(tmp_path / "model", pretrained(layers=2, max_length=LONGEST + 90), {}, {}, {})
    for name, texts in {
        "one": [random_dna(300, 2)],
        "two": ["ACGT", "AC"],
        "long": [random_dna(3000, 1)],
    }.items():
        lines = (f">{name}{number}\n{text}\n" for number, text in enumerate(texts))
        (tmp_path / f"{name}.fa").write_text("".join(lines))
    words = [
        "report plot-attention",
        tmp_path / "model",
        "--weights",
        tmp_path / "one.fa",
    ]
    result = run(
        *words, "-o", tmp_path / "a.svg", "--matrix", tmp_path / "a.npy", "--heads", 1
    )
    assert result.code == 0, result.err
    weights = np.load(tmp_path / "a.npy")
    assert weights.shape[:2] == (2, 2) and weights.shape[2] > 100
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)
    assert run(*words, "-o", tmp_path / "b.svg", "--layer", 0, "--heads", 1).code == 0
    assert (tmp_path / "a.svg").read_bytes() != (tmp_path / "b.svg").read_bytes()
    (tmp_path / "x.yaml").write_text("encoder: {layers: 1}\n")
    for code, source, file, *options in (
        (2, "model", "two.fa"),
        (2, "model", "long.fa"),
        (1, "model", "none.fa"),
        (1, "x.yaml", "one.fa"),
        (2, "model", "one.fa", "--layer", 2),
        (2, "model", "one.fa", "--member", 1),
        (2, "model", "one.fa", "--seq-len", 9),
    ):
        given = tmp_path / source, "--weights", tmp_path / file, *options
        refused(run("report plot-attention", *given, "-o", tmp_path / "c.svg"), code)
        assert not (tmp_path / "c.svg").exists()
