"""Causal models: nothing of what they say at a token depends on later ones."""

from typing import Any

import pytest
import torch
from torch import Tensor

from bigbird_dna.config import EncoderConfig, known_mechanisms, load_config, parse_config
from bigbird_dna.config.mechanisms import OF_PATTERNS
from bigbird_dna.errors import ConfigError, ModelError, UsageError
from bigbird_dna.huggingface.configuration import huggingface_config
from bigbird_dna.model.heads import PretrainingNetwork
from bigbird_dna.model.settings import PretrainingSettings, Settings
from tests.attention.reference_implementations import SMALL
from tests.conftest import REPOSITORY
from tests.golden.messages import fails
from tests.model.test_rotary import logits, made, watched
from tests.toys import random_model, small_tokenizer

VOCABULARY = 30
TOKENS = 75
SIZES = {"block_size": 8, "global_blocks": 1, "window_blocks": 3, "random_blocks": 1}
OPTIONS: dict[str, dict[str, Any]] = {
    **SMALL,
    "combiner_fixed": {"span": 7},
    "combiner_axial_vertical": {"columns": 7, "pooling": "mean"},
    "combiner_axial_horizontal": {"columns": 7},
    "combiner_axial_rowmajor": {"columns": 7, "pooling": "deepsets_max"},
    "combiner_routing": {"clusters": 3, "span": 4},
    "combiner_mixture": {"columns": 7, "span": 7},
}
CAUSAL = [*OF_PATTERNS.keys() - {"bigbird_etc"}, *(n for n, one in known_mechanisms().items() if one.causal)]


def encoder(attention: str, **values: Any) -> EncoderConfig:
    """A small causal encoder; a mechanism's options are for short sequences."""
    if attention not in OF_PATTERNS:
        values = {"attention_options": OPTIONS.get(attention, {}), **values}
    return EncoderConfig(
        **{
            **{"vocabulary": VOCABULARY, "layers": 3, "hidden": 16, "heads": 2, "max_length": 128},
            **{"attention": attention, "causal": True, "dropout": 0.0, **SIZES, **values},
        }
    )


def network(config: EncoderConfig, dtype: torch.dtype = torch.float32) -> PretrainingNetwork:
    """A network of weights large enough that attention isn't flat."""
    torch.manual_seed(0)
    made = PretrainingNetwork(config, next_sentence=False).eval().to(dtype)
    with torch.no_grad():
        for parameter in made.encoder.layers.parameters():
            parameter *= 3
    return made


def scores(model: PretrainingNetwork, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Logits (B, L, V) of every token, and the embeddings (B, L, D) that they are made of."""
    kept: list[Tensor] = []

    def keep(module: torch.nn.Module, given: object, out: Tensor) -> Tensor:
        kept.append(out.detach().requires_grad_())
        return kept[0]

    handle = model.encoder.embeddings.register_forward_hook(keep)
    batch, tokens = ids.shape
    out = model(ids, torch.full((batch,), tokens), None, torch.arange(batch * tokens)).tokens
    handle.remove()
    return out.view(batch, tokens, -1), kept[0]


def check(config: EncoderConfig, dtype: torch.dtype = torch.float32) -> None:
    model = network(config, dtype)
    ids = torch.randint(VOCABULARY, (2, TOKENS), generator=torch.Generator().manual_seed(1))
    out, _ = scores(model, ids)
    seen = False
    for now in (1, 8, 33, TOKENS - 1):
        changed = ids.clone()
        changed[:, now:] = (changed[:, now:] + 1 + torch.arange(TOKENS - now)) % VOCABULARY
        other, embedded = scores(model, changed)
        assert torch.equal(other[:, :now], out[:, :now]), now
        assert not torch.equal(other[:, now:], out[:, now:])
        (grad,) = torch.autograd.grad(other[:, :now].square().sum(), embedded)
        assert (grad[:, now:] == 0).all() and (grad[:, now - 1] != 0).any()
        seen |= bool((grad[:, : now - 1] != 0).any())
    assert seen  # what stands before does count


@pytest.mark.parametrize("attention", sorted(CAUSAL))
def test_no_bit_of_what_is_said_depends_on_later_tokens(attention: str) -> None:
    check(encoder(attention))


@pytest.mark.parametrize(
    "values",
    [
        {"attention_backend": "dense"},
        {"attention_backend": "blocked"},
        {"attention_backend": "native"},
        {"relative_max_distance": 4},
        {"position_encoding": "rotary"},
        {"reversible": True},
        {"random_blocks": 2, "window_blocks": 0, "global_blocks": 0},
    ],
    ids=str,
)
def test_nor_does_it_by_any_route_or_part(values: dict[str, Any]) -> None:
    check(encoder("bigbird", **values))
    if values.get("attention_backend") != "native":
        check(encoder("bigbird", **values), torch.float64)


def test_the_same_encoder_without_the_key_does_see_what_follows() -> None:
    """What the test above would find."""
    with pytest.raises(AssertionError):
        check(encoder("full", causal=False))


@pytest.mark.parametrize("values", [{"next_sentence": True}, {"mask_fraction": 0.3}, {"mask_span": 2.0}])
def test_pretraining_refuses_what_it_has_no_use_for(values: dict[str, Any]) -> None:
    with fails(ConfigError):
        parse_config({"encoder": {"causal": True}, "pretraining": values})
    parse_config({"encoder": {"causal": False}, "pretraining": values})


@pytest.mark.parametrize("position", ["rotary", "learned"])
def test_heads_begin_at_tokens_before(position: str) -> None:
    assert watched(logits(made(position, 128, 4, causal=True), 0)) == [-1, -2, -3, -4]


def test_huggingface_has_no_counterpart() -> None:
    with fails(ModelError):
        huggingface_config(encoder("full"), None, "model")


def test_the_first_token_alone_says_nothing_of_a_sequence() -> None:
    tokenizer = small_tokenizer()
    config = encoder("full", vocabulary=tokenizer.vocabulary)
    model = random_model(tokenizer, config, Settings())
    assert model.embed(["ACGTACGTTT", "GGGTTTA"]).shape == (2, 16)
    with fails(UsageError):
        model.embed(["ACGT"], pooling="cls")


@pytest.mark.parametrize(("task", "other"), [("promoters", "mean"), ("chromatin", "bin")])
def test_models_of_a_task_don_t_look_at_it_either(task: str, other: str) -> None:
    config = load_config(
        REPOSITORY / "workflow/config/demo.yaml",
        [
            *("encoder.causal=true", "pretraining.mask_fraction=0.15", f"{task}.model.pooling=cls"),
            *(("chromatin.model.bin_layers=0", "chromatin.evaluation.middle=0") if other == "bin" else ()),
            *(
                ("chromatin.training.bins_per_window=1",)
                if other == "bin"
                else ("promoters.model.head=dense",)
            ),
        ],
    )
    with fails(ConfigError, task, other):
        config.check_targets()


def test_settings_of_masked_models_are_what_they_were() -> None:
    assert PretrainingSettings(next_sentence=False).as_json() == {"next_sentence": False}
