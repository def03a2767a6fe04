"""Model directories: what is saved is loaded, and damage is named."""

import json
from pathlib import Path

import pytest
import torch

import bigbird_dna
from bigbird_dna.config import EncoderConfig
from bigbird_dna.errors import ModelError
from bigbird_dna.model.directory import build_network, load, load_chromatin_model, make_model, save
from bigbird_dna.model.settings import PromoterSettings
from bigbird_dna.tokens.tokenizer import DnaTokenizer

SETTINGS = PromoterSettings(upstream=30, downstream=10, pooling="mean", jitter=4, views=2)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> DnaTokenizer:
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.model"
    return DnaTokenizer.train(["ACGTTGCA" * 50, "GGATCCTTAA" * 50], path, 24)


@pytest.fixture
def saved(tmp_path: Path, tokenizer: DnaTokenizer) -> Path:
    config = EncoderConfig(
        vocabulary=tokenizer.vocabulary, layers=1, hidden=8, heads=2, positions=64, block_size=8
    )
    torch.manual_seed(4)
    network = build_network(config, SETTINGS)
    model = make_model(network, tokenizer, config, SETTINGS)
    log = tmp_path / "log"
    log.write_text("{}\n")
    save(tmp_path / "model", model, {"seed": 4}, {"auroc": 0.5}, {"training.jsonl": log})
    return tmp_path / "model"


def test_round_trip_is_bit_identical(saved: Path, tokenizer: DnaTokenizer) -> None:
    model = bigbird_dna.load(saved)
    torch.manual_seed(4)
    original = build_network(model.config, SETTINGS)
    for name, value in model.network.state_dict().items():
        assert torch.equal(value, original.state_dict()[name]), name
    assert model.settings == SETTINGS and model.tokenizer.sha256 == tokenizer.sha256
    assert not model.network.training and len(model.sha256) == 64
    names = {path.name for path in saved.iterdir()}
    assert names == {
        *("config.json", "model.safetensors", "tokenizer.model", "provenance.json"),
        *("metrics.json", "training.jsonl"),
    }
    assert json.loads((saved / "provenance.json").read_text())["software"]["random_blocks_seed"] == 0


def test_loading_leaves_the_random_generator_alone(saved: Path) -> None:
    torch.manual_seed(9)
    expected = torch.rand(3)
    torch.manual_seed(9)
    load(saved)
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.model"])
@pytest.mark.parametrize("damage", ["missing", "empty", "cut", "noise"])
def test_a_damaged_file_is_named(saved: Path, name: str, damage: str) -> None:
    path = saved / name
    content = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes({"empty": b"", "cut": content[: len(content) // 2], "noise": b"\xff" * 99}[damage])
    with pytest.raises(ModelError, match=name) as caught:
        load(saved)
    assert "\n" not in str(caught.value)


def test_no_directory_a_file_and_another_task_are_refused(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no such model directory"):
        load(tmp_path / "nowhere")
    with pytest.raises(ModelError, match="no such model directory"):
        load(saved / "config.json")
    with pytest.raises(ModelError, match=r"not a model directory: config\.json is missing"):
        load(tmp_path)
    with pytest.raises(ModelError, match="a chromatin model is needed, this is a promoter model"):
        load_chromatin_model(saved)


@pytest.mark.parametrize(
    ("key", "value"),
    [("format", 99), ("task", "translation"), ("encoder", {"layers": "many"}), ("settings", {})],
)
def test_a_description_that_makes_no_sense_is_refused(saved: Path, key: str, value: object) -> None:
    path = saved / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    with pytest.raises(ModelError, match=r"config\.json"):
        load(saved)


def test_random_blocks_that_are_drawn_otherwise_are_refused(saved: Path) -> None:
    """The checkpoint holds the seed and a checksum of what it stands for."""
    path = saved / "config.json"
    values = json.loads(path.read_text())
    assert len(values["random_blocks_sha256"]) == 64
    values["random_blocks_sha256"] = "0" * 64
    path.write_text(json.dumps(values))
    with pytest.raises(ModelError, match="trained with other random blocks"):
        load(saved)


def test_weights_of_other_shapes_are_refused(saved: Path) -> None:
    path = saved / "config.json"
    values = json.loads(path.read_text())
    values["encoder"]["layers"] = 2
    path.write_text(json.dumps(values))
    with pytest.raises(ModelError, match=r"weights don't fit config\.json"):
        load(saved)
