"""What trainings on text begin with, against HuggingFace's models; and pretraining on text."""

import itertools
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import Tensor

from bigbird_dna.baselines.ngram import KneserNey
from bigbird_dna.config.network import EncoderConfig
from bigbird_dna.errors import ConfigError, ModelError
from bigbird_dna.model.directory import build_network, load, save
from bigbird_dna.model.settings import ClassificationSettings, PretrainingSettings
from bigbird_dna.papers.nlp.config import (
    InstalledConfig,
    PretrainingTaskConfig,
    TextStartConfig,
    parse_config,
)
from bigbird_dna.papers.nlp.data import installed_documents
from bigbird_dna.papers.nlp.initialization import (
    TextStart,
    make_text_start,
    write_bigbird,
)
from bigbird_dna.papers.nlp.pretraining import (
    character_ngram,
    token_widths,
    tokenize_records,
)
from bigbird_dna.tokens.interface import TextPieces
from bigbird_dna.tokens.text import JsonTokenizer, TextTokenizer
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
from tests.tokens.text_model import text_model
from tests.toys import random_model, small_encoder, update_json

TOLERANCE = 1e-4


def made(start: dict[str, Any], **encoder: Any) -> TextStart:
    """A start, for which no tokenizer is to be learnt."""

    def no_texts() -> Iterable[str]:
        raise AssertionError("no tokenizer is to be learnt")

    return make_text_start(
        TextStartConfig.model_validate(start), EncoderConfig(**encoder), no_texts
    )


def logits(start: TextStart, ids: Tensor) -> Tensor:
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


@pytest.mark.parametrize("attention", ["bigbird", "full"])
def test_roberta_becomes_a_bigbird_with_the_logits_of_theirs(
    roberta: Path, tmp_path: Path, attention: str
) -> None:
    if attention == "full":  # it is RoBERTa itself, where that has positions
        theirs, tokens = (
            transformers.RobertaForMaskedLM.from_pretrained(roberta).eval(),
            128,
        )
        start = made({"model": str(roberta)}, max_length=512, attention="full")
        table = start.weights["encoder.embeddings.position.weight"]
        assert torch.equal(table[:128], table[128:256]) and len(table) == 512
    else:
        (tmp_path / "theirs").mkdir()
        write_bigbird(roberta, tmp_path / "theirs", 1024)
        theirs, tokens = (
            transformers.BigBirdForMaskedLM.from_pretrained(tmp_path / "theirs").eval(),
            1024,
        )
        start = made(
            {"model": str(roberta)}, max_length=1024, compatibility="huggingface"
        )
        assert start.config.max_length == 1024
    ids = drawn(theirs.config.vocab_size, tokens)
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


def test_rotary_positions_are_interpolated_where_learnt_ones_are_tiled(
    tmp_path: Path, text_tokenizer: JsonTokenizer
) -> None:
    directory = own_model(tmp_path, text_tokenizer, position_encoding="rotary")
    start = made({"model": directory}, max_length=128)
    config = start.config
    assert (config.max_length, config.rotary_scale, config.position_encoding) == (
        128,
        2.0,
        "rotary",
    )
    found = logits(start, torch.arange(128)[None] % text_tokenizer.vocabulary)
    assert found.shape[1] == 128 and found.isfinite().all()
    # As the command does it.
    longer = load(Path(directory), positions=128, extend="interpolate")
    assert longer.config.rotary_scale == start.config.rotary_scale


def test_a_vocabulary_without_an_effect_is_refused() -> None:
    with fails(ValueError, "vocabulary 500"):
        TextStartConfig.model_validate({"model": "some/model", "vocabulary": 500})


def test_a_copy_of_a_task_gives_no_keys_that_the_task_does_not_give() -> None:
    """The workflow hands tasks on as files of their own: keys that are given hold beyond a model's."""
    values = {
        **{"kind": "classification", "length": 64, "data": {"generated": {}}},
        **{
            "start": {"model": "some/model"},
            "encoder": {"max_length": 64, "attention": "full"},
        },
    }
    task = parse_config({"tasks": {"a": values}}).task("a")
    copy = parse_config({"tasks": {"a": task.model_dump(mode="json")}}).task("a")
    assert copy == task
    assert copy.start.model_fields_set == {"model"}
    assert copy.encoder.model_fields_set == {"max_length", "attention"}
    # Of random weights the encoder is all that the section says, whatever later defaults are.
    own = parse_config({"tasks": {"a": {**values, "start": {}}}}).task("a")
    assert own.model_dump(mode="json")["encoder"]["layers"] == 12


def test_random_weights_learn_a_tokenizer_that_gives_every_text_back() -> None:
    encoder = EncoderConfig(layers=1, hidden=16, heads=2)
    start = make_text_start(TextStartConfig(vocabulary=320), encoder, lambda: [TEXT])
    assert (
        start.config.vocabulary == start.tokenizer.vocabulary == 320
        and not start.tokenizer.is_dna
    )
    for text in (TEXT, "ключ 鍵 🔑\n\n  two  spaces ", ""):
        pieces = start.tokenizer.text_pieces(text)
        assert start.tokenizer.decode(pieces.ids) == text
        assert pieces.ids.tolist() == start.tokenizer.encode(text).tolist()
        ranges = itertools.starmap(range, zip(pieces.starts, pieces.ends, strict=True))
        assert {*itertools.chain(*ranges)} == {*range(len(text))}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"model_type": "bert"}, "'bert'"),
        ({"pad_token_id": "one"}, "'pad_token_id'"),
        ({"pad_token_id": 400}, "cannot be loaded"),
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


def write_texts(path: Path, *texts: str) -> Path:
    return write_lines(path, *({"text": text} for text in texts))


def test_characters_of_tokens_add_up_to_the_text(
    tmp_path: Path, text_tokenizer: JsonTokenizer
) -> None:
    texts = (TEXT, "é🔑 x  ", "plain words")
    found = tokenize_records(write_texts(tmp_path / "a.jsonl", *texts), text_tokenizer)
    assert found.texts == texts and found.widths.min() >= 0
    for text, start, end in zip(
        texts, found.sentences, found.sentences[1:], strict=False
    ):
        assert found.widths[start:end].sum() == len(text)
    # "é" is two bytes: the first of its tokens has the character.
    pieces = text_tokenizer.text_pieces("é")
    assert token_widths(pieces, 1).tolist() == [1] + [0] * (len(pieces.ids) - 1)


def test_white_space_that_a_tokenizer_leaves_out_is_counted() -> None:
    # As WordPiece gives "ab  cd ": nothing for spaces.
    pieces = TextPieces(np.array([5, 6], np.int32), np.array([0, 4]), np.array([2, 6]))
    assert token_widths(pieces, 7).tolist() == [2, 5]
    empty = np.zeros(0, np.int64)
    assert (
        token_widths(TextPieces(empty.astype(np.int32), empty, empty), 0).tolist() == []
    )


def test_pieces_of_a_sentencepiece_model_say_their_characters(tmp_path: Path) -> None:
    tokenizer = TextTokenizer(text_model("the cat sat on the mat", 40))
    text = "the é cat ☃ sat"
    pieces = tokenizer.text_pieces(text)
    assert pieces.ids.tolist() == tokenizer.encode(text).tolist()
    assert token_widths(pieces, len(text)).sum() == len(text)
    for begin, end, index in zip(pieces.starts, pieces.ends, pieces.ids, strict=True):
        piece = tokenizer.pieces[index].replace("▁", " ").strip()
        assert index == tokenizer.unk_id or text[begin:end].strip() == piece


def test_the_character_ngram_gives_tokens_the_bits_of_their_characters(
    tmp_path: Path, text_tokenizer: JsonTokenizer
) -> None:
    train, valid, evaluated = (
        tokenize_records(
            write_texts(tmp_path / f"{name}.jsonl", *texts), text_tokenizer
        )
        for name, texts in (
            ("a", [TEXT] * 2),
            ("b", [TEXT[:90]]),
            ("c", [TEXT[20:80], "Zz the fox"]),
        )
    )
    order, bits = character_ngram(train, valid, evaluated, 4)
    assert order in (1, 2, 3, 4) and bits.shape == evaluated.tokens.shape
    alphabet = sorted(set(TEXT))
    numbers = {letter: number for number, letter in enumerate(alphabet)}

    def encode(text: str) -> np.ndarray:
        return np.array([numbers.get(letter, len(alphabet)) for letter in text])

    models = KneserNey(4, len(alphabet) + 1).fitted_orders([encode(TEXT)] * 2)
    means = {}
    for model in models:
        means[model.order] = -model.log2_probabilities(encode(TEXT[:90])).mean()
        if model.order == order:
            texts = (TEXT[20:80], "Zz the fox")
            total = sum(model.log2_probabilities(encode(text)).sum() for text in texts)
    assert order == min(means, key=means.__getitem__)
    assert bits.sum() == pytest.approx(-total)


def test_python_documentation_is_split_by_topic() -> None:
    config = InstalledConfig(valid=("numbers",), test=("import",))
    parts = {
        split: [*installed_documents(config, split)]
        for split in ("train", "valid", "test")
    }
    assert [record["id"] for record in parts["valid"]] == ["numbers"] and len(
        parts["train"]
    ) > 40
    assert not {record["id"] for record in parts["train"]} & {"numbers", "import"}
    with fails(Exception):
        [
            *installed_documents(
                InstalledConfig(valid=("nothing",), test=("x",)), "train"
            )
        ]


def test_python_documentation_is_prepared(
    run: Run, write: Write, tmp_path: Path
) -> None:
    data = {"installed": {"valid": ["numbers"], "test": ["import"]}}
    config = write(python={"kind": "pretraining", "data": data, "encoder": TINY})
    done(run, config, "python", "prepare")
    [valid] = read_lines(tmp_path / "results/python/data/valid.jsonl")
    assert valid["id"] == "numbers"


def test_pretraining_on_text_from_its_records_to_figures(
    run: Run, write: Write, tmp_path: Path
) -> None:
    texts = [TEXT * 4, "A second document, which says little. " * 9]
    splits = ("train", "valid", "test")
    files = {
        split: str(write_texts(tmp_path / f"{split}.jsonl", *texts)) for split in splits
    }
    steps = {"batch_size": 4, "steps": 6, "evaluate_every": 3, "checkpoint_minutes": 0}
    config = write(
        mlm={
            **{
                "kind": "pretraining",
                "data": {"files": files},
                "start": {"vocabulary": 320},
            },
            "encoder": {**TINY, "hidden": 32, "max_length": 64},
            "training": {
                **steps,
                "sequence_tokens": 48,
                "evaluation_sequences": 8,
            },
        }
    )
    done(run, config, "mlm", "prepare", "train", "evaluate")
    home = tmp_path / "results/mlm"
    found = figures(home)
    metrics = json.loads((home / "model/metrics.json").read_text())
    # The same hidden tokens of the same documents.
    assert found["bits_per_character"] == pytest.approx(
        metrics["bits_per_character"], rel=1e-4
    )
    assert found["character_ngram"] > 0 and 1 <= found["character_ngram_order"] <= 8
    assert found["hidden_characters"] >= found["hidden_tokens"] > 0
    model = load(home / "model")
    assert model.task == "pretraining" and not model.tokenizer.is_dna


TASK: dict[str, Any] = {
    "kind": "pretraining",
    "data": {"files": {"train": "a", "valid": "b", "test": "c"}},
}


def task_of(**training: Any) -> PretrainingTaskConfig:
    task = parse_config({"tasks": {"mlm": {**TASK, "training": training}}}).task("mlm")
    assert isinstance(task, PretrainingTaskConfig)
    return task


def test_shorter_inputs_come_first_of_the_steps_that_epochs_are() -> None:
    stages = [{"steps": 5000, "tokens": 128}]
    # The default of `steps`, 1,000, says nothing here.
    training = task_of(
        epochs=40.0, sequence_tokens=512, length_curriculum=stages
    ).training
    known = training.for_records(8000)
    assert (
        known.steps == 10_000
        and known.tokens_at(4999) == 128
        and known.tokens_at(5000) == 512
    )
    with fails(
        ConfigError,
        "training.length_curriculum",
        5000,
        400,
        "epochs 40.0",
        "records 320",
    ):
        training.for_records(320)
    with fails(ConfigError):
        task_of(steps=5000, sequence_tokens=512, length_curriculum=stages)
    with fails(ConfigError):
        task_of(
            epochs=1.0,
            sequence_tokens=512,
            length_curriculum=[{"steps": 5, "tokens": 512}],
        )


def test_pretraining_watches_inputs_not_records() -> None:
    with fails(ConfigError):
        task_of(evaluation_records=1)
    assert "evaluation_records" not in task_of().model_dump()["training"]
