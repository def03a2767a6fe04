"""Attention mechanisms by name: what a configuration may ask for, and one of one's own."""

import importlib
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import bigbird_dna
from bigbird_dna.attention import mechanisms as folder
from bigbird_dna.attention.pattern import Pattern
from bigbird_dna.config.mechanisms import (
    OF_PATTERNS,
    LayerShape,
    Mechanism,
    known_mechanisms,
)
from bigbird_dna.config.network import EncoderConfig
from bigbird_dna.config.reading import parse_config
from bigbird_dna.config.section import Section
from bigbird_dna.errors import ConfigError, ModelError
from bigbird_dna.model.directory import load, save
from bigbird_dna.model.encoder import Encoder
from bigbird_dna.model.mechanism import attention_pattern
from bigbird_dna.model.settings import PromoterSettings
from tests.attention.reference_implementations import masked_softmax, quick
from tests.cli.command import invoke
from tests.conftest import REPOSITORY
from tests.docs.blocks import blocks
from tests.golden.messages import fails
from tests.toys import random_dna, random_model, small_tokenizer

NAMES = sorted(known_mechanisms())
COMBINERS = [name for name in NAMES if name.startswith("combiner_")]
SMALL = EncoderConfig(
    vocabulary=40, layers=2, hidden=16, heads=2, max_length=128, dropout=0.0
)

PAGE = "docs/reference/mechanisms.md"
DECAYING = blocks("docs/extending.md", "py")[0].text
"""A mechanism of one's own, as the documentation shows it: one file."""


@pytest.fixture
def found_anew() -> Iterator[None]:
    """Mechanisms are looked for in this test, and again after it."""
    known_mechanisms.cache_clear()
    yield
    known_mechanisms.cache_clear()


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found_anew: None) -> Path:
    """The file of a mechanism of one's own, in the folder of all mechanisms."""
    path = tmp_path / "mechanisms/decaying.py"
    path.parent.mkdir()
    path.write_text(DECAYING)
    monkeypatch.setattr(folder, "__path__", [*folder.__path__, str(path.parent)])
    monkeypatch.delitem(sys.modules, f"{folder.__name__}.decaying", raising=False)
    importlib.invalidate_caches()
    return path


# The configuration


def test_every_mechanism_is_described_with_its_options() -> None:
    text = (REPOSITORY / PAGE).read_text(encoding="utf-8")
    for name, mechanism in known_mechanisms().items():
        assert mechanism.name == name and mechanism.cost
        assert all(
            field.description for field in mechanism.options.model_fields.values()
        ), name
        options = ", ".join(
            f"`{key}` ({value})" for key, value in mechanism.checked({})
        )
        causal = "yes" if mechanism.causal else "no"
        assert f"\n| `{name}` | {options} | {mechanism.cost} | {causal} |\n" in text


def test_attentions_have_every_name_that_a_configuration_takes() -> None:
    attentions = bigbird_dna.ATTENTIONS
    assert list(attentions) == [*OF_PATTERNS, *NAMES] and len(attentions) == len(
        OF_PATTERNS
    ) + len(NAMES)
    for name, attention in attentions.items():
        assert (
            callable(attention)
            if name in OF_PATTERNS
            else attention == known_mechanisms()[name]
        )
        assert "nothing_" + name not in attentions
    q, k, v = torch.randn(3, 1, 2, 10, 4)
    axial = attentions["axial"]
    assert isinstance(axial, Mechanism)
    assert (
        axial.make(LayerShape(heads=2, width=4), {"columns": 3})(q, k, v).shape
        == q.shape
    )


def test_attentions_have_a_mechanism_of_ones_own(own: Path) -> None:
    assert list(bigbird_dna.ATTENTIONS) == [*OF_PATTERNS, *sorted([*NAMES, "decaying"])]


def test_mechanisms_are_loaded_when_one_is_asked_for() -> None:
    """Not with the names that users import, nor torch with the package."""
    lines = (
        "import sys, bigbird_dna",
        "assert 'torch' not in sys.modules",
        "from bigbird_dna import ATTENTIONS",
        "assert not [name for name in sys.modules if 'attention.mechanisms' in name]",
        "assert 'performer' in ATTENTIONS",
    )
    subprocess.run([sys.executable, "-c", "\n".join(lines)], check=True)


def test_a_configuration_has_all_options_of_its_mechanism() -> None:
    config = parse_config(
        {"encoder": {"attention": "combiner_fixed", "attention_options": {"span": 9}}}
    )
    assert config.encoder.attention_options == {"span": 9, "pooling": "max"}
    assert parse_config(config.model_dump()) == config
    assert parse_config({}).encoder.attention_options == {}


@pytest.mark.parametrize(
    ("attention", "others", "named"),
    [
        ("combined", {}, ("combined",)),
        (
            "combiner_fixed",
            {"attention_options": {"columns": 3}},
            ("columns",),
        ),
        ("combiner_fixed", {"attention_options": {"span": 0}}, ("span", "got 0")),
        (
            "combiner_routing",
            {"attention_options": {"decay": "much"}},
            ("decay", "much"),
        ),
        (
            "bigbird",
            {"attention_options": {"span": 4}},
            ("attention_options", "bigbird"),
        ),
        (
            "combiner_logsparse",
            {"num_global_tokens": 4},
            ("num_global_tokens 4", "combiner_logsparse"),
        ),
        (
            "combiner_logsparse",
            {"attention_backend": "blocked"},
            ("attention_backend blocked",),
        ),
        (
            "performer",
            {"attention_dropout": 0.1},
            ("attention_dropout 0.1", "performer"),
        ),
        ("reformer", {"attention_options": {"buckets": 3}}, ("buckets", "got 3")),
        ("window", {"window_blocks": 0}, ("window_blocks",)),
        ("random", {"num_global_tokens": 4}, ("num_global_tokens 4", "random")),
        ("bigbird_etc", {}, ("bigbird_etc", "num_global_tokens")),
    ],
)
def test_what_no_mechanism_has_is_refused_in_one_line(
    attention: str, others: dict[str, object], named: tuple[str, ...]
) -> None:
    with fails(ConfigError, *named) as caught:
        parse_config({"encoder": {"attention": attention, **others}}, "run.yaml")
    assert "\n" not in str(caught.value)


def test_another_package_offers_a_mechanism(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found_anew: None
) -> None:
    """As whoever installs one without a checkout has it: by its entry points."""
    (tmp_path / "their_attention.py").write_text(DECAYING)
    described = tmp_path / "their_attention-1.0.dist-info"
    described.mkdir()
    (described / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: their-attention\nVersion: 1.0\n"
    )
    (described / "entry_points.txt").write_text(
        "[bigbird_dna.attention]\ndecaying = their_attention\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert known_mechanisms()["decaying"].build.__module__ == "their_attention"


# One of one's own


def test_a_file_of_ones_own_is_pretrained_saved_and_loaded(
    own: Path, tiny_config: Path, tmp_path: Path
) -> None:
    options = (
        "--set",
        "encoder.attention=decaying",
        "--set",
        "encoder.attention_options={reach: 3.0}",
    )
    output = tmp_path / "model"
    invoke(
        "pretrain",
        tiny_config,
        "-o",
        output,
        "--checkpoint-dir",
        tmp_path / "checkpoints",
        *options,
    )
    weights = load_file(output / "model.safetensors")
    (reach,) = (
        weight for name, weight in weights.items() if name.endswith("mechanism.reach")
    )
    assert reach.shape == (2,) and (reach != 3).all(), "it was learnt"
    model = load(output)
    assert (model.config.attention, model.config.attention_options) == (
        "decaying",
        {"reach": 3.0},
    )
    assert model.embed([random_dna(200, 1)]).shape == (1, 16)


def test_a_file_of_ones_own_takes_part_in_the_ablation(
    own: Path, tiny_config: Path, tmp_path: Path
) -> None:
    """By its name alone."""
    results = tmp_path / "results"
    shutil.copytree(tiny_config.parent / "results", results)
    ablation = (
        "{mechanisms: [bigbird, decaying], tokens: 64, batch_tokens: 128, steps: 2}"
    )
    sets = ("--set", f"ablation={ablation}", "--set", f"results={results}")
    words = ("ablation", tiny_config, *sets, "--threads", 1, "-o", tmp_path / "report")
    invoke("experiment run", *words)
    rows = {
        row["mechanism"]: row
        for row in json.loads((tmp_path / "report/ablation.json").read_text())["rows"]
    }
    assert rows["decaying"]["difference"] is not None
    assert rows["decaying"]["steps"] == 2 and rows["decaying"]["tokens_per_second"] > 0


def test_a_model_whose_mechanism_is_not_installed_is_refused(
    own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = EncoderConfig(
        vocabulary=40, layers=1, hidden=8, heads=2, max_length=64, attention="decaying"
    )
    model = promoter_model(config)
    save(tmp_path / "model", model, {}, {}, {})
    assert load(tmp_path / "model").config == config
    monkeypatch.undo()
    known_mechanisms.cache_clear()
    with fails(ModelError) as caught:
        load(tmp_path / "model")
    assert "\n" not in str(caught.value)


def test_queries_may_be_the_keys_and_the_layers_input_is_given(
    monkeypatch: pytest.MonkeyPatch, found_anew: None
) -> None:
    seen = []

    class Probe(nn.Module):
        def forward(self, q: Tensor, k: Tensor, v: Tensor, **rest: object) -> Tensor:
            seen.append((q, k, rest))
            return v

        def begin_pass(self) -> None:
            seen.append("pass")

    probe = Mechanism(
        "probe", Section, lambda shape, options: Probe(), cost="L", shares_keys=True
    )
    monkeypatch.setattr(
        "bigbird_dna.config.mechanisms.known_mechanisms", lambda: {"probe": probe}
    )
    config = SMALL.model_copy(
        update={"attention": "probe", "dropout": 0.0, "position": "rotary"}
    )
    encoder = Encoder(config)
    assert not [name for name in encoder.state_dict() if ".key." in name]
    ids = torch.randint(5, 40, (2, 20))
    seen.clear()
    encoder(ids).square().sum().backward()
    assert [entry == "pass" for entry in seen] == [True, True, False, False], (
        "once for each layer, before"
    )
    for q, k, rest in (entry for entry in seen if entry != "pass"):
        assert torch.equal(q, k) and rest["hidden"].shape == (2, 20, 16)  # type: ignore[index]
        assert rest["lengths"] is None and rest["dropout"] == 0
    assert all(
        p.grad is not None
        for name, p in encoder.named_parameters()
        if "query" not in name
    )
    seen.clear()
    with torch.inference_mode():
        encoder.eval()(ids)
    assert "pass" not in seen


# Encoders and models

PARTS = {
    "random": (0, 0, 3),
    "window": (0, 3, 0),
    "random_window": (0, 3, 3),
    "bigbird_etc": (2, 3, 3),
}
"""Names of block patterns, and their global, window and random blocks where the encoder has 2, 3 and 3."""


@pytest.mark.parametrize("name", PARTS)
def test_parts_of_bigbird_are_its_pattern_without_the_others(name: str) -> None:
    extra = 4 if name == "bigbird_etc" else 0
    update = {
        "block_size": 8,
        "global_blocks": 2,
        "window_blocks": 3,
        "random_blocks": 3,
    }
    update["num_global_tokens"] = extra
    config = EncoderConfig(**{**SMALL.model_dump(), **update, "attention": name})
    pattern = Pattern(8, *PARTS[name], num_global_tokens=extra)
    assert attention_pattern(config) == pattern
    torch.manual_seed(0)
    encoder = Encoder(config).eval()
    seen = []

    def note(
        q: Tensor, k: Tensor, v: Tensor, *rest: object, **options: object
    ) -> Tensor:
        seen.append(
            masked_softmax(
                q @ k.mT / 8**0.5,
                torch.from_numpy(pattern.mask(q.shape[2], 2, len(seen))),
            )
            @ v
        )
        return seen[-1]

    ids = torch.randint(5, 40, (1, 100))
    with torch.no_grad():
        expected = encoder(ids)
        for layer in encoder.layers:
            layer.attend = note
        torch.testing.assert_close(encoder(ids), expected, atol=1e-5, rtol=1e-5)
    assert len(seen) == 2


def promoter_model(config: EncoderConfig) -> bigbird_dna.Model:
    settings = PromoterSettings(
        upstream=100, downstream=60, pooling="cls", jitter=4, views=2
    )
    return random_model(small_tokenizer(), config, settings, scale=3)


@pytest.mark.parametrize(
    "name", quick(NAMES, "combiner_routing", "longformer", "performer")
)
def test_a_model_is_saved_loaded_and_predicts_the_same(
    name: str, tmp_path: Path
) -> None:
    options = {"pooling": "deepsets_max"} if name in COMBINERS else {}
    config = SMALL.model_copy(update={"attention": name, "attention_options": options})
    config = EncoderConfig(**config.model_dump())
    model = promoter_model(config)
    save(tmp_path / "model", model, {}, {}, {})
    described = json.loads((tmp_path / "model/config.json").read_text())["encoder"]
    assert (
        described["attention"] == name
        and described["attention_options"] == config.attention_options
    )
    loaded = load(tmp_path / "model")
    assert loaded.config == config
    for key, value in model.network.state_dict().items():
        assert torch.equal(value, loaded.network.state_dict()[key]), key
    windows = [random_dna(160, seed) for seed in range(3)]
    first = model.predict(windows)
    assert (first == loaded.predict(windows)).all() and len(set(first.tolist())) == 3
    assert first[1] == loaded.predict(windows[1:2])[0], "no company counts"
