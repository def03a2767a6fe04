"""Positions of tokens in bp, against plain loops over the tokens; what may not affect them."""

import itertools
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from bigbird_dna.config.mechanisms import known_mechanisms
from bigbird_dna.config.network import EncoderConfig
from bigbird_dna.config.reading import parse_config
from bigbird_dna.errors import ConfigError
from bigbird_dna.model.encoder import Encoder
from bigbird_dna.model.inference import compiled_layers, prepared
from bigbird_dna.model.input_embeddings import expected_bases
from bigbird_dna.model.kmers import TokenPositions, attach_tokenizer, mean_length
from bigbird_dna.papers.experiments.byte_lm_training import CausalNetwork
from bigbird_dna.training import loop
from bigbird_dna.training.distributed import world
from tests.attention.reference_implementations import SMALL as SIZES
from tests.golden.messages import fails
from tests.model.test_token_kmers import DNA, TOKENIZER, padded
from tests.toys import random_dna, small_encoder, uneven_loss
from tests.training.kinds import train

OPTIONS = {**SIZES, "combiner_routing": SIZES["routing"]}
PLACES = TokenPositions()
PLACES.attach(TOKENIZER)


@settings(deadline=None, max_examples=50)
@given(
    st.lists(DNA, min_size=1, max_size=3),
    st.randoms(use_true_random=False),
    st.integers(0, 2),
)
def test_a_position_is_the_center_of_a_token_s_bases(
    texts: list[str], random: Any, extra: int
) -> None:
    ids = padded(*texts, extra=extra)
    ids[torch.tensor([[random.random() < 0.3 for _ in row] for row in ids])] = (
        TOKENIZER.mask_id
    )
    for row, found in zip(ids.tolist(), PLACES(ids).tolist(), strict=True):
        before = 0.0
        for token, place in zip(row, found, strict=True):
            length = len(TOKENIZER.letters[token]) or (
                2.25 if token == TOKENIZER.mask_id else 1
            )
            assert place == before + (length - 1) / 2
            before += length


def test_a_masked_token_counts_as_a_token_of_random_dna_and_heads_begin_at_neighbors() -> (
    None
):
    text = random_dna(100_000, 5)
    assert abs(mean_length(TOKENIZER) - len(text) / len(TOKENIZER.encode(text))) < 0.1
    scales = {"rotary": 1.0, "rotary_bp": expected_bases(40)}
    made = [
        small_encoder(layers=2, position_encoding=name, rotary_scale=scales[name])
        for name in scales
    ]
    torch.testing.assert_close(
        *(Encoder(config).layers[0].query.bias for config in made)
    )


FORMS: list[dict[str, Any]] = [
    *(
        {"attention": name, "attention_options": OPTIONS.get(name, {})}
        for name in known_mechanisms()
    ),
    *(
        {"attention": "full"},
        {"reversible": True},
        {"gradient_checkpointing": True},
        {"causal": True},
    ),
    *(
        {"num_global_tokens": 3},
        {"convolution": 3, "relative_max_distance": 2},
        {"rotary_scale": 1.5},
    ),
    *(
        {"attention_backend": route, "random_blocks": 1}
        for route in ("dense", "blocked", "native")
    ),
]


def encoder(position: str, **changes: Any) -> Encoder:
    """Of float32 and large weights, the same ones for each kind of positions."""
    config = small_encoder(
        TOKENIZER.vocabulary, layers=2, **{"random_blocks": 0, **changes}
    )
    made = Encoder(config.model_copy(update={"position_encoding": position}))
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.3)
    attach_tokenizer(made, TOKENIZER)
    return made.train()


def results(made: Encoder, ids: Tensor) -> list[Tensor]:
    torch.manual_seed(2)
    hidden = made(ids)
    slopes = torch.autograd.grad(
        uneven_loss(hidden), [*made.parameters()], allow_unused=True
    )
    return [hidden.detach(), *(slope for slope in slopes if slope is not None)]


@pytest.mark.parametrize("changes", FORMS, ids=str)
def test_tokens_of_one_base_have_the_positions_of_tokens(
    changes: dict[str, Any],
) -> None:
    ones = [
        token
        for token in TOKENIZER.base_ids.tolist()
        if len(TOKENIZER.letters[token]) == 1
    ]
    ids = torch.tensor(ones)[
        torch.randint(4, (2, 60), generator=torch.Generator().manual_seed(3))
    ]
    found, expected = (
        results(encoder(name, **changes), ids) for name in ("rotary_bp", "rotary")
    )
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("changes", FORMS, ids=str)
def test_a_row_has_its_own_positions_and_no_padding(changes: dict[str, Any]) -> None:
    made = encoder("rotary_bp", **changes).eval()
    ids = padded(random_dna(110, 1), random_dna(40, 2), random_dna(90, 3), extra=2)
    lengths = (ids != TOKENIZER.pad_id).sum(1)
    with torch.no_grad():
        together = made(ids, lengths)
        for row, length in enumerate(lengths.tolist()):
            given = ids[row : row + 1, :length], lengths[row : row + 1]
            alone = made(*given)[0]
            torch.testing.assert_close(
                together[row, :length], alone, rtol=1e-4, atol=1e-4
            )
            with prepared(made, 128):
                torch.testing.assert_close(made(*given)[0], alone, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # torch compiles with warnings of its own
def test_compiled_layers_and_bfloat16_rotate_each_row() -> None:
    made, ids = (
        encoder("rotary_bp", dropout=0.0),
        padded(random_dna(110, 1), random_dna(105, 2)),
    )
    expected = results(made, ids)
    with compiled_layers(made, "aot_eager"):
        for one, other in zip(results(made, ids), expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
    with torch.autocast("cpu", torch.bfloat16):
        assert (results(made, ids)[0] - expected[0]).norm() < 0.1 * expected[0].norm()


def test_an_interrupted_training_goes_on_to_the_same_weights(
    tiny_config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, steps, backward = tmp_path / "run.yaml", itertools.count(), loop.backward
    config.write_text(
        tiny_config.read_text().replace(
            "encoder:", "encoder:\n  position_encoding: rotary_bp"
        )
    )

    def stepped(*given: Any) -> Any:
        if next(steps) == 28:  # in the second training, after a checkpoint
            raise KeyboardInterrupt
        return backward(*given)

    monkeypatch.setattr(loop, "backward", stepped)
    for home in (tmp_path / "undisturbed", tmp_path / "again", tmp_path / "again"):
        with suppress(KeyboardInterrupt), world("cpu") as here:
            train("pretraining", config, tmp_path, home, home / "checkpoints", here)
    assert next(steps) == 20 + 9 + 12
    one, other = tmp_path.glob("*/pretraining/model.safetensors")
    assert one.read_bytes() == other.read_bytes()


def test_symbols_have_no_bases() -> None:
    for changes in ({"position_encoding": "rotary_bp"}, {"kmers": 3}):
        with fails(ConfigError):
            parse_config({"long_range_arena": {"encoder": changes}})
    with fails(ConfigError):
        CausalNetwork(EncoderConfig(position_encoding="rotary_bp"), 4)
