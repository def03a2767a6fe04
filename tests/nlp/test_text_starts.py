"""What trainings on text begin with, against HuggingFace's models; and pretraining on text."""

import itertools
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from bigbird_dna.errors import ConfigError, ModelError
from bigbird_dna.model.directory import build_network, load, save
from bigbird_dna.model.settings import ClassificationSettings, PretrainingSettings
from bigbird_dna.papers.nlp.config import parse_config
from bigbird_dna.papers.nlp.data import HELD_OUT
from bigbird_dna.papers.nlp.trainer import (
    Start,
    fast_tokenizer,
    make_start,
    train_tokenizer,
)
from bigbird_dna.tokens.text import JsonTokenizer
from tests.cli.command import Run
from tests.golden.messages import fails
from tests.nlp.conftest import (
    TEXT,
    TINY,
    Write,
    done,
    figures,
    read_lines,
    shuffle_weights,
    their_config,
    write_lines,
)
from tests.toys import random_model, small_encoder, update_json

TOLERANCE = 1e-4


def made(start: dict[str, Any], **encoder: Any) -> Start:
    """A start from a model, for which no tokenizer is trained."""

    def no_texts() -> Iterable[str]:
        raise AssertionError("no tokenizer is to be trained")
        yield ""

    data = {"files": {"train": "a", "valid": "b", "test": "c"}}
    task = {"kind": "pretraining", "data": data, "start": start, "length": 16}
    task["encoder"] = encoder
    return make_start(parse_config({"tasks": {"a": task}}).task("a"), no_texts())


def logits(start: Start, ids: Tensor) -> Tensor:
    """Of a masked-token network with the start's weights, (B, L, V)."""
    network = build_network(
        start.config, PretrainingSettings(next_sentence=False)
    ).eval()
    start.initialize(network)
    lengths = torch.full((len(ids),), ids.shape[1])
    with torch.inference_mode():
        found = network(
            ids, lengths, torch.zeros_like(ids), torch.arange(ids.numel())
        ).tokens
    return found.reshape(*ids.shape, -1)


def drawn(vocabulary: int, tokens: int) -> Tensor:
    return torch.randint(
        5, vocabulary, (2, tokens), generator=torch.Generator().manual_seed(1)
    )


def own_model(tmp_path: Path, tokenizer: JsonTokenizer, **changes: Any) -> str:
    """A pretrained model's directory, of random weights."""
    config = small_encoder(
        tokenizer.vocabulary, max_length=64, block_size=16, **changes
    )
    model = random_model(tokenizer, config, PretrainingSettings(next_sentence=False))
    save(tmp_path / "model", model, {}, {}, {})
    return str(tmp_path / "model")


def test_roberta_has_its_logits_and_repeated_positions(roberta: Path) -> None:
    theirs = transformers.RobertaForMaskedLM.from_pretrained(roberta).eval()
    start = made({"model": str(roberta)}, max_length=512, attention="full")
    table = start.weights["encoder.embeddings.position.weight"]
    assert torch.equal(table[:128], table[128:256]) and len(table) == 512
    ids = drawn(theirs.config.vocab_size, 128)
    with torch.inference_mode():
        expected = theirs(input_ids=ids).logits
    assert (logits(start, ids) - expected).abs().max() < TOLERANCE
    assert expected.std() > 0.5  # the comparison says something


def test_robertas_pieces_are_its_tokenizers(roberta: Path) -> None:
    from tokenizers import Tokenizer

    start = made({"model": str(roberta)}, max_length=512)
    theirs = Tokenizer.from_file(str(roberta / "tokenizer.json")).encode(
        TEXT, add_special_tokens=False
    )
    assert start.tokenizer.encode(TEXT).tolist() == theirs.ids
    assert [start.tokenizer.pieces[index] for index in start.tokenizer.specials] == [
        *("<pad>", "<unk>", "<s>", "</s>", "<mask>")
    ]


def test_a_classifier_of_theirs_gives_its_logits(
    tmp_path: Path, text_tokenizer: JsonTokenizer
) -> None:
    config = their_config(text_tokenizer, num_labels=3)
    network = transformers.BigBirdForSequenceClassification(config)
    shuffle_weights(network, 32)
    network.save_pretrained(tmp_path / "hf")
    text_tokenizer.save(tmp_path / "hf/tokenizer.json")
    ids = drawn(config.vocab_size, 1024)
    with torch.inference_mode():
        expected = network.eval()(input_ids=ids).logits
    start = made({"model": str(tmp_path / "hf")}, compatibility="huggingface")
    ours = build_network(
        start.config, ClassificationSettings(outputs=3, pooling="cls")
    ).eval()
    start.initialize(ours)
    with torch.inference_mode():
        found = ours(ids, torch.tensor([1024, 1024]))
    assert (found - expected).abs().max() < TOLERANCE and expected.std() > 0.1


def test_a_model_of_ours_is_taken_with_more_positions(
    tmp_path: Path, text_tokenizer: JsonTokenizer
) -> None:
    directory = own_model(tmp_path, text_tokenizer)
    start = made({"model": directory}, max_length=128, window_blocks=1)
    assert (
        start.config.max_length,
        start.config.window_blocks,
        start.config.hidden,
    ) == (128, 1, 16)
    assert start.sha256 == load(tmp_path / "model").sha256
    with fails(ConfigError, "encoder.hidden 32", 16):
        made({"model": directory}, hidden=32, heads=2)


def test_rotary_positions_need_no_table(
    tmp_path: Path, text_tokenizer: JsonTokenizer
) -> None:
    directory = own_model(tmp_path, text_tokenizer, position_encoding="rotary")
    start = made({"model": directory}, max_length=128)
    config = start.config
    assert (config.max_length, config.position_encoding) == (128, "rotary")
    found = logits(start, torch.arange(128)[None] % text_tokenizer.vocabulary)
    assert found.shape[1] == 128 and found.isfinite().all()


def test_a_copy_of_a_task_has_only_the_keys_that_are_set() -> None:
    """The workflow passes tasks on as files: keys that are set override those of a model."""
    values = {
        **{"kind": "classification", "length": 64, "data": {"generated": {}}},
        **{
            "start": {"model": "some/model"},
            "encoder": {"max_length": 64, "attention": "full"},
        },
    }
    config = parse_config({"tasks": {"a": values}})
    copy = parse_config(json.loads(config.task_text("a"))).task("a")
    assert copy == config.task("a")
    assert copy.encoder.model_fields_set == {"max_length", "attention"}


def test_a_trained_tokenizer_gives_every_text_back() -> None:
    tokenizer = train_tokenizer([TEXT], 320)
    assert tokenizer.vocabulary == 320 and not tokenizer.is_dna
    fast = fast_tokenizer(tokenizer)
    for text in (TEXT, "ключ 鍵 🔑\n\n  two  spaces ", ""):
        encoded = fast(text, return_offsets_mapping=True)
        ids = encoded["input_ids"]
        assert [ids[0], ids[-1]] == [tokenizer.cls_id, tokenizer.sep_id]
        assert fast.decode(ids[1:-1]) == text
        assert ids[1:-1] == tokenizer.encode(text).tolist()
        ranges = itertools.starmap(range, encoded["offset_mapping"])
        assert {*itertools.chain(*ranges)} == {*range(len(text))}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"model_type": "bert"}, "'bert'"),
        ({"pad_token_id": "one"}, "pad_token_id"),
        ({"hidden_size": 400}, "roberta.embeddings.word_embeddings.weight"),
        (None, "config.json"),
    ],
)
def test_faulty_checkpoints_are_told(
    roberta: Path, change: dict[str, object] | None, named: object
) -> None:
    if change is None:
        (roberta / "config.json").unlink()
    else:
        update_json(roberta / "config.json", **change)
    with fails(ModelError, roberta, named):
        made({"model": str(roberta)}, max_length=512)


def test_python_documentation_is_split_by_topic(
    run: Run, write: Write, tmp_path: Path
) -> None:
    data = {"installed": True}
    config = write(python={"kind": "pretraining", "data": data, "encoder": TINY})
    done(run, config, "python", "prepare")
    home = tmp_path / "results/python/data"
    ids = {
        split: {line["id"] for line in read_lines(home / f"{split}.jsonl")}
        for split in ("train", "valid", "test")
    }
    assert ids["valid"] == {*HELD_OUT["valid"]} and ids["test"] == {*HELD_OUT["test"]}
    assert len(ids["train"]) > 40 and not ids["train"] & (ids["valid"] | ids["test"])


def test_pretraining_on_text_from_records_to_metrics(
    run: Run, write: Write, tmp_path: Path
) -> None:
    texts = [TEXT * 4, "A second document, which says little. " * 9]
    files = {
        split: str(
            write_lines(
                tmp_path / f"{split}.jsonl", *({"text": text} for text in texts)
            )
        )
        for split in ("train", "valid", "test")
    }
    training = {"per_device_train_batch_size": 4, "max_steps": 4}
    task = {
        "kind": "pretraining",
        "data": {"files": files},
        "start": {"vocabulary": 320},
        "encoder": {**TINY, "hidden": 32, "max_length": 64},
        "length": 48,
        "stride": 24,
        "training": training,
    }
    config = write(mlm=task)
    done(run, config, "mlm", "prepare", "train", "evaluate")
    home = tmp_path / "results/mlm"
    found = figures(home)
    assert found["bits_per_character"] > 0 and found["masked_tokens"] > 0
    model = load(home / "model")
    assert model.task == "pretraining" and not model.tokenizer.is_dna
    # It is a start of other tasks.
    weights = made({"model": str(home / "model")}).weights
    assert weights["encoder.embeddings.token.weight"].shape == (320, 32)
    (home / "model").rename(tmp_path / "first")
    again = {**task, "start": {"model": str(tmp_path / "first")}, "encoder": {}}
    log = done(run, write(mlm=again), "mlm", "train")
    assert "used as initial weights" in log
