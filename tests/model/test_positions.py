"""Extended positions: what each method promises, for networks in memory and for model directories."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import bigbird_dna
from bigbird_dna.config import EncoderConfig
from bigbird_dna.errors import ModelError, UsageError
from bigbird_dna.model.directory import Extension, extend_positions, extended_table, load, save
from bigbird_dna.model.encoder import Encoder
from bigbird_dna.model.input_embeddings import rotation
from bigbird_dna.model.settings import PretrainingSettings
from bigbird_dna.tokens.dna import DnaTokenizer
from tests.cli.command import invoke
from tests.golden.messages import fails
from tests.model.test_encoder import SMALL
from tests.toys import random_model, uneven_loss

IDS = torch.randint(5, 40, (2, 96), generator=torch.Generator().manual_seed(1))


def _encoder(**changes: object) -> Encoder:
    torch.manual_seed(0)
    return Encoder(SMALL.model_copy(update=changes)).eval()


@given(st.integers(1, 12), st.integers(1, 50))
def test_a_tiled_table_repeats(old: int, more: int) -> None:
    table = torch.randn(old, 3)
    tiled = extended_table(table, old + more, "tile")
    assert tiled.shape == (old + more, 3)
    for row, values in enumerate(tiled):
        assert torch.equal(values, table[row % old])


@given(st.integers(2, 12), st.integers(1, 50))
def test_interpolation_keeps_lines_and_ends(old: int, more: int) -> None:
    slope, start = torch.tensor([1.0, -2.0, 0.0]), torch.tensor([3.0, 0.0, 1.0])
    line = torch.linspace(0, 1, old)[:, None] * slope + start
    longer = torch.linspace(0, 1, old + more)[:, None] * slope + start
    torch.testing.assert_close(extended_table(line, old + more, "interpolate"), longer, atol=1e-5, rtol=0)


def test_interpolation_by_hand() -> None:
    table = torch.tensor([[0.0], [4.0], [-4.0]], dtype=torch.float64)
    longer = extended_table(table, 5, "interpolate")
    assert longer.dtype == torch.float64
    assert longer[:, 0].tolist() == [0.0, 2.0, 4.0, 0.0, -4.0]


def test_tiling_changes_nothing_for_what_was_short_enough() -> None:
    encoder = _encoder()
    with torch.inference_mode():
        before = encoder(IDS)
        extend_positions(encoder, 250, "tile")
        assert torch.equal(encoder(IDS), before)
        assert encoder(IDS.repeat(1, 3)[:, :250]).isfinite().all()
    assert encoder.config.max_length == 250
    with fails(ValueError):
        encoder(torch.zeros(1, 251, dtype=torch.long))


@pytest.mark.parametrize("method", ["tile", "interpolate"])
def test_an_extended_table_is_trained_like_any_other(method: Extension) -> None:
    encoder = _encoder()
    state = torch.random.get_rng_state()
    extend_positions(encoder, 200, method)
    assert torch.equal(torch.random.get_rng_state(), state)
    uneven_loss(encoder(IDS.repeat(1, 2))).backward()
    table = dict(encoder.named_parameters())["embeddings.position.weight"]
    assert table.shape == (200, 16) and table.grad is not None
    assert table.grad[:192].abs().sum(dim=1).min() > 1e-4 and not table.grad[192:].any()


def test_rotary_interpolation_squeezes_positions_into_the_old_range() -> None:
    encoder = _encoder(position_encoding="rotary", rotary_scale=1.5)
    old = _turns(encoder)
    extend_positions(encoder, 4 * 96, "interpolate")
    assert encoder.config.max_length == 384 and encoder.config.rotary_scale == 6.0
    torch.testing.assert_close(_turns(encoder)[::4], old)


def test_ntk_stretches_the_longest_wave_and_keeps_the_shortest() -> None:
    encoder = _encoder(position_encoding="rotary", hidden=32)
    old = _turns(encoder)
    extend_positions(encoder, 4 * 96, "ntk")
    new = _turns(encoder)
    torch.testing.assert_close(new[:96, 0], old[:, 0])
    torch.testing.assert_close(new[::4, -1], old[:, -1], atol=1e-5, rtol=0)


def _turns(encoder: Encoder) -> torch.Tensor:
    config = encoder.config
    width = config.hidden // config.heads
    return rotation(config.max_length, width, config.rotary_base, config.rotary_scale).sin


@pytest.mark.parametrize(
    ("changes", "positions", "method"),
    [
        ({}, 95, "tile"),
        ({}, 200, "ntk"),
        ({}, 200, "copy"),
        ({"position_encoding": "rotary"}, 200, "tile"),
        ({"position_encoding": "rotary"}, 95, "interpolate"),
        ({"position": "rotary", "hidden": 4}, 200, "ntk"),
    ],
)
def test_what_cannot_be_done_is_refused_and_changes_nothing(
    changes: dict[str, object], positions: int, method: Extension
) -> None:
    encoder = _encoder(**changes)
    config, weights = encoder.config, encoder.state_dict()
    with fails(ModelError):
        extend_positions(encoder, positions, method)
    assert encoder.config == config and encoder.state_dict().keys() == weights.keys()
    extend_positions(encoder, config.max_length, "tile")
    assert encoder.config == config


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory, tokenizer: DnaTokenizer) -> Path:
    """A pretrained model of 64 positions, with rotary ones beside it."""
    directory = tmp_path_factory.mktemp("models")
    tokenizer.save(directory / "t.model")
    sizes: dict[str, Any] = {"layers": 1, "hidden": 8, "heads": 2, "max_length": 64, "block_size": 8}
    for position in ("learned", "rotary"):
        config = EncoderConfig(vocabulary=tokenizer.vocabulary, position_encoding=position, **sizes)
        model = random_model(tokenizer, config, PretrainingSettings(), seed=4)
        save(directory / position, model, {"contigs": ["I", "II"]}, {"bits_per_base": 1.9}, {})
    return directory


def test_loading_extends_on_request(saved: Path) -> None:
    plain = load(saved / "learned")
    longer = bigbird_dna.load(saved / "learned", positions=100, extend="interpolate")
    assert (plain.config.max_length, longer.config.max_length) == (64, 100)
    weights = longer.network.state_dict()
    for name, value in plain.network.state_dict().items():
        if name == "encoder.embeddings.position.weight":
            assert torch.equal(weights[name], extended_table(value, 100, "interpolate"))
        else:
            assert torch.equal(weights[name], value), name
    with fails(ModelError, saved):
        load(saved / "learned", positions=63)


@pytest.mark.parametrize(("position", "method"), [("learned", "tile"), ("rotary", "ntk")])
def test_the_command_writes_what_loading_gives(
    saved: Path, tmp_path: Path, position: str, method: Extension
) -> None:
    invoke(
        "model extend-context", saved / position, tmp_path / "long", "--positions", 200, "--method", method
    )
    written = load(tmp_path / "long")
    expected = load(saved / position, positions=200, extend=method)
    assert written.config == expected.config and written.task == "pretraining"
    for name, value in expected.network.state_dict().items():
        assert torch.equal(written.network.state_dict()[name], value), name
    provenance = json.loads((tmp_path / "long/provenance.json").read_text())
    original = load(saved / position)
    assert provenance["extended_from"]["sha256"] == original.sha256
    assert provenance["extended_from"]["positions"] == 64
    assert provenance["extended_from"]["provenance"]["contigs"] == ["I", "II"]
    assert (provenance["positions"], provenance["method"]) == (200, method)
    assert provenance["contigs"] == ["I", "II"], "the check for leaks reads them there"
    metrics = json.loads((tmp_path / "long/metrics.json").read_text())
    assert list(metrics) == ["note"] and "nothing was measured" in metrics["note"]


@pytest.mark.parametrize(
    ("model", "out", "words", "error"),
    [
        ("learned", "new", ("--positions", 32), ModelError),
        ("learned", "new", ("--positions", 64), UsageError),
        ("learned", "new", ("--positions", 99, "--method", "copy"), UsageError),
        ("rotary", "new", ("--positions", 99), ModelError),
        ("none", "new", ("--positions", 99), ModelError),
        ("learned", "learned", ("--positions", 99), UsageError),
        ("learned", "t.model", ("--positions", 99), UsageError),
    ],
)
def test_mistakes_are_named_and_nothing_is_written(
    saved: Path, model: str, out: str, words: tuple[object, ...], error: type[Exception]
) -> None:
    before = sorted(saved.rglob("*"))
    with fails(error):
        invoke("model extend-context", saved / model, saved / out, *words)
    assert sorted(saved.rglob("*")) == before
    assert load(saved / "learned").config.max_length == 64
