"""`pretraining.start_from`: fine-tuning from a model of any origin, in place of pretraining."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from bigbird_dna.config.reading import load_config, parse_config
from bigbird_dna.config.run import Config
from bigbird_dna.errors import ConfigError, ModelError
from bigbird_dna.huggingface.exchange import export_huggingface, import_huggingface
from bigbird_dna.huggingface.starting import (
    find_start,
    start_command,
    start_files,
    with_start,
)
from bigbird_dna.model.directory import load, save
from bigbird_dna.model.settings import (
    ChromatinSettings,
    PretrainingSettings,
    Settings,
)
from bigbird_dna.tokens.dna import DnaTokenizer
from bigbird_dna.tokens.text import TextTokenizer
from bigbird_dna.training.initialization import load_start
from tests.cli.command import invoke
from tests.golden.messages import fails
from tests.tiny_run import SETTINGS
from tests.tokens.text_model import text_model
from tests.toys import random_model, small_encoder, written

SIZES: dict[str, Any] = {"layers": 2, "random_blocks": 1, "random_seed": 3}


def stored(path: Path, tokenizer: Any, settings: Settings, **sizes: Any) -> Path:
    encoder = small_encoder(tokenizer.vocabulary, **SIZES | sizes)
    save(path, random_model(tokenizer, encoder, settings), {"contigs": ["far"]}, {}, {})
    return path


@pytest.fixture
def model(tmp_path: Path, tokenizer: DnaTokenizer) -> Path:
    return stored(
        tmp_path / "model", tokenizer, PretrainingSettings(next_sentence=True)
    )


@pytest.fixture
def checkpoint(model: Path) -> Path:
    export_huggingface(model, model.parent / "hf")
    return model.parent / "hf"


def starting(path: Path | str, **sections: Any) -> Config:
    return parse_config({"pretraining": {"start_from": str(path)}, **sections})


def test_the_encoder_is_the_models(model: Path, checkpoint: Path) -> None:
    theirs = load(model).config
    assert with_start(starting(model)).encoder == theirs
    read = with_start(starting(checkpoint)).encoder
    assert read == theirs.model_copy(
        update={"compatibility": "huggingface", "intermediate": 64}
    )
    as_in_the_paper = with_start(
        starting(checkpoint, encoder={"compatibility": "none"})
    ).encoder
    assert as_in_the_paper.compatibility == "none"
    assert with_start(Config()) == Config()
    assert {path.name for path in start_files(starting(model))} == {
        path.name for path in model.iterdir()
    }


def test_what_changes_no_weights_is_the_configurations(model: Path) -> None:
    own = {
        "dropout": 0.3,
        "max_length": 512,
        "gradient_checkpointing": True,
        "vocabulary": 0,
        "layers": 2,
    }
    found = with_start(starting(model, encoder=own)).encoder
    assert found == load(model).config.model_copy(
        update={"dropout": 0.3, "max_length": 512, "gradient_checkpointing": True}
    )
    with fails(ConfigError, "encoder.layers 3"):
        with_start(starting(model, encoder={"layers": 3}))
    with fails(ConfigError, "vocabulary"):
        with_start(starting(model, encoder={"vocabulary": 7}))


def test_a_model_that_is_not_there_is_named(
    tmp_path: Path, model: Path, checkpoint: Path
) -> None:
    with fails(ConfigError, "absent"):
        find_start(starting(tmp_path / "absent"))
    with fails(ConfigError):
        find_start(
            parse_config(
                {"data_dir": str(tmp_path), "pretraining": {"start_from": "no such"}}
            )
        )
    with fails(ConfigError, tmp_path):
        find_start(starting(tmp_path))
    assert (
        find_start(
            parse_config(
                {"data_dir": str(tmp_path), "pretraining": {"start_from": "hf"}}
            )
        )
        == checkpoint
    )
    written(checkpoint / "config.json", json.dumps({"model_type": "bert"}))
    with fails(ConfigError, "bert"):
        with_start(starting(checkpoint))
    with pytest.raises(ConfigError):
        find_start(Config())


def test_a_model_is_copied_and_a_checkpoint_imported(
    model: Path, checkpoint: Path, tmp_path: Path
) -> None:
    copy = str(tmp_path / "copy")
    assert start_command(starting(model), copy) == ["cp", "-R", str(model), copy]
    program, *words = start_command(starting(checkpoint), copy)
    assert program == "bigbird-dna"
    invoke(*words)
    import_huggingface(checkpoint, tmp_path / "expected")
    for name in ("config.json", "model.safetensors", "tokenizer.model"):
        expected = (tmp_path / "expected" / name).read_bytes()
        assert Path(copy, name).read_bytes() == expected


def test_models_without_one_encoder_of_dna_are_refused(
    tmp_path: Path, tokenizer: DnaTokenizer
) -> None:
    text = TextTokenizer(
        text_model("a text of words, and of more words than these", 40)
    )
    of_text = stored(tmp_path / "text", text, PretrainingSettings(next_sentence=False))
    with fails(ModelError, of_text):
        load_start(of_text)
    tracks: dict[str, Any] = {
        "tracks": [{"track": "a", "group": "TF"}],
        "window": 64,
        "bin": 16,
        "pooling": "bin",
        "bin_layers": 0,
    }
    two = stored(tmp_path / "two", tokenizer, ChromatinSettings(**tracks, members=2))
    with fails(ModelError, two):
        load_start(two)


def test_a_configuration_goes_from_a_checkpoint_to_a_promoter_model(
    checkpoint: Path, tiny_config: Path, tmp_path: Path
) -> None:
    """With the defaults of paths, as a user types it; the origin stays with the model."""
    (tmp_path / "hf").rename(tmp_path / "their-model")
    values = {name: section for name, section in SETTINGS.items() if name != "encoder"}
    values |= {
        "results": str(tmp_path / "run"),
        "pretraining": {"start_from": str(tmp_path / "their-model")},
    }
    config, run = (
        written(tmp_path / "mine.yaml", yaml.safe_dump(values)),
        load_config(tiny_config).paths,
    )
    _, *words = start_command(
        load_config(config), str(load_config(config).paths.pretrained)
    )
    invoke(*words)
    data = (
        "--windows",
        run.windows,
        "--reference",
        run.reference,
        "--negative-set",
        "genomic",
    )
    invoke("finetune-promoter", config, *data)
    paths = load_config(config).paths
    made = load(paths.promoter_model("genomic"))
    assert made.config == with_start(load_config(config)).encoder
    found = json.loads(
        (paths.promoter_model("genomic") / "provenance.json").read_text()
    )
    assert found["pretrained_sha256"] == load(paths.pretrained).sha256
    assert found["imported_from"] == "their-model"
    assert found["held_out_contigs_seen_in_pretraining"] is None
    # Random weights of the same shape, as a control: the tokenizer is that of the model.
    invoke(
        *("finetune-promoter", config, *data, "-o", tmp_path / "random"),
        *(
            "--set",
            "promoters.classifier.initial=random",
            "--checkpoint-dir",
            tmp_path / "checkpoints",
        ),
    )
    control = load(tmp_path / "random")
    assert (
        control.tokenizer.sha256 == made.tokenizer.sha256
        and control.config == made.config
    )
